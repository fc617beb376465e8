//! Conversions between the forms of the log: nothing is lost, whenever they end, and both forms
//! never count together.

use super::crash::{MUTATIONS, contents};
use super::*;

in_both_forms! {
    a_converted_log_has_the_same_content,
    a_crash_leaves_one_of_the_forms,
    readers_and_writers_go_on_during_conversions,
    what_an_interrupted_conversion_has_left_is_removed,
    a_conversion_that_fails_leaves_the_log_as_it_was,
}

fn other() -> LogForm {
    if form() == LogForm::RocksDb { LogForm::Segments } else { LogForm::RocksDb }
}

fn convert(log: &LogDb, to: LogForm) {
    durably(|done| log.convert(to, done)).unwrap();
    assert_eq!(log.form(), to);
}

/// The forms of which there are files.
fn forms(dir: &Path) -> Vec<LogForm> {
    let exists = |form: &LogForm| match form {
        LogForm::RocksDb => dir.join("CURRENT").exists(),
        LogForm::Segments => dir.join("segments").exists(),
    };
    [LogForm::RocksDb, LogForm::Segments].into_iter().filter(exists).collect()
}

fn a_converted_log_has_the_same_content() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("log");
    let mut log = open(&dir);
    let mut now = form();
    for (name, mutate) in
        [("nothing", (|_| Ok(())) as fn(&LogDb) -> Result<(), io::Error>)].into_iter().chain(MUTATIONS)
    {
        mutate(&log).unwrap();
        let wanted = contents(&log);
        for _ in 0..2 {
            now = if now == LogForm::RocksDb { LogForm::Segments } else { LogForm::RocksDb };
            convert(&log, now);
            assert_eq!(contents(&log), wanted, "{name}: converted to {now}");
            assert_eq!(forms(&dir), [now], "{name}");
            convert(&log, now);
            drop(log);
            log = LogDb::open(&dir, without_tail()).unwrap();
            assert_eq!(log.form(), now, "a log keeps its form");
            assert_eq!(contents(&log), wanted, "{name}: converted to {now}, after a restart");
        }
    }
}

fn a_crash_leaves_one_of_the_forms() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("log");
    let log = open(&dir);
    for (_, mutate) in MUTATIONS.into_iter().take(10) {
        mutate(&log).unwrap();
    }
    let wanted = contents(&log);
    let before = temp.path().join("before");
    crash_copy(&log, &before);
    convert(&log, other());
    let after = temp.path().join("after");
    crash_copy(&log, &after);
    drop(log);
    // Before the rename that makes the new form the log: the new form is a draft beside the old
    // one. After it: files of the old form are still there.
    let (without, with) = if form() == LogForm::RocksDb { (&before, &after) } else { (&after, &before) };
    let early = temp.path().join("early");
    copy_dir(without, &early);
    copy_dir(&with.join("segments"), &early.join("segments.tmp"));
    copy_dir(&with.join("segments"), &early.join("segments.old"));
    let late = temp.path().join("late");
    copy_dir(without, &late);
    copy_dir(with, &late);
    for (dir, form) in [(&early, LogForm::RocksDb), (&late, LogForm::Segments)] {
        let log = open(dir);
        assert_eq!((log.form(), contents(&log)), (form, wanted.clone()));
        drop(log);
        assert_eq!(forms(dir), [form], "the other one is removed");
        assert!(!dir.join("segments.tmp").exists() && !dir.join("segments.old").exists());
    }
}

fn readers_and_writers_go_on_during_conversions() {
    let temp = tempfile::tempdir().unwrap();
    let log = LogDb::open(temp.path(), LogOptions { tail_bytes_max: 500, ..options() }).unwrap();
    append(&log, records(1, 0..100));
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let first = log.state().unwrap().last_purged.map_or(0, |purged| purged.index.get() + 1);
                let found = read(&log, first..u64::MAX);
                assert!(found.windows(2).all(|pair| pair[0].index.next() == pair[1].index));
                reads += found.len();
            }
            reads
        });
        let (mut now, mut end, mut converted) = (form(), 100, Vec::new());
        for round in 0..12_u64 {
            now = if now == LogForm::RocksDb { LogForm::Segments } else { LogForm::RocksDb };
            let (done, result) = waiter();
            log.append(records(1, end..end + 50), |result| result.unwrap());
            log.convert(now, done);
            log.append(records(1, end + 50..end + 100), |result| result.unwrap());
            log.purge(id(1, round * 80), |result| result.unwrap());
            converted.push(result);
            end += 100;
        }
        for result in converted {
            result.recv().unwrap().unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
    let wanted = contents(&log);
    assert_eq!((wanted.records.len(), wanted.state.last), (1300 - 881, Some(id(1, 1299))));
    drop(log);
    assert_eq!(contents(&open(temp.path())), wanted);
}

fn what_an_interrupted_conversion_has_left_is_removed() {
    let temp = tempfile::tempdir().unwrap();
    let log = open(temp.path());
    append(&log, records(1, 0..3));
    drop(log);
    let draft = temp.path().join("segments.tmp");
    fs::create_dir(&draft).unwrap();
    fs::write(draft.join("0000000000000001.segment"), b"half a log").unwrap();
    assert_eq!(ids(&open(temp.path())).len(), 3);
    assert!(!draft.exists());
    if form() == LogForm::Segments {
        // A write-ahead file without its database.
        let other = temp.path().join("other");
        let log = LogDb::open(&other, LogOptions { form: LogForm::RocksDb, ..options() }).unwrap();
        append(&log, records(9, 0..9));
        drop(log);
        let left = newest_file_of(LogForm::RocksDb, &other);
        fs::rename(&left, temp.path().join("000099.log")).unwrap();
        fs::remove_dir_all(other).unwrap();
        assert_eq!(ids(&open(temp.path())).len(), 3);
        assert!(!temp.path().join("000099.log").exists());
    }
    // A draft that is there nevertheless is replaced.
    let log = open(temp.path());
    fs::create_dir(&draft).unwrap();
    fs::write(draft.join("0000000000000002.segment"), b"half a log").unwrap();
    convert(&log, other());
    convert(&log, form());
    assert_eq!(ids(&log).len(), 3);
}

fn a_conversion_that_fails_leaves_the_log_as_it_was() {
    let temp = tempfile::tempdir().unwrap();
    let log = open(temp.path());
    append(&log, records(1, 0..9));
    // In the way of the draft, or of the database.
    let (obstacle, is_folder) = match form() {
        LogForm::RocksDb => (temp.path().join("segments.tmp"), false),
        LogForm::Segments => (temp.path().join("LOCK"), true),
    };
    if is_folder {
        fs::create_dir(&obstacle).unwrap()
    } else {
        fs::write(&obstacle, "").unwrap()
    }
    let error = durably(|done| log.convert(other(), done)).unwrap_err();
    assert!(log.failure().is_none(), "{error}");
    assert_eq!((log.form(), forms(temp.path())), (form(), vec![form()]));
    append(&log, records(1, 9..12));
    assert_eq!(ids(&log).len(), 12);
    if is_folder {
        fs::remove_dir(&obstacle).unwrap()
    } else {
        fs::remove_file(&obstacle).unwrap()
    }
    convert(&log, other());
    drop(log);
    assert_eq!(ids(&open(temp.path())).len(), 12);
}
