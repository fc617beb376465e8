//! Key watches: the entry point from the faces to the live feed and to history.
//!
//! Owns the start of a watch, and the look-up of predecessors: the pairs before changes. Knows
//! nothing of client streams. Invariant: a watch yields every revision from its start on that
//! touches its interval, once, in order and whole, or it ends with a reason.

use std::sync::Arc;

use bytes::BytesMut;

use super::{Follow, NodeError, RequestContext, Watching};
use crate::Consistency;
use headwater_storage::state::{StateReader, Table};
use headwater_storage::{ReadView, StateStore, StorageError};
use headwater_stream::{
    CloseReason, Encoding, EventPublisher, Feed, FeedStats, Item, Kv, Run, RunBounds, Session, Start, StatePoint,
    Subscription,
};
use headwater_types::{Access, ChangeKind, KeyRange, KeyValue, KvEvent, LogIndex, Refusal, Revision, Space};

/// Most changes for which predecessors are looked up on the calling thread, count; more are looked
/// up on a blocking thread.
const INLINE_LOOKUPS_MAX: usize = 32;
/// Most revisions of one look-up, count: as many records as the storage fetches together.
const BATCH_ITEMS_MAX: usize = 32;

/// The keys and the start of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchQuery {
    /// The keys; not empty.
    pub range: KeyRange,
    /// The first wanted revision, which may be in the future; `None` for the changes from now on.
    pub start: Option<Revision>,
}

/// A watch on an interval of keys. Reading never waits: the session yields the watch's token when
/// there may be something to read.
pub struct KeyWatch {
    store: Arc<StateStore>,
    feed: Arc<Feed<Kv>>,
    session: Arc<Session>,
    token: u64,
    subscription: Subscription<Kv>,
    started: Revision,
    /// The first revision that is not yielded yet.
    from: Revision,
    /// `None` for a watch that does not count against the bound on watchers.
    _watching: Option<Watching>,
}

impl KeyWatch {
    /// Begins a watch of the changes that `events` publishes. `store` must be the state that they
    /// lead to: the compaction point and the log index of the start are read from it. The watch
    /// does not count against the bound on watchers.
    ///
    /// # Errors
    ///
    /// [`Refusal::Compacted`] if the start lies below the compaction point; [`NodeError::Storage`]
    /// if the disk failed; [`NodeError::Stopped`] if the feed has ended.
    pub fn open(
        store: &Arc<StateStore>,
        events: &EventPublisher,
        query: WatchQuery,
        session: &Arc<Session>,
        token: u64,
    ) -> Result<Self, NodeError> {
        let start = match query.start {
            None => Start::Now,
            Some(revision) => start_of(store, revision)?,
        };
        let (store, feed, session) = (Arc::clone(store), Arc::clone(events.kv()), Arc::clone(session));
        let subscription = feed.subscribe(query.range, start, &session, token)?;
        let started = subscription.started().revision;
        let from = query.start.unwrap_or_else(|| started.next());
        Ok(Self { store, feed, session, token, subscription, started, from, _watching: None })
    }

    /// The changes of the next revision that touches the interval. `None` if there is nothing to
    /// read now. The session yields the watch's token when there may be something to read.
    ///
    /// # Errors
    ///
    /// The reason for which the watch has ended.
    pub fn try_next(&mut self) -> Result<Option<Item<Kv>>, CloseReason> {
        self.try_next_through(LogIndex(u64::MAX))
    }

    /// As [`Self::try_next`], but yields no change after the log index `limit`. If it stops at the
    /// limit, the session does not yield this watch's token for the changes that are left: the
    /// caller must read again without being woken.
    ///
    /// # Errors
    ///
    /// The reason for which the watch has ended.
    pub fn try_next_through(&mut self, limit: LogIndex) -> Result<Option<Item<Kv>>, CloseReason> {
        loop {
            match self.subscription.try_next_through(limit) {
                Ok(Some(item)) => {
                    if let Some(revision) = item.commit().revision().filter(|revision| *revision >= self.from) {
                        self.from = revision.next();
                        return Ok(Some(item));
                    }
                }
                Ok(None) => return Ok(None),
                // The start may be in the future of a lagging member. Only revisions before it were
                // compacted.
                Err(CloseReason::Compacted { revision }) if revision <= self.from => self.begin_again()?,
                Err(reason) => return Err(reason),
            }
        }
    }

