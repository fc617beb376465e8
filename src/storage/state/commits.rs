//! Commits that are kept with their idempotency keys (types::commit).
//!
//! Owns the records by key, their order in the log, and their totals. Knows no rule of a commit.
//! Invariant: each kept commit has one record and one entry of the order; the totals count both. A
//! restored store has none: its clients' keys belong to the old cluster.

use bytes::Bytes;
use rocksdb::{ColumnFamily, ReadOptions, WriteBatch};

use super::db::{undecodable, unread};
use super::keys;
use super::options::META;
use super::pending::{PendingMap, Undoable};
use super::record::{Cursor, put_varint};
use super::txn::WriteTxn;
use super::view::ReadView;
use crate::StorageError;
use headwater_proto::codec;
use headwater_types::commit::{CommitKeyId, KeptCommit};
use headwater_types::{Feature, LogIndex};

/// First byte of the values of the order and of the totals.
const FORMAT: u8 = Feature::Commits.since().byte();
/// Bytes of the keys and fixed parts of a record and its entry of the order.
const OVERHEAD_BYTES: u64 = 64;
/// Entries of the order that are read at once.
const READ_AHEAD: usize = 256;

/// Number and size of the kept commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptCommits {
    /// Number of commits.
    pub count: u64,
    /// Their size, bytes: the sum of [`WriteTxn::kept_bytes`].
    pub bytes: u64,
    /// Number of the newest one ([`KeptEntry::number`]); without meaning if there is none.
    pub number: u64,
    /// No kept commit is older than this log index.
    oldest: LogIndex,
}

/// A kept commit as an entry of the order in which commits are in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptEntry {
    /// Log index of the commit.
    pub index: LogIndex,
    /// The idempotency key.
    pub id: CommitKeyId,
    /// Number of the commit among those with keys, in the order of the log. Starts at 1 whenever no
    /// earlier commit is kept.
    pub number: u64,
    /// Time of the proposal by the proposer's clock, milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Its part of [`KeptCommits::bytes`], bytes.
    bytes: u64,
}

/// The oldest stored entries of the order. Every commit with a key looks at the first one; an
/// iterator for each would be a sixth of the time that such a commit takes to apply.
#[derive(Default)]
pub(super) struct OldestCommits {
    /// The first entry is the first stored one from this log index on.
    from: LogIndex,
    /// Consecutive stored entries. Removed ones may be among them: those before
    /// [`KeptCommits::oldest`].
    entries: Vec<KeptEntry>,
}

impl OldestCommits {
    /// The first stored entry from `index` on. `None` if it is not among those that were read.
    fn since(&self, index: LogIndex) -> Option<KeptEntry> {
        let first = self.entries.partition_point(|entry| entry.index < index);
        self.entries.get(first).filter(|_| index >= self.from).copied()
    }
}

/// Uncommitted records of kept commits.
#[derive(Default)]
pub(super) struct PendingCommits {
    /// Records by key; `None` is a removal.
    records: PendingMap<CommitKeyId, Option<KeptCommit>>,
    /// The order; `None` is a removal.
    order: PendingMap<LogIndex, Option<KeptEntry>>,
    totals: PendingMap<(), KeptCommits>,
    /// Whether every stored record is removed.
    are_cleared: PendingMap<(), bool>,
}

impl PendingCommits {
    /// The maps, for savepoints.
    pub(super) fn maps(&mut self) -> [&mut dyn Undoable; 4] {
        [&mut self.records, &mut self.order, &mut self.totals, &mut self.are_cleared]
    }

    /// Adds the changes to the batch.
    pub(super) fn stage(&self, batch: &mut WriteBatch, meta: &ColumnFamily) {
        if self.clears() {
            batch.delete_range_cf(meta, keys::META_COMMITS.0, keys::META_COMMITS.1);
        }
        for (id, kept) in self.records.iter() {
            match kept {
                Some(kept) => batch.put_cf(meta, keys::kept_commit(id), codec::encode_kept_commit(kept)),
                None => batch.delete_cf(meta, keys::kept_commit(id)),
            }
        }
        for (index, entry) in self.order.iter() {
            match entry {
                Some(entry) => batch.put_cf(meta, keys::commit_order(*index), encode_entry(entry)),
                None => batch.delete_cf(meta, keys::commit_order(*index)),
            }
        }
        if let Some(totals) = self.totals.get(&()) {
            match totals.count {
                0 => batch.delete_cf(meta, keys::META_COMMIT_TOTALS),
                _ => batch.put_cf(meta, keys::META_COMMIT_TOTALS, encode_totals(totals)),
            }
        }
    }

