//! Lists (spec: consul §5.11), whole and in pages.

use headwater::pb::pbresource as pb;
use tonic::Code;

use super::client::{
    Client, Scope, artist, artist_type, artist_v1_type, executive_type, label_type, name_of, named, names_of, refused,
    tenancy, type_of,
};
use crate::cluster::{Cluster, Settings, put};

fn request(type_: pb::Type, units: (&str, &str)) -> pb::ListRequest {
    pb::ListRequest { r#type: Some(type_), tenancy: Some(tenancy(units)), name_prefix: String::new() }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_checked_and_filled_in() {
    let cluster = Cluster::start(Settings::alone()).await;
    let client = Client::of(&cluster, 0);
    client.register_demo().await;
    let long = "a".repeat(64);
    let plain = || request(artist_type(), ("default", "default"));
    let code = Code::InvalidArgument;
    for (request, said) in [
        (pb::ListRequest { r#type: None, ..plain() }, "type is required"),
        (pb::ListRequest { tenancy: None, ..plain() }, "tenancy is required"),
        (request(artist_type(), ("Mixed", "default")), "tenancy.partition"),
        (request(artist_type(), (&long, "default")), "tenancy.partition"),
        (request(artist_type(), ("default", "Mixed")), "tenancy.namespace"),
        (pb::ListRequest { name_prefix: "Upper".into(), ..plain() }, "name_prefix"),
        (request(label_type(), ("default", "default")), "cannot have a namespace"),
        (request(executive_type(), ("default", "")), "cannot have a partition"),
        (request(type_of("demo", "v9", "Artist"), ("", "")), "not registered"),
    ] {
        refused(client.list_response(request.clone()).await, code, said);
        if request.tenancy.is_some() {
            let units = request.tenancy.as_ref().map(|units| (units.partition.as_str(), units.namespace.as_str()));
            let type_ = request.r#type.clone();
            if let Some(type_) = type_ {
                let watch = client.watch(type_, units, &request.name_prefix).await;
                assert!(watch.is_err_and(|status| status.code() == code), "{request:?}");
            }
        }
    }
    assert_eq!(client.list(artist_type(), ("", ""), "").await.unwrap(), []);
    for name in ["aa", "ab", "b"] {
        client.write(artist(name)).await.unwrap();
    }
    client.write(named(label_type(), ("", ""), "label")).await.unwrap();
    client.write(named(executive_type(), ("", ""), "executive")).await.unwrap();
    for units in [("default", "default"), ("", ""), ("*", "*"), ("default", "*"), ("*", "")] {
        assert_eq!(names_of(&client.list(artist_type(), units, "").await.unwrap()), ["aa", "ab", "b"], "{units:?}");
        assert_eq!(names_of(&client.list(artist_type(), units, "a").await.unwrap()), ["aa", "ab"], "{units:?}");
    }
    for units in [("default", ""), ("", ""), ("*", "*"), ("*", "")] {
        assert_eq!(names_of(&client.list(label_type(), units, "").await.unwrap()), ["label"], "{units:?}");
    }
    for units in [("", ""), ("*", "*")] {
        assert_eq!(names_of(&client.list(executive_type(), units, "").await.unwrap()), ["executive"], "{units:?}");
    }
    assert_eq!(client.list(artist_v1_type(), ("", ""), "").await.unwrap(), [], "another version of the kind");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_one_state_on_any_member() {
    let cluster = Cluster::three().await;
    let writer = Client::of(&cluster, cluster.leader().await);
    let type_ = type_of("demo", "v1", "Thing");
    writer.register(&type_, Scope::Namespace).await;
    for number in 0..10 {
        writer.write(named(type_.clone(), ("", ""), &format!("t-{number:02}"))).await.unwrap();
    }
    let whole = writer.list(type_.clone(), ("", ""), "").await.unwrap();
    for size in [1, 3, 5, 10, 11] {
        let mut seen = Vec::new();
        let mut token: Option<String> = None;
        loop {
            // Every page comes from another member.
            let mut client = Client::of(&cluster, seen.len() % 3).with("headwater-page-size", size.to_string());
            // The first page must see the writes at other members.
            if token.is_none() {
                client = client.consistent();
            }
            if let Some(token) = &token {
                client = client.with("headwater-page-token", token.clone());
            }
            let page = client.list_response(request(type_.clone(), ("", ""))).await.unwrap();
            token = page.metadata().get("headwater-page-token").map(|token| token.to_str().unwrap().to_owned());
            let page = page.into_inner().resources;
            assert!(page.len() <= size);
            seen.extend(page);
            // Writes after the first page are not in this list.
            let extra = named(type_.clone(), ("", ""), &format!("t-{:02}-extra-{size}", seen.len()));
            let extra = writer.write(extra).await.unwrap();
            let again = writer.write(named(type_.clone(), ("", ""), "t-09")).await.unwrap();
            assert_ne!(again.version, whole[9].version);
            writer.delete(extra.id.unwrap()).await.unwrap();
            if token.is_none() {
                break;
            }
        }
        assert_eq!(
            seen.iter().map(name_of).collect::<Vec<_>>(),
            whole.iter().map(name_of).collect::<Vec<_>>(),
            "{size}"
        );
    }
    for (name, value) in [
        ("headwater-page-size", "many"),
        ("headwater-page-token", "!"),
        ("headwater-page-token", "AAAAAAAAAAAAAAAAAAAAAAAA"),
        // A token of another lineage with an index that this one does not have is refused at once.
        ("headwater-page-token", "AAAAAAAAAAEAAAEAAAAAAA"),
    ] {
        let client = writer.with(name, value);
        let refused = client.list_response(request(type_.clone(), ("", ""))).await.unwrap_err();
        assert!(matches!(refused.code(), Code::InvalidArgument | Code::Aborted), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_compacted_state_is_refused() {
    let cluster = Cluster::start(Settings::alone()).await;
    let client = Client::of(&cluster, 0);
    let type_ = type_of("demo", "v1", "Thing");
    client.register(&type_, Scope::Namespace).await;
    for name in ["a", "b"] {
        client.write(named(type_.clone(), ("", ""), name)).await.unwrap();
    }
    let paged = client.with("headwater-page-size", "1");
    let first = paged.list_response(request(type_.clone(), ("", ""))).await.unwrap();
    let token = first.metadata().get("headwater-page-token").unwrap().to_str().unwrap().to_owned();
    let watched = client.watch(type_.clone(), None, "").await.unwrap().list().await.1;
    let mut kv = cluster.kv(0);
    let revision = kv.put(put("k", "v")).await.unwrap().into_inner().header.unwrap().revision;
    client.write(named(type_.clone(), ("", ""), "b")).await.unwrap();
    let compact = headwater::pb::etcdserverpb::CompactionRequest { revision, physical: true };
    kv.compact(compact).await.unwrap();
    let next = paged.with("headwater-page-token", token);
    refused(next.list_response(request(type_.clone(), ("", ""))).await, Code::Aborted, "compacted");
    let resumed = client.with("headwater-resume-index", (watched - 1).to_string()).watch(type_, None, "").await;
    assert_eq!(resumed.err().map(|status| status.code()), Some(Code::OutOfRange));
}
