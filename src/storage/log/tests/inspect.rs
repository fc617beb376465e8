//! Inspections of whole and damaged logs: everything readable is read, everything else is named,
//! and no byte changes.

use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::damage::DamageList;

in_both_forms! {
    a_whole_log_is_read_from_files_and_from_what_is_not_flushed,
    entries_are_read_from_any_index_until_the_reader_has_enough,
}

/// Content and time of the last change of every file.
fn files(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, i64)> {
    let paths = files_in(dir).into_iter();
    paths.map(|path| (path.clone(), (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().mtime_nsec()))).collect()
}

/// The ids of the readable entries, and the damage. Asserts that no file was changed.
pub(super) fn inspect(dir: &Path) -> (Vec<LogId>, DamageList) {
    let before = files(dir);
    let mut log = LogInspector::open(dir);
    let mut found = Vec::new();
    log.read(LogIndex::ZERO, |record| {
        found.push(record.id());
        ControlFlow::Continue(())
    });
    let damage = log.damage().clone();
    drop(log);
    assert!(files(dir) == before, "an inspection changed the log");
    (found, damage)
}

pub(super) fn texts(damage: &DamageList) -> Vec<String> {
    damage.kept().iter().map(ToString::to_string).collect()
}

fn a_whole_log_is_read_from_files_and_from_what_is_not_flushed() {
    for flushed in [false, true] {
        let temp = tempfile::tempdir().unwrap();
        let log = open(temp.path());
        durably(|done| log.save_vote(vote(4), done)).unwrap();
        append(&log, records(1, 0..10));
        durably(|done| log.purge(id(1, 1), done)).unwrap();
        log.save_committed(Some(id(1, 7))).unwrap();
        append(&log, records(2, 10..12));
        if flushed {
            flush(&log);
        }
        drop(log);
        let inspector = LogInspector::open(temp.path());
        let facts = *inspector.facts();
        drop(inspector);
        assert_eq!((facts.store_id, facts.vote), (Some(STORE), Some(vote(4))));
        assert_eq!((facts.purged, facts.committed, facts.last), (Some(id(1, 1)), Some(id(1, 7)), Some(id(2, 11))));
        assert_eq!(facts.first, Some(LogIndex(2)));
        assert_eq!(facts.written, facts.marked);
        let (found, damage) = inspect(temp.path());
        assert_eq!(found, (2..10).map(|index| id(1, index)).chain([id(2, 10), id(2, 11)]).collect::<Vec<_>>());
        assert!(damage.is_empty(), "{damage:?}");
        // It can still be opened for use.
        assert_eq!(ids(&open(temp.path())), found);
    }
}

fn entries_are_read_from_any_index_until_the_reader_has_enough() {
    let temp = tempfile::tempdir().unwrap();
    let log = open(temp.path());
    append(&log, records(1, 0..10));
    drop(log);
    let mut log = LogInspector::open(temp.path());
    let mut found = Vec::new();
    log.read(LogIndex(4), |record| {
        found.push(record.index.get());
        if found.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(found, [4, 5, 6]);
    assert!(log.damage().is_empty());
}
