//! Catalog watches: streams that begin with a state or after an index, and waits for a change.
//!
//! Owns the start of a stream and the check of an index's lineage (spec: consul §1.8;
//! ARCHITECTURE.md §7). Streams, blocking queries and all other followers of the catalog use the
//! same subscriptions: none of them polls. Invariant: a stream that begins after an index delivers
//! every later change of its subject. If that is impossible, it begins with the state.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::position::{Resume, WatchStart};
use crate::{Consistency, Follow, NodeError, RequestContext, Watching};
use headwater_storage::state::CatalogReader;
use headwater_storage::{ReadView, StorageError};
use headwater_stream::{
    self, CatalogSubject, CloseReason, Entries, FeedStats, Listing, Session, SnapshotCache, Start, StateShare,
};
use headwater_types::LogIndex;
use headwater_types::catalog::{CatalogBody, CatalogEvent, CatalogOp, CatalogTopic, CheckServiceNode, canonical};
use headwater_types::limits::LISTING_MERGED_CHANGES_MAX;

/// The key of an element in a list: node and id of an instance, or a name and an empty text.
pub type EntryKey = (String, String);

/// Encodes an event for the stream. The result must depend on the event alone, because subscribers
/// share it.
pub type Encode = Arc<dyn Fn(&CatalogEvent) -> Bytes + Send + Sync>;

/// A list of the state, then every change. Reading never waits: the session yields token 0 when
/// there may be something to read.
pub type CatalogListing = Listing<headwater_stream::Catalog, EntryKey, Bytes>;

/// A stream of the changes of one subject of the catalog.
pub struct CatalogWatch {
    /// The list, if it was requested or the start cannot be continued; then the changes.
    pub listing: CatalogListing,
    /// Whether the list replaces the client's state, because its start could not be continued.
    pub starts_over: bool,
    /// Counts the stream against the bound on watchers, until it is dropped: to be held while the
    /// stream lasts.
    pub watching: Watching,
}

/// The lists with which streams begin, shared by streams of the same subject.
pub(crate) type CatalogSnapshots = SnapshotCache<headwater_stream::Catalog, Entries<EntryKey, Bytes>>;

