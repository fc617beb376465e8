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
use headwater_types::{KeyRange, LogIndex};

impl WriteTxn<'_> {
    /// Visits the newest version of each record in an interval, until `visit` returns false.
    /// Records whose newest version is committed come first, then the others, each part in key
    /// order. Tombstones are visited if they are above the beginning of history. So every member
    /// visits the same number of records, whatever it has reclaimed, and however many commands
    /// share its transaction.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a record cannot be decoded; those of `visit`.
    pub fn each_change(
        &self,
        table: Table,
        range: &KeyRange,
        mut visit: impl FnMut(Bytes, Version) -> Result<bool, StorageError>,
    ) -> Result<(), StorageError> {
        let floor = self.head.floor_of(table);
        let is_kept = |version: &Version| !version.deleted || version.index > floor;
        let mut stored = VersionScan::of_stored_changes(self.db, table, range);
        while let Some((key, version)) = stored.next()? {
            let key = key.to_bytes();
            let is_newest = self.overlay.lookup(table, &key, LogIndex(u64::MAX)).is_none();
            if is_newest && is_kept(&version) && !visit(key, version)? {
                return Ok(());
            }
        }
        for (key, versions) in self.overlay.range(table, bounds(range)) {
            if let Some(newest) = versions.last()
                && is_kept(newest)
                && !visit(key.clone(), *newest)?
            {
                return Ok(());
            }
        }
        Ok(())
    }
}
