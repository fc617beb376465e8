//! File descriptors: the limit of the process, and the part of it that connections may use.
//!
//! Owns the limit of open files and its division. Knows nothing of the services. Invariant:
//! connections never take the descriptors that the store needs. Otherwise too many clients would
//! look like a failing disk.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::addresses::{AddressLimit, AddressPermit};
use headwater_node::{Limit, LimitCounters};

/// Most descriptors that are kept for the store's files, timers and outgoing connections, count. If
/// the limit is below twice this number, half of the limit is kept.
const RESERVE_MAX: u64 = 1024;
/// Divisor: of the descriptors beyond [`FileLimits::reserve`], 1 / `PEER_SHARE` are for connections
/// of other members alone.
const PEER_SHARE: u64 = 8;
/// Divisor: of the descriptors beyond [`FileLimits::reserve`], 1 / `METRICS_SHARE` are for the
/// metrics port alone, at most [`METRICS_MAX`].
const METRICS_SHARE: u64 = 16;
/// Most connections of the metrics port, count: scrapers and probes of many machines.
const METRICS_MAX: u64 = 64;
/// Most connections of one kind, count: more than a machine has ports or memory for, and fewer than
/// a semaphore's limit.
const CONNECTIONS_MAX: u64 = 1 << 20;
/// Most files that RocksDB keeps open for the state, count.
const STORE_FILES_MAX: u64 = 512;
/// Name of the client port in metrics and logs.
const CLIENTS: &str = "client";
/// Name of the metrics port in metrics and logs.
const METRICS: &str = "metrics";
/// Most connections of clients that are kept for keep-alives and health, their reserve; count.
/// Enough for one probe a second from many machines, since connections of the reserve are cut soon.
const RESERVED_MAX: u64 = 64;
/// Divisor: of the connections of clients, 1 / `RESERVED_SHARE` are kept for keep-alives and
/// health, at most [`RESERVED_MAX`].
const RESERVED_SHARE: u64 = 8;
/// Most connections of the reserve that one IPv4 address, or one /64 of IPv6, may have, count.
const RESERVED_PER_ADDRESS_MAX: usize = 4;
/// Shortest time between two log lines about refused connections.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Raises the soft limit of open files to the hard one. Returns the soft limit after that; a
/// failure is logged.
pub(super) fn raise_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, "could not raise the limit of open files");
    }
    limit()
}

/// Descriptors that the process may have, count; `u64::MAX` without a limit.
fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The parts of a limit of open files, count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileLimits {
    /// Kept for the store, timers and outgoing connections.
    reserve: u64,
    /// Most connections of clients, those of DNS included.
    clients: u64,
    /// Most connections of other members.
    peers: u64,
    /// Most connections of the metrics port; 0 without one.
    metrics: u64,
}

impl FileLimits {
    fn of(limit: u64, has_metrics_port: bool) -> Self {
        let reserve = (limit / 2).min(RESERVE_MAX);
        let rest = limit - reserve;
        let peers = rest / PEER_SHARE;
        let metrics = if has_metrics_port { (rest / METRICS_SHARE).min(METRICS_MAX) } else { 0 };
        let clients = rest - peers - metrics;
        Self { reserve, clients: clients.min(CONNECTIONS_MAX), peers: peers.min(CONNECTIONS_MAX), metrics }
    }
}

/// Files that RocksDB may keep open for the state, count: at most half of [`FileLimits::reserve`].
pub(super) fn store_files_max() -> i32 {
    let files = (FileLimits::of(limit(), false).reserve / 2).min(STORE_FILES_MAX);
    i32::try_from(files).expect("the bound above fits")
}

/// The connections that a node may have, by kind of port.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    pub(super) clients: ConnectionLimit,
    pub(super) peers: ConnectionLimit,
    /// Apart from the others, so that a node that is full of clients can still be watched.
    pub(super) metrics: ConnectionLimit,
}

