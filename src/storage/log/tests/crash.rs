//! Promises of the log after a restart, a crash, and damage to its files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rocksdb::{ColumnFamily, DB};

use super::super::options::{db_options, families};
use super::super::record::{encode_entry, encode_meta, entry_key};
use super::inspect::inspect;
use super::*;
use crate::error::DAMAGED;

/// Everything that a restart must bring back.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Contents {
    records: Vec<LogRecord>,
    state: LogState,
    vote: Option<Vote>,
    committed: Option<LogId>,
}

fn contents(log: &LogDb) -> Contents {
    Contents {
        records: read(log, 0..u64::MAX),
        state: log.state().unwrap(),
        vote: log.vote().unwrap(),
        committed: log.committed().unwrap(),
    }
}

type Mutation = (&'static str, fn(&LogDb) -> Result<(), io::Error>);

/// One change of every kind, and the combinations that are easy to get wrong.
const MUTATIONS: [Mutation; 13] = [
    ("first vote", |log| durably(|done| log.save_vote(vote(1), done))),
    ("first entry", |log| durably(|done| log.append(records(1, 0..1), done))),
    ("more entries", |log| durably(|done| log.append(records(1, 1..10), done))),
    ("vote changes", |log| durably(|done| log.save_vote(vote(2), done))),
    ("truncate", |log| durably(|done| log.truncate_after(Some(LogIndex(6)), done))),
    ("append after truncate", |log| durably(|done| log.append(records(2, 7..12), done))),
    ("purge", |log| durably(|done| log.purge(id(1, 3), done))),
    ("committed rides along", |log| {
        log.save_committed(Some(id(2, 8))).unwrap();
        durably(|done| log.append(records(2, 12..13), done))
    }),
    ("truncate and append at once", |log| {
        log.truncate_after(Some(LogIndex(9)), |result| result.unwrap());
        durably(|done| log.append(records(3, 10..14), done))
    }),
    ("a large append", |log| durably(|done| log.append(records(3, 14..4110), done))),
    ("purge everything", |log| durably(|done| log.purge(id(3, 4109), done))),
    ("purge beyond the end", |log| durably(|done| log.purge(id(5, 5000), done))),
    ("append after the gap", |log| durably(|done| log.append(records(5, 5001..5003), done))),
];

#[test]
fn every_mutation_survives_a_restart_and_a_crash() {
    for flushed in [false, true] {
        let temp = tempfile::tempdir().unwrap();
        let mut dir = temp.path().join("0");
        let mut log = LogDb::open(&dir, options()).unwrap();
        for (step, (name, mutate)) in MUTATIONS.into_iter().enumerate() {
            mutate(&log).unwrap();
            if flushed {
                flush(&log);
            }
            let wanted = contents(&log);
            let crashed = temp.path().join(format!("{}-crashed", step + 1));
            crash_copy(&log, &crashed);
            assert_eq!(contents(&open(&crashed)), wanted, "{name}: after a crash");
            drop(log);
            assert_eq!(contents(&LogDb::open(&dir, without_tail()).unwrap()), wanted, "{name}: after a restart");
            // Odd steps continue with the crashed files, even steps with the closed ones.
            if step % 2 == 1 {
                dir = crashed;
            }
            log = open(&dir);
        }
    }
}

/// The newest write-ahead file.
fn wal(dir: &Path) -> PathBuf {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|ext| ext == "log")).max().unwrap()
}

fn mark(dir: &Path) -> PathBuf {
    dir.join("headwater-mark")
}