impl Follow<'_> {
    /// Watches a subject of the catalog, from this node's own state. The caller checks the rights
    /// to the events. Nodes and tables have no list: their streams begin with an empty one.
    /// `encode` must be the same function in every call, because lists and events are shared. The
    /// session yields token 0 when there may be something to read; the caller reads once before its
    /// first wait.
    ///
    /// The stream starts over, with the list, if it cannot continue after its start. Reasons: the
    /// start is of another lineage, changes after it were compacted, or the principal's rights may
    /// have changed since. A start without an epoch also starts over if this node has not reached
    /// its index, or if the first change after its index is from before this lineage.
    ///
    /// # Errors
    ///
    /// Those of a serializable read; [`NodeError::TooManyRequests`] if the memory budget of states
    /// is exhausted; [`NodeError::TooManyWatchers`]; [`NodeError::NoLeader`] if this node does not
    /// learn its lineage in time; [`NodeError::MinIndexNotReached`] for an index of this lineage
    /// that this node does not reach in time.
    pub async fn catalog(
        self,
        ctx: &RequestContext,
        subject: CatalogSubject,
        start: WatchStart,
        session: &Arc<Session>,
        encode: Encode,
    ) -> Result<CatalogWatch, NodeError> {
        self.node.ready_to_read(ctx, Consistency::Serializable).await?;
        let watching = self.begin_watching(ctx)?;
        self.node.lineage_known(ctx).await?;
        // An index without a lineage may be of another one: it is not waited for.
        if let Some(position) = start.position().filter(|position| position.epoch.is_some())
            && !position.is_of_another_lineage(&self.node.inner.store.current().head())
        {
            // Another member may have been ahead, and its clients must not go back in time here.
            // The store's index is not enough: a list contains published commits only.
            let ctx = RequestContext { min_index: ctx.min_index.max(Some(position.index)), ..ctx.clone() };
            self.node.ready_to_read(&ctx, Consistency::Serializable).await?;
        }
        let after = match start {
            WatchStart::State { .. } => None,
            WatchStart::Now => Some(*self.node.inner.consensus.progress().applied().borrow()),
            // The principal may not have been allowed to see the changes in between.
            WatchStart::After(position) if self.rights_changed_since(ctx, position.index)? => None,
            WatchStart::After(position) => {
                let db = self.node.inner.store.current();
                let head = db.head();
                match position.resume(&head, head.compacted_index(), head.applied_index()) {
                    Resume::Continue => Some(position.index),
                    Resume::OtherLineage | Resume::Ahead | Resume::Compacted => None,
                }
            }
        };
        if let Some(index) = after {
            let feed = self.node.inner.follow.events.catalog();
            let subscription = feed.subscribe(subject, Start::After(index), session, 0)?;
            return Ok(CatalogWatch { listing: Listing::resumed(subscription, index), starts_over: false, watching });
        }
        let listing = self.list_catalog(ctx, subject, session, encode).await?;
        Ok(CatalogWatch { listing, starts_over: matches!(start, WatchStart::After(_)), watching })
    }

    /// Whether the principal may have got its present rights only after the command at `index`.
    fn rights_changed_since(self, ctx: &RequestContext, index: LogIndex) -> Result<bool, NodeError> {
        Ok(self.node.authorizer(ctx)?.has_changed_since(index))
    }

    /// Counters of the catalog's feed.
    pub fn catalog_stats(self) -> FeedStats {
        self.node.inner.follow.events.catalog().stats()
    }

    async fn list_catalog(
        self,
        ctx: &RequestContext,
        subject: CatalogSubject,
        session: &Arc<Session>,
        encode: Encode,
    ) -> Result<CatalogListing, NodeError> {
        // The applied index advances after the changes are published, so all of them can be read
        // here.
        let applied = *self.node.inner.consensus.progress().applied().borrow();
        let build = async || {
            let (subject, encode, share) =
                (subject.clone(), Arc::clone(&encode), self.node.inner.follow.memory.share());
            let work = move |view: &ReadView<'_>| Ok(Ok(entries_of(&state_of(view, &subject)?, &encode, share)));
            let read = self.node.read(false, ctx, work).await?;
            Ok::<_, NodeError>((read.index, read.value.ok_or(NodeError::TooManyRequests)?))
        };
        let snapshot = self.node.inner.follow.catalog.get(&subject, Instant::now(), build).await?;
        let effect = |event: &CatalogEvent| {
            let is_there = event.op == CatalogOp::Register;
            (key_of(event), is_there.then(|| encode(event)))
        };
        let listing = Listing::begin(snapshot, applied, session, ctx.deadline, LISTING_MERGED_CHANGES_MAX, effect);
        Ok(listing.await?)
    }

    /// Waits until a row of one of `subjects` has changed after `after`: the index of the state
    /// that the caller has read ([`Read::index`](crate::Read)). False if there was no change until
    /// `deadline`. Also true if the changes are unknown, because they were compacted or the state
    /// was replaced: read again. It does not poll.
    ///
    /// # Errors
    ///
    /// [`NodeError::Stopped`] when the node stops; [`NodeError::Storage`] if the disk failed.
    pub async fn wait_for_catalog(
        self,
        subjects: &[CatalogSubject],
        after: LogIndex,
        deadline: Instant,
    ) -> Result<bool, NodeError> {
        let feed = self.node.inner.follow.events.catalog();
        let session = Session::new();
        let mut subscriptions = Vec::with_capacity(subjects.len());
        for (token, subject) in subjects.iter().enumerate() {
            subscriptions.push(feed.subscribe(subject.clone(), Start::After(after), &session, token as u64)?);
        }
        let mut raised: Vec<usize> = (0..subscriptions.len()).collect();
        loop {
            for token in raised {
                match subscriptions[token].try_next() {
                    Ok(None) => {}
                    Ok(Some(_)) => return Ok(true),
                    // The changes are unknown: the caller must read the state.
                    Err(CloseReason::Compacted { .. } | CloseReason::EpochChanged | CloseReason::Reset) => {
                        return Ok(true);
                    }
                    Err(reason @ (CloseReason::Stopping | CloseReason::Failed(_))) => return Err(reason.into()),
                }
            }
            match tokio::time::timeout_at(deadline.into(), session.raised()).await {
                Ok(tokens) => raised = tokens.into_iter().map(|token| token as usize).collect(),
                Err(_) => return Ok(false),
            }
        }
    }
}

