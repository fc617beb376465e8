//! One node of the cluster as the faces see it: propose, read, status.
//!
//! Owns the request paths, leadership-only tasks, retries of proposals, and the wall clock. Knows
//! nothing of the wire types of public APIs. Invariant: every request comes through here with a
//! [`RequestContext`], so that the checks of every request are in one place.

mod alarms;
mod backup;
mod barrier;
mod catalog;
mod consul;
mod contest;
mod context;
mod error;
mod fan_out;
mod history;
mod key_watch;
mod lease;
mod long_reads;
mod members;
mod metrics;
mod pieces;
mod position;
mod proposer;
mod reads;
mod resource;
mod restore;
mod retention;
mod start;
mod tasks;
mod versions;
mod watcher;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::{Semaphore, watch};

pub use alarms::QuotaOptions;
pub use backup::Backup;
pub use catalog::{CatalogError, CatalogListing, CatalogWatch, Encode, EntryKey};
pub use consul::{ConsulSubject, ConsulTreeTooLarge, ConsulTxnDone};
pub use contest::{Claim, Contender, ContestError, Observed, Owner};
pub use context::{Consistency, Principal, RequestContext};
pub use error::{NodeError, NodeErrorKind, Unanswered};
pub use headwater_fsm::{InvalidTxn, RangePart as RangePiece, validate as validate_txn};
pub use headwater_stream::{
    Catalog, CatalogSubject, CloseReason, Encoding, Item, Kv, Resources, Session, StatePoint, Told,
};
pub use key_watch::{KeyWatch, WatchQuery};
pub use lease::{HandClock, LeaseClock, LeaseGranted, LeaseStanding};
pub use members::Member;
pub use position::{Position, WatchStart};
pub use reads::KvHash;
pub use resource::{KnownType, Listed, PageToken, Prepared, ResourceError, ResourceQuery, ResourceWatch, TypeMap};
pub use restore::{RestoreError, RestoreOptions, Restored, restore};
pub use start::{NodeOptions, NodeStartError};
pub use versions::{ClusterVersions, Versions};
pub use watcher::{
    ElementChange, ElementData, ElementEncoder, ElementState, Entity, EntityError, EntitySpace, EntityWatch,
    Told as ToldChanges,
};
#[doc(hidden)]
pub use {history::StateHistory, key_watch::resolve_from};

use barrier::ReadBarrier;
use long_reads::LongReads;
use proposer::Proposer;

use headwater_proto::codec;
use headwater_raft::Consensus;
use headwater_storage::StateStore;
use headwater_storage::data_dir::DataDir;
use headwater_storage::log::WeakLog;
use headwater_stream::{EventPublisher, StateMemory};
use headwater_types::{
    Alarm, Applied, ClusterId, ClusterVersion, Command, LogIndex, MemberProgram, NodeId, Outcome, Proposal, Refusal,
    Revision, StoreEpoch, Term,
};

/// A handle to the node; cheap to clone.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    identity: Identity,
    name: String,
    datacenter: String,
    remote_datacenters: BTreeMap<String, Vec<String>>,
    consensus: Consensus,
    store: Arc<StateStore>,
    log: WeakLog,
    proposer: Proposer,
    barrier: ReadBarrier,
    leases: lease::Leases,
    members: members::Members,
    events: Arc<EventPublisher>,
    metrics: Arc<metrics::NodeMetrics>,
    long_reads: LongReads,
    own_reads: LongReads,
    range_streams: LongReads,
    contenders: Arc<Semaphore>,
    /// The memory budget of the states with which streams of resources, catalog and entities begin.
    states: Arc<StateMemory>,
    backups: backup::Backups,
    quota: QuotaOptions,
    history_retention: Option<Duration>,
    resources: resource::Resources,
    watchers: watcher::Watchers,
    catalog: catalog::Catalog,
    /// Held while this node rewrites its files.
    defragmenting: Arc<tokio::sync::Mutex<()>>,
    serving: watch::Receiver<bool>,
    reclaimed: watch::Receiver<LogIndex>,
    /// The error of the first read of the state that failed; `None` before.
    storage_failed: watch::Receiver<Option<String>>,
    stopping: watch::Sender<bool>,
    hand_over_timeout: Duration,
    max_request_bytes: usize,
    /// This member's program.
    program: MemberProgram,
    // Also holds the lock on the directory for as long as anything of the node is alive.
    data_dir: DataDir,
}

/// A node's counters, since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Proposals that wait for an outcome now.
    pub proposals_pending: u64,
    /// Proposals that got an outcome.
    pub proposals_answered: u64,
    /// Proposals that failed or stayed unanswered.
    pub proposals_failed: u64,
    /// Changes of leadership seen.
    pub leader_changes: u64,
}

