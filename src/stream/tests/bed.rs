//! A log to publish from and to catch up from. The test takes every step itself: nothing runs on
//! its own.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::{BufMut, Bytes, BytesMut};
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::super::*;
use headwater_types::{ChangeKind, CommandEvents, KeyRange, KeyValue, KvEvent, LogIndex, Revision};

/// The test's storage: the commits, the compaction point and the applied index.
#[derive(Default)]
pub(super) struct Log {
    pub(super) commits: Vec<CommandEvents>,
    /// The compaction point. A read from a position below it is refused.
    pub(super) compacted: LogIndex,
    pub(super) applied: LogIndex,
}

/// A shared [`Log`].
#[derive(Clone, Default)]
pub(super) struct SharedLog(pub(super) Arc<Mutex<Log>>);

impl History<Kv> for SharedLog {
    fn read(&self, after: LogIndex, limits: ScanLimits) -> BoxFuture<'static, Result<Chunk<Kv>, CloseReason>> {
        let log = self.0.lock();
        let result = if after < log.compacted {
            Err(CloseReason::Compacted { revision: Revision(log.compacted.get() as i64) })
        } else {
            let mut chunk = Chunk { after, reached: log.applied, commits: Vec::new() };
            let mut bytes = 0;
            for commit in log.commits.iter().filter(|commit| commit.index > after) {
                let Some(commit) = Commit::new(commit) else { continue };
                bytes += commit.bytes();
                if !chunk.commits.is_empty() && (chunk.commits.len() >= limits.commits_max || bytes > limits.bytes_max)
                {
                    chunk.reached = chunk.commits.last().unwrap().index();
                    break;
                }
                chunk.commits.push(Arc::new(commit));
            }
            Ok(chunk)
        };
        Box::pin(async move { result })
    }
}

/// A feed with its log.
pub(super) struct Bed {
    pub(super) log: SharedLog,
    pub(super) feed: Arc<Feed<Kv>>,
    /// Number of the log's commits that the feed has got.
    published: usize,
    catch_up: Pin<Box<dyn Future<Output = ()> + Send>>,
    waker: Pin<Box<dyn Future<Output = ()> + Send>>,
}

pub(super) fn options(window_items_max: usize, commits_max: usize) -> FeedOptions {
    FeedOptions {
        window_items_max,
        scan: ScanLimits { commits_max, ..ScanLimits::default() },
        inline_wakes_max: 2,
        ..FeedOptions::default()
    }
}

/// Puts of these keys by the command at `index`, whose revision is the index.
pub(super) fn commit(index: u64, keys: &[&str]) -> CommandEvents {
    let revision = Revision(index as i64);
    let event = |key: &&str| KvEvent {
        kind: ChangeKind::Put,
        kv: KeyValue {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: Bytes::from(index.to_string()),
            create_revision: revision,
            mod_revision: revision,
            version: 1,
            ..KeyValue::default()
        },
    };
    CommandEvents {
        index: LogIndex(index),
        revision: Some(revision),
        kv: keys.iter().map(event).collect(),
        resources: [].into(),
        catalog: [].into(),
        cluster: [].into(),
    }
}

impl Bed {
    pub(super) fn new(options: FeedOptions) -> Self {
        let log = SharedLog::default();
        let feed = Feed::new(StatePoint::default(), options);
        let catch_up = Box::pin(feed.serve_catch_up(Arc::new(log.clone())));
        let waker = Box::pin(feed.wake_readers());
        Self { log, feed, published: 0, catch_up, waker }
    }

    /// Adds the next commit to the log, where it can be read. Does not publish it.
    pub(super) fn commit(&mut self, keys: &[&str]) {
        let mut log = self.log.0.lock();
        log.applied = log.applied.next();
        let commit = commit(log.applied.get(), keys);
        log.commits.push(commit);
    }

    /// Publishes the commits that are not published yet.
    pub(super) fn publish(&mut self) {
        let commits = self.log.0.lock().commits[self.published..].to_vec();
        self.published += commits.len();
        self.feed.publish(&commits);
    }

    pub(super) fn put(&mut self, keys: &[&str]) {
        self.commit(keys);
        self.publish();
    }

    /// As after a snapshot install: unpublished commits will never be published.
    pub(super) fn reset(&mut self) {
        let (index, count) = {
            let log = self.log.0.lock();
            (log.applied, log.commits.len())
        };
        self.published = count;
        self.feed.reset(StatePoint { index, revision: Revision(index.get() as i64), epoch: None });
    }

