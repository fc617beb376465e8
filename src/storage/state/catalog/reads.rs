//! Reads of the catalog, on secondary indexes: the cost of a read is proportional to its answer,
//! never to the table.
//!
//! Owns the rows of an answer, their order, and its query index (spec: consul §2.6). Invariant: an
//! answer and its index are of one state, and of two different answers to one question the later
//! one has the higher index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::super::db::{corrupt, unread};
use super::super::options::{HISTORY, INDEX};
use super::super::reader::{NEWEST, StateReader};
use super::super::record::{HistoryRecord, Version};
use super::cache::AnyRow;
use super::keys;
use super::row::{CatalogRow, StoredRow, mesh_name};
use crate::StorageError;
use headwater_types::catalog::{
    CatalogNode, CatalogTable, Check, CheckServiceNode, CheckStatus, Indexed, QueryIndexSubject, Service, ServiceKind,
    ServiceName, TerminatingGateway, canonical,
};
use headwater_types::{KeyRange, LogIndex};

/// Reads of the catalog in any state. Names are compared without letter case, unless a method says
/// otherwise. Lists are sorted by node, then id, unless a method says otherwise. An [`Indexed`]
/// answer comes with its query index.
///
/// # Errors
///
/// Each method: if the disk failed, or a record cannot be decoded.
pub trait CatalogReader: StateReader {
    /// The log index of the last change of `subject`; zero if it never changed, or does not exist
    /// any more.
    fn query_index(&self, subject: &QueryIndexSubject) -> Result<LogIndex, StorageError> {
        self.meta_index(&keys::query_index(subject))
    }

    /// The live row under `key`, with its version. `None` if there is none.
    fn row<R: CatalogRow>(&self, key: &[u8]) -> Result<Option<StoredRow<R>>, StorageError> {
        let Some(version) = self.lookup(R::TABLE, key, NEWEST)? else { return Ok(None) };
        let row = self.rows_of(std::slice::from_ref(&version))?.remove(0);
        Ok(Some(StoredRow { version, row }))
    }

    /// The live rows under `keys`, in this order. The keys are from a secondary index, so a missing
    /// row is corruption.
    fn rows<R: CatalogRow>(&self, keys: &[Bytes]) -> Result<Vec<Arc<R>>, StorageError> {
        let mut versions = Vec::with_capacity(keys.len());
        for key in keys {
            let version = self.lookup(R::TABLE, key, NEWEST)?;
            versions.push(version.ok_or_else(|| corrupt(INDEX, key, "names a row of the catalog that is not there"))?);
        }
        self.rows_of(&versions)
    }

    /// The rows that versions point to, in their order: from the cache, and the others from disk,
    /// which are cached then.
    fn rows_of<R: CatalogRow>(&self, versions: &[Version]) -> Result<Vec<Arc<R>>, StorageError> {
        let cached = |version: &Version| self.cached_row(version)?.downcast().ok();
        let found: Vec<Option<Arc<R>>> = versions.iter().map(cached).collect();
        let missing: Vec<Version> =
            versions.iter().zip(&found).filter(|(_, row)| row.is_none()).map(|(version, _)| *version).collect();
        if missing.is_empty() {
            return Ok(found.into_iter().flatten().collect());
        }
        let records = self.load(&missing)?;
        let mut read = records.iter().zip(&missing).map(|(record, version)| {
            let row = row_at(record, version.index)?;
            self.cache_row(version, Arc::clone(&row) as AnyRow);
            Ok(row)
        });
        let next =
            |row: Option<Arc<R>>| row.map(Ok).or_else(|| read.next()).expect("invariant: one record per version");
        found.into_iter().map(next).collect()
    }

    /// Every live row of a table, in the order of the keys.
    fn all_rows<R: CatalogRow>(&self) -> Result<Vec<Arc<R>>, StorageError> {
        let mut versions = Vec::new();
        let mut scan = self.scan(R::TABLE, &KeyRange::all(), NEWEST)?;
        while let Some((_, version)) = scan.next()? {
            versions.push(version);
        }
        drop(scan);
        self.rows_of(&versions)
    }

    /// Every node.
    fn nodes(&self) -> Result<Indexed<Vec<Arc<CatalogNode>>>, StorageError> {
        let index = self.query_index(&QueryIndexSubject::Table(CatalogTable::Nodes))?;
        Ok(Indexed { index, value: self.all_rows()? })
    }

    /// The node with this name. The value is `None` if there is none.
    fn node(&self, name: &str) -> Result<Indexed<Option<Arc<CatalogNode>>>, StorageError> {
        let value = self.row::<CatalogNode>(&keys::node(name))?.map(|stored| stored.row);
        Ok(Indexed { index: self.node_index(name)?, value })
    }

