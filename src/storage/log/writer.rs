//! The one thread that writes the log: it takes the queued changes, up to a size, writes one batch,
//! makes one fsync, then completes every waiter.
//!
//! Invariant: changes reach the disk in the order in which they were submitted, a batch as a whole
//! or not at all, and `done` of a change runs only after the fsync that covers it. Nothing is
//! written after the first failure: a failed fsync may have dropped pages that a second one would
//! report as written.

use std::sync::Arc;
use std::time::Instant;

use rocksdb::{WriteBatch, WriteOptions};

use super::mark::DurableMark;
use super::options::{CF_ENTRIES, CF_META, write_options};
use super::reclaim::Reclaimer;
use super::record::{encode_entry, encode_meta, entry_key};
use super::shared::{Shared, poisoned};
use super::state::{Bounds, Change, Op};
use super::{KEY_COMMITTED, KEY_PURGED, KEY_TIP, KEY_VOTE};
use crate::StorageError;
use headwater_proto::codec::raft::{LogId, LogTip, Vote};
use headwater_types::LogIndex;

/// Estimated size of the records of a batch that are not entries, bytes.
const BATCH_OVERHEAD_BYTES: usize = 256;
/// Estimated size of the key and the frame of one entry in a batch, bytes.
const ENTRY_OVERHEAD_BYTES: usize = 48;

/// The writer's own state; it lives on the thread.
pub(super) struct Writer {
    shared: Arc<Shared>,
    mark: DurableMark,
    reclaimer: Reclaimer,
    write: WriteOptions,
    /// Number of the last batch written.
    batch: u64,
    /// The bounds of the log on disk.
    bounds: Bounds,
    scratch: Vec<u8>,
}

/// The changes of one batch.
struct TakenBatch {
    ops: Vec<Op>,
    payload_bytes: usize,
    entries: usize,
    /// The committed id to write, if it changed since it was written last. `Some(None)` removes the
    /// stored one.
    committed: Option<Option<LogId>>,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        mark: DurableMark,
        reclaimer: Reclaimer,
        batch: u64,
        bounds: Bounds,
    ) -> Self {
        let write = write_options(!shared.options.unsafe_no_fsync);
        Self { shared, mark, reclaimer, write, batch, bounds, scratch: Vec::new() }
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
        let mut taken =
            TakenBatch { ops: Vec::with_capacity(state.queue.len()), payload_bytes: 0, entries: 0, committed: None };
        let mut bounds = self.bounds;
        while let Some(op) = state.queue.front() {
            let (bytes, entries) = match &op.change {
                Change::Append(records) => (records.iter().map(|record| record.payload.len()).sum(), records.len()),
                Change::Truncate(_) | Change::Purge(_) | Change::Vote(_) => (0, 0),
            };
            if !taken.ops.is_empty() && taken.payload_bytes + bytes > self.shared.options.batch_bytes_max {
                break;
            }
            taken.payload_bytes += bytes;
            taken.entries += entries;
            bounds = op.bounds;
            taken.ops.extend(state.queue.pop_front());
        }
        // The committed id is written with the batch, but never before the entry that it names.
        let covered = |id: LogId| bounds.last.is_some_and(|last| id.index <= last.index);
        if state.committed_dirty && state.committed.is_none_or(covered) {
            state.committed_dirty = false;
            taken.committed = Some(state.committed);
        }
        Some(taken)
    }

    /// Writes the taken changes, and completes their waiters.
    fn step(&mut self, taken: TakenBatch) {
        // Poisoned before a waiter learns of the failure, so that it cannot submit more.
        if let Err(error) = self.write(&taken) {
            self.shared.poison(&error);
        }
        let failed = {
            let mut state = self.shared.state.lock();
            if state.failed.is_none() {
                state.written(self.bounds.end(), self.shared.options.tail_bytes_max);
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
        let capacity = BATCH_OVERHEAD_BYTES + taken.payload_bytes + taken.entries * ENTRY_OVERHEAD_BYTES;
        let mut batch = WriteBatch::with_capacity_bytes(capacity);
        let (entries, meta) = (self.shared.family(CF_ENTRIES), self.shared.family(CF_META));
        let (mut vote, mut purged): (Option<Vote>, Option<LogId>) = (None, None);
        for op in &taken.ops {
            match &op.change {
                Change::Append(records) => {
                    for record in records {
                        encode_entry(record, &mut self.scratch);
                        batch.put_cf(entries, entry_key(record.index.get()), &self.scratch);
                    }
                }
                Change::Truncate(from) => {
                    headwater_fail_points::fail_point!(LogTruncate);
                    batch.delete_range_cf(entries, entry_key(*from), entry_key(u64::MAX));
                }
                Change::Purge(id) => purged = Some(*id),
                Change::Vote(saved) => vote = Some(*saved),
            }
        }
        if let Some(vote) = vote {
            encode_meta(&vote, &mut self.scratch);
            batch.put_cf(meta, KEY_VOTE, &self.scratch);
        }
        if let Some(purged) = purged {
            encode_meta(&purged, &mut self.scratch);
            batch.put_cf(meta, KEY_PURGED, &self.scratch);
        }
        match taken.committed {
            Some(Some(committed)) => {
                encode_meta(&committed, &mut self.scratch);
                batch.put_cf(meta, KEY_COMMITTED, &self.scratch);
            }
            Some(None) => batch.delete_cf(meta, KEY_COMMITTED),
            None => {}
        }
        if let Some(op) = taken.ops.last() {
            self.bounds = op.bounds;
        }
        self.commit(batch, taken.entries)?;
        if let Some(purged) = purged {
            headwater_fail_points::fail_point!(LogPurged);
            // The space may only be freed after the purge is durable.
            self.reclaimer.reclaim(purged.index.get());
        }
        Ok(())
    }

    /// Adds the tip to `batch`, writes it, syncs, and moves the mark. `entries` is the number of
    /// entries in it.
    fn commit(&mut self, mut batch: WriteBatch, entries: usize) -> Result<(), StorageError> {
        self.batch += 1;
        let tip = LogTip { batch: self.batch, first: LogIndex(self.bounds.first), last: self.bounds.last };
        encode_meta(&tip, &mut self.scratch);
        batch.put_cf(self.shared.family(CF_META), KEY_TIP, &self.scratch);

        let metrics = &self.shared.metrics;
        metrics.write_bytes.inc_by(batch.size_in_bytes() as u64);
        if entries > 0 {
            metrics.batch_entries.observe(entries as f64);
        }
        headwater_fail_points::fail_point!(LogWrite);
        let started = Instant::now();
        self.shared.db.write_opt(batch, &self.write)?;
        headwater_fail_points::fail_point!(LogSynced);
        if !self.shared.options.unsafe_no_fsync {
            metrics.fsync_seconds.observe(started.elapsed().as_secs_f64());
            self.mark.set(self.batch)?;
        }
        headwater_fail_points::fail_point!(LogMarked);
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
            let covered = |id: LogId| self.bounds.last.is_some_and(|last| id.index <= last.index);
            state.committed.filter(|&id| state.committed_dirty && covered(id))
        };
        if let Some(committed) = committed {
            let mut batch = WriteBatch::default();
            encode_meta(&committed, &mut self.scratch);
            batch.put_cf(self.shared.family(CF_META), KEY_COMMITTED, &self.scratch);
            self.commit(batch, 0)?;
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
