//! The live feed of one topic: the registry of subscriptions, and the step from a commit to their
//! lists.
//!
//! Owns the registry and the window, under one lock. The lock is held for look-ups and appends
//! only: never while anything is read from history, encoded, sent, awaited or freed in bulk.
//! Invariant: each live list has all its commits up to `published`, or was cut by a reset.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;

use super::catch_up::{CatchUp, History, ScanLimits};
use super::commit::{Commit, Item};
use super::link::Link;
use super::publisher::StatePoint;
use super::session::{Session, Waiter};
use super::slab::Slab;
use super::subscription::{CloseReason, CommitSource, Subscription};
use super::topic::{SubjectIndex, Topic};
use super::window::{Entry, Window};
use headwater_types::{CommandEvents, LogIndex};

/// Most commits that are published under one hold of the lock, count.
const LOCK_BATCH: usize = 64;
/// Most subscribers that the waking task wakes between two yields, count.
const WAKE_BATCH: usize = 256;
/// Most commits that a lagging reader takes from the window under one hold of the lock, count:
/// publishing waits meanwhile.
const REJOIN_BATCH: usize = 128;

/// Bounds of a feed.
#[derive(Clone, Copy, Debug)]
pub struct FeedOptions {
    /// Most commits in the window, count. Readers further behind read from history.
    pub window_items_max: usize,
    /// Most memory of the commits in the window, bytes, with their derived data and their nodes in
    /// the lists of subjects. Data derived from the kept chunks of history may take as much again.
    pub window_bytes_max: usize,
    /// Bounds of one step of catch-up. A stalled reader pins at most one step.
    pub scan: ScanLimits,
    /// Most subscribers of a subject that the publisher itself wakes, count. If there are more, the
    /// task of [`Feed::wake_readers`] wakes all of them, so that many readers do not delay commits.
    pub inline_wakes_max: usize,
}

impl Default for FeedOptions {
    fn default() -> Self {
        Self {
            window_items_max: 65_536,
            window_bytes_max: 64 * 1024 * 1024,
            scan: ScanLimits::default(),
            inline_wakes_max: 16,
        }
    }
}

/// The first commit of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The first commit that is published after the call.
    Now,
    /// The first commit after this index. The subscriber has all commits up to it.
    After(LogIndex),
}

/// Counters of a feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedStats {
    /// Subscriptions now.
    pub subscriptions: u64,
    /// Subjects with a subscription or a snapshot now.
    pub subjects: u64,
    /// Subscriptions that catch up from the window or from history now.
    pub lagging: u64,
    /// Times that a subscription left its live list, ever: its next commit had left the window, or
    /// a reset had cut the list.
    pub fell_behind: u64,
    /// Commits in the window now.
    pub window_items: u64,
    /// Bytes that the window pins now.
    pub window_bytes: u64,
    /// Scans of history for lagging readers, ever.
    pub scans: u64,
    /// Requests that these scans answered, ever. Exceeds `scans` if readers shared scans.
    pub scans_answered: u64,
}

/// The live feed of one topic.
///
/// Publishing and lagging readers share its lock. Readers of the live lists do not take it. A
/// lagging reader copies at most 128 commits at a time under it, also if the options allow more.
pub struct Feed<T: Topic> {
    core: Mutex<Core<T>>,
    pub(super) options: FeedOptions,
    pub(super) catch_up: CatchUp<T>,
    pub(super) lagging: AtomicU64,
    pub(super) fell_behind: AtomicU64,
    /// Notified when the task must wake the readers of a subject, and when the feed is dropped.
    wake_signal: Arc<Notify>,
}

struct Core<T: Topic> {
    index: T::Index,
    subjects: Slab<Subject<T>>,
    subscriptions: usize,
    /// Number of [`ListGuard`]s of all subjects.
    holds: usize,
    window: Window<T>,
    published: StatePoint,
    /// Log index of the last published commit, with or without events of this topic, or of a later
    /// reset.
    seen: LogIndex,
    /// Number of resets. The cache hands out no snapshot from before the last one.
    generation: u64,
    closed: Option<CloseReason>,
    /// Slots of the subjects that the waking task serves, in turn, so that a subject with a commit
    /// at every step does not starve the others.
    wake_queue: VecDeque<usize>,
    /// Scratch: slots of the subjects that the current commit concerns.
    concerned: Vec<usize>,
    /// Slots of the subjects that the current batch concerns.
    touched: Vec<usize>,
}

