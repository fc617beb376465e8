//! The consensus of one member as the rest of the program sees it: propose, read index, who leads, how it stands.
//!
//! Nothing above this module names openraft. Commands are opaque bytes here. Invariant: an error of a write says whether
//! the write can still take effect.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, ForwardToLeader, LinearizableReadError, RaftError};
use openraft::{Instant as _, ReadPolicy};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::desk::Desk;
use super::gather::{Batch, Gatherer, Queue};
use super::member_desk::MemberDesk;
use super::metrics::RaftMetrics;
use super::network::{Lineage, Peers};
use super::propose_lane::ProposeLanes;
use super::roster::AppliedMembers;
use super::stuck::STANDSTILL_MIN;
use super::types::{Command, MemberInfo, Raft, TypeConfig, term_of};
use headwater_storage::StateStore;
use headwater_storage::data_dir::Marker;
use headwater_types::{Applied, ClusterId, LogIndex, NodeId, Term};

/// Why a proposed command has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Not appended, and never will be: the member asked does not lead. Safe to propose again.
    #[error("not the leader")]
    NotLeader(Option<NodeId>),
    /// Not appended, and never will be: the leader cannot read the command. Proposing it again fails again.
    #[error("the leader cannot read the command: {0}")]
    Unreadable(String),
    /// Appended by a leader that was replaced: it may or may not take effect.
    #[error("the leader was replaced while the write was under way")]
    Discarded,
    /// Sent to the leader, and the connection broke before the answer: it may or may not take effect.
    #[error("the connection to the leader broke")]
    ConnectionLost,
    /// Consensus on the asked member has ended: it may or may not take effect.
    #[error("consensus has ended: {0}")]
    Stopped(String),
}

/// Why no read index could be had. A read that failed may always be tried again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadIndexError {
    /// The member asked does not lead.
    #[error("not the leader")]
    NotLeader(Option<NodeId>),
    /// No quorum confirmed the leader.
    #[error("no quorum")]
    NoQuorum,
    /// Consensus on the asked member has ended.
    #[error("consensus has ended: {0}")]
    Stopped(String),
}

/// Who leads, as far as this member knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leading {
    /// The member that leads.
    pub leader: Option<NodeId>,
    /// This member's term.
    pub term: Term,
}

/// The log as consensus sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPoints {
    /// Last entry of the local log.
    pub last: LogIndex,
    /// Highest index known to be committed.
    pub committed: LogIndex,
    /// Highest index applied.
    pub applied: LogIndex,
    /// Highest index that the last snapshot contains.
    pub snapshot: LogIndex,
    /// Highest index removed from the log.
    pub purged: LogIndex,
}

/// A handle to consensus; cheap to clone.
#[derive(Clone)]
pub struct Consensus {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) cluster: ClusterId,
    pub(super) me: NodeId,
    pub(super) raft: Raft,
    pub(super) peers: Peers,
    pub(super) lanes: ProposeLanes,
    pub(super) local: Queue,
    pub(super) applied: watch::Receiver<LogIndex>,
    /// Whoever holds on to consensus must not keep the files of a member that has ended.
    pub(super) store: Weak<StateStore>,
    pub(super) incoming_dir: PathBuf,
    pub(super) snapshot_slot: tokio::sync::Mutex<()>,
    pub(super) leader_silence_max: Duration,
    pub(super) catch_up_max: Duration,
    pub(super) contact: LeaderContact,
    pub(super) leader: AtomicU64,
    pub(super) term: AtomicU64,
    pub(super) leader_changes: AtomicU64,
    /// Leader and term together, for whoever must not mix them up.
    pub(super) leading: watch::Sender<Leading>,
    /// When `leading` last changed.
    pub(super) leading_since: Mutex<Instant>,
    pub(super) desk: OnceLock<Arc<dyn Desk>>,
    pub(super) initial_members: BTreeMap<NodeId, MemberInfo>,
    pub(super) standing: AtomicU8,
    /// Last entry of the local log when this process started.
    pub(super) last_at_start: Option<u64>,
    /// The local log held an entry of a leader when this process started.
    pub(super) had_a_leader: bool,
    pub(super) rejoining: Marker,
    pub(super) member_desk: OnceLock<Arc<dyn MemberDesk>>,
    pub(super) members: Arc<AppliedMembers>,
    pub(super) metrics: Arc<RaftMetrics>,
    pub(super) removed_note: Marker,
    pub(super) removed: watch::Sender<bool>,
    /// Another member has called this one since the process started.
    pub(super) called: watch::Sender<bool>,
    /// A leader has called this one since the process started, for which it counts as a member.
    pub(super) led: AtomicBool,
    /// The process is about to end.
    pub(super) stopping: AtomicBool,
    /// Since when nothing is applied although more is committed.
    pub(super) standstill: Mutex<Option<Instant>>,
}

