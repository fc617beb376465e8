//! Reads of a write transaction: the committed state with the uncommitted writes.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use rocksdb::ReadOptions;

use super::WriteTxn;
use crate::StorageError;
use crate::state::catalog::{AnyRow, read_meta_index};
use crate::state::head::StateHead;
use crate::state::index::stored_entries;
use crate::state::keys::{self, Table};
use crate::state::load;
use crate::state::outline::Outline;
use crate::state::overlay::EventValue;
use crate::state::reader::{NEWEST, StateReader};
use crate::state::record::{HistoryRecord, Version};
use crate::state::revisions;
use crate::state::scan::VersionScan;
use crate::state::type_record::{Registration, TypeRecord};
use headwater_types::resource::{Resource, Tenancy, TypeName, resource_key};
use headwater_types::{KeyRange, LogIndex, ResourceId, Revision};

impl StateReader for WriteTxn<'_> {
    fn head(&self) -> &StateHead {
        &self.head
    }

    fn owned(&self, owner: &ResourceId, after: &[u8], limit: usize) -> Result<Vec<Bytes>, StorageError> {
        self.index_entries(&keys::owned_prefix(owner), after, limit)
    }

    fn index_keys(&self, prefix: &[u8], after: &[u8], limit: usize) -> Result<Vec<Bytes>, StorageError> {
        self.index_entries(prefix, after, limit)
    }

    fn index_groups(&self, prefix: &[u8], end: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> Result<Vec<Bytes>, StorageError> {
        let mut found = Vec::new();
        let mut after = Some(Vec::new());
        while let Some(start) = after {
            let Some(entry) = self.index_entries(prefix, &start, 1)?.pop() else { break };
            after = end(&entry);
            found.push(entry);
        }
        Ok(found)
    }

    fn check_list(&self, prefix: &[u8]) -> Result<Arc<[Bytes]>, StorageError> {
        let mut pending = self.index.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
        if pending.next().is_some_and(|(entry, _)| entry.starts_with(prefix)) {
            return Ok(self.index_entries(prefix, &[], usize::MAX)?.into());
        }
        // No other transaction commits meanwhile: the stored list is the newest.
        let seen = self.base.applied_index();
        if let Some(list) = self.db.lists.get(prefix, seen) {
            return Ok(list);
        }
        let list = stored_entries(self.db, ReadOptions::default(), prefix, &[], usize::MAX)?.into();
        self.db.lists.insert(prefix, seen, &list);
        Ok(list)
    }

    fn meta_index(&self, key: &[u8]) -> Result<LogIndex, StorageError> {
        match self.catalog.query_indexes.get(key) {
            Some(index) => Ok(index.unwrap_or(LogIndex::ZERO)),
            None => read_meta_index(key, self.db.db.get_pinned_cf(self.families.meta, key)?.as_deref()),
        }
    }

    fn cached_row(&self, version: &Version) -> Option<AnyRow> {
        match version.index <= self.base.applied_index() {
            true => self.db.rows.get(version),
            false => self.catalog.rows.get(version),
        }
    }

    fn cache_row(&self, version: &Version, row: AnyRow) {
        // Rows of uncommitted versions are kept in `catalog.rows` when they are written.
        if version.index <= self.base.applied_index() {
            self.db.rows.insert(version, row);
        }
    }

    fn type_record(&self, name: &TypeName) -> Result<TypeRecord, StorageError> {
        self.pending_type(name)
    }

    fn registration(&self, name: &TypeName) -> Result<Option<Registration>, StorageError> {
        self.pending_registration(name)
    }

    fn unit_count(&self, unit: &Tenancy) -> Result<u64, StorageError> {
        self.pending_unit(unit)
    }

    fn resource_outline(&self, id: &ResourceId) -> Result<Option<(Version, Resource)>, StorageError> {
        let key = resource_key(id);
        let outlined = |version: Version, outline: &Outline| {
            (!version.deleted).then(|| (version, outline.resource(id, version.index)))
        };
        if let Some(version) = self.overlay.lookup(Table::Resource, &key, NEWEST) {
            if let Some(EventValue::Resource(resource)) =
                self.overlay.change(&version).map(|change| &change.event_value)
            {
                return Ok(outlined(version, &Outline::of(resource)));
            }
        } else if let Some(found) = self.db.cache.cached_version(Table::Resource, &key, self.base.applied_index()) {
            match found.outline {
                Some(outline) => return Ok(outlined(found.version, &outline)),
                None if found.version.deleted => return Ok(None),
                None => {}
            }
        }
        let Some((version, resource)) = self.resource(&key)? else { return Ok(None) };
        // No other transaction commits meanwhile, and a write of this one replaces the outline.
        let outline = Outline::of(&resource);
        let found = outlined(version, &outline);
        self.db.cache.insert(Table::Resource, &key, version, Some(outline));
        Ok(found)
    }

    fn index_of(&self, revision: Revision) -> Result<LogIndex, StorageError> {
        if let Some(point) = self.head.compaction
            && point.revision == revision
        {
            return Ok(point.index);
        }
        if revision <= Revision::INITIAL {
            return Ok(LogIndex::ZERO);
        }
        if revision > self.base.revision {
            let ahead = (revision.get() - self.base.revision.get() - 1) as usize;
            // The revision of the current command has no entry yet.
            let current = || self.command.as_ref().map(|command| command.index);
            let known = self.revisions.get(ahead).map(|(_, index)| *index);
            return Ok(known.or_else(current).expect("invariant: checked by the caller"));
        }
        revisions::find(self.db, ReadOptions::default(), &self.head, revision)
    }

    fn lookup(&self, table: Table, key: &[u8], at: LogIndex) -> Result<Option<Version>, StorageError> {
        if let Some(version) = self.overlay.lookup(table, key, at) {
            return Ok(Some(version).filter(|version| !version.deleted));
        }
        let applied = self.base.applied_index();
        let cached = if at == NEWEST { self.db.cache.get(table, key, applied) } else { None };
        let version = match cached {
            Some(version) => Some(version),
            None if self.db.is_never_written(table, key) => None,
            None => {
                let found = self.seeker.borrow_mut().find(self.db, ReadOptions::default, table, key, at)?;
                // No other transaction commits meanwhile: the newest stored version stays the
                // newest until this one commits. Without this, a row that commands read and seldom
                // write, such as the node of a check, would be searched for each time.
                if at == NEWEST
                    && let Some(found) = found
                {
                    self.db.cache.insert(table, key, found, None);
                }
                found
            }
        };
        Ok(version.filter(|version| !version.deleted))
    }

    fn scan<'a>(&'a self, table: Table, range: &KeyRange, at: LogIndex) -> Result<VersionScan<'a>, StorageError> {
        Ok(VersionScan::of_transaction(self.db, &self.overlay, table, range, at))
    }

    fn load(&self, versions: &[Version]) -> Result<Vec<HistoryRecord>, StorageError> {
        let pending = |version: &Version| {
            let change = self.overlay.change(version)?;
            Some(HistoryRecord { table: change.table, kind: change.kind, kv: change.kv.clone(), previous: None })
        };
        if versions.iter().all(|version| version.index <= self.base.applied_index()) {
            return load::records(self.db, ReadOptions::default, versions);
        }
        let stored: Vec<Version> =
            versions.iter().filter(|version| self.overlay.change(version).is_none()).copied().collect();
        let mut stored = load::records(self.db, ReadOptions::default, &stored)?.into_iter();
        let record = |version| pending(version).or_else(|| stored.next()).expect("invariant: one record per version");
        Ok(versions.iter().map(record).collect())
    }
}