struct Subject<T: Topic> {
    subject: T::Subject,
    tail: Arc<Link<T>>,
    waiters: Slab<Arc<Waiter>>,
    holds: usize,
    /// Scratch: positions of the current commit's events that match the subject.
    picks: SmallVec<[u32; 4]>,
    is_touched: bool,
    is_in_wake_queue: bool,
}

/// The window's answer to a lagging reader.
pub(super) enum WindowAnswer<T: Topic> {
    /// All commits that the reader missed, and the end of the live list, from which it continues.
    Live(Vec<Arc<Commit<T>>>, Arc<Link<T>>),
    /// The first of the commits that the reader missed. More follow.
    More(Vec<Arc<Commit<T>>>),
    /// The window does not reach back to the reader's position.
    OutOfReach,
    /// The feed is closed.
    Closed(CloseReason),
}

impl<T: Topic> Feed<T> {
    /// A feed for a state that is at `point`.
    pub fn new(point: StatePoint, options: FeedOptions) -> Arc<Self> {
        let core = Core {
            index: T::Index::default(),
            subjects: Slab::default(),
            subscriptions: 0,
            holds: 0,
            window: Window::new(point.index, options.window_items_max, options.window_bytes_max),
            published: point,
            seen: point.index,
            generation: 0,
            closed: None,
            wake_queue: VecDeque::new(),
            concerned: Vec::new(),
            touched: Vec::new(),
        };
        Arc::new(Self {
            core: Mutex::new(core),
            options,
            catch_up: CatchUp::default(),
            lagging: AtomicU64::new(0),
            fell_behind: AtomicU64::new(0),
            wake_signal: Arc::default(),
        })
    }

    /// The point that the feed has reached: that of the last published commit with events of this
    /// topic, or of a later reset. Each list has its commits up to there, or was cut by the reset.
    pub fn published(&self) -> StatePoint {
        self.core.lock().published
    }

    /// Appends commits, in log order, to the lists of the subjects that they concern. Wakes the
    /// readers of these lists; the readers of a subject with many are woken by the task of
    /// [`wake_readers`](Self::wake_readers).
    pub fn publish(&self, commits: &[CommandEvents]) {
        let mut evicted = Vec::new();
        for batch in commits.chunks(LOCK_BATCH) {
            let mut wake: SmallVec<[Arc<Waiter>; 16]> = SmallVec::new();
            let mut queued = false;
            {
                let mut core = self.core.lock();
                let core = &mut *core;
                for commit in batch {
                    core.publish(commit, &mut evicted);
                }
                for slot in std::mem::take(&mut core.touched) {
                    let Some(subject) = core.subjects.get_mut(slot) else { continue };
                    subject.is_touched = false;
                    if subject.waiters.len() <= self.options.inline_wakes_max {
                        wake.extend(subject.waiters.iter().cloned());
                    } else if !std::mem::replace(&mut subject.is_in_wake_queue, true) {
                        core.wake_queue.push_back(slot);
                        queued = true;
                    }
                }
            }
            if queued {
                self.wake_signal.notify_one();
            }
            for waiter in wake {
                waiter.raise();
            }
            evicted.clear();
        }
    }

    /// Moves the feed to `point`, after the state was replaced as a whole. Lists are cut, and every
    /// reader continues from history at its position. If the epochs before and after are known and
    /// differ, every subscription ends with [`CloseReason::EpochChanged`] instead.
    pub fn reset(&self, point: StatePoint) {
        let (forgotten, waiters) = {
            let mut core = self.core.lock();
            let core = &mut *core;
            let other_lineage = matches!((core.published.epoch, point.epoch), (Some(old), Some(new)) if old != new);
            // Commits without events of this topic are in no list, so no reader has missed them.
            let through = core.seen.max(core.published.index);
            core.seen = point.index;
            core.published = StatePoint { epoch: point.epoch.or(core.published.epoch), ..point };
            core.generation += 1;
            let forgotten = core.window.clear(point.index);
            let mut waiters = Vec::with_capacity(core.subscriptions);
            for subject in core.subjects.iter_mut() {
                Link::cut(&mut subject.tail, through);
                waiters.extend(subject.waiters.iter().cloned());
            }
            if other_lineage {
                for waiter in &waiters {
                    waiter.close(CloseReason::EpochChanged);
                }
            }
            (forgotten, waiters)
        };
        self.catch_up.forget();
        drop(forgotten);
        for waiter in waiters {
            waiter.raise();
        }
    }

