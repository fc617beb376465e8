//! One generation of the state: an open RocksDB with its head, its key cache and its health.
//!
//! Owns opening, flushing, checkpoints and durability. Knows no business rules. Invariant: `head`
//! is the one of the last commit; after a failed write or flush, every further write, flush, view
//! or transaction is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use headwater_files as files;
use parking_lot::{Mutex, RwLock};
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{BottommostLevelCompaction, ColumnFamily, CompactOptions, DB, FlushOptions, ReadOptions, WriteBatch};

use super::auth::RightsCache;
use super::cache::KeyCache;
use super::catalog::{ListCache, RowCache};
use super::commands::LastCommands;
use super::commits::OldestCommits;
use super::filter::{self, KeyFilter};
use super::head::StateHead;
use super::hot_records::HotRecords;
use super::keys;
use super::keys::Table;
use super::lease_cache::LeaseCache;
use super::options::{FAMILIES, HISTORY, INDEX, META, REVISIONS, Tuning, VERSIONS, write_options};
use super::ranges::RangeCache;
use super::record::Version as KeyVersion;
use super::registrations::Registrations;
use super::revisions::Distance;
use super::txn::{RecentCommits, WriteTxn};
use super::view::ReadView;
use crate::StorageError;
use crate::data_dir::VersionMark;
use crate::error::DAMAGED;
use crate::manifest;
use headwater_proto::codec::{self, CodecError};
use headwater_types::limits::LAST_COMMANDS_CACHED_MAX;
use headwater_types::{Feature, LogIndex, Supported, Term, Version};

/// Position and membership of the last applied entry, for the consensus layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedState {
    /// Term of the entry.
    pub term: Term,
    /// Log index of the entry.
    pub index: LogIndex,
    /// The membership as of this entry, opaque here. In [`WriteTxn::set_applied`]: `None` unless
    /// the entry changed it. From [`StateDb::applied_state`]: the last one set.
    pub membership: Option<Bytes>,
}

/// Description of a checkpoint of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateCopy {
    /// The last applied entry in it; `None` for an empty state.
    pub applied: Option<AppliedState>,
    /// The lowest version that understands the checkpoint.
    pub needs: Version,
}

/// Whether writes to the disk have succeeded so far. Shared by all generations: a failure stops the
/// whole store.
#[derive(Default)]
pub(super) struct DiskHealth {
    poisoned: AtomicBool,
    reason: Mutex<String>,
}

impl DiskHealth {
    pub(super) fn check(&self) -> Result<(), StorageError> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(StorageError::Poisoned(self.reason.lock().clone()));
        }
        Ok(())
    }

    /// Returns the result of a write or flush; a failure makes every later [`check`](Self::check)
    /// fail. A failed fsync is never retried, because the kernel may have dropped the pages that it
    /// could not write (spec: reliability §2.4).
    pub(super) fn observe<T>(&self, result: Result<T, rocksdb::Error>) -> Result<T, StorageError> {
        result.map_err(|error| {
            // With the advice to the operator: the node may end by one of the later errors.
            let error = StorageError::RocksDb(error);
            self.poison(error.to_string());
            error
        })
    }

    fn poison(&self, why: String) {
        let mut reason = self.reason.lock();
        if !self.poisoned.load(Ordering::Acquire) {
            *reason = why;
            self.poisoned.store(true, Ordering::Release);
        }
    }
}

/// Descriptors that a checkpoint may need at once, count: a table of each column family, the
/// manifest, and the folders that are fsynced.
const CHECKPOINT_DESCRIPTORS: usize = 16;

/// The directory of a generation. Dropping it removes the directory if the generation is retired.
struct GenerationDir {
    path: PathBuf,
    retired: AtomicBool,
}

impl Drop for GenerationDir {
    fn drop(&mut self) {
        if self.retired.load(Ordering::Acquire)
            && let Err(error) = files::remove_tree(&self.path)
        {
            // Harmless: the next start removes the generations that `CURRENT` does not name.
            tracing::warn!(path = %self.path.display(), error = %error.source, "could not remove a replaced state directory");
        }
    }
}

