//! The catalog: bytes that must not change, round trips, and bytes that must be refused.

use std::sync::Arc;

use super::*;
use crate::codec::{decode_applied, decode_proposal, encode_applied, encode_proposal};
use headwater_types::catalog::CheckServiceNode;
use headwater_types::{Applied, Command, Outcome, Proposal, Refusal, Revision, Supported};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

/// Every field is set.
fn node() -> CatalogNode {
    CatalogNode {
        name: "n".into(),
        id: "i".into(),
        address: "a".into(),
        tagged_addresses: [pair("wan", "w"), pair("lan", "l")].into(),
        meta: [pair("k", "v")].into(),
        locality: Some(Locality { region: "r".into(), zone: "z".into() }),
        created: LogIndex(3),
        modified: LogIndex(300),
    }
}

fn service() -> Service {
    Service {
        node: "n".into(),
        kind: ServiceKind::ConnectProxy,
        id: "i".into(),
        name: "s".into(),
        tags: vec!["b".into(), "a".into()],
        address: "x".into(),
        tagged_addresses: [("lan".into(), ServiceAddress { address: "l".into(), port: 1 })].into(),
        meta: [pair("k", "v")].into(),
        port: 80,
        socket_path: "/s".into(),
        weights: Weights { passing: 5, warning: 2 },
        enable_tag_override: true,
        proxy: Proxy {
            destination_service_name: "web".into(),
            destination_service_id: "w1".into(),
            local_service_address: "h".into(),
            local_service_port: 8,
            local_service_socket_path: "/p".into(),
            mode: "direct".into(),
            more_json: "{}".into(),
        },
        connect: ServiceConnect { native: true, more_json: "{}".into() },
        locality: Some(Locality { region: "r".into(), zone: String::new() }),
        created: LogIndex(3),
        modified: LogIndex(4),
    }
}

fn check() -> Check {
    let text = |text: &str| text.to_owned();
    Check {
        node: text("n"),
        id: text("c"),
        name: text("N"),
        status: CheckStatus::Warning,
        notes: text("no"),
        output: text("o"),
        service_id: text("i"),
        service_name: text("s"),
        service_tags: vec![text("t")],
        type_: text("ttl"),
        definition: CheckDefinition {
            http: text("1"),
            tls_skip_verify: true,
            header: [(text("h"), vec![text("1"), text("2")])].into(),
            method: text("2"),
            body: text("3"),
            tls_server_name: text("4"),
            disable_redirects: true,
            tcp: text("5"),
            tcp_use_tls: true,
            udp: text("6"),
            grpc: text("7"),
            grpc_use_tls: true,
            h2ping: text("8"),
            h2ping_use_tls: true,
            os_service: text("9"),
            script_args: vec![text("a")],
            docker_container_id: text("b"),
            shell: text("c"),
            alias_node: text("d"),
            alias_service: text("e"),
            output_max_size: 1,
            interval_ns: 2,
            timeout_ns: 3,
            ttl_ns: 4,
            deregister_critical_after_ns: 5,
        },
        interval: text("10s"),
        timeout: text("1s"),
        exposed_port: 7,
        created: LogIndex(3),
        modified: LogIndex(4),
    }
}

fn gateway() -> TerminatingGateway {
    let link = LinkedService {
        name: "s".into(),
        ca_file: "a".into(),
        cert_file: "b".into(),
        key_file: "c".into(),
        sni: "d".into(),
        disable_auto_host_rewrite: true,
    };
    TerminatingGateway {
        name: "gw".into(),
        services: vec![link, LinkedService { name: "t".into(), ..LinkedService::default() }],
        meta: [pair("k", "v")].into(),
        created: LogIndex(1),
        modified: LogIndex(2),
    }
}

fn small_node() -> CatalogNode {
    CatalogNode { name: "n".into(), ..CatalogNode::default() }
}

