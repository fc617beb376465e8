//! The membership as the faces see it: the members of the cluster, and changes of them, on any
//! node.
//!
//! Any node takes a change and forwards it to the leader. Invariant: a change that may have been
//! made is not reported as failed, but as indeterminate.

mod invited;
mod keeper;
mod rules;
mod status;
mod watcher;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

pub(super) use invited::token_hash;
pub use status::MemberStatus;
pub(super) use status::OwnFigures;
pub(super) use watcher::OwnMember;

use super::context::{Consistency, Principal, RequestContext};
use super::error::{NodeError, Unanswered};
use super::{Node, Read, unix_ms};
use headwater_raft::{ChangeError, Consensus, MemberRecord};
use headwater_storage::StateStore;
use headwater_types::invitation::is_token;
use headwater_types::limits::{MEMBER_NAME_BYTES_MAX, MEMBER_URL_BYTES_MAX};
use headwater_types::{Access, MemberChange, NodeId};

use invited::hash_of;
use keeper::MemberKeeper;

/// Longest wait of a leader for contact with the member that should take over. A new leader may
/// have had no contact yet.
const TRANSFEREE_TIMEOUT: Duration = Duration::from_secs(1);

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Id of the member.
    pub id: NodeId,
    /// Configured name of the member; empty until its first start.
    pub name: String,
    /// `http://host:port` of its peer port.
    pub peer_urls: Vec<String>,
    /// `http://host:port` of its client port; empty until its first start.
    pub client_urls: Vec<String>,
    /// Whether it does not vote. False for an announced voter that has not started, as in etcd;
    /// true once it has started, until it has caught up and votes.
    pub is_learner: bool,
}

impl From<MemberRecord> for Member {
    fn from(record: MemberRecord) -> Self {
        let is_announced_voter = record.info.awaits_vote && rules::is_unstarted(&record);
        Self {
            id: record.id,
            name: record.info.name,
            peer_urls: vec![record.info.peer_url],
            client_urls: if record.info.client_url.is_empty() { vec![] } else { vec![record.info.client_url] },
            is_learner: !record.voter && !is_announced_voter,
        }
    }
}

/// Settings of the membership, for the time in which this member leads.
#[derive(Clone, Copy, Debug)]
pub(super) struct MembershipPolicy {
    /// Whether a voter can be announced only while all voters run.
    pub(super) strict: bool,
    /// Whether a node that was not announced joins by invitation alone.
    pub(super) invited_only: bool,
}

/// Handle for changes of the membership. Cheap to clone.
#[derive(Clone)]
pub(super) struct MembersState {
    keeper: MemberKeeper,
}

impl MembersState {
    /// Serves membership requests of other members, and starts the tasks of this member and those
    /// that it has while it leads.
    pub(super) fn start(
        consensus: &Consensus,
        hand_over_timeout: Duration,
        policy: MembershipPolicy,
        own: OwnMember,
        store: Weak<StateStore>,
    ) -> Self {
        let keeper = MemberKeeper::new(consensus.clone(), hand_over_timeout, policy, store);
        consensus.members().serve(Arc::new(keeper.clone()));
        tokio::spawn(keeper.clone().run());
        tokio::spawn(watcher::run(consensus.clone(), keeper.clone(), own));
        Self { keeper }
    }

    /// Waits for the membership change under way, if any, and blocks further ones until the guard
    /// is dropped.
    pub(super) async fn hold_changes(&self) -> impl Sized + use<> {
        self.keeper.hold_changes().await
    }
}

/// Handle to the members of the cluster.
#[derive(Clone, Copy)]
pub struct Members<'a> {
    node: &'a Node,
}

impl Node {
    /// Handle to the members of the cluster.
    pub fn members(&self) -> Members<'_> {
        Members { node: self }
    }
}

