//! Transactions and views.

use bytes::Bytes;
use rocksdb::{WriteBatch, WriteBatchIteratorCf};

use super::bed::*;
use crate::StorageError;
use crate::state::command_history::CommandHistory;
use crate::state::keys::history as history_key;
use crate::state::record::{HistoryHead, PreviousVersions};
use crate::state::{AppliedState, NEWEST, StateReader, Table};
use headwater_types::{Authorship, ChangeKind, KeyRange, KeyValue, LogIndex, Revision, Term};

#[test]
fn nothing_is_visible_before_the_commit_and_everything_after_it() {
    let bed = TestBed::new();
    bed.commit(1, &[("a", Some("1")), ("b", Some("1"))]);
    let db = bed.store.current();
    let mut txn = db.begin().unwrap();
    write(&mut txn, 2, &[("a", Some("2")), ("b", None)]);
    write(&mut txn, 3, &[("c", Some("3")), ("a", Some("3"))]);
    assert_eq!(show(&txn, NEWEST), ["a=3", "c=3"]);
    assert_eq!(show(&txn, LogIndex(2)), ["a=2"], "between two commands of the batch");
    assert_eq!(show(&txn, LogIndex(1)), ["a=1", "b=1"], "on disk");
    let before = db.view().unwrap();
    assert_eq!(show(&before, NEWEST), ["a=1", "b=1"]);
    assert_eq!(db.head().applied, Some((Term(1), LogIndex(1))));
    let committed = txn.commit().unwrap();
    assert_eq!(show(&before, NEWEST), ["a=1", "b=1"], "a view does not change");
    assert_eq!(before.applied(), LogIndex(1));
    assert_eq!(pairs(&db, NEWEST), ["a=3", "c=3"]);
    assert_eq!(pairs(&db, LogIndex(2)), ["a=2"]);
    assert_eq!(db.head(), committed.head);
    let indexes: Vec<_> = committed.events.iter().map(|commit| (commit.index.get(), commit.kv.len())).collect();
    assert_eq!(indexes, [(2, 2), (3, 2)]);
}

#[test]
fn a_dropped_transaction_leaves_nothing() {
    let bed = TestBed::new();
    bed.commit(1, &[("a", Some("1"))]);
    let hash = bed.store.current().view().unwrap().state_hash().unwrap();
    let db = bed.store.current();
    let mut txn = db.begin().unwrap();
    write(&mut txn, 2, &[("a", Some("2")), ("b", Some("2"))]);
    drop(txn);
    assert_eq!(pairs(&db, NEWEST), ["a=1"]);
    assert_eq!(db.view().unwrap().state_hash().unwrap(), hash);
    // The next transaction must not see it either, in any cache.
    let mut txn = db.begin().unwrap();
    write(&mut txn, 2, &[("a", Some("3"))]);
    assert_eq!(txn.lookup(Table::Kv, b"a", NEWEST).unwrap().unwrap().version, 2);
    txn.commit().unwrap();
    assert_eq!(pairs(&db, NEWEST), ["a=3"]);
}

#[test]
fn a_transaction_caches_the_versions_that_it_reads() {
    let bed = TestBed::new();
    bed.commit(1, &[("a", Some("1"))]);
    let bed = bed.reopened();
    let db = bed.store.current();
    let cached = |applied| db.cache.get(Table::Kv, b"a", LogIndex(applied)).map(|version| version.index.get());
    assert_eq!(cached(1), None, "nobody has read it yet");
    let mut txn = db.begin().unwrap();
    assert_eq!(txn.lookup(Table::Kv, b"a", NEWEST).unwrap().unwrap().index, LogIndex(1));
    assert_eq!(cached(1), Some(1));
    write(&mut txn, 2, &[("a", Some("2"))]);
    drop(txn);
    assert_eq!(cached(2), Some(1), "what is not committed is not cached");
    let before = db.view().unwrap();
    let mut txn = db.begin().unwrap();
    write(&mut txn, 2, &[("a", None)]);
    assert_eq!(txn.lookup(Table::Kv, b"a", NEWEST).unwrap(), None);
    assert_eq!(cached(2), Some(1), "a version of this transaction does not count as stored");
    txn.commit().unwrap();
    assert_eq!(cached(2), Some(2));
    assert_eq!(show(&before, NEWEST), ["a=1"]);
    assert_eq!(pairs(&db, NEWEST), [""; 0]);
}

/// The keys that a batch puts, in the order of the batch.
#[derive(Default)]
struct PutKeys(Vec<Vec<u8>>);

impl WriteBatchIteratorCf for PutKeys {
    fn put_cf(&mut self, _: u32, key: &[u8], _: &[u8]) {
        self.0.push(key.to_vec());
    }

