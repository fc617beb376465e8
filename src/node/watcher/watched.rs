//! One followed entity, shared by all its followers: its encoded state, and the changes of commits.
//!
//! Owns the sharing: an entity has one record for all its followers on this node. The changes of a
//! commit are computed and encoded once for the entity, and its state is listed once for all
//! streams that begin within a short time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::JoinError;

use super::space::{ElementData, Space};
use super::tree::{Changed, ElementChange, ElementState, Scope, add, differences};
use crate::{EntityError, NodeError, Position};
use headwater_storage::{ReadView, StateStore, StorageError};
use headwater_stream::{Entries, EventPublisher, Item, SnapshotCache, StateShare};
use headwater_types::LogIndex;
use headwater_types::entity::{parent, relative};
use headwater_types::limits::{ENTITY_STATE_BYTES_MAX, LISTING_KEPT};

/// A face's encoding of changes. All followers of an entity share the result.
pub trait ElementEncoder: Send + Sync + 'static {
    /// Encodes a change. With `closes`, the change is the last one of its group, and a client
    /// resumes after that position.
    fn encode(&self, change: &ElementChange, closes: Option<Position>) -> Bytes;

    /// Re-encodes a change that was encoded without a position: it now closes its group at
    /// `closes`.
    fn close(&self, encoded: Bytes, closes: Position) -> Bytes;
}

/// The state of an entity: each element, encoded as a change, by its name relative to the entity.
/// None of them closes the group.
pub(super) type Listing = Arc<Entries<String, Bytes>>;

/// A followed entity, with its cached states.
pub(super) struct Watched<S: Space> {
    /// Number under which each commit keeps its changes encoded for this entity
    /// ([`Commit::derived`](headwater_stream::Commit::derived)). Never used for another entity.
    id: u64,
    pub(super) space: Arc<S>,
    pub(super) scope: Scope,
    pub(super) encoder: Arc<dyn ElementEncoder>,
    pub(super) states: SnapshotCache<S::Topic, Listing>,
    pub(super) store: Arc<StateStore>,
}

/// The result of computing the changes of commits.
pub(super) enum Derived<T> {
    /// The changes of the commits.
    Done(T),
    /// The state after the commits cannot be read any more. The caller must derive the changes of
    /// these and all later commits, up to this index, together.
    Behind(LogIndex),
}

/// Largest item whose changes the calling thread computes, count of events. A blocking thread
/// computes those of a larger item, and all those of a space without [`Space::READS_LITTLE`].
pub(super) const INLINE_EVENTS_MAX: usize = 32;

impl<S: Space> Watched<S> {
    /// The encoded changes of one commit. The first follower that needs them computes them for all.
    pub(super) async fn group(self: &Arc<Self>, item: &Item<S::Topic>) -> Result<Derived<Arc<[Bytes]>>, StorageError> {
        let derived = item.commit().derived(self.id);
        if let Some(group) = derived.get() {
            return Ok(Derived::Done(Arc::clone(group)));
        }
        let mut behind = None;
        let made = derived
            .get_or_try_init(async || {
                let changes = if S::READS_LITTLE && item.len() <= INLINE_EVENTS_MAX {
                    self.changes(std::slice::from_ref(item), item.index())
                } else {
                    let (this, item) = (Arc::clone(self), item.clone());
                    let work = move || this.changes(std::slice::from_ref(&item), item.index());
                    match tokio::task::spawn_blocking(work).await.map_err(JoinError::try_into_panic) {
                        Ok(changes) => changes,
                        Err(Ok(panic)) => std::panic::resume_unwind(panic),
                        // The runtime stops, and this task with it.
                        Err(Err(_)) => std::future::pending().await,
                    }
                };
                match changes.map_err(Some)? {
                    Derived::Done((changes, position)) => {
                        let group = self.encode_group(&changes, Some(position));
                        item.commit().add_bytes(group.iter().map(Bytes::len).sum());
                        Ok(group)
                    }
                    Derived::Behind(index) => {
                        behind = Some(index);
                        Err(None)
                    }
                }
            })
            .await;
        match made {
            Ok(group) => Ok(Derived::Done(Arc::clone(group))),
            Err(Some(error)) => Err(error),
            Err(None) => Ok(Derived::Behind(behind.expect("invariant: set where there is no error"))),
        }
    }

    /// The combined changes of `items`, with the position `through`. `items` must be all commits of
    /// the subject from the first item on, up to and with `through`.
    pub(super) fn changes(
        &self,
        items: &[Item<S::Topic>],
        through: LogIndex,
    ) -> Result<Derived<(Vec<ElementChange>, Position)>, StorageError> {
        self.store.read(|view| {
            let compacted = view.head().compacted_index();
            if through < compacted {
                return Ok(Derived::Behind(compacted));
            }
            let first = items.first().map_or(through, Item::index);
            let before = LogIndex(first.get().saturating_sub(1));
            let changes = self.sum(view, items, (before >= compacted).then_some(before), through)?;
            Ok(Derived::Done((changes, position(view, through))))
        })
    }

