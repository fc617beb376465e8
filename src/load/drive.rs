//! Runs the clients of a load on threads. Each thread has its own runtime, connections and
//! histograms; the threads share only the plan and counters.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use super::cpu;
use super::ledger::Ledger;
use super::wire::{self, Answer, Connection, Failure};
use super::workload::{Encoded, Method, Workload};
use crate::error::{CliError, Tried};
use crate::progress::Progress;

/// Longest latency that the histogram holds, microseconds; longer ones count as this one.
pub(super) const LATENCY_MICROS_MAX: u64 = 120_000_000;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
const BETWEEN_CONNECTS: Duration = Duration::from_millis(20);
/// Number of parts of a run with [`RunLimit::After`], each of equally many successful operations.
/// The report has the speed of each part.
pub(super) const PARTS: usize = 10;

/// A histogram of latencies, microseconds.
pub(super) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MICROS_MAX, 3).expect("the bounds are valid")
}

/// The condition at which a run ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum RunLimit {
    /// The run ends after this number of operations.
    After(u64),
    /// Time after the beginning of the run at which clients stop taking operations. They take
    /// only operations that are due before it ([`Plan::rate`]), and complete those.
    At(Duration),
}

/// The description of a run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) endpoints: Arc<[String]>,
    pub(super) workload: Workload,
    pub(super) clients: usize,
    pub(super) conns: usize,
    pub(super) threads: usize,
    pub(super) stop: RunLimit,
    pub(super) rate: u64,
    pub(super) seed: u64,
    /// A run is stopped once no operation has succeeded for twice this time. After the end of
    /// [`RunLimit::At`], it is stopped after this time alone.
    pub(super) timeout: Duration,
    /// Processor time that a client takes for each answer besides what the generator needs itself.
    pub(super) work: Duration,
    pub(super) progress: Option<&'static str>,
    /// The ledger that records each acknowledged put and each failure; `None` if no events are
    /// compared with the puts.
    pub(super) ledger: Option<Arc<Ledger>>,
}

/// Result of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Microseconds of successful operations, by method.
    pub(super) latencies: BTreeMap<&'static str, Histogram<u64>>,
    /// Number of failed operations, by reason. A thread that was stopped counts as one failure.
    pub(super) failures: BTreeMap<String, u64>,
    /// Number of reads that found fewer pairs than they asked for.
    pub(super) short: u64,
    pub(super) pairs: u64,
    pub(super) elapsed: Duration,
    /// Longest time without a successful operation of any client, from the beginning of the run
    /// until the last such operation.
    pub(super) longest_pause: Duration,
    /// Speed of each tenth of the run, successful operations a second. A tenth is `total / 10`
    /// successes, rounded down, for [`RunLimit::After`] with `total`. Empty for
    /// [`RunLimit::At`], if `total` is below [`PARTS`], or if the last tenth was not completed.
    pub(super) parts: Vec<f64>,
}

impl Outcome {
    pub(super) fn succeeded(&self) -> u64 {
        self.latencies.values().map(Histogram::len).sum()
    }

    pub(super) fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    pub(super) fn reasons(&self) -> String {
        let reasons: Vec<String> = self.failures.iter().map(|(reason, count)| format!("{count} x {reason}")).collect();
        reasons.join("; ")
    }
}

/// State that the threads share: the plan, and counters.
struct Shared {
    plan: Plan,
    /// The beginning of the run. Set once every thread has its connections: connecting is no part
    /// of the run.
    began: OnceLock<Instant>,
    next: AtomicU64,
    answered: AtomicU64,
    /// Time of the last successful operation, microseconds after the beginning of the run.
    last_answer: AtomicU64,
    stopped: AtomicBool,
    parts: [AtomicU64; PARTS],
}

impl Shared {
    fn new(plan: Plan) -> Self {
        Self {
            plan,
            began: OnceLock::new(),
            next: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            last_answer: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            parts: Default::default(),
        }
    }

