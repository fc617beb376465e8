//! Entries of the secondary indexes, as they are committed.

use bytes::Bytes;
use rocksdb::ReadOptions;

use super::db::StateDb;
use super::keys;
use crate::StorageError;

/// The first `index` key after `prefix ‖ after`; the first key of the prefix if `after` is empty.
pub(super) fn entries_start(prefix: &[u8], after: &[u8]) -> Vec<u8> {
    let mut start = [prefix, after].concat();
    if !after.is_empty() {
        start.push(0);
    }
    start
}

/// As [`StateReader::index_keys`](super::StateReader::index_keys), of the committed entries alone.
pub(super) fn stored_entries(
    db: &StateDb,
    mut options: ReadOptions,
    prefix: &[u8],
    after: &[u8],
    limit: usize,
) -> Result<Vec<Bytes>, StorageError> {
    // Without an end the iterator would visit the tombstones of removed entries behind the prefix.
    options.set_iterate_upper_bound(keys::prefix_end(prefix));
    let mut iter = db.db.raw_iterator_cf_opt(db.families().index, options);
    let mut found = Vec::new();
    iter.seek(entries_start(prefix, after));
    while let Some(key) = iter.key().and_then(|key| key.strip_prefix(prefix)).filter(|_| found.len() < limit) {
        found.push(Bytes::copy_from_slice(key));
        iter.next();
    }
    iter.status()?;
    Ok(found)
}
