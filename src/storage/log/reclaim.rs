//! Frees the space of purged entries on a thread of its own: dropping files may cost an fsync.
//!
//! Purged entries are never read again, so nothing depends on when, or whether, this happens. Whole
//! files that hold only purged entries are dropped.

use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

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
                    let files = shared.files.lock();
                    let disk = Arc::clone(&shared.disk.read());
                    if let Err(error) = disk.reclaim(index) {
                        shared.poison(&error);
                        return;
                    }
                    drop((disk, files));
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
