//! Reads that may take long, on threads that may block.
//!
//! Owns the bounds on waiting and running reads, and the cancellation of abandoned ones. Invariant:
//! a read holds its permits until its thread has finished it, so that clients that go away cannot
//! take all threads from the node's own work.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use super::error::NodeError;

/// Admission of long reads to the blocking threads.
pub(super) struct LongReads {
    permits: Arc<Semaphore>,
    turns: Arc<Semaphore>,
}

/// A permit to run, and one among all reads that run or wait; released by drop.
pub(super) struct Turn {
    _permits: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

impl LongReads {
    /// At most `reads_max` reads wait or run, and `running_max` of them run.
    pub(super) fn new(reads_max: usize, running_max: usize) -> Self {
        let semaphore = |count| Arc::new(Semaphore::new(count));
        Self { permits: semaphore(reads_max), turns: semaphore(running_max) }
    }

    /// Waits for a permit to run, in order of arrival.
    ///
    /// # Errors
    ///
    /// [`NodeError::TooManyRequests`] at once beyond the limit; [`NodeError::Timeout`] after
    /// `deadline`.
    pub(super) async fn turn(&self, deadline: Instant) -> Result<Turn, NodeError> {
        let permit = self.permits.clone().try_acquire_owned().map_err(|_| NodeError::TooManyRequests)?;
        match tokio::time::timeout_at(deadline.into(), self.turns.clone().acquire_owned()).await {
            Ok(turn) => Ok(Turn { _permits: (permit, turn.map_err(|_| NodeError::Stopped)?) }),
            Err(_) => Err(NodeError::Timeout),
        }
    }

    /// Runs `work` on a blocking thread. Work that has not begun when the caller gives up or
    /// `deadline` passes never begins.
    ///
    /// # Errors
    ///
    /// [`NodeError::TooManyRequests`] at once beyond the limit; [`NodeError::Timeout`] after
    /// `deadline`; those of `work`.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        deadline: Instant,
        work: impl FnOnce() -> Result<T, NodeError> + Send + 'static,
    ) -> Result<T, NodeError> {
        let turn = self.turn(deadline).await?;
        let mut reading = Reading(tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        }));
        match tokio::time::timeout_at(deadline.into(), &mut reading.0).await {
            Ok(Ok(read)) => read,
            Ok(Err(_)) => Err(NodeError::Stopped),
            Err(_) => Err(NodeError::Timeout),
        }
    }
}

/// A read with a waiting caller. Its drop cancels work that still waits for a thread; work that has
/// begun continues.
struct Reading<T>(JoinHandle<T>);

impl<T> Drop for Reading<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Runs `test` on a runtime with one blocking thread.
    fn with_one_thread(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(1)
            .build()
            .unwrap()
            .block_on(test);
    }

    /// A read that blocks until the sender is dropped.
    fn stuck() -> (mpsc::Sender<()>, impl FnOnce() -> Result<(), NodeError> + Send + 'static) {
        let (release, released) = mpsc::channel::<()>();
        (release, move || {
            assert!(released.recv().is_err());
            Ok(())
        })
    }

    #[test]
    fn one_beyond_the_limit_is_refused_at_once() {
        with_one_thread(async {
            let reads = LongReads::new(2, 1);
            let deadline = Instant::now() + LONG;
            let (release, work) = stuck();
            let third = async {
                let refused = reads.run(deadline, || Ok(())).await;
                drop(release);
                refused
            };
            let results = tokio::join!(biased; reads.run(deadline, work), reads.run(deadline, || Ok(())), third);
            assert_eq!(results, (Ok(()), Ok(()), Err(NodeError::TooManyRequests)));
            assert_eq!(reads.run(deadline, || Ok(7)).await, Ok(7), "there is room again");
        });
    }

    #[test]
    fn reads_leave_threads_for_others() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(2).build().unwrap();
        runtime.block_on(async {
            let reads = LongReads::new(8, 1);
            let deadline = Instant::now() + LONG;
            let (release, work) = stuck();
            let other = async {
                let waits = reads.run(Instant::now() + Duration::from_millis(1), || Ok(()));
                assert_eq!(waits.await, Err(NodeError::Timeout), "there is one turn");
                let own = tokio::time::timeout(LONG, tokio::task::spawn_blocking(|| 7)).await;
                drop(release);
                own.unwrap().unwrap()
            };
            let (first, own) = tokio::join!(biased; reads.run(deadline, work), other);
            assert_eq!((first, own), (Ok(()), 7));
        });
    }

    #[test]
    fn what_has_not_begun_when_nobody_waits_any_more_never_does() {
        with_one_thread(async {
            let reads = LongReads::new(8, 8);
            let deadline = Instant::now() + LONG;
            let begun = Arc::new(AtomicUsize::new(0));
            let count = || {
                let begun = Arc::clone(&begun);
                move || Ok(begun.fetch_add(1, Ordering::Relaxed))
            };
            let (release, work) = stuck();
            let others = async {
                let late = reads.run(Instant::now() + Duration::from_millis(1), count()).await;
                assert_eq!(late, Err(NodeError::Timeout));
                let gave_up = tokio::time::timeout(Duration::from_millis(1), reads.run(deadline, count())).await;
                assert!(gave_up.is_err());
                drop(release);
            };
            let (first, ()) = tokio::join!(biased; reads.run(deadline, work), others);
            assert_eq!(first, Ok(()));
            // The thread takes waiting work in order: the others ran before this one.
            assert_eq!(reads.run(deadline, count()).await, Ok(0));
            assert_eq!(reads.permits.available_permits(), 8);
        });
    }
}
