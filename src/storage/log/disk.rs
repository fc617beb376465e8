//! The log on disk, in one of its two forms.
//!
//! Owns the choice between them; everything about one form is in its module. Members of version 0.3
//! know only RocksDB, so a log is converted once the cluster's version is higher, and back before a
//! member's data is handed to the older program ([`LogDb::convert`](super::LogDb::convert)).
//! Invariant: the folder `segments` exists in the folder of a log exactly if the log is made of
//! segments. It gets its name, and loses it, by one rename.

use std::path::Path;

use super::batch::LogBatch;
use super::record::LogRecord;
use super::rocks::{Retired, RocksLog, RocksReader};
use super::segments::{SegmentLog, SegmentReader};
use crate::StorageError;

/// How a log is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogForm {
    /// In a RocksDB: the only form that version 0.3 knows.
    #[default]
    RocksDb,
    /// In files of the log's own, which are written in order and then written over.
    Segments,
}

impl LogForm {
    /// The form of the log in `dir`, the folder of a log. Right, too, while a node runs on it.
    pub fn of(dir: &Path) -> Self {
        if dir.join(super::segments::FOLDER).is_dir() { Self::Segments } else { Self::RocksDb }
    }
}

impl std::fmt::Display for LogForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::RocksDb => "RocksDB",
            Self::Segments => "segments",
        })
    }
}

/// An open log on disk.
pub(super) enum Disk {
    RocksDb(RocksLog),
    Segments(SegmentLog),
}

impl Disk {
    pub(super) fn form(&self) -> LogForm {
        match self {
            Self::RocksDb(_) => LogForm::RocksDb,
            Self::Segments(_) => LogForm::Segments,
        }
    }

    /// Writes `batch`, and syncs it unless [`LogOptions::unsafe_no_fsync`](super::LogOptions) is
    /// set. Returns the number of bytes that it has. Called by one thread.
    pub(super) fn write(&self, batch: &LogBatch<'_>) -> Result<usize, StorageError> {
        match self {
            Self::RocksDb(log) => log.write(batch),
            Self::Segments(log) => log.write(batch),
        }
    }

    /// A reader of the entries of `start..end` as they are on disk now, all of which must be there.
    pub(super) fn reader(&self, start: u64, end: u64) -> DiskReader<'_> {
        match self {
            Self::RocksDb(log) => DiskReader::RocksDb(log.reader(start, end)),
            Self::Segments(log) => DiskReader::Segments(log.reader(start, end)),
        }
    }

    /// Frees the space of the entries up to `index`, which must be durably purged.
    pub(super) fn reclaim(&self, index: u64) -> Result<(), StorageError> {
        match self {
            Self::RocksDb(log) => log.reclaim(index),
            Self::Segments(log) => log.reclaim(index),
        }
    }

    /// Has the files removed once nobody reads them any more. The log must be stored in the other
    /// form. If the process ends before, the next opening removes them.
    pub(super) fn retire(&self) -> Retired {
        match self {
            Self::RocksDb(log) => log.retire(),
            Self::Segments(log) => {
                log.retire();
                Retired::default()
            }
        }
    }
}

/// Reads consecutive entries; see [`Disk::reader`].
pub(super) enum DiskReader<'a> {
    RocksDb(RocksReader<'a>),
    Segments(SegmentReader),
}

impl DiskReader<'_> {
    /// The next entry.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] if it is damaged or missing, other errors if the disk failed.
    pub(super) fn next(&mut self) -> Result<LogRecord, StorageError> {
        match self {
            Self::RocksDb(reader) => reader.next(),
            Self::Segments(reader) => reader.next(),
        }
    }
}
