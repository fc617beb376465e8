//! One node of the cluster as the faces see it: propose, read, status.
//!
//! Owns the steps of each request, leadership-only tasks, retries of proposals, and the wall clock.
//! Knows nothing of the wire types of public APIs. Invariant: every request comes through here with
//! a [`RequestContext`], so that the checks of every request are in one place.

mod acl;
mod alarms;
mod answers;
mod audit;
mod authority;
mod backup;
mod barrier;
mod catalog;
mod client;
mod commit;
mod consul;
mod contest;
mod context;
mod error;
mod fair_queue;
mod fan_out;
mod follow;
mod history;
mod invitations;
mod key_watch;
mod keys;
mod lease;
mod lifecycle;
mod limit_counters;
mod long_reads;
mod maintenance;
mod members;
mod metrics;
mod parts;
mod position;
mod proposal_queue;
mod proposer;
mod reads;
mod request_rate;
mod resource;
mod restore;
mod retention;
mod salvage;
mod shares;
mod start;
mod status;
mod store;
mod tasks;
mod uuid;
mod versions;
mod watcher;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::watch;

pub use acl::{
    Acl, AclKind, AclOptions, RulesError, TEMPLATES, Template, TokenRights, hash_secret, is_identity_name, parse_rules,
    shown_policy,
};
pub use alarms::QuotaOptions;
pub use answers::{Answers, Charge};
pub use audit::{AuditError, AuditIdentity, AuditInterval, AuditLevel, AuditLine, AuditLog, AuditOptions, AuditTrail};
pub use authority::{
    Auth, AuthOptions, Authorizer, BadTokenKeys, NamedPrincipal, PrincipalKind, TokenKeys, UserPassword,
};
pub use backup::Backup;
pub use catalog::{CatalogError, CatalogListing, CatalogWatch, Encode, EntryKey, ServiceCatalog};
pub use client::ClientKey;
pub use commit::{CommitError, CommitPart, CommitRequest, NewOperation, OperationError};
pub use consul::{Consul, ConsulSubject, ConsulTreeTooLarge, ConsulTxnDone, Seen};
pub use contest::{Claim, Contender, ContestError, Locks, Observed, Owner};
pub use context::{Consistency, Principal, RequestContext, Secret};
pub use error::{NodeError, NodeErrorKind, Unanswered};
pub use follow::{Follow, Watching};
pub use headwater_fsm::{InvalidTxn, RangePart, validate as validate_txn};
pub use headwater_raft::MemberFigures;
pub use headwater_stream::{
    Catalog, CatalogSubject, CloseReason, Encoding, Item, Kv, ListingStep, Resources, Run, RunBounds, Session,
    StatePoint,
};
pub use headwater_tls::Dialer;
pub use invitations::{InvitationRequest, Invitations, NewToken};
pub use key_watch::{KeyWatch, WatchQuery};
pub use keys::Keys;
pub use lease::{LeaseClock, LeaseGranted, LeaseTimeToLive, Leases, ManualClock};
pub use limit_counters::{Limit, LimitCounters};
pub use maintenance::{KvHash, Maintenance};
pub use members::{Member, MemberStatus, Members};
pub use position::{Position, WatchStart};
pub use request_rate::RateOptions;
pub use resource::{
    KnownType, Listed, PageToken, Prepared, ResourceError, ResourceQuery, ResourceWatch, TypeMap, TypedResources,
};
pub use restore::{RestoreError, RestoreOptions, Restored, restore};
pub use salvage::{EntryRun, Salvage, SalvageError, SalvageOptions, SalvageReport, salvage, write_backup};
pub use shares::{Share, Shares};
pub use start::{NodeOptions, NodeStartError};
pub use status::{Counters, Identity, Leadership, Status};
pub use store::{
    CommandChanges, Depth, EntityChange, EntityChangeKind, EntityState, HistoryPage, HistoryQuery, HistoryReader,
    Point, Store, StoreEntity, StoreError, StorePage, StoreQuery, StoreRead, StoreTarget,
};
pub use uuid::new_uuid;
pub use versions::{ClusterVersions, Versions};
pub use watcher::{
    ChangeGroups, ElementChange, ElementData, ElementEncoder, ElementState, Entity, EntityError, EntitySpace,
    EntityWatch,
};
#[doc(hidden)]
pub use {history::StateHistory, key_watch::resolve_from};

