//! Payloads compared in full, including nested messages that are set but empty (spec: consul §2.5),
//! because clients compare whole payloads.

use headwater::pb::pbcommon::{EnterpriseMeta, Locality as PbLocality, RaftIndex};
use headwater::pb::pbservice as pb;
use headwater::pb::subscribe::event::Payload;
use headwater::pb::subscribe::{CatalogOp, Event, ServiceHealthUpdate, Topic};
use headwater::types::catalog::{
    CatalogNode, Check, CheckDefinition, CheckStatus, DeregistrationTarget, Locality, Proxy, Registration, Service,
    ServiceAddress, ServiceConnect, ServiceKind, TerminatingGateway, Weights,
};

use super::client::{Delivery, Subscriber, apply, ctx, dereg, deregister, health, named, on, reg, register};
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
    let cluster = Cluster::start(Settings::alone()).await;
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
    assert_eq!(stream.next().await, Delivery::End(index));
    // A new check: node and instance keep their indexes.
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
    // A removal: the name of the node, and the instance in its last state.
    let gone = deregister(&cluster, 0, "node2", DeregistrationTarget::Service("redis1".to_owned())).await;
    let instance = pb::CheckServiceNode {
        node: Some(pb::Node { node: "node2".to_owned(), ..Default::default() }),
        service: Some(service("redis1", second)),
        checks: Vec::new(),
    };
    assert_eq!(stream.event().await.unwrap(), event(gone, CatalogOp::Deregister, instance));
}

#[tokio::test(flavor = "multi_thread")]
async fn services_are_reached_in_the_mesh_by_their_proxies_gateways_and_themselves() {
    let cluster = Cluster::start(Settings::alone()).await;
    let mut mesh = Subscriber::open(&cluster, 0, named(Topic::ServiceHealthConnect, "Web")).await.unwrap();
    assert!(matches!(mesh.next().await, Delivery::End(_)));
    let with = |service: Service| Registration { service: Some(service), ..on("n1") };
    // An ordinary instance is not reachable in the mesh.
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
    let at = cluster.node(0).catalog().set_gateway(&ctx(), entry).await.unwrap().index.get();
    assert_eq!(mesh.next().await, reg(at, "n1/gw"));
    // The sidecar becomes that of another service: subscribers of this one get its removal.
    let proxy = Proxy { destination_service_name: "api".to_owned(), ..Proxy::default() };
    let at = apply(&cluster, 0, with(Service { proxy, ..sidecar })).await;
    assert_eq!(mesh.next().await, dereg(at, "n1/sidecar"));
    // A new subscriber gets the same.
    let mut again = Subscriber::open(&cluster, 0, named(Topic::ServiceHealthConnect, "web")).await.unwrap();
    let (mut found, _) = again.snapshot().await;
    found.sort();
    assert_eq!(found, ["n1/gw", "n1/native"]);
}

fn text(text: &str) -> String {
    text.to_owned()
}

/// A map with this one key and value.
fn one<K, V, M: FromIterator<(K, V)>>(key: K, value: V) -> M {
    [(key, value)].into_iter().collect()
}

fn of_seconds(seconds: i64, nanos: i32) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos })
}

