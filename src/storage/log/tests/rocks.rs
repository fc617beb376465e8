//! What only a log in RocksDB has: its tables, its write-ahead files, and damage in them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use rocksdb::{ColumnFamily, DB};

use super::super::record::{encode_entry, encode_meta, entry_key};
use super::super::rocks::{db_options, families};
use super::inspect::{inspect, texts};
use super::*;
use crate::error::DAMAGED;

#[test]
fn damage_found_by_a_read_poisons_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let failures = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&failures);
    let on_failure: OnFailure = Arc::new(move |reason| {
        assert!(reason.contains("log/entries/3"), "{reason}");
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let log = LogDb::open(dir.path(), LogOptions { on_failure: Some(on_failure), ..without_tail() }).unwrap();
    append(&log, records(1, 0..10));
    with_rocks(&log, |rocks| {
        let entries = rocks.family(CF_ENTRIES);
        let mut stored = rocks.db().get_cf(entries, entry_key(3)).unwrap().unwrap();
        let last = stored.len() - 1;
        stored[last] ^= 1;
        rocks.db().put_cf(entries, entry_key(3), stored).unwrap();
    });

    assert_eq!(read(&log, 0..3), records(1, 0..3));
    let error = log.read(LogIndex(0)..LogIndex(9)).unwrap_err();
    assert!(matches!(&error, StorageError::Corrupt { location, .. } if location == "log/entries/3"), "{error}");
    for refused in [
        durably(|done| log.append(records(1, 10..11), done)),
        durably(|done| log.save_vote(vote(3), done)),
        durably(|done| log.purge(id(1, 1), done)),
        durably(|done| log.truncate_after(None, done)),
    ] {
        assert!(refused.unwrap_err().to_string().contains("poisoned by an earlier failure"));
    }
    assert!(matches!(log.vote(), Err(StorageError::Poisoned(_))), "never votes with a damaged log");
    assert!(matches!(log.save_committed(None), Err(StorageError::Poisoned(_))));
    assert!(matches!(log.read(LogIndex(0)..LogIndex(1)), Err(StorageError::Poisoned(_))));
    assert_eq!(failures.load(Ordering::SeqCst), 1);
}

#[test]
fn a_missing_entry_is_damage_and_not_a_shorter_answer() {
    for missing in [0, 4, 9] {
        let dir = tempfile::tempdir().unwrap();
        let log = LogDb::open(dir.path(), without_tail()).unwrap();
        append(&log, records(1, 0..10));
        with_rocks(&log, |rocks| rocks.db().delete_cf(rocks.family(CF_ENTRIES), entry_key(missing))).unwrap();
        let error = log.read(LogIndex(0)..LogIndex(10)).unwrap_err();
        assert!(error.to_string().contains(&format!("log/entries/{missing}: missing")), "{error}");
    }
}

#[test]
fn purged_files_are_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let files = |log: &LogDb| {
        let live = with_rocks(log, |rocks| rocks.db().live_files().unwrap());
        live.iter().filter(|file| file.column_family_name == CF_ENTRIES).count()
    };
    for part in 0..5 {
        append(&log, records(1, part * 100..part * 100 + 100));
        flush(&log);
    }
    // Out of level 0, where files are kept until they are compacted.
    with_rocks(&log, |rocks| rocks.db().compact_range_cf::<&[u8], &[u8]>(rocks.family(CF_ENTRIES), None, None));
    append(&log, records(1, 500..600));
    flush(&log);
    assert_eq!(files(&log), 6, "compaction moves files that do not overlap, as they are");
    durably(|done| log.purge(id(1, 499), done)).unwrap();
    // The end of the writer waits for the reclaimer.
    log.close();
    assert_eq!(files(&log), 1);
    assert_eq!(ids(&log).len(), 100);
}

