//! Reads a log in RocksDB without changing it, and lists all damage.

use std::ops::ControlFlow;
use std::path::Path;

use rocksdb::{DB, DBRawIterator, DBRecoveryMode};

use super::options::{CF_ENTRIES, CF_META, db_options, families, read_options};
use super::{KEY_COMMITTED, KEY_PURGED, KEY_STORE, KEY_TIP, KEY_VOTE};
use crate::damage::DamageList;
use crate::log::LogOptions;
use crate::log::inspect::{LogFacts, run};
use crate::log::record::{LogRecord, decode_entry, decode_meta, entry_index, entry_key};
use crate::manifest;
use crate::silent::silence;
use headwater_proto::codec::raft::{LogTip, RaftRecord, StoreId};
use headwater_types::LogIndex;

/// A log in RocksDB that is being read.
pub(in crate::log) struct RocksInspector {
    /// `None` if it could not be opened.
    db: Option<DB>,
}

impl RocksInspector {
    /// Opens the log in `dir` and reads its facts.
    pub(in crate::log) fn open(dir: &Path, marked: Option<u64>, damage: &mut DamageList) -> (Self, LogFacts) {
        let db = open_database(dir, marked, damage);
        let mut facts = LogFacts { marked, ..LogFacts::default() };
        if let Some(db) = &db {
            let tip: Option<LogTip> = meta(db, KEY_TIP, damage);
            facts = LogFacts {
                store_id: meta(db, KEY_STORE, damage).map(|StoreId(id)| id),
                vote: meta(db, KEY_VOTE, damage),
                committed: meta(db, KEY_COMMITTED, damage),
                purged: meta(db, KEY_PURGED, damage),
                first: tip.map(|tip| tip.first),
                last: tip.and_then(|tip| tip.last),
                written: tip.map(|tip| tip.batch),
                marked,
            };
            if tip.is_none() {
                damage.add("log/meta/tip", "missing: the end of the log is not known");
            }
        }
        (Self { db }, facts)
    }

    /// Calls `visit` with the entries from `from` on; see
    /// [`LogInspector::read`](crate::log::LogInspector::read). Reads nothing if the database could
    /// not be opened.
    pub(in crate::log) fn read(
        &self,
        facts: &LogFacts,
        damage: &mut DamageList,
        from: LogIndex,
        mut visit: impl FnMut(LogRecord) -> ControlFlow<()>,
    ) {
        let Some(db) = &self.db else { return };
        let family = db.cf_handle(CF_ENTRIES).expect("invariant: opened with this family");
        let end = facts.last.map_or(u64::MAX, |last| last.index.get().saturating_add(1));
        let first = facts.first.or(facts.purged.map(|purged| purged.index.next()));
        let mut wanted = first.unwrap_or(LogIndex::ZERO).max(from).get();
        let mut cursor = db.raw_iterator_cf_opt(family, read_options(u64::MAX));
        cursor.seek(entry_key(wanted));
        loop {
            if let Some((key, value)) = cursor.item() {
                let index = match entry_index(key) {
                    Ok(index) => index,
                    Err(error) => {
                        damage.add_error("log/entries", &error);
                        cursor.next();
                        continue;
                    }
                };
                if index >= end {
                    damage.add(format!("log/entries/{index}"), "lies behind the end of the log");
                    return;
                }
                // Without a first index, the log begins with its first entry.
                if index > wanted && first.is_some() {
                    damage.add(run(wanted, index), "missing");
                }
                match decode_entry(index, value) {
                    Ok(record) => {
                        if index + 1 == end && facts.last != Some(record.id()) {
                            damage.add(
                                format!("log/entries/{index}"),
                                format!(
                                    "the last entry is of term {}, and of another one by log/meta/tip",
                                    record.term
                                ),
                            );
                        }
                        if visit(record).is_break() {
                            return;
                        }
                    }
                    Err(error) => damage.add_error(format!("log/entries/{index}"), &error),
                }
                wanted = index + 1;
                cursor.next();
                continue;
            }
            match cursor.status() {
                Ok(()) => break,
                Err(error) => match readable_from(db, wanted) {
                    Some((next_cursor, next)) => {
                        damage.add(run(wanted, next), error.to_string());
                        (cursor, wanted) = (next_cursor, next);
                    }
                    None => {
                        damage.add(format!("log/entries from {wanted} on"), error.to_string());
                        return;
                    }
                },
            }
        }
        if wanted < end && facts.last.is_some() {
            damage.add(run(wanted, end), "missing");
        }
    }
}

