//! Frees the space of records below the compaction point, in small steps in the background.
//!
//! Owns the progress of this one node. Invariant: it removes only records that no read at or above
//! the *committed* compaction point can see, so no result and no hash depends on how far it has
//! come, and it needs no lock against the writer, which only ever adds versions above that point.
//!
//! It walks the stored records of `history` up to the logical beginning
//! ([`compacted_index`](super::StateHead::compacted_index)). Each record supersedes the older
//! versions of its key; since older records were visited before, at most one such version is left.
//! A tombstone below the beginning is removed itself; one exactly at it stays, because a watch may
//! start there (spec: etcd §1.7). For KV keys the beginning is the compaction point, which may lie
//! below the beginning of the other tables: then the changes of keys by its command stay.

use rocksdb::{ReadOptions, WriteBatch};

use super::db::{StateDb, corrupt, undecodable};
use super::history_row;
use super::keys::{self, Table};
use super::options::{HISTORY, META, VERSIONS, write_options};
use super::record::{Cursor, FORMAT, FORMAT_FLOOR, Version, decode_history, put_varint};
use super::revisions;
use crate::StorageError;
use headwater_types::{ChangeKind, LogIndex, Revision};

/// Result of one step of reclamation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimProgress {
    /// The beginning of history: records below it are reclaimed. Zero if history begins with the
    /// log.
    pub target: LogIndex,
    /// Entries of history that the step visited, count.
    pub visited: usize,
    /// Versions that the step removed, tombstones included; count. Records that exist in history
    /// only do not count.
    pub removed: usize,
    /// Whether all records below `target` are reclaimed.
    pub done: bool,
}

/// Progress of reclamation on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ReclaimState {
    /// The beginning of history at the last step.
    target: LogIndex,
    /// The beginning of the history of KV keys at the last step.
    keys: LogIndex,
    /// The next record to visit: log index and position.
    next: (LogIndex, u32),
}

impl ReclaimState {
    fn encode(&self) -> Vec<u8> {
        let is_apart = self.keys != self.target;
        let mut out = vec![if is_apart { FORMAT_FLOOR } else { FORMAT }];
        put_varint(&mut out, self.target.get());
        put_varint(&mut out, self.next.0.get());
        put_varint(&mut out, self.next.1.into());
        if is_apart {
            put_varint(&mut out, self.keys.get());
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (mut cursor, is_apart) = Cursor::open_with_floor(bytes)?;
        let (target, next) = (LogIndex(cursor.varint()?), (LogIndex(cursor.varint()?), cursor.u32()?));
        let keys = if is_apart { LogIndex(cursor.varint()?) } else { target };
        cursor.end(Self { target, keys, next })
    }
}

impl StateDb {
    /// Reclaims records below the beginning of history: visits at most `limit` entries of history;
    /// a `limit` of 0 counts as 1. Call it until it is done, with a break in between. After a
    /// restart it continues at its last position.
    ///
    /// # Errors
    ///
    /// If the disk failed, or history is damaged.
    pub fn reclaim_step(&self, limit: usize) -> Result<ReclaimProgress, StorageError> {
        self.health.check()?;
        let _one_at_a_time = self.reclaiming.lock();
        let view = self.view()?;
        let (target, keys_from) = (view.head().compacted_index(), view.head().key_floor());
        let mut state = match view.snapshot.get_cf(view.families.meta, keys::META_RECLAIM)? {
            None => ReclaimState::default(),
            Some(bytes) => ReclaimState::decode(&bytes)
                .ok_or_else(|| undecodable(META, keys::META_RECLAIM, &bytes, "cannot be decoded"))?,
        };
        drop(view);
        if state.target == target && state.next.0 > target {
            return Ok(ReclaimProgress { target, visited: 0, removed: 0, done: true });
        }
        if state.target != target {
            // Records kept because they lay exactly at an old beginning must be visited again.
            let kept = if state.keys == keys_from { state.target } else { state.keys.min(state.target) };
            state.next = state.next.min((kept, 0));
            (state.target, state.keys) = (target, keys_from);
        }
        let mut batch = WriteBatch::default();
        let mut walk = Walk { db: self, target, keys_from, batch: &mut batch, visited: 0, removed: 0, revisions: None };
        state.next = walk.run(state.next, limit.max(1))?;
        let (visited, removed, passed) = (walk.visited, walk.removed, walk.revisions);
        if let Some((first, last)) = passed {
            revisions::stage_removal(self, first, last, &mut batch)?;
        }
        batch.put_cf(self.families().meta, keys::META_RECLAIM, state.encode());
        headwater_fail_points::fail_point!(StateReclaim);
        self.health.observe(self.db.write_opt(batch, &write_options()))?;
        headwater_fail_points::fail_point!(StateReclaimed);
        Ok(ReclaimProgress { target, visited, removed, done: state.next.0 > target })
    }
}

struct Walk<'a> {
    db: &'a StateDb,
    target: LogIndex,
    /// The beginning of the history of KV keys.
    keys_from: LogIndex,
    batch: &'a mut WriteBatch,
    visited: usize,
    removed: usize,
    /// The first and the last revision of the commands whose heads are not needed any more.
    revisions: Option<(Revision, Revision)>,
}

