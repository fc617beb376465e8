//! Tells once that a member does not answer, and once that it does again, however many heartbeats
//! that takes.

use std::collections::BTreeMap;
use std::fmt::Display;

use parking_lot::Mutex;

use headwater_types::NodeId;

/// Heartbeats in a row without an answer after which a member counts as down: about a second, for a
/// busy member may miss a few.
const MISSED_MAX: u32 = 10;

/// Which members answer.
#[derive(Default)]
pub(super) struct Reachability {
    missed: Mutex<BTreeMap<NodeId, u32>>,
}

/// The change that a report made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    Nothing,
    Down,
    Back,
}

impl Reachability {
    /// Takes note of one heartbeat to `member`, with why it was not answered.
    pub(super) fn report(&self, member: NodeId, failure: Option<&impl Display>) {
        match (self.count(member, failure.is_some()), failure) {
            (News::Down, Some(why)) => tracing::warn!(%member, %why, "a member does not answer"),
            (News::Back, _) => tracing::info!(%member, "the member answers again"),
            (News::Down | News::Nothing, _) => {}
        }
    }

    fn count(&self, member: NodeId, has_failed: bool) -> News {
        let mut missed = self.missed.lock();
        if !has_failed {
            return match missed.remove(&member) {
                Some(count) if count >= MISSED_MAX => News::Back,
                _ => News::Nothing,
            };
        }
        let count = missed.entry(member).or_default();
        *count = count.saturating_add(1);
        if *count == MISSED_MAX { News::Down } else { News::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once() {
        let reachable = Reachability::default();
        let member = NodeId(2);
        assert_eq!(reachable.count(member, false), News::Nothing);
        for _ in 1..MISSED_MAX {
            assert_eq!(reachable.count(member, true), News::Nothing);
        }
        assert_eq!(reachable.count(member, true), News::Down);
        assert_eq!(reachable.count(member, true), News::Nothing);
        assert_eq!(reachable.count(NodeId(3), true), News::Nothing, "members are told apart");
        assert_eq!(reachable.count(member, false), News::Back);
        assert_eq!(reachable.count(member, false), News::Nothing);
    }
}
