//! Inspections and copies of a state: whole, damaged, and never changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::bed::{TestBed, pairs, small};
use crate::state::options::REVISIONS;
use crate::state::{NEWEST, StateInspection, StateStore, copy_state, inspect_state};
use headwater_types::LogIndex;

/// Every file below `dir` with its content.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

fn inspected(dir: &Path) -> StateInspection {
    let before = files(dir);
    let found = inspect_state(dir, &mut |_| {});
    assert!(files(dir) == before, "an inspection changed the state");
    found
}

/// A closed state with a thousand keys on disk.
fn closed() -> tempfile::TempDir {
    let bed = TestBed::new();
    for index in 1..=1000 {
        let (key, value) = (format!("key{index:04}"), format!("value {index} {}", index * 7919));
        bed.commit(index, &[(&key, Some(&value))]);
    }
    bed.store.current().flush().unwrap();
    let TestBed { dir, store } = bed;
    drop(store);
    dir
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    files(dir).into_keys().filter(|path| path.extension().is_some_and(|extension| extension == "sst")).collect()
}

#[test]
fn a_whole_state_is_read_and_copied() {
    let dir = closed();
    let found = inspected(dir.path());
    assert!(found.damage.is_empty(), "{:?}", found.damage);
    let head = found.head.unwrap();
    assert_eq!((head.applied_index(), head.live_keys), (LogIndex(1000), 1000));
    assert!(found.records > 3000, "{} records in history, versions and revisions", found.records);

    let before = files(dir.path());
    let to = tempfile::tempdir_in(dir.path()).unwrap();
    copy_state(&found.path.unwrap(), to.path()).unwrap();
    let store = StateStore::open(to.path(), &small()).unwrap();
    let copied = pairs(&store.current(), NEWEST);
    assert_eq!((copied.len(), copied[7].as_str()), (1000, "key0008=value 8 63352"));
    // Work on the copy changes nothing in the original.
    store.current().compact_files().unwrap();
    drop(store);
    drop(to);
    assert!(files(dir.path()) == before);
}

#[test]
fn damaged_records_are_progress_too() {
    let bed = TestBed::new();
    bed.commit(1, &[("key", Some("value"))]);
    let db = bed.store.current();
    let revisions = db.db.cf_handle(REVISIONS).unwrap();
    for key in 0..5u8 {
        db.db.put_cf(revisions, [key], b"no index").unwrap();
    }
    db.flush().unwrap();
    drop(db);
    let TestBed { dir, store } = bed;
    drop(store);
    let mut steps = Vec::new();
    let found = inspect_state(dir.path(), &mut |records| steps.push(records));
    assert_eq!(found.damage.count(), 5, "{:?}", found.damage);
    assert_eq!(steps, (1..=found.records + 5).collect::<Vec<_>>());
}

#[test]
fn a_flipped_bit_in_any_table_is_found_and_its_file_is_named() {
    let dir = closed();
    let tables = tables(dir.path());
    assert!(!tables.is_empty());
    for table in tables {
        let good = fs::read(&table).unwrap();
        // The first block has records; the tables are small.
        let mut bad = good.clone();
        bad[10] ^= 1;
        fs::write(&table, bad).unwrap();
        let found = inspected(dir.path());
        let name = table.file_name().unwrap().to_str().unwrap();
        let damage = found.damage.kept().first().map(ToString::to_string).unwrap_or_default();
        assert!(damage.contains(name), "{name}: {damage:?}");
        fs::write(&table, good).unwrap();
    }
    assert!(inspected(dir.path()).damage.is_empty());
}

#[test]
fn a_state_without_its_files_is_named() {
    let dir = closed();
    fs::remove_file(&tables(dir.path())[0]).unwrap();
    let damage = inspected(dir.path()).damage;
    assert_eq!(damage.count(), 1);
    assert!(damage.kept()[0].to_string().starts_with("state/gen-1"), "{damage:?}");
    fs::write(dir.path().join("CURRENT"), "gen-1").unwrap();
    assert!(inspected(dir.path()).damage.kept()[0].to_string().contains("name of a state directory"));
    fs::remove_file(dir.path().join("CURRENT")).unwrap();
    assert!(inspected(dir.path()).damage.kept()[0].to_string().contains("missing"));
}