fn commands() -> Vec<(CatalogCommand, &'static str)> {
    let register = Registration {
        node: small_node(),
        skip_node_update: true,
        service: Some(Service { node: "n".into(), id: "i".into(), name: "s".into(), ..Service::default() }),
        checks: vec![Check { id: "c".into(), ..Check::default() }],
        replace_checks: true,
        keep_statuses: true,
        guard: Some(CheckGuard { check_id: "c".into(), modified: LogIndex(9) }),
    };
    let deregister = |what| {
        let guard = None;
        CatalogCommand::Deregister(Box::new(Deregistration { node: "n".into(), what, guard }))
    };
    vec![
        (
            CatalogCommand::Register(Box::new(register)),
            "01080592032c0a2a0a030a016e10011a0f0a016e10011a01692201735801600122051201632003280132050a016310093801",
        ),
        (deregister(DeregistrationTarget::Node), "01080592030512030a016e"),
        (deregister(DeregistrationTarget::Service("i".into())), "01080592030812060a016e120169"),
        (deregister(DeregistrationTarget::Check("c".into())), "01080592030812060a016e1a0163"),
        (
            CatalogCommand::SetGateway(Box::new(gateway())),
            "01080592032a1a280a02677712110a01731201611a01622201632a0164300112030a01741a060a016b12017620012802",
        ),
        (CatalogCommand::DeleteGateway("gw".into()), "01080592030422026777"),
    ]
}

fn outcomes() -> Vec<(Outcome, &'static str)> {
    vec![
        (Outcome::Catalog(CatalogDone { changed: true }), "01080810049203020801"),
        (Outcome::Catalog(CatalogDone { changed: false }), "0108081004920300"),
        (Outcome::Refused(Refusal::Catalog(CatalogRefusal::MissingService)), "0108081004820103900303"),
    ]
}

fn events() -> Vec<CatalogEvent> {
    let (health, connect) = (CatalogTopic::ServiceHealth, CatalogTopic::ServiceHealthConnect);
    let instance = |node, service, checks| CatalogBody::Instance(Arc::new(CheckServiceNode { node, service, checks }));
    let small =
        Service { node: "n".into(), id: "i".into(), name: "s".into(), modified: LogIndex(2), ..Service::default() };
    let gone = instance(Arc::new(small_node()), Arc::new(small), Vec::new());
    let there = instance(Arc::new(node()), Arc::new(service()), vec![Arc::new(check())]);
    let event = |topic, op, key: &str, body| CatalogEvent { topic, op, key: key.into(), body };
    vec![
        event(connect, CatalogOp::Deregister, "web", gone),
        event(health, CatalogOp::Register, "s", there),
        event(CatalogTopic::ServiceList, CatalogOp::Register, "s", CatalogBody::Name("s".into())),
        event(CatalogTopic::Node, CatalogOp::Deregister, "n", CatalogBody::Node(Arc::new(small_node()))),
        event(CatalogTopic::Table, CatalogOp::Register, "", CatalogBody::Table(CatalogTable::Checks)),
    ]
}

#[test]
fn golden_bytes_of_stored_rows() {
    let cases = [
        (
            "node",
            encode_node(&node()),
            "010a016e1201691a016122080a036c616e12016c22080a0377616e1201772a060a016b12017632060a017212017a380340ac02",
        ),
        (
            "service",
            encode_service(&service()),
            "010a016e10021a01692201732a01622a01613201783a0c0a036c616e12050a016c100142060a016b120176485052022f73580560026801721e0a03776562120277311a016820082a022f7032066469726563743a027b7d78018201027b7d8a01030a0172900103980104",
        ),
        (
            "check",
            encode_check(&check()),
            "010a016e1201631a014e20022a026e6f32016f3a01694201734a0174520374746c5a550a013110011a0b0a016812060a01310a01322201322a0133320134380142013548015201365a013760016a013870017a0139820101618a010162920101639a010164a2010165a80101b00102b80103c00104c8010562033130736a02317370077803800104",
        ),
        (
            "gateway",
            encode_gateway(&gateway()),
            "010a02677712110a01731201611a01622201632a0164300112030a01741a060a016b12017620012802",
        ),
        (
            "events",
            encode_events(&events()),
            "010a22080210011a037765622a170a016e12120a016e10011a0169220173580160019801020a1008011a017322090a016e1201691a01630a0808031a01733201730a0a080410011a016e3a016e0a0408054003",
        ),
    ];
    for (name, bytes, golden) in cases {
        assert_eq!(hex(&bytes), golden, "{name}");
    }
}

