//! Reads a log without changing it, and lists all damage.
//!
//! Opening a log for use ([`LogDb::open`](super::LogDb::open)) stops at the first damage, because a
//! node must not run with it. An operator needs the whole list, and the readable rest of the log.
//! Invariant: nothing is written, not even RocksDB's information log.

use std::ops::ControlFlow;
use std::path::Path;

use super::disk::LogForm;
use super::mark;
use super::record::LogRecord;
use super::rocks::inspect::RocksInspector;
use super::segments::inspect::SegmentInspector;
use crate::damage::DamageList;
use headwater_proto::codec::raft::{LogId, Vote};
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
    source: Source,
    facts: LogFacts,
    damage: DamageList,
}

enum Source {
    RocksDb(RocksInspector),
    Segments(SegmentInspector),
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
        let (source, facts) = match LogForm::of(dir) {
            LogForm::RocksDb => {
                let (source, facts) = RocksInspector::open(dir, marked, &mut damage);
                (Source::RocksDb(source), facts)
            }
            LogForm::Segments => {
                let (source, facts) = SegmentInspector::open(dir, marked, &mut damage);
                (Source::Segments(source), facts)
            }
        };
        check_bounds(&facts, &mut damage);
        Self { source, facts, damage }
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
    /// Reads nothing if the log could not be opened.
    pub fn read(&mut self, from: LogIndex, visit: impl FnMut(LogRecord) -> ControlFlow<()>) {
        match &mut self.source {
            Source::RocksDb(source) => source.read(&self.facts, &mut self.damage, from, visit),
            Source::Segments(source) => source.read(&self.facts, &mut self.damage, from, visit),
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
pub(super) fn run(first: u64, end: u64) -> String {
    if first + 1 == end { format!("log/entries/{first}") } else { format!("log/entries/{first} to {}", end - 1) }
}
