//! Notices, on a leader, followers that answer heartbeats and whose logs do not come nearer.
//!
//! Sessions that owe answers end by themselves. A gap that stays open all the same has a cause that sending the same entries again
//! does not remove, so the follower is sent a snapshot instead: the entries that it lacks are removed here, once a snapshot
//! holds them. Knows no clock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::roster::MemberProgress;
use headwater_types::{LogIndex, NodeId};

/// A follower whose gap has been open for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) follower: NodeId,
    /// How far its log is known to be the leader's.
    pub(super) matched: LogIndex,
}

/// How far each follower's log went, and since when no further.
#[derive(Debug)]
pub(super) struct Gaps {
    open_max: Duration,
    standing: BTreeMap<NodeId, (LogIndex, Instant)>,
}

impl Gaps {
    pub(super) fn new(open_max: Duration) -> Self {
        Self { open_max, standing: BTreeMap::new() }
    }

    /// A gap that has been open for too long, once every so often. `committed` is what every follower should have.
    pub(super) fn look(
        &mut self,
        followers: &BTreeMap<NodeId, MemberProgress>,
        committed: LogIndex,
        now: Instant,
    ) -> Option<Gap> {
        self.standing.retain(|id, _| followers.contains_key(id));
        let mut overdue = None;
        for (&follower, progress) in followers {
            let matched = progress.matched.unwrap_or_default();
            if !progress.is_live || matched >= committed {
                self.standing.remove(&follower);
                continue;
            }
            let (before, since) = self.standing.entry(follower).or_insert((matched, now));
            if *before != matched {
                (*before, *since) = (matched, now);
            } else if now - *since >= self.open_max && overdue.is_none() {
                *since = now;
                overdue = Some(Gap { follower, matched });
            }
        }
        overdue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_gap_of_a_live_follower_that_does_not_move_is_overdue() {
        let begin = Instant::now();
        let mut gaps = Gaps::new(Duration::from_secs(10));
        let mut look = |matched: u64, is_live, seconds| {
            let progress = MemberProgress { matched: Some(LogIndex(matched)), is_live };
            gaps.look(&[(NodeId(2), progress)].into(), LogIndex(100), begin + Duration::from_secs(seconds))
        };
        let gap = Some(Gap { follower: NodeId(2), matched: LogIndex(90) });
        assert_eq!(look(80, true, 0), None);
        assert_eq!(look(90, true, 10), None, "it moves");
        assert_eq!(look(90, true, 19), None);
        assert_eq!(look(90, true, 20), gap);
        assert_eq!(look(90, true, 21), None, "that was told");
        assert_eq!(look(90, true, 30), gap, "again");
        assert_eq!(look(90, false, 39), None, "whoever is away is no concern here");
        assert_eq!(look(90, true, 41), None);
        assert_eq!(look(100, true, 60), None, "it has everything");
        assert_eq!(look(100, true, 90), None);
    }
}
