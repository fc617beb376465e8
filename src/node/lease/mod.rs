//! Leases as the faces see them: grant, keep alive, read, list (spec: etcd §3; ARCHITECTURE.md §8).
//!
//! Owns the ids that the node picks for clients, the minimum time to live, and the path of a
//! question to the leader. The state machine has the rules of a lease and of its end. Invariant: a
//! member confirms a keep-alive only if, after it restarted the lease's time, a quorum has
//! confirmed that it leads.

mod calls;
mod clock;
mod keeper;
mod metrics;
mod quorum;
mod quota;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use clock::{LeaseClock, ManualClock};
pub(super) use keeper::LeaseKeeper;

use calls::{LeaseCalls, LeaseQueryService};
use quorum::ClusterQuorum;

use super::proposer::Proposer;
use super::{Consistency, Limit, Node, NodeError, Read, RequestContext};
use headwater_raft::{Consensus, Timing};
use headwater_storage::StateStore;
use headwater_types::{
    Access, Applied, AuthRefusal, Command, LeaseAnswer, LeaseGrant, LeaseId, LeaseQuestion, LogIndex, NodeId, Outcome,
    Refusal, Revision, Space,
};

use bytes::Bytes;

/// Pause before a question is repeated for want of a leader, unless the leader changes first.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// A lease that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGranted {
    /// Log index of the grant.
    pub index: LogIndex,
    /// The store's revision at the grant.
    pub revision: Revision,
    /// Id of the lease.
    pub id: LeaseId,
    /// Time to live of the lease, whole seconds.
    pub ttl_seconds: i64,
}

/// The times of a lease, and its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseTimeToLive {
    /// Time to live of the lease, whole seconds.
    pub granted_seconds: i64,
    /// Remaining time to live; zero if the lease has expired and its end is not applied yet.
    pub remaining: Duration,
    /// The keys attached to it, in key order; empty if they were not requested.
    pub keys: Vec<Bytes>,
}

/// The lease keeper of a node, the node's way to ask the leader's keeper, and the minimum time to
/// live.
pub(super) struct LeasesState {
    keeper: Arc<LeaseKeeper>,
    calls: LeaseCalls,
    ttl_seconds_min: i64,
}

/// The longest time in which healthy members have no leader: they trust a silent one, then stand
/// for election.
fn leaderless_max(timing: &Timing) -> Duration {
    timing.election_max * 2
}

/// The minimum time to live: one and a half times the longest time without a leader, which a lease
/// must survive. Two seconds by default, which is etcd's minimum too.
fn ttl_seconds_min(timing: &Timing) -> i64 {
    let least_ms = leaderless_max(timing).as_millis() * 3 / 2;
    i64::try_from(least_ms.div_ceil(1000)).unwrap_or(i64::MAX).max(1)
}

/// The keeper, which follows every commit and so must exist before consensus.
pub(super) fn keeper(clock: LeaseClock, timing: &Timing) -> Arc<LeaseKeeper> {
    LeaseKeeper::new(clock, leaderless_max(timing))
}

impl LeasesState {
    /// Starts to keep leases whenever this member leads, and to answer the questions of other
    /// members.
    pub(super) fn start(
        keeper: Arc<LeaseKeeper>,
        timing: &Timing,
        consensus: Consensus,
        proposer: Proposer,
        store: Arc<StateStore>,
    ) -> Self {
        consensus.queries().serve(Arc::new(LeaseQueryService::new(Arc::clone(&keeper))));
        let leases = Self {
            keeper: Arc::clone(&keeper),
            calls: LeaseCalls::start(consensus.clone()),
            ttl_seconds_min: ttl_seconds_min(timing),
        };
        let quorum = Arc::new(ClusterQuorum { consensus: consensus.clone(), proposer, store });
        tokio::spawn(async move {
            let (me, leading) = (consensus.node_id(), consensus.leadership().follow());
            tokio::select! {
                () = keeper::run(keeper, quorum, me, leading) => {}
                _ = consensus.ended() => {}
            }
        });
        leases
    }

    async fn ask(&self, me: NodeId, leader: Option<NodeId>, question: LeaseQuestion) -> LeaseAnswer {
        match leader {
            None => LeaseAnswer::NotLeader,
            Some(leader) if leader == me => self.keeper.answer(question).await,
            Some(leader) => self.calls.ask(leader, question).await,
        }
    }
}

/// Handle to leases.
#[derive(Clone, Copy)]
pub struct Leases<'a> {
    pub(super) node: &'a Node,
}

