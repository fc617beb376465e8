//! Waiting, by a clock that stands still whenever this program does.
//!
//! Whoever stops the harness (Ctrl-Z, a debugger, a machine that sleeps) stops its patience, too: otherwise it would wake
//! up, find every time limit passed, and blame the cluster, which went on all the while.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How finely time is counted.
const SLICE: Duration = Duration::from_millis(500);

/// Two looks are at most so far apart while the program runs: an attempt and the pause after it.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// A limit for something that is tried again and again.
pub(crate) struct Patience {
    left: Duration,
    last: Instant,
}

impl Patience {
    pub(crate) fn new(time: Duration) -> Self {
        Self { left: time, last: Instant::now() }
    }

    /// Whether it is over.
    pub(crate) fn is_over(&mut self) -> bool {
        self.is_over_at(Instant::now())
    }

    fn is_over_at(&mut self, now: Instant) -> bool {
        self.left = self.left.saturating_sub((now - self.last).min(LOOK_MAX));
        self.last = now;
        self.left.is_zero()
    }
}

/// Resolves when the program has run for so long.
pub(crate) async fn lived(time: Duration) {
    let mut patience = Patience::new(time);
    while !patience.is_over() {
        sleep(patience.left.min(SLICE)).await;
    }
}

/// What `work` comes to, or nothing if it takes longer than `time` while the program runs.
pub(crate) async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = lived(time) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_program_that_stands_still_loses_no_patience() {
        let mut patience = Patience::new(4 * SECOND);
        let mut now = patience.last + SECOND;
        assert!(!patience.is_over_at(now));
        // As for a process that was stopped between two looks: it counts as two seconds.
        now += 3600 * SECOND;
        assert!(!patience.is_over_at(now));
        now += SECOND;
        assert!(patience.is_over_at(now));
    }

    #[tokio::test]
    async fn what_takes_too_long_is_given_up() {
        assert_eq!(within(SECOND / 20, std::future::pending::<()>()).await, None);
        assert_eq!(within(SECOND / 20, async { 7 }).await, Some(7));
    }
}
