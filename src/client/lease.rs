//! Keeping a lease alive, for the holder of a lock or an election.
//!
//! Owns when to ask. Invariant: the lease counts as over as soon as it may have ended by this
//! machine's clock, whether or not anybody has said so: a process that was stopped finds out by
//! itself when it goes on.

use std::future::Future;
use std::time::{Duration, Instant};

/// Pause after nobody has answered.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// How long one endpoint may take to answer, so that there is time to ask others before the lease
/// ends.
pub fn lease_patience(ttl: Duration) -> Duration {
    ttl / 6
}

/// Keeps a lease alive that lives until `until` at least; comes back when it has ended or may have.
/// `ask` asks one endpoint after the other, and returns the time to live by the first that answers:
/// 0 if the lease has ended; `None` if none answers.
pub async fn keep_lease<F>(ttl: Duration, mut until: Instant, ask: impl Fn() -> F)
where
    F: Future<Output = Option<i64>>,
{
    let mut next = Instant::now() + ttl / 3;
    loop {
        tokio::time::sleep_until(next.min(until).into()).await;
        if Instant::now() >= until {
            return;
        }
        let asked = Instant::now();
        match tokio::time::timeout_at(until.into(), ask()).await {
            Ok(Some(left)) if left > 0 => {
                until = asked + ttl;
                next = asked + ttl / 3;
            }
            Ok(Some(_)) | Err(_) => return,
            Ok(None) => next = Instant::now() + RETRY_PAUSE,
        }
    }
}
