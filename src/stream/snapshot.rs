//! The snapshots of subjects: built once, kept for a while, spliced to the live list, shared by all
//! readers.
//!
//! Owns the hand-off for streams that begin with a state. The order is: hold the live list, *then*
//! read a view and build the snapshot, then read the list from the held link and leave out the
//! commits that the view includes. Any other order gives gaps or duplicates. Invariant: a snapshot
//! pins its contents and a link of the list, no node.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::feed::{Feed, ListGuard};
use super::link::Link;
use super::session::Session;
use super::subscription::{CloseReason, Subscription};
use super::topic::Topic;
use headwater_types::LogIndex;

/// The state of one subject, and the link of the live list where its later commits begin.
pub struct Snapshot<T: Topic, S> {
    /// Index of the last log entry that the contents include.
    pub index: LogIndex,
    /// The state of the subject, in the form that the builder of the snapshot chose.
    pub contents: S,
    subject: T::Subject,
    resume: Arc<Link<T>>,
    generation: u64,
    hold: ListGuard<T>,
}

impl<T: Topic, S> Snapshot<T, S> {
    /// Subscribes to the commits after the snapshot. `session` yields `token` as for
    /// [`Feed::subscribe`].
    ///
    /// # Errors
    ///
    /// The reason for which the feed was closed.
    pub fn subscribe(&self, session: &Arc<Session>, token: u64) -> Result<Subscription<T>, CloseReason> {
        let resume = Arc::clone(&self.resume);
        self.hold.feed().subscribe_at(self.subject.clone(), resume, self.index, session, token)
    }
}

type Built<T, S> = Arc<OnceCell<(Instant, Arc<Snapshot<T, S>>)>>;

/// One pending request for a snapshot. If the build failed or was abandoned, the last request to be
/// dropped removes the cache entry.
struct PendingRequest<'a, T: Topic, S> {
    cache: &'a SnapshotCache<T, S>,
    subject: &'a T::Subject,
    cell: Built<T, S>,
}

impl<T: Topic, S> Drop for PendingRequest<'_, T, S> {
    fn drop(&mut self) {
        if self.cell.initialized() {
            return;
        }
        // The cell is released under the lock under which it is handed out, so exactly one of the
        // requests finds itself the last.
        let mut entries = self.cache.entries.lock();
        self.cell = Built::default();
        let is_left = |cell: &Built<T, S>| !cell.initialized() && Arc::strong_count(cell) == 1;
        if entries.get(self.subject).is_some_and(is_left) {
            entries.remove(self.subject);
        }
    }
}

/// Cache of recently built snapshots, one for each subject. It reads no clock: callers pass the
/// time. A snapshot that is never asked for again stays until [`sweep`](Self::sweep) or
/// [`evict`](Self::evict) removes it.
pub struct SnapshotCache<T: Topic, S> {
    feed: Arc<Feed<T>>,
    ttl: Duration,
    entries: Mutex<HashMap<T::Subject, Built<T, S>>>,
}

impl<T: Topic, S> SnapshotCache<T, S> {
    /// A cache that reuses snapshots for `ttl`. With zero it reuses none; concurrent requests still
    /// share one build.
    pub fn new(feed: Arc<Feed<T>>, ttl: Duration) -> Self {
        Self { feed, ttl, entries: Mutex::default() }
    }

    /// The snapshot of `subject`: a cached one, one that is being built, or a new one by `build`.
    /// `build` returns the index of the view that it read, and the contents.
    ///
    /// # Errors
    ///
    /// Those of `build`, and the reason for which the feed was closed. A failure is not cached: the
    /// next request builds again.
    pub async fn get<E: From<CloseReason>>(
        &self,
        subject: &T::Subject,
        now: Instant,
        build: impl AsyncFnOnce() -> Result<(LogIndex, S), E>,
    ) -> Result<Arc<Snapshot<T, S>>, E> {
        let request = PendingRequest { cache: self, subject, cell: self.entry(subject, now) };
        let make = async || {
            let (hold, resume, generation) = self.feed.hold(subject.clone())?;
            let (index, contents) = build().await?;
            let snapshot = Snapshot { index, contents, subject: subject.clone(), resume, generation, hold };
            Ok::<_, E>((now, Arc::new(snapshot)))
        };
        let (_, snapshot) = request.cell.get_or_try_init(make).await?;
        Ok(Arc::clone(snapshot))
    }

    /// Evicts snapshots whose time to live is over or that are from before a reset.
    /// [`get`](Self::get) replaces such a snapshot of its own subject only.
    pub fn sweep(&self, now: Instant) {
        let generation = self.feed.generation();
        let mut gone = Vec::new();
        self.entries.lock().retain(|_, cell| {
            // A snapshot that is being built stays.
            let keep = cell.get().is_none_or(|built| self.is_good(built, now, generation));
            if !keep {
                gone.push(Arc::clone(cell));
            }
            keep
        });
        drop(gone);
    }

    /// Evicts the snapshots that only the cache holds. Evicting one that is in use would free
    /// nothing, and the next request would build it again. `is_held` says whether the contents are
    /// in use by other references than the snapshot.
    pub fn evict(&self, is_held: impl Fn(&S) -> bool) {
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

    /// Whether there is no entry, built or being built.
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
        // Dropped after the lock is released: the snapshot's hold takes the feed's lock.
        drop(old);
        cell
    }

    fn is_good(&self, (made, snapshot): &(Instant, Arc<Snapshot<T, S>>), now: Instant, generation: u64) -> bool {
        snapshot.generation == generation && now.saturating_duration_since(*made) < self.ttl
    }
}
