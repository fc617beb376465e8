//! The members of the cluster, their replication, and the single steps of a membership change.
//!
//! Whether a change may be made is decided above. Invariant: a step applies to the membership that
//! its caller has read, or not at all; an error says whether it may have been taken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, RaftError};
use openraft::raft::Precondition;
use openraft::{ChangeMembers, Instant as _};
use parking_lot::Mutex;

use super::consensus::Consensus;
use super::membership;
use super::types::{LogId, MemberInfo, StoredMembership};
use headwater_storage::{ReadView, StorageError};
use headwater_types::{ClusterEvent, ClusterMember, LogIndex, NodeId};

/// A member with its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// Id of the member.
    pub id: NodeId,
    /// Name, URLs and incarnation of the member.
    pub info: MemberInfo,
    /// Whether the member votes.
    pub voter: bool,
    /// Whether the member is being removed: the change of voters that takes its vote is half done.
    /// The vote counts until that is complete.
    pub leaving: bool,
}

impl From<MemberRecord> for ClusterMember {
    fn from(record: MemberRecord) -> Self {
        let MemberRecord { id, info, voter, .. } = record;
        // A member that was announced as a voter is no learner, although it votes only after it has
        // started and caught up.
        let is_announced_voter = info.awaits_vote && info.name.is_empty();
        Self {
            id,
            is_learner: !voter && !is_announced_voter,
            name: info.name,
            peer_url: info.peer_url,
            client_url: info.client_url,
        }
    }
}

/// The members as of a view, in the order of their ids. Empty before the first membership.
///
/// # Errors
///
/// The disk failed, or the stored membership cannot be decoded.
pub fn members_of(view: &ReadView<'_>) -> Result<Vec<ClusterMember>, StorageError> {
    let Some(record) = view.membership()? else { return Ok(Vec::new()) };
    let (stored, _) = membership::decode_applied(&record)
        .map_err(|error| StorageError::Corrupt { location: "membership".to_owned(), detail: error.to_string() })?;
    Ok(Roster::of(&stored).members.into_iter().map(ClusterMember::from).collect())
}

/// The events of the step from one membership to the next: first the members that left, then those
/// that are new or changed.
pub(super) fn member_events(before: &StoredMembership, after: &StoredMembership) -> Vec<ClusterEvent> {
    let before: BTreeMap<NodeId, ClusterMember> =
        Roster::of(before).members.into_iter().map(|record| (record.id, record.into())).collect();
    let after: BTreeMap<NodeId, ClusterMember> =
        Roster::of(after).members.into_iter().map(|record| (record.id, record.into())).collect();
    let gone = before.keys().filter(|id| !after.contains_key(id)).map(|id| ClusterEvent::MemberLeft(*id));
    let changed = after.values().filter(|member| before.get(&member.id) != Some(*member));
    gone.chain(changed.map(|member| ClusterEvent::MemberChanged(member.clone().into()))).collect()
}

/// The members of one membership.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    /// The members, in the order of their ids.
    pub members: Vec<MemberRecord>,
    /// Whether a change of voters is half done (joint consensus).
    pub is_joint: bool,
    /// The log entry that made the membership; `None` before the first one.
    pub(super) at: Option<LogId>,
}

impl Roster {
    fn of(stored: &StoredMembership) -> Self {
        let membership = stored.membership();
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let last = membership.get_joint_config().last();
        let record = |(id, info): (&u64, &MemberInfo)| {
            let voter = voters.contains(id);
            let leaving = voter && last.is_some_and(|last| !last.contains(id));
            MemberRecord { id: NodeId(*id), info: info.clone(), voter, leaving }
        };
        Self {
            members: membership.nodes().map(record).collect(),
            is_joint: membership.get_joint_config().len() > 1,
            at: *stored.log_id(),
        }
    }

    /// The member with this id; `None` if there is none.
    pub fn find(&self, id: NodeId) -> Option<&MemberRecord> {
        self.members.iter().find(|member| member.id == id)
    }

    /// The members that vote, also those that are leaving.
    pub fn voters(&self) -> impl Iterator<Item = &MemberRecord> {
        self.members.iter().filter(|member| member.voter)
    }

