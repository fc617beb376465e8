//! Resource watches: a list, then every change, in order (spec: consul §5.13).
//!
//! Owns the start of a watch. The list is a snapshot that watches of the same selector share for a
//! short time. Changes since it was made are merged into it for each watch, so that no watch begins
//! with an older state than its node has shown. A watch may also begin after an index, without a
//! list: history has the changes.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::error::ResourceError;
use super::reads::{Found, each};
use super::rights::ResourceRights;
use crate::position::{Resume, WatchStart};
use crate::{Consistency, Follow, Node, NodeError, RequestContext, Watching};
use headwater_storage::ReadView;
use headwater_storage::state::NEWEST;
use headwater_stream::{CloseReason, Entries, Listing, ListingStep, Session, SnapshotCache, Start, StateShare};
use headwater_types::limits::{LISTING_MERGED_CHANGES_MAX, RESOURCE_LIST_BYTES_MAX};
use headwater_types::resource::{Resource, Selector, resource_key};
use headwater_types::{AuthRefusal, ChangeKind, KeyRange, LogIndex, Refusal, ResourceEvent};

/// The resources of a snapshot by key, each encoded once for all its readers.
type Contents = Entries<Bytes, Bytes>;

/// The lists with which watches begin, shared by watches of the same selector.
pub(crate) type ResourceSnapshots = SnapshotCache<headwater_stream::Resources, Contents>;

/// A watch of resources. Reading never waits: the session yields token 0 when there may be
/// something to read.
pub struct ResourceWatch {
    listing: ResourceListing,
    selector: Selector,
    rights: ResourceRights,
    /// The intervals that the principal may read.
    readable: Vec<KeyRange>,
    _watching: Watching,
}

type ResourceListing = Listing<headwater_stream::Resources, Bytes, Bytes>;

impl ResourceWatch {
    fn new(mut listing: ResourceListing, selector: Selector, rights: ResourceRights, watching: Watching) -> Self {
        let shown = rights.clone();
        listing.show_only(Box::new(move |key: &Bytes| shown.shows(key)));
        let readable = rights.readable(&selector);
        Self { listing, selector, rights, readable, _watching: watching }
    }

    /// The next step, as [`Listing::try_next`]. The list has only readable resources. The changes
    /// are not filtered: the caller asks [`shows`](Self::shows) for each.
    ///
    /// # Errors
    ///
    /// The reason for which the watch has ended.
    pub fn try_next(&mut self) -> Result<Option<ListingStep<headwater_stream::Resources, Bytes>>, CloseReason> {
        self.listing.try_next()
    }

    /// Whether the principal may read a change.
    pub fn shows(&self, event: &ResourceEvent) -> bool {
        self.rights.shows(&resource_key(&event.resource.id))
    }

    /// Judges the principal again, after rights have changed. The watch uses the new rights from
    /// then on.
    ///
    /// # Errors
    ///
    /// If the principal is refused, or may read less of the selected resources than before, or
    /// more. The watch must end then.
    pub fn rejudge(&mut self, node: &Node, ctx: &RequestContext) -> Result<(), AuthRefusal> {
        let rights = match node.resources().rights(ctx) {
            Ok(rights) => rights,
            Err(ResourceError::Node(NodeError::Refused(Refusal::Auth(refusal)))) => return Err(refusal),
            Err(_) => return Err(AuthRefusal::PermissionDenied),
        };
        if rights.readable(&self.selector) != self.readable {
            return Err(AuthRefusal::PermissionDenied);
        }
        self.rights = rights;
        Ok(())
    }
}

/// The list that a watch begins with, encoded. Fails if it exceeds `bytes_max`, or if `share`
/// exceeds the memory budget.
fn contents(
    view: &ReadView<'_>,
    selector: &Selector,
    bytes_max: usize,
    encode: fn(Resource) -> Bytes,
    mut share: StateShare,
) -> Found<Contents> {
    let (mut contents, mut bytes, mut has_capacity) = (Vec::new(), 0, true);
    let done = each(view, &selector.range(), NEWEST, usize::MAX, |key, version, resource| {
        if selector.matches(&resource.id) {
            bytes += version.value_len as usize;
            let encoded = encode(resource);
            has_capacity = share.grow(key.len() + encoded.len());
            contents.push((Bytes::copy_from_slice(key), encoded));
        }
        bytes <= bytes_max && has_capacity
    })?;
    Ok(match (done, has_capacity) {
        (true, _) => Ok(Entries::new(contents, share)),
        (false, true) => Err(ResourceError::WatchTooLarge(bytes_max)),
        (false, false) => Err(NodeError::TooManyRequests.into()),
    })
}

