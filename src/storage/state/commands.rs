//! Commands of history, one by one in either direction, and the commands that changed an interval
//! of keys.
//!
//! Owns the walk, and the tables that it decodes: records of other tables are stepped over without
//! a copy. A command that is larger than the bound of a walk is read record by record. Invariant:
//! between two returned commands of a walk lies no other command with records, unless the caller
//! has skipped it.

use quick_cache::sync::Cache;
use rocksdb::DBRawIterator;

use super::db::{corrupt, undecodable};
use super::history_row::{self, FirstRow};
use super::keys::{self, Table};
use super::options::{HISTORY, VERSIONS};
use super::record::{HistoryHead, HistoryRecord, decode_history};
use super::view::{CommandHistory, ReadView};
use crate::StorageError;
use headwater_types::{KeyRange, LogIndex, Revision};

/// A set of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tables(u32);

impl Tables {
    /// The set with these tables.
    pub const fn of(tables: &[Table]) -> Self {
        let (mut set, mut at) = (0, 0);
        while at < tables.len() {
            set |= 1 << tables[at].slot();
            at += 1;
        }
        Self(set)
    }

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the table is in the set.
    pub const fn has(self, table: Table) -> bool {
        self.0 & 1 << table.slot() != 0
    }
}

/// A part of history: the commands after one log index, up to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistorySpan {
    /// Exclusive lower bound. The first index of the span, `after` + 1, is not below the beginning
    /// of history.
    pub after: LogIndex,
    /// Inclusive upper bound.
    pub through: LogIndex,
}

impl HistorySpan {
    fn bounds(self) -> ([u8; keys::HISTORY_KEY_LEN], [u8; keys::HISTORY_KEY_LEN]) {
        let next = |index: LogIndex| LogIndex(index.get().saturating_add(1));
        (keys::history(next(self.after), 0), keys::history(next(self.through), 0))
    }
}

/// The command that a state is the result of, as reads of that state tell of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastCommand {
    /// Its log index.
    pub index: LogIndex,
    /// The KV revision that it made. `None` if it left the revision as it was.
    pub revision: Option<Revision>,
    /// Clock of its proposer, milliseconds since the Unix epoch; zero if unknown.
    pub unix_ms: u64,
}

impl LastCommand {
    fn of(index: LogIndex, head: &HistoryHead) -> Self {
        Self { index, revision: head.revision, unix_ms: head.unix_ms }
    }
}

/// Cache of commands by their log indexes: pages of one read, and reads that compare or go through
/// one past state, ask for the same command again and again. A command never changes, so an entry
/// is right for every view of the generation whose history reaches back to it.
pub(super) type LastCommands = Cache<LogIndex, LastCommand>;

/// Approximate size of a record in memory beside its bytes on disk, bytes.
const RECORD_BYTES: usize = 128;

/// A command as a walk with a bound returns it; see [`CommandWalk::next_within`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalkedCommand {
    /// The command, with all its records of the wanted tables.
    Whole(CommandHistory),
    /// The records of the wanted tables are larger than the bound:
    /// [`records_of`](ReadView::records_of) reads them one by one.
    Large(LogIndex, HistoryHead),
}

/// Records of one command, in order; see [`ReadView::records_of`].
pub struct CommandRecords<'a> {
    iter: DBRawIterator<'a>,
    tables: Tables,
    index: LogIndex,
    head: HistoryHead,
    /// Position of the next record.
    position: u32,
}

/// A walk over the commands of a part of history; see [`ReadView::walk`].
pub struct CommandWalk<'a> {
    iter: DBRawIterator<'a>,
    tables: Tables,
    is_backward: bool,
    has_begun: bool,
    visited: usize,
}

