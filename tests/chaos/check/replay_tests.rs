//! The checker passes a legal history and fails each planted lie.

use super::*;
use crate::history::{Body, Pair};

fn record(id: u64, call: Micros, done: Micros, request: Request, outcome: Outcome) -> Record {
    Record { id, workload: "test".into(), process: id, node: 0, call, done, request, outcome }
}

fn ok(revision: i64, body: Body) -> Outcome {
    Outcome::Ok(Answer { revision, index: revision as u64, body })
}

fn put(value: &str) -> Request {
    Request::Put { key: "k".into(), value: value.into(), lease: 0 }
}

fn read(freshness: Freshness) -> Request {
    Request::Read { key: "k".into(), prefix: false, freshness }
}

fn pair(value: &str, created: i64, modified: i64, version: i64) -> Pair {
    Pair { key: "k".into(), value: value.into(), created, modified, version, lease: 0 }
}

fn change(pair: Pair) -> Vec<Event> {
    vec![Event { deleted: false, pair, before: None }]
}

/// An acknowledged write, two of unknown outcome of which only the first took effect, a refused
/// one, and a read.
fn legal() -> (Vec<Record>, Log) {
    let records = vec![
        record(1, 0, 10, put("a"), ok(2, Body::Put)),
        record(2, 20, 30, put("b"), Outcome::Unknown("lost".into())),
        record(3, 20, 30, put("never"), Outcome::Unknown("lost".into())),
        record(4, 40, 50, put("refused"), Outcome::Failed("no leader".into())),
        record(5, 60, 70, read(Freshness::Linearizable), ok(3, Body::Pairs(vec![pair("b", 2, 3, 2)]))),
    ];
    let log = Log::from([(2, change(pair("a", 2, 2, 1))), (3, change(pair("b", 2, 3, 2)))]);
    (records, log)
}

#[test]
fn a_legal_history_passes() {
    let (records, log) = legal();
    let findings = check(&records, &log);
    assert_eq!(findings.count, 0, "{:?}", findings.kept);
}

#[test]
fn every_lie_is_found() {
    type Lie = fn(&mut Vec<Record>, &mut Log);
    let lies: [(&str, Lie); 9] = [
        ("an acknowledged write is lost", |records, _| {
            records.push(record(6, 80, 90, put("c"), ok(4, Body::Put)));
        }),
        ("an acknowledged write is lost or altered", |_, log| {
            log.insert(2, change(pair("x", 2, 2, 1)));
        }),
        ("a refused write took effect", |_, log| {
            log.insert(4, change(pair("refused", 2, 4, 3)));
        }),
        ("nobody asked for a change in the log", |_, log| {
            log.insert(4, change(pair("invented", 2, 4, 3)));
        }),
        ("a stale read", |records, _| {
            records.push(record(
                6,
                80,
                90,
                read(Freshness::Linearizable),
                ok(2, Body::Pairs(vec![pair("a", 2, 2, 1)])),
            ));
        }),
        ("an answer differs from the state at its revision", |records, _| {
            records.push(record(6, 80, 90, read(Freshness::Linearizable), ok(3, Body::Pairs(vec![]))));
        }),
        ("a write was ordered before what had ended before it", |records, log| {
            records.push(record(
                6,
                80,
                90,
                read(Freshness::Linearizable),
                ok(4, Body::Pairs(vec![pair("late", 2, 4, 3)])),
            ));
            records.push(record(7, 95, 99, put("late"), Outcome::Unknown("lost".into())));
            log.insert(4, change(pair("late", 2, 4, 3)));
        }),
        ("a node went back in time", |records, _| {
            records.push(record(
                6,
                80,
                90,
                read(Freshness::Serializable),
                ok(2, Body::Pairs(vec![pair("a", 2, 2, 1)])),
            ));
        }),
        ("a read is older than it had to be", |records, _| {
            records.push(record(6, 80, 90, read(Freshness::AtLeast(9)), ok(3, Body::Pairs(vec![pair("b", 2, 3, 2)]))));
        }),
    ];
    for (what, lie) in lies {
        let (mut records, mut log) = legal();
        lie(&mut records, &mut log);
        let findings = check(&records, &log);
        assert!(findings.whats().contains(&what), "{what}: {:?}", findings.kept);
    }
}

