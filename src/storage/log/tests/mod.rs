//! The log on real files: its promises while it runs (`running`), after a restart or a crash
//! (`crash`), when it is inspected (`inspect`), against a model (`model`), and as a process that is
//! killed or runs out of disk (`process`).

mod crash;
mod inspect;
mod model;
mod process;
mod running;

use std::fs;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};

use bytes::Bytes;
use rocksdb::FlushOptions;

use super::options::{CF_ENTRIES, CF_META};
use super::*;
use headwater_types::{NodeId, Term};

const STORE: u64 = 77;

fn options() -> LogOptions {
    LogOptions { store_id: STORE, ..LogOptions::default() }
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

fn flush(log: &LogDb) {
    let shared = log.shared();
    let families = [shared.family(CF_ENTRIES), shared.family(CF_META)];
    shared.db.flush_cfs_opt(&[&families[0], &families[1]], &FlushOptions::default()).unwrap();
}

/// The files of a running log as a crash of the process would leave them now. The manifest is
/// copied before the files that it names, and none of those is deleted meanwhile; later changes are
/// in the write-ahead log.
fn crash_copy(log: &LogDb, to: &Path) {
    let db = &log.shared().db;
    db.disable_file_deletions().unwrap();
    copy_dir(&log.shared().dir, to);
    db.enable_file_deletions().unwrap();
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
            match fs::copy(from.join(&name), to.join(&name)) {
                // It was obsolete before deletions were stopped. A needed file that is absent fails
                // the next opening.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }
}

/// The error of opening the log in `dir`, which must be refused.
fn refused(dir: &Path, options: LogOptions) -> String {
    match LogDb::open(dir, options) {
        Err(error @ (StorageError::Corrupt { .. } | StorageError::WrongDirectory { .. })) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(log) => panic!("opened with {:?}", ids(&log)),
    }
}