    /// The query index of a read about a node, which need not exist.
    fn node_index(&self, name: &str) -> Result<LogIndex, StorageError> {
        self.index_or_gone(&QueryIndexSubject::Node(canonical(name)), &QueryIndexSubject::NodeGone)
    }

    /// The query index of a health query of a service, whether it has instances or not.
    fn service_index(&self, service: &str) -> Result<LogIndex, StorageError> {
        self.index_or_gone(&QueryIndexSubject::Service(canonical(service)), &QueryIndexSubject::ServiceGone)
    }

    /// The query index of a health query of a service in the mesh, whether it has instances there
    /// or not.
    fn connect_index(&self, service: &str) -> Result<LogIndex, StorageError> {
        self.index_or_gone(&QueryIndexSubject::Connect(canonical(service)), &QueryIndexSubject::ConnectGone)
    }

    /// The query index of `subject`; if that is zero, the query index of `gone`, the last removal
    /// of its kind.
    fn index_or_gone(&self, subject: &QueryIndexSubject, gone: &QueryIndexSubject) -> Result<LogIndex, StorageError> {
        match self.query_index(subject)? {
            LogIndex::ZERO => self.query_index(gone),
            index => Ok(index),
        }
    }

    /// The node with this UUID, if there is one: no two nodes have the same, by the rules of
    /// registration.
    fn node_by_id(&self, id: &str) -> Result<Option<StoredRow<CatalogNode>>, StorageError> {
        match self.index_keys(&keys::node_id(id), &[], 1)?.first() {
            Some(key) => self.row(key),
            None => Ok(None),
        }
    }

    /// Instances on a node, by id.
    fn services_of_node(&self, node: &str) -> Result<Indexed<Vec<Arc<Service>>>, StorageError> {
        let value = self.rows(&self.service_keys(node)?)?;
        Ok(Indexed { index: self.node_index(node)?, value })
    }

    /// Keys of the rows of all service instances on a catalog node.
    fn service_keys(&self, node: &str) -> Result<Vec<Bytes>, StorageError> {
        let ids = self.index_keys(&keys::services_of(node), &[], usize::MAX)?;
        ids.iter().map(|id| Ok(keys::on_node(node, text(id)?))).collect()
    }

    /// The instance with this id on a node. `None` if there is none.
    fn service(&self, node: &str, id: &str) -> Result<Option<StoredRow<Service>>, StorageError> {
        self.row(&keys::on_node(node, id))
    }

    /// Checks of a node and of all instances on it: those of the node first, then by the id of the
    /// instance, then by their own.
    fn checks_of_node(&self, node: &str) -> Result<Indexed<Vec<Arc<Check>>>, StorageError> {
        let value = self.rows(&self.check_keys(node, None)?)?;
        Ok(Indexed { index: self.node_index(node)?, value })
    }

    /// Keys of the checks on a node: all of them for `None`, those of the instance `service_id`, or
    /// with an empty id those of the node itself.
    fn check_keys(&self, node: &str, service_id: Option<&str>) -> Result<Vec<Bytes>, StorageError> {
        let key = |entry: &Bytes, id: Option<&str>| {
            Ok(keys::on_node(node, id.ok_or_else(|| corrupt(INDEX, entry, "not a check on a node"))?))
        };
        match service_id {
            Some(id) => {
                let list = self.check_list(&keys::checks_of(node, id))?;
                list.iter().map(|entry| key(entry, std::str::from_utf8(entry).ok())).collect()
            }
            None => {
                let entries = self.index_keys(&keys::checks_on(node), &[], usize::MAX)?;
                entries.iter().map(|entry| key(entry, keys::split_check(entry))).collect()
            }
        }
    }

    /// The check with this id on a node. `None` if there is none.
    fn check(&self, node: &str, id: &str) -> Result<Option<StoredRow<Check>>, StorageError> {
        self.row(&keys::on_node(node, id))
    }

    /// Checks of all instances of a service, by instance, without those of their nodes.
    fn checks_of_service(&self, service: &str) -> Result<Indexed<Vec<Arc<Check>>>, StorageError> {
        let mut checks = Vec::new();
        for instance in self.instance_keys(service)? {
            let (node, id) = split(&instance)?;
            checks.extend(self.check_keys(text(&node)?, Some(id))?);
        }
        Ok(Indexed { index: self.service_index(service)?, value: self.rows(&checks)? })
    }

