//! Writes the changed rows of a command, their query indexes, and the events for subscribers (spec:
//! consul §2.2, §2.3, §2.8).
//!
//! Owns the two passes. Marking finds the affected instances, and the subjects of each before the
//! command; emission compares with the state after it, and makes the events of each subject. A
//! subject's deregistrations come before its registrations, so that a subscriber that applies them
//! in order gets the present state. Invariant: one command makes at most one registration of an
//! instance in a subject, however many rows of it, its node and its checks changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::rows::Touched;
use headwater_storage::StorageError;
use headwater_storage::state::{CatalogReader, CatalogRow, WriteTxn, mesh_name, on_node_key};
use headwater_types::LogIndex;
use headwater_types::catalog::{
    CatalogBody, CatalogEvent, CatalogNode, CatalogOp, CatalogTable, CatalogTopic, Check, CheckServiceNode,
    LinkedService, QueryIndexSubject, Service, ServiceKind, TerminatingGateway, canonical,
};

/// The rows that change, by key.
pub(super) struct RowChanges {
    pub(super) nodes: BTreeMap<Bytes, Touched<CatalogNode>>,
    pub(super) services: BTreeMap<Bytes, Touched<Service>>,
    pub(super) checks: BTreeMap<Bytes, Touched<Check>>,
    pub(super) gateways: BTreeMap<Bytes, Touched<TerminatingGateway>>,
}

impl RowChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.services.is_empty() && self.checks.is_empty() && self.gateways.is_empty()
    }
}

/// Effect of a command on one instance.
#[derive(Default)]
struct InstanceChange {
    /// The instance before the command. `None` if it is new, or if its own row has not changed.
    before: Option<Arc<Service>>,
    /// Whether the instance, its node or a check of either has changed, so that its subscribers
    /// must get an event.
    is_concerned: bool,
    /// Services that could be reached in the mesh through it before the command.
    mesh_before: BTreeSet<String>,
    /// Services with a new or changed link to the gateway, if this is an instance of a gateway.
    mesh_changed: BTreeSet<String>,
}

/// Key of an event that only subscribers of the whole mesh receive. No service has an empty name.
const MESH_AS_A_WHOLE: &str = "";

/// Changes of instances, by the keys of the instances.
type InstanceChanges = BTreeMap<Bytes, InstanceChange>;

/// Writes rows, query indexes and events.
pub(super) fn write(txn: &mut WriteTxn<'_>, index: LogIndex, changes: RowChanges) -> Result<(), StorageError> {
    let instances = mark(txn, &changes)?;
    let names = names(txn, &changes)?;
    let nodes = nodes(&changes);
    let tables = tables(&changes);

    put(txn, changes.nodes);
    put(txn, changes.services);
    put(txn, changes.checks);
    put(txn, changes.gateways);

    let mut events = emit(txn, instances)?;
    for (name, was_in_use) in names {
        let op = match (was_in_use, txn.is_name_in_use(&name)?) {
            (false, true) => CatalogOp::Register,
            (true, false) => CatalogOp::Deregister,
            (true, true) | (false, false) => continue,
        };
        let name: Arc<str> = name.into();
        let body = CatalogBody::Name(Arc::clone(&name));
        events.push(CatalogEvent { topic: CatalogTopic::ServiceList, op, key: name, body });
    }
    for (key, name) in nodes {
        let (op, node) = match txn.row::<CatalogNode>(key.as_bytes())? {
            Some(stored) => (CatalogOp::Register, stored.row),
            None => (CatalogOp::Deregister, Arc::new(CatalogNode { name, ..CatalogNode::default() })),
        };
        events.push(CatalogEvent { topic: CatalogTopic::Node, op, key: key.into(), body: CatalogBody::Node(node) });
    }
    for table in tables {
        let (topic, op) = (CatalogTopic::Table, CatalogOp::Register);
        events.push(CatalogEvent { topic, op, key: "".into(), body: CatalogBody::Table(table) });
    }
    // A stable sort: within a subject the events stay in the order of the instances' keys.
    events.sort_by(|a, b| (a.op, a.topic, &a.key).cmp(&(b.op, b.topic, &b.key)));
    move_query_indexes(txn, index, &events)?;
    txn.add_catalog_events(events);
    Ok(())
}