    /// The index of the log entry that made the membership; zero before the first one.
    pub fn index(&self) -> LogIndex {
        LogIndex(self.at.as_ref().map_or(0, |at| at.index))
    }
}

/// The progress of a member, as the leader knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberProgress {
    /// Highest index up to which the member's log is known to equal the leader's; `None` if none is
    /// known.
    pub matched: Option<LogIndex>,
    /// Whether the member has answered within the time for which followers trust a silent leader.
    pub is_live: bool,
}

/// One step of a change. Each is one call of consensus: one log entry, or two for voters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipStep {
    /// A new member, without a vote.
    AddLearner(NodeId, MemberInfo),
    /// A member gets another [`MemberInfo`]: name, URLs, incarnation, and whether it awaits a vote.
    SetInfo(NodeId, MemberInfo),
    /// A learner gets a vote.
    MakeVoter(NodeId),
    /// A member leaves, with its vote if it has one.
    Drop(NodeId),
    /// A half-done change of voters is completed.
    Settle,
}

/// The reason for which a step failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// Not taken: this member does not lead.
    #[error("not the leader")]
    NotLeader,
    /// Not taken: the membership has changed since it was read, or is changing.
    #[error("the membership has changed meanwhile")]
    Outdated,
    /// The step may have been taken, or half of it; the next leader completes a half-done step.
    #[error("interrupted: {0}")]
    Interrupted(String),
}

/// The membership applied on this member, written by the state machine alone.
#[derive(Debug, Default)]
pub(crate) struct AppliedMembers {
    /// The membership, and the highest id of any member up to it.
    committed: Mutex<(Arc<StoredMembership>, NodeId)>,
    /// The highest id in any applied entry, committed to the state or not.
    highest: AtomicU64,
}

impl AppliedMembers {
    pub(crate) fn stored(&self) -> Arc<StoredMembership> {
        self.committed.lock().0.clone()
    }

    /// Takes the applied membership. Called after the commit to the state, and before the applied
    /// index is published.
    pub(crate) fn set(&self, stored: StoredMembership, highest: NodeId) {
        *self.committed.lock() = (Arc::new(stored), highest);
    }

    /// Records an id from a membership that is being applied. Returns the highest id recorded so
    /// far.
    pub(crate) fn raise(&self, id: NodeId) -> NodeId {
        NodeId(self.highest.fetch_max(id.get(), Ordering::AcqRel).max(id.get()))
    }

    fn highest(&self) -> NodeId {
        self.committed.lock().1
    }

    /// Whether an id belonged to a member and belongs to none now, by the applied membership. Such
    /// an id is never assigned again.
    pub(super) fn has_lost(&self, id: NodeId) -> bool {
        let (stored, highest) = self.committed.lock().clone();
        id.get() != 0 && id <= highest && stored.membership().get_node(&id.get()).is_none()
    }
}

/// Handle to the members of the cluster.
#[derive(Clone, Copy)]
pub struct Members<'a> {
    pub(super) consensus: &'a Consensus,
}

