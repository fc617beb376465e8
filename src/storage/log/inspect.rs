//! Reads a log without changing it, and lists all damage.
//!
//! Opening a log for use ([`LogDb::open`](super::LogDb::open)) stops at the first damage, because a
//! node must not run with it. An operator needs the whole list, and the readable rest of the log.
//! Invariant: nothing is written, not even RocksDB's information log.

use std::ops::ControlFlow;
use std::path::Path;

use rocksdb::{DB, DBRawIterator, DBRecoveryMode};

use super::mark;
use super::options::{CF_ENTRIES, CF_META, LogOptions, db_options, families, read_options};
use super::record::{LogRecord, decode_entry, decode_meta, entry_index, entry_key};
use super::{KEY_COMMITTED, KEY_PURGED, KEY_STORE, KEY_TIP, KEY_VOTE};
use crate::damage::DamageList;
use crate::manifest;
use crate::silent::silence;
use headwater_proto::codec::raft::{LogId, LogTip, RaftRecord, StoreId, Vote};
use headwater_types::LogIndex;

/// The facts of a log besides its entries. A missing or unreadable fact is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFacts {
    /// The store id of the data directory that the log was created in.
    pub store_id: Option<u64>,
    /// The last vote.
    pub vote: Option<Vote>,
    /// The id of the last entry that is recorded as committed. The record may lag: later entries of
    /// the log may be committed, too.
    pub committed: Option<LogId>,
    /// The id of the last entry that was purged.
    pub purged: Option<LogId>,
    /// First index that is not purged, whether the log has that entry or not.
    pub first: Option<LogIndex>,
    /// The id of the last entry; that of the last purged one if the log has no entry.
    pub last: Option<LogId>,
    /// Number of the last write batch that the log holds. Batches are numbered from 1.
    pub written: Option<u64>,
    /// Number of the last write batch that was known to be durable, from the mark file beside the
    /// log.
    pub marked: Option<u64>,
}

/// A log that is being read, with the damage that was found so far.
pub struct LogInspector {
    db: Option<DB>,
    facts: LogFacts,
    damage: DamageList,
}

impl LogInspector {
    /// Reads the facts of the log in `dir`. Never fails: errors are added to the damage.
    pub fn open(dir: &Path) -> Self {
        let mut damage = DamageList::default();
        let marked = match mark::read(dir) {
            Ok(marked) => Some(marked),
            Err(error) => {
                damage.add_error("log/headwater-mark", &error);
                None
            }
        };
        let db = open_database(dir, marked, &mut damage);
        let mut facts = LogFacts { marked, ..LogFacts::default() };
        if let Some(db) = &db {
            let tip: Option<LogTip> = meta(db, KEY_TIP, &mut damage);
            facts = LogFacts {
                store_id: meta(db, KEY_STORE, &mut damage).map(|StoreId(id)| id),
                vote: meta(db, KEY_VOTE, &mut damage),
                committed: meta(db, KEY_COMMITTED, &mut damage),
                purged: meta(db, KEY_PURGED, &mut damage),
                first: tip.map(|tip| tip.first),
                last: tip.and_then(|tip| tip.last),
                written: tip.map(|tip| tip.batch),
                marked,
            };
            check_bounds(&facts, &mut damage);
            if tip.is_none() {
                damage.add("log/meta/tip", "missing: the end of the log is not known");
            }
        }
        Self { db, facts, damage }
    }

    /// The facts found so far.
    pub fn facts(&self) -> &LogFacts {
        &self.facts
    }

    /// The damage that was found so far.
    pub fn damage(&self) -> &DamageList {
        &self.damage
    }

    /// Calls `visit` with the entries from `from` on, in order, until it breaks or an entry lies
    /// behind the recorded end. Damaged and missing ones are left out and added to the damage.
    /// Reads nothing if the database could not be opened.
    pub fn read(&mut self, from: LogIndex, mut visit: impl FnMut(LogRecord) -> ControlFlow<()>) {
        let Some(db) = &self.db else { return };
        let family = db.cf_handle(CF_ENTRIES).expect("invariant: opened with this family");
        let end = self.facts.last.map_or(u64::MAX, |last| last.index.get().saturating_add(1));
        let first = self.facts.first.or(self.facts.purged.map(|purged| purged.index.next()));
        let mut wanted = first.unwrap_or(LogIndex::ZERO).max(from).get();
        let mut cursor = db.raw_iterator_cf_opt(family, read_options(u64::MAX));
        cursor.seek(entry_key(wanted));
        loop {
            if let Some((key, value)) = cursor.item() {
                let index = match entry_index(key) {
                    Ok(index) => index,
                    Err(error) => {
                        self.damage.add_error("log/entries", &error);
                        cursor.next();
                        continue;
                    }
                };
                if index >= end {
                    self.damage.add(format!("log/entries/{index}"), "lies behind the end of the log");
                    return;
                }
                // Without a first index, the log begins with its first entry.
                if index > wanted && first.is_some() {
                    self.damage.add(run(wanted, index), "missing");
                }
                match decode_entry(index, value) {
                    Ok(record) => {
                        if index + 1 == end && self.facts.last != Some(record.id()) {
                            self.damage.add(
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
                    Err(error) => self.damage.add_error(format!("log/entries/{index}"), &error),
                }
                wanted = index + 1;
                cursor.next();
                continue;
            }
            match cursor.status() {
                Ok(()) => break,
                Err(error) => match readable_from(db, wanted) {
                    Some((next_cursor, next)) => {
                        self.damage.add(run(wanted, next), error.to_string());
                        (cursor, wanted) = (next_cursor, next);
                    }
                    None => {
                        self.damage.add(format!("log/entries from {wanted} on"), error.to_string());
                        return;
                    }
                },
            }
        }
        if wanted < end && self.facts.last.is_some() {
            self.damage.add(run(wanted, end), "missing");
        }
    }
}

/// Adds damage for a purged or committed id that lies outside of the log.
fn check_bounds(facts: &LogFacts, damage: &mut DamageList) {
    let (Some(first), last) = (facts.first, facts.last.map(|last| last.index)) else { return };
    let beyond_end = |point: LogId| last.is_none_or(|last| point.index > last);
    if let Some(purged) = facts.purged.filter(|purged| first <= purged.index || beyond_end(*purged)) {
        damage.add("log/meta/purged", format!("is {}, and the log begins with entry {first}", purged.index));
    }
    if let Some(committed) = facts.committed.filter(|committed| beyond_end(*committed)) {
        damage.add("log/meta/committed", format!("is {}, behind the end of the log", committed.index));
    }
}

/// The location of the entries from `first` up to, but not including, `end`.
fn run(first: u64, end: u64) -> String {
    if first + 1 == end { format!("log/entries/{first}") } else { format!("log/entries/{first} to {}", end - 1) }
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
