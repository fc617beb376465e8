//! Paths, queries and bodies; `tests/it` asks a cluster.

use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::json;

use super::types::ServedType;
use super::*;
use headwater_types::resource::{Scope, Type};

fn target(scope: Scope) -> Target {
    Target { served: ServedType::builtin(Type::partition(), scope), name: Some("korn".to_owned()) }
}

async fn text(refusal: Refusal) -> (u16, String) {
    let response = refusal.into_response();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

#[test]
fn paths_name_types_and_resources() {
    for (path, wanted) in [
        ("/api/demo/v2/artist", Some(("demo", "v2", "artist", None))),
        ("/api/demo/v2/artist/", Some(("demo", "v2", "artist", None))),
        ("/api/demo/v2/artist/korn", Some(("demo", "v2", "artist", Some("korn")))),
        ("/api/demo/v2/artist/korn/x", None),
        ("/api/demo/v2", None),
        ("/api/", None),
        ("/api", None),
    ] {
        let found = Path::read(path).ok().map(|it| (it.group, it.version, it.kind, it.name));
        assert_eq!(found, wanted, "{path}");
    }
    for (path, owned) in [("/api", true), ("/api/x", true), ("/apis", false), ("/", false)] {
        assert_eq!(Rest::owns(path), owned, "{path}");
    }
}

#[test]
fn units_are_those_of_the_scope_unless_the_query_names_others() {
    for (scope, query, wanted) in [
        (Scope::Namespace, "", ("default", "default")),
        (Scope::Namespace, "namespace=music", ("default", "music")),
        (Scope::Namespace, "ns=music&partition=eu", ("eu", "music")),
        (Scope::Namespace, "ns=*&partition=*", ("*", "*")),
        (Scope::Namespace, "ns=", ("default", "default")),
        (Scope::Partition, "", ("default", "")),
        (Scope::Cluster, "", ("", "")),
        (Scope::Cluster, "partition=eu", ("eu", "")),
    ] {
        let found = target(scope).tenancy(&Query::read(Some(query)).unwrap());
        assert_eq!((found.partition.as_str(), found.namespace.as_str()), wanted, "{scope} {query}");
    }
}

#[test]
fn queries_and_headers_become_metadata() {
    let mut headers = http::HeaderMap::new();
    headers.insert("x-consul-token", "secret".parse().unwrap());
    headers.insert("x-other", "x".parse().unwrap());
    for (query, wanted) in [
        ("", vec![("x-consul-token", "secret")]),
        ("consistent", vec![("x-consul-token", "secret"), ("x-consul-consistency-mode", "consistent")]),
        ("consistent=false", vec![("x-consul-token", "secret")]),
        (
            "page_size=5&page_token=abc",
            vec![("x-consul-token", "secret"), ("headwater-page-size", "5"), ("headwater-page-token", "abc")],
        ),
    ] {
        let request = RequestMetadata::read(&headers, &Query::read(Some(query)).unwrap()).unwrap().around(());
        let metadata = request.metadata().clone().into_headers();
        let wanted: http::HeaderMap =
            wanted.into_iter().map(|(k, v)| (k.parse::<http::HeaderName>().unwrap(), v.parse().unwrap())).collect();
        assert_eq!(metadata, wanted, "{query}");
    }
}

#[tokio::test]
async fn unknown_parameters_are_refused() {
    for query in ["vresion=7", "namespace=music&Version=7", "dc=dc1", "version=7&unknown"] {
        let (code, text) = text(Query::read(Some(query)).unwrap_err()).await;
        assert!(code == 400 && text.contains("unknown parameter"), "{query}: {code} {text}");
    }
}

#[tokio::test]
async fn bodies_say_metadata_owner_and_data() {
    let target = target(Scope::Namespace);
    let query = Query::read(Some("version=7&namespace=music")).unwrap();
    let body = json!({
        "metadata": {"a": "b"}, "id": {"name": "another"}, "version": "9", "generation": "G",
        "status": {"k": {"conditions": []}},
        "owner": {"name": "x", "type": {"group": "demo", "groupVersion": "v1", "kind": "Label"}, "tenancy": {}},
        "data": {"description": "Korn"}
    });
    let resource = request::resource(&target, "korn", &query, &Bytes::from(body.to_string())).unwrap();
    let id = resource.id.clone().unwrap();
    assert_eq!(
        (id.name.as_str(), id.tenancy.unwrap().namespace.as_str(), resource.version.as_str()),
        ("korn", "music", "7")
    );
    assert_eq!(resource.metadata["a"], "b");
    assert_eq!(resource.owner.as_ref().unwrap().r#type.as_ref().unwrap().group_version, "v1");
    assert_eq!(resource.data.as_ref().unwrap().value, b"\x0a\x04Korn");

    let shown = answer::resource(Some(resource), &target.served, &tonic::metadata::MetadataMap::new()).unwrap();
    let shown = shown.into_body().collect().await.unwrap().to_bytes();
    let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
    assert_eq!(shown["data"], json!({"description": "Korn"}), "without the name of the message");
    assert_eq!(shown["id"]["type"], json!({"group": "tenancy", "groupVersion": "v2beta1", "kind": "Partition"}));

    for (body, wanted) in [
        ("", "EOF"),
        ("[]", "expected a map"),
        (
            "{\"data\": {\"nmae\": 1}}",
            "data is not what tenancy.v2beta1.Partition wants: unrecognized field name 'nmae'",
        ),
        ("{\"metadata\": {\"a\": 1}}", "expected a string"),
        ("{\"data\": 7}", "expected a map"),
        ("{\"dta\": {\"description\": \"Korn\"}}", "unknown field `dta`"),
        ("{\"Data\": {\"description\": \"Korn\"}}", "unknown field `Data`"),
        ("{\"data\": {}, \"meta\": {}}", "unknown field `meta`"),
        ("{\"owner\": {\"nmae\": \"x\"}}", "unknown field `nmae`"),
        ("{\"owner\": {\"type\": {\"groop\": \"x\"}}}", "unknown field `groop`"),
        ("{\"owner\": {\"tenancy\": {\"name_space\": \"x\"}}}", "unknown field `name_space`"),
    ] {
        let refused = request::resource(&target, "korn", &query, &Bytes::from_static(body.as_bytes())).unwrap_err();
        let (code, text) = text(refused).await;
        assert!(code == 400 && text.contains(wanted), "{body}: {code} {text}");
    }
    let empty = request::resource(&target, "korn", &query, &Bytes::from_static(b"{\"data\": null}")).unwrap();
    assert_eq!(empty.data, None);
}

#[tokio::test]
async fn codes_are_those_of_the_table() {
    let codes = [
        (tonic::Code::InvalidArgument, 400),
        (tonic::Code::NotFound, 404),
        (tonic::Code::PermissionDenied, 403),
        (tonic::Code::Aborted, 409),
        (tonic::Code::Internal, 500),
        (tonic::Code::Unavailable, 503),
    ];
    for (code, wanted) in codes {
        let mut status = tonic::Status::new(code, "why");
        status.metadata_mut().insert("headwater-index", "7".parse().unwrap());
        let response = Refusal::from(status).into_response();
        assert_eq!(response.headers()["headwater-index"], "7");
        assert_eq!(response.status().as_u16(), wanted);
    }
    let refused = Refusal::method(&Method::POST, false).into_response();
    assert_eq!((refused.status().as_u16(), refused.headers()["allow"].as_bytes()), (405, b"GET".as_slice()));
}
