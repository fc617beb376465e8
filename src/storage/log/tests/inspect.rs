//! Inspections of whole and damaged logs: everything readable is read, everything else is named,
//! and no byte changes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::*;
use crate::damage::DamageList;

/// Content and time of the last change of every file.
fn files(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, i64)> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
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

fn texts(damage: &DamageList) -> Vec<String> {
    damage.kept().iter().map(ToString::to_string).collect()
}

#[test]
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

#[test]
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

#[test]
fn entries_behind_a_damaged_block_are_read() {
    let temp = tempfile::tempdir().unwrap();
    let log = open(temp.path());
    append(&log, records(1, 0..5000));
    flush(&log);
    drop(log);
    let tables = fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap().path());
    let tables = tables.filter(|path| path.extension().is_some_and(|extension| extension == "sst"));
    let largest = tables.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = fs::read(&largest).unwrap();
    // In the second block of 16 KiB.
    bytes[20_000] ^= 1;
    fs::write(&largest, bytes).unwrap();
    let (found, damage) = inspect(temp.path());
    let texts = texts(&damage);
    assert!(texts[0].contains("checksum mismatch") && texts[0].contains(".sst"), "{texts:?}");
    assert!(texts[0].starts_with("log/entries/") && texts.len() == 1, "{texts:?}");
    assert_eq!((found[0], found.last()), (id(1, 0), Some(&id(1, 4999))), "both ends are readable");
    assert!((3000..5000).contains(&found.len()), "{}", found.len());
}

#[test]
fn entries_behind_a_damaged_write_are_read() {
    let temp = tempfile::tempdir().unwrap();
    let log = open(&temp.path().join("log"));
    // RocksDB drops the rest of a damaged block of 32 KiB.
    for index in 0..200 {
        append(&log, vec![LogRecord { payload: vec![7; 1000].into(), ..record(1, index) }]);
    }
    let image = temp.path().join("image");
    crash_copy(&log, &image);
    drop(log);
    let paths = fs::read_dir(&image).unwrap().map(|entry| entry.unwrap().path());
    let wal = paths.filter(|path| path.extension().is_some_and(|extension| extension == "log")).max().unwrap();
    let mut bytes = fs::read(&wal).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&wal, bytes).unwrap();
    let (found, damage) = inspect(&image);
    let texts = texts(&damage);
    assert!(texts[0].contains("write-ahead") && texts[0].contains("was acknowledged"), "{texts:?}");
    assert!(texts.iter().any(|text| text.ends_with("missing")), "{texts:?}");
    assert_eq!(found.last(), Some(&id(1, 199)), "{texts:?}");
    assert!((150..200).contains(&found.len()), "{texts:?}");
}

#[test]
fn a_log_that_is_gone_or_cannot_be_opened_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let (found, damage) = inspect(temp.path());
    assert!(found.is_empty() && texts(&damage).iter().any(|text| text.contains("there is no log")), "{damage:?}");

    let dir = temp.path().join("log");
    let log = open(&dir);
    append(&log, records(1, 0..3));
    drop(log);
    let paths = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let manifest =
        paths.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("MANIFEST")).max().unwrap();
    fs::write(&manifest, b"not a manifest").unwrap();
    let (found, damage) = inspect(&dir);
    assert!(found.is_empty() && texts(&damage).iter().any(|text| text.contains("nothing can be read")), "{damage:?}");
}