use authority::Authority;
use follow::FollowState;
use lease::LeasesState;
use lifecycle::Lifecycle;
use maintenance::MaintenanceState;
use members::MembersState;
use metrics::NodeMetrics;
use proposer::Proposer;
use reads::ReadPath;
use request_rate::RequestRate;
use resource::TypeRegistry;

use headwater_proto::codec;
use headwater_raft::Consensus;
use headwater_storage::StateStore;
use headwater_types::{
    Applied, AuthRefusal, Command, Face, Feature, LogIndex, MemberProgram, NodeId, Outcome, Proposal, Refusal,
    Revision, Version,
};

/// Longest wait until this member has applied the log entry that issued or made a request's token.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(3);
/// Most entries, count, by which the log entry that issued a token may be ahead of this member's
/// commit index: another member may know a later commit index.
const TOKEN_LAG_MAX: u64 = 10_000;

/// A handle to the node; cheap to clone.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

/// State shared by all handles, one field for each concern.
struct Inner {
    profile: Profile,
    consensus: Consensus,
    store: Arc<StateStore>,
    metrics: Arc<NodeMetrics>,
    proposer: Proposer,
    authority: Arc<Authority>,
    audit: AuditLog,
    max_request_bytes: usize,
    reads: ReadPath,
    answers: Arc<Answers>,
    limit_counters: LimitCounters,
    follow: FollowState,
    leases: LeasesState,
    members: MembersState,
    resource_types: TypeRegistry,
    /// The bound on requests that contend for a lock or observe its owner.
    contenders: Shares,
    /// Limiter of each client's request rate; `None` for no limit.
    request_rate: Option<RequestRate>,
    maintenance: MaintenanceState,
    lifecycle: Lifecycle,
}

/// The node's configured identity.
struct Profile {
    identity: Identity,
    name: String,
    datacenter: String,
    remote_datacenters: BTreeMap<String, Vec<String>>,
    client_dialer: Dialer,
    /// This member's program.
    program: MemberProgram,
}

/// The result of a read or a write, with the coordinates of the state that it saw or made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read<T> {
    /// Applied index of the state that was read; of a write, the log index of its entry.
    pub index: LogIndex,
    /// KV revision of the state that was read, or after the write.
    pub revision: Revision,
    /// The result.
    pub value: T,
}

impl Node {
    /// The cluster and the id of this node.
    pub fn identity(&self) -> Identity {
        self.inner.profile.identity
    }

    /// The node's configured name (`node.name`), for people.
    pub fn name(&self) -> &str {
        &self.inner.profile.name
    }

    /// The name of the cluster's datacenter in the service catalog.
    pub fn datacenter(&self) -> &str {
        &self.inner.profile.datacenter
    }

    /// Client addresses of another datacenter's cluster, `HOST:PORT` or `https://HOST:PORT`; `None`
    /// if it is not configured.
    pub fn remote_datacenter(&self, name: &str) -> Option<&[String]> {
        self.inner.profile.remote_datacenters.get(name).map(Vec::as_slice)
    }

    /// The dialer for client ports of other clusters' members.
    pub fn client_dialer(&self) -> &Dialer {
        &self.inner.profile.client_dialer
    }

    /// The consensus of this node: for serving the peer port, and for waiting until consensus ends.
    pub fn consensus(&self) -> &Consensus {
        &self.inner.consensus
    }

    /// The leader and the term that this node knows; the leader may have failed meanwhile. Cheap:
    /// every response header needs it.
    pub fn leadership(&self) -> Leadership {
        let leading = self.inner.consensus.leadership().current();
        Leadership { leader: leading.leader, term: leading.term }
    }

    /// The leader, if it was alive a moment ago: on a follower, a message of the leader has come;
    /// on the leader, a quorum has answered. `None` otherwise.
    pub fn live_leader(&self) -> Option<NodeId> {
        self.inner.consensus.leadership().live_leader()
    }

    /// The account of the bytes of answers that clients have not read yet.
    pub fn answers(&self) -> &Arc<Answers> {
        &self.inner.answers
    }

    /// The audit log.
    pub fn audit(&self) -> &AuditLog {
        &self.inner.audit
    }

    /// The counters of refusals and cuts by limits.
    pub fn limit_counters(&self) -> &LimitCounters {
        &self.inner.limit_counters
    }

