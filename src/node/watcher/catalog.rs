//! The spaces of the service catalog: instances by service, node and id, with their node and their
//! checks; and nodes.
//!
//! Names of services and nodes are in lower case, as they are compared. The rows have versions:
//! they decide whether an element existed at a point of history. The secondary indexes have none,
//! and only give candidates.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use quick_cache::sync::Cache;

use super::space::{ElementData, Space, Touched, each};
use headwater_storage::state::{CatalogReader, CatalogRow, NEWEST, StateReader, Table, node_key, on_node_key};
use headwater_storage::{ReadView, StorageError};
use headwater_stream::{Catalog, CatalogSubject, EventPublisher, Feed};
use headwater_types::catalog::{
    CatalogBody, CatalogEvent, CatalogNode, CatalogOp, CatalogTopic, CheckServiceNode, Service, canonical,
};
use headwater_types::entity::{part_of, segment_of};
use headwater_types::limits::ENTITY_KNOWN_KEYS_MAX;
use headwater_types::{KeyRange, LogIndex};

/// Most commands of history that are searched for changed or removed instances, count. Followers
/// are usually only a few commands behind.
const SEARCHED_COMMANDS_MAX: usize = 256;
/// Most bytes of values written by the searched commands.
const SEARCHED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The decoded parts of a name; none for the empty name. A part that cannot be decoded becomes a
/// text that no name has.
pub(in super::super) fn parts(name: &str) -> Vec<String> {
    if name.is_empty() {
        return Vec::new();
    }
    // Names of services, nodes and instances are always UTF-8.
    let text = |segment| part_of(segment).ok().and_then(|part| String::from_utf8(part).ok());
    name.split('/').map(|segment| text(segment).unwrap_or_else(|| "\0".to_owned())).collect()
}

/// A part as one segment: a slash in it is escaped.
pub(in super::super) fn segment(part: &str) -> String {
    segment_of(part.as_bytes())
}

/// Instances by service, node and id.
pub(super) struct ServiceSpace {
    /// Cache from a service to the key of an instance that it had lately.
    known_keys: Cache<String, Bytes>,
}

impl Default for ServiceSpace {
    fn default() -> Self {
        Self { known_keys: Cache::new(ENTITY_KNOWN_KEYS_MAX) }
    }
}

impl ServiceSpace {
    /// Whether the instance with this key existed at `at`, and belonged to the service. If so,
    /// remembers the key.
    fn was_of(&self, view: &ReadView<'_>, service: &str, key: &Bytes, at: LogIndex) -> Result<bool, StorageError> {
        let Some(version) = view.lookup(Table::CatalogService, key, at)? else { return Ok(false) };
        let row = view.load_one(&version)?.row::<Service>(version.index)?;
        let is = canonical(&row.name) == service;
        if is {
            self.known_keys.insert(service.to_owned(), key.clone());
        }
        Ok(is)
    }

    /// Whether an instance in an interval of keys existed at `at`, and belonged to the service.
    fn any_of(&self, view: &ReadView<'_>, service: &str, range: &KeyRange, at: LogIndex) -> Result<bool, StorageError> {
        let mut found = false;
        each(view, Table::CatalogService, range, at, |record, version| {
            found = canonical(&record.row::<Service>(version.index)?.name) == service;
            Ok(!found)
        })?;
        Ok(found)
    }
}

/// The keys of the instances that were changed, added or removed after the command at `at`. `None`
/// if that is so long ago that reading all instances is cheaper. History must reach back to `at`.
fn keys_changed_since(view: &ReadView<'_>, at: LogIndex) -> Result<Option<BTreeSet<Bytes>>, StorageError> {
    let (mut changed, mut commands, mut bytes) = (BTreeSet::new(), 0, 0);
    let mut is_near = true;
    view.history(at.next(), |command| {
        commands += 1;
        bytes += command.records.iter().map(|record| record.kv.value.len()).sum::<usize>();
        is_near = commands <= SEARCHED_COMMANDS_MAX && bytes <= SEARCHED_BYTES_MAX;
        let records = command.records.into_iter().filter(|record| record.table == Table::CatalogService);
        changed.extend(records.map(|record| record.kv.key));
        is_near
    })?;
    Ok(is_near.then_some(changed))
}

