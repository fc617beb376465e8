//! Waiting, by a clock that stands still whenever this program does.
//!
//! Stopping the harness (Ctrl-Z, a debugger, a machine that sleeps) stops its deadlines, too:
//! otherwise it would wake up, find every time limit passed, and blame the cluster, which went on
//! all the while.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How finely time is counted.
const SLICE: Duration = Duration::from_millis(500);

/// Two looks are at most so far apart while the program runs: an attempt and the pause after it.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// How often a cluster that is whole is asked for the same before that counts as failed, and the
/// pause in between. On a busy machine a leader may come too late with its heartbeats, or a
/// connection take too long.
pub(crate) const ATTEMPTS: usize = 5;
pub(crate) const ATTEMPT_PAUSE: Duration = Duration::from_secs(1);

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

/// Result of `work`; `None` if it takes longer than `time` while the program runs.
pub(crate) async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = lived(time) => None,
    }
}

/// The first success of `ask`, which is called up to [`ATTEMPTS`] times.
pub(crate) async fn insist<T, E>(mut ask: impl AsyncFnMut() -> Result<T, E>) -> Result<T, E> {
    for _ in 1..ATTEMPTS {
        if let Ok(answer) = ask().await {
            return Ok(answer);
        }
        sleep(ATTEMPT_PAUSE).await;
    }
    ask().await
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

    #[tokio::test(start_paused = true)]
    async fn who_insists_is_answered_at_last() {
        for (answers_at, answer) in [(1, Ok(1)), (ATTEMPTS, Ok(ATTEMPTS)), (ATTEMPTS + 1, Err(ATTEMPTS))] {
            let mut asked = 0;
            let told = insist(async || {
                asked += 1;
                if asked < answers_at { Err(asked) } else { Ok(asked) }
            });
            assert_eq!(told.await, answer);
        }
    }
}
