//! Resources in the state: their records, the index of owners, and counts by type and by unit of
//! tenancy.
//!
//! Owns the updates that come with writes of resources: the index of owners, the counts. Knows no
//! rule of a command. Invariant: at every applied index, index and counts agree with the live
//! records.

use std::sync::Arc;

use bytes::Bytes;
use rocksdb::{ColumnFamily, WriteBatch};

use super::db::{undecodable, unread};
use super::keys::{self, Table};
use super::options::{HISTORY, META};
use super::overlay::EventValue;
use super::pending::PendingMap;
use super::record::{HistoryRecord, Version};
use super::txn::WriteTxn;
use super::type_record::{Registration, TypeRecord, decode_count, encode_count};
use super::view::CommandHistory;
use crate::StorageError;
use headwater_proto::codec;
use headwater_types::resource::{
    Any, Resource, ResourceId, Tenancy, Type, TypeName, WILDCARD, builtin_scope, resource_key,
};
use headwater_types::{ChangeKind, KeyValue, LogIndex, ResourceEvent};

/// Uncommitted records of resource types and uncommitted counts by unit of tenancy.
#[derive(Default)]
pub(super) struct PendingResources {
    pub(super) types: PendingMap<TypeName, TypeRecord>,
    pub(super) units: PendingMap<Tenancy, u64>,
}

impl PendingResources {
    /// Adds the changed type records and counts to the batch. Deletes the record of a type that is
    /// not registered and has no resources, and the count of a unit without resources.
    pub(super) fn stage(&self, batch: &mut WriteBatch, meta: &ColumnFamily) {
        for (name, record) in self.types.iter() {
            if *record == TypeRecord::default() {
                batch.delete_cf(meta, keys::resource_type(name));
            } else {
                batch.put_cf(meta, keys::resource_type(name), record.encode());
            }
        }
        for (unit, count) in self.units.iter() {
            match count {
                0 => batch.delete_cf(meta, keys::unit(unit)),
                count => batch.put_cf(meta, keys::unit(unit), encode_count(*count)),
            }
        }
    }
}

impl HistoryRecord {
    /// The resource that the record holds. `index` is the log index of the command that wrote the
    /// record. It becomes the version of the resource if the record stores no version.
    ///
    /// # Errors
    ///
    /// If the value of the record is not a resource that this version of the program can decode.
    pub fn resource(&self, index: LogIndex) -> Result<Resource, StorageError> {
        codec::decode_resource(self.kv.value.clone(), index).map_err(|error| unread(HISTORY, &self.kv.key, error))
    }
}

impl CommandHistory {
    /// The events of resources of the command, in order.
    ///
    /// # Errors
    ///
    /// As [`HistoryRecord::resource`].
    pub fn resource_events(&self) -> Result<Arc<[ResourceEvent]>, StorageError> {
        let kind_of = |record: &HistoryRecord| match record.table {
            Table::Resource => Some(record.kind),
            Table::ResourceMoves => Some(ChangeKind::Delete),
            Table::Kv
            | Table::CatalogNode
            | Table::CatalogService
            | Table::CatalogCheck
            | Table::CatalogGateway
            | Table::CatalogEvents
            | Table::ConsulSide
            | Table::Session
            | Table::ClusterEvents
            | Table::AuthUser
            | Table::AuthRole
            | Table::AuthState
            | Table::AclToken
            | Table::AclPolicy
            | Table::AclRole
            | Table::AclMethod
            | Table::AclBinding => None,
        };
        let records = self.records.iter().filter_map(|record| Some((kind_of(record)?, record)));
        records
            .map(|(kind, record)| Ok(ResourceEvent { kind, resource: record.resource(self.index)?.into() }))
            .collect()
    }
}

/// The data of a tombstone for the removed owner `owner`.
pub fn tombstone_data(owner: &ResourceId) -> Any {
    codec::tombstone_data(owner)
}

