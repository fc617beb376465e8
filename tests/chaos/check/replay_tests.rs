//! The checker passes a legal history and fails each planted lie.

use super::*;
use crate::history::Pair;

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

#[test]
fn a_lost_write_whose_revision_went_to_another_is_found() {
    let (mut records, mut log) = legal();
    records.push(record(6, 80, 90, put("c"), ok(4, Body::Put)));
    records.push(record(7, 80, 90, put("d"), Outcome::Unknown("lost".into())));
    log.insert(4, change(pair("d", 2, 4, 3)));
    assert!(check(&records, &log).count > 0);
}
