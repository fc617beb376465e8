//! One number for everything that a state says, so that members can be compared at an equal applied index; and one for
//! its keys at a revision, so that they can be compared while they move on.
//!
//! Owns the canonical order and the mixing. Invariant: equal for equal logical content from the compaction point on,
//! whatever the files look like and however far this node has reclaimed; it leaves out what is not replicated.

use super::db::corrupt;
use super::keys::{self, Table};
use super::options::{INDEX, META, REVISIONS, VERSIONS};
use super::reader::StateReader;
use super::record::{HistoryRecord, Version};
use super::view::ReadView;
use crate::storage::StorageError;
use crate::types::{LogIndex, Revision};

/// Records whose values are fetched together.
const BATCH: usize = 4096;

impl ReadView<'_> {
    /// The hash of the whole state of this view: every version that can still be read, in key order, newest first, with
    /// its value; the revisions; the indexes; the replicated metadata with the applied position. Reads everything: call
    /// it from a thread that may block.
    ///
    /// # Errors
    ///
    /// If the disk failed, or something is not where it must be.
    pub fn state_hash(&self) -> Result<u64, StorageError> {
        let mut hash = Mixer::default();
        for table in Table::ALL {
            self.hash_table(table, LogIndex(u64::MAX), &mut hash)?;
        }
        let point = self.head().compaction.map(|point| keys::revision(point.revision));
        self.hash_family(REVISIONS, point.as_ref().map_or(&[][..], |key| &key[..]), &mut hash)?;
        self.hash_family(INDEX, &[], &mut hash)?;
        self.hash_family(META, &[], &mut hash)?;
        Ok(hash.finish())
    }

    /// The hash of the key-value table up to `revision`, which must not lie below the compaction point or in the future:
    /// equal wherever the compaction point is the same, whatever came later. Reads everything.
    ///
    /// # Errors
    ///
    /// As [`state_hash`](Self::state_hash).
    pub fn kv_hash(&self, revision: Revision) -> Result<u64, StorageError> {
        let mut hash = Mixer::default();
        self.hash_table(Table::Kv, self.index_of(revision)?, &mut hash)?;
        hash.number(revision.get() as u64);
        Ok(hash.finish())
    }

    fn hash_table(&self, table: Table, through: LogIndex, hash: &mut Mixer) -> Result<(), StorageError> {
        let compacted = self.head().floor_of(table);
        let mut batch = Vec::with_capacity(BATCH);
        let flush = |batch: &mut Vec<Version>, hash: &mut Mixer| {
            for (version, record) in batch.iter().zip(self.load(batch)?) {
                hash_version(version, &record, hash);
            }
            batch.clear();
            Ok::<_, StorageError>(())
        };
        self.every_version(table, compacted, |version| {
            if version.index > through {
                return Ok(());
            }
            batch.push(version);
            if batch.len() == BATCH { flush(&mut batch, hash) } else { Ok(()) }
        })?;
        flush(&mut batch, hash)
    }

    /// Visits every version that can still be read, tombstones too: all above where history begins, and of those at or
    /// below that the newest of each key, unless that is a tombstone below.
    fn every_version(
        &self,
        table: Table,
        compacted: LogIndex,
        mut visit: impl FnMut(Version) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let mut options = self.options();
        options.set_total_order_seek(true);
        options.set_iterate_lower_bound(keys::table_start(table));
        options.set_iterate_upper_bound(keys::table_end(table));
        let mut iter = self.db.db.raw_iterator_cf_opt(self.families.versions, options);
        let mut group = Vec::new();
        let mut base_met = false;
        iter.seek_to_first();
        while let Some((key, value)) = iter.item() {
            let decoded =
                keys::split_version(key).and_then(|(prefix, index)| Some((prefix, Version::decode(index, value)?)));
            let Some((prefix, version)) = decoded else {
                return Err(corrupt(VERSIONS, key, "cannot be decoded"));
            };
            if prefix != group {
                group.clear();
                group.extend_from_slice(prefix);
                base_met = false;
            }
            if version.index > compacted {
                visit(version)?;
            } else if !base_met {
                base_met = true;
                if !version.deleted || version.index == compacted {
                    visit(version)?;
                }
            }
            iter.next();
        }
        iter.status()?;
        Ok(())
    }

    /// Hashes a whole family from `from` on, except for what is not replicated.
    fn hash_family(&self, name: &str, from: &[u8], hash: &mut Mixer) -> Result<(), StorageError> {
        let family = match name {
            REVISIONS => self.families.revisions,
            INDEX => self.families.index,
            _ => self.families.meta,
        };
        hash.bytes(name.as_bytes());
        let mut iter = self.db.db.raw_iterator_cf_opt(family, self.options());
        iter.seek(from);
        while let Some((key, value)) = iter.item() {
            if name != META || key != keys::META_RECLAIM {
                hash.bytes(key);
                hash.bytes(value);
            }
            iter.next();
        }
        iter.status()?;
        Ok(())
    }
}

fn hash_version(version: &Version, record: &HistoryRecord, hash: &mut Mixer) {
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

/// Mixes words of 64 bits by multiplication and rotation. Finds divergence; is no defence against forgery.
pub(super) struct Mixer(u64);

impl Default for Mixer {
    fn default() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }
}

impl Mixer {
    pub(super) fn number(&mut self, word: u64) {
        self.0 =
            (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_add(0xb7e1_5162_8aed_2a6b);
    }

    /// Mixes bytes and their length, so that what follows cannot be mistaken for a part of them.
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
