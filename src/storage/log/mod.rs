//! The Raft log on disk: entries, vote, committed id, purge point, in files of its own
//! (`segments`), or in a RocksDB of its own as long as the cluster has version 0.3 (`rocks`).
//!
//! One thread writes (`writer`): it takes the queued changes, up to a size, writes one batch, makes
//! one fsync, and completes every waiter (group commit). Submitted entries are readable at once
//! from a tail in memory (`state`). A change is durable when its callback runs, and a vote is shown
//! only then. Opening checks everything (`recover`); a damaged log is refused, never repaired. Does
//! not know Raft's rules or the meaning of entries. Invariant: the entries are consecutive, and the
//! disk always holds a prefix of the submitted changes that includes every acknowledged one.
//!
//! ```text
//! append ─► State (readable) ─► queue ─► writer: one write, fsync, mark ─► done (durable)
//! ```

mod batch;
mod convert;
mod disk;
mod inspect;
mod mark;
mod metrics;
mod options;
mod reclaim;
mod record;
mod recover;
mod rocks;
mod segments;
mod shared;
mod state;
mod writer;

#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Weak, mpsc};
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex, RwLock};

pub use self::disk::LogForm;
pub use self::inspect::{LogFacts, LogInspector};
pub use self::metrics::LogMetrics;
pub use self::options::{LogOptions, OnFailure};
use self::reclaim::Reclaimer;
pub use self::record::LogRecord;
use self::record::corrupt;
use self::shared::{Open, Shared};
use self::state::Change;
use self::writer::Writer;
use super::StorageError;
pub use headwater_proto::codec::raft::RecordKind;
use headwater_proto::codec::raft::{LogId, Vote};
use headwater_types::LogIndex;

/// The bounds of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// Id of the last entry that was purged. `None` if none was.
    pub last_purged: Option<LogId>,
    /// Id of the last entry; that of the last purged one if there is no entry. `None` if there is
    /// neither.
    pub last: Option<LogId>,
}

/// The log; cheap to clone. Dropping the last clone closes it, after everything submitted is
/// written.
///
/// Changes take a `done` that runs exactly once: on the writer's thread when the change is durable,
/// in the order of the calls; or with an error, on any thread, when it is refused or the log has
/// failed. It must not block.
///
/// # Failure
///
/// A failed write or fsync, a damaged record, or an append that leaves a hole or an overlap poisons
/// the log. Changes that wait get an error, later changes and reads are refused with
/// [`StorageError::Poisoned`], and [`LogOptions::on_failure`] is called once. Nothing is retried. A
/// change with an error in `done` may or may not be on disk.
#[derive(Clone)]
pub struct LogDb {
    handle: Arc<Handle>,
}

/// A handle that does not keep the log open.
#[derive(Clone)]
pub struct WeakLog {
    open: Weak<Open>,
    handle: Weak<Handle>,
}

impl WeakLog {
    /// Whether all clones of the log are dropped and its files are closed.
    pub fn is_gone(&self) -> bool {
        self.open.strong_count() == 0
    }

    /// The log. `None` once all clones of it are dropped.
    pub fn upgrade(&self) -> Option<LogDb> {
        self.handle.upgrade().map(|handle| LogDb { handle })
    }
}

impl std::fmt::Debug for WeakLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeakLog").field("is_gone", &self.is_gone()).finish_non_exhaustive()
    }
}

/// Shared by all clones of a [`LogDb`]: owns the writer's thread. Dropping it closes the log.
struct Handle {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl LogDb {
    /// Opens the log in `dir`, creates it if it may be created, and checks every record in it.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] if anything that was acknowledged is missing or damaged: then this
    /// member may only come back without data, because its votes and acknowledgements are unknown.
    /// [`StorageError::WrongDirectory`] if the log belongs to another store. Other errors if the
    /// disk failed, or a record is newer than this program.
    pub fn open(dir: &Path, options: LogOptions) -> Result<Self, StorageError> {
        if options.unsafe_no_fsync {
            tracing::warn!("fsync of the log is off: acknowledged writes are lost when the power fails");
        }
        let recovered = recover::open(dir, &options)?;
        let meta = recovered.state.meta();
        let shared = Arc::new(Shared {
            disk: RwLock::new(Arc::new(recovered.disk)),
            files: Mutex::default(),
            dir: dir.into(),
            options,
            metrics: LogMetrics::new(),
            state: Mutex::new(recovered.state),
            work: Condvar::new(),
            open: Arc::default(),
        });
        let reclaimer = Reclaimer::start(Arc::clone(&shared))?;
        let writer = Writer::new(Arc::clone(&shared), recovered.mark, reclaimer, recovered.tip, meta);
        let thread = thread::Builder::new()
            .name("log-writer".into())
            .spawn(move || writer.run())
            .map_err(|source| StorageError::Io { path: dir.into(), source })?;
        Ok(Self { handle: Arc::new(Handle { shared, writer: Mutex::new(Some(thread)) }) })
    }

