//! The cache of leases: a transaction reads of leases the same as a view of the stored state.

use bytes::Bytes;
use proptest::prelude::*;

use super::bed::{TestBed, small};
use crate::state::{AppliedState, NEWEST, StateOptions, StateReader, StateStore, Table, WriteTxn};
use headwater_types::limits::CACHED_LEASE_KEYS_MAX;
use headwater_types::{ChangeKind, KeyValue, Lease, LeaseId, LogIndex, Term};

/// The ids of all leases.
const LEASES: std::ops::Range<i64> = 1..5;

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
}

/// Ends the current command.
fn end(txn: &mut WriteTxn<'_>, index: u64) {
    txn.end_command();
    txn.set_applied(&AppliedState { term: Term(1), index: LogIndex(index), membership: None });
}

/// Checks that a new transaction reads the same of each lease as a view.
fn check(store: &StateStore) {
    let db = store.current();
    let txn = store.begin(&db).unwrap();
    let view = db.view().unwrap();
    // Twice: the first read may fill the cache.
    for id in LEASES.chain(LEASES).map(LeaseId) {
        assert_eq!(txn.lease(id).unwrap(), view.lease(id).unwrap(), "{id:?}");
        assert_eq!(txn.lease_keys(id).unwrap(), view.lease_keys(id).unwrap(), "{id:?}");
    }
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Commit,
    Drop,
    /// The last command is undone to a savepoint at its beginning, and the rest is committed.
    RollBack,
}

/// A transaction, and whether all leases are read after it, which fills the cache.
#[derive(Clone, Debug)]
struct Step {
    acts: Vec<Act>,
    fate: Fate,
    is_checked: bool,
    is_reopened: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let fate = prop_oneof![6 => Just(Fate::Commit), 1 => Just(Fate::Drop), 2 => Just(Fate::RollBack)];
    (prop::collection::vec(act(), 1..6), fate, any::<bool>(), prop::bool::weighted(0.1))
        .prop_map(|(acts, fate, is_checked, is_reopened)| Step { acts, fate, is_checked, is_reopened })
}

proptest! {
    #[test]
    fn a_transaction_reads_the_stored_state(
        steps in prop::collection::vec(step(), 1..30),
        lease_cache_bytes in prop::sample::select(vec![0, 600, 1 << 20]),
    ) {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let options = StateOptions { lease_cache_bytes, ..small() };
        let mut store = StateStore::open(dir.path(), &options).unwrap();
        let mut index = 0;
        for Step { acts, fate, is_checked, is_reopened } in steps {
            if is_reopened {
                drop(store);
                store = StateStore::open(dir.path(), &options).unwrap();
            }
            let db = store.current();
            let mut txn = store.begin(&db).unwrap();
            let before = index;
            let last = acts.len() - 1;
            for (number, act) in acts.into_iter().enumerate() {
                index += 1;
                txn.begin_command(LogIndex(index), 0);
                if number == last && matches!(fate, Fate::RollBack) {
                    txn.set_savepoint();
                    run(&mut txn, index, act);
                    txn.roll_back();
                } else {
                    run(&mut txn, index, act);
                }
                end(&mut txn, index);
            }
            let read: Vec<_> =
                LEASES.map(LeaseId).map(|id| (txn.lease(id).unwrap(), txn.lease_keys(id).unwrap())).collect();
            if matches!(fate, Fate::Drop) {
                drop(txn);
                index = before;
            } else {
                txn.commit().unwrap();
                let view = db.view().unwrap();
                let stored = LEASES.map(LeaseId).map(|id| (view.lease(id).unwrap(), view.lease_keys(id).unwrap()));
                prop_assert_eq!(read, stored.collect::<Vec<_>>());
            }
            if is_checked {
                check(&store);
            }
        }
        check(&store);
    }
}

#[test]
fn a_reopened_store_and_a_lease_with_many_keys_are_read_from_disk() {
    let bed = TestBed::new();
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    txn.begin_command(LogIndex(1), 0);
    for act in [Act::Grant(1), Act::Grant(2), Act::Put(5, 2)] {
        run(&mut txn, 1, act);
    }
    for key in 0..=CACHED_LEASE_KEYS_MAX {
        put(&mut txn, format!("many{key}").into(), LeaseId(1));
    }
    end(&mut txn, 1);
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
