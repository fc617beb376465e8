//! Reads of a state: of a committed view, or of a transaction that sees its own writes.
//!
//! Owns the trait that business rules are written against, so that a range has one meaning
//! everywhere. Invariant: all answers of one reader come from one state.

use std::fmt;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::catalog::AnyRow;
use super::head::StateHead;
use super::keys::{self, Table};
use super::ranges::Segment;
use super::record::{HistoryRecord, Version};
use super::scan::VersionScan;
use super::type_record::{Registration, TypeRecord};
use crate::StorageError;
use headwater_types::resource::{Resource, ResourceId, Tenancy, TypeName, resource_key};
use headwater_types::{KeyRange, KeyValue, LogIndex, Revision};

/// The point for reads of the newest versions: it is above every log index.
pub const NEWEST: LogIndex = LogIndex(u64::MAX);

/// A state that can be read at any point between its compaction point and now.
pub trait StateReader {
    /// The head of this state. That of a transaction has the changes of the transaction.
    fn head(&self) -> &StateHead;

    /// The log index of the state of `revision`: the command that made it; zero for a revision that
    /// no command made; a view may return [`NEWEST`] for its current revision. The caller has
    /// checked that `revision` lies between the compaction point and the current revision, both
    /// included.
    ///
    /// # Errors
    ///
    /// If the disk failed, or the revision has no entry that can be decoded.
    fn index_of(&self, revision: Revision) -> Result<LogIndex, StorageError>;

    /// The version of `key` that was live right after the command at `at`; [`NEWEST`] for now.
    /// `None` if the key did not exist then.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn lookup(&self, table: Table, key: &[u8], at: LogIndex) -> Result<Option<Version>, StorageError>;

    /// Iterates over the versions that were live right after the command at `at`, in key order.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn scan<'a>(&'a self, table: Table, range: &KeyRange, at: LogIndex) -> Result<VersionScan<'a>, StorageError>;

    /// Reads the records of `versions`, in their order.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record is missing or damaged.
    fn load(&self, versions: &[Version]) -> Result<Vec<HistoryRecord>, StorageError>;

    /// Reads the pairs of versions that a scan of this state has found, in their order.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    fn load_found(&self, found: &[FoundVersion]) -> Result<Vec<KeyValue>, StorageError> {
        let versions: Vec<Version> = found.iter().map(|found| found.version).collect();
        Ok(self.load(&versions)?.into_iter().map(|record| record.kv).collect())
    }

    /// The keys of the resources owned by the resource with the uid of `owner`, in order: the first
    /// `limit` after `after`, or from the start if `after` is empty.
    ///
    /// # Errors
    ///
    /// If the disk failed.
    fn owned(&self, owner: &ResourceId, after: &[u8], limit: usize) -> Result<Vec<Bytes>, StorageError>;

    /// Entries of the column family `index` that begin with `prefix`, in order: the first `limit`
    /// after `after`, or from the start if `after` is empty. Neither `after` nor the returned
    /// entries include the prefix.
    ///
    /// # Errors
    ///
    /// If the disk failed.
    fn index_keys(&self, prefix: &[u8], after: &[u8], limit: usize) -> Result<Vec<Bytes>, StorageError>;

    /// As [`index_keys`](Self::index_keys), but only the first entry of each group. `end` returns a
    /// key behind the group of an entry and before the next group, or `None` to end the list with
    /// this entry. Entries and that key are without the prefix. The cost is proportional to the
    /// answer, not to the size of the groups.
    ///
    /// # Errors
    ///
    /// If the disk failed.
    fn index_groups(&self, prefix: &[u8], end: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> Result<Vec<Bytes>, StorageError>;

    /// The ids of the checks of one instance, or of a node without its instances. `prefix` must
    /// come from `catalog::keys::checks_of`: a changed check evicts only the list of that prefix.
    /// The list is cached, because every delivered instance needs it.
    ///
    /// # Errors
    ///
    /// If the disk failed.
    fn check_list(&self, prefix: &[u8]) -> Result<Arc<[Bytes]>, StorageError>;

    /// A log index that `meta` holds under `key`; zero if it holds none.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn meta_index(&self, key: &[u8]) -> Result<LogIndex, StorageError>;

    /// The record of a type of resources; the default if there is none. The count of a built-in
    /// type is always zero.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn type_record(&self, name: &TypeName) -> Result<TypeRecord, StorageError>;

    /// The registration of a type of resources. `None` if it is not registered.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn registration(&self, name: &TypeName) -> Result<Option<Registration>, StorageError> {
        Ok(self.type_record(name)?.registered)
    }

    /// Count of resources in a unit of tenancy: in a namespace, or with [`WILDCARD`] as namespace
    /// in all of a partition.
    ///
    /// [`WILDCARD`]: headwater_types::resource::WILDCARD
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn unit_count(&self, unit: &Tenancy) -> Result<u64, StorageError>;

    /// The decoded row of the catalog that `version` points to, if it is cached.
    fn cached_row(&self, version: &Version) -> Option<AnyRow>;

    /// Caches a decoded row.
    fn cache_row(&self, version: &Version, row: AnyRow);

    /// The live resource under `key`, with its version. `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    fn resource(&self, key: &[u8]) -> Result<Option<(Version, Resource)>, StorageError> {
        let Some(version) = self.lookup(Table::Resource, key, NEWEST)? else { return Ok(None) };
        let record = self.load_one(&version)?;
        Ok(Some((version, record.resource(version.index)?)))
    }

    /// The live resource with the name, group, kind and tenancy in `id`, without data and
    /// generation, with its version. Its uid may be any. `None` if there is none. A transaction
    /// takes hot ones from the cache.
    ///
    /// # Errors
    ///
    /// As [`resource`](Self::resource).
    fn resource_outline(&self, id: &ResourceId) -> Result<Option<(Version, Resource)>, StorageError> {
        let found = self.resource(&resource_key(id))?;
        Ok(found.map(|(version, resource)| (version, Resource { generation: String::new(), data: None, ..resource })))
    }

    /// Reads the record of one version.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    fn load_one(&self, version: &Version) -> Result<HistoryRecord, StorageError> {
        let mut records = self.load(std::slice::from_ref(version))?;
        Ok(records.pop().expect("invariant: one record per version"))
    }
}

