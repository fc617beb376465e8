//! The one thread that writes the log: it takes the queued changes, up to a size, writes one batch,
//! makes one fsync, then completes every waiter.
//!
//! Invariant: changes reach the disk in the order in which they were submitted, a batch as a whole
//! or not at all, and `done` of a change runs only after the fsync that covers it. Nothing is
//! written after the first failure: a failed fsync may have dropped pages that a second one would
//! report as written.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::batch::{BatchChange, LogBatch, Meta};
use super::convert;
use super::disk::LogForm;
use super::mark::DurableMark;
use super::reclaim::Reclaimer;
use super::rocks::Retired;
use super::shared::{Shared, poisoned};
use super::state::{Bounds, Change, Op};
use crate::StorageError;
use headwater_proto::codec::raft::{LogId, LogTip};
use headwater_types::LogIndex;

/// The writer's own state; it lives on the thread.
pub(super) struct Writer {
    shared: Arc<Shared>,
    mark: DurableMark,
    reclaimer: Reclaimer,
    /// The number of the last write, and the bounds of the log on disk.
    tip: LogTip,
    /// What else is on disk.
    meta: Meta,
    /// The database that the log was in before it was converted last.
    retired: Retired,
}

/// The changes of one batch.
struct TakenBatch {
    ops: Vec<Op>,
    /// The committed id to write, if it changed since it was written last. `Some(None)` removes the
    /// stored one.
    committed: Option<Option<LogId>>,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, mark: DurableMark, reclaimer: Reclaimer, tip: LogTip, meta: Meta) -> Self {
        Self { shared, mark, reclaimer, tip, meta, retired: Retired::default() }
    }

    /// Runs until the log is closed and every queued change is written.
    pub(super) fn run(mut self) {
        let guard = PanicGuard(Arc::clone(&self.shared));
        while let Some(taken) = self.take() {
            self.step(taken);
        }
        if let Err(error) = self.finish() {
            self.shared.poison(&error);
        }
        drop(guard);
    }

    /// Waits for changes, and takes those that fit one batch, at least one. `None` when the log is
    /// closed and the queue is empty.
    fn take(&self) -> Option<TakenBatch> {
        let mut state = self.shared.state.lock();
        while state.queue.is_empty() && !state.closed {
            self.shared.work.wait(&mut state);
        }
        if state.queue.is_empty() {
            return None;
        }
        let mut taken = TakenBatch { ops: Vec::with_capacity(state.queue.len()), committed: None };
        let mut payload_bytes = 0;
        let mut bounds = Bounds::of(&self.tip);
        while let Some(op) = state.queue.front() {
            let bytes = match &op.change {
                Change::Append(records) => records.iter().map(|record| record.payload.len()).sum(),
                Change::Truncate(_) | Change::Purge(_) | Change::Vote(_) | Change::Convert(_) => 0,
            };
            let is_conversion = matches!(op.change, Change::Convert(_));
            if !taken.ops.is_empty() && (is_conversion || payload_bytes + bytes > self.shared.options.batch_bytes_max) {
                break;
            }
            payload_bytes += bytes;
            bounds = op.bounds;
            taken.ops.extend(state.queue.pop_front());
            if is_conversion {
                return Some(taken);
            }
        }
        // The committed id is written with the batch, but never before the entry that it names.
        let covered = |id: LogId| bounds.last.is_some_and(|last| id.index <= last.index);
        if state.committed_dirty && state.committed.is_none_or(covered) {
            state.committed_dirty = false;
            taken.committed = Some(state.committed);
        } else if self.meta.committed.is_some_and(|id| !covered(id)) {
            // The entry of the stored one is removed, and that of the newest is not there yet.
            state.committed_dirty = true;
            taken.committed = Some(None);
        }
        Some(taken)
    }

    /// Writes the taken changes, and completes their waiters.
    fn step(&mut self, mut taken: TakenBatch) {
        if let [Op { change: Change::Convert(form), .. }] = taken.ops[..] {
            let converted = self.convert(form);
            if let Some(Op { done, .. }) = taken.ops.pop() {
                done(converted);
            }
            return;
        }
        // Poisoned before a waiter learns of the failure, so that it cannot submit more.
        if let Err(error) = self.write(&taken) {
            self.shared.poison(&error);
        }
        let failed = {
            let mut state = self.shared.state.lock();
            if state.failed.is_none() {
                state.written(Bounds::of(&self.tip).end(), self.shared.options.tail_bytes_max);
                for op in &taken.ops {
                    if let Change::Vote(vote) = op.change {
                        state.vote = Some(vote);
                    }
                }
            }
            state.failed.clone()
        };
        for op in taken.ops {
            (op.done)(match &failed {
                None => Ok(()),
                Some(reason) => Err(poisoned(reason)),
            });
        }
    }

    fn write(&mut self, taken: &TakenBatch) -> Result<(), StorageError> {
        self.shared.state.lock().check()?;
        let (mut vote, mut changes) = (None, Vec::with_capacity(taken.ops.len()));
        for op in &taken.ops {
            match &op.change {
                Change::Append(records) => changes.push(BatchChange::Append(records)),
                Change::Truncate(from) => {
                    headwater_fail_points::fail_point!(LogTruncate);
                    changes.push(BatchChange::Truncate(*from));
                }
                Change::Purge(id) => changes.push(BatchChange::Purge(*id)),
                Change::Vote(saved) => vote = Some(*saved),
                Change::Convert(_) => {}
            }
        }
        let bounds = taken.ops.last().map_or(Bounds::of(&self.tip), |op| op.bounds);
        let tip = LogTip { batch: self.tip.batch + 1, first: LogIndex(bounds.first), last: bounds.last };
        let batch = LogBatch { changes, vote, committed: taken.committed, tip };
        self.commit(&batch)?;
        if let Some(purged) = batch.purged() {
            headwater_fail_points::fail_point!(LogPurged);
            // The space may only be freed after the purge is durable.
            self.reclaimer.reclaim(purged.index.get());
        }
        Ok(())
    }

    /// Writes `batch`, syncs, and moves the mark.
    fn commit(&mut self, batch: &LogBatch<'_>) -> Result<(), StorageError> {
        let metrics = &self.shared.metrics;
        let entries = batch.entries();
        if entries > 0 {
            metrics.batch_entries.observe(entries as f64);
        }
        headwater_fail_points::fail_point!(LogWrite);
        let started = Instant::now();
        let bytes = self.shared.disk.read().write(batch)?;
        metrics.write_bytes.inc_by(bytes as u64);
        headwater_fail_points::fail_point!(LogSynced);
        self.tip = batch.tip;
        self.meta.update(batch);
        if !self.shared.options.unsafe_no_fsync {
            metrics.fsync_seconds.observe(started.elapsed().as_secs_f64());
            self.mark.set(self.tip.batch)?;
        }
        headwater_fail_points::fail_point!(LogMarked);
        Ok(())
    }

    /// Stores the log in another form, and has the former one removed. An error before the new form
    /// is the log leaves it as it was.
    fn convert(&mut self, form: LogForm) -> Result<(), io::Error> {
        self.shared.state.lock().check().map_err(io::Error::other)?;
        let files = self.shared.files.lock();
        let former = Arc::clone(&self.shared.disk.read());
        if former.form() == form {
            return Ok(());
        }
        // A second database would have the same place.
        self.retired.wait();
        let (copy, tip) =
            convert::copy_to(form, &former, &self.shared, &self.meta, &self.tip).map_err(io::Error::other)?;
        headwater_fail_points::fail_point!(LogConvert);
        let switched = convert::switch_to(copy, &self.shared).and_then(|disk| {
            headwater_fail_points::fail_point!(LogConverted);
            *self.shared.disk.write() = Arc::new(disk);
            self.tip = tip;
            if self.shared.options.unsafe_no_fsync { Ok(()) } else { self.mark.set(self.tip.batch) }
        });
        drop(files);
        if let Err(error) = switched {
            self.shared.poison(&error);
            return Err(io::Error::other(error));
        }
        self.retired = former.retire();
        tracing::info!(dir = %self.shared.dir.display(), %form, "the log is stored in another form now");
        Ok(())
    }

    /// Writes the newest committed id, if it is not stored yet, and syncs the mark, before the
    /// thread ends.
    fn finish(&mut self) -> Result<(), StorageError> {
        let committed = {
            let state = self.shared.state.lock();
            if state.failed.is_some() {
                return Ok(());
            }
            let covered = |id: LogId| self.tip.last.is_some_and(|last| id.index <= last.index);
            state.committed.filter(|&id| state.committed_dirty && covered(id))
        };
        if let Some(committed) = committed {
            let tip = LogTip { batch: self.tip.batch + 1, ..self.tip };
            self.commit(&LogBatch { changes: Vec::new(), vote: None, committed: Some(Some(committed)), tip })?;
        }
        if self.shared.options.unsafe_no_fsync { Ok(()) } else { self.mark.sync() }
    }
}

/// Turns a panic of the writer into a failure of the log, so that no caller waits for ever.
struct PanicGuard(Arc<Shared>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison(&StorageError::Poisoned("the log writer panicked".into()));
        }
    }
}