    /// The time since the run began; zero before.
    fn elapsed(&self) -> Duration {
        self.began.get().map(Instant::elapsed).unwrap_or_default()
    }

    /// The number of the next operation; `None` once the run is over or was stopped.
    fn take(&self) -> Option<u64> {
        if self.stopped.load(Ordering::Relaxed) {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        match self.plan.stop {
            RunLimit::After(total) => (number < total).then_some(number),
            // An operation that is due after the end is not begun.
            RunLimit::At(end) => (self.elapsed().max(self.due(number)) < end).then_some(number),
        }
    }

    /// Time after the beginning of the run at which an operation is due; zero without a rate.
    fn due(&self, number: u64) -> Duration {
        match self.plan.rate {
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64(number as f64 / rate as f64),
        }
    }

    /// Counts a successful operation. Returns the time since the previous one of any client, or
    /// since the beginning of the run, microseconds.
    fn answered(&self) -> u64 {
        let now = u64::try_from(self.elapsed().as_micros()).unwrap_or(u64::MAX);
        let before = self.last_answer.fetch_max(now, Ordering::Relaxed);
        let count = self.answered.fetch_add(1, Ordering::Relaxed) + 1;
        if let RunLimit::After(total) = self.plan.stop {
            let part = total / PARTS as u64;
            if part > 0 && count.is_multiple_of(part) && count / part <= PARTS as u64 {
                let index = usize::try_from(count / part - 1).expect("at most ten");
                self.parts[index].store(now, Ordering::Relaxed);
            }
        }
        now.saturating_sub(before)
    }
}

/// Runs `plan` to its end, or until no operation has succeeded for about twice [`Plan::timeout`]
/// (see there). A run that is stopped so is no error: each thread with work left counts as one
/// failure in the outcome. Fails if a thread cannot start its runtime, cannot connect, or panics.
pub(super) fn run(plan: Plan) -> Result<Outcome, CliError> {
    let threads = plan.threads;
    let progress_total = match plan.stop {
        RunLimit::After(total) => Some(total),
        RunLimit::At(_) => None,
    };
    let mut progress = plan.progress.map_or(Progress::Off, |what| Progress::new(what, progress_total));
    let connections = Barrier::new(threads);
    let shared = Arc::new(Shared::new(plan));
    let workers: Vec<_> = (0..threads)
        .map(|index| {
            let shared = Arc::clone(&shared);
            let connections = Arc::clone(&connections);
            std::thread::spawn(move || thread_main(index, &shared, &connections))
        })
        .collect();
    let mut seen = (0, Instant::now());
    while workers.iter().any(|worker| !worker.is_finished()) {
        std::thread::sleep(BETWEEN_LOOKS);
        let answered = shared.answered.load(Ordering::Relaxed);
        progress.set(answered);
        if answered != seen.0 || shared.began.get().is_none() {
            seen = (answered, Instant::now());
        }
        let silence = seen.1.elapsed();
        let over = matches!(shared.plan.stop, RunLimit::At(end) if shared.elapsed() > end);
        if silence > shared.plan.timeout && (over || silence > 2 * shared.plan.timeout) {
            shared.stopped.store(true, Ordering::Relaxed);
        }
    }
    progress.finish();

    let mut outcome = Outcome {
        latencies: BTreeMap::new(),
        failures: BTreeMap::new(),
        short: 0,
        pairs: 0,
        elapsed: Duration::from_micros(shared.last_answer.load(Ordering::Relaxed)),
        longest_pause: Duration::ZERO,
        parts: Vec::new(),
    };
    for worker in workers {
        let tally = worker.join().map_err(|_| CliError::Finding("a thread of the generator panicked".to_owned()))??;
        outcome.short += tally.short;
        outcome.pairs += tally.pairs;
        outcome.longest_pause = outcome.longest_pause.max(Duration::from_micros(tally.longest_pause));
        for (reason, count) in tally.failures {
            *outcome.failures.entry(reason).or_default() += count;
        }
        for (method, histogram) in tally.latencies {
            match outcome.latencies.entry(method) {
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert(histogram);
                }
                std::collections::btree_map::Entry::Occupied(mut entry) => {
                    entry.get_mut().add(histogram).map_err(CliError::other)?;
                }
            }
        }
    }
    outcome.parts = parts(&shared);
    Ok(outcome)
}