pub(in super::super) fn instance_name(instance: &CheckServiceNode) -> String {
    let parts = [&canonical(&instance.service.name), &canonical(&instance.node.name), &instance.service.id];
    parts.map(|part| segment(part)).join("/")
}

impl Space for ServiceSpace {
    type Topic = Catalog;

    const READS_LITTLE: bool = false;

    fn feed(events: &EventPublisher) -> &Arc<Feed<Catalog>> {
        events.catalog()
    }

    fn subject(&self, root: &str) -> CatalogSubject {
        match parts(root).first() {
            None => CatalogSubject::EveryService,
            Some(service) => CatalogSubject::service(service),
        }
    }

    fn touched(
        &self,
        view: &ReadView<'_>,
        index: LogIndex,
        event: &CatalogEvent,
        emit: &mut dyn FnMut(String, Touched),
    ) -> Result<(), StorageError> {
        let (CatalogTopic::ServiceHealth, CatalogBody::Instance(instance)) = (event.topic, &event.body) else {
            return Ok(());
        };
        let touched = match event.op {
            CatalogOp::Register => {
                let before = LogIndex(index.get().saturating_sub(1));
                let key = on_node_key(&instance.node.name, &instance.service.id);
                let service = canonical(&instance.service.name);
                let was_there = match before >= view.head().compacted_index() {
                    true => Some(self.was_of(view, &service, &key, before)?),
                    false => None,
                };
                Touched { data: Some(ElementData::Instance(Arc::clone(instance))), was_there }
            }
            CatalogOp::Deregister => Touched { data: None, was_there: Some(true) },
        };
        emit(instance_name(instance), touched);
        Ok(())
    }

    fn is_there(&self, view: &ReadView<'_>, name: &str, at: LogIndex) -> Result<bool, StorageError> {
        match &parts(name)[..] {
            [] => Ok(true),
            [service, node, id] => self.was_of(view, service, &on_node_key(node, id), at),
            _ => self.has_below(view, name, at),
        }
    }

    fn has_below(&self, view: &ReadView<'_>, name: &str, at: LogIndex) -> Result<bool, StorageError> {
        match &parts(name)[..] {
            [] => Ok(true),
            [service] => {
                if let Some(known_key) = self.known_keys.get(service)
                    && self.was_of(view, service, &known_key, at)?
                {
                    return Ok(true);
                }
                for key in view.instance_keys(service)? {
                    if self.was_of(view, service, &key, at)? {
                        return Ok(true);
                    }
                }
                // None of the present instances belonged to the service at `at`: an instance that
                // did has changed since.
                match keys_changed_since(view, at)? {
                    Some(changed) => {
                        for key in &changed {
                            if self.was_of(view, service, key, at)? {
                                return Ok(true);
                            }
                        }
                        Ok(false)
                    }
                    None => self.any_of(view, service, &KeyRange::all(), at),
                }
            }
            [service, node] => self.any_of(view, service, &KeyRange::prefix(on_node_key(node, "")), at),
            _ => Ok(false),
        }
    }

    /// The newest data of an instance, for any `at`: its node and checks change independently.
    /// `None` if the service does not have the instance now, or did not right after `at`.
    fn read(&self, view: &ReadView<'_>, name: &str, at: LogIndex) -> Result<Option<ElementData>, StorageError> {
        match &parts(name)[..] {
            [] => Ok(Some(ElementData::Empty)),
            [service, node, id] => {
                let key = on_node_key(node, id);
                if !self.was_of(view, service, &key, at)? || !self.was_of(view, service, &key, NEWEST)? {
                    return Ok(None);
                }
                Ok(view.with_node_and_checks(&[key])?.pop().map(ElementData::Instance))
            }
            _ => Ok(None),
        }
    }

