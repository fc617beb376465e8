//! Logs once that a member does not answer, and once that it answers again, not at every heartbeat.

use std::collections::BTreeMap;
use std::fmt::Display;

use parking_lot::Mutex;

use headwater_types::NodeId;

/// Heartbeats in a row without an answer after which a member counts as down: about a second, for a
/// busy member may miss a few.
const MISSED_MAX: u32 = 10;

/// Counts the heartbeats in a row that each member has not answered.
#[derive(Default)]
pub(super) struct Reachability {
    missed: Mutex<BTreeMap<NodeId, u32>>,
}

/// The change of a member's reachability that a heartbeat made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReachabilityChange {
    Nothing,
    Down,
    Back,
}

impl Reachability {
    /// Records one heartbeat to `member`; `failure` is the reason for a missing answer. Logs a
    /// change.
    pub(super) fn report(&self, member: NodeId, failure: Option<&impl Display>) {
        match (self.count(member, failure.is_some()), failure) {
            (ReachabilityChange::Down, Some(why)) => tracing::warn!(%member, %why, "a member does not answer"),
            (ReachabilityChange::Back, _) => tracing::info!(%member, "the member answers again"),
            (ReachabilityChange::Down | ReachabilityChange::Nothing, _) => {}
        }
    }

    fn count(&self, member: NodeId, has_failed: bool) -> ReachabilityChange {
        let mut missed = self.missed.lock();
        if !has_failed {
            return match missed.remove(&member) {
                Some(count) if count >= MISSED_MAX => ReachabilityChange::Back,
                _ => ReachabilityChange::Nothing,
            };
        }
        let count = missed.entry(member).or_default();
        *count = count.saturating_add(1);
        if *count == MISSED_MAX { ReachabilityChange::Down } else { ReachabilityChange::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once() {
        let reachable = Reachability::default();
        let member = NodeId(2);
        assert_eq!(reachable.count(member, false), ReachabilityChange::Nothing);
        for _ in 1..MISSED_MAX {
            assert_eq!(reachable.count(member, true), ReachabilityChange::Nothing);
        }
        assert_eq!(reachable.count(member, true), ReachabilityChange::Down);
        assert_eq!(reachable.count(member, true), ReachabilityChange::Nothing);
        assert_eq!(reachable.count(NodeId(3), true), ReachabilityChange::Nothing, "members are told apart");
        assert_eq!(reachable.count(member, false), ReachabilityChange::Back);
        assert_eq!(reachable.count(member, false), ReachabilityChange::Nothing);
    }
}
