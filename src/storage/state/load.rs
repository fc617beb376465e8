//! Fetches the history records of versions that a point read or a scan has found.
//!
//! Owns the size of a batch. Invariant: every visible version has its record; a missing one is
//! corruption.

use rocksdb::{DBRawIterator, ReadOptions};

use super::db::{StateDb, corrupt, undecodable};
use super::keys;
use super::options::HISTORY;
use super::record::{HistoryRecord, Version, decode_history};
use crate::StorageError;
use headwater_types::LogIndex;

/// Most records in one request to RocksDB: as many as RocksDB reads together.
const BATCH: usize = 32;
/// Largest distance of two neighbours in a stretch, in log indexes. A stretch may be read with an
/// iterator.
const WALK_GAP_MAX: u64 = 3;
/// Fewest records of a stretch that is read with an iterator.
const WALK_MIN: usize = 16;

/// Log index and position of a record, and its position in the answer.
type Slot = (LogIndex, u32, usize);

/// Fetches the records of `versions` in their order. One alone comes from the cache if it was read
/// lately. `options` makes the read options, with the view's snapshot if there is one.
pub(super) fn records(
    db: &StateDb,
    options: impl Fn() -> ReadOptions,
    versions: &[Version],
) -> Result<Vec<HistoryRecord>, StorageError> {
    if let [version] = versions {
        if let Some(known) = db.hot_records.get(version) {
            return Ok(vec![known]);
        }
        let record = record(db, &options(), version)?;
        db.hot_records.add(version, &record);
        return Ok(vec![record]);
    }
    stored(db, options, versions)
}

/// Fetches the records of `versions` in their order, from RocksDB. `options` is as of [`records`].
pub(super) fn stored(
    db: &StateDb,
    options: impl Fn() -> ReadOptions,
    versions: &[Version],
) -> Result<Vec<HistoryRecord>, StorageError> {
    let mut order: Vec<Slot> =
        versions.iter().enumerate().map(|(at, version)| (version.index, version.position, at)).collect();
    order.sort_unstable();
    let mut records: Vec<Option<HistoryRecord>> = Vec::new();
    records.resize_with(versions.len(), || None);
    let mut scattered = Vec::new();
    for stretch in order.chunk_by(|a, b| b.0.get() - a.0.get() <= WALK_GAP_MAX) {
        if stretch.len() >= WALK_MIN {
            walk(db, options(), stretch, &mut records)?;
        } else {
            scattered.extend_from_slice(stretch);
        }
    }
    pick(db, &options(), &scattered, &mut records)?;
    Ok(records.into_iter().map(|record| record.expect("invariant: every version was fetched")).collect())
}

/// Fetches one record.
pub(super) fn record(db: &StateDb, options: &ReadOptions, version: &Version) -> Result<HistoryRecord, StorageError> {
    let key = keys::history(version.index, version.position);
    let bytes = db.db.get_pinned_cf_opt(db.families().history, key, options)?;
    decode(&key, bytes.as_deref())
}

/// Fetches records that are close together with an iterator over history.
fn walk(
    db: &StateDb,
    mut options: ReadOptions,
    order: &[Slot],
    records: &mut [Option<HistoryRecord>],
) -> Result<(), StorageError> {
    if let Some(&(index, position, _)) = order.last() {
        options.set_iterate_upper_bound(keys::history(index, position.saturating_add(1)));
    }
    let mut iter: DBRawIterator<'_> = db.db.raw_iterator_cf_opt(db.families().history, options);
    for &(index, position, at) in order {
        let key = keys::history(index, position);
        // A head may lie between the records of two commands: two steps. A seek replaces more than
        // four steps.
        let mut steps = 0;
        while steps < 4 && iter.key().is_some_and(|here| *here < key[..]) {
            iter.next();
            steps += 1;
        }
        if iter.key().is_none_or(|here| *here != key[..]) {
            iter.seek(key);
            iter.status()?;
        }
        let found = iter.item().filter(|(here, _)| **here == key[..]).map(|(_, value)| value);
        records[at] = Some(decode(&key, found)?);
    }
    Ok(())
}

/// Fetches records that are far apart, or few, with sorted batches of point reads.
fn pick(
    db: &StateDb,
    options: &ReadOptions,
    order: &[Slot],
    records: &mut [Option<HistoryRecord>],
) -> Result<(), StorageError> {
    let family = db.families().history;
    for batch in order.chunks(BATCH) {
        let keys: Vec<_> = batch.iter().map(|&(index, position, _)| keys::history(index, position)).collect();
        let found = db.db.batched_multi_get_cf_opt(family, &keys, true, options);
        for ((&(_, _, at), key), bytes) in batch.iter().zip(&keys).zip(found) {
            records[at] = Some(decode(key, bytes?.as_deref())?);
        }
    }
    Ok(())
}

fn decode(key: &[u8], bytes: Option<&[u8]>) -> Result<HistoryRecord, StorageError> {
    let bytes = bytes.ok_or_else(|| corrupt(HISTORY, key, "a record that a version points to is missing"))?;
    decode_history(bytes).ok_or_else(|| undecodable(HISTORY, key, bytes, "cannot be decoded"))
}