    /// Polls the feed's tasks often enough to make them idle.
    pub(super) fn run_tasks(&mut self) {
        for _ in 0..8 {
            let mut cx = Context::from_waker(Waker::noop());
            assert!(self.catch_up.as_mut().poll(&mut cx).is_pending());
            assert!(self.waker.as_mut().poll(&mut cx).is_pending());
        }
    }

    /// Polls the task of [`Feed::wake_readers`] once.
    pub(super) fn step_waker(&mut self) {
        assert!(self.waker.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    pub(super) fn subscribe(&self, subject: &KeyRange, start: Start) -> Reader {
        let session = Session::new();
        let subscription = self.feed.subscribe(subject.clone(), start, &session, 7).unwrap();
        Reader { subscription, session, is_raised: true, seen: Vec::new() }
    }

    /// The events that a reader of `subject` yields after `after`.
    pub(super) fn wanted(&self, subject: &KeyRange, after: LogIndex) -> Vec<Seen> {
        let log = self.log.0.lock();
        let commits = log.commits.iter().filter(|commit| commit.index > after);
        commits.filter_map(|commit| Some(seen(&Item::select(&Arc::new(Commit::new(commit)?), subject)?))).collect()
    }
}

/// A commit's index with the keys of its events.
pub(super) type Seen = (u64, Vec<String>);

pub(super) fn seen(item: &Item<Kv>) -> Seen {
    let keys = item.events().map(|event| String::from_utf8(event.kv.key.to_vec()).unwrap());
    (item.index().get(), keys.collect())
}

/// A subscription that reads only when its session says so.
pub(super) struct Reader {
    pub(super) subscription: Subscription<Kv>,
    pub(super) session: Arc<Session>,
    is_raised: bool,
    pub(super) seen: Vec<Seen>,
}

/// Bounds of the runs that [`Reader::read_runs`] reads.
pub(super) const RUNS: RunBounds = RunBounds { commits_min: 2, commits_max: 4, bytes_max: 1 << 20 };

/// Appends the index and the keys of an item, so that [`decoded`] reads them.
fn encode(item: &Item<Kv>, to: &mut BytesMut) {
    let (index, keys) = seen(item);
    to.put_slice(format!("{index}:{};", keys.join(",")).as_bytes());
}

fn decoded(run: &Run<Kv>) -> Vec<Seen> {
    let text = String::from_utf8(run.bytes().to_vec()).unwrap();
    let commits = text.split_terminator(';').map(|commit| commit.split_once(':').unwrap());
    commits.map(|(index, keys)| (index.parse().unwrap(), keys.split(',').map(str::to_owned).collect())).collect()
}

impl Reader {
    /// Reads at most `limit` runs; returns them.
    pub(super) fn read_runs(&mut self, limit: usize) -> Vec<Arc<Run<Kv>>> {
        let mut runs = Vec::new();
        while runs.len() < limit
            && let Some(run) = self.subscription.try_next_run(0, Revision(0), &RUNS, encode)
        {
            let commits = decoded(&run);
            assert_eq!(commits.iter().map(|(_, keys)| keys.len()).sum::<usize>(), run.events());
            assert_eq!(commits.last().map(|(index, _)| *index as i64), run.revision().map(Revision::get));
            self.seen.extend(commits);
            runs.push(run);
        }
        runs
    }

    /// Reads the available commits, at most `limit`, if the session was raised.
    pub(super) fn read(&mut self, limit: usize) -> Result<(), CloseReason> {
        let raised = self.session.take_raised();
        assert!(raised.len() <= 1, "raised once: {raised:?}");
        self.is_raised |= raised == [7];
        if !self.is_raised {
            return Ok(());
        }
        for _ in 0..limit {
            match self.subscription.try_next()? {
                Some(item) => self.seen.push(seen(&item)),
                None => {
                    self.is_raised = false;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads everything, with the tasks of the feed running.
    pub(super) fn drain(&mut self, bed: &mut Bed) -> Result<(), CloseReason> {
        for _ in 0..1000 {
            self.read(usize::MAX)?;
            bed.run_tasks();
            if !self.is_raised && self.session.take_raised().is_empty() {
                return Ok(());
            }
            self.is_raised = true;
        }
        panic!("never comes to rest");
    }
}

pub(super) fn one(key: &'static str) -> KeyRange {
    KeyRange::One(Bytes::from_static(key.as_bytes()))
}

pub(super) fn prefix(key: &'static str) -> KeyRange {
    KeyRange::prefix(Bytes::from_static(key.as_bytes()))
}
