//! Messages of Consul's catalog: nodes, instances and checks as every face sends them (spec: consul
//! §2.5, §4).
//!
//! Clients compare these messages field by field, so the specification decides which empty fields
//! are present. Invariant: a registration is sent whole.

use super::mesh;
use headwater_proto::pb::pbcommon::{EnterpriseMeta, Locality as PbLocality, RaftIndex};
use headwater_proto::pb::pbservice as pb;
use headwater_types::LogIndex;
use headwater_types::catalog::{CatalogNode, Check, CheckDefinition, CheckServiceNode, Locality, Service, Weights};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_their_nanoseconds() {
        assert_eq!(duration(1_500_000_001), Some(prost_types::Duration { seconds: 1, nanos: 500_000_001 }));
        assert_eq!(duration(0), Some(prost_types::Duration::default()));
    }
}