impl ReadView<'_> {
    /// A walk over the commands of `span`, from the oldest on, or with `is_backward` from the
    /// newest on. Every command is returned, but of its records only those of `tables`.
    pub fn walk(&self, span: HistorySpan, is_backward: bool, tables: Tables) -> CommandWalk<'_> {
        let mut options = self.options();
        let (lower, upper) = span.bounds();
        // With `through` below `after` the span is empty.
        options.set_iterate_lower_bound(lower.min(upper));
        options.set_iterate_upper_bound(upper);
        let iter = self.db.db.raw_iterator_cf_opt(self.families.history, options);
        CommandWalk { iter, tables, is_backward, has_begun: false, visited: 0 }
    }

    /// The records of `tables` that the command at `index` has at the position `from` or later. The
    /// first position is 1; 0 counts as 1.
    ///
    /// # Errors
    ///
    /// If the disk failed, or history has no such command or is damaged.
    pub fn records_of(&self, index: LogIndex, from: u32, tables: Tables) -> Result<CommandRecords<'_>, StorageError> {
        let mut iter = self.db.db.raw_iterator_cf_opt(self.families.history, self.options());
        let wanted = keys::history(index, 0);
        iter.seek(wanted);
        let head = match iter.item().filter(|(key, _)| key.starts_with(&wanted[..keys::INDEX_LEN])) {
            Some((key, value)) => FirstRow::decode(key, value)?.head,
            None => {
                iter.status()?;
                return Err(corrupt(HISTORY, &wanted, "missing"));
            }
        };
        let position = from.max(1);
        iter.seek(keys::history(index, position));
        Ok(CommandRecords { iter, tables, index, head, position })
    }

    /// The last command that wrote records, at `index` or before it, and not before the beginning
    /// of history. `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the disk failed, or history is damaged.
    pub fn last_command(&self, index: LogIndex) -> Result<Option<LastCommand>, StorageError> {
        let oldest = self.head().compacted_index();
        if index >= oldest {
            if let Some(known) = self.db.last_commands.get(&index) {
                return Ok(Some(known));
            }
            // Mostly the index is that of a command. A walk would begin with an iterator, which
            // costs several times as much as these reads.
            if let Some(head) = self.head_at(index)? {
                let last = LastCommand::of(index, &head);
                self.db.last_commands.insert(index, last);
                return Ok(Some(last));
            }
        }
        let after = LogIndex(oldest.get().saturating_sub(1));
        let walked = self.walk(HistorySpan { after, through: index }, true, Tables::default()).next()?;
        Ok(walked.map(|command| LastCommand::of(command.index, &command.head)))
    }

    /// The head of the command at `index`, which history reaches back to. `None` if it wrote no
    /// record.
    fn head_at(&self, index: LogIndex) -> Result<Option<HistoryHead>, StorageError> {
        // Most commands have one record, and most of these have the head in its row.
        for position in [1, 0] {
            let key = keys::history(index, position);
            let Some(row) = self.snapshot.get_pinned_cf(self.families.history, key)? else { continue };
            if let Some(head) = history_row::head_in(&key, &row)? {
                return Ok(Some(head));
            }
        }
        Ok(None)
    }

    /// The log indexes of the commands of `span` that changed a key of `range`, ascending. `None`
    /// if `range` has more than `most` stored versions, within the span or not: a walk may be
    /// cheaper then.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a stored key is malformed.
    pub fn changes_in(
        &self,
        table: Table,
        range: &KeyRange,
        span: HistorySpan,
        most: usize,
    ) -> Result<Option<Vec<LogIndex>>, StorageError> {
        let mut options = self.options();
        let (mut lower, mut upper) = (Vec::new(), Vec::new());
        match range {
            KeyRange::One(key) => {
                keys::push_version_prefix(&mut lower, table, key);
                upper = keys::prefix_end(&lower);
            }
            KeyRange::Span { start, end } => {
                keys::push_version_prefix(&mut lower, table, start);
                match end {
                    Some(end) => keys::push_version_prefix(&mut upper, table, end),
                    None => upper = keys::table_end(table),
                }
            }
        }
        if lower >= upper {
            return Ok(Some(Vec::new()));
        }
        options.set_iterate_lower_bound(lower);
        options.set_iterate_upper_bound(upper);
        options.set_total_order_seek(true);
        let mut iter = self.db.db.raw_iterator_cf_opt(self.families.versions, options);
        iter.seek_to_first();
        let (mut found, mut visited) = (Vec::new(), 0);
        while let Some(key) = iter.key() {
            visited += 1;
            if visited > most {
                return Ok(None);
            }
            let (_, index) = keys::split_version(key).ok_or_else(|| corrupt(VERSIONS, key, "not a version key"))?;
            if span.after < index && index <= span.through {
                found.push(index);
            }
            iter.next();
        }
        iter.status()?;
        found.sort_unstable();
        found.dedup();
        Ok(Some(found))
    }
}