    /// Appends `records`. They must continue the log without a hole or an overlap; otherwise the
    /// log is poisoned. They are readable when this returns, and durable when `done` runs. A log
    /// without an entry that was never purged may start at any index.
    pub fn append(&self, records: Vec<LogRecord>, done: impl FnOnce(Result<(), io::Error>) + Send + 'static) {
        self.shared().submit(done, |state| {
            state.append(&records)?;
            Ok(Change::Append(records))
        });
    }

    /// Removes every entry after `last` (all entries for `None`); takes effect for readers at once.
    pub fn truncate_after(&self, last: Option<LogIndex>, done: impl FnOnce(Result<(), io::Error>) + Send + 'static) {
        let shared = self.shared();
        shared.submit(done, |state| {
            let end = last.map_or(state.bounds.first, |last| last.get() + 1).max(state.bounds.first);
            if end < state.bounds.end() {
                let last = shared.id_before(state, end)?;
                state.truncate(end, last);
            }
            Ok(Change::Truncate(end))
        });
    }

    /// Removes every entry up to and with `id`, which may lie beyond the end: then the log
    /// continues after it. Takes effect for readers at once. Callers need not wait for `done`,
    /// because nothing depends on its durability. A later change is never durable without it. If
    /// the log is purged that far already, its content does not change.
    pub fn purge(&self, id: LogId, done: impl FnOnce(Result<(), io::Error>) + Send + 'static) {
        self.shared().submit(done, |state| {
            let id = state.purged.filter(|purged| purged.index >= id.index).unwrap_or(id);
            state.purge(id);
            Ok(Change::Purge(id))
        });
    }

    /// Saves the vote; [`Self::vote`] shows it once it is durable. An append submitted later is
    /// never durable without it.
    pub fn save_vote(&self, vote: Vote, done: impl FnOnce(Result<(), io::Error>) + Send + 'static) {
        self.shared().submit(done, |_| Ok(Change::Vote(vote)));
    }

    /// The last durable vote. `None` if there is none yet.
    ///
    /// # Errors
    ///
    /// [`StorageError::Poisoned`] after a failure.
    pub fn vote(&self) -> Result<Option<Vote>, StorageError> {
        let state = self.shared().state.lock();
        state.check().map(|()| state.vote)
    }

    /// Remembers the committed id. Costs no write of its own: the id is stored with a later change,
    /// or when the log is closed. It is never stored before its entry.
    ///
    /// # Errors
    ///
    /// [`StorageError::Poisoned`] after a failure.
    pub fn save_committed(&self, committed: Option<LogId>) -> Result<(), StorageError> {
        let mut state = self.shared().state.lock();
        state.check()?;
        if state.committed != committed {
            state.committed = committed;
            state.committed_dirty = true;
        }
        Ok(())
    }

    /// The committed id that was saved last; after a restart it may be an older one. `None` if
    /// there is none.
    ///
    /// # Errors
    ///
    /// [`StorageError::Poisoned`] after a failure.
    pub fn committed(&self) -> Result<Option<LogId>, StorageError> {
        let state = self.shared().state.lock();
        state.check().map(|()| state.committed)
    }

    /// The bounds of the log, with all submitted changes.
    ///
    /// # Errors
    ///
    /// [`StorageError::Poisoned`] after a failure.
    pub fn state(&self) -> Result<LogState, StorageError> {
        let state = self.shared().state.lock();
        state.check().map(|()| LogState { last_purged: state.purged, last: state.bounds.last })
    }

    /// Every entry of `range` that the log holds, in one consistent view: only entries before the
    /// start or after the end of the log may be absent.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] for a damaged or missing record, other errors if the disk failed;
    /// each poisons the log. [`StorageError::Poisoned`] after a failure.
    pub fn read(&self, range: Range<LogIndex>) -> Result<Vec<LogRecord>, StorageError> {
        self.read_limited(range.start, range.end, usize::MAX)
    }