/// When this member last heard from a leader that can lead.
#[derive(Debug)]
pub(super) struct LeaderContact {
    origin: Instant,
    last_ms: AtomicU64,
    /// The leader has said since then that it has no majority.
    blocked: AtomicBool,
}

impl LeaderContact {
    pub(super) fn new() -> Self {
        Self { origin: Instant::now(), last_ms: AtomicU64::new(u64::MAX), blocked: AtomicBool::new(false) }
    }

    fn mark(&self) {
        let now_ms = self.origin.elapsed().as_millis() as u64;
        self.last_ms.store(now_ms, Ordering::Relaxed);
        self.blocked.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    fn elapsed(&self) -> Option<Duration> {
        let last = self.last_ms.load(Ordering::Relaxed);
        (last != u64::MAX).then(|| self.origin.elapsed().saturating_sub(Duration::from_millis(last)))
    }

    fn within(&self, limit: Duration) -> bool {
        let last = self.last_ms.load(Ordering::Relaxed);
        last != u64::MAX && self.origin.elapsed().as_millis() as u64 <= last + limit.as_millis() as u64
    }
}

impl Consensus {
    pub(super) fn from_inner(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    pub(crate) fn raft(&self) -> &Raft {
        &self.inner.raft
    }

    /// The cluster that this member belongs to.
    pub fn cluster_id(&self) -> ClusterId {
        self.inner.cluster
    }

    /// Lets go of entries that are kept only for members that do not answer.
    pub(super) fn end_silent_sessions(&self) {
        self.inner.peers.end_silent_sessions();
    }

    /// Ends the replication session with one follower; what it lacks is decided anew.
    pub(super) fn end_session(&self, follower: NodeId) {
        self.inner.peers.end_session(follower);
    }

    pub(super) fn set_standstill(&self, since: Option<Instant>) {
        *self.inner.standstill.lock() = since;
    }

    /// For how long this member has applied nothing although more was committed; `None` if that is not long.
    pub fn stands_still(&self) -> Option<Duration> {
        let lasts = self.inner.standstill.lock().as_ref().map(Instant::elapsed);
        lasts.filter(|lasts| *lasts >= STANDSTILL_MIN)
    }

    /// Whose store this member has.
    pub(super) fn lineage(&self) -> &Lineage {
        self.inner.peers.lineage()
    }

    /// This member.
    pub fn node_id(&self) -> NodeId {
        self.inner.me
    }

    /// The state of this member, as long as it runs.
    pub(crate) fn store(&self) -> Option<Arc<StateStore>> {
        self.inner.store.upgrade()
    }

    pub(crate) fn incoming_dir(&self) -> &Path {
        &self.inner.incoming_dir
    }

    pub(crate) fn snapshot_slot(&self) -> &tokio::sync::Mutex<()> {
        &self.inner.snapshot_slot
    }

    /// Notes that another member called this one.
    pub(crate) fn mark_called(&self) {
        self.inner.called.send_if_modified(|called| !std::mem::replace(called, true));
    }

    /// Notes that a leader wants this member to follow, which may not do so yet.
    pub(crate) fn mark_led(&self) {
        self.inner.led.store(true, Ordering::Release);
    }

    /// Notes that a leader spoke to this member.
    pub(crate) fn mark_leader_contact(&self) {
        self.inner.contact.mark();
    }

    /// What consensus counts.
    pub fn metrics(&self) -> &Arc<RaftMetrics> {
        &self.inner.metrics
    }

    /// Notes that the leader said that it has no majority.
    pub(crate) fn mark_leader_blocked(&self) {
        self.inner.contact.blocked.store(true, Ordering::Relaxed);
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Whether a leader was ever elected, as far as this member knows. Forming writes the entry at index 0; every leader
    /// writes one after it.
    pub(crate) fn has_had_a_leader(&self) -> bool {
        self.inner.had_a_leader || self.leading().leader.is_some() || self.log_points().last > LogIndex::ZERO
    }

    /// Follows the applied index; a value is seen only after its effects can be read.
    pub fn applied(&self) -> watch::Receiver<LogIndex> {
        self.inner.applied.clone()
    }

    /// Who leads, from memory: may be a moment old.
    pub fn leading(&self) -> Leading {
        let leader = self.inner.leader.load(Ordering::Relaxed);
        Leading { leader: (leader != 0).then_some(NodeId(leader)), term: Term(self.inner.term.load(Ordering::Relaxed)) }
    }

    /// How often the leader has changed since this process started.
    pub fn leader_changes(&self) -> u64 {
        self.inner.leader_changes.load(Ordering::Relaxed)
    }

    /// The leader, provided that it showed life within the last election timeouts: a leader that lost its quorum, a follower of
    /// such a one, or a follower that hears nothing, has none.
    pub fn live_leader(&self) -> Option<NodeId> {
        let leader = self.leading().leader?;
        let alive = if leader == self.inner.me {
            let metrics = self.inner.raft.metrics();
            let metrics = metrics.borrow_watched();
            // Nobody else is asked where there is nobody else: that time then stands still.
            let is_alone = metrics.membership_config.membership().voter_ids().count() == 1;
            is_alone || metrics.last_quorum_acked.is_some_and(|at| at.elapsed() <= self.inner.leader_silence_max)
        } else {
            !self.inner.contact.is_blocked() && self.inner.contact.within(self.inner.leader_silence_max)
        };
        alive.then_some(leader)
    }

    /// How long ago this member heard of its leader, `None` if it has heard of none since it started. For a leader zero, but if
    /// it has lost its quorum, how long ago that answered: what it does not know of may have happened since.
    pub fn leader_contact(&self) -> Option<Duration> {
        match self.leading().leader {
            Some(leader) if leader != self.inner.me => self.inner.contact.elapsed(),
            Some(_) if self.live_leader().is_some() => Some(Duration::ZERO),
            Some(_) => self.inner.raft.metrics().borrow_watched().last_quorum_acked.map(|at| at.elapsed()),
            None => self.inner.contact.elapsed(),
        }
    }

    /// Where the log stands.
    pub fn log_points(&self) -> LogPoints {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow_watched();
        let index = |id: &Option<super::types::LogId>| LogIndex(id.as_ref().map_or(0, |id| id.index));
        LogPoints {
            last: LogIndex(metrics.last_log_index.unwrap_or(0)),
            committed: LogIndex(index(&metrics.cluster_committed).get().max(index(&metrics.local_committed).get())),
            applied: index(&metrics.last_applied),
            snapshot: index(&metrics.snapshot),
            purged: index(&metrics.purged),
        }
    }

    /// Proposes a batch to whoever leads; results in the order of the batch.
    pub async fn propose(&self, commands: Vec<Bytes>) -> Vec<Result<Applied, WriteError>> {
        match self.leading().leader {
            Some(leader) if leader != self.inner.me => {
                let Some(info) = self.member_info(leader) else {
                    return vec![Err(WriteError::NotLeader(None)); commands.len()];
                };
                let results = self.inner.lanes.propose(&self.inner.peers, leader, &info, commands).await;
                self.catch_up_with(&results).await;
                results
            }
            // Without a known leader openraft answers at once, and knows better than a copy of its state.
            _ => self.propose_here(commands).await,
        }
    }

    /// Waits until this member has applied what the leader answered, so that whoever wrote here reads it here. Not for
    /// ever: the outcome is certain, and a member that lags must not hold it back.
    async fn catch_up_with(&self, results: &[Result<Applied, WriteError>]) {
        let Some(last) = results.iter().flatten().map(|applied| applied.index).max() else { return };
        let mut applied = self.inner.applied.clone();
        let reached = applied.wait_for(|applied| *applied >= last);
        if tokio::time::timeout(self.inner.catch_up_max, reached).await.is_err() {
            tracing::debug!(index = %last, "answered a forwarded write before it was applied here");
        }
    }

    /// Proposes a batch to this member, which must lead; it is gathered with whatever else waits here.
    pub(crate) async fn propose_here(&self, commands: Vec<Bytes>) -> Vec<Result<Applied, WriteError>> {
        self.inner.local.run(commands, WriteError::Stopped("consensus has ended".to_owned())).await
    }

    /// The index that a linearizable read must wait for, from whoever leads. Every call is a new confirmation, begun
    /// after the call.
    pub async fn read_index(&self) -> Result<LogIndex, ReadIndexError> {
        match self.leading().leader {
            Some(leader) if leader != self.inner.me => self.read_index_from(leader).await,
            _ => self.read_index_here().await,
        }
    }

    async fn read_index_from(&self, leader: NodeId) -> Result<LogIndex, ReadIndexError> {
        use headwater_proto::pb::peer as pb;
        use pb::read_index_response::Result as R;
        let info = self.member_info(leader).ok_or(ReadIndexError::NotLeader(None))?;
        let client = self.inner.peers.shared(leader.get(), &info);
        let mut grpc = client.grpc().map_err(|_| ReadIndexError::NotLeader(None))?;
        let request = client.route().request(pb::ReadIndexRequest {});
        // A leader that cannot be reached is as good as none: the caller asks again until its own deadline.
        let response = client.answer(client.answer_max(), grpc.read_index(request)).await;
        match response.map_err(|_| ReadIndexError::NotLeader(None))?.result {
            Some(R::Index(index)) => Ok(LogIndex(index)),
            Some(R::NotLeader(id)) => Err(ReadIndexError::NotLeader((id != 0).then_some(NodeId(id)))),
            Some(R::NoQuorum(_)) | None => Err(ReadIndexError::NoQuorum),
        }
    }

    /// The read index by this member, which must lead. Never a lease read: see ARCHITECTURE.md §6.
    pub(crate) async fn read_index_here(&self) -> Result<LogIndex, ReadIndexError> {
        Ok(LogIndex(self.linearizer().await?.read_log_id().index()))
    }

    async fn linearizer(&self) -> Result<openraft::raft::linearizable_read::Linearizer<TypeConfig>, ReadIndexError> {
        match self.inner.raft.get_read_linearizer(ReadPolicy::ReadIndex).await {
            Ok(linearizer) => Ok(linearizer),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
                Err(ReadIndexError::NotLeader(forward.leader_id.map(NodeId)))
            }
            Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => Err(ReadIndexError::NoQuorum),
            Err(RaftError::Fatal(fatal)) => Err(ReadIndexError::Stopped(fatal.to_string())),
        }
    }

    /// Confirms with a quorum that this member leads, after the call; in which term, and how far it must apply to have all
    /// that earlier leaders did.
    ///
    /// # Errors
    ///
    /// It does not lead, or nobody confirmed it.
    pub async fn confirm_leading(&self) -> Result<(Term, LogIndex), ReadIndexError> {
        let linearizer = self.linearizer().await?;
        // A read's log id belongs to the leadership that produced it.
        let id = linearizer.read_log_id();
        Ok((Term(term_of(id.log_id())), LogIndex(id.index())))
    }

    /// Follows who leads; leader and term belong together.
    pub fn follow_leading(&self) -> watch::Receiver<Leading> {
        self.inner.leading.subscribe()
    }

    pub(super) fn member_info(&self, id: NodeId) -> Option<MemberInfo> {
        let metrics = self.inner.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.membership().get_node(&id.get()).cloned()
    }

    /// Waits until this member has re-applied what it had acknowledged before it was restarted.
    ///
    /// # Errors
    ///
    /// Consensus ended before that.
    pub async fn wait_for_recovery(&self) -> Result<(), String> {
        // openraft waits for a commit that covers the log as it is at that moment, which under load it may never see.
        // What was acknowledged before the restart is in the log as it was at the start, so that is what must be covered
        // (or a leader has replaced the end of it, and the log is shorter now).
        let at_start = self.inner.last_at_start;
        let wait = self.inner.raft.wait(None);
        let covered = wait.metrics(
            move |now| {
                let committed = now.cluster_committed.as_ref().map(|id| id.index);
                committed.is_some() && (committed >= at_start || committed >= now.last_log_index)
            },
            "a commit of the cluster covers the log as it was at the start",
        );
        let target = covered.await.map_err(|error| error.to_string())?.cluster_committed.map_or(0, |id| id.index);
        let mut applied = self.inner.applied.clone();
        applied.wait_for(|applied| applied.get() >= target).await.map(drop).map_err(|error| error.to_string())
    }

    /// Waits for a change of leadership, at most for `pause`: what to do before asking again after "not the leader".
    pub async fn leader_may_have_changed(&self, pause: Duration) {
        let mut metrics = self.inner.raft.server_metrics();
        drop(metrics.borrow_and_update());
        // Either way the caller asks again.
        drop(tokio::time::timeout(pause, metrics.changed()).await);
    }

    /// Ends consensus on this member.
    pub async fn shutdown(&self) {
        if let Err(error) = self.inner.raft.shutdown().await {
            tracing::warn!(%error, "consensus did not end cleanly");
        }
    }

    /// Whether consensus on this member is over, for whatever reason.
    pub(super) fn has_ended(&self) -> bool {
        self.inner.raft.metrics().borrow_watched().running_state.is_err()
    }

    /// Resolves with the reason when consensus has ended by itself (a failed disk, a defect): the process must exit.
    pub async fn ended(&self) -> String {
        // These change with leadership and membership alone, and end with consensus; the full metrics change with every
        // entry, and following them would cost each write.
        let mut rarely = self.inner.raft.server_metrics();
        while rarely.changed().await.is_ok() {}
        match &self.inner.raft.metrics().borrow_watched().running_state {
            Err(fatal) => fatal.to_string(),
            Ok(()) => "consensus task is gone".to_owned(),
        }
    }

    /// Keeps the in-memory copy of who leads; runs as long as consensus does.
    pub(super) async fn follow_leadership(self) {
        let mut metrics = self.inner.raft.server_metrics();
        loop {
            let (leader, term, state) = {
                let now = metrics.borrow_watched();
                (now.current_leader.unwrap_or(0), now.vote.leader_id.term, now.state)
            };
            self.inner.term.store(term, Ordering::Relaxed);
            let now = Leading { leader: (leader != 0).then_some(NodeId(leader)), term: Term(term) };
            self.inner.leading.send_if_modified(|leading| {
                let has_changed = std::mem::replace(leading, now) != now;
                if has_changed {
                    *self.inner.leading_since.lock() = Instant::now();
                }
                has_changed
            });
            self.inner.peers.learn_addresses(&self.roster());
            let before = self.inner.leader.swap(leader, Ordering::Relaxed);
            if before != leader {
                if leader != 0 {
                    self.inner.leader_changes.fetch_add(1, Ordering::Relaxed);
                    self.inner.contact.mark();
                }
                tracing::info!(leader, term, ?state, "leadership changed");
            }
            if metrics.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Hands gathered batches to openraft; runs as long as somebody may propose.
pub(super) async fn feed(raft: Raft, mut gatherer: Gatherer) {
    while let Some(Batch { commands, shares, in_flight }) = gatherer.next().await {
        let count = commands.len();
        // Awaited here, so that batches enter the log in the order in which they were gathered.
        let submitted = raft.client_write_many(commands.into_iter().map(Command)).await;
        let mut answers = match submitted {
            Ok(answers) => answers,
            Err(fatal) => {
                shares.settle(Vec::new(), &WriteError::Stopped(fatal.to_string()));
                continue;
            }
        };
        tokio::spawn(async move {
            let _in_flight = in_flight;
            let mut results = Vec::with_capacity(count);
            while let Some(answer) = answers.next().await {
                results.push(match answer {
                    Ok(Ok(response)) => Ok(response.response),
                    Ok(Err(error)) => Err(write_error(error)),
                    Err(fatal) => Err(WriteError::Stopped(fatal.to_string())),
                });
            }
            // A fatal error ends the answers early; what has none may have been appended.
            shares.settle(results, &WriteError::Stopped("consensus has ended".to_owned()));
        });
    }
}

fn leader_of(forward: &ForwardToLeader<TypeConfig>) -> Option<NodeId> {
    forward.leader_id.map(NodeId)
}

fn write_error(error: ClientWriteError<TypeConfig>) -> WriteError {
    match error {
        ClientWriteError::ForwardToLeader(forward) => WriteError::NotLeader(leader_of(&forward)),
        ClientWriteError::LogEntryDiscarded(_) => WriteError::Discarded,
        ClientWriteError::ChangeMembershipError(error) => WriteError::Stopped(error.to_string()),
        ClientWriteError::PreconditionFailed(error) => WriteError::Stopped(error.to_string()),
    }
}
