//! Hashes that compare members: of the whole state at an applied index; of the data of clients,
//! which restarts do not change; and of the keys at a revision, also while later commands are
//! applied.
//!
//! Owns the canonical order and the mixing. Invariant: equal for equal logical content from the
//! compaction point on, independent of the files and of this node's reclamation; data that is not
//! replicated is left out.

use super::db::undecodable;
use super::head::StateHead;
use super::keys::{self, Table};
use super::load;
use super::options::{INDEX, META, REVISIONS, VERSIONS};
use super::reader::StateReader;
use super::record::{HistoryRecord, Version, encode_lease};
use super::revisions;
use super::view::{ReadView, read_lease};
use crate::StorageError;
use headwater_types::{Lease, LogIndex, Revision};

/// Number of records that are fetched together.
const BATCH: usize = 4096;

impl ReadView<'_> {
    /// The hash of the whole state of this view: every version that can still be read, in key
    /// order, newest first, with its value; the log indexes of revisions; the column family
    /// `index`; the replicated metadata with the applied position. Reads everything: call it from a
    /// thread that may block.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record is missing or cannot be decoded.
    pub fn state_hash(&self) -> Result<u64, StorageError> {
        let mut hash = WordHasher::default();
        self.hash_data(&mut hash)?;
        self.hash_family(META, &mut hash)?;
        Ok(hash.finish())
    }

    /// The hash of the data of clients: as [`state_hash`](Self::state_hash), without the applied
    /// position, the membership, the members' programs, the idempotency keys of commits, the
    /// lineage, the cluster's version, the quota, the history floor, the log indexes of changes of
    /// rights, the lease clock and the due points of leases. A restart, an election or retention
    /// changes those without any client. A version that compaction or retention gives up is not in
    /// the hash any more.
    ///
    /// # Errors
    ///
    /// As [`state_hash`](Self::state_hash).
    pub fn content_hash(&self) -> Result<u64, StorageError> {
        let mut hash = WordHasher::default();
        self.hash_data(&mut hash)?;
        let StateHead { revision, compaction, live_keys, live_bytes, alarms, types, .. } = *self.head();
        let content = StateHead { revision, compaction, live_keys, live_bytes, alarms, types, ..StateHead::EMPTY };
        hash.bytes(&content.encode());
        self.visit_family(META, |key, value| {
            if [keys::META_HEAD, keys::META_RECLAIM, keys::META_MEMBERSHIP, keys::META_LEASE_CLOCK].contains(&key) {
                return Ok(());
            }
            // Idempotency keys are no data of clients.
            if keys::is_of_kept_commits(key) {
                return Ok(());
            }
            // A restart may announce another program.
            if keys::parse_program(key).is_some() {
                return Ok(());
            }
            hash.bytes(key);
            if keys::parse_lease(key).is_some()
                && let Some(lease) = read_lease(key, Some(value))?
            {
                hash.bytes(&encode_lease(&Lease { due_ms: None, ..lease }));
            } else {
                hash.bytes(value);
            }
            Ok(())
        })?;
        Ok(hash.finish())
    }

    /// The hash of the keys and values as they were at `revision`, which must not lie below the
    /// compaction point or in the future. Equal on all members that can read that revision: later
    /// changes and the compaction point do not matter. Reads everything.
    ///
    /// # Errors
    ///
    /// As [`state_hash`](Self::state_hash).
    pub fn kv_hash(&self, revision: Revision) -> Result<u64, StorageError> {
        let mut hash = WordHasher::default();
        let at = self.index_of(revision)?;
        let mut batch = Batch { view: self, versions: Vec::with_capacity(BATCH), hash: &mut hash };
        let (mut group, mut met) = (Vec::new(), false);
        self.visit_versions(Table::Kv, |prefix, version| {
            if prefix != group {
                group.clear();
                group.extend_from_slice(prefix);
                met = false;
            }
            // Newest first: the first version at or below `at` is the one of the revision. A
            // tombstone means that the key did not exist.
            if met || version.index > at {
                return Ok(());
            }
            met = true;
            if version.deleted { Ok(()) } else { batch.push(version) }
        })?;
        batch.flush()?;
        hash.number(revision.get() as u64);
        Ok(hash.finish())
    }

    /// Hashes every family but `meta`. Versions and their records are hashed from the beginning of
    /// history of their table on, revisions from the compaction point on, and `index` as a whole.
    fn hash_data(&self, hash: &mut WordHasher) -> Result<(), StorageError> {
        for table in Table::ALL {
            let mut batch = Batch { view: self, versions: Vec::with_capacity(BATCH), hash: &mut *hash };
            self.every_version(table, self.head().floor_of(table), |version| batch.push(version))?;
            batch.flush()?;
        }
        self.hash_revisions(hash)?;
        self.hash_family(INDEX, hash)
    }

    fn hash_revisions(&self, hash: &mut WordHasher) -> Result<(), StorageError> {
        hash.bytes(REVISIONS.as_bytes());
        revisions::visit(self.db, self.options(), self.head(), |revision, index| {
            hash.bytes(&keys::revision(revision));
            hash.bytes(&index.get().to_be_bytes());
        })
    }

    /// Visits every version that can still be read, tombstones too: all above `compacted`, and for
    /// each key the newest one at or below `compacted`, unless that is a tombstone below it.
    fn every_version(
        &self,
        table: Table,
        compacted: LogIndex,
        mut visit: impl FnMut(Version) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let (mut group, mut base_met) = (Vec::new(), false);
        self.visit_versions(table, |prefix, version| {
            if prefix != group {
                group.clear();
                group.extend_from_slice(prefix);
                base_met = false;
            }
            if version.index > compacted {
                return visit(version);
            }
            let is_base = !std::mem::replace(&mut base_met, true);
            if is_base && (!version.deleted || version.index == compacted) { visit(version) } else { Ok(()) }
        })
    }

    /// Visits every stored version of a table, by key, newest first, with the prefix that the
    /// versions of one key share.
    fn visit_versions(
        &self,
        table: Table,
        mut visit: impl FnMut(&[u8], Version) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let mut options = self.options();
        options.set_total_order_seek(true);
        options.set_iterate_lower_bound(keys::table_start(table));
        options.set_iterate_upper_bound(keys::table_end(table));
        let mut iter = self.db.db.raw_iterator_cf_opt(self.families.versions, options);
        iter.seek_to_first();
        while let Some((key, value)) = iter.item() {
            let decoded =
                keys::split_version(key).and_then(|(prefix, index)| Some((prefix, Version::decode(index, value)?)));
            let Some((prefix, version)) = decoded else {
                return Err(undecodable(VERSIONS, key, value, "cannot be decoded"));
            };
            visit(prefix, version)?;
            iter.next();
        }
        iter.status()?;
        Ok(())
    }

    /// Hashes the entries of a family, without the data that is not replicated.
    fn hash_family(&self, name: &str, hash: &mut WordHasher) -> Result<(), StorageError> {
        hash.bytes(name.as_bytes());
        self.visit_family(name, |key, value| {
            if name != META || key != keys::META_RECLAIM {
                hash.bytes(key);
                hash.bytes(value);
            }
            Ok(())
        })
    }

    fn visit_family(
        &self,
        name: &str,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let family = match name {
            INDEX => self.families.index,
            _ => self.families.meta,
        };
        let mut iter = self.db.db.raw_iterator_cf_opt(family, self.options());
        iter.seek_to_first();
        while let Some((key, value)) = iter.item() {
            visit(key, value)?;
            iter.next();
        }
        iter.status()?;
        Ok(())
    }
}

