//! Bounded caches of the catalog: decoded rows, and the list of checks of an instance.
//!
//! Owns the choice of cached rows and lists. A row is cached by its position in history, which
//! never changes, so an entry is right for every view. Rows of a transaction are kept apart until
//! its commit. Invariant of lists: a cached list is the newest that is committed or about to be.
//! The writer drops a list *before* the commit that changes it becomes visible; a reader adds one
//! only if it is the newest while no commit is under way. So a reader may use a list exactly if it
//! is not newer than the reader's view.

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::super::pending::{PendingMap, Undoable};
use super::super::record::Version;
use super::keys;
use headwater_types::LogIndex;
use headwater_types::limits::{CATALOG_LISTS_CACHED_BYTES_MAX, CATALOG_ROWS_CACHED_BYTES_MAX};

/// Position of a row in history: command, and number in it.
type Position = (LogIndex, u32);

/// A decoded row of any table.
pub(in crate::state) type AnyRow = Arc<dyn Any + Send + Sync>;

fn position(version: &Version) -> Position {
    (version.index, version.position)
}

/// Estimated memory of a decoded row without its texts, bytes: the row itself with its empty maps,
/// and its entry here.
const ROW_BYTES: u64 = 768;

#[derive(Clone)]
struct CachedRow {
    row: AnyRow,
    encoded_len: u32,
}