    /// The combined changes of `items`, which must be all commits of the subject after `before`, up
    /// to and with `after`. `before` is `None` if that state cannot be read any more; `after` must
    /// be readable.
    pub(super) fn sum(
        &self,
        view: &ReadView<'_>,
        items: &[Item<S::Topic>],
        before: Option<LogIndex>,
        after: LogIndex,
    ) -> Result<Vec<ElementChange>, StorageError> {
        let mut changed = Changed::new();
        for item in items {
            for event in item.events() {
                let mut emit = |name: String, touched| add(&mut changed, &self.scope, &name, touched);
                self.space.touched(view, item.index(), event, &mut emit)?;
            }
        }
        differences(&*self.space, view, &self.scope, &changed, before, after)
    }

    /// Encodes changes as a group. With `closes`, the last change closes the group at that
    /// position.
    pub(super) fn encode_group(&self, changes: &[ElementChange], closes: Option<Position>) -> Arc<[Bytes]> {
        let last = changes.len().saturating_sub(1);
        let encode = |(number, change)| self.encoder.encode(change, closes.filter(|_| number == last));
        changes.iter().enumerate().map(encode).collect()
    }

    /// The state of the entity itself right after the command at `at`.
    pub(super) fn itself(&self, view: &ReadView<'_>, at: LogIndex) -> Result<ElementChange, StorageError> {
        let root = &self.scope.root;
        let state = match self.space.read(view, root, at)? {
            Some(data) => ElementState::Exists(data),
            None if self.space.has_below(view, root, at)? => ElementState::Exists(ElementData::Empty),
            None => ElementState::Missing,
        };
        Ok(ElementChange { element: String::new(), state })
    }

    /// Lists and encodes the state. Its memory is taken from `share`. The inner error is
    /// [`EntityError::TooLarge`], or [`NodeError::TooManyRequests`] if the memory budget is
    /// exhausted.
    pub(super) fn list(
        &self,
        view: &ReadView<'_>,
        mut share: StateShare,
    ) -> Result<Result<Listing, EntityError>, StorageError> {
        let mut found: BTreeMap<String, Bytes> = BTreeMap::new();
        let (mut bytes, mut has_capacity) = (0, true);
        let scope = &self.scope;
        let mut keep = |found: &mut BTreeMap<String, Bytes>, element: &str, data| {
            let change = ElementChange { element: element.to_owned(), state: ElementState::Exists(data) };
            let encoded = self.encoder.encode(&change, None);
            let entry_bytes = element.len() + encoded.len();
            bytes += entry_bytes;
            has_capacity = has_capacity && share.grow(entry_bytes);
            found.insert(change.element, encoded);
            bytes <= ENTITY_STATE_BYTES_MAX && has_capacity
        };
        let mut emit = |name: String, data: ElementData| {
            let Some(element) = relative(&name, &scope.root) else { return true };
            let mut goes_on = true;
            let mut above = parent(element);
            while let Some(here) = above
                && !found.contains_key(here)
            {
                if scope.shows(here) {
                    goes_on &= keep(&mut found, here, ElementData::Empty);
                }
                above = parent(here);
            }
            // A directory that also exists by itself keeps its data.
            if scope.shows(element) && !(data == ElementData::Empty && found.contains_key(element)) {
                goes_on &= keep(&mut found, element, data);
            }
            goes_on
        };
        self.space.list(view, &scope.root, scope.recursive, &mut emit)?;
        Ok(match (bytes <= ENTITY_STATE_BYTES_MAX, has_capacity) {
            (true, true) => Ok(Arc::new(Entries::new(found.into_iter().collect(), share))),
            (true, false) => Err(NodeError::TooManyRequests.into()),
            (false, _) => Err(EntityError::TooLarge),
        })
    }
}

/// An index with the lineage of the view.
pub(super) fn position(view: &ReadView<'_>, index: LogIndex) -> Position {
    Position { epoch: view.head().epoch, index }
}

/// The entities of one space that have followers, or had some lately.
pub(super) struct Registry<S: Space> {
    space: Arc<S>,
    entities: Mutex<HashMap<Scope, Arc<Watched<S>>>>,
}

/// The next [`Watched::id`], unique among the entities of all spaces.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl<S: Space + Default> Default for Registry<S> {
    fn default() -> Self {
        Self { space: Arc::default(), entities: Mutex::default() }
    }
}