    /// As [`Self::read`] of `start..end`, cut to `bytes_max` of payload but at least one entry if
    /// the log holds any of them.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn read_limited(
        &self,
        start: LogIndex,
        end: LogIndex,
        bytes_max: usize,
    ) -> Result<Vec<LogRecord>, StorageError> {
        self.shared().read(start.get(), end.get(), bytes_max)
    }

    /// Makes sure that the log reaches `applied`, the entry up to which the state machine is
    /// durable. Needed at start, because a power failure may take entries from the log that the
    /// state machine has kept: it flushes on its own, and an entry may be applied before this
    /// node's own log has synced it. Does nothing if the log holds the entry with its term, or is
    /// purged that far. Otherwise no entry in the log is of use any more: all are dropped, and the
    /// log continues after `applied`. Returns when that is durable.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] if the log holds an entry of a later term at the index of
    /// `applied`: then the log or the state machine is of another cluster. Other errors if the log
    /// has failed or fails.
    pub fn reset_to(&self, applied: LogId) -> Result<(), StorageError> {
        let shared = self.shared();
        let (done, durable) = mpsc::channel();
        {
            let mut state = shared.state.lock();
            state.check()?;
            if state.purged.is_some_and(|purged| purged.index >= applied.index) {
                return Ok(());
            }
            if applied.index.get() < state.bounds.end() && applied.index.get() >= state.bounds.first {
                let found = shared.id_before(&state, applied.index.get() + 1)?;
                match found.map(|found| found.term.cmp(&applied.term)) {
                    Some(std::cmp::Ordering::Equal) => return Ok(()),
                    Some(std::cmp::Ordering::Less) | None => {}
                    Some(std::cmp::Ordering::Greater) => {
                        let detail = format!("the log holds {found:?} where the state machine has applied {applied:?}");
                        return Err(corrupt("log/entries", detail));
                    }
                }
                // `applied` was committed in place of the entry of an earlier term, so the entries
                // from there on are void. The entries before it are purged in any case.
                let (end, last) = (state.bounds.first, state.purged);
                state.truncate(end, last);
                Shared::enqueue(&mut state, Change::Truncate(end), Box::new(|_| {}));
            }
            state.purge(applied);
            Shared::enqueue(
                &mut state,
                Change::Purge(applied),
                Box::new(move |result| {
                    // The receiver is below; it cannot be gone.
                    let _gone = done.send(result).is_err();
                }),
            );
        }
        shared.wake_writer();
        let result = durable.recv().unwrap_or_else(|_| Err(io::Error::other("the log writer is gone")));
        result.map_err(|source| StorageError::Io { path: shared.dir.clone(), source })
    }

    /// The reason for which the log failed. `None` as long as it has not.
    pub fn failure(&self) -> Option<Arc<str>> {
        self.shared().state.lock().failed.clone()
    }

    /// The metrics of the log.
    pub fn metrics(&self) -> &LogMetrics {
        &self.shared().metrics
    }

    /// The form in which the log is stored.
    pub fn form(&self) -> LogForm {
        self.shared().disk.read().form()
    }

    /// Stores the log in `form`, between two writes, and removes it in the other form. Content and
    /// guarantees stay the same; changes that are submitted meanwhile wait. `done` runs when that
    /// is durable, at once if the log has that form. An error before the new form is whole, such
    /// as that of a full disk, leaves the log as it was; a later one poisons it.
    pub fn convert(&self, form: LogForm, done: impl FnOnce(Result<(), io::Error>) + Send + 'static) {
        self.shared().submit(done, |_| Ok(Change::Convert(form)));
    }

    /// A handle that does not keep the log open, and reports whether its files are closed.
    pub fn downgrade(&self) -> WeakLog {
        WeakLog { open: Arc::downgrade(&self.handle.shared.open), handle: Arc::downgrade(&self.handle) }
    }

    /// Writes everything submitted, ends the writer, and waits for both. Later changes are refused,
    /// reads still succeed. Must not be called from a `done`.
    pub fn close(&self) {
        self.handle.close();
    }

    fn shared(&self) -> &Shared {
        &self.handle.shared
    }
}

impl std::fmt::Debug for LogDb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogDb").field("dir", &self.shared().dir).finish_non_exhaustive()
    }
}

impl Handle {
    fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.work.notify_all();
        let Some(thread) = self.writer.lock().take() else { return };
        // A `done` may own the last clone. It runs on the writer's thread, which cannot join itself
        // and ends without that.
        if thread.thread().id() != thread::current().id() {
            let _panicked = thread.join().is_err();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}