/// One generation of the state, open.
pub struct StateDb {
    pub(super) db: DB,
    // Dropped after `db`: a weak handle to it shows when the files are closed.
    pub(super) health: Arc<DiskHealth>,
    /// The versions that the program supports.
    supported: Supported,
    /// The version of the data directory, raised before the state holds records of a newer version.
    /// `None` if the state is not part of a data directory.
    pub(super) version_mark: Option<VersionMark>,
    pub(super) cache: KeyCache,
    /// The newest rows of intervals that were scanned lately.
    pub(super) ranges: RangeCache,
    /// Records that were read one by one lately.
    pub(super) hot_records: HotRecords,
    /// Leases with their keys. Used by write transactions only.
    pub(super) leases: LeaseCache,
    /// Registered types, decoded. Used by write transactions only.
    pub(super) registrations: Mutex<Registrations>,
    /// The oldest commits with idempotency keys. Used by write transactions only.
    pub(super) oldest_commits: Mutex<OldestCommits>,
    /// Compiled rights of users.
    pub(super) rights: Mutex<RightsCache>,
    /// Commands at which states were read lately.
    pub(super) last_commands: LastCommands,
    pub(super) rows: RowCache,
    pub(super) lists: ListCache,
    /// `None` if the state had too many versions for a filter when it was opened.
    pub(super) filter: Option<KeyFilter>,
    /// The head of the last commit.
    pub(super) head: RwLock<StateHead>,
    /// Held by the writer from its first change of the caches until its commit is the head.
    pub(super) committing: Mutex<()>,
    durable: Mutex<Option<LogIndex>>,
    pub(super) writing: AtomicBool,
    pub(super) recent_commits: Mutex<RecentCommits>,
    /// The distance of the last committed revision, if it was committed since the start.
    pub(super) last_distance: Mutex<Option<Distance>>,
    pub(super) reclaiming: Mutex<()>,
    /// Whether history is known to be as programs before version 0.4 read it: nothing else was
    /// written, or all of that was rewritten ([`StateDb::make_history_plain`]). False if it is not
    /// known.
    pub(super) has_plain_history: AtomicBool,
    /// Counts the beginnings and the ends of commits with which the version rises.
    pub(super) rises: AtomicU64,
    // Dropped after `db`, which has files open in it.
    dir: GenerationDir,
}

/// Handles of the column families.
#[derive(Clone, Copy)]
pub(super) struct Families<'db> {
    pub(super) history: &'db ColumnFamily,
    pub(super) versions: &'db ColumnFamily,
    pub(super) revisions: &'db ColumnFamily,
    pub(super) index: &'db ColumnFamily,
    pub(super) meta: &'db ColumnFamily,
}

impl StateDb {
    /// Opens the generation in `path`.
    pub(super) fn open(
        path: &Path,
        create: bool,
        tuning: &Tuning,
        health: Arc<DiskHealth>,
    ) -> Result<Self, StorageError> {
        manifest::check(path)?;
        let db = DB::open_cf_descriptors(&tuning.database(create), path, tuning.families())?;
        if create {
            let mut batch = WriteBatch::default();
            batch.put_cf(handle(&db, META), keys::META_HEAD, StateHead::EMPTY.encode());
            db.write_opt(batch, &write_options())?;
            flush_all(&db)?;
        }
        let head = read_head(&db)?;
        let supported = tuning.options.supported;
        supported.check("the state", head.version.version)?;
        if let Some(mark) = &tuning.options.version_mark {
            mark.raise(head.version.version)?;
        }
        Ok(Self {
            health,
            supported,
            version_mark: tuning.options.version_mark.clone(),
            filter: make_filter(&db)?,
            cache: KeyCache::new(tuning.options.key_cache_bytes),
            ranges: RangeCache::new(tuning.options.range_cache_bytes, Arc::clone(&tuning.range_metrics)),
            hot_records: HotRecords::new(tuning.options.hot_records_bytes),
            leases: LeaseCache::new(tuning.options.lease_cache_bytes),
            registrations: Mutex::default(),
            oldest_commits: Mutex::default(),
            rights: Mutex::default(),
            last_commands: LastCommands::new(LAST_COMMANDS_CACHED_MAX),
            rows: RowCache::default(),
            lists: ListCache::default(),
            head: RwLock::new(head),
            committing: Mutex::new(()),
            durable: Mutex::new(head.applied.map(|(_, index)| index)),
            writing: AtomicBool::new(false),
            recent_commits: Mutex::default(),
            last_distance: Mutex::default(),
            reclaiming: Mutex::new(()),
            has_plain_history: AtomicBool::new(create),
            rises: AtomicU64::new(0),
            dir: GenerationDir { path: path.to_owned(), retired: AtomicBool::new(false) },
            db,
        })
    }

    pub(super) fn families(&self) -> Families<'_> {
        Families {
            history: handle(&self.db, HISTORY),
            versions: handle(&self.db, VERSIONS),
            revisions: handle(&self.db, REVISIONS),
            index: handle(&self.db, INDEX),
            meta: handle(&self.db, META),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.dir.path
    }