    fn delete_cf(&mut self, _: u32, _: &[u8]) {}

    fn merge_cf(&mut self, _: u32, _: &[u8], _: &[u8]) {}
}

#[test]
fn history_enters_the_batch_in_the_order_of_its_keys() {
    let bed = TestBed::new();
    let db = bed.store.current();
    let family = db.families().history;
    let (mut history, mut batch) = (CommandHistory::default(), WriteBatch::default());
    let (authorship, previous) = (Authorship::default(), PreviousVersions::new());
    let head = HistoryHead { revision: None, count: 2, unix_ms: 0, authorship, previous };
    let kv = KeyValue { key: "a".into(), ..KeyValue::default() };
    history.add(1, Table::Kv, ChangeKind::Put, &kv);
    let mark = history.mark();
    history.add(2, Table::Kv, ChangeKind::Put, &kv);
    history.add(3, Table::Kv, ChangeKind::Put, &kv);
    history.truncate(mark);
    history.add(2, Table::Kv, ChangeKind::Delete, &kv);
    history.stage(LogIndex(7), &head, true, &mut batch, family);
    history.add(1, Table::Kv, ChangeKind::Put, &kv);
    let one = HistoryHead { count: 1, ..head };
    history.stage(LogIndex(8), &one, false, &mut batch, family);
    history.add(1, Table::Kv, ChangeKind::Put, &kv);
    history.stage(LogIndex(9), &one, true, &mut batch, family);
    let mut put = PutKeys::default();
    batch.iterate_cf(&mut put);
    let wanted = [(7, 0), (7, 1), (7, 2), (8, 0), (8, 1), (9, 1)];
    assert_eq!(put.0, wanted.map(|(index, position)| history_key(LogIndex(index), position).to_vec()));
}

#[test]
#[should_panic(expected = "one writer")]
fn there_is_one_writer() {
    let bed = TestBed::new();
    let db = bed.store.current();
    let _first = db.begin().unwrap();
    let _second = db.begin();
}

#[test]
#[should_panic(expected = "comes after")]
fn an_entry_is_applied_once() {
    let bed = TestBed::new();
    bed.commit(5, &[("a", Some("1"))]);
    bed.commit(5, &[("a", Some("2"))]);
}

#[test]
fn the_membership_stays_until_it_is_changed() {
    let bed = TestBed::new();
    assert_eq!(bed.store.current().applied_state().unwrap(), None);
    let set = |index: u64, membership: Option<&'static [u8]>| {
        let db = bed.store.current();
        let mut txn = db.begin().unwrap();
        let membership = membership.map(Bytes::from_static);
        txn.set_applied(&AppliedState { term: Term(3), index: LogIndex(index), membership });
        txn.commit().unwrap();
        db.applied_state().unwrap().unwrap()
    };
    let state = |index, membership: Option<&'static [u8]>| AppliedState {
        term: Term(3),
        index: LogIndex(index),
        membership: membership.map(Bytes::from_static),
    };
    // The first entry of a log has index 0.
    assert_eq!(set(0, Some(b"one")), state(0, Some(b"one")));
    assert_eq!(set(1, None), state(1, Some(b"one")));
    assert_eq!(set(2, Some(b"two")), state(2, Some(b"two")));
    let bed = bed.reopened();
    assert_eq!(bed.store.current().applied_state().unwrap(), Some(state(2, Some(b"two"))));
}

#[test]
fn revisions_lead_to_log_indexes() {
    let bed = TestBed::new();
    for index in [3, 4, 7] {
        bed.commit(index, &[("a", Some("x"))]);
    }
    let db = bed.store.current();
    let mut txn = db.begin().unwrap();
    write(&mut txn, 8, &[("a", Some("y"))]);
    let view = db.view().unwrap();
    for (revision, index) in [(1, 0), (4, 3), (5, 4)] {
        assert_eq!(view.index_of(Revision(revision)).unwrap(), LogIndex(index));
        assert_eq!(txn.index_of(Revision(revision)).unwrap(), LogIndex(index));
    }
    assert_eq!(view.index_of(Revision(8)).unwrap(), NEWEST, "the current one is now");
    assert_eq!(txn.index_of(Revision(8)).unwrap(), LogIndex(7));
    assert_eq!(txn.index_of(Revision(9)).unwrap(), LogIndex(8), "not committed");
    assert_eq!(view.index_of(Revision(6)).unwrap(), LogIndex(5), "no command made it: a state before the next one");
}