fn put<R: CatalogRow>(txn: &mut WriteTxn<'_>, rows: BTreeMap<Bytes, Touched<R>>) {
    for touched in rows.into_values() {
        match (touched.before, touched.after) {
            (before, Some(after)) => {
                txn.put_row(Arc::unwrap_or_clone(after), before.as_ref());
            }
            (Some(before), None) => txn.delete_row(&before),
            (None, None) => {}
        }
    }
}

/// The marking pass (spec: consul §2.2). Reads the state before the command.
fn mark(txn: &WriteTxn<'_>, changes: &RowChanges) -> Result<InstanceChanges, StorageError> {
    let mut instances = InstanceChanges::new();
    for (key, touched) in &changes.services {
        let instance = instances.entry(key.clone()).or_default();
        instance.before = touched.before.as_ref().map(|stored| Arc::clone(&stored.row));
        instance.is_concerned = true;
    }
    // A change of a node, or of its own checks, affects every instance on it.
    let mut nodes: BTreeSet<String> =
        changes.nodes.values().filter_map(|touched| Some(&side(touched)?.name)).map(|name| canonical(name)).collect();
    for touched in changes.checks.values() {
        for check in sides(touched) {
            match check.service_id.as_str() {
                "" => {
                    nodes.insert(canonical(&check.node));
                }
                id => {
                    let key = on_node_key(&check.node, id);
                    instances.entry(key).or_default().is_concerned = true;
                }
            }
        }
    }
    for node in &nodes {
        for key in txn.service_keys(node)? {
            instances.entry(key).or_default().is_concerned = true;
        }
    }
    for touched in changes.gateways.values() {
        mark_gateway(txn, touched, &mut instances)?;
    }
    for (key, instance) in &mut instances {
        let stored = match &instance.before {
            Some(before) => Some(Arc::clone(before)),
            None => txn.row::<Service>(key)?.map(|stored| stored.row),
        };
        if let Some(service) = stored {
            instance.mesh_before = mesh_names(txn, &service)?;
        }
    }
    Ok(instances)
}

/// Marks the instances of a gateway with the names of its new and changed links.
fn mark_gateway(
    txn: &WriteTxn<'_>,
    touched: &Touched<TerminatingGateway>,
    instances: &mut InstanceChanges,
) -> Result<(), StorageError> {
    let before = touched.before.as_ref().map(|stored| links(&stored.row)).unwrap_or_default();
    let after = touched.after.as_ref().map(|row| links(row)).unwrap_or_default();
    let changed = after.iter().filter(|(name, link)| before.get(*name) != Some(*link));
    let changed: BTreeSet<String> = changed.map(|(name, _)| name.clone()).collect();
    let Some(gateway) = side(touched) else { return Ok(()) };
    for key in txn.instance_keys(&gateway.name)? {
        instances.entry(key).or_default().mesh_changed.extend(changed.iter().cloned());
    }
    Ok(())
}

fn links(gateway: &TerminatingGateway) -> BTreeMap<String, &LinkedService> {
    gateway.services.iter().map(|link| (canonical(&link.name), link)).collect()
}

/// Canonical names of the services that can be reached in the mesh through an instance.
fn mesh_names(txn: &WriteTxn<'_>, service: &Service) -> Result<BTreeSet<String>, StorageError> {
    let mut names: BTreeSet<String> = mesh_name(service).map(canonical).into_iter().collect();
    if service.kind == ServiceKind::TerminatingGateway
        && let Some(gateway) = txn.gateway(&service.name)?.value
    {
        names.extend(gateway.services.iter().map(|link| canonical(&link.name)));
    }
    Ok(names)
}