    /// Ends every subscription with `reason`, and refuses new ones with it.
    pub fn close(&self, reason: CloseReason) {
        self.core.lock().closed = Some(reason.clone());
        self.close_where(|_| true, reason);
    }

    /// Ends the present subscriptions to the subjects for which `which` is true, with `reason` (a
    /// right was withdrawn, a table was rebuilt). New subscriptions to them are possible.
    pub fn close_where(&self, mut which: impl FnMut(&T::Subject) -> bool, reason: CloseReason) {
        let waiters: Vec<_> = {
            let core = self.core.lock();
            let picked = core.subjects.iter().filter(|subject| which(&subject.subject));
            picked.flat_map(|subject| subject.waiters.iter().cloned()).collect()
        };
        for waiter in waiters {
            waiter.close(reason.clone());
        }
    }

    /// Subscribes. The session yields `token` when there may be something to read. The caller reads
    /// once before its first wait: a new subscription yields no token.
    ///
    /// # Errors
    ///
    /// The reason passed to [`close`](Self::close), once the feed is closed.
    pub fn subscribe(
        self: &Arc<Self>,
        subject: T::Subject,
        start: Start,
        session: &Arc<Session>,
        token: u64,
    ) -> Result<Subscription<T>, CloseReason> {
        let waiter = Waiter::new(Arc::clone(session), token);
        let mut core = self.core.lock();
        let (slot, waiter_slot, tail) = core.add_waiter(&subject, &waiter)?;
        let published = core.published;
        drop(core);
        let (source, position) = match start {
            Start::Now => (CommitSource::Live(tail), published.index),
            Start::After(index) if index >= published.index => (CommitSource::Live(tail), index),
            Start::After(index) => (CommitSource::Behind, index),
        };
        Ok(Subscription::new(Arc::clone(self), subject, slot, waiter_slot, waiter, source, position, published))
    }

    /// As [`subscribe`](Self::subscribe), from `resume`: the link in the list after a snapshot.
    /// Commits up to `position`, the index of the snapshot, are skipped.
    pub(super) fn subscribe_at(
        self: &Arc<Self>,
        subject: T::Subject,
        resume: Arc<Link<T>>,
        position: LogIndex,
        session: &Arc<Session>,
        token: u64,
    ) -> Result<Subscription<T>, CloseReason> {
        let waiter = Waiter::new(Arc::clone(session), token);
        let mut core = self.core.lock();
        let (slot, waiter_slot, _) = core.add_waiter(&subject, &waiter)?;
        let published = core.published;
        drop(core);
        let source = CommitSource::Live(resume);
        Ok(Subscription::new(Arc::clone(self), subject, slot, waiter_slot, waiter, source, position, published))
    }

    /// Keeps the list of a subject growing without a subscriber, until the returned [`ListGuard`]
    /// is dropped. Fails with the reason of the closing if the feed is closed.
    pub(super) fn hold(self: &Arc<Self>, subject: T::Subject) -> Result<Held<T>, CloseReason> {
        let mut core = self.core.lock();
        if let Some(reason) = &core.closed {
            return Err(reason.clone());
        }
        let slot = core.slot_of(&subject);
        core.holds += 1;
        let entry = core.subjects.get_mut(slot).expect("invariant: the index names slots that are taken");
        entry.holds += 1;
        let tail = Arc::clone(&entry.tail);
        let generation = core.generation;
        drop(core);
        Ok((ListGuard { feed: Arc::clone(self), slot }, tail, generation))
    }

    /// Number of resets so far.
    pub(super) fn generation(&self) -> u64 {
        self.core.lock().generation
    }

