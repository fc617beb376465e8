//! Uncommitted writes of a transaction.
//!
//! Owns the uncommitted versions and changes. Invariant: versions of a key are in the order of
//! their log indexes, changes in the order of (log index, position).

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::keys::Table;
use super::record::Version;
use headwater_types::{ChangeKind, KeyValue, LogIndex, Resource};

/// Versions of one key, oldest first.
pub(super) type Versions = SmallVec<[Version; 1]>;

/// One uncommitted change.
pub(super) struct Change {
    pub(super) index: LogIndex,
    pub(super) position: u32,
    pub(super) table: Table,
    pub(super) kind: ChangeKind,
    pub(super) kv: KeyValue,
    /// The decoded value, for events.
    pub(super) event_value: EventValue,
}

/// A changed value in the form that events need.
pub(super) enum EventValue {
    /// A value of a KV key.
    Value,
    /// A resource: the written one, or the last content of a removed one.
    Resource(Arc<Resource>),
    /// Any other record. Its events, if it has any, are added separately.
    Row,
}

impl EventValue {
    /// The event value of a record that is no resource: `Value` for a KV key, `Row` for any other.
    pub(super) fn of_plain(table: Table) -> Self {
        if table == Table::Kv { Self::Value } else { Self::Row }
    }
}

#[derive(Default)]
pub(super) struct Overlay {
    tables: [BTreeMap<Bytes, Versions>; Table::ALL.len()],
    pub(super) changes: Vec<Change>,
    /// Size of the keys and values of all changes, bytes.
    pub(super) bytes: usize,
}

impl Overlay {
    /// An empty overlay with memory for so many changes.
    pub(super) fn with_capacity(changes: usize) -> Self {
        Self { changes: Vec::with_capacity(changes), ..Self::default() }
    }

    pub(super) fn push(
        &mut self,
        version: Version,
        table: Table,
        kind: ChangeKind,
        kv: KeyValue,
        event_value: EventValue,
    ) {
        self.bytes += kv.key.len() + kv.value.len();
        self.tables[table.slot()].entry(kv.key.clone()).or_default().push(version);
        self.changes.push(Change { index: version.index, position: version.position, table, kind, kv, event_value });
    }

    /// Adds an event of a resource without a new version.
    pub(super) fn add_event(&mut self, slot: Version, table: Table, kind: ChangeKind, resource: Resource) {
        let (kv, event_value) = (KeyValue::default(), EventValue::Resource(Arc::new(resource)));
        self.changes.push(Change { index: slot.index, position: slot.position, table, kind, kv, event_value });
    }

    /// Keeps the first `len` changes. Drops the later ones, with the versions that they made.
    pub(super) fn truncate(&mut self, len: usize) {
        for change in self.changes.drain(len..).rev() {
            let Change { index, position, table, kv, .. } = change;
            self.bytes -= kv.key.len() + kv.value.len();
            // An event without a version has no entry.
            let Some(versions) = self.tables[table.slot()].get_mut(&kv.key) else { continue };
            versions.retain(|version| (version.index, version.position) != (index, position));
            if versions.is_empty() {
                self.tables[table.slot()].remove(&kv.key);
            }
        }
    }

    /// The newest uncommitted version of `key` at or below `at`, tombstone or not.
    pub(super) fn lookup(&self, table: Table, key: &[u8], at: LogIndex) -> Option<Version> {
        let versions = self.tables[table.slot()].get(key)?;
        versions.iter().rev().find(|version| version.index <= at).copied()
    }

    pub(super) fn range(
        &self,
        table: Table,
        bounds: (Bound<Bytes>, Bound<Bytes>),
    ) -> btree_map::Range<'_, Bytes, Versions> {
        self.tables[table.slot()].range::<Bytes, _>(bounds)
    }

    /// Every key with its uncommitted versions, by table and key.
    pub(super) fn keys(&self) -> impl Iterator<Item = (Table, &Bytes, &Versions)> {
        Table::ALL
            .into_iter()
            .flat_map(|table| self.tables[table.slot()].iter().map(move |(key, all)| (table, key, all)))
    }

    /// The keys of a table, in order.
    pub(super) fn keys_of(&self, table: Table) -> impl Iterator<Item = &Bytes> {
        self.tables[table.slot()].keys()
    }

    /// Log index of the newest uncommitted change of a table; zero if there is none.
    pub(super) fn newest_of(&self, table: Table) -> LogIndex {
        let newest = self.changes.iter().rev().find(|change| change.table == table);
        newest.map_or(LogIndex::ZERO, |change| change.index)
    }

    /// The change of this transaction that made `version`. `None` if another transaction made it.
    pub(super) fn change(&self, version: &Version) -> Option<&Change> {
        let position = (version.index, version.position);
        let found = self.changes.binary_search_by_key(&position, |change| (change.index, change.position)).ok()?;
        Some(&self.changes[found])
    }
}
