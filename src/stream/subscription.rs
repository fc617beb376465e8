//! One reader: a cursor in a live list, or a position from which it catches up.
//!
//! Owns the path of a reader: list, window, history, and back to the list. Invariant: on every path
//! it yields every change of its subject after `position`, once and in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use thiserror::Error;
use tokio::sync::oneshot;

use super::catch_up::Scanned;
use super::commit::{Commit, Item};
use super::feed::{Feed, WindowAnswer};
use super::link::{Link, Next, Node};
use super::publisher::StatePoint;
use super::run::{self, Run, RunBounds};
use super::session::Waiter;
use super::topic::Topic;
use headwater_types::{LogIndex, Revision};

/// The reason for which a subscription ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CloseReason {
    /// Commits that the reader needs may have been compacted: start over from the state at or after
    /// `revision`.
    #[error("what comes next was compacted; the oldest revision that can still be read is {revision}")]
    Compacted {
        /// Revision of the compaction point; zero if there is none, because only retention has
        /// trimmed history.
        revision: Revision,
    },
    /// The state is of another lineage now (a backup was restored): start over.
    #[error("the store was replaced by one of another lineage; start over")]
    EpochChanged,
    /// The state behind the subscription was rebuilt, or the right to it was withdrawn: start over.
    #[error("the subscription was reset; start over")]
    Reset,
    /// The node is stopping, or a task that reads history ended without an answer. Continue at
    /// another node from the last position seen. A failed disk is [`Self::Failed`].
    #[error("the node is stopping; go on at another one")]
    Stopping,
    /// The local storage failed; the node is going down.
    #[error("storage failed: {0}")]
    Failed(String),
}

/// The source of the reader's next commits.
pub(super) enum CommitSource<T: Topic> {
    /// The live list: the link after the last node that was read.
    Live(Arc<Link<T>>),
    /// Unknown yet: the next commits are in the window, or in history, after `position`.
    Behind,
    /// History: the catch-up task will answer.
    Scanning(oneshot::Receiver<Scanned<T>>),
}

/// One subscription. Reading never waits: the session yields the subscription's token when there
/// may be something to read.
pub struct Subscription<T: Topic> {
    feed: Arc<Feed<T>>,
    subject: T::Subject,
    slot: usize,
    waiter_slot: usize,
    waiter: Arc<Waiter>,
    source: CommitSource<T>,
    /// Every matching commit up to here, from the start of the subscription on, was yielded or is
    /// in `queue`.
    position: LogIndex,
    /// Commits from the window or a chunk, not yet yielded; at most one batch or chunk.
    queue: VecDeque<Item<T>>,
    started: StatePoint,
    counted_as_lagging: bool,
}

impl<T: Topic> Subscription<T> {
    #[expect(clippy::too_many_arguments, reason = "the feed makes it, in two places")]
    pub(super) fn new(
        feed: Arc<Feed<T>>,
        subject: T::Subject,
        slot: usize,
        waiter_slot: usize,
        waiter: Arc<Waiter>,
        source: CommitSource<T>,
        position: LogIndex,
        started: StatePoint,
    ) -> Self {
        let mut new = Self {
            feed,
            subject,
            slot,
            waiter_slot,
            waiter,
            source,
            position,
            queue: VecDeque::new(),
            started,
            counted_as_lagging: false,
        };
        new.count_lag();
        new
    }

    /// The subject of the subscription.
    pub fn subject(&self) -> &T::Subject {
        &self.subject
    }

    /// [`Feed::published`] at the time when the subscription was made.
    pub fn started(&self) -> StatePoint {
        self.started
    }

    /// Skips the commits up to `index`, inclusive: the subscriber has them from another source.
    pub fn skip_through(&mut self, index: LogIndex) {
        self.position = self.position.max(index);
        self.queue.retain(|item| item.index() > index);
    }

