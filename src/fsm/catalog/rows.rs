//! Staged rows of one table: the rows that a command has touched, over the stored ones.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use bytes::Bytes;

use headwater_storage::StorageError;
use headwater_storage::state::{CatalogReader, CatalogRow, StoredRow, WriteTxn};

/// A row that the command has written or removed.
pub(super) struct Touched<R> {
    /// The row before the command, if it was stored.
    pub(super) before: Option<StoredRow<R>>,
    /// The row after the command; `None` if it is removed. Its log indexes are those that the
    /// command carries: later operations of the command compare them.
    pub(super) after: Option<Arc<R>>,
    /// Number of the operation of a commit that touched the row last; 0 in other commands.
    pub(super) by: u32,
}

impl<R: CatalogRow> Touched<R> {
    /// Whether the row differs from the stored one in more than its log indexes. Gives it those of
    /// the stored one, and copies it only if it is shared. Call it after all operations: it drops
    /// the log indexes that they carried.
    fn settle(&mut self) -> bool {
        match (&self.before, &mut self.after) {
            (None, None) => false,
            (Some(before), Some(after)) => {
                if after.stamps() != before.row.stamps() {
                    let (created, modified) = Arc::make_mut(after).indexes();
                    (*created, *modified) = before.row.stamps();
                }
                before.row != *after
            }
            (Some(_), None) | (None, Some(_)) => true,
        }
    }
}

/// The staged rows of one table.
pub(super) struct Rows<R> {
    touched: BTreeMap<Bytes, Touched<R>>,
    /// Number of the operation of a commit that is carried out; 0 in other commands.
    pub(super) operation: u32,
}

impl<R> Default for Rows<R> {
    fn default() -> Self {
        Self { touched: BTreeMap::new(), operation: 0 }
    }
}

impl<R: CatalogRow> Rows<R> {
    /// The row with a key, with staged changes.
    pub(super) fn find(&self, txn: &WriteTxn<'_>, key: &[u8]) -> Result<Option<Arc<R>>, StorageError> {
        match self.touched.get(key) {
            Some(touched) => Ok(touched.after.clone()),
            None => Ok(txn.row::<R>(key)?.map(|stored| stored.row)),
        }
    }

    /// Stages a row, or with `None` its removal.
    pub(super) fn set(&mut self, txn: &WriteTxn<'_>, key: Bytes, row: Option<R>) -> Result<(), StorageError> {
        let (after, by) = (row.map(Arc::new), self.operation);
        match self.touched.entry(key) {
            Entry::Occupied(mut entry) => (entry.get_mut().after, entry.get_mut().by) = (after, by),
            Entry::Vacant(entry) => {
                let before = txn.row::<R>(entry.key())?;
                entry.insert(Touched { before, after, by });
            }
        }
        Ok(())
    }

    /// The rows of one list of a secondary index, with staged changes, in no certain order.
    /// `indexed` has the keys of the stored rows; `wanted` selects from the staged rows.
    pub(super) fn list(
        &self,
        txn: &WriteTxn<'_>,
        indexed: &[Bytes],
        wanted: impl Fn(&R) -> bool,
    ) -> Result<Vec<Arc<R>>, StorageError> {
        let untouched: Vec<Bytes> = indexed.iter().filter(|key| !self.touched.contains_key(*key)).cloned().collect();
        let mut rows = txn.rows::<R>(&untouched)?;
        let touched = self.touched.values().filter_map(|touched| touched.after.as_ref());
        rows.extend(touched.filter(|row| wanted(row)).cloned());
        Ok(rows)
    }

    /// The rows that the command touched, in order of keys: the stored row and the staged one.
    pub(super) fn touched(&self) -> impl Iterator<Item = (Option<Arc<R>>, Option<Arc<R>>)> {
        let before = |touched: &Touched<R>| touched.before.as_ref().map(|stored| Arc::clone(&stored.row));
        self.touched.values().map(move |touched| (before(touched), touched.after.clone()))
    }

    /// The rows that change, by key.
    pub(super) fn into_changes(self) -> BTreeMap<Bytes, Touched<R>> {
        let mut touched = self.touched;
        touched.retain(|_, touched| touched.settle());
        touched
    }
}
