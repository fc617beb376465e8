//! Transactions (spec: etcd §1.6, line by line; form and duplicates are in `validate`).

use super::bed::*;
use headwater_types::limits::{ENTRY_BYTES, TXN_OPS_MAX, TXN_READ_BYTES_MAX, TXN_READ_KEYS_MAX};
use headwater_types::{
    Command, Compare, CompareOp, CompareTarget, DeleteRange, LeaseChoice, LeaseId, Outcome, Put, RangeQuery, Refusal,
    SortOrder, SortTarget, Txn, TxnDone, TxnOp, TxnOpDone, ValueChoice,
};

/// The answer of a transaction: a line for the result of the compares, then one for each response.
fn show_done(done: &TxnDone) -> Vec<String> {
    let mut out = vec![if done.succeeded { "yes" } else { "no" }.to_owned()];
    for response in &done.responses {
        match response {
            TxnOpDone::Put(put) => out.push(format!("put@{} {:?}", put.revision, put.prev.as_ref().map(show))),
            TxnOpDone::DeleteRange(done) => {
                out.push(format!("del@{} {} {:?}", done.revision, done.deleted, show_all(&done.prev)));
            }
            TxnOpDone::Range(range) => {
                let result = &range.result;
                out.push(format!("get@{} {:?} {}", range.revision, show_all(&result.kvs), result.count));
            }
            TxnOpDone::Txn(inner) => out.extend(show_done(inner).into_iter().map(|line| format!("  {line}"))),
        }
    }
    out
}

