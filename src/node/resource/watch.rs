//! Watching resources: a list, then every change, in order (spec: consul §5.13).
//!
//! Owns where a watch begins. The list is a snapshot that everybody who asks within a short time shares; what has changed
//! since it was made is put into it for each, so that a watch never begins with an older state than its node shows. A watch may
//! also begin after an index, without a list: history has the changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::error::ResourceError;
use super::reads::each;
use crate::node::history::differ;
use crate::node::{Consistency, Node, NodeError, RequestContext};
use crate::storage::state::NEWEST;
use crate::stream::{self, CloseReason, Item, Session, Snapshot, Start, Subscription};
use crate::types::limits::RESOURCE_MERGED_CHANGES_MAX;
use crate::types::resource::{Resource, Selector, resource_key};
use crate::types::{ChangeKind, LogIndex, StoreEpoch};

/// The resources of a snapshot by key, each encoded once for all who are sent it.
pub(super) type Contents = Arc<[(Bytes, Bytes)]>;

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// With a list of what is there.
    List,
    /// After an index, with its lineage if that is known.
    After(LogIndex, Option<StoreEpoch>),
}

/// A watch. Reading never waits: the session tells when there may be something.
pub struct ResourceWatch {
    list: Option<List>,
    subscription: Subscription<stream::Resources>,
    /// The list is complete once the watch is through here.
    listed_through: LogIndex,
}

/// What is left to send of a list.
struct List {
    snapshot: Arc<Snapshot<stream::Resources, Contents>>,
    next: usize,
    /// Changed since the snapshot; `None` is gone.
    changed: BTreeMap<Bytes, Option<Bytes>>,
}

/// What a watch has to tell next.
#[derive(Clone, Debug)]
pub enum Told {
    /// A resource of the list, encoded.
    Listed(Bytes),
    /// The list is complete: it is the state at this index.
    EndOfList(LogIndex),
    /// Changes of one command.
    Changed(Item<stream::Resources>),
}

impl ResourceWatch {
    /// What comes next. `None` means that there is nothing now: the session gets the token when there may be.
    ///
    /// # Errors
    ///
    /// The reason for which the watch has ended.
    pub fn try_next(&mut self) -> Result<Option<Told>, CloseReason> {
        if let Some(list) = &mut self.list {
            if let Some(encoded) = list.next() {
                return Ok(Some(Told::Listed(encoded)));
            }
            // What was too much to be put into the list comes before its end.
            if let Some(item) = self.subscription.try_next_through(self.listed_through)? {
                return Ok(Some(Told::Changed(item)));
            }
            if self.subscription.is_through(self.listed_through) {
                self.list = None;
                return Ok(Some(Told::EndOfList(self.listed_through)));
            }
            return Ok(None);
        }
        Ok(self.subscription.try_next()?.map(Told::Changed))
    }
}

impl List {
    fn next(&mut self) -> Option<Bytes> {
        while let Some((key, encoded)) = self.snapshot.contents.get(self.next) {
            self.next += 1;
            if !self.changed.contains_key(key) {
                return Some(encoded.clone());
            }
        }
        while let Some((_, encoded)) = self.changed.pop_first() {
            if encoded.is_some() {
                return encoded;
            }
        }
        None
    }
}

impl Node {
    /// Watches resources, from this node's own state. `encode` says how a resource of the list is sent; it must be the same
    /// for all. The session gets `token` whenever there may be something to read; read once before you wait.
    ///
    /// # Errors
    ///
    /// [`ResourceError::ResumeCompacted`] and [`ResourceError::ResumeOtherEpoch`] if it cannot begin there; those of a
    /// serializable read otherwise.
    pub async fn watch_resources(
        &self,
        ctx: &RequestContext,
        selector: Selector,
        start: WatchStart,
        session: &Arc<Session>,
        encode: fn(Resource) -> Bytes,
    ) -> Result<ResourceWatch, ResourceError> {
        let mut ctx = ctx.clone();
        if let WatchStart::After(index, _) = start {
            ctx.min_index = ctx.min_index.max(Some(index));
        }
        self.ready_to_read(&ctx, Consistency::Serializable).await?;
        let selector = self.complete_selector(&ctx, selector).await?;
        match start {
            WatchStart::After(index, epoch) => self.resume(selector, index, epoch, session),
            WatchStart::List => self.watch_from_list(&ctx, selector, session, encode).await,
        }
    }

    /// The lineage of the store, once it is known: an index means nothing in another one.
    pub fn epoch(&self) -> Option<StoreEpoch> {
        self.inner.store.current().head().epoch
    }

    fn resume(
        &self,
        selector: Selector,
        index: LogIndex,
        epoch: Option<StoreEpoch>,
        session: &Arc<Session>,
    ) -> Result<ResourceWatch, ResourceError> {
        let head = self.inner.store.current().head();
        if differ(epoch, head.epoch) {
            return Err(ResourceError::ResumeOtherEpoch);
        }
        if index.next() < head.compacted_index() {
            return Err(ResourceError::ResumeCompacted(index));
        }
        let feed = self.inner.events.resources();
        let subscription = feed.subscribe(selector, Start::After(index), session, 0).map_err(NodeError::from)?;
        Ok(ResourceWatch { list: None, subscription, listed_through: index })
    }

    async fn watch_from_list(
        &self,
        ctx: &RequestContext,
        selector: Selector,
        session: &Arc<Session>,
        encode: fn(Resource) -> Bytes,
    ) -> Result<ResourceWatch, ResourceError> {
        // Moves on after the changes are out, so that they can all be read here.
        let applied = *self.inner.consensus.applied().borrow();
        let snapshot = self
            .inner
            .resources
            .snapshots
            .get(&selector, Instant::now(), async || {
                let selector = selector.clone();
                let read = self.read(false, ctx.deadline, move |view| {
                    let mut contents = Vec::new();
                    each(view, &selector.range(), NEWEST, |key, _, resource| {
                        if selector.matches(&resource.id) {
                            contents.push((Bytes::copy_from_slice(key), encode(resource)));
                        }
                        true
                    })?;
                    Ok(Ok(Contents::from(contents)))
                });
                let read = read.await?;
                Ok::<_, NodeError>((read.index, read.value))
            })
            .await?;
        let mut subscription = snapshot.subscribe(session, 0).map_err(NodeError::from)?;
        let listed_through = applied.max(snapshot.index);
        let mut changed = BTreeMap::new();
        loop {
            while changed.len() < RESOURCE_MERGED_CHANGES_MAX
                && let Some(item) = subscription.try_next_through(listed_through).map_err(NodeError::from)?
            {
                for event in item.events() {
                    let encoded = match event.kind {
                        ChangeKind::Put => Some(encode(Resource::clone(&event.resource))),
                        ChangeKind::Delete | ChangeKind::Expire => None,
                    };
                    changed.insert(resource_key(&event.resource.id), encoded);
                }
            }
            if changed.len() >= RESOURCE_MERGED_CHANGES_MAX || subscription.is_through(listed_through) {
                break;
            }
            // Some of it is in history alone by now.
            let raised = tokio::time::timeout_at(ctx.deadline.into(), session.raised()).await;
            raised.map_err(|_| NodeError::Timeout)?;
        }
        Ok(ResourceWatch { list: Some(List { snapshot, next: 0, changed }), subscription, listed_through })
    }
}