/// The result of a read, with the coordinates of the state that it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read<T> {
    /// Applied index of the state that was read.
    pub index: LogIndex,
    /// KV revision of that state.
    pub revision: Revision,
    /// The result.
    pub value: T,
}

/// The cluster and the id of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// This member.
    pub node_id: NodeId,
}

/// The leader and the term that this node knows. The leader may have failed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The leader, if one is known.
    pub leader: Option<NodeId>,
    /// This node's current term.
    pub term: Term,
}

/// The state of this node in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The leader and the term.
    pub leadership: Leadership,
    /// Highest log index known to be committed.
    pub committed: LogIndex,
    /// Highest log index applied.
    pub applied: LogIndex,
    /// Current KV revision.
    pub revision: Revision,
    /// Compaction point; 0 if never compacted.
    pub compact_revision: Revision,
    /// First log index whose change can still be read; 0 if history begins with the log.
    pub history_from: LogIndex,
    /// First log index that the log still has: a member that needs an earlier one is sent a
    /// snapshot.
    pub log_from: LogIndex,
    /// The store's lineage, once known.
    pub epoch: Option<StoreEpoch>,
    /// Bytes of the state in files and write buffers; at least [`live_bytes`](Self::live_bytes).
    /// The quota bounds live bytes, so savings by compression below them are not counted here.
    pub stored_bytes: u64,
    /// Views of the state that are open now, count.
    pub open_views: u64,
    /// Bytes of live keys and values.
    pub live_bytes: u64,
    /// Number of live keys.
    pub live_keys: u64,
    /// The quota in effect: the bound on bytes of live keys and values; `None` is no bound.
    pub quota_bytes: Option<u64>,
    /// The version that the cluster has agreed on.
    pub version: ClusterVersion,
    /// The active alarms, in order.
    pub alarms: Vec<Alarm>,
    /// Whether this node is a member without a vote.
    pub is_learner: bool,
    /// Whether the node has recovered everything that it had acknowledged before its restart, and
    /// serves.
    pub serving: bool,
    /// Time for which committed entries wait and none is applied; `None` without such a stall, or
    /// while it is short.
    pub stands_still: Option<Duration>,
}

impl Node {
    /// The cluster and the id of this node.
    pub fn identity(&self) -> Identity {
        self.inner.identity
    }

    /// The node's name: its `node.name`, which is unique in the cluster.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The name of the cluster's datacenter in the service catalog.
    pub fn datacenter(&self) -> &str {
        &self.inner.datacenter
    }

    /// Client addresses of another datacenter's cluster; `None` if it is not configured.
    pub fn remote_datacenter(&self, name: &str) -> Option<&[String]> {
        self.inner.remote_datacenters.get(name).map(Vec::as_slice)
    }

    /// The consensus of this node, for the peer port and for waiting for its end.
    pub fn consensus(&self) -> &Consensus {
        &self.inner.consensus
    }

    /// The leader and the term that this node knows. Cheap: every response header needs it.
    pub fn leadership(&self) -> Leadership {
        let leading = self.inner.consensus.leadership().current();
        Leadership { leader: leading.leader, term: leading.term }
    }

    /// The leader, if it was alive a moment ago: on a follower by its contact, on the leader by its
    /// quorum.
    pub fn live_leader(&self) -> Option<NodeId> {
        self.inner.consensus.leadership().live_leader()
    }

    /// Time since the last contact with a leader; `None` if there was none since the start. On the
    /// leader: zero with a quorum, else the time since the quorum last answered.
    pub fn leader_contact(&self) -> Option<Duration> {
        self.inner.consensus.leadership().last_contact()
    }

    /// The other members.
    pub fn peers(&self) -> Vec<NodeId> {
        let members = self.inner.consensus.members().roster().members.into_iter().map(|member| member.id);
        members.filter(|id| *id != self.inner.identity.node_id).collect()
    }

    /// Turns true once this node has recovered everything that it had acknowledged before its
    /// restart, and serves.
    pub fn serving(&self) -> watch::Receiver<bool> {
        self.inner.serving.clone()
    }

    /// The applied index. A value is announced only after its effects can be read and are
    /// published.
    pub fn applied(&self) -> watch::Receiver<LogIndex> {
        self.inner.consensus.progress().applied()
    }

    fn applied_index(&self) -> LogIndex {
        self.inner.store.current().head().applied_index()
    }