impl Connections {
    /// Divides the limit of open files of the process, and registers the metrics. An address may
    /// have `per_address` connections of one kind; `None` for half of them. Without a metrics port
    /// clients get its part.
    pub(super) fn new(
        registry: &Registry,
        per_address: Option<u64>,
        has_metrics_port: bool,
        limit_counters: &LimitCounters,
    ) -> Result<Self, prometheus::Error> {
        let limits = FileLimits::of(limit(), has_metrics_port);
        let refused = IntCounterVec::new(
            Opts::new(
                "headwater_connections_refused_total",
                "Connections closed at once: too many in all, or of one address.",
            ),
            &["port"],
        )?;
        registry.register(Box::new(refused.clone()))?;
        let most = IntGauge::new("headwater_connections_max", "Connections of clients that may be open at once.")?;
        most.set(i64::try_from(limits.clients).unwrap_or(i64::MAX));
        registry.register(Box::new(most))?;
        let limit_of = |port: &'static str, count: u64| {
            let per_address = per_address.unwrap_or(count.div_ceil(2)).min(count);
            let reserved = (count / RESERVED_SHARE).min(RESERVED_MAX) * u64::from(port == CLIENTS);
            let refused = refused.with_label_values(&[port]);
            ConnectionLimit::new(port, [count, per_address, reserved], refused, limit_counters.clone())
        };
        Ok(Self {
            clients: limit_of(CLIENTS, limits.clients),
            peers: limit_of("peer", limits.peers),
            metrics: limit_of(METRICS, limits.metrics),
        })
    }
}

/// A bound on open connections of one kind, in all and of one address.
#[derive(Clone, Debug)]
pub(super) struct ConnectionLimit {
    port: &'static str,
    most: usize,
    free: Arc<Semaphore>,
    addresses: AddressLimit,
    /// Capacity of the reserve; `free` and the reserve are `most` together. The reserve is used
    /// once `free` or the address has no capacity left, for keep-alives and health checks alone.
    reserve: Arc<Semaphore>,
    reserve_addresses: AddressLimit,
    refused: IntCounter,
    limit_counters: LimitCounters,
    /// Time of the last logged refusal, and the number of refusals since then.
    reported: Arc<Mutex<(Option<Instant>, u64)>>,
}

/// One connection within a [`ConnectionLimit`]; held while the connection is open.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    _permit: OwnedSemaphorePermit,
    _address: Option<AddressPermit>,
    is_reserved: bool,
}

impl ConnectionPermit {
    /// Whether the connection is of the reserve: it serves keep-alives and health alone, and not
    /// for long.
    pub(super) fn is_reserved(&self) -> bool {
        self.is_reserved
    }
}

impl ConnectionLimit {
    /// `bounds` are the most connections in all, the most of one address, and the part of the first
    /// that is the reserve, count.
    fn new(port: &'static str, bounds: [u64; 3], refused: IntCounter, limit_counters: LimitCounters) -> Self {
        let [most, most_per_address, reserved] =
            bounds.map(|count| usize::try_from(count).expect("at most CONNECTIONS_MAX"));
        Self {
            port,
            most,
            free: Arc::new(Semaphore::new(most - reserved)),
            addresses: AddressLimit::new(most_per_address),
            reserve: Arc::new(Semaphore::new(reserved)),
            reserve_addresses: AddressLimit::new(RESERVED_PER_ADDRESS_MAX),
            refused,
            limit_counters,
            reported: Arc::default(),
        }
    }

    /// Takes one more connection from `address`, which is `None` on a Unix socket. Over a limit it
    /// takes one of the reserve, or returns `None`: then the connection must be closed.
    pub(super) fn take(&self, address: Option<IpAddr>) -> Option<ConnectionPermit> {
        let permit = match address.map(|address| self.addresses.take(address)) {
            Some(None) => {
                self.limit_counters.count(Limit::ConnectionsPerAddress);
                return self
                    .refuse(address, "the address has too many; close some, or raise limits.connections-per-address");
            }
            taken => taken.flatten(),
        };
        let Ok(free) = Arc::clone(&self.free).try_acquire_owned() else {
            self.limit_counters.count(Limit::Connections);
            let why = match self.port {
                METRICS => "the metrics port has as many as it may; let fewer scrapers hold connections",
                _ => "the limit of open files leaves no room for more; raise it (ulimit -n, LimitNOFILE=)",
            };
            return self.refuse(address, why);
        };
        Some(ConnectionPermit { _permit: free, _address: permit, is_reserved: false })
    }

