//! Frees the space of purged entries on a thread of its own: dropping files costs an fsync of the
//! manifest.
//!
//! Purged entries are never read again, so nothing depends on when, or whether, this happens. Whole
//! files that hold only purged entries are dropped. A purge writes no tombstones, so the files of
//! the log do not overlap and compaction moves them without rewriting.

use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use super::options::CF_ENTRIES;
use super::record::entry_key;
use super::shared::Shared;
use crate::StorageError;

/// A handle to the thread. Dropping it ends the thread, after all requested purges, and waits for
/// that.
pub(super) struct Reclaimer {
    purges: Option<mpsc::Sender<u64>>,
    thread: Option<JoinHandle<()>>,
}

impl Reclaimer {
    pub(super) fn start(shared: Arc<Shared>) -> Result<Self, StorageError> {
        let (purges, inbox) = mpsc::channel::<u64>();
        let dir = shared.dir.clone();
        let thread = thread::Builder::new()
            .name("log-reclaim".into())
            .spawn(move || {
                while let Ok(mut index) = inbox.recv() {
                    while let Ok(later) = inbox.try_recv() {
                        index = index.max(later);
                    }
                    headwater_fail_points::fail_point!(LogReclaim);
                    let (from, to) = (entry_key(0), entry_key(index));
                    if let Err(error) = shared.db.delete_file_in_range_cf(shared.family(CF_ENTRIES), from, to) {
                        shared.poison(&error.into());
                        return;
                    }
                    headwater_fail_points::fail_point!(LogReclaimed);
                }
            })
            .map_err(|source| StorageError::Io { path: dir, source })?;
        Ok(Self { purges: Some(purges), thread: Some(thread) })
    }

    /// Frees the space of the entries up to `index`, which must be durably purged. Does not wait
    /// for it.
    pub(super) fn reclaim(&self, index: u64) {
        if let Some(purges) = &self.purges {
            // If the thread is gone the log has failed, and the space no longer matters.
            let _gone = purges.send(index).is_err();
        }
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        self.purges = None;
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join().is_err();
        }
    }
}
