//! How long to wait before the next attempt (spec: consul §3.3).

use std::time::Duration;

/// First pause after the second failure in a row.
const FIRST: Duration = Duration::from_millis(200);
/// Longest pause, before the jitter.
const LONGEST: Duration = Duration::from_secs(60);

/// Pauses between attempts: none after the first failure, then 200 ms, doubling up to a minute,
/// each lengthened by up to the same again, so that clients that failed together do not come back
/// together.
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Failures since the last success, count.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Something worked: the next failure is the first.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Records a failed attempt; returns the pause before the next one. `jitter` is random, 0 to 1.
    pub fn failed(&mut self, jitter: f64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let Some(doublings) = self.failures.checked_sub(2) else { return Duration::ZERO };
        // Nine doublings are more than the longest.
        let pause = (FIRST * 2_u32.pow(doublings.min(9))).min(LONGEST);
        pause + pause.mul_f64(jitter.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_twice_that_with_jitter() {
        let mut steady = Backoff::default();
        let pauses: Vec<_> = (0..12).map(|_| steady.failed(0.0).as_millis()).collect();
        assert_eq!(pauses, [0, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000]);
        let mut jittered = Backoff::default();
        assert_eq!(jittered.failed(1.0), Duration::ZERO, "the first failure is repaired at once");
        assert_eq!(jittered.failed(0.5), Duration::from_millis(300));
        assert_eq!(jittered.failed(1.0), Duration::from_millis(800));
        jittered.succeeded();
        assert_eq!((jittered.failures(), jittered.failed(1.0)), (0, Duration::ZERO));
    }
}
