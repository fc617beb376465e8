//! TTL checks without a report in time, and services that stay critical for too long. The leader
//! measures the time, and the log decides.

use serde_json::json;

use super::locks::{cluster, is_alive};
use super::{call, get, put, session};
use crate::cluster::{Cluster, pass, wait_until};

/// Status and output of the first check of the service `web`; `None` if there is no check.
async fn standing(cluster: &Cluster, member: usize) -> Option<(String, String)> {
    let checks = get(cluster, member, "health/checks/web").await.json();
    let check = checks.as_array().unwrap().first()?.clone();
    let text = |name: &str| check[name].as_str().unwrap().to_owned();
    Some((text("Status"), text("Output")))
}

async fn reported(cluster: &Cluster, member: usize, path: &str) {
    let answer = call(cluster, member, "PUT", path, "").await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_service_checks_stands_on_its_node_as_well() {
    let (cluster, _) = cluster().await;
    let register = async |status: &str| {
        let body = json!({
            "Node": "n", "Address": "10.0.0.1", "Service": {"Service": "web"}, "Checks": [
                {"CheckID": "serfHealth", "Name": "alive", "Status": status},
                {"CheckID": "web", "Name": "web", "ServiceID": "web", "Status": "passing"},
            ],
        });
        put(&cluster, 0, "catalog/register", body.to_string()).await;
    };
    register("passing").await;
    let of_service = json!({"Node": "n", "ServiceChecks": [{"ID": "web"}], "LockDelay": "0s"});
    let on_node = session(&cluster, 1, of_service.clone()).await;
    // With an empty list of node checks, the session depends on the service alone.
    let alone = json!({"Node": "n", "NodeChecks": [], "ServiceChecks": [{"ID": "web"}], "LockDelay": "0s"});
    let alone = session(&cluster, 1, alone).await;
    let sessions = get(&cluster, 0, &format!("session/info/{on_node}")).await.json();
    assert_eq!(sessions[0]["NodeChecks"], json!(["serfHealth"]));
    assert_eq!(sessions[0]["ServiceChecks"][0]["ID"], "web");
    assert_eq!(get(&cluster, 0, &format!("session/info/{alone}")).await.json()[0]["NodeChecks"], json!([]));
    // The node's check fails.
    register("critical").await;
    assert!(!is_alive(&cluster, 0, &on_node).await, "it outlives its node");
    assert!(is_alive(&cluster, 0, &alone).await);
    let refused = call(&cluster, 0, "PUT", "session/create", of_service.to_string()).await;
    assert_eq!(refused.status, 500, "{}", refused.text());
    register("passing").await;
    let on_node = session(&cluster, 1, of_service).await;
    // The node is removed.
    put(&cluster, 0, "catalog/deregister", json!({"Node": "n"}).to_string()).await;
    for id in [on_node, alone] {
        assert!(!is_alive(&cluster, 0, &id).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_is_not_refreshed_turns_critical_and_its_service_goes_at_last() {
    let (mut cluster, clock) = cluster().await;
    let agent = cluster.follower().await;
    let registration = json!({
        "Name": "web", "Port": 80, "Check": {"TTL": "20s", "DeregisterCriticalServiceAfter": "60s"}
    });
    let done = call(&cluster, agent, "PUT", "agent/service/register", registration.to_string()).await;
    assert_eq!(done.status, 200, "{}", done.text());
    reported(&cluster, agent, "agent/check/pass/service:web?note=fine").await;
    let fine = Some(("passing".to_owned(), "fine".to_owned()));
    assert_eq!(standing(&cluster, 0).await, fine);
    let holder = session(&cluster, agent, json!({"ServiceChecks": [{"ID": "service:web"}], "LockDelay": "0s"})).await;
    put(&cluster, agent, &format!("kv/lock?acquire={holder}"), "v").await;

    // A refreshed check stays passing, and an equal report writes nothing.
    let before = get(&cluster, 0, "health/checks/web").await.index();
    for _ in 0..3 {
        pass(&clock, 12).await;
        reported(&cluster, agent, "agent/check/pass/service:web?note=fine").await;
    }
    assert_eq!(standing(&cluster, 0).await, fine);
    assert_eq!(get(&cluster, 0, "health/checks/web").await.index(), before);

    // A new leader does not expire it early.
    let leader = cluster.leader().await;
    cluster.crash(leader).await;
    let leader = cluster.leader().await;
    pass(&clock, 12).await;
    assert_eq!(standing(&cluster, leader).await, fine);

    // Without a refresh it expires.
    wait_until("the check turns critical", async || {
        pass(&clock, 1).await;
        standing(&cluster, leader).await != fine
    })
    .await;
    assert_eq!(standing(&cluster, leader).await, Some(("critical".to_owned(), "TTL expired".to_owned())));
    assert!(!is_alive(&cluster, leader, &holder).await, "its session ended with it");
    assert_eq!(get(&cluster, leader, "kv/lock").await.json()[0].get("Session"), None);

    // A report makes it pass again; without one its service is removed.
    reported(&cluster, agent, "agent/check/pass/service:web?note=fine").await;
    assert_eq!(standing(&cluster, agent).await, fine);
    reported(&cluster, agent, "agent/check/fail/service:web?note=bad").await;
    pass(&clock, 50).await;
    assert_eq!(standing(&cluster, agent).await.unwrap().0, "critical");
    wait_until("the service goes", async || {
        pass(&clock, 1).await;
        standing(&cluster, agent).await.is_none()
    })
    .await;
    assert_eq!(get(&cluster, agent, "catalog/service/web").await.json(), json!([]));
}
