//! Alarms and the quota as a node sees them: the active alarms, and the leader's own proposals.
//!
//! Owns the quota of the leader, and the automatic disarming of the alarm if it is configured.
//! Apply decides which commands are refused.

use std::sync::Weak;
use std::time::Duration;

use super::{Consistency, Inner, Maintenance, Node, NodeError, Read, RequestContext, tasks};
use headwater_types::{Access, Alarm, AlarmKind, AlarmSet, Command, MemberRefusal, NodeId, Outcome, Quota, SetAlarm};

/// Interval at which the leader checks quota and alarms.
const POLL: Duration = Duration::from_millis(500);
/// Timeout of one of the leader's own proposals or reads.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// A member's configuration of the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaOptions {
    /// Bound on live keys and values, bytes; `None` for no bound. The leader's bound applies.
    pub bytes_max: Option<u64>,
    /// Whether the leader disarms `NOSPACE` alarms by itself once live keys and values take at most
    /// nine tenths of the quota.
    pub auto_disarm: bool,
}

impl Default for QuotaOptions {
    fn default() -> Self {
        Self { bytes_max: Some(headwater_types::limits::QUOTA_BYTES_DEFAULT), auto_disarm: false }
    }
}

impl Maintenance<'_> {
    /// The active alarms, read with `consistency`.
    ///
    /// # Errors
    ///
    /// Those of the read path; the refusal of a principal that is not authenticated.
    pub async fn alarms(self, ctx: &RequestContext, consistency: Consistency) -> Result<Read<Vec<Alarm>>, NodeError> {
        self.node.ready_to_read(ctx, consistency).await?;
        self.node.authorize_somebody(ctx)?;
        self.node.read(true, ctx, |view| view.alarms().map(Ok)).await
    }

    /// Raises or disarms an alarm; returns whether it was active before. An alarm of a member that
    /// does not exist can be disarmed, because a member may have left since it was raised.
    ///
    /// # Errors
    ///
    /// As [`Node::propose`]; [`NodeError::Membership`] to raise `CORRUPT` for an unknown member,
    /// which would stop all writes. `NOSPACE` can be raised for any id, as in etcd.
    pub async fn set_alarm(self, ctx: &RequestContext, set: SetAlarm) -> Result<Read<bool>, NodeError> {
        // The check of the member is not a rule of apply: members of an older version would still
        // accept the command, and the states would differ.
        self.node.authorize_cluster(ctx, Access::WRITE)?;
        let is_corrupt = set.alarm.kind == AlarmKind::Corrupt;
        if set.active && is_corrupt && !self.is_member(ctx, set.alarm.member).await? {
            return Err(NodeError::Membership(MemberRefusal::NotFound));
        }
        let applied = self.node.propose(ctx, Command::SetAlarm(set)).await?;
        let value = matches!(applied.outcome, Outcome::AlarmSet { was_active: true });
        Ok(Read { index: applied.index, revision: applied.revision, value })
    }

    /// Whether the node is a member, by the linearizable membership: this member may lag.
    async fn is_member(self, ctx: &RequestContext, id: NodeId) -> Result<bool, NodeError> {
        let members = self.node.members().list(ctx, Consistency::Linearizable).await?;
        Ok(members.value.iter().any(|member| member.id == id))
    }

    /// The kinds of the alarms that are active in this node's applied state. Cheap.
    pub fn active_alarms(self) -> AlarmSet {
        self.node.inner.store.current().head().alarms
    }

    /// The quota in effect, bytes: the leader's, or this node's own before a leader has set one.
    /// `None` for no bound.
    pub(super) fn quota_bytes(self) -> Option<u64> {
        self.node
            .inner
            .store
            .current()
            .head()
            .quota
            .map_or(self.node.inner.maintenance.quota.bytes_max, |quota| quota.bytes_max)
    }
}

/// While this node leads: puts its quota into effect, and disarms alarms if that is configured.
/// Returns when the node is dropped.
pub(super) async fn keep_quota(inner: Weak<Inner>) {
    if !tasks::once_serving(&inner).await {
        return;
    }
    loop {
        let Some(inner) = inner.upgrade() else { return };
        let node = Node { inner };
        if node.leadership().leader == Some(node.identity().node_id) {
            for command in node.maintenance().due_commands().await {
                if let Err(error) = node.propose(&RequestContext::own(CALL_TIMEOUT), command).await {
                    tracing::debug!(%error, "could not set quota or alarms yet");
                }
            }
        }
        drop(node);
        tokio::time::sleep(POLL).await;
    }
}

impl Maintenance<'_> {
    /// The commands about quota and alarms that the leader has to propose now.
    async fn due_commands(self) -> Vec<Command> {
        let head = self.node.inner.store.current().head();
        let options = self.node.inner.maintenance.quota;
        let quota = Quota { bytes_max: options.bytes_max, member: self.node.identity().node_id };
        let mut commands = Vec::new();
        if head.quota != Some(quota) {
            commands.push(Command::SetQuota(quota));
        }
        if options.auto_disarm
            && head.alarms.has(AlarmKind::NoSpace)
            && is_below_limit(head.live_bytes, options.bytes_max)
        {
            match self.alarms(&RequestContext::own(CALL_TIMEOUT), Consistency::Serializable).await {
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

/// Whether live data take at most nine tenths of the quota; true without a quota. The tenth keeps a
/// store at its limit from raising and disarming its alarm again and again.
fn is_below_limit(live_bytes: u64, bytes_max: Option<u64>) -> bool {
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
            assert_eq!(is_below_limit(live, max), fits, "{live} of {max:?}");
        }
    }
}
