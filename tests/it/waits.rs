//! Waits for conditions, with a deadline that only a defect reaches.

use std::time::{Duration, Instant};

use headwater::node::ManualClock;

use crate::cluster::TIMEOUT;

/// Polls until `condition` is true. Fails the test with `why` after [`TIMEOUT`].
pub async fn wait_until(why: &str, mut condition: impl AsyncFnMut() -> bool) {
    let give_up = Instant::now() + TIMEOUT;
    while !condition().await {
        assert!(Instant::now() < give_up, "waited in vain: {why}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Advances the clock by `seconds`, in steps with short real pauses, so that periodic tasks run.
pub async fn pass(clock: &ManualClock, seconds: u64) {
    for _ in 0..2 * seconds {
        clock.advance(Duration::from_millis(500));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Awaits `doing`. Fails the test with `what` after [`TIMEOUT`].
pub async fn within<T>(what: &str, doing: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, doing).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}
