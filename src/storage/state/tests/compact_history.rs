//! A state in the layout of version 0.4 (heads in the rows of only records, revisions in runs)
//! answers as one in the layout of version 0.3 does.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use proptest::prelude::*;
use rocksdb::DB;

use super::bed::*;
use crate::state::commands::{HistorySpan, Tables, WalkedCommand};
use crate::state::{AppliedState, NEWEST, StateReader, Table};
use crate::state::{history_row, options};
use headwater_types::{Authorship, ChangeKind, ClusterVersion, KeyValue, LogIndex, Revision, Term, Version};

const TABLES: Tables = Tables::of(&[Table::Kv]);

#[derive(Clone, Debug)]
enum Step {
    /// A command that writes keys: a number of the key, and whether it is put or deleted.
    Write(Vec<(u8, bool)>),
    /// Entries of the log that make no revision, count.
    Skip(u64),
    /// Compacts to the revision before the current one, this many before it.
    Compact(u8),
    /// Compacts to the current revision, and gives up the rest of history.
    Trim,
    /// A step of reclamation, with this limit.
    Reclaim(usize),
    /// Closes the states and opens them again.
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec((0u8..5, prop::bool::weighted(0.8)), 1..2).prop_map(Step::Write),
        2 => prop::collection::vec((0u8..5, prop::bool::weighted(0.8)), 2..4).prop_map(Step::Write),
        2 => (1u64..4).prop_map(Step::Skip),
        1 => (0u8..6).prop_map(Step::Compact),
        1 => Just(Step::Trim),
        2 => (1usize..8).prop_map(Step::Reclaim),
        1 => Just(Step::Reopen),
    ]
}

/// A bed whose cluster has `version`.
fn bed(version: Version) -> TestBed {
    let bed = TestBed::new();
    set_version(&bed, version);
    bed
}

/// Sets the version of the cluster. Takes no log index.
fn set_version(bed: &TestBed, version: Version) {
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    txn.set_version(ClusterVersion { version, is_downgrading: false });
    txn.commit().unwrap();
}

/// Writes the keys as the command at `index`, if one of them changes; otherwise the command leaves
/// nothing.
fn write(bed: &TestBed, index: u64, keys: &[(u8, bool)]) {
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    txn.begin_command(LogIndex(index), 1000 + index);
    let revision = txn.head().revision.next();
    let mut changed = Vec::new();
    for &(key, is_put) in keys {
        let name = bytes::Bytes::from(format!("k{key}"));
        if changed.contains(&key) {
            continue;
        }
        match (is_put, txn.lookup(Table::Kv, &name, NEWEST).unwrap()) {
            (true, previous) => {
                let kv = KeyValue {
                    key: name,
                    value: format!("{index}").repeat(usize::from(key)).into(),
                    create_revision: previous.map_or(revision, |version| version.create_revision),
                    mod_revision: revision,
                    version: previous.map_or(1, |version| version.version + 1),
                    ..KeyValue::default()
                };
                txn.put(Table::Kv, kv, previous.as_ref());
            }
            (false, Some(previous)) => txn.delete(Table::Kv, name, ChangeKind::Delete, revision, &previous),
            (false, None) => continue,
        }
        changed.push(key);
    }
    if !changed.is_empty() {
        txn.set_revision(revision);
    }
    txn.end_command();
    txn.set_applied(&AppliedState { term: Term(1), index: LogIndex(index), membership: None });
    txn.commit().unwrap();
}

