//! The changes of one command, entity by entity, with their states before and after it.
//!
//! Owns the meaning of records of history for entities. Knows no positions and no streams. Values
//! of the states before are loaded together for many commands.

use std::sync::Arc;

use super::instance::{Instances, changed_at};
use super::past::{self, Earlier};
use super::{At, StoreTarget};
use crate::watcher::{catalog, cluster, resources};
use crate::{ElementData, EntitySpace};
use headwater_storage::state::{CommandHistory, HistoryRecord, StateReader, Table, Tables, Version};
use headwater_storage::{ReadView, StorageError};
use headwater_types::catalog::{CatalogBody, CatalogNode, CatalogOp, CatalogTopic, CheckServiceNode, canonical};
use headwater_types::entity::name_of;
use headwater_types::{Authorship, ChangeKind, ClusterEvent, Face, LeaseId, LogIndex, Revision};

/// The state of an entity at some index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityState {
    /// Its data.
    pub data: ElementData,
    /// Log index of its last change; zero if it is unknown.
    pub index: LogIndex,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntityChangeKind {
    /// The entity did not exist before.
    Created,
    /// The entity existed before, and exists.
    Updated,
    /// The entity does not exist any more.
    Removed,
}

/// The change of one entity by one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityChange {
    /// The space of the entity.
    pub space: EntitySpace,
    /// The name in the space.
    pub name: String,
    /// The kind of the change.
    pub kind: EntityChangeKind,
    /// The state right before the command; `None` if the entity did not exist, if the state is
    /// older than the history, and if states were not asked for.
    pub before: Option<EntityState>,
    /// The state right after the command; `None` if the entity does not exist any more, and if
    /// states were not asked for.
    pub after: Option<EntityState>,
    /// Whether it was removed because its lease had ended.
    pub is_expired: bool,
}

/// All changes of one command that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandChanges {
    /// Log index of the command.
    pub index: LogIndex,
    /// The KV revision that it made; `None` if it changed no key.
    pub revision: Option<Revision>,
    /// Time of the proposal, milliseconds since the Unix epoch; zero if unknown.
    pub unix_ms: u64,
    /// The author and the face.
    pub authorship: Authorship,
    /// The changes, in their order within the command.
    pub changes: Vec<EntityChange>,
}

/// The changes that a request asks for.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    pub(super) targets: Vec<StoreTarget>,
    /// No face stands for all.
    pub(super) faces: Vec<Face>,
    /// Whether the states before and after are left out.
    pub(super) names_only: bool,
}

/// The tables with the changes of a space.
const fn tables_of(space: EntitySpace) -> Tables {
    match space {
        EntitySpace::Kv => Tables::of(&[Table::Kv]),
        EntitySpace::Resources => Tables::of(&[Table::Resource, Table::ResourceMoves]),
        EntitySpace::Services => Tables::of(&[Table::CatalogEvents]),
        EntitySpace::Nodes => Tables::of(&[Table::CatalogNode]),
        EntitySpace::Leases | EntitySpace::Cluster => past::TABLES,
    }
}

impl Filter {
    pub(super) fn tables(&self) -> Tables {
        self.targets.iter().fold(Tables::default(), |tables, target| tables.with(tables_of(target.space)))
    }

    fn wants(&self, space: EntitySpace) -> bool {
        self.targets.iter().any(|target| target.space == space)
    }

    fn has(&self, space: EntitySpace, name: &str) -> bool {
        self.targets.iter().any(|target| target.space == space && target.has(name))
    }
}

/// Gathers the changes of commands, and loads the states before them together.
pub(super) struct Gatherer<'v, 'db> {
    view: &'v ReadView<'db>,
    filter: &'v Filter,
    commands: Vec<CommandChanges>,
    /// States to load: number of the command, number of the change, and the version.
    pending: Vec<(usize, usize, Version)>,
    bytes: usize,
}

/// Approximate size of a change beside the value of its key, bytes.
const CHANGE_BYTES: usize = 128;

impl<'v, 'db> Gatherer<'v, 'db> {
    pub(super) fn new(view: &'v ReadView<'db>, filter: &'v Filter) -> Self {
        Self { view, filter, commands: Vec::new(), pending: Vec::new(), bytes: 0 }
    }

