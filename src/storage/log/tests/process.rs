//! The log in a process of its own that is killed, or with a disk that refuses a write. The child
//! is this test binary again; a variable selects its part.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, Rlimit, setrlimit};

use super::*;

in_both_forms! {
    killed_in_the_middle_of_large_appends,
    a_failed_write_ends_the_log_and_loses_nothing,
}

const ROLE: &str = "HEADWATER_LOG_TEST_ROLE";
const DIR: &str = "HEADWATER_LOG_TEST_DIR";
const IN_FORM: &str = "HEADWATER_LOG_TEST_FORM";
/// Entries in one append of the child that is killed.
const APPEND_ENTRIES: u64 = 4096;

/// Plays the part of the child; as an ordinary test it does nothing.
#[test]
fn child() {
    let Ok(role) = env::var(ROLE) else { return };
    let dir = PathBuf::from(env::var(DIR).unwrap());
    let is_segments = env::var(IN_FORM).unwrap() == LogForm::Segments.to_string();
    FORM.set(if is_segments { LogForm::Segments } else { LogForm::RocksDb });
    match role.as_str() {
        "append for ever" => append_for_ever(&dir),
        "run into a limit" => run_into_a_limit(&dir),
        other => panic!("no such part: {other}"),
    }
}

fn start(role: &str, dir: &Path) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["log::tests::process::child", "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(DIR, dir)
        .env(IN_FORM, form().to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    (child, lines)
}

/// Large appends, truncations and votes, several under way at a time. Prints each vote and each end
/// of a large append once it is acknowledged.
fn append_for_ever(dir: &Path) {
    let log = open(dir);
    let mut next = log.state().unwrap().last.map_or(0, |last| last.index.get() + 1);
    loop {
        let end = next + APPEND_ENTRIES;
        log.save_vote(vote(end), move |result| {
            result.unwrap();
            println!("vote {end}");
        });
        // Written and replaced at once, so that a crash may fall between.
        log.append(records(1, next..next + 10), |result| result.unwrap());
        log.truncate_after(next.checked_sub(1).map(LogIndex), |result| result.unwrap());
        let (done, result) = waiter();
        log.append(records(2, next..end), move |outcome| {
            println!("acknowledged {end}");
            done(outcome);
        });
        if (next / APPEND_ENTRIES).is_multiple_of(3) {
            result.recv().unwrap().unwrap();
        }
        next = end;
    }
}

fn killed_in_the_middle_of_large_appends() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("log");
    for round in 0..6_usize {
        let (mut child, lines) = start("append for ever", &dir);
        let (mut acknowledged, mut voted, mut appends) = (0, 0, 0);
        for line in lines.lines() {
            let line = line.unwrap();
            match line.rsplit_once(' ') {
                Some((text, number)) if text.ends_with("acknowledged") => {
                    acknowledged = number.parse().unwrap();
                    appends += 1;
                }
                Some((text, number)) if text.ends_with("vote") => voted = number.parse().unwrap(),
                _ => {}
            }
            if appends == 1 + round * 2 {
                child.kill().unwrap();
                appends += 1;
            }
        }
        child.wait().unwrap();
        assert!(acknowledged > 0, "the child did nothing");

        let log = open(&dir);
        let found = ids(&log);
        let end = found.len() as u64;
        assert!(end >= acknowledged, "{acknowledged} entries were acknowledged and {end} are there");
        let vote_found = log.vote().unwrap().unwrap().term.get();
        assert!(vote_found >= voted, "vote {voted} was acknowledged and {vote_found} is there");
        // An append is there as a whole or not at all. If the crash fell between the short append
        // and the large one, ten entries of term 1 are left.
        let rest = end % APPEND_ENTRIES;
        assert!(rest == 0 || rest == 10, "{rest} entries of an append");
        for (index, found) in (0..).zip(&found) {
            let term = if rest == 10 && index >= end - 10 { 1 } else { 2 };
            assert_eq!(*found, id(term, index));
        }
        // The next round starts at the boundary of an append.
        durably(|done| log.truncate_after((end - rest).checked_sub(1).map(LogIndex), done)).unwrap();
    }
}

/// A log in `dir` under a file size limit, which is as near to a full disk as a test gets without
/// one. Appends until a write fails. Asserts that the log then refuses everything.
fn run_into_a_limit(dir: &Path) {
    let failures = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&failures);
    let on_failure: OnFailure = Arc::new(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    // Segments that are longer than the limit.
    let options = LogOptions { on_failure: Some(on_failure), segment_bytes: 1 << 20, ..options() };
    let log = LogDb::open(dir, options).unwrap();
    // Without a handler the signal would end the process before the write can fail.
    signal_hook::flag::register(rustix::process::Signal::XFSZ.as_raw(), Arc::default()).unwrap();
    let limit = Rlimit { current: Some(512 * 1024), maximum: Some(512 * 1024) };
    setrlimit(Resource::Fsize, limit).unwrap();
    let mut next = 0;
    let error = loop {
        match durably(|done| log.append(records(1, next..next + 100), done)) {
            Ok(()) => next += 100,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("poisoned"), "{error}");
    assert_eq!(failures.load(Ordering::SeqCst), 1);
    // Nothing is retried, even though a small write might fit again.
    for result in [
        durably(|done| log.save_vote(vote(7), done)),
        durably(|done| log.append(records(1, next + 100..next + 101), done)),
        durably(|done| log.truncate_after(None, done)),
    ] {
        assert!(result.unwrap_err().to_string().contains("poisoned"));
    }
    assert!(matches!(log.read(LogIndex(0)..LogIndex(1)), Err(StorageError::Poisoned(_))));
    log.close();
    println!("acknowledged {next}");
}

fn a_failed_write_ends_the_log_and_loses_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let (mut child, lines) = start("run into a limit", temp.path());
    let lines: Vec<String> = lines.lines().map(|line| line.unwrap()).collect();
    assert!(child.wait().unwrap().success(), "{lines:?}");
    let acknowledged = lines.iter().find_map(|line| line.rsplit_once("acknowledged ")).unwrap().1;
    let acknowledged: u64 = acknowledged.parse().unwrap();
    assert!(acknowledged > 0);
    let log = open(temp.path());
    let end = ids(&log).len() as u64;
    // The append under way when the write failed may be there or not, but as a whole.
    assert!(end == acknowledged || end == acknowledged + 100, "{end} of {acknowledged}");
    assert_eq!(log.vote().unwrap(), None);
}
