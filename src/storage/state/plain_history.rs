//! Turns history back into what programs before version 0.4 can read. They know neither authors,
//! faces nor previous versions in the heads of history, look for each head in a row of its own, and
//! for each revision in an entry of its own.
//!
//! Owns the walk. Invariant: while the version of the cluster is below 0.4 only such heads and
//! entries are written, so one walk through history finds all others; a checkpoint of such a state
//! has no others.

use std::sync::atomic::Ordering;

use rocksdb::{ReadOptions, WriteBatch};

use super::db::{StateDb, corrupt, undecodable};
use super::history_row;
use super::keys;
use super::options::{HISTORY, write_options};
use super::revisions;
use crate::StorageError;
use headwater_types::{Feature, LogIndex};

// One walk serves both features.
const _: () = assert!(Feature::Authors.since().byte() == Feature::CompactHistory.since().byte());

/// Rows of history that one batch visits before it ends at the next head, count.
const BATCH_ROWS: usize = 4096;
/// Bytes that one batch writes before it ends at the next head.
const BATCH_BYTES: usize = 1 << 20;

impl StateDb {
    /// Makes history plain, if the cluster's version knows nothing else and history may not be. In
    /// that case it reads all of history, rewrites what is not plain while reads and writes
    /// continue, and blocks for as long as it takes. Nothing is lost that a program of that version
    /// could read.
    ///
    /// # Errors
    ///
    /// If the disk failed, or history is damaged.
    pub fn make_history_plain(&self) -> Result<(), StorageError> {
        loop {
            let rises = self.version_rises();
            let is_done = || self.has_plain_history.load(Ordering::Acquire);
            if Feature::CompactHistory.is_in(self.head().version.version) || is_done() {
                return Ok(());
            }
            let mut next = LogIndex::ZERO;
            while let Some(reached) = self.rewrite_history(next)? {
                next = reached;
            }
            // The log is removed after the state that it made is on the disk.
            self.flush_now()?;
            // If the version has risen since, and fallen again, the walk may have missed something.
            let _committing = self.committing.lock();
            if self.version_rises() == rises {
                self.has_plain_history.store(true, Ordering::Release);
                return Ok(());
            }
        }
    }

    /// Whether history is plain since `rises`, an answer of
    /// [`version_rises`](Self::version_rises).
    pub(super) fn is_plain_since(&self, rises: u64) -> bool {
        self.has_plain_history.load(Ordering::Acquire) && self.version_rises() == rises
    }

    /// Rewrites the rows of one batch, from the command at `from` on. Returns the index of the next
    /// command; `None` at the end.
    fn rewrite_history(&self, from: LogIndex) -> Result<Option<LogIndex>, StorageError> {
        self.health.check()?;
        // A row that is reclaimed meanwhile must not come back.
        let _reclaiming = self.reclaiming.lock();
        let (families, head) = (self.families(), self.head());
        let (keys_from, oldest) = (head.key_floor(), head.compacted_index());
        let iterator = |family| {
            let mut options = ReadOptions::default();
            options.fill_cache(false);
            self.db.raw_iterator_cf_opt(family, options)
        };
        let (mut rows, mut entries) = (iterator(families.history), iterator(families.revisions));
        let (mut batch, mut scratch, mut next) = (WriteBatch::default(), Vec::new(), None);
        rows.seek(keys::history(from, 0));
        let mut visited = 0;
        while let Some((key, row)) = rows.item() {
            let Some((index, position)) = keys::parse_history(key) else {
                return Err(corrupt(HISTORY, key, "not a history key"));
            };
            visited += 1;
            if let Some(head) = history_row::head_in(key, row)? {
                if visited > BATCH_ROWS || batch.size_in_bytes() > BATCH_BYTES {
                    next = Some(index);
                    break;
                }
                // Reclamation removes other heads, and may have been here before.
                let is_kept = index >= oldest || index == keys_from;
                if let Some(revision) = head.revision {
                    let entry = keys::revision(revision);
                    // Mostly it is the next one.
                    entries.next();
                    if entries.key() != Some(&entry[..]) {
                        entries.seek(entry);
                    }
                    entries.status()?;
                    match entries.key() == Some(&entry[..]) {
                        false if is_kept => revisions::stage_entry(revision, index, &mut batch, families.revisions),
                        true if !is_kept && position > 0 => batch.delete_cf(families.revisions, entry),
                        _ => {}
                    }
                }
                if position > 0 {
                    let record = history_row::without_head(row);
                    let record = record.ok_or_else(|| undecodable(HISTORY, key, row, "cannot be decoded"))?;
                    batch.put_cf(families.history, key, record);
                }
                let needs_head = if position > 0 { is_kept } else { !head.is_plain() };
                if needs_head {
                    scratch.clear();
                    head.into_plain().encode(&mut scratch);
                    batch.put_cf(families.history, keys::history(index, 0), &scratch);
                }
            }
            rows.next();
        }
        rows.status()?;
        self.health.observe(self.db.write_opt(batch, &write_options()))?;
        Ok(next)
    }
}
