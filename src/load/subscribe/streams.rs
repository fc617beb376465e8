//! The subscribers: one thread with few connections. Of each event only the needed fields are
//! decoded.
//!
//! Invariant: a change is counted if it came while counting was on, to a subscriber with a complete
//! state, and once for each subscriber: a duplicate must not stand for a missing change. Changes
//! are told apart by their due times.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::RecvStream;
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::LocalSet;

use super::super::drive::new_histogram;
use super::super::protobuf::{Fields, Malformed};
use super::super::watch::Splitter;
use super::super::wire::{self, Connection, Failure};
use super::super::workload::{Method, frame};
use super::catalog::Catalog;
use crate::error::CliError;
use headwater_client::{ServiceHealth, ViewTopic};

/// Longest wait until a counter reaches its target, and for all probes together.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which counters are polled.
const POLL: Duration = Duration::from_millis(1);

/// Subscribers on some connections. Subscriber n follows the service with the number n modulo the
/// number of services.
pub(super) struct Streams {
    shared: Arc<Shared>,
    count: usize,
    close: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// State that the threads share.
struct Shared {
    catalog: Arc<Catalog>,
    live: AtomicU64,
    delivered: AtomicU64,
    is_counting: AtomicBool,
    /// Time from the moment at which a change was due until a subscriber had read it, microseconds.
    latency: Mutex<Histogram<u64>>,
    failed: Mutex<Option<String>>,
}

impl Shared {
    fn new(catalog: &Arc<Catalog>) -> Self {
        Self {
            catalog: Arc::clone(catalog),
            live: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            is_counting: AtomicBool::new(false),
            latency: Mutex::new(new_histogram()),
            failed: Mutex::new(None),
        }
    }
}

impl Streams {
    /// Opens `count` subscribers at once and waits until the state of each is complete. Returns the
    /// elapsed time. An error after [`DELIVERY_TIMEOUT`], or if a subscription ended.
    pub(super) fn open(
        catalog: &Arc<Catalog>,
        endpoints: &Arc<[String]>,
        conns: usize,
        count: usize,
    ) -> Result<(Self, Duration), CliError> {
        let shared = Arc::new(Shared::new(catalog));
        let (close, mut closed) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::other)?;
        let began = Instant::now();
        let thread = std::thread::spawn({
            let (shared, endpoints) = (Arc::clone(&shared), Arc::clone(endpoints));
            move || {
                LocalSet::new().block_on(&runtime, async {
                    if let Err(why) = spawn_all(&shared, &endpoints, conns, count).await {
                        *shared.failed.lock() = Some(why);
                    }
                    // A dropped sender ends it as well.
                    let _over = closed.wait_for(|closed| *closed).await.is_ok();
                });
            }
        });
        let streams = Self { shared, count, close, thread: Some(thread) };
        streams.wait("every subscription is live", |shared| &shared.live, count as u64)?;
        Ok((streams, began.elapsed()))
    }

    /// Number of subscribers of a service.
    pub(super) fn of_service(&self, service: usize) -> u64 {
        let services = self.shared.catalog.services();
        (self.count / services + usize::from(service < self.count % services)) as u64
    }

    pub(super) fn begin_counting(&self) {
        *self.shared.latency.lock() = new_histogram();
        self.shared.delivered.store(0, Ordering::Relaxed);
        self.shared.is_counting.store(true, Ordering::Relaxed);
    }

    /// Waits until `expected` deliveries were counted, at most [`DELIVERY_TIMEOUT`]. Returns the
    /// latencies of the counted deliveries, and the number of missing ones. An error if a
    /// subscription ended.
    pub(super) fn end_counting(&self, expected: u64) -> Result<(Histogram<u64>, u64), CliError> {
        let waited = self.wait("every change is delivered", |shared| &shared.delivered, expected);
        self.shared.is_counting.store(false, Ordering::Relaxed);
        let missing = expected.saturating_sub(self.shared.delivered.load(Ordering::Relaxed));
        match waited {
            Err(error) if self.shared.failed.lock().is_some() => return Err(error),
            // A timeout is no error: the missing changes are returned.
            Ok(()) | Err(_) => {}
        }
        Ok((std::mem::replace(&mut *self.shared.latency.lock(), new_histogram()), missing))
    }

    /// Cuts all connections, and waits for the end of the subscribers' thread.
    pub(super) fn close(mut self) -> Result<(), CliError> {
        self.close.send_replace(true);
        let thread = self.thread.take().expect("invariant: it is taken once");
        thread.join().map_err(|_| CliError::Finding("the subscribers' thread panicked".to_owned()))
    }