impl Node {
    /// Handle to leases.
    pub fn leases(&self) -> Leases<'_> {
        Leases { node: self }
    }
}

impl Leases<'_> {
    /// The command that grants a lease: with a random id if `id` is [`LeaseId::NONE`], and with at
    /// least the minimum time to live.
    pub(crate) fn grant_command(self, id: LeaseId, ttl_seconds: i64) -> LeaseGrant {
        let ttl_seconds = ttl_seconds.max(self.node.inner.leases.ttl_seconds_min);
        let id = if id.is_some() { id } else { LeaseId(rand::random::<i64>() & i64::MAX) };
        LeaseGrant { id, ttl_seconds }
    }

    /// Grants a lease. Picks its id if `id` is [`LeaseId::NONE`], and raises its time to live to
    /// the minimum.
    ///
    /// # Errors
    ///
    /// As [`Node::propose`]; [`Refusal::LeaseExists`] and [`Refusal::LeaseTtlTooLarge`] among the
    /// refusals, and [`Refusal::NoSpace`] if leases and live data fill the quota.
    pub async fn grant(self, ctx: &RequestContext, id: LeaseId, ttl_seconds: i64) -> Result<LeaseGranted, NodeError> {
        self.check_quota(ctx, 1).await?;
        loop {
            let grant = self.grant_command(id, ttl_seconds);
            let picked = grant.id;
            match self.node.propose(ctx, Command::LeaseGrant(grant)).await {
                // The random id is taken, or zero: try another one.
                Err(NodeError::Refused(Refusal::LeaseExists | Refusal::LeaseNotFound)) if !id.is_some() => {}
                Ok(Applied { index, revision, outcome: Outcome::LeaseGranted { ttl_seconds } }) => {
                    return Ok(LeaseGranted { index, revision, id: picked, ttl_seconds });
                }
                Ok(applied) => {
                    tracing::error!(?applied, "a grant came to something else");
                    return Err(NodeError::Indeterminate(super::Unanswered::LeaderFailed));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Restarts the time of a lease. Returns its time to live in whole seconds; `None` if there is
    /// no such lease, or it has expired. Index and revision are those of this node's state before
    /// the leader was asked.
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] without the right to write every key of the lease;
    /// [`NodeError::NoLeader`] or [`NodeError::Timeout`] if no leader answered before the deadline;
    /// [`NodeError::TooManyRequests`] if too many questions wait. A repetition is safe.
    pub async fn keep_alive(self, ctx: &RequestContext, id: LeaseId) -> Result<Read<Option<i64>>, NodeError> {
        self.node.admit(ctx).await?;
        self.permit_keys(ctx, id, Access::WRITE)?;
        let head = self.node.inner.store.current().head();
        // The store's own deadlines (of TTL checks and sessions) are not leases of clients.
        if id.is_deadline() {
            return Ok(Read { index: head.applied_index(), revision: head.revision, value: None });
        }
        let answer = self.ask_leader(LeaseQuestion::KeepAlive(id), ctx.deadline).await?;
        let value = answer.map(|(granted_seconds, _)| granted_seconds);
        Ok(Read { index: head.applied_index(), revision: head.revision, value })
    }

    /// The times of a lease, and its keys if `wants_keys`; `None` if there is no such lease. A
    /// lease that has expired is there until its end is applied.
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] for an anonymous principal, or with `wants_keys` without the right to
    /// read every key of the lease. Otherwise as [`Leases::keep_alive`], and those of a
    /// linearizable read.
    pub async fn time_to_live(
        self,
        ctx: &RequestContext,
        id: LeaseId,
        wants_keys: bool,
    ) -> Result<Read<Option<LeaseTimeToLive>>, NodeError> {
        // The answer must not be older than the question.
        self.node.ready_to_read(ctx, Consistency::Linearizable).await?;
        self.permit_keys(ctx, id, if wants_keys { Access::READ } else { Access::NONE })?;
        let answer = match id.is_deadline() {
            true => None,
            false => self.ask_leader(LeaseQuestion::Remaining(id), ctx.deadline).await?,
        };
        let keys = if wants_keys && answer.is_some() {
            let (authority, principal) = (self.node.inner.authority.clone(), ctx.principal.clone());
            let keys = move |view: &headwater_storage::ReadView<'_>| {
                // A key may have been attached since.
                let authorizer = match authority.authorizer(view, &principal)? {
                    Ok(authorizer) => authorizer,
                    Err(refusal) => return Ok(Err(Refusal::Auth(refusal))),
                };
                let keys = view.lease_keys(id)?;
                let is_denied = |key: &Bytes| !authorizer.allows(Space::Kv, key, Access::READ);
                match keys.iter().any(is_denied) {
                    true => Ok(Err(Refusal::Auth(AuthRefusal::PermissionDenied))),
                    false => Ok(Ok(keys)),
                }
            };
            self.node.read(false, ctx, keys).await?
        } else {
            self.node.read(true, ctx, |_| Ok(Ok(Vec::new()))).await?
        };
        let time_to_live =
            answer.map(|(granted_seconds, remaining)| LeaseTimeToLive { granted_seconds, remaining, keys: keys.value });
        Ok(Read { index: keys.index, revision: keys.revision, value: time_to_live })
    }

    /// Every lease of clients, in the order of the grants.
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] without the right to read every key of all leases; those of the read
    /// path.
    pub async fn list(self, ctx: &RequestContext, consistency: Consistency) -> Result<Read<Vec<LeaseId>>, NodeError> {
        self.node.ready_to_read(ctx, consistency).await?;
        let (authority, principal) = (self.node.inner.authority.clone(), ctx.principal.clone());
        let all = move |view: &headwater_storage::ReadView<'_>| {
            let authorizer = match authority.authorizer(view, &principal)? {
                Ok(authorizer) => authorizer,
                Err(refusal) => return Ok(Err(Refusal::Auth(refusal))),
            };
            if let Err(denied) = authorizer.permit_somebody() {
                return Ok(Err(Refusal::Auth(denied)));
            }
            let mut leases = Vec::new();
            view.leases(|id, lease| {
                if !id.is_deadline() {
                    leases.push((lease.granted, id));
                }
            })?;
            leases.sort_unstable();
            if let Some(rights) = authorizer.rights() {
                for (_, id) in &leases {
                    if let Err(denied) = headwater_fsm::permit_lease(view, rights, *id, Access::READ)? {
                        return Ok(Err(Refusal::Auth(denied)));
                    }
                }
            }
            Ok(Ok(leases.into_iter().map(|(_, id)| id).collect()))
        };
        self.node.read(false, ctx, all).await
    }

    /// Checks that the principal is authenticated, and that it has `access` to every key of the
    /// lease.
    fn permit_keys(self, ctx: &RequestContext, id: LeaseId, access: Access) -> Result<(), NodeError> {
        let authorizer = self.node.authorizer(ctx)?;
        authorizer.permit_somebody().map_err(Refusal::Auth)?;
        if let Some(rights) = authorizer.rights().filter(|_| !access.is_none()) {
            let store = &self.node.inner.store;
            let permitted = store.read(|view| headwater_fsm::permit_lease(view, rights, id, access))?;
            permitted.map_err(Refusal::Auth)?;
        }
        Ok(())
    }

    /// Asks the current leader, and each next one, until there is an answer. Returns the time to
    /// live in whole seconds and the remaining time. `None` if the lease does not exist, or if a
    /// keep-alive came after it had expired.
    pub(crate) async fn ask_leader(
        self,
        question: LeaseQuestion,
        deadline: Instant,
    ) -> Result<Option<(i64, Duration)>, NodeError> {
        let (leases, consensus) = (&self.node.inner.leases, &self.node.inner.consensus);
        let me = self.node.inner.profile.identity.node_id;
        let asking = async {
            let mut leading = consensus.leadership().follow();
            loop {
                let leader = leading.borrow_and_update().leader;
                let answer = tokio::select! {
                    answer = leases.ask(me, leader, question) => answer,
                    // A stopped leader may take long to fail. A repeated question does no harm.
                    Ok(()) = leading.changed() => continue,
                };
                match answer {
                    LeaseAnswer::Alive { granted_seconds, remaining_ms } => {
                        return Ok(Some((granted_seconds, Duration::from_millis(remaining_ms))));
                    }
                    LeaseAnswer::Unknown => return Ok(None),
                    LeaseAnswer::Busy => {
                        self.node.inner.limit_counters.count(Limit::LeaseQuestions);
                        return Err(NodeError::TooManyRequests);
                    }
                    LeaseAnswer::NotLeader if consensus.leadership().lacks_majority() => {
                        return Err(NodeError::NoLeader);
                    }
                    LeaseAnswer::NotLeader => consensus.leadership().wait_for_change(RETRY_PAUSE).await,
                }
            }
        };
        match tokio::time::timeout_at(deadline.into(), asking).await {
            Ok(answer) => answer,
            Err(_) if self.node.live_leader().is_none() => Err(NodeError::NoLeader),
            Err(_) => Err(NodeError::Timeout),
        }
    }
}
