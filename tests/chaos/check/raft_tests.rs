//! Every lie that the checker of Raft logs must find, planted once.

use super::*;
use crate::history::{Answer, Body, Freshness, Outcome, Pair};

fn entry(index: u64, ask: LoggedCommand) -> LogEntry {
    LogEntry { index, term: 1, payload: format!("{ask:?}").into(), proposer: None, ask }
}

fn put(key: &str, value: &str, lease: i64) -> LoggedCommand {
    LoggedCommand::Client(Request::Put { key: key.into(), value: value.into(), lease })
}

fn put_event(key: &str, value: &str, lease: i64, revision: i64) -> Event {
    let (key, value) = (key.into(), value.into());
    let pair = Pair { key, value, created: revision, modified: revision, version: 1, lease };
    Event { deleted: false, pair, before: None }
}

fn gone(key: &str, revision: i64) -> Event {
    deletion(key, revision, None)
}

/// Log entries: a key without a lease that is deleted, one with a lease that expires, and two
/// commands without effect (an unknown lease, an expiry of another term).
fn entries() -> Vec<LogEntry> {
    let asks = [
        LoggedCommand::Other,
        put("a", "1", 0),
        LoggedCommand::Grant { lease: 7 },
        put("b", "2", 7),
        put("c", "3", 8),
        LoggedCommand::Expire { lease: 7, granted: 3, term: 2 },
        LoggedCommand::Expire { lease: 7, granted: 3, term: 1 },
        LoggedCommand::Client(Request::Delete { key: "a".into() }),
    ];
    asks.into_iter().zip(1..).map(|(ask, index)| entry(index, ask)).collect()
}

fn log() -> Log {
    Log::from([
        (2, vec![put_event("a", "1", 0, 2)]),
        (3, vec![put_event("b", "2", 7, 3)]),
        (4, vec![gone("b", 4)]),
        (5, vec![gone("a", 5)]),
    ])
}

fn read(revision: i64, index: u64) -> Record {
    let request = Request::Read { key: "a".into(), prefix: false, freshness: Freshness::Serializable };
    let outcome = Outcome::Ok(Answer { revision, index, body: Body::Pairs(vec![]) });
    Record { id: 1, workload: "follower".into(), process: 0, node: 0, call: 1, done: 2, request, outcome }
}

#[test]
fn a_true_log_explains_everything() {
    // The second member joined late and lacks the beginning; the last entry was never delivered to
    // a watcher.
    let mut first = entries();
    first.push(entry(9, put("d", "4", 0)));
    let logs = [(0, first), (1, entries().split_off(4))];
    let findings = check(&logs, &[read(2, 3), read(3, 6), read(5, 8)], &log());
    assert_eq!(findings.whats(), [""; 0]);
    assert_eq!((findings.scope.as_str(), findings.judged), ("the first 8 of 9 entries of 2 members", 8));
}

#[test]
fn entries_after_one_that_cannot_be_judged_do_not_count() {
    let mut altered = log();
    altered.insert(3, vec![put_event("b", "wrong", 7, 3)]);
    for (log, scope, judged) in [
        (log(), "all 8 entries of 1 members", 8),
        (altered, "the first 3 of 8 entries of 1 members", 3),
        (Log::new(), "the first 1 of 8 entries of 1 members", 1),
    ] {
        let findings = check(&[(0, entries())], &[], &log);
        assert_eq!((findings.scope.as_str(), findings.judged), (scope, judged));
    }
}

#[test]
fn every_lie_is_found() {
    let differs = "the Raft log makes another change than watchers were told";
    let mut two_minds = entries();
    two_minds[3] = entry(4, put("b", "other", 7));
    let mut other_term = entries();
    other_term[1].term = 2;
    let mut never_delivered = log();
    never_delivered.remove(&3);
    let mut invented = log();
    invented.insert(6, vec![put_event("x", "9", 0, 6)]);
    let mut altered = log();
    altered.insert(2, vec![put_event("a", "wrong", 0, 2)]);
    for (logs, records, log, wanted) in [
        (vec![entries(), two_minds], vec![], log(), "two members have different entries at one index"),
        (vec![entries(), other_term], vec![], log(), "two members have different entries at one index"),
        (vec![entries()], vec![], never_delivered, differs),
        (vec![entries()], vec![], altered, differs),
        (vec![entries()], vec![], invented, "a change is in no member's log"),
        (vec![entries()], vec![read(3, 3)], log(), "an answer names another index than it comes from"),
        (vec![entries()], vec![read(2, 4)], log(), "an answer names another index than it comes from"),
    ] {
        let logs: Vec<(usize, Vec<LogEntry>)> = logs.into_iter().enumerate().collect();
        assert_eq!(check(&logs, &records, &log).whats().first().copied(), Some(wanted));
    }
}

#[test]
fn of_a_purged_log_only_agreement_is_judged() {
    let mut gap = entries();
    gap.remove(3);
    for (logs, scope) in [
        (vec![(0, entries().split_off(2))], "the last 6 entries of 1 members"),
        (vec![(0, gap)], "the last 7 entries of 1 members"),
        (vec![], "the last 0 entries of 0 members"),
    ] {
        let findings = check(&logs, &[], &Log::new());
        assert_eq!((findings.count, findings.scope.as_str(), findings.judged), (0, scope, 0));
    }
}
