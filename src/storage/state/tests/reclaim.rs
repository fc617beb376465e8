//! Reclamation removes the records below the compaction point, and no read changes.

use super::bed::*;
use crate::state::{AppliedState, CatalogReader, NEWEST, StateDb, StateReader, Table};
use headwater_types::catalog::{CatalogBody, CatalogEvent, CatalogNode, CatalogOp, CatalogTable, CatalogTopic};
use headwater_types::{LogIndex, Revision, Term};

/// Every entry of `history`, `versions` and `revisions`, one line each.
fn dump(db: &StateDb) -> Vec<String> {
    let families = db.families();
    let mut out = Vec::new();
    for (name, family) in
        [("history", families.history), ("versions", families.versions), ("revisions", families.revisions)]
    {
        let mut options = rocksdb::ReadOptions::default();
        options.set_total_order_seek(true);
        let mut iter = db.db.raw_iterator_cf_opt(family, options);
        iter.seek_to_first();
        while let Some(key) = iter.key() {
            out.push(match name {
                "history" => {
                    let (index, position) = crate::state::keys::parse_history(key).unwrap();
                    format!("h {index}.{position}")
                }
                "versions" => {
                    let (prefix, index) = crate::state::keys::split_version(key).unwrap();
                    format!("v {}@{index}", crate::state::keys::unescaped(prefix).escape_ascii())
                }
                _ => format!("r {}", u64::from_be_bytes(key.try_into().unwrap())),
            });
            iter.next();
        }
    }
    out
}

fn reclaim(db: &StateDb, limit: usize) -> usize {
    let mut removed = 0;
    for _ in 0..10_000 {
        let progress = db.reclaim_step(limit).unwrap();
        removed += progress.removed;
        if progress.done {
            return removed;
        }
    }
    panic!("reclamation does not end");
}

fn bed() -> TestBed {
    let bed = TestBed::new();
    bed.commit(1, &[("kept", Some("1")), ("over", Some("1")), ("gone", Some("1"))]);
    bed.commit(2, &[("over", Some("2"))]);
    bed.commit(3, &[("gone", None), ("over", Some("3"))]);
    bed.commit(4, &[("at", None), ("point", Some("4"))]);
    bed.commit(5, &[("point", None), ("new", Some("5")), ("over", Some("5"))]);
    bed.commit(6, &[("over", Some("6")), ("gone", Some("6"))]);
    bed
}

#[test]
fn what_can_still_be_read_stays() {
    // Revision = index + 1: the point is the command at 5, which removed `point`.
    for limit in [1, 2, 3, 1000] {
        let bed = bed();
        bed.compact(7, 6);
        assert_eq!(reclaim(&bed.store.current(), limit), 6, "by {limit}");
        assert_eq!(
            dump(&bed.store.current()),
            [
                "h 1.1",
                "h 5.0",
                "h 5.1",
                "h 5.2",
                "h 5.3",
                "h 6.0",
                "h 6.1",
                "h 6.2",
                "v gone@6",
                "v kept@1",
                "v new@5",
                "v over@6",
                "v over@5",
                "v point@5",
                "r 6",
                "r 7",
            ],
            "by {limit}"
        );
        // The next point removes the tombstone that lay exactly at this one.
        bed.compact(8, 7);
        reclaim(&bed.store.current(), limit);
        assert_eq!(
            dump(&bed.store.current()),
            ["h 1.1", "h 5.2", "h 6.0", "h 6.1", "h 6.2", "v gone@6", "v kept@1", "v new@5", "v over@6", "r 7"],
            "by {limit}"
        );
        assert_eq!(bed.pairs(NEWEST), ["gone=6", "kept=1", "new=5", "over=6"]);
    }
}

#[test]
fn nobody_notices_how_far_it_has_come() {
    let bed = bed();
    bed.compact(7, 6);
    let db = bed.store.current();
    let read = || {
        let view = db.view().unwrap();
        let states: Vec<_> = [LogIndex(5), LogIndex(6), NEWEST].map(|at| show(&view, at)).into();
        let mut history = Vec::new();
        view.history(LogIndex(5), |command| {
            history.push(command);
            true
        })
        .unwrap();
        (states, history, view.index_of(Revision(6)).unwrap(), view.state_hash().unwrap())
    };
    let before = read();
    while !db.reclaim_step(1).unwrap().done {
        assert_eq!(read(), before);
    }
    assert_eq!(read(), before);
}

