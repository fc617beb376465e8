//! The other spaces: the list of them, and resources.

use headwater::pb::hashicorp::consul::resource as pb;
use headwater::pb::hashicorp::consul::resource::resource_service_client::ResourceServiceClient;

use super::cases::Member;
use super::client::{Follower, Via, show};

pub async fn run_all(member: Member<'_>) {
    the_root_lists_the_spaces(member).await;
    resources_are_a_tree(member).await;
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
    // Those that are there already are the store's own.
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
    // A group that has nothing is not there.
    follow(member, "/resources/nosuch/v1", b"").await.expect(&["C(,X,m)"]).await;
    let versions = follow(member, "/resources/tenancy", b"").await.group().await;
    assert_eq!(show(&versions[..2]), ["C(,E,Empty,+)", "C(v2beta1,E,Empty,m)"]);
}
