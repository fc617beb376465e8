//! The threads that read watch streams: each with its own runtime, connections and counts.
//!
//! Owns their start, hold and end. They share nothing with the writers; the thread that starts them
//! reads their counters ([`Shared`]).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::LocalSet;

use super::super::clock::Clock;
use super::super::drive::new_histogram;
use super::super::ledger::Seen;
use super::super::wire::{Connection, FlowControlWindows};
use super::layout::Layout;
use super::stream::{Tally, WatchStream};
use crate::error::{CliError, Tried};
use crate::progress::Progress;

/// HTTP/2 flow-control windows of the readers. A stream's window is that of gRPC clients: small
/// enough for a server to notice soon that a client does not read.
const WINDOWS: FlowControlWindows = FlowControlWindows { stream_bytes: 64 << 10, connection_bytes: 64 << 20 };
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Instruction to the threads that read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Read events.
    Read,
    /// Read nothing, and give no window back.
    Hold,
    /// Stop reading, and end.
    Stop,
}

/// State that the threads share.
pub(super) struct Shared {
    pub(super) layout: Layout,
    pub(super) clock: Clock,
    /// Watchers that the servers have confirmed.
    pub(super) created: AtomicU64,
    pub(super) received: AtomicU64,
    /// Time at which the last event was read, nanoseconds of the clock.
    pub(super) last_event: AtomicU64,
    pub(super) measures_latency: AtomicBool,
    /// First failure of a thread, connection or stream, until [`Readers::check`] takes it.
    failure: Mutex<Option<CliError>>,
}

/// Running readers.
pub(super) struct Readers {
    shared: Arc<Shared>,
    order: watch::Sender<Order>,
    threads: Vec<JoinHandle<Tally>>,
}

/// Events and latencies of all readers.
pub(super) struct Found {
    /// Events seen, by stream and by watcher.
    pub(super) seen: Vec<Vec<Seen>>,
    pub(super) latency: Histogram<u64>,
}

impl Readers {
    /// Opens all streams and creates all watchers; returns when the servers have confirmed each
    /// watcher.
    ///
    /// # Errors
    ///
    /// A connection failed or a stream ended; or no watcher was confirmed for `timeout` while some
    /// were missing.
    pub(super) fn start(
        layout: Layout,
        clock: Clock,
        timeout: Duration,
        mut progress: Progress,
    ) -> Result<Self, CliError> {
        let threads = layout.threads;
        let wanted = layout.watchers_total();
        let shared = Arc::new(Shared {
            layout,
            clock,
            created: AtomicU64::new(0),
            received: AtomicU64::new(0),
            last_event: AtomicU64::new(0),
            measures_latency: AtomicBool::new(true),
            failure: Mutex::new(None),
        });
        let (order, orders) = watch::channel(Order::Read);
        let threads = (0..threads).map(|index| {
            let (shared, orders) = (Arc::clone(&shared), orders.clone());
            std::thread::spawn(move || thread_main(index, &shared, orders))
        });
        let readers = Self { threads: threads.collect(), shared, order };
        let created = readers.wait(wanted, timeout, &mut progress, |shared| &shared.created);
        readers.check()?;
        if created < wanted {
            let silence_max = humantime::format_duration(timeout);
            return Err(CliError::Finding(format!(
                "{created} of {wanted} watchers were created, then nothing came for {silence_max}; \
                 a server may allow fewer streams on a connection (--conns) or need more time (--timeout)"
            )));
        }
        Ok(readers)
    }

