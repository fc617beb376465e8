//! The clock that measures leases: the machine's, or one that a test sets by hand.
//!
//! Invariant: it never goes back. It has no relation to the time of day, or to the clocks of other
//! members.

use std::fmt;
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// A local clock, by which a leader measures leases; cheap to clone. Not the replicated lease
/// clock, which continues from leader to leader.
#[derive(Clone)]
pub struct LeaseClock {
    source: Source,
}

#[derive(Clone)]
enum Source {
    Machine(Instant),
    Manual(watch::Receiver<Duration>),
}

/// The control of a clock in a test. The clock stands still once its control is dropped.
pub struct ManualClock {
    now: watch::Sender<Duration>,
}

impl ManualClock {
    /// Advances the clock.
    pub fn advance(&self, by: Duration) {
        self.now.send_modify(|now| *now += by);
    }
}

impl LeaseClock {
    /// The machine's clock.
    pub fn machine() -> Self {
        Self { source: Source::Machine(Instant::now()) }
    }

    /// A clock that moves only by [`ManualClock::advance`], and its control.
    pub fn by_hand() -> (Self, ManualClock) {
        let (now, clock) = watch::channel(Duration::ZERO);
        (Self { source: Source::Manual(clock) }, ManualClock { now })
    }

    /// The time since the clock was made.
    pub(super) fn now(&self) -> Duration {
        match &self.source {
            Source::Machine(origin) => origin.elapsed(),
            Source::Manual(clock) => *clock.borrow(),
        }
    }

    /// Waits until the clock shows `at`; forever if that is `None` or can never come.
    pub(super) async fn wait_until(&self, at: Option<Duration>) {
        let Some(at) = at else { return std::future::pending().await };
        match &self.source {
            Source::Machine(origin) => match origin.checked_add(at) {
                Some(instant) => tokio::time::sleep_until(instant.into()).await,
                None => std::future::pending().await,
            },
            Source::Manual(clock) => {
                let mut clock = clock.clone();
                let reached = clock.wait_for(|now| *now >= at).await.is_ok();
                if !reached {
                    // The [`ManualClock`] was dropped: nothing advances the clock any more.
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

impl fmt::Debug for LeaseClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match &self.source {
            Source::Machine(_) => "machine",
            Source::Manual(_) => "hand",
        };
        f.debug_tuple("LeaseClock").field(&source).finish()
    }
}
