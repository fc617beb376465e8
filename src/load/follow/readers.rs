//! The followers: one thread with few connections. Of each change only the needed fields are
//! decoded.
//!
//! Invariant: a follower is done once it has the last write of every element. A slow one reads
//! nothing from the moment at which it has its state until the last writes are done.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::RecvStream;
use hdrhistogram::Histogram;
use tokio::sync::watch;
use tokio::task::LocalSet;

use super::super::clock::Clock;
use super::super::drive::{LATENCY_MICROS_MAX, Outcome, new_histogram};
use super::super::protobuf::{Fields, Malformed};
use super::super::watch::Splitter;
use super::super::wire::{self, Connection, Failure, FlowControlWindows};
use super::super::workload::{Method, frame};
use super::FollowArgs;
use crate::error::CliError;
use headwater_proto::pb::pbwatcher::Request;

/// Target of every follower: the subtree of all keys of the run.
const TARGET: &str = "/kv/bench-follow?recursive=true";
/// Longest wait until all followers have the state. Also the longest wait for the last writes, from
/// the moment at which they were acknowledged.
const STALL_TIMEOUT: Duration = Duration::from_secs(120);
/// Interval at which counters are polled.
const POLL: Duration = Duration::from_millis(10);
/// HTTP/2 flow-control window of a slow follower, bytes: bounds the bytes in the network while it
/// does not read.
const SLOW_WINDOW_BYTES: u32 = 64 * 1024;
/// Slow followers that share a connection.
const SLOW_PER_CONNECTION: usize = 10;

/// Latencies of the followers that read all the time, and counts of the changes that both kinds of
/// followers received after their first states.
pub(super) struct FollowTotals {
    pub(super) latency: Histogram<u64>,
    pub(super) delivered_reading: u64,
    pub(super) delivered_slow: u64,
}

/// State that the threads share.
#[derive(Default)]
struct Shared {
    /// Followers that have their state.
    begun: AtomicUsize,
    /// Followers that have the last write of every element.
    done: AtomicUsize,
    delivered_reading: AtomicU64,
    delivered_slow: AtomicU64,
    /// Time at which the last writes began, nanoseconds of the clock; 0 before.
    last_from: AtomicU64,
    failed: parking_lot::Mutex<Option<String>>,
}

pub(super) struct Readers {
    shared: Arc<Shared>,
    clock: Clock,
    followers: usize,
    began: Instant,
    /// Signals the slow followers to read again.
    release: watch::Sender<bool>,
    thread: Option<JoinHandle<Histogram<u64>>>,
}

impl Readers {
    pub(super) fn start(endpoints: &Arc<[String]>, args: &FollowArgs, clock: Clock) -> Result<Self, CliError> {
        let shared = Arc::<Shared>::default();
        let (release, released) = watch::channel(false);
        let plan =
            Plan { endpoints: Arc::clone(endpoints), args: args.clone(), clock, shared: Arc::clone(&shared), released };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::other)?;
        let thread = std::thread::spawn(move || LocalSet::new().block_on(&runtime, plan.run()));
        let began = Instant::now();
        Ok(Self { shared, clock, followers: args.followers, began, release, thread: Some(thread) })
    }

    /// Waits until every follower has the state. Returns the seconds since the start of the
    /// followers.
    pub(super) fn wait_for_states(&self) -> Result<f64, CliError> {
        self.wait("every follower has the state", |shared| &shared.begun)?;
        Ok(self.began.elapsed().as_secs_f64())
    }

    /// Runs `last`, which writes every element once more. Then lets the slow followers read, and
    /// waits until every follower has these writes.
    pub(super) fn finish(mut self, last: impl FnOnce() -> Result<Outcome, CliError>) -> Result<FollowTotals, CliError> {
        self.shared.last_from.store(self.clock.nanos(), Ordering::Release);
        last()?;
        self.release.send_replace(true);
        self.wait("every follower has the last writes", |shared| &shared.done)?;
        let thread = self.thread.take().expect("invariant: it is taken once");
        let latency = thread.join().map_err(|_| CliError::Finding("the followers' thread panicked".to_owned()))?;
        Ok(FollowTotals {
            latency,
            delivered_reading: self.shared.delivered_reading.load(Ordering::Relaxed),
            delivered_slow: self.shared.delivered_slow.load(Ordering::Relaxed),
        })
    }

    fn wait(&self, what: &str, count: impl Fn(&Shared) -> &AtomicUsize) -> Result<(), CliError> {
        let give_up = Instant::now() + STALL_TIMEOUT;
        loop {
            let reached = count(&self.shared).load(Ordering::Acquire);
            if let Some(why) = self.shared.failed.lock().clone() {
                return Err(CliError::Finding(why));
            }
            if reached == self.followers {
                return Ok(());
            }
            if Instant::now() > give_up {
                let text = format!("waited in vain until {what}: {reached} of {}", self.followers);
                return Err(CliError::Finding(text));
            }
            std::thread::sleep(POLL);
        }
    }
}