impl Walk<'_> {
    /// Visits at most `limit` entries of history, from `from` up to and with the target. Returns
    /// the position of the next entry; past the target if all were visited.
    fn run(&mut self, from: (LogIndex, u32), limit: usize) -> Result<(LogIndex, u32), StorageError> {
        let families = self.db.families();
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(keys::history(self.target.next(), 0));
        options.fill_cache(false);
        let mut history = self.db.db.raw_iterator_cf_opt(families.history, options);
        let mut options = ReadOptions::default();
        options.set_prefix_same_as_start(true);
        let mut versions = self.db.db.raw_iterator_cf_opt(families.versions, options);
        let mut target_key = Vec::new();

        history.seek(keys::history(from.0, from.1));
        while let Some((key, value)) = history.item() {
            let Some((index, position)) = keys::parse_history(key) else {
                return Err(corrupt(HISTORY, key, "not a history key"));
            };
            if self.visited == limit {
                return Ok((index, position));
            }
            self.visited += 1;
            let head = history_row::head_in(key, value)?;
            if let Some(head) = head.filter(|_| index < self.target && index != self.keys_from)
                && let Some(revision) = head.revision
            {
                let first = self.revisions.map_or(revision, |(first, _)| first);
                self.revisions = Some((first, revision));
            }
            if position == 0 {
                if index < self.target && index != self.keys_from {
                    self.batch.delete_cf(families.history, key);
                }
                history.next();
                continue;
            }
            let record = decode_history(value).ok_or_else(|| undecodable(HISTORY, key, value, "cannot be decoded"))?;
            let below = index < if record.table == Table::Kv { self.keys_from } else { self.target };
            let tombstone = record.kind != ChangeKind::Put;
            target_key.clear();
            keys::push_version_prefix(&mut target_key, record.table, &record.kv.key);
            let prefix = target_key.len();
            keys::push_inverted(&mut target_key, index);
            // A creation replaces no version, and an earlier tombstone of the key is removed
            // already. No search is needed, so a key that is created and removed a million times
            // stays cheap.
            if tombstone || record.kv.version > 1 {
                versions.seek(&target_key);
                if versions.key() == Some(&target_key[..]) {
                    versions.next();
                }
                if let Some((older, value)) = versions.item()
                    && older.starts_with(&target_key[..prefix])
                {
                    let found = keys::split_version(older).and_then(|(_, index)| Version::decode(index, value));
                    let Some(found) = found else {
                        return Err(undecodable(VERSIONS, older, value, "cannot be decoded"));
                    };
                    self.batch.delete_cf(families.versions, older);
                    self.batch.delete_cf(families.history, keys::history(found.index, found.position));
                    self.removed += 1;
                }
                versions.status()?;
            }
            if tombstone && below {
                self.batch.delete_cf(families.versions, &target_key);
                self.batch.delete_cf(families.history, key);
                self.removed += 1;
            } else if record.table.is_only_history() && below {
                self.batch.delete_cf(families.history, key);
            }
            history.next();
        }
        history.status()?;
        Ok((self.target.next(), 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_reads_back() {
        let reclaim = ReclaimState { target: LogIndex(300), keys: LogIndex(300), next: (LogIndex(2), 1) };
        assert_eq!(reclaim.encode(), [1, 172, 2, 2, 1]);
        assert_eq!(ReclaimState::decode(&reclaim.encode()), Some(reclaim));
        let apart = ReclaimState { keys: LogIndex(9), ..reclaim };
        assert_eq!(apart.encode(), [2, 172, 2, 2, 1, 9]);
        assert_eq!(ReclaimState::decode(&apart.encode()), Some(apart));
        assert_eq!(
            ReclaimState::decode(&[1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2, 0, 0]),
            None,
            "over 64 bits"
        );
    }
}