/// [`legal`], then `deletions` times: a deletion that no answered request explains, and an
/// acknowledged write of the key. `asked` are requests of unknown outcome.
fn with_deletions(deletions: i64, asked: Vec<Request>) -> (Vec<Record>, Log) {
    let (mut records, mut log) = legal();
    let mut revision = 3;
    for _ in 0..deletions {
        log.insert(
            revision + 1,
            vec![Event { deleted: true, pair: Pair { modified: revision + 1, ..gone() }, before: None }],
        );
        records.push(record(
            20 + revision as u64,
            80,
            90,
            put(&format!("again {revision}")),
            ok(revision + 2, Body::Put),
        ));
        log.insert(revision + 2, change(pair(&format!("again {revision}"), revision + 2, revision + 2, 1)));
        revision += 2;
    }
    for (id, request) in (10..).zip(asked) {
        records.push(record(id, 40, 99, request, Outcome::Unknown("lost".into())));
    }
    (records, log)
}

fn gone() -> Pair {
    Pair { key: "k".into(), ..Pair::default() }
}

#[test]
fn a_deletion_is_by_one_request_with_unknown_outcome_at_most() {
    use crate::history::Step;
    let delete = |key: &str| Request::Delete { key: key.into() };
    let txn = |then: Vec<Step>| Request::Txn { when: vec![], then, or_else: vec![] };
    let step = |key: &str| Step::Delete { key: key.into() };
    let write = Step::Put { key: "other".into(), value: "unseen".into(), lease: 0 };
    for (what, deletions, asked, wanted) in [
        ("nobody asked", 1, vec![], 1),
        ("somebody asked", 1, vec![delete("k")], 0),
        ("somebody asked for another key", 1, vec![delete("j")], 1),
        ("one asked, two happened", 2, vec![delete("k")], 1),
        ("two asked", 2, vec![delete("k"), delete("k")], 0),
        ("a transaction asked", 1, vec![txn(vec![step("k")])], 0),
        ("a transaction asked for another key", 1, vec![txn(vec![step("j")])], 1),
        ("a transaction that writes what nobody saw", 1, vec![txn(vec![write, step("k")])], 1),
    ] {
        let (records, log) = with_deletions(deletions, asked);
        let findings = check(&records, &log);
        assert_eq!(findings.count, wanted, "{what}: {:?}", findings.kept);
        assert!(findings.whats().iter().all(|what| *what == "nobody asked for a change in the log"), "{what}");
    }
}

#[test]
fn the_end_of_a_lease_is_of_one_lease() {
    let leased = |key: &str, lease| Pair {
        key: key.into(),
        value: format!("{key}{lease}"),
        created: 4,
        modified: 4,
        version: 1,
        lease,
    };
    let ends = |leases: [i64; 2]| {
        let (mut records, mut log) = legal();
        let steps = ["x", "y"].into_iter().zip(leases);
        let then = steps.clone().map(|(key, lease)| crate::history::Step::Put {
            key: key.into(),
            value: format!("{key}{lease}"),
            lease,
        });
        let body = Body::Txn { succeeded: true, steps: vec![crate::history::StepDone::Put; 2] };
        records.push(record(
            6,
            80,
            90,
            Request::Txn { when: vec![], then: then.collect(), or_else: vec![] },
            ok(4, body),
        ));
        log.insert(
            4,
            steps.map(|(key, lease)| Event { deleted: false, pair: leased(key, lease), before: None }).collect(),
        );
        let gone = ["x", "y"].map(|key| Event {
            deleted: true,
            pair: Pair { key: key.into(), modified: 5, ..Pair::default() },
            before: None,
        });
        log.insert(5, gone.to_vec());
        check(&records, &log).count
    };
    assert_eq!((ends([7, 7]), ends([7, 8]), ends([0, 0])), (0, 1, 1));
}

#[test]
fn a_lost_write_whose_revision_went_to_another_is_found() {
    let (mut records, mut log) = legal();
    records.push(record(6, 80, 90, put("c"), ok(4, Body::Put)));
    records.push(record(7, 80, 90, put("d"), Outcome::Unknown("lost".into())));
    log.insert(4, change(pair("d", 2, 4, 3)));
    assert!(check(&records, &log).count > 0);
}