    pub(super) fn unsubscribe(&self, slot: usize, waiter_slot: usize) {
        let mut core = self.core.lock();
        core.subscriptions -= 1;
        let removed = core.subjects.get_mut(slot).and_then(|subject| subject.waiters.remove(waiter_slot));
        core.forget_if_unused(slot);
        drop(core);
        drop(removed);
    }

    /// The commits after `position`, of all subjects, from the window: at most `REJOIN_BATCH` a
    /// call, and within the bounds of one scan, but at least one if there is any. `slot` is that of
    /// the reader's subject.
    pub(super) fn rejoin(&self, slot: usize, position: LogIndex) -> WindowAnswer<T> {
        // Dropped after the lock is released.
        let mut evicted = Vec::new();
        let mut core = self.core.lock();
        if let Some(reason) = &core.closed {
            return WindowAnswer::Closed(reason.clone());
        }
        core.window.trim(&mut evicted);
        if !core.window.covers(position) {
            return WindowAnswer::OutOfReach;
        }
        let limits = self.options.scan;
        let (missed, all) = core.window.after(position, limits.commits_max.min(REJOIN_BATCH), limits.bytes_max);
        if !all {
            return WindowAnswer::More(missed);
        }
        let subject = core.subjects.get(slot).expect("invariant: a subscription keeps its subject");
        WindowAnswer::Live(missed, Arc::clone(&subject.tail))
    }

    /// Evicts old commits that exceed memory bounds. The oldest commits of the window go while it
    /// exceeds its budget, which includes derived data. The oldest kept chunks of history go while
    /// their derived data alone exceeds the same number of bytes. The next commit would trim the
    /// window too, but may not come for a long time: call this after adding large derived data.
    /// Readers that still need evicted commits read them from history.
    pub fn evict_excess(&self) {
        let mut evicted = Vec::new();
        self.core.lock().window.trim(&mut evicted);
        // Dropped after the lock is released.
        drop(evicted);
        self.catch_up.evict_excess(self.options.window_bytes_max);
    }

    /// The feed's counters.
    pub fn stats(&self) -> FeedStats {
        let (scans, scans_answered) = self.catch_up.counts();
        let core = self.core.lock();
        FeedStats {
            subscriptions: core.subscriptions as u64,
            subjects: core.subjects.len() as u64,
            lagging: self.lagging.load(Ordering::Relaxed),
            fell_behind: self.fell_behind.load(Ordering::Relaxed),
            window_items: core.window.len() as u64,
            window_bytes: core.window.bytes() as u64,
            scans,
            scans_answered,
        }
    }