    /// Time since the last contact with a leader; `None` if there was none since the start. On the
    /// leader: zero with a quorum, else the time since the quorum last answered.
    pub fn leader_contact(&self) -> Option<Duration> {
        self.inner.consensus.leadership().last_contact()
    }

    /// A receiver of the applied index. A value comes only after its effects can be read and are
    /// published.
    pub fn applied(&self) -> watch::Receiver<LogIndex> {
        self.inner.consensus.progress().applied()
    }

    fn applied_index(&self) -> LogIndex {
        self.inner.store.current().head().applied_index()
    }

    /// Replicates `command` and returns its outcome. Works on any node: a follower forwards to the
    /// leader.
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] if the state machine refuses the command, or the principal lacks a
    /// right. [`NodeError::Indeterminate`] if the write may have taken effect; after every other
    /// error it has not and will not.
    pub async fn propose(&self, ctx: &RequestContext, command: Command) -> Result<Applied, NodeError> {
        self.admit(ctx).await?;
        // What a proposal carries depends on the version.
        self.require_version(command.needs(), ctx).await?;
        let mut command = command;
        loop {
            let authorizer = self.authorize_command(ctx, &command).await?;
            let proposal = Proposal { proposer: self.proposer(&authorizer, &command), ..self.proposal(ctx, command) };
            let result = match self.propose_as(ctx, &proposal).await {
                // The cluster's version was lowered meanwhile. Propose again without the optional
                // fields that need the newer version.
                Err(NodeError::Refused(Refusal::NeedsVersion { .. }))
                    if proposal.proposer.is_none() && proposal.needs() > proposal.command.needs() =>
                {
                    self.propose_as(ctx, &Proposal::new(proposal.unix_ms, proposal.command.clone())).await
                }
                result => result,
            };
            // Users or roles changed meanwhile. A principal that can be authenticated again without
            // the client is not refused.
            let is_out_of_date = matches!(result, Err(NodeError::Refused(Refusal::Auth(AuthRefusal::OldRevision))));
            if !is_out_of_date
                || !authorizer.named().is_some_and(|named| named.follows)
                || Instant::now() >= ctx.deadline
            {
                return result;
            }
            command = proposal.command;
        }
    }

    /// Authorizes a command before it is proposed, so that a refused command does not enter the
    /// log. Returns the rights by which it was judged.
    async fn authorize_command(&self, ctx: &RequestContext, command: &Command) -> Result<Authorizer, NodeError> {
        let (mut authorizer, mut permitted) = self.authorize_locally(ctx, command)?;
        // The right may have been given, and acknowledged, in a log entry that this member has yet
        // to apply; or access control lists may have come into use.
        let lags = self.acl().is_enabled()
            && !matches!(ctx.principal, Principal::System)
            && !Feature::Acl.is_in(self.versions().cluster().version);
        if permitted.is_err() || lags || authorizer.needs_current_state(command) {
            self.ready_to_read(ctx, Consistency::Linearizable).await?;
            (authorizer, permitted) = self.authorize_locally(ctx, command)?;
        }
        if let Some(trail) = &ctx.trail {
            trail.add_command(command, permitted.is_ok());
        }
        permitted.map_err(Refusal::Auth)?;
        Ok(authorizer)
    }

    /// The principal's rights as of this node's applied state, and whether they permit the command.
    fn authorize_locally(
        &self,
        ctx: &RequestContext,
        command: &Command,
    ) -> Result<(Authorizer, Result<(), AuthRefusal>), NodeError> {
        let authorizer = self.authorizer(ctx)?;
        // A lease may have no keys whose rights would count.
        let is_of_lease = |command: &Command| matches!(command, Command::LeaseGrant(_) | Command::LeaseRevoke(_));
        let of_lease = match command {
            Command::Commit(commit) => commit.operations.iter().any(|operation| is_of_lease(operation.command())),
            command => is_of_lease(command),
        };
        if of_lease && let Err(refusal) = authorizer.permit_somebody() {
            return Ok((authorizer, Err(refusal)));
        }
        let permitted = match authorizer.rights().filter(|rights| !rights.may_everything()) {
            Some(rights) => match headwater_fsm::permit_everywhere(rights, command) {
                Some(permitted) => permitted,
                None => self.inner.store.read(|view| headwater_fsm::permit_command(view, rights, command))?,
            },
            None => Ok(()),
        };
        Ok((authorizer, permitted))
    }

    /// The identity that a proposal carries, by which apply judges it again
    /// ([`Authorizer::proposer`]). `None` also for a token while the cluster's version has no
    /// access control lists: no rights can change then.
    fn proposer(&self, authorizer: &Authorizer, command: &Command) -> Option<headwater_types::Proposer> {
        use headwater_types::Proposer;
        let has_tokens = Feature::Acl.is_in(self.versions().cluster().version);
        let is_token = |proposer: &Proposer| matches!(proposer, Proposer::Token { .. });
        authorizer.proposer(command).filter(|proposer| has_tokens || !is_token(proposer))
    }

    /// A proposal of `command` with the present time, and with the fields that the cluster's
    /// version has.
    #[cfg(not(feature = "next-version"))]
    fn proposal(&self, ctx: &RequestContext, command: Command) -> Proposal {
        Proposal { face: self.face_of(ctx), ..Proposal::new(unix_ms(), command) }
    }

    /// A proposal of `command` with the present time, and with the fields that the cluster's
    /// version has.
    #[cfg(feature = "next-version")]
    fn proposal(&self, ctx: &RequestContext, command: Command) -> Proposal {
        let is_known = Feature::Origins.is_in(self.versions().cluster().version);
        Proposal {
            origin: is_known.then_some(self.inner.profile.identity.node_id),
            face: self.face_of(ctx),
            ..Proposal::new(unix_ms(), command)
        }
    }

    /// The face that proposals of a request carry; `None` while the cluster's version has none.
    fn face_of(&self, ctx: &RequestContext) -> Option<Face> {
        ctx.face.filter(|_| Feature::Authors.is_in(self.versions().cluster().version))
    }

    /// Refuses what needs a newer version than the cluster has or is about to have
    /// ([`Versions::reaches`]).
    async fn require_version(&self, needs: Version, ctx: &RequestContext) -> Result<(), NodeError> {
        match self.versions().reaches(needs, ctx.deadline).await? {
            true => Ok(()),
            false => Err(Refusal::NeedsVersion { needs }.into()),
        }
    }

    async fn propose_as(&self, ctx: &RequestContext, proposal: &Proposal) -> Result<Applied, NodeError> {
        let needs = proposal.needs();
        if needs > self.versions().cluster().version {
            return Err(Refusal::NeedsVersion { needs }.into());
        }
        // A command that cannot be encoded (nested too deep) cannot be replicated at any size.
        let encoded = codec::encode_proposal(proposal).map_err(|_| NodeError::RequestTooLarge)?;
        // The rights that a proposal carries do not count against the size of the request.
        let carried = match &proposal.proposer {
            Some(headwater_types::Proposer::Token { rights: Some(rights), .. }) => rights.size(),
            _ => 0,
        };
        if encoded.len() > self.inner.max_request_bytes + carried {
            self.inner.limit_counters.count(Limit::RequestSize);
            return Err(NodeError::RequestTooLarge);
        }
        let proposed = propose_encoded(&self.inner.proposer, ctx.client, encoded, ctx.deadline).await;
        match proposed.inspect_err(self.inner.limit_counters.note(Limit::Proposals)) {
            // The command was not sent, because there is no leader.
            Err(NodeError::Timeout) if self.live_leader().is_none() => Err(NodeError::NoLeader),
            result => result,
        }
    }

    /// Whether the rate of requests of each client is bounded.
    pub fn bounds_request_rate(&self) -> bool {
        self.inner.request_rate.is_some()
    }

    /// Counts a request of a client against its rate (`limits.requests-per-second`).
    ///
    /// # Errors
    ///
    /// The rate is exceeded; the error is the time until the client's next request is allowed.
    pub fn count_request(&self, client: ClientKey) -> Result<(), Duration> {
        let Some(rate) = &self.inner.request_rate else { return Ok(()) };
        rate.take(client, Instant::now()).inspect_err(|_| self.inner.limit_counters.count(Limit::RequestRate))
    }

    /// Confirms that this node answers reads from its own state now (health checks).
    ///
    /// # Errors
    ///
    /// Those of the read path.
    pub async fn check_serializable(&self, ctx: &RequestContext) -> Result<(), NodeError> {
        self.ready_to_read(ctx, Consistency::Serializable).await?;
        // Not a range: a range needs capacity for its answer.
        self.inner.store.read(|view| view.alarms().map(drop))?;
        Ok(())
    }

    /// Waits until this node's own state has every write that was acknowledged before this call:
    /// admission, the read barrier, and the minimum index. Reads nothing.
    ///
    /// # Errors
    ///
    /// Those of the read path.
    pub async fn check_linearizable(&self, ctx: &RequestContext) -> Result<(), NodeError> {
        self.ready_to_read(ctx, Consistency::Linearizable).await
    }

    /// Admission of every request. Refuses it if this node was removed, or knows no leader although
    /// one is required. Waits until this node has recovered, at most until the deadline, and then
    /// for the request's token ([`await_token`](Self::await_token)).
    async fn admit(&self, ctx: &RequestContext) -> Result<(), NodeError> {
        if self.inner.consensus.is_removed() {
            return Err(NodeError::Removed);
        }
        if ctx.require_leader && self.live_leader().is_none() {
            return Err(NodeError::NoLeader);
        }
        let is_serving = *self.inner.lifecycle.serving.borrow();
        if is_serving {
            return self.await_token(ctx).await;
        }
        let mut serving = self.inner.lifecycle.serving.clone();
        let waited = tokio::time::timeout_at(ctx.deadline.into(), serving.wait_for(|serving| *serving)).await;
        match waited.map(|waited| waited.map(|_| ())) {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return Err(NodeError::Stopped),
            Err(_) => return Err(NodeError::NoLeader),
        }
        self.await_token(ctx).await
    }

    /// Waits until this member has applied the log entry that issued the request's token, at most 3
    /// s: the token itself names the entry's index, and a client can claim any index. Returns at
    /// once for a request without such a token.
    ///
    /// # Errors
    ///
    /// [`AuthRefusal::InvalidToken`] if this member does not know the token in time, or at once if
    /// the named entry is far ahead of this member's log.
    pub async fn await_token(&self, ctx: &RequestContext) -> Result<(), NodeError> {
        let Some(index) = self.index_of_token(ctx) else { return Ok(()) };
        let is_serving = *self.inner.lifecycle.serving.borrow();
        let known = self.inner.consensus.progress().points().committed.max(self.applied_index());
        if is_serving && index.get() > known.get().saturating_add(TOKEN_LAG_MAX) {
            return Err(Refusal::Auth(AuthRefusal::InvalidToken).into());
        }
        let until = ctx.deadline.min(Instant::now() + TOKEN_TIMEOUT);
        match self.inner.reads.barrier.wait_applied(index, until).await {
            Err(NodeError::Timeout) => Err(Refusal::Auth(AuthRefusal::InvalidToken).into()),
            waited => waited,
        }
    }

    /// Passes the read barrier once if the access control lists do not know the request's token: a
    /// log entry that this member has yet to apply may have made it. Does nothing without a live
    /// leader, and a failure leaves the token unknown. One round of the barrier serves all requests
    /// that wait, so unknown secrets do not add to the work of the leader.
    pub async fn learn_token(&self, ctx: &RequestContext) {
        let is_unknown =
            || matches!(self.authorizer(ctx), Err(NodeError::Refused(Refusal::Auth(AuthRefusal::InvalidToken))));
        if !self.shows_acl_token(ctx) || self.live_leader().is_none() || !is_unknown() {
            return;
        }
        let deadline = ctx.deadline.min(Instant::now() + TOKEN_TIMEOUT);
        let context = RequestContext { deadline, min_index: None, ..ctx.clone() };
        if let Err(error) = self.ready_to_read(&context, Consistency::Linearizable).await {
            tracing::debug!(%error, "an unknown token is refused by a state that may be behind");
        }
    }
}

/// Proposes an encoded command. An outcome that is a refusal is returned as an error.
async fn propose_encoded(
    proposer: &Proposer,
    client: ClientKey,
    encoded: Bytes,
    deadline: Instant,
) -> Result<Applied, NodeError> {
    let applied = proposer.propose(client, encoded, deadline).await?;
    if let Outcome::Refused(refusal) = applied.outcome {
        return Err(refusal.into());
    }
    Ok(applied)
}

fn unix_ms() -> u64 {
    // Zero for a clock before 1970. The time only decides retention by age, never order.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