#[test]
fn rows_read_back_and_are_as_old_as_their_record_says() {
    let at = LogIndex(77);
    assert_eq!(decode_node(encode_node(&node()), at), Ok(node()));
    assert_eq!(decode_service(encode_service(&service()), at), Ok(service()));
    assert_eq!(decode_check(encode_check(&check()), at), Ok(check()));
    assert_eq!(decode_gateway(encode_gateway(&gateway()), at), Ok(gateway()));
    let stored = CatalogNode { modified: LogIndex::ZERO, ..node() };
    assert_eq!(decode_node(encode_node(&stored), at), Ok(CatalogNode { modified: at, ..node() }));
}

#[test]
fn golden_bytes_of_commands_and_outcomes() {
    for (command, golden) in commands() {
        let proposal = Proposal::new(5, Command::Catalog(command));
        let bytes = encode_proposal(&proposal).unwrap();
        assert_eq!(hex(&bytes), golden, "{proposal:?}");
        assert_eq!(decode_proposal(bytes, Supported::RELEASE), Ok(Some(proposal)));
    }
    for (outcome, golden) in outcomes() {
        let applied = Applied { index: LogIndex(8), revision: Revision(4), outcome };
        let bytes = encode_applied(&applied);
        assert_eq!(hex(&bytes), golden, "{applied:?}");
        assert_eq!(decode_applied(bytes), Ok(applied));
    }
}

#[test]
fn events_name_rows_that_stay_and_hold_those_that_went() {
    let read = decode_events(encode_events(&events())).unwrap();
    let bodies: Vec<RecordedBody> = read.iter().map(|event| event.body.clone()).collect();
    let gone =
        Service { node: "n".into(), id: "i".into(), name: "s".into(), modified: LogIndex(2), ..Service::default() };
    assert_eq!(
        bodies,
        [
            RecordedBody::Gone { node: "n".into(), service: Box::new(gone) },
            RecordedBody::Instance { node: "n".into(), service_id: "i".into(), check_ids: vec!["c".into()] },
            RecordedBody::Name("s".into()),
            RecordedBody::Node("n".into()),
            RecordedBody::Table(CatalogTable::Checks),
        ]
    );
    let decoded: Vec<_> = read.iter().map(|event| (event.topic, event.op, event.key.as_str())).collect();
    let given = events();
    let given: Vec<_> = given.iter().map(|event| (event.topic, event.op, event.key.as_ref())).collect();
    assert_eq!(decoded, given);
}

#[test]
fn what_is_not_known_is_refused() {
    let wrong = |message: pb::CatalogService| decode_service(encode_message(FORMAT, &message), LogIndex(1));
    let known = write_service(&service());
    assert_eq!(wrong(pb::CatalogService { kind: 0, ..known.clone() }), Err(unknown("CatalogService.kind", 0)));
    assert_eq!(wrong(pb::CatalogService { kind: 7, ..known }), Err(unknown("CatalogService.kind", 7)));
    let message = pb::CatalogCheck { status: 0, ..write_check(&check()) };
    let read = decode_check(encode_message(FORMAT, &message), LogIndex(1));
    assert_eq!(read, Err(unknown("CatalogCheck.status", 0)));
    assert_eq!(read_command(pb::CatalogCommand { command: None }), Err(CodecError::UnknownCommand));
    assert_eq!(read_refusal(0), Err(unknown("Refusal.catalog", 0)));
    assert_eq!(read_refusal(6), Err(unknown("Refusal.catalog", 6)));
    for topic in [0, 6] {
        let event =
            pb::CatalogEvent { topic, body: Some(pb::catalog_event::Body::Name("s".into())), ..Default::default() };
        let read = decode_events(encode_message(FORMAT, &pb::CatalogEvents { events: vec![event] }));
        assert_eq!(read, Err(unknown("CatalogEvent.topic", topic)));
    }
    assert!(decode_events(Bytes::from_static(&[2])).is_err(), "another format");
    assert!(decode_node(Bytes::new(), LogIndex(1)).is_err());
}
