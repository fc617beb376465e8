//! Answers of each endpoint: the field names that clients look for, lists that are never null, and
//! filters.

use std::io::Read;
use std::time::Duration;

use flate2::read::GzDecoder;
use http::{Method, Request, Version};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tonic::body::Body;

use super::{ask, get, keys, put, register};
use crate::cluster::{Cluster, Settings, wait_until, within};
use crate::gateway::client::Connection;

const NODE: &[&str] = &["Address", "CreateIndex", "Datacenter", "ID", "Meta", "ModifyIndex", "Node", "TaggedAddresses"];
const SERVICE: &[&str] = &[
    "Address",
    "Connect",
    "CreateIndex",
    "EnableTagOverride",
    "ID",
    "Meta",
    "ModifyIndex",
    "Port",
    "Proxy",
    "Service",
    "TaggedAddresses",
    "Tags",
    "Weights",
];
const CHECK: &[&str] = &[
    "CheckID",
    "CreateIndex",
    "Definition",
    "ExposedPort",
    "Interval",
    "ModifyIndex",
    "Name",
    "Node",
    "Notes",
    "Output",
    "ServiceID",
    "ServiceName",
    "ServiceTags",
    "Status",
    "Timeout",
    "Type",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_large_answer_is_compressed_for_those_who_take_it() {
    let cluster = Cluster::start(Settings::alone()).await;
    for number in 0..20 {
        register(&cluster, 0, &format!("node-{number}"), "web", "passing").await;
    }
    let path = "/v1/health/service/web";
    let plain = get(&cluster, 0, path).await;
    assert_eq!(plain.headers.get("content-encoding"), None, "nobody asked for it");
    let take = |path: &'static str, encodings: &'static str| {
        let url = cluster.client_url(0);
        async move {
            let request = Request::get(path).header("accept-encoding", encodings).body(Body::empty()).unwrap();
            let mut connection = Connection::open(&url, Version::HTTP_11).await;
            let (parts, body) = connection.send(request).await.into_parts();
            (parts.headers, within("an answer ends", body.collect()).await.unwrap().to_bytes())
        }
    };
    let (headers, packed) = take(path, "deflate, gzip;q=0.5").await;
    assert_eq!(headers["content-encoding"], "gzip");
    assert_eq!(headers["x-consul-index"], plain.headers["x-consul-index"]);
    assert!(packed.len() < plain.text.len() / 4, "{} of {} bytes", packed.len(), plain.text.len());
    let mut unpacked = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut unpacked).unwrap();
    assert_eq!(unpacked, plain.text);
    for (path, encodings) in [(path, "br"), (path, "gzip;q=0"), ("/v1/status/leader", "gzip")] {
        let (headers, _) = take(path, encodings).await;
        assert_eq!(headers.get("content-encoding"), None, "{path} for {encodings}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_tells_of_which_state_it_is() {
    let cluster = Cluster::three().await;
    let mut last = 0;
    for (path, body) in [
        ("/v1/agent/service/register", json!({"Name": "web", "Check": {"TTL": "1h"}})),
        ("/v1/agent/check/warn/service:web", Value::Null),
        ("/v1/agent/service/deregister/web", Value::Null),
        ("/v1/catalog/register", json!({"Node": "n1", "Address": "10.0.0.1", "Service": {"Service": "web"}})),
        ("/v1/catalog/deregister", json!({"Node": "n2"})),
        ("/v1/session/create", json!({})),
        ("/v1/txn", json!([{"KV": {"Verb": "set", "Key": "t", "Value": "dA=="}}])),
        ("/v1/kv/unrelated", json!("v")),
    ] {
        let state = put(&cluster, 0, path, body).await.state();
        assert!(state > last, "{path}");
        last = state;
    }
    // The service has not changed since, but the state has.
    for path in ["/v1/health/service/web", "/v1/kv/t", "/v1/session/list", "/v1/kv/?keys"] {
        let read = get(&cluster, 0, path).await;
        assert!(read.state() >= last && read.index() <= read.state(), "{path}: {read:?}");
        assert!(read.index() < last || path.ends_with("keys"), "{path}: {read:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_alone_is_as_old_as_its_majority() {
    let request_timeout = Duration::from_secs(2);
    let mut cluster = Cluster::start(Settings { request_timeout, ..Settings::default() }).await;
    let path = "/v1/catalog/nodes?max_stale=1h";
    let contact_ms =
        |answer: &super::Answer| answer.headers["x-consul-lastcontact"].to_str().unwrap().parse::<u64>().unwrap();
    wait_until("a leader hears of itself", async || {
        contact_ms(&get(&cluster, cluster.leader().await, path).await) == 0
    })
    .await;
    let leader = cluster.leader().await;
    for other in (0..3).filter(|member| *member != leader) {
        cluster.crash(other).await;
    }
    wait_until("it tells since when it is alone", async || {
        let answer = get(&cluster, leader, path).await;
        contact_ms(&answer) > 1000 && answer.headers["x-consul-knownleader"] == "false"
    })
    .await;
    let answer = ask(&cluster, leader, Method::GET, "/v1/catalog/nodes?max_stale=1s", "").await;
    assert_eq!(answer.status, 503, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_endpoint_has_the_names_that_clients_look_for() {
    let cluster = Cluster::three().await;
    let follower = cluster.follower().await;
    register(&cluster, follower, "n1", "web", "passing").await;
    for member in 0..3 {
        let nodes = get(&cluster, member, "/v1/catalog/nodes").await;
        assert_eq!(keys(&nodes.json[0]), NODE);
        assert_eq!(nodes.headers["content-type"], "application/json");
        assert_eq!(nodes.headers["x-consul-knownleader"], "true");
        assert!(nodes.headers["x-consul-lastcontact"].to_str().unwrap().parse::<u64>().is_ok());
        assert_eq!(nodes.headers["x-consul-effective-consistency"], "leader");

        let node = get(&cluster, member, "/v1/catalog/node/N1").await;
        assert_eq!(keys(&node.json), ["Node", "Services"]);
        assert_eq!(keys(&node.json["Services"]["web-1"]), SERVICE);
        let node = get(&cluster, member, "/v1/catalog/node-services/n1").await;
        assert_eq!(keys(&node.json["Services"][0]), SERVICE);
        let services = get(&cluster, member, "/v1/catalog/services").await;
        assert_eq!(services.json, json!({"web": ["Main", "n1"]}));
        let service = get(&cluster, member, "/v1/catalog/service/web").await;
        for name in
            ["Node", "Address", "NodeMeta", "ServiceID", "ServiceName", "ServicePort", "ServiceTags", "ServiceWeights"]
        {
            assert!(keys(&service.json[0]).contains(&name), "{name}: {service:?}");
        }
        assert_eq!(get(&cluster, member, "/v1/catalog/datacenters").await.json, json!(["dc1"]));

        let health = get(&cluster, member, "/v1/health/service/WEB").await;
        assert_eq!(keys(&health.json[0]), ["Checks", "Node", "Service"]);
        assert_eq!(keys(&health.json[0]["Node"]), NODE);
        assert_eq!(keys(&health.json[0]["Service"]), SERVICE);
        assert_eq!(keys(&health.json[0]["Checks"][0]), CHECK);
        assert_eq!(health.json[0]["Checks"][0]["ServiceTags"], json!(["Main", "n1"]), "copied");
        for path in ["/v1/health/node/n1", "/v1/health/checks/web", "/v1/health/state/any", "/v1/health/state/passing"]
        {
            let checks = get(&cluster, member, path).await;
            assert_eq!(keys(&checks.json[0]), CHECK, "{path}");
            assert!(checks.index() > 0, "{path}");
        }
        assert_eq!(get(&cluster, member, "/v1/health/state/critical").await.json, json!([]));

        let leader = get(&cluster, member, "/v1/status/leader").await.json;
        let peers = get(&cluster, member, "/v1/status/peers").await.json;
        assert_eq!(peers.as_array().unwrap().len(), 3);
        assert!(peers.as_array().unwrap().contains(&leader), "{leader} {peers}");
        let own = get(&cluster, member, "/v1/agent/self").await.json;
        assert_eq!(own["Config"]["Datacenter"], "dc1");
        assert_eq!(own["Config"]["NodeName"], own["Member"]["Name"]);
        assert_eq!(own["Config"]["Server"], true);
        let members = get(&cluster, member, "/v1/agent/members").await.json;
        assert_eq!(members.as_array().unwrap().len(), 3);
        assert!(members.as_array().unwrap().contains(&own["Member"]));
        assert_eq!(get(&cluster, member, "/v1/agent/services").await.json, json!({}));
        assert_eq!(get(&cluster, member, "/v1/agent/checks").await.json, json!({}));
        assert!(get(&cluster, member, "/v1/agent/version").await.json["HumanVersion"].is_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_an_empty_list_with_an_index() {
    let cluster = Cluster::three().await;
    for (path, wanted) in [
        ("/v1/catalog/nodes", json!([])),
        ("/v1/catalog/services", json!({})),
        ("/v1/catalog/service/no", json!([])),
        ("/v1/catalog/connect/no", json!([])),
        ("/v1/catalog/gateway-services/no", json!([])),
        ("/v1/catalog/node/no", Value::Null),
        ("/v1/catalog/node-services/no", json!({"Node": null, "Services": []})),
        ("/v1/health/service/no", json!([])),
        ("/v1/health/connect/no", json!([])),
        ("/v1/health/node/no", json!([])),
        ("/v1/health/checks/no", json!([])),
        ("/v1/health/state/any", json!([])),
        ("/v1/config/terminating-gateway", json!([])),
    ] {
        let answer = get(&cluster, 0, path).await;
        assert_eq!(answer.json, wanted, "{path}");
        assert!(answer.index() >= 1, "{path}");
    }
    let gone = put(&cluster, 0, "/v1/catalog/deregister", json!({"Node": "no", "Address": "old clients say so"})).await;
    assert_eq!(gone.json, json!(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_narrowed_and_sorted() {
    let cluster = Cluster::three().await;
    for (node, status) in [("n2", "warning"), ("n1", "passing"), ("n3", "critical")] {
        register(&cluster, 0, node, "web", status).await;
    }
    register(&cluster, 0, "n1", "api", "passing").await;
    let nodes = |json: &Value, at: &str| -> Vec<String> {
        json.as_array().unwrap().iter().map(|it| it.pointer(at).unwrap().as_str().unwrap().to_owned()).collect()
    };
    for (query, wanted) in [
        ("", &["n1", "n2", "n3"][..]),
        ("?passing", &["n1"]),
        ("?passing=1", &["n1"]),
        ("?passing=true", &["n1"]),
        ("?passing=0", &["n1", "n2", "n3"]),
        ("?passing=false", &["n1", "n2", "n3"]),
        ("?tag=main", &["n1", "n2", "n3"]),
        ("?tag=MAIN&tag=n2", &["n2"]),
        ("?tag=", &["n1", "n2", "n3"]),
        ("?tag=other", &[]),
        ("?node-meta=rack:n3", &["n3"]),
        ("?node-meta=rack:n3&node-meta=row:1", &[]),
        ("?near=_agent&unknown=1", &["n1", "n2", "n3"]),
        ("?filter=Checks.Status==warning", &["n2"]),
        ("?filter=n3+in+Service.Tags+or+Node.Node==n1", &["n1", "n3"]),
        ("?filter=Service.Port==80+and+not+Node.Meta.rack==n1", &["n2", "n3"]),
        ("?consistent", &["n1", "n2", "n3"]),
        ("?stale", &["n1", "n2", "n3"]),
    ] {
        let answer = get(&cluster, 0, &format!("/v1/health/service/web{query}")).await;
        assert_eq!(nodes(&answer.json, "/Node/Node"), wanted, "{query}");
    }
    let answer = get(&cluster, 0, "/v1/catalog/service/web?filter=ServicePort==80&tag=n2").await;
    assert_eq!(nodes(&answer.json, "/Node"), ["n2"]);
    let answer = get(&cluster, 0, "/v1/catalog/nodes?filter=rack+in+Meta&node-meta=rack:n2").await;
    assert_eq!(nodes(&answer.json, "/Node"), ["n2"]);
    let answer = get(&cluster, 0, "/v1/catalog/services?node-meta=rack:n1").await;
    assert_eq!(answer.json, json!({"web": ["Main", "n1"], "api": ["Main", "n1"]}));
    let answer = get(&cluster, 0, "/v1/catalog/services?filter=ServiceName!=web").await;
    assert_eq!(answer.json, json!({"api": ["Main", "n1"]}));
    let answer = get(&cluster, 0, "/v1/health/checks/web?node-meta=rack:n2").await;
    assert_eq!(nodes(&answer.json, "/Node"), ["n2"]);
    let answer = get(&cluster, 0, "/v1/health/state/any?node-meta=rack:n1&filter=ServiceName==api").await;
    assert_eq!(nodes(&answer.json, "/ServiceName"), ["api"]);
    let answer = get(&cluster, 0, "/v1/health/node/n1?filter=ServiceName==web").await;
    assert_eq!(nodes(&answer.json, "/ServiceName"), ["web"]);
    let pretty = get(&cluster, 0, "/v1/catalog/services?pretty").await;
    assert!(pretty.text.contains("\n    \"web\": [") && pretty.text.ends_with("}\n"), "{}", pretty.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn services_are_reached_in_the_mesh_through_sidecars_and_gateways() {
    let cluster = Cluster::three().await;
    let node = |service: Value| json!({"Node": "n", "Address": "10.0.0.1", "Service": service});
    let sidecar = json!({"Kind": "connect-proxy", "Service": "web-proxy", "Proxy": {"DestinationServiceName": "web"}});
    for service in [
        json!({"Service": "web"}),
        sidecar,
        json!({"Service": "native", "Connect": {"Native": true}}),
        json!({"Kind": "terminating-gateway", "Service": "gw", "Tags": ["t"]}),
    ] {
        put(&cluster, 1, "/v1/catalog/register", node(service)).await;
    }
    let entry =
        json!({"Kind": "terminating-gateway", "Name": "gw", "Services": [{"Name": "billing", "SNI": "b.example"}]});
    assert_eq!(put(&cluster, 2, "/v1/config", &entry).await.json, json!(true));
    for (service, through) in [("web", "web-proxy"), ("native", "native"), ("billing", "gw")] {
        let health = get(&cluster, 0, &format!("/v1/health/connect/{service}")).await;
        assert_eq!(health.json[0]["Service"]["Service"], through);
        let catalog = get(&cluster, 0, &format!("/v1/catalog/connect/{service}")).await;
        assert_eq!(catalog.json[0]["ServiceName"], through);
    }
    let through = get(&cluster, 0, "/v1/health/connect/billing?tag=none").await;
    assert_eq!(through.json.as_array().unwrap().len(), 1, "a gateway has not the tags of what it stands for");
    let links = get(&cluster, 0, "/v1/catalog/gateway-services/gw").await;
    assert_eq!(links.json[0]["Service"]["Name"], "billing");
    assert_eq!(links.json[0]["SNI"], "b.example");
    let read = get(&cluster, 0, "/v1/config/terminating-gateway/gw").await;
    assert_eq!(read.json["Services"], entry["Services"]);
    assert_eq!(get(&cluster, 0, "/v1/config/terminating-gateway").await.json.as_array().unwrap().len(), 1);
    let removed = ask(&cluster, 1, Method::DELETE, "/v1/config/terminating-gateway/gw", "").await;
    assert_eq!((removed.status, removed.json), (200, json!({})));
    assert_eq!(get(&cluster, 0, "/v1/health/connect/billing").await.json, json!([]));
}

/// Two weights of zero mean the default of 1, because some clients cannot leave weights out. A zero
/// for Passing alone is refused.
#[tokio::test(flavor = "multi_thread")]
async fn weights_of_zero_are_one_wherever_they_come_from() {
    let cluster = Cluster::start(Settings::alone()).await;
    let zeros = json!({"Passing": 0, "Warning": 0});
    let service = json!({"ID": "a", "Service": "web", "Weights": zeros});
    put(&cluster, 0, "/v1/catalog/register", json!({"Node": "n", "Address": "10.0.0.1", "Service": service})).await;
    let service = json!({"ID": "b", "Service": "web", "Weights": zeros});
    let ops = json!([{"Service": {"Verb": "set", "Node": "n", "Service": service}}]);
    put(&cluster, 0, "/v1/txn", ops).await;
    put(&cluster, 0, "/v1/agent/service/register", json!({"ID": "c", "Name": "web", "Weights": zeros})).await;
    let answer = get(&cluster, 0, "/v1/health/service/web").await.json;
    let weights: Vec<_> = answer.as_array().unwrap().iter().map(|it| it["Service"]["Weights"].clone()).collect();
    assert_eq!(weights, vec![json!({"Passing": 1, "Warning": 1}); 3], "{answer}");
    let bad = json!({"Name": "web", "Weights": {"Passing": 0, "Warning": 5}});
    let refused = ask(&cluster, 0, Method::PUT, "/v1/agent/service/register", bad).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.text.contains("Passing 0 must lie between 1 and 65535"), "{refused:?}");
}
