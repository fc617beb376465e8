//! One consistent view of committed state.
//!
//! Owns a RocksDB snapshot and the head that was read through it. Invariant: everything that a view
//! answers is the state right after the entry that its head names.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use rocksdb::{ReadOptions, Snapshot};

use super::catalog::{AnyRow, read_meta_index};
use super::db::{Families, StateDb, corrupt, decode_head, undecodable};
use super::head::StateHead;
use super::history_row::{self, FirstRow};
use super::index::stored_entries;
use super::keys::{self, Table};
use super::load;
use super::options::{HISTORY, META};
use super::ranges;
use super::reader::{FoundVersion, NEWEST, StateReader};
use super::record::{
    HistoryHead, HistoryRecord, Version, decode_alarms, decode_history, decode_lease, decode_lease_clock,
};
use super::resources::{read_count, read_type};
use super::revisions;
use super::scan::VersionScan;
use super::seek::Seeker;
use super::type_record::TypeRecord;
use crate::StorageError;
use headwater_types::resource::{ResourceId, Tenancy, TypeName};
use headwater_types::{Alarm, KeyRange, KeyValue, Lease, LeaseId, LogIndex, Revision};

/// A consistent view of committed state; see [`StateDb::view`]. It pins files and memory, so drop
/// it soon.
pub struct ReadView<'db> {
    pub(super) db: &'db StateDb,
    // Declared before its snapshot, so that it is dropped first.
    seeker: RefCell<Seeker<'db>>,
    pub(super) snapshot: Snapshot<'db>,
    pub(super) families: Families<'db>,
    head: StateHead,
}

/// The changes of one command, as `history` holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandHistory {
    /// Log index of the command.
    pub index: LogIndex,
    /// KV revision, time and authorship of the command, and the number of all its records.
    pub head: HistoryHead,
    /// Records of the command, in order. A reader of history may leave out some tables.
    pub records: Vec<HistoryRecord>,
}

impl<'db> ReadView<'db> {
    pub(super) fn new(db: &'db StateDb) -> Result<Self, StorageError> {
        let families = db.families();
        let snapshot = db.db.snapshot();
        let head = decode_head(snapshot.get_pinned_cf(families.meta, keys::META_HEAD)?.as_deref())?;
        Ok(Self { db, seeker: RefCell::default(), snapshot, families, head })
    }

    /// The head as of this view.
    pub fn head(&self) -> &StateHead {
        &self.head
    }

    /// Log index of the last entry that is applied in this view; zero if none is.
    pub fn applied(&self) -> LogIndex {
        self.head.applied_index()
    }

    /// The KV revision of this view.
    pub fn revision(&self) -> Revision {
        self.head.revision
    }

    pub(super) fn options(&self) -> ReadOptions {
        let mut options = ReadOptions::default();
        options.set_snapshot(&self.snapshot);
        options
    }

    /// The membership as of this view, opaque here; `None` if none was ever set.
    ///
    /// # Errors
    ///
    /// If the disk failed.
    pub fn membership(&self) -> Result<Option<Bytes>, StorageError> {
        Ok(self.snapshot.get_cf(self.families.meta, keys::META_MEMBERSHIP)?.map(Bytes::from))
    }

    /// The lease `id`; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// If the disk failed, or the record of the lease cannot be decoded.
    pub fn lease(&self, id: LeaseId) -> Result<Option<Lease>, StorageError> {
        let key = keys::lease(id);
        read_lease(&key, self.snapshot.get_pinned_cf(self.families.meta, key)?.as_deref())
    }