impl CommandWalk<'_> {
    /// Entries of history that the walk has visited, heads included; count. Those that a seek
    /// passes do not count.
    pub fn visited(&self) -> usize {
        self.visited
    }

    /// Moves the walk to the command at `index`. If there is none, moves it to the next one in the
    /// direction of the walk.
    pub fn skip_to(&mut self, index: LogIndex) {
        self.has_begun = true;
        match self.is_backward {
            true => self.iter.seek_for_prev(keys::history(index, u32::MAX)),
            false => self.iter.seek(keys::history(index, 0)),
        }
    }

    /// The next command, with its records of the wanted tables, which may be none. `None` at the
    /// end of the walk.
    ///
    /// # Errors
    ///
    /// If the disk failed, or history is damaged or has a hole.
    #[allow(clippy::should_implement_trait)] // It fails, and callers look at `visited` in between.
    pub fn next(&mut self) -> Result<Option<CommandHistory>, StorageError> {
        Ok(self.next_within(usize::MAX)?.map(|command| match command {
            WalkedCommand::Whole(command) => command,
            WalkedCommand::Large(..) => unreachable!("invariant: there is no bound"),
        }))
    }

    /// The next command, as [`next`](Self::next), but without its records if these need more than
    /// `bytes_max` bytes of memory, by an estimate.
    ///
    /// # Errors
    ///
    /// If the disk failed, or history is damaged or has a hole.
    pub fn next_within(&mut self, bytes_max: usize) -> Result<Option<WalkedCommand>, StorageError> {
        if !self.has_begun {
            self.has_begun = true;
            if self.is_backward { self.iter.seek_to_last() } else { self.iter.seek_to_first() }
        }
        let command = if self.is_backward { self.backward(bytes_max)? } else { self.forward(bytes_max)? };
        if command.is_none() {
            self.iter.status()?;
        }
        Ok(command)
    }

    fn forward(&mut self, bytes_max: usize) -> Result<Option<WalkedCommand>, StorageError> {
        let Some((key, value)) = self.iter.item() else { return Ok(None) };
        let FirstRow { index, head, has_record } = FirstRow::decode(key, value)?;
        let mut records = Gathered::new(self.tables, bytes_max);
        for position in 1..=head.count {
            if !has_record {
                self.iter.next();
                self.visited += 1;
            }
            let wanted = keys::history(index, position);
            match self.iter.item().filter(|(key, _)| **key == wanted[..]) {
                Some((key, value)) => {
                    if !records.add(key, value, position)? {
                        self.iter.seek(keys::history(index.next(), 0));
                        return Ok(Some(WalkedCommand::Large(index, head)));
                    }
                }
                None => {
                    self.iter.status()?;
                    return Err(corrupt(HISTORY, &wanted, "missing"));
                }
            }
        }
        self.iter.next();
        self.visited += 1;
        let records = records.finish(&head);
        Ok(Some(WalkedCommand::Whole(CommandHistory { index, head, records })))
    }

    fn backward(&mut self, bytes_max: usize) -> Result<Option<WalkedCommand>, StorageError> {
        let mut records = Gathered::new(self.tables, bytes_max);
        let mut is_large = false;
        let mut last = None;
        while let Some((key, value)) = self.iter.item() {
            self.visited += 1;
            let (index, position) =
                keys::parse_history(key).ok_or_else(|| corrupt(HISTORY, key, "not a history key"))?;
            let (last_index, count) = *last.get_or_insert((index, position));
            if index != last_index {
                return Err(corrupt(HISTORY, key, "the command behind it has no head"));
            }
            let head = history_row::head_in(key, value)?;
            if position > 0 {
                is_large |= !records.add(key, value, position)?;
            }
            let Some(head) = head else {
                match is_large {
                    // Steps over the rest of it.
                    true => self.iter.seek_for_prev(keys::history(index, 0)),
                    false => self.iter.prev(),
                }
                continue;
            };
            if head.count != count {
                return Err(corrupt(HISTORY, key, "a head with another number of records"));
            }
            self.iter.prev();
            if is_large {
                return Ok(Some(WalkedCommand::Large(index, head)));
            }
            let mut records = records.finish(&head);
            records.reverse();
            return Ok(Some(WalkedCommand::Whole(CommandHistory { index, head, records })));
        }
        Ok(None)
    }
}

