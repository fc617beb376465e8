//! The log as callers see it: with all submitted changes, whether or not they are on disk yet. A
//! vote is the exception: it is shown once it is on disk.
//!
//! Owns the memory tail, the bounds of the log and the queue of the writer. Knows nothing of
//! files. Invariant: the tail holds every entry that may not be on disk yet, and every entry
//! before the tail is on disk as it was submitted.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::batch::Meta;
use super::disk::LogForm;
use super::record::LogRecord;
use crate::StorageError;
use headwater_proto::codec::raft::{LogId, LogTip, Vote};
use headwater_types::LogIndex;

/// Called once: with `Ok` when a change is durable, or with the error.
pub(super) type Done = Box<dyn FnOnce(Result<(), io::Error>) + Send>;

/// One change on its way to the disk.
pub(super) struct Op {
    pub(super) change: Change,
    /// The bounds of the log once the change is made.
    pub(super) bounds: Bounds,
    pub(super) done: Done,
}

/// A submitted change, as the writer makes it on disk.
pub(super) enum Change {
    Append(Vec<LogRecord>),
    /// Removes every entry from this index on.
    Truncate(u64),
    /// Moves the start of the log behind this entry.
    Purge(LogId),
    Vote(Vote),
    /// Stores the log in this form.
    Convert(LogForm),
}

/// The bounds of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// First index that is not purged.
    pub(super) first: u64,
    /// Last entry; the last purged one if there is no entry. `None` if there is neither.
    pub(super) last: Option<LogId>,
}

impl Bounds {
    pub(super) fn of(tip: &LogTip) -> Self {
        Self { first: tip.first.get(), last: tip.last }
    }

    /// The index after the last entry; `first` if there is no entry.
    pub(super) fn end(&self) -> u64 {
        self.last.map_or(self.first, |last| last.index.get() + 1).max(self.first)
    }
}

/// The state that the mutex of the log protects.
#[derive(Default)]
pub(super) struct State {
    pub(super) bounds: Bounds,
    pub(super) purged: Option<LogId>,
    /// The last vote that is durable.
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
    /// Whether `committed` differs from the stored value.
    pub(super) committed_dirty: bool,
    pub(super) tail: VecDeque<LogRecord>,
    pub(super) tail_bytes: usize,
    /// Entries below this index are on disk exactly as in this state.
    pub(super) durable_end: u64,
    pub(super) queue: VecDeque<Op>,
    pub(super) failed: Option<Arc<str>>,
    pub(super) closed: bool,
}

impl State {
    /// Fails with [`StorageError::Poisoned`] if the log has failed.
    pub(super) fn check(&self) -> Result<(), StorageError> {
        match &self.failed {
            Some(reason) => Err(StorageError::Poisoned(reason.to_string())),
            None => Ok(()),
        }
    }

    /// What was recovered besides entries. Nothing is submitted yet.
    pub(super) fn meta(&self) -> Meta {
        Meta { vote: self.vote, committed: self.committed, purged: self.purged }
    }

    /// First index in the tail; the end of the log if the tail is empty.
    pub(super) fn tail_first(&self) -> u64 {
        self.tail.front().map_or(self.bounds.end(), |record| record.index.get())
    }

    /// The entry at `index` if it is in memory.
    pub(super) fn tail_at(&self, index: u64) -> Option<&LogRecord> {
        let offset = index.checked_sub(self.tail.front()?.index.get())?;
        self.tail.get(usize::try_from(offset).ok()?)
    }

    /// The entries of `start..end`, all of which must be in memory, cut to `bytes_max` of payload
    /// but at least one.
    pub(super) fn tail_slice(&self, start: u64, end: u64, bytes_max: usize) -> Vec<LogRecord> {
        let Some(front) = self.tail.front() else { return Vec::new() };
        let offset = |index: u64| usize::try_from(index - front.index.get()).expect("invariant: the tail is in memory");
        let mut left = bytes_max;
        let mut out = Vec::with_capacity(offset(end) - offset(start));
        for record in self.tail.range(offset(start)..offset(end)) {
            if !out.is_empty() && record.payload.len() > left {
                break;
            }
            left = left.saturating_sub(record.payload.len());
            out.push(record.clone());
        }
        out
    }

    /// Adds `records`; they are readable from now on.
    pub(super) fn append(&mut self, records: &[LogRecord]) -> Result<(), StorageError> {
        let misplaced = |wanted: u64, found: LogIndex| {
            let detail =
                format!("append at index {found} would leave a hole or an overlap: the log ends before {wanted}");
            StorageError::Corrupt { location: "log".into(), detail }
        };
        let Some(head) = records.first() else { return Ok(()) };
        // A log that never held anything may start anywhere; every other append continues it.
        if self.bounds.last.is_some() && head.index.get() != self.bounds.end() {
            return Err(misplaced(self.bounds.end(), head.index));
        }
        for (record, wanted) in records.iter().zip(head.index.get()..) {
            if record.index.get() != wanted {
                return Err(misplaced(wanted, record.index));
            }
        }
        if self.bounds.last.is_none() {
            self.bounds.first = head.index.get();
            self.durable_end = head.index.get();
        }
        self.tail_bytes += records.iter().map(LogRecord::cost_bytes).sum::<usize>();
        self.tail.extend(records.iter().cloned());
        self.bounds.last = records.last().map(LogRecord::id);
        Ok(())
    }

    /// Drops every entry from `end` on; `last` is the id of the entry before it, or of the last
    /// purged one; `None` if there is neither.
    pub(super) fn truncate(&mut self, end: u64, last: Option<LogId>) {
        while self.tail.back().is_some_and(|record| record.index.get() >= end) {
            self.drop_back();
        }
        self.bounds.last = last;
        if last.is_none() {
            self.bounds.first = 0;
        }
        self.durable_end = self.durable_end.min(end);
    }

    /// Drops every entry up to and with `id`, which may lie beyond the end.
    pub(super) fn purge(&mut self, id: LogId) {
        while self.tail.front().is_some_and(|record| record.index <= id.index) {
            self.drop_front();
        }
        self.purged = Some(id);
        self.bounds.first = self.bounds.first.max(id.index.get() + 1);
        if self.bounds.last.is_none_or(|last| last.index <= id.index) {
            self.bounds.last = Some(id);
        }
    }

    /// Notes that a batch is on disk: the stored log now ends before `end`. Then drops entries from
    /// memory as [`evict`](Self::evict) does.
    pub(super) fn written(&mut self, end: u64, tail_bytes_max: usize) {
        // A queued truncation has already changed the tail: from its index on, the entries of the
        // batch differ from it.
        let kept = self.queue.iter().filter_map(|op| match &op.change {
            Change::Truncate(from) => Some(*from),
            Change::Append(_) | Change::Purge(_) | Change::Vote(_) | Change::Convert(_) => None,
        });
        self.durable_end = kept.fold(end, u64::min);
        self.evict(tail_bytes_max);
    }

    /// Drops durable entries from the front of the tail while the tail exceeds `tail_bytes_max`.
    /// Stops at an entry that is not durable.
    pub(super) fn evict(&mut self, tail_bytes_max: usize) {
        while self.tail_bytes > tail_bytes_max
            && self.tail.front().is_some_and(|record| record.index.get() < self.durable_end)
        {
            self.drop_front();
        }
    }

    fn drop_front(&mut self) {
        if let Some(record) = self.tail.pop_front() {
            self.tail_bytes -= record.cost_bytes();
        }
    }

    fn drop_back(&mut self) {
        if let Some(record) = self.tail.pop_back() {
            self.tail_bytes -= record.cost_bytes();
        }
    }
}
