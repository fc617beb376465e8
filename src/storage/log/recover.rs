//! Opens a log: reads and checks all of it before anything else happens.
//!
//! A node that votes or appends with a damaged log can break its promises to other members. So
//! every entry from the start to the tip must be there, whole and in place, and the log must reach
//! at least to the mark. A log that fails any of this is refused and not changed: nothing here
//! repairs or truncates.

use std::path::Path;

use headwater_files as files;
use rocksdb::{DB, ErrorKind, WriteBatch};

use super::mark::DurableMark;
use super::options::{CF_ENTRIES, CF_META, LogOptions, db_options, families, read_options, write_options};
use super::record::{LogRecord, corrupt, decode_entry, decode_meta, encode_meta, entry_index, entry_key};
use super::state::{Bounds, State};
use super::{KEY_COMMITTED, KEY_PURGED, KEY_STORE, KEY_TIP, KEY_VOTE};
use crate::StorageError;
use crate::error::DAMAGED;
use crate::manifest;
use headwater_proto::codec::raft::{LogId, LogTip, RaftRecord, StoreId};

/// A log that passed every check, open for writing.
pub(super) struct Recovered {
    pub(super) db: DB,
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
    if !options.create && !dir.join("CURRENT").exists() {
        return Err(corrupt(dir.display().to_string(), "the log is gone, votes and entries with it"));
    }
    // Opening a database for writing drops all records behind a damaged one in the write-ahead log,
    // for good. A log that may hold anything acknowledged is therefore checked through a read-only
    // view first, and only a whole one is opened.
    let existing = dir.join("CURRENT").exists() && (!options.create || marked > 0);
    let checked = if existing {
        manifest::check(dir)?;
        let db = DB::open_cf_descriptors_read_only(&db_options(false), dir, families(options), false)?;
        Some(check(&db, dir, marked, options)?)
    } else {
        None
    };
    manifest::check(dir)?;
    let db = DB::open_cf_descriptors(&db_options(options.create), dir, families(options))?;
    let (tip, state) = match checked {
        Some((tip, state)) if meta::<LogTip>(&db, KEY_TIP)? == Some(tip) => (tip, state),
        Some(_) => return Err(corrupt(dir.display().to_string(), "two looks at it differ")),
        None => {
            if meta::<LogTip>(&db, KEY_TIP)?.is_none() {
                create(&db, options)?;
            }
            check(&db, dir, marked, options)?
        }
    };
    Ok(Recovered { db, mark, state, tip })
}

/// Reads and checks the whole log.
fn check(db: &DB, dir: &Path, marked: u64, options: &LogOptions) -> Result<(LogTip, State), StorageError> {
    let tip = meta::<LogTip>(db, KEY_TIP)?;
    let written = tip.map_or(0, |tip| tip.batch);
    if written < marked {
        return Err(corrupt(
            dir.display().to_string(),
            format!("the log ends at write {written} and had acknowledged write {marked}: acknowledged data is lost",),
        ));
    }
    let Some(tip) = tip else {
        return Err(corrupt(dir.display().to_string(), "the log is empty although this node has been in use"));
    };
    check_store(db, dir, options)?;
    let mut state = State {
        bounds: Bounds::of(&tip),
        purged: meta(db, KEY_PURGED)?,
        vote: meta(db, KEY_VOTE)?,
        committed: meta(db, KEY_COMMITTED)?,
        ..State::default()
    };
    read_entries(db, &mut state, options.tail_bytes_max)?;
    check_bounds(&state)?;
    Ok((tip, state))
}

/// Writes the first batch of a new log.
fn create(db: &DB, options: &LogOptions) -> Result<(), StorageError> {
    let tip = LogTip { batch: 1, first: Bounds::default().first.into(), last: None };
    let meta = db.cf_handle(CF_META).expect("invariant: opened with this family");
    let mut batch = WriteBatch::default();
    let mut scratch = Vec::new();
    encode_meta(&StoreId(options.store_id), &mut scratch);
    batch.put_cf(meta, KEY_STORE, &scratch);
    encode_meta(&tip, &mut scratch);
    batch.put_cf(meta, KEY_TIP, &scratch);
    Ok(db.write_opt(batch, &write_options(!options.unsafe_no_fsync))?)
}

fn check_store(db: &DB, dir: &Path, options: &LogOptions) -> Result<(), StorageError> {
    let found = meta::<StoreId>(db, KEY_STORE)?.ok_or_else(|| corrupt("log/meta/store", "missing"))?;
    if found.0 == options.store_id {
        return Ok(());
    }
    Err(StorageError::WrongDirectory {
        path: dir.into(),
        detail: format!(
            "the log belongs to store {:016x} and the data directory to store {:016x}: put back the log that was created \
             with this directory; if there is none, {DAMAGED}",
            found.0, options.store_id
        ),
    })
}

fn meta<T: RaftRecord>(db: &DB, key: &str) -> Result<Option<T>, StorageError> {
    let family = db.cf_handle(CF_META).expect("invariant: opened with this family");
    db.get_pinned_cf(family, key)?.map(|stored| decode_meta(key, &stored)).transpose()
}

/// Reads and checks every entry that is not purged, and keeps the newest ones in memory.
fn read_entries(db: &DB, state: &mut State, tail_bytes_max: usize) -> Result<(), StorageError> {
    let family = db.cf_handle(CF_ENTRIES).expect("invariant: opened with this family");
    let (first, end) = (state.bounds.first, state.bounds.end());
    state.durable_end = end;
    let mut cursor = db.raw_iterator_cf_opt(family, read_options(u64::MAX));
    cursor.seek(entry_key(first));
    let mut wanted = first;
    while let Some((key, value)) = cursor.item() {
        let index = entry_index(key)?;
        if index != wanted || index >= end {
            return Err(out_of_place(wanted, end, Some(index)));
        }
        let record = decode_entry(index, value)?;
        if index + 1 == end && state.bounds.last != Some(record.id()) {
            let detail = format!("last entry is {:?} and should be {:?}", record.id(), state.bounds.last);
            return Err(corrupt("log/entries", detail));
        }
        state.tail_bytes += LogRecord::cost_bytes(&record);
        state.tail.push_back(record);
        state.evict(tail_bytes_max);
        wanted += 1;
        cursor.next();
    }
    cursor.status()?;
    if wanted != end {
        return Err(out_of_place(wanted, end, None));
    }
    Ok(())
}

fn out_of_place(wanted: u64, end: u64, found: Option<u64>) -> StorageError {
    let found = found.map_or("nothing".into(), |index| format!("entry {index}"));
    let wanted = if wanted < end { format!("entry {wanted}") } else { "the end of the log".into() };
    corrupt("log/entries", format!("there is {found} where {wanted} should be"))
}

fn check_bounds(state: &State) -> Result<(), StorageError> {
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