    /// A snapshot of the node's numbers.
    ///
    /// # Errors
    ///
    /// [`NodeError::Storage`] if the disk failed.
    pub fn status(&self) -> Result<Status, NodeError> {
        let db = self.inner.store.current();
        let head = db.head();
        let points = self.inner.consensus.progress().points();
        let me = self.inner.identity.node_id;
        let is_learner = self.inner.consensus.members().roster().find(me).is_some_and(|member| !member.voter);
        Ok(Status {
            leadership: Leadership { leader: self.live_leader(), ..self.leadership() },
            committed: LogIndex(points.committed.get().max(head.applied_index().get())),
            applied: head.applied_index(),
            revision: head.revision,
            compact_revision: head.compaction.map_or(Revision(0), |point| point.revision),
            history_from: head.compacted_index(),
            log_from: points.purged.next(),
            epoch: head.epoch,
            stored_bytes: db.stored_bytes()?.max(head.live_bytes),
            open_views: db.open_views()?,
            live_bytes: head.live_bytes,
            live_keys: head.live_keys,
            quota_bytes: self.quota_bytes(),
            version: head.version,
            alarms: if head.alarms.is_empty() { Vec::new() } else { self.inner.store.read(|view| view.alarms())? },
            is_learner,
            serving: *self.inner.serving.borrow(),
            stands_still: self.stands_still(),
        })
    }

    /// Time for which committed entries wait and none is applied; `None` without such a stall, or
    /// while it is short.
    pub fn stands_still(&self) -> Option<Duration> {
        self.inner.consensus.progress().stalled_for()
    }

    /// The node's counters.
    pub fn counters(&self) -> Counters {
        let stats = self.inner.proposer.stats();
        Counters {
            proposals_pending: stats.pending.load(Ordering::Relaxed) as u64,
            proposals_answered: stats.answered.load(Ordering::Relaxed),
            proposals_failed: stats.failed.load(Ordering::Relaxed),
            leader_changes: self.inner.consensus.leadership().changes(),
        }
    }

