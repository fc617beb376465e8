//! Promises of the log after a restart, a crash, and damage to its files.

use super::inspect::inspect;
use super::*;
use crate::error::DAMAGED;

in_both_forms! {
    every_mutation_survives_a_restart_and_a_crash,
    a_torn_tail_leaves_whole_batches_and_never_hides_a_loss,
    a_flipped_bit_in_front_of_acknowledged_batches_is_noticed,
    a_log_that_vanished_is_not_a_new_log,
    a_log_of_another_store_is_refused,
    the_committed_id_is_never_ahead_of_the_log_on_disk,
}

/// Everything that a restart must bring back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) records: Vec<LogRecord>,
    pub(super) state: LogState,
    vote: Option<Vote>,
    committed: Option<LogId>,
}

pub(super) fn contents(log: &LogDb) -> Contents {
    Contents {
        records: read(log, 0..u64::MAX),
        state: log.state().unwrap(),
        vote: log.vote().unwrap(),
        committed: log.committed().unwrap(),
    }
}

pub(super) type Mutation = (&'static str, fn(&LogDb) -> Result<(), io::Error>);

/// One change of every kind, and the combinations that are easy to get wrong.
pub(super) const MUTATIONS: [Mutation; 13] = [
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

fn mark(dir: &Path) -> PathBuf {
    dir.join("headwater-mark")
}

/// Cuts the write-ahead log at every seventh byte. The rest is always a prefix of whole batches;
/// and once a batch was acknowledged, a log without it is refused.
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
    let len = written_bytes(&newest_file(&image)) as u64;
    let cut = temp.path().join("cut");
    let (mut found, mut last) = (0, None);
    // The header of the first segment is durable before the log has its name.
    let least = if form() == LogForm::Segments { 512 } else { 0 };
    for keep in (least..=len).rev().step_by(7) {
        let torn = || {
            fs::remove_dir_all(&cut).unwrap_or_default();
            copy_dir(&image, &cut);
            fs::OpenOptions::new().write(true).open(newest_file(&cut)).unwrap().set_len(keep).unwrap();
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

fn a_flipped_bit_in_front_of_acknowledged_batches_is_noticed() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("log");
    let log = open(&dir);
    for index in 0..20 {
        append(&log, records(1, index..index + 1));
    }
    let image = temp.path().join("image");
    crash_copy(&log, &image);
    let good = fs::read(newest_file(&image)).unwrap();
    let flipped = temp.path().join("flipped");
    // A damaged header has tests of its own.
    let first = if form() == LogForm::Segments { 512 } else { 0 };
    for at in (first..written_bytes(&newest_file(&image))).step_by(97) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        fs::remove_dir_all(&flipped).unwrap_or_default();
        copy_dir(&image, &flipped);
        fs::write(newest_file(&flipped), bad).unwrap();
        let before = data_files(&flipped);
        let error = refused(&flipped, options());
        assert!(error.contains("acknowledged data is lost"), "byte {at} of {}: {error}", good.len());
        assert!(error.contains(DAMAGED), "it must say what to do: {error}");
        // A refusal is not a repair: data that can be saved is still there.
        assert!(data_files(&flipped) == before, "byte {at}: a refused log was changed");
        assert!(!inspect(&flipped).1.is_empty(), "byte {at}: an inspection must find it, too");
    }
}

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
    // The log is gone and the mark is not.
    for path in files_in(&dir) {
        if path != mark(&dir) {
            fs::remove_file(path).unwrap();
        }
    }
    if form() == LogForm::Segments {
        assert!(refused(&dir, options()).contains("there is no segment"));
        fs::remove_dir(dir.join("segments")).unwrap();
    }
    assert!(refused(&dir, in_use()).contains("the log is gone"));
    assert!(refused(&dir, options()).contains("acknowledged data is lost"));
}

fn a_log_of_another_store_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    drop(open(temp.path()));
    let error = refused(temp.path(), LogOptions { store_id: 78, ..options() });
    assert!(error.contains("store 000000000000004d") && error.contains("store 000000000000004e"), "{error}");
    open(temp.path());
}

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
