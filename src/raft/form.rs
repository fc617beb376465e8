//! Formation of a cluster, and the return of a member that lost its data.
//!
//! Every first member may form the cluster, because all write the same first entry. A member
//! without data first asks the others: if the cluster has ever had a leader, this member has lost
//! its disk, and forming again would make a second cluster under the same name. If all others have
//! been replaced, nobody answers; then the first call of a leader shows that the cluster exists.
//! Until such a member has caught up it grants no vote: its promises and acknowledgements are lost
//! with its disk (spec: reliability §3.2, 5 and 7).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use openraft::errors::{InitializeError, RaftError};
use tokio::sync::watch;

use super::consensus::Consensus;
use super::read_index::ReadIndexError;
use super::types::MemberInfo;
use headwater_proto::pb::peer as pb;
use headwater_storage::StorageError;
use headwater_storage::data_dir::FlagNote;
use headwater_types::{LogIndex, NodeId};

/// Deadline of a hello call.
const HELLO_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause between two rounds of hello calls. Also the longest pause between two attempts to learn
/// how far a member without data must catch up.
const ASK_PAUSE: Duration = Duration::from_millis(200);

/// A member's part in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Participation {
    /// The member has no data for a reason not yet known. It answers hello calls, and refuses
    /// entries, snapshots and requests for votes.
    Undecided = 0,
    /// The member lost its data. It takes entries and snapshots, but neither votes nor stands for
    /// election until it has caught up.
    Rejoining = 1,
    /// The member takes part in everything.
    Member = 2,
}

/// State of joining or forming the cluster.
pub(super) struct Formation {
    /// The configured first members, with which a cluster that does not exist yet is formed. Once
    /// it exists, they only give the names of members that are not in the applied membership.
    initial_members: BTreeMap<NodeId, MemberInfo>,
    participation: AtomicU8,
    /// Whether the local log held an entry of a leader when this process started.
    had_a_leader: bool,
    /// File that exists from the time at which this member noticed the loss of its data, until it
    /// has caught up.
    rejoining: FlagNote,
    /// Whether a sender that can be another member has called since the process started.
    called: watch::Sender<bool>,
    /// Whether a leader has called while this member was [`Participation::Undecided`].
    led: AtomicBool,
}

impl Formation {
    pub(super) fn new(
        initial_members: BTreeMap<NodeId, MemberInfo>,
        participation: Participation,
        had_a_leader: bool,
        rejoining: FlagNote,
    ) -> Self {
        Self {
            initial_members,
            participation: AtomicU8::new(participation as u8),
            had_a_leader,
            rejoining,
            called: watch::Sender::new(false),
            led: AtomicBool::new(false),
        }
    }
}

impl Formation {
    /// The first member with this id; `None` for any other id.
    pub(super) fn first_member(&self, member: NodeId) -> Option<&MemberInfo> {
        self.initial_members.get(&member)
    }
}

impl Consensus {
    /// Records a call of a sender that can be another member.
    pub(crate) fn mark_called(&self) {
        self.inner().formation.called.send_if_modified(|called| !std::mem::replace(called, true));
    }

    /// Records a call of a leader that this member refused because it is
    /// [`Participation::Undecided`].
    pub(crate) fn mark_led(&self) {
        self.inner().formation.led.store(true, Ordering::Release);
    }

    /// Whether the cluster has ever had a leader, as far as this member knows. Forming the cluster
    /// writes the entry at index 0; every leader appends one after it.
    pub(crate) fn has_had_a_leader(&self) -> bool {
        self.inner().formation.had_a_leader
            || self.leadership().current().leader.is_some()
            || self.progress().points().last > LogIndex::ZERO
    }

    /// This member's part in its cluster.
    pub(crate) fn participation(&self) -> Participation {
        match self.inner().formation.participation.load(Ordering::Acquire) {
            0 => Participation::Undecided,
            1 => Participation::Rejoining,
            _ => Participation::Member,
        }
    }

    /// Begins this member's part in its cluster: forms the cluster if there is none yet. If this
    /// member has lost its data, waits until it has caught up instead. A member that is not one of
    /// the first members forms nothing. Returns at once; the work is done by a task.
    pub fn form(&self) {
        match self.participation() {
            Participation::Undecided if self.inner().formation.initial_members.len() == 1 => {
                drop(tokio::spawn(self.clone().form_alone_or_rejoin()));
            }
            Participation::Undecided => drop(tokio::spawn(self.clone().form_or_rejoin())),
            Participation::Rejoining => drop(tokio::spawn(self.clone().vote_again_once_caught_up())),
            // With data, openraft refuses to form a cluster again.
            Participation::Member => drop(tokio::spawn(self.clone().initialize())),
        }
    }