    /// Marks the directory for removal when the generation is dropped, and empties the caches of
    /// values, which hardly anything but reads of the newest state uses, and that of leases, which
    /// only write transactions use.
    pub(super) fn retire(&self) {
        self.ranges.clear();
        self.hot_records.clear();
        self.leases.clear();
        self.dir.retired.store(true, Ordering::Release);
    }

    /// The head of the last commit. Cheap; for everything that reads data too, take a
    /// [`view`](Self::view).
    pub fn head(&self) -> StateHead {
        *self.head.read()
    }

    /// The versions of clusters that the program supports.
    pub fn supported(&self) -> Supported {
        self.supported
    }

    /// The lowest version that understands the state and everything beside it in the data
    /// directory. Above the state's for a moment after the version was lowered.
    pub fn directory_needs(&self) -> Version {
        let version = self.head().version.version;
        self.version_mark.as_ref().map_or(version, |mark| mark.needs().max(version))
    }

    /// A number that changes twice for a commit with which the cluster's version rises: before the
    /// version of the data directory rises, and when the commit is visible. If two calls return
    /// equal numbers, no record of a newer version was written in between.
    pub fn version_rises(&self) -> u64 {
        self.rises.load(Ordering::Acquire)
    }

    /// A consistent view of the state, with the applied position read through the same snapshot.
    ///
    /// # Errors
    ///
    /// If the disk failed, now or earlier, or the head cannot be decoded.
    pub fn view(&self) -> Result<ReadView<'_>, StorageError> {
        self.health.check()?;
        ReadView::new(self)
    }

    /// Begins a write transaction on the state as it is.
    ///
    /// # Errors
    ///
    /// If the disk failed earlier.
    ///
    /// # Panics
    ///
    /// If another transaction is open: there is one writer.
    pub fn begin(&self) -> Result<WriteTxn<'_>, StorageError> {
        self.health.check()?;
        let busy = self.writing.swap(true, Ordering::AcqRel);
        assert!(!busy, "invariant: one writer");
        Ok(WriteTxn::new(self))
    }

    /// The last applied entry with the membership as of it, as the last commit wrote them; `None`
    /// on an empty store.
    ///
    /// # Errors
    ///
    /// If the disk failed, now or earlier, or the head cannot be decoded.
    pub fn applied_state(&self) -> Result<Option<AppliedState>, StorageError> {
        let view = self.view()?;
        let Some((term, index)) = view.head().applied else {
            return Ok(None);
        };
        Ok(Some(AppliedState { term, index, membership: view.membership()? }))
    }

    /// Highest applied index that is surely on disk: the Raft log may be purged up to it. `None` if
    /// none is.
    pub fn durable_applied(&self) -> Option<LogIndex> {
        *self.durable.lock()
    }

    /// Writes everything that was committed before the call to disk, atomically across families,
    /// and waits for it. Returns the highest applied index that is surely on disk; `None` for an
    /// empty state. Blocks for a disk write and its fsync: call it from a thread that may block.
    ///
    /// # Errors
    ///
    /// If it fails; the store then refuses everything.
    pub fn flush(&self) -> Result<Option<LogIndex>, StorageError> {
        self.health.check()?;
        let applied = self.head().applied.map(|(_, index)| index);
        if applied.is_some() && applied == self.durable_applied() {
            return Ok(applied);
        }
        self.flush_now()?;
        self.check_background()?;
        let mut durable = self.durable.lock();
        *durable = (*durable).max(applied);
        Ok(*durable)
    }

    pub(super) fn flush_now(&self) -> Result<(), StorageError> {
        self.health.observe(flush_all(&self.db))
    }

    /// Rewrites all files, so that removed records take no space. Writes and reads continue; the
    /// disk must have space for a second copy of the largest family. Blocks for as long as it
    /// takes.
    ///
    /// # Errors
    ///
    /// If the disk failed; the store then refuses everything.
    pub fn compact_files(&self) -> Result<(), StorageError> {
        self.health.check()?;
        self.flush()?;
        let mut options = CompactOptions::default();
        options.set_exclusive_manual_compaction(false);
        // Without this, the last level, which holds most data, would not be rewritten.
        options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        for name in FAMILIES {
            self.db.compact_range_cf_opt(handle(&self.db, name), None::<&[u8]>, None::<&[u8]>, &options);
            self.check_background()?;
        }
        Ok(())
    }

    /// Checks for failures of RocksDB's background flushes and compactions, which no call returns.
    /// A failure stops the store.
    fn check_background(&self) -> Result<(), StorageError> {
        match self.db.property_int_value(rocksdb::properties::BACKGROUND_ERRORS)? {
            None | Some(0) => Ok(()),
            Some(count) => {
                self.health.poison(format!(
                    "{count} background flushes or compactions failed; see LOG in the state directory"
                ));
                self.health.check()
            }
        }
    }

    /// Copies the state to `to`, which must not exist: hard links, no pause for writers, fsynced
    /// before it returns. First makes history plain if the cluster's version knows nothing else
    /// ([`make_history_plain`](Self::make_history_plain)). Returns the description of the copy. Its
    /// applied index is at or past the one at the time of the call. Blocks: call it from a thread
    /// that may block.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded; the content of `to` must not be used
    /// then. [`StorageError::is_out_of_descriptors`] holds for the error if there are too few
    /// descriptors to begin: nothing was copied then.
    pub fn checkpoint(&self, to: &Path) -> Result<StateCopy, StorageError> {
        let copy = loop {
            self.health.check()?;
            self.make_history_plain()?;
            let rises = self.version_rises();
            // A checkpoint flushes, and RocksDB takes nothing more after a flush that could not
            // open its file.
            files::probe_descriptors(CHECKPOINT_DESCRIPTORS).map_err(files::at(to))?;
            let checkpoint = Checkpoint::new(&self.db)?;
            self.health.observe(checkpoint.create_checkpoint(to))?;
            headwater_fail_points::fail_point!(SnapshotCheckpoint);
            let copy = read_checkpoint(to)?;
            if Feature::CompactHistory.is_in(copy.needs) || self.is_plain_since(rises) {
                break copy;
            }
            // The version fell after history was looked at, and the copy promises a plain one.
            std::fs::remove_dir_all(to).map_err(files::at(to))?;
        };
        files::sync_tree(to)?;
        if let Some(parent) = to.parent() {
            files::sync_dir(parent)?;
        }
        Ok(copy)
    }

    /// Caches the newest version of a key that a reader at `seen` has found, if it still is the
    /// newest. Never waits.
    pub(super) fn cache_version(&self, table: Table, key: &[u8], version: KeyVersion, seen: &StateHead) {
        // While the lock is held no commit begins; and if none has happened since the view, the
        // version is the newest.
        if let Some(_quiet) = self.committing.try_lock()
            && *self.head.read() == *seen
        {
            self.cache.insert(table, key, version, None);
        }
    }

    /// Caches a list of index entries under the condition of
    /// [`cache_version`](Self::cache_version).
    pub(super) fn cache_list(&self, prefix: &[u8], entries: &Arc<[Bytes]>, seen: &StateHead) {
        if let Some(_quiet) = self.committing.try_lock()
            && *self.head.read() == *seen
        {
            self.lists.insert(prefix, seen.applied_index(), entries);
        }
    }

    /// True if `key` certainly has no version, not even a tombstone; false if it may have one. Does
    /// not read the disk.
    pub(super) fn is_never_written(&self, table: Table, key: &[u8]) -> bool {
        self.filter.as_ref().is_some_and(|filter| !filter.may_hold(table, key))
    }

    /// Number of open views.
    ///
    /// # Errors
    ///
    /// If RocksDB does not answer.
    pub fn open_views(&self) -> Result<u64, StorageError> {
        Ok(self.db.property_int_value(rocksdb::properties::NUM_SNAPSHOTS)?.unwrap_or(0))
    }

    /// Bytes that the state takes in files and in write buffers, which become files at the next
    /// flush.
    ///
    /// # Errors
    ///
    /// If RocksDB does not answer.
    pub fn stored_bytes(&self) -> Result<u64, StorageError> {
        use rocksdb::properties::{CUR_SIZE_ALL_MEM_TABLES, TOTAL_SST_FILES_SIZE};
        let mut total = 0;
        for name in FAMILIES {
            for property in [TOTAL_SST_FILES_SIZE, CUR_SIZE_ALL_MEM_TABLES] {
                total += self.db.property_int_value_cf(handle(&self.db, name), property)?.unwrap_or(0);
            }
        }
        Ok(total)
    }
}

