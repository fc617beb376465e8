//! Operations of which all are done or none.

use super::*;
use crate::types::consul::{SessionRefusal, TxnFault, TxnFaultReason, TxnItem};

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
    let mut bed = Bed::new();
    bed.kv(set("old", "1"));
    let told = done(bed.apply(transaction([
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
    assert_eq!(told, wanted);
    assert_eq!(bed.revision(), 3);
    assert_eq!(bed.shown(""), ["a=2/0 0@2/2", "old=anew/0 0@2/2"]);
}

#[test]
fn one_that_does_not_hold_undoes_all_and_every_fault_is_told() {
    let mut bed = Bed::new();
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
    let mut bed = Bed::new();
    bed.session(session("s"));
    let told = done(bed.apply(transaction([
        with_session(KvVerb::Lock, "l", "s"),
        with_session(KvVerb::CheckSession, "l", "s"),
        set("guarded", "1"),
        with_session(KvVerb::Unlock, "l", "s"),
        with_session(KvVerb::Lock, "l", "s"),
    ])));
    assert_eq!(told.last().unwrap(), "l=/0 2s@2/2");
    assert_eq!(bed.shown(""), ["guarded=1/0 0@2/2", "l=v/0 2s@2/2"]);
    let guarded = transaction([with_session(KvVerb::CheckSession, "l", "s"), set("guarded", "2")]);
    done(bed.apply(guarded.clone()));
    bed.apply(destroy("s"));
    assert_eq!(failed(bed.apply(guarded)), [(0, TxnFaultReason::NotHeld)]);
}
