//! Sessions and the locks that they hold, as time passes and leaders change. Their time is a clock
//! that the tests move.

use headwater::node::{LeaseClock, ManualClock};
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::lease_client::LeaseClient;
use serde_json::json;

use super::{call, call_url, get, put, session};
use crate::cluster::{Cluster, Settings, pass, wait_until, within};

pub(super) async fn cluster() -> (Cluster, ManualClock) {
    let (clock, hand) = LeaseClock::by_hand();
    (Cluster::start_with_clock(Settings::default(), clock).await, hand)
}

pub(super) async fn is_alive(cluster: &Cluster, member: usize, id: &str) -> bool {
    !get(cluster, member, &format!("session/info/{id}")).await.json().as_array().unwrap().is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_made_looked_at_renewed_and_destroyed_on_any_member() {
    let (cluster, _clock) = cluster().await;
    let before = get(&cluster, 2, "session/list").await.index();
    let url = format!("session/list?index={before}&wait=60s");
    let waiting = {
        let member = cluster.client_url(2);
        tokio::spawn(async move { call_url(&member, "GET", &url, "").await })
    };
    let id = session(&cluster, 0, json!({"Name": "n", "TTL": "10s", "LockDelay": "1s", "Behavior": "delete"})).await;
    let woken = within("whoever waits for sessions wakes", waiting).await.unwrap();
    assert_eq!(woken.json()[0]["ID"], json!(id));
    let shown = get(&cluster, 1, &format!("session/info/{id}")).await;
    let entry = &shown.json()[0];
    let index = shown.index();
    assert_eq!(
        *entry,
        json!({
            "ID": id, "Name": "n", "Node": "node1", "LockDelay": 1_000_000_000, "Behavior": "delete", "TTL": "10s",
            "NodeChecks": [], "ServiceChecks": null, "CreateIndex": index, "ModifyIndex": index
        })
    );
    for path in ["session/list", "session/node/node1", "session/node/NODE1"] {
        assert_eq!(get(&cluster, 2, path).await.json(), json!([entry]), "{path}");
    }
    assert_eq!(get(&cluster, 2, "session/node/node2").await.json(), json!([]));
    for member in 0..3 {
        assert_eq!(put(&cluster, member, &format!("session/renew/{id}"), "").await, json!([entry]));
    }
    // The deadline of the session is not listed as a lease.
    let mut leases = LeaseClient::connect(cluster.client_url(1)).await.unwrap();
    assert!(leases.lease_leases(pb::LeaseLeasesRequest {}).await.unwrap().into_inner().leases.is_empty());
    assert_eq!(put(&cluster, 1, &format!("session/destroy/{id}"), "").await, json!(true));
    assert_eq!(put(&cluster, 1, &format!("session/destroy/{id}"), "").await, json!(true));
    assert!(!is_alive(&cluster, 0, &id).await);
    assert_eq!(call(&cluster, 2, "PUT", &format!("session/renew/{id}"), "").await.status, 404);
    assert!(get(&cluster, 0, "session/list").await.index() > index);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_outlives_the_leader_and_ends_with_its_session() {
    let (mut cluster, clock) = cluster().await;
    let holder = session(&cluster, 0, json!({"TTL": "10s", "LockDelay": "5s"})).await;
    let rival = session(&cluster, 1, json!({"LockDelay": "0s"})).await;
    assert_eq!(put(&cluster, 0, &format!("kv/lock?acquire={holder}"), "holder").await, json!(true));
    assert_eq!(put(&cluster, 1, &format!("kv/lock?acquire={rival}"), "rival").await, json!(false));
    // A renewed session lives on.
    for _ in 0..3 {
        pass(&clock, 6).await;
        put(&cluster, 2, &format!("session/renew/{holder}"), "").await;
    }
    let leader = cluster.leader().await;
    cluster.crash(leader).await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    // The new leader grants at least the remaining time: it was renewed just now.
    pass(&clock, 5).await;
    let entry = get(&cluster, follower, "kv/lock").await.json()[0].clone();
    assert_eq!((&entry["Session"], &entry["LockIndex"]), (&json!(holder), &json!(1)));
    assert_eq!(put(&cluster, follower, &format!("kv/lock?acquire={rival}"), "rival").await, json!(false));
    assert_eq!(put(&cluster, follower, &format!("session/renew/{holder}"), "").await[0]["ID"], json!(holder));

    // Without renewals the session ends within twice its time to live. Its lock stays taken for the
    // lock delay.
    for _ in 0..40 {
        if !is_alive(&cluster, leader, &holder).await {
            break;
        }
        pass(&clock, 1).await;
    }
    assert!(!is_alive(&cluster, leader, &holder).await, "it ends within twice its time to live, and an election");
    let entry = get(&cluster, leader, "kv/lock").await.json()[0].clone();
    assert_eq!((entry.get("Session"), &entry["LockIndex"]), (None, &json!(1)));
    assert_eq!(put(&cluster, leader, &format!("kv/lock?acquire={rival}"), "rival").await, json!(false), "lock delay");
    pass(&clock, 3).await;
    assert_eq!(put(&cluster, leader, &format!("kv/lock?acquire={rival}"), "rival").await, json!(false), "lock delay");
    wait_until("the lock delay ends", async || {
        pass(&clock, 1).await;
        put(&cluster, follower, &format!("kv/lock?acquire={rival}"), "rival").await == json!(true)
    })
    .await;
    let entry = get(&cluster, follower, "kv/lock").await.json()[0].clone();
    assert_eq!(
        (&entry["Session"], &entry["LockIndex"], &entry["Value"]),
        (&json!(rival), &json!(2), &json!("cml2YWw="))
    );
    assert_eq!(put(&cluster, leader, &format!("kv/lock?release={holder}"), "x").await, json!(false));
    assert_eq!(put(&cluster, leader, &format!("kv/lock?release={rival}"), "free").await, json!(true));
    cluster.restart((0..3).find(|member| !cluster.running().any(|running| running == *member)).unwrap()).await;
    cluster.wait_healthy().await;
    let hashes = cluster.hashes().await;
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_and_delays_survive_a_restart_of_all() {
    let (mut cluster, _clock) = cluster().await;
    let holder = session(&cluster, 0, json!({"TTL": "20s", "LockDelay": "30s"})).await;
    let gone = session(&cluster, 0, json!({"LockDelay": "30s"})).await;
    put(&cluster, 0, &format!("kv/held?acquire={holder}&flags=3"), "v").await;
    put(&cluster, 0, &format!("kv/delayed?acquire={gone}"), "v").await;
    put(&cluster, 0, &format!("session/destroy/{gone}"), "").await;
    let before = get(&cluster, 0, "kv/?recurse").await.body;
    for member in 0..3 {
        cluster.crash(member).await;
    }
    for member in 0..3 {
        cluster.restart(member).await;
    }
    cluster.wait_healthy().await;
    assert_eq!(get(&cluster, 1, "kv/?recurse").await.body, before);
    assert_eq!(put(&cluster, 2, &format!("session/renew/{holder}"), "").await[0]["ID"], json!(holder));
    assert_eq!(put(&cluster, 2, &format!("kv/delayed?acquire={holder}"), "v").await, json!(false));
    assert_eq!(put(&cluster, 2, &format!("kv/held?acquire={holder}"), "v").await, json!(true));
}
