//! The log on real files: its promises while it runs (`running`), after a restart or a crash
//! (`crash`), when it is inspected (`inspect`), against a model (`model`), and as a process that is
//! killed or runs out of disk (`process`). Most tests run in both forms of the log; what only one
//! form has is in `rocks` and `segments`, and conversions are in `convert`.

mod convert;
mod crash;
mod inspect;
mod model;
mod process;
mod rocks;
mod running;
mod segments;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};

use bytes::Bytes;
use rocksdb::FlushOptions;

use super::disk::Disk;
use super::rocks::{CF_ENTRIES, CF_META, RocksLog};
use super::*;
use headwater_types::{NodeId, Term};

const STORE: u64 = 77;

thread_local! {
    static FORM: Cell<LogForm> = const { Cell::new(LogForm::RocksDb) };
}

/// Makes each of these functions a test, in both forms of the log.
macro_rules! in_both_forms {
    ($($name:ident,)*) => {
        mod in_rocksdb {
            $(#[test] fn $name() { $crate::log::tests::with_form($crate::log::LogForm::RocksDb, super::$name); })*
        }
        mod in_segments {
            $(#[test] fn $name() { $crate::log::tests::with_form($crate::log::LogForm::Segments, super::$name); })*
        }
    };
}
use in_both_forms;

/// Runs `test` with [`options`] of this form.
fn with_form(form: LogForm, test: impl FnOnce()) {
    FORM.set(form);
    test();
}

fn form() -> LogForm {
    FORM.get()
}

/// Segments are so short that most tests make several.
fn options() -> LogOptions {
    LogOptions { store_id: STORE, form: form(), segment_bytes: 4096, ..LogOptions::default() }
}

/// Options without a tail in memory: durable entries are read from disk.
fn without_tail() -> LogOptions {
    LogOptions { tail_bytes_max: 0, ..options() }
}

fn open(dir: &Path) -> LogDb {
    LogDb::open(dir, options()).unwrap()
}

fn id(term: u64, index: u64) -> LogId {
    LogId { term: Term(term), index: LogIndex(index) }
}

fn vote(term: u64) -> Vote {
    Vote { term: Term(term), node_id: NodeId(2), committed: term.is_multiple_of(2) }
}

/// An entry with its term and index as payload.
fn record(term: u64, index: u64) -> LogRecord {
    let payload = Bytes::from(format!("{term}/{index}"));
    LogRecord { term: Term(term), index: LogIndex(index), kind: RecordKind::Normal, payload }
}

fn records(term: u64, range: Range<u64>) -> Vec<LogRecord> {
    range.map(|index| record(term, index)).collect()
}

type Waiter = Receiver<Result<(), io::Error>>;

/// A `done` and the receiver of its result.
fn waiter() -> (impl FnOnce(Result<(), io::Error>) + Send + 'static, Waiter) {
    let (sender, receiver) = mpsc::channel();
    (move |result| sender.send(result).unwrap_or_default(), receiver)
}

/// Calls `change` with a `done`, and waits for its result.
fn durably(change: impl FnOnce(Box<dyn FnOnce(Result<(), io::Error>) + Send>)) -> Result<(), io::Error> {
    let (done, result) = waiter();
    change(Box::new(done));
    result.recv().expect("done runs exactly once")
}

fn append(log: &LogDb, records: Vec<LogRecord>) {
    durably(|done| log.append(records, done)).unwrap();
}

fn read(log: &LogDb, range: Range<u64>) -> Vec<LogRecord> {
    log.read(LogIndex(range.start)..LogIndex(range.end)).unwrap()
}

/// Ids of everything in the log.
fn ids(log: &LogDb) -> Vec<LogId> {
    read(log, 0..u64::MAX).iter().map(LogRecord::id).collect()
}

/// Stops the writer inside a callback until the gate is dropped, so that a test decides which
/// changes become one batch.
struct Gate {
    _open: mpsc::Sender<()>,
}

impl Gate {
    fn close(log: &LogDb) -> Self {
        let (entered, inside) = mpsc::channel();
        let (open, opened) = mpsc::channel::<()>();
        log.save_vote(vote(1), move |_| {
            entered.send(()).unwrap();
            assert!(opened.recv().is_err(), "opened by being dropped");
        });
        inside.recv().unwrap();
        Self { _open: open }
    }
}

/// Calls `act` with the database of a log in RocksDB.
fn with_rocks<T>(log: &LogDb, act: impl FnOnce(&RocksLog) -> T) -> T {
    let disk = Arc::clone(&log.shared().disk.read());
    match &*disk {
        Disk::RocksDb(rocks) => act(rocks),
        Disk::Segments(_) => panic!("not in RocksDB"),
    }
}

/// Moves everything to tables, if the log is in RocksDB.
fn flush(log: &LogDb) {
    if log.form() == LogForm::RocksDb {
        with_rocks(log, |rocks| {
            let families = [rocks.family(CF_ENTRIES), rocks.family(CF_META)];
            rocks.db().flush_cfs_opt(&[&families[0], &families[1]], &FlushOptions::default()).unwrap();
        });
    }
}

/// The files of a running log as a crash of the process would leave them now. The manifest of
/// RocksDB is copied before the files that it names, and none of those is deleted meanwhile; later
/// changes are in the write-ahead log.
fn crash_copy(log: &LogDb, to: &Path) {
    let shared = log.shared();
    let _kept = shared.files.lock();
    match log.form() {
        LogForm::RocksDb => with_rocks(log, |rocks| {
            rocks.db().disable_file_deletions().unwrap();
            copy_dir(&shared.dir, to);
            rocks.db().enable_file_deletions().unwrap();
        }),
        LogForm::Segments => copy_dir(&shared.dir, to),
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    // "CURRENT" and "MANIFEST-…" are the only names that start with these words. They are copied
    // first, and the folder is read again: a table may have been made and named meanwhile.
    for manifest in [true, false] {
        for entry in fs::read_dir(from).unwrap() {
            let name = entry.unwrap().file_name();
            if ["CURRENT", "MANIFEST"].iter().any(|first| name.to_str().unwrap().starts_with(first)) != manifest {
                continue;
            }
            if from.join(&name).is_dir() {
                copy_dir(&from.join(&name), &to.join(&name));
                continue;
            }
            match fs::copy(from.join(&name), to.join(&name)) {
                // It was obsolete before deletions were stopped. A needed file that is absent fails
                // the next opening.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }
}

/// The paths of all files below `dir`, sorted.
fn files_in(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files_in(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn files_with_extension(dir: &Path, extension: &str) -> Vec<PathBuf> {
    files_in(dir).into_iter().filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

/// The content of all files but RocksDB's information log.
fn data_files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let is_diary = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("LOG");
    files_in(dir)
        .into_iter()
        .filter(|path| !is_diary(path))
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect()
}

/// The file that was written to last: RocksDB's write-ahead file, or the last segment.
fn newest_file(dir: &Path) -> PathBuf {
    newest_file_of(form(), dir)
}

fn newest_file_of(form: LogForm, dir: &Path) -> PathBuf {
    let extension = match form {
        LogForm::RocksDb => "log",
        LogForm::Segments => "segment",
    };
    files_with_extension(dir, extension).pop().unwrap()
}

/// Length of a file without the zeros at its end.
fn written_bytes(path: &Path) -> usize {
    fs::read(path).unwrap().iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// The error of opening the log in `dir`, which must be refused.
fn refused(dir: &Path, options: LogOptions) -> String {
    match LogDb::open(dir, options) {
        Err(error @ (StorageError::Corrupt { .. } | StorageError::WrongDirectory { .. })) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(log) => panic!("opened with {:?}", ids(&log)),
    }
}
