//! Transactions that also attach (spec: etcd §7.5).

use super::bed::*;
use headwater_types::{
    Command, Compare, DeleteRange, LeaseAttach, LeaseChoice, LeaseId, LeaseTxn, Outcome, Put, Refusal, Txn, TxnOp,
};

fn attach(key: &str, lease: i64) -> LeaseAttach {
    LeaseAttach { id: LeaseId(lease), key: bytes(key) }
}

/// A put of the early API.
fn early_put(key: &str, value: &str) -> TxnOp {
    TxnOp::Put(Put { lease: LeaseChoice::KeepIfPresent, ..put_of(key, value) })
}

fn bed() -> TestBed {
    let mut bed = TestBed::with([put("a", "1")]);
    bed.grant(1);
    bed.grant(2);
    bed.apply(Command::Put(Put { lease: LeaseChoice::Set(LeaseId(1)), ..put_of("b", "2") }));
    bed
}

const BEFORE: [&str; 2] = ["a=1@2/2/1", "b=2@3/3/1/1"];

struct Case {
    name: &'static str,
    compares: Vec<Compare>,
    success: (Vec<TxnOp>, Vec<LeaseAttach>),
    failure: (Vec<TxnOp>, Vec<LeaseAttach>),
    /// Whether the compares held, and the number of responses; or the refusal.
    want: Result<(bool, usize), Refusal>,
    pairs: &'static [&'static str],
}

#[test]
fn everything_happens_in_one_revision_or_not_at_all() {
    let none = || (vec![], vec![]);
    let cases = [
        Case {
            name: "a put and its attachment are one change",
            compares: vec![],
            success: (vec![early_put("c", "3")], vec![attach("c", 1)]),
            failure: none(),
            want: Ok((true, 1)),
            pairs: &["a=1@2/2/1", "b=2@3/3/1/1", "c=3@4/4/1/1"],
        },
        Case {
            name: "a key that nothing else changes",
            compares: vec![exists("a")],
            success: (vec![op_get("a", ""), early_put("c", "3")], vec![attach("a", 2), attach("c", 2)]),
            failure: none(),
            want: Ok((true, 2)),
            pairs: &["a=1@2/4/2/2", "b=2@3/3/1/1", "c=3@4/4/1/2"],
        },
        Case {
            name: "the other list",
            compares: vec![exists("x")],
            success: (vec![early_put("c", "3")], vec![attach("nothing", 9)]),
            failure: (vec![early_put("d", "4")], vec![attach("d", 1)]),
            want: Ok((false, 1)),
            pairs: &["a=1@2/2/1", "b=2@3/3/1/1", "d=4@4/4/1/1"],
        },
        Case {
            name: "attached already: nothing changes",
            compares: vec![],
            success: (vec![op_get("b", "")], vec![attach("b", 1)]),
            failure: none(),
            want: Ok((true, 1)),
            pairs: &BEFORE,
        },
        Case {
            name: "attachments alone",
            compares: vec![],
            success: (vec![], vec![attach("a", 1), attach("b", 2)]),
            failure: none(),
            want: Ok((true, 0)),
            pairs: &["a=1@2/4/2/1", "b=2@3/4/2/2"],
        },
        Case {
            name: "of two attachments of one key the last counts",
            compares: vec![],
            success: (vec![early_put("a", "9")], vec![attach("a", 1), attach("c", 1), attach("a", 2), attach("c", 2)]),
            failure: none(),
            want: Err(Refusal::KeyNotFound),
            pairs: &BEFORE,
        },
        Case {
            name: "of two attachments of one key the last counts, for a put too",
            compares: vec![],
            success: (vec![early_put("a", "9")], vec![attach("a", 1), attach("a", 2)]),
            failure: none(),
            want: Ok((true, 1)),
            pairs: &["a=9@2/4/2/2", "b=2@3/3/1/1"],
        },
        Case {
            name: "an unknown lease refuses everything",
            compares: vec![],
            success: (vec![early_put("c", "3")], vec![attach("c", 1), attach("a", 9)]),
            failure: none(),
            want: Err(Refusal::LeaseNotFound),
            pairs: &BEFORE,
        },
        Case {
            name: "an absent key refuses everything",
            compares: vec![],
            success: (vec![early_put("c", "3")], vec![attach("x", 1)]),
            failure: none(),
            want: Err(Refusal::KeyNotFound),
            pairs: &BEFORE,
        },
        Case {
            name: "what is deleted cannot be attached",
            compares: vec![],
            success: (vec![op_del("a", "c")], vec![attach("b", 1)]),
            failure: none(),
            want: Err(Refusal::DuplicateKey),
            pairs: &BEFORE,
        },
        Case {
            name: "a key changes once",
            compares: vec![],
            success: (vec![early_put("c", "3"), early_put("c", "4")], vec![]),
            failure: none(),
            want: Err(Refusal::DuplicateKey),
            pairs: &BEFORE,
        },
        Case {
            name: "nested operations count as their own list",
            compares: vec![],
            success: (
                vec![TxnOp::Txn(txn(vec![exists("x")], vec![], vec![early_put("c", "3")]))],
                vec![attach("c", 1), attach("a", 1)],
            ),
            failure: none(),
            want: Ok((true, 1)),
            pairs: &["a=1@2/4/2/1", "b=2@3/3/1/1", "c=3@4/4/1/1"],
        },
    ];
    for case in cases {
        let mut bed = bed();
        let (txn, success, failure) = (
            Txn { compares: case.compares, success: case.success.0, failure: case.failure.0 },
            case.success.1,
            case.failure.1,
        );
        let outcome = bed.apply(Command::LeaseTxn(LeaseTxn { txn, success, failure }));
        match (outcome, case.want) {
            (Outcome::Txn(done), Ok((succeeded, answers))) => {
                assert_eq!((done.succeeded, done.responses.len()), (succeeded, answers), "{}", case.name);
            }
            (Outcome::Refused(refusal), Err(want)) => assert_eq!(refusal, want, "{}", case.name),
            (outcome, want) => panic!("{}: {outcome:?}, not {want:?}", case.name),
        }
        assert_eq!(bed.pairs(), case.pairs, "{}", case.name);
        assert_eq!(bed.revision(), 3 + i64::from(case.pairs != BEFORE), "{}", case.name);
    }
}

#[test]
fn the_index_follows() {
    let mut bed = bed();
    let delete = TxnOp::DeleteRange(DeleteRange { range: span("b", ""), prev_kv: false });
    let txn = Txn { success: vec![delete, early_put("c", "3")], ..Txn::default() };
    bed.apply(Command::LeaseTxn(LeaseTxn { txn, success: vec![attach("c", 2), attach("a", 1)], failure: vec![] }));
    assert_eq!((bed.lease_keys(1), bed.lease_keys(2)), (vec![bytes("a")], vec![bytes("c")]));
}