    /// The next revisions in one piece, encoded as `encoding`, if other watches of the same range
    /// read them as well. `None`: read them one by one. `encode` appends the changes of a revision
    /// in that encoding.
    pub fn try_next_run(
        &mut self,
        encoding: Encoding,
        bounds: &RunBounds,
        encode: impl FnMut(&Item<Kv>, &mut BytesMut),
    ) -> Option<Arc<Run<Kv>>> {
        let run = self.subscription.try_next_run(encoding as u64, self.from, bounds, encode)?;
        if let Some(revision) = run.revision() {
            self.from = revision.next();
        }
        Some(run)
    }

    /// Whether a run begins with the next commit. A reader that reads one by one stops there, and
    /// asks [`Self::try_next_run`], which may still yield none.
    pub fn is_at_run(&self) -> bool {
        self.subscription.is_at_run()
    }

    /// Subscribes again from the first revision that is not yielded yet.
    fn begin_again(&mut self) -> Result<(), CloseReason> {
        let range = self.subscription.subject().clone();
        let start = start_of(&self.store, self.from).map_err(|error| match error {
            NodeError::Refused(Refusal::Compacted { compact_revision }) => {
                CloseReason::Compacted { revision: compact_revision }
            }
            error => CloseReason::Failed(error.to_string()),
        })?;
        self.subscription = self.feed.subscribe(range, start, &self.session, self.token)?;
        Ok(())
    }

    /// The last published revision when the watch began. Without a start, the watch yields only
    /// later revisions.
    pub fn started(&self) -> Revision {
        self.started
    }

    /// Whether the watch has yielded all changes up to `index`. The caller gets `index` from
    /// [`Follow::published`] before this call.
    pub fn is_through(&self, index: LogIndex) -> bool {
        self.subscription.is_through(index)
    }

    /// Whether the watch is behind the live changes: it reads missed ones from the window or from
    /// history, or has not yielded them yet.
    pub fn is_lagging(&self) -> bool {
        self.subscription.is_lagging()
    }
}

impl Follow<'_> {
    /// Watches keys, from this node's own state. The session yields `token` when there may be
    /// something to read; the caller reads once before its first wait.
    ///
    /// # Errors
    ///
    /// [`Refusal::Compacted`] if the start lies below the compaction point; a missing right;
    /// [`NodeError::TooManyWatchers`]; the errors of a serializable read otherwise.
    pub async fn keys(
        self,
        ctx: &RequestContext,
        query: WatchQuery,
        session: &Arc<Session>,
        token: u64,
    ) -> Result<KeyWatch, NodeError> {
        self.node.ready_to_read(ctx, Consistency::Serializable).await?;
        self.node.authorize(ctx, Space::Kv, &query.range, Access::READ)?;
        let watching = self.begin_watching(ctx)?;
        let watch = KeyWatch::open(&self.node.inner.store, &self.node.inner.follow.events, query, session, token)?;
        Ok(KeyWatch { _watching: Some(watching), ..watch })
    }

    /// The position up to which changes of keys are published here. Commands that change no key do
    /// not move it.
    pub fn published(self) -> StatePoint {
        self.node.inner.follow.events.kv().published()
    }

    /// The revision of the compaction point, if there is one.
    pub fn compacted(self) -> Option<Revision> {
        self.node.inner.store.current().head().compaction.map(|point| point.revision)
    }

    /// Counters of the feed of keys.
    pub fn key_stats(self) -> FeedStats {
        self.node.inner.follow.events.kv().stats()
    }

    /// Looks up the predecessors of the changes in `items` and keeps them with the commits, for all
    /// streams. The result is exact while a change is in history; a compacted predecessor counts as
    /// absent. Stops after the item with which items and predecessors reach `bytes_max`, because a
    /// small change may have a large predecessor. Returns the number of complete items.
    ///
    /// # Errors
    ///
    /// [`NodeError::Storage`] if the disk failed.
    pub async fn resolve_predecessors(self, items: &[Item<Kv>], bytes_max: usize) -> Result<usize, NodeError> {
        let wanted: usize = items.iter().map(|item| unresolved(item).count()).sum();
        if wanted == 0 {
            return Ok(resolve(items, bytes_max, |_| Ok(()))?);
        }
        if wanted <= INLINE_LOOKUPS_MAX {
            return Ok(resolve_within(&self.node.inner.store, self.node.inner.follow.events.kv(), items, bytes_max)?);
        }
        let (store, feed, items) =
            (Arc::clone(&self.node.inner.store), Arc::clone(self.node.inner.follow.events.kv()), items.to_vec());
        let resolved = tokio::task::spawn_blocking(move || resolve_within(&store, &feed, &items, bytes_max)).await;
        Ok(resolved.map_err(|_| NodeError::Stopped)??)
    }
}

