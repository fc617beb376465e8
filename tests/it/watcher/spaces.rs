//! The spaces other than `kv`: the list of spaces, resources, the service catalog, leases and
//! members.

use headwater::pb::etcdserverpb as etcd;
use headwater::pb::etcdserverpb::lease_client::LeaseClient;
use headwater::pb::hashicorp::consul::resource as pb;
use headwater::pb::hashicorp::consul::resource::resource_service_client::ResourceServiceClient;
use headwater::types::catalog::{CheckStatus, DeregistrationTarget};

use super::cases::Member;
use super::client::{Follower, Via, show};
use crate::resources::client::{Client, Scope, id_of, named, type_of};
use crate::subscribe::client::{check, deregister, register};

pub async fn run_all(member: Member<'_>) {
    the_root_lists_the_spaces(member).await;
    resources_are_a_tree(member).await;
    resources_move_between_versions(member).await;
    leases_come_and_go(member).await;
    members_are_listed(member).await;
    services_and_nodes_are_trees(member).await;
}

async fn follow(member: Member<'_>, target: &str, marker: &[u8]) -> Follower {
    Follower::open(&member.cluster.client_url(member.index), member.via, target, marker).await.unwrap()
}

async fn the_root_lists_the_spaces(member: Member<'_>) {
    let mut root = follow(member, "/", b"").await;
    let group = root.group().await;
    let names: Vec<_> = group.iter().map(|seen| seen.element.as_str()).collect();
    assert_eq!(names[0], "");
    assert!(names.contains(&"kv") && names.contains(&"resources"), "{names:?}");
    assert!(names.is_sorted());
    root.silent().await;
    follow(member, "/", b"now").await.expect(&["C(,S,m)"]).await;
    let marker = group.last().unwrap().marker.clone();
    follow(member, "/", &marker).await.expect(&["C(,E,Empty,m)"]).await;
    for name in names.iter().filter(|name| !name.is_empty()) {
        assert_eq!(show(&follow(member, &format!("/{name}"), b"now").await.group().await), ["C(,S,m)"]);
    }
}

