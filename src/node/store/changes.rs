//! The changes of one command, entity by entity, with their states before and after it.
//!
//! Owns the meaning of records of history for entities, and the size of a message of changes. Knows
//! no streams. The states before changes of keys and nodes are loaded together for many commands,
//! and only for changes that fit into the message.

use std::sync::Arc;

use super::instance::Instances;
use super::past::{self, Earlier};
use super::{At, StoreTarget, size};
use crate::watcher::{catalog, cluster, resources};
use crate::{ElementData, EntitySpace};
use headwater_storage::state::{CommandHistory, HistoryHead, HistoryRecord, StateReader, Table, Tables, Version};
use headwater_storage::{ReadView, StorageError};
use headwater_types::catalog::{CatalogBody, CatalogNode, CatalogOp, CatalogTopic, CheckServiceNode, canonical};
use headwater_types::entity::name_of;
use headwater_types::limits::STORE_MESSAGE_BYTES_MAX;
use headwater_types::{Authorship, ChangeKind, ClusterEvent, Face, LogIndex, Revision};

/// Data of one entity that exists, without the entities below it, and the log index of its last
/// change. An entity that does not exist has no such state.
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
    /// The entity existed before, and exists. Also a change of a member if its existence before is
    /// unknown.
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
    /// The state right before the command. `None` if the entity did not exist, if the state cannot
    /// be read any more, or if states were not asked for.
    pub before: Option<EntityState>,
    /// The state right after the command; `None` if the entity does not exist any more, or if
    /// states were not asked for.
    pub after: Option<EntityState>,
    /// Whether the entity is a key that was removed because its lease had ended.
    pub is_expired: bool,
}

/// The changes of one command that a request asks for: all, or a part of them.
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
    /// Whether more changes of the command follow in the next page.
    pub is_continued: bool,
}

/// A cursor among the changes of one command: the first change that is still to be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Number of a record of the command.
    record: u32,
    /// Number of events of that record to skip.
    event: usize,
}

/// The changes that a request asks for.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// Changes of these entities are wanted.
    pub(super) targets: Vec<StoreTarget>,
    /// Changes by these faces are wanted; empty for all.
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

