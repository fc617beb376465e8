//! Pauses before the next attempt. They double with each consecutive failure, up to a bound.
//!
//! Not a library: `backon` yields pauses from a stateful iterator. A queue asks for the pause after
//! N failures of one of many keys, and keeps only N. A view has no pause after its first failure
//! and jitter on top of the bound (spec: consul §3.3), which the tests pin to the millisecond.

use std::time::Duration;

/// Bounds of the pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Pause after the first failure; doubles with each further one.
    pub first: Duration,
    /// Longest pause.
    pub max: Duration,
}

impl Default for Backoff {
    /// The pauses of a resource that a controller could not handle: 5 ms up to a minute.
    fn default() -> Self {
        Self { first: Duration::from_millis(5), max: Duration::from_secs(60) }
    }
}

impl Backoff {
    /// The pause after a number of consecutive failures; 0 counts as 1.
    #[must_use]
    pub fn after(self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.checked_mul(factor).map_or(self.max, |pause| pause.min(self.max))
    }
}

/// Pauses of a stream after its second and later consecutive failures, without jitter.
const VIEW: Backoff = Backoff { first: Duration::from_millis(200), max: Duration::from_secs(60) };

/// Counts consecutive failures of a stream, such as that of a view. No pause after the first
/// failure; then the pauses of [`VIEW`], each with a jitter of up to 100 %, so that streams that
/// failed together do not reconnect together.
#[derive(Debug, Default)]
pub(crate) struct StreamFailures {
    count: u32,
}

impl StreamFailures {
    /// Consecutive failures since the last success.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Resets the count, after a success: the next failure has no pause again.
    pub(crate) fn reset(&mut self) {
        self.count = 0;
    }

    /// Counts another failure, and returns the pause before the next attempt. `jitter` is a random
    /// number from 0 to 1: the share of the pause that is added to it.
    pub(crate) fn add(&mut self, jitter: f64) -> Duration {
        let before = self.count;
        self.count = before.saturating_add(1);
        if before == 0 {
            return Duration::ZERO;
        }
        let pause = VIEW.after(before);
        pause + pause.mul_f64(jitter.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_twice_that_with_jitter() {
        let mut steady = StreamFailures::default();
        let pauses: Vec<_> = (0..12).map(|_| steady.add(0.0).as_millis()).collect();
        assert_eq!(pauses, [0, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000]);
        let mut jittered = StreamFailures::default();
        assert_eq!(jittered.add(1.0), Duration::ZERO, "the first failure is repaired at once");
        assert_eq!(jittered.add(0.5), Duration::from_millis(300));
        assert_eq!(jittered.add(1.0), Duration::from_millis(800));
        jittered.reset();
        assert_eq!((jittered.count(), jittered.add(1.0)), (0, Duration::ZERO));
    }

    #[test]
    fn pauses_are_bounded() {
        let backoff = Backoff::default();
        assert_eq!(backoff.after(1), Duration::from_millis(5));
        assert_eq!(backoff.after(4), Duration::from_millis(40));
        for failures in [20, 32, 33, 1000, u32::MAX] {
            assert_eq!(backoff.after(failures), Duration::from_secs(60));
        }
    }
}
