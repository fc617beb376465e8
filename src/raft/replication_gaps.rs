//! Detection, on a leader, of followers that answer heartbeats without progress of their logs.
//!
//! A replication session with an overdue answer or a damaged message ends by itself. If the
//! follower still lacks the same entries after several such sessions, sending them again does not
//! help. The leader then purges those entries, once a snapshot holds them, so that the follower
//! gets the snapshot. A slow follower keeps its session. Knows no clock: the caller passes the
//! time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::roster::MemberProgress;
use headwater_types::{LogIndex, NodeId};

/// A follower with an overdue gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OverdueGap {
    pub(super) follower: NodeId,
    /// Highest index up to which its log is known to equal the leader's; zero if none is known.
    pub(super) matched: LogIndex,
}

/// Number of sessions that must have failed without progress before a gap can be overdue. Time
/// must have passed as well: see [`ReplicationGaps::check`].
const SESSIONS_TRIED_MIN: u64 = 3;

/// The live followers that are behind the commit index: for each, its matched index, and the time
/// since that index last changed.
#[derive(Debug)]
pub(super) struct ReplicationGaps {
    open_max: Duration,
    stalled: BTreeMap<NodeId, StalledLog>,
}

/// A follower without progress.
#[derive(Debug)]
struct StalledLog {
    matched: LogIndex,
    since: Instant,
    /// Number of failed sessions with the follower, as counted at `since`.
    ended: u64,
}

impl ReplicationGaps {
    pub(super) fn new(open_max: Duration) -> Self {
        Self { open_max, stalled: BTreeMap::new() }
    }

    /// The overdue gap of the follower with the lowest id; `None` if no gap is overdue. A gap is
    /// overdue once the follower's matched index has not moved for `open_max`, and at least
    /// [`SESSIONS_TRIED_MIN`] sessions with it have ended meanwhile. Only live followers count. A
    /// returned gap counts as new, so it is returned again only when it is overdue again.
    /// `committed` is the index that every follower should have. `ended` is the number of sessions
    /// with a follower that damage, an overdue answer or the log keeper has ended so far
    /// (`PeerMetrics::sessions_ended`). A session whose connection was lost does not count.
    pub(super) fn check(
        &mut self,
        followers: &BTreeMap<NodeId, MemberProgress>,
        committed: LogIndex,
        ended: impl Fn(NodeId) -> u64,
        now: Instant,
    ) -> Option<OverdueGap> {
        self.stalled.retain(|id, _| followers.contains_key(id));
        let mut overdue = None;
        for (&follower, progress) in followers {
            let matched = progress.matched.unwrap_or_default();
            if !progress.is_live || matched >= committed {
                self.stalled.remove(&follower);
                continue;
            }
            let ended = ended(follower);
            let fresh = StalledLog { matched, since: now, ended };
            let stalled = self.stalled.entry(follower).or_insert(fresh);
            let has_moved = stalled.matched != matched;
            let is_overdue =
                now - stalled.since >= self.open_max && ended.saturating_sub(stalled.ended) >= SESSIONS_TRIED_MIN;
            if has_moved || is_overdue && overdue.is_none() {
                *stalled = StalledLog { matched, since: now, ended };
                overdue = overdue.or((!has_moved).then_some(OverdueGap { follower, matched }));
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
        let mut gaps = ReplicationGaps::new(Duration::from_secs(10));
        let mut check = |matched: u64, is_live, seconds| {
            let progress = MemberProgress { matched: Some(LogIndex(matched)), is_live };
            // A session ends every second.
            let now = begin + Duration::from_secs(seconds);
            gaps.check(&[(NodeId(2), progress)].into(), LogIndex(100), |_| seconds, now)
        };
        let gap = Some(OverdueGap { follower: NodeId(2), matched: LogIndex(90) });
        assert_eq!(check(80, true, 0), None);
        assert_eq!(check(90, true, 10), None, "it moves");
        assert_eq!(check(90, true, 19), None);
        assert_eq!(check(90, true, 20), gap);
        assert_eq!(check(90, true, 21), None, "that was told");
        assert_eq!(check(90, true, 30), gap, "again");
        assert_eq!(check(90, false, 39), None, "whoever is away is no concern here");
        assert_eq!(check(90, true, 41), None);
        assert_eq!(check(100, true, 60), None, "it has everything");
        assert_eq!(check(100, true, 90), None);
    }

    #[test]
    fn a_slow_follower_whose_sessions_last_is_no_gap() {
        let begin = Instant::now();
        let mut gaps = ReplicationGaps::new(Duration::from_secs(10));
        let mut check = |ended, seconds| {
            let progress = MemberProgress { matched: Some(LogIndex(90)), is_live: true };
            let now = begin + Duration::from_secs(seconds);
            gaps.check(&[(NodeId(2), progress)].into(), LogIndex(100), |_| ended, now).is_some()
        };
        assert!(!check(7, 0), "sessions that ended before do not count");
        assert!(!check(7, 60));
        assert!(!check(9, 120), "two were in vain");
        assert!(check(10, 121), "three were");
    }
}
