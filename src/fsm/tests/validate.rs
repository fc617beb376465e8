//! Form of transactions (spec: etcd §1.6): budget, empty keys, duplicates with both holes closed.

use super::bed::*;
use crate::InvalidTxn;
use headwater_types::limits::{TXN_OPS_MAX, TXN_OPS_SET_MAX};
use headwater_types::{Command, Outcome, Refusal, Txn, TxnOp};

fn validate(txn: &Txn) -> Result<(), InvalidTxn> {
    crate::validate(txn, TXN_OPS_MAX)
}

fn nest(success: Vec<TxnOp>, failure: Vec<TxnOp>) -> TxnOp {
    TxnOp::Txn(txn(vec![], success, failure))
}

fn gets(count: usize) -> Vec<TxnOp> {
    (0..count).map(|_| op_get("k", "")).collect()
}

#[test]
fn budget_of_operations() {
    let compares = |count: usize| (0..count).map(|_| exists("k")).collect::<Vec<_>>();
    let with = |mut ops: Vec<TxnOp>, op: TxnOp| {
        ops.push(op);
        ops
    };
    // 4 + 4 + 4 in the outer lists, and in the nested ones 4 * 124 and `count`: 512 if `count` is
    // 4.
    let tree = |count: usize| {
        let success = with(vec![nest(gets(124), vec![]); 3], nest(gets(124), gets(count)));
        txn(compares(4), success, gets(4))
    };
    let cases = [
        ("empty", Txn::default(), true),
        ("128 of each", txn(compares(128), gets(128), gets(128)), true),
        ("129 compares", txn(compares(129), vec![], vec![]), false),
        ("129 on success", txn(vec![], gets(129), vec![]), false),
        ("129 on failure", txn(vec![], vec![], gets(129)), false),
        ("nested gets what is left", txn(vec![], with(gets(27), nest(gets(100), vec![])), vec![]), true),
        ("nested one past it", txn(vec![], with(gets(27), nest(gets(101), vec![])), vec![]), false),
        ("compares count too", txn(compares(100), vec![nest(gets(29), vec![])], vec![]), false),
        ("the longest list counts", txn(vec![], vec![nest(gets(29), vec![])], gets(100)), false),
        ("nested, failing side", txn(vec![], gets(100), vec![nest(vec![], gets(29))]), false),
        ("a whole tree", tree(4), true),
        ("a whole tree one past it", tree(5), false),
        (
            "compares of a whole tree",
            txn(vec![], vec![TxnOp::Txn(txn(compares(123), vec![], vec![])); 5], vec![]),
            false,
        ),
        ("siblings do not share", txn(vec![], vec![nest(gets(126), vec![]), nest(gets(126), vec![])], vec![]), true),
    ];
    for (name, txn, fits) in cases {
        let want = if fits { Ok(()) } else { Err(InvalidTxn::TooManyOps) };
        assert_eq!(validate(&txn), want, "{name}");
    }
    let deep = (0..128).fold(vec![], |ops, _| vec![nest(ops, vec![])]);
    assert_eq!(validate(&txn(vec![], deep.clone(), vec![])), Ok(()), "128 deep");
    let deeper = vec![nest(deep, vec![])];
    assert_eq!(validate(&txn(vec![], deeper, vec![])), Err(InvalidTxn::TooManyOps), "129 deep");
}

#[test]
fn the_budget_is_what_the_member_is_told() {
    for ops_max in [1, 5, 200, TXN_OPS_SET_MAX] {
        let verdict = |ops: usize| crate::validate(&txn(vec![], gets(ops), vec![]), ops_max);
        assert_eq!((verdict(ops_max), verdict(ops_max + 1)), (Ok(()), Err(InvalidTxn::TooManyOps)), "{ops_max}");
        let flat = txn((0..ops_max).map(|_| exists("k")).collect(), gets(ops_max), gets(ops_max));
        assert_eq!(crate::validate(&flat, ops_max), Ok(()), "all three lists, {ops_max} each");
    }
}

#[test]
fn empty_keys() {
    let cases = [
        ("compare", txn(vec![exists("")], vec![], vec![])),
        ("get", txn(vec![], vec![op_get("", "")], vec![])),
        ("interval", txn(vec![], vec![op_get("", "z")], vec![])),
        ("put", txn(vec![], vec![], vec![op_put("", "v")])),
        ("delete", txn(vec![], vec![op_del("", "\0")], vec![])),
        ("nested", txn(vec![], vec![nest(vec![], vec![op_put("", "v")])], vec![])),
        ("before a duplicate", txn(vec![], vec![op_put("a", ""), op_put("a", "")], vec![op_put("", "")])),
    ];
    for (name, txn) in cases {
        assert_eq!(validate(&txn), Err(InvalidTxn::EmptyKey), "{name}");
    }
}

