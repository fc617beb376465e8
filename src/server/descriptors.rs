//! File descriptors: how many the process may have, and how many of them connections may take.
//!
//! Owns the limit and its division. Knows nothing of the services. Invariant: connections never
//! take the descriptors that the store needs, so that a crowd of clients cannot be mistaken for a
//! failing disk.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::addresses::{AddressLimit, AddressPermit};
use headwater_node::{Limit, Limited};

/// Most descriptors that are kept for the store's files, timers and outgoing connections, count.
/// Below twice as many, half of the limit is kept.
const RESERVE_MAX: u64 = 1024;
/// Share of the other descriptors that only other members may take: 1 / this.
const PEER_SHARE: u64 = 8;
/// Most connections of one kind, count: more than a machine has ports or memory for, and fewer than
/// a semaphore's limit.
const CONNECTIONS_MAX: u64 = 1 << 20;
/// Files that RocksDB keeps open if the limit allows it, count.
const STORE_FILES_MAX: u64 = 512;
/// Shortest time between two log lines about refused connections.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Raises the soft limit of open files to the hard one. Returns the limit that holds.
pub(super) fn raise_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, "could not raise the limit of open files");
    }
    limit()
}

/// Descriptors that the process may have, count.
fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The parts of a limit of open files, count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Division {
    /// Kept for the store, timers and outgoing connections.
    reserve: u64,
    /// Connections of clients, and of DNS.
    clients: u64,
    /// Connections of other members.
    peers: u64,
}

impl Division {
    fn of(limit: u64) -> Self {
        let reserve = (limit / 2).min(RESERVE_MAX);
        let rest = limit - reserve;
        let peers = rest / PEER_SHARE;
        let clients = rest - peers;
        Self { reserve, clients: clients.min(CONNECTIONS_MAX), peers: peers.min(CONNECTIONS_MAX) }
    }
}

/// Files that RocksDB may keep open for the state, count: at most half of the reserve.
pub(super) fn store_files_max() -> i32 {
    let files = (Division::of(limit()).reserve / 2).min(STORE_FILES_MAX);
    i32::try_from(files).expect("the bound above fits")
}

/// The connections that a node may have, by kind of port.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    pub(super) clients: ConnectionLimit,
    pub(super) peers: ConnectionLimit,
}

impl Connections {
    /// Divides the limit of open files of the process, and registers the metrics. An address may
    /// have `per_address` connections of one kind; `None` for half of them.
    pub(super) fn new(
        registry: &Registry,
        per_address: Option<u64>,
        limited: &Limited,
    ) -> Result<Self, prometheus::Error> {
        let division = Division::of(limit());
        let refused = IntCounterVec::new(
            Opts::new("headwater_connections_refused_total", "Connections closed at once for want of descriptors."),
            &["port"],
        )?;
        registry.register(Box::new(refused.clone()))?;
        let most = IntGauge::new("headwater_connections_max", "Connections of clients that may be open at once.")?;
        most.set(i64::try_from(division.clients).unwrap_or(i64::MAX));
        registry.register(Box::new(most))?;
        let limit_of = |port, count: u64| {
            let per_address = per_address.unwrap_or(count.div_ceil(2)).min(count);
            ConnectionLimit::new(port, count, per_address, refused.with_label_values(&[port]), limited.clone())
        };
        Ok(Self { clients: limit_of("client", division.clients), peers: limit_of("peer", division.peers) })
    }
}

/// A bound on open connections of one kind, in all and of one address.
#[derive(Clone, Debug)]
pub(super) struct ConnectionLimit {
    port: &'static str,
    most: usize,
    free: Arc<Semaphore>,
    addresses: AddressLimit,
    refused: IntCounter,
    limited: Limited,
    /// Time of the last logged refusal, and the number of refusals since.
    reported: Arc<Mutex<(Option<Instant>, u64)>>,
}

/// A permit for one connection, to be held while it is open.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    _permit: OwnedSemaphorePermit,
    _address: Option<AddressPermit>,
}

impl ConnectionLimit {
    fn new(port: &'static str, most: u64, most_per_address: u64, refused: IntCounter, limited: Limited) -> Self {
        let count = |count| usize::try_from(count).expect("at most CONNECTIONS_MAX");
        Self {
            port,
            most: count(most),
            free: Arc::new(Semaphore::new(count(most))),
            addresses: AddressLimit::new(count(most_per_address)),
            refused,
            limited,
            reported: Arc::default(),
        }
    }

    /// A permit for one more connection from `address`, which is `None` on a Unix socket. `None`
    /// over a limit: the connection must be closed.
    pub(super) fn take(&self, address: Option<IpAddr>) -> Option<ConnectionPermit> {
        let address = match address.map(|address| self.addresses.take(address)) {
            Some(None) => {
                self.limited.count(Limit::ConnectionsPerAddress);
                return self.refuse("the address has too many; close some, or raise limits.connections-per-address");
            }
            taken => taken.flatten(),
        };
        let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() else {
            self.limited.count(Limit::Connections);
            return self.refuse("the limit of open files leaves no room for more; raise it (ulimit -n, LimitNOFILE=)");
        };
        Some(ConnectionPermit { _permit: permit, _address: address })
    }

    fn refuse(&self, why: &'static str) -> Option<ConnectionPermit> {
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
        for (limit, reserve, clients, peers) in [
            (64, 32, 28, 4),
            (256, 128, 112, 16),
            (1024, 512, 448, 64),
            (65_536, 1024, 56_448, 8064),
            (u64::MAX, 1024, CONNECTIONS_MAX, CONNECTIONS_MAX),
        ] {
            assert_eq!(Division::of(limit), Division { reserve, clients, peers }, "{limit}");
        }
    }

    #[test]
    fn a_connection_beyond_the_limit_is_refused_and_counted_until_another_ends() {
        let refused = IntCounter::new("refused", "refused").unwrap();
        let limit = ConnectionLimit::new("client", 2, 2, refused.clone(), Limited::default());
        let (first, second) = (limit.take(None), limit.take(None));
        assert!(first.is_some() && second.is_some() && limit.take(None).is_none() && limit.take(None).is_none());
        assert_eq!((refused.get(), limit.limited.counter(Limit::Connections).get()), (2, 2));
        drop(first);
        assert!(limit.take(None).is_some());
    }

    #[test]
    fn an_address_leaves_connections_to_others_and_its_own_count_ends_with_it() {
        let refused = IntCounter::new("refused", "refused").unwrap();
        let limit = ConnectionLimit::new("client", 10, 2, refused, Limited::default());
        let take = |address: &str| limit.take(Some(address.parse().unwrap()));
        let first = take("2001:db8::1").unwrap();
        let _second = take("2001:db8::ffff:2").unwrap();
        assert!(take("2001:db8::3").is_none(), "one network of IPv6");
        assert!(take("2001:db8:0:1::3").is_some());
        let _fourth = (take("192.0.2.1").unwrap(), take("::ffff:192.0.2.1").unwrap());
        assert!(take("192.0.2.1").is_none() && take("192.0.2.2").is_some() && limit.take(None).is_some());
        assert_eq!(limit.limited.counter(Limit::ConnectionsPerAddress).get(), 2);
        drop(first);
        assert!(take("2001:db8::3").is_some());
    }
}
