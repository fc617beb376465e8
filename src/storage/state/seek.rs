//! Finds one key's newest version at or below a log index, with one iterator for many searches.
//!
//! Owns the iterator that the prefix filter serves: for an absent key it rarely touches a data
//! block. Invariant: it reads the state as of the first search, or of the snapshot in the options.

use rocksdb::{DBRawIterator, ReadOptions};

use super::db::{StateDb, corrupt, undecodable};
use super::keys::{self, Table};
use super::options::VERSIONS;
use super::record::Version;
use crate::StorageError;
use headwater_types::LogIndex;

#[derive(Default)]
pub(super) struct Seeker<'db> {
    iter: Option<DBRawIterator<'db>>,
    target: Vec<u8>,
}

impl<'db> Seeker<'db> {
    /// The newest version of `key` at or below `at`, tombstone or not; `None` if there is none.
    /// `options` makes the read options of the first search; later searches use the same iterator.
    pub(super) fn find(
        &mut self,
        db: &'db StateDb,
        options: impl FnOnce() -> ReadOptions,
        table: Table,
        key: &[u8],
        at: LogIndex,
    ) -> Result<Option<Version>, StorageError> {
        let iter = self.iter.get_or_insert_with(|| {
            let mut options = options();
            options.set_prefix_same_as_start(true);
            db.db.raw_iterator_cf_opt(db.families().versions, options)
        });
        self.target.clear();
        keys::push_version_prefix(&mut self.target, table, key);
        let prefix = self.target.len();
        keys::push_inverted(&mut self.target, at);
        iter.seek(&self.target);
        let Some((found, value)) = iter.item() else {
            iter.status()?;
            return Ok(None);
        };
        match keys::split_version(found) {
            Some((group, index)) if group == &self.target[..prefix] => Version::decode(index, value)
                .map(Some)
                .ok_or_else(|| undecodable(VERSIONS, found, value, "cannot be decoded")),
            // Past the key: the filter may let a neighbour through.
            Some(_) => Ok(None),
            None => Err(corrupt(VERSIONS, found, "not a version key")),
        }
    }
}