    /// Number of commands with changes that the filter selects.
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Approximate size of the changes, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the changes of a command.
    pub(super) fn add(&mut self, command: &CommandHistory) -> Result<(), StorageError> {
        let faces = &self.filter.faces;
        let is_wanted = faces.is_empty() || command.head.authorship.face.is_some_and(|face| faces.contains(&face));
        if command.records.is_empty() || !is_wanted {
            return Ok(());
        }
        self.commands.push(CommandChanges {
            index: command.index,
            revision: command.head.revision,
            unix_ms: command.head.unix_ms,
            authorship: command.head.authorship.clone(),
            changes: Vec::new(),
        });
        for record in &command.records {
            match record.table {
                Table::Kv => self.add_key(command.index, record)?,
                Table::Resource | Table::ResourceMoves => self.add_resource(command.index, record)?,
                Table::CatalogNode => self.add_node(command.index, record)?,
                // Read below, all together; or no entities.
                Table::CatalogEvents
                | Table::ClusterEvents
                | Table::CatalogService
                | Table::CatalogCheck
                | Table::CatalogGateway
                | Table::ConsulSide
                | Table::Session
                | Table::AuthUser
                | Table::AuthRole
                | Table::AuthState
                | Table::AclToken
                | Table::AclPolicy
                | Table::AclRole
                | Table::AclMethod
                | Table::AclBinding => {}
            }
        }
        if self.filter.wants(EntitySpace::Services) {
            self.add_instances(command)?;
        }
        if self.filter.wants(EntitySpace::Leases) || self.filter.wants(EntitySpace::Cluster) {
            for event in command.cluster_events()? {
                self.add_cluster(command.index, event)?;
            }
        }
        if self.commands.last().is_some_and(|command| command.changes.is_empty()) {
            self.commands.pop();
        }
        Ok(())
    }

    /// The commands with their changes, in the order in which they were added.
    pub(super) fn finish(mut self) -> Result<Vec<CommandChanges>, StorageError> {
        let versions: Vec<Version> = self.pending.iter().map(|(.., version)| *version).collect();
        for ((command, change, version), record) in self.pending.iter().zip(self.view.load(&versions)?) {
            let change = &mut self.commands[*command].changes[*change];
            let data = match change.space {
                EntitySpace::Kv => ElementData::Kv(record.kv),
                EntitySpace::Resources => ElementData::Resource(record.resource(version.index)?.into()),
                EntitySpace::Nodes => ElementData::CatalogNode(record.row::<CatalogNode>(version.index)?),
                EntitySpace::Services | EntitySpace::Leases | EntitySpace::Cluster => continue,
            };
            change.before = Some(EntityState { data, index: version.index });
        }
        Ok(self.commands)
    }

    /// Adds a change to the last command.
    fn push(&mut self, change: EntityChange) {
        self.bytes += CHANGE_BYTES + change.name.len();
        if let Some(command) = self.commands.last_mut() {
            command.changes.push(change);
        }
    }

    /// Loads the state of the last change at `key` before `index` later, if there is one.
    fn want_before(&mut self, table: Table, key: &[u8], index: LogIndex) -> Result<(), StorageError> {
        if self.filter.names_only {
            return Ok(());
        }
        if let Some(version) = self.view.lookup(table, key, before(index))? {
            let command = self.commands.len() - 1;
            self.pending.push((command, self.commands[command].changes.len() - 1, version));
            self.bytes += version.value_len as usize;
        }
        Ok(())
    }

    /// The state after the command, if states are asked for.
    fn after(&mut self, index: LogIndex, bytes: usize, data: impl FnOnce() -> ElementData) -> Option<EntityState> {
        if self.filter.names_only {
            return None;
        }
        self.bytes += bytes;
        Some(EntityState { data: data(), index })
    }

