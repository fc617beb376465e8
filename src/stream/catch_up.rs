//! Catch-up: history read in chunks, shared by all lagging readers.
//!
//! Owns the requests of lagging readers and the last chunks that were read. One scan answers each
//! waiting request whose position lies in the range that it read. A request shortly afterwards is
//! served from the kept chunk. Live readers use none of this. Invariant: a chunk holds every commit
//! of the topic in `(after, reached]`, so it serves every subject.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::commit::Commit;
use super::feed::Feed;
use super::session::Waiter;
use super::subscription::CloseReason;
use super::topic::Topic;
use headwater_types::LogIndex;

/// Most chunks that are kept for later requests, count.
const CHUNKS_KEPT: usize = 8;

/// Bounds of one scan. The scan ends with the commit that reaches one of them.
#[derive(Clone, Copy, Debug)]
pub struct ScanLimits {
    /// Most commits of one scan, count (etcd replays at most 1000 revisions at a time).
    pub commits_max: usize,
    /// Most bytes of the commits of one scan, as [`Topic::cost_bytes`] counts them.
    pub bytes_max: usize,
}

impl Default for ScanLimits {
    fn default() -> Self {
        Self { commits_max: 1000, bytes_max: 512 * 1024 }
    }
}

/// Consecutive commits of the topic, read from history.
pub struct Chunk<T: Topic> {
    /// The position from which the chunk was requested: its commits have a higher index.
    pub after: LogIndex,
    /// The log index up to which the scan has read, inclusive: that of the last command that it
    /// read or, at the end of history, of the last applied entry.
    pub reached: LogIndex,
    /// All commits of the topic in `(after, reached]`, in order.
    pub commits: Vec<Arc<Commit<T>>>,
}

impl<T: Topic> Chunk<T> {
    /// Takes the memory of the chunk's derived data out of the count of the kept chunks.
    fn count_out(&self) {
        self.commits.iter().for_each(|commit| commit.count_out());
    }
}

/// The committed changes of a topic, as far back as history reaches. Implemented by the layer that
/// owns the storage.
pub trait History<T: Topic>: Send + Sync + 'static {
    /// Reads the commits after `after`, within `limits`. The future may be slow, but must not block
    /// its thread.
    ///
    /// # Errors
    ///
    /// [`CloseReason::Compacted`] if a commit after `after` may have been compacted,
    /// [`CloseReason::EpochChanged`] if the history is of another lineage than the feed,
    /// [`CloseReason::Failed`] if it cannot be read, [`CloseReason::Stopping`] if the node stops.
    fn read(&self, after: LogIndex, limits: ScanLimits) -> BoxFuture<'static, Result<Chunk<T>, CloseReason>>;
}

pub(super) type Scanned<T> = Result<Arc<Chunk<T>>, CloseReason>;

/// The requests of lagging readers, and the chunks kept for later ones.
pub(super) struct CatchUp<T: Topic> {
    requests: Mutex<Vec<Request<T>>>,
    chunks: Mutex<VecDeque<Arc<Chunk<T>>>>,
    /// Memory of the data derived from `chunks`, beyond [`Topic::cost_bytes`], bytes.
    added: Arc<AtomicUsize>,
    bell: Arc<Notify>,
    scans: AtomicU64,
    answered: AtomicU64,
}

struct Request<T: Topic> {
    after: LogIndex,
    answer: oneshot::Sender<Scanned<T>>,
    waiter: Arc<Waiter>,
}

impl<T: Topic> Request<T> {
    fn answer(self, scanned: Scanned<T>) {
        // The reader may have been dropped.
        drop(self.answer.send(scanned));
        self.waiter.raise();
    }
}

impl<T: Topic> Default for CatchUp<T> {
    fn default() -> Self {
        Self {
            requests: Mutex::default(),
            chunks: Mutex::default(),
            added: Arc::default(),
            bell: Arc::default(),
            scans: AtomicU64::new(0),
            answered: AtomicU64::new(0),
        }
    }
}

