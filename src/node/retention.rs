//! Compaction of history by age, so that a store with endless writes does not grow without end.
//!
//! Owns the schedule: at intervals, the leader proposes a new beginning of history. Apply decides
//! which changes are removed. The age of a change is recorded in history, so that elections and
//! restarts do not affect it.

use std::sync::Weak;
use std::time::Duration;

use super::{Inner, Maintenance, Node, NodeError, RequestContext, tasks, unix_ms};
use headwater_types::{Command, TrimHistory};

/// Steps of compaction in one retention time, count, if [`STEP_MIN`] and [`STEP_MAX`] allow it. A
/// step is at most one log entry.
const STEPS: u32 = 20;
/// The longest interval between two steps.
const STEP_MAX: Duration = Duration::from_secs(300);
/// The shortest interval between two steps.
const STEP_MIN: Duration = Duration::from_millis(50);
/// Timeout of a step.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);

/// Proposes, while this node leads, to remove history that is older than `retention`. Returns when
/// the node is dropped.
pub(super) async fn keep_history(inner: Weak<Inner>, retention: Duration) {
    if !tasks::once_serving(&inner).await {
        return;
    }
    loop {
        tokio::time::sleep((retention / STEPS).clamp(STEP_MIN, STEP_MAX)).await;
        let Some(inner) = inner.upgrade() else { return };
        let node = Node { inner };
        if node.leadership().leader == Some(node.identity().node_id)
            && let Err(error) = node.maintenance().trim_history(retention).await
        {
            tracing::debug!(%error, "history is given up later");
        }
    }
}

impl Maintenance<'_> {
    async fn trim_history(self, retention: Duration) -> Result<(), NodeError> {
        let ctx = RequestContext::own(STEP_TIMEOUT);
        let until = unix_ms().saturating_sub(u64::try_from(retention.as_millis()).unwrap_or(u64::MAX));
        let last = self.node.read_by_itself(ctx.deadline, move |view| view.last_command_until(until).map(Ok)).await?;
        if let Some(from) = last.value {
            self.node.propose(&ctx, Command::TrimHistory(TrimHistory { from })).await?;
        }
        Ok(())
    }
}