fn partition(name: &str) -> pb::Resource {
    let type_ = pb::Type { group: "tenancy".into(), group_version: "v2beta1".into(), kind: "Partition".into() };
    let id = pb::Id { name: name.into(), r#type: Some(type_), ..Default::default() };
    pb::Resource { id: Some(id), ..Default::default() }
}

async fn resources_are_a_tree(member: Member<'_>) {
    let endpoint = tonic::transport::Endpoint::from_shared(member.cluster.client_url(member.index)).unwrap();
    let mut service = ResourceServiceClient::new(endpoint.connect().await.unwrap());
    let name = match member.via {
        Via::Grpc => "over-grpc",
        Via::Http => "over-http",
    };
    // The existing partitions are the store's own.
    let mut kinds = follow(member, "/resources/tenancy/v2beta1/Partition/~/~", b"").await;
    let before = kinds.group().await;
    assert!(before.iter().any(|seen| seen.element == "default"), "{before:?}");
    let mut one = follow(member, &format!("/resources/tenancy/v2beta1/Partition/~/~/{name}"), b"").await;
    one.expect(&["C(,X,m)"]).await;
    let mut all = follow(member, "/resources?recursive=true", b"now").await;
    all.group().await;
    let written = service.write(pb::WriteRequest { resource: Some(partition(name)) }).await.unwrap().into_inner();
    let written = written.resource.unwrap();
    let made = one.expect(&["C(,E,Resource,m)"]).await;
    assert_eq!(show(&kinds.group().await), [format!("C({name},E,Resource,m)")]);
    assert_eq!(show(&all.group().await), [format!("C(tenancy/v2beta1/Partition/~/~/{name},E,Resource,m)")]);
    let changed = pb::Resource { metadata: [("k".to_owned(), "v".to_owned())].into(), ..written };
    service.write(pb::WriteRequest { resource: Some(changed) }).await.unwrap();
    one.expect(&["C(,E,Resource,m)"]).await;
    let id = partition(name).id;
    service.delete(pb::DeleteRequest { id, version: String::new() }).await.unwrap();
    one.expect(&["C(,X,m)"]).await;
    let missed = follow(member, &format!("/resources/tenancy/v2beta1/Partition/~/~/{name}"), &made).await.group().await;
    assert_eq!(show(&missed).last().unwrap(), "C(,X,m)");
    // A group of types without a type does not exist.
    follow(member, "/resources/nosuch/v1", b"").await.expect(&["C(,X,m)"]).await;
    let versions = follow(member, "/resources/tenancy", b"").await.group().await;
    assert_eq!(show(&versions[..2]), ["C(,E,Empty,+)", "C(v2beta1,E,Empty,m)"]);
}

async fn resources_move_between_versions(member: Member<'_>) {
    let client = Client::of(member.cluster, member.index);
    let kind = match member.via {
        Via::Grpc => "OverGrpc",
        Via::Http => "OverHttp",
    };
    let [v1, v2] = ["v1", "v2"].map(|version| type_of("moving", version, kind));
    for type_ in [&v1, &v2] {
        client.register(type_, Scope::Cluster).await;
    }
    let first = client.write(named(v1, ("", ""), "a")).await.unwrap();
    let there = format!("/resources/moving/v1/{kind}/~/~/a");
    let mut as_v1 = follow(member, &there, b"").await;
    let start = as_v1.expect(&["C(,E,Resource,m)"]).await;
    let mut as_v2 = follow(member, &format!("/resources/moving/v2/{kind}?recursive=true"), b"").await;
    as_v2.expect(&["C(,X,m)"]).await;
    let moved = client.write(named(v2, ("", ""), "a")).await.unwrap();
    assert_eq!(id_of(&moved).uid, id_of(&first).uid);
    as_v1.expect(&["C(,X,m)"]).await;
    let came = as_v2.group().await;
    assert_eq!(show(&came).last().unwrap(), "C(~/~/a,E,Resource,m)");
    let missed = follow(member, &there, &start).await.group().await;
    assert_eq!(show(&missed), ["C(,X,m)"]);
    client.delete(id_of(&moved)).await.unwrap();
    as_v2.expect(&["C(,X,m)"]).await;
}

async fn leases_come_and_go(member: Member<'_>) {
    let mut leases = LeaseClient::connect(member.cluster.client_url(member.index)).await.unwrap();
    let id = match member.via {
        Via::Grpc => 0x77,
        Via::Http => 0x78,
    } + 16 * member.index as i64;
    let name = format!("{id:016x}");
    let mut all = follow(member, "/leases", b"now").await;
    all.group().await;
    let mut one = follow(member, &format!("/leases/{name}"), b"").await;
    let before = one.expect(&["C(,X,m)"]).await;
    let grant = etcd::LeaseGrantRequest { ttl: 600, id };
    leases.lease_grant(grant).await.unwrap();
    one.expect(&["C(,E,LeaseGrantResponse,m)"]).await;
    assert_eq!(show(&all.group().await), [format!("C({name},E,LeaseGrantResponse,m)")]);
    let listed = follow(member, "/leases", b"").await.group().await;
    assert!(listed.iter().any(|seen| seen.element == name), "{listed:?}");
    leases.lease_revoke(etcd::LeaseRevokeRequest { id }).await.unwrap();
    one.expect(&["C(,X,m)"]).await;
    assert_eq!(show(&all.group().await), [format!("C({name},X,m)")]);
    // Catch-up from history delivers it, too.
    let missed = follow(member, &format!("/leases/{name}"), &before).await.group().await;
    assert_eq!(show(&missed), ["C(,E,LeaseGrantResponse,+)", "C(,X,m)"]);
}

async fn members_are_listed(member: Member<'_>) {
    let listed = follow(member, "/cluster/members", b"").await.group().await;
    let mut wanted = vec!["C(,E,Empty,+)".to_owned()];
    wanted.extend((1..=3).map(|id| format!("C({id:016x},E,Member,{})", if id == 3 { "m" } else { "+" })));
    assert_eq!(show(&listed), wanted);
    follow(member, "/cluster", b"").await.expect(&["C(,E,Empty,+)", "C(members,E,Empty,m)"]).await;
    follow(member, "/cluster/members/0000000000000002", b"").await.expect(&["C(,E,Member,m)"]).await;
    follow(member, "/cluster/members/2", b"").await.expect(&["C(,X,m)"]).await;
}

async fn services_and_nodes_are_trees(member: Member<'_>) {
    let (cluster, index) = (member.cluster, member.index);
    let (n1, n2, service) = match member.via {
        Via::Grpc => ("Grpc-1", "Grpc-2", "Grpc-web"),
        Via::Http => ("Http-1", "Http-2", "Http-web"),
    };
    let (l1, l2, name) = (n1.to_lowercase(), n2.to_lowercase(), service.to_lowercase());
    let mut names = follow(member, "/services", b"now").await;
    names.group().await;
    let mut nodes = follow(member, "/nodes", b"now").await;
    nodes.group().await;
    let mut web = follow(member, &format!("/services/{service}?recursive=true"), b"").await;
    let before = web.expect(&["C(,X,m)"]).await;
    register(cluster, index, n1, "a", service).await;
    let (own, instance) = (format!("C({l1},E,Empty,+)"), format!("C({l1}/a,E,CheckServiceNode,m)"));
    web.expect(&["C(,E,Empty,+)", &own, &instance]).await;
    assert_eq!(show(&names.group().await), [format!("C({name},E,Empty,m)")]);
    assert_eq!(show(&nodes.group().await), [format!("C({l1},E,Node,m)")]);
    register(cluster, index, n2, "b", service).await;
    web.expect(&[&format!("C({l2},E,Empty,+)"), &format!("C({l2}/b,E,CheckServiceNode,m)")]).await;
    nodes.group().await;
    names.silent().await;
    // A check is a part of its instance, and no change of the node.
    check(cluster, index, n1, "a", CheckStatus::Critical).await;
    web.expect(&[&instance]).await;
    nodes.silent().await;
    let listed = show(&follow(member, &format!("/services/{name}"), b"").await.group().await);
    assert_eq!(listed, ["C(,E,Empty,+)".to_owned(), format!("C({l1},E,Empty,+)"), format!("C({l2},E,Empty,m)")]);
    follow(member, &format!("/services/{name}/{l1}/a"), b"").await.expect(&["C(,E,CheckServiceNode,m)"]).await;
    follow(member, &format!("/nodes/{n1}"), b"").await.expect(&["C(,E,Node,m)"]).await;
    deregister(cluster, index, n1, DeregistrationTarget::Service("a".to_owned())).await;
    web.expect(&[&format!("C({l1},X,m)")]).await;
    names.silent().await;
    deregister(cluster, index, n2, DeregistrationTarget::Node).await;
    web.expect(&["C(,X,m)"]).await;
    assert_eq!(show(&names.group().await), [format!("C({name},X,m)")]);
    assert_eq!(show(&nodes.group().await), [format!("C({l2},X,m)")]);
    deregister(cluster, index, n1, DeregistrationTarget::Node).await;
    let missed = follow(member, &format!("/services/{service}?recursive=true"), &before).await.group().await;
    assert_eq!(show(&missed).last().unwrap(), "C(,X,m)");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_come_change_and_leave() {
    let mut cluster = crate::cluster::Cluster::three().await;
    let url = cluster.client_url(0);
    let mut members = Follower::open(&url, Via::Grpc, "/cluster/members", b"").await.unwrap();
    let before = members.group().await.last().unwrap().marker.clone();
    let joined = cluster.join(true).await;
    let id = cluster.id(joined);
    let name = format!("{id:016x}");
    // Other members may still publish their own data.
    let come = loop {
        let group = members.group().await;
        if group[0].element == name {
            break group;
        }
    };
    assert_eq!(come[0].state, "EXISTS");
    cluster.members(0).member_remove(etcd::MemberRemoveRequest { id }).await.unwrap();
    let gone = loop {
        let group = members.group().await;
        if group[0].state == "DOES_NOT_EXIST" {
            break group;
        }
    };
    assert_eq!((gone.len(), gone[0].element.as_str()), (1, name.as_str()));
    // Another member delivers the same from history.
    let mut elsewhere = Follower::open(&cluster.client_url(1), Via::Http, "/cluster/members", &before).await.unwrap();
    let missed = elsewhere.group().await;
    let about = missed.iter().filter(|seen| seen.element == name).collect::<Vec<_>>();
    assert_eq!((about[0].state.as_str(), about.last().unwrap().state.as_str()), ("EXISTS", "DOES_NOT_EXIST"));
}
