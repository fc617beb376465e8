//! DNS answers about names of the catalog.

use std::collections::BTreeMap;

use headwater::node::RequestContext;
use headwater::types::catalog::{
    CatalogNode, CheckStatus, Deregistration, DeregistrationTarget, Registration, Service, Weights,
};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{DNSClass, RecordType};

use super::client::{answer_lines, applied, instance, question, register, resolver, tcp, udp, udp_packet};
use crate::cluster::{Cluster, Settings};

const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

async fn one() -> Cluster {
    Cluster::start(Settings::alone()).await
}

async fn ask(cluster: &Cluster, name: &str, wanted: RecordType) -> Message {
    udp(cluster.dns_address(0), &question(name, wanted, None)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_follow_health_on_every_member() {
    let cluster = Cluster::three().await;
    let follower = cluster.follower().await;
    register(&cluster, follower, instance("web", 1, CheckStatus::Passing)).await;
    register(&cluster, follower, instance("web", 2, CheckStatus::Passing)).await;
    let both = ["8080 n1.node.dc1.consul.", "8080 n2.node.dc1.consul."];
    let seen = async |wanted: &[&str]| {
        for member in cluster.running() {
            let server = cluster.dns_address(member);
            for answer in [
                udp(server, &question("web.service.consul.", RecordType::SRV, None)).await,
                tcp(server, &question("WEB.Service.dc1.CONSUL.", RecordType::SRV, None)).await,
            ] {
                let mut lines: Vec<String> = wanted.iter().map(|end| format!("1 1 {end}")).collect();
                let code = if wanted.is_empty() { "NXDomain" } else { "NoError" };
                lines.insert(0, code.into());
                assert_eq!(answer_lines(&answer), lines, "member {member}");
                assert_eq!(answer.additionals.len(), wanted.len(), "the nodes' addresses come along");
            }
        }
    };
    seen(&both).await;
    // An instance with a warning is in the answer, one with a critical check is not.
    register(&cluster, follower, instance("web", 1, CheckStatus::Warning)).await;
    seen(&both).await;
    register(&cluster, follower, instance("web", 1, CheckStatus::Critical)).await;
    seen(&both[1..]).await;
    register(&cluster, follower, instance("web", 2, CheckStatus::Critical)).await;
    seen(&[]).await;
    register(&cluster, follower, instance("web", 1, CheckStatus::Passing)).await;
    seen(&both[..1]).await;
    // A check of the node applies to all its instances.
    let mut node_check = instance("web", 1, CheckStatus::Critical);
    node_check.service = None;
    node_check.checks[0].service_id.clear();
    node_check.checks[0].id = "disk".into();
    register(&cluster, follower, node_check).await;
    seen(&[]).await;
    let gone =
        Deregistration { node: "n1".into(), what: DeregistrationTarget::Check("disk".into()), ..Default::default() };
    let done = cluster.node(follower).catalog().deregister(&RequestContext::within(TIMEOUT), gone).await.unwrap();
    applied(&cluster, done.index).await;
    seen(&both[..1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_finds_services_and_nodes() {
    let cluster = one().await;
    register(&cluster, 0, instance("web", 1, CheckStatus::Passing)).await;
    let resolver = resolver(cluster.dns_address(0));
    let addresses = resolver.lookup_ip("web.service.consul.").await.unwrap();
    assert_eq!(addresses.iter().collect::<Vec<_>>(), ["10.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
    let services = resolver.srv_lookup("_web._tcp.service.consul.").await.unwrap();
    let targets: Vec<String> = services.answers().iter().map(|record| record.data.to_string()).collect();
    assert_eq!(targets, ["1 1 8080 n1.node.dc1.consul."]);
    let node = resolver.lookup_ip("n1.node.dc1.consul.").await.unwrap();
    assert_eq!(node.iter().count(), 1);

    // A missing name, and a name without records of the type, get different codes.
    let missing = resolver.lookup("web2.service.consul.", RecordType::A).await.unwrap_err();
    assert!(missing.is_nx_domain(), "{missing}");
    let other = resolver.lookup("web.service.consul.", RecordType::AAAA).await.unwrap_err();
    assert!(other.is_no_records_found() && !other.is_nx_domain(), "{other}");

    // The answer does not fit and is truncated: the resolver repeats the question over TCP.
    for number in 2..=100 {
        register(&cluster, 0, instance("web", number, CheckStatus::Passing)).await;
    }
    assert_eq!(resolver.lookup_ip("web.service.consul.").await.unwrap().iter().count(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_all_kinds() {
    let cluster = one().await;
    let registration = Registration {
        node: CatalogNode {
            name: "Db-1".into(),
            address: "10.1.0.1".into(),
            tagged_addresses: BTreeMap::from([("lan_ipv6".into(), "2001:db8::1".into())]),
            meta: BTreeMap::from([("rack".into(), "r1".into())]),
            ..CatalogNode::default()
        },
        service: Some(Service {
            name: "db".into(),
            tags: vec!["Primary".into(), "v1.2".into()],
            address: "10.9.9.9".into(),
            port: 5432,
            weights: Weights { passing: 7, warning: 1 },
            ..Service::default()
        }),
        ..Registration::default()
    };
    register(&cluster, 0, registration).await;
    let srv = "1 7 5432 0a090909.addr.dc1.consul.";
    let cases: &[(&str, RecordType, &[&str])] = &[
        ("db.service.consul.", RecordType::A, &["NoError", "10.9.9.9"]),
        ("db.service.consul.", RecordType::ANY, &["NoError", "10.9.9.9"]),
        ("db.service.consul.", RecordType::AAAA, &["NoError"]),
        ("primary.db.service.consul.", RecordType::SRV, &["NoError", srv]),
        ("v1.2.db.service.dc1.consul.", RecordType::SRV, &["NoError", srv]),
        ("secondary.db.service.consul.", RecordType::SRV, &["NXDomain"]),
        ("_db._tcp.service.consul.", RecordType::SRV, &["NoError", srv]),
        ("_db._primary.service.consul.", RecordType::SRV, &["NoError", srv]),
        ("_db._secondary.service.consul.", RecordType::SRV, &["NXDomain"]),
        ("db.service.dc2.consul.", RecordType::A, &["NXDomain"]),
        ("0a090909.addr.dc1.consul.", RecordType::A, &["NoError", "10.9.9.9"]),
        ("db-1.node.consul.", RecordType::A, &["NoError", "10.1.0.1"]),
        ("DB-1.NODE.dc1.consul.", RecordType::AAAA, &["NoError", "2001:db8::1"]),
        ("db-1.node.consul.", RecordType::TXT, &["NoError", "rack=r1"]),
        ("db-1.node.consul.", RecordType::ANY, &["NoError", "10.1.0.1", "2001:db8::1", "rack=r1"]),
        ("db-2.node.consul.", RecordType::A, &["NXDomain"]),
        ("service.consul.", RecordType::A, &["NoError"]),
        ("consul.", RecordType::NS, &["NoError", "ns.consul."]),
        ("ns.consul.", RecordType::A, &["NoError", "127.0.0.1"]),
        ("example.com.", RecordType::A, &["Refused"]),
        ("1.0.0.10.in-addr.arpa.", RecordType::PTR, &["Refused"]),
    ];
    for (name, wanted, lines) in cases {
        let answer = ask(&cluster, name, *wanted).await;
        assert_eq!(answer_lines(&answer), *lines, "{name} {wanted}");
        let is_ours = answer.metadata.response_code != ResponseCode::Refused;
        assert_eq!(answer.metadata.authoritative, is_ours, "{name} {wanted}");
        let is_negative = is_ours && answer.answers.is_empty();
        let authority: Vec<String> = answer.authorities.iter().map(|record| record.name.to_ascii()).collect();
        assert_eq!(authority, vec!["consul."; usize::from(is_negative)], "{name} {wanted}");
        assert!(answer.answers.iter().all(|record| record.ttl == 0), "{name} {wanted}");
    }
    let soa = ask(&cluster, "consul.", RecordType::SOA).await;
    assert!(answer_lines(&soa)[1].starts_with("ns.consul. hostmaster.consul. "), "{soa}");
    let mut chaos = question("version.bind.", RecordType::TXT, None);
    chaos.queries[0].set_query_class(DNSClass::CH);
    assert_eq!(answer_lines(&udp(cluster.dns_address(0), &chaos).await), ["Refused"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_of_answers() {
    let cluster = one().await;
    for number in 1..=120 {
        register(&cluster, 0, instance("web", number, CheckStatus::Passing)).await;
    }
    let server = cluster.dns_address(0);
    let sizes = async |wanted: RecordType, payload: Option<u16>| {
        let packet = udp_packet(server, &question("web.service.consul.", wanted, payload).to_vec().unwrap()).await;
        let answer = Message::from_vec(&packet).unwrap();
        (packet.len(), answer.answers.len(), answer.metadata.truncation)
    };
    // A packet of the default size gets some of the records, without the truncation flag.
    let (bytes, answers, is_cut) = sizes(RecordType::A, None).await;
    assert_eq!((bytes, answers, is_cut), (36 + 3 * 16, 3, false));
    let (bytes, answers, is_cut) = sizes(RecordType::SRV, None).await;
    assert!(bytes <= 512 && answers == 3 && !is_cut, "{bytes} {answers} {is_cut}");
    // A larger packet gets as many as fit, with the truncation flag.
    let (bytes, answers, is_cut) = sizes(RecordType::A, Some(1000)).await;
    assert_eq!((bytes, answers, is_cut), (36 + 59 * 16 + 11, 59, true));
    let (bytes, answers, is_cut) = sizes(RecordType::A, Some(4096)).await;
    assert_eq!((bytes, answers, is_cut), (36 + 74 * 16 + 11, 74, true));
    let whole = tcp(server, &question("web.service.consul.", RecordType::SRV, None)).await;
    assert_eq!((whole.answers.len(), whole.additionals.len(), whole.metadata.truncation), (120, 120, false));
}
