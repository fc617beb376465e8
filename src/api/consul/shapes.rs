//! Nodes, instances and checks as Consul's JSON shows them (spec: consul §8.3).
//!
//! Invariant: lists and maps are never null, which clients in several languages do not expect.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use headwater_api_shared::duration;
use headwater_types::LogIndex;
use headwater_types::catalog::{
    CatalogNode, Check, CheckDefinition, CheckServiceNode, Locality, Proxy, Service, ServiceAddress, ServiceConnect,
    ServiceKind, Weights,
};

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct NodeJson<'a> {
    #[serde(rename = "ID")]
    id: &'a str,
    node: &'a str,
    address: &'a str,
    datacenter: &'a str,
    tagged_addresses: &'a BTreeMap<String, String>,
    meta: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locality: Option<LocalityJson<'a>>,
    create_index: u64,
    modify_index: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct LocalityJson<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    region: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    zone: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct AddressJson<'a> {
    address: &'a str,
    port: i32,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct WeightsJson {
    passing: i32,
    warning: i32,
}

/// A service instance without its node, as answers about health, about nodes and of the agent show
/// it, and results of transactions.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ServiceJson<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'a str,
    #[serde(rename = "ID")]
    id: &'a str,
    service: &'a str,
    tags: &'a [String],
    address: &'a str,
    tagged_addresses: BTreeMap<&'a str, AddressJson<'a>>,
    meta: &'a BTreeMap<String, String>,
    port: i32,
    #[serde(skip_serializing_if = "str::is_empty")]
    socket_path: &'a str,
    weights: WeightsJson,
    enable_tag_override: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locality: Option<LocalityJson<'a>>,
    /// Name of the datacenter; only in answers of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    datacenter: Option<&'a str>,
    /// Log index of the first registration. `None` in answers of the agent, because Consul's agent
    /// does not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    create_index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    modify_index: Option<u64>,
}

/// A service instance and its node as one flat object: the form of `/v1/catalog/service/`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CatalogServiceJson<'a> {
    #[serde(rename = "ID")]
    id: &'a str,
    node: &'a str,
    address: &'a str,
    datacenter: &'a str,
    tagged_addresses: &'a BTreeMap<String, String>,
    node_meta: &'a BTreeMap<String, String>,
    service_kind: &'a str,
    #[serde(rename = "ServiceID")]
    service_id: &'a str,
    service_name: &'a str,
    service_tags: &'a [String],
    service_address: &'a str,
    service_tagged_addresses: BTreeMap<&'a str, AddressJson<'a>>,
    service_meta: &'a BTreeMap<String, String>,
    service_port: i32,
    #[serde(skip_serializing_if = "str::is_empty")]
    service_socket_path: &'a str,
    service_weights: WeightsJson,
    service_enable_tag_override: bool,
    service_proxy: Value,
    service_connect: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_locality: Option<LocalityJson<'a>>,
    create_index: u64,
    modify_index: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CheckJson<'a> {
    node: &'a str,
    #[serde(rename = "CheckID")]
    id: &'a str,
    name: &'a str,
    status: &'static str,
    notes: &'a str,
    output: &'a str,
    #[serde(rename = "ServiceID")]
    service_id: &'a str,
    service_name: &'a str,
    service_tags: &'a [String],
    #[serde(rename = "Type")]
    type_: &'a str,
    interval: &'a str,
    timeout: &'a str,
    exposed_port: i32,
    definition: Value,
    create_index: u64,
    modify_index: u64,
}

/// An instance with its node and its checks.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct InstanceJson<'a> {
    node: NodeJson<'a>,
    service: ServiceJson<'a>,
    checks: Vec<CheckJson<'a>>,
}

fn raw(index: LogIndex) -> u64 {
    index.get()
}

fn locality(locality: &Locality) -> LocalityJson<'_> {
    LocalityJson { region: &locality.region, zone: &locality.zone }
}

