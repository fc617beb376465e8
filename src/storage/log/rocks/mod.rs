//! The log in a RocksDB of its own, the form that version 0.3 knows: a family of entries, and one
//! of everything else.
//!
//! Owns the layout of that database. Opening checks everything (`recover`); inspection reads what
//! is left of a damaged one (`inspect`).

pub(super) mod inspect;
mod options;
pub(super) mod recover;

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use headwater_files as files;
use parking_lot::Mutex;
use rocksdb::{ColumnFamily, DB, DBRawIterator, Options, WriteBatch, WriteOptions};

use super::batch::{BatchChange, LogBatch, Meta};
use super::record::{LogRecord, corrupt, decode_entry, encode_entry, encode_meta, entry_index, entry_key};
use super::{LogOptions, mark};
use crate::StorageError;
use headwater_proto::codec::raft::{LogTip, StoreId};
pub(super) use options::{CF_ENTRIES, CF_META};
#[cfg(test)]
pub(super) use options::{db_options, families};
use options::{read_options, write_options};

const KEY_VOTE: &str = "vote";
const KEY_COMMITTED: &str = "committed";
const KEY_PURGED: &str = "purged";
const KEY_TIP: &str = "tip";
const KEY_STORE: &str = "store";

/// Estimated size of the records of a batch that are not entries, bytes.
const BATCH_OVERHEAD_BYTES: usize = 256;
/// Estimated size of the key and the frame of one entry in a batch, bytes.
const ENTRY_OVERHEAD_BYTES: usize = 48;

/// Whether there is a database in `dir`.
pub(super) fn exists(dir: &Path) -> bool {
    dir.join("CURRENT").exists()
}

/// Removes the database in `dir`, or what an interrupted removal has left of it: another one would
/// take over its write-ahead files. Leaves the mark, and folders.
pub(super) fn remove(dir: &Path) -> Result<(), StorageError> {
    if exists(dir) {
        DB::destroy(&Options::default(), dir)?;
    }
    for entry in fs::read_dir(dir).map_err(files::at(dir))? {
        let path = entry.map_err(files::at(dir))?.path();
        if path.is_file() && !path.ends_with(mark::FILE_NAME) {
            fs::remove_file(&path).map_err(files::at(&path))?;
        }
    }
    Ok(())
}

/// An open log in RocksDB.
pub(super) struct RocksLog {
    /// `None` only while the value is dropped.
    db: Option<DB>,
    dir: PathBuf,
    write: WriteOptions,
    is_retired: AtomicBool,
    /// The other end of `_is_open`, until somebody wants to wait for it.
    closed: Mutex<Option<Receiver<Infallible>>>,
    /// Disconnects when the database is closed, and removed if it was retired.
    _is_open: Sender<Infallible>,
}

impl RocksLog {
    fn new(db: DB, dir: &Path, options: &LogOptions) -> Self {
        let write = write_options(!options.unsafe_no_fsync);
        let (open, closed) = mpsc::channel();
        Self {
            db: Some(db),
            dir: dir.into(),
            write,
            is_retired: AtomicBool::new(false),
            closed: Mutex::new(Some(closed)),
            _is_open: open,
        }
    }

    /// Creates a log in `dir`, which must have no database, with `meta` and `tip` and without
    /// entries; durably.
    pub(super) fn create(dir: &Path, options: &LogOptions, meta: &Meta, tip: &LogTip) -> Result<Self, StorageError> {
        let db = DB::open_cf_descriptors(&options::db_options(true), dir, options::families(options))?;
        let log = Self::new(db, dir, options);
        let mut batch = WriteBatch::default();
        let mut scratch = Vec::new();
        let family = log.family(CF_META);
        encode_meta(&StoreId(options.store_id), &mut scratch);
        batch.put_cf(family, KEY_STORE, &scratch);
        if let Some(vote) = &meta.vote {
            encode_meta(vote, &mut scratch);
            batch.put_cf(family, KEY_VOTE, &scratch);
        }
        for (key, id) in [(KEY_COMMITTED, meta.committed), (KEY_PURGED, meta.purged)] {
            if let Some(id) = id {
                encode_meta(&id, &mut scratch);
                batch.put_cf(family, key, &scratch);
            }
        }
        encode_meta(tip, &mut scratch);
        batch.put_cf(family, KEY_TIP, &scratch);
        log.db().write_opt(batch, &log.write)?;
        Ok(log)
    }