/// The start of a watch: right before the command that made `revision`, or behind the present state
/// for a later revision. [`Refusal::Compacted`] below the compaction point.
fn start_of(store: &StateStore, revision: Revision) -> Result<Start, NodeError> {
    let start = store.read(|view| {
        if let Some(point) = view.head().compaction
            && revision < point.revision
        {
            return Ok(Err(Refusal::Compacted { compact_revision: point.revision }));
        }
        if revision > view.revision() {
            // Every change in this view is too early.
            return Ok(Ok(Start::After(view.applied())));
        }
        let first = view.command_of(revision)?;
        Ok(Ok(Start::After(LogIndex(first.get().saturating_sub(1)))))
    });
    Ok(start??)
}

/// Whether the change created its key, so that it has no predecessor.
fn is_creation(event: &KvEvent) -> bool {
    event.kind == ChangeKind::Put && event.kv.version == 1
}

/// The item's changes whose predecessor must be looked up, as indexes into the commit's events.
/// Side effect: a creation that the iterator passes gets an absent predecessor stored in the
/// commit, because it needs no look-up.
fn unresolved(item: &Item<Kv>) -> impl Iterator<Item = usize> {
    item.positions().filter(|position| {
        let commit = item.commit();
        if commit.prev(*position).is_none() && is_creation(&commit.events()[*position]) {
            commit.set_prev(*position, None);
        }
        commit.prev(*position).is_none()
    })
}

/// Looks up the predecessors of the changes in `items`, in order, and keeps them with the commits.
/// Stops after the item with which items and predecessors reach `bytes_max`. Returns the number of
/// complete items.
pub fn resolve_from(store: &StateStore, items: &[Item<Kv>], bytes_max: usize) -> Result<usize, StorageError> {
    store.read(|view| resolve(items, bytes_max, |batch| look_up(view, batch)))
}

/// As [`resolve_from`], and evicts commits of the feed if its memory exceeds the bound afterwards.
fn resolve_within(
    store: &StateStore,
    feed: &Feed<Kv>,
    items: &[Item<Kv>],
    bytes_max: usize,
) -> Result<usize, StorageError> {
    let resolved = resolve_from(store, items, bytes_max);
    feed.evict_excess();
    resolved
}

/// As [`resolve_from`], with calls of `look_up` for batches of growing length: the size of
/// predecessors is known only afterwards.
fn resolve(
    items: &[Item<Kv>],
    bytes_max: usize,
    mut look_up: impl FnMut(&[Item<Kv>]) -> Result<(), StorageError>,
) -> Result<usize, StorageError> {
    let (mut done, mut bytes, mut batch_items) = (0, 0, 1);
    while done < items.len() {
        let batch = &items[done..items.len().min(done + batch_items)];
        look_up(batch)?;
        for item in batch {
            done += 1;
            bytes += item.bytes();
            if bytes >= bytes_max {
                return Ok(done);
            }
        }
        batch_items = (2 * batch_items).min(BATCH_ITEMS_MAX);
    }
    Ok(done)
}