impl CommandRecords<'_> {
    /// The head of the command.
    pub fn head(&self) -> &HistoryHead {
        &self.head
    }

    /// The next record with its position. `None` after the last one.
    ///
    /// # Errors
    ///
    /// If the disk failed, or history is damaged or has a hole.
    #[allow(clippy::should_implement_trait)] // It fails.
    pub fn next(&mut self) -> Result<Option<(u32, HistoryRecord)>, StorageError> {
        while self.position <= self.head.count {
            let position = self.position;
            let wanted = keys::history(self.index, position);
            let record = match self.iter.item().filter(|(key, _)| **key == wanted[..]) {
                Some((key, value)) => record_of(self.tables, key, value)?,
                None => {
                    self.iter.status()?;
                    return Err(corrupt(HISTORY, &wanted, "missing"));
                }
            };
            self.iter.next();
            self.position += 1;
            if let Some(record) = record {
                let previous = self.head.previous_of(position);
                return Ok(Some((position, HistoryRecord { previous, ..record })));
            }
        }
        Ok(None)
    }
}

/// Records of one command of the wanted tables, up to a bound in bytes.
struct Gathered {
    tables: Tables,
    records: Vec<HistoryRecord>,
    /// Position of each of `records`.
    positions: Vec<u32>,
    /// Bytes that may still be added.
    left: usize,
}

impl Gathered {
    fn new(tables: Tables, bytes_max: usize) -> Self {
        Self { tables, records: Vec::new(), positions: Vec::new(), left: bytes_max }
    }

    /// Adds the record at `position`, if its table is wanted. False if it is beyond the bound: the
    /// records are dropped then.
    fn add(&mut self, key: &[u8], value: &[u8], position: u32) -> Result<bool, StorageError> {
        let Some(record) = record_of(self.tables, key, value)? else { return Ok(true) };
        match self.left.checked_sub(RECORD_BYTES + value.len()) {
            Some(left) => self.left = left,
            None => {
                self.records = Vec::new();
                return Ok(false);
            }
        }
        self.records.push(record);
        self.positions.push(position);
        Ok(true)
    }

    /// The records, each with the previous version that the head of their command has for it.
    fn finish(mut self, head: &HistoryHead) -> Vec<HistoryRecord> {
        for (record, position) in self.records.iter_mut().zip(self.positions) {
            record.previous = head.previous_of(position);
        }
        self.records
    }
}

/// The record, if its table is wanted.
fn record_of(tables: Tables, key: &[u8], value: &[u8]) -> Result<Option<HistoryRecord>, StorageError> {
    // The table is the second byte of every record, see `encode_history`.
    let table = value.get(1).and_then(|byte| Table::from_byte(*byte));
    let Some(table) = table else { return Err(undecodable(HISTORY, key, value, "cannot be decoded")) };
    if !tables.has(table) {
        return Ok(None);
    }
    decode_history(value).map(Some).ok_or_else(|| undecodable(HISTORY, key, value, "cannot be decoded"))
}