    fn wait(&self, what: &str, count: impl Fn(&Shared) -> &AtomicU64, wanted: u64) -> Result<(), CliError> {
        let give_up = Instant::now() + DELIVERY_TIMEOUT;
        loop {
            let reached = count(&self.shared).load(Ordering::Acquire);
            if let Some(why) = self.shared.failed.lock().clone() {
                return Err(CliError::Finding(why));
            }
            if reached >= wanted {
                return Ok(());
            }
            if Instant::now() > give_up {
                return Err(CliError::Finding(format!("waited in vain until {what}: {reached} of {wanted}")));
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Opens `probes` subscriptions, one after the other. Returns the times until their first states
/// were complete, microseconds.
pub(super) fn probe(
    catalog: &Arc<Catalog>,
    endpoints: &Arc<[String]>,
    probes: usize,
) -> Result<Histogram<u64>, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::other)?;
    let probing = async {
        let connections = connect(endpoints, endpoints.len()).await?;
        let mut took = new_histogram();
        for number in 0..probes {
            let began = Instant::now();
            let connection = &connections[number % connections.len()];
            let mut body = subscribe(connection, catalog, number).await?;
            let mut splitter = Splitter::default();
            let mut is_complete = false;
            while !is_complete {
                let chunk = next_chunk(&mut body).await?;
                splitter.push(&chunk, |message| {
                    is_complete |= Seen::of(message)?.is_end_of_snapshot;
                    Ok::<_, String>(())
                })?;
            }
            took.saturating_record(began.elapsed().as_micros() as u64);
        }
        Ok::<_, String>(took)
    };
    let within = async { tokio::time::timeout(DELIVERY_TIMEOUT, probing).await };
    match LocalSet::new().block_on(&runtime, within) {
        Ok(Ok(took)) => Ok(took),
        Ok(Err(why)) => Err(CliError::Finding(format!("a subscription failed: {why}"))),
        Err(_) => Err(CliError::Finding("a subscription was not live in time".to_owned())),
    }
}

async fn connect(endpoints: &[String], conns: usize) -> Result<Vec<Connection>, String> {
    let opening = (0..conns).map(|number| Connection::open(&endpoints[number % endpoints.len()]));
    futures::future::try_join_all(opening).await
}

async fn spawn_all(shared: &Arc<Shared>, endpoints: &[String], conns: usize, count: usize) -> Result<(), String> {
    let connections = connect(endpoints, conns).await?;
    for number in 0..count {
        let connection = connections[number % connections.len()].clone();
        let subscriber = Subscriber::new(shared);
        tokio::task::spawn_local(subscriber.run(connection, number));
    }
    Ok(())
}

async fn subscribe(connection: &Connection, catalog: &Catalog, number: usize) -> Result<RecvStream, String> {
    let request = frame(&ServiceHealth::of(&catalog.service(number)).request());
    connection.open_answers(Method::Subscribe, request).await.map_err(|failure| match failure {
        Failure::Status(reason) | Failure::Transport(reason) => reason,
    })
}

/// The next chunk of a stream. Its bytes are given back to the server's flow-control window. The
/// error is the reason for the end of the stream.
async fn next_chunk(body: &mut RecvStream) -> Result<Bytes, String> {
    match body.data().await {
        Some(Ok(chunk)) => {
            body.flow_control().release_capacity(chunk.len()).map_err(|error| error.to_string())?;
            Ok(chunk)
        }
        Some(Err(error)) => Err(error.to_string()),
        None => Err(wire::ending(body).await),
    }
}

struct Subscriber {
    shared: Arc<Shared>,
    is_live: bool,
    /// Due times of the counted changes, nanoseconds of the clock.
    counted: HashSet<u64>,
}

impl Subscriber {
    fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), is_live: false, counted: HashSet::new() }
    }

    async fn run(mut self, connection: Connection, number: usize) {
        let Err(why) = self.read(connection, number).await;
        *self.shared.failed.lock() = Some(format!("subscription {number} ended: {why}"));
    }

    async fn read(&mut self, connection: Connection, number: usize) -> Result<std::convert::Infallible, String> {
        let mut body = subscribe(&connection, &self.shared.catalog, number).await?;
        let mut splitter = Splitter::default();
        loop {
            let chunk = next_chunk(&mut body).await?;
            splitter.push(&chunk, |message| {
                self.take(&Seen::of(message)?);
                Ok::<_, String>(())
            })?;
        }
    }

    fn take(&mut self, seen: &Seen) {
        let shared = &self.shared;
        if self.is_live && !seen.due_ns.is_empty() && shared.is_counting.load(Ordering::Relaxed) {
            let now = shared.catalog.now_ns();
            for due_ns in seen.due_ns.iter().filter(|due_ns| self.counted.insert(**due_ns)) {
                shared.latency.lock().saturating_record(now.saturating_sub(*due_ns) / 1000);
                shared.delivered.fetch_add(1, Ordering::Release);
            }
        }
        if seen.is_end_of_snapshot && !self.is_live {
            self.is_live = true;
            shared.live.fetch_add(1, Ordering::Release);
        }
    }
}

