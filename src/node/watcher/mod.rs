//! Following entities: any part of the store as a tree of named elements (spec: watcher §1, §2;
//! docs/watcher.md).
//!
//! Owns the content of a stream about an entity: the state or the missed changes as the first
//! group, then the changes of commits. Uses only the topics and history. The effect of a commit on
//! the tree is computed from the states before and after it, so that a follower needs no state but
//! its position. Knows nothing of URLs, markers or messages. A new space is a file with an
//! implementation of [`space::Space`], and a line in each `match` here.

pub(super) mod catalog;
pub(super) mod cluster;
mod follower;
pub(super) mod kv;
mod listing;
pub(super) mod resources;
pub(super) mod rights;
pub(super) mod space;
mod tree;
mod watched;

use std::sync::Arc;
use std::time::Instant;

use thiserror::Error;

pub use follower::ChangeGroups;
pub use space::ElementData;
pub use tree::{ElementChange, ElementState};
pub use watched::ElementEncoder;

use super::history::Recorded;
use super::position::{Position, Resume, WatchStart};
use super::{Consistency, Follow, Node, NodeError, RequestContext, Watching};
use catalog::{NodeSpace, ServiceSpace};
use cluster::{LeaseSpace, MemberSpace};
use follower::{EntityFollower, Follower, Phase};
use headwater_stream::{CloseReason, Session, Start, Subscription};
use headwater_types::limits::{ENTITY_MERGED_COMMITS_MAX, ENTITY_STATE_BYTES_MAX};
use headwater_types::{KeyRange, LogIndex, Space as RightsSpace};
use kv::KvSpace;
use listing::Sending;
use resources::ResourceSpace;
use space::Space;
use tree::Scope;
use watched::{Listing, Registry, Watched};

/// A part of the store that can be followed as a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntitySpace {
    /// Keys.
    Kv,
    /// Typed resources.
    Resources,
    /// Instances of services.
    Services,
    /// Nodes of the service catalog.
    Nodes,
    /// Leases.
    Leases,
    /// The cluster: its members.
    Cluster,
}

impl EntitySpace {
    /// Every space.
    pub const ALL: [Self; 6] = [Self::Kv, Self::Resources, Self::Services, Self::Nodes, Self::Leases, Self::Cluster];
}

/// The part of the store that a stream follows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entity {
    /// The space that the entity is in.
    pub space: EntitySpace,
    /// The name in the space, which must be valid ([`key_of`](headwater_types::entity::key_of)).
    /// The empty name is the root of the space.
    pub name: String,
    /// Whether everything below is followed, not only the children.
    pub recursive: bool,
}

/// The reason for which an entity cannot be followed from a position.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EntityError {
    /// Any error that is not about the position or the size, for example of admission.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The position is of another lineage. The client must begin with the state.
    #[error("the marker is from another cluster, or from before a backup was restored; begin without a marker")]
    OtherEpoch,
    /// The position is older than the kept history. The client must begin with the state.
    #[error("what came after the marker was compacted; begin without a marker")]
    Compacted,
    /// The position is newer than everything in the store. The client must begin with the state.
    #[error("the marker is newer than the store, which has lost what the marker stands for; begin without a marker")]
    Future,
    /// Rights have changed since the position. The client must begin with the state.
    #[error("rights have changed since the marker; begin without a marker")]
    OtherRights,
    /// The state exceeds [`ENTITY_STATE_BYTES_MAX`].
    #[error(
        "the entity has more than {ENTITY_STATE_BYTES_MAX} bytes of state; follow parts of it, or begin with \"now\""
    )]
    TooLarge,
}

impl From<CloseReason> for EntityError {
    fn from(reason: CloseReason) -> Self {
        match reason {
            CloseReason::Compacted { .. } => Self::Compacted,
            reason @ (CloseReason::EpochChanged
            | CloseReason::Reset
            | CloseReason::Stopping
            | CloseReason::Failed(_)) => Self::Node(reason.into()),
        }
    }
}

/// A stream of the state and the changes of an entity.
pub struct EntityWatch {
    follower: Box<dyn EntityFollower>,
    _watching: Watching,
    /// The intervals that the principal must be able to read.
    wanted: Vec<(RightsSpace, KeyRange)>,
}

impl EntityWatch {
    /// Judges the principal again, after rights have changed.
    ///
    /// # Errors
    ///
    /// If the principal may not read all of the entity any more: the stream must end then.
    pub fn rejudge(&self, node: &Node, ctx: &RequestContext) -> Result<(), NodeError> {
        rights::permit(node, ctx, &self.wanted)
    }

