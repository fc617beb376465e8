//! One write of the log, as the log on disk takes it.
//!
//! Owns the types between the writer and the two forms of the log on disk. Knows neither of them.

use super::record::LogRecord;
use headwater_proto::codec::raft::{LogId, LogTip, Vote};

/// Everything that one write brings to the disk: as a whole or not at all.
pub(super) struct LogBatch<'a> {
    /// The changes of entries and of the start of the log, in order.
    pub(super) changes: Vec<BatchChange<'a>>,
    /// The new vote. `None` if it did not change.
    pub(super) vote: Option<Vote>,
    /// The new committed id; `Some(None)` removes the stored one. `None` if it did not change.
    pub(super) committed: Option<Option<LogId>>,
    /// Number of the write, one above that of the last one, and the bounds of the log after it.
    pub(super) tip: LogTip,
}

/// A change of entries or of the start of the log.
pub(super) enum BatchChange<'a> {
    Append(&'a [LogRecord]),
    /// Removes every entry from this index on.
    Truncate(u64),
    /// Moves the start of the log behind this entry.
    Purge(LogId),
}

impl LogBatch<'_> {
    /// Length of the payloads, bytes.
    pub(super) fn payload_bytes(&self) -> usize {
        self.appended().map(|record| record.payload.len()).sum()
    }

    /// Number of appended entries.
    pub(super) fn entries(&self) -> usize {
        self.appended().count()
    }

    fn appended(&self) -> impl Iterator<Item = &LogRecord> {
        self.changes.iter().flat_map(|change| match change {
            BatchChange::Append(records) => *records,
            BatchChange::Truncate(_) | BatchChange::Purge(_) => &[],
        })
    }

    /// The point up to which the log is purged with this write. `None` if it does not change that.
    pub(super) fn purged(&self) -> Option<LogId> {
        self.changes.iter().rev().find_map(|change| match change {
            BatchChange::Purge(id) => Some(*id),
            BatchChange::Append(_) | BatchChange::Truncate(_) => None,
        })
    }
}

/// What the log on disk holds besides its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
    pub(super) purged: Option<LogId>,
}

impl Meta {
    /// Takes over what `batch` changes.
    pub(super) fn update(&mut self, batch: &LogBatch<'_>) {
        self.vote = batch.vote.or(self.vote);
        self.purged = batch.purged().or(self.purged);
        if let Some(committed) = batch.committed {
            self.committed = committed;
        }
    }
}
