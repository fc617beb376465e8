//! Walks over commands, and heads with authors.

use super::bed::*;
use crate::state::record::PREVIOUS_MAX;
use crate::state::{CommandWalk, HistorySpan, PreviousVersion, StateReader, Table, Tables, WalkedCommand};
use headwater_types::{
    Author, Authorship, ClusterEvent, ClusterVersion, Face, KeyRange, LeaseId, LogIndex, Revision, Version,
};

const KV: Tables = Tables::of(&[Table::Kv]);

fn span(after: u64, through: u64) -> HistorySpan {
    HistorySpan { after: LogIndex(after), through: LogIndex(through) }
}

/// `index:key,key` of each command.
fn shown(mut walk: CommandWalk<'_>) -> Vec<String> {
    let mut shown = Vec::new();
    while let Some(command) = walk.next().unwrap() {
        assert!(command.records.len() <= command.head.count as usize);
        let keys: Vec<_> = command.records.iter().map(|record| record.kv.key.escape_ascii().to_string()).collect();
        shown.push(format!("{}:{}", command.index, keys.join(",")));
    }
    shown
}

/// Commands 1 to 4, and 6; 5 has no record.
fn bed() -> TestBed {
    let bed = TestBed::new();
    bed.commit(1, &[("a", Some("1"))]);
    bed.commit(2, &[("b", Some("1")), ("c", Some("1"))]);
    bed.commit(3, &[("a", Some("2"))]);
    bed.commit(4, &[("a", None), ("b", Some("2"))]);
    bed.commit(5, &[]);
    bed.commit(6, &[("a", Some("3"))]);
    bed
}

#[test]
fn a_walk_has_every_command_of_its_span_in_either_direction() {
    let bed = bed();
    let db = bed.store.current();
    let view = db.view().unwrap();
    let all = ["1:a", "2:b,c", "3:a", "4:a,b", "6:a"];
    for (after, through, from, to) in
        [(0, 6, 0, 5), (0, 5, 0, 4), (1, 4, 1, 4), (2, 2, 2, 2), (4, 5, 4, 4), (6, 6, 5, 5), (0, 1, 0, 1), (3, 1, 0, 0)]
    {
        let mut wanted: Vec<_> = all[from..to].to_vec();
        assert_eq!(shown(view.walk(span(after, through), false, KV)), wanted, "{after} to {through}");
        wanted.reverse();
        assert_eq!(shown(view.walk(span(after, through), true, KV)), wanted, "{after} to {through}, backward");
    }
    assert_eq!(shown(view.walk(span(u64::MAX, u64::MAX), false, KV)), [""; 0]);
    assert_eq!(shown(view.walk(span(5, u64::MAX), false, KV)), ["6:a"]);
}

#[test]
fn a_walk_skips_and_goes_on_from_there() {
    let bed = bed();
    let db = bed.store.current();
    let view = db.view().unwrap();
    let mut walk = view.walk(span(0, 6), false, KV);
    walk.skip_to(LogIndex(3));
    assert_eq!(shown(walk), ["3:a", "4:a,b", "6:a"]);
    let mut walk = view.walk(span(0, 6), true, KV);
    walk.skip_to(LogIndex(3));
    assert_eq!(shown(walk), ["3:a", "2:b,c", "1:a"]);
    let mut walk = view.walk(span(0, 6), true, KV);
    walk.skip_to(LogIndex(5));
    assert_eq!(walk.next().unwrap().map(|command| command.index), Some(LogIndex(4)), "the next one before");
}