    /// Checks with a status; all checks for `None`.
    fn checks_in_state(&self, status: Option<CheckStatus>) -> Result<Indexed<Vec<Arc<Check>>>, StorageError> {
        let index = self.query_index(&QueryIndexSubject::Table(CatalogTable::Checks))?;
        let value = match status {
            Some(status) => self.rows(&self.index_keys(&keys::status(status), &[], usize::MAX)?)?,
            None => self.all_rows()?,
        };
        Ok(Indexed { index, value })
    }

    /// Keys of the instances of a service.
    fn instance_keys(&self, service: &str) -> Result<Vec<Bytes>, StorageError> {
        self.index_keys(&keys::instances(service), &[], usize::MAX)
    }

    /// Keys of the instances through which a service can be reached in the mesh without a gateway:
    /// native ones and sidecars.
    fn mesh_keys(&self, service: &str) -> Result<Vec<Bytes>, StorageError> {
        self.index_keys(&keys::mesh(service), &[], usize::MAX)
    }

    /// Canonical names of the terminating gateways that are configured for a service, sorted.
    fn gateways_of(&self, service: &str) -> Result<Vec<String>, StorageError> {
        let names = self.index_keys(&keys::links(service), &[], usize::MAX)?;
        names.iter().map(|name| Ok(text(name)?.to_owned())).collect()
    }

    /// Whether any instance has exactly this service name, letter case included.
    fn is_name_in_use(&self, service: &str) -> Result<bool, StorageError> {
        Ok(!self.index_keys(&keys::exact_name(service), &[], 1)?.is_empty())
    }

    /// Whether a service has any instance.
    fn has_instances(&self, service: &str) -> Result<bool, StorageError> {
        Ok(!self.index_keys(&keys::instances(service), &[], 1)?.is_empty())
    }