impl Members<'_> {
    /// The members by the latest membership that this member knows, committed or not.
    pub fn roster(self) -> Roster {
        Roster::of(&self.consensus.raft().server_metrics().borrow_watched().membership_config)
    }

    /// Whether `id` is a member by the latest membership that this member knows, committed or not.
    pub(super) fn has(self, id: NodeId) -> bool {
        let metrics = self.consensus.raft().server_metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.membership().get_node(&id.get()).is_some()
    }

    /// The members by the applied membership, which readers see.
    pub fn applied_roster(self) -> Roster {
        Roster::of(&self.consensus.inner().members.stored())
    }

    /// The progress of each member; empty unless this member leads.
    pub fn progress(self) -> BTreeMap<NodeId, MemberProgress> {
        let metrics = self.consensus.raft().metrics();
        let metrics = metrics.borrow_watched();
        let (Some(matched), Some(acked)) = (&metrics.replication, &metrics.heartbeat) else { return BTreeMap::new() };
        let silence_max = self.consensus.inner().leadership.silence_max;
        let progress = |(id, matched): (&u64, &Option<LogId>)| {
            let is_live = acked.get(id).copied().flatten().is_some_and(|at| at.elapsed() <= silence_max);
            (NodeId(*id), MemberProgress { matched: matched.as_ref().map(|id| LogIndex(id.index)), is_live })
        };
        let mut all: BTreeMap<_, _> = matched.iter().map(progress).collect();
        let own = MemberProgress { matched: metrics.last_log_index.map(LogIndex), is_live: true };
        all.insert(self.consensus.node_id(), own);
        all
    }

    /// Waits until this member leads and has had a recent answer of `member`. False after `limit`,
    /// or if consensus ends.
    pub async fn wait_for_contact(self, member: NodeId, limit: Duration) -> bool {
        let silence_max = self.consensus.inner().leadership.silence_max;
        let wait = self.consensus.raft().wait(Some(limit));
        let result = wait.metrics(
            |now| {
                let acked = now.heartbeat.as_ref().and_then(|acked| acked.get(&member.get()).copied().flatten());
                acked.is_some_and(|at| at.elapsed() <= silence_max)
            },
            "a sign of life",
        );
        result.await.is_ok()
    }

    /// Whether `member` itself answers a call at `peer_url` now.
    pub async fn answers_at(self, member: NodeId, peer_url: &str) -> bool {
        self.consensus.inner().peers.answers_at(member, peer_url).await
    }

    /// The highest id in any membership that this member has applied. Zero before the first one.
    pub fn highest_id(self) -> NodeId {
        self.consensus.inner().members.highest()
    }

    /// Whether `id` belonged to a member and has been removed, by the applied membership.
    pub(super) fn has_removed(self, id: NodeId) -> bool {
        self.consensus.inner().members.has_lost(id)
    }

    /// Takes one step from the membership of `roster`, and waits until it is applied here. This
    /// member must lead. Returns the index of the entry that completed the step.
    ///
    /// # Errors
    ///
    /// [`StepError`]; after `NotLeader` and `Outdated` nothing has changed.
    pub async fn take_step(self, roster: &Roster, step: MembershipStep) -> Result<LogIndex, StepError> {
        let one = |id: NodeId| BTreeSet::from([id.get()]);
        let change = match step {
            MembershipStep::AddLearner(id, info) => ChangeMembers::AddNodes(BTreeMap::from([(id.get(), info)])),
            MembershipStep::SetInfo(id, info) => ChangeMembers::SetNodes(BTreeMap::from([(id.get(), info)])),
            MembershipStep::MakeVoter(id) => ChangeMembers::AddVoterIds(one(id)),
            MembershipStep::Drop(id) if roster.find(id).is_some_and(|member| member.voter) => {
                ChangeMembers::RemoveVoters(one(id))
            }
            MembershipStep::Drop(id) => ChangeMembers::RemoveNodes(one(id)),
            MembershipStep::Settle => ChangeMembers::AddVoterIds(BTreeSet::new()),
        };
        let seen = Precondition::LastMembershipLogId { last_membership_log_id: roster.at };
        let error = match self.consensus.raft().change_membership_if(change, false, [seen]).await {
            Ok(written) => return Ok(LogIndex(written.log_id.index)),
            Err(RaftError::Fatal(fatal)) => return Err(StepError::Interrupted(fatal.to_string())),
            Err(RaftError::APIError(error)) => error,
        };
        // Of two entries, the first may have been written although the second was refused. Read
        // from openraft's core itself, because its metrics lag.
        let now = self.consensus.raft().with_raft_state(|state| *state.membership_state.effective().log_id()).await;
        if !matches!(now, Ok(at) if at == roster.at) {
            return Err(StepError::Interrupted(error.to_string()));
        }
        match error {
            ClientWriteError::ForwardToLeader(_) => Err(StepError::NotLeader),
            ClientWriteError::LogEntryDiscarded(discarded) => Err(StepError::Interrupted(discarded.to_string())),
            // The layer above refuses impossible changes, so the membership must have changed
            // meanwhile.
            ClientWriteError::ChangeMembershipError(_) | ClientWriteError::PreconditionFailed(_) => {
                Err(StepError::Outdated)
            }
        }
    }
}
