//! Alarms and the quota as a node sees them: what is active, what the leader proposes by itself.
//!
//! Owns the quota of the leader, and taking the alarm back by itself if that is wanted. What is refused is decided where
//! commands are applied.

use std::sync::Weak;
use std::time::Duration;

use super::{Consistency, Inner, Node, NodeError, Read, RequestContext, tasks};
use headwater_types::{Alarm, AlarmKind, AlarmSet, Command, Outcome, Quota, SetAlarm};

/// How often the leader looks at quota and alarms.
const POLL: Duration = Duration::from_millis(500);
/// How long a proposal of its own may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a member is told about the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaOptions {
    /// How much live keys and values may take, bytes; `None` is no bound. The leader's counts.
    pub bytes_max: Option<u64>,
    /// Whether the leader takes the alarm back by itself once live keys and values take at most nine tenths of the quota.
    pub auto_disarm: bool,
}

impl Default for QuotaOptions {
    fn default() -> Self {
        Self { bytes_max: Some(headwater_types::limits::QUOTA_BYTES_DEFAULT), auto_disarm: false }
    }
}

impl Node {
    /// The active alarms, after a read of the wanted consistency.
    ///
    /// # Errors
    ///
    /// Those of the read path.
    pub async fn alarms(&self, ctx: &RequestContext, consistency: Consistency) -> Result<Read<Vec<Alarm>>, NodeError> {
        self.ready_to_read(ctx, consistency).await?;
        self.read(true, ctx.deadline, |view| view.alarms().map(Ok)).await
    }

    /// Raises an alarm or takes it back; tells whether it was active before.
    ///
    /// # Errors
    ///
    /// As [`Node::propose`].
    pub async fn set_alarm(&self, ctx: &RequestContext, set: SetAlarm) -> Result<Read<bool>, NodeError> {
        let applied = self.propose(ctx, Command::SetAlarm(set)).await?;
        let value = matches!(applied.outcome, Outcome::AlarmSet { was_active: true });
        Ok(Read { index: applied.index, revision: applied.revision, value })
    }

    /// Which kinds of alarm are active, as far as this node has applied. Cheap.
    pub fn active_alarms(&self) -> AlarmSet {
        self.inner.store.current().head().alarms
    }

    /// The quota that counts, bytes: the leader's, or before one has said so this node's own. `None` is no bound.
    pub(super) fn quota_bytes(&self) -> Option<u64> {
        self.inner.store.current().head().quota.map_or(self.inner.quota.bytes_max, |quota| quota.bytes_max)
    }
}

/// While this node leads: makes its quota the one that counts, and takes alarms back if it is told to.
pub(super) async fn keep_quota(inner: Weak<Inner>) {
    if !tasks::once_serving(&inner).await {
        return;
    }
    loop {
        let Some(inner) = inner.upgrade() else { return };
        let node = Node { inner };
        if node.leadership().leader == Some(node.identity().node_id) {
            for command in node.wanted().await {
                if let Err(error) = node.propose(&RequestContext::within(PATIENCE), command).await {
                    tracing::debug!(%error, "could not set quota or alarms yet");
                }
            }
        }
        drop(node);
        tokio::time::sleep(POLL).await;
    }
}

impl Node {
    /// What a leader has to propose about quota and alarms as they are.
    async fn wanted(&self) -> Vec<Command> {
        let head = self.inner.store.current().head();
        let options = self.inner.quota;
        let quota = Quota { bytes_max: options.bytes_max, member: self.identity().node_id };
        let mut commands = Vec::new();
        if head.quota != Some(quota) {
            commands.push(Command::SetQuota(quota));
        }
        if options.auto_disarm && head.alarms.has(AlarmKind::NoSpace) && fits_again(head.live_bytes, options.bytes_max)
        {
            match self.alarms(&RequestContext::within(PATIENCE), Consistency::Serializable).await {
                Ok(alarms) => {
                    let full = alarms.value.into_iter().filter(|alarm| alarm.kind == AlarmKind::NoSpace);
                    commands.extend(full.map(|alarm| Command::SetAlarm(SetAlarm { alarm, active: false })));
                }
                Err(error) => tracing::debug!(%error, "could not read the alarms"),
            }
        }
        commands
    }
}

/// Nine tenths, so that a store at its limit does not raise and clear its alarm in turn.
fn fits_again(live_bytes: u64, bytes_max: Option<u64>) -> bool {
    bytes_max.is_none_or(|max| u128::from(live_bytes) * 10 <= u128::from(max) * 9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_tenths_is_room_again() {
        for (live, max, fits) in [
            (0, Some(0), true),
            (1, Some(0), false),
            (90, Some(100), true),
            (91, Some(100), false),
            (u64::MAX, Some(u64::MAX), false),
            (u64::MAX, None, true),
        ] {
            assert_eq!(fits_again(live, max), fits, "{live} of {max:?}");
        }
    }
}
