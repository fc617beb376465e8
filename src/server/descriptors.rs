//! File descriptors: how many the process may have, and how many of them connections may take.
//!
//! Owns the limit and its division. Knows nothing of the services. Invariant: connections never
//! take the descriptors that the store needs, so that a crowd of clients cannot be mistaken for a
//! failing disk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most descriptors that are kept for the store's files, timers and outgoing connections, count.
/// Below twice as many, half of the limit is kept.
const RESERVE_MAX: u64 = 1024;
/// Share of the other descriptors that only other members may take: 1 / this.
const PEER_SHARE: u64 = 8;
/// Most connections of one kind, count: more than a machine has ports or memory for, and fewer than
/// a semaphore's limit.
const CONNECTIONS_MAX: u64 = 1 << 20;
/// Files that RocksDB keeps open where there is room for them, count.
const STORE_FILES_MAX: u64 = 512;
/// How often refused connections are logged at most.
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

/// A limit of open files, divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Division {
    /// Kept for the store.
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
    /// As many as the process's limit allows, with their metrics.
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let division = Division::of(limit());
        let refused = IntCounterVec::new(
            Opts::new("headwater_connections_refused_total", "Connections closed at once for want of descriptors."),
            &["port"],
        )?;
        registry.register(Box::new(refused.clone()))?;
        let most = IntGauge::new("headwater_connections_max", "Connections of clients that may be open at once.")?;
        most.set(i64::try_from(division.clients).unwrap_or(i64::MAX));
        registry.register(Box::new(most))?;
        let limit_of = |port, count| ConnectionLimit::new(port, count, refused.with_label_values(&[port]));
        Ok(Self { clients: limit_of("client", division.clients), peers: limit_of("peer", division.peers) })
    }
}

/// A bound on open connections of one kind.
#[derive(Clone, Debug)]
pub(super) struct ConnectionLimit {
    port: &'static str,
    most: usize,
    free: Arc<Semaphore>,
    refused: IntCounter,
    /// When a refusal was last logged, and how many there were since.
    reported: Arc<Mutex<(Option<Instant>, u64)>>,
}

impl ConnectionLimit {
    fn new(port: &'static str, most: u64, refused: IntCounter) -> Self {
        let most = usize::try_from(most).expect("at most CONNECTIONS_MAX");
        Self { port, most, free: Arc::new(Semaphore::new(most)), refused, reported: Arc::default() }
    }

    /// A place for one more connection, to be held while it is open. `None` if there is none: the
    /// connection must be closed.
    pub(super) fn take(&self) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.free).try_acquire_owned().ok();
        if place.is_none() {
            self.refused.inc();
            self.report();
        }
        place
    }

    fn report(&self) {
        let mut reported = self.reported.lock();
        let (last, count) = &mut *reported;
        *count += 1;
        if last.is_none_or(|last| last.elapsed() >= REPORT_INTERVAL) {
            tracing::warn!(
                port = self.port,
                refused = *count,
                most = self.most,
                "refused connections: the limit of open files leaves no room for more; raise it (ulimit -n, LimitNOFILE=)"
            );
            *reported = (Some(Instant::now()), 0);
        }
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
        let limit = ConnectionLimit::new("client", 2, refused.clone());
        let (first, second) = (limit.take(), limit.take());
        assert!(first.is_some() && second.is_some() && limit.take().is_none() && limit.take().is_none());
        assert_eq!(refused.get(), 2);
        drop(first);
        assert!(limit.take().is_some());
    }
}
