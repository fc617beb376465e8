//! The watchdog of a port: cuts connections and streams of clients that send no request or do not
//! read their answers, and bounds open requests.
//!
//! | file | cuts |
//! |---|---|
//! | `task` | a stream of HTTP/2 whose reader takes nothing while data waits |
//! | `mod` | a connection without a first request; one of the reserve after its first seconds |
//! | `mod` | a connection whose socket takes nothing; one that keeps parts of answers |
//! | `io` | nothing: records whether writes to a socket are blocked |
//! | `service` | nothing: counts open requests, and refuses those over the bound |
//! | `body` | nothing: charges answers to the account, and passes large ones in parts |
//!
//! Owns the state of each connection, and the sweep over them. Knows nothing of requests but that
//! they begin and end. Invariant: charged bytes of an answer stay in the account until they are
//! sent or dropped.

mod body;
mod io;
mod service;
mod task;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

pub(super) use body::AnswerBody;
pub(super) use io::WatchedStream;
pub(super) use service::WatchedService;
pub(super) use task::StreamExecutor;

use headwater_node::{Answers, Limit, LimitCounters};
use headwater_types::limits::{
    FIRST_REQUEST_TIMEOUT, OPEN_REQUESTS_MAX, RESERVED_REQUESTS_MAX, STALLED_READER_TIMEOUT,
};

/// Time between two sweeps.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Duration of a generation. Parts of answers are counted by the generation in which they were
/// passed on.
const GENERATION: Duration = Duration::from_secs(10);
/// Generations whose parts of answers a connection may keep, count, including the current one. A
/// connection with older parts is cut.
const GENERATIONS: usize = 4;
const _: () = assert!(GENERATION.as_secs() * (GENERATIONS as u64 - 1) >= STALLED_READER_TIMEOUT.as_secs());

/// State shared by the connections of all ports of one kind.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// `None` if answers are not charged: those of members to each other.
    answers: Option<Arc<Answers>>,
    limit_counters: LimitCounters,
    /// Number of open requests.
    open: AtomicUsize,
    open_max: usize,
}

impl Watchdog {
    /// A watchdog for ports of clients, and for the metrics port.
    pub(super) fn of_clients(answers: Arc<Answers>, limit_counters: LimitCounters) -> Arc<Self> {
        Arc::new(Self {
            answers: Some(answers),
            limit_counters,
            open: AtomicUsize::new(0),
            open_max: OPEN_REQUESTS_MAX,
        })
    }

    /// A watchdog for ports of members: their answers have bounds of their own, and stalled ones
    /// end by their timeouts.
    pub(super) fn of_peers(limit_counters: LimitCounters) -> Arc<Self> {
        Arc::new(Self { answers: None, limit_counters, open: AtomicUsize::new(0), open_max: OPEN_REQUESTS_MAX })
    }
}

/// A request that is open until its answer is sent or dropped.
#[derive(Debug)]
struct OpenRequest {
    connection: Arc<Connection>,
}