/// Collects versions, fetches their records together, and hashes them in order.
struct Batch<'a, 'db> {
    view: &'a ReadView<'db>,
    versions: Vec<Version>,
    hash: &'a mut WordHasher,
}

impl Batch<'_, '_> {
    fn push(&mut self, version: Version) -> Result<(), StorageError> {
        self.versions.push(version);
        if self.versions.len() == BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), StorageError> {
        for (version, record) in
            self.versions.iter().zip(load::stored(self.view.db, || self.view.options(), &self.versions)?)
        {
            hash_version(version, &record, self.hash);
        }
        self.versions.clear();
        Ok(())
    }
}

fn hash_version(version: &Version, record: &HistoryRecord, hash: &mut WordHasher) {
    hash.bytes(&record.kv.key);
    for number in [
        version.index.get(),
        version.position.into(),
        version.deleted.into(),
        version.create_revision.get() as u64,
        version.mod_revision.get() as u64,
        version.version as u64,
        version.lease.get() as u64,
    ] {
        hash.number(number);
    }
    hash.bytes(&record.kv.value);
}

/// Mixes words of 64 bits by multiplication and rotation. Finds divergence; is no defence against
/// forgery.
pub(super) struct WordHasher(u64);

impl Default for WordHasher {
    fn default() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }
}

impl WordHasher {
    pub(super) fn number(&mut self, word: u64) {
        self.0 =
            (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_add(0xb7e1_5162_8aed_2a6b);
    }

    /// Mixes bytes and their length, so that following bytes cannot be mistaken for a part of them.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.number(u64::from_le_bytes(word.try_into().expect("invariant: a chunk of eight")));
        }
        let mut last = [0; 8];
        let rest = words.remainder();
        last[..rest.len()].copy_from_slice(rest);
        self.number(u64::from_le_bytes(last));
    }

    pub(super) fn finish(self) -> u64 {
        let mut hash = self.0;
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^ (hash >> 33)
    }
}
