//! The part of the log that callers, the writer and the reclaimer share: the files, the state,
//! submission and failure.
//!
//! Invariant: a change becomes visible and is queued in one critical section, so that readers, the
//! writer and the disk see one order.

use std::io;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, RwLock};

use super::disk::Disk;
use super::metrics::LogMetrics;
use super::options::LogOptions;
use super::record::LogRecord;
use super::state::{Change, Done, Op, State};
use crate::StorageError;
use headwater_proto::codec::raft::LogId;

/// The shared part of a log.
pub(super) struct Shared {
    /// The log on disk. The writer replaces it when it converts the log.
    pub(super) disk: RwLock<Arc<Disk>>,
    /// Held while files of purged entries are dropped, and while the log is converted.
    pub(super) files: Mutex<()>,
    pub(super) dir: PathBuf,
    pub(super) options: LogOptions,
    pub(super) metrics: LogMetrics,
    pub(super) state: Mutex<State>,
    /// Signalled when a change was queued or the log closes.
    pub(super) work: Condvar,
    /// Shows [`WeakLog`](super::WeakLog) that the files of the log are closed. The last field, so
    /// that it is dropped after them.
    pub(super) open: Arc<Open>,
}

/// Token that is dropped after the files: a [`WeakLog`](super::WeakLog) sees by it that the
/// files of the log are closed.
#[derive(Debug, Default)]
pub(super) struct Open;

impl Shared {
    /// Runs `change` and queues its result under one lock, so that changes become visible and
    /// durable in the same order. Changes of entries are visible at once, a vote when it is
    /// durable. A refused change gets its error at once, and poisons the log unless the log had
    /// failed or was closed.
    pub(super) fn submit(
        &self,
        done: impl FnOnce(Result<(), io::Error>) + Send + 'static,
        change: impl FnOnce(&mut State) -> Result<Change, StorageError>,
    ) {
        let refused = {
            let mut state = self.state.lock();
            let admitted = match (state.check(), state.closed) {
                (Ok(()), true) => Err(StorageError::Poisoned("the log is closed".into())),
                (checked, _) => checked,
            };
            match admitted.and_then(|()| change(&mut state)) {
                Ok(change) => {
                    Self::enqueue(&mut state, change, Box::new(done));
                    drop(state);
                    self.wake_writer();
                    return;
                }
                Err(error) => error,
            }
        };
        // A change that leaves a hole or an overlap poisons the log, and so does damage: the caller
        // or the disk can no longer be trusted. A refusal by a failed or closed log is no failure
        // of its own.
        if !matches!(refused, StorageError::Poisoned(_)) {
            self.poison(&refused);
        }
        done(Err(io::Error::other(refused)));
    }

    /// Queues a change that is visible already. The caller wakes the writer after it released the
    /// lock.
    pub(super) fn enqueue(state: &mut State, change: Change, done: Done) {
        let bounds = state.bounds;
        state.queue.push_back(Op { change, bounds, done });
    }

    /// Wakes the writer after a change was queued. Not to be called under the lock: the lock would
    /// pass to the writer before it runs, and the next reader (the leader, for its followers) would
    /// wait for it.
    pub(super) fn wake_writer(&self) {
        self.work.notify_one();
    }

    /// The id of the entry before `end`. If that entry is purged, the last purged id; `None` if
    /// there is neither.
    pub(super) fn id_before(&self, state: &State, end: u64) -> Result<Option<LogId>, StorageError> {
        let Some(index) = end.checked_sub(1) else { return Ok(None) };
        if index < state.bounds.first {
            return Ok(state.purged);
        }
        if let Some(record) = state.tail_at(index) {
            return Ok(Some(record.id()));
        }
        let disk = Arc::clone(&self.disk.read());
        disk.reader(index, end).next().map(|record| Some(record.id()))
    }

    pub(super) fn read(&self, start: u64, end: u64, bytes_max: usize) -> Result<Vec<LogRecord>, StorageError> {
        let state = self.state.lock();
        state.check()?;
        let (start, end) = (start.max(state.bounds.first), end.min(state.bounds.end()));
        if start >= end {
            return Ok(Vec::new());
        }
        let tail_first = state.tail_first();
        if start >= tail_first {
            return Ok(state.tail_slice(start, end, bytes_max));
        }
        let disk_end = end.min(tail_first);
        let tail = if end > tail_first { state.tail_slice(tail_first, end, bytes_max) } else { Vec::new() };
        // Created before the lock is released: a reader sees the files as they are now, and keeps
        // those that it needs.
        let disk = Arc::clone(&self.disk.read());
        let mut reader = disk.reader(start, disk_end);
        drop(state);

        let mut out = Vec::new();
        let mut left = bytes_max;
        for _ in start..disk_end {
            let record = reader.next().inspect_err(|error| self.poison(error))?;
            if !take(&mut out, record, &mut left) {
                return Ok(out);
            }
        }
        for record in tail {
            if !take(&mut out, record, &mut left) {
                break;
            }
        }
        Ok(out)
    }

    /// Fails the log for good: the waiting changes get `error`, and later calls are refused with
    /// its text. Does nothing if the log has failed before.
    pub(super) fn poison(&self, error: &StorageError) {
        let reason: Arc<str> = error.to_string().into();
        let waiting = {
            let mut state = self.state.lock();
            if state.failed.is_some() {
                return;
            }
            state.failed = Some(Arc::clone(&reason));
            mem::take(&mut state.queue)
        };
        tracing::error!(dir = %self.dir.display(), %error, "the log failed and takes nothing more");
        if let Some(on_failure) = &self.options.on_failure {
            on_failure(&reason);
        }
        for op in waiting {
            (op.done)(Err(poisoned(&reason)));
        }
    }
}

/// Moves `record` to `out` if it fits into the remaining bytes, or is the first. False if it was
/// left out.
fn take(out: &mut Vec<LogRecord>, record: LogRecord, left: &mut usize) -> bool {
    if !out.is_empty() && record.payload.len() > *left {
        return false;
    }
    *left = left.saturating_sub(record.payload.len());
    out.push(record);
    true
}

/// The error that waiters get after a failure.
pub(super) fn poisoned(reason: &str) -> io::Error {
    io::Error::other(StorageError::Poisoned(reason.to_owned()))
}