    /// Replicates `command` and returns its outcome. Works on any node: a follower forwards to the
    /// leader.
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] for domain refusals. [`NodeError::Indeterminate`] if the write may
    /// have taken effect; after every other error it has not and will not.
    pub async fn propose(&self, ctx: &RequestContext, command: Command) -> Result<Applied, NodeError> {
        self.admit(ctx).await?;
        let proposal = self.proposal(command);
        match self.propose_as(ctx, &proposal).await {
            // The version was lowered meanwhile: what the proposal has of a newer one can go.
            Err(NodeError::Refused(Refusal::NeedsVersion { .. })) if proposal.needs() > proposal.command.needs() => {
                self.propose_as(ctx, &Proposal::new(proposal.unix_ms, proposal.command)).await
            }
            result => result,
        }
    }

    /// A proposal with everything that the cluster's version has.
    #[cfg(not(feature = "next-version"))]
    fn proposal(&self, command: Command) -> Proposal {
        Proposal::new(unix_ms(), command)
    }

    /// A proposal with everything that the cluster's version has.
    #[cfg(feature = "next-version")]
    fn proposal(&self, command: Command) -> Proposal {
        let is_known = headwater_types::Feature::Origins.is_in(self.versions().cluster().version);
        Proposal { origin: is_known.then_some(self.inner.identity.node_id), ..Proposal::new(unix_ms(), command) }
    }

    async fn propose_as(&self, ctx: &RequestContext, proposal: &Proposal) -> Result<Applied, NodeError> {
        let needs = proposal.needs();
        if needs > self.versions().cluster().version {
            return Err(Refusal::NeedsVersion { needs }.into());
        }
        // A command that cannot be encoded (nested too deep) cannot be replicated at any size.
        let encoded = codec::encode_proposal(proposal).map_err(|_| NodeError::RequestTooLarge)?;
        if encoded.len() > self.inner.max_request_bytes {
            return Err(NodeError::RequestTooLarge);
        }
        match propose_encoded(&self.inner.proposer, encoded, ctx.deadline).await {
            // It was not sent to a leader: say why.
            Err(NodeError::Timeout) if self.live_leader().is_none() => Err(NodeError::NoLeader),
            result => result,
        }
    }

    /// Resolves with the error once a read of this node's state has failed: the node must stop.
    pub async fn storage_failed(&self) -> String {
        let mut failed = self.inner.storage_failed.clone();
        let why = failed.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        match why {
            Some(why) => why,
            // The store is gone: no read can fail any more.
            None => std::future::pending().await,
        }
    }

    /// Waits until the space below the compaction point of the entry `compacted` is reclaimed on
    /// this node (etcd's `physical`).
    ///
    /// # Errors
    ///
    /// [`NodeError::Timeout`] at the context's deadline; [`NodeError::Stopped`] if the node stops.
    pub async fn wait_reclaimed(&self, ctx: &RequestContext, compacted: LogIndex) -> Result<(), NodeError> {
        // This member may not have applied the compaction yet.
        self.inner.barrier.wait_applied(compacted, ctx.deadline).await?;
        let target = self.inner.store.current().head().compacted_index();
        let mut reclaimed = self.inner.reclaimed.clone();
        let reached = reclaimed.wait_for(|done| *done >= target);
        match tokio::time::timeout_at(ctx.deadline.into(), reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(NodeError::Stopped),
            Err(_) => Err(NodeError::Timeout),
        }
    }

    /// Rewrites this node's files while it serves, so that removed data takes no space on disk. It
    /// may take long, and the context's deadline does not bound it; concurrent calls run one by
    /// one.
    ///
    /// # Errors
    ///
    /// [`NodeError::Storage`] if the disk failed.
    pub async fn defragment(&self, ctx: &RequestContext) -> Result<(), NodeError> {
        self.admit(ctx).await?;
        let turn = self.inner.defragmenting.clone().lock_owned().await;
        let store = self.inner.store.clone();
        let metrics = self.inner.metrics.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            metrics.defragment(|| store.current().compact_files())
        });
        Ok(done.await.map_err(|_| NodeError::Stopped)??)
    }

    /// Confirms that this node can serve a linearizable read now (health checks).
    ///
    /// # Errors
    ///
    /// Those of the read path.
    pub async fn check_linearizable(&self, ctx: &RequestContext) -> Result<(), NodeError> {
        self.ready_to_read(ctx, Consistency::Linearizable).await
    }

    /// Resolves when streams must end: their clients should continue at another member.
    pub fn streams_closing(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stopping = self.inner.stopping.subscribe();
        async move {
            // The sender is gone: the node has stopped as well.
            let _gone = stopping.wait_for(|stopping| *stopping).await.is_err();
        }
    }

    /// Hands leadership to another member, if this one leads.
    pub async fn hand_over(&self) {
        self.inner.consensus.leadership().step_aside(self.inner.hand_over_timeout).await;
    }

    /// Ends consensus and flushes nothing, as in a crash.
    pub async fn crash(&self) {
        self.inner.consensus.shutdown().await;
    }

    /// Resolves once nothing uses this node's files any more, so that its data directory can be
    /// opened again.
    pub async fn gone(self) {
        // The count of references to the store falls before its files are closed.
        let (node, files) = (Arc::downgrade(&self.inner), self.inner.store.files());
        let log = self.inner.log.clone();
        drop(self);
        while node.strong_count() + files.strong_count() > 0 || !log.is_gone() {
            tokio::time::sleep(GONE_POLL).await;
        }
    }

    /// Forms the cluster if there is none yet. The peer port must be served.
    pub fn form_cluster(&self) {
        self.inner.consensus.form();
    }

    /// Ends consensus and makes the state durable, so that the next start re-applies nothing.
    pub async fn stop(&self) {
        self.inner.consensus.shutdown().await;
        let store = self.inner.store.clone();
        match tokio::task::spawn_blocking(move || store.current().flush()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "the state was not flushed; it will be re-applied at the next start")
            }
            Err(error) => tracing::warn!(%error, "the state was not flushed; it will be re-applied at the next start"),
        }
    }

    /// Resolves once this node was removed from the cluster: it serves nothing any more.
    pub async fn removed(&self) {
        self.inner.consensus.removed().await;
    }

    /// Admission of every request: this node is a member, knows a leader if one is required, and
    /// has recovered, for which it waits until the deadline.
    async fn admit(&self, ctx: &RequestContext) -> Result<(), NodeError> {
        if self.inner.consensus.is_removed() {
            return Err(NodeError::Removed);
        }
        if ctx.require_leader && self.live_leader().is_none() {
            return Err(NodeError::NoLeader);
        }
        if *self.inner.serving.borrow() {
            return Ok(());
        }
        let mut serving = self.inner.serving.clone();
        match tokio::time::timeout_at(ctx.deadline.into(), serving.wait_for(|serving| *serving)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(NodeError::Stopped),
            Err(_) => Err(NodeError::NoLeader),
        }
    }
}

/// Proposes an encoded command; a refusal is an error here.
async fn propose_encoded(proposer: &Proposer, encoded: Bytes, deadline: Instant) -> Result<Applied, NodeError> {
    let applied = proposer.propose(encoded, deadline).await?;
    if let Outcome::Refused(refusal) = applied.outcome {
        return Err(refusal.into());
    }
    Ok(applied)
}

/// Interval of the checks of [`Node::gone`].
const GONE_POLL: Duration = Duration::from_millis(5);

fn unix_ms() -> u64 {
    // Zero for a clock before 1970. The time only decides retention by age, never order.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
