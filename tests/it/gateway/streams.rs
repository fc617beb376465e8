//! Streams over the JSON gateway, with one answer a line: watches and keep-alives.

use http::Version;
use serde_json::{Value, json};

use super::client::{Connection, Lines, TIMEOUTS, metric};
use crate::cluster::{Cluster, put, wait_until};

const VERSIONS: [Version; 2] = [Version::HTTP_11, Version::HTTP_2];
const STREAMS: &str = "etcd_debugging_mvcc_watch_stream_total";
const WATCHERS: &str = "etcd_debugging_mvcc_watcher_total";

async fn gone(url: &str) {
    wait_until("no stream is left", async || metric(url, STREAMS).await == 0).await;
    assert_eq!(metric(url, WATCHERS).await, 0);
}

fn event(key: &str, value: &str, revision: &str) -> Value {
    json!([{"kv": {
        "key": key, "create_revision": revision, "mod_revision": revision, "version": "1", "value": value
    }}])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_takes_requests_while_it_answers() {
    for version in VERSIONS {
        let cluster = Cluster::three().await;
        let url = cluster.client_url(cluster.follower().await);
        let mut http = Connection::open(&url, version).await;
        let (requests, mut lines) = http.stream("/v3/watch", r#"{"create_request":{"key":"YQ=="}}"#).await;
        assert_eq!(lines.status, 200);
        assert_eq!(lines.result().await["created"], true);
        // Each event comes at once, without waiting for the next one.
        cluster.kv(0).put(put("a", "1")).await.unwrap();
        assert_eq!(lines.result().await["events"], event("YQ==", "MQ==", "2"));

        let second = r#" {"createRequest": {"key": "Yg==", "watch_id": "9"}} {"progress_request": {}}"#;
        for chunk in second.as_bytes().chunks(7) {
            requests.unbounded_send(bytes::Bytes::copy_from_slice(chunk)).unwrap();
        }
        let created = lines.result().await;
        assert_eq!((&created["watch_id"], &created["created"]), (&json!("9"), &json!(true)));
        assert_eq!(lines.result().await["watch_id"], "-1");
        cluster.kv(1).put(put("b", "2")).await.unwrap();
        let changed = lines.result().await;
        assert_eq!((&changed["watch_id"], &changed["events"]), (&json!("9"), &event("Yg==", "Mg==", "3")));
        assert_eq!(metric(&url, WATCHERS).await, 2);

        // After the last watcher, with the request's body closed, the answer ends.
        requests.unbounded_send(r#"{"cancel_request":{"watch_id":9}}{"cancel_request":{}}"#.into()).unwrap();
        assert_eq!(lines.result().await["canceled"], true);
        assert_eq!(lines.result().await["canceled"], true);
        drop(requests);
        assert_eq!(lines.next().await, None);
        gone(&url).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_outlives_its_request_and_ends_with_its_client() {
    let cluster = Cluster::three().await;
    let url = cluster.client_url(cluster.follower().await);
    for (round, version) in VERSIONS.into_iter().enumerate() {
        let mut whole = Connection::open(&url, version).await;
        let watch = r#"{"create_request":{"key":"YQ==","range_end":"Yg=="}}"#;
        let mut lines = whole.stream_whole("/v3/watch", watch, &[]).await;
        assert_eq!(lines.result().await["created"], true);
        let mut open = Connection::open(&url, version).await;
        let (requests, mut other) = open.stream("/v3/watch", watch).await;
        assert_eq!(other.result().await["created"], true);
        assert_eq!(metric(&url, STREAMS).await, 2, "{version:?}");

        cluster.kv(0).put(put(format!("a{round}"), "1")).await.unwrap();
        for lines in [&mut lines, &mut other] {
            assert_eq!(lines.result().await["events"][0]["kv"]["value"], "MQ==", "{version:?}");
        }
        // Cut, not closed, and without a write under way that could fail.
        drop((whole, lines));
        wait_until("the first stream is gone", async || metric(&url, STREAMS).await == 1).await;
        drop((open, requests, other));
        gone(&url).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_cannot_begin_is_refused() {
    let cluster = Cluster::three().await;
    let url = cluster.client_url(0);
    for version in VERSIONS {
        let mut http = Connection::open(&url, version).await;
        let refused = http.post("/v3/watch", "x").await;
        assert_eq!((refused.status, &refused.json["code"]), (400, &json!(3)), "{refused:?}");
        // An empty request: the answer ends at once.
        let mut lines = Connection::open(&url, version).await.stream_whole("/v3/watch", "", &[]).await;
        assert_eq!((lines.status, lines.next().await), (200, None));

        cluster.kv(0).put(put("a", "1")).await.unwrap();
        let revision = cluster.kv(0).put(put("a", "2")).await.unwrap().into_inner().header.unwrap().revision;
        let compact = json!({"revision": revision.to_string(), "physical": true}).to_string();
        assert_eq!(http.post("/v3/kv/compaction", compact).await.status, 200);
        let past = r#"{"create_request":{"key":"YQ==","start_revision":"1"}}"#;
        let mut lines = http.stream_whole("/v3/watch", past, &[]).await;
        assert_eq!(lines.result().await["created"], true);
        assert_eq!(lines.result().await["compact_revision"], revision.to_string());
        assert_eq!(lines.next().await, None);
    }
    gone(&url).await;
}

/// A watch stream with a deadline. Returns after the confirmation of the watch.
async fn created_with_deadline(url: &str, watch: &'static str) -> (Connection, Lines) {
    for timeout in TIMEOUTS {
        let mut http = Connection::open(url, Version::HTTP_11).await;
        let mut lines = http.stream_whole("/v3/watch", watch, &[("Grpc-Timeout", timeout)]).await;
        if lines.status == 200 && lines.next().await.is_some_and(|line| line["result"]["created"] == true) {
            return (http, lines);
        }
    }
    panic!("no stream begins in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_the_last_line() {
    let mut cluster = Cluster::three().await;
    let leader = cluster.leader().await;
    let url = cluster.client_url(leader);
    let watch = r#"{"create_request":{"key":"YQ=="}}"#;

    let (mut http, mut lines) = created_with_deadline(&url, watch).await;
    let wanted = json!({
        "grpc_code": 4, "http_code": 504, "message": "context deadline exceeded", "http_status": "Gateway Timeout"
    });
    assert_eq!(lines.error().await, wanted);

    let (requests, mut lines) = http.stream("/v3/watch", watch).await;
    assert_eq!(lines.result().await["created"], true);
    requests.unbounded_send(r#"{"create_request":5}"#.into()).unwrap();
    let error = lines.error().await;
    assert_eq!((&error["grpc_code"], &error["http_code"]), (&json!(3), &json!(400)));
    drop(requests);
    gone(&url).await;

    let mut http = Connection::open(&url, Version::HTTP_2).await;
    let (_requests, mut lines) = http.stream("/v3/watch", watch).await;
    assert_eq!(lines.result().await["created"], true);
    cluster.stop(leader).await;
    assert_eq!(lines.error().await["message"], "etcdserver: server stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn keep_alives_are_answered_one_by_one() {
    let cluster = Cluster::three().await;
    for version in VERSIONS {
        let mut http = Connection::open(&cluster.client_url(cluster.follower().await), version).await;
        http.post("/v3/lease/grant", r#"{"TTL":60,"ID":7}"#).await;
        let (requests, mut lines) = http.stream("/v3/lease/keepalive", r#"{"ID":7}"#).await;
        let alive = lines.result().await;
        assert_eq!((&alive["ID"], &alive["TTL"]), (&json!("7"), &json!("60")));
        requests.unbounded_send(r#"{"ID":"7"}{"ID":8}"#.into()).unwrap();
        assert_eq!(lines.result().await["TTL"], "60");
        assert_eq!(lines.result().await.get("TTL"), None, "there is no such lease");
        drop(requests);
        assert_eq!(lines.next().await, None);

        let mut lines = http.stream_whole("/v3/lease/keepalive", r#"{"ID":7} {"ID":"#, &[]).await;
        assert_eq!(lines.result().await["TTL"], "60");
        let error = lines.error().await;
        assert!(error["message"].as_str().unwrap().contains("EOF while parsing"), "{error}");
        let revoked = http.post("/v3/kv/lease/revoke", r#"{"ID":7}"#).await;
        assert_eq!(revoked.status, 200, "{revoked:?}");
    }
}
