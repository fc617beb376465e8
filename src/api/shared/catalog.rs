//! Protobuf messages of Consul's catalog: nodes, instances and checks, for all faces that send them
//! (spec: consul §2.5, §4).
//!
//! Clients compare these messages field by field, so the specification decides which empty fields
//! are present. Invariant: a registration is sent whole.

use super::mesh;
use headwater_proto::pb::pbcommon::{EnterpriseMeta, Locality as PbLocality, RaftIndex};
use headwater_proto::pb::pbservice as pb;
use headwater_types::LogIndex;
use headwater_types::catalog::{
    CatalogNode, Check, CheckDefinition, CheckServiceNode, CheckStatus, Locality, Service, ServiceKind, Weights,
};
use thiserror::Error;

/// The message of a registered instance: everything that was registered.
pub fn registered(instance: &CheckServiceNode, datacenter: &str) -> pb::CheckServiceNode {
    pb::CheckServiceNode {
        node: Some(node(&instance.node, datacenter)),
        service: Some(service(&instance.service)),
        checks: instance.checks.iter().map(|it| check(it)).collect(),
    }
}

/// The message of a deregistered instance: the last state of the service, only the name of its
/// node, and no checks.
pub fn deregistered(instance: &CheckServiceNode) -> pb::CheckServiceNode {
    let node = pb::Node { node: instance.node.name.clone(), ..Default::default() };
    pb::CheckServiceNode { node: Some(node), service: Some(service(&instance.service)), checks: Vec::new() }
}

fn raft_index(created: LogIndex, modified: LogIndex) -> Option<RaftIndex> {
    Some(RaftIndex { create_index: created.get(), modify_index: modified.get() })
}

fn locality(locality: &Option<Locality>) -> Option<PbLocality> {
    locality.as_ref().map(|it| PbLocality { region: it.region.clone(), zone: it.zone.clone() })
}

/// The message of a node of the catalog.
pub fn node(node: &CatalogNode, datacenter: &str) -> pb::Node {
    pb::Node {
        id: node.id.clone(),
        node: node.name.clone(),
        address: node.address.clone(),
        datacenter: datacenter.to_owned(),
        tagged_addresses: node.tagged_addresses.clone(),
        meta: node.meta.clone(),
        raft_index: raft_index(node.created, node.modified),
        partition: String::new(),
        peer_name: String::new(),
        locality: locality(&node.locality),
    }
}

fn service(service: &Service) -> pb::NodeService {
    let address = |it: &headwater_types::catalog::ServiceAddress| pb::ServiceAddress {
        address: it.address.clone(),
        port: it.port,
    };
    let Weights { passing, warning } = service.weights;
    pb::NodeService {
        kind: service.kind.as_str().to_owned(),
        id: service.id.clone(),
        service: service.name.clone(),
        tags: service.tags.clone(),
        address: service.address.clone(),
        meta: service.meta.clone(),
        port: service.port,
        weights: Some(pb::Weights { passing, warning }),
        enable_tag_override: service.enable_tag_override,
        proxy: Some(mesh::proxy(&service.proxy)),
        connect: Some(mesh::connect(&service.connect)),
        locally_registered_as_sidecar: false,
        raft_index: raft_index(service.created, service.modified),
        tagged_addresses: service.tagged_addresses.iter().map(|(tag, it)| (tag.clone(), address(it))).collect(),
        enterprise_meta: Some(EnterpriseMeta::default()),
        socket_path: service.socket_path.clone(),
        peer_name: String::new(),
        locality: locality(&service.locality),
    }
}

fn check(check: &Check) -> pb::HealthCheck {
    pb::HealthCheck {
        node: check.node.clone(),
        check_id: check.id.clone(),
        name: check.name.clone(),
        status: check.status.as_str().to_owned(),
        notes: check.notes.clone(),
        output: check.output.clone(),
        service_id: check.service_id.clone(),
        service_name: check.service_name.clone(),
        service_tags: check.service_tags.clone(),
        definition: Some(definition(&check.definition)),
        raft_index: raft_index(check.created, check.modified),
        r#type: check.type_.clone(),
        enterprise_meta: Some(EnterpriseMeta::default()),
        exposed_port: check.exposed_port,
        interval: check.interval.clone(),
        timeout: check.timeout.clone(),
        peer_name: String::new(),
    }
}

fn definition(it: &CheckDefinition) -> pb::HealthCheckDefinition {
    let header = |(name, value): (&String, &Vec<String>)| (name.clone(), pb::HeaderValue { value: value.clone() });
    pb::HealthCheckDefinition {
        http: it.http.clone(),
        tls_skip_verify: it.tls_skip_verify,
        header: it.header.iter().map(header).collect(),
        method: it.method.clone(),
        tcp: it.tcp.clone(),
        interval: duration(it.interval_ns),
        timeout: duration(it.timeout_ns),
        deregister_critical_service_after: duration(it.deregister_critical_after_ns),
        output_max_size: it.output_max_size,
        script_args: it.script_args.clone(),
        docker_container_id: it.docker_container_id.clone(),
        shell: it.shell.clone(),
        grpc: it.grpc.clone(),
        grpc_use_tls: it.grpc_use_tls,
        alias_node: it.alias_node.clone(),
        alias_service: it.alias_service.clone(),
        ttl: duration(it.ttl_ns),
        body: it.body.clone(),
        tls_server_name: it.tls_server_name.clone(),
        h2ping: it.h2ping.clone(),
        h2_ping_use_tls: it.h2ping_use_tls,
        disable_redirects: it.disable_redirects,
        udp: it.udp.clone(),
        os_service: it.os_service.clone(),
        tcp_use_tls: it.tcp_use_tls,
    }
}