/// The state of a subject, as the events that lead to it; empty for nodes and tables.
fn state_of(view: &ReadView<'_>, subject: &CatalogSubject) -> Result<Vec<CatalogEvent>, StorageError> {
    let event = |topic, body| CatalogEvent { topic, op: CatalogOp::Register, key: "".into(), body };
    let instances = |topic, found: Vec<Arc<CheckServiceNode>>| {
        found.into_iter().map(|instance| event(topic, CatalogBody::Instance(instance))).collect()
    };
    Ok(match subject {
        CatalogSubject::Service(name) => instances(CatalogTopic::ServiceHealth, view.instances(name)?.value),
        CatalogSubject::EveryService => instances(CatalogTopic::ServiceHealth, view.all_instances()?.value),
        CatalogSubject::Connect(name) => {
            instances(CatalogTopic::ServiceHealthConnect, view.connect_instances(name)?.value)
        }
        CatalogSubject::EveryConnect => {
            instances(CatalogTopic::ServiceHealthConnect, view.all_connect_instances()?.value)
        }
        CatalogSubject::ServiceList => {
            let names = view.service_names()?.value;
            names.into_iter().map(|it| event(CatalogTopic::ServiceList, CatalogBody::Name(it.name.into()))).collect()
        }
        CatalogSubject::Node(_) | CatalogSubject::EveryNode | CatalogSubject::Table(_) => Vec::new(),
    })
}

/// The state in encoded form; `None` if the memory budget is exhausted.
fn entries_of(state: &[CatalogEvent], encode: &Encode, mut share: StateShare) -> Option<Entries<EntryKey, Bytes>> {
    let entry = |event| {
        let (key, encoded) = (key_of(event), encode(event));
        share.grow(key.0.len() + key.1.len() + encoded.len()).then_some((key, encoded))
    };
    let entries = state.iter().map(entry).collect::<Option<_>>()?;
    Some(Entries::new(entries, share))
}

fn key_of(event: &CatalogEvent) -> EntryKey {
    match &event.body {
        CatalogBody::Instance(instance) => (canonical(&instance.node.name), instance.service.id.clone()),
        CatalogBody::Name(name) => (name.to_string(), String::new()),
        CatalogBody::Node(node) => (canonical(&node.name), String::new()),
        CatalogBody::Table(table) => (format!("{table:?}"), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_stream::StateMemory;
    use headwater_types::limits::STATE_ENTRY_BYTES;

    #[test]
    fn a_list_without_memory_for_it_is_refused() {
        let body = CatalogBody::Name("web".into());
        let event = CatalogEvent { topic: CatalogTopic::ServiceList, op: CatalogOp::Register, key: "".into(), body };
        let encode: Encode = Arc::new(|_| Bytes::from_static(b"encoded"));
        let entry_bytes = STATE_ENTRY_BYTES + "web".len() + "encoded".len();
        let memory = StateMemory::new(2 * entry_bytes, || {});
        let list = |count| entries_of(&vec![event.clone(); count], &encode, memory.share());
        assert!(list(3).is_none());
        let held = list(1);
        assert!(held.is_some() && list(2).is_none());
        drop(held);
        assert_eq!(list(2).unwrap().len(), 2);
    }
}
