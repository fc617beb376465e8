//! Puts (spec: etcd §1.1, §1.4, §7.5).

use super::bed::*;
use headwater_types::{Command, LeaseChoice, LeaseId, Outcome, Put, PutDone, Refusal, Revision, ValueChoice};

#[test]
fn a_fresh_store_is_at_revision_one_and_the_first_put_makes_two() {
    let mut bed = TestBed::new();
    assert_eq!(bed.revision(), 1);
    assert_eq!(bed.apply(put("a", "1")), Outcome::Put(PutDone { revision: Revision(2), prev: None }));
    assert_eq!(bed.revision(), 2);
    assert_eq!(bed.pairs(), ["a=1@2/2/1"]);
}

#[test]
fn versions_count_within_a_generation() {
    let mut bed = TestBed::with([put("a", "1"), put("b", "x"), put("a", "2"), put("a", "3")]);
    assert_eq!(bed.pairs(), ["a=3@2/5/3", "b=x@3/3/1"]);
    bed.apply(del("a", ""));
    bed.apply(put("a", "4"));
    assert_eq!(bed.pairs(), ["a=4@7/7/1", "b=x@3/3/1"], "a delete ends the generation");
}

#[test]
fn what_a_put_keeps_and_returns() {
    struct Case {
        name: &'static str,
        key: &'static str,
        value: ValueChoice,
        lease: LeaseChoice,
        prev_kv: bool,
        want: Result<Option<&'static str>, Refusal>,
        after: &'static [&'static str],
    }
    let set = |text: &'static str| ValueChoice::Set(bytes(text));
    let none = LeaseChoice::Set(LeaseId::NONE);
    let before: &[&str] = &["a=1@2/2/1", "b=2@3/3/1/7"];
    let cases = [
        Case {
            name: "new key, prev asked for",
            key: "c",
            value: set("v"),
            lease: none,
            prev_kv: true,
            want: Ok(None),
            after: &["a=1@2/2/1", "b=2@3/3/1/7", "c=v@4/4/1"],
        },
        Case {
            name: "prev not asked for",
            key: "a",
            value: set("v"),
            lease: none,
            prev_kv: false,
            want: Ok(None),
            after: &["a=v@2/4/2", "b=2@3/3/1/7"],
        },
        Case {
            name: "prev asked for",
            key: "a",
            value: set("v"),
            lease: none,
            prev_kv: true,
            want: Ok(Some("a=1@2/2/1")),
            after: &["a=v@2/4/2", "b=2@3/3/1/7"],
        },
        Case {
            name: "empty value",
            key: "a",
            value: set(""),
            lease: none,
            prev_kv: false,
            want: Ok(None),
            after: &["a=@2/4/2", "b=2@3/3/1/7"],
        },
        Case {
            name: "zero bytes in a key",
            key: "\0\0",
            value: set("v"),
            lease: none,
            prev_kv: false,
            want: Ok(None),
            after: &["\\x00\\x00=v@4/4/1", "a=1@2/2/1", "b=2@3/3/1/7"],
        },
        Case {
            name: "keep the value",
            key: "a",
            value: ValueChoice::Keep,
            lease: none,
            prev_kv: false,
            want: Ok(None),
            after: &["a=1@2/4/2", "b=2@3/3/1/7"],
        },
        Case {
            name: "keep the value, prev asked for",
            key: "b",
            value: ValueChoice::Keep,
            lease: none,
            prev_kv: true,
            want: Ok(Some("b=2@3/3/1/7")),
            after: &["a=1@2/2/1", "b=2@3/4/2"],
        },
        Case {
            name: "keep the value of an absent key",
            key: "c",
            value: ValueChoice::Keep,
            lease: none,
            prev_kv: false,
            want: Err(Refusal::KeyNotFound),
            after: before,
        },
        Case {
            name: "keep the lease",
            key: "b",
            value: set("v"),
            lease: LeaseChoice::Keep,
            prev_kv: false,
            want: Ok(None),
            after: &["a=1@2/2/1", "b=v@3/4/2/7"],
        },
        Case {
            name: "keep the lease of a key without one",
            key: "a",
            value: set("v"),
            lease: LeaseChoice::Keep,
            prev_kv: false,
            want: Ok(None),
            after: &["a=v@2/4/2", "b=2@3/3/1/7"],
        },
        Case {
            name: "keep the lease of an absent key",
            key: "c",
            value: set("v"),
            lease: LeaseChoice::Keep,
            prev_kv: false,
            want: Err(Refusal::KeyNotFound),
            after: before,
        },
        Case {
            name: "keep both",
            key: "b",
            value: ValueChoice::Keep,
            lease: LeaseChoice::Keep,
            prev_kv: false,
            want: Ok(None),
            after: &["a=1@2/2/1", "b=2@3/4/2/7"],
        },
        Case {
            name: "keep the lease if present: present",
            key: "b",
            value: set("v"),
            lease: LeaseChoice::KeepIfPresent,
            prev_kv: false,
            want: Ok(None),
            after: &["a=1@2/2/1", "b=v@3/4/2/7"],
        },
        Case {
            name: "keep the lease if present: absent",
            key: "c",
            value: set("v"),
            lease: LeaseChoice::KeepIfPresent,
            prev_kv: false,
            want: Ok(None),
            after: &["a=1@2/2/1", "b=2@3/3/1/7", "c=v@4/4/1"],
        },
        Case {
            name: "detach",
            key: "b",
            value: set("v"),
            lease: none,
            prev_kv: false,
            want: Ok(None),
            after: &["a=1@2/2/1", "b=v@3/4/2"],
        },
        Case {
            name: "attach",
            key: "a",
            value: set("v"),
            lease: LeaseChoice::Set(LeaseId(7)),
            prev_kv: false,
            want: Ok(None),
            after: &["a=v@2/4/2/7", "b=2@3/3/1/7"],
        },
        Case {
            name: "unknown lease",
            key: "a",
            value: set("v"),
            lease: LeaseChoice::Set(LeaseId(8)),
            prev_kv: false,
            want: Err(Refusal::LeaseNotFound),
            after: before,
        },
        Case {
            name: "unknown lease and absent key: the lease comes first",
            key: "c",
            value: ValueChoice::Keep,
            lease: LeaseChoice::Set(LeaseId(8)),
            prev_kv: false,
            want: Err(Refusal::LeaseNotFound),
            after: before,
        },
    ];
    for case in cases {
        let mut bed = TestBed::new();
        bed.grant(7);
        bed.apply(put("a", "1"));
        bed.apply(Command::Put(Put { lease: LeaseChoice::Set(LeaseId(7)), ..put_of("b", "2") }));
        assert_eq!(bed.pairs(), before);
        let command = Put { key: bytes(case.key), value: case.value, lease: case.lease, prev_kv: case.prev_kv };
        match (bed.apply(Command::Put(command)), case.want) {
            (Outcome::Put(done), Ok(prev)) => {
                assert_eq!(done.revision, Revision(4), "{}", case.name);
                assert_eq!(done.prev.as_ref().map(show).as_deref(), prev, "{}", case.name);
                assert_eq!(bed.revision(), 4, "{}", case.name);
            }
            (Outcome::Refused(refusal), Err(want)) => {
                assert_eq!(refusal, want, "{}", case.name);
                assert_eq!(bed.revision(), 3, "{}: a refusal does not move the revision", case.name);
            }
            (outcome, want) => panic!("{}: {outcome:?}, not {want:?}", case.name),
        }
        assert_eq!(bed.pairs(), case.after, "{}", case.name);
    }
}