    fn add_key(&mut self, index: LogIndex, record: &HistoryRecord) -> Result<(), StorageError> {
        let (space, name) = (EntitySpace::Kv, name_of(&record.kv.key));
        if !self.filter.has(space, &name) {
            return Ok(());
        }
        let kind = match record.kind {
            ChangeKind::Put if record.kv.version == 1 => EntityChangeKind::Created,
            ChangeKind::Put => EntityChangeKind::Updated,
            ChangeKind::Delete | ChangeKind::Expire => EntityChangeKind::Removed,
        };
        let after = match kind {
            EntityChangeKind::Removed => None,
            EntityChangeKind::Created | EntityChangeKind::Updated => {
                self.after(index, record.kv.value.len(), || ElementData::Kv(record.kv.clone()))
            }
        };
        let is_expired = record.kind == ChangeKind::Expire;
        self.push(EntityChange { space, name, kind, before: None, after, is_expired });
        match kind {
            EntityChangeKind::Created => Ok(()),
            EntityChangeKind::Updated | EntityChangeKind::Removed => self.want_before(Table::Kv, &record.kv.key, index),
        }
    }

    fn add_resource(&mut self, index: LogIndex, record: &HistoryRecord) -> Result<(), StorageError> {
        let (space, resource) = (EntitySpace::Resources, record.resource(index)?);
        let name = resources::name(&resource.id);
        if !self.filter.has(space, &name) {
            return Ok(());
        }
        let is_put = record.table == Table::Resource && record.kind == ChangeKind::Put;
        let bytes = record.kv.value.len();
        if !is_put {
            // The record of a removal has the last content, but not the index of the last change.
            let last = self.view.lookup(Table::Resource, &record_key(record, &resource), before(index))?;
            let last_index = last.map_or(LogIndex::ZERO, |version| version.index);
            let resource = headwater_types::Resource { version: last_index, ..resource };
            let state = self.after(last_index, bytes, || ElementData::Resource(resource.into()));
            let kind = EntityChangeKind::Removed;
            self.push(EntityChange { space, name, kind, before: state, after: None, is_expired: false });
            return Ok(());
        }
        // A write that moves the resource to another version of its kind makes another entity.
        let was = match record.kv.version {
            1 => None,
            _ => self.view.lookup(Table::Resource, &record.kv.key, before(index))?,
        };
        let was = match was {
            Some(version) => {
                let was = self.view.load_one(&version)?.resource(version.index)?;
                (was.id.type_ == resource.id.type_)
                    .then_some(EntityState { data: ElementData::Resource(was.into()), index: version.index })
            }
            None => None,
        };
        let kind = if was.is_some() { EntityChangeKind::Updated } else { EntityChangeKind::Created };
        let after = self.after(index, 2 * bytes, || ElementData::Resource(resource.into()));
        let before = was.filter(|_| !self.filter.names_only);
        self.push(EntityChange { space, name, kind, before, after, is_expired: false });
        Ok(())
    }

    fn add_node(&mut self, index: LogIndex, record: &HistoryRecord) -> Result<(), StorageError> {
        let (space, row) = (EntitySpace::Nodes, record.row::<CatalogNode>(index)?);
        let name = catalog::segment(&canonical(&row.name));
        if !self.filter.has(space, &name) {
            return Ok(());
        }
        let kind = match record.kind {
            ChangeKind::Put if record.kv.version == 1 => EntityChangeKind::Created,
            ChangeKind::Put => EntityChangeKind::Updated,
            ChangeKind::Delete | ChangeKind::Expire => EntityChangeKind::Removed,
        };
        let after = match record.kind {
            ChangeKind::Put => self.after(index, record.kv.value.len(), || ElementData::CatalogNode(row)),
            ChangeKind::Delete | ChangeKind::Expire => None,
        };
        self.push(EntityChange { space, name, kind, before: None, after, is_expired: false });
        match kind {
            EntityChangeKind::Created => Ok(()),
            EntityChangeKind::Updated | EntityChangeKind::Removed => {
                self.want_before(Table::CatalogNode, &record.kv.key, index)
            }
        }
    }

