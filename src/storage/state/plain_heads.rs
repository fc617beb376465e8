//! Rewrites the heads of history for programs before version 0.4, which know neither authors and
//! faces nor previous versions.
//!
//! Owns the walk. Invariant: while the version of the cluster is below 0.4 no head with any of them
//! is written, so one walk through history finds all such heads; a checkpoint of such a state has
//! none.

use std::sync::atomic::Ordering;

use rocksdb::{ReadOptions, WriteBatch};

use super::db::{StateDb, corrupt, undecodable};
use super::keys;
use super::options::{HISTORY, write_options};
use super::record::HistoryHead;
use crate::StorageError;
use headwater_types::{Feature, LogIndex};

/// Entries of history that one batch visits, records included, before it ends at the next head;
/// count.
const BATCH: usize = 4096;

impl StateDb {
    /// Removes authors, faces and previous versions from the heads of history, if the cluster's
    /// version has none and history may have some. In that case it reads all of history while reads
    /// and writes continue, and blocks for as long as it takes. Nothing is lost that a program of
    /// that version could read.
    ///
    /// # Errors
    ///
    /// If the disk failed, or history is damaged.
    pub fn remove_authors(&self) -> Result<(), StorageError> {
        let is_done = || self.has_plain_heads.load(Ordering::Acquire);
        if Feature::Authors.is_in(self.head().version.version) || is_done() {
            return Ok(());
        }
        let mut next = LogIndex::ZERO;
        while let Some(reached) = self.rewrite_heads(next)? {
            next = reached;
        }
        // The log is removed after the state that it made is on the disk.
        self.flush_now()?;
        // If the version has risen since, heads that are not plain may have been written since.
        let _committing = self.committing.lock();
        if !Feature::Authors.is_in(self.head().version.version) {
            self.has_plain_heads.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Rewrites the heads of one batch, from the command at `from` on. Returns the index of the
    /// next command; `None` at the end.
    fn rewrite_heads(&self, from: LogIndex) -> Result<Option<LogIndex>, StorageError> {
        self.health.check()?;
        // A head that is reclaimed meanwhile must not come back.
        let _reclaiming = self.reclaiming.lock();
        let history = self.families().history;
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        let mut iter = self.db.raw_iterator_cf_opt(history, options);
        let (mut batch, mut scratch, mut next) = (WriteBatch::default(), Vec::new(), None);
        iter.seek(keys::history(from, 0));
        let mut visited = 0;
        while let Some((key, value)) = iter.item() {
            let Some((index, position)) = keys::parse_history(key) else {
                return Err(corrupt(HISTORY, key, "not a history key"));
            };
            visited += 1;
            if position == 0 {
                if visited > BATCH {
                    next = Some(index);
                    break;
                }
                let head =
                    HistoryHead::decode(value).ok_or_else(|| undecodable(HISTORY, key, value, "cannot be decoded"))?;
                if !head.is_plain() {
                    scratch.clear();
                    head.into_plain().encode(&mut scratch);
                    batch.put_cf(history, key, &scratch);
                }
            }
            iter.next();
        }
        iter.status()?;
        self.health.observe(self.db.write_opt(batch, &write_options()))?;
        Ok(next)
    }
}
