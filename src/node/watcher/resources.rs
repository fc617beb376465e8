//! The space of resources: group, version, kind, partition, namespace, name. An empty unit is a
//! segment, like an empty part of a key.
//!
//! The version of the group is not a part of a resource's key, so a write may move a resource to
//! another version of its kind. Then one element disappears and another one appears, each by an
//! event of its own.

use std::sync::Arc;

use super::space::{ElementData, Space, Touched, each};
use headwater_storage::state::{NEWEST, StateReader, Table};
use headwater_storage::{ReadView, StorageError};
use headwater_stream::{EventPublisher, Feed, Resources};
use headwater_types::entity::{key_of, name_of};
use headwater_types::resource::{Resource, ResourceId, Selector, Tenancy, Type, WILDCARD, resource_key};
use headwater_types::{ChangeKind, KeyRange, LogIndex, ResourceEvent};

/// Parts of the name of a resource, count.
pub(in super::super) const PARTS: usize = 6;

/// A part that occurs in no resource.
const NOBODY: &str = "\0";

/// Resources by type, units and name.
#[derive(Default)]
pub(super) struct ResourceSpace;

/// The decoded parts of a name, group first: six for a resource, fewer for a directory. A part that
/// cannot be decoded, or is the wildcard, becomes one that no resource has.
pub(in super::super) fn parts(name: &str) -> Vec<String> {
    if name.is_empty() {
        return Vec::new();
    }
    let text = |segment| key_of(segment).ok().and_then(|part| String::from_utf8(part).ok());
    let part = |segment| text(segment).filter(|part| part != WILDCARD).unwrap_or_else(|| NOBODY.to_owned());
    name.split('/').map(part).collect()
}

/// The name of a resource in its space: all six parts, escaped and joined by `/`, without
/// `/resources`.
pub(in super::super) fn name(id: &ResourceId) -> String {
    let Type { group, group_version, kind } = &id.type_;
    let Tenancy { partition, namespace } = &id.tenancy;
    let parts = [group, group_version, kind, partition, namespace, &id.name];
    let names: Vec<String> =
        parts.iter().map(|part| if part.is_empty() { "~".to_owned() } else { name_of(part.as_bytes()) }).collect();
    names.join("/")
}

/// A selector that covers the resources at or below the name with these parts. It takes a sixth
/// part, the resource's name, for a prefix, so it may select more.
pub(in super::super) fn selector(parts: &[String]) -> Selector {
    let part = |number: usize| parts.get(number).map_or(WILDCARD, String::as_str);
    Selector {
        type_: Type::new(part(0), part(1), part(2)),
        tenancy: Tenancy::new(part(3), part(4)),
        name_prefix: parts.get(5).cloned().unwrap_or_default(),
    }
}

/// The key of the resource with a name, or an interval with the keys of all resources below it.
/// Keys lack the version of the group, so other versions share them. Parts after the sixth are
/// ignored.
pub(in super::super) fn key_range(name: &str) -> KeyRange {
    let mut parts = parts(name);
    parts.truncate(PARTS);
    match &parts[..] {
        [group, version, kind, partition, namespace, own] => {
            let (type_, tenancy) = (Type::new(group, version, kind), Tenancy::new(partition, namespace));
            let id = ResourceId { uid: String::new(), name: own.clone(), type_, tenancy };
            KeyRange::One(resource_key(&id))
        }
        // Keys do not have the version of the group: the interval covers all versions.
        parts => selector(parts).range(),
    }
}

/// Whether the resource has the name with these parts, or is below it.
pub(in super::super) fn matches(parts: &[String], resource: &Resource) -> bool {
    parts.len() <= PARTS
        && selector(parts).matches(&resource.id)
        && parts.get(5).is_none_or(|name| *name == resource.id.name)
}

/// Some resource that has the name with these parts or is below it, in the state at `at`; `None` if
/// there is none.
fn find(view: &ReadView<'_>, parts: &[String], at: LogIndex) -> Result<Option<Resource>, StorageError> {
    let mut found = None;
    if parts.len() > PARTS {
        return Ok(None);
    }
    each(view, Table::Resource, &selector(parts).range(), at, |record, version| {
        let resource = record.resource(version.index)?;
        if matches(parts, &resource) {
            found = Some(resource);
        }
        Ok(found.is_none())
    })?;
    Ok(found)
}

impl Space for ResourceSpace {
    type Topic = Resources;

    fn feed(events: &EventPublisher) -> &Arc<Feed<Resources>> {
        events.resources()
    }

    fn subject(&self, root: &str) -> Selector {
        let mut parts = parts(root);
        parts.truncate(PARTS);
        selector(&parts)
    }

    fn touched(
        &self,
        view: &ReadView<'_>,
        index: LogIndex,
        event: &ResourceEvent,
        emit: &mut dyn FnMut(String, Touched),
    ) -> Result<(), StorageError> {
        let resource = &event.resource;
        let here = name(&resource.id);
        match event.kind {
            ChangeKind::Put => {
                let before = LogIndex(index.get().saturating_sub(1));
                let key = resource_key(&resource.id);
                // Below the compaction point it is unknown whether the resource existed: the tree
                // then decides by its own `before`, if it has one.
                let known = before >= view.head().compacted_index();
                let was = if known { view.lookup(Table::Resource, &key, before)? } else { None };
                let was_here = match was {
                    Some(version) => view.load_one(&version)?.resource(version.index)?.id.type_ == resource.id.type_,
                    None => false,
                };
                let was_there = known.then_some(was_here);
                emit(here, Touched { data: Some(ElementData::Resource(Arc::clone(resource))), was_there });
            }
            ChangeKind::Delete | ChangeKind::Expire => emit(here, Touched { data: None, was_there: Some(true) }),
        }
        Ok(())
    }

    fn has_below(&self, view: &ReadView<'_>, name: &str, at: LogIndex) -> Result<bool, StorageError> {
        let parts = parts(name);
        Ok(parts.len() < PARTS && find(view, &parts, at)?.is_some())
    }

    fn read(&self, view: &ReadView<'_>, name: &str, at: LogIndex) -> Result<Option<ElementData>, StorageError> {
        let parts = parts(name);
        if parts.is_empty() {
            return Ok(Some(ElementData::Empty));
        }
        let [group, version, kind, partition, namespace, own] = &parts[..] else { return Ok(None) };
        let id = ResourceId {
            uid: String::new(),
            name: own.clone(),
            type_: Type::new(group, version, kind),
            tenancy: Tenancy::new(partition, namespace),
        };
        let Some(version) = view.lookup(Table::Resource, &resource_key(&id), at)? else { return Ok(None) };
        let resource = view.load_one(&version)?.resource(version.index)?;
        Ok((resource.id.type_ == id.type_).then(|| ElementData::Resource(Arc::new(resource))))
    }

    fn list(
        &self,
        view: &ReadView<'_>,
        root: &str,
        _: bool,
        emit: &mut dyn FnMut(String, ElementData) -> bool,
    ) -> Result<(), StorageError> {
        let parts = parts(root);
        if parts.len() > PARTS {
            return Ok(());
        }
        if parts.is_empty() && !emit(String::new(), ElementData::Empty) {
            return Ok(());
        }
        each(view, Table::Resource, &selector(&parts).range(), NEWEST, |record, version| {
            let resource = record.resource(version.index)?;
            Ok(!matches(&parts, &resource) || emit(name(&resource.id), ElementData::Resource(Arc::new(resource))))
        })
    }
}