/// Everything that readers of history and of revisions see. Authors and places of previous
/// versions, which version 0.3 does not have, are left out.
fn seen(bed: &TestBed) -> Vec<String> {
    let db = bed.store.current();
    let view = db.view().unwrap();
    let (floor, applied) = (view.head().compacted_index(), view.applied());
    let mut out = Vec::new();
    let mut add = |what: &str, command: crate::state::CommandHistory| {
        let mut command = command;
        command.head = command.head.into_plain();
        command.records.iter_mut().for_each(|record| record.previous = None);
        out.push(format!("{what} {command:?}"));
    };
    view.history(floor, |command| {
        add("history", command);
        true
    })
    .unwrap();
    let span = HistorySpan { after: LogIndex(floor.get().saturating_sub(1)), through: applied };
    for is_backward in [false, true] {
        for bytes_max in [usize::MAX, 150] {
            let mut walk = view.walk(span, is_backward, TABLES);
            while let Some(walked) = walk.next_within(bytes_max).unwrap() {
                match walked {
                    WalkedCommand::Whole(command) => add("walk", command),
                    WalkedCommand::Large(index, head) => {
                        let mut records = view.records_of(index, 1, TABLES).unwrap();
                        assert_eq!(records.head(), &head);
                        let mut all = Vec::new();
                        while let Some((_, record)) = records.next().unwrap() {
                            all.push(record);
                        }
                        add("walk", crate::state::CommandHistory { index, head, records: all });
                    }
                }
            }
        }
    }
    for index in floor.get()..=applied.get() {
        let index = LogIndex(index);
        out.push(format!("at {index}: {:?}, {:?}", show(&view, index), view.last_command(index).unwrap()));
    }
    let oldest = view.head().compaction.map_or(1, |point| point.revision.get());
    let txn = db.begin().unwrap();
    for revision in (oldest..=view.revision().get()).map(Revision) {
        let (index, exact) = (view.index_of(revision).unwrap(), view.command_of(revision).unwrap());
        assert_eq!(txn.index_of(revision).unwrap(), exact);
        out.push(format!("revision {revision}: {index} {exact} {:x}", view.kv_hash(revision).unwrap()));
    }
    for time in 0..applied.get() {
        out.push(format!("until {time}: {:?}", view.last_command_until(1000 + time).unwrap()));
    }
    out
}

/// Number of rows of history, and of entries of revisions.
fn rows(bed: &TestBed) -> [usize; 2] {
    let db = bed.store.current();
    let families = db.families();
    [families.history, families.revisions].map(|family| {
        let mut iter = db.db.raw_iterator_cf(family);
        iter.seek_to_first();
        let mut count = 0;
        while iter.valid() {
            count += 1;
            iter.next();
        }
        count
    })
}

/// Takes a step on both beds. `last` is the last log index.
fn take(step: &Step, beds: [TestBed; 2], last: &mut u64) -> [TestBed; 2] {
    match step {
        Step::Write(keys) => {
            *last += 1;
            beds.iter().for_each(|bed| write(bed, *last, keys));
        }
        Step::Skip(count) => *last += count,
        Step::Compact(before) => {
            *last += 1;
            for bed in &beds {
                let head = bed.store.current().head();
                let oldest = head.compaction.map_or(1, |point| point.revision.get());
                bed.compact(*last, (head.revision.get() - i64::from(*before)).max(oldest));
            }
        }
        Step::Trim => {
            *last += 1;
            for bed in &beds {
                let revision = bed.store.current().head().revision.get();
                bed.trim(*last, Some(revision), *last - 1);
            }
        }
        Step::Reclaim(limit) => beds.iter().for_each(|bed| {
            bed.store.current().reclaim_step(*limit).unwrap();
        }),
        Step::Reopen => return beds.map(TestBed::reopened),
    }
    beds
}

fn reclaim(bed: &TestBed) {
    while !bed.store.current().reclaim_step(7).unwrap().done {}
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn it_reads_as_the_layout_of_before(steps in prop::collection::vec(step(), 1..40)) {
        let (mut beds, mut last) = ([bed(Version::V0_3), bed(Version::V0_4)], 0);
        for step in &steps {
            beds = take(step, beds, &mut last);
        }
        prop_assert_eq!(seen(&beds[0]), seen(&beds[1]));
        let hash = |bed: &TestBed| bed.store.read(|view| view.state_hash()).unwrap();
        // Another member may have reclaimed more.
        let before = hash(&beds[1]);
        beds[1].store.current().reclaim_step(5).unwrap();
        prop_assert_eq!(hash(&beds[1]), before);
        prop_assert_eq!(seen(&beds[0]), seen(&beds[1]));
        // Back to the version before, row by row.
        beds.iter().for_each(|bed| set_version(bed, Version::V0_3));
        prop_assert_eq!(hash(&beds[0]), hash(&beds[1]), "one has not rewritten anything yet");
        for bed in &beds {
            bed.store.current().make_history_plain().unwrap();
            reclaim(bed);
        }
        prop_assert_eq!(seen(&beds[0]), seen(&beds[1]));
        prop_assert_eq!(hash(&beds[0]), hash(&beds[1]));
        prop_assert_eq!(rows(&beds[0]), rows(&beds[1]));
    }

    #[test]
    fn restarts_do_not_change_hashes(steps in prop::collection::vec(step(), 1..20)) {
        let (mut beds, mut last) = ([bed(Version::V0_4), bed(Version::V0_4)], 0);
        for step in &steps {
            let [one, other] = beds;
            // One never restarts, the other does before each step.
            beds = match step {
                Step::Reopen => [one, other],
                step => take(step, [one, other.reopened()], &mut last),
            };
            let hashes = beds.each_ref().map(|bed| bed.store.read(|view| view.state_hash()).unwrap());
            prop_assert_eq!(hashes[0], hashes[1]);
        }
    }
}

