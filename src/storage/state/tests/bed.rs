//! A store and plain writes to it: each command puts or deletes keys, with no rules at all.

use bytes::Bytes;
use tempfile::TempDir;

use crate::state::{AppliedState, NEWEST, StateDb, StateOptions, StateReader, StateStore, Table, WriteTxn};
use headwater_types::{ChangeKind, KeyValue, LeaseId, LogIndex, Revision, Term};

pub(super) struct TestBed {
    // Dropped before its directory is removed.
    pub(super) store: StateStore,
    pub(super) dir: TempDir,
}

pub(super) fn small() -> StateOptions {
    StateOptions {
        block_cache_bytes: 1 << 20,
        memtable_bytes: 64 << 10,
        key_cache_bytes: 4 << 10,
        hot_records_bytes: 4 << 10,
        lease_cache_bytes: 4 << 10,
        open_files_max: 64,
        ..StateOptions::default()
    }
}

/// One key written, or deleted if there is no value.
pub(super) type Write<'a> = (&'a str, Option<&'a str>);

/// Writes `writes` as the command at `index`. Its revision is the index plus one.
pub(super) fn write(txn: &mut WriteTxn<'_>, index: u64, writes: &[Write<'_>]) {
    let revision = Revision(index as i64 + 1);
    txn.begin_command(LogIndex(index), 1000 + index);
    for &(key, value) in writes {
        let key = Bytes::copy_from_slice(key.as_bytes());
        let previous = txn.lookup(Table::Kv, &key, NEWEST).unwrap();
        match (value, previous) {
            (Some(value), previous) => {
                let kv = KeyValue {
                    key,
                    value: Bytes::copy_from_slice(value.as_bytes()),
                    create_revision: previous.map_or(revision, |version| version.create_revision),
                    mod_revision: revision,
                    version: previous.map_or(1, |version| version.version + 1),
                    lease: LeaseId::NONE,
                };
                txn.put(Table::Kv, kv, previous.as_ref());
            }
            (None, Some(previous)) => txn.delete(Table::Kv, key, ChangeKind::Delete, revision, &previous),
            (None, None) => {}
        }
    }
    txn.set_revision(revision);
    txn.end_command();
    txn.set_applied(&AppliedState { term: Term(1), index: LogIndex(index), membership: None });
}

impl TestBed {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let store = StateStore::open(dir.path(), &small()).unwrap();
        Self { dir, store }
    }

    /// Closes the store cleanly and opens it again.
    pub(super) fn reopened(self) -> Self {
        let Self { dir, store } = self;
        drop(store);
        let store = StateStore::open(dir.path(), &small()).unwrap();
        Self { dir, store }
    }

    /// Commits one command.
    pub(super) fn commit(&self, index: u64, writes: &[Write<'_>]) {
        let db = self.store.current();
        let mut txn = self.store.begin(&db).unwrap();
        write(&mut txn, index, writes);
        txn.commit().unwrap();
    }

    pub(super) fn compact(&self, index: u64, revision: i64) {
        let db = self.store.current();
        let mut txn = self.store.begin(&db).unwrap();
        txn.begin_command(LogIndex(index), 0);
        let at = txn.index_of(Revision(revision)).unwrap();
        txn.set_compaction(crate::state::CompactionPoint { revision: Revision(revision), index: at });
        txn.end_command();
        txn.set_applied(&AppliedState { term: Term(1), index: LogIndex(index), membership: None });
        txn.commit().unwrap();
    }

    /// Sets the beginning of history to `floor` and, if `revision` is given, the compaction point
    /// to it.
    pub(super) fn trim(&self, index: u64, revision: Option<i64>, floor: u64) {
        let db = self.store.current();
        let mut txn = self.store.begin(&db).unwrap();
        txn.begin_command(LogIndex(index), 0);
        if let Some(revision) = revision.map(Revision) {
            let at = txn.index_of(revision).unwrap();
            txn.set_compaction(crate::state::CompactionPoint { revision, index: at });
        }
        txn.set_history_floor(LogIndex(floor));
        txn.end_command();
        txn.set_applied(&AppliedState { term: Term(1), index: LogIndex(index), membership: None });
        txn.commit().unwrap();
    }

    /// `key=value` of everything live right after the command at `at`.
    pub(super) fn pairs(&self, at: LogIndex) -> Vec<String> {
        pairs(&self.store.current(), at)
    }
}

pub(super) fn pairs(db: &StateDb, at: LogIndex) -> Vec<String> {
    show(&db.view().unwrap(), at)
}

pub(super) fn show(state: &impl StateReader, at: LogIndex) -> Vec<String> {
    let mut versions = Vec::new();
    let mut scan = state.scan(Table::Kv, &headwater_types::KeyRange::all(), at).unwrap();
    while let Some((key, version)) = scan.next().unwrap() {
        versions.push((key.to_bytes(), version));
    }
    drop(scan);
    let only: Vec<_> = versions.iter().map(|(_, version)| *version).collect();
    let records = state.load(&only).unwrap();
    versions
        .iter()
        .zip(records)
        .map(|((key, version), record)| {
            assert_eq!(*key, record.kv.key);
            assert_eq!(version.value_len as usize, record.kv.value.len());
            assert_eq!(state.lookup(Table::Kv, key, at).unwrap().as_ref(), Some(version), "look-up and scan agree");
            format!("{}={}", key.escape_ascii(), record.kv.value.escape_ascii())
        })
        .collect()
}