/// Gathers the changes that a filter selects for one message, and loads the states before them
/// together.
pub(super) struct Gatherer<'v, 'db> {
    view: &'v ReadView<'db>,
    filter: &'v Filter,
    commands: Vec<CommandChanges>,
    /// States before changes that are still to be loaded: indexes into `commands` and its
    /// `changes`, and the version.
    pending: Vec<(usize, usize, Version)>,
    /// Size of the changes with all states, loaded or not, bytes.
    bytes: usize,
}

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

    /// Whether the filter selects the face of a command.
    pub(super) fn has_face(&self, head: &HistoryHead) -> bool {
        let faces = &self.filter.faces;
        faces.is_empty() || head.authorship.face.is_some_and(|face| faces.contains(&face))
    }

    /// Adds the selected changes of a command, all or none. False if they do not all fit; true also
    /// if none is selected.
    pub(super) fn add(&mut self, command: &CommandHistory) -> Result<bool, StorageError> {
        if command.records.is_empty() || !self.has_face(&command.head) {
            return Ok(true);
        }
        let (pending, bytes) = (self.pending.len(), self.bytes);
        self.begin(command.index, &command.head);
        for record in &command.records {
            if self.add_record(command.index, record, 0)?.is_some() {
                self.commands.pop();
                self.pending.truncate(pending);
                self.bytes = bytes;
                return Ok(false);
            }
        }
        self.end();
        Ok(true)
    }

    /// Adds the selected changes of the command at `index` from the cursor `from` on, as many as
    /// fit. To an empty gatherer one always fits. Returns the cursor of the first change that does
    /// not fit; `None` if all fit.
    pub(super) fn add_part(&mut self, index: LogIndex, from: Place) -> Result<Option<Place>, StorageError> {
        let view = self.view;
        let mut records = view.records_of(index, from.record, self.filter.tables())?;
        self.begin(index, records.head());
        while let Some((position, record)) = records.next()? {
            let skipped = if position == from.record { from.event } else { 0 };
            if let Some(event) = self.add_record(index, &record, skipped)? {
                if let Some(command) = self.commands.last_mut() {
                    command.is_continued = true;
                }
                return Ok(Some(Place { record: position, event }));
            }
        }
        self.end();
        Ok(None)
    }

    fn begin(&mut self, index: LogIndex, head: &HistoryHead) {
        self.commands.push(CommandChanges {
            index,
            revision: head.revision,
            unix_ms: head.unix_ms,
            authorship: head.authorship.clone(),
            changes: Vec::new(),
            is_continued: false,
        });
    }

    /// Drops the last command if nothing of it was selected.
    fn end(&mut self) {
        if self.commands.last().is_some_and(|command| command.changes.is_empty()) {
            self.commands.pop();
        }
    }

    /// Adds the selected changes in a record, without those of its first `skipped` events. Returns
    /// the number of the first event that does not fit, from 0; `None` if all fit.
    fn add_record(
        &mut self,
        index: LogIndex,
        record: &HistoryRecord,
        skipped: usize,
    ) -> Result<Option<usize>, StorageError> {
        let fits = match record.table {
            Table::Kv => self.add_key(index, record)?,
            Table::Resource | Table::ResourceMoves => self.add_resource(index, record)?,
            Table::CatalogNode => self.add_node(index, record)?,
            Table::CatalogEvents => return self.add_instances(index, record, skipped),
            Table::ClusterEvents => self.add_cluster(index, record.cluster_event(index)?)?,
            // No entities.
            Table::CatalogService
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
            | Table::AclBinding => true,
        };
        Ok((!fits).then_some(0))
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

    /// Adds `change` to the last command. `values` is the size of the values of its states, bytes;
    /// `before` is the version of a state that is still to be loaded. False if the message has
    /// other changes and would become too large: nothing is added then.
    fn push(&mut self, change: EntityChange, values: usize, before: Option<Version>) -> bool {
        let before = before.filter(|_| !self.filter.names_only);
        let values = if self.filter.names_only { 0 } else { values };
        let loaded = before.map_or(0, |version| version.value_len as usize);
        let bytes = size::change(&change.name, self.filter.names_only) + values + loaded;
        if self.bytes > 0 && self.bytes + bytes > STORE_MESSAGE_BYTES_MAX {
            return false;
        }
        self.bytes += bytes;
        let number = self.commands.len() - 1;
        let changes = &mut self.commands[number].changes;
        self.pending.extend(before.map(|version| (number, changes.len(), version)));
        changes.push(change);
        true
    }

    /// The version that `record` of the command at `index` replaces or removes, with its place and
    /// size at least. `None` if there was none, or if states are not asked for.
    fn version_before(
        &self,
        table: Table,
        record: &HistoryRecord,
        index: LogIndex,
    ) -> Result<Option<Version>, StorageError> {
        match record.previous {
            _ if self.filter.names_only => Ok(None),
            // Heads have it for keys, but not from before version 0.4.
            Some(previous) => Ok(Some(previous.to_version())),
            None => self.view.lookup(table, &record.kv.key, before(index)),
        }
    }

    /// The state with the last change `index` and the data of `data`; `None` if states are not
    /// asked for.
    fn state(&self, index: LogIndex, data: impl FnOnce() -> ElementData) -> Option<EntityState> {
        (!self.filter.names_only).then(|| EntityState { data: data(), index })
    }

    fn add_key(&mut self, index: LogIndex, record: &HistoryRecord) -> Result<bool, StorageError> {
        let (space, name) = (EntitySpace::Kv, name_of(&record.kv.key));
        if !self.filter.has(space, &name) {
            return Ok(true);
        }
        let kind = kind_of(record);
        let was = match kind {
            EntityChangeKind::Created => None,
            EntityChangeKind::Updated | EntityChangeKind::Removed => self.version_before(Table::Kv, record, index)?,
        };
        let after = match kind {
            EntityChangeKind::Removed => None,
            EntityChangeKind::Created | EntityChangeKind::Updated => {
                self.state(index, || ElementData::Kv(record.kv.clone()))
            }
        };
        let is_expired = record.kind == ChangeKind::Expire;
        let change = EntityChange { space, name, kind, before: None, after, is_expired };
        Ok(self.push(change, record.kv.value.len(), was))
    }

    fn add_resource(&mut self, index: LogIndex, record: &HistoryRecord) -> Result<bool, StorageError> {
        let (space, resource) = (EntitySpace::Resources, record.resource(index)?);
        let name = resources::name(&resource.id);
        if !self.filter.has(space, &name) {
            return Ok(true);
        }
        let is_put = record.table == Table::Resource && record.kind == ChangeKind::Put;
        let bytes = record.kv.value.len();
        if !is_put {
            // The record of a removal has the last content, but not the index of the last change.
            let last = self.view.lookup(Table::Resource, &record_key(record, &resource), before(index))?;
            let last_index = last.map_or(LogIndex::ZERO, |version| version.index);
            let resource = headwater_types::Resource { version: last_index, ..resource };
            let state = self.state(last_index, || ElementData::Resource(resource.into()));
            let kind = EntityChangeKind::Removed;
            let change = EntityChange { space, name, kind, before: state, after: None, is_expired: false };
            return Ok(self.push(change, bytes, None));
        }
        // A write that moves the resource to another version of its kind makes another entity.
        let mut values = bytes;
        let was = match record.kv.version {
            1 => None,
            _ => self.view.lookup(Table::Resource, &record.kv.key, before(index))?,
        };
        let was = match was {
            Some(version) => {
                let was = self.view.load_one(&version)?.resource(version.index)?;
                values += version.value_len as usize;
                (was.id.type_ == resource.id.type_)
                    .then_some(EntityState { data: ElementData::Resource(was.into()), index: version.index })
            }
            None => None,
        };
        let kind = if was.is_some() { EntityChangeKind::Updated } else { EntityChangeKind::Created };
        let after = self.state(index, || ElementData::Resource(resource.into()));
        let before = was.filter(|_| !self.filter.names_only);
        Ok(self.push(EntityChange { space, name, kind, before, after, is_expired: false }, values, None))
    }

    fn add_node(&mut self, index: LogIndex, record: &HistoryRecord) -> Result<bool, StorageError> {
        let (space, row) = (EntitySpace::Nodes, record.row::<CatalogNode>(index)?);
        let name = catalog::segment(&canonical(&row.name));
        if !self.filter.has(space, &name) {
            return Ok(true);
        }
        let kind = kind_of(record);
        let (was, after) = match kind {
            EntityChangeKind::Created => (None, self.state(index, || ElementData::CatalogNode(row))),
            EntityChangeKind::Updated => {
                let was = self.version_before(Table::CatalogNode, record, index)?;
                (was, self.state(index, || ElementData::CatalogNode(row)))
            }
            EntityChangeKind::Removed => (self.version_before(Table::CatalogNode, record, index)?, None),
        };
        let change = EntityChange { space, name, kind, before: None, after, is_expired: false };
        Ok(self.push(change, record.kv.value.len(), was))
    }

    /// Adds the selected instances in a record of events, without its first `skipped` events.
    /// Returns as [`add_record`](Self::add_record).
    fn add_instances(
        &mut self,
        index: LogIndex,
        record: &HistoryRecord,
        skipped: usize,
    ) -> Result<Option<usize>, StorageError> {
        let (space, view) = (EntitySpace::Services, self.view);
        if !self.filter.wants(space) {
            return Ok(None);
        }
        let mut earlier = Instances::new(view, At { index: before(index), lookup: before(index) });
        let mut events = view.recorded_events(index, record)?;
        events.skip(skipped);
        for number in skipped.. {
            let Some(event) = events.next()? else { break };
            let (CatalogTopic::ServiceHealth, CatalogBody::Instance(instance)) = (event.topic, event.body) else {
                continue;
            };
            let name = catalog::instance_name(&instance);
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
            let is = Some(instance).filter(|_| event.op == CatalogOp::Register);
            let values = was.iter().chain(&is).map(|instance| size::instance(instance)).sum();
            let state = |instance: Arc<CheckServiceNode>, index| self.state(index, || ElementData::Instance(instance));
            let before = match was {
                Some(was) => {
                    let index = earlier.changed_at(&was)?;
                    state(was, index)
                }
                None => None,
            };
            let after = is.and_then(|is| state(is, index));
            let change = EntityChange { space, name, kind, before, after, is_expired: false };
            if !self.push(change, values, None) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    fn add_cluster(&mut self, index: LogIndex, event: ClusterEvent) -> Result<bool, StorageError> {
        let (space, name) = match &event {
            ClusterEvent::LeaseGranted { id, .. } | ClusterEvent::LeaseEnded(id) => {
                (EntitySpace::Leases, cluster::name(id.get().cast_unsigned()))
            }
            ClusterEvent::MemberChanged(member) => {
                (EntitySpace::Cluster, format!("members/{}", cluster::name(member.id.get())))
            }
            ClusterEvent::MemberLeft(id) => (EntitySpace::Cluster, format!("members/{}", cluster::name(id.get()))),
        };
        if !self.filter.has(space, &name) {
            return Ok(true);
        }
        let (kind, before, after) = match event {
            ClusterEvent::LeaseGranted { id, ttl_seconds } => {
                let data = ElementData::Lease { id, ttl_seconds };
                (EntityChangeKind::Created, None, Some(EntityState { data, index }))
            }
            ClusterEvent::LeaseEnded(id) => {
                let data = ElementData::Lease { id, ttl_seconds: 0 };
                (EntityChangeKind::Removed, Some(EntityState { data, index: LogIndex::ZERO }), None)
            }
            ClusterEvent::MemberChanged(member) => {
                let (kind, before) = match past::member_before(self.view, member.id, index)? {
                    Earlier::Missing => (EntityChangeKind::Created, None),
                    Earlier::Compacted | Earlier::TooFar => (EntityChangeKind::Updated, None),
                    Earlier::Found(member, index) => {
                        let state = EntityState { data: ElementData::Member(member), index };
                        (EntityChangeKind::Updated, Some(state))
                    }
                };
                (kind, before, Some(EntityState { data: ElementData::Member(member), index }))
            }
            ClusterEvent::MemberLeft(id) => {
                let before = match past::member_before(self.view, id, index)? {
                    Earlier::Found(member, index) => Some(EntityState { data: ElementData::Member(member), index }),
                    Earlier::Missing | Earlier::Compacted | Earlier::TooFar => None,
                };
                (EntityChangeKind::Removed, before, None)
            }
        };
        let is_wanted = !self.filter.names_only;
        let (before, after) = (before.filter(|_| is_wanted), after.filter(|_| is_wanted));
        let change = EntityChange { space, name, kind, before, after, is_expired: false };
        Ok(self.push(change, 0, None))
    }
}

/// The kind of the change of the key or row in a record.
fn kind_of(record: &HistoryRecord) -> EntityChangeKind {
    match record.kind {
        ChangeKind::Put if record.kv.version == 1 => EntityChangeKind::Created,
        ChangeKind::Put => EntityChangeKind::Updated,
        ChangeKind::Delete | ChangeKind::Expire => EntityChangeKind::Removed,
    }
}

/// The point right before the command at `index`.
fn before(index: LogIndex) -> LogIndex {
    LogIndex(index.get().saturating_sub(1))
}

/// The key of the resource in a record. Records of moves have no key, so it is made from
/// `resource`.
fn record_key(record: &HistoryRecord, resource: &headwater_types::Resource) -> bytes::Bytes {
    match record.table {
        Table::ResourceMoves => headwater_types::resource::resource_key(&resource.id),
        _ => record.kv.key.clone(),
    }
}