#[test]
fn a_view_taken_before_reads_on() {
    let bed = bed();
    let db = bed.store.current();
    let view = db.view().unwrap();
    let states: Vec<_> = (0..7).map(|at| show(&view, LogIndex(at))).collect();
    bed.compact(7, 7);
    reclaim(&db, 1000);
    db.flush().unwrap();
    for (at, state) in (0..).zip(states) {
        assert_eq!(show(&view, LogIndex(at)), state, "at {at}");
    }
}

#[test]
fn it_goes_on_after_a_restart_and_a_moved_point() {
    let bed = bed();
    bed.compact(7, 4);
    for _ in 0..3 {
        bed.store.current().reclaim_step(2).unwrap();
    }
    let bed = bed.reopened();
    bed.compact(8, 7);
    reclaim(&bed.store.current(), 2);
    let other = self::bed();
    other.compact(7, 7);
    reclaim(&other.store.current(), 1000);
    assert_eq!(dump(&bed.store.current()), dump(&other.store.current()));
    assert_eq!(reclaim(&bed.reopened().store.current(), 2), 0, "what is done stays done");
}

#[test]
fn a_huge_command_is_reclaimed_in_small_steps() {
    let bed = TestBed::new();
    let keys: Vec<String> = (0..300).map(|number| format!("k{number:03}")).collect();
    let puts: Vec<Write<'_>> = keys.iter().map(|key| (key.as_str(), Some("v"))).collect();
    let deletes: Vec<Write<'_>> = keys.iter().map(|key| (key.as_str(), None)).collect();
    bed.commit(1, &puts);
    bed.commit(2, &deletes);
    bed.commit(3, &[("x", Some("v"))]);
    bed.compact(4, 3);
    let db = bed.store.current();
    let progress = db.reclaim_step(100).unwrap();
    assert_eq!((progress.visited, progress.done), (100, false));
    assert_eq!(reclaim(&db, 100), 300, "the tombstones lie at the point and stay");
    bed.compact(5, 4);
    assert_eq!(reclaim(&db, 7), 300);
    assert_eq!(dump(&db), ["h 3.0", "h 3.1", "v x@3", "r 4"]);
}

#[test]
fn it_runs_beside_the_writer() {
    let bed = TestBed::new();
    let value = "v".repeat(100);
    for index in 1..=300 {
        bed.commit(index, &[(&format!("k{}", index % 10), Some(&value))]);
    }
    bed.compact(301, 301);
    let db = bed.store.current();
    std::thread::scope(|scope| {
        let reclaimer = scope.spawn(|| reclaim(&db, 3));
        for index in 302..=600 {
            bed.commit(index, &[(&format!("k{}", index % 10), Some(&format!("{index}")))]);
        }
        assert_eq!(reclaimer.join().unwrap(), 290);
    });
    let want: Vec<_> = (0..10).map(|key| format!("k{key}={}", if key == 0 { 600 } else { 590 + key })).collect();
    assert_eq!(bed.pairs(NEWEST), want);
    assert_eq!(bed.pairs(LogIndex(300)).len(), 10);
}

/// Writes a node of the catalog, or with `None` removes it, and adds an event, as the command at
/// `index`.
fn commit_node(bed: &TestBed, index: u64, address: Option<&str>) {
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    txn.begin_command(LogIndex(index), 0);
    let before = txn.row::<CatalogNode>(b"n").unwrap();
    match address {
        Some(address) => {
            let node = CatalogNode { name: "n".to_owned(), address: address.to_owned(), ..CatalogNode::default() };
            txn.put_row(node, before.as_ref());
        }
        None => txn.delete_row(&before.unwrap()),
    }
    let body = CatalogBody::Table(CatalogTable::Nodes);
    let (topic, op) = (CatalogTopic::Table, CatalogOp::Register);
    txn.add_catalog_events(vec![CatalogEvent { topic, op, key: "".into(), body }]);
    txn.end_command();
    txn.set_applied(&AppliedState { term: Term(1), index: LogIndex(index), membership: None });
    txn.commit().unwrap();
}

#[test]
fn rows_of_the_catalog_go_with_what_was_said_of_them() {
    let bed = TestBed::new();
    commit_node(&bed, 1, Some("a"));
    commit_node(&bed, 2, Some("b"));
    bed.commit(3, &[("key", Some("3"))]);
    commit_node(&bed, 4, Some("c"));
    bed.compact(5, 4);
    let db = bed.store.current();
    reclaim(&db, 1);
    // Below the point, only the row that was live there is left, and no event.
    let history = |db: &StateDb| dump(db).into_iter().filter(|line| line.starts_with('h')).collect::<Vec<_>>();
    assert_eq!(history(&db), ["h 2.1", "h 3.0", "h 3.1", "h 4.0", "h 4.1", "h 4.2"]);
    commit_node(&bed, 6, None);
    bed.commit(7, &[("key", Some("7"))]);
    bed.compact(8, 8);
    reclaim(&db, 2);
    assert_eq!(history(&db), ["h 7.0", "h 7.1"], "nothing of the catalog is left");
}

