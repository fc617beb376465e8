//! Copies of a store as a crash of the process would leave it now: without the memtables, but with
//! contents of files that were not fsynced. For tests; they simulate no loss of power.

use std::fs;
use std::path::Path;

use crate::state::StateStore;

impl StateStore {
    /// Copies the files to `to`, without anything that is only in memory.
    ///
    /// # Panics
    ///
    /// If a file cannot be read or written.
    #[allow(clippy::unwrap_used, reason = "for tests")]
    pub fn crash_copy(&self, to: &Path) {
        let current = self.current();
        current.db.disable_file_deletions().unwrap();
        copy(&self.dir, to);
        current.db.enable_file_deletions().unwrap();
    }
}

#[allow(clippy::unwrap_used, reason = "for tests")]
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    // Files that name others are copied first: the named files exist afterwards, even if more is
    // written meanwhile.
    for tables in [false, true] {
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let target = to.join(path.file_name().unwrap());
            let is_table = path.extension().is_some_and(|ext| ext == "sst");
            // Renamed at any moment, and nothing needs it before.
            if path.extension().is_some_and(|ext| ext == "dbtmp") {
                continue;
            }
            if path.is_dir() && !tables {
                copy(&path, &target);
            } else if path.is_file() && is_table == tables && path.file_name().unwrap() != "LOCK" {
                fs::copy(&path, &target).unwrap();
            }
        }
    }
}
