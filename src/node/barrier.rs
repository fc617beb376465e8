//! The read barrier: one confirmation of the leader serves every read that was waiting when it
//! began.
//!
//! A read fails as soon as the majority is known to be lost; without a leader it waits, because an
//! election may be under way. Invariant: a read is released only by a confirmation that began after
//! the read did; a retried round is a new one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot, watch};

use super::error::NodeError;
use super::metrics::NodeMetrics;
use super::{ClientKey, Shares};
use headwater_raft::{Consensus, ReadIndexError};
use headwater_types::LogIndex;
use headwater_types::limits::WAITING_READS_MAX;

/// Pause before the next round after one without a confirmation, unless the leader changes first.
const RETRY_PAUSE: Duration = Duration::from_millis(10);
/// Timeout of a round, for a leader that went silent. The next round begins afterwards.
const ROUND_TIMEOUT: Duration = Duration::from_millis(500);

/// A handle to the read barrier; cheap to clone.
#[derive(Clone)]
pub(super) struct ReadBarrier {
    shared: Arc<Shared>,
    applied: watch::Receiver<LogIndex>,
}

struct Shared {
    /// The bound on the reads within `pass`: they wait for a round, for its result, or for apply.
    shares: Shares,
    waiting: parking_lot::Mutex<Vec<oneshot::Sender<Result<LogIndex, NodeError>>>>,
    arrived: Notify,
}

impl ReadBarrier {
    pub(super) fn start(consensus: Consensus, metrics: Arc<NodeMetrics>) -> Self {
        let (shares, waiting, arrived) = (Shares::new(WAITING_READS_MAX), parking_lot::Mutex::default(), Notify::new());
        let shared = Arc::new(Shared { shares, waiting, arrived });
        let applied = consensus.progress().applied();
        tokio::spawn(serve(consensus, Arc::downgrade(&shared), metrics));
        Self { shared, applied }
    }

    /// Returns once this node has applied everything that any node had acknowledged before the
    /// call. Fails beyond the bound on waiting reads, when the majority is known to be lost, and at
    /// `deadline`.
    pub(super) async fn pass(&self, client: ClientKey, deadline: Instant) -> Result<(), NodeError> {
        let _share = self.shared.shares.take(client).ok_or(NodeError::TooManyRequests)?;
        let (release, released) = oneshot::channel();
        self.shared.waiting.lock().push(release);
        self.shared.arrived.notify_one();
        match tokio::time::timeout_at(deadline.into(), released).await {
            Ok(Ok(index)) => self.wait_applied(index?, deadline).await,
            Ok(Err(_)) => Err(NodeError::Stopped),
            Err(_) => Err(NodeError::Timeout),
        }
    }

    /// Waits until this node has applied `index`. Fails at `deadline`.
    pub(super) async fn wait_applied(&self, index: LogIndex, deadline: Instant) -> Result<(), NodeError> {
        if *self.applied.borrow() >= index {
            return Ok(());
        }
        let mut applied = self.applied.clone();
        let reached = applied.wait_for(|applied| *applied >= index);
        match tokio::time::timeout_at(deadline.into(), reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(NodeError::Stopped),
            Err(_) => Err(NodeError::Timeout),
        }
    }
}

async fn serve(consensus: Consensus, shared: std::sync::Weak<Shared>, metrics: Arc<NodeMetrics>) {
    loop {
        let Some(strong) = shared.upgrade() else { return };
        // A held handle keeps the barrier alive, so it is held for a bounded wait only.
        let arrived = tokio::time::timeout(Duration::from_secs(1), strong.arrived.notified()).await;
        if arrived.is_err() && strong.waiting.lock().is_empty() {
            continue;
        }
        let mut round = Vec::new();
        loop {
            round.append(&mut strong.waiting.lock());
            round.retain(|reader| !reader.is_closed());
            if round.is_empty() {
                break;
            }
            // No leader could confirm the round. The return of a majority is noticed without a
            // round.
            if consensus.leadership().lacks_majority() {
                metrics.read_indexes_failed.inc();
                for reader in round.drain(..) {
                    drop(reader.send(Err(NodeError::NoLeader)));
                }
                continue;
            }
            let confirmed = match tokio::time::timeout(ROUND_TIMEOUT, consensus.read_index()).await {
                Ok(confirmed) => confirmed,
                Err(_) => {
                    metrics.slow_read_indexes.inc();
                    Err(ReadIndexError::NoQuorum)
                }
            };
            if confirmed.is_err() {
                metrics.read_indexes_failed.inc();
            }
            match confirmed {
                Ok(index) => {
                    for reader in round.drain(..) {
                        drop(reader.send(Ok(index)));
                    }
                }
                Err(ReadIndexError::Stopped(why)) => {
                    tracing::debug!(why, "reads end with consensus");
                    for reader in round.drain(..) {
                        drop(reader.send(Err(NodeError::Stopped)));
                    }
                }
                Err(ReadIndexError::NotLeader(_) | ReadIndexError::NoQuorum) => {
                    consensus.leadership().wait_for_change(RETRY_PAUSE).await;
                }
            }
        }
    }
}