/// Ranges large enough for every way of fetching values, with keys written in and out of order.
#[test]
fn large_ranges_come_back_whole() {
    let bed = TestBed::new();
    let count = 3000u64;
    for index in 1..=count {
        // In order, then scattered.
        let number = if index % 2 == 0 { index } else { index.wrapping_mul(7919) % count };
        let (key, value) = (format!("k{number:05}"), format!("v{index}").repeat(20));
        bed.commit(index, &[(&key, Some(&value))]);
        if index % 1000 == 0 {
            bed.store.current().flush().unwrap();
        }
    }
    let all = bed.pairs(NEWEST);
    assert!(all.is_sorted());
    let db = bed.store.current();
    let view = db.view().unwrap();
    for (start, end) in [("k00000", "k00010"), ("k00100", "k00400"), ("k0", "k1"), ("k02", "k03")] {
        let range = KeyRange::from_etcd(Bytes::from(start), Bytes::from(end));
        let mut versions = Vec::new();
        let mut scan = view.scan(Table::Kv, &range, NEWEST).unwrap();
        while let Some((_, version)) = scan.next().unwrap() {
            versions.push(version);
        }
        let found: Vec<_> = view
            .load(&versions)
            .unwrap()
            .iter()
            .map(|record| format!("{}={}", record.kv.key.escape_ascii(), record.kv.value.escape_ascii()))
            .collect();
        let want: Vec<_> = all.iter().filter(|pair| start <= pair.as_str() && pair.as_str() < end).cloned().collect();
        assert_eq!(found, want, "[{start}, {end})");
    }
}

#[test]
fn durable_is_what_was_flushed() {
    let bed = TestBed::new();
    assert_eq!(bed.store.durable_applied(), None);
    bed.commit(4, &[("a", Some("1"))]);
    assert_eq!(bed.store.durable_applied(), None, "a commit is not durable by itself");
    assert_eq!(bed.store.current().flush().unwrap(), Some(LogIndex(4)));
    assert_eq!(bed.store.durable_applied(), Some(LogIndex(4)));
    bed.commit(5, &[("a", Some("2"))]);
    assert_eq!(bed.store.durable_applied(), Some(LogIndex(4)));
    let crashed = tempfile::tempdir().unwrap();
    bed.store.crash_copy(crashed.path());
    let store = crate::state::StateStore::open(crashed.path(), &small()).unwrap();
    assert_eq!(pairs(&store.current(), NEWEST), ["a=1"]);
    assert_eq!(store.durable_applied(), Some(LogIndex(4)));
    let bed = bed.reopened();
    assert_eq!(bed.store.durable_applied(), Some(LogIndex(5)), "a clean end loses nothing");
    assert_eq!(bed.pairs(NEWEST), ["a=2"]);
}

#[test]
fn after_a_failed_flush_nothing_is_taken_any_more() {
    let bed = TestBed::new();
    bed.commit(1, &[("a", Some("1"))]);
    let db = bed.store.current();
    std::fs::remove_dir_all(bed.dir.path().join("gen-1")).unwrap();
    let first = db.flush().unwrap_err();
    assert!(matches!(first, StorageError::RocksDb(_)));
    assert!(first.to_string().ends_with("see to it, then start this node again"), "{first}");
    assert_eq!(db.durable_applied(), None);
    let copy = bed.dir.path().join("copy");
    let refused = [
        db.flush().map(drop),
        db.begin().map(drop),
        db.view().map(drop),
        db.reclaim_step(1).map(drop),
        db.checkpoint(&copy).map(drop),
        bed.store.prepare(&copy).map(drop),
    ];
    for (number, result) in refused.into_iter().enumerate() {
        assert!(matches!(result, Err(StorageError::Poisoned(_))), "{number}: {result:?}");
        let error = result.unwrap_err().to_string();
        assert!(error.ends_with(&first.to_string()), "{number}: without the advice: {error}");
    }
}

/// With memtables so small that they are flushed all the time, a crash at any moment leaves one
/// prefix in all families.
#[test]
fn automatic_flushes_leave_prefixes() {
    let bed = TestBed::new();
    let value = "v".repeat(1000);
    let mut seen = Vec::new();
    for index in 1..=600u64 {
        bed.commit(index, &[(&format!("k{}", index % 50), Some(&format!("{index}-{value}")))]);
        if index % 97 == 0 {
            let crashed = tempfile::tempdir_in(bed.dir.path().parent().unwrap()).unwrap();
            bed.store.crash_copy(crashed.path());
            let store = crate::state::StateStore::open(crashed.path(), &small()).unwrap();
            let applied = store.current().head().applied_index();
            assert!(applied <= LogIndex(index));
            assert_eq!(pairs(&store.current(), NEWEST), bed.pairs(applied), "at {applied} of {index}");
            seen.push(applied);
        }
    }
    assert!(seen.last() > Some(&LogIndex::ZERO), "something was flushed: {seen:?}");
}