/// Handle of a family that was opened with the database.
fn handle<'db>(db: &'db DB, name: &str) -> &'db ColumnFamily {
    db.cf_handle(name).expect("invariant: every family is opened with the database")
}

fn flush_all(db: &DB) -> Result<(), rocksdb::Error> {
    let mut options = FlushOptions::default();
    options.set_wait(true);
    db.flush_cfs_opt(&FAMILIES.map(|name| handle(db, name)), &options)
}

/// A filter with every key that has a version. `None` if there are too many versions.
fn make_filter(db: &DB) -> Result<Option<KeyFilter>, StorageError> {
    let versions = handle(db, VERSIONS);
    let expected = db.property_int_value_cf(versions, rocksdb::properties::ESTIMATE_NUM_KEYS)?.unwrap_or(0);
    if expected > filter::ENTRIES_MAX {
        return Ok(None);
    }
    let filter = KeyFilter::new();
    let mut options = ReadOptions::default();
    options.set_total_order_seek(true);
    options.fill_cache(false);
    let mut iter = db.raw_iterator_cf_opt(versions, options);
    let (mut group, mut key) = (Vec::new(), Vec::new());
    iter.seek_to_first();
    while let Some(version) = iter.key() {
        let parsed = keys::split_version(version).and_then(|(prefix, _)| Some((Table::from_byte(prefix[0])?, prefix)));
        let Some((table, prefix)) = parsed else {
            return Err(corrupt(VERSIONS, version, "not a version key"));
        };
        if prefix != group {
            group.clear();
            group.extend_from_slice(prefix);
            key.clear();
            keys::unescape(prefix, &mut key);
            filter.add(table, &key);
        }
        iter.next();
    }
    iter.status()?;
    Ok(Some(filter))
}

