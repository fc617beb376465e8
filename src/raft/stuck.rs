//! Notices that applying has stopped short of what is committed.
//!
//! After a snapshot that ends inside the follower's own log, openraft leaves applied behind committed until the next entry
//! arrives (spec: reliability §3.7, defect B): reads that wait for an index would hang on an idle cluster. A member that sees
//! this asks for a blank entry. Knows no clock: whoever looks decides how often.

use std::time::Duration;

use super::consensus::Consensus;
use crate::types::LogIndex;

/// Remembers what was seen at the last look.
#[derive(Debug, Default)]
pub(crate) struct StuckApply {
    before: Option<(LogIndex, LogIndex)>,
}

impl StuckApply {
    /// Whether nothing at all has moved since the last look, although entries that are here and committed are not applied.
    pub(crate) fn look(&mut self, applied: LogIndex, committed: LogIndex, last: LogIndex) -> bool {
        let waits = (applied < committed && committed <= last).then_some((applied, committed));
        let is_stuck = waits.is_some() && waits == self.before;
        self.before = waits;
        is_stuck
    }
}

/// Looks every ten heartbeats, as long as consensus runs.
pub(super) async fn nudge(consensus: Consensus, heartbeat: Duration) {
    let looking = async {
        let mut stuck = StuckApply::default();
        loop {
            // A clock, not a race: the condition is "no progress within several heartbeats".
            tokio::time::sleep(heartbeat * 10).await;
            let points = consensus.log_points();
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