#[test]
fn duplicates() {
    let cases: [(&str, Vec<TxnOp>, bool); 24] = [
        ("two keys", vec![op_put("a", ""), op_put("b", "")], true),
        ("one key twice", vec![op_put("a", "1"), op_put("a", "2")], false),
        ("the same put twice", vec![op_put("a", "1"), op_put("a", "1")], false),
        ("put then delete", vec![op_put("a", ""), op_del("a", "")], false),
        ("delete then put", vec![op_del("a", ""), op_put("a", "")], false),
        ("delete of another key", vec![op_del("b", ""), op_put("a", "")], true),
        ("put in a deleted interval", vec![op_del("a", "c"), op_put("b", "")], false),
        ("put at the end of a deleted interval", vec![op_del("a", "c"), op_put("c", "")], true),
        ("put at the start of a deleted interval", vec![op_del("a", "c"), op_put("a", "")], false),
        ("empty interval", vec![op_del("c", "a"), op_put("b", "")], true),
        ("hole one: an interval without end", vec![op_del("a", "\0"), op_put("b", "")], false),
        ("below an interval without end", vec![op_del("b", "\0"), op_put("a", "")], true),
        ("everything and a put", vec![op_put("q", ""), op_del("\0", "\0")], false),
        ("overlapping deletes", vec![op_del("a", "c"), op_del("b", "d"), op_del("a", "\0")], true),
        ("ranges do not count", vec![op_get("a", "\0"), op_put("a", ""), op_get("a", "")], true),
        ("nested put and put", vec![nest(vec![op_put("a", "")], vec![]), op_put("a", "")], false),
        ("put and nested put", vec![op_put("a", ""), nest(vec![], vec![op_put("a", "")])], false),
        ("alternatives share keys", vec![nest(vec![op_put("a", "")], vec![op_put("a", ""), op_del("b", "")])], true),
        ("alternatives put and delete", vec![nest(vec![op_put("a", "")], vec![op_del("a", "")])], true),
        ("siblings", vec![nest(vec![op_put("a", "")], vec![]), nest(vec![], vec![op_put("a", "")])], false),
        (
            "hole two: siblings, put then delete",
            vec![nest(vec![op_put("a", "")], vec![]), nest(vec![op_del("a", "")], vec![])],
            false,
        ),
        (
            "siblings, delete then put",
            vec![nest(vec![op_del("a", "")], vec![]), nest(vec![op_put("a", "")], vec![])],
            false,
        ),
        (
            "nested delete of a put",
            vec![op_put("a", ""), nest(vec![nest(vec![op_del("a", "b")], vec![])], vec![])],
            false,
        ),
        (
            "nested alternatives of a nested one",
            vec![nest(vec![nest(vec![op_put("a", "")], vec![op_put("a", "")])], vec![op_put("a", "")])],
            true,
        ),
    ];
    for (name, ops, fits) in cases {
        let valid = if fits { Ok(()) } else { Err(InvalidTxn::DuplicateKey) };
        assert_eq!(validate(&txn(vec![], ops.clone(), vec![])), valid, "{name}");
        assert_eq!(validate(&txn(vec![], vec![], ops.clone())), valid, "{name}, as the failure list");

        // Apply refuses a transaction that was not checked before it was proposed, for every choice
        // of list.
        for (compares, lists) in [(vec![], (ops.clone(), vec![])), (vec![], (vec![], ops))] {
            let mut bed = TestBed::with([put("a", "0"), put("b", "0")]);
            let outcome = bed.apply(Command::Txn(txn(compares, lists.0, lists.1)));
            assert_eq!(outcome == Outcome::Refused(Refusal::DuplicateKey), !fits, "{name}: {outcome:?}");
            if !fits {
                assert_eq!(bed.pairs(), ["a=0@2/2/1", "b=0@3/3/1"], "{name}");
                assert_eq!(bed.revision(), 3, "{name}");
            }
        }
    }
    let alternatives = txn(vec![], vec![op_put("a", "")], vec![op_put("a", ""), op_del("b", "")]);
    assert_eq!(validate(&alternatives), Ok(()), "the two lists of one transaction may share keys");
}
