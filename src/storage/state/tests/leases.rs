//! The cache of leases: what a transaction reads of leases is what is stored.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;

use super::bed::{TestBed, small};
use crate::state::{AppliedState, NEWEST, StateOptions, StateReader, StateStore, Table, WriteTxn};
use headwater_types::limits::CACHED_LEASE_KEYS_MAX;
use headwater_types::{ChangeKind, KeyValue, Lease, LeaseId, LogIndex, Term};

/// One command. Leases are named by 1 to 4, keys by 0 to 7.
#[derive(Clone, Copy, Debug)]
enum Act {
    Grant(u8),
    /// Records a due point, or removes it.
    Checkpoint(u8, Option<u64>),
    /// Puts a key with a lease if there is that lease, else without one.
    Put(u8, u8),
    Delete(u8),
    End(u8),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (1..5u8).prop_map(Act::Grant),
        2 => (1..5u8, any::<Option<u64>>()).prop_map(|(id, due_ms)| Act::Checkpoint(id, due_ms)),
        6 => (0..8u8, 1..5u8).prop_map(|(key, id)| Act::Put(key, id)),
        1 => (0..8u8).prop_map(Act::Delete),
        1 => (1..5u8).prop_map(Act::End),
    ]
}

fn key_of(key: u8) -> Bytes {
    format!("key{key}").into()
}

fn put(txn: &mut WriteTxn<'_>, key: Bytes, lease: LeaseId) {
    let previous = txn.lookup(Table::Kv, &key, NEWEST).unwrap();
    txn.put(Table::Kv, KeyValue { key, lease, ..KeyValue::default() }, previous.as_ref());
}

fn delete(txn: &mut WriteTxn<'_>, key: Bytes) {
    if let Some(previous) = txn.lookup(Table::Kv, &key, NEWEST).unwrap() {
        let revision = txn.revision_before().next();
        txn.delete(Table::Kv, key, ChangeKind::Delete, revision, &previous);
    }
}

fn run(txn: &mut WriteTxn<'_>, index: u64, act: Act) {
    txn.begin_command(LogIndex(index), 0);
    let lease = |id: u8| LeaseId(id.into());
    match act {
        Act::Grant(id) => {
            if txn.lease(lease(id)).unwrap().is_none() {
                let granted = LogIndex(index);
                txn.set_lease(lease(id), Some(Lease { granted, ttl_seconds: 5, due_ms: None }));
            }
        }
        Act::Checkpoint(id, due_ms) => {
            if let Some(known) = txn.lease(lease(id)).unwrap() {
                txn.set_lease(lease(id), Some(Lease { due_ms, ..known }));
            }
        }
        Act::Put(key, id) => {
            let is_there = txn.lease(lease(id)).unwrap().is_some();
            put(txn, key_of(key), if is_there { lease(id) } else { LeaseId::NONE });
        }
        Act::Delete(key) => delete(txn, key_of(key)),
        Act::End(id) => {
            for key in txn.lease_keys(lease(id)).unwrap() {
                delete(txn, key);
            }
            txn.set_lease(lease(id), None);
        }
    }
    txn.end_command();
    txn.set_applied(&AppliedState { term: Term(1), index: LogIndex(index), membership: None });
}

/// What a transaction that begins now reads of each lease equals what a view reads.
fn check(store: &StateStore) {
    let db = store.current();
    let txn = store.begin(&db).unwrap();
    let view = db.view().unwrap();
    // Twice: the first read may fill the cache.
    for id in (1..5).chain(1..5).map(LeaseId) {
        assert_eq!(txn.lease(id).unwrap(), view.lease(id).unwrap(), "{id:?}");
        assert_eq!(txn.lease_keys(id).unwrap(), view.lease_keys(id).unwrap(), "{id:?}");
    }
}

proptest! {
    #[test]
    fn a_transaction_reads_what_is_stored(
        commits in prop::collection::vec((prop::collection::vec(act(), 1..6), 0..5u8), 1..30),
        cache_bytes in prop::sample::select(vec![0, 600, 1 << 20]),
    ) {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let store = StateStore::open(dir.path(), &StateOptions { lease_cache_bytes: cache_bytes, ..small() }).unwrap();
        let mut index = 0;
        for (acts, fate) in commits {
            let db = store.current();
            let mut txn = store.begin(&db).unwrap();
            let before = index;
            let mut expected: BTreeMap<LeaseId, BTreeSet<Bytes>> = BTreeMap::new();
            for act in acts {
                index += 1;
                run(&mut txn, index, act);
            }
            for id in (1..5).map(LeaseId) {
                expected.insert(id, txn.lease_keys(id).unwrap().into_iter().collect());
            }
            // One in five transactions is dropped.
            if fate == 0 {
                drop(txn);
                index = before;
            } else {
                txn.commit().unwrap();
                let view = db.view().unwrap();
                for (id, keys) in expected {
                    prop_assert_eq!(view.lease_keys(id).unwrap().into_iter().collect::<BTreeSet<_>>(), keys);
                }
            }
            check(&store);
        }
    }
}

#[test]
fn a_reopened_store_and_a_lease_with_many_keys_are_read_from_disk() {
    let bed = TestBed::new();
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    run(&mut txn, 1, Act::Grant(1));
    run(&mut txn, 2, Act::Grant(2));
    run(&mut txn, 3, Act::Put(5, 2));
    txn.begin_command(LogIndex(4), 0);
    for key in 0..=CACHED_LEASE_KEYS_MAX {
        put(&mut txn, format!("many{key}").into(), LeaseId(1));
    }
    txn.end_command();
    txn.set_applied(&AppliedState { term: Term(1), index: LogIndex(4), membership: None });
    txn.commit().unwrap();
    check(&bed.store);
    drop(db);
    let bed = bed.reopened();
    check(&bed.store);
    let db = bed.store.current();
    let txn = bed.store.begin(&db).unwrap();
    assert_eq!(txn.lease_keys(LeaseId(1)).unwrap().len(), CACHED_LEASE_KEYS_MAX + 1);
    assert_eq!(txn.lease_keys(LeaseId(2)).unwrap(), [key_of(5)]);
}
