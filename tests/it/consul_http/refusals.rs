//! Refusals of spec consul §8 with status 400, 404 and 405; refused requests change nothing.

use std::time::Duration;

use http::Method;
use serde_json::json;

use super::{ask, get};
use crate::cluster::{Cluster, Settings};

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused_with_its_reason() {
    let cluster = Cluster::three().await;
    let follower = cluster.follower().await;
    let node = |more: serde_json::Value| {
        let mut body = json!({"Node": "n", "Address": "10.0.0.1"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body.to_string()
    };
    let register = "/v1/catalog/register";
    let agent = "/v1/agent/service/register";
    let cases: Vec<(Method, &str, String, u16, &str)> = vec![
        (Method::GET, "/v1", String::new(), 404, "nothing at /v1"),
        (Method::GET, "/v1/nothing", String::new(), 404, "nothing at"),
        (Method::GET, "/v1/catalog/nodes/x", String::new(), 404, "nothing at"),
        (Method::GET, "/v1/acl/tokens", String::new(), 401, "ACL support disabled"),
        (Method::PUT, "/v1/event/fire/x", String::new(), 404, "/v1/event/fire/x is not offered"),
        (Method::OPTIONS, "/v1/query", String::new(), 404, "/v1/query is not offered"),
        (Method::PUT, "/v1/agent/leave", String::new(), 404, "`headwater member`"),
        (Method::POST, register, node(json!({})), 405, "method POST not allowed"),
        (Method::GET, register, String::new(), 405, "not allowed"),
        (Method::PUT, "/v1/catalog/nodes", String::new(), 405, "not allowed"),
        (Method::DELETE, "/v1/health/service/web", String::new(), 405, "not allowed"),
        (Method::GET, "/v1/agent/check/pass/x", String::new(), 405, "not allowed"),
        (Method::PUT, register, "{".to_owned(), 400, "Request decode failed"),
        (Method::PUT, register, "[]".to_owned(), 400, "wanted an object"),
        (Method::PUT, register, String::new(), 400, "Request decode failed"),
        (Method::PUT, register, json!({"Address": "10.0.0.1"}).to_string(), 400, "Must provide node"),
        (Method::PUT, register, json!({"Node": "n"}).to_string(), 400, "Must provide address"),
        (Method::PUT, register, node(json!({"ID": "7"})), 400, "UUID"),
        (Method::PUT, register, node(json!({"Service": {"ID": "w"}})), 400, "service name"),
        (Method::PUT, register, node(json!({"Node": "n\u{0}"})), 400, "the node's name has control characters"),
        (Method::PUT, register, node(json!({"Service": {"Service": "w\n"}})), 400, "service's name has control"),
        (
            Method::PUT,
            register,
            node(json!({"Service": {"Service": "w", "ID": "\u{0}"}})),
            400,
            "service's id has control",
        ),
        (Method::PUT, register, node(json!({"Check": {"Name": "c\u{0}"}})), 400, "check's id has control"),
        (Method::PUT, agent, json!({"Name": "w\u{0}"}).to_string(), 400, "service's name has control"),
        (
            Method::PUT,
            "/v1/txn",
            json!([{"Node": {"Verb": "set", "Node": {"Node": "n\u{0}", "Address": "10.0.0.1"}}}]).to_string(),
            400,
            "node's name has control",
        ),
        (
            Method::PUT,
            "/v1/session/create",
            json!({"Name": "s\u{0}"}).to_string(),
            400,
            "Name of a session has control",
        ),
        (
            Method::PUT,
            register,
            node(json!({"Service": {"Service": "w", "Address": "0.0.0.0"}})),
            400,
            "service address",
        ),
        (Method::PUT, register, node(json!({"Service": {"Service": "w", "Port": "80"}})), 400, "Service.Port"),
        (Method::PUT, register, node(json!({"Service": {"Service": "w", "Kind": "x"}})), 400, "service kind"),
        (Method::PUT, register, node(json!({"Check": {"Name": "c", "Status": "fine"}})), 400, "check status"),
        (Method::PUT, register, node(json!({"Check": {"Name": "c", "ServiceID": "no"}})), 400, "Missing service"),
        (Method::PUT, register, node(json!({"Check": {"Name": "c", "Node": "other"}})), 400, "another node"),
        (Method::PUT, register, node(json!({"Namespace": "x"})), 400, "Namespace"),
        (Method::PUT, register, node(json!({"PeerName": "x"})), 400, "PeerName"),
        (Method::PUT, register, node(json!({"Datacenter": "dc2"})), 500, "No path to datacenter"),
        (Method::PUT, "/v1/catalog/deregister", "{}".to_owned(), 400, "Must provide node"),
        (Method::GET, "/v1/catalog/nodes?dc=dc2", String::new(), 500, "No path to datacenter"),
        (Method::GET, "/v1/catalog/nodes?ns=x", String::new(), 400, "Namespaces are not supported"),
        (Method::GET, "/v1/catalog/nodes?partition=x", String::new(), 400, "Partitions are not supported"),
        (Method::GET, "/v1/catalog/nodes?peer=x", String::new(), 400, "Peering is not supported"),
        (Method::GET, "/v1/catalog/nodes?index=x", String::new(), 400, "Invalid index"),
        (Method::GET, "/v1/catalog/nodes?index=-1", String::new(), 400, "Invalid index"),
        (Method::GET, "/v1/catalog/nodes?wait=soon", String::new(), 400, "Invalid wait time"),
        (Method::GET, "/v1/catalog/nodes?stale&consistent", String::new(), 400, "conflicting semantics"),
        (Method::GET, "/v1/catalog/nodes?cached&consistent", String::new(), 400, "conflicting semantics"),
        (Method::GET, "/v1/catalog/nodes?filter=Nothing==1", String::new(), 400, "Failed to create filter"),
        (Method::GET, "/v1/catalog/nodes?filter=Node%3D", String::new(), 400, "Failed to create filter"),
        (Method::GET, "/v1/catalog/nodes?a=%zz", String::new(), 400, "percent-encoded"),
        (Method::GET, "/v1/catalog/node/", String::new(), 400, "Missing node name"),
        (Method::GET, "/v1/catalog/service", String::new(), 400, "Missing service name"),
        (Method::GET, "/v1/health/service/", String::new(), 400, "Missing service name"),
        (Method::GET, "/v1/health/service/web?passing=junk", String::new(), 400, "Invalid value for ?passing"),
        (Method::GET, "/v1/health/node/", String::new(), 400, "Missing node name"),
        (Method::GET, "/v1/health/state/good", String::new(), 400, "Invalid state"),
        (Method::GET, "/v1/health/checks/%ff", String::new(), 400, "UTF-8"),
        (Method::PUT, agent, "{}".to_owned(), 400, "Missing service name"),
        (
            Method::PUT,
            agent,
            json!({"Name": "w", "Check": {"HTTP": "http://h", "Interval": "1s"}}).to_string(),
            400,
            "are not run by this server",
        ),
        (Method::PUT, agent, json!({"Name": "w", "Check": {"TTL": "soon"}}).to_string(), 400, "duration"),
        (Method::PUT, "/v1/agent/service/deregister/no", String::new(), 404, "Unknown service ID"),
        (Method::GET, "/v1/agent/service/no", String::new(), 404, "Unknown service ID"),
        (Method::PUT, "/v1/agent/service/maintenance/no?enable=true", String::new(), 404, "Unknown service ID"),
        (Method::PUT, "/v1/agent/service/maintenance/no", String::new(), 400, "Missing value for enable"),
        (Method::PUT, "/v1/agent/maintenance?enable=perhaps", String::new(), 400, "Invalid value for enable"),
        (Method::PUT, "/v1/agent/check/register", "{}".to_owned(), 400, "Missing check name"),
        (Method::PUT, "/v1/agent/check/register", json!({"Name": "c"}).to_string(), 400, "neither TTL nor"),
        (
            Method::PUT,
            "/v1/agent/check/register",
            json!({"Name": "c", "TTL": "1s", "ServiceID": "no"}).to_string(),
            404,
            "Unknown service ID",
        ),
        (Method::PUT, "/v1/agent/check/pass/no", String::new(), 404, "Unknown check ID"),
        (Method::PUT, "/v1/agent/check/update/no", json!({"Status": "fine"}).to_string(), 400, "check status"),
        (Method::PUT, "/v1/agent/check/deregister/no", String::new(), 404, "Unknown check ID"),
        (Method::GET, "/v1/agent/health/service/name/no", String::new(), 404, "Not Found"),
        (Method::GET, "/v1/agent/health/service/id/no", String::new(), 404, "not found"),
        (Method::PUT, "/v1/config", json!({"Kind": "service-defaults", "Name": "w"}).to_string(), 400, "not supported"),
        (Method::PUT, "/v1/config", json!({"Kind": "terminating-gateway"}).to_string(), 400, "name"),
        (Method::GET, "/v1/config/service-defaults", String::new(), 400, "not supported"),
        (Method::GET, "/v1/config/terminating-gateway/no", String::new(), 404, "Config entry not found"),
    ];
    for (method, path, body, status, text) in cases {
        let answer = ask(&cluster, follower, method.clone(), path, &body).await;
        assert_eq!(answer.status, status, "{method} {path} {body}: {answer:?}");
        assert!(answer.text.contains(text), "{method} {path} {body}: {answer:?}");
        assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8", "{path}");
        if status == 405 {
            let allow = answer.headers["allow"].to_str().unwrap();
            assert!(allow.starts_with("OPTIONS,") && !allow.contains(method.as_str()), "{path}: {allow}");
        }
    }
    assert_eq!(get(&cluster, follower, "/v1/catalog/nodes").await.json, json!([]), "nothing was registered");
    let large = json!({"Node": "n", "Address": "x".repeat(1024 * 1024)});
    assert_eq!(ask(&cluster, follower, Method::PUT, register, large).await.status, 413);
    let options = ask(&cluster, follower, Method::OPTIONS, "/v1/config/terminating-gateway", "").await;
    assert_eq!((options.status, options.headers["allow"].to_str().unwrap()), (200, "OPTIONS,GET,DELETE"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_leader_reads_are_refused_and_stale_ones_are_not() {
    let settings = Settings { request_timeout: Duration::from_secs(7), ..Settings::default() };
    let mut cluster = Cluster::start(settings).await;
    super::register(&cluster, 0, "n", "web", "passing").await;
    for member in [1, 2] {
        super::get(&cluster, member, "/v1/catalog/nodes").await;
    }
    cluster.crash(1).await;
    cluster.crash(2).await;
    let stale = get(&cluster, 0, "/v1/health/service/web?stale").await;
    assert_eq!(stale.json[0]["Service"]["Service"], "web");
    assert_eq!(stale.headers["x-consul-effective-consistency"], "stale");
    crate::cluster::wait_until("the leader is missed", async || {
        ask(&cluster, 0, Method::GET, "/v1/status/leader", "").await.json == ""
    })
    .await;
    let refused = ask(&cluster, 0, Method::GET, "/v1/health/service/web", "").await;
    assert_eq!(refused.status, 503, "{refused:?}");
    let stale = get(&cluster, 0, "/v1/health/service/web?stale").await;
    assert_eq!(stale.headers["x-consul-knownleader"], "false");
    let written = ask(&cluster, 0, Method::PUT, "/v1/catalog/register", json!({"Node": "m", "Address": "a"})).await;
    assert!(written.status >= 500 && written.status < 600, "{written:?}");
}