impl<T: Topic> CatchUp<T> {
    /// Requests the commits after `after`. The waiter is raised when the answer can be received.
    pub(super) fn ask(&self, after: LogIndex, waiter: Arc<Waiter>) -> oneshot::Receiver<Scanned<T>> {
        let (answer, answered) = oneshot::channel();
        self.requests.lock().push(Request { after, answer, waiter });
        self.bell.notify_one();
        answered
    }

    /// A kept chunk that can serve a reader at `position`: its range has `position` and a later log
    /// index. `None` if there is none.
    pub(super) fn cached(&self, position: LogIndex) -> Option<Arc<Chunk<T>>> {
        let chunks = self.chunks.lock();
        chunks.iter().find(|chunk| chunk.after <= position && position < chunk.reached).cloned()
    }

    /// Drops all kept chunks.
    pub(super) fn forget(&self) {
        let chunks = std::mem::take(&mut *self.chunks.lock());
        chunks.iter().for_each(|chunk| chunk.count_out());
    }

    /// Evicts the oldest chunks while the data derived from the kept ones exceeds `bytes_max`.
    pub(super) fn evict_excess(&self, bytes_max: usize) {
        let mut evicted = Vec::new();
        let mut chunks = self.chunks.lock();
        while self.added.load(Ordering::Relaxed) > bytes_max
            && let Some(oldest) = chunks.pop_front()
        {
            oldest.count_out();
            evicted.push(oldest);
        }
        drop(chunks);
        drop(evicted);
    }

    pub(super) fn bell(&self) -> Arc<Notify> {
        Arc::clone(&self.bell)
    }

    /// The number of scans, and the number of requests that they answered.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.scans.load(Ordering::Relaxed), self.answered.load(Ordering::Relaxed))
    }

    fn take_requests(&self) -> Vec<Request<T>> {
        std::mem::take(&mut *self.requests.lock())
    }

    fn keep(&self, chunk: &Arc<Chunk<T>>) {
        let mut chunks = self.chunks.lock();
        let evicted = if chunks.len() >= CHUNKS_KEPT { chunks.pop_front() } else { None };
        chunk.commits.iter().for_each(|commit| commit.count_in(&self.added));
        chunks.push_back(Arc::clone(chunk));
        drop(chunks);
        evicted.iter().for_each(|chunk| chunk.count_out());
    }
}

/// Answers requests in rounds: every waiting reader gets one answer before any reader gets a
/// second. Returns when the feed has been dropped.
pub(super) async fn serve<T: Topic>(feed: Weak<Feed<T>>, bell: Arc<Notify>, history: Arc<dyn History<T>>) {
    loop {
        bell.notified().await;
        let Some(first) = feed.upgrade() else { return };
        let limits = first.options.scan;
        let mut round = first.catch_up.take_requests();
        drop(first);
        round.sort_by_key(|request| std::cmp::Reverse(request.after));
        while let Some(request) = round.pop() {
            if request.answer.is_closed() {
                continue;
            }
            headwater_fail_points::fail_point!(CatchUpRead);
            let scanned = history.read(request.after, limits).await.map(Arc::new);
            headwater_fail_points::fail_point!(CatchUpAnswer);
            let Some(feed) = feed.upgrade() else { return };
            let catch_up = &feed.catch_up;
            catch_up.scans.fetch_add(1, Ordering::Relaxed);
            let mut answered = 1;
            match &scanned {
                Ok(chunk) => {
                    while let Some(next) =
                        round.pop_if(|next| next.after < chunk.reached || next.after == request.after)
                    {
                        next.answer(Ok(Arc::clone(chunk)));
                        answered += 1;
                    }
                    if !chunk.commits.is_empty() {
                        catch_up.keep(chunk);
                    }
                }
                Err(reason) => {
                    // Requests from later positions may still be served.
                    while let Some(next) = round.pop_if(|next| next.after == request.after) {
                        next.answer(Err(reason.clone()));
                        answered += 1;
                    }
                }
            }
            request.answer(scanned);
            catch_up.answered.fetch_add(answered, Ordering::Relaxed);
        }
    }
}
