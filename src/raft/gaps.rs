//! Detection, on a leader, of followers that answer heartbeats without progress of their logs.
//!
//! Sessions that owe answers, or whose messages are damaged, end by themselves. A gap that stays
//! open although several have ended has a cause that sending the same entries again does not
//! remove, so the follower is sent a snapshot instead: the entries that it lacks are removed here,
//! once a snapshot holds them. A follower that is merely slow keeps its session. Knows no clock.

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

/// Sessions that must have ended in vain before a gap is overdue, count.
const SESSIONS_TRIED_MIN: u64 = 3;

/// How far each follower's log went, and since when no further.
#[derive(Debug)]
pub(super) struct Gaps {
    open_max: Duration,
    standing: BTreeMap<NodeId, Standing>,
}

/// A follower whose log stands.
#[derive(Debug)]
struct Standing {
    matched: LogIndex,
    since: Instant,
    /// Sessions with it that had ended by then.
    ended: u64,
}

impl Gaps {
    pub(super) fn new(open_max: Duration) -> Self {
        Self { open_max, standing: BTreeMap::new() }
    }

    /// A gap that has been open for too long, once every so often. `committed` is what every
    /// follower should have; `ended` counts the sessions with a follower that have ended because of
    /// damage or of an answer that did not come.
    pub(super) fn look(
        &mut self,
        followers: &BTreeMap<NodeId, MemberProgress>,
        committed: LogIndex,
        ended: impl Fn(NodeId) -> u64,
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
            let ended = ended(follower);
            let fresh = Standing { matched, since: now, ended };
            let standing = self.standing.entry(follower).or_insert(fresh);
            let has_moved = standing.matched != matched;
            let is_overdue =
                now - standing.since >= self.open_max && ended.saturating_sub(standing.ended) >= SESSIONS_TRIED_MIN;
            if has_moved || is_overdue && overdue.is_none() {
                *standing = Standing { matched, since: now, ended };
                overdue = overdue.or((!has_moved).then_some(Gap { follower, matched }));
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
            // A session ends every second.
            let now = begin + Duration::from_secs(seconds);
            gaps.look(&[(NodeId(2), progress)].into(), LogIndex(100), |_| seconds, now)
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

    #[test]
    fn a_slow_follower_whose_sessions_last_is_no_gap() {
        let begin = Instant::now();
        let mut gaps = Gaps::new(Duration::from_secs(10));
        let mut look = |ended, seconds| {
            let progress = MemberProgress { matched: Some(LogIndex(90)), is_live: true };
            let now = begin + Duration::from_secs(seconds);
            gaps.look(&[(NodeId(2), progress)].into(), LogIndex(100), |_| ended, now).is_some()
        };
        assert!(!look(7, 0), "sessions that ended before do not count");
        assert!(!look(7, 60));
        assert!(!look(9, 120), "two were in vain");
        assert!(look(10, 121), "three were");
    }
}
