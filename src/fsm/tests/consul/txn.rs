//! Transactions: all operations are done, or none.

use super::*;
use headwater_types::consul::{SessionRefusal, TxnFault, TxnFaultReason, TxnItem};
use headwater_types::limits::{CONSUL_TXN_RESULT_BYTES_MAX, CONSUL_TXN_RESULT_KEYS_MAX};

fn done(outcome: Outcome) -> Vec<String> {
    match outcome {
        Outcome::Consul(ConsulOutcome::Txn(items)) => {
            let shown = |item: &TxnItem| match item {
                TxnItem::Kv(entry) => show_entry(entry),
                TxnItem::Catalog(row) => format!("{row:?}"),
            };
            items.iter().map(shown).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn failed(outcome: Outcome) -> Vec<(u32, TxnFaultReason)> {
    match outcome {
        Outcome::Consul(ConsulOutcome::TxnFailed(faults)) => {
            faults.into_iter().map(|TxnFault { op, reason }| (op, reason)).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn later_operations_see_earlier_ones_and_a_key_is_written_once() {
    let mut bed = TestBed::new();
    bed.kv(set("old", "1"));
    let results = done(bed.apply(transaction([
        set("a", "1"),
        set("a", "2"),
        op(KvVerb::Get, "a"),
        op(KvVerb::Delete, "old"),
        op(KvVerb::CheckNotExists, "old"),
        set("old", "anew"),
        op(KvVerb::GetTree, ""),
        set("came", "and went"),
        op(KvVerb::Delete, "came"),
        op(KvVerb::GetOrEmpty, "came"),
    ])));
    let wanted = [
        "a=/0 0@2/2",
        "a=/0 0@2/2",
        "a=2/0 0@2/2",
        "old=/0 0@2/2",
        "a=2/0 0@2/2",
        "old=anew/0 0@2/2",
        "came=/0 0@2/2",
        "came=/0 0@0/0",
    ];
    assert_eq!(results, wanted);
    assert_eq!(bed.revision(), 3);
    assert_eq!(bed.shown(""), ["a=2/0 0@2/2", "old=anew/0 0@2/2"]);
}

#[test]
fn one_that_does_not_hold_undoes_all_and_every_fault_is_told() {
    let mut bed = TestBed::new();
    bed.session(session("s"));
    bed.session(Session { lock_delay_ms: 1000, ..session("late") });
    bed.kv(with_session(KvVerb::Lock, "l", "s"));
    bed.kv(with_session(KvVerb::Lock, "delayed", "late"));
    bed.apply(destroy("late"));
    bed.session(session("t"));
    let (before, shown) = (bed.revision(), bed.shown(""));
    let faults = failed(bed.apply(transaction([
        set("a", "1"),
        with_index(KvVerb::Cas, "l", 1),
        with_session(KvVerb::Lock, "l", "t"),
        with_session(KvVerb::Unlock, "l", "t"),
        with_session(KvVerb::Lock, "delayed", "t"),
        op(KvVerb::Get, "absent"),
        op(KvVerb::CheckNotExists, "l"),
        with_session(KvVerb::Lock, "a", "late"),
        with_session(KvVerb::Lock, "a", ""),
        with_index(KvVerb::DeleteCas, "l", 1),
        with_index(KvVerb::CheckIndex, "l", 1),
        with_session(KvVerb::CheckSession, "l", "t"),
        op(KvVerb::Get, "a"),
    ])));
    let wanted = [
        (1, TxnFaultReason::Stale),
        (2, TxnFaultReason::Held),
        (3, TxnFaultReason::NotHeld),
        (4, TxnFaultReason::Delayed),
        (5, TxnFaultReason::Absent),
        (6, TxnFaultReason::Present),
        (7, SessionRefusal::Invalid.into()),
        (8, SessionRefusal::Missing.into()),
        (9, TxnFaultReason::Stale),
        (10, TxnFaultReason::Stale),
        (11, TxnFaultReason::NotHeld),
    ];
    assert_eq!(faults, wanted);
    assert_eq!((bed.revision(), bed.shown("")), (before, shown));
}

#[test]
fn a_lock_with_what_it_guards() {
    let mut bed = TestBed::new();
    bed.session(session("s"));
    let results = done(bed.apply(transaction([
        with_session(KvVerb::Lock, "l", "s"),
        with_session(KvVerb::CheckSession, "l", "s"),
        set("guarded", "1"),
        with_session(KvVerb::Unlock, "l", "s"),
        with_session(KvVerb::Lock, "l", "s"),
    ])));
    assert_eq!(results.last().unwrap(), "l=/0 2s@2/2");
    assert_eq!(bed.shown(""), ["guarded=1/0 0@2/2", "l=v/0 2s@2/2"]);
    let guarded = transaction([with_session(KvVerb::CheckSession, "l", "s"), set("guarded", "2")]);
    done(bed.apply(guarded.clone()));
    bed.apply(destroy("s"));
    assert_eq!(failed(bed.apply(guarded)), [(0, TxnFaultReason::NotHeld)]);
}

#[test]
fn what_a_transaction_reads_has_a_bound_for_every_member_alike() {
    let too_much = |position| vec![(position, TxnFaultReason::ResultTooLarge)];
    let mut bed = TestBed::with([put("consul/kv/long/1", "x".repeat(CONSUL_TXN_RESULT_BYTES_MAX / 2))]);
    bed.apply(put("consul/kv/long/2", "x".repeat(CONSUL_TXN_RESULT_BYTES_MAX / 2)));
    let keys = (1..CONSUL_TXN_RESULT_KEYS_MAX).map(|number| put(format!("consul/kv/many/{number:06}"), ""));
    bed.apply_all(keys, false);
    let (many, long) = (op(KvVerb::GetTree, "many/"), op(KvVerb::GetTree, "long/"));
    // One more key fits; the result of a write has no value, and does not count.
    assert_eq!(done(bed.apply(transaction([set("a", "1"), many.clone()]))).len(), CONSUL_TXN_RESULT_KEYS_MAX);
    assert_eq!(done(bed.apply(transaction([set("a", "2"), many.clone(), op(KvVerb::Get, "a")]))).len(), 16_385);
    for (ops, wanted) in [
        (vec![many.clone(), many.clone()], too_much(1)),
        (vec![many.clone(), op(KvVerb::Get, "a"), op(KvVerb::GetOrEmpty, "absent")], too_much(2)),
        (vec![long.clone()], too_much(0)),
        (vec![op(KvVerb::Get, "long/1"), op(KvVerb::Get, "long/2")], too_much(1)),
        // Keys that earlier operations have removed count as well.
        (vec![op(KvVerb::DeleteTree, "many/"), many.clone(), many.clone()], too_much(2)),
    ] {
        let ops: Vec<KvOp> = ops.into_iter().chain([set("a", "never")]).collect();
        let (before, revision) = (bed.consul_entry("a"), bed.revision());
        assert_eq!(failed(bed.apply(transaction(ops.clone()))), wanted);
        // The effect is the same if the outcome is not wanted.
        assert_eq!(bed.apply_all([transaction(ops)], false).0, [Outcome::Nothing]);
        assert_eq!((bed.consul_entry("a"), bed.revision()), (before, revision));
    }
    let unheard = bed.apply_all([transaction([set("a", "3"), many.clone()])], false).0;
    assert_eq!(unheard, [Outcome::Nothing]);
    assert_eq!(bed.consul_entry("a").unwrap().value, bytes("3"));
    // A transaction that only reads runs on one member, with the limit of a list.
    let reads = [many.clone(), long, many];
    let db = bed.store.current();
    let results = crate::read_consul_txn(&db.view().unwrap(), &reads).unwrap().unwrap();
    assert_eq!(results.len(), 2 * (CONSUL_TXN_RESULT_KEYS_MAX - 1) + 2);
}

#[test]
fn a_tree_is_removed_whatever_was_done_to_it_before() {
    let mut bed = TestBed::new();
    bed.session(Session { lock_delay_ms: 1000, ..session("s") });
    for path in ["t", "t/1", "t/2", "u"] {
        bed.kv(set(path, "1"));
    }
    let results = done(bed.apply(transaction([
        set("t/3", "new"),
        op(KvVerb::Delete, "t/2"),
        with_session(KvVerb::Lock, "t/1", "s"),
        op(KvVerb::DeleteTree, "t/"),
        op(KvVerb::GetTree, "t"),
        set("t/1", "anew"),
        op(KvVerb::GetTree, "t"),
    ])));
    assert_eq!(results[2..], ["t=1/0 0@2/2", "t/1=/0 0@6/6", "t=1/0 0@2/2", "t/1=anew/0 0@6/6"]);
    assert_eq!(bed.shown(""), ["t=1/0 0@2/2", "t/1=anew/0 0@6/6", "u=1/0 0@5/5"]);
    assert_eq!(bed.revision(), 6);
    bed.kv(op(KvVerb::DeleteTree, ""));
    assert_eq!(bed.shown(""), [""; 0]);
}
