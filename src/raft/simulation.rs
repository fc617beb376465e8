//! The runtime of openraft with the feature `simulation`: tokio's, with random numbers that a seed
//! decides in a simulation.
//!
//! Other tests with the same feature run whole clusters on many threads, outside of a simulation.
//! There the random numbers are the machine's.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use futures::FutureExt;
use openraft::rt::deterministic_rng::DeterministicRng;
use openraft::{AsyncRuntime, OptionalSend, TokioRuntime};

type Seeded = DeterministicRng<TokioRuntime>;

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs a simulation. If so, blocking work is done at once, so that it ends at
/// the same point in every run with the same seed.
pub fn is_running() -> bool {
    RUNNING.get()
}

/// Guard that marks its thread as running a simulation until the guard is dropped, also by a panic.
pub struct Running(());

impl Running {
    /// Begins a simulation on this thread.
    pub fn begin() -> Self {
        RUNNING.set(true);
        Self(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.set(false);
    }
}

/// The runtime of openraft in tests; see the module.
#[derive(Debug)]
pub struct TestRuntime {
    tokio: TokioRuntime,
}

impl TestRuntime {
    /// Runs `simulation` with random numbers that `seed` decides.
    pub fn scope<F: Future>(seed: u64, simulation: F) -> impl Future<Output = F::Output> {
        Seeded::scope(seed, simulation)
    }
}

impl AsyncRuntime for TestRuntime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = <Seeded as AsyncRuntime>::ThreadLocalRng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        if is_running() { Seeded::spawn(future) } else { TokioRuntime::spawn(future) }
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        if is_running() {
            return Seeded::thread_rng();
        }
        let one = Seeded::scope(rand::random(), async { Seeded::thread_rng() });
        one.now_or_never().expect("it waits for nothing")
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: Self::Instant, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }

    fn new(threads: usize) -> Self {
        Self { tokio: TokioRuntime::new(threads) }
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.tokio.block_on(future)
    }

    fn spawn_blocking<F, T>(f: F) -> impl Future<Output = Result<T, io::Error>> + Send
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        TokioRuntime::spawn_blocking(f)
    }
}
