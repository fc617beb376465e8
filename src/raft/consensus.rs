//! The consensus of one member, as the layers above see it.
//!
//! [`Consensus`] proposes, answers read indexes, starts and stops. [`Leadership`], [`Members`],
//! [`Progress`], [`Queries`] and `Figures` are its handles, each with one concern. Nothing above
//! this module names openraft.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use openraft::async_runtime::watch::WatchReceiver;

use super::figures::FiguresService;
use super::form::Formation;
use super::leader_end::LeaderSessions;
use super::leadership::{Leadership, LeadershipState};
use super::member_changes::MembershipService;
use super::metrics::RaftMetrics;
use super::network::{Lineage, Peers};
use super::progress::{Progress, ProgressState};
use super::propose::ProposeQueues;
use super::queries::{Queries, QueryService};
use super::removal::Removal;
use super::roster::{AppliedMembers, Members};
use super::types::{MemberInfo, Raft};
use headwater_storage::StateStore;
use headwater_types::{ClusterId, NodeId};

/// A handle to consensus; cheap to clone.
#[derive(Clone)]
pub struct Consensus {
    inner: Arc<Inner>,
}

/// State shared by all handles, one field for each concern.
pub(super) struct Inner {
    pub(super) cluster: ClusterId,
    pub(super) me: NodeId,
    pub(super) raft: Raft,
    pub(super) metrics: Arc<RaftMetrics>,
    pub(super) peers: Peers,
    pub(super) proposals: ProposeQueues,
    pub(super) leadership: LeadershipState,
    pub(super) leader_sessions: LeaderSessions,
    pub(super) progress: ProgressState,
    pub(super) members: Arc<AppliedMembers>,
    pub(super) formation: Formation,
    pub(super) removal: Removal,
    pub(super) snapshots: IncomingSnapshots,
    pub(super) services: Services,
}

/// Services for calls of other members, registered by the layer above after the start.
#[derive(Default)]
pub(super) struct Services {
    pub(super) queries: OnceLock<Arc<dyn QueryService>>,
    pub(super) membership: OnceLock<Arc<dyn MembershipService>>,
    pub(super) figures: OnceLock<Arc<dyn FiguresService>>,
}

/// The receiving side of snapshots.
pub(super) struct IncomingSnapshots {
    pub(super) dir: PathBuf,
    /// Held while a snapshot is received: one at a time.
    pub(super) slot: tokio::sync::Mutex<()>,
    /// Weak: a handle to an ended consensus must not keep the files open.
    pub(super) store: Weak<StateStore>,
}

impl Consensus {
    pub(super) fn from_inner(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.inner
    }

    pub(crate) fn raft(&self) -> &Raft {
        &self.inner.raft
    }

    /// The handle to leader, term, liveness and transfer.
    pub fn leadership(&self) -> Leadership<'_> {
        Leadership { consensus: self }
    }

    /// The handle to the members, their replication, and changes of the membership.
    pub fn members(&self) -> Members<'_> {
        Members { consensus: self }
    }

    /// The handle to the indexes of this member's log, to recovery, and to stalls.
    pub fn progress(&self) -> Progress<'_> {
        Progress { consensus: self }
    }

    /// The handle to queries between members, which need no log entry.
    pub fn queries(&self) -> Queries<'_> {
        Queries { consensus: self }
    }

    /// The cluster that this member belongs to.
    pub fn cluster_id(&self) -> ClusterId {
        self.inner.cluster
    }

    /// The configured name of a member, from the applied membership, else from the configured first
    /// members. Empty until the first start of a member that `MemberAdd` added; `None` for an id
    /// that is in neither.
    pub(crate) fn name_of(&self, member: NodeId) -> Option<String> {
        let stored = self.inner.members.stored();
        let known = stored.membership().get_node(&member.get()).map(|info| info.name.clone());
        known.or_else(|| self.inner.formation.first_member(member).map(|info| info.name.clone()))
    }

    /// Whether `leader` is the elected leader of the newest term that this member knows.
    pub(crate) fn follows(&self, leader: NodeId) -> bool {
        let metrics = self.raft().metrics();
        let vote = metrics.borrow_watched().vote;
        vote.committed && vote.leader_id.voted_for == leader.get()
    }

    /// The term that this member is in.
    pub(crate) fn current_term(&self) -> u64 {
        self.raft().metrics().borrow_watched().current_term
    }

    /// Id of this member.
    pub fn node_id(&self) -> NodeId {
        self.inner.me
    }

    /// The metrics of consensus and of the state machine.
    pub fn metrics(&self) -> &Arc<RaftMetrics> {
        &self.inner.metrics
    }

    /// The lineage of this member's store, as calls between members carry it.
    pub(super) fn lineage(&self) -> &Lineage {
        self.inner.peers.lineage()
    }

    /// Ends the replication sessions in which an answer is long overdue. They would keep the log
    /// from being purged.
    pub(super) fn end_silent_sessions(&self) {
        self.inner.peers.end_silent_sessions();
    }

    /// Ends the replication session with one follower; the next session determines again which
    /// entries it lacks.
    pub(super) fn end_session(&self, follower: NodeId) {
        self.inner.peers.end_session(follower);
    }

    /// The state of this member; `None` once consensus has ended and the store is closed.
    pub(crate) fn store(&self) -> Option<Arc<StateStore>> {
        self.inner.snapshots.store.upgrade()
    }

    pub(crate) fn incoming_dir(&self) -> &Path {
        &self.inner.snapshots.dir
    }

    pub(crate) fn snapshot_slot(&self) -> &tokio::sync::Mutex<()> {
        &self.inner.snapshots.slot
    }

    /// Records a message from a leader with a majority.
    pub(crate) fn mark_leader_contact(&self) {
        self.inner.leadership.contact.mark();
    }

    /// Records that the leader reported the loss of its majority.
    pub(crate) fn mark_leader_blocked(&self) {
        self.inner.leadership.contact.mark_blocked();
    }

    pub(super) fn member_info(&self, id: NodeId) -> Option<MemberInfo> {
        let metrics = self.inner.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.membership().get_node(&id.get()).cloned()
    }

    /// Ends consensus on this member. Other members are not told, and leadership is not handed
    /// over.
    pub async fn shutdown(&self) {
        if let Err(error) = self.inner.raft.shutdown().await {
            tracing::warn!(%error, "consensus did not end cleanly");
        }
    }

    /// Whether consensus on this member has ended, for any reason.
    pub(super) fn has_ended(&self) -> bool {
        self.inner.raft.metrics().borrow_watched().running_state.is_err()
    }

    /// Resolves when consensus on this member has ended, with the reason. Unless
    /// [`shutdown`](Self::shutdown) was called, a disk has failed or there is a defect: the process
    /// must exit.
    pub async fn ended(&self) -> String {
        // Server metrics change only with leadership and membership, and close with consensus. The
        // full metrics change with every entry: following them would slow each write.
        let mut rarely = self.inner.raft.server_metrics();
        while rarely.changed().await.is_ok() {}
        match &self.inner.raft.metrics().borrow_watched().running_state {
            Err(fatal) => fatal.to_string(),
            Ok(()) => "consensus task is gone".to_owned(),
        }
    }
}
