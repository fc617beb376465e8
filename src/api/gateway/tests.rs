use std::collections::BTreeMap;

use http_body_util::BodyExt;
use prost_types::FileDescriptorSet;

use super::*;

/// A service that fails the test if it is called.
#[derive(Clone)]
struct Never;

impl Service<Request<Body>> for Never {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        unreachable!("{request:?} should have been refused before")
    }
}

fn gateway() -> (Gateway, Registry) {
    let registry = Registry::new();
    (Gateway::new(None, |_| true, ApiOptions::default(), &registry).unwrap(), registry)
}

#[test]
fn every_public_method_of_etcd_has_a_path() {
    let (gateway, _) = gateway();
    let methods: std::collections::BTreeSet<_> =
        gateway.routes.values().map(|route| route.method.as_str().to_owned()).collect();
    let files: FileDescriptorSet = prost::Message::decode(headwater_proto::pb::PUBLIC_DESCRIPTORS).unwrap();
    let served = ["etcdserverpb", "v3lockpb", "v3electionpb"];
    let mut count = 0;
    for file in files.file.iter().filter(|file| served.contains(&file.package())) {
        for service in &file.service {
            for method in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                assert!(methods.contains(&path), "{path} has no HTTP annotation");
                count += 1;
            }
        }
    }
    assert!(count >= 25, "only {count} methods were looked at");
}

#[test]
fn paths_are_etcds() {
    let (gateway, _) = gateway();
    let paths: BTreeMap<_, _> =
        gateway.routes.iter().map(|(path, route)| (path.as_str(), route.method.as_str())).collect();
    for (path, method) in [
        ("/v3/kv/range", "/etcdserverpb.KV/Range"),
        ("/v3/kv/deleterange", "/etcdserverpb.KV/DeleteRange"),
        ("/v3/kv/compaction", "/etcdserverpb.KV/Compact"),
        ("/v3/watch", "/etcdserverpb.Watch/Watch"),
        ("/v3/lease/revoke", "/etcdserverpb.Lease/LeaseRevoke"),
        ("/v3/kv/lease/revoke", "/etcdserverpb.Lease/LeaseRevoke"),
        ("/v3/kv/lease/timetolive", "/etcdserverpb.Lease/LeaseTimeToLive"),
        ("/v3/kv/lease/leases", "/etcdserverpb.Lease/LeaseLeases"),
        ("/v3/cluster/member/promote", "/etcdserverpb.Cluster/MemberPromote"),
        ("/v3/maintenance/hash", "/etcdserverpb.Maintenance/Hash"),
        ("/v3/maintenance/hashkv", "/etcdserverpb.Maintenance/HashKV"),
        ("/v3/maintenance/transfer-leadership", "/etcdserverpb.Maintenance/MoveLeader"),
    ] {
        assert_eq!(paths.get(path), Some(&method), "{path}");
        let older = path.replacen("/v3/", "/v3beta/", 1);
        assert_eq!(gateway.route(&older).map(|route| route.method.as_str()), Some(method), "{older}");
    }
    let watch = gateway.route("/v3/watch").unwrap();
    assert!(watch.streams_in && watch.streams_out);
    let snapshot = gateway.route("/v3/maintenance/snapshot").unwrap();
    assert!(!snapshot.streams_in && snapshot.streams_out);
}

#[test]
fn only_what_is_served_has_a_path() {
    let gateway =
        Gateway::new(None, |method| method.starts_with("/etcdserverpb.KV/"), ApiOptions::default(), &Registry::new())
            .unwrap();
    assert!(gateway.route("/v3/kv/put").is_some());
    assert!(gateway.route("/v3/lease/grant").is_none());
}

#[test]
fn paths_of_the_gateway_are_told_from_others() {
    for path in ["/v3", "/v3/", "/v3/kv/put", "/v3beta/kv/put", "/v3/nothing"] {
        assert!(Gateway::owns(path), "{path}");
    }
    for path in ["/", "/v3alpha/kv/put", "/v2/keys", "/health", "/v30/kv/put"] {
        assert!(!Gateway::owns(path), "{path}");
    }
}

#[tokio::test]
async fn what_cannot_be_called_is_refused_and_counted() {
    let (gateway, registry) = gateway();
    for (method, path, body, status, words) in [
        ("POST", "/v3/kv/nothing", "{}", 404, "docs/http.md"),
        ("POST", "/v3/kv/put/", "{}", 404, "docs/http.md"),
        ("GET", "/v3/kv/range", "", 405, "use POST"),
        ("POST", "/v3/kv/put", "{", 400, "the body is not etcdserverpb.PutRequest as JSON"),
    ] {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::new(Full::new(Bytes::from(body)))).unwrap();
        let response = gateway.call(Never, request).await;
        assert_eq!(response.status().as_u16(), status, "{method} {path}");
        let text = response.into_body().collect().await.unwrap().to_bytes();
        let error: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert!(error["error"].as_str().unwrap().contains(words), "{method} {path}: {error}");
        assert_eq!(error["error"], error["message"]);
    }
    let request = Request::post("/v3/kv/put").header("grpc-timeout", "soon").body(Body::empty()).unwrap();
    assert_eq!(gateway.call(Never, request).await.status(), StatusCode::BAD_REQUEST);

    let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for line in [
        r#"headwater_gateway_requests_total{code="404",path="unknown"} 2"#,
        r#"headwater_gateway_requests_total{code="405",path="/v3/kv/range"} 1"#,
        r#"headwater_gateway_requests_total{code="400",path="/v3/kv/put"} 2"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}
