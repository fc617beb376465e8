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

/// Two writes, one unknown that happened and one that did not, and a read.
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

/// The history with deletions of a key in the log, all by nobody who was answered, and requests whose fate nobody knows.
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
