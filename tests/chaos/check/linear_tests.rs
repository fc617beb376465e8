//! Records of clients as the search gets them: a true history passes, and each lie in it is found.

use super::*;
use crate::history::{Answer, Event, Freshness, Pair};

const KEY: &str = "register/0-0";

fn pair(key: &str, value: &str) -> Pair {
    Pair { key: key.into(), value: value.into(), ..Pair::default() }
}

fn put(value: &str) -> Request {
    Request::Put { key: KEY.into(), value: value.into(), lease: 0 }
}

fn swap(old: &str, new: &str) -> Request {
    Request::Txn {
        when: vec![Condition::Value { key: KEY.into(), is: old.into() }],
        then: vec![Step::Put { key: KEY.into(), value: new.into(), lease: 0 }],
        or_else: vec![],
    }
}

fn answered(body: Body) -> Outcome {
    Outcome::Ok(Answer { revision: 2, index: 2, body })
}

fn swapped(succeeded: bool) -> Outcome {
    answered(Body::Txn { succeeded, steps: vec![] })
}

fn record((call, done): (u64, u64), request: Request, outcome: Outcome) -> Record {
    Record { id: done, workload: "register".into(), process: 1, node: 0, call, done, request, outcome }
}

fn read(at: (u64, u64), found: Option<&str>) -> Record {
    let request = Request::Read { key: KEY.into(), prefix: false, freshness: Freshness::Linearizable };
    record(at, request, answered(Body::Pairs(found.map(|value| pair(KEY, value)).into_iter().collect())))
}

/// A write, a swap, a swap with a wrong expectation, a refused write, a write that was lost, and
/// one that took effect without an answer; with reads in between.
fn faithful() -> Vec<Record> {
    vec![
        read((0, 9), None),
        record((10, 19), put("a"), answered(Body::Put)),
        read((20, 29), Some("a")),
        record((30, 39), swap("a", "b"), swapped(true)),
        record((40, 49), swap("a", "c"), swapped(false)),
        record((50, 59), put("refused"), Outcome::Failed("why".into())),
        record((60, 69), put("lost"), Outcome::Unknown("why".into())),
        record((70, 79), put("late"), Outcome::Unknown("why".into())),
        read((80, 89), Some("b")),
        read((90, 99), Some("late")),
    ]
}

/// The log of changes that fits [`faithful`].
fn log() -> Log {
    let written = ["a", "b", "late"].map(|value| Event { deleted: false, pair: pair(KEY, value), before: None });
    (2..).zip(written.map(|event| vec![event])).collect()
}

#[test]
fn a_faithful_history_passes() {
    let mut records = faithful();
    // Another register, and another workload.
    let request = Request::Put { key: "register/1-0".into(), value: "a".into(), lease: 0 };
    records.push(record((100, 109), request, answered(Body::Put)));
    records.push(Record { workload: "end".into(), ..read((110, 119), None) });
    let findings = check(&records, &log());
    assert_eq!(findings.whats(), [""; 0], "{:?}", findings.kept);
    assert_eq!((findings.judged, findings.scope.as_str()), (9, "2 registers, 9 operations"));
    let nothing = check(&[], &log());
    assert_eq!((nothing.judged, nothing.word(), findings.word()), (0, "-", "ok"));
}

#[test]
fn every_lie_is_found() {
    type Lie = fn(&mut Vec<Record>);
    let lies: [(&str, Lie); 8] = [
        ("a stale read", |all| all[8] = read((80, 89), Some("a"))),
        ("nothing where something was written", |all| all[2] = read((20, 29), None)),
        ("something before it was written", |all| all[0] = read((0, 9), Some("a"))),
        ("a swap of what was not there", |all| all[3].request = swap("x", "b")),
        ("no swap of what was there", |all| all[4].request = swap("b", "c")),
        ("two swaps of one value", |all| all[4].outcome = swapped(true)),
        ("what was refused", |all| all[9] = read((90, 99), Some("refused"))),
        ("what the log does not show", |all| all[9] = read((90, 99), Some("lost"))),
    ];
    for (what, lie) in lies {
        let mut records = faithful();
        lie(&mut records);
        assert_eq!(check(&records, &log()).whats(), ["a register is not linearizable"], "{what}");
    }
}

#[test]
fn an_answer_of_no_known_form_is_found() {
    let mut records = faithful();
    records[2].outcome = answered(Body::Revoked);
    let findings = check(&records, &log());
    assert_eq!((findings.whats(), findings.judged), (vec!["an operation of no known form"], 7));
}