#[test]
fn compares_of_one_key() {
    use CompareOp::{Equal, Greater, Less, NotEqual};
    let mut bed = TestBed::new();
    bed.grant(7);
    // k: created 3, modified 4, version 2, lease 7, value "mm". `gone` was deleted.
    for command in [
        put("gone", "x"),
        put("k", "aa"),
        Command::Put(Put { lease: LeaseChoice::Set(LeaseId(7)), ..put_of("k", "mm") }),
        del("gone", ""),
    ] {
        bed.apply(command);
    }
    type Number = (&'static str, fn(i64) -> CompareTarget, i64);
    let numbers: [Number; 4] = [
        ("version", CompareTarget::Version, 2),
        ("create", CompareTarget::CreateRevision, 3),
        ("mod", CompareTarget::ModRevision, 4),
        ("lease", CompareTarget::Lease, 7),
    ];
    let holds = |key: &str, op, target| {
        let request = txn(vec![compare(key, op, target)], vec![], vec![]);
        bed.read_txn(&request).unwrap().succeeded
    };
    for (name, target, stored) in numbers {
        // An absent key counts as zero in every field.
        for (key, stored) in [("k", stored), ("gone", 0), ("never", 0)] {
            for given in [stored - 1, stored, stored + 1] {
                for (op, want) in [
                    (Equal, stored == given),
                    (Greater, stored > given),
                    (Less, stored < given),
                    (NotEqual, stored != given),
                ] {
                    assert_eq!(holds(key, op, target(given)), want, "{name} of {key}: {stored} {op:?} {given}");
                }
            }
        }
    }
    for given in ["", "m", "mm", "mma", "z"] {
        for (op, want) in
            [(Equal, "mm" == given), (Greater, "mm" > given), (Less, "mm" < given), (NotEqual, "mm" != given)]
        {
            assert_eq!(holds("k", op, CompareTarget::Value(bytes(given))), want, "value mm {op:?} {given}");
            assert!(!holds("never", op, CompareTarget::Value(bytes(given))), "an absent key has no value");
            assert!(!holds("gone", op, CompareTarget::Value(bytes(given))), "a deleted key has no value");
        }
    }
}

#[test]
fn compares_of_an_interval() {
    use CompareOp::{Equal, Greater, Less, NotEqual};
    let bed = TestBed::with([put("a", "1"), put("b", "1"), put("c", "2"), put("a", "1")]);
    let cases = [
        ("all keys hold", "a", "c", Equal, CompareTarget::Value(bytes("1")), true),
        ("one key does not", "a", "d", Equal, CompareTarget::Value(bytes("1")), false),
        ("all greater", "a", "d", Greater, CompareTarget::Value(bytes("0")), true),
        ("from a key on", "b", "\0", Less, CompareTarget::Version(2), true),
        ("everything", "\0", "\0", Less, CompareTarget::Version(2), false),
        ("everything exists", "\0", "\0", Greater, CompareTarget::CreateRevision(0), true),
        ("an empty interval counts as an absent key", "x", "z", Equal, CompareTarget::Version(0), true),
        ("an empty interval, not equal", "x", "z", NotEqual, CompareTarget::ModRevision(0), false),
        ("an empty interval has no value", "x", "z", NotEqual, CompareTarget::Value(bytes("1")), false),
        ("a reversed interval is empty", "c", "a", Equal, CompareTarget::Lease(0), true),
    ];
    for (name, key, end, op, target, want) in cases {
        let compares = vec![Compare { range: span(key, end), op, target }];
        assert_eq!(bed.read_txn(&txn(compares, vec![], vec![])).unwrap().succeeded, want, "{name}");
    }
}

#[test]
fn values_of_a_large_interval_are_compared() {
    let mut bed = TestBed::new();
    bed.apply_all((0..600).map(|i| put(format!("k{i:03}"), "v")), false);
    let all = |bed: &TestBed| {
        let target = CompareTarget::Value(bytes("v"));
        let compares = vec![Compare { range: span("k", "l"), op: CompareOp::Equal, target }];
        bed.read_txn(&txn(compares, vec![], vec![])).unwrap().succeeded
    };
    assert!(all(&bed));
    bed.apply(put("k599", "w"));
    assert!(!all(&bed));
}

#[test]
fn what_compares_read_has_a_bound_for_every_member_alike() {
    let keys = TXN_READ_KEYS_MAX / TXN_OPS_MAX;
    let mut bed = TestBed::new();
    bed.apply_all((0..keys).map(|number| put(format!("many/{number:06}"), "")), false);
    bed.apply_all([put("long", "x".repeat(TXN_READ_BYTES_MAX / 256)), put("short", "x")], false);
    let many = Compare { op: CompareOp::NotEqual, range: span("many/", "many0"), target: CompareTarget::Lease(1) };
    let value = |key: &str| compare(key, CompareOp::NotEqual, CompareTarget::Value(bytes("")));
    for (name, reads, more) in
        [("keys", vec![many; TXN_OPS_MAX], exists("short")), ("bytes", vec![value("long"); 256], value("short"))]
    {
        let fits = txn(reads.clone(), vec![op_get("short", "")], vec![]);
        assert!(bed.read_txn(&fits).unwrap().succeeded, "{name}");
        let past = txn([reads.clone(), vec![more.clone()]].concat(), vec![op_get("short", "")], vec![]);
        assert_eq!(bed.read_txn(&past), Err(Refusal::TooMuchRead), "{name}");
        // Compares of a nested transaction count as well, and the result is the same if the outcome
        // is not wanted.
        let nested = TxnOp::Txn(txn(vec![more], vec![], vec![]));
        let writes = Command::Txn(txn(reads, vec![op_put("short", "never"), nested], vec![]));
        let before = (bed.pairs(), bed.revision());
        assert_eq!(bed.apply(writes.clone()), Outcome::Refused(Refusal::TooMuchRead), "{name}");
        bed.apply_all([writes], false);
        assert_eq!((bed.pairs(), bed.revision()), before, "{name}");
    }
}

#[test]
fn what_a_transaction_tells_has_a_bound_for_every_member_alike() {
    const PAIR: usize = TXN_READ_BYTES_MAX / 256;
    let keys = TXN_READ_KEYS_MAX / TXN_OPS_MAX;
    let long = "x".repeat(PAIR - ENTRY_BYTES - 1);
    let read = |query: RangeQuery, count: usize| vec![TxnOp::Range(query); count];
    let of = |key: &str| get(key, "");
    let latest = || RangeQuery { limit: 1, order: SortOrder::Descend, target: SortTarget::Mod, ..get("k", "m") };
    let by_value = || RangeQuery { limit: 1, target: SortTarget::Value, keys_only: true, ..get("k", "m") };
    let count = || RangeQuery { count_only: true, ..get("n", "o") };
    let del_prev = |key, end| vec![TxnOp::DeleteRange(DeleteRange { prev_kv: true, ..del_of(key, end) })];
    let put_prev = |put: Put| vec![TxnOp::Put(Put { prev_kv: true, ..put })];
    let keep = || Put { value: ValueChoice::Keep, ..put_of("k", "") };
    let nested = |ops| vec![TxnOp::Txn(txn(vec![], ops, vec![]))];
    // `k` holds as many bytes as the limit allows for one pair, `l` is short, `n` are many keys.
    let cases = [
        ("pairs", true, vec![read(of("k"), 256)]),
        ("pairs, one past it", false, vec![read(of("k"), 256), read(of("l"), 1)]),
        ("nested", false, vec![nested(read(of("k"), 256)), read(of("l"), 1)]),
        ("no values", true, vec![read(RangeQuery { keys_only: true, ..of("k") }, 1000)]),
        ("cut by the limit, each as large as the largest", true, vec![read(latest(), 256)]),
        ("cut by the limit, one past it", false, vec![read(latest(), 257)]),
        ("loaded to be sorted", false, vec![read(by_value(), 256)]),
        ("removed pairs", false, vec![read(of("k"), 255), del_prev("k", "m")]),
        (
            "removed before, and counted all the same",
            false,
            vec![read(of("k"), 255), del_prev("k", ""), del_prev("k", ""), read(of("k"), 9)],
        ),
        ("removed, and of the past", false, vec![del_prev("k", ""), read(RangeQuery { at: at(2), ..of("k") }, 256)]),
        ("what a limit cuts before a removal", false, vec![vec![op_del("l", "")], read(latest(), 257)]),
        ("replaced pairs", false, vec![read(of("k"), 256), put_prev(put_of("l", ""))]),
        ("replaced by less, and counted all the same", false, vec![vec![op_put("k", "")], read(of("k"), 1000)]),
        ("new pairs", false, vec![vec![op_put("kk", &long)], read(of("kk"), 256)]),
        ("kept pairs come last", false, vec![put_prev(keep()), read(latest(), 256)]),
        ("keys", true, vec![read(count(), TXN_OPS_MAX)]),
        ("keys, one past it", false, vec![read(count(), TXN_OPS_MAX), read(of("l"), 1)]),
    ];
    let mut bed = TestBed::with([put("k", &long)]);
    bed.apply_all((0..keys).map(|number| put(format!("n{number:06}"), "")), false);
    for (name, fits, ops) in cases {
        bed.apply_all([put("k", &long), put("l", "x")], false);
        let before = bed.revision();
        let reads = txn(vec![], ops.concat(), vec![]);
        let writes = Command::Txn(txn(vec![], [reads.success.clone(), vec![op_put("z", "")]].concat(), vec![]));
        // The result is the same if the outcome is not wanted.
        bed.apply_all([writes.clone()], false);
        assert_eq!(bed.revision() == before + 1, fits, "{name}");
        if !fits {
            assert_eq!(bed.apply(writes), Outcome::Refused(Refusal::TooMuchRead), "{name}");
            assert_eq!(bed.revision(), before, "{name}");
            assert!(!reads.is_read_only() || bed.read_txn(&reads) == Err(Refusal::TooMuchRead), "{name}");
        }
    }
}

#[test]
fn compares_are_joined_by_and() {
    let bed = TestBed::with([put("a", "1")]);
    for (compares, want) in [
        (vec![], true),
        (vec![exists("a")], true),
        (vec![exists("a"), exists("a")], true),
        (vec![exists("a"), exists("b")], false),
        (vec![exists("b"), exists("a")], false),
    ] {
        let request = txn(compares, vec![op_get("a", "")], vec![op_get("b", "")]);
        let done = bed.read_txn(&request).unwrap();
        assert_eq!(done.succeeded, want);
        let want = if want { "get@2 [\"a=1@2/2/1\"] 1" } else { "get@2 [] 0" };
        assert_eq!(show_done(&done)[1], want);
    }
}

#[test]
fn operations_run_in_order_in_one_revision() {
    let mut bed = TestBed::with([put("a", "1"), put("b", "2"), put("c", "3")]);
    let ops = vec![
        op_get("a", "\0"),
        op_del("x", ""),
        TxnOp::DeleteRange(DeleteRange { range: span("a", "c"), prev_kv: true }),
        op_get("a", "\0"),
        TxnOp::Put(Put { prev_kv: true, ..put_of("c", "4") }),
        op_put("d", "5"),
        op_get("c", "\0"),
        TxnOp::Range(RangeQuery { at: at(4), ..get("a", "\0") }),
        TxnOp::Range(RangeQuery { at: at(2), ..get("a", "\0") }),
        op_del("x", "y"),
    ];
    let done = txn_done(bed.apply(Command::Txn(txn(vec![], ops, vec![]))));
    assert_eq!(
        show_done(&done),
        [
            "yes",
            r#"get@4 ["a=1@2/2/1", "b=2@3/3/1", "c=3@4/4/1"] 3"#,
            "del@4 0 []",
            r#"del@5 2 ["a=1@2/2/1", "b=2@3/3/1"]"#,
            r#"get@5 ["c=3@4/4/1"] 1"#,
            r#"put@5 Some("c=3@4/4/1")"#,
            "put@5 None",
            r#"get@5 ["c=4@4/5/2", "d=5@5/5/1"] 2"#,
            r#"get@5 ["a=1@2/2/1", "b=2@3/3/1", "c=3@4/4/1"] 3"#,
            r#"get@5 ["a=1@2/2/1"] 1"#,
            "del@5 0 []",
        ]
    );
    assert_eq!(bed.revision(), 5);
    assert_eq!(bed.pairs(), ["c=4@4/5/2", "d=5@5/5/1"]);
}

#[test]
fn what_changes_nothing_does_not_move_the_revision() {
    let cases = [
        ("empty", Txn::default()),
        ("failed compare, empty list", txn(vec![exists("x")], vec![op_put("a", "2")], vec![])),
        ("delete of nothing", txn(vec![], vec![op_del("x", "z"), op_get("a", "")], vec![])),
        (
            "nested nothing",
            txn(vec![], vec![TxnOp::Txn(txn(vec![exists("x")], vec![op_put("a", "2")], vec![]))], vec![]),
        ),
    ];
    for (name, request) in cases {
        let mut bed = TestBed::with([put("a", "1")]);
        let (_, committed) = bed.apply_all([Command::Txn(request)], true);
        assert_eq!(bed.revision(), 2, "{name}");
        assert_eq!(committed.events, [], "{name}");
        assert_eq!(bed.pairs(), ["a=1@2/2/1"], "{name}");
    }
}

#[test]
fn nested_compares_look_at_the_state_before_the_outermost_one() {
    let mut bed = TestBed::with([put("a", "1")]);
    let inner = |key: &str| {
        TxnOp::Txn(txn(
            vec![exists(key)],
            vec![op_put(format!("{key}-yes"), "")],
            vec![op_put(format!("{key}-no"), "")],
        ))
    };
    let ops = vec![
        op_put("new", "1"),
        op_del("a", ""),
        inner("new"),
        inner("a"),
        TxnOp::Txn(txn(
            vec![exists("a")],
            vec![TxnOp::Txn(txn(vec![exists("new")], vec![], vec![op_get("new", "")]))],
            vec![],
        )),
    ];
    let done = txn_done(bed.apply(Command::Txn(txn(vec![], ops, vec![]))));
    assert_eq!(
        show_done(&done),
        [
            "yes",
            "put@3 None",
            "del@3 1 []",
            "  no",
            "  put@3 None",
            "  yes",
            "  put@3 None",
            "  yes",
            "    no",
            r#"    get@3 ["new=1@3/3/1"] 1"#,
        ]
    );
    assert_eq!(bed.pairs(), ["a-yes=@3/3/1", "new=1@3/3/1", "new-no=@3/3/1"]);
}

#[test]
fn refusals_leave_nothing() {
    let keep = |key: &str| TxnOp::Put(Put { value: ValueChoice::Keep, ..put_of(key, "") });
    let keep_lease = |key: &str| TxnOp::Put(Put { lease: LeaseChoice::Keep, ..put_of(key, "") });
    let leased = |key: &str| TxnOp::Put(Put { lease: LeaseChoice::Set(LeaseId(9)), ..put_of(key, "") });
    let read = |revision: i64| TxnOp::Range(RangeQuery { at: at(revision), ..get("a", "") });
    let nest = |op: TxnOp| TxnOp::Txn(txn(vec![], vec![op], vec![]));
    // Three puts and a compaction to 3: current 4.
    let cases: [(&str, Vec<TxnOp>, Option<Refusal>); 16] = [
        ("keep of an absent value", vec![op_put("b", ""), keep("x")], Some(Refusal::KeyNotFound)),
        ("keep of an absent lease", vec![op_put("b", ""), keep_lease("x")], Some(Refusal::KeyNotFound)),
        (
            "keep of a key that this transaction makes",
            vec![TxnOp::Txn(Txn::default()), keep("x"), op_put("y", "")],
            Some(Refusal::KeyNotFound),
        ),
        ("keep of a present value", vec![op_put("b", ""), keep("a")], None),
        ("unknown lease", vec![op_put("b", ""), leased("a")], Some(Refusal::LeaseNotFound)),
        ("nested unknown lease", vec![op_put("b", ""), nest(nest(leased("a")))], Some(Refusal::LeaseNotFound)),
        ("a future revision", vec![op_put("b", ""), read(5)], Some(future(4))),
        ("the current revision", vec![op_put("b", ""), read(4)], None),
        ("a compacted revision", vec![op_put("b", ""), read(2)], Some(compacted(3))),
        ("the compaction point", vec![op_put("b", ""), read(3)], None),
        ("a negative revision", vec![op_put("b", ""), read(-1)], Some(compacted(3))),
        ("no revision", vec![op_put("b", ""), read(0)], None),
        ("nested future revision", vec![op_put("b", ""), nest(read(9))], Some(future(4))),
        ("puts are checked before ranges", vec![read(9), op_put("b", ""), keep("x")], Some(Refusal::KeyNotFound)),
        ("the first put that is wrong", vec![leased("a"), keep("x")], Some(Refusal::LeaseNotFound)),
        (
            "the list that does not run is not checked",
            vec![TxnOp::Txn(txn(vec![], vec![op_put("b", "")], vec![read(9), keep("x"), leased("a")]))],
            None,
        ),
    ];
    for (name, ops, want) in cases {
        let mut bed = TestBed::with([put("a", "1"), put("a", "2"), put("a", "3"), compact(3)]);
        let before = (bed.pairs(), bed.revision());
        let (mut outcomes, committed) = bed.apply_all([Command::Txn(txn(vec![], ops, vec![]))], true);
        match (outcomes.pop().unwrap(), want) {
            (Outcome::Refused(refusal), Some(want)) => {
                assert_eq!(refusal, want, "{name}");
                assert_eq!((bed.pairs(), bed.revision()), before, "{name}");
                assert_eq!(committed.events, [], "{name}");
                assert_eq!(committed.head.applied_index().get(), 5, "{name}: it counts as applied");
            }
            (Outcome::Txn(_), None) => assert_eq!(bed.revision(), 5, "{name}"),
            (outcome, want) => panic!("{name}: {outcome:?}, not {want:?}"),
        }
    }
}

#[test]
fn a_read_only_transaction_answers_like_a_replicated_one() {
    let bed = TestBed::with([put("a", "1"), put("b", "2"), put("a", "3"), compact(3)]);
    let read = |revision: i64, key: &str, end: &str| TxnOp::Range(RangeQuery { at: at(revision), ..get(key, end) });
    let requests = [
        txn(vec![exists("a")], vec![op_get("a", "\0"), read(3, "a", "\0"), read(4, "a", "")], vec![]),
        txn(vec![exists("x")], vec![], vec![op_get("b", "")]),
        txn(vec![], vec![read(-1, "a", "")], vec![]),
        txn(vec![], vec![op_get("a", ""), read(2, "a", "")], vec![]),
        txn(vec![], vec![read(5, "a", "")], vec![]),
    ];
    for request in requests {
        assert!(request.is_read_only());
        let read = bed.read_txn(&request);
        let mut replica = TestBed::with([put("a", "1"), put("b", "2"), put("a", "3"), compact(3)]);
        let replicated = replica.apply(Command::Txn(request.clone()));
        match (&read, &replicated) {
            (Ok(read), Outcome::Txn(done)) => assert_eq!(read, done),
            (Err(read), Outcome::Refused(refusal)) => assert_eq!(read, refusal),
            other => panic!("{request:?}: {other:?}"),
        }
    }
}

#[test]
#[should_panic(expected = "what may write is replicated")]
fn a_nested_transaction_is_not_read_only() {
    let bed = TestBed::new();
    let request = txn(vec![], vec![TxnOp::Txn(Txn::default())], vec![]);
    drop(bed.read_txn(&request));
}
