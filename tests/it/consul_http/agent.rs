//! A member as an agent: its services, its checks, maintenance, health by status code.

use http::Method;
use serde_json::json;

use super::{ask, get, put};
use crate::cluster::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn services_of_an_agent_are_on_its_node_for_all_to_see() {
    let cluster = Cluster::three().await;
    let follower = cluster.follower().await;
    let own = get(&cluster, follower, "/v1/agent/self").await.json;
    let name = own["Config"]["NodeName"].as_str().unwrap().to_owned();
    let body = json!({
        "name": "web", "tags": ["a"], "port": 80, "enable_tag_override": true, "meta": {"v": "1"},
        "check": {"ttl": "1h", "notes": "n"}, "checks": [{"Name": "second", "TTL": "30m", "Status": "passing"}],
        "something": {"new": "is ignored"},
    });
    let answer = put(&cluster, follower, "/v1/agent/service/register", &body).await;
    assert_eq!(answer.text, "");
    let services = get(&cluster, follower, "/v1/agent/services").await.json;
    assert_eq!(services["web"]["Service"], "web");
    assert_eq!(services["web"]["EnableTagOverride"], true);
    assert_eq!(services["web"]["Datacenter"], "dc1");
    // The answers have no fields that the registration lacks.
    let one = get(&cluster, follower, "/v1/agent/service/web").await.json;
    let health = ask(&cluster, follower, Method::GET, "/v1/agent/health/service/id/web", "").await.json;
    for service in [&services["web"], &one, &health["Service"]] {
        for absent in ["Connect", "Proxy", "CreateIndex", "ModifyIndex"] {
            assert_eq!(service.get(absent), None, "{absent} in {service}");
        }
    }
    let filtered = async |filter: &str| {
        let path = format!("/v1/agent/services?filter={filter}");
        get(&cluster, follower, &path).await.json.as_object().unwrap().len()
    };
    assert_eq!(filtered("Connect.Native==true").await, 0);
    assert_eq!(filtered("Connect.Native==false").await, 1);
    assert_eq!(filtered("Proxy.DestinationServiceName==db").await, 0);
    let checks = get(&cluster, follower, "/v1/agent/checks").await.json;
    assert_eq!(checks["service:web:1"]["Name"], "Service 'web' check");
    assert_eq!(checks["service:web:1"]["Status"], "critical");
    assert_eq!(checks["service:web:1"]["Definition"]["TTL"], "1h0m0s");
    assert_eq!(checks["service:web:2"]["Name"], "second");
    assert_eq!(checks["service:web:2"]["Status"], "passing");
    let one = get(&cluster, follower, "/v1/agent/service/web").await;
    assert_eq!(one.headers["x-consul-contenthash"], one.json["ContentHash"].as_str().unwrap());
    for member in 0..3 {
        let health = get(&cluster, member, "/v1/health/service/web").await.json;
        assert_eq!(health[0]["Node"]["Node"], name.as_str());
        assert_eq!(health[0]["Node"]["ID"], own["Config"]["NodeID"]);
        assert_eq!(
            get(&cluster, member, "/v1/agent/services").await.json.as_object().unwrap().len(),
            usize::from(member == follower)
        );
    }

    // A sidecar, and an instance that speaks the mesh's protocol itself.
    let sidecar = json!({"Name": "web-proxy", "Kind": "connect-proxy", "Proxy": {"DestinationServiceName": "web"}});
    put(&cluster, follower, "/v1/agent/service/register", sidecar).await;
    put(&cluster, follower, "/v1/agent/service/register", json!({"Name": "api", "Connect": {"Native": true}})).await;
    let services = get(&cluster, follower, "/v1/agent/services").await.json;
    assert_eq!(services["web-proxy"]["Proxy"]["DestinationServiceName"], "web");
    assert_eq!(services["web-proxy"].get("Connect"), None);
    assert_eq!(services["api"]["Connect"], json!({"Native": true}));
    assert_eq!(services["api"].get("Proxy"), None);
    for id in ["web-proxy", "api"] {
        put(&cluster, follower, &format!("/v1/agent/service/deregister/{id}"), "").await;
    }

    // Checks that the new registration does not name stay, unless it asks for their removal.
    let one = json!({"Name": "web", "Port": 81, "Check": {"CheckID": "only", "TTL": "1h"}});
    put(&cluster, follower, "/v1/agent/service/register", &one).await;
    assert_eq!(get(&cluster, follower, "/v1/agent/checks").await.json.as_object().unwrap().len(), 3);
    put(&cluster, follower, "/v1/agent/service/register?replace-existing-checks", &one).await;
    let checks = get(&cluster, follower, "/v1/agent/checks").await.json;
    assert_eq!(super::keys(&checks), ["only"]);
    put(&cluster, follower, "/v1/agent/service/deregister/web", "").await;
    assert_eq!(get(&cluster, 0, "/v1/health/service/web").await.json, json!([]));
    assert_eq!(get(&cluster, follower, "/v1/agent/checks").await.json, json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn ttl_checks_stand_as_they_are_told() {
    let cluster = Cluster::three().await;
    let follower = cluster.follower().await;
    put(&cluster, follower, "/v1/agent/service/register", json!({"Name": "web", "Check": {"TTL": "1h"}})).await;
    put(&cluster, follower, "/v1/agent/check/register", json!({"Name": "disk", "TTL": "1h", "Notes": "of the node"}))
        .await;
    for (path, body, status, output, code) in [
        ("pass/disk?note=fine", json!(null), "passing", "fine", 503),
        ("pass/service:web?note=a%20b", json!(null), "passing", "a b", 200),
        ("warn/service:web", json!(null), "warning", "", 429),
        ("fail/service:web?note=x", json!(null), "critical", "x", 503),
        ("update/service:web", json!({"Status": "warning", "Output": "o"}), "warning", "o", 429),
        ("update/service:web", json!({"Status": "passing", "Output": "p"}), "passing", "p", 200),
    ] {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        put(&cluster, follower, &format!("/v1/agent/check/{path}"), body).await;
        let id = path.split(['/', '?']).nth(1).unwrap();
        let checks = get(&cluster, follower, "/v1/agent/checks").await.json;
        assert_eq!((&checks[id]["Status"], &checks[id]["Output"]), (&json!(status), &json!(output)), "{path}");
        for path in ["name/web", "name/WEB", "id/web"].map(|end| format!("/v1/agent/health/service/{end}")) {
            let path = path.as_str();
            let health = ask(&cluster, follower, Method::GET, path, "").await;
            assert_eq!(health.status, code, "{path}: {health:?}");
        }
    }
    // Agents register repeatedly; the reported status stays.
    put(&cluster, follower, "/v1/agent/service/register", json!({"Name": "web", "Check": {"TTL": "2h"}})).await;
    put(&cluster, follower, "/v1/agent/check/register", json!({"Name": "disk", "TTL": "1h", "Status": "critical"}))
        .await;
    let checks = get(&cluster, follower, "/v1/agent/checks").await.json;
    let status_and_output = |id: &str| ["Status", "Output"].map(|member| checks[id][member].clone());
    assert_eq!(
        (status_and_output("service:web"), status_and_output("disk")),
        ([json!("passing"), json!("p")], [json!("passing"), json!("fine")])
    );
    assert_eq!(checks["service:web"]["Definition"]["TTL"], "2h0m0s", "{checks}");
    let text = ask(&cluster, follower, Method::GET, "/v1/agent/health/service/id/web?format=text", "").await;
    assert_eq!((text.status, text.text.as_str()), (200, "passing"));
    let whole = get(&cluster, follower, "/v1/agent/health/service/name/web").await.json;
    assert_eq!(whole[0]["AggregatedStatus"], "passing");
    assert_eq!(whole[0]["Checks"].as_array().unwrap().len(), 2, "with the node's");
    put(&cluster, follower, "/v1/agent/check/deregister/disk", "").await;
    let checks = get(&cluster, follower, "/v1/agent/checks").await.json;
    assert_eq!(super::keys(&checks), ["service:web"]);

    // Reports to a check without a TTL are refused.
    let name = get(&cluster, follower, "/v1/agent/self").await.json["Config"]["NodeName"].clone();
    let plain = json!({"Node": name, "SkipNodeUpdate": true, "Check": {"CheckID": "plain", "Name": "plain"}});
    put(&cluster, 0, "/v1/catalog/register", plain).await;
    let refused = ask(&cluster, follower, Method::PUT, "/v1/agent/check/pass/plain", "").await;
    assert_eq!(refused.status, 400);
    assert!(refused.text.contains("does not have associated TTL"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn maintenance_hides_a_service_or_a_whole_node() {
    let cluster = Cluster::three().await;
    for name in ["web", "api"] {
        put(&cluster, 0, "/v1/agent/service/register", json!({"Name": name})).await;
    }
    let healthy = async |name: &str| {
        get(&cluster, 1, &format!("/v1/health/service/{name}?passing")).await.json.as_array().unwrap().len()
    };
    assert_eq!((healthy("web").await, healthy("api").await), (1, 1));
    put(&cluster, 0, "/v1/agent/service/maintenance/web?enable=true&reason=disk", "").await;
    assert_eq!((healthy("web").await, healthy("api").await), (0, 1));
    let checks = get(&cluster, 0, "/v1/agent/checks").await.json;
    assert_eq!(checks["_service_maintenance:web"]["Notes"], "disk");
    let health = ask(&cluster, 0, Method::GET, "/v1/agent/health/service/id/web", "").await;
    assert_eq!((health.status, health.json["AggregatedStatus"].as_str()), (503, Some("maintenance")));
    put(&cluster, 0, "/v1/agent/service/maintenance/web?enable=false", "").await;
    put(&cluster, 0, "/v1/agent/maintenance?enable=true", "").await;
    assert_eq!((healthy("web").await, healthy("api").await), (0, 0));
    put(&cluster, 0, "/v1/agent/maintenance?enable=false", "").await;
    assert_eq!((healthy("web").await, healthy("api").await), (1, 1));
}
