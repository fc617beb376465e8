//! One commit as a topic sees it, and the part of it that one subject selects.
//!
//! Invariant: the derived data of a [`Commit`] is made once. Every stream that delivers this
//! [`Commit`] shares it by reference. Catch-up makes a new one from history.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::topic::Topic;
use headwater_types::{CommandEvents, LogIndex, Revision};

/// The changes of one command, as one topic sees it.
pub struct Commit<T: Topic> {
    index: LogIndex,
    revision: Option<Revision>,
    events: Arc<[T::Event]>,
    memos: OnceLock<Box<[T::Memo]>>,
    derived: Mutex<Vec<(u64, Derived)>>,
    bytes: usize,
    added: Mutex<Added>,
}

/// The slot for an encoding of a whole commit for one purpose, in parts; filled once.
pub type Derived = Arc<OnceCell<Arc<[Bytes]>>>;

/// Memory of the data derived from a commit, beyond [`Topic::cost_bytes`].
#[derive(Default)]
struct Added {
    bytes: usize,
    /// The counter of the window or chunk cache that keeps the commit; `None` if neither keeps it.
    tally: Option<Arc<AtomicUsize>>,
}

impl<T: Topic> Commit<T> {
    /// The commit of one command as the topic sees it; `None` if the command changed nothing of the
    /// topic.
    pub fn new(commit: &CommandEvents) -> Option<Self> {
        let events = T::events(commit);
        if events.is_empty() {
            return None;
        }
        let bytes = events.iter().map(T::cost_bytes).sum();
        Some(Self {
            index: commit.index,
            revision: commit.revision,
            events,
            memos: OnceLock::new(),
            derived: Mutex::default(),
            bytes,
            added: Mutex::default(),
        })
    }

    /// Log index of the command.
    pub fn index(&self) -> LogIndex {
        self.index
    }

    /// The KV revision that the command made; `None` if it changed no KV key.
    pub fn revision(&self) -> Option<Revision> {
        self.revision
    }

    /// All changes of the command in this topic, in order.
    pub fn events(&self) -> &[T::Event] {
        &self.events
    }

    /// Approximate memory, bytes, as [`Topic::cost_bytes`] counts it. Derived data beyond that is
    /// not included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The derived data of the event at `position` of [`events`](Self::events), shared by all
    /// readers.
    pub(super) fn memo(&self, position: usize) -> &T::Memo {
        let memos = self.memos.get_or_init(|| self.events.iter().map(|_| T::Memo::default()).collect());
        &memos[position]
    }

    /// The slot for the encoding of the whole commit for one purpose, shared by all its readers. A
    /// purpose's number is never used for another purpose. The code that fills the slot reports its
    /// memory to [`add_bytes`](Self::add_bytes).
    pub fn derived(&self, purpose: u64) -> Derived {
        let mut derived = self.derived.lock();
        if let Some((_, found)) = derived.iter().find(|(number, _)| *number == purpose) {
            return Arc::clone(found);
        }
        let new = Derived::default();
        derived.push((purpose, Arc::clone(&new)));
        new
    }

    /// Counts `bytes` more of derived data, beyond [`Topic::cost_bytes`].
    pub fn add_bytes(&self, bytes: usize) {
        let mut added = self.added.lock();
        added.bytes += bytes;
        if let Some(tally) = &added.tally {
            tally.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts the derived data's memory in `tally`: the present amount, and later additions.
    pub(super) fn count_in(&self, tally: &Arc<AtomicUsize>) {
        let mut added = self.added.lock();
        tally.fetch_add(added.bytes, Ordering::Relaxed);
        added.tally = Some(Arc::clone(tally));
    }

    /// Takes the commit's derived data out of its tally; later additions are not counted.
    pub(super) fn count_out(&self) {
        let mut added = self.added.lock();
        if let Some(tally) = added.tally.take() {
            tally.fetch_sub(added.bytes, Ordering::Relaxed);
        }
    }
}

impl<T: Topic> fmt::Debug for Commit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Commit<{}>({}, {} events)", T::NAME, self.index, self.events.len())
    }
}

/// The events of one commit that match one subject; never empty.
pub struct Item<T: Topic> {
    commit: Arc<Commit<T>>,
    picks: EventPositions,
}

#[derive(Clone, Debug)]
enum EventPositions {
    All,
    /// Positions of the events in the commit, ascending.
    Some(Arc<[u32]>),
}

impl<T: Topic> Clone for Item<T> {
    fn clone(&self) -> Self {
        Self { commit: Arc::clone(&self.commit), picks: self.picks.clone() }
    }
}

impl<T: Topic> fmt::Debug for Item<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item").field("commit", &self.commit).field("picks", &self.picks).finish()
    }
}

impl<T: Topic> Item<T> {
    /// The events of `commit` at the positions `picks`, which are ascending and not empty.
    pub(super) fn of(commit: &Arc<Commit<T>>, picks: &[u32]) -> Self {
        let all = picks.len() == commit.events.len();
        Self {
            commit: Arc::clone(commit),
            picks: if all { EventPositions::All } else { EventPositions::Some(picks.into()) },
        }
    }

    /// The events of `commit` that belong to `subject`; `None` if there are none.
    pub(super) fn select(commit: &Arc<Commit<T>>, subject: &T::Subject) -> Option<Self> {
        if let [event] = &*commit.events {
            return T::matches(subject, event).then(|| Self { commit: Arc::clone(commit), picks: EventPositions::All });
        }
        let wanted = |(position, event)| T::matches(subject, event).then_some(position as u32);
        let picks: Vec<u32> = commit.events.iter().enumerate().filter_map(wanted).collect();
        (!picks.is_empty()).then(|| Self::of(commit, &picks))
    }

    /// The whole commit, other subjects' events included.
    pub fn commit(&self) -> &Arc<Commit<T>> {
        &self.commit
    }

    /// Log index of the command that made the commit.
    pub fn index(&self) -> LogIndex {
        self.commit.index
    }

    /// Number of events of the item.
    #[expect(clippy::len_without_is_empty, reason = "an item is never empty")]
    pub fn len(&self) -> usize {
        match &self.picks {
            EventPositions::All => self.commit.events.len(),
            EventPositions::Some(picks) => picks.len(),
        }
    }

    /// Heap memory of the list of matching positions, without the commit, bytes; 0 if every event
    /// of the commit matches.
    pub(super) fn picks_bytes(&self) -> usize {
        match &self.picks {
            EventPositions::All => 0,
            EventPositions::Some(picks) => 2 * size_of::<usize>() + size_of_val::<[u32]>(picks),
        }
    }

    /// Positions of the item's events in [`Commit::events`], ascending.
    pub fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        let picked = match &self.picks {
            EventPositions::All => None,
            EventPositions::Some(picks) => Some(picks),
        };
        (0..self.len()).map(move |at| picked.map_or(at, |picks| picks[at] as usize))
    }

    /// The item's events, in order.
    pub fn events(&self) -> impl Iterator<Item = &T::Event> + '_ {
        self.positions().map(|position| &self.commit.events[position])
    }
}