/// The history that a watch of keys from the compaction point reads: each command with its keys.
fn key_history(db: &StateDb) -> Vec<(u64, Vec<String>)> {
    let view = db.view().unwrap();
    let mut found = Vec::new();
    view.history(view.head().key_floor(), |command| {
        let keys = command.records.iter().filter(|record| record.table == Table::Kv);
        found.push((command.index.get(), keys.map(|record| record.kv.key.escape_ascii().to_string()).collect()));
        true
    })
    .unwrap();
    found
}

#[test]
fn keys_keep_their_last_revision_where_the_rest_goes_on() {
    for limit in [1, 2, 1000] {
        let bed = TestBed::new();
        bed.commit(1, &[("a", Some("1")), ("b", Some("1"))]);
        commit_node(&bed, 2, Some("x"));
        bed.commit(3, &[("a", None), ("b", Some("3"))]);
        for index in 4..8 {
            commit_node(&bed, index, Some(&index.to_string()));
        }
        bed.trim(8, Some(4), 6);
        let db = bed.store.current();
        let expected = [(3, vec!["a".to_owned(), "b".to_owned()]), (6, vec![]), (7, vec![])];
        let hash = db.view().unwrap().state_hash().unwrap();
        assert_eq!(key_history(&db), expected, "by {limit}");
        reclaim(&db, limit);
        assert_eq!(key_history(&db), expected, "by {limit}");
        assert_eq!(db.view().unwrap().state_hash().unwrap(), hash, "by {limit}");
        let kept = ["h 3.0", "h 3.1", "h 3.2", "h 6.0", "h 6.1", "h 6.2", "h 7.0", "h 7.1", "h 7.2"];
        let versions = ["v a@3", "v b@3", "v n@7", "v n@6", "r 4"];
        assert_eq!(dump(&db), [&kept[..], &versions].concat(), "by {limit}");
        // The floor moves, and the kept revision of the keys stays.
        bed.trim(9, None, 7);
        reclaim(&db, limit);
        assert_eq!(dump(&db), [&kept[..3], &kept[6..], &["v a@3", "v b@3", "v n@7", "r 4"]].concat(), "by {limit}");
        // The next compaction of keys removes the kept revision, also after a restart.
        drop(db);
        let bed = bed.reopened();
        bed.commit(10, &[("b", Some("10"))]);
        commit_node(&bed, 11, None);
        bed.trim(12, Some(11), 11);
        let db = bed.store.current();
        assert_eq!(key_history(&db), [(10, vec!["b".to_owned()]), (11, vec![])], "by {limit}");
        reclaim(&db, limit);
        assert_eq!(key_history(&db), [(10, vec!["b".to_owned()]), (11, vec![])], "by {limit}");
        assert_eq!(
            dump(&db),
            ["h 10.0", "h 10.1", "h 11.0", "h 11.1", "h 11.2", "v b@10", "v n@11", "r 11"],
            "by {limit}"
        );
    }
}

#[test]
fn the_last_command_of_a_time_is_found() {
    let bed = TestBed::new();
    let last = |bed: &TestBed, unix_ms| bed.store.current().view().unwrap().last_command_until(unix_ms).unwrap();
    assert_eq!(last(&bed, u64::MAX), None, "an empty store");
    // Proposed at 1000 plus the index. The indexes in between have no command, and the one at 40
    // has no time.
    let indexes: Vec<u64> = (1..=30).chain((50..100).step_by(7)).collect();
    for index in &indexes {
        bed.commit(*index, &[("k", Some("v"))]);
        if *index == 30 {
            commit_node(&bed, 40, Some("a"));
        }
    }
    for time in 0..120 {
        let wanted = indexes.iter().filter(|index| **index <= time).max().map(|index| LogIndex(*index));
        assert_eq!(last(&bed, 1000 + time), wanted, "{time}");
    }
    bed.trim(200, Some(31), 40);
    for time in 0..120 {
        let wanted = indexes.iter().filter(|index| **index <= time && **index > 40).max().map(|index| LogIndex(*index));
        assert_eq!(last(&bed, 1000 + time), wanted, "{time}, with what was given up");
    }
}