impl CachedRow {
    /// Estimated memory, bytes. The texts count twice, because each is an allocation of its own.
    fn bytes(&self) -> u64 {
        2 * u64::from(self.encoded_len) + ROW_BYTES
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Position, CachedRow> for ByBytes {
    fn weight(&self, _: &Position, cached_row: &CachedRow) -> u64 {
        cached_row.bytes()
    }
}

/// Decoded rows of one generation of the state.
pub(in crate::state) struct RowCache {
    rows: Cache<Position, CachedRow, ByBytes>,
}

impl Default for RowCache {
    fn default() -> Self {
        let expected = (CATALOG_ROWS_CACHED_BYTES_MAX / ROW_BYTES) as usize;
        Self { rows: Cache::with_weighter(expected, CATALOG_ROWS_CACHED_BYTES_MAX, ByBytes) }
    }
}

impl RowCache {
    /// The row that a version points to, if it is cached.
    pub(in crate::state) fn get(&self, version: &Version) -> Option<AnyRow> {
        Some(self.rows.get(&position(version))?.row)
    }

    /// Adds a committed row.
    pub(in crate::state) fn insert(&self, version: &Version, row: AnyRow) {
        self.rows.insert(position(version), CachedRow { row, encoded_len: version.value_len });
    }

    /// Adds the rows of a committed transaction, and drops those that it replaced.
    pub(in crate::state) fn take(&self, written: WrittenRows) {
        for replaced in &written.replaced {
            self.rows.remove(replaced);
        }
        for (position, cached_row) in written.rows.into_records() {
            self.rows.insert(position, cached_row);
        }
    }
}

/// Decoded rows that a transaction has written.
#[derive(Default)]
pub(in crate::state) struct WrittenRows {
    rows: PendingMap<Position, CachedRow>,
    /// Positions of the rows of earlier transactions that this one has replaced or removed.
    replaced: Vec<Position>,
    bytes: u64,
}

impl WrittenRows {
    /// A row that the transaction wrote. `None` for any other, and for one that it has removed or
    /// replaced since.
    pub(in crate::state) fn get(&self, version: &Version) -> Option<AnyRow> {
        Some(Arc::clone(&self.rows.get(&position(version))?.row))
    }

    /// Approximate memory, bytes.
    pub(in crate::state) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    pub(super) fn insert(&mut self, version: &Version, row: AnyRow) {
        let cached_row = CachedRow { row, encoded_len: version.value_len };
        self.bytes += cached_row.bytes();
        self.rows.insert(position(version), cached_row);
    }

    /// Drops the row of `version`, which the transaction has removed or replaced. A row of an
    /// earlier transaction leaves the cache at the commit.
    pub(super) fn replace(&mut self, version: &Version) {
        match self.rows.remove(&position(version)) {
            Some(own) => self.bytes -= own.bytes(),
            None => self.replaced.push(position(version)),
        }
    }

    /// The map of the rows. A rollback to a savepoint undoes its changes.
    pub(in crate::state) fn undoable(&mut self) -> &mut dyn Undoable {
        &mut self.rows
    }

    /// The sizes that a savepoint keeps beside the map of [`undoable`](Self::undoable).
    pub(in crate::state) fn mark(&self) -> RowsMark {
        RowsMark { replaced: self.replaced.len(), bytes: self.bytes }
    }

    /// Goes back to the sizes in `mark`.
    pub(in crate::state) fn reset(&mut self, mark: RowsMark) {
        self.replaced.truncate(mark.replaced);
        self.bytes = mark.bytes;
    }
}

/// Sizes of [`WrittenRows`] at a savepoint.
#[derive(Clone, Copy)]
pub(in crate::state) struct RowsMark {
    replaced: usize,
    bytes: u64,
}

/// Estimated memory of a list without its prefix and its entries, bytes.
const LIST_BYTES: u64 = 160;
/// Estimated memory of an entry of a list without its text, bytes.
const ENTRY_BYTES: u64 = 64;

#[derive(Clone)]
struct List {
    /// Applied index of the state that the list was read from.
    seen: LogIndex,
    entries: Arc<[Bytes]>,
}

#[derive(Clone)]
struct ByEntries;

impl Weighter<Box<[u8]>, List> for ByEntries {
    fn weight(&self, prefix: &Box<[u8]>, list: &List) -> u64 {
        let entries: u64 = list.entries.iter().map(|entry| entry.len() as u64 + ENTRY_BYTES).sum();
        prefix.len() as u64 + entries + LIST_BYTES
    }
}

/// Lists of checks of one generation of the state, by the prefix of their index entries.
pub(in crate::state) struct ListCache {
    lists: Cache<Box<[u8]>, List, ByEntries>,
}

impl Default for ListCache {
    fn default() -> Self {
        let expected = (CATALOG_LISTS_CACHED_BYTES_MAX / (LIST_BYTES + ENTRY_BYTES)) as usize;
        Self { lists: Cache::with_weighter(expected, CATALOG_LISTS_CACHED_BYTES_MAX, ByEntries) }
    }
}

impl ListCache {
    /// The cached index entries that begin with `prefix`, each without the prefix, for a reader
    /// that sees everything up to `applied`. `None` if no list is cached, or only one of a newer
    /// state.
    pub(in crate::state) fn get(&self, prefix: &[u8], applied: LogIndex) -> Option<Arc<[Bytes]>> {
        self.lists.get(prefix).filter(|list| list.seen <= applied).map(|list| list.entries)
    }

    /// Adds a list that was read from the state at `seen`, and is still the newest.
    pub(in crate::state) fn insert(&self, prefix: &[u8], seen: LogIndex, entries: &Arc<[Bytes]>) {
        self.lists.insert(prefix.into(), List { seen, entries: Arc::clone(entries) });
    }

    /// Evicts the cached list that `entry` belongs to. Must be called before that index entry is
    /// added or removed. Entries of other indexes have no list and are ignored.
    pub(in crate::state) fn forget(&self, entry: &[u8]) {
        if let Some(prefix) = keys::list_of_check(entry) {
            self.lists.remove(prefix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_for_readers_who_see_as_far() {
        let cache = ListCache::default();
        let (prefix, other) = (keys::checks_of("N", "web"), keys::checks_of("N", ""));
        let entries: Arc<[Bytes]> = [Bytes::from_static(b"c1")].into();
        cache.insert(&prefix, LogIndex(7), &entries);
        cache.insert(&other, LogIndex(7), &[].into());
        assert_eq!(cache.get(&prefix, LogIndex(6)), None, "who sees less may see another one");
        assert_eq!(cache.get(&prefix, LogIndex(7)), Some(Arc::clone(&entries)));
        cache.forget(&[&prefix[..], b"c2"].concat());
        assert_eq!(cache.get(&prefix, LogIndex(9)), None);
        assert!(cache.get(&other, LogIndex(9)).is_some_and(|list| list.is_empty()), "another one's");
    }

    fn version(index: u64, value_len: u32) -> Version {
        Version { index: LogIndex(index), position: 1, value_len, ..Version::default() }
    }

    #[test]
    fn a_row_is_known_by_its_place_and_its_type() {
        let cache = RowCache::default();
        cache.insert(&version(7, 10), Arc::new("seven".to_owned()));
        let seven = cache.get(&version(7, 10)).expect("it is remembered");
        assert_eq!(seven.downcast_ref::<String>().map(String::as_str), Some("seven"));
        assert!(cache.get(&version(8, 10)).is_none());
        assert!(cache.get(&Version { position: 2, ..version(7, 10) }).is_none());
        assert!(seven.downcast::<u64>().is_err(), "never taken for what it is not");
    }

    #[test]
    fn rows_of_a_transaction_take_the_place_of_what_they_replaced() {
        let cache = RowCache::default();
        cache.insert(&version(1, 10), Arc::new(1u64));
        cache.insert(&version(2, 10), Arc::new(2u64));
        let mut written = WrittenRows::default();
        written.replace(&version(1, 10));
        written.insert(&version(3, 10), Arc::new(3u64));
        assert!(written.bytes() > 0);
        written.replace(&version(3, 10));
        assert_eq!(written.bytes(), 0, "what it wrote itself is not kept either");
        written.insert(&version(4, 10), Arc::new(4u64));
        assert!(written.get(&version(4, 10)).is_some() && cache.get(&version(4, 10)).is_none(), "not committed yet");
        cache.take(written);
        let known: Vec<u64> = (1..=4).filter(|index| cache.get(&version(*index, 10)).is_some()).collect();
        assert_eq!(known, [2, 4]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let cache = RowCache::default();
        let len = 100_000;
        let fit = CATALOG_ROWS_CACHED_BYTES_MAX / (2 * u64::from(len) + ROW_BYTES);
        for index in 0..3 * fit {
            cache.insert(&version(index, len), Arc::new(index));
        }
        let known = (0..3 * fit).filter(|index| cache.get(&version(*index, len)).is_some()).count() as u64;
        assert!(known > 0 && known <= fit, "{known} of {fit} that fit");
    }
}