impl<S: Space> Registry<S> {
    /// The entity of `scope`, known or new. `encoder` is used for a new one only.
    pub(super) fn get(
        &self,
        scope: Scope,
        encoder: Arc<dyn ElementEncoder>,
        events: &EventPublisher,
        store: &Arc<StateStore>,
    ) -> Arc<Watched<S>> {
        let mut entities = self.entities.lock();
        let new = |scope: &Scope| {
            Arc::new(Watched {
                id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
                space: Arc::clone(&self.space),
                scope: scope.clone(),
                encoder,
                states: SnapshotCache::new(Arc::clone(S::feed(events)), LISTING_KEPT),
                store: Arc::clone(store),
            })
        };
        match entities.get(&scope) {
            Some(known) => Arc::clone(known),
            None => {
                let watched = new(&scope);
                entities.insert(scope, Arc::clone(&watched));
                watched
            }
        }
    }

    /// Evicts every state that only the cache holds.
    pub(super) fn evict(&self) {
        let entities: Vec<_> = self.entities.lock().values().cloned().collect();
        for watched in entities {
            watched.states.evict(|listing| Arc::strong_count(listing) > 1);
        }
    }

    /// Evicts the states that were listed more than [`LISTING_KEPT`] ago. Drops the entities that
    /// then have neither followers nor cached states.
    pub(super) fn sweep(&self, now: Instant) {
        let mut gone = Vec::new();
        self.entities.lock().retain(|_, watched| {
            watched.states.sweep(now);
            let keep = Arc::strong_count(watched) > 1 || !watched.states.is_empty();
            if !keep {
                gone.push(Arc::clone(watched));
            }
            keep
        });
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::super::kv::KvSpace;
    use super::super::listing::Sending;
    use super::*;
    use headwater_storage::state::{AppliedState, StateOptions, Table};
    use headwater_stream::{FeedOptions, StateMemory, StatePoint};
    use headwater_types::StoreEpoch;
    use headwater_types::limits::STATE_ENTRY_BYTES;
    use headwater_types::{KeyValue, Term};

    /// Every change is encoded in ten bytes.
    struct TenBytes;

    impl ElementEncoder for TenBytes {
        fn encode(&self, _change: &ElementChange, _closes: Option<Position>) -> Bytes {
            Bytes::from_static(&[0; 10])
        }

        fn close(&self, encoded: Bytes, _closes: Position) -> Bytes {
            encoded
        }
    }

    #[test]
    fn states_of_different_entities_share_one_bound_for_as_long_as_they_are_held() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(StateStore::open(dir.path(), &StateOptions::default()).unwrap());
        let db = store.current();
        let mut txn = store.begin(&db).unwrap();
        let index = LogIndex(1);
        txn.begin_command(index, 0);
        txn.put(Table::Kv, KeyValue { key: "a/b/c".into(), ..KeyValue::default() }, None);
        txn.end_command();
        txn.set_applied(&AppliedState { term: Term(1), index, membership: None });
        txn.commit().unwrap();
        let view = db.view().unwrap();
        let (registry, events) =
            (Registry::<KvSpace>::default(), EventPublisher::new(StatePoint::default(), FeedOptions::default()));
        let watched = |root: &str| {
            let scope = Scope { root: root.to_owned(), recursive: true };
            registry.get(scope, Arc::new(TenBytes), &events, &store)
        };
        // The elements of `outer` are "", "b" and "b/c", those of `inner` "" and "c".
        let (outer, inner) = (3 * (STATE_ENTRY_BYTES + 10) + 4, 2 * (STATE_ENTRY_BYTES + 10) + 1);
        let memory = StateMemory::new(outer + inner - 1, || {});
        let list = |root: &str| watched(root).list(&view, memory.share()).unwrap();
        let refused = Some(NodeError::TooManyRequests.into());
        let held = list("a").unwrap();
        assert_eq!(list("a/b").err(), refused);
        drop(held);
        let held = list("a/b").unwrap();
        assert_eq!(list("a").err(), refused);
        // Each follower pays for the changes since then.
        let at = Position { epoch: Some(StoreEpoch(1)), index };
        let changed = |name: &str| vec![ElementChange { element: name.to_owned(), state: ElementState::Missing }];
        let send = |changes: &[ElementChange]| Sending::new(Arc::clone(&held), changes, &TenBytes, at);
        let sent: Vec<_> = std::iter::from_fn(|| send(&changed("c")).ok()).collect();
        assert_eq!(sent.len(), (outer - 1) / (STATE_ENTRY_BYTES + 1));
        drop((sent, held));
        assert!(list("a").is_ok());
    }
}