/// The message of a duration. Always present: zero if no duration was registered.
fn duration(nanoseconds: i64) -> Option<prost_types::Duration> {
    const SECOND: i64 = 1_000_000_000;
    Some(prost_types::Duration { seconds: nanoseconds / SECOND, nanos: (nanoseconds % SECOND) as i32 })
}

/// The reason for which a message is no registration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadRegistration {
    /// The kind of a service is unknown.
    #[error("Service.Kind {0:?} is not known")]
    Kind(String),
    /// The status of a check is unknown.
    #[error("the Status {0:?} of a check is none of passing, warning, critical")]
    Status(String),
    /// A unit that this store does not have.
    #[error("{field} {given:?}: there is one partition, one namespace and no peer; leave it out")]
    Unit {
        /// Name of the field for people, such as `Node.Partition` or `Service.EnterpriseMeta`.
        field: &'static str,
        /// Its value.
        given: String,
    },
    /// A duration is negative or too long.
    #[error("{0} of a check is no duration that can be kept")]
    Duration(&'static str),
}

/// Reads [`node`] back. Log indexes are left out, and the datacenter is not looked at.
///
/// # Errors
///
/// [`BadRegistration::Unit`].
pub fn read_node(node: pb::Node) -> Result<CatalogNode, BadRegistration> {
    only_default("Node.Partition", &node.partition)?;
    no_peer("Node.PeerName", &node.peer_name)?;
    Ok(CatalogNode {
        name: node.node,
        id: node.id,
        address: node.address,
        tagged_addresses: node.tagged_addresses,
        meta: node.meta,
        locality: node.locality.map(read_locality),
        ..CatalogNode::default()
    })
}

/// Reads the message of an instance's service back. Log indexes are left out, and the node, which
/// the message does not name.
///
/// # Errors
///
/// [`BadRegistration`].
pub fn read_service(service: pb::NodeService) -> Result<Service, BadRegistration> {
    units("Service.EnterpriseMeta", service.enterprise_meta.as_ref())?;
    no_peer("Service.PeerName", &service.peer_name)?;
    let address =
        |it: pb::ServiceAddress| headwater_types::catalog::ServiceAddress { address: it.address, port: it.port };
    // Left out, as zeros: the defaults.
    let weights = service.weights.unwrap_or_default();
    Ok(Service {
        kind: ServiceKind::from_text(&service.kind).ok_or(BadRegistration::Kind(service.kind))?,
        id: service.id,
        name: service.service,
        tags: service.tags,
        address: service.address,
        tagged_addresses: service.tagged_addresses.into_iter().map(|(tag, it)| (tag, address(it))).collect(),
        meta: service.meta,
        port: service.port,
        socket_path: service.socket_path,
        weights: Weights { passing: weights.passing, warning: weights.warning },
        enable_tag_override: service.enable_tag_override,
        proxy: service.proxy.map(mesh::read_proxy).unwrap_or_default(),
        connect: service.connect.map(mesh::read_connect).unwrap_or_default(),
        locality: service.locality.map(read_locality),
        ..Service::default()
    })
}

/// Reads a check back. Log indexes, and the name and the tags of the service, are left out. A check
/// without a status is critical.
///
/// # Errors
///
/// [`BadRegistration`].
pub fn read_check(check: pb::HealthCheck) -> Result<Check, BadRegistration> {
    units("Checks.EnterpriseMeta", check.enterprise_meta.as_ref())?;
    no_peer("Checks.PeerName", &check.peer_name)?;
    let status = match check.status.as_str() {
        "" => CheckStatus::default(),
        text => CheckStatus::from_text(text).ok_or(BadRegistration::Status(check.status))?,
    };
    Ok(Check {
        node: check.node,
        id: check.check_id,
        name: check.name,
        status,
        notes: check.notes,
        output: check.output,
        service_id: check.service_id,
        type_: check.r#type,
        definition: check.definition.map(read_definition).transpose()?.unwrap_or_default(),
        interval: check.interval,
        timeout: check.timeout,
        exposed_port: check.exposed_port,
        ..Check::default()
    })
}

