//! The check of a stream whether the node still knows a leader.
//!
//! Owns the meaning of "lost for too long": only time in which the stream was polled counts.

use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::{Interval, MissedTickBehavior};

use headwater_node::Node;

/// Interval of the checks.
const LEADER_POLL: Duration = Duration::from_millis(250);

/// Checks at an interval whether the node knows a leader.
pub(super) struct LeaderProbe {
    ticker: Interval,
    sight: LeaderSighting,
    timeout: Duration,
}

impl LeaderProbe {
    /// A probe that is ready after the node knew no leader for `timeout`.
    pub(super) fn new(timeout: Duration) -> Self {
        let mut ticker = tokio::time::interval(LEADER_POLL);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { ticker, sight: LeaderSighting::new(Instant::now()), timeout }
    }

    /// Ready when the node knew no leader for the timeout, counted while the stream was polled.
    pub(super) fn poll_lost(&mut self, cx: &mut Context<'_>, node: &Node) -> Poll<()> {
        loop {
            ready!(self.ticker.poll_tick(cx));
            if self.sight.is_lost(Instant::now(), node.live_leader().is_some(), self.timeout) {
                return Poll::Ready(());
            }
        }
    }
}

/// Times of the last check and of the last known leader.
struct LeaderSighting {
    /// Time of the last check.
    checked: Instant,
    /// Start of the time without a leader: the last check that found one, or that came after a
    /// pause.
    seen: Instant,
}

impl LeaderSighting {
    fn new(now: Instant) -> Self {
        Self { checked: now, seen: now }
    }

    /// Notes a check, and says whether the leader is lost. A stream is not polled while its client
    /// does not read; that time does not count against the leader.
    fn is_lost(&mut self, now: Instant, has_leader: bool, timeout: Duration) -> bool {
        let was_unpolled = now.saturating_duration_since(self.checked) > 2 * LEADER_POLL;
        self.checked = now;
        if has_leader || was_unpolled {
            self.seen = now;
            return false;
        }
        now.saturating_duration_since(self.seen) >= timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(3);

    #[test]
    fn a_leader_is_lost_after_the_timeout_and_not_before() {
        let begin = Instant::now();
        let mut sight = LeaderSighting::new(begin);
        assert!(!sight.is_lost(begin + LEADER_POLL, true, TIMEOUT));
        for check in 2..13 {
            assert!(!sight.is_lost(begin + LEADER_POLL * check, false, TIMEOUT), "check {check}");
        }
        assert!(sight.is_lost(begin + LEADER_POLL + TIMEOUT, false, TIMEOUT));
    }

    #[test]
    fn time_between_polls_does_not_count() {
        let begin = Instant::now();
        let mut sight = LeaderSighting::new(begin);
        // The client did not read, and resumes in the middle of an election.
        let back = begin + 2 * TIMEOUT;
        assert!(!sight.is_lost(back, false, TIMEOUT));
        assert!(!sight.is_lost(back + LEADER_POLL, false, TIMEOUT));
        // From here on time counts, even if a check is a little late.
        for check in 1..6 {
            assert!(!sight.is_lost(back + LEADER_POLL * 2 * check, false, TIMEOUT), "check {check}");
        }
        assert!(sight.is_lost(back + TIMEOUT, false, TIMEOUT));
    }
}
