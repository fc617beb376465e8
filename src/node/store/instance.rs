//! Instances of services as they were at a point of history: each with its node and its checks.
//!
//! The secondary indexes of the catalog have no versions. So the checks of an instance in the past
//! are found among all checks on its node.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::At;
use crate::watcher::space::each;
use headwater_storage::state::{CatalogReader, StateReader, Table, node_key, on_node_key};
use headwater_storage::{ReadView, StorageError};
use headwater_types::catalog::{CatalogNode, Check, CheckServiceNode, Service};
use headwater_types::{KeyRange, LogIndex};

/// A node of the catalog with all checks on it; `None` if the node did not exist.
type NodeRows = Option<(Arc<CatalogNode>, Vec<Arc<Check>>)>;

/// Reads instances at one point. Keeps the nodes and checks that it has read for them.
pub(super) struct Instances<'v, 'db> {
    view: &'v ReadView<'db>,
    at: At,
    nodes: HashMap<String, NodeRows>,
    /// Removed checks by node. Each has the id of its instance, empty for a check of the node
    /// itself, and the log index of its removal.
    removed: HashMap<String, Vec<(String, LogIndex)>>,
}

impl<'v, 'db> Instances<'v, 'db> {
    pub(super) fn new(view: &'v ReadView<'db>, at: At) -> Self {
        Self { view, at, nodes: HashMap::new(), removed: HashMap::new() }
    }

    /// The instance with this id on a node; `None` if the instance or the node did not exist at the
    /// point.
    pub(super) fn find(&mut self, node: &str, id: &str) -> Result<Option<Arc<CheckServiceNode>>, StorageError> {
        let key = on_node_key(node, id);
        let Some(version) = self.view.lookup(Table::CatalogService, &key, self.at.lookup)? else { return Ok(None) };
        let service = self.view.load_one(&version)?.row::<Service>(version.index)?;
        self.complete(service, &key)
    }

    /// The instance of the row `service`, which has the key `key`: adds its node and its checks.
    /// `None` if the node did not exist.
    pub(super) fn complete(
        &mut self,
        service: Arc<Service>,
        key: &Bytes,
    ) -> Result<Option<Arc<CheckServiceNode>>, StorageError> {
        if self.at.is_newest() {
            return Ok(self.view.with_node_and_checks(std::slice::from_ref(key))?.pop());
        }
        if !self.nodes.contains_key(&service.node) {
            let rows = self.node_rows(&service.node)?;
            self.nodes.insert(service.node.clone(), rows);
        }
        let Some((node, checks)) = &self.nodes[&service.node] else { return Ok(None) };
        let of = |id: &str| checks.iter().filter(move |check| check.service_id == *id).cloned().collect::<Vec<_>>();
        let mut checks = of("");
        checks.extend(of(&service.id).into_iter().filter(|check| !check.service_id.is_empty()));
        Ok(Some(Arc::new(CheckServiceNode { node: Arc::clone(node), service, checks })))
    }

    /// The log index of the last change of an instance, its node or its checks. The removal of a
    /// check counts for as long as history has it.
    pub(super) fn changed_at(&mut self, instance: &CheckServiceNode) -> Result<LogIndex, StorageError> {
        let node = &instance.node.name;
        if !self.removed.contains_key(node) {
            let removed = self.removed_checks(node)?;
            self.removed.insert(node.clone(), removed);
        }
        let of_instance = |id: &str| id.is_empty() || id == instance.service.id;
        let removed = self.removed[node].iter().filter(|(id, _)| of_instance(id)).map(|(_, index)| *index);
        Ok(removed.fold(changed_at(instance), LogIndex::max))
    }

    fn removed_checks(&self, node: &str) -> Result<Vec<(String, LogIndex)>, StorageError> {
        let floor = self.view.head().compacted_index();
        let on_node = KeyRange::prefix(on_node_key(node, ""));
        let mut scan = self.view.scan(Table::CatalogCheck, &on_node, self.at.lookup)?.with_tombstones();
        let mut versions = Vec::new();
        while let Some((_, version)) = scan.next()? {
            if version.deleted && version.index > floor {
                versions.push(version);
            }
        }
        versions
            .iter()
            .map(|version| {
                // The record of a removal has the last content.
                let check = self.view.load_one(version)?.row::<Check>(version.index)?;
                Ok((check.service_id.clone(), version.index))
            })
            .collect()
    }

    fn node_rows(&self, name: &str) -> Result<NodeRows, StorageError> {
        let Some(version) = self.view.lookup(Table::CatalogNode, &node_key(name), self.at.lookup)? else {
            return Ok(None);
        };
        let node = self.view.load_one(&version)?.row::<CatalogNode>(version.index)?;
        let mut checks = Vec::new();
        let on_node = KeyRange::prefix(on_node_key(name, ""));
        each(self.view, Table::CatalogCheck, &on_node, self.at.lookup, |record, version| {
            checks.push(record.row::<Check>(version.index)?);
            Ok(true)
        })?;
        Ok(Some((node, checks)))
    }
}

/// The log index of the last change of an instance, its node or its checks that are not removed.
fn changed_at(instance: &CheckServiceNode) -> LogIndex {
    let checks = instance.checks.iter().map(|check| check.modified);
    checks.fold(instance.node.modified.max(instance.service.modified), LogIndex::max)
}