impl Follow<'_> {
    /// Watches resources, from this node's own state. `encode` encodes a resource of the list. It
    /// must be the same function in every call, because watches share lists. The session yields
    /// token 0 when there may be something to read; the caller reads once before its first wait.
    ///
    /// # Errors
    ///
    /// [`ResourceError::ResumeCompacted`], [`ResourceError::ResumeOtherEpoch`] and
    /// [`ResourceError::ResumeOtherRights`] if the start cannot be continued,
    /// [`ResourceError::WatchTooLarge`] if the list would be too long,
    /// [`NodeError::TooManyRequests`] if the memory budget of states is exhausted,
    /// [`NodeError::TooManyWatchers`]; otherwise as [`list`](crate::TypedResources::list) with
    /// serializable consistency.
    pub async fn resources(
        self,
        ctx: &RequestContext,
        selector: Selector,
        start: WatchStart,
        session: &Arc<Session>,
        encode: fn(Resource) -> Bytes,
    ) -> Result<ResourceWatch, ResourceError> {
        let mut ctx = ctx.clone();
        if let Some(position) = start.position() {
            // An index of another lineage is not waited for: this store may never reach it.
            if !self.node.is_of_another_lineage(&ctx, position).await? {
                ctx.min_index = ctx.min_index.max(Some(position.index));
            } else if let WatchStart::After(_) = start {
                return Err(ResourceError::ResumeOtherEpoch);
            }
        }
        self.node.ready_to_read(&ctx, Consistency::Serializable).await?;
        let watching = self.begin_watching(&ctx)?;
        let selector = self.node.resources().complete_selector(&ctx, selector).await?;
        let rights = self.node.resources().rights_to(&ctx, &selector)?;
        if let WatchStart::After(position) = start
            && rights.has_changed_since(position.index)
        {
            // The principal may not have been allowed to see the changes in between.
            return Err(ResourceError::ResumeOtherRights);
        }
        let listing = self.resource_listing(&ctx, selector.clone(), start, session, encode).await?;
        Ok(ResourceWatch::new(listing, selector, rights, watching))
    }

    async fn resource_listing(
        self,
        ctx: &RequestContext,
        selector: Selector,
        start: WatchStart,
        session: &Arc<Session>,
        encode: fn(Resource) -> Bytes,
    ) -> Result<ResourceListing, ResourceError> {
        match start {
            WatchStart::State { .. } => self.resources_from_list(ctx, selector, session, encode).await,
            WatchStart::Now => {
                let index = *self.node.inner.consensus.progress().applied().borrow();
                self.resources_after(selector, index, session)
            }
            WatchStart::After(position) => {
                let db = self.node.inner.store.current();
                let head = db.head();
                match position.resume(&head, head.compacted_index(), head.applied_index()) {
                    Resume::Continue => self.resources_after(selector, position.index, session),
                    Resume::OtherLineage => Err(ResourceError::ResumeOtherEpoch),
                    Resume::Compacted => Err(ResourceError::ResumeCompacted(position.index)),
                    // The index was reached before: a state of another lineage was installed since.
                    Resume::Ahead => Err(ResourceError::ResumeOtherEpoch),
                }
            }
        }
    }

    fn resources_after(
        self,
        selector: Selector,
        index: LogIndex,
        session: &Arc<Session>,
    ) -> Result<ResourceListing, ResourceError> {
        let feed = self.node.inner.follow.events.resources();
        let subscription = feed.subscribe(selector, Start::After(index), session, 0).map_err(NodeError::from)?;
        Ok(ResourceListing::resumed(subscription, index))
    }

    async fn resources_from_list(
        self,
        ctx: &RequestContext,
        selector: Selector,
        session: &Arc<Session>,
        encode: fn(Resource) -> Bytes,
    ) -> Result<ResourceListing, ResourceError> {
        // The applied index advances after the changes are published, so all of them can be read
        // here.
        let applied = *self.node.inner.consensus.progress().applied().borrow();
        let snapshot = self
            .node
            .inner
            .follow
            .resources
            .get(&selector, Instant::now(), async || {
                let (selector, share) = (selector.clone(), self.node.inner.follow.memory.share());
                let work = move |view: &ReadView<'_>| {
                    contents(view, &selector, RESOURCE_LIST_BYTES_MAX, encode, share).map(Ok)
                };
                let read = self.node.read(false, ctx, work).await?;
                Ok::<_, ResourceError>((read.index, read.value?))
            })
            .await?;
        let effect = |event: &ResourceEvent| {
            let encoded = match event.kind {
                ChangeKind::Put => Some(encode(Resource::clone(&event.resource))),
                ChangeKind::Delete | ChangeKind::Expire => None,
            };
            (resource_key(&event.resource.id), encoded)
        };
        let watch = Listing::begin(snapshot, applied, session, ctx.deadline, LISTING_MERGED_CHANGES_MAX, effect);
        Ok(watch.await.map_err(NodeError::from)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::reads::tests::{store, type_};
    use super::*;
    use headwater_stream::StateMemory;

    #[test]
    fn a_list_that_is_held_leaves_the_rest_of_the_memory_to_others() {
        let (_dir, store) = store(&["a", "b", "c"]);
        let db = store.current();
        let view = db.view().unwrap();
        let selector = Selector::everywhere(type_());
        let list = |memory: &Arc<StateMemory>, bytes_max| {
            let encode = |resource: Resource| resource.data.unwrap().value;
            contents(&view, &selector, bytes_max, encode, memory.share()).unwrap()
        };
        // Each entry takes a little more than its data of a thousand bytes.
        let memory = StateMemory::new(5000, || {});
        let held = list(&memory, usize::MAX).unwrap();
        assert_eq!(held.len(), 3);
        let refused = list(&memory, usize::MAX).err();
        assert_eq!(refused, Some(NodeError::TooManyRequests.into()));
        drop(held);
        assert!(list(&memory, usize::MAX).is_ok());
        assert_eq!(list(&memory, 2500).err(), Some(ResourceError::WatchTooLarge(2500)), "whatever room there is");
    }
}