impl OpenRequest {
    /// Counts a request as open, and records that its connection has had one. `None` if too many
    /// requests are open. If `has_reserve` returns true, the bound is higher by the reserve.
    fn begin(connection: &Arc<Connection>, has_reserve: impl FnOnce() -> bool) -> Option<Self> {
        connection.begin();
        let watchdog = &connection.watchdog;
        // Made before the check: dropping it undoes the count.
        let open = Self { connection: Arc::clone(connection) };
        let count = watchdog.open.fetch_add(1, Ordering::Relaxed);
        if count >= watchdog.open_max && !(count < watchdog.open_max + RESERVED_REQUESTS_MAX && has_reserve()) {
            watchdog.limit_counters.count(Limit::OpenRequests);
            return None;
        }
        Some(open)
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.connection.watchdog.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Connection {
    watchdog: Arc<Watchdog>,
    /// Whether the connection was accepted into the reserve: it serves only requests that may use a
    /// reserve, and is cut soon.
    is_reserved: bool,
    accepted: Instant,
    /// Whether a request has come.
    has_begun: AtomicBool,
    /// Time since which the socket takes nothing, milliseconds after `accepted`, plus one; 0 if it
    /// takes bytes.
    blocked_since: AtomicU64,
    /// Number of the current generation: the age of the connection at the last sweep, in whole
    /// [`GENERATION`]s.
    generation: AtomicUsize,
    /// Number of parts of answers that are neither sent nor dropped, by the generation in which
    /// they were passed on, modulo [`GENERATIONS`].
    kept: [AtomicUsize; GENERATIONS],
    cut: Notify,
}

impl Connection {
    pub(super) fn new(watchdog: &Arc<Watchdog>, is_reserved: bool) -> Arc<Self> {
        Arc::new(Self {
            watchdog: Arc::clone(watchdog),
            is_reserved,
            accepted: Instant::now(),
            has_begun: AtomicBool::new(false),
            blocked_since: AtomicU64::new(0),
            generation: AtomicUsize::new(0),
            kept: Default::default(),
            cut: Notify::new(),
        })
    }

    /// Resolves when the connection must end.
    pub(super) async fn cut(&self) {
        self.cut.notified().await;
    }

    fn begin(&self) {
        if !self.has_begun.load(Ordering::Relaxed) {
            self.has_begun.store(true, Ordering::Relaxed);
        }
    }

    /// Records whether the last write to the socket is pending, and since when writes have been
    /// pending.
    fn block(&self, is_blocked: bool) {
        let was_blocked = self.blocked_since.load(Ordering::Relaxed) != 0;
        match (was_blocked, is_blocked) {
            (false, true) => {
                let millis = u64::try_from(self.accepted.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
                self.blocked_since.store(millis + 1, Ordering::Relaxed);
            }
            (true, false) => self.blocked_since.store(0, Ordering::Relaxed),
            _ => {}
        }
    }

    fn keep(self: &Arc<Self>) -> KeptPart {
        let slot = self.generation.load(Ordering::Relaxed) % GENERATIONS;
        self.kept[slot].fetch_add(1, Ordering::Relaxed);
        KeptPart { connection: Arc::clone(self), slot }
    }

    /// The limit that the connection exceeds at `now`, for which it must be cut. `None` if it
    /// exceeds none. Also begins a new generation when one is due.
    fn exceeded(&self, now: Instant) -> Option<Limit> {
        let age = now.saturating_duration_since(self.accepted);
        if age >= FIRST_REQUEST_TIMEOUT {
            if !self.has_begun.load(Ordering::Relaxed) {
                return Some(Limit::FirstRequest);
            }
            if self.is_reserved {
                return Some(Limit::Connections);
            }
        }
        let blocked_since = self.blocked_since.load(Ordering::Relaxed);
        if blocked_since > 0 && age.saturating_sub(Duration::from_millis(blocked_since)) >= STALLED_READER_TIMEOUT {
            return Some(Limit::StalledReader);
        }
        // A new generation takes the slot of the oldest one, which must be empty.
        let generation = (age.as_secs() / GENERATION.as_secs()) as usize;
        if generation > self.generation.load(Ordering::Relaxed) {
            if self.kept[generation % GENERATIONS].load(Ordering::Relaxed) > 0 {
                return Some(Limit::StalledReader);
            }
            self.generation.store(generation, Ordering::Relaxed);
        }
        None
    }
}

/// A part of an answer that is neither sent nor dropped.
#[derive(Debug)]
struct KeptPart {
    connection: Arc<Connection>,
    slot: usize,
}

impl Drop for KeptPart {
    fn drop(&mut self) {
        self.connection.kept[self.slot].fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connections of a port that may still be open, for the sweep over them.
#[derive(Debug, Default)]
pub(super) struct ConnectionSweeper {
    connections: Vec<Weak<Connection>>,
}

impl ConnectionSweeper {
    pub(super) fn add(&mut self, connection: &Arc<Connection>) {
        self.connections.push(Arc::downgrade(connection));
    }

    /// Forgets connections that ended; cuts and forgets those that exceed a limit.
    pub(super) fn run(&mut self, now: Instant) {
        self.connections.retain(|connection| {
            let Some(connection) = connection.upgrade() else { return false };
            let Some(limit) = connection.exceeded(now) else { return true };
            connection.watchdog.limit_counters.count(limit);
            tracing::debug!(?limit, "cut a connection");
            connection.cut.notify_one();
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> Arc<Connection> {
        let limit_counters = LimitCounters::default();
        Connection::new(&Watchdog::of_clients(Arc::new(Answers::new(limit_counters.clone())), limit_counters), false)
    }

    fn at(connection: &Connection, seconds: u64) -> Option<Limit> {
        connection.exceeded(connection.accepted + Duration::from_secs(seconds))
    }

    #[test]
    fn a_connection_has_a_while_for_its_first_request_and_then_may_be_idle() {
        let first = FIRST_REQUEST_TIMEOUT.as_secs();
        let connection = connection();
        assert_eq!(at(&connection, first - 1), None);
        assert_eq!(at(&connection, first), Some(Limit::FirstRequest));
        connection.begin();
        assert_eq!(at(&connection, 100_000), None);
    }

    #[test]
    fn a_connection_of_the_reserve_is_cut_soon() {
        let first = FIRST_REQUEST_TIMEOUT.as_secs();
        let reserved = Connection::new(&connection().watchdog, true);
        reserved.begin();
        assert_eq!((at(&reserved, first - 1), at(&reserved, first)), (None, Some(Limit::Connections)));
    }

    #[test]
    fn a_socket_that_takes_nothing_is_cut_unless_it_takes_something_in_time() {
        let stalled = STALLED_READER_TIMEOUT.as_secs();
        let connection = connection();
        connection.begin();
        connection.block(true);
        connection.block(true);
        assert_eq!(at(&connection, stalled - 1), None);
        assert_eq!(at(&connection, stalled + 1), Some(Limit::StalledReader));
        connection.block(false);
        assert_eq!(at(&connection, stalled + 1), None);
    }

    #[test]
    fn parts_that_are_kept_for_generations_cut_the_connection() {
        let connection = connection();
        connection.begin();
        let old = connection.keep();
        for second in 0..GENERATION.as_secs() * (GENERATIONS as u64) {
            assert_eq!(at(&connection, second), None, "{second}");
            drop(connection.keep());
        }
        let _young = connection.keep();
        let end = GENERATION.as_secs() * (GENERATIONS as u64);
        assert_eq!(at(&connection, end), Some(Limit::StalledReader));
        drop(old);
        assert_eq!(at(&connection, end), None);
        assert_eq!(at(&connection, end + GENERATION.as_secs()), None, "the young one is young");
    }

    #[tokio::test]
    async fn a_sweep_cuts_once_and_forgets() {
        let mut sweeper = ConnectionSweeper::default();
        let (silent, gone) = (connection(), connection());
        sweeper.add(&silent);
        sweeper.add(&gone);
        drop(gone);
        let late = silent.accepted + FIRST_REQUEST_TIMEOUT;
        sweeper.run(late);
        sweeper.run(late);
        silent.cut().await;
        assert_eq!(
            (silent.watchdog.limit_counters.counter(Limit::FirstRequest).get(), sweeper.connections.len()),
            (1, 0)
        );
    }

    #[test]
    fn requests_are_bounded_until_others_end() {
        let limit_counters = LimitCounters::default();
        let watchdog = Watchdog { open_max: 2, ..Arc::into_inner(Watchdog::of_peers(limit_counters.clone())).unwrap() };
        let connection = Connection::new(&Arc::new(watchdog), false);
        let begin = |has_reserve| OpenRequest::begin(&connection, move || has_reserve);
        let (first, _second) = (begin(false).unwrap(), begin(false).unwrap());
        assert!(begin(false).is_none() && begin(false).is_none());
        let reserved: Vec<_> = std::iter::from_fn(|| begin(true)).collect();
        assert_eq!(reserved.len(), RESERVED_REQUESTS_MAX, "keep-alives and health have a reserve");
        drop(reserved);
        assert_eq!(limit_counters.counter(Limit::OpenRequests).get(), 3);
        drop(first);
        assert!(begin(false).is_some());
    }
}