/// The removed owner of a tombstone; `None` if its data does not name one.
pub fn tombstone_owner(tombstone: &Resource) -> Option<ResourceId> {
    codec::read_tombstone(tombstone.data.as_ref()?).ok()
}

impl WriteTxn<'_> {
    /// Writes a resource. Returns it with its version, which is the log index of the current
    /// command. `previous` is the live resource that it replaces, with the version of its record;
    /// `None` if there is none. If the two differ in their type, `previous` must have its data.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a count cannot be decoded.
    pub fn put_resource(
        &mut self,
        mut resource: Resource,
        previous: Option<(&Version, &Resource)>,
    ) -> Result<Arc<Resource>, StorageError> {
        let key = resource_key(&resource.id);
        if let Some((_, stored)) = previous
            && stored.id.type_ != resource.id.type_
        {
            self.count_type(&stored.id.type_, false)?;
            self.count_type(&resource.id.type_, true)?;
            self.leave_type(stored.clone());
        }
        resource.version = LogIndex::ZERO;
        let (value, mut resource) = codec::encode_resource(resource);
        let slot = self.next_slot();
        resource.version = slot.index;
        let value_len = u32::try_from(value.len()).expect("invariant: requests are far smaller than 4 GiB");
        match previous {
            None => {
                self.head.live_bytes += key.len() as u64 + u64::from(value_len);
                self.count_unit(&resource.id.tenancy, true)?;
                self.count_type(&resource.id.type_, true)?;
                if let Some(owner) = &resource.owner {
                    self.index.insert(owned_entry(owner, &key), true);
                }
            }
            Some((version, stored)) => {
                self.head.live_bytes += u64::from(value_len);
                self.head.live_bytes -= u64::from(version.value_len);
                debug_assert_eq!(stored.owner, resource.owner, "invariant: an owner never changes");
            }
        }
        let writes = previous.map_or(1, |(version, _)| version.version + 1);
        let version = Version { value_len, version: writes, ..slot };
        let resource = Arc::new(resource);
        let kv = KeyValue { key, value, version: writes, ..KeyValue::default() };
        self.record(Table::Resource, ChangeKind::Put, version, kv, EventValue::Resource(Arc::clone(&resource)));
        Ok(resource)
    }

    /// Adds the event that `last` was removed, for subscribers of its type. The resource stays: it
    /// moves to another version of its kind.
    fn leave_type(&mut self, last: Resource) {
        let slot = self.next_slot();
        let (value, last) = codec::encode_resource(last);
        self.record_history(slot, Table::ResourceMoves, value);
        self.overlay.add_event(slot, Table::ResourceMoves, ChangeKind::Delete, last);
    }

    /// Removes the live resource `last`; `version` is that of its record. The record of the removal
    /// holds the last content, so that a reader of history needs no other record.
    ///
    /// # Errors
    ///
    /// If the disk failed, or a count cannot be decoded.
    pub fn delete_resource(&mut self, version: &Version, last: Resource) -> Result<(), StorageError> {
        let key = resource_key(&last.id);
        self.head.live_bytes -= key.len() as u64 + u64::from(version.value_len);
        self.count_unit(&last.id.tenancy, false)?;
        self.count_type(&last.id.type_, false)?;
        if let Some(owner) = &last.owner {
            self.index.insert(owned_entry(owner, &key), false);
        }
        let slot = Version { deleted: true, ..self.next_slot() };
        let (value, last) = codec::encode_resource(last);
        let kv = KeyValue { key, value, ..KeyValue::default() };
        self.record(Table::Resource, ChangeKind::Delete, slot, kv, EventValue::Resource(Arc::new(last)));
        Ok(())
    }

    /// Registers a type of resources, or with `None` removes its registration. `index` is the log
    /// index of the current command.
    ///
    /// # Errors
    ///
    /// If the disk failed, or the record of the type cannot be decoded.
    pub fn set_registration(
        &mut self,
        name: TypeName,
        index: LogIndex,
        registered: Option<Registration>,
    ) -> Result<(), StorageError> {
        let mut record = self.pending_type(&name)?;
        match (record.registered.is_some(), registered.is_some()) {
            (false, true) => self.head.types.count += 1,
            (true, false) => self.head.types.count -= 1,
            (false, false) | (true, true) => {}
        }
        self.head.types.changed = index;
        record.registered = registered;
        self.resources.types.insert(name, record);
        Ok(())
    }

    pub(super) fn pending_type(&self, name: &TypeName) -> Result<TypeRecord, StorageError> {
        if let Some(record) = self.resources.types.get(name) {
            return Ok(record.clone());
        }
        let key = keys::resource_type(name);
        read_type(&key, self.db.db.get_pinned_cf(self.families.meta, &key)?.as_deref())
    }

    /// The registration in [`pending_type`](Self::pending_type), from the cache if it is there.
    pub(super) fn pending_registration(&self, name: &TypeName) -> Result<Option<Registration>, StorageError> {
        if let Some(record) = self.resources.types.get(name) {
            return Ok(record.registered.clone());
        }
        let mut registrations = self.db.registrations.lock();
        if let Some(known) = registrations.get(name, self.base.types) {
            return Ok(Some(known.clone()));
        }
        let registered = self.pending_type(name)?.registered;
        if let Some(registration) = &registered {
            registrations.insert(name.clone(), registration.clone());
        }
        Ok(registered)
    }

    pub(super) fn pending_unit(&self, unit: &Tenancy) -> Result<u64, StorageError> {
        if let Some(count) = self.resources.units.get(unit) {
            return Ok(*count);
        }
        let key = keys::unit(unit);
        read_count(&key, self.db.db.get_pinned_cf(self.families.meta, &key)?.as_deref())
    }

    fn count_type(&mut self, type_: &Type, comes: bool) -> Result<(), StorageError> {
        if builtin_scope(type_).is_some() {
            return Ok(());
        }
        let name = TypeName::of(type_);
        let mut record = self.pending_type(&name)?;
        step(&mut record.count, comes);
        self.resources.types.insert(name, record);
        Ok(())
    }

    /// Adds one to the counts of the namespace, if there is one, and of the partition; with `comes`
    /// false subtracts one. Does nothing for a tenancy without a partition.
    fn count_unit(&mut self, tenancy: &Tenancy, comes: bool) -> Result<(), StorageError> {
        if tenancy.partition.is_empty() {
            return Ok(());
        }
        for namespace in [tenancy.namespace.as_str(), WILDCARD] {
            if !namespace.is_empty() {
                let unit = Tenancy::new(&tenancy.partition, namespace);
                let mut count = self.pending_unit(&unit)?;
                step(&mut count, comes);
                self.resources.units.insert(unit, count);
            }
        }
        Ok(())
    }
}

fn step(count: &mut u64, up: bool) {
    if up { *count += 1 } else { *count -= 1 }
}

fn owned_entry(owner: &ResourceId, key: &Bytes) -> Vec<u8> {
    let mut entry = keys::owned_prefix(owner);
    entry.extend_from_slice(key);
    entry
}

/// Decodes the `meta` record of a type; the default if it has no entry.
pub(super) fn read_type(key: &[u8], bytes: Option<&[u8]>) -> Result<TypeRecord, StorageError> {
    let Some(bytes) = bytes else { return Ok(TypeRecord::default()) };
    TypeRecord::decode(bytes).ok_or_else(|| undecodable(META, key, bytes, "a type of resources that cannot be decoded"))
}

/// Decodes a count of `meta`; zero if it has no entry.
pub(super) fn read_count(key: &[u8], bytes: Option<&[u8]>) -> Result<u64, StorageError> {
    let Some(bytes) = bytes else { return Ok(0) };
    decode_count(bytes).ok_or_else(|| undecodable(META, key, bytes, "a count that cannot be decoded"))
}
