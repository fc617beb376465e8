//! The lease keeper's interface to the cluster, so that it can be tested without one.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::NodeError;
use crate::proposer::Proposer;
use crate::{ClientKey, propose_encoded, unix_ms};
use headwater_proto::codec;
use headwater_raft::{Consensus, ReadIndexError};
use headwater_storage::StateStore;
use headwater_types::{Command, Face, Feature, Lease, LeaseId, LogIndex, Proposal, Term};

/// Timeout of a confirmation, for a quorum that went silent.
const CONFIRM_TIMEOUT: Duration = Duration::from_millis(500);
/// Pause before the next attempt to load the leases.
const PAUSE: Duration = Duration::from_millis(10);
/// Timeout of a proposal; the keeper repeats it.
const PROPOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The replicated state of leases.
pub(super) struct Loaded {
    /// The lease clock, ms.
    pub(super) clock_ms: u64,
    /// Every lease, deadlines of the store included.
    pub(super) leases: Vec<(LeaseId, Lease)>,
}

/// The cluster as the lease keeper sees it.
pub(super) trait Quorum: Send + Sync + 'static {
    /// The term in which this member leads, as a quorum has confirmed after the call; `None` if it
    /// does not lead, or the confirmation did not come in time.
    fn confirm(&self) -> impl Future<Output = Option<Term>> + Send;

    /// The replicated state of leases as of the time when this member began to lead in `term`, or
    /// later. Retries until it succeeds, also while no quorum confirms that this member leads: the
    /// caller drops the future when the term ends. `None` if it leads in another term, or consensus
    /// has ended.
    fn load(&self, term: Term) -> impl Future<Output = Option<Loaded>> + Send;

    /// Proposes a command and waits for its outcome, which is dropped. A refusal is an error.
    fn propose(&self, command: Command) -> impl Future<Output = Result<(), NodeError>> + Send;
}

/// The quorum of the real cluster.
pub(super) struct ClusterQuorum {
    pub(super) consensus: Consensus,
    pub(super) proposer: Proposer,
    pub(super) store: Arc<StateStore>,
}

impl ClusterQuorum {
    async fn confirm_with_index(&self) -> Result<(Term, LogIndex), ReadIndexError> {
        match tokio::time::timeout(CONFIRM_TIMEOUT, self.consensus.leadership().confirm()).await {
            Ok(confirmed) => confirmed,
            Err(_) => Err(ReadIndexError::NoQuorum),
        }
    }
}

impl Quorum for ClusterQuorum {
    async fn confirm(&self) -> Option<Term> {
        self.confirm_with_index().await.ok().map(|(term, _)| term)
    }

    async fn load(&self, term: Term) -> Option<Loaded> {
        loop {
            let index = match self.confirm_with_index().await {
                Ok((now, index)) if now == term => index,
                Ok(_) | Err(ReadIndexError::Stopped(_)) => return None,
                Err(ReadIndexError::NotLeader(_) | ReadIndexError::NoQuorum) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            self.consensus.progress().applied().wait_for(|applied| *applied >= index).await.ok()?;
            let store = Arc::clone(&self.store);
            match tokio::task::spawn_blocking(move || load(&store)).await {
                Ok(Ok(loaded)) => return Some(loaded),
                Ok(Err(error)) => tracing::error!(%error, "leases could not be read"),
                Err(error) => tracing::error!(%error, "leases could not be read"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn propose(&self, command: Command) -> Result<(), NodeError> {
        let face = Feature::Authors.is_in(self.store.current().head().version.version).then_some(Face::Node);
        let encoded = codec::encode_proposal(&Proposal { face, ..Proposal::new(unix_ms(), command) });
        let encoded = encoded.map_err(|_| NodeError::RequestTooLarge)?;
        propose_encoded(&self.proposer, ClientKey::Own, encoded, Instant::now() + PROPOSE_TIMEOUT).await.map(drop)
    }
}

fn load(store: &StateStore) -> Result<Loaded, headwater_storage::StorageError> {
    store.read(|view| {
        let mut leases = Vec::new();
        view.leases(|id, lease| leases.push((id, lease)))?;
        Ok(Loaded { clock_ms: view.lease_clock()?, leases })
    })
}