#[test]
fn a_large_command_is_read_record_by_record() {
    let bed = bed();
    let keys: Vec<_> = (0..100).map(|number| (format!("k{number:02}"), Some("v"))).collect();
    let keys: Vec<_> = keys.iter().map(|(key, value)| (&key[..], *value)).collect();
    bed.commit(7, &keys);
    bed.commit(8, &[("a", Some("4"))]);
    let db = bed.store.current();
    let view = db.view().unwrap();
    for is_backward in [false, true] {
        let mut walk = view.walk(span(3, 8), is_backward, KV);
        let mut shown = Vec::new();
        while let Some(command) = walk.next_within(1000).unwrap() {
            shown.push(match command {
                WalkedCommand::Whole(command) => format!("{}:{}", command.index, command.records.len()),
                WalkedCommand::Large(index, head) => format!("{index}: {} at once", head.count),
            });
        }
        let mut wanted = vec!["4:2", "6:1", "7: 100 at once", "8:1"];
        if is_backward {
            wanted.reverse();
        }
        assert_eq!(shown, wanted);
        // Records of other tables do not count.
        let mut walk = view.walk(span(6, 8), is_backward, Tables::default());
        assert!(matches!(walk.next_within(0).unwrap(), Some(WalkedCommand::Whole(_))));
    }
    let read = |index, from, tables| {
        let mut records = view.records_of(LogIndex(index), from, tables).unwrap();
        let mut found = Vec::new();
        while let Some((position, record)) = records.next().unwrap() {
            found.push((position, record.kv.key.escape_ascii().to_string()));
        }
        (records.head().count, found)
    };
    let all: Vec<_> = (1..=100).zip(keys.iter().map(|(key, _)| (*key).to_owned())).collect();
    assert_eq!(read(7, 0, KV), (100, all.clone()));
    assert_eq!(read(7, 98, KV), (100, all[97..].to_vec()));
    assert_eq!(read(7, 101, KV), (100, Vec::new()));
    assert_eq!(read(7, 0, Tables::of(&[Table::Session])), (100, Vec::new()));
    assert!(view.records_of(LogIndex(9), 0, KV).is_err(), "there is no such command");
}

#[test]
fn other_tables_are_stepped_over() {
    let bed = bed();
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    txn.begin_command(LogIndex(7), 0);
    txn.add_cluster_event(ClusterEvent::LeaseEnded(LeaseId(7)));
    txn.end_command();
    txn.commit().unwrap();
    let view = db.view().unwrap();
    let mut walk = view.walk(span(0, 7), true, Tables::of(&[Table::ClusterEvents]));
    let newest = walk.next().unwrap().unwrap();
    assert_eq!(newest.cluster_events().unwrap(), [ClusterEvent::LeaseEnded(LeaseId(7))]);
    assert_eq!(shown(walk), ["6:", "4:", "3:", "2:", "1:"]);
    assert!(KV.with(Tables::of(&[Table::Session])).has(Table::Session) && !KV.has(Table::Session));
}

#[test]
fn the_commands_that_changed_an_interval() {
    let bed = bed();
    let db = bed.store.current();
    let view = db.view().unwrap();
    let one = |key: &'static str| KeyRange::One(key.into());
    for (range, after, through, most, wanted) in [
        (one("a"), 0, 6, 4, Some(vec![1, 3, 4, 6])),
        (one("a"), 1, 4, 4, Some(vec![3, 4])),
        (one("a"), 1, 4, 3, None),
        (one("d"), 0, 6, 0, Some(vec![])),
        (KeyRange::all(), 0, 6, 100, Some(vec![1, 2, 3, 4, 6])),
        (KeyRange::prefix("b".into()), 0, 6, 100, Some(vec![2, 4])),
        (KeyRange::Span { start: "b".into(), end: Some("a".into()) }, 0, 6, 100, Some(vec![])),
    ] {
        let found = view.changes_in(Table::Kv, &range, span(after, through), most).unwrap();
        let wanted: Option<Vec<LogIndex>> = wanted.map(|indexes| indexes.into_iter().map(LogIndex).collect());
        assert_eq!(found, wanted, "{range:?} from {after} to {through}");
    }
}

#[test]
fn the_last_command_is_not_sought_before_the_beginning_of_history() {
    let bed = bed();
    let last = |index| {
        let db = bed.store.current();
        let view = db.view().unwrap();
        view.last_command(LogIndex(index)).unwrap().map(|command| command.index.get())
    };
    assert_eq!([last(6), last(5), last(4), last(3), last(0)], [Some(6), Some(4), Some(4), Some(3), None]);
    bed.compact(7, 5);
    assert_eq!([last(7), last(5), last(4), last(3)], [Some(6), Some(4), Some(4), None]);
}