    fn list(
        &self,
        view: &ReadView<'_>,
        root: &str,
        recursive: bool,
        emit: &mut dyn FnMut(String, ElementData) -> bool,
    ) -> Result<(), StorageError> {
        let parts = parts(root);
        let instances = match parts.first() {
            None => {
                if !emit(String::new(), ElementData::Empty) {
                    return Ok(());
                }
                if !recursive {
                    for name in view.service_names()?.value {
                        if !emit(segment(&canonical(&name.name)), ElementData::Empty) {
                            return Ok(());
                        }
                    }
                    return Ok(());
                }
                view.all_instances()?.value
            }
            Some(service) => view.instances(service)?.value,
        };
        for instance in instances {
            if !emit(instance_name(&instance), ElementData::Instance(instance)) {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Nodes by name.
#[derive(Default)]
pub(super) struct NodeSpace;

impl Space for NodeSpace {
    type Topic = Catalog;

    fn feed(events: &EventPublisher) -> &Arc<Feed<Catalog>> {
        events.catalog()
    }

    fn subject(&self, root: &str) -> CatalogSubject {
        match parts(root).first() {
            None => CatalogSubject::EveryNode,
            Some(node) => CatalogSubject::node(node),
        }
    }

    fn touched(
        &self,
        _: &ReadView<'_>,
        index: LogIndex,
        event: &CatalogEvent,
        emit: &mut dyn FnMut(String, Touched),
    ) -> Result<(), StorageError> {
        let (CatalogTopic::Node, CatalogBody::Node(node)) = (event.topic, &event.body) else { return Ok(()) };
        let touched = match event.op {
            // The event also reports changes of rows on the node, which do not change the node
            // itself.
            CatalogOp::Register if node.modified != index => return Ok(()),
            CatalogOp::Register => Touched {
                data: Some(ElementData::CatalogNode(Arc::clone(node))),
                was_there: Some(node.created != index),
            },
            CatalogOp::Deregister => Touched { data: None, was_there: Some(true) },
        };
        emit(segment(&event.key), touched);
        Ok(())
    }

    fn has_below(&self, _: &ReadView<'_>, name: &str, _: LogIndex) -> Result<bool, StorageError> {
        Ok(name.is_empty())
    }

    fn read(&self, view: &ReadView<'_>, name: &str, at: LogIndex) -> Result<Option<ElementData>, StorageError> {
        match &parts(name)[..] {
            [] => Ok(Some(ElementData::Empty)),
            [node] => {
                let Some(version) = view.lookup(CatalogNode::TABLE, &node_key(node), at)? else { return Ok(None) };
                let row = view.load_one(&version)?.row::<CatalogNode>(version.index)?;
                Ok(Some(ElementData::CatalogNode(row)))
            }
            _ => Ok(None),
        }
    }

    fn list(
        &self,
        view: &ReadView<'_>,
        root: &str,
        _: bool,
        emit: &mut dyn FnMut(String, ElementData) -> bool,
    ) -> Result<(), StorageError> {
        if !root.is_empty() {
            if let Some(data) = self.read(view, root, NEWEST)? {
                emit(root.to_owned(), data);
            }
            return Ok(());
        }
        if !emit(String::new(), ElementData::Empty) {
            return Ok(());
        }
        each(view, Table::CatalogNode, &KeyRange::all(), NEWEST, |record, version| {
            let row = record.row::<CatalogNode>(version.index)?;
            Ok(emit(segment(&canonical(&row.name)), ElementData::CatalogNode(row)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_slashes_are_read_back() {
        for names in [&["a/b", "n", "i"][..], &["web", "n/1", "a/b"], &["/", "//", "~"], &["..", "", "~x2f"]] {
            let name = names.iter().map(|part| segment(part)).collect::<Vec<_>>().join("/");
            assert_eq!(parts(&name), names, "{name}");
        }
        assert_eq!(ServiceSpace::default().subject("~x612f62"), CatalogSubject::service("a/b"));
        assert_eq!(NodeSpace.subject("~x612f62"), CatalogSubject::node("a/b"));
    }
}