/// The parts of a message that the measurement needs: the end of the first state, and the due times
/// of the changes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    is_end_of_snapshot: bool,
    /// Outputs of checks that are due times of changes, nanoseconds of the clock.
    due_ns: Vec<u64>,
}

impl Seen {
    #[inline]
    fn of(message: &[u8]) -> Result<Self, String> {
        let mut seen = Self::default();
        seen.read(message).map_err(|Malformed| "what came is no event".to_owned())?;
        Ok(seen)
    }

    /// Adds the facts of an `Event`: field 2 ends the snapshot, 4 is a batch with events in field
    /// 1, 10 an update with an instance in field 2, its checks in field 3, and their output in
    /// field 6.
    #[inline]
    fn read(&mut self, event: &[u8]) -> Result<(), Malformed> {
        for field in Fields::of(event) {
            match field? {
                (2, content) => self.is_end_of_snapshot |= content.number() == Some(1),
                (4, content) => {
                    for field in Fields::of(content.bytes().ok_or(Malformed)?) {
                        if let (1, event) = field? {
                            self.read(event.bytes().ok_or(Malformed)?)?;
                        }
                    }
                }
                (10, content) => self.update(content.bytes().ok_or(Malformed)?)?,
                _ => {}
            }
        }
        Ok(())
    }

    #[inline]
    fn update(&mut self, update: &[u8]) -> Result<(), Malformed> {
        for field in Fields::of(update) {
            let (2, instance) = field? else { continue };
            for field in Fields::of(instance.bytes().ok_or(Malformed)?) {
                let (3, check) = field? else { continue };
                for field in Fields::of(check.bytes().ok_or(Malformed)?) {
                    let (6, output) = field? else { continue };
                    let output = std::str::from_utf8(output.bytes().ok_or(Malformed)?).map_err(|_| Malformed)?;
                    if let Some(due_ns) = output.parse().ok().filter(|due_ns| *due_ns > 0) {
                        self.due_ns.push(due_ns);
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::super::super::clock::Clock;
    use super::*;
    use headwater_proto::pb::pbservice::{CheckServiceNode, HealthCheck};
    use headwater_proto::pb::subscribe::event::Payload;
    use headwater_proto::pb::subscribe::{Event, EventBatch, ServiceHealthUpdate};

    fn health(outputs: &[&str]) -> Event {
        let check = |output: &&str| HealthCheck { output: (*output).to_owned(), ..Default::default() };
        let checks = outputs.iter().map(check).collect();
        let update =
            ServiceHealthUpdate { op: 0, check_service_node: Some(CheckServiceNode { checks, ..Default::default() }) };
        Event { index: 7, payload: Some(Payload::ServiceHealth(update)) }
    }

    #[test]
    fn events_are_read_as_far_as_they_matter() {
        let end = Event { index: 7, payload: Some(Payload::EndOfSnapshot(true)) };
        let batch = EventBatch { events: vec![health(&["5"]), health(&["", "6"]), health(&["x"])] };
        for (event, wanted) in [
            (end, Seen { is_end_of_snapshot: true, ..Seen::default() }),
            (health(&[]), Seen::default()),
            (health(&["", "12"]), Seen { due_ns: vec![12], ..Seen::default() }),
            (health(&["0"]), Seen::default()),
            (
                Event { index: 7, payload: Some(Payload::EventBatch(batch)) },
                Seen { due_ns: vec![5, 6], ..Seen::default() },
            ),
        ] {
            assert_eq!(Seen::of(&event.encode_to_vec()), Ok(wanted), "{event:?}");
        }
        assert!(Seen::of(&[0x52, 5]).is_err());
    }

    #[test]
    fn a_duplicate_is_counted_once() {
        let shared = Arc::new(Shared::new(&Arc::new(Catalog::new("b", 1, 1, Clock::start()))));
        shared.is_counting.store(true, Ordering::Relaxed);
        let (mut one, mut other) = (Subscriber::new(&shared), Subscriber::new(&shared));
        for subscriber in [&mut one, &mut other] {
            subscriber.take(&Seen { is_end_of_snapshot: true, ..Seen::default() });
        }
        let changes = |due_ns: &[u64]| Seen { due_ns: due_ns.to_vec(), ..Seen::default() };
        one.take(&changes(&[5, 6]));
        one.take(&changes(&[5, 7]));
        other.take(&changes(&[5]));
        assert_eq!(shared.delivered.load(Ordering::Relaxed), 4);
        assert_eq!(shared.latency.lock().len(), 4);
    }
}