/// A key as a scan finds it: decoded only on demand.
#[derive(Clone, Copy, Debug)]
pub enum KeyRef<'a> {
    /// A key read from disk.
    Escaped(EscapedKey<'a>),
    /// A key of the transaction, not yet committed.
    Plain(&'a Bytes),
    /// A key in the cache of ranges.
    Cached(CachedKey<'a>),
}

/// A key in a segment of the cache of ranges.
#[derive(Clone, Copy)]
pub struct CachedKey<'a> {
    pub(super) segment: &'a Arc<Segment>,
    pub(super) row: usize,
}

impl fmt::Debug for CachedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CachedKey({})", self.segment.key(self.row).escape_ascii())
    }
}

/// Version found by a scan, with the segment and row of its key in the cache of ranges, if the scan
/// found it there. The value is read from the segment or, if that is gone, from history.
#[derive(Clone)]
pub struct FoundVersion {
    /// The version.
    pub version: Version,
    /// The segment of its key, which may be gone. Dangling if the version was not found in one.
    pub(super) segment: Weak<Segment>,
    /// Row of the key in the segment.
    pub(super) row: usize,
}

impl fmt::Debug for FoundVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FoundVersion").field(&self.version).finish()
    }
}

/// A key in its stored form, as a prefix of version keys.
#[derive(Clone, Copy, Debug)]
pub struct EscapedKey<'a>(pub(super) &'a [u8]);

impl KeyRef<'_> {
    /// The key as the client wrote it: a key in its stored form is unescaped.
    pub fn to_bytes(self) -> Bytes {
        match self {
            Self::Escaped(EscapedKey(prefix)) => keys::unescaped(prefix),
            Self::Plain(key) => key.clone(),
            // A copy: a few keys of a long interval must not keep all others in memory.
            Self::Cached(CachedKey { segment, row }) => Bytes::copy_from_slice(segment.key(row)),
        }
    }

    /// Joins `version`, which the scan found with this key, to the position of the key in the cache
    /// of ranges. The result is the input of [`StateReader::load_found`].
    pub fn with_version(self, version: Version) -> FoundVersion {
        match self {
            Self::Escaped(_) | Self::Plain(_) => FoundVersion { version, segment: Weak::new(), row: 0 },
            Self::Cached(CachedKey { segment, row }) => FoundVersion { version, segment: Arc::downgrade(segment), row },
        }
    }

    /// Length of the key as the client wrote it, bytes.
    pub fn user_len(self) -> usize {
        match self {
            Self::Escaped(EscapedKey(prefix)) => keys::unescaped_len(prefix),
            Self::Plain(key) => key.len(),
            Self::Cached(CachedKey { segment, row }) => segment.key(row).len(),
        }
    }
}