struct Plan {
    endpoints: Arc<[String]>,
    args: FollowArgs,
    clock: Clock,
    shared: Arc<Shared>,
    released: watch::Receiver<bool>,
}

impl Plan {
    async fn run(self) -> Histogram<u64> {
        let latency = Rc::new(RefCell::new(new_histogram()));
        let mut tasks = Vec::new();
        if let Err(why) = self.spawn_all(&latency, &mut tasks).await {
            *self.shared.failed.lock() = Some(why);
        }
        for task in tasks {
            if let Err(error) = task.await {
                *self.shared.failed.lock() = Some(error.to_string());
            }
        }
        latency.replace(new_histogram())
    }

    async fn spawn_all(
        &self,
        latency: &Rc<RefCell<Histogram<u64>>>,
        tasks: &mut Vec<tokio::task::JoinHandle<()>>,
    ) -> Result<(), String> {
        let endpoint = |number: usize| &self.endpoints[number % self.endpoints.len()];
        let mut connections = Vec::new();
        for number in 0..self.args.conns {
            connections.push(Connection::open(endpoint(number)).await?);
        }
        let mut slow_connection = None;
        for number in 0..self.args.followers {
            let is_slow = number < self.args.slow;
            let connection = if is_slow {
                if number % SLOW_PER_CONNECTION == 0 {
                    let windows = FlowControlWindows {
                        stream_bytes: SLOW_WINDOW_BYTES,
                        connection_bytes: SLOW_WINDOW_BYTES * SLOW_PER_CONNECTION as u32,
                    };
                    slow_connection =
                        Some(Connection::open_with(endpoint(number / SLOW_PER_CONNECTION), windows).await?);
                }
                slow_connection.clone().expect("invariant: opened for the first one")
            } else {
                connections[number % connections.len()].clone()
            };
            let follower = Follower {
                shared: Arc::clone(&self.shared),
                clock: self.clock,
                latency: Rc::clone(latency),
                is_slow,
                released: self.released.clone(),
                last: vec![0; usize::try_from(self.args.elements).map_err(|error| error.to_string())?],
                missing: self.args.elements,
                has_begun: false,
            };
            tasks.push(tokio::task::spawn_local(follower.run(connection, number)));
        }
        Ok(())
    }
}

struct Follower {
    shared: Arc<Shared>,
    clock: Clock,
    latency: Rc<RefCell<Histogram<u64>>>,
    is_slow: bool,
    released: watch::Receiver<bool>,
    /// Whether the last write of each element has come: 1 or 0, by element.
    last: Vec<u8>,
    missing: u64,
    has_begun: bool,
}

/// Whether a follower continues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FollowStep {
    Continue,
    Done,
}

impl From<Malformed> for String {
    fn from(_: Malformed) -> Self {
        "what came is no batch of changes".to_owned()
    }
}

impl Follower {
    async fn run(mut self, connection: Connection, number: usize) {
        let request = frame(&Request { target: TARGET.to_owned(), resume_marker: Bytes::new() });
        let why = match connection.open_answers(Method::Follow, request).await {
            Ok(mut body) => match self.read(&mut body).await {
                Ok(()) => return,
                Err(why) => why,
            },
            Err(Failure::Status(reason) | Failure::Transport(reason)) => reason,
        };
        *self.shared.failed.lock() = Some(format!("follower {number} ended: {why}"));
    }

