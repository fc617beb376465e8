//! Opens a log: reads and checks all of it before anything else happens.
//!
//! A node that votes or appends with a damaged log can break its promises to other members. So
//! every entry from the start to the tip must be there, whole and in place, and the log must reach
//! at least to the mark. A log that fails any of this is refused and not changed: nothing here
//! repairs or truncates.

use std::path::Path;

use headwater_files as files;
use rocksdb::ErrorKind;

use super::disk::{Disk, LogForm};
use super::mark::DurableMark;
use super::options::LogOptions;
use super::record::corrupt;
use super::state::State;
use super::{rocks, segments};
use crate::StorageError;
use crate::error::DAMAGED;
use headwater_proto::codec::raft::{LogId, LogTip};

/// A log that passed every check, open for writing.
pub(super) struct Recovered {
    pub(super) disk: Disk,
    pub(super) mark: DurableMark,
    pub(super) state: State,
    pub(super) tip: LogTip,
}

pub(super) fn open(dir: &Path, options: &LogOptions) -> Result<Recovered, StorageError> {
    checked_open(dir, options).map_err(|error| match error {
        StorageError::RocksDb(error) if error.kind() == ErrorKind::Corruption => {
            corrupt(dir.display().to_string(), format!("{error}; {DAMAGED}"))
        }
        // Any kind of missing or altered record.
        StorageError::Corrupt { location, detail } => corrupt(location, format!("{detail}; {DAMAGED}")),
        other => other,
    })
}

fn checked_open(dir: &Path, options: &LogOptions) -> Result<Recovered, StorageError> {
    files::create_dir(dir)?;
    let (mark, marked) = DurableMark::open(dir)?;
    let is_missing = !rocks::exists(dir) && LogForm::of(dir) == LogForm::RocksDb;
    if is_missing && !options.create {
        return Err(corrupt(dir.display().to_string(), "the log is gone, votes and entries with it"));
    }
    if is_missing {
        check_written(dir, 0, marked)?;
    }
    let form = if is_missing { options.form } else { LogForm::of(dir) };
    let (disk, state, tip) = match form {
        LogForm::RocksDb => {
            let (log, state, tip) = rocks::recover::open(dir, marked, options)?;
            (Disk::RocksDb(log), state, tip)
        }
        LogForm::Segments => {
            // The rename that made it the log may not be durable yet, and the other form goes.
            files::sync_dir(dir)?;
            let (log, state, tip) = segments::open(dir, marked, options)?;
            (Disk::Segments(log), state, tip)
        }
    };
    // What an interrupted conversion has left.
    segments::remove_drafts(dir)?;
    if form == LogForm::Segments {
        rocks::remove(dir)?;
    }
    Ok(Recovered { disk, mark, state, tip })
}

/// An error if the log ends before the last write that was acknowledged.
pub(super) fn check_written(dir: &Path, written: u64, marked: u64) -> Result<(), StorageError> {
    if written >= marked {
        return Ok(());
    }
    let detail =
        format!("the log ends at write {written} and had acknowledged write {marked}: acknowledged data is lost");
    Err(corrupt(dir.display().to_string(), detail))
}

/// An error if the log is of another store than the data directory.
pub(super) fn check_store(dir: &Path, found: u64, options: &LogOptions) -> Result<(), StorageError> {
    if found == options.store_id {
        return Ok(());
    }
    Err(StorageError::WrongDirectory {
        path: dir.into(),
        detail: format!(
            "the log belongs to store {found:016x} and the data directory to store {:016x}: put back the log that was created \
             with this directory; if there is none, {DAMAGED}",
            options.store_id
        ),
    })
}

/// An error if the purged or the committed id lies outside of the log.
pub(super) fn check_bounds(state: &State) -> Result<(), StorageError> {
    let bounds = state.bounds;
    let last_index = bounds.last.map(|last| last.index);
    let purged_beyond =
        |purged: LogId| bounds.first <= purged.index.get() || last_index.is_none_or(|last| last < purged.index);
    if state.purged.is_some_and(purged_beyond) {
        let detail = format!("purged is {:?} and the log is {bounds:?}", state.purged);
        return Err(corrupt("log/meta/purged", detail));
    }
    if state.committed.is_some_and(|committed| Some(committed.index) > last_index) {
        let detail = format!("committed is {:?} and the log is {bounds:?}", state.committed);
        return Err(corrupt("log/meta/committed", detail));
    }
    Ok(())
}