/// Cuts the write-ahead log at every seventh byte. The rest is always a prefix of whole batches;
/// and once a batch was acknowledged, a log without it is refused.
#[test]
fn a_torn_tail_leaves_whole_batches_and_never_hides_a_loss() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("log");
    let log = open(&dir);
    let mut history = vec![contents(&log)];
    for (_, mutate) in MUTATIONS.into_iter().take(8) {
        mutate(&log).unwrap();
        history.push(contents(&log));
    }
    // A batch exists as a whole or not at all.
    let gate = Gate::close(&log);
    history.push(contents(&log));
    let (done, result) = waiter();
    log.append(records(4, 13..19), |_| {});
    log.truncate_after(Some(LogIndex(15)), |_| {});
    log.append(records(6, 16..17), done);
    drop(gate);
    result.recv().unwrap().unwrap();
    history.push(contents(&log));

    let image = temp.path().join("image");
    crash_copy(&log, &image);
    let len = fs::metadata(wal(&image)).unwrap().len();
    let cut = temp.path().join("cut");
    let (mut found, mut last) = (0, None);
    for keep in (0..=len).rev().step_by(7) {
        let torn = || {
            fs::remove_dir_all(&cut).unwrap_or_default();
            copy_dir(&image, &cut);
            fs::OpenOptions::new().write(true).open(wal(&cut)).unwrap().set_len(keep).unwrap();
        };
        if keep < len {
            torn();
            let error = refused(&cut, options());
            assert!(error.contains("acknowledged data is lost"), "{error}");
            assert!(error.contains("move this node's data directory away"), "{error}");
        }
        // Without the mark nothing proves that the tail was acknowledged.
        torn();
        fs::remove_file(mark(&cut)).unwrap();
        let log = open(&cut);
        let now = contents(&log);
        let at = history.iter().rposition(|known| known.records == now.records && known.vote == now.vote);
        let at = at.unwrap_or_else(|| panic!("no prefix of the history: {now:?}"));
        assert!(last.is_none_or(|last| at <= last), "a shorter file holds no more");
        found += usize::from(last != Some(at));
        last = Some(at);
        // And the log can be appended to.
        let end = now.state.last.map_or(0, |last| last.index.get() + 1);
        append(&log, records(9, end..end + 1));
    }
    assert!(found >= history.len() - 2, "only {found} of {} states were seen", history.len());
}

#[test]
fn a_flipped_bit_in_front_of_acknowledged_batches_is_noticed() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("log");
    let log = open(&dir);
    for index in 0..20 {
        append(&log, records(1, index..index + 1));
    }
    let image = temp.path().join("image");
    crash_copy(&log, &image);
    let good = fs::read(wal(&image)).unwrap();
    let flipped = temp.path().join("flipped");
    for at in (0..good.len()).step_by(97) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        fs::remove_dir_all(&flipped).unwrap_or_default();
        copy_dir(&image, &flipped);
        fs::write(wal(&flipped), bad).unwrap();
        let before = data_files(&flipped);
        let error = refused(&flipped, options());
        assert!(error.contains("acknowledged data is lost"), "byte {at} of {}: {error}", good.len());
        assert!(error.contains(DAMAGED), "it must say what to do: {error}");
        // A refusal is not a repair: data that can be saved is still there.
        assert!(data_files(&flipped) == before, "byte {at}: a refused log was changed");
        assert!(!inspect(&flipped).1.is_empty(), "byte {at}: an inspection must find it, too");
    }
}

/// The content of all files but RocksDB's information log.
fn data_files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let diary = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("LOG");
    files.filter(|path| !diary(path)).map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

#[test]
fn a_log_that_vanished_is_not_a_new_log() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("log");
    let in_use = || LogOptions { create: false, ..options() };
    assert!(refused(&dir, in_use()).contains("the log is gone"));
    fs::remove_dir_all(&dir).unwrap();
    let log = open(&dir);
    append(&log, records(1, 0..3));
    drop(log);
    drop(LogDb::open(&dir, in_use()).unwrap());
    // The database is gone and the mark is not.
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        if path != mark(&dir) {
            fs::remove_file(path).unwrap();
        }
    }
    assert!(refused(&dir, in_use()).contains("the log is gone"));
    assert!(refused(&dir, options()).contains("acknowledged data is lost"));
}

#[test]
fn a_log_of_another_store_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    drop(open(temp.path()));
    let error = refused(temp.path(), LogOptions { store_id: 78, ..options() });
    assert!(error.contains("store 000000000000004d") && error.contains("store 000000000000004e"), "{error}");
    open(temp.path());
}

/// Opens the database itself, without the checks.
fn raw(dir: &Path) -> DB {
    DB::open_cf_descriptors(&db_options(false), dir, families(&LogOptions::default())).unwrap()
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

#[test]
fn the_committed_id_is_never_ahead_of_the_log_on_disk() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("log");
    let log = LogDb::open(&dir, LogOptions { batch_bytes_max: 1, ..options() }).unwrap();
    append(&log, records(1, 0..2));
    let gate = Gate::close(&log);
    // Two batches; the committed id belongs to the second one.
    let (first, first_result) = waiter();
    let (copied, copy) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    log.append(records(1, 2..4), move |result| {
        first(result);
        assert!(copied.send(()).is_ok() && wait.recv().is_err());
    });
    log.append(records(1, 4..6), |_| {});
    log.save_committed(Some(id(1, 5))).unwrap();
    drop(gate);
    first_result.recv().unwrap().unwrap();
    copy.recv().unwrap();
    let crashed = temp.path().join("crashed");
    crash_copy(&log, &crashed);
    drop(go_on);
    assert_eq!(open(&crashed).committed().unwrap(), None, "its entry is not there yet");
    drop(log);
    assert_eq!(open(&dir).committed().unwrap(), Some(id(1, 5)));
}
