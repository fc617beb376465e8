//! Detection of an applied index that does not move although more is committed, its report in the
//! log, and one remedy.
//!
//! Committed entries that have not arrived are the leader's to send (`replication_gaps`). Entries
//! that have arrived may not be applied, either: after a snapshot that ends inside the follower's
//! own log, openraft leaves applied behind committed until the next entry arrives (spec:
//! reliability §3.7, defect B). Reads that wait for an index would hang on an idle cluster. The
//! member then proposes a blank entry. The detectors know no clock: the caller sets the interval.

use std::time::{Duration, Instant};

use super::consensus::Consensus;
use headwater_types::LogIndex;

/// Detects an apply that does not move, by the applied and committed index at the previous check.
#[derive(Debug, Default)]
pub struct StalledApply {
    before: Option<(LogIndex, LogIndex)>,
}

impl StalledApply {
    /// Whether neither index has moved since the previous check, although committed entries in the
    /// local log are not applied. False while the log, up to `last`, lacks committed entries.
    pub fn check(&mut self, applied: LogIndex, committed: LogIndex, last: LogIndex) -> bool {
        let waits = (applied < committed && committed <= last).then_some((applied, committed));
        let is_stalled = waits.is_some() && waits == self.before;
        self.before = waits;
        is_stalled
    }
}

/// Shortest stall that is reported. Under heavy load entries arrive in batches, but some are
/// applied meanwhile.
pub(super) const STALL_MIN: Duration = Duration::from_secs(5);

/// Detector of a stall: entries are committed and none is applied, although there is a live leader
/// and no snapshot is being received.
#[derive(Debug, Default)]
pub(super) struct StallDetector {
    applied: LogIndex,
    since: Option<Instant>,
    is_reported: bool,
}

/// Change of a stall that is to be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    Nothing,
    Begun(Duration),
    Over(Duration),
}

impl StallDetector {
    /// Compares with the previous check; returns the change to be logged. `is_excused`: a snapshot
    /// is being received, or there is no live leader, so no entries can arrive.
    fn check(&mut self, applied: LogIndex, committed: LogIndex, is_excused: bool, now: Instant) -> Report {
        let stands = applied < committed && applied == self.applied && !is_excused;
        self.applied = applied;
        if !stands {
            let reported = std::mem::take(&mut self.is_reported);
            return match self.since.take() {
                Some(since) if reported => Report::Over(now - since),
                _ => Report::Nothing,
            };
        }
        let lasts = now - *self.since.get_or_insert(now);
        if lasts >= STALL_MIN && !std::mem::replace(&mut self.is_reported, true) {
            return Report::Begun(lasts);
        }
        Report::Nothing
    }
}

/// Checks every ten heartbeats for both kinds of stall, logs them, and proposes a blank entry if
/// entries in the log are not applied. Runs until consensus ends.
pub(super) async fn watch(consensus: Consensus, heartbeat: Duration) {
    let checking = async {
        let (mut stalled, mut stall) = (StalledApply::default(), StallDetector::default());
        loop {
            // Polled: the condition is "no progress within several heartbeats".
            tokio::time::sleep(heartbeat * 10).await;
            let points = consensus.progress().points();
            let is_excused =
                consensus.snapshot_slot().try_lock().is_err() || consensus.leadership().live_leader().is_none();
            let (applied, committed) = (points.applied, points.committed);
            match stall.check(applied, committed, is_excused, Instant::now()) {
                Report::Nothing => {}
                Report::Begun(lasts) => {
                    tracing::error!(%applied, %committed, ?lasts, "this member stands still: committed entries do not come");
                }
                Report::Over(lasted) => tracing::info!(%applied, ?lasted, "this member moves again"),
            }
            consensus.progress().set_stalled_since(stall.since);
            if stalled.check(points.applied, points.committed, points.last) {
                tracing::warn!(
                    applied = %points.applied,
                    committed = %points.committed,
                    "apply is stuck, asking for a blank entry"
                );
                // The next check sees its effect.
                drop(consensus.propose(vec![bytes::Bytes::new()]).await);
            }
        }
    };
    // Neither a check nor a pending proposal may keep the files of an ended consensus open.
    tokio::select! {
        () = checking => {}
        _ = consensus.ended() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_reported_once_and_so_is_its_end() {
        let begin = Instant::now();
        let mut stall = StallDetector::default();
        let mut look = |applied, committed, is_excused, seconds| {
            let now = begin + Duration::from_secs(seconds);
            stall.check(LogIndex(applied), LogIndex(committed), is_excused, now)
        };
        assert_eq!(look(95, 100, false, 0), Report::Nothing, "it was never seen before");
        assert_eq!(look(95, 100, false, 1), Report::Nothing);
        assert_eq!(look(95, 110, false, 5), Report::Nothing);
        assert_eq!(look(95, 120, false, 6), Report::Begun(Duration::from_secs(5)));
        assert_eq!(look(95, 130, false, 12), Report::Nothing);
        assert_eq!(look(96, 130, false, 13), Report::Over(Duration::from_secs(12)));
        assert_eq!(look(96, 130, true, 40), Report::Nothing, "a snapshot arrives, or nobody leads");
        assert_eq!(look(96, 130, false, 41), Report::Nothing);
        assert_eq!(look(130, 130, false, 60), Report::Nothing);
        assert_eq!(look(130, 130, false, 90), Report::Nothing, "there is nothing to apply");
    }

    #[test]
    fn only_entries_that_are_here_and_do_not_move_are_stalled() {
        let mut stalled = StalledApply::default();
        let mut look = |applied, committed, last| stalled.check(LogIndex(applied), LogIndex(committed), LogIndex(last));
        assert!(!look(95, 100, 100), "it was never seen before");
        assert!(look(95, 100, 100));
        assert!(!look(96, 100, 100), "it moves");
        assert!(!look(100, 100, 100));
        assert!(!look(95, 100, 97), "what is missing is still to come");
        assert!(!look(95, 100, 97));
    }
}