    fn clears(&self) -> bool {
        self.are_cleared.get(&()).copied().unwrap_or(false)
    }
}

impl WriteTxn<'_> {
    /// The commit that is kept with an idempotency key. `None` if none is.
    ///
    /// # Errors
    ///
    /// If the disk failed, or the record cannot be decoded.
    pub fn kept_commit(&self, id: &CommitKeyId) -> Result<Option<KeptCommit>, StorageError> {
        if let Some(known) = self.commits.records.get(id) {
            return Ok(known.clone());
        }
        if self.commits.clears() {
            return Ok(None);
        }
        let key = keys::kept_commit(id);
        read_kept(&key, self.db.db.get_pinned_cf(self.families.meta, key)?.as_deref())
    }

    /// Number and size of the kept commits.
    ///
    /// # Errors
    ///
    /// If the disk failed, or the record cannot be decoded.
    pub fn kept_commits(&self) -> Result<KeptCommits, StorageError> {
        if let Some(totals) = self.commits.totals.get(&()) {
            return Ok(*totals);
        }
        let Some(bytes) = self.db.db.get_pinned_cf(self.families.meta, keys::META_COMMIT_TOTALS)? else {
            return Ok(KeptCommits::default());
        };
        decode_totals(&bytes)
            .ok_or_else(|| undecodable(META, keys::META_COMMIT_TOTALS, &bytes, "totals that cannot be decoded"))
    }

    /// The size that a commit adds to [`KeptCommits::bytes`], bytes.
    pub fn kept_bytes(kept: &KeptCommit) -> u64 {
        codec::encode_kept_commit(kept).len() as u64 + OVERHEAD_BYTES
    }

    /// Keeps the commit of the current command with the idempotency key `id`. No other commit is
    /// kept with that key.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn keep_commit(&mut self, id: CommitKeyId, kept: KeptCommit) -> Result<(), StorageError> {
        let mut totals = self.kept_commits()?;
        let (index, unix_ms, bytes) = (kept.index, kept.unix_ms, Self::kept_bytes(&kept));
        if totals.count == 0 {
            // Totals without a commit are not stored.
            (totals.oldest, totals.number) = (index, 0);
        }
        totals.count += 1;
        totals.bytes += bytes;
        totals.number += 1;
        let number = totals.number;
        self.commits.records.insert(id, Some(kept));
        self.commits.order.insert(index, Some(KeptEntry { index, id, number, unix_ms, bytes }));
        self.commits.totals.insert((), totals);
        Ok(())
    }

    /// The oldest kept commit. `None` if none is kept.
    ///
    /// # Errors
    ///
    /// If the disk failed, or an entry cannot be decoded.
    pub fn oldest_kept_commit(&self) -> Result<Option<KeptEntry>, StorageError> {
        let totals = self.kept_commits()?;
        if totals.count == 0 {
            return Ok(None);
        }
        if !self.commits.clears() {
            let mut stored = self.db.oldest_commits.lock();
            let mut found = stored.since(totals.oldest);
            if found.is_none() {
                *stored = self.read_ahead(totals.oldest)?;
                found = stored.since(totals.oldest);
            }
            if found.is_some() {
                return Ok(found);
            }
        }
        // Those of this transaction are newer than the stored ones.
        Ok(self.commits.order.values().flatten().next().copied())
    }

    /// The first stored entries of the order from `from` on, at most [`READ_AHEAD`].
    fn read_ahead(&self, from: LogIndex) -> Result<OldestCommits, StorageError> {
        let mut options = ReadOptions::default();
        // Removed entries before the oldest one would have to be passed each time.
        options.set_iterate_lower_bound(keys::commit_order(from));
        options.set_iterate_upper_bound(keys::META_COMMIT_ORDER_END);
        let mut iter = self.db.db.raw_iterator_cf_opt(self.families.meta, options);
        iter.seek_to_first();
        let mut entries = Vec::new();
        while let Some((key, value)) = iter.item().filter(|_| entries.len() < READ_AHEAD) {
            let entry = keys::parse_commit_order(key).and_then(|index| decode_entry(index, value));
            entries.push(entry.ok_or_else(|| undecodable(META, key, value, "not the place of a commit"))?);
            iter.next();
        }
        iter.status()?;
        Ok(OldestCommits { from, entries })
    }

    /// Removes the oldest kept commit. `entry` is the answer of
    /// [`oldest_kept_commit`](Self::oldest_kept_commit).
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded.
    pub fn forget_commit(&mut self, entry: &KeptEntry) -> Result<(), StorageError> {
        let mut totals = self.kept_commits()?;
        totals.count -= 1;
        totals.bytes -= entry.bytes;
        totals.oldest = totals.oldest.max(entry.index.next());
        self.commits.records.insert(entry.id, None);
        self.commits.order.insert(entry.index, None);
        self.commits.totals.insert((), totals);
        Ok(())
    }

    /// Removes all kept commits. For a change to a cluster version that does not keep any.
    pub fn forget_commits(&mut self) {
        let (records, order) = (&mut self.commits.records, &mut self.commits.order);
        for id in records.keys().copied().collect::<Vec<_>>() {
            records.remove(&id);
        }
        for index in order.keys().copied().collect::<Vec<_>>() {
            order.remove(&index);
        }
        self.commits.totals.insert((), KeptCommits::default());
        self.commits.are_cleared.insert((), true);
    }
}