#[test]
fn live_keys_and_bytes_are_counted() {
    let mut bed = TestBed::new();
    let mut live = |command| {
        bed.apply(command);
        let head = bed.store.current().head();
        (head.live_keys, head.live_bytes)
    };
    assert_eq!(live(put("ab", "123")), (1, 5));
    assert_eq!(live(put("c", "")), (2, 6));
    assert_eq!(live(put("ab", "1")), (2, 4));
    assert_eq!(live(del("x", "")), (2, 4));
    assert_eq!(live(del("a", "b")), (1, 1));
    assert_eq!(live(put("ab", "9")), (2, 4));
    assert_eq!(live(del("a", "\0")), (0, 0));
}

#[test]
fn an_unwanted_outcome_changes_nothing_about_the_effect() {
    let commands = || {
        [
            Command::Put(Put { prev_kv: true, ..put_of("a", "1") }),
            Command::Put(Put { prev_kv: true, value: ValueChoice::Keep, ..put_of("a", "") }),
            Command::Put(Put { value: ValueChoice::Keep, ..put_of("no", "") }),
            Command::Txn(txn(vec![exists("a")], vec![op_get("a", "\0"), op_put("b", "2"), op_get("b", "")], vec![])),
            del("a", ""),
            compact(3),
        ]
    };
    let (mut wanted, mut unwanted) = (TestBed::new(), TestBed::new());
    let (outcomes, _) = wanted.apply_all(commands(), true);
    let (nothing, _) = unwanted.apply_all(commands(), false);
    assert!(!outcomes.contains(&Outcome::Nothing));
    assert!(nothing.iter().all(|outcome| *outcome == Outcome::Nothing));
    assert_eq!(wanted.pairs(), unwanted.pairs());
    assert_eq!(wanted.hash(), unwanted.hash());
}