/// The subjects that get a registration of an instance that exists after the command.
struct Arrival {
    /// The subject of the instance's service; `None` if it gets no registration.
    service: Option<String>,
    /// The subjects of the mesh: names of services that are reached through the instance, or
    /// [`MESH_AS_A_WHOLE`].
    mesh: Vec<String>,
}

/// The emission pass (spec: consul §2.3). Reads the state after the command.
fn emit(txn: &WriteTxn<'_>, instances: InstanceChanges) -> Result<Vec<CatalogEvent>, StorageError> {
    let mut events = Vec::new();
    let mut add = |topic, op, key: &str, instance: &Arc<CheckServiceNode>| {
        let body = CatalogBody::Instance(Arc::clone(instance));
        events.push(CatalogEvent { topic, op, key: key.into(), body });
    };
    let (mut keys, mut arrivals) = (Vec::new(), Vec::new());
    for (key, instance) in instances {
        let after = txn.row::<Service>(&key)?.map(|stored| stored.row);
        // Subscribers identify an instance by the name of its node as written (spec: consul §4.6).
        // The case of the name differs if this command has removed the node and registered it
        // again.
        let stays = |before: &Service| {
            let Some(after) = &after else { return false };
            canonical(&after.name) == canonical(&before.name) && after.node == before.node
        };
        let left = instance.before.as_ref().filter(|before| !stays(before));
        let mesh_after = match &after {
            Some(service) => mesh_names(txn, service)?,
            None => BTreeSet::new(),
        };
        // An instance that leaves its service also leaves all subjects in the mesh, and is
        // registered again in its new ones. A changed link is deregistered and registered again.
        let leaves =
            |name: &String| left.is_some() || !mesh_after.contains(name) || instance.mesh_changed.contains(name);
        let mesh_left: Vec<&String> = instance.mesh_before.iter().filter(|name| leaves(name)).collect();
        if left.is_some() || !mesh_left.is_empty() {
            let last = instance.before.clone().or_else(|| after.clone());
            let gone = Arc::new(gone(last.expect("invariant: what leaves was there")));
            if let Some(before) = left {
                add(CatalogTopic::ServiceHealth, CatalogOp::Deregister, &canonical(&before.name), &gone);
            }
            for name in &mesh_left {
                add(CatalogTopic::ServiceHealthConnect, CatalogOp::Deregister, name, &gone);
            }
        }
        let comes = |name: &String| instance.is_concerned || instance.mesh_changed.contains(name);
        let stays_in_mesh = !mesh_left.is_empty() && !mesh_after.is_empty();
        let mut mesh: Vec<String> = mesh_after.into_iter().filter(comes).collect();
        if stays_in_mesh && mesh.is_empty() {
            // A subscriber of the whole mesh gets the deregistration, and must learn that the
            // instance stays for other services.
            mesh.push(MESH_AS_A_WHOLE.to_owned());
        }
        let service = after.filter(|_| instance.is_concerned).map(|service| canonical(&service.name));
        if service.is_some() || !mesh.is_empty() {
            keys.push(key);
            arrivals.push(Arrival { service, mesh });
        }
    }
    for (arrival, instance) in arrivals.iter().zip(txn.with_node_and_checks(&keys)?) {
        if let Some(name) = &arrival.service {
            add(CatalogTopic::ServiceHealth, CatalogOp::Register, name, &instance);
        }
        for name in &arrival.mesh {
            add(CatalogTopic::ServiceHealthConnect, CatalogOp::Register, name, &instance);
        }
    }
    Ok(events)
}

/// The payload of a deregistration (spec: consul §2.5).
fn gone(service: Arc<Service>) -> CheckServiceNode {
    let node = CatalogNode { name: service.node.clone(), ..CatalogNode::default() };
    CheckServiceNode { node: Arc::new(node), service, checks: Vec::new() }
}