    /// Whether a service can be reached in the mesh: through a native instance, a sidecar, or an
    /// instance of a terminating gateway.
    fn is_in_mesh(&self, service: &str) -> Result<bool, StorageError> {
        if !self.index_keys(&keys::mesh(service), &[], 1)?.is_empty() {
            return Ok(true);
        }
        for gateway in self.gateways_of(service)? {
            if !self.gateway_instances(&gateway)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Keys of the instances of a terminating gateway. Instances of another kind with the same name
    /// are left out.
    fn gateway_instances(&self, gateway: &str) -> Result<Vec<Bytes>, StorageError> {
        let keys = self.instance_keys(gateway)?;
        let services = self.rows::<Service>(&keys)?;
        let is_gateway = |service: &Arc<Service>| service.kind == ServiceKind::TerminatingGateway;
        Ok(keys.into_iter().zip(&services).filter(|(_, row)| is_gateway(row)).map(|(key, _)| key).collect())
    }

    /// Instances of a service.
    fn instances(&self, service: &str) -> Result<Indexed<Vec<Arc<CheckServiceNode>>>, StorageError> {
        let value = self.with_node_and_checks(&self.instance_keys(service)?)?;
        Ok(Indexed { index: self.service_index(service)?, value })
    }

    /// Instances through which a service can be reached in the mesh: native ones, sidecars,
    /// terminating gateways.
    fn connect_instances(&self, service: &str) -> Result<Indexed<Vec<Arc<CheckServiceNode>>>, StorageError> {
        let mut found: BTreeSet<Bytes> = self.mesh_keys(service)?.into_iter().collect();
        for gateway in self.gateways_of(service)? {
            found.extend(self.gateway_instances(&gateway)?);
        }
        let found: Vec<Bytes> = found.into_iter().collect();
        Ok(Indexed { index: self.connect_index(service)?, value: self.with_node_and_checks(&found)? })
    }

    /// Every instance of every service, by service.
    fn all_instances(&self) -> Result<Indexed<Vec<Arc<CheckServiceNode>>>, StorageError> {
        let mut found = Vec::new();
        for entry in self.index_keys(keys::ALL_INSTANCES, &[], usize::MAX)? {
            let (_, key) = keys::split_instance(&entry).ok_or_else(|| corrupt(INDEX, &entry, "not an instance"))?;
            found.push(entry.slice_ref(key));
        }
        // Every change of an instance changes one of these tables.
        let mut index = LogIndex::ZERO;
        for table in [CatalogTable::Nodes, CatalogTable::Services, CatalogTable::Checks] {
            index = index.max(self.query_index(&QueryIndexSubject::Table(table))?);
        }
        Ok(Indexed { index, value: self.with_node_and_checks(&found)? })
    }

    /// Every instance through which any service can be reached in the mesh: native ones, sidecars,
    /// terminating gateways that stand for a service. Reads all instances.
    fn all_connect_instances(&self) -> Result<Indexed<Vec<Arc<CheckServiceNode>>>, StorageError> {
        let gateways = self.gateways()?;
        let linked = gateways.value.iter().filter(|gateway| !gateway.services.is_empty());
        let linked: BTreeSet<String> = linked.map(|gateway| canonical(&gateway.name)).collect();
        let Indexed { index, mut value } = self.all_instances()?;
        value.retain(|instance| {
            let service = &instance.service;
            let is_linked =
                || service.kind == ServiceKind::TerminatingGateway && linked.contains(&canonical(&service.name));
            mesh_name(service).is_some() || is_linked()
        });
        Ok(Indexed { index: index.max(gateways.index), value })
    }

    /// Instances by their keys, each with its node and checks, those of the node first.
    fn with_node_and_checks(&self, instances: &[Bytes]) -> Result<Vec<Arc<CheckServiceNode>>, StorageError> {
        let mut nodes: BTreeMap<Bytes, (Arc<CatalogNode>, Vec<Arc<Check>>)> = BTreeMap::new();
        let mut found = Vec::with_capacity(instances.len());
        for (key, service) in instances.iter().zip(self.rows::<Service>(instances)?) {
            let (node_key, id) = split(key)?;
            let name = text(&node_key)?;
            if !nodes.contains_key(&node_key) {
                let node = self.rows(std::slice::from_ref(&node_key))?.remove(0);
                nodes.insert(node_key.clone(), (node, self.rows(&self.check_keys(name, Some(""))?)?));
            }
            let (node, of_node) = &nodes[&node_key];
            let mut checks = of_node.clone();
            checks.extend(self.rows(&self.check_keys(name, Some(id))?)?);
            found.push(Arc::new(CheckServiceNode { node: Arc::clone(node), service, checks }));
        }
        Ok(found)
    }

    /// Names of services with the tags of their instances, both sorted and each once. Names that
    /// differ in letter case are different here.
    fn service_names(&self) -> Result<Indexed<Vec<ServiceName>>, StorageError> {
        let index = self.query_index(&QueryIndexSubject::Table(CatalogTable::Services))?;
        let mut names: Vec<ServiceName> = Vec::new();
        let end = |entry: &[u8]| {
            let (_, _, len) = keys::split_name_and_tag(entry)?;
            Some(keys::after_group(&entry[..len]))
        };
        // One entry for each name and tag, independent of the number of instances.
        for entry in self.index_groups(keys::ALL_NAMES, &end)? {
            let read = keys::split_name_and_tag(&entry);
            let (name, tag, _) = read.ok_or_else(|| corrupt(INDEX, &entry, "not the name of a service"))?;
            match names.last_mut().filter(|last| last.name == name) {
                Some(last) => last.tags.extend(tag),
                None => names.push(ServiceName { name, tags: tag.into_iter().collect() }),
            }
        }
        Ok(Indexed { index, value: names })
    }

    /// The configuration of a terminating gateway. The value is `None` if it is not configured.
    fn gateway(&self, name: &str) -> Result<Indexed<Option<Arc<TerminatingGateway>>>, StorageError> {
        let index = self.query_index(&QueryIndexSubject::Table(CatalogTable::Config))?;
        let value = self.row::<TerminatingGateway>(&keys::gateway(name))?.map(|stored| stored.row);
        Ok(Indexed { index, value })
    }

    /// Every terminating gateway that is configured, by name.
    fn gateways(&self) -> Result<Indexed<Vec<Arc<TerminatingGateway>>>, StorageError> {
        let index = self.query_index(&QueryIndexSubject::Table(CatalogTable::Config))?;
        Ok(Indexed { index, value: self.all_rows()? })
    }
}

impl<S: StateReader + ?Sized> CatalogReader for S {}

impl HistoryRecord {
    /// The row of the catalog in this record, which is one of the command at `index`.
    ///
    /// # Errors
    ///
    /// If the record has no row of this type that this version understands.
    pub fn row<R: CatalogRow>(&self, index: LogIndex) -> Result<Arc<R>, StorageError> {
        row_at(self, index)
    }
}

/// The row that a record holds, as the command at `index` wrote it.
pub(super) fn row_at<R: CatalogRow>(record: &HistoryRecord, index: LogIndex) -> Result<Arc<R>, StorageError> {
    let row = R::decode(record.kv.value.clone(), index);
    row.map(Arc::new).map_err(|error| unread(HISTORY, &record.kv.key, error))
}

fn split(key: &[u8]) -> Result<(Bytes, &str), StorageError> {
    keys::split_on_node(key).ok_or_else(|| corrupt(INDEX, key, "not an instance on a node"))
}

fn text(bytes: &[u8]) -> Result<&str, StorageError> {
    std::str::from_utf8(bytes).map_err(|_| corrupt(INDEX, bytes, "not text"))
}