    /// Visits all leases, the store's own deadlines included.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn leases(&self, mut visit: impl FnMut(LeaseId, Lease)) -> Result<(), StorageError> {
        let mut options = self.options();
        options.set_iterate_lower_bound(keys::META_LEASES.0);
        options.set_iterate_upper_bound(keys::META_LEASES.1);
        let mut iter = self.db.db.raw_iterator_cf_opt(self.families.meta, options);
        iter.seek_to_first();
        while let Some((key, value)) = iter.item() {
            let id = keys::parse_lease(key).ok_or_else(|| corrupt(META, key, "not the key of a lease"))?;
            if let Some(lease) = read_lease(key, Some(value))? {
                visit(id, lease);
            }
            iter.next();
        }
        iter.status()?;
        Ok(())
    }

    /// The lease clock, milliseconds; zero until it is first moved.
    ///
    /// # Errors
    ///
    /// If the disk failed, or the record of the clock cannot be decoded.
    pub fn lease_clock(&self) -> Result<u64, StorageError> {
        read_lease_clock(self.snapshot.get_pinned_cf(self.families.meta, keys::META_LEASE_CLOCK)?.as_deref())
    }

    /// The active alarms, sorted.
    ///
    /// # Errors
    ///
    /// If the disk failed, or the record of the alarms cannot be decoded.
    pub fn alarms(&self) -> Result<Vec<Alarm>, StorageError> {
        read_alarms(self.snapshot.get_pinned_cf(self.families.meta, keys::META_ALARMS)?.as_deref())
    }

    /// The KV keys that are attached to a lease, in key order.
    ///
    /// # Errors
    ///
    /// If the disk failed.
    pub fn lease_keys(&self, lease: LeaseId) -> Result<Vec<Bytes>, StorageError> {
        stored_entries(self.db, self.options(), &keys::lease_keys_prefix(lease), &[], usize::MAX)
    }

    /// Log index of the command that made `revision`; zero for the initial revision, which no
    /// command made. The caller has checked that `revision` lies between the compaction point and
    /// the current revision, both included. Unlike [`index_of`](StateReader::index_of) it is exact
    /// for the current revision too.
    ///
    /// # Errors
    ///
    /// If the disk failed, or no run has the revision, or its entry cannot be decoded.
    pub fn command_of(&self, revision: Revision) -> Result<LogIndex, StorageError> {
        if let Some(point) = self.head.compaction
            && point.revision == revision
        {
            return Ok(point.index);
        }
        if revision <= Revision::INITIAL {
            return Ok(LogIndex::ZERO);
        }
        revisions::find(self.db, self.options(), &self.head, revision)
    }

    /// Visits the commands from `from` on, in order, each with its changes, until `visit` returns
    /// false. Commands without records are left out. Of the commands below
    /// [`compacted_index`](StateHead::compacted_index), only the one at
    /// [`key_floor`](StateHead::key_floor) is visited, with only its changes of keys. The caller
    /// has checked that history reaches back to `from`.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record is missing or cannot be decoded.
    pub fn history(&self, from: LogIndex, mut visit: impl FnMut(CommandHistory) -> bool) -> Result<(), StorageError> {
        let floor = self.head.compacted_index();
        if from < floor
            && let Some(command) = self.kept_for_keys(from)?
            && !visit(command)
        {
            return Ok(());
        }
        let mut iter = self.db.db.raw_iterator_cf_opt(self.families.history, self.options());
        iter.seek(keys::history(from.max(floor), 0));
        while let Some((key, value)) = iter.item() {
            let FirstRow { index, head, has_record } = FirstRow::decode(key, value)?;
            let mut records = Vec::with_capacity(head.count as usize);
            for position in 1..=head.count {
                if !has_record {
                    iter.next();
                }
                let key = keys::history(index, position);
                let record =
                    iter.item().filter(|(here, _)| **here == key[..]).and_then(|(_, value)| decode_history(value));
                match record {
                    Some(record) => records.push(record),
                    None => {
                        iter.status()?;
                        return Err(corrupt(HISTORY, &key, "missing, or cannot be decoded"));
                    }
                }
            }
            if !visit(CommandHistory { index, head, records }) {
                return Ok(());
            }
            iter.next();
        }
        iter.status()?;
        Ok(())
    }

    /// The command of the compaction point with only its changes of keys. `None` if that command
    /// lies before `from`, if the history of the other tables begins with it, too, or if it left no
    /// record.
    fn kept_for_keys(&self, from: LogIndex) -> Result<Option<CommandHistory>, StorageError> {
        let index = self.head.key_floor();
        if index < from || index == self.head.compacted_index() {
            return Ok(None);
        }
        let mut iter = self.db.db.raw_iterator_cf_opt(self.families.history, self.options());
        iter.seek(keys::history(index, 0));
        let mut kept = None;
        while let Some((key, value)) = iter.item() {
            let Some((_, position)) = keys::parse_history(key).filter(|(here, _)| *here == index) else { break };
            if let Some(head) = history_row::head_in(key, value)? {
                kept = Some(CommandHistory { index, head, records: Vec::new() });
            }
            if let Some(kept) = kept.as_mut().filter(|_| position > 0) {
                let record = decode_history(value);
                let record = record.ok_or_else(|| undecodable(HISTORY, key, value, "cannot be decoded"))?;
                kept.records.extend((record.table == Table::Kv).then_some(record));
            }
            iter.next();
        }
        iter.status()?;
        Ok(kept)
    }
}