/// Commits a command that sets the cluster's version.
fn set_version(bed: &TestBed, index: u64, version: Version) {
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    txn.begin_command(LogIndex(index), 0);
    txn.set_version(ClusterVersion { version, is_downgrading: false });
    txn.end_command();
    txn.set_applied(&crate::state::AppliedState {
        term: headwater_types::Term(1),
        index: LogIndex(index),
        membership: None,
    });
    txn.commit().unwrap();
}

fn commit_by(bed: &TestBed, index: u64, key: &str, authorship: Authorship) {
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    txn.begin_command(LogIndex(index), 5);
    txn.set_authorship(authorship);
    let kv = headwater_types::KeyValue { key: key.to_owned().into(), version: 1, ..Default::default() };
    txn.put(Table::Kv, kv, None);
    txn.set_revision(Revision(index as i64 + 1));
    txn.end_command();
    txn.set_applied(&crate::state::AppliedState {
        term: headwater_types::Term(1),
        index: LogIndex(index),
        membership: None,
    });
    txn.commit().unwrap();
}

/// The authors of all commands, and whether all of history is as version 0.3 writes it.
fn authorships(bed: &TestBed) -> (Vec<Authorship>, bool) {
    let db = bed.store.current();
    let view = db.view().unwrap();
    let mut walk = view.walk(span(0, u64::MAX), false, KV);
    let mut found = Vec::new();
    while let Some(command) = walk.next().unwrap() {
        found.push(command.head.authorship);
    }
    let mut are_plain = true;
    let mut iter = db.db.raw_iterator_cf(db.families().history);
    iter.seek_to_first();
    while let Some((key, value)) = iter.item() {
        assert!(crate::state::keys::parse_history(key).is_some());
        are_plain &= value[0] == 1;
        iter.next();
    }
    (found, are_plain)
}

#[test]
fn authors_go_with_the_version_that_has_them() {
    let bed = TestBed::new();
    let alice = Authorship { author: Some(Author::User("alice".to_owned())), face: Some(Face::Etcd) };
    bed.commit(1, &[("a", Some("1"))]);
    set_version(&bed, 2, Version::V0_4);
    commit_by(&bed, 3, "b", alice.clone());
    commit_by(&bed, 4, "c", Authorship::NODE);
    let unknown = Authorship::default();
    assert_eq!(authorships(&bed), (vec![unknown.clone(), alice.clone(), Authorship::NODE], false));
    bed.store.current().make_history_plain().unwrap();
    assert_eq!(authorships(&bed).0[1], alice, "the version has them");
    let before = bed.store.read(|view| view.state_hash()).unwrap();
    set_version(&bed, 5, Version::V0_3);
    bed.store.current().make_history_plain().unwrap();
    assert_eq!(authorships(&bed), (vec![unknown.clone(); 3], true));
    assert_eq!(bed.pairs(LogIndex(5)), ["a=1", "b=", "c="]);
    // A program of 0.3 reads what is there, and so does one of 0.4 after the version rose again.
    set_version(&bed, 6, Version::V0_4);
    commit_by(&bed, 7, "d", alice.clone());
    assert_eq!(authorships(&bed).0[3], alice);
    set_version(&bed, 8, Version::V0_3);
    bed.store.current().make_history_plain().unwrap();
    assert!(authorships(&bed).1);
    assert_ne!(before, 0);
}

#[test]
fn a_copy_for_programs_before_authors_has_none() {
    let bed = TestBed::new();
    set_version(&bed, 1, Version::V0_4);
    commit_by(&bed, 2, "b", Authorship::NODE);
    set_version(&bed, 3, Version::V0_3);
    let bed = bed.reopened();
    let copy = bed.dir.path().join("copy");
    bed.store.current().checkpoint(&copy).unwrap();
    let other = TestBed::new();
    other.store.install(&copy).unwrap();
    assert_eq!(authorships(&other), (vec![Authorship::default()], true));
}

