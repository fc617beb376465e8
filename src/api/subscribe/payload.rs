//! Events of the catalog as they are sent (spec: consul §2.5, §4).
//!
//! Clients compare these messages field by field, so what is empty is there or is not there as the spec says. Invariant: what
//! was registered is sent whole.

use bytes::Bytes;

use super::super::frames::field;
use super::proxy;
use headwater_proto::pb::pbcommon::{EnterpriseMeta, Locality as PbLocality, RaftIndex};
use headwater_proto::pb::pbservice as pb;
use headwater_proto::pb::subscribe::{CatalogOp as PbOp, ServiceHealthUpdate, ServiceListUpdate};
use headwater_types::LogIndex;
use headwater_types::catalog::{
    CatalogBody, CatalogEvent, CatalogOp, Check, CheckDefinition, CheckServiceNode, Locality, Node, Service, Weights,
};

/// Fields of `Event` that hold a payload.
const SERVICE_HEALTH: u32 = 10;
const SERVICE: u32 = 12;

/// The payload of an event as a field of `Event`, encoded. Nodes and tables have none: no topic of this face has them.
pub(super) fn encoded(event: &CatalogEvent, datacenter: &str) -> Bytes {
    let op = match event.op {
        CatalogOp::Register => PbOp::Register,
        CatalogOp::Deregister => PbOp::Deregister,
    };
    match &event.body {
        CatalogBody::Instance(instance) => {
            let instance = match event.op {
                CatalogOp::Register => registered(instance, datacenter),
                CatalogOp::Deregister => deregistered(instance),
            };
            field(SERVICE_HEALTH, &ServiceHealthUpdate { op: op.into(), check_service_node: Some(instance) })
        }
        CatalogBody::Name(name) => {
            let enterprise_meta = Some(EnterpriseMeta::default());
            let update =
                ServiceListUpdate { op: op.into(), name: name.to_string(), enterprise_meta, peer_name: String::new() };
            field(SERVICE, &update)
        }
        CatalogBody::Node(_) | CatalogBody::Table(_) => Bytes::new(),
    }
}

pub(crate) fn registered(instance: &CheckServiceNode, datacenter: &str) -> pb::CheckServiceNode {
    pb::CheckServiceNode {
        node: Some(node(&instance.node, datacenter)),
        service: Some(service(&instance.service)),
        checks: instance.checks.iter().map(|it| check(it)).collect(),
    }
}

/// Of the node the name alone; the instance as it was last.
fn deregistered(instance: &CheckServiceNode) -> pb::CheckServiceNode {
    let node = pb::Node { node: instance.node.name.clone(), ..Default::default() };
    pb::CheckServiceNode { node: Some(node), service: Some(service(&instance.service)), checks: Vec::new() }
}

fn raft_index(created: LogIndex, modified: LogIndex) -> Option<RaftIndex> {
    Some(RaftIndex { create_index: created.get(), modify_index: modified.get() })
}

fn locality(locality: &Option<Locality>) -> Option<PbLocality> {
    locality.as_ref().map(|it| PbLocality { region: it.region.clone(), zone: it.zone.clone() })
}

