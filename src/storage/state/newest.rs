//! The newest change of each record of an interval, removals included.
//!
//! Owns the merge of stored and uncommitted changes. Invariant: what was removed below the
//! beginning of history may be missing.

use bytes::Bytes;

use super::keys::Table;
use super::record::Version;
use super::scan::{VersionScan, bounds};
use super::txn::WriteTxn;
use crate::StorageError;
use headwater_types::KeyRange;

impl WriteTxn<'_> {
    /// Visits the newest version of each record in an interval, tombstones included, until `visit`
    /// returns false: the committed ones, then the uncommitted ones. A record that was written
    /// since the last commit may be visited twice.
    ///
    /// # Errors
    ///
    /// If the disk failed; those of `visit`.
    pub fn each_change(
        &self,
        table: Table,
        range: &KeyRange,
        mut visit: impl FnMut(Bytes, Version) -> Result<bool, StorageError>,
    ) -> Result<(), StorageError> {
        let mut stored = VersionScan::of_stored_changes(self.db, table, range);
        while let Some((key, version)) = stored.next()? {
            if !visit(key.to_bytes(), version)? {
                return Ok(());
            }
        }
        for (key, versions) in self.overlay.range(table, bounds(range)) {
            if let Some(newest) = versions.last()
                && !visit(key.clone(), *newest)?
            {
                return Ok(());
            }
        }
        Ok(())
    }
}