impl StateReader for ReadView<'_> {
    fn head(&self) -> &StateHead {
        &self.head
    }

    fn owned(&self, owner: &ResourceId, after: &[u8], limit: usize) -> Result<Vec<Bytes>, StorageError> {
        stored_entries(self.db, self.options(), &keys::owned_prefix(owner), after, limit)
    }

    fn index_keys(&self, prefix: &[u8], after: &[u8], limit: usize) -> Result<Vec<Bytes>, StorageError> {
        stored_entries(self.db, self.options(), prefix, after, limit)
    }

    fn index_groups(&self, prefix: &[u8], end: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> Result<Vec<Bytes>, StorageError> {
        let mut options = self.options();
        options.set_iterate_upper_bound(keys::prefix_end(prefix));
        let mut iter = self.db.db.raw_iterator_cf_opt(self.families.index, options);
        let mut found = Vec::new();
        let mut next = Some(prefix.to_vec());
        while let Some(start) = next {
            iter.seek(start);
            let Some(entry) = iter.key().and_then(|key| key.strip_prefix(prefix)) else { break };
            next = end(entry).map(|after| [prefix, &after[..]].concat());
            found.push(Bytes::copy_from_slice(entry));
        }
        iter.status()?;
        Ok(found)
    }

    fn check_list(&self, prefix: &[u8]) -> Result<Arc<[Bytes]>, StorageError> {
        if let Some(list) = self.db.lists.get(prefix, self.applied()) {
            return Ok(list);
        }
        let list = stored_entries(self.db, self.options(), prefix, &[], usize::MAX)?.into();
        self.db.cache_list(prefix, &list, &self.head);
        Ok(list)
    }

    fn meta_index(&self, key: &[u8]) -> Result<LogIndex, StorageError> {
        read_meta_index(key, self.snapshot.get_pinned_cf(self.families.meta, key)?.as_deref())
    }

    fn cached_row(&self, version: &Version) -> Option<AnyRow> {
        self.db.rows.get(version)
    }

    fn cache_row(&self, version: &Version, row: AnyRow) {
        self.db.rows.insert(version, row);
    }

    fn type_record(&self, name: &TypeName) -> Result<TypeRecord, StorageError> {
        let key = keys::resource_type(name);
        read_type(&key, self.snapshot.get_pinned_cf(self.families.meta, &key)?.as_deref())
    }

    fn unit_count(&self, unit: &Tenancy) -> Result<u64, StorageError> {
        let key = keys::unit(unit);
        read_count(&key, self.snapshot.get_pinned_cf(self.families.meta, &key)?.as_deref())
    }

    fn index_of(&self, revision: Revision) -> Result<LogIndex, StorageError> {
        if let Some(point) = self.head.compaction
            && point.revision == revision
        {
            return Ok(point.index);
        }
        if revision == self.head.revision {
            // No key has changed since, so the newest versions answer, from the cache too.
            return Ok(NEWEST);
        }
        if revision <= Revision::INITIAL {
            return Ok(LogIndex::ZERO);
        }
        revisions::find(self.db, self.options(), &self.head, revision)
    }

    fn lookup(&self, table: Table, key: &[u8], at: LogIndex) -> Result<Option<Version>, StorageError> {
        let cached = if at == NEWEST { self.db.cache.get(table, key, self.applied()) } else { None };
        let version = match cached {
            Some(version) => Some(version),
            None if self.db.is_never_written(table, key) => None,
            None => {
                let found = self.seeker.borrow_mut().find(self.db, || self.options(), table, key, at)?;
                if let Some(version) = found
                    && at == NEWEST
                {
                    self.db.cache_version(table, key, version, &self.head);
                }
                found
            }
        };
        Ok(version.filter(|version| !version.deleted))
    }

    fn scan<'a>(&'a self, table: Table, range: &KeyRange, at: LogIndex) -> Result<VersionScan<'a>, StorageError> {
        Ok(VersionScan::of_view(self.db, self.options(), table, range, at, self.applied()))
    }

    fn load(&self, versions: &[Version]) -> Result<Vec<HistoryRecord>, StorageError> {
        load::records(self.db, || self.options(), versions)
    }

    fn load_found(&self, found: &[FoundVersion]) -> Result<Vec<KeyValue>, StorageError> {
        ranges::pairs(self.db, || self.options(), found)
    }
}

/// Decodes the `meta` record of a lease; `None` if there is none.
pub(super) fn read_lease(key: &[u8], bytes: Option<&[u8]>) -> Result<Option<Lease>, StorageError> {
    let Some(bytes) = bytes else { return Ok(None) };
    decode_lease(bytes).map(Some).ok_or_else(|| undecodable(META, key, bytes, "a lease that cannot be decoded"))
}

/// Decodes the lease clock: zero until it is first moved.
pub(super) fn read_lease_clock(bytes: Option<&[u8]>) -> Result<u64, StorageError> {
    let Some(bytes) = bytes else { return Ok(0) };
    decode_lease_clock(bytes).ok_or_else(|| undecodable(META, keys::META_LEASE_CLOCK, bytes, "cannot be decoded"))
}

/// Decodes the active alarms; none until one was raised.
pub(super) fn read_alarms(bytes: Option<&[u8]>) -> Result<Vec<Alarm>, StorageError> {
    let Some(bytes) = bytes else { return Ok(Vec::new()) };
    decode_alarms(bytes).ok_or_else(|| undecodable(META, keys::META_ALARMS, bytes, "cannot be decoded"))
}