    /// Waits until `counter` has reached `wanted`, has not risen for `silence_max`, or a failure is
    /// recorded. Returns the counter.
    fn wait(
        &self,
        wanted: u64,
        silence_max: Duration,
        progress: &mut Progress,
        counter: impl Fn(&Shared) -> &AtomicU64,
    ) -> u64 {
        let mut last = (0, Instant::now());
        loop {
            let count = counter(&self.shared).load(Ordering::Relaxed);
            progress.set(count);
            if count != last.0 {
                last = (count, Instant::now());
            }
            if count >= wanted || last.1.elapsed() > silence_max || self.shared.failure.lock().is_some() {
                progress.finish();
                return count;
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// Waits until all watchers together have seen `wanted` events, no event has come for
    /// `silence_max`, or a stream has ended.
    pub(super) fn wait_received(&self, wanted: u64, silence_max: Duration, progress: impl FnOnce() -> Progress) {
        if self.received() < wanted {
            self.wait(wanted, silence_max, &mut progress(), |shared| &shared.received);
        }
    }

    /// Number of events that were read.
    pub(super) fn received(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }

    /// Time at which the last event was read, nanoseconds of the clock; 0 if none was.
    pub(super) fn last_event(&self) -> u64 {
        self.shared.last_event.load(Ordering::Relaxed)
    }

    /// Switches the measurement of latencies on or off.
    pub(super) fn measure_latency(&self, measures: bool) {
        self.shared.measures_latency.store(measures, Ordering::Relaxed);
    }

    /// Makes all readers stop reading, until [`resume`](Self::resume).
    pub(super) fn hold(&self) {
        self.order.send_replace(Order::Hold);
    }

    /// Makes all readers read again.
    pub(super) fn resume(&self) {
        self.order.send_replace(Order::Read);
    }

    /// Takes the recorded failure of a thread, connection or stream, and returns it. A later call
    /// returns `Ok`, unless another thread has failed since.
    pub(super) fn check(&self) -> Result<(), CliError> {
        self.shared.failure.lock().take().map_or(Ok(()), Err)
    }

    /// Ends all streams, and returns the events and latencies of all readers.
    ///
    /// # Errors
    ///
    /// The recorded failure, unless [`check`](Self::check) has returned it; a thread that panicked.
    pub(super) fn stop(mut self) -> Result<Found, CliError> {
        self.order.send_replace(Order::Stop);
        let mut found = Found { seen: Vec::new(), latency: new_histogram() };
        for thread in std::mem::take(&mut self.threads) {
            let tally =
                thread.join().map_err(|_| CliError::Finding("a thread of the generator panicked".to_owned()))?;
            found.latency.add(tally.latency).map_err(CliError::other)?;
            found.seen.resize(tally.streams.len(), Vec::new());
            for (all, own) in found.seen.iter_mut().zip(tally.streams).filter(|(_, own)| !own.is_empty()) {
                *all = own;
            }
        }
        self.check()?;
        Ok(found)
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.order.send_replace(Order::Stop);
    }
}

impl Shared {
    /// Keeps the first reason: later ones follow from it.
    fn fail(&self, error: CliError) {
        self.failure.lock().get_or_insert(error);
    }
}

fn thread_main(index: usize, shared: &Arc<Shared>, orders: watch::Receiver<Order>) -> Tally {
    let tally =
        Rc::new(RefCell::new(Tally { streams: vec![Vec::new(); shared.layout.streams], latency: new_histogram() }));
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => LocalSet::new().block_on(&runtime, thread_work(index, shared, orders, &tally)),
        Err(error) => shared.fail(CliError::other(error)),
    }
    // The streams are gone with the set; only this reference is left.
    Rc::into_inner(tally).expect("invariant: the tasks ended with their set").into_inner()
}

async fn thread_work(
    index: usize,
    shared: &Arc<Shared>,
    mut orders: watch::Receiver<Order>,
    tally: &Rc<RefCell<Tally>>,
) {
    let layout = &shared.layout;
    let mut streams = FuturesUnordered::new();
    for conn in layout.conns_of_thread(index) {
        let endpoint = layout.endpoint(conn);
        let connection = match Connection::open_with(endpoint, WINDOWS).await {
            Ok(connection) => connection,
            Err(reason) => {
                let tried = Tried { endpoint: endpoint.to_owned(), reason };
                return shared.fail(CliError::Unreachable(vec![tried]));
            }
        };
        for number in layout.streams_of_conn(conn) {
            tally.borrow_mut().streams[number] = vec![Seen::default(); layout.watchers];
            let (shared, order, tally) = (Arc::clone(shared), orders.clone(), Rc::clone(tally));
            let stream = WatchStream { shared, number, order, tally };
            streams.push(tokio::task::spawn_local(stream.run(connection.clone())));
        }
    }
    tokio::select! {
        Some(ended) = streams.next() => {
            let why = ended.unwrap_or_else(|error| format!("a watch stream failed: {error}"));
            shared.fail(CliError::Finding(why));
        }
        // An error means a dropped sender: the run is over, too.
        _ = orders.wait_for(|order| *order == Order::Stop) => {}
    }
}
