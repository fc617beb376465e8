//! Unary calls over the JSON gateway.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{Request, Version};
use http_body_util::Full;
use serde_json::{Value, json};
use tonic::body::Body;

use super::client::{Connection, metric};
use crate::cluster::{Cluster, Settings, get, wait_until};
use crate::resources::client::descriptors;
use headwater::node::Limit;

#[tokio::test(flavor = "multi_thread")]
async fn every_member_answers_over_either_version_of_http() {
    let cluster = Cluster::three().await;
    for member in 0..3 {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut http = Connection::open(&cluster.client_url(member), version).await;
            let key = BASE64_STANDARD.encode(format!("{member}{version:?}"));
            let put = http.post("/v3/kv/put", json!({"key": key, "value": "MQ=="}).to_string()).await;
            assert_eq!(put.status, 200, "{put:?}");
            let revision = put.json["header"]["revision"].as_str().unwrap().to_owned();
            assert_eq!(put.headers["content-type"], "application/json");
            assert_eq!(put.headers.get("access-control-allow-origin"), None);
            let index = put.headers["grpc-metadata-headwater-index"].to_str().unwrap().to_owned();

            // Another member, which must be as new as that index.
            let mut other = Connection::open(&cluster.client_url((member + 1) % 3), version).await;
            let range = json!({"key": key, "serializable": true, "unknown": 1}).to_string();
            let get = other.post_with("/v3/kv/range", range, &[("Grpc-Metadata-Headwater-Min-Index", &index)]).await;
            let wanted = json!([{
                "key": key, "create_revision": revision, "mod_revision": revision, "version": "1", "value": "MQ=="
            }]);
            assert_eq!((get.status, &get.json["kvs"], &get.json["count"]), (200, &wanted, &json!("1")), "{get:?}");
            let older = other.post("/v3beta/kv/range", json!({"key": key}).to_string()).await;
            assert_eq!(older.json["kvs"], wanted);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_asked_who_they_are() {
    let cluster = Cluster::three().await;
    for member in 0..3 {
        let mut http = Connection::open(&cluster.client_url(member), Version::HTTP_11).await;
        let status = http.post("/v3/auth/status", "{}").await;
        let fields = (&status.json["enabled"], &status.json["authRevision"]);
        assert_eq!((status.status, fields), (200, (&Value::Null, &json!("1"))), "{status:?}");
        // Clients continue without a token after this answer.
        let token = http.post("/v3/auth/authenticate", r#"{"name": "root", "password": "secret"}"#).await;
        assert_eq!(token.status, 400, "{token:?}");
        assert_eq!(token.json["code"], 9);
        assert_eq!(token.json["message"], "etcdserver: authentication is not enabled");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_changes_nothing_and_says_why() {
    let cluster = Cluster::three().await;
    let mut http = Connection::open(&cluster.client_url(0), Version::HTTP_11).await;
    let table = [
        ("/v3/kv/range", "{}", 400, 3, "etcdserver: key is not provided"),
        ("/v3/kv/range", "", 400, 3, "etcdserver: key is not provided"),
        ("/v3/kv/put", r#"{"key":"YQ==","lease":"5"}"#, 404, 5, "etcdserver: requested lease not found"),
        ("/v3/kv/put", r#"{"key":"YQ==","value":"YQ=="} x"#, 400, 3, "trailing characters"),
        ("/v3/kv/put", r#"{"key":"YQ==","value":1}"#, 400, 3, "expected a base64-encoded string at line 1 column"),
        ("/v3/kv/range", r#"{"key":"YQ==","sort_order":"UP"}"#, 400, 3, "unrecognized enum value 'UP'"),
        ("/v3/kv/range", r#"{"key":"YQ==","revision":99}"#, 400, 11, "required revision is a future revision"),
        ("/v3/kv/txn", r#"{"success":[{}]}"#, 400, 3, "etcdserver: key not found"),
        ("/v3/lease/grant", r#"{"TTL":"90000000000"}"#, 400, 11, "etcdserver: too large lease TTL"),
        ("/v3/kv/putt", "{}", 404, 5, "there is no method at /v3/kv/putt"),
        ("/v3", "{}", 404, 5, "there is no method at /v3"),
    ];
    for (path, body, status, code, words) in table {
        let answer = http.post(path, body).await;
        assert_eq!((answer.status, &answer.json["code"]), (status, &json!(code)), "{path} {body}: {answer:?}");
        let message = answer.json["message"].as_str().unwrap();
        assert!(message.contains(words), "{path} {body}: {message}");
        assert_eq!(answer.json["error"], message);
    }
    let held = http.post("/v3/lease/grant", r#"{"TTL":60,"ID":7}"#).await;
    assert_eq!((held.status, &held.json["ID"]), (200, &json!("7")));
    let again = http.post("/v3/lease/grant", r#"{"TTL":60,"ID":7}"#).await;
    assert_eq!((again.status, &again.json["code"]), (400, &json!(9)), "{again:?}");
    let all = http.post("/v3/kv/range", r#"{"key":"AA==","range_end":"AA=="}"#).await;
    assert_eq!((&all.json["header"]["revision"], all.json.get("count")), (&json!("1"), None), "nothing was written");

    let get = http.send(Request::get("/v3/kv/range").body(Body::empty()).unwrap()).await;
    assert_eq!((get.status().as_u16(), &get.headers()["allow"]), (405, &"POST".parse().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_those_of_grpc() {
    let cluster = Cluster::three().await;
    let mut http = Connection::open(&cluster.client_url(0), Version::HTTP_2).await;
    let put = |bytes: usize| json!({"key": "YQ==", "value": BASE64_STANDARD.encode(vec![0; bytes])}).to_string();
    for (bytes, status, code, words) in [
        (1_572_000, 200, None, None),
        (1_572_864, 400, Some(3), Some("etcdserver: request is too large")),
        // Key, value and their lengths: 8 bytes more than the value.
        (2_097_152, 429, Some(8), Some("grpc: received message larger than max (2097160 vs. 2097152)")),
        (3_200_000, 429, Some(8), Some("a request may have at most 4194304 bytes of JSON; split it")),
    ] {
        let answer = http.post("/v3/kv/put", put(bytes)).await;
        assert_eq!(answer.status, status, "{bytes}: {answer:?}");
        assert_eq!(answer.json["code"].as_i64(), code, "{bytes}");
        assert_eq!(answer.json["message"].as_str(), words, "{bytes}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_reaches_the_store() {
    let mut cluster = Cluster::three().await;
    let url = cluster.client_url(0);
    let mut http = Connection::open(&url, Version::HTTP_11).await;
    let local = r#"{"key":"YQ==","serializable":true}"#;
    for (name, value, status, words) in [
        ("Grpc-Timeout", "soon", 400, "grpc-timeout must be"),
        ("Grpc-Metadata-Headwater-Min-Index", "x", 400, "headwater-min-index must be"),
        ("Grpc-Timeout", "0n", 504, "context deadline exceeded"),
    ] {
        let answer = http.post_with("/v3/kv/range", local, &[(name, value)]).await;
        assert_eq!(answer.status, status, "{name}: {value}: {answer:?}");
        assert!(answer.json["message"].as_str().unwrap().contains(words), "{answer:?}");
    }

    cluster.stop(1).await;
    cluster.crash(2).await;
    wait_until("the member alone has no leader", async || cluster.node(0).live_leader().is_none()).await;
    assert_eq!(http.post("/v3/kv/range", local).await.status, 200);
    let refused = http.post_with("/v3/kv/range", local, &[("Grpc-Metadata-HasLeader", "true")]).await;
    assert_eq!((refused.status, &refused.json["message"]), (503, &json!("etcdserver: no leader")));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_as_those_of_grpc() {
    let cluster = Cluster::three().await;
    let url = cluster.client_url(0);
    let mut http = Connection::open(&url, Version::HTTP_11).await;
    http.post("/v3/kv/put", r#"{"key":"YQ=="}"#).await;
    http.post("/v3/kv/put", "{}").await;
    http.post("/v3/kv/put", "{").await;
    let put = |code: &str| {
        format!(
            r#"grpc_server_handled_total{{grpc_code="{code}",grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"}}"#
        )
    };
    assert_eq!(metric(&url, &put("OK")).await, 1);
    assert_eq!(metric(&url, &put("InvalidArgument")).await, 1);
    let path = |code| format!(r#"headwater_gateway_requests_total{{code="{code}",path="/v3/kv/put"}}"#);
    assert_eq!(metric(&url, &path("200")).await, 1);
    assert_eq!(metric(&url, &path("400")).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_origins_and_other_names_of_the_server_are_refused_on_every_path() {
    let mut cluster = Cluster::start(Settings::alone()).await;
    cluster.browsers.allowed_hosts.push("member".to_owned());
    cluster.crash(0).await;
    cluster.restart(0).await;
    cluster.wait_healthy().await;
    let url = cluster.client_url(0);
    let own = "http://member";
    let foreign = "http://evil.example";
    // Method, path and body of a change on each face, and of reads.
    let paths = [
        ("POST", "/v3/kv/put", r#"{"key":"aw==","value":"dg=="}"#),
        ("POST", "/v3/maintenance/snapshot", "{}"),
        ("POST", "/v3/watch", r#"{"create_request":{"key":"aw=="}}"#),
        ("PUT", "/v1/kv/k", "v"),
        ("PUT", "/v1/catalog/register", r#"{"Node":"n","Address":"a"}"#),
        ("GET", "/v1/watch?target=/kv", ""),
        ("GET", "/metrics", ""),
        ("OPTIONS", "/v3/kv/put", ""),
        ("OPTIONS", "/v1/kv/k", ""),
    ];
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut http = Connection::open(&url, version).await;
        for (method, path, body) in paths {
            for (name, value) in [("origin", foreign), ("sec-fetch-site", "cross-site")] {
                let request = Request::builder().method(method).uri(path).header(name, value);
                let response = http.send(request.body(Body::new(Full::from(body))).unwrap()).await;
                assert_eq!(response.status(), 403, "{version:?} {method} {path} {name}");
                assert_eq!(response.headers().get("access-control-allow-origin"), None);
                let text = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
                assert!(String::from_utf8_lossy(&text).contains("http.allowed-origins"), "{text:?}");
            }
        }
    }
    assert_eq!(cluster.kv(0).range(get("k")).await.unwrap().into_inner().count, 0, "nothing was written");
    let limit_counters = cluster.node(0).limit_counters().clone();
    assert_eq!(limit_counters.counter(Limit::Origin).get(), 2 * 2 * paths.len() as u64);

    let mut http = Connection::open(&url, Version::HTTP_11).await;
    let mut status = async |headers: &[(&str, &str)]| {
        let mut request = Request::builder().uri("/version");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = http.send(request.body(Body::empty()).unwrap()).await;
        let status = response.status().as_u16();
        http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
        status
    };
    assert_eq!(status(&[("origin", own)]).await, 200, "a page of its own");
    assert_eq!(status(&[("host", "evil.example"), ("accept-language", "en")]).await, 403, "rebinding");
    assert_eq!(status(&[("host", "etcd.example"), ("user-agent", "curl/8.5.0")]).await, 200, "a program");
    assert_eq!(limit_counters.counter(Limit::Host).get(), 1);

    cluster.crash(0).await;
    cluster.browsers.allowed_origins.push(foreign.to_owned());
    cluster.restart(0).await;
    cluster.wait_healthy().await;
    let mut http = Connection::open(&url, Version::HTTP_11).await;
    for (method, path) in [("OPTIONS", "/v3/kv/put"), ("OPTIONS", "/health"), ("GET", "/version")] {
        let request =
            Request::builder().method(method).uri(path).header("origin", foreign).body(Body::empty()).unwrap();
        let response = http.send(request).await;
        assert_eq!(response.status(), 200, "{method} {path}");
        assert_eq!(response.headers()["access-control-allow-origin"], foreign, "{method} {path}");
        assert_eq!(response.headers()["access-control-allow-methods"], "POST, GET, OPTIONS, PUT, DELETE");
        http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn data_with_a_form_of_its_own_can_be_written_back_as_it_was_read() {
    let cluster = Cluster::start(Settings::calm()).await;
    let mut http = Connection::open(&cluster.client_url(0), Version::HTTP_11).await;
    let write = |type_: [&str; 3], tenancy: &Value, name: &str, data: &Value| {
        let type_ = json!({"group": type_[0], "group_version": type_[1], "kind": type_[2]});
        let id = json!({"type": type_, "tenancy": tenancy, "name": name});
        json!({"operations": [{"write_resource": {"resource": {"id": id, "data": data}}}]}).to_string()
    };
    let registered = json!({
        "@type": "type.googleapis.com/headwater.v1.ResourceType", "group": "demo", "group_version": "v2", "kind": "Free",
        "scope": "SCOPE_NAMESPACE", "message": "google.protobuf.Struct",
        "descriptor_set": BASE64_STANDARD.encode(descriptors("demo.v2", "Artist")),
    });
    let registration = write(["headwater", "v1", "ResourceType"], &json!({}), "demo-v2-free", &registered);
    let answer = http.post("/v1/store/commit", registration).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let tenancy = json!({"partition": "default", "namespace": "default"});
    let mut data = json!({
        "@type": "type.googleapis.com/google.protobuf.Struct", "value": {"value": {"value": "a"}}
    });
    for _ in 0..2 {
        let answer = http.post("/v1/store/commit", write(["demo", "v2", "Free"], &tenancy, "x", &data)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let target = json!({"targets": ["/resources/demo/v2/Free/default/default/x?children=false"]}).to_string();
        let read = http.post("/v1/store/read", target).await;
        let seen = &read.json["entities"][0]["data"]["data"];
        assert_eq!(*seen, data, "{read:?}");
        data = seen.clone();
    }
    // As answers had it before they had `value`.
    let flat = json!({"@type": "type.googleapis.com/google.protobuf.Struct", "a": "b", "c": "d"});
    let answer = http.post("/v1/store/commit", write(["demo", "v2", "Free"], &tenancy, "x", &flat)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let target = json!({"targets": ["/resources/demo/v2/Free/default/default/x?children=false"]}).to_string();
    let read = http.post("/v1/store/read", target).await;
    assert_eq!(read.json["entities"][0]["data"]["data"]["value"], json!({"a": "b", "c": "d"}), "{read:?}");
}