/// For each record of history: the previous version that the head of its command has, and the one
/// that a lookup finds. Asserts that walks in both directions and `ReadView::records_of` return
/// the same records.
fn previous_versions(bed: &TestBed) -> Vec<(Option<PreviousVersion>, Option<PreviousVersion>)> {
    let db = bed.store.current();
    let view = db.view().unwrap();
    let mut walk = view.walk(span(0, u64::MAX), false, KV);
    let (mut found, mut forward) = (Vec::new(), Vec::new());
    while let Some(command) = walk.next().unwrap() {
        let before = LogIndex(command.index.get() - 1);
        let mut records = view.records_of(command.index, 0, KV).unwrap();
        for record in &command.records {
            assert_eq!(records.next().unwrap().map(|(_, record)| record).as_ref(), Some(record));
            let known = view.lookup(record.table, &record.kv.key, before).unwrap();
            found.push((record.previous, known.as_ref().map(PreviousVersion::of)));
        }
        forward.push(command);
    }
    let mut backward = Vec::new();
    let mut walk = view.walk(span(0, u64::MAX), true, KV);
    while let Some(command) = walk.next().unwrap() {
        backward.insert(0, command);
    }
    assert_eq!(forward, backward);
    found
}

#[test]
fn heads_lead_to_the_versions_that_records_replace() {
    let bed = TestBed::new();
    bed.commit(1, &[("a", Some("1"))]);
    bed.commit(2, &[("a", Some("12"))]);
    let [(None, None), (None, Some(first))] = previous_versions(&bed)[..] else {
        panic!("a version without the feature")
    };
    assert_eq!((first.index, first.position, first.value_len), (LogIndex(1), 1, 1));
    set_version(&bed, 3, Version::V0_4);
    let names: Vec<String> = (0..=PREVIOUS_MAX).map(|number| format!("k{number:03}")).collect();
    let writes: Vec<_> = names.iter().map(|name| (name.as_str(), Some("x"))).collect();
    bed.commit(4, &writes);
    bed.commit(5, &writes);
    bed.commit(6, &[("new", Some("1")), ("a", None), ("k007", Some("xy")), ("k008", None)]);
    bed.commit(7, &[("a", Some("again")), ("k007", Some("xyz"))]);
    let found = previous_versions(&bed);
    let unknown: Vec<_> = found[2..].iter().filter(|(head, lookup)| head != lookup).collect();
    assert!(matches!(unknown[..], [(None, Some(_))]), "the last record of command 5 alone: {unknown:?}");
    let kept = found.iter().filter(|(head, _)| head.is_some()).count();
    assert_eq!(kept, PREVIOUS_MAX as usize + 3 + 1, "those of commands 5, 6 and 7");
    set_version(&bed, 8, Version::V0_3);
    bed.commit(9, &[("a", Some("old"))]);
    bed.store.current().make_history_plain().unwrap();
    assert!(previous_versions(&bed).iter().all(|(head, _)| head.is_none()));
    assert!(authorships(&bed).1);
}

#[test]
fn heads_of_a_version_that_came_and_went_within_one_transaction_are_found() {
    let bed = TestBed::new();
    let db = bed.store.current();
    db.make_history_plain().unwrap();
    let rises = db.version_rises();
    let mut txn = bed.store.begin(&db).unwrap();
    let version = |txn: &mut crate::state::WriteTxn<'_>, index, version| {
        txn.begin_command(LogIndex(index), 0);
        txn.set_version(ClusterVersion { version, is_downgrading: false });
        txn.end_command();
    };
    version(&mut txn, 1, Version::V0_4);
    txn.begin_command(LogIndex(2), 5);
    txn.set_authorship(Authorship::NODE);
    let kv = headwater_types::KeyValue { key: "a".into(), version: 1, ..Default::default() };
    txn.put(Table::Kv, kv, None);
    txn.end_command();
    version(&mut txn, 3, Version::V0_3);
    let (term, index) = (headwater_types::Term(1), LogIndex(3));
    txn.set_applied(&crate::state::AppliedState { term, index, membership: None });
    txn.commit().unwrap();
    assert_eq!(db.version_rises(), rises + 2);
    assert_eq!(authorships(&bed), (vec![Authorship::NODE], false));
    db.make_history_plain().unwrap();
    assert_eq!(authorships(&bed), (vec![Authorship::default()], true));
}
