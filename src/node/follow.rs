//! Follow: streams of changes of every topic, and the states with which they begin.
//!
//! Owns the feeds, the memory budget of states, and the caches of states that many streams share.
//! Each topic adds its streams to the handle: `key_watch`, `catalog::watch`, `resource::watch`,
//! `watcher`. Invariant: the cached states of all topics together stay within the memory budget.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::catalog::CatalogSnapshots;
use super::resource::ResourceSnapshots;
use super::watcher::Entities;
use super::{Inner, Limit, Node, NodeError, RequestContext, Share, Shares};
use headwater_stream::{EventPublisher, FeedStats, SnapshotCache, StateMemory};
use headwater_types::limits::{LISTING_KEPT, STATES_BYTES_MAX};

/// State behind [`Follow`].
pub(super) struct FollowState {
    pub(super) events: Arc<EventPublisher>,
    /// The memory budget of the states with which streams of resources, catalog and entities begin.
    pub(super) memory: Arc<StateMemory>,
    pub(super) catalog: CatalogSnapshots,
    pub(super) resources: ResourceSnapshots,
    pub(super) entities: Entities,
    /// The bound on the watchers of clients.
    watchers: Shares,
}

impl FollowState {
    pub(super) fn new(events: Arc<EventPublisher>, watchers_max: usize, inner: Weak<Inner>) -> Self {
        let evict = move || {
            if let Some(inner) = inner.upgrade() {
                inner.follow.evict();
            }
        };
        Self {
            memory: StateMemory::new(STATES_BYTES_MAX, evict),
            catalog: SnapshotCache::new(events.catalog().clone(), LISTING_KEPT),
            resources: SnapshotCache::new(events.resources().clone(), LISTING_KEPT),
            entities: Entities::default(),
            watchers: Shares::new(watchers_max),
            events,
        }
    }

    /// Evicts every state that only a cache holds.
    fn evict(&self) {
        self.resources.evict(|_| false);
        self.catalog.evict(|_| false);
        self.entities.evict();
    }

    /// Evicts the cached states that were made more than [`LISTING_KEPT`] ago, or before the whole
    /// state was replaced.
    fn sweep(&self, now: Instant) {
        self.catalog.sweep(now);
        self.resources.sweep(now);
        self.entities.sweep(now);
    }
}

/// Evicts the cached states that were made more than [`LISTING_KEPT`] ago, until the node is
/// dropped.
pub(super) async fn sweep(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(LISTING_KEPT).await;
        let Some(inner) = inner.upgrade() else { return };
        inner.follow.sweep(Instant::now());
    }
}

/// Handle to streams of changes.
#[derive(Clone, Copy)]
pub struct Follow<'a> {
    pub(super) node: &'a Node,
}

impl Node {
    /// Handle to streams of changes.
    pub fn follow(&self) -> Follow<'_> {
        Follow { node: self }
    }
}

/// The share of one watcher of a client in the bound on watchers. Released by drop.
#[derive(Debug)]
pub struct Watching {
    _share: Share,
}

impl Follow<'_> {
    /// Counts one more watcher of the client of `ctx` against the bound on watchers.
    ///
    /// # Errors
    ///
    /// [`NodeError::TooManyWatchers`] if the bound is reached, in all or for this client.
    pub(super) fn begin_watching(self, ctx: &RequestContext) -> Result<Watching, NodeError> {
        let share = self.node.inner.follow.watchers.take(ctx.client).ok_or_else(|| {
            self.node.inner.limit_counters.count(Limit::Watchers);
            NodeError::TooManyWatchers
        })?;
        Ok(Watching { _share: share })
    }

    /// The name of each topic, with the counters of its feed.
    pub fn stats(self) -> [(&'static str, FeedStats); 4] {
        self.node.inner.follow.events.stats()
    }
}
