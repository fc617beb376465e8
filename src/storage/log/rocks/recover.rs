//! Opens a log in RocksDB: reads and checks all of it before anything else happens.

use std::path::Path;

use rocksdb::DB;

use super::options::{CF_ENTRIES, CF_META, db_options, families, read_options};
use super::{KEY_COMMITTED, KEY_PURGED, KEY_STORE, KEY_TIP, KEY_VOTE, RocksLog};
use crate::StorageError;
use crate::log::LogOptions;
use crate::log::batch::Meta;
use crate::log::record::{LogRecord, corrupt, decode_entry, decode_meta, entry_index, entry_key};
use crate::log::recover::{check_bounds, check_store, check_written};
use crate::log::state::{Bounds, State};
use crate::manifest;
use headwater_proto::codec::raft::{LogTip, RaftRecord, StoreId};

/// Opens the database in `dir`, or creates it if there is none and it may be created. `marked` is
/// the last write that was acknowledged.
pub(in crate::log) fn open(
    dir: &Path,
    marked: u64,
    options: &LogOptions,
) -> Result<(RocksLog, State, LogTip), StorageError> {
    // Opening a database for writing drops all records behind a damaged one in the write-ahead log,
    // for good. A log that may hold anything acknowledged is therefore checked through a read-only
    // view first, and only a whole one is opened.
    let existing = super::exists(dir) && (!options.create || marked > 0);
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
                drop(db);
                let tip = LogTip { batch: 1, first: Bounds::default().first.into(), last: None };
                let log = RocksLog::create(dir, options, &Meta::default(), &tip)?;
                let (tip, state) = check(log.db(), dir, marked, options)?;
                return Ok((log, state, tip));
            }
            check(&db, dir, marked, options)?
        }
    };
    Ok((RocksLog::new(db, dir, options), state, tip))
}

/// Reads and checks the whole log.
fn check(db: &DB, dir: &Path, marked: u64, options: &LogOptions) -> Result<(LogTip, State), StorageError> {
    let tip = meta::<LogTip>(db, KEY_TIP)?;
    check_written(dir, tip.map_or(0, |tip| tip.batch), marked)?;
    let Some(tip) = tip else {
        return Err(corrupt(dir.display().to_string(), "the log is empty although this node has been in use"));
    };
    let StoreId(store_id) = meta(db, KEY_STORE)?.ok_or_else(|| corrupt("log/meta/store", "missing"))?;
    check_store(dir, store_id, options)?;
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
