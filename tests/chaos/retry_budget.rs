//! Deadlines by a clock that stops whenever this program is stopped.
//!
//! A stop of the harness (Ctrl-Z, a debugger, a machine that sleeps) stops its deadlines, too.
//! Otherwise it would wake up, find every time limit passed, and blame the cluster.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Longest sleep between two looks at a deadline.
const SLICE: Duration = Duration::from_millis(500);

/// Most time that counts between two polls. It is enough for an attempt and the pause after it.
const STEP_MAX: Duration = Duration::from_secs(2);

/// Most attempts of a request to a cluster that is whole; after the last one the request counts as
/// failed. On a busy machine a leader may send its heartbeats too late, or a connection take too
/// long.
pub(crate) const ATTEMPTS: usize = 5;
/// Pause between two of these attempts.
pub(crate) const ATTEMPT_PAUSE: Duration = Duration::from_secs(1);

/// A deadline for repeated attempts.
pub(crate) struct RetryBudget {
    left: Duration,
    last: Instant,
}

impl RetryBudget {
    pub(crate) fn new(time: Duration) -> Self {
        Self { left: time, last: Instant::now() }
    }

    /// Whether the deadline has passed. Of the time since the last call at most [`STEP_MAX`]
    /// counts, so a caller must ask more often than that for an exact deadline.
    pub(crate) fn is_spent(&mut self) -> bool {
        self.is_spent_at(Instant::now())
    }

    fn is_spent_at(&mut self, now: Instant) -> bool {
        self.left = self.left.saturating_sub((now - self.last).min(STEP_MAX));
        self.last = now;
        self.left.is_zero()
    }
}

/// Resolves when the program has run for `time`. Time during which it was stopped does not count.
pub(crate) async fn sleep_running(time: Duration) {
    let mut budget = RetryBudget::new(time);
    while !budget.is_spent() {
        sleep(budget.left.min(SLICE)).await;
    }
}

/// Result of `work`; `None` if it takes longer than `time` while the program runs.
pub(crate) async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = sleep_running(time) => None,
    }
}

/// Calls `ask` until it succeeds, at most [`ATTEMPTS`] times, with pauses. Returns the first
/// success, else the last error.
pub(crate) async fn retry<T, E>(mut ask: impl AsyncFnMut() -> Result<T, E>) -> Result<T, E> {
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
        let mut budget = RetryBudget::new(4 * SECOND);
        let mut now = budget.last + SECOND;
        assert!(!budget.is_spent_at(now));
        // As for a process that was stopped between two polls: it counts as two seconds.
        now += 3600 * SECOND;
        assert!(!budget.is_spent_at(now));
        now += SECOND;
        assert!(budget.is_spent_at(now));
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
            let result = retry(async || {
                asked += 1;
                if asked < answers_at { Err(asked) } else { Ok(asked) }
            });
            assert_eq!(result.await, answer);
        }
    }
}