    async fn read(&mut self, body: &mut RecvStream) -> Result<(), String> {
        let mut splitter = Splitter::default();
        loop {
            if self.is_slow && self.has_begun && !*self.released.borrow() {
                // Nothing is read and no window is given back: the server sees a client that has
                // stopped reading.
                self.released.wait_for(|released| *released).await.map_err(|error| error.to_string())?;
            }
            let chunk = match body.data().await {
                Some(Ok(chunk)) => chunk,
                Some(Err(error)) => return Err(error.to_string()),
                None => return Err(wire::ending(body).await),
            };
            let mut step = FollowStep::Continue;
            splitter.push(&chunk, |message| {
                step = self.take(message)?;
                Ok::<_, String>(())
            })?;
            body.flow_control().release_capacity(chunk.len()).map_err(|error| error.to_string())?;
            if step == FollowStep::Done {
                self.shared.done.fetch_add(1, Ordering::AcqRel);
                return Ok(());
            }
        }
    }

    /// Counts the changes of a batch, except those of the first state, and records their latencies
    /// unless the follower is slow. `Done` once the last write of every element has come.
    fn take(&mut self, batch: &[u8]) -> Result<FollowStep, String> {
        let now = self.clock.nanos();
        let last_from = self.shared.last_from.load(Ordering::Acquire);
        let mut delivered = 0;
        for field in Fields::of(batch) {
            let (_, change) = field.map_err(String::from)?;
            let change = Change::read(change.bytes().ok_or(Malformed).map_err(String::from)?).map_err(String::from)?;
            if !self.has_begun {
                if !change.continued {
                    self.has_begun = true;
                    self.shared.begun.fetch_add(1, Ordering::AcqRel);
                }
                continue;
            }
            delivered += 1;
            let Some(stamp) = Clock::stamp_of(change.value) else { continue };
            if !self.is_slow {
                let micros = now.saturating_sub(stamp) / 1000;
                self.latency.borrow_mut().saturating_record(micros.min(LATENCY_MICROS_MAX));
            }
            if last_from > 0 && stamp >= last_from {
                let number = std::str::from_utf8(change.element).ok().and_then(|name| name.parse::<usize>().ok());
                if let Some(seen) = number.and_then(|number| self.last.get_mut(number))
                    && std::mem::replace(seen, 1) == 0
                {
                    self.missing -= 1;
                }
            }
        }
        let count = if self.is_slow { &self.shared.delivered_slow } else { &self.shared.delivered_reading };
        count.fetch_add(delivered, Ordering::Relaxed);
        Ok(if self.missing == 0 { FollowStep::Done } else { FollowStep::Continue })
    }
}

/// The fields of a change that are needed here.
struct Change<'a> {
    element: &'a [u8],
    continued: bool,
    value: &'a [u8],
}

impl<'a> Change<'a> {
    /// Reads the needed fields of a `Change`: field 6 is an `Any` with a pair in field 2, which has
    /// its value in field 5.
    #[inline]
    fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut change = Self { element: &[], continued: false, value: &[] };
        for field in Fields::of(message) {
            match field? {
                (1, content) => change.element = content.bytes().ok_or(Malformed)?,
                (5, content) => change.continued = content.number() == Some(1),
                (6, content) => {
                    let pair = find(content.bytes().ok_or(Malformed)?, 2)?;
                    change.value = find(pair, 5)?;
                }
                _ => {}
            }
        }
        Ok(change)
    }
}

/// The bytes of the first field with the number `wanted`; empty if it is absent.
#[inline]
fn find(message: &[u8], wanted: u64) -> Result<&[u8], Malformed> {
    for field in Fields::of(message) {
        let (number, content) = field?;
        if number == wanted {
            return content.bytes().ok_or(Malformed);
        }
    }
    Ok(&[])
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use headwater_proto::pb::{mvccpb, pbwatcher};

    #[test]
    fn changes_are_read_as_far_as_they_matter() {
        let kv = mvccpb::KeyValue { key: "k".into(), value: "value".into(), mod_revision: 7, ..Default::default() };
        let data =
            prost_types::Any { type_url: "type.googleapis.com/mvccpb.KeyValue".to_owned(), value: kv.encode_to_vec() };
        let change =
            pbwatcher::Change { element: "a/b".to_owned(), continued: true, data: Some(data), ..Default::default() };
        let encoded = change.encode_to_vec();
        let read = Change::read(&encoded).unwrap();
        assert_eq!((read.element, read.continued, read.value), (&b"a/b"[..], true, &b"value"[..]));
        let gone = pbwatcher::Change { state: 1, ..Default::default() }.encode_to_vec();
        assert_eq!(Change::read(&gone).unwrap().value, b"");
        assert!(Change::read(&[0x32, 5]).is_err());
    }
}