    /// Wakes the subscribers of subjects with too many for the publisher to wake. Run it as a task;
    /// it ends with the feed.
    pub fn wake_readers(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<T> {
        let (feed, bell) = (Arc::downgrade(self), Arc::clone(&self.wake_signal));
        wake_readers(feed, bell)
    }

    /// Reads history for lagging readers. Run it as a task; it ends with the feed.
    pub fn serve_catch_up(self: &Arc<Self>, history: Arc<dyn History<T>>) -> impl Future<Output = ()> + Send + use<T> {
        super::catch_up::serve(Arc::downgrade(self), self.catch_up.bell(), history)
    }
}

impl<T: Topic> Drop for Feed<T> {
    fn drop(&mut self) {
        self.wake_signal.notify_one();
        self.catch_up.bell().notify_one();
    }
}

async fn wake_readers<T: Topic>(feed: Weak<Feed<T>>, bell: Arc<Notify>) {
    loop {
        bell.notified().await;
        let mut next = None;
        loop {
            let Some(feed) = feed.upgrade() else { return };
            let waiters: Vec<Arc<Waiter>> = {
                let mut core = feed.core.lock();
                let core = &mut *core;
                let (slot, from) = match next.take() {
                    Some(cursor) => cursor,
                    None => match core.wake_queue.pop_front() {
                        Some(slot) => (slot, 0),
                        None => break,
                    },
                };
                let Some(subject) = core.subjects.get_mut(slot) else { continue };
                if from == 0 {
                    // The next commit of the subject must queue it again.
                    subject.is_in_wake_queue = false;
                }
                let to = (from + WAKE_BATCH).min(subject.waiters.end());
                if to < subject.waiters.end() {
                    next = Some((slot, to));
                }
                (from..to).filter_map(|waiter_slot| subject.waiters.get(waiter_slot).cloned()).collect()
            };
            drop(feed);
            for waiter in waiters {
                waiter.raise();
            }
            tokio::task::yield_now().await;
        }
    }
}

impl<T: Topic> Core<T> {
    fn publish(&mut self, commit: &CommandEvents, evicted: &mut Vec<Entry<T>>) {
        self.seen = commit.index;
        let Some(commit) = Commit::new(commit) else { return };
        debug_assert!(commit.index() > self.published.index, "invariant: commits come in order, each once");
        self.published.index = commit.index();
        if let Some(revision) = commit.revision() {
            self.published.revision = revision;
        }
        if self.subscriptions + self.holds == 0 {
            // Nothing is kept: a later subscription from an earlier position reads history.
            evicted.extend(self.window.clear(commit.index()));
            return;
        }
        let Self { index, subjects, concerned, touched, .. } = self;
        for (position, event) in commit.events().iter().enumerate() {
            index.route(event, &mut |slot| {
                let subject = subjects.get_mut(slot).expect("invariant: the index names slots that are taken");
                if subject.picks.is_empty() {
                    concerned.push(slot);
                }
                subject.picks.push(position as u32);
            });
        }
        let commit = Arc::new(commit);
        let mut nodes = SmallVec::new();
        for slot in concerned.drain(..) {
            let subject = subjects.get_mut(slot).expect("invariant: it was there above");
            nodes.push(Link::append(&mut subject.tail, Item::of(&commit, &subject.picks)));
            subject.picks.clear();
            if !std::mem::replace(&mut subject.is_touched, true) {
                touched.push(slot);
            }
        }
        self.window.push(Entry::new(commit, nodes), evicted);
    }

    fn slot_of(&mut self, subject: &T::Subject) -> usize {
        if let Some(slot) = self.index.get(subject) {
            return slot;
        }
        let slot = self.subjects.insert(Subject {
            subject: subject.clone(),
            tail: Link::new(),
            waiters: Slab::default(),
            holds: 0,
            picks: SmallVec::new(),
            is_touched: false,
            is_in_wake_queue: false,
        });
        self.index.insert(subject, slot);
        slot
    }

    /// Registers a subscription. Returns the subject's slot, the waiter's slot there, and the
    /// list's tail.
    fn add_waiter(
        &mut self,
        subject: &T::Subject,
        waiter: &Arc<Waiter>,
    ) -> Result<(usize, usize, Arc<Link<T>>), CloseReason> {
        if let Some(reason) = &self.closed {
            return Err(reason.clone());
        }
        let slot = self.slot_of(subject);
        self.subscriptions += 1;
        let entry = self.subjects.get_mut(slot).expect("invariant: the index names slots that are taken");
        Ok((slot, entry.waiters.insert(Arc::clone(waiter)), Arc::clone(&entry.tail)))
    }

    fn forget_if_unused(&mut self, slot: usize) {
        let unused = |subject: &Subject<T>| subject.waiters.len() == 0 && subject.holds == 0;
        if self.subjects.get(slot).is_some_and(unused)
            && let Some(subject) = self.subjects.remove(slot)
        {
            self.index.remove(&subject.subject);
        }
    }
}

/// A guard of a list, the list's tail when the guard was made, and the feed's generation then.
pub(super) type Held<T> = (ListGuard<T>, Arc<Link<T>>, u64);

/// Guard: as long as it exists, the subject's list gets its commits, with or without subscribers.
pub(super) struct ListGuard<T: Topic> {
    feed: Arc<Feed<T>>,
    slot: usize,
}

impl<T: Topic> ListGuard<T> {
    pub(super) fn feed(&self) -> &Arc<Feed<T>> {
        &self.feed
    }
}

impl<T: Topic> Drop for ListGuard<T> {
    fn drop(&mut self) {
        let mut core = self.feed.core.lock();
        core.holds -= 1;
        if let Some(subject) = core.subjects.get_mut(self.slot) {
            subject.holds -= 1;
        }
        core.forget_if_unused(self.slot);
    }
}