fn read_definition(it: pb::HealthCheckDefinition) -> Result<CheckDefinition, BadRegistration> {
    let nanoseconds = |field: &'static str, duration: Option<prost_types::Duration>| {
        let Some(duration) = duration else { return Ok(0) };
        let whole = duration.seconds.checked_mul(1_000_000_000);
        let whole = whole.and_then(|whole| whole.checked_add(duration.nanos.into()));
        whole.filter(|whole| *whole >= 0).ok_or(BadRegistration::Duration(field))
    };
    Ok(CheckDefinition {
        http: it.http,
        tls_skip_verify: it.tls_skip_verify,
        header: it.header.into_iter().map(|(name, values)| (name, values.value)).collect(),
        method: it.method,
        body: it.body,
        tls_server_name: it.tls_server_name,
        disable_redirects: it.disable_redirects,
        tcp: it.tcp,
        tcp_use_tls: it.tcp_use_tls,
        udp: it.udp,
        grpc: it.grpc,
        grpc_use_tls: it.grpc_use_tls,
        h2ping: it.h2ping,
        h2ping_use_tls: it.h2_ping_use_tls,
        os_service: it.os_service,
        script_args: it.script_args,
        docker_container_id: it.docker_container_id,
        shell: it.shell,
        alias_node: it.alias_node,
        alias_service: it.alias_service,
        output_max_size: it.output_max_size,
        interval_ns: nanoseconds("Interval", it.interval)?,
        timeout_ns: nanoseconds("Timeout", it.timeout)?,
        ttl_ns: nanoseconds("TTL", it.ttl)?,
        deregister_critical_after_ns: nanoseconds(
            "DeregisterCriticalServiceAfter",
            it.deregister_critical_service_after,
        )?,
    })
}

fn read_locality(it: PbLocality) -> Locality {
    Locality { region: it.region, zone: it.zone }
}

fn units(field: &'static str, given: Option<&EnterpriseMeta>) -> Result<(), BadRegistration> {
    let Some(given) = given else { return Ok(()) };
    only_default(field, &given.partition)?;
    only_default(field, &given.namespace)
}

fn only_default(field: &'static str, given: &str) -> Result<(), BadRegistration> {
    match given {
        "" | "default" => Ok(()),
        given => Err(BadRegistration::Unit { field, given: given.to_owned() }),
    }
}

fn no_peer(field: &'static str, given: &str) -> Result<(), BadRegistration> {
    if given.is_empty() { Ok(()) } else { Err(BadRegistration::Unit { field, given: given.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_can_be_registered_again() {
        let locality = Some(Locality { region: "r".to_owned(), zone: "z".to_owned() });
        let pair = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
        let given = CatalogNode {
            name: "n".to_owned(),
            id: "i".to_owned(),
            address: "10.0.0.1".to_owned(),
            tagged_addresses: pair("lan", "10.0.0.2"),
            meta: pair("k", "v"),
            locality: locality.clone(),
            ..CatalogNode::default()
        };
        assert_eq!(read_node(node(&given, "dc1")), Ok(given.clone()));
        let address = headwater_types::catalog::ServiceAddress { address: "a".to_owned(), port: 3 };
        let instance = Service {
            kind: ServiceKind::ConnectProxy,
            id: "s-1".to_owned(),
            name: "s".to_owned(),
            tags: vec!["b".to_owned(), "a".to_owned()],
            address: "10.0.0.3".to_owned(),
            tagged_addresses: [("lan".to_owned(), address)].into(),
            meta: pair("k", "v"),
            port: 80,
            socket_path: "/run/s".to_owned(),
            weights: Weights { passing: 5, warning: 2 },
            enable_tag_override: true,
            locality,
            ..Service::default()
        };
        assert_eq!(read_service(service(&instance)), Ok(instance.clone()));
        let definition = CheckDefinition {
            http: "h".to_owned(),
            header: [("A".to_owned(), vec!["1".to_owned()])].into(),
            interval_ns: 1_500_000_001,
            ttl_ns: 30_000_000_000,
            script_args: vec!["x".to_owned()],
            ..CheckDefinition::default()
        };
        let one = Check {
            node: "n".to_owned(),
            id: "c".to_owned(),
            name: "C".to_owned(),
            status: CheckStatus::Warning,
            output: "o".to_owned(),
            service_id: "s-1".to_owned(),
            type_: "http".to_owned(),
            definition,
            interval: "1.5s".to_owned(),
            exposed_port: 7,
            ..Check::default()
        };
        assert_eq!(read_check(check(&one)), Ok(one));
        let unit = |field| BadRegistration::Unit { field, given: "p".to_owned() };
        let node = pb::Node { partition: "p".to_owned(), ..Default::default() };
        assert_eq!(read_node(node), Err(unit("Node.Partition")));
        let peer = pb::NodeService { peer_name: "p".to_owned(), ..Default::default() };
        assert_eq!(read_service(peer), Err(unit("Service.PeerName")));
        let fine = pb::HealthCheck { status: "fine".to_owned(), ..Default::default() };
        assert_eq!(read_check(fine), Err(BadRegistration::Status("fine".to_owned())));
    }

    #[test]
    fn durations_keep_their_nanoseconds() {
        assert_eq!(duration(1_500_000_001), Some(prost_types::Duration { seconds: 1, nanos: 500_000_001 }));
        assert_eq!(duration(0), Some(prost_types::Duration::default()));
    }
}