    /// A single first member has no other member to ask. But others may have joined it before it
    /// lost its data, and then their leader calls it. So it waits for a call as long as a silent
    /// leader is trusted, and forms the cluster if none comes.
    async fn form_alone_or_rejoin(self) {
        let inner = self.inner();
        let mut called = inner.formation.called.subscribe();
        let is_called = called.wait_for(|called| *called);
        if tokio::time::timeout(inner.leadership.silence_max, is_called).await.is_ok() {
            match self.note_rejoining() {
                Ok(()) => {
                    tracing::info!("the cluster exists: this member has lost its data and is coming back");
                    self.vote_again_once_caught_up().await;
                }
                // It stays undecided, and so refuses everything until its next start: safe.
                Err(error) => tracing::error!(%error, "could not note that this member is coming back"),
            }
            return;
        }
        inner.formation.participation.store(Participation::Member as u8, Ordering::Release);
        self.initialize().await;
    }

    async fn form_or_rejoin(self) {
        let inner = self.inner();
        let others: Vec<_> = inner.formation.initial_members.iter().filter(|(id, _)| **id != inner.me).collect();
        let quorum = inner.formation.initial_members.len() / 2 + 1;
        tracing::info!("no data: asking the other first members whether there is a cluster already");
        loop {
            let answers = futures::future::join_all(others.iter().map(|(id, info)| self.hello(**id, info))).await;
            let has_formed = |formed: bool| answers.iter().flatten().filter(|answer| answer.formed == formed).count();
            if answers.iter().flatten().any(|answer| answer.removed) {
                return self.note_removed();
            }
            if has_formed(true) > 0 || inner.formation.led.load(Ordering::Acquire) {
                match self.note_rejoining() {
                    Ok(()) => {
                        tracing::info!("the cluster exists: this member has lost its data and is coming back");
                        return self.vote_again_once_caught_up().await;
                    }
                    // It stays undecided, and so refuses everything: safe, and repeated in the next
                    // round.
                    Err(error) => tracing::error!(%error, "could not note that this member is coming back"),
                }
            } else if 1 + has_formed(false) >= quorum {
                // The 1 is this member.
                break;
            }
            tokio::time::sleep(ASK_PAUSE).await;
        }
        inner.formation.participation.store(Participation::Member as u8, Ordering::Release);
        self.initialize().await;
    }

    async fn initialize(self) {
        let inner = self.inner();
        if !inner.formation.initial_members.contains_key(&inner.me) {
            return;
        }
        let members: BTreeMap<u64, MemberInfo> =
            inner.formation.initial_members.iter().map(|(id, info)| (id.get(), info.clone())).collect();
        match self.raft().initialize(members).await {
            Ok(()) => tracing::info!(members = inner.formation.initial_members.len(), "formed a new cluster"),
            // There is data already, or another member was faster and its first entry has arrived.
            Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
            Err(error) => tracing::error!(%error, "could not form the cluster"),
        }
    }

    /// Asks another member for its view of the cluster and of this member. `None` without a valid
    /// answer within [`HELLO_TIMEOUT`].
    pub(super) async fn hello(&self, id: NodeId, info: &MemberInfo) -> Option<pb::HelloResponse> {
        self.hello_with(id, info, pb::HelloRequest::default()).await
    }

    /// As [`hello`](Self::hello), with a request that may ask for more.
    pub(super) async fn hello_with(
        &self,
        id: NodeId,
        info: &MemberInfo,
        request: pb::HelloRequest,
    ) -> Option<pb::HelloResponse> {
        let client = self.inner().peers.shared(id.get(), info);
        let mut grpc = client.grpc().ok()?;
        let asked = grpc.hello(client.route().request(request));
        match client.answer(HELLO_TIMEOUT, asked).await {
            Ok(answer) if answer.asked_by == self.node_id().get() => Some(answer),
            Ok(answer) => {
                // The head of a call has no checksum: the sender's id was changed on the way.
                tracing::warn!(%id, asked_by = answer.asked_by, "a member answered somebody else: its answer is not believed");
                None
            }
            Err(status) => {
                tracing::debug!(%id, %status, "no answer from a member");
                None
            }
        }
    }

    /// Makes this member [`Participation::Rejoining`]: it neither votes nor stands for election
    /// from now on. The file preserves that across a crash, and is on disk before the leader's
    /// first entry is accepted.
    fn note_rejoining(&self) -> Result<(), StorageError> {
        let inner = self.inner();
        inner.formation.rejoining.set()?;
        self.raft().runtime_config().elect(false);
        inner.formation.participation.store(Participation::Rejoining as u8, Ordering::Release);
        Ok(())
    }

    async fn vote_again_once_caught_up(self) {
        let index = loop {
            match self.read_index().await {
                Ok(index) => break index,
                Err(ReadIndexError::Stopped(_)) => return,
                // After the end, the known leader is outdated.
                Err(_) if self.has_ended() || self.is_removed() => return,
                Err(ReadIndexError::NotLeader(_) | ReadIndexError::NoQuorum) => {
                    self.leadership().wait_for_change(ASK_PAUSE).await;
                }
            }
        };
        if self.progress().applied().wait_for(|applied| *applied >= index).await.is_err() {
            return;
        }
        match self.inner().formation.rejoining.clear() {
            Ok(()) => {
                self.inner().formation.participation.store(Participation::Member as u8, Ordering::Release);
                self.raft().runtime_config().elect(true);
                tracing::info!(%index, "caught up: this member votes again");
            }
            Err(error) => tracing::error!(%error, "cannot note that this member is back: it does not vote"),
        }
    }
}
