//! Payloads of events: catalog changes as fields of `Event`, encoded (spec: consul §2.5, §4).
//!
//! Owns the choice of the payload; the messages of instances are those of `shared::catalog`.

use bytes::Bytes;

use headwater_api_shared::catalog::{deregistered, registered};
use headwater_api_shared::frames::field;
use headwater_proto::pb::pbcommon::EnterpriseMeta;
use headwater_proto::pb::subscribe::{CatalogOp as PbOp, ServiceHealthUpdate, ServiceListUpdate};
use headwater_types::catalog::{CatalogBody, CatalogEvent, CatalogOp};

/// Number of the field `Event.ServiceHealth`.
const SERVICE_HEALTH: u32 = 10;
/// Number of the field `Event.Service`.
const SERVICE: u32 = 12;

/// The payload of an event, encoded as the field of `Event` that carries it. Empty for an event
/// about a node or a table: no topic of this face has such events.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prost::Message;

    use super::*;
    use headwater_proto::pb::pbcommon::RaftIndex;
    use headwater_proto::pb::pbservice as pb;
    use headwater_proto::pb::subscribe::Event;
    use headwater_proto::pb::subscribe::event::Payload;
    use headwater_types::LogIndex;
    use headwater_types::catalog::{CatalogNode, CatalogTopic, Check, CheckServiceNode, CheckStatus, Service};

    fn instance() -> CheckServiceNode {
        let node = CatalogNode {
            name: "node1".to_owned(),
            address: "3.4.5.6".to_owned(),
            created: LogIndex(2),
            modified: LogIndex(2),
            ..CatalogNode::default()
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
}