    fn add_instances(&mut self, command: &CommandHistory) -> Result<(), StorageError> {
        let space = EntitySpace::Services;
        let mut earlier = Instances::new(self.view, At { index: before(command.index), lookup: before(command.index) });
        for event in self.view.catalog_events(command)?.iter() {
            let (CatalogTopic::ServiceHealth, CatalogBody::Instance(instance)) = (event.topic, &event.body) else {
                continue;
            };
            let name = catalog::instance_name(instance);
            if !self.filter.has(space, &name) {
                continue;
            }
            let was = earlier.find(&instance.node.name, &instance.service.id)?;
            let was = was.filter(|was| canonical(&was.service.name) == canonical(&instance.service.name));
            let kind = match (event.op, &was) {
                (CatalogOp::Deregister, _) => EntityChangeKind::Removed,
                (CatalogOp::Register, Some(_)) => EntityChangeKind::Updated,
                (CatalogOp::Register, None) => EntityChangeKind::Created,
            };
            let after = match event.op {
                CatalogOp::Register => {
                    let bytes = CHANGE_BYTES * (2 + instance.checks.len());
                    self.after(command.index, bytes, || ElementData::Instance(Arc::clone(instance)))
                }
                CatalogOp::Deregister => None,
            };
            let state =
                |was: Arc<CheckServiceNode>| EntityState { index: changed_at(&was), data: ElementData::Instance(was) };
            let before = was.filter(|_| !self.filter.names_only).map(state);
            self.push(EntityChange { space, name, kind, before, after, is_expired: false });
        }
        Ok(())
    }

    fn add_cluster(&mut self, index: LogIndex, event: ClusterEvent) -> Result<(), StorageError> {
        let lease_name = |id: LeaseId| cluster::name(id.get().cast_unsigned());
        let names_only = self.filter.names_only;
        let change = match event {
            ClusterEvent::LeaseGranted { id, ttl_seconds } => {
                let data = ElementData::Lease { id, ttl_seconds };
                let after = (!names_only).then_some(EntityState { data, index });
                (EntitySpace::Leases, lease_name(id), EntityChangeKind::Created, None, after)
            }
            ClusterEvent::LeaseEnded(id) => {
                let data = ElementData::Lease { id, ttl_seconds: 0 };
                let before = (!names_only).then_some(EntityState { data, index: LogIndex::ZERO });
                (EntitySpace::Leases, lease_name(id), EntityChangeKind::Removed, before, None)
            }
            ClusterEvent::MemberChanged(member) => {
                let name = format!("members/{}", cluster::name(member.id.get()));
                if !self.filter.has(EntitySpace::Cluster, &name) {
                    return Ok(());
                }
                let (kind, before) = match past::member_before(self.view, member.id, index)? {
                    Earlier::Missing => (EntityChangeKind::Created, None),
                    Earlier::Compacted | Earlier::TooFar => (EntityChangeKind::Updated, None),
                    Earlier::Found(member, index) => {
                        let state = EntityState { data: ElementData::Member(member), index };
                        (EntityChangeKind::Updated, Some(state))
                    }
                };
                let after = EntityState { data: ElementData::Member(member), index };
                let (before, after) = (before.filter(|_| !names_only), Some(after).filter(|_| !names_only));
                (EntitySpace::Cluster, name, kind, before, after)
            }
            ClusterEvent::MemberLeft(id) => {
                let name = format!("members/{}", cluster::name(id.get()));
                if !self.filter.has(EntitySpace::Cluster, &name) {
                    return Ok(());
                }
                let before = match past::member_before(self.view, id, index)? {
                    Earlier::Found(member, index) => Some(EntityState { data: ElementData::Member(member), index }),
                    Earlier::Missing | Earlier::Compacted | Earlier::TooFar => None,
                };
                let before = before.filter(|_| !names_only);
                (EntitySpace::Cluster, name, EntityChangeKind::Removed, before, None)
            }
        };
        let (space, name, kind, before, after) = change;
        if self.filter.has(space, &name) {
            self.push(EntityChange { space, name, kind, before, after, is_expired: false });
        }
        Ok(())
    }
}

/// The point right before the command at `index`.
fn before(index: LogIndex) -> LogIndex {
    LogIndex(index.get().saturating_sub(1))
}

/// The key of the resource in a record; moves have none.
fn record_key(record: &HistoryRecord, resource: &headwater_types::Resource) -> bytes::Bytes {
    match record.table {
        Table::ResourceMoves => headwater_types::resource::resource_key(&resource.id),
        _ => record.kv.key.clone(),
    }
}
