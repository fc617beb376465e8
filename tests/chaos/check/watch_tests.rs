//! A faithful watcher passes; each promise is broken once, and found.

use super::super::model::deletion;
use super::*;
use crate::history::Delivery;

/// The highest requested compaction.
const COMPACTED: i64 = 4;

fn pair(key: &str, value: &str, created: i64, modified: i64, version: i64) -> Pair {
    Pair { key: key.into(), value: value.into(), created, modified, version, lease: 0 }
}

fn put(pair: Pair, before: Option<Pair>) -> Event {
    Event { deleted: false, pair, before }
}

/// Revision 2 puts w/a and w/b, 3 another key, 4 w/a again, 5 deletes w/b.
fn log() -> Log {
    let (a, b) = (pair("w/a", "1", 2, 2, 1), pair("w/b", "2", 2, 2, 1));
    Log::from([
        (2, vec![put(a.clone(), None), put(b.clone(), None)]),
        (3, vec![put(pair("x", "3", 3, 3, 1), None)]),
        (4, vec![put(pair("w/a", "4", 2, 4, 2), Some(a))]),
        (5, vec![deletion("w/b", 5, Some(b))]),
    ])
}

fn delivery(revision: i64, events: Vec<Event>, note: Note) -> Delivery {
    Delivery { at: 0, node: 0, revision, events, note }
}

fn events(log: &Log, revision: i64) -> Delivery {
    delivery(revision, log[&revision].clone(), Note::Events)
}

fn faithful() -> WatchLog {
    let log = log();
    let deliveries = vec![
        delivery(1, vec![], Note::Opened { from: 2 }),
        events(&log, 2),
        delivery(3, vec![], Note::Progress),
        delivery(3, vec![], Note::Opened { from: 4 }),
        events(&log, 4),
        events(&log, 5),
    ];
    WatchLog { name: "t".into(), key: "w/".into(), prefix: true, wants_before: true, deliveries }
}

#[test]
fn a_faithful_watcher_passes() {
    let findings = check(&[&faithful()], &log(), 5, COMPACTED);
    assert_eq!(findings.count, 0, "{:?}", findings.kept);
}

#[test]
fn every_broken_promise_is_found() {
    type Lie = fn(&mut WatchLog);
    let lies: [(&str, Lie); 12] = [
        ("reliable: an event from before the start", |w| w.deliveries[0].note = Note::Opened { from: 3 }),
        ("filter", |w| w.deliveries.insert(2, events(&log(), 3))),
        ("ordered", |w| w.deliveries.swap(4, 5)),
        ("unique", |w| w.deliveries.push(events(&log(), 5))),
        ("atomic", |w| drop(w.deliveries[1].events.pop())),
        ("unique", |w| {
            let second = w.deliveries[1].events.pop().unwrap();
            w.deliveries.insert(2, delivery(2, vec![second], Note::Events));
        }),
        ("reliable", |w| drop(w.deliveries.remove(4))),
        ("reliable", |w| drop(w.deliveries.pop())),
        ("resumable", |w| {
            w.deliveries[3].note = Note::Opened { from: 5 };
            w.deliveries.remove(4);
        }),
        ("bookmarkable", |w| w.deliveries[2].revision = 4),
        ("previous pair", |w| w.deliveries[5].events[0].before = None),
        ("creation", |w| w.deliveries[4].events[0].pair.created = 4),
    ];
    for (promise, lie) in lies {
        let mut watcher = faithful();
        lie(&mut watcher);
        let findings = check(&[&watcher], &log(), 5, COMPACTED);
        assert!(findings.whats().iter().any(|what| what.starts_with(promise)), "{promise}: {:?}", findings.kept);
    }
}

/// A watcher without revision 2 that got a compaction notice with `at`.
fn with_compaction_notice(at: i64) -> WatchLog {
    let mut watcher = faithful();
    watcher.deliveries.drain(1..4);
    watcher.deliveries.insert(1, delivery(3, vec![], Note::Compacted { at }));
    watcher
}

#[test]
fn what_was_compacted_is_not_missed() {
    assert_eq!(check(&[&with_compaction_notice(4)], &log(), 5, COMPACTED).count, 0);
}

#[test]
fn a_compaction_that_nobody_asked_for_excuses_nothing() {
    let (nobody, missed) = ("reliable: told as compacted what nobody compacted", "reliable: an event was left out");
    assert_eq!(check(&[&with_compaction_notice(5)], &log(), 5, COMPACTED).whats(), [nobody, missed]);
    assert_eq!(check(&[&with_compaction_notice(4)], &log(), 5, 3).whats(), [nobody, missed]);
    // The stream had begun with revision 2, so an earlier compaction does not concern it.
    let needless = "reliable: ended over a compaction of what was not asked for";
    assert_eq!(check(&[&with_compaction_notice(2)], &log(), 5, COMPACTED).whats(), [needless, missed]);
}

#[test]
fn what_was_before_a_change_may_be_gone_at_the_compaction_point_alone() {
    let mut watcher = faithful();
    watcher.deliveries.drain(..3);
    watcher.deliveries[1].events[0].before = None;
    let whats = |compacted| check(&[&watcher], &log(), 5, compacted).whats().len();
    assert_eq!((whats(4), whats(3)), (0, 1));
    let mut later = watcher.clone();
    later.deliveries[2].events[0].before = None;
    assert_eq!(check(&[&later], &log(), 5, 4).whats(), ["previous pair: told wrongly"]);
}