    pub(super) fn db(&self) -> &DB {
        self.db.as_ref().expect("invariant: open until it is dropped")
    }

    pub(super) fn family(&self, name: &str) -> &ColumnFamily {
        self.db().cf_handle(name).expect("invariant: opened with every family")
    }

    pub(super) fn write(&self, changes: &LogBatch<'_>) -> Result<usize, StorageError> {
        let capacity = BATCH_OVERHEAD_BYTES + changes.payload_bytes() + changes.entries() * ENTRY_OVERHEAD_BYTES;
        let mut batch = WriteBatch::with_capacity_bytes(capacity);
        let mut scratch = Vec::new();
        let (entries, meta) = (self.family(CF_ENTRIES), self.family(CF_META));
        for change in &changes.changes {
            match change {
                BatchChange::Append(records) => {
                    for record in *records {
                        encode_entry(record, &mut scratch);
                        batch.put_cf(entries, entry_key(record.index.get()), &scratch);
                    }
                }
                BatchChange::Truncate(from) => batch.delete_range_cf(entries, entry_key(*from), entry_key(u64::MAX)),
                BatchChange::Purge(_) => {}
            }
        }
        if let Some(vote) = &changes.vote {
            encode_meta(vote, &mut scratch);
            batch.put_cf(meta, KEY_VOTE, &scratch);
        }
        if let Some(purged) = changes.purged() {
            encode_meta(&purged, &mut scratch);
            batch.put_cf(meta, KEY_PURGED, &scratch);
        }
        match changes.committed {
            Some(Some(committed)) => {
                encode_meta(&committed, &mut scratch);
                batch.put_cf(meta, KEY_COMMITTED, &scratch);
            }
            Some(None) => batch.delete_cf(meta, KEY_COMMITTED),
            None => {}
        }
        encode_meta(&changes.tip, &mut scratch);
        batch.put_cf(meta, KEY_TIP, &scratch);
        let bytes = batch.size_in_bytes();
        self.db().write_opt(batch, &self.write)?;
        Ok(bytes)
    }

    pub(super) fn reader(&self, start: u64, end: u64) -> RocksReader<'_> {
        let mut cursor = self.db().raw_iterator_cf_opt(self.family(CF_ENTRIES), read_options(end));
        cursor.seek(entry_key(start));
        RocksReader { cursor, wanted: start }
    }

    /// Drops the files that hold only entries up to `index`. A purge writes no tombstones, so the
    /// files do not overlap and compaction moves them without rewriting.
    pub(super) fn reclaim(&self, index: u64) -> Result<(), StorageError> {
        Ok(self.db().delete_file_in_range_cf(self.family(CF_ENTRIES), entry_key(0), entry_key(index))?)
    }

    pub(super) fn retire(&self) -> Retired {
        self.is_retired.store(true, Ordering::Release);
        Retired(self.closed.lock().take())
    }
}

/// A database that is removed once nobody reads it any more.
#[derive(Default)]
pub(super) struct Retired(Option<Receiver<Infallible>>);

impl Retired {
    /// Waits until it is removed.
    pub(super) fn wait(&mut self) {
        if let Some(closed) = self.0.take() {
            // Nothing is ever sent.
            let _disconnected = closed.recv().is_err();
        }
    }
}

impl Drop for RocksLog {
    fn drop(&mut self) {
        drop(self.db.take());
        if self.is_retired.load(Ordering::Acquire)
            && let Err(error) = remove(&self.dir)
        {
            tracing::warn!(dir = %self.dir.display(), %error, "the former log is removed at the next start");
        }
    }
}

/// Reads consecutive entries, from a view of the database.
pub(super) struct RocksReader<'a> {
    cursor: DBRawIterator<'a>,
    wanted: u64,
}

impl RocksReader<'_> {
    pub(super) fn next(&mut self) -> Result<LogRecord, StorageError> {
        let wanted = self.wanted;
        let Some((key, value)) = self.cursor.item() else {
            self.cursor.status()?;
            return Err(corrupt(format!("log/entries/{wanted}"), "missing"));
        };
        let record = match entry_index(key)? {
            index if index == wanted => decode_entry(index, value)?,
            index => {
                return Err(corrupt(format!("log/entries/{wanted}"), format!("missing, the next entry is {index}")));
            }
        };
        self.cursor.next();
        self.wanted += 1;
        Ok(record)
    }
}
