//! Whether a stream has had no leader for too long.
//!
//! Owns the measure of "too long": only time in which the leader was probed counts.

use std::time::{Duration, Instant};

use tokio::time::{Interval, MissedTickBehavior};

use headwater_node::Node;

/// How often a stream looks for a leader.
const LEADER_POLL: Duration = Duration::from_millis(250);

/// Looks for a leader from time to time.
pub(crate) struct LeaderProbe {
    ticker: Interval,
    sight: Sight,
}

impl LeaderProbe {
    pub(crate) fn new() -> Self {
        let mut ticker = tokio::time::interval(LEADER_POLL);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { ticker, sight: Sight::new(Instant::now()) }
    }

    /// Returns when there was no leader for `patience`.
    pub(crate) async fn lost(&mut self, node: &Node, patience: Duration) {
        loop {
            self.ticker.tick().await;
            if self.sight.is_lost(Instant::now(), node.live_leader().is_some(), patience) {
                return;
            }
        }
    }
}

/// As [`LeaderProbe::lost`]; for streams that do not ask, never.
pub(crate) async fn lost(probe: &mut Option<LeaderProbe>, node: &Node, patience: Duration) {
    match probe {
        Some(probe) => probe.lost(node, patience).await,
        None => std::future::pending().await,
    }
}

/// Times of the last probe and of the last known leader.
struct Sight {
    looked: Instant,
    seen: Instant,
}

impl Sight {
    fn new(now: Instant) -> Self {
        Self { looked: now, seen: now }
    }

    /// Looks, and tells whether there was no leader for `patience`. Nobody looks while the client
    /// does not read: of that time nothing is known, and it does not count against the leader.
    fn is_lost(&mut self, now: Instant, has_leader: bool, patience: Duration) -> bool {
        let looked_away = now.saturating_duration_since(self.looked) > 2 * LEADER_POLL;
        self.looked = now;
        if has_leader || looked_away {
            self.seen = now;
            return false;
        }
        now.saturating_duration_since(self.seen) >= patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(3);

    #[test]
    fn a_leader_is_lost_after_patience_and_not_before() {
        let begin = Instant::now();
        let mut sight = Sight::new(begin);
        assert!(!sight.is_lost(begin + LEADER_POLL, true, PATIENCE));
        for look in 2..13 {
            assert!(!sight.is_lost(begin + LEADER_POLL * look, false, PATIENCE), "look {look}");
        }
        assert!(sight.is_lost(begin + LEADER_POLL + PATIENCE, false, PATIENCE));
    }

    #[test]
    fn while_nobody_looked_nothing_is_known() {
        let begin = Instant::now();
        let mut sight = Sight::new(begin);
        // The client stood still, and goes on in the middle of an election.
        let back = begin + 2 * PATIENCE;
        assert!(!sight.is_lost(back, false, PATIENCE));
        assert!(!sight.is_lost(back + LEADER_POLL, false, PATIENCE));
        // From there on it counts, even if a look comes a little late.
        for look in 1..6 {
            assert!(!sight.is_lost(back + LEADER_POLL * 2 * look, false, PATIENCE), "look {look}");
        }
        assert!(sight.is_lost(back + PATIENCE, false, PATIENCE));
    }
}