    /// The next commit, reduced to the events of the subject. `None` if there is nothing to read
    /// now. The session yields this subscription's token when there may be something to read.
    ///
    /// # Errors
    ///
    /// The reason for which the subscription has ended.
    pub fn try_next(&mut self) -> Result<Option<Item<T>>, CloseReason> {
        self.try_next_through(LogIndex(u64::MAX))
    }

    /// As [`Self::try_next`], but `None` if the next commit is beyond `limit`. That commit stays
    /// unread, and the session does not yield the token for it: the caller must read again later,
    /// without a limit.
    ///
    /// # Errors
    ///
    /// The reason for which the subscription has ended.
    pub fn try_next_through(&mut self, limit: LogIndex) -> Result<Option<Item<T>>, CloseReason> {
        let mut is_lowered = false;
        loop {
            if let Some(reason) = self.waiter.closed() {
                return Err(reason.clone());
            }
            if self.queue.front().is_some_and(|item| item.index() > limit) {
                return Ok(None);
            }
            if let Some(item) = self.queue.pop_front() {
                return Ok(Some(item));
            }
            match self.step(limit) {
                Ok(Step::Item(item)) => return Ok(Some(item)),
                Ok(Step::Again) => {}
                Ok(Step::BeyondLimit) => return Ok(None),
                Ok(Step::Nothing) if is_lowered => return Ok(None),
                Ok(Step::Nothing) => {
                    self.waiter.lower();
                    is_lowered = true;
                }
                Err(reason) => {
                    // Later reads return the same reason.
                    self.waiter.close(reason.clone());
                    return Err(reason);
                }
            }
        }
    }

    /// The next commits in one piece, encoded for `purpose`, if other readers read them as well:
    /// see [`Run`]. `None`: read them one by one. A purpose's number is never used for another
    /// encoding, and `encode` appends the changes of a commit in it. `from` is the first wanted
    /// revision; nothing is yielded if the next commit is before it.
    pub fn try_next_run(
        &mut self,
        purpose: u64,
        from: Revision,
        bounds: &RunBounds,
        encode: impl FnMut(&Item<T>, &mut BytesMut),
    ) -> Option<Arc<Run<T>>> {
        let first = self.next_live().filter(|_| self.waiter.closed().is_none())?;
        let is_wanted = first.item.commit().revision().is_some_and(|revision| revision >= from);
        if !is_wanted || first.item.index() <= self.position {
            return None;
        }
        let (run, is_new) = run::from(&first, purpose, bounds, encode)?;
        self.position = run.last;
        self.source = CommitSource::Live(Arc::clone(&run.after));
        if is_new {
            self.feed.evict_excess();
        }
        Some(run)
    }

    /// Whether a run begins with the next commit, of whatever purpose. A reader that reads commits
    /// one by one stops here, and asks [`Self::try_next_run`], which may still yield none.
    pub fn is_at_run(&self) -> bool {
        self.next_live().is_some_and(|node| node.run.is_made())
    }

    /// The next node of the live list. `None` for a lagging reader, and at the end of the list.
    fn next_live(&self) -> Option<Arc<Node<T>>> {
        match &self.source {
            CommitSource::Live(link) if self.queue.is_empty() => link.next_node(),
            CommitSource::Live(_) | CommitSource::Behind | CommitSource::Scanning(_) => None,
        }
    }

    /// Whether every matching commit up to `index` was yielded. Correct only for an `index` read
    /// from the feed or the state after those commits were published: a reader at the end of its
    /// list counts as through.
    pub fn is_through(&self, index: LogIndex) -> bool {
        if let Some(item) = self.queue.front() {
            return item.index() > index;
        }
        match &self.source {
            CommitSource::Behind | CommitSource::Scanning(_) => self.position >= index,
            CommitSource::Live(link) => match link.next() {
                None => true,
                Some(Next::Node { index: next, .. }) => *next > index || self.position >= index,
                Some(Next::Cut { through }) => self.position.max(*through) >= index,
            },
        }
    }