/// A bool of a check's definition: Consul's name, and how to set it in our type and in the proto.
/// Each bool is set in a check of its own, so that two mixed-up ones are noticed.
type Switch = (&'static str, fn(&mut CheckDefinition), fn(&mut pb::HealthCheckDefinition));

const SWITCHES: [Switch; 5] = [
    ("TLSSkipVerify", |it| it.tls_skip_verify = true, |it| it.tls_skip_verify = true),
    ("GRPCUseTLS", |it| it.grpc_use_tls = true, |it| it.grpc_use_tls = true),
    ("H2PingUseTLS", |it| it.h2ping_use_tls = true, |it| it.h2_ping_use_tls = true),
    ("DisableRedirects", |it| it.disable_redirects = true, |it| it.disable_redirects = true),
    ("TCPUseTLS", |it| it.tcp_use_tls = true, |it| it.tcp_use_tls = true),
];

/// A definition with a different value in every field, but with all bools false.
fn definition() -> CheckDefinition {
    CheckDefinition {
        http: text("http"),
        tls_skip_verify: false,
        header: one(text("header"), vec![text("header-1"), text("header-2")]),
        method: text("method"),
        body: text("body"),
        tls_server_name: text("tls-server-name"),
        disable_redirects: false,
        tcp: text("tcp"),
        tcp_use_tls: false,
        udp: text("udp"),
        grpc: text("grpc"),
        grpc_use_tls: false,
        h2ping: text("h2ping"),
        h2ping_use_tls: false,
        os_service: text("os-service"),
        script_args: vec![text("script"), text("args")],
        docker_container_id: text("docker-container-id"),
        shell: text("shell"),
        alias_node: text("alias-node"),
        alias_service: text("alias-service"),
        output_max_size: 17,
        interval_ns: 11_000_000_001,
        timeout_ns: 12_000_000_002,
        ttl_ns: 13_000_000_003,
        deregister_critical_after_ns: 140_000_000_004,
    }
}

fn sent_definition() -> pb::HealthCheckDefinition {
    pb::HealthCheckDefinition {
        http: text("http"),
        tls_skip_verify: false,
        header: one(text("header"), pb::HeaderValue { value: vec![text("header-1"), text("header-2")] }),
        method: text("method"),
        tcp: text("tcp"),
        interval: of_seconds(11, 1),
        timeout: of_seconds(12, 2),
        deregister_critical_service_after: of_seconds(140, 4),
        output_max_size: 17,
        script_args: vec![text("script"), text("args")],
        docker_container_id: text("docker-container-id"),
        shell: text("shell"),
        grpc: text("grpc"),
        grpc_use_tls: false,
        alias_node: text("alias-node"),
        alias_service: text("alias-service"),
        ttl: of_seconds(13, 3),
        body: text("body"),
        tls_server_name: text("tls-server-name"),
        h2ping: text("h2ping"),
        h2_ping_use_tls: false,
        disable_redirects: false,
        udp: text("udp"),
        os_service: text("os-service"),
        tcp_use_tls: false,
    }
}

/// A registration of a node, an instance on it and checks of both, with a different value in every
/// field.
fn whole() -> Registration {
    let node = CatalogNode {
        name: text("node-name"),
        id: text("11111111-2222-3333-4444-555555555555"),
        address: text("node-address"),
        tagged_addresses: one(text("node-tag"), text("node-tagged")),
        meta: one(text("node-meta-key"), text("node-meta-value")),
        locality: Some(Locality { region: text("node-region"), zone: text("node-zone") }),
        ..CatalogNode::default()
    };
    let proxy = Proxy {
        destination_service_name: text("destination-name"),
        destination_service_id: text("destination-id"),
        local_service_address: text("local-address"),
        local_service_port: 21,
        local_service_socket_path: text("local-socket-path"),
        mode: text("mode"),
        more_json: text(
            r#"{"AccessLogs":{"Path":"logs"},"Expose":{"Checks":true},"MeshGateway":{"Mode":"mesh-mode"}}"#,
        ),
    };
    let service = Service {
        kind: ServiceKind::ConnectProxy,
        id: text("service-id"),
        name: text("service-name"),
        tags: vec![text("tag-b"), text("tag-a")],
        address: text("service-address"),
        tagged_addresses: one(text("service-tag"), ServiceAddress { address: text("service-tagged"), port: 22 }),
        meta: one(text("service-meta-key"), text("service-meta-value")),
        port: 23,
        socket_path: text("service-socket-path"),
        weights: Weights { passing: 24, warning: 25 },
        enable_tag_override: true,
        proxy,
        connect: ServiceConnect { native: false, more_json: text(r#"{"PeerMeta":{"Protocol":"peer-protocol"}}"#) },
        locality: Some(Locality { region: text("service-region"), zone: text("service-zone") }),
        ..Service::default()
    };
    let check = |id: &str, definition: CheckDefinition| Check {
        id: text(id),
        name: text("check-name"),
        status: CheckStatus::Warning,
        notes: text("check-notes"),
        output: text("check-output"),
        service_id: text("service-id"),
        type_: text("check-type"),
        definition,
        interval: text("check-interval"),
        timeout: text("check-timeout"),
        exposed_port: 26,
        ..Check::default()
    };
    let of_node = Check { id: text("node-check"), name: text("of the node"), ..Check::default() };
    let mut checks = vec![of_node, check("check-id", definition())];
    checks.extend(SWITCHES.map(|(id, set, _)| {
        let mut switched = CheckDefinition::default();
        set(&mut switched);
        check(id, switched)
    }));
    Registration { node, service: Some(service), checks, ..Registration::default() }
}

/// The payload that subscribers get for [`whole`], if all of it was created and modified at these
/// log indexes.
fn sent_whole(created: u64, modified: u64) -> pb::CheckServiceNode {
    let node = pb::Node {
        id: text("11111111-2222-3333-4444-555555555555"),
        node: text("node-name"),
        address: text("node-address"),
        datacenter: text("dc1"),
        tagged_addresses: one(text("node-tag"), text("node-tagged")),
        meta: one(text("node-meta-key"), text("node-meta-value")),
        raft_index: raft(created, modified),
        partition: String::new(),
        peer_name: String::new(),
        locality: Some(PbLocality { region: text("node-region"), zone: text("node-zone") }),
    };
    let proxy = pb::ConnectProxyConfig {
        destination_service_name: text("destination-name"),
        destination_service_id: text("destination-id"),
        local_service_address: text("local-address"),
        local_service_port: 21,
        local_service_socket_path: text("local-socket-path"),
        mode: text("mode"),
        mesh_gateway: Some(pb::MeshGatewayConfig { mode: text("mesh-mode") }),
        expose: Some(pb::ExposeConfig { checks: true, ..Default::default() }),
        transparent_proxy: Some(pb::TransparentProxyConfig::default()),
        access_logs: Some(pb::AccessLogsConfig { path: text("logs"), ..Default::default() }),
        ..Default::default()
    };
    let peer_meta = pb::PeeringServiceMeta { protocol: text("peer-protocol"), ..Default::default() };
    let address = pb::ServiceAddress { address: text("service-tagged"), port: 22 };
    let service = pb::NodeService {
        kind: text("connect-proxy"),
        id: text("service-id"),
        service: text("service-name"),
        tags: vec![text("tag-b"), text("tag-a")],
        address: text("service-address"),
        meta: one(text("service-meta-key"), text("service-meta-value")),
        port: 23,
        weights: Some(pb::Weights { passing: 24, warning: 25 }),
        enable_tag_override: true,
        proxy: Some(proxy),
        connect: Some(pb::ServiceConnect { peer_meta: Some(peer_meta), ..Default::default() }),
        locally_registered_as_sidecar: false,
        raft_index: raft(created, modified),
        tagged_addresses: one(text("service-tag"), address),
        enterprise_meta: Some(EnterpriseMeta::default()),
        socket_path: text("service-socket-path"),
        peer_name: String::new(),
        locality: Some(PbLocality { region: text("service-region"), zone: text("service-zone") }),
    };
    let check = |id: &str, definition: pb::HealthCheckDefinition| pb::HealthCheck {
        node: text("node-name"),
        check_id: text(id),
        name: text("check-name"),
        status: text("warning"),
        notes: text("check-notes"),
        output: text("check-output"),
        service_id: text("service-id"),
        service_name: text("service-name"),
        service_tags: vec![text("tag-b"), text("tag-a")],
        definition: Some(definition),
        raft_index: raft(created, modified),
        r#type: text("check-type"),
        enterprise_meta: Some(EnterpriseMeta::default()),
        exposed_port: 26,
        interval: text("check-interval"),
        timeout: text("check-timeout"),
        peer_name: String::new(),
    };
    let zero = pb::HealthCheckDefinition {
        interval: of_seconds(0, 0),
        timeout: of_seconds(0, 0),
        deregister_critical_service_after: of_seconds(0, 0),
        ttl: of_seconds(0, 0),
        ..Default::default()
    };
    let of_node = pb::HealthCheck {
        node: text("node-name"),
        check_id: text("node-check"),
        name: text("of the node"),
        status: text("critical"),
        definition: Some(zero.clone()),
        raft_index: raft(created, modified),
        enterprise_meta: Some(EnterpriseMeta::default()),
        ..Default::default()
    };
    let mut checks: Vec<pb::HealthCheck> = SWITCHES
        .iter()
        .map(|(id, _, set)| {
            let mut switched = zero.clone();
            set(&mut switched);
            check(id, switched)
        })
        .collect();
    checks.push(check("check-id", sent_definition()));
    checks.sort_by(|a, b| a.check_id.cmp(&b.check_id));
    // Checks of the node come first.
    checks.insert(0, of_node);
    pb::CheckServiceNode { node: Some(node), service: Some(service), checks }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_member_arrives_in_its_own_place() {
    let cluster = Cluster::start(Settings::alone()).await;
    // An earlier registration, so that the create and modify indexes differ.
    let mut before = whole();
    before.node.address = text("before");
    before.service.as_mut().unwrap().address = text("before");
    before.checks.iter_mut().for_each(|check| check.output = text("before"));
    let created = apply(&cluster, 0, before).await;
    let modified = apply(&cluster, 0, whole()).await;
    assert!(modified > created);
    let mut stream = Subscriber::open(&cluster, 0, health("service-name")).await.unwrap();
    let found = stream.event().await.unwrap();
    assert_eq!(found, event(found.index, CatalogOp::Register, sent_whole(created, modified)));
    assert_eq!(stream.next().await, Delivery::End(found.index));
    // Also in an event shared with other topics: the mesh.
    let mut mesh = Subscriber::open(&cluster, 0, named(Topic::ServiceHealthConnect, "destination-name")).await.unwrap();
    assert_eq!(mesh.event().await.unwrap().payload, found.payload);
    assert!(matches!(mesh.next().await, Delivery::End(_)));
    // Also live.
    let native = Service {
        id: text("native-id"),
        name: text("native-name"),
        connect: ServiceConnect { native: true, ..ServiceConnect::default() },
        ..Service::default()
    };
    let mut stream = Subscriber::open(&cluster, 0, health("native-name")).await.unwrap();
    assert!(matches!(stream.next().await, Delivery::End(_)));
    let registration = Registration { service: Some(native), skip_node_update: true, ..on("node-name") };
    let at = apply(&cluster, 0, registration).await;
    let Some(Payload::ServiceHealth(update)) = stream.event().await.unwrap().payload else { panic!("it has health") };
    let sent = update.check_service_node.unwrap();
    assert_eq!(sent.node, sent_whole(created, modified).node);
    let service = sent.service.unwrap();
    assert_eq!((service.connect.unwrap().native, service.enable_tag_override), (true, false));
    assert_eq!(service.raft_index, raft(at, at));
}
