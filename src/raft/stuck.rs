//! Notices that applying has stopped short of what is committed, and tells.
//!
//! Entries that are committed and do not come are the leader's to send (`gaps`); whoever watches this member is told
//! that it stands still. Entries that are here and are not applied are nudged: after a snapshot that ends inside the
//! follower's own log, openraft leaves applied behind committed until the next entry arrives (spec: reliability §3.7,
//! defect B): reads that wait for an index would hang on an idle cluster. A member that sees this asks for a blank
//! entry. Knows no clock: whoever looks decides how often.

use std::time::{Duration, Instant};

use super::consensus::Consensus;
use headwater_types::LogIndex;

/// Remembers what was seen at the last look.
#[derive(Debug, Default)]
pub struct StuckApply {
    before: Option<(LogIndex, LogIndex)>,
}

impl StuckApply {
    /// Whether nothing at all has moved since the last look, although entries that are here and committed are not applied.
    pub fn look(&mut self, applied: LogIndex, committed: LogIndex, last: LogIndex) -> bool {
        let waits = (applied < committed && committed <= last).then_some((applied, committed));
        let is_stuck = waits.is_some() && waits == self.before;
        self.before = waits;
        is_stuck
    }
}

/// How long a member may stand still before it says so. It does so while it is sent much, but then something moves.
pub(super) const STANDSTILL_MIN: Duration = Duration::from_secs(10);

/// Since when nothing is applied although more is known to be committed.
#[derive(Debug, Default)]
pub(super) struct Standstill {
    applied: LogIndex,
    since: Option<Instant>,
    is_told: bool,
}

/// What is to be told of a standstill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    Nothing,
    Begun(Duration),
    Over(Duration),
}

impl Standstill {
    /// A member is excused while it receives a snapshot, and while it hears of no leader: nothing can come then.
    fn look(&mut self, applied: LogIndex, committed: LogIndex, is_excused: bool, now: Instant) -> News {
        let stands = applied < committed && applied == self.applied && !is_excused;
        self.applied = applied;
        if !stands {
            let told = std::mem::take(&mut self.is_told);
            return match self.since.take() {
                Some(since) if told => News::Over(now - since),
                _ => News::Nothing,
            };
        }
        let lasts = now - *self.since.get_or_insert(now);
        if lasts >= STANDSTILL_MIN && !std::mem::replace(&mut self.is_told, lasts >= STANDSTILL_MIN) {
            return News::Begun(lasts);
        }
        News::Nothing
    }
}

/// Looks every ten heartbeats, as long as consensus runs.
pub(super) async fn nudge(consensus: Consensus, heartbeat: Duration) {
    let looking = async {
        let (mut stuck, mut standstill) = (StuckApply::default(), Standstill::default());
        loop {
            // A clock, not a race: the condition is "no progress within several heartbeats".
            tokio::time::sleep(heartbeat * 10).await;
            let points = consensus.log_points();
            let is_excused = consensus.snapshot_slot().try_lock().is_err() || consensus.live_leader().is_none();
            let (applied, committed) = (points.applied, points.committed);
            match standstill.look(applied, committed, is_excused, Instant::now()) {
                News::Nothing => {}
                News::Begun(lasts) => {
                    tracing::error!(%applied, %committed, ?lasts, "this member stands still: committed entries do not come");
                }
                News::Over(lasted) => tracing::info!(%applied, ?lasted, "this member moves again"),
            }
            consensus.set_standstill(standstill.since);
            if stuck.look(points.applied, points.committed, points.last) {
                tracing::warn!(
                    applied = %points.applied,
                    committed = %points.committed,
                    "apply is stuck, asking for a blank entry"
                );
                // What came of it is seen at the next look.
                drop(consensus.propose(vec![bytes::Bytes::new()]).await);
            }
        }
    };
    // Neither a look nor an answer may keep what consensus holds once it is over.
    tokio::select! {
        () = looking => {}
        _ = consensus.ended() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_is_told_once_and_so_is_its_end() {
        let begin = Instant::now();
        let mut standstill = Standstill::default();
        let mut look = |applied, committed, is_excused, seconds| {
            let now = begin + Duration::from_secs(seconds);
            standstill.look(LogIndex(applied), LogIndex(committed), is_excused, now)
        };
        assert_eq!(look(95, 100, false, 0), News::Nothing, "it was never seen before");
        assert_eq!(look(95, 100, false, 1), News::Nothing);
        assert_eq!(look(95, 110, false, 10), News::Nothing);
        assert_eq!(look(95, 120, false, 11), News::Begun(Duration::from_secs(10)));
        assert_eq!(look(95, 130, false, 12), News::Nothing);
        assert_eq!(look(96, 130, false, 13), News::Over(Duration::from_secs(12)));
        assert_eq!(look(96, 130, true, 40), News::Nothing, "a snapshot arrives, or nobody leads");
        assert_eq!(look(96, 130, false, 41), News::Nothing);
        assert_eq!(look(130, 130, false, 60), News::Nothing);
        assert_eq!(look(130, 130, false, 90), News::Nothing, "there is nothing to apply");
    }

    #[test]
    fn only_what_stands_still_is_stuck() {
        let mut stuck = StuckApply::default();
        let mut look = |applied, committed, last| stuck.look(LogIndex(applied), LogIndex(committed), LogIndex(last));
        assert!(!look(95, 100, 100), "it was never seen before");
        assert!(look(95, 100, 100));
        assert!(!look(96, 100, 100), "it moves");
        assert!(!look(100, 100, 100));
        assert!(!look(95, 100, 97), "what is missing is still to come");
        assert!(!look(95, 100, 97));
    }
}