    /// Takes a connection of the reserve. `None` if the reserve has none for `address` either: then
    /// counts the refusal, and logs `why` at most once in [`REPORT_INTERVAL`].
    fn refuse(&self, address: Option<IpAddr>, why: &'static str) -> Option<ConnectionPermit> {
        let of_address = address.map(|address| self.reserve_addresses.take(address));
        if let (None | Some(Some(_)), Ok(permit)) = (&of_address, Arc::clone(&self.reserve).try_acquire_owned()) {
            return Some(ConnectionPermit { _permit: permit, _address: of_address.flatten(), is_reserved: true });
        }
        self.refused.inc();
        let mut reported = self.reported.lock();
        let (last, count) = &mut *reported;
        *count += 1;
        if last.is_none_or(|last| last.elapsed() >= REPORT_INTERVAL) {
            tracing::warn!(port = self.port, refused = *count, most = self.most, "refused connections: {why}");
            *reported = (Some(Instant::now()), 0);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_keeps_its_part_of_every_limit() {
        for (limit, reserve, clients, peers, metrics) in [
            (64, 32, 26, 4, 2),
            (256, 128, 104, 16, 8),
            (1024, 512, 416, 64, 32),
            (65_536, 1024, 56_384, 8064, 64),
            (u64::MAX, 1024, CONNECTIONS_MAX, CONNECTIONS_MAX, 64),
        ] {
            assert_eq!(FileLimits::of(limit, true), FileLimits { reserve, clients, peers, metrics }, "{limit}");
            let clients = (clients + metrics).min(CONNECTIONS_MAX);
            assert_eq!(FileLimits::of(limit, false), FileLimits { reserve, clients, peers, metrics: 0 }, "{limit}");
        }
    }

    #[test]
    fn a_connection_beyond_the_limit_is_refused_and_counted_until_another_ends() {
        let refused = IntCounter::new("refused", "refused").unwrap();
        let limit = ConnectionLimit::new(CLIENTS, [2, 2, 0], refused.clone(), LimitCounters::default());
        let (first, second) = (limit.take(None), limit.take(None));
        assert!(first.is_some() && second.is_some() && limit.take(None).is_none() && limit.take(None).is_none());
        assert_eq!((refused.get(), limit.limit_counters.counter(Limit::Connections).get()), (2, 2));
        drop(first);
        assert!(limit.take(None).is_some());
    }

    #[test]
    fn an_address_leaves_connections_to_others_and_its_own_count_ends_with_it() {
        let refused = IntCounter::new("refused", "refused").unwrap();
        let limit = ConnectionLimit::new(CLIENTS, [10, 2, 1], refused, LimitCounters::default());
        let take = |address: &str| limit.take(Some(address.parse().unwrap())).filter(|permit| !permit.is_reserved());
        let first = take("2001:db8::1").unwrap();
        let _second = take("2001:db8::ffff:2").unwrap();
        assert!(take("2001:db8::3").is_none(), "one network of IPv6");
        assert!(take("2001:db8:0:1::3").is_some());
        let _fourth = (take("192.0.2.1").unwrap(), take("::ffff:192.0.2.1").unwrap());
        assert!(take("192.0.2.1").is_none() && take("192.0.2.2").is_some() && limit.take(None).is_some());
        assert_eq!(limit.limit_counters.counter(Limit::ConnectionsPerAddress).get(), 2);
        drop(first);
        assert!(take("2001:db8::3").is_some());
    }

    #[test]
    fn a_few_connections_are_kept_for_keep_alives_and_health() {
        let refused = IntCounter::new("refused", "refused").unwrap();
        let limit = ConnectionLimit::new(CLIENTS, [64, 64, 8], refused.clone(), LimitCounters::default());
        let take = |address: &str| limit.take(Some(address.parse().unwrap()));
        let crowd: Vec<_> = (0..56).map(|_| take("192.0.2.1").unwrap()).collect();
        assert!(crowd.iter().all(|permit| !permit.is_reserved()));
        let of_crowd: Vec<_> = std::iter::from_fn(|| take("192.0.2.1")).collect();
        assert_eq!(of_crowd.len(), RESERVED_PER_ADDRESS_MAX, "one address leaves some to others");
        let probes: Vec<_> = (2..100).filter_map(|host| take(&format!("192.0.2.{host}"))).collect();
        assert_eq!(probes.len(), 8 - RESERVED_PER_ADDRESS_MAX);
        assert!(of_crowd.iter().chain(&probes).all(ConnectionPermit::is_reserved) && refused.get() > 0);
        drop(probes);
        assert!(take("192.0.2.2").is_some_and(|permit| permit.is_reserved()));
        drop(crowd);
        assert!(take("192.0.2.2").is_some_and(|permit| !permit.is_reserved()));
    }
}