fn look_up(view: &ReadView<'_>, items: &[Item<Kv>]) -> Result<(), StorageError> {
    let wanted: Vec<_> =
        items.iter().flat_map(|item| unresolved(item).map(move |position| (item.commit(), position))).collect();
    let mut found = Vec::with_capacity(wanted.len());
    for (index, (commit, position)) in wanted.iter().enumerate() {
        let before = LogIndex(commit.index().get().saturating_sub(1));
        if let Some(version) = view.lookup(Table::Kv, &commit.events()[*position].kv.key, before)? {
            found.push((index, version));
        }
    }
    let versions: Vec<_> = found.iter().map(|(_, version)| *version).collect();
    let mut pairs: Vec<Option<KeyValue>> = vec![None; wanted.len()];
    for ((index, _), record) in found.iter().zip(view.load(&versions)?) {
        pairs[*index] = Some(record.kv);
    }
    for ((commit, position), pair) in wanted.iter().zip(pairs) {
        commit.set_prev(*position, pair);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::StateHistory;
    use headwater_storage::StateOptions;
    use headwater_storage::state::AppliedState;
    use headwater_stream::{Feed, FeedOptions, Publisher};
    use headwater_types::{
        Command, CommandEvents, Compact, DeleteRange, LeaseChoice, LeaseId, Proposal, Put, Term, ValueChoice,
    };

    /// Changes of a key that existed before.
    fn items(count: u64) -> Vec<Item<Kv>> {
        let feed = Feed::<Kv>::new(StatePoint::default(), FeedOptions::default());
        let mut reader = feed.subscribe(KeyRange::One("k".into()), Start::Now, &Session::new(), 0).unwrap();
        let kv = KeyValue { key: "k".into(), version: 2, ..KeyValue::default() };
        let event = KvEvent { kind: ChangeKind::Put, kv };
        let commit = |index| CommandEvents {
            index: LogIndex(index),
            revision: None,
            kv: [event.clone()].into(),
            resources: [].into(),
            catalog: [].into(),
            cluster: [].into(),
        };
        feed.publish(&(1..=count).map(commit).collect::<Vec<_>>());
        std::iter::from_fn(|| reader.try_next().unwrap()).collect()
    }

    #[test]
    fn predecessors_count_and_end_a_batch() {
        let items = items(100);
        let found = std::cell::Cell::new(0);
        let look_up = |value_len: usize| {
            let found = &found;
            move |batch: &[Item<Kv>]| {
                found.set(found.get() + batch.len());
                for item in batch {
                    let prev = KeyValue { value: vec![0; value_len].into(), ..KeyValue::default() };
                    item.commit().set_prev(0, Some(prev));
                }
                Ok(())
            }
        };
        // A pair counts twice, once for its encoding: the second item reaches the limit.
        assert_eq!(resolve(&items, 3_000_000, look_up(1_000_000)).unwrap(), 2);
        assert_eq!(found.get(), 3, "few were looked up for nothing");
        // Known predecessors count as well.
        assert_eq!(resolve(&items, 3_000_000, |_| Ok(())).unwrap(), 2);
        // The first item always fits, and small ones do not end a batch.
        assert_eq!(resolve(&items, 0, |_| Ok(())).unwrap(), 1);
        assert_eq!(resolve(&items[3..], 3_000_000, look_up(10)).unwrap(), 97);
    }

    /// A store that publishes its commits.
    struct Bed {
        _dir: tempfile::TempDir,
        store: Arc<StateStore>,
        events: EventPublisher,
        applied: u64,
    }

    impl Bed {
        /// With a window of two commits.
        fn new() -> Self {
            Self::with(FeedOptions { window_items_max: 2, ..FeedOptions::default() })
        }

        fn with(options: FeedOptions) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let store = Arc::new(StateStore::open(dir.path(), &StateOptions::default()).unwrap());
            let events = EventPublisher::new(StatePoint::default(), options);
            tokio::spawn(events.kv().wake_readers());
            let history = StateHistory::new(Arc::clone(&store), events.kv());
            tokio::spawn(events.kv().serve_catch_up(Arc::new(history)));
            Self { _dir: dir, store, events, applied: 0 }
        }

        fn apply(&mut self, command: Command) {
            self.applied += 1;
            let index = LogIndex(self.applied);
            let db = self.store.current();
            let mut txn = self.store.begin(&db).unwrap();
            headwater_fsm::apply(&mut txn, Term(1), index, &Proposal::new(0, command), false).unwrap();
            txn.set_applied(&AppliedState { term: Term(1), index, membership: None });
            let committed = txn.commit().unwrap();
            self.events.publish(committed.events);
        }

        /// The first put makes revision 2.
        fn put_through(&mut self, revision: i64) {
            while self.store.current().head().revision < Revision(revision) {
                self.put("k", "v".into());
            }
        }

        fn put(&mut self, key: &str, value: Bytes) {
            let (value, lease) = (ValueChoice::Set(value), LeaseChoice::Set(LeaseId::NONE));
            self.apply(Command::Put(Put { key: Bytes::copy_from_slice(key.as_bytes()), value, lease, prev_kv: false }));
        }
    }

    /// Every revision that can be read now.
    async fn read(watch: &mut KeyWatch, session: &Session, bed: &Bed) -> Result<Vec<i64>, CloseReason> {
        let mut revisions = Vec::new();
        loop {
            while let Some(item) = watch.try_next()? {
                revisions.push(item.commit().revision().unwrap().get());
            }
            if watch.is_through(LogIndex(bed.applied)) {
                return Ok(revisions);
            }
            session.raised().await;
        }
    }

    #[tokio::test]
    async fn predecessors_stay_within_the_bound_though_nothing_is_written_any_more() {
        const WINDOW_BYTES: usize = 500_000;
        let mut bed = Bed::with(FeedOptions { window_bytes_max: WINDOW_BYTES, ..FeedOptions::default() });
        let keys: Vec<String> = (0..100).map(|number| format!("k{number}")).collect();
        for key in &keys {
            bed.put(key, vec![0; 10_000].into());
        }
        let session = Session::new();
        let query = WatchQuery { range: KeyRange::all(), start: None };
        let mut watches =
            [0, 1].map(|token| KeyWatch::open(&bed.store, &bed.events, query.clone(), &session, token).unwrap());
        for key in &keys {
            let range = KeyRange::One(Bytes::copy_from_slice(key.as_bytes()));
            bed.apply(Command::DeleteRange(DeleteRange { range, prev_kv: false }));
        }
        let held = || bed.events.kv().stats();
        assert_eq!(held().window_items, 100, "removals are small");
        let items: Vec<_> = std::iter::from_fn(|| watches[0].try_next().unwrap()).collect();
        assert_eq!(resolve_within(&bed.store, bed.events.kv(), &items, usize::MAX).unwrap(), 100);
        assert!(items.iter().all(|item| item.bytes() > 20_000), "what was read stays with its reader");
        let stats = held();
        assert!(stats.window_items > 0 && stats.window_bytes <= WINDOW_BYTES as u64, "{stats:?}");
        // A later reader finds all of it, in history.
        let wanted: Vec<_> = items.iter().map(|item| item.commit().revision().unwrap().get()).collect();
        assert_eq!(read(&mut watches[1], &session, &bed).await, Ok(wanted));
    }

    #[tokio::test]
    async fn what_is_compacted_before_the_start_of_a_watch_does_not_end_it() {
        let mut bed = Bed::new();
        let session = Session::new();
        // A client that has seen all up to 29 at another member continues at a lagging one, and
        // reads nothing for a while.
        let query = WatchQuery { range: KeyRange::all(), start: Some(Revision(30)) };
        let mut watch = KeyWatch::open(&bed.store, &bed.events, query, &session, 0).unwrap();
        bed.put_through(20);
        bed.apply(Command::Compact(Compact { revision: Revision(15) }));
        assert_eq!(read(&mut watch, &session, &bed).await, Ok(vec![]));
        bed.put_through(33);
        bed.apply(Command::Compact(Compact { revision: Revision(30) }));
        assert_eq!(read(&mut watch, &session, &bed).await, Ok(vec![30, 31, 32, 33]));
        // Compaction of an unread revision does end the watch.
        bed.put_through(40);
        bed.apply(Command::Compact(Compact { revision: Revision(38) }));
        let ended = read(&mut watch, &session, &bed).await;
        assert_eq!(ended, Err(CloseReason::Compacted { revision: Revision(38) }));
    }
}
