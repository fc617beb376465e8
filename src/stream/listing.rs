//! A subscription that begins with a list: a shared snapshot, brought up to date for each reader.
//!
//! Owns the step between a snapshot and the changes after it. The snapshot may be some seconds old.
//! Changes since then are merged into the list, so that no reader begins with an older state than
//! this node has already shown. Invariant: the list, followed by every delivered change, gives the
//! state of the subject. No change is delivered twice.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use super::commit::Item;
use super::session::Session;
use super::snapshot::Snapshot;
use super::state_memory::StateShare;
use super::subscription::{CloseReason, Subscription};
use super::topic::Topic;
use headwater_types::LogIndex;

/// Contents of a snapshot for a listing: entries with their keys, each encoded, and their share of
/// memory.
pub struct Entries<K, V> {
    entries: Box<[(K, V)]>,
    share: StateShare,
}

impl<K, V> Entries<K, V> {
    /// Takes the entries. `share` has grown for each of them already.
    pub fn new(entries: Vec<(K, V)>, share: StateShare) -> Self {
        Self { entries: entries.into(), share }
    }

    /// A new, empty share of the same budget, for the changes since the snapshot.
    pub fn share_of_changes(&self) -> StateShare {
        self.share.another()
    }
}

impl<K, V> Deref for Entries<K, V> {
    type Target = [(K, V)];

    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}

/// Effect of a change on a list: the key, and its new entry. `None` removes the entry.
pub type Effect<K, V> = (K, Option<V>);

/// A list, then changes. Reading never waits. When there may be more to read, the session yields
/// the token of the subscription.
pub struct Listing<T: Topic, K, V> {
    list: Option<List<T, K, V>>,
    subscription: Subscription<T>,
    /// The list is complete once the subscription has passed this index.
    listed_through: LogIndex,
}

/// Decides by the key of an entry whether the reader gets the entry: true if so.
pub type EntryFilter<K> = Box<dyn Fn(&K) -> bool + Send + Sync>;

/// The unsent rest of a list.
struct List<T: Topic, K, V> {
    snapshot: Arc<Snapshot<T, Entries<K, V>>>,
    next: usize,
    /// Entries that changed since the snapshot; `None` was removed.
    changed: BTreeMap<K, Option<V>>,
    /// Whether this reader gets an entry; `None` for all.
    shows: Option<EntryFilter<K>>,
    _share: StateShare,
}

/// One step of a listing.
#[derive(Clone, Debug)]
pub enum ListingStep<T: Topic, V> {
    /// An entry of the list. Unchanged entries come first, in the snapshot's order, then changed
    /// ones in the order of their keys.
    Listed(V),
    /// The list is complete. Together with the changes delivered so far it is the state at this
    /// index.
    EndOfList(LogIndex),
    /// Changes of one command: after the list or, if they were not merged, before its end.
    Changed(Item<T>),
}

/// The reason for which a listing could not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListingError {
    /// The changes since the snapshot could not be read before the deadline.
    Timeout,
    /// The memory budget has no capacity for the changes since the snapshot.
    NoCapacity,
    /// The subscription has ended.
    Closed(CloseReason),
}

impl From<CloseReason> for ListingError {
    fn from(reason: CloseReason) -> Self {
        Self::Closed(reason)
    }
}

impl<T: Topic, K: Ord, V: Clone + AsRef<[u8]>> Listing<T, K, V> {
    /// Begins with the changes after the position `after`, without a list. `subscription` yields
    /// these changes.
    pub fn resumed(subscription: Subscription<T>, after: LogIndex) -> Self {
        Self { list: None, subscription, listed_through: after }
    }

    /// Begins with a list of the state at `through` or, if the snapshot is newer, at the snapshot's
    /// index. The session yields token 0. `effect` maps a change to its effect on the list. Merging
    /// stops at the commit that brings the changed entries to `changes_max` or more; the remaining
    /// changes are delivered before the end of the list.
    ///
    /// # Errors
    ///
    /// [`ListingError`].
    pub async fn begin(
        snapshot: Arc<Snapshot<T, Entries<K, V>>>,
        through: LogIndex,
        session: &Arc<Session>,
        deadline: Instant,
        changes_max: usize,
        effect: impl Fn(&T::Event) -> Effect<K, V>,
    ) -> Result<Self, ListingError> {
        let mut subscription = snapshot.subscribe(session, 0)?;
        let listed_through = through.max(snapshot.index);
        let mut changed = BTreeMap::new();
        let mut share = snapshot.contents.share_of_changes();
        loop {
            while changed.len() < changes_max
                && let Some(item) = subscription.try_next_through(listed_through)?
            {
                for (key, entry) in item.events().map(&effect) {
                    let len = |entry: &Option<V>| entry.as_ref().map_or(0, |entry| entry.as_ref().len());
                    if let Some(replaced) = changed.remove(&key) {
                        share.shrink(len(&replaced));
                    }
                    if !share.grow(len(&entry)) {
                        return Err(ListingError::NoCapacity);
                    }
                    changed.insert(key, entry);
                }
            }
            if changed.len() >= changes_max || subscription.is_through(listed_through) {
                break;
            }
            // Some of the changes may have left the window: they are read from history.
            let raised = tokio::time::timeout_at(deadline.into(), session.raised()).await;
            raised.map_err(|_| ListingError::Timeout)?;
        }
        Ok(Self {
            list: Some(List { snapshot, next: 0, changed, shows: None, _share: share }),
            subscription,
            listed_through,
        })
    }

    /// Leaves out the entries of the list for which `shows` is false. The snapshot stays shared;
    /// the reader filters the changes itself.
    pub fn show_only(&mut self, shows: EntryFilter<K>) {
        if let Some(list) = &mut self.list {
            list.shows = Some(shows);
        }
    }

    /// The index of the listed state. Without a list: the position before the first change.
    pub fn index(&self) -> LogIndex {
        self.listed_through
    }

    /// Whether the end of the list is still to come. Until then, the delivered steps are parts of
    /// the state at [`index`](Self::index). Always false after [`resumed`](Self::resumed).
    pub fn is_listing(&self) -> bool {
        self.list.is_some()
    }

    /// The next step. `None` if there is nothing now. When there may be more, the session yields
    /// the token of the subscription.
    ///
    /// # Errors
    ///
    /// The reason for which the subscription has ended.
    pub fn try_next(&mut self) -> Result<Option<ListingStep<T, V>>, CloseReason> {
        if let Some(list) = &mut self.list {
            if let Some(entry) = list.next() {
                return Ok(Some(ListingStep::Listed(entry)));
            }
            // Changes that were not merged come before the end of the list.
            if let Some(item) = self.subscription.try_next_through(self.listed_through)? {
                return Ok(Some(ListingStep::Changed(item)));
            }
            if self.subscription.is_through(self.listed_through) {
                self.list = None;
                return Ok(Some(ListingStep::EndOfList(self.listed_through)));
            }
            return Ok(None);
        }
        Ok(self.subscription.try_next()?.map(ListingStep::Changed))
    }
}

impl<T: Topic, K: Ord, V: Clone> List<T, K, V> {
    fn shows(&self, key: &K) -> bool {
        self.shows.as_ref().is_none_or(|shows| shows(key))
    }

    fn next(&mut self) -> Option<V> {
        while let Some((key, entry)) = self.snapshot.contents.get(self.next) {
            self.next += 1;
            if !self.changed.contains_key(key) && self.shows(key) {
                return Some(entry.clone());
            }
        }
        while let Some((key, entry)) = self.changed.pop_first() {
            if entry.is_some() && self.shows(&key) {
                return entry;
            }
        }
        None
    }
}