/// A cursor at a readable entry after `unreadable`, and the index that the cursor was moved to.
/// Found by bisection: it is the first readable entry if the unreadable ones are one run. `None` if
/// none was found.
fn readable_from(db: &DB, unreadable: u64) -> Option<(DBRawIterator<'_>, u64)> {
    let family = db.cf_handle(CF_ENTRIES).expect("invariant: opened with this family");
    let reads = |index: u64| {
        // A cursor that has met damage finds nothing any more.
        let mut cursor = db.raw_iterator_cf_opt(family, read_options(u64::MAX));
        cursor.seek(entry_key(index));
        cursor.valid().then_some(cursor)
    };
    let mut step = 1u64;
    let mut readable = loop {
        let index = unreadable.checked_add(step)?;
        if reads(index).is_some() {
            break index;
        }
        step = step.checked_mul(2)?;
    };
    let mut failing = unreadable + step / 2;
    while failing + 1 < readable {
        let middle = failing + (readable - failing) / 2;
        if reads(middle).is_some() { readable = middle } else { failing = middle }
    }
    reads(readable).map(|cursor| (cursor, readable))
}

/// Opens the log read-only, with the checks of a node. If that fails or shows less than was
/// acknowledged, opens it without RocksDB's own checks, for all that is still readable. `None` if
/// that fails too.
fn open_database(dir: &Path, marked: Option<u64>, damage: &mut DamageList) -> Option<DB> {
    if !dir.join("CURRENT").is_file() {
        damage.add(format!("{}", dir.display()), "there is no log, or the file CURRENT in it is gone");
        return None;
    }
    if let Err(error) = manifest::check(dir) {
        damage.add(format!("{}", dir.display()), format!("{error}: nothing can be read"));
        return None;
    }
    let open = |is_strict: bool| {
        let mut options = db_options(false);
        silence(&mut options);
        if !is_strict {
            options.set_paranoid_checks(false);
            options.set_track_and_verify_wals_in_manifest(false);
            options.set_wal_recovery_mode(DBRecoveryMode::SkipAnyCorruptedRecord);
        }
        DB::open_cf_descriptors_read_only(&options, dir, families(&LogOptions::default()), false)
    };
    match open(true) {
        Ok(db) => {
            let mut ignored = DamageList::default();
            let written = meta::<LogTip>(&db, KEY_TIP, &mut ignored).map_or(0, |tip| tip.batch);
            let Some(marked) = marked.filter(|marked| written < *marked) else { return Some(db) };
            damage.add(
                "log, write-ahead files (*.log)",
                format!(
                    "only writes up to {written} can be replayed in order, and write {marked} was acknowledged: a record \
                     behind {written} is damaged, or a file is gone"
                ),
            );
        }
        Err(error) => damage.add("log", error.to_string()),
    }
    match open(false) {
        Ok(db) => Some(db),
        Err(error) => {
            damage.add("log", format!("nothing can be read, not even without checks: {error}"));
            None
        }
    }
}

fn meta<T: RaftRecord>(db: &DB, key: &str, damage: &mut DamageList) -> Option<T> {
    let family = db.cf_handle(CF_META).expect("invariant: opened with this family");
    let stored = match db.get_pinned_cf(family, key) {
        Ok(stored) => stored?,
        Err(error) => {
            damage.add(format!("log/meta/{key}"), error.to_string());
            return None;
        }
    };
    match decode_meta(key, &stored) {
        Ok(record) => Some(record),
        Err(error) => {
            damage.add_error(format!("log/meta/{key}"), &error);
            None
        }
    }
}
