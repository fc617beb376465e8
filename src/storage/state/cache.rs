//! A bounded cache of the newest version of hot keys, so that a put to one finds its predecessor without a seek.
//!
//! Owns which versions are remembered. Invariant: an entry is the newest version of its key among all that is committed
//! or about to be committed. The writer puts entries in *before* its commit becomes visible; a reader only what is newest
//! while no commit is under way. So a reader may use an entry exactly if the entry is not newer than the reader's view:
//! nothing newer that the view could see exists.

use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};

use super::keys::Table;
use super::record::Version;
use crate::types::LogIndex;

/// Bytes that an entry takes besides its key, about.
const ENTRY_BYTES: u64 = 112;

#[derive(Clone, PartialEq, Eq, Hash)]
struct CachedKey {
    table: u8,
    key: Box<[u8]>,
}

#[derive(Hash)]
struct LookupKey<'a> {
    table: u8,
    key: &'a [u8],
}

impl Equivalent<CachedKey> for LookupKey<'_> {
    fn equivalent(&self, cached: &CachedKey) -> bool {
        self.table == cached.table && *self.key == *cached.key
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<CachedKey, Version> for ByBytes {
    fn weight(&self, key: &CachedKey, _: &Version) -> u64 {
        key.key.len() as u64 + ENTRY_BYTES
    }
}

pub(super) struct KeyCache {
    entries: Cache<CachedKey, Version, ByBytes>,
}

impl KeyCache {
    pub(super) fn new(bytes: u64) -> Self {
        let expected = usize::try_from(bytes / (ENTRY_BYTES + 32)).unwrap_or(usize::MAX);
        Self { entries: Cache::with_weighter(expected, bytes, ByBytes) }
    }

    /// The newest version of `key`, tombstone or not, if it is remembered and not newer than `applied`.
    pub(super) fn get(&self, table: Table, key: &[u8], applied: LogIndex) -> Option<Version> {
        self.entries.get(&LookupKey { table: table as u8, key }).filter(|version| version.index <= applied)
    }

    /// Remembers a version that is newest, or will be with the commit that is under way.
    pub(super) fn insert(&self, table: Table, key: &[u8], version: Version) {
        self.entries.insert(CachedKey { table: table as u8, key: key.into() }, version);
    }
}
