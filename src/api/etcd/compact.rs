//! Compact (spec: etcd §1.7).

use std::time::Duration;

use super::errors::Failure;
use super::header;
use headwater_node::{Node, NodeError, RequestContext, Unanswered};
use headwater_proto::pb::etcdserverpb as pb;
use headwater_types::{Command, Compact, LogIndex, Outcome, Revision};

/// How long a physical compaction is waited for if the client gives no deadline, and at most. The
/// history below the compaction point may be anything in size, so the deadline of ordinary requests
/// does not fit.
pub(super) const RECLAIM_WAIT_MAX: Duration = Duration::from_secs(3600);

/// `reclaim` is the context of the wait that a physical compaction asks for.
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
        // The compaction itself has taken effect: what failed is the wait.
        node.wait_reclaimed(reclaim, applied.index).await.map_err(|_| NodeError::Indeterminate(Unanswered::Timeout))?;
    }
    Ok((applied.index, pb::CompactionResponse { header: Some(header::full(node, applied.revision)) }))
}