    /// Whether the reader is behind the live list, or has queued commits from catching up.
    pub fn is_lagging(&self) -> bool {
        !matches!(self.source, CommitSource::Live(_)) || !self.queue.is_empty()
    }

    fn step(&mut self, limit: LogIndex) -> Result<Step<T>, CloseReason> {
        match &mut self.source {
            CommitSource::Live(link) => {
                let fell_behind_at = match link.next() {
                    None => return Ok(Step::Nothing),
                    Some(Next::Node { index, .. }) if *index > limit => return Ok(Step::BeyondLimit),
                    Some(Next::Cut { through }) => *through,
                    Some(Next::Node { index, node }) => match node.upgrade() {
                        Some(node) => {
                            *link = Arc::clone(&node.after);
                            if node.item.index() <= self.position {
                                return Ok(Step::Again);
                            }
                            self.position = node.item.index();
                            return Ok(Step::Item(node.item.clone()));
                        }
                        // The evicted node is the first unread one: the reader has everything
                        // before it.
                        None => LogIndex(index.get().saturating_sub(1)),
                    },
                };
                self.position = self.position.max(fell_behind_at);
                self.move_to(CommitSource::Behind);
                self.feed.fell_behind.fetch_add(1, Ordering::Relaxed);
            }
            CommitSource::Behind => match self.feed.rejoin(self.slot, self.position) {
                WindowAnswer::Live(missed, tail) => {
                    self.absorb(&missed);
                    self.move_to(CommitSource::Live(tail));
                }
                WindowAnswer::More(missed) => self.absorb(&missed),
                WindowAnswer::OutOfReach => match self.feed.catch_up.cached(self.position) {
                    Some(chunk) => {
                        self.absorb(&chunk.commits);
                        self.position = self.position.max(chunk.reached);
                    }
                    None => {
                        let answer = self.feed.catch_up.ask(self.position, Arc::clone(&self.waiter));
                        self.move_to(CommitSource::Scanning(answer));
                    }
                },
                WindowAnswer::Closed(reason) => return Err(reason),
            },
            CommitSource::Scanning(answer) => match answer.try_recv() {
                Ok(scanned) => {
                    let chunk = scanned?;
                    self.absorb(&chunk.commits);
                    self.position = self.position.max(chunk.reached);
                    self.move_to(CommitSource::Behind);
                }
                Err(oneshot::error::TryRecvError::Empty) => return Ok(Step::Nothing),
                // The catch-up task has ended.
                Err(oneshot::error::TryRecvError::Closed) => return Err(CloseReason::Stopping),
            },
        }
        Ok(Step::Again)
    }

    /// Queues the part of each commit that matches the subject. Skips commits up to `position`.
    fn absorb(&mut self, commits: &[Arc<Commit<T>>]) {
        for commit in commits {
            if commit.index() > self.position {
                self.position = commit.index();
                self.queue.extend(Item::select(commit, &self.subject));
            }
        }
    }

    fn move_to(&mut self, source: CommitSource<T>) {
        self.source = source;
        self.count_lag();
    }

    fn count_lag(&mut self) {
        let lagging = !matches!(self.source, CommitSource::Live(_));
        if lagging != self.counted_as_lagging {
            self.counted_as_lagging = lagging;
            if lagging {
                self.feed.lagging.fetch_add(1, Ordering::Relaxed);
            } else {
                self.feed.lagging.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

enum Step<T: Topic> {
    Item(Item<T>),
    Again,
    Nothing,
    BeyondLimit,
}

impl<T: Topic> Drop for Subscription<T> {
    fn drop(&mut self) {
        if self.counted_as_lagging {
            self.feed.lagging.fetch_sub(1, Ordering::Relaxed);
        }
        self.feed.unsubscribe(self.slot, self.waiter_slot);
    }
}