    /// The next changes, encoded: at first the state or the missed changes, then those of commits.
    /// `None` if there are none now. Token 0 of the session asks the caller to read again.
    ///
    /// # Errors
    ///
    /// The reason for which the stream has ended.
    pub async fn next(&mut self) -> Result<Option<ChangeGroups>, CloseReason> {
        self.follower.next().await
    }
}

/// The entities that this node's streams follow, or followed lately.
#[derive(Default)]
pub(super) struct Entities {
    kv: Registry<KvSpace>,
    resources: Registry<ResourceSpace>,
    services: Registry<ServiceSpace>,
    nodes: Registry<NodeSpace>,
    leases: Registry<LeaseSpace>,
    cluster: Registry<MemberSpace>,
}

impl Entities {
    /// Evicts the states that were listed more than `LISTING_KEPT` ago. Drops the entities that
    /// then have neither followers nor cached states.
    pub(super) fn sweep(&self, now: Instant) {
        self.kv.sweep(now);
        self.resources.sweep(now);
        self.services.sweep(now);
        self.nodes.sweep(now);
        self.leases.sweep(now);
        self.cluster.sweep(now);
    }

    /// Evicts every state that only the cache holds.
    pub(super) fn evict(&self) {
        self.kv.evict();
        self.resources.evict();
        self.services.evict();
        self.nodes.evict();
        self.leases.evict();
        self.cluster.evict();
    }
}