impl ReadView<'_> {
    /// The commit that is kept with an idempotency key. `None` if none is.
    ///
    /// # Errors
    ///
    /// If the disk failed, or the record cannot be decoded.
    pub fn kept_commit(&self, id: &CommitKeyId) -> Result<Option<KeptCommit>, StorageError> {
        let key = keys::kept_commit(id);
        read_kept(&key, self.db.db.get_pinned_cf_opt(self.families.meta, key, &self.options())?.as_deref())
    }
}

fn read_kept(key: &[u8], bytes: Option<&[u8]>) -> Result<Option<KeptCommit>, StorageError> {
    let Some(bytes) = bytes else { return Ok(None) };
    let kept = codec::decode_kept_commit(Bytes::copy_from_slice(bytes));
    kept.map(Some).map_err(|error| unread(META, key, error))
}

fn encode_entry(entry: &KeptEntry) -> Vec<u8> {
    let mut out = vec![FORMAT];
    out.extend_from_slice(&entry.id);
    put_varint(&mut out, entry.number);
    put_varint(&mut out, entry.unix_ms);
    put_varint(&mut out, entry.bytes);
    out
}

fn decode_entry(index: LogIndex, bytes: &[u8]) -> Option<KeptEntry> {
    let mut cursor = Cursor::open_as(Feature::Commits.since(), bytes)?;
    let mut id = CommitKeyId::default();
    for byte in &mut id {
        *byte = cursor.byte()?;
    }
    let (number, unix_ms, bytes) = (cursor.varint()?, cursor.varint()?, cursor.varint()?);
    cursor.end(KeptEntry { index, id, number, unix_ms, bytes })
}

fn encode_totals(totals: &KeptCommits) -> Vec<u8> {
    let mut out = vec![FORMAT];
    for number in [totals.count, totals.bytes, totals.oldest.get(), totals.number] {
        put_varint(&mut out, number);
    }
    out
}

fn decode_totals(bytes: &[u8]) -> Option<KeptCommits> {
    let mut cursor = Cursor::open_as(Feature::Commits.since(), bytes)?;
    let (count, bytes, oldest) = (cursor.varint()?, cursor.varint()?, LogIndex(cursor.varint()?));
    let number = cursor.varint()?;
    cursor.end(KeptCommits { count, bytes, number, oldest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_totals_are_pinned() {
        let entry = KeptEntry { index: LogIndex(9), id: [7; 16], number: 6, unix_ms: 300, bytes: 200 };
        let bytes = encode_entry(&entry);
        assert_eq!(bytes, [&b"\x04"[..], &[7; 16], b"\x06\xac\x02\xc8\x01"].concat());
        assert_eq!(decode_entry(LogIndex(9), &bytes), Some(entry));
        assert_eq!(decode_entry(LogIndex(9), &bytes[..bytes.len() - 1]), None);
        let totals = KeptCommits { count: 2, bytes: 300, number: 5, oldest: LogIndex(9) };
        assert_eq!(encode_totals(&totals), b"\x04\x02\xac\x02\x09\x05");
        assert_eq!(decode_totals(&encode_totals(&totals)), Some(totals));
        assert_eq!(decode_totals(b"\x04\x02\xac\x02\x09\x05\x00"), None);
    }
}
