//! Bounded caches of what is read again and again: rows as they are used, and which checks an instance has.
//!
//! Owns what is remembered. Rows are known by their place in history, where nothing ever changes, so that an entry is right for
//! every view; only what is committed is remembered, for what is not may still come to nothing. Invariant of lists: one that
//! is remembered is the newest among all that is committed or about to be. The writer forgets a list *before* the commit that
//! changes it becomes visible; a reader remembers one only if it is the newest while no commit is under way. So a reader may
//! use a list exactly if that is not newer than the reader's view.

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::super::record::Version;
use super::keys;
use crate::types::LogIndex;
use crate::types::limits::{CATALOG_LISTS_CACHED_BYTES_MAX, CATALOG_ROWS_CACHED_BYTES_MAX};

/// Where a row is.
type Place = (LogIndex, u32);

/// Bytes that a decoded row takes besides its texts, about: the row itself with its empty maps, and its entry here.
const ROW_BYTES: u64 = 768;

#[derive(Clone)]
struct Remembered {
    row: Arc<dyn Any + Send + Sync>,
    encoded_len: u32,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Place, Remembered> for ByBytes {
    fn weight(&self, _: &Place, remembered: &Remembered) -> u64 {
        // Texts are as long as they are encoded; each is an allocation of its own.
        2 * u64::from(remembered.encoded_len) + ROW_BYTES
    }
}

/// Decoded rows of one generation of the state.
pub struct RowCache {
    rows: Cache<Place, Remembered, ByBytes>,
}

impl Default for RowCache {
    fn default() -> Self {
        let expected = (CATALOG_ROWS_CACHED_BYTES_MAX / ROW_BYTES) as usize;
        Self { rows: Cache::with_weighter(expected, CATALOG_ROWS_CACHED_BYTES_MAX, ByBytes) }
    }
}

impl RowCache {
    /// The row that a version points to, if it is remembered.
    pub(super) fn get<R: Send + Sync + 'static>(&self, version: &Version) -> Option<Arc<R>> {
        let found = self.rows.get(&(version.index, version.position))?;
        found.row.downcast().ok()
    }

    /// Remembers a row that is committed.
    pub(super) fn insert<R: Send + Sync + 'static>(&self, version: &Version, row: &Arc<R>) {
        let remembered = Remembered { row: Arc::clone(row) as Arc<_>, encoded_len: version.value_len };
        self.rows.insert((version.index, version.position), remembered);
    }
}

/// Bytes that a list takes besides its texts, and one of these, about.
const LIST_BYTES: u64 = 160;
const ENTRY_BYTES: u64 = 64;

#[derive(Clone)]
struct List {
    /// Through which entry of the log it was read.
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

/// Lists of checks of one generation of the state, by what their entries in the index begin with.
pub(in crate::storage::state) struct ListCache {
    lists: Cache<Box<[u8]>, List, ByEntries>,
}

impl Default for ListCache {
    fn default() -> Self {
        let expected = (CATALOG_LISTS_CACHED_BYTES_MAX / (LIST_BYTES + ENTRY_BYTES)) as usize;
        Self { lists: Cache::with_weighter(expected, CATALOG_LISTS_CACHED_BYTES_MAX, ByEntries) }
    }
}

impl ListCache {
    /// What follows `prefix` in the index, for a reader that sees everything up to `applied`.
    pub(in crate::storage::state) fn get(&self, prefix: &[u8], applied: LogIndex) -> Option<Arc<[Bytes]>> {
        self.lists.get(prefix).filter(|list| list.seen <= applied).map(|list| list.entries)
    }

    /// Remembers a list that is the newest.
    pub(in crate::storage::state) fn insert(&self, prefix: &[u8], seen: LogIndex, entries: &Arc<[Bytes]>) {
        self.lists.insert(prefix.into(), List { seen, entries: Arc::clone(entries) });
    }

    /// An entry of the index is about to come or to go.
    pub(in crate::storage::state) fn forget(&self, entry: &[u8]) {
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

    fn place(index: u64, value_len: u32) -> Version {
        Version { index: LogIndex(index), position: 1, value_len, ..Version::default() }
    }

    #[test]
    fn a_row_is_known_by_its_place_and_its_type() {
        let cache = RowCache::default();
        cache.insert(&place(7, 10), &Arc::new("seven".to_owned()));
        assert_eq!(cache.get::<String>(&place(7, 10)).as_deref().map(String::as_str), Some("seven"));
        assert_eq!(cache.get::<String>(&place(8, 10)), None);
        assert_eq!(cache.get::<String>(&Version { position: 2, ..place(7, 10) }), None);
        assert_eq!(cache.get::<u64>(&place(7, 10)), None, "never taken for what it is not");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let cache = RowCache::default();
        let len = 100_000;
        let fit = CATALOG_ROWS_CACHED_BYTES_MAX / (2 * u64::from(len) + ROW_BYTES);
        for index in 0..3 * fit {
            cache.insert(&place(index, len), &Arc::new(index));
        }
        let known = (0..3 * fit).filter(|index| cache.get::<u64>(&place(*index, len)).is_some()).count() as u64;
        assert!(known > 0 && known <= fit, "{known} of {fit} that fit");
    }
}