/// Two keys on lease 7: put by one transaction, one of them replaced, compared, and each deleted as
/// a range; then the lease is revoked.
fn of_every_kind() -> (Vec<Record>, Log) {
    use crate::history::{Condition, Step, StepDone};
    let at = |key: &str, value: &str, created, modified, version, lease| Pair {
        key: key.into(),
        value: value.into(),
        created,
        modified,
        version,
        lease,
    };
    let event = |pair: Pair| Event { deleted: false, pair, before: None };
    let both = |lease| ["x", "y"].map(|key| Step::Put { key: key.into(), value: format!("{key}1"), lease });
    let (x1, y1, x2) = (at("x", "x1", 2, 2, 1, 7), at("y", "y1", 2, 2, 1, 7), at("x", "x2", 2, 3, 2, 0));
    let when = vec![
        Condition::Version { key: "x".into(), is: 2 },
        Condition::Lease { key: "y".into(), is: 7 },
        Condition::Lease { key: "x".into(), is: 7 },
    ];
    let txn = |when, then| Request::Txn { when, then, or_else: vec![Step::Get { key: "y".into() }] };
    let failed = Body::Txn { succeeded: false, steps: vec![StepDone::Got(Some(y1.clone()))] };
    let held = Body::Txn { succeeded: true, steps: vec![StepDone::Removed { count: 1, before: vec![x2.clone()] }] };
    let records = vec![
        record(
            1,
            0,
            10,
            txn(vec![], both(7).to_vec()),
            ok(2, Body::Txn { succeeded: true, steps: vec![StepDone::Put; 2] }),
        ),
        record(
            2,
            20,
            30,
            Request::Replace { key: "x".into(), value: "x2".into(), lease: 0 },
            ok(3, Body::Replaced(Some(x1))),
        ),
        record(3, 40, 50, txn(when.clone(), vec![]), ok(3, failed)),
        record(4, 60, 70, txn(when[..2].to_vec(), vec![Step::DeleteRange { prefix: "x".into() }]), ok(4, held)),
        record(
            5,
            80,
            90,
            Request::DeleteRange { prefix: String::new() },
            ok(5, Body::Removed { count: 1, before: vec![y1.clone()] }),
        ),
        record(6, 92, 95, Request::Revoke { lease: 7 }, ok(5, Body::Revoked)),
    ];
    let gone = |key: &str, modified| Event {
        deleted: true,
        pair: Pair { key: key.into(), modified, ..Pair::default() },
        before: None,
    };
    let log = Log::from([
        (2, vec![event(at("x", "x1", 2, 2, 1, 7)), event(y1)]),
        (3, vec![event(x2)]),
        (4, vec![gone("x", 4)]),
        (5, vec![gone("y", 5)]),
    ]);
    (records, log)
}

#[test]
fn every_lie_about_an_answer_is_found() {
    type Lie = fn(&mut Body);
    let legal = of_every_kind();
    assert_eq!(check(&legal.0, &legal.1).count, 0, "{:?}", check(&legal.0, &legal.1).kept);
    let compare: Lie = |body| {
        if let Body::Txn { succeeded, .. } = body {
            *succeeded = !*succeeded;
        }
    };
    let count: Lie = |body| {
        if let Body::Removed { count, .. } = body {
            *count += 1;
        }
    };
    let before: Lie = |body| match body {
        Body::Removed { before, .. } => before.clear(),
        Body::Replaced(before) => *before = None,
        _ => {}
    };
    let differs = "an answer differs from the state at its revision";
    let wrongly = "a write was answered wrongly";
    for (number, lie, wanted) in
        [(1, before, wrongly), (2, compare, differs), (3, compare, wrongly), (4, count, wrongly), (4, before, wrongly)]
    {
        let (mut records, log) = of_every_kind();
        let Outcome::Ok(answer) = &mut records[number].outcome else { panic!("all are answered") };
        lie(&mut answer.body);
        let findings = check(&records, &log);
        assert!(findings.whats().contains(&wanted), "{number}: {:?}", findings.kept);
    }
}

#[test]
fn a_revocation_is_ordered_like_every_write() {
    let (mut records, log) = of_every_kind();
    let Outcome::Ok(answer) = &mut records[5].outcome else { panic!("it is answered") };
    answer.revision = 4;
    assert_eq!(check(&records, &log).whats(), ["a revocation was ordered before what had ended before it"]);
}

#[test]
fn an_end_of_a_lease_that_leaves_a_key_is_found() {
    let (mut records, mut log) = of_every_kind();
    records.truncate(1);
    log.split_off(&3);
    let gone = |key: &str| Event {
        deleted: true,
        pair: Pair { key: key.into(), modified: 3, ..Pair::default() },
        before: None,
    };
    log.insert(3, vec![gone("x"), gone("y")]);
    assert_eq!(check(&records, &log).count, 0);
    log.insert(3, vec![gone("x")]);
    assert_eq!(check(&records, &log).whats(), ["nobody asked for a change in the log"]);
}