impl Follow<'_> {
    /// Follows an entity. The position of the first group covers everything that any node had
    /// acknowledged before the call. The session yields token 0 when there may be something to
    /// read. Before each wait for the token, the caller reads until [`EntityWatch::next`] returns
    /// `None`.
    ///
    /// # Errors
    ///
    /// [`EntityError`]; the errors of a linearizable read; [`NodeError::TooManyRequests`] if the
    /// memory budget of states is exhausted, [`NodeError::TooManyWatchers`].
    pub async fn entity(
        self,
        ctx: &RequestContext,
        entity: Entity,
        start: WatchStart,
        encoder: Arc<dyn ElementEncoder>,
        session: &Arc<Session>,
    ) -> Result<EntityWatch, EntityError> {
        self.node.ready_to_read(ctx, Consistency::Linearizable).await?;
        // Before anything of the entity is read, so that the answer does not depend on its
        // existence.
        let wanted = rights::wanted(&entity);
        rights::permit(self.node, ctx, &wanted)?;
        if let WatchStart::After(position) = start
            && rights::has_changed_since(self.node, ctx, position.index)?
        {
            return Err(EntityError::OtherRights);
        }
        let watching = self.begin_watching(ctx)?;
        let entities = &self.node.inner.follow.entities;
        let Entity { space, name, recursive } = entity;
        let scope = Scope { root: name, recursive };
        let follower = match space {
            EntitySpace::Kv => self.entity_in(ctx, &entities.kv, scope, start, encoder, session).await,
            EntitySpace::Resources => self.entity_in(ctx, &entities.resources, scope, start, encoder, session).await,
            EntitySpace::Services => self.entity_in(ctx, &entities.services, scope, start, encoder, session).await,
            EntitySpace::Nodes => self.entity_in(ctx, &entities.nodes, scope, start, encoder, session).await,
            EntitySpace::Leases => self.entity_in(ctx, &entities.leases, scope, start, encoder, session).await,
            EntitySpace::Cluster => self.entity_in(ctx, &entities.cluster, scope, start, encoder, session).await,
        };
        Ok(EntityWatch { follower: follower?, wanted, _watching: watching })
    }

    async fn entity_in<S: Space>(
        self,
        ctx: &RequestContext,
        registry: &Registry<S>,
        scope: Scope,
        start: WatchStart,
        encoder: Arc<dyn ElementEncoder>,
        session: &Arc<Session>,
    ) -> Result<Box<dyn EntityFollower>, EntityError> {
        let watched = registry.get(scope, encoder, &self.node.inner.follow.events, &self.node.inner.store);
        let follower = match start {
            WatchStart::State { .. } => self.entity_from_state(ctx, watched, session).await?,
            WatchStart::Now => self.entity_from_now(watched, session)?,
            WatchStart::After(position) => self.entity_after(watched, position, session)?,
        };
        Ok(Box::new(follower))
    }

    /// The position through which all changes are published. After a read barrier it covers all
    /// writes that were acknowledged before.
    fn reached(self) -> Position {
        // The applied index advances after the changes are published, so they can all be read.
        let index = *self.node.inner.consensus.progress().applied().borrow();
        Position { epoch: self.node.epoch(), index }
    }

    fn entity_from_now<S: Space>(
        self,
        watched: Arc<Watched<S>>,
        session: &Arc<Session>,
    ) -> Result<Follower<S>, EntityError> {
        let at = self.reached();
        let subscription = subscribe(self.node, &watched, Start::After(at.index), session)?;
        let skipped = ElementChange { element: String::new(), state: ElementState::Skipped };
        let first = vec![watched.encoder.encode(&skipped, Some(at))].into();
        Ok(Follower { watched, subscription, phase: Phase::First(first) })
    }

    fn entity_after<S: Space>(
        self,
        watched: Arc<Watched<S>>,
        position: Position,
        session: &Arc<Session>,
    ) -> Result<Follower<S>, EntityError> {
        let at = self.reached();
        let db = self.node.inner.store.current();
        let head = db.head();
        // The barrier was passed: every state that any node has shown is here.
        match position.resume(&head, <S::Topic as Recorded>::floor(&head), at.index) {
            Resume::Continue => {}
            Resume::OtherLineage => return Err(EntityError::OtherEpoch),
            Resume::Ahead => return Err(EntityError::Future),
            Resume::Compacted => return Err(EntityError::Compacted),
        }
        let subscription = subscribe(self.node, &watched, Start::After(position.index), session)?;
        Ok(Follower { watched, subscription, phase: Phase::Missed { through: at.index, held: None } })
    }

    async fn entity_from_state<S: Space>(
        self,
        ctx: &RequestContext,
        watched: Arc<Watched<S>>,
        session: &Arc<Session>,
    ) -> Result<Follower<S>, EntityError> {
        let at = self.reached();
        let subject = watched.space.subject(&watched.scope.root);
        let list = async || self.list_entity(ctx, &watched).await;
        let state = watched.states.get(&subject, Instant::now(), list).await?;
        let mut subscription = state.subscribe(session, 0)?;
        let through = at.index.max(state.index);
        let mut since = Vec::new();
        while since.len() < ENTITY_MERGED_COMMITS_MAX
            && let Some(item) = subscription.try_next_through(through)?
        {
            since.push(item);
        }
        let position = Position { index: through, ..at };
        if since.is_empty() && subscription.is_through(through) {
            let sending = Sending::new(Arc::clone(&state.contents), &[], &*watched.encoder, position)?;
            return Ok(Follower { watched, subscription, phase: Phase::State(Box::new(sending)) });
        }
        if subscription.is_through(through) {
            let (shared, made) = (Arc::clone(&watched), state.index);
            let changes = self.node.read(false, ctx, move |view| {
                let compacted = view.head().compacted_index();
                if through < compacted {
                    return Ok(Ok(None));
                }
                Ok(Ok(Some(shared.sum(view, &since, (made >= compacted).then_some(made), through)?)))
            });
            if let Some(changes) = changes.await?.value {
                let sending = Sending::new(Arc::clone(&state.contents), &changes, &*watched.encoder, position)?;
                return Ok(Follower { watched, subscription, phase: Phase::State(Box::new(sending)) });
            }
        }
        // Too much has changed since the state was listed: this follower gets a list of its own,
        // and subscribes before it is made.
        let mut subscription = subscribe(self.node, &watched, Start::Now, session)?;
        let (index, listing) = self.list_entity(ctx, &watched).await?;
        subscription.skip_through(index);
        let position = Position { index, ..at };
        let sending = Sending::new(listing, &[], &*watched.encoder, position)?;
        Ok(Follower { watched, subscription, phase: Phase::State(Box::new(sending)) })
    }

    async fn list_entity<S: Space>(
        self,
        ctx: &RequestContext,
        watched: &Arc<Watched<S>>,
    ) -> Result<(LogIndex, Listing), EntityError> {
        let (shared, share) = (Arc::clone(watched), self.node.inner.follow.memory.share());
        let read = self.node.read(false, ctx, move |view| Ok(Ok(shared.list(view, share)?))).await?;
        Ok((read.index, read.value?))
    }
}

fn subscribe<S: Space>(
    node: &Node,
    watched: &Watched<S>,
    start: Start,
    session: &Arc<Session>,
) -> Result<Subscription<S::Topic>, EntityError> {
    let subject = watched.space.subject(&watched.scope.root);
    Ok(S::feed(&node.inner.follow.events).subscribe(subject, start, session, 0)?)
}
