//! Compact (spec: etcd §1.7).

use std::time::Duration;

use super::errors::Failure;
use super::header;
use headwater_node::{Node, NodeError, RequestContext, Unanswered};
use headwater_proto::pb::etcdserverpb as pb;
use headwater_types::{Command, Compact, LogIndex, Outcome, Revision};

/// Longest wait for a physical compaction, also the timeout if the client gives none. The history
/// below the compaction point has no bound, so the deadline of ordinary requests is too short.
pub(super) const RECLAIM_WAIT_MAX: Duration = Duration::from_secs(3600);

/// Proposes a compaction. If the request is for a physical one, then waits until the space is
/// reclaimed; the deadline of `reclaim` bounds this wait, that of `ctx` the proposal. If the wait
/// fails, the error is indeterminate, although the compaction has taken effect.
pub(super) async fn run(
    node: &Node,
    ctx: &RequestContext,
    reclaim: &RequestContext,
    request: pb::CompactionRequest,
) -> Result<(LogIndex, pb::CompactionResponse), Failure> {
    let command = Command::Compact(Compact { revision: Revision(request.revision) });
    let applied = node.propose(ctx, command).await?;
    let Outcome::Compacted = applied.outcome else { return Err(Failure::Mismatch) };
    if request.physical {
        // The compaction has taken effect; only the wait failed.
        node.maintenance()
            .wait_reclaimed(reclaim, applied.index)
            .await
            .map_err(|_| NodeError::Indeterminate(Unanswered::Timeout))?;
    }
    Ok((applied.index, pb::CompactionResponse { header: Some(header::full(node, applied.revision)) }))
}