fn addresses<'a>(addresses: &'a BTreeMap<String, ServiceAddress>) -> BTreeMap<&'a str, AddressJson<'a>> {
    let json = |address: &'a ServiceAddress| AddressJson { address: &address.address, port: address.port };
    addresses.iter().map(|(tag, address)| (tag.as_str(), json(address))).collect()
}

fn weights(weights: Weights) -> WeightsJson {
    WeightsJson { passing: weights.passing, warning: weights.warning }
}

/// The members of a stored JSON object: settings that the server does not interpret. Empty for an
/// empty text.
fn more(json: &str) -> Map<String, Value> {
    if json.is_empty() {
        return Map::new();
    }
    // Every stored text was written from a JSON object.
    serde_json::from_str(json).unwrap_or_default()
}

/// The settings of a proxy that have a value. `MeshGateway` and `Expose` are always present.
fn proxy(proxy: &Proxy) -> Value {
    let mut members = more(&proxy.more_json);
    let texts = [
        ("DestinationServiceName", &proxy.destination_service_name),
        ("DestinationServiceID", &proxy.destination_service_id),
        ("LocalServiceAddress", &proxy.local_service_address),
        ("LocalServiceSocketPath", &proxy.local_service_socket_path),
        ("Mode", &proxy.mode),
    ];
    for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        members.insert(name.to_owned(), text.as_str().into());
    }
    if proxy.local_service_port != 0 {
        members.insert("LocalServicePort".to_owned(), proxy.local_service_port.into());
    }
    for name in ["MeshGateway", "Expose"] {
        members.entry(name).or_insert_with(|| Map::new().into());
    }
    members.into()
}

fn connect(connect: &ServiceConnect) -> Value {
    let mut members = more(&connect.more_json);
    if connect.native {
        members.insert("Native".to_owned(), true.into());
    }
    members.into()
}

/// Definition of a check, without members that have no value.
fn definition(definition: &CheckDefinition) -> Value {
    let mut members = Map::new();
    let texts = [
        ("HTTP", &definition.http),
        ("Method", &definition.method),
        ("Body", &definition.body),
        ("TLSServerName", &definition.tls_server_name),
        ("TCP", &definition.tcp),
        ("UDP", &definition.udp),
        ("GRPC", &definition.grpc),
        ("H2PING", &definition.h2ping),
        ("OSService", &definition.os_service),
        ("DockerContainerID", &definition.docker_container_id),
        ("Shell", &definition.shell),
        ("AliasNode", &definition.alias_node),
        ("AliasService", &definition.alias_service),
    ];
    for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        members.insert(name.to_owned(), text.as_str().into());
    }
    let flags = [
        ("TLSSkipVerify", definition.tls_skip_verify),
        ("DisableRedirects", definition.disable_redirects),
        ("TCPUseTLS", definition.tcp_use_tls),
        ("GRPCUseTLS", definition.grpc_use_tls),
        ("H2PingUseTLS", definition.h2ping_use_tls),
    ];
    for (name, _) in flags.into_iter().filter(|(_, flag)| *flag) {
        members.insert(name.to_owned(), true.into());
    }
    let durations = [
        ("Interval", definition.interval_ns),
        ("Timeout", definition.timeout_ns),
        ("TTL", definition.ttl_ns),
        ("DeregisterCriticalServiceAfter", definition.deregister_critical_after_ns),
    ];
    for (name, ns) in durations.into_iter().filter(|(_, ns)| *ns > 0) {
        let text = duration::format(Duration::from_nanos(ns.unsigned_abs()));
        members.insert(name.to_owned(), text.into());
    }
    if !definition.header.is_empty() {
        let header: Map<String, Value> =
            definition.header.iter().map(|(name, values)| (name.clone(), values.clone().into())).collect();
        members.insert("Header".to_owned(), header.into());
    }
    if !definition.script_args.is_empty() {
        members.insert("ScriptArgs".to_owned(), definition.script_args.clone().into());
    }
    if definition.output_max_size != 0 {
        members.insert("OutputMaxSize".to_owned(), definition.output_max_size.into());
    }
    members.into()
}