#[test]
fn commands_with_one_record_need_one_row_and_runs_one_entry() {
    let bed = bed(Version::V0_4);
    for index in 1..=100 {
        write(&bed, index, &[(1, true)]);
    }
    assert_eq!(rows(&bed), [100, 1], "index and revision grew together");
    write(&bed, 105, &[(1, true)]);
    write(&bed, 106, &[(1, true), (2, true)]);
    assert_eq!(rows(&bed), [104, 2]);
    let bed = bed.reopened();
    write(&bed, 107, &[(1, true)]);
    assert_eq!(rows(&bed), [105, 3], "a member that has just started begins a run");
    bed.compact(108, 60);
    reclaim(&bed);
    // Left: from the command of the point at 59 on, the one at 106 with its head and two records.
    assert_eq!(rows(&bed), [47, 2], "the run that began before the point is left to the point");
    let at = |revision| bed.store.read(|view| view.command_of(Revision(revision))).unwrap().get();
    assert_eq!([60, 61, 101, 102, 103, 104].map(at), [59, 60, 100, 105, 106, 107]);
}

#[test]
fn long_authors_keep_the_head_apart() {
    let bed = bed(Version::V0_4);
    let author = Some(headwater_types::Author::User("a".repeat(300)));
    let authorship = Authorship { author, face: None };
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    txn.begin_command(LogIndex(1), 5);
    txn.set_authorship(authorship.clone());
    txn.put(Table::Kv, KeyValue { key: "a".into(), version: 1, ..KeyValue::default() }, None);
    txn.end_command();
    txn.set_applied(&AppliedState { term: Term(1), index: LogIndex(1), membership: None });
    txn.commit().unwrap();
    let mut found = Vec::new();
    bed.store
        .read(|view| {
            view.history(LogIndex(1), |command| {
                found.push(command.head.authorship);
                true
            })
        })
        .unwrap();
    assert_eq!(found, [authorship]);
    assert_eq!(rows(&bed)[0], 2);
}

/// Whether a copy of the state has rows that programs before version 0.4 cannot read.
fn has_compact_rows(copy: &Path) -> bool {
    let db = DB::open_cf_for_read_only(&rocksdb::Options::default(), copy, [options::HISTORY], false).unwrap();
    let mut rows = db.raw_iterator_cf(db.cf_handle(options::HISTORY).unwrap());
    rows.seek_to_first();
    while let Some(row) = rows.value() {
        if history_row::parts(row).unwrap().1.is_some() {
            return true;
        }
        rows.next();
    }
    rows.status().unwrap();
    false
}

#[test]
fn copies_are_what_they_promise_while_the_version_rises_and_falls() {
    const ROUNDS: usize = 10;
    let bed = bed(Version::V0_4);
    let (copies, promised, is_done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let copier = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let number = copies.fetch_add(1, Ordering::Relaxed);
                let to = bed.dir.path().join(format!("copy-{number}"));
                let copy = bed.store.current().checkpoint(&to).unwrap();
                if copy.needs < Version::V0_4 {
                    assert!(!has_compact_rows(&to), "copy {number}");
                    promised.fetch_add(1, Ordering::Relaxed);
                }
                std::fs::remove_dir_all(&to).unwrap();
            }
        });
        let mut index = 0;
        for _ in 0..ROUNDS {
            // While two copies are made, the version changes all the time.
            let before = copies.load(Ordering::Relaxed);
            while copies.load(Ordering::Relaxed) < before + 2 && !copier.is_finished() {
                set_version(&bed, Version::V0_4);
                index += 1;
                write(&bed, index, &[(1, true)]);
                set_version(&bed, Version::V0_3);
            }
            // Then it stands still until a copy was made without the newer version.
            let before = promised.load(Ordering::Relaxed);
            while promised.load(Ordering::Relaxed) == before && !copier.is_finished() {
                std::thread::yield_now();
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert!(promised.into_inner() >= ROUNDS);
}
