//! The log indexes of revisions.
//!
//! Most commands make a revision, so index and revision mostly grow together: their distance, index
//! minus revision, changes when an entry of the log made none. An entry of the family `revisions`
//! begins a run of revisions with one distance; the run ends before the next entry. The compaction
//! point begins a run as well. Before [`CompactHistory`](headwater_types::Feature::CompactHistory)
//! every revision has an entry, each a run of its own.
//!
//! Owns the family. Invariant: within a run, commands at consecutive log indexes made consecutive
//! revisions. A run may be cut in two: a member that has just started does not know the last
//! distance, and begins a run with its next revision. So members at one index may have different
//! entries for the same revisions, and hashes look at the revisions.

use rocksdb::{ColumnFamily, DBRawIterator, ReadOptions, WriteBatch};

use super::db::{StateDb, corrupt, undecodable};
use super::head::{CompactionPoint, StateHead};
use super::keys;
use super::options::REVISIONS;
use crate::StorageError;
use headwater_types::{LogIndex, Revision};

/// Index minus revision. Wraps around where there are more revisions than indexes, as in a restored
/// store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Distance(u64);

impl Distance {
    fn of(revision: Revision, index: LogIndex) -> Self {
        Self(index.get().wrapping_sub(revision.get() as u64))
    }
}

/// Adds the entries of new revisions, given in order with their indexes, to the batch. `last` is
/// the distance of the revision before them, if it is known, and then that of the last of them.
/// Without `is_compact` every revision gets an entry.
pub(super) fn stage(
    new: &[(Revision, LogIndex)],
    last: &mut Option<Distance>,
    is_compact: bool,
    batch: &mut WriteBatch,
    family: &ColumnFamily,
) {
    for &(revision, index) in new {
        let distance = Some(Distance::of(revision, index));
        if *last != distance || !is_compact {
            stage_entry(revision, index, batch, family);
        }
        *last = distance;
    }
}

/// Adds the entry of one revision to the batch.
pub(super) fn stage_entry(revision: Revision, index: LogIndex, batch: &mut WriteBatch, family: &ColumnFamily) {
    batch.put_cf(family, keys::revision(revision), index.get().to_be_bytes());
}

/// Log index of the command that made `revision`, which is committed and lies above the compaction
/// point of `head`. `options` are those of the view, if there is one.
///
/// # Errors
///
/// If the disk failed, an entry cannot be decoded, or no run has the revision.
pub(super) fn find(
    db: &StateDb,
    mut options: ReadOptions,
    head: &StateHead,
    revision: Revision,
) -> Result<LogIndex, StorageError> {
    let key = keys::revision(revision);
    let point = point_of(head);
    // Entries below the point may be many, and removed.
    options.set_iterate_lower_bound(first_above(head));
    let mut iter = db.db.raw_iterator_cf_opt(db.families().revisions, options);
    iter.seek(key);
    let next = entry(&iter)?;
    if let Some((_, index)) = next.filter(|(here, _)| *here == revision) {
        return Ok(index);
    }
    match next {
        Some(_) => iter.prev(),
        None => iter.seek_to_last(),
    }
    let found = entry(&iter)?.or(point).map(|(first, index)| {
        let ahead = (revision.get() - first.get()) as u64;
        LogIndex(index.get().saturating_add(ahead))
    });
    found
        .filter(|found| next.is_none_or(|(_, index)| *found < index))
        .ok_or_else(|| corrupt(REVISIONS, &key, "a revision above the compaction point is in no run"))
}

/// Visits every committed revision with its log index, from the compaction point of `head` on, in
/// order.
///
/// # Errors
///
/// If the disk failed, or an entry cannot be decoded.
pub(super) fn visit(
    db: &StateDb,
    mut options: ReadOptions,
    head: &StateHead,
    mut visit: impl FnMut(Revision, LogIndex),
) -> Result<(), StorageError> {
    options.set_iterate_lower_bound(first_above(head));
    let mut iter = db.db.raw_iterator_cf_opt(db.families().revisions, options);
    iter.seek_to_first();
    let mut run = point_of(head);
    loop {
        let next = entry(&iter)?;
        if let Some((first, index)) = run {
            let end = next.map_or(head.revision.get().saturating_add(1), |(revision, _)| revision.get());
            for (revision, index) in (first.get()..end).zip(index.get()..) {
                visit(Revision(revision), LogIndex(index));
            }
        }
        run = next;
        if run.is_none() {
            return Ok(());
        }
        iter.next();
    }
}

/// The compaction point as the first revision of a run; `None` if no command made its revision.
fn point_of(head: &StateHead) -> Option<(Revision, LogIndex)> {
    let CompactionPoint { revision, index } = head.compaction?;
    (index > LogIndex::ZERO).then_some((revision, index))
}

/// Key of the first possible entry above the compaction point.
fn first_above(head: &StateHead) -> [u8; 8] {
    let point = head.compaction.map_or(Revision::INITIAL, |point| point.revision);
    keys::revision(Revision(point.get().saturating_add(1)))
}

/// Adds the removal of all entries from the revision `first` up to and with `last` to the batch.
///
/// # Errors
///
/// If the disk failed.
pub(super) fn stage_removal(
    db: &StateDb,
    first: Revision,
    last: Revision,
    batch: &mut WriteBatch,
) -> Result<(), StorageError> {
    let family = db.families().revisions;
    let mut options = ReadOptions::default();
    options.set_iterate_upper_bound(keys::revision(Revision(last.get().saturating_add(1))));
    options.fill_cache(false);
    let mut iter = db.db.raw_iterator_cf_opt(family, options);
    iter.seek(keys::revision(first));
    while let Some(key) = iter.key() {
        batch.delete_cf(family, key);
        iter.next();
    }
    Ok(iter.status()?)
}

/// The entry at which an iterator stands. `None` behind the last one.
fn entry(iter: &DBRawIterator<'_>) -> Result<Option<(Revision, LogIndex)>, StorageError> {
    let Some((key, value)) = iter.item() else {
        iter.status()?;
        return Ok(None);
    };
    let decoded = (<[u8; 8]>::try_from(key).ok()).zip(<[u8; 8]>::try_from(value).ok());
    let (key, value) = decoded.ok_or_else(|| undecodable(REVISIONS, key, value, "no revision with its index"))?;
    Ok(Some((Revision(i64::from_be_bytes(key)), LogIndex(u64::from_be_bytes(value)))))
}
