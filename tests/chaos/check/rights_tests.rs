//! A faithful run passes; each way to cross a revocation is planted once, and found.

use super::*;
use crate::history::{Answer, Body};
use crate::rights::prefix_of;
use crate::work::probe::PROBE;

const SECOND: Micros = 1_000_000;
const USER: usize = 1;
const REASON: &str = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
const REFUSED: &str = "etcdserver: permission denied (PermissionDenied)";

/// Length of one cycle of the evidence: the right is given 2 s after its beginning, and taken 5 s
/// after it. Log indexes and revisions advance by a hundred a second.
const TURN: Micros = 10 * SECOND;
const TURNS: u64 = 4;

fn index(at: Micros) -> u64 {
    at * 100 / SECOND
}

fn change(effect: Effect, at: Micros) -> RightsChange {
    let outcome = Changed::Done { index: index(at), revision: index(at) as i64 };
    RightsChange { user: USER, effect, request: String::new(), node: 0, call: at - 1000, done: at + 1000, outcome }
}

fn record(request: Request, at: Micros, is_there: bool) -> Record {
    let answer = Answer { revision: index(at) as i64, index: index(at), body: Body::Put };
    let outcome = if is_there { Outcome::Ok(answer) } else { Outcome::Failed(REFUSED.into()) };
    let (call, done) = (at - 1000, at + 1000);
    Record { id: 1, workload: NAME.into(), process: 1, node: 0, call, done, request, outcome }
}

fn read(freshness: Freshness) -> Request {
    Request::Read { key: prefix_of(USER), prefix: true, freshness }
}

fn put() -> Request {
    Request::Put { key: format!("{}k", prefix_of(USER)), value: "v".into(), lease: 0 }
}

/// Evidence of a run.
struct Given {
    records: Vec<Record>,
    rights: Rights,
    broken: Vec<Broken>,
}

/// Evidence of [`TURNS`] cycles. A watch begins with each grant, gets an event every half second,
/// and ends with the right.
fn faithful() -> Given {
    let (mut records, mut rights) = (Vec::new(), Rights::default());
    rights.changes.push(change(Effect::Takes, SECOND));
    for turn in 0..TURNS {
        let begin = turn * TURN;
        rights.changes.push(change(Effect::Neither, begin + 19 * SECOND / 10));
        rights.changes.push(change(Effect::Gives, begin + 2 * SECOND));
        rights.changes.push(change(Effect::Takes, begin + 5 * SECOND));
        for step in 3..23 {
            let at = begin + step * SECOND / 2 + SECOND / 4;
            let is_there = (4..10).contains(&step);
            let request = match step % 3 {
                0 => read(Freshness::Linearizable),
                1 => read(Freshness::Serializable),
                _ => put(),
            };
            records.push(record(request, at, is_there));
        }
        let at = |step: u64| begin + 2 * SECOND + step * SECOND / 2;
        let events = (1..6).map(|step| (at(step) + 1000, index(at(step)) as i64)).collect();
        let end = Some((begin + 5 * SECOND + 300_000, WatchEnd::Cancelled(REASON.into())));
        let opened = Some(begin + 2 * SECOND + 10_000);
        let call = begin + 2 * SECOND + 5000;
        rights.watches.push(UserWatch { user: USER, node: 0, call, opened, events, end });
    }
    // Root reads at the node, and the clients are never stalled.
    for tick in 1..TURNS * 55 {
        let mut other = record(read(Freshness::Linearizable), tick * SECOND / 5, true);
        other.workload = PROBE.into();
        records.push(other);
    }
    Given { records, rights, broken: Vec::new() }
}

fn judge(given: &Given) -> Findings {
    check(&given.records, &given.rights, &given.broken, true)
}

fn whats(change: impl FnOnce(&mut Given)) -> Vec<String> {
    let mut given = faithful();
    change(&mut given);
    judge(&given).whats().into_iter().map(str::to_owned).collect()
}

#[test]
fn a_faithful_run_passes() {
    let findings = judge(&faithful());
    assert_eq!(findings.count, 0, "{:?}", findings.kept);
    assert_eq!(findings.judged, TURNS as usize + 1);
    assert!(findings.scope.ends_with("4 watches ended, 4 had a deadline"), "{}", findings.scope);
    assert_eq!(check(&[], &Rights::default(), &[], false).word(), "-");
}

#[test]
fn an_answer_after_a_revocation_is_found() {
    let crossed = "an answer crossed a revocation";
    for request in [read(Freshness::Linearizable), read(Freshness::Serializable), put()] {
        let late = record(request.clone(), 7 * SECOND, true);
        assert_eq!(whats(|given| given.records.push(late)), [crossed], "{request:?}");
    }
    // At the index of the revocation it is gone, and at that of the next grant it is back.
    let at_index = |index: u64| {
        let mut late = record(read(Freshness::Serializable), 7 * SECOND, true);
        late.outcome = Outcome::Ok(Answer { revision: 1, index, body: Body::Put });
        whats(|given| given.records.push(late)).len()
    };
    assert_eq!((at_index(499), at_index(500), at_index(1199), at_index(1200)), (0, 1, 1, 0));
    // An index that is wrong does not hide a linearizable answer.
    let mut late = record(read(Freshness::Linearizable), 7 * SECOND, true);
    late.outcome = Outcome::Ok(Answer { revision: 1, index: 300, body: Body::Put });
    assert_eq!(whats(|given| given.records.push(late)), [crossed]);
}