pub(super) fn corrupt(family: &str, key: &[u8], detail: &str) -> StorageError {
    StorageError::Corrupt {
        location: format!("state {family} {}", key.escape_ascii()),
        detail: format!("{detail}; {DAMAGED}"),
    }
}

/// The error for a record that cannot be decoded: it is newer than this program, or damaged.
pub(super) fn undecodable(family: &str, key: &[u8], bytes: &[u8], detail: &str) -> StorageError {
    let needs = Version::from_byte(bytes.first().copied().unwrap_or_default());
    match codec::NEWEST.check(format!("a record of the state in {family}"), needs) {
        Err(too_new) => too_new.into(),
        Ok(()) => corrupt(family, key, detail),
    }
}

/// The error for a record that the codec cannot read.
pub(super) fn unread(family: &str, key: &[u8], error: CodecError) -> StorageError {
    match error {
        CodecError::TooNew(too_new) => too_new.into(),
        error => corrupt(family, key, &error.to_string()),
    }
}

fn read_head(db: &DB) -> Result<StateHead, StorageError> {
    let bytes = db.get_pinned_cf(handle(db, META), keys::META_HEAD)?;
    decode_head(bytes.as_deref())
}

pub(super) fn decode_head(bytes: Option<&[u8]>) -> Result<StateHead, StorageError> {
    let Some(bytes) = bytes else {
        return Err(corrupt(META, keys::META_HEAD, "the head is missing: the state was not written by this program"));
    };
    let needs = Version::from_byte(bytes.first().copied().unwrap_or_default());
    codec::NEWEST.check("the state", needs)?;
    StateHead::decode(bytes).ok_or_else(|| corrupt(META, keys::META_HEAD, "the head cannot be decoded"))
}

/// The description of the finished checkpoint in `path`. Removes RocksDB's information logs from
/// it.
fn read_checkpoint(path: &Path) -> Result<StateCopy, StorageError> {
    let copy = {
        let mut options = rocksdb::Options::default();
        options.set_max_open_files(16);
        // A reader logs into the directory that it reads; a copy for other members should hold the
        // state alone.
        options.set_log_level(rocksdb::LogLevel::Fatal);
        manifest::check(path)?;
        let db = DB::open_cf_for_read_only(&options, path, [META], false)?;
        let membership = db.get_cf(handle(&db, META), keys::META_MEMBERSHIP)?.map(Bytes::from);
        let head = read_head(&db)?;
        let applied = head.applied.map(|(term, index)| AppliedState { term, index, membership });
        StateCopy { applied, needs: head.version.version }
    };
    remove_logs(path)?;
    Ok(copy)
}

/// Removes RocksDB's information logs from `dir`. Not durable.
pub(super) fn remove_logs(dir: &Path) -> Result<(), StorageError> {
    for entry in fs::read_dir(dir).map_err(files::at(dir))? {
        let entry = entry.map_err(files::at(dir))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name == "LOG" || name.starts_with("LOG.old") {
            fs::remove_file(entry.path()).map_err(files::at(&entry.path()))?;
        }
    }
    Ok(())
}
