//! A bounded cache of history records that were read one by one lately: the values of hot keys.
//!
//! Reads of ranges have the rows of their segments; this is for reads of single keys. A record that
//! is found here needs no search in RocksDB and no copy. Invariant: a record never changes, and the
//! log index of a command is used once in a generation. So an entry is right for every reader that
//! was led to its place.

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::record::{HistoryRecord, Version};
use headwater_types::LogIndex;
use headwater_types::limits::HOT_RECORD_BYTES_MAX;

/// Estimated memory of an entry without the key and the value of its record, bytes.
const ENTRY_BYTES: u64 = 256;

/// Log index and position of a record.
type Place = (LogIndex, u32);

#[derive(Clone)]
struct ByBytes;

impl Weighter<Place, HistoryRecord> for ByBytes {
    fn weight(&self, _place: &Place, record: &HistoryRecord) -> u64 {
        ENTRY_BYTES + (record.kv.key.len() + record.kv.value.len()) as u64
    }
}

pub(super) struct HotRecords {
    records: Cache<Place, HistoryRecord, ByBytes>,
}

impl HotRecords {
    /// A cache of at most `bytes` bytes of memory, by an estimate.
    pub(super) fn new(bytes: u64) -> Self {
        let expected = usize::try_from(bytes / (2 * ENTRY_BYTES)).unwrap_or(usize::MAX);
        Self { records: Cache::with_weighter(expected, bytes, ByBytes) }
    }

    pub(super) fn clear(&self) {
        self.records.clear();
    }

    /// The record of `version`, if it is cached.
    pub(super) fn get(&self, version: &Version) -> Option<HistoryRecord> {
        self.records.get(&(version.index, version.position))
    }

    /// Adds the record of `version`, unless it has more than [`HOT_RECORD_BYTES_MAX`] bytes.
    pub(super) fn add(&self, version: &Version, record: &HistoryRecord) {
        if record.kv.key.len() + record.kv.value.len() <= HOT_RECORD_BYTES_MAX {
            self.records.insert((version.index, version.position), record.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Table;
    use super::*;
    use headwater_types::{ChangeKind, KeyValue};

    fn version(index: u64) -> Version {
        Version { index: LogIndex(index), position: 1, ..Version::default() }
    }

    fn record(value_len: usize) -> HistoryRecord {
        let kv = KeyValue { key: "key".into(), value: vec![0; value_len].into(), ..KeyValue::default() };
        HistoryRecord { table: Table::Kv, kind: ChangeKind::Put, kv, previous: None }
    }

    #[test]
    fn a_record_is_found_at_its_place_only() {
        let records = HotRecords::new(1 << 20);
        records.add(&version(7), &record(10));
        assert_eq!(records.get(&version(7)), Some(record(10)));
        assert_eq!(records.get(&version(8)), None);
        assert_eq!(records.get(&Version { position: 2, ..version(7) }), None);
    }

    #[test]
    fn memory_is_bounded_and_large_records_are_not_kept() {
        let bytes = 1 << 20;
        let records = HotRecords::new(bytes);
        for index in 0..10_000 {
            records.add(&version(index), &record(1000));
        }
        assert!(records.records.len() > 100, "{}", records.records.len());
        assert!(records.records.weight() <= bytes, "{}", records.records.weight());
        records.add(&version(20_000), &record(HOT_RECORD_BYTES_MAX));
        assert_eq!(records.get(&version(20_000)), None);
    }
}