/// Exact names of services that the changes may add or remove. The value is whether the name was in
/// use before.
fn names(txn: &WriteTxn<'_>, changes: &RowChanges) -> Result<BTreeMap<String, bool>, StorageError> {
    let mut names = BTreeMap::new();
    for touched in changes.services.values() {
        for service in sides(touched) {
            if !names.contains_key(&service.name) {
                names.insert(service.name.clone(), txn.is_name_in_use(&service.name)?);
            }
        }
    }
    Ok(names)
}

/// Nodes that have changed, or with a change on them: by canonical name, with the name as it was
/// registered.
fn nodes(changes: &RowChanges) -> BTreeMap<String, String> {
    let nodes = changes.nodes.values().filter_map(|touched| Some(&side(touched)?.name));
    let services = changes.services.values().filter_map(|touched| Some(&side(touched)?.node));
    let checks = changes.checks.values().filter_map(|touched| Some(&side(touched)?.node));
    nodes.chain(services).chain(checks).map(|name| (canonical(name), name.clone())).collect()
}

fn tables(changes: &RowChanges) -> Vec<CatalogTable> {
    let changed = [
        (CatalogTable::Nodes, !changes.nodes.is_empty()),
        (CatalogTable::Services, !changes.services.is_empty()),
        (CatalogTable::Checks, !changes.checks.is_empty()),
        (CatalogTable::Config, !changes.gateways.is_empty()),
    ];
    changed.into_iter().filter_map(|(table, is_changed)| is_changed.then_some(table)).collect()
}

/// Raises the query index of every subject of an event (spec: consul §2.6): a read after an event
/// finds a higher index, and the indexes of other reads stay. A subject that is gone loses its
/// index, and the common index of gone subjects is raised.
fn move_query_indexes(txn: &mut WriteTxn<'_>, index: LogIndex, events: &[CatalogEvent]) -> Result<(), StorageError> {
    let mut moved = BTreeSet::new();
    // Backwards, because registrations come last: a subject whose last event is a registration
    // exists. Only the others need a look-up.
    for event in events.iter().rev() {
        // No query has this subject.
        if event.topic == CatalogTopic::ServiceHealthConnect && event.key.as_ref() == MESH_AS_A_WHOLE {
            continue;
        }
        if !moved.insert((event.topic, &event.key, table_of(event))) {
            continue;
        }
        let key = event.key.to_string();
        let comes = event.op == CatalogOp::Register;
        let (subject, is_there, gone) = match event.topic {
            CatalogTopic::ServiceHealth => {
                let is_there = comes || txn.has_instances(&key)?;
                (QueryIndexSubject::Service(key), is_there, Some(QueryIndexSubject::ServiceGone))
            }
            CatalogTopic::ServiceHealthConnect => {
                let is_there = comes || txn.is_in_mesh(&key)?;
                (QueryIndexSubject::Connect(key), is_there, Some(QueryIndexSubject::ConnectGone))
            }
            CatalogTopic::Node => (QueryIndexSubject::Node(key), comes, Some(QueryIndexSubject::NodeGone)),
            CatalogTopic::Table => {
                let table = table_of(event).expect("invariant: the body of this topic is a table");
                (QueryIndexSubject::Table(table), true, None)
            }
            // Queries for names use the index of the table of instances.
            CatalogTopic::ServiceList => continue,
        };
        txn.set_query_index(&subject, is_there.then_some(index));
        if let Some(gone) = gone.filter(|_| !is_there) {
            txn.set_query_index(&gone, Some(index));
        }
    }
    Ok(())
}

fn table_of(event: &CatalogEvent) -> Option<CatalogTable> {
    match &event.body {
        CatalogBody::Table(table) => Some(*table),
        CatalogBody::Instance(_) | CatalogBody::Name(_) | CatalogBody::Node(_) => None,
    }
}

/// A row before the command and after it, as far as they exist.
fn sides<R>(touched: &Touched<R>) -> impl Iterator<Item = &Arc<R>> {
    touched.before.as_ref().map(|stored| &stored.row).into_iter().chain(&touched.after)
}

/// A row after the command, or else before it.
fn side<R>(touched: &Touched<R>) -> Option<&Arc<R>> {
    sides(touched).last()
}
