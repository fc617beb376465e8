//! Payloads to the last empty message (spec: consul §2.5): clients compare them whole.

use headwater::pb::pbcommon::{EnterpriseMeta, RaftIndex};
use headwater::pb::pbservice as pb;
use headwater::pb::subscribe::event::Payload;
use headwater::pb::subscribe::{CatalogOp, Event, ServiceHealthUpdate, Topic};
use headwater::types::catalog::{
    Check, Deregistered, Proxy, Registration, Service, ServiceConnect, ServiceKind, TerminatingGateway,
};

use super::client::{Subscriber, Told, apply, ctx, dereg, deregister, health, named, on, reg, register};
use crate::cluster::{Cluster, Settings};

fn raft(created: u64, modified: u64) -> Option<RaftIndex> {
    Some(RaftIndex { create_index: created, modify_index: modified })
}

fn node(name: &str, at: u64) -> pb::Node {
    pb::Node {
        node: name.to_owned(),
        address: format!("{name}.example"),
        datacenter: "dc1".to_owned(),
        raft_index: raft(at, at),
        ..Default::default()
    }
}

fn service(id: &str, at: u64) -> pb::NodeService {
    pb::NodeService {
        id: id.to_owned(),
        service: "redis".to_owned(),
        port: 80,
        weights: Some(pb::Weights { passing: 1, warning: 1 }),
        proxy: Some(pb::ConnectProxyConfig {
            mesh_gateway: Some(pb::MeshGatewayConfig::default()),
            expose: Some(pb::ExposeConfig::default()),
            transparent_proxy: Some(pb::TransparentProxyConfig::default()),
            access_logs: Some(pb::AccessLogsConfig::default()),
            ..Default::default()
        }),
        connect: Some(pb::ServiceConnect::default()),
        raft_index: raft(at, at),
        enterprise_meta: Some(EnterpriseMeta::default()),
        ..Default::default()
    }
}

fn event(index: u64, op: CatalogOp, instance: pb::CheckServiceNode) -> Event {
    let update = ServiceHealthUpdate { op: op.into(), check_service_node: Some(instance) };
    Event { index, payload: Some(Payload::ServiceHealth(update)) }
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_are_sent_as_consul_sends_them() {
    let cluster = Cluster::start(Settings { members: 1, ..Settings::default() }).await;
    let first = register(&cluster, 0, "node1", "redis1", "redis").await;
    let second = register(&cluster, 0, "node2", "redis1", "redis").await;
    let third = register(&cluster, 0, "node1", "other", "other").await;
    let mut stream = Subscriber::open(&cluster, 0, health("redis")).await.unwrap();
    let mut index = 0;
    for (name, at) in [("node1", first), ("node2", second)] {
        let instance = pb::CheckServiceNode {
            node: Some(node(name, at)),
            service: Some(service("redis1", at)),
            checks: Vec::new(),
        };
        let found = stream.event().await.unwrap();
        index = found.index;
        assert_eq!(found, event(index, CatalogOp::Register, instance));
    }
    assert!(index >= third);
    assert_eq!(stream.next().await, Told::End(index));
    // A check comes: node and instance keep their indexes.
    let check = Check { id: "ping".to_owned(), service_id: "redis1".to_owned(), ..Check::default() };
    let at = apply(&cluster, 0, Registration { checks: vec![check], ..on("node2") }).await;
    let zero = Some(prost_types::Duration::default());
    let check = pb::HealthCheck {
        node: "node2".to_owned(),
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
        raft_index: raft(at, at),
        enterprise_meta: Some(EnterpriseMeta::default()),
        ..Default::default()
    };
    let instance = pb::CheckServiceNode {
        node: Some(node("node2", second)),
        service: Some(service("redis1", second)),
        checks: vec![check],
    };
    assert_eq!(stream.event().await.unwrap(), event(at, CatalogOp::Register, instance));
    // It goes: of the node the name, the instance as it was.
    let gone = deregister(&cluster, 0, "node2", Deregistered::Service("redis1".to_owned())).await;
    let instance = pb::CheckServiceNode {
        node: Some(pb::Node { node: "node2".to_owned(), ..Default::default() }),
        service: Some(service("redis1", second)),
        checks: Vec::new(),
    };
    assert_eq!(stream.event().await.unwrap(), event(gone, CatalogOp::Deregister, instance));
}

#[tokio::test(flavor = "multi_thread")]
async fn services_are_reached_in_the_mesh_by_their_proxies_gateways_and_themselves() {
    let cluster = Cluster::start(Settings { members: 1, ..Settings::default() }).await;
    let mut mesh = Subscriber::open(&cluster, 0, named(Topic::ServiceHealthConnect, "Web")).await.unwrap();
    assert!(matches!(mesh.next().await, Told::End(_)));
    let with = |service: Service| Registration { service: Some(service), ..on("n1") };
    // An ordinary instance is not reached in the mesh.
    register(&cluster, 0, "n1", "web-1", "web").await;
    let proxy = Proxy {
        destination_service_name: "web".to_owned(),
        more_json: r#"{"Config":{"a":1},"Upstreams":[{"DestinationName":"db"}]}"#.to_owned(),
        ..Proxy::default()
    };
    let sidecar = Service {
        id: "sidecar".to_owned(),
        name: "web-sidecar".to_owned(),
        kind: ServiceKind::ConnectProxy,
        proxy,
        ..Service::default()
    };
    let at = apply(&cluster, 0, with(sidecar.clone())).await;
    let found = mesh.event().await.unwrap();
    assert_eq!(found.index, at);
    let Some(Payload::ServiceHealth(update)) = found.payload else { panic!("a proxy has health") };
    let sent = update.check_service_node.unwrap().service.unwrap().proxy.unwrap();
    assert_eq!((sent.destination_service_name.as_str(), sent.upstreams[0].destination_name.as_str()), ("web", "db"));
    assert_eq!(sent.config.unwrap().fields["a"].kind, Some(prost_types::value::Kind::NumberValue(1.0)));
    let native = Service {
        id: "native".to_owned(),
        name: "WEB".to_owned(),
        connect: ServiceConnect { native: true, ..ServiceConnect::default() },
        ..Service::default()
    };
    let at = apply(&cluster, 0, with(native)).await;
    assert_eq!(mesh.next().await, reg(at, "n1/native"));
    let gateway = Service {
        id: "gw".to_owned(),
        name: "gw".to_owned(),
        kind: ServiceKind::TerminatingGateway,
        ..Service::default()
    };
    apply(&cluster, 0, with(gateway)).await;
    let linked = headwater::types::catalog::LinkedService { name: "web".to_owned(), ..Default::default() };
    let entry = TerminatingGateway { name: "gw".to_owned(), services: vec![linked], ..Default::default() };
    let at = cluster.node(0).set_gateway(&ctx(), entry).await.unwrap().index.get();
    assert_eq!(mesh.next().await, reg(at, "n1/gw"));
    // The sidecar turns to another service: it goes from this one.
    let proxy = Proxy { destination_service_name: "api".to_owned(), ..Proxy::default() };
    let at = apply(&cluster, 0, with(Service { proxy, ..sidecar })).await;
    assert_eq!(mesh.next().await, dereg(at, "n1/sidecar"));
    // A new subscriber finds the same.
    let mut again = Subscriber::open(&cluster, 0, named(Topic::ServiceHealthConnect, "web")).await.unwrap();
    let (mut found, _) = again.snapshot().await;
    found.sort();
    assert_eq!(found, ["n1/gw", "n1/native"]);
}