#[test]
fn damage_on_disk_is_named_and_refused() {
    type Damage = (&'static str, fn(&DB), &'static str);
    fn entries(db: &DB) -> &ColumnFamily {
        db.cf_handle(CF_ENTRIES).unwrap()
    }
    fn meta(db: &DB) -> &ColumnFamily {
        db.cf_handle(CF_META).unwrap()
    }
    fn flip(db: &DB, family: &ColumnFamily, key: &[u8]) {
        let mut stored = db.get_cf(family, key).unwrap().unwrap();
        let at = stored.len() / 2;
        stored[at] ^= 4;
        db.put_cf(family, key, stored).unwrap();
    }
    fn put_meta<T: headwater_proto::codec::raft::RaftRecord>(db: &DB, key: &str, record: &T) {
        let mut stored = Vec::new();
        encode_meta(record, &mut stored);
        db.put_cf(meta(db), key, stored).unwrap();
    }
    let damages: [Damage; 14] = [
        ("bit in the first entry", |db| flip(db, entries(db), &entry_key(2)), "log/entries/2"),
        ("bit in an entry", |db| flip(db, entries(db), &entry_key(5)), "log/entries/5"),
        ("bit in the last entry", |db| flip(db, entries(db), &entry_key(9)), "log/entries/9"),
        ("first entry gone", |db| db.delete_cf(entries(db), entry_key(2)).unwrap(), "entry 3 where entry 2 should be"),
        ("entry gone", |db| db.delete_cf(entries(db), entry_key(5)).unwrap(), "entry 6 where entry 5 should be"),
        ("last entry gone", |db| db.delete_cf(entries(db), entry_key(9)).unwrap(), "nothing where entry 9 should be"),
        (
            "entry too many",
            |db| db.put_cf(entries(db), entry_key(10), b"x").unwrap(),
            "entry 10 where the end of the log should be",
        ),
        (
            "entry under another key",
            |db| {
                let stored = db.get_cf(entries(db), entry_key(6)).unwrap().unwrap();
                db.put_cf(entries(db), entry_key(5), stored).unwrap();
            },
            "log/entries/5: holds the entry of index 6",
        ),
        (
            "last entry of another term",
            |db| {
                let mut stored = Vec::new();
                encode_entry(&record(8, 9), &mut stored);
                db.put_cf(entries(db), entry_key(9), stored).unwrap();
            },
            "last entry is",
        ),
        ("bit in the vote", |db| flip(db, meta(db), b"vote"), "log/meta/vote"),
        ("bit in the tip", |db| flip(db, meta(db), b"tip"), "log/meta/tip"),
        ("bit in the purge point", |db| flip(db, meta(db), b"purged"), "log/meta/purged"),
        ("purge point ahead", |db| put_meta(db, "purged", &id(1, 4)), "log/meta/purged"),
        ("committed ahead", |db| put_meta(db, "committed", &id(1, 10)), "log/meta/committed"),
    ];
    for (name, damage, wanted) in damages {
        let temp = tempfile::tempdir().unwrap();
        let log = open(temp.path());
        durably(|done| log.save_vote(vote(4), done)).unwrap();
        append(&log, records(1, 0..10));
        durably(|done| log.purge(id(1, 1), done)).unwrap();
        drop(log);
        damage(&raw(temp.path()));
        let error = refused(temp.path(), options());
        assert!(error.contains(wanted) && error.contains(DAMAGED), "{name}: {error}");
        assert!(!inspect(temp.path()).1.is_empty(), "{name}: an inspection must find it, too");
    }
}

#[test]
fn damage_below_the_records_is_refused_too() {
    let temp = tempfile::tempdir().unwrap();
    let log = open(temp.path());
    append(&log, records(1, 0..1000));
    flush(&log);
    drop(log);
    let tables: Vec<PathBuf> = fs::read_dir(temp.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "sst"))
        .collect();
    let largest = tables.iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = fs::read(largest).unwrap();
    bytes[1000] ^= 1;
    fs::write(largest, bytes).unwrap();
    let error = refused(temp.path(), options());
    assert!(error.contains("checksum") && error.contains(DAMAGED), "{error}");
}

/// Opens the database itself, without the checks.
fn raw(dir: &Path) -> DB {
    DB::open_cf_descriptors(&db_options(false), dir, families(&LogOptions::default())).unwrap()
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