#[test]
fn an_event_after_a_revocation_is_found() {
    let event = |at: Micros, revision| whats(|given| given.rights.watches[0].events.push((at, revision)));
    assert_eq!(event(5 * SECOND + 200_000, 501), ["an event crossed a revocation"]);
    assert_eq!(event(5 * SECOND + 200_000, 500).len(), 0, "it was committed before");
    assert_eq!(event(12 * SECOND, 501).len(), 0, "the right was given again");
    // It is one even if the acknowledgement came after it.
    assert_eq!(event(5 * SECOND - 500, 501), ["an event crossed a revocation"]);
}

#[test]
fn a_watch_that_does_not_end_is_found() {
    let outlives = |given: &mut Given| given.rights.watches[0].end = Some((9 * SECOND, WatchEnd::Broken));
    assert_eq!(whats(outlives), ["a watch outlived its right"]);
    assert_eq!(whats(|given| given.rights.watches[0].end = None), ["a watch outlived its right"]);
    let broken = |node| {
        let broken = Broken { node, begin: 6 * SECOND, end: 7 * SECOND };
        whats(|given| {
            outlives(given);
            given.broken.push(broken);
        })
        .len()
    };
    assert_eq!((broken(Some(0)), broken(None), broken(Some(1))), (0, 0, 1));
    let unheard = |given: &mut Given| {
        outlives(given);
        given.records.retain(|record| record.workload == NAME || record.done < 4 * SECOND);
    };
    assert_eq!(whats(unheard).len(), 0, "nobody knows whether the node had the revocation");
    // A watch that ends late, and in time.
    let at = |at: Micros| whats(|given| given.rights.watches[0].end = Some((at, WatchEnd::Cancelled(REASON.into()))));
    assert_eq!((at(8 * SECOND), at(9 * SECOND).len()), (vec![], 1));
}

#[test]
fn a_right_that_is_there_is_not_refused() {
    let refused = "a right that was given was refused";
    for request in [read(Freshness::Linearizable), put()] {
        let denied = record(request, 4 * SECOND, false);
        assert_eq!(whats(|given| given.records.push(denied)), [refused]);
    }
    let old = record(read(Freshness::Serializable), 4 * SECOND, false);
    assert_eq!(whats(|given| given.records.push(old)).len(), 0, "its state may be old");
    let ends = |given: &mut Given| given.rights.watches[0].end = Some((4 * SECOND, WatchEnd::Cancelled(REASON.into())));
    assert_eq!(whats(ends), ["a watch lost a right that was given"]);
    let lags = |given: &mut Given| {
        ends(given);
        given.records.retain(|record| !(SECOND..3 * SECOND).contains(&record.call));
    };
    assert_eq!(whats(lags).len(), 0, "the node may not have had the grant");
    let other = |given: &mut Given| {
        given.rights.watches[0].end = Some((5 * SECOND, WatchEnd::Cancelled("no reason".into())));
    };
    assert_eq!(whats(other), ["a watch was cancelled without the reason"]);
}

#[test]
fn what_is_not_certain_is_not_judged() {
    let set = |given: &mut Given, number: usize, outcome: Changed| given.rights.changes[number].outcome = outcome;
    let unknown = || Changed::Unknown("?".into());
    // The first cycle's revocation.
    let late = || record(put(), 7 * SECOND, true);
    let with = |outcome: Changed| {
        whats(|given| {
            set(given, 3, outcome);
            given.records.push(late());
        })
        .len()
    };
    assert_eq!(with(unknown()), 0);
    // The second grant: the right may be there from the index after the last known one on.
    let at = |index: u64| {
        whats(|given| {
            set(given, 5, unknown());
            let mut read = record(read(Freshness::Serializable), 13 * SECOND, true);
            read.outcome = Outcome::Ok(Answer { revision: 1, index, body: Body::Put });
            given.records.push(read);
        })
        .len()
    };
    assert_eq!((at(1190), at(1191), at(1300)), (1, 0, 0));
    // A grant that was certainly not made leaves the right where it was.
    let failed = |given: &mut Given| {
        set(given, 5, Changed::Failed("no leader".into()));
        given.records.retain(|record| !(12 * SECOND..15 * SECOND).contains(&record.done) || record.workload != NAME);
        given.rights.watches.remove(1);
        given.records.push(record(put(), 13 * SECOND, true));
    };
    assert_eq!(whats(failed), ["an answer crossed a revocation"]);
}

#[test]
fn a_run_without_evidence_is_rejected() {
    let rejected = |change: fn(&mut Given)| {
        let whats = whats(change);
        assert!(whats.iter().all(|what| what.starts_with("rejected: too few ")), "{whats:?}");
        whats.len()
    };
    assert_eq!(rejected(|given| given.rights.changes.clear()), 5);
    assert_eq!(rejected(|given| given.rights.watches.clear()), 2);
    assert_eq!(rejected(|given| given.rights.watches.truncate(2)), 1);
    assert_eq!(rejected(|given| given.records.retain(|record| record.outcome.answer().is_some())), 2);
    assert_eq!(rejected(|given| given.records.retain(|record| record.outcome.answer().is_none())), 1);
}
