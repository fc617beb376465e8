//! The history records of the current command, until it ends.
//!
//! Holds them back for three reasons. The head of a command is known last and has the lowest key:
//! so it goes into the batch first, and the keys of `history` ascend from batch to batch. RocksDB's
//! memtable remembers the place of its last insert, and searches again for a key that is not right
//! behind it. A record that stays the only one gets the head into its row. And a savepoint can take
//! records back, while nothing can be taken out of a batch.

use rocksdb::{ColumnFamily, WriteBatch};

use super::history_row;
use super::keys::{self, Table};
use super::record::{HistoryHead, encode_history};
use headwater_types::{ChangeKind, KeyValue, LogIndex};

/// Most memory that is kept for the next command's encoded records, bytes.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// Most records for whose positions memory is kept, count.
const KEPT_RECORDS_MAX: usize = 1 << 14;

/// The records, and memory that commands use again.
#[derive(Default)]
pub(super) struct CommandHistory {
    /// The encoded records, one after the other.
    bytes: Vec<u8>,
    /// Position of each record, and its end in `bytes`.
    records: Vec<(u32, usize)>,
    /// The encoded head.
    head: Vec<u8>,
}

/// A number of records, with their bytes.
#[derive(Clone, Copy)]
pub(super) struct HistoryMark {
    records: usize,
    bytes: usize,
}

impl CommandHistory {
    /// Adds a record. Positions ascend.
    pub(super) fn add(&mut self, position: u32, table: Table, kind: ChangeKind, kv: &KeyValue) {
        encode_history(&mut self.bytes, table, kind, kv);
        self.records.push((position, self.bytes.len()));
    }

    pub(super) fn mark(&self) -> HistoryMark {
        HistoryMark { records: self.records.len(), bytes: self.bytes.len() }
    }

    /// Takes back what was added since `mark`.
    pub(super) fn truncate(&mut self, mark: HistoryMark) {
        self.records.truncate(mark.records);
        self.bytes.truncate(mark.bytes);
    }

    /// Adds head and records of the command at `index` to the batch, in the order of their keys,
    /// and forgets the records. `is_compact`: the only record of a command gets the head into its
    /// row.
    pub(super) fn stage(
        &mut self,
        index: LogIndex,
        head: &HistoryHead,
        is_compact: bool,
        batch: &mut WriteBatch,
        family: &ColumnFamily,
    ) {
        self.head.clear();
        head.encode(&mut self.head);
        let is_whole = match &mut self.records[..] {
            [(1, end)] if is_compact && head.count == 1 && history_row::append_head(&mut self.bytes, &self.head) => {
                *end = self.bytes.len();
                true
            }
            _ => false,
        };
        if !is_whole {
            batch.put_cf(family, keys::history(index, 0), &self.head);
        }
        let mut start = 0;
        for (position, end) in self.records.drain(..) {
            batch.put_cf(family, keys::history(index, position), &self.bytes[start..end]);
            start = end;
        }
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES_MAX);
        self.records.shrink_to(KEPT_RECORDS_MAX);
    }
}
