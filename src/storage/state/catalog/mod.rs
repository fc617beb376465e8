//! The catalog in the state: its rows, their secondary indexes, the query indexes, and its events
//! in history.
//!
//! Owns the updates that come with every write of a row. Knows no rule of a command. Invariant: at
//! every applied index, the secondary indexes agree with the live rows.

mod cache;
mod events;
mod keys;
mod reads;
mod row;

use std::collections::BTreeSet;
use std::sync::Arc;

use rocksdb::{ColumnFamily, WriteBatch};

use super::db::undecodable;
use super::options::META;
use super::overlay::EventValue;
use super::pending::PendingMap;
use super::record::{Cursor, FORMAT, Version, put_varint};
use super::txn::WriteTxn;
use crate::StorageError;
use headwater_types::catalog::{CatalogEvent, QueryIndexSubject};
use headwater_types::{ChangeKind, KeyValue, LogIndex};

pub(super) use cache::{AnyRow, ListCache, RowCache, RowsMark, WrittenRows};
pub use events::RecordedEvents;
pub use keys::{node as node_key, on_node as on_node_key};
pub use reads::CatalogReader;
pub use row::{CatalogRow, StoredRow, mesh_name};

/// Uncommitted query indexes, events and decoded rows of a transaction.
#[derive(Default)]
pub(super) struct PendingCatalog {
    /// New query indexes by their key in `meta`; `None` is a removal.
    pub(super) query_indexes: PendingMap<Vec<u8>, Option<LogIndex>>,
    /// The catalog events of each command.
    pub(super) events: PendingMap<LogIndex, Arc<[CatalogEvent]>>,
    /// The decoded rows that the transaction wrote.
    pub(super) rows: WrittenRows,
}

impl PendingCatalog {
    pub(super) fn stage(&self, batch: &mut WriteBatch, meta: &ColumnFamily) {
        for (key, query_index) in self.query_indexes.iter() {
            match query_index {
                None => batch.delete_cf(meta, key),
                Some(index) => {
                    let mut value = vec![FORMAT];
                    put_varint(&mut value, index.get());
                    batch.put_cf(meta, key, value);
                }
            }
        }
    }
}

/// Decodes the value of a query index in `meta`; zero for `None`, a key without a value.
pub(super) fn read_meta_index(key: &[u8], bytes: Option<&[u8]>) -> Result<LogIndex, StorageError> {
    let Some(bytes) = bytes else { return Ok(LogIndex::ZERO) };
    let decode = || {
        let mut cursor = Cursor::open(bytes)?;
        let index = cursor.varint()?;
        cursor.end(LogIndex(index))
    };
    decode().ok_or_else(|| undecodable(META, key, bytes, "a query index that cannot be decoded"))
}

impl WriteTxn<'_> {
    /// Writes a row of the catalog. `previous` is the live row that it replaces. `modified` becomes
    /// the log index of the current command; `created` is that of `previous`, or the current
    /// command if there is none. Returns the row as stored.
    pub fn put_row<R: CatalogRow>(&mut self, mut row: R, previous: Option<&StoredRow<R>>) -> StoredRow<R> {
        let slot = self.next_slot();
        let (created, modified) = row.indexes();
        *modified = LogIndex::ZERO;
        *created = previous.map_or(slot.index, |previous| previous.row.stamps().0);
        let (key, value) = (row.key(), row.encode());
        *row.indexes().1 = slot.index;
        let value_len = u32::try_from(value.len()).expect("invariant: requests are far smaller than 4 GiB");
        self.head.live_bytes += u64::from(value_len);
        match previous {
            None => self.head.live_bytes += key.len() as u64,
            Some(previous) => self.head.live_bytes -= u64::from(previous.version.value_len),
        }
        let before = previous.map(|previous| previous.row.entries()).unwrap_or_default();
        self.replace_entries(before, row.entries());
        let writes = previous.map_or(1, |previous| previous.version.version + 1);
        let version = Version { value_len, version: writes, ..slot };
        let kv = KeyValue { key, value, version: writes, ..KeyValue::default() };
        self.record(R::TABLE, ChangeKind::Put, version, kv, EventValue::Row);
        let row = Arc::new(row);
        if let Some(previous) = previous {
            self.catalog.rows.replace(&previous.version);
        }
        self.catalog.rows.insert(&version, Arc::clone(&row) as AnyRow);
        StoredRow { version, row }
    }

    /// Removes a row of the catalog. `last` is the live row; the record of the removal has its
    /// content.
    pub fn delete_row<R: CatalogRow>(&mut self, last: &StoredRow<R>) {
        let key = last.row.key();
        self.head.live_bytes -= key.len() as u64 + u64::from(last.version.value_len);
        self.replace_entries(last.row.entries(), Vec::new());
        self.catalog.rows.replace(&last.version);
        let slot = Version { deleted: true, ..self.next_slot() };
        let kv = KeyValue { key, value: last.row.encode(), ..KeyValue::default() };
        self.record(R::TABLE, ChangeKind::Delete, slot, kv, EventValue::Row);
    }

    fn replace_entries(&mut self, before: Vec<Vec<u8>>, after: Vec<Vec<u8>>) {
        // Most changes of a row touch no field of an entry.
        if before == after {
            return;
        }
        let (before, after) = (BTreeSet::from_iter(before), BTreeSet::from_iter(after));
        for entry in before.difference(&after) {
            self.index.insert(entry.clone(), false);
        }
        for entry in after.difference(&before) {
            self.index.insert(entry.clone(), true);
        }
    }

    /// Sets a query index to `index`, or with `None` removes it: then it reads as zero.
    pub fn set_query_index(&mut self, subject: &QueryIndexSubject, index: Option<LogIndex>) {
        self.catalog.query_indexes.insert(keys::query_index(subject), index);
    }

    /// Adds catalog events to the current command, behind those that it has. Call it after the rows
    /// that they name are written. History keeps the events.
    pub fn add_catalog_events(&mut self, events: Vec<CatalogEvent>) {
        if events.is_empty() {
            return;
        }
        let slot = self.next_slot();
        self.record_history(slot, super::keys::Table::CatalogEvents, events::encode(&events));
        let known = self.catalog.events.get(&slot.index).cloned().unwrap_or_default();
        self.catalog.events.insert(slot.index, known.iter().cloned().chain(events).collect());
    }
}
