//! The snapshots of subjects: built once, kept for a while, spliced to the live list, shared by all who ask.
//!
//! Owns the hand-off for those who begin with a state: hold the live list, *then* build the snapshot from a view, then read
//! the list from where it was held and leave out what the view has. In any other order there are gaps or duplicates.
//! Invariant: a snapshot pins its contents and a place in the list, nothing of the list itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::feed::{Feed, Hold};
use super::link::Link;
use super::session::Session;
use super::subscription::{CloseReason, Subscription};
use super::topic::Topic;
use headwater_types::LogIndex;

/// The state of one subject, and where the live list goes on.
pub struct Snapshot<T: Topic, S> {
    /// The last entry that the contents include.
    pub index: LogIndex,
    /// Whatever the topic makes of the state.
    pub contents: S,
    subject: T::Subject,
    resume: Arc<Link<T>>,
    generation: u64,
    hold: Hold<T>,
}

impl<T: Topic, S> Snapshot<T, S> {
    /// Subscribes to what comes after the snapshot.
    ///
    /// # Errors
    ///
    /// The reason for which the feed has ended.
    pub fn subscribe(&self, session: &Arc<Session>, token: u64) -> Result<Subscription<T>, CloseReason> {
        let resume = Arc::clone(&self.resume);
        self.hold.feed().subscribe_at(self.subject.clone(), resume, self.index, session, token)
    }
}

type Built<T, S> = Arc<OnceCell<(Instant, Arc<Snapshot<T, S>>)>>;

/// Who asks for a snapshot. The last one to leave takes the entry along if nothing was built: failed, or given up.
struct Asking<'a, T: Topic, S> {
    cache: &'a SnapshotCache<T, S>,
    subject: &'a T::Subject,
    cell: Built<T, S>,
}

impl<T: Topic, S> Drop for Asking<'_, T, S> {
    fn drop(&mut self) {
        if self.cell.initialized() {
            return;
        }
        // Let go of under the lock under which it is handed out: so one of those who leave is the last.
        let mut entries = self.cache.entries.lock();
        self.cell = Built::default();
        let is_left = |cell: &Built<T, S>| !cell.initialized() && Arc::strong_count(cell) == 1;
        if entries.get(self.subject).is_some_and(is_left) {
            entries.remove(self.subject);
        }
    }
}

/// Snapshots that were built lately. Time comes from the caller.
pub struct SnapshotCache<T: Topic, S> {
    feed: Arc<Feed<T>>,
    ttl: Duration,
    entries: Mutex<HashMap<T::Subject, Built<T, S>>>,
}

impl<T: Topic, S> SnapshotCache<T, S> {
    /// A cache that keeps snapshots for `ttl`; zero keeps none, but those who ask while one is built still share it.
    pub fn new(feed: Arc<Feed<T>>, ttl: Duration) -> Self {
        Self { feed, ttl, entries: Mutex::default() }
    }

    /// The snapshot of `subject`: one that is kept, one that is being built, or a new one by `build`, which gives the index
    /// of the view that it read, and what it found.
    ///
    /// # Errors
    ///
    /// Those of `build`, and the reason for which the feed has ended. A failure is not kept: the next one tries again.
    pub async fn get<E: From<CloseReason>>(
        &self,
        subject: &T::Subject,
        now: Instant,
        build: impl AsyncFnOnce() -> Result<(LogIndex, S), E>,
    ) -> Result<Arc<Snapshot<T, S>>, E> {
        let asking = Asking { cache: self, subject, cell: self.entry(subject, now) };
        let make = async || {
            let (hold, resume, generation) = self.feed.hold(subject.clone())?;
            let (index, contents) = build().await?;
            let snapshot = Snapshot { index, contents, subject: subject.clone(), resume, generation, hold };
            Ok::<_, E>((now, Arc::new(snapshot)))
        };
        let (_, snapshot) = asking.cell.get_or_try_init(make).await?;
        Ok(Arc::clone(snapshot))
    }

    /// Lets go of what is too old or of before a reset. [`get`](Self::get) does it by itself for what it is asked for.
    pub fn sweep(&self, now: Instant) {
        let generation = self.feed.generation();
        let mut gone = Vec::new();
        self.entries.lock().retain(|_, cell| {
            // What somebody still asks for stays.
            let keep = cell.get().is_none_or(|built| self.is_good(built, now, generation));
            if !keep {
                gone.push(Arc::clone(cell));
            }
            keep
        });
        drop(gone);
    }

    /// Lets go of what nobody but the cache holds. What somebody reads stays: letting go of it would free nothing, and make the
    /// next one build it again. `is_held` tells of contents that are held by themselves.
    pub fn let_go(&self, is_held: impl Fn(&S) -> bool) {
        let mut gone = Vec::new();
        self.entries.lock().retain(|_, cell| {
            let keep =
                cell.get().is_none_or(|(_, snapshot)| Arc::strong_count(snapshot) > 1 || is_held(&snapshot.contents));
            if !keep {
                gone.push(Arc::clone(cell));
            }
            keep
        });
        drop(gone);
    }

    /// Whether it keeps nothing.
    pub fn is_empty(&self) -> bool {
        self.entries.lock().is_empty()
    }

    fn entry(&self, subject: &T::Subject, now: Instant) -> Built<T, S> {
        let generation = self.feed.generation();
        let mut entries = self.entries.lock();
        if let Some(cell) = entries.get(subject)
            && cell.get().is_none_or(|built| self.is_good(built, now, generation))
        {
            return Arc::clone(cell);
        }
        let cell = Built::<T, S>::default();
        let old = entries.insert(subject.clone(), Arc::clone(&cell));
        drop(entries);
        // Letting go of it takes the feed's lock.
        drop(old);
        cell
    }

    fn is_good(&self, (made, snapshot): &(Instant, Arc<Snapshot<T, S>>), now: Instant, generation: u64) -> bool {
        snapshot.generation == generation && now.saturating_duration_since(*made) < self.ttl
    }
}