/// The value of [`Outcome::parts`].
fn parts(shared: &Shared) -> Vec<f64> {
    let RunLimit::After(total) = shared.plan.stop else { return Vec::new() };
    let ends: Vec<u64> = shared.parts.iter().map(|end| end.load(Ordering::Relaxed)).collect();
    if ends.contains(&0) {
        return Vec::new();
    }
    let begins = std::iter::once(0).chain(ends.iter().copied());
    begins
        .zip(&ends)
        .map(|(begin, end)| (total / PARTS as u64) as f64 * 1e6 / (end.saturating_sub(begin).max(1)) as f64)
        .collect()
}

/// Holds the clients back until every thread has its connections, or until one has failed.
struct Barrier {
    missing: AtomicU64,
    failed: AtomicBool,
}

impl Barrier {
    fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self { missing: AtomicU64::new(threads as u64), failed: AtomicBool::new(false) })
    }

    /// Records that one more thread has its connections, and waits for the other threads. False if
    /// a thread has failed: there is no run then.
    async fn passed(&self) -> bool {
        self.missing.fetch_sub(1, Ordering::SeqCst);
        loop {
            if self.failed.load(Ordering::SeqCst) {
                return false;
            }
            if self.missing.load(Ordering::SeqCst) == 0 {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Counts of one thread.
#[derive(Default)]
struct Tally {
    latencies: BTreeMap<&'static str, Histogram<u64>>,
    failures: BTreeMap<String, u64>,
    short: u64,
    pairs: u64,
    longest_pause: u64,
}

fn thread_main(index: usize, shared: &Arc<Shared>, barrier: &Barrier) -> Result<Tally, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    work_on(runtime, index, shared, barrier)
}

/// Runs the clients of a thread on its runtime. A failure is recorded in `barrier`, so that no
/// other thread waits there for this one.
fn work_on(
    runtime: io::Result<Runtime>,
    index: usize,
    shared: &Arc<Shared>,
    barrier: &Barrier,
) -> Result<Tally, CliError> {
    let work = |runtime: Runtime| LocalSet::new().block_on(&runtime, thread_work(index, shared, barrier));
    let done = runtime.map_err(CliError::other).and_then(work);
    if done.is_err() {
        barrier.failed.store(true, Ordering::SeqCst);
    }
    done
}

async fn thread_work(index: usize, shared: &Arc<Shared>, barrier: &Barrier) -> Result<Tally, CliError> {
    let plan = &shared.plan;
    let share = |count: usize| count / plan.threads + usize::from(index < count % plan.threads);
    let mut lines = Vec::new();
    for number in 0..share(plan.conns).max(1) {
        let first = (index + number * plan.threads) % plan.endpoints.len();
        lines.push(Rc::new(ReconnectingClient::open(Arc::clone(&plan.endpoints), first).await?));
    }
    if !barrier.passed().await {
        return Ok(Tally::default());
    }
    shared.began.get_or_init(Instant::now);
    let tally = Rc::new(RefCell::new(Tally::default()));
    let clients: Vec<_> = (0..share(plan.clients))
        .map(|number| {
            let client = Client {
                shared: Arc::clone(shared),
                line: Rc::clone(&lines[number % lines.len()]),
                tally: Rc::clone(&tally),
                random: SmallRng::seed_from_u64(plan.seed ^ ((index as u64) << 32 | number as u64)),
            };
            tokio::task::spawn_local(client.run())
        })
        .collect();
    let all = futures::future::join_all(clients);
    tokio::pin!(all);
    loop {
        tokio::select! {
            _ = &mut all => break,
            () = tokio::time::sleep(BETWEEN_LOOKS) => {
                if shared.stopped.load(Ordering::Relaxed) {
                    let reason = format!("no answer within {}", humantime::format_duration(plan.timeout));
                    *tally.borrow_mut().failures.entry(reason).or_default() += 1;
                    break;
                }
            }
        }
    }
    Ok(tally.take())
}

/// A connection that is replaced when it breaks.
struct ReconnectingClient {
    endpoints: Arc<[String]>,
    current: RefCell<(Connection, usize)>,
    generation: Cell<u64>,
    opening: tokio::sync::Mutex<()>,
}

impl ReconnectingClient {
    async fn open(endpoints: Arc<[String]>, first: usize) -> Result<Self, CliError> {
        let mut tried = Vec::new();
        for offset in 0..endpoints.len() {
            let at = (first + offset) % endpoints.len();
            match Connection::open(&endpoints[at]).await {
                Ok(connection) => {
                    return Ok(Self {
                        endpoints,
                        current: RefCell::new((connection, at)),
                        generation: Cell::new(0),
                        opening: tokio::sync::Mutex::new(()),
                    });
                }
                Err(reason) => tried.push(Tried { endpoint: endpoints[at].clone(), reason }),
            }
        }
        Err(CliError::Unreachable(tried))
    }

    fn connection(&self) -> (Connection, u64) {
        (self.current.borrow().0.clone(), self.generation.get())
    }

    /// Replaces the connection of `generation`, unless another client has done so. Tries one
    /// endpoint after the other, from the next one on, until one accepts or the run is stopped.
    async fn replace(&self, generation: u64, stopped: &AtomicBool) {
        let _one_at_a_time = self.opening.lock().await;
        let mut at = self.current.borrow().1;
        while self.generation.get() == generation && !stopped.load(Ordering::Relaxed) {
            at = (at + 1) % self.endpoints.len();
            match Connection::open(&self.endpoints[at]).await {
                Ok(connection) => {
                    *self.current.borrow_mut() = (connection, at);
                    self.generation.set(generation + 1);
                }
                Err(_) => tokio::time::sleep(BETWEEN_CONNECTS).await,
            }
        }
    }
}

struct Client {
    shared: Arc<Shared>,
    line: Rc<ReconnectingClient>,
    tally: Rc<RefCell<Tally>>,
    random: SmallRng,
}

impl Client {
    async fn run(mut self) {
        let (mut connection, mut generation) = self.line.connection();
        while let Some(number) = self.shared.take() {
            let due = self.wait_until_due(number).await;
            let operation = self.shared.plan.workload.next(number, due, &mut self.random);
            let Encoded { method, key, pairs: wanted, .. } = operation;
            match connection.call(operation).await {
                Ok(answer) if method == Method::LeaseKeepAlive && !answer.is_alive() => {
                    self.failed(key, "the lease is gone; give a larger --ttl".to_owned());
                }
                Ok(answer) => {
                    cpu::work(self.shared.plan.work);
                    self.succeeded(method, due, key, wanted, answer);
                }
                Err(Failure::Status(reason)) => self.failed(key, reason),
                Err(Failure::Transport(reason)) => {
                    self.failed(key, reason);
                    self.line.replace(generation, &self.shared.stopped).await;
                    (connection, generation) = self.line.connection();
                }
            }
        }
    }

    /// Waits until operation `number` is due, and returns the time from which its latency counts:
    /// the due time if it had passed before the call, else the end of the wait. Without a rate,
    /// every operation is due at once, and its latency counts from now.
    async fn wait_until_due(&self, number: u64) -> Instant {
        if self.shared.plan.rate == 0 {
            return Instant::now();
        }
        let began = *self.shared.began.get_or_init(Instant::now);
        let due = began + self.shared.due(number);
        if due <= Instant::now() {
            // All clients were waiting for answers: the delay counts.
            return due;
        }
        // The timer is a millisecond or two late, which is not the server's delay.
        tokio::time::sleep_until(due.into()).await;
        Instant::now()
    }

    fn succeeded(&self, method: Method, due: Instant, key: u64, wanted: Option<u64>, answer: Answer) {
        let pause = self.shared.answered();
        let micros = u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX);
        let answer = answer.into_bytes();
        if let Some(ledger) = &self.shared.plan.ledger {
            ledger.acknowledged(key, wire::revision(&answer));
        }
        let pairs = if wanted.is_some() { wire::count_pairs(method, answer) } else { 0 };
        let mut tally = self.tally.borrow_mut();
        tally.longest_pause = tally.longest_pause.max(pause);
        tally.pairs += pairs;
        tally.short += u64::from(wanted.is_some_and(|wanted| pairs < wanted));
        let histogram = tally.latencies.entry(method.name()).or_insert_with(new_histogram);
        histogram.saturating_record(micros);
    }

    fn failed(&self, key: u64, reason: String) {
        if let Some(ledger) = &self.shared.plan.ledger {
            ledger.unclear(key);
        }
        *self.tally.borrow_mut().failures.entry(reason).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::{Keys, Kind};
    use super::*;

    fn plan(endpoints: &[String], stop: RunLimit) -> Plan {
        let workload = Workload {
            kind: Kind::Put,
            keys: Keys::new("k/", 6, 9).unwrap(),
            value: bytes::Bytes::new(),
            clock: None,
            serializable: false,
            sequential: true,
            leases: [].into(),
        };
        Plan {
            endpoints: endpoints.into(),
            workload,
            clients: 1,
            conns: 1,
            threads: 1,
            stop,
            rate: 0,
            seed: 1,
            timeout: Duration::from_secs(1),
            work: Duration::ZERO,
            progress: None,
            ledger: None,
        }
    }

    #[test]
    fn no_operation_is_due_after_the_end() {
        let shared = Shared::new(Plan { rate: 2, ..plan(&[], RunLimit::At(Duration::from_secs(2))) });
        let taken: Vec<_> = std::iter::from_fn(|| shared.take()).collect();
        assert_eq!(taken, [0, 1, 2, 3], "the fifth one is due at the end");
    }

    #[test]
    fn the_clock_starts_with_the_first_client() {
        let shared = Shared::new(plan(&[], RunLimit::At(Duration::from_nanos(1))));
        assert_eq!((shared.take(), shared.elapsed()), (Some(0), Duration::ZERO), "the connections are made");
        shared.began.get_or_init(Instant::now);
        while shared.take().is_some() {}
        assert!(shared.elapsed() > Duration::ZERO);
    }

    #[test]
    fn there_is_no_run_if_a_thread_has_no_connection() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = server.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared::new(plan(&[endpoint], RunLimit::After(0))));
        let barrier = Barrier::new(2);
        barrier.failed.store(true, Ordering::SeqCst);
        thread_main(0, &shared, &barrier).unwrap();
        assert_eq!(shared.began.get(), None);
    }

    #[test]
    fn no_thread_waits_for_one_that_has_failed() {
        // No endpoint listens at this port.
        let endpoint = "127.0.0.1:1".to_owned();
        let shared = Arc::new(Shared::new(plan(&[endpoint], RunLimit::After(0))));
        let failed = [
            ("no runtime", Err(io::ErrorKind::Other.into())),
            ("no connection", tokio::runtime::Builder::new_current_thread().enable_all().build()),
        ];
        for (name, runtime) in failed {
            let barrier = Barrier::new(2);
            assert!(work_on(runtime, 0, &shared, &barrier).is_err(), "{name}");
            assert!(barrier.failed.load(Ordering::SeqCst), "{name}");
        }
    }
}
