//! A bounded cache of the newest version of hot keys, so that a put to one finds its predecessor
//! without a seek.
//!
//! Owns the choice of cached versions. The version of a resource may come with its outline, which
//! the next write needs. Invariant: an entry is the newest version of its key that is committed or
//! about to be committed. The writer puts entries in *before* its commit becomes visible. It also
//! adds stored versions that it reads: no other transaction commits meanwhile. A reader only puts
//! the newest version while no commit is under way. So a reader may use an entry exactly if the
//! entry is not newer than the reader's view: no newer version is visible to the view.

use std::sync::Arc;

use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};

use super::keys::Table;
use super::outline::Outline;
use super::record::Version;
use headwater_types::LogIndex;

/// Estimated memory of an entry without its key and its outline, bytes.
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

impl Weighter<CachedKey, CachedVersion> for ByBytes {
    fn weight(&self, key: &CachedKey, cached_version: &CachedVersion) -> u64 {
        let outline = cached_version.outline.as_ref().map_or(0, |outline| outline.bytes());
        ENTRY_BYTES + (key.key.len() + outline) as u64
    }
}

/// The newest version of a key.
#[derive(Clone)]
pub(super) struct CachedVersion {
    pub(super) version: Version,
    /// The outline of a resource. `None` for other tables, for tombstones, and if a look-up of a
    /// version added the entry.
    pub(super) outline: Option<Arc<Outline>>,
}

pub(super) struct KeyCache {
    entries: Cache<CachedKey, CachedVersion, ByBytes>,
}

impl KeyCache {
    pub(super) fn new(bytes: u64) -> Self {
        let expected = usize::try_from(bytes / (ENTRY_BYTES + 32)).unwrap_or(usize::MAX);
        Self { entries: Cache::with_weighter(expected, bytes, ByBytes) }
    }

    /// The newest version of `key`, tombstone or not, if it is cached and not newer than
    /// `applied`.
    pub(super) fn get(&self, table: Table, key: &[u8], applied: LogIndex) -> Option<Version> {
        self.cached_version(table, key, applied).map(|cached_version| cached_version.version)
    }

    /// The newest version of `key` as [`get`](Self::get) returns it, with its outline.
    pub(super) fn cached_version(&self, table: Table, key: &[u8], applied: LogIndex) -> Option<CachedVersion> {
        self.entries.get(&LookupKey { table: table as u8, key }).filter(|found| found.version.index <= applied)
    }

    /// Adds the newest version of a key, or the one that the commit under way makes the newest.
    pub(super) fn insert(&self, table: Table, key: &[u8], version: Version, outline: Option<Outline>) {
        let cached_version = CachedVersion { version, outline: outline.map(Arc::new) };
        self.entries.insert(CachedKey { table: table as u8, key: key.into() }, cached_version);
    }
}