pub(super) fn node<'a>(node: &'a CatalogNode, datacenter: &'a str) -> NodeJson<'a> {
    NodeJson {
        id: &node.id,
        node: &node.name,
        address: &node.address,
        datacenter,
        tagged_addresses: &node.tagged_addresses,
        meta: &node.meta,
        locality: node.locality.as_ref().map(locality),
        create_index: raw(node.created),
        modify_index: raw(node.modified),
    }
}

pub(super) fn service(service: &Service) -> ServiceJson<'_> {
    ServiceJson {
        kind: service.kind.as_str(),
        id: &service.id,
        service: &service.name,
        tags: &service.tags,
        address: &service.address,
        tagged_addresses: addresses(&service.tagged_addresses),
        meta: &service.meta,
        port: service.port,
        socket_path: &service.socket_path,
        weights: weights(service.weights),
        enable_tag_override: service.enable_tag_override,
        proxy: Some(proxy(&service.proxy)),
        connect: Some(connect(&service.connect)),
        locality: service.locality.as_ref().map(locality),
        datacenter: None,
        create_index: Some(raw(service.created)),
        modify_index: Some(raw(service.modified)),
    }
}

/// An instance in the agent's answers: as registered, without indexes. `Proxy` is present only for
/// a sidecar or a gateway, and `Connect` only if it has settings.
pub(super) fn agent_service<'a>(of: &'a Service, datacenter: &'a str) -> ServiceJson<'a> {
    let has_connect = of.connect.native || !of.connect.more_json.is_empty();
    ServiceJson {
        proxy: (of.kind != ServiceKind::Typical).then(|| proxy(&of.proxy)),
        connect: has_connect.then(|| connect(&of.connect)),
        datacenter: Some(datacenter),
        create_index: None,
        modify_index: None,
        ..service(of)
    }
}

pub(super) fn catalog_service<'a>(instance: &'a CheckServiceNode, datacenter: &'a str) -> CatalogServiceJson<'a> {
    let (node, service) = (&*instance.node, &*instance.service);
    CatalogServiceJson {
        id: &node.id,
        node: &node.name,
        address: &node.address,
        datacenter,
        tagged_addresses: &node.tagged_addresses,
        node_meta: &node.meta,
        service_kind: service.kind.as_str(),
        service_id: &service.id,
        service_name: &service.name,
        service_tags: &service.tags,
        service_address: &service.address,
        service_tagged_addresses: addresses(&service.tagged_addresses),
        service_meta: &service.meta,
        service_port: service.port,
        service_socket_path: &service.socket_path,
        service_weights: weights(service.weights),
        service_enable_tag_override: service.enable_tag_override,
        service_proxy: proxy(&service.proxy),
        service_connect: connect(&service.connect),
        service_locality: service.locality.as_ref().map(locality),
        create_index: raw(service.created),
        modify_index: raw(service.modified),
    }
}

pub(super) fn check(check: &Check) -> CheckJson<'_> {
    CheckJson {
        node: &check.node,
        id: &check.id,
        name: &check.name,
        status: check.status.as_str(),
        notes: &check.notes,
        output: &check.output,
        service_id: &check.service_id,
        service_name: &check.service_name,
        service_tags: &check.service_tags,
        type_: &check.type_,
        interval: &check.interval,
        timeout: &check.timeout,
        exposed_port: check.exposed_port,
        definition: definition(&check.definition),
        create_index: raw(check.created),
        modify_index: raw(check.modified),
    }
}

pub(super) fn instance<'a>(instance: &'a CheckServiceNode, datacenter: &'a str) -> InstanceJson<'a> {
    InstanceJson {
        node: node(&instance.node, datacenter),
        service: service(&instance.service),
        checks: instance.checks.iter().map(|it| check(it)).collect(),
    }
}