pub(crate) fn node(node: &Node, datacenter: &str) -> pb::Node {
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
        proxy: Some(proxy::proxy(&service.proxy)),
        connect: Some(proxy::connect(&service.connect)),
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

/// Always there, zero if it was not given.
fn duration(nanoseconds: i64) -> Option<prost_types::Duration> {
    const SECOND: i64 = 1_000_000_000;
    Some(prost_types::Duration { seconds: nanoseconds / SECOND, nanos: (nanoseconds % SECOND) as i32 })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prost::Message;

    use super::*;
    use headwater_proto::pb::subscribe::Event;
    use headwater_proto::pb::subscribe::event::Payload;
    use headwater_types::catalog::{CatalogTopic, CheckStatus};

    fn instance() -> CheckServiceNode {
        let node = Node {
            name: "node1".to_owned(),
            address: "3.4.5.6".to_owned(),
            created: LogIndex(2),
            modified: LogIndex(2),
            ..Node::default()
        };
        let service = Service {
            node: "node1".to_owned(),
            id: "redis1".to_owned(),
            name: "redis".to_owned(),
            address: "3.4.5.6".to_owned(),
            port: 8080,
            created: LogIndex(2),
            modified: LogIndex(2),
            ..Service::default()
        };
        let check = Check {
            node: "node1".to_owned(),
            id: "ping".to_owned(),
            status: CheckStatus::Critical,
            service_id: "redis1".to_owned(),
            service_name: "redis".to_owned(),
            created: LogIndex(5),
            modified: LogIndex(5),
            ..Check::default()
        };
        CheckServiceNode { node: node.into(), service: service.into(), checks: vec![check.into()] }
    }

    fn sent(op: CatalogOp) -> ServiceHealthUpdate {
        let body = CatalogBody::Instance(Arc::new(instance()));
        let event = CatalogEvent { topic: CatalogTopic::ServiceHealth, op, key: "redis".into(), body };
        let event = Event::decode(encoded(&event, "dc1")).unwrap();
        match event.payload {
            Some(Payload::ServiceHealth(update)) => update,
            other => panic!("{other:?}"),
        }
    }

    fn minimal_service() -> pb::NodeService {
        pb::NodeService {
            id: "redis1".to_owned(),
            service: "redis".to_owned(),
            address: "3.4.5.6".to_owned(),
            port: 8080,
            weights: Some(pb::Weights { passing: 1, warning: 1 }),
            proxy: Some(pb::ConnectProxyConfig {
                mesh_gateway: Some(pb::MeshGatewayConfig::default()),
                expose: Some(pb::ExposeConfig::default()),
                transparent_proxy: Some(pb::TransparentProxyConfig::default()),
                access_logs: Some(pb::AccessLogsConfig::default()),
                ..Default::default()
            }),
            connect: Some(pb::ServiceConnect::default()),
            raft_index: Some(RaftIndex { create_index: 2, modify_index: 2 }),
            enterprise_meta: Some(EnterpriseMeta::default()),
            ..Default::default()
        }
    }

    #[test]
    fn a_registration_is_sent_to_the_last_empty_message() {
        let zero = Some(prost_types::Duration::default());
        let wanted = pb::CheckServiceNode {
            node: Some(pb::Node {
                node: "node1".to_owned(),
                address: "3.4.5.6".to_owned(),
                datacenter: "dc1".to_owned(),
                raft_index: Some(RaftIndex { create_index: 2, modify_index: 2 }),
                ..Default::default()
            }),
            service: Some(minimal_service()),
            checks: vec![pb::HealthCheck {
                node: "node1".to_owned(),
                check_id: "ping".to_owned(),
                status: "critical".to_owned(),
                service_id: "redis1".to_owned(),
                service_name: "redis".to_owned(),
                definition: Some(pb::HealthCheckDefinition {
                    interval: zero,
                    timeout: zero,
                    deregister_critical_service_after: zero,
                    ttl: zero,
                    ..Default::default()
                }),
                raft_index: Some(RaftIndex { create_index: 5, modify_index: 5 }),
                enterprise_meta: Some(EnterpriseMeta::default()),
                ..Default::default()
            }],
        };
        assert_eq!(sent(CatalogOp::Register), ServiceHealthUpdate { op: 0, check_service_node: Some(wanted) });
    }

    #[test]
    fn a_deregistration_names_the_node_and_shows_the_instance_as_it_was() {
        let wanted = pb::CheckServiceNode {
            node: Some(pb::Node { node: "node1".to_owned(), ..Default::default() }),
            service: Some(minimal_service()),
            checks: Vec::new(),
        };
        assert_eq!(sent(CatalogOp::Deregister), ServiceHealthUpdate { op: 1, check_service_node: Some(wanted) });
    }

    #[test]
    fn a_name_is_sent_with_its_units() {
        let event = CatalogEvent {
            topic: CatalogTopic::ServiceList,
            op: CatalogOp::Deregister,
            key: "redis".into(),
            body: CatalogBody::Name("redis".into()),
        };
        let event = Event::decode(encoded(&event, "dc1")).unwrap();
        let wanted = ServiceListUpdate {
            op: 1,
            name: "redis".to_owned(),
            enterprise_meta: Some(EnterpriseMeta::default()),
            peer_name: String::new(),
        };
        assert_eq!(event, Event { index: 0, payload: Some(Payload::Service(wanted)) });
    }

    #[test]
    fn durations_keep_their_nanoseconds() {
        assert_eq!(duration(1_500_000_001), Some(prost_types::Duration { seconds: 1, nanos: 500_000_001 }));
        assert_eq!(duration(0), Some(prost_types::Duration::default()));
    }
}