impl Members<'_> {
    /// Ids of the other members.
    pub fn peers(self) -> Vec<NodeId> {
        let members = self.node.inner.consensus.members().roster().members.into_iter().map(|member| member.id);
        members.filter(|id| *id != self.node.inner.profile.identity.node_id).collect()
    }

    /// The members, after a read of the requested consistency. For an authenticated principal, and
    /// for a node that is expected to join.
    ///
    /// # Errors
    ///
    /// The refusal of any other principal; those of the read path.
    pub async fn list(self, ctx: &RequestContext, consistency: Consistency) -> Result<Read<Vec<Member>>, NodeError> {
        self.node.ready_to_read(ctx, consistency).await?;
        if !self.is_expected(ctx) {
            self.node.authorize_somebody(ctx)?;
        }
        Ok(self.applied())
    }

    /// As [`list`](Self::list), for every principal whose credentials are valid, the anonymous one
    /// of ACLs included: the calling face filters the members by the rights to nodes.
    ///
    /// # Errors
    ///
    /// Those of the read path.
    pub async fn named(self, ctx: &RequestContext, consistency: Consistency) -> Result<Read<Vec<Member>>, NodeError> {
        self.node.ready_to_read(ctx, consistency).await?;
        self.node.authorizer(ctx)?;
        Ok(self.applied())
    }

    /// Whether a request is of a node that is expected to join. The node shows the token of an
    /// invitation that has not expired, or was announced and has not started. False if the state
    /// cannot be read.
    pub fn is_expected(self, ctx: &RequestContext) -> bool {
        match &ctx.principal {
            Principal::Bearer(token) if is_token(token.reveal()) => {
                let hash = hash_of(token.reveal());
                let now = unix_ms();
                let known = self.node.inner.store.read(|view| {
                    let invitations = view.invitations()?;
                    let matching = invitations.values().filter(|one| one.hash == hash && !one.is_expired(now));
                    Ok(matching.count() > 0)
                });
                known.unwrap_or(false)
            }
            Principal::Joining(peer_url) => {
                let roster = self.node.inner.consensus.members().applied_roster();
                let is_announced =
                    |member: &MemberRecord| rules::is_unstarted(member) && *member.info.peer_url == **peer_url;
                roster.members.iter().any(is_announced)
            }
            Principal::Anonymous
            | Principal::System
            | Principal::Named(_)
            | Principal::Bearer(_)
            | Principal::Certificate(_) => false,
        }
    }

    fn applied(self) -> Read<Vec<Member>> {
        let head = self.node.inner.store.current().head();
        let members =
            self.node.inner.consensus.members().applied_roster().members.into_iter().map(Member::from).collect();
        Read { index: head.applied_index(), revision: head.revision, value: members }
    }

    /// Changes the membership. Returns the id of the changed member, with the members after the
    /// change. If this member does not apply the change before the deadline, the returned members
    /// may lack it. A removed member is left out all the same; an addition is then reported as
    /// indeterminate.
    ///
    /// # Errors
    ///
    /// [`NodeError::Membership`] if the change is refused; [`NodeError::Indeterminate`] if it may
    /// have been made, or may still be; after every other error nothing has changed.
    pub async fn change(
        self,
        ctx: &RequestContext,
        change: MemberChange,
    ) -> Result<(NodeId, Read<Vec<Member>>), NodeError> {
        self.node.admit(ctx).await?;
        if !self.node.authorizer(ctx)?.is_open() {
            // Changes of members are no entries that apply judges: this state must not be behind.
            self.node.ready_to_read(ctx, Consistency::Linearizable).await?;
        }
        self.node.authorize_cluster(ctx, Access::WRITE)?;
        if !has_legal_sizes(&change) {
            return Err(NodeError::RequestTooLarge);
        }
        let announces = matches!(change, MemberChange::Add { .. });
        let removed = match change {
            MemberChange::Remove(id) => Some(id),
            MemberChange::Add { .. }
            | MemberChange::Join(_)
            | MemberChange::Promote(_)
            | MemberChange::Update { .. }
            | MemberChange::Describe { .. } => None,
        };
        let done =
            self.node.inner.members.keeper.anywhere(change, ctx.deadline).await.map_err(|error| match error {
                ChangeError::NotLeader => NodeError::NoLeader,
                ChangeError::Refused(refusal) => NodeError::Membership(refusal),
                ChangeError::Interrupted(why) => {
                    tracing::debug!(why, "a change of the membership is indeterminate");
                    NodeError::Indeterminate(if Instant::now() >= ctx.deadline {
                        Unanswered::Timeout
                    } else {
                        Unanswered::LeaderFailed
                    })
                }
            })?;
        // The change is made. A member that it removed never applies it.
        let reached = self.node.inner.reads.barrier.wait_applied(done.index, ctx.deadline);
        tokio::select! {
            reached = reached => match reached {
                Ok(()) | Err(NodeError::Timeout) => {}
                // This member stops; the change is made all the same.
                Err(_) => return Err(NodeError::Indeterminate(Unanswered::LeaderFailed)),
            },
            () = self.node.inner.consensus.removed() => {}
        }
        let mut members = self.applied();
        members.value.retain(|member| Some(member.id) != removed);
        if announces && !members.value.iter().any(|member| member.id == done.id) {
            // The answer must list the new member, too, and this member has not applied it yet.
            return Err(NodeError::Indeterminate(Unanswered::Timeout));
        }
        Ok((done.id, members))
    }

    /// Hands leadership to another voter. This node must lead. Does nothing if `target` is this
    /// node.
    ///
    /// # Errors
    ///
    /// [`NodeError::NotLeader`]; [`NodeError::BadTransferee`] if `target` is not a voter, or is
    /// being removed; [`NodeError::TransferTimeout`] if it does not answer, and then this node
    /// stays the leader, or if it did not take over in time, and then any voter may lead.
    pub async fn move_leader(self, ctx: &RequestContext, target: NodeId) -> Result<(), NodeError> {
        self.node.admit(ctx).await?;
        self.node.authorize_cluster(ctx, Access::WRITE)?;
        let consensus = &self.node.inner.consensus;
        let leader = consensus.leadership().current().leader;
        if leader != Some(consensus.node_id()) {
            return Err(NodeError::NotLeader);
        }
        if !consensus.members().roster().find(target).is_some_and(|member| member.voter && !member.leaving) {
            return Err(NodeError::BadTransferee);
        }
        if leader == Some(target) {
            return Ok(());
        }
        // A leader takes no writes during a transfer, so it first waits for contact with the other
        // member.
        let timeout = ctx.deadline.saturating_duration_since(Instant::now()).min(TRANSFEREE_TIMEOUT);
        if !consensus.members().wait_for_contact(target, timeout).await {
            return Err(NodeError::TransferTimeout);
        }
        let limit = ctx.deadline.saturating_duration_since(Instant::now());
        consensus.leadership().transfer_to(target, limit).await.map_err(|_| NodeError::TransferTimeout)?;
        match consensus.leadership().current().leader {
            Some(leader) if leader != target && leader != consensus.node_id() => Err(NodeError::TransferTimeout),
            _ => Ok(()),
        }
    }
}

fn has_legal_sizes(change: &MemberChange) -> bool {
    let url = |url: &String| url.len() <= MEMBER_URL_BYTES_MAX;
    match change {
        MemberChange::Add { peer_url, .. } | MemberChange::Update { peer_url, .. } => url(peer_url),
        MemberChange::Join(joining) => {
            url(&joining.peer_url) && url(&joining.client_url) && joining.name.len() <= MEMBER_NAME_BYTES_MAX
        }
        MemberChange::Describe { name, client_url, .. } => url(client_url) && name.len() <= MEMBER_NAME_BYTES_MAX,
        MemberChange::Promote(_) | MemberChange::Remove(_) => true,
    }
}
