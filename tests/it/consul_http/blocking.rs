//! Blocking queries: woken by changes of their subject, by no others, and ended in time (spec:
//! consul §2.6, §3.7, §8.4).

use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;
use tokio::task::JoinHandle;

use super::{Answer, ask, ask_url, get, put, register};
use crate::cluster::{Cluster, within};

/// Starts a blocking query at a member, in a task: `index` is `after`, `wait` is `at_most`.
fn wait(cluster: &Cluster, member: usize, path: &str, after: u64, at_most: &str) -> JoinHandle<Answer> {
    let url = cluster.client_url(member);
    let sign = if path.contains('?') { '&' } else { '?' };
    let path = format!("{path}{sign}index={after}&wait={at_most}");
    tokio::spawn(async move { ask_url(&url, Method::GET, &path, "").await })
}

/// Asserts that a blocking query is not answered within 300 ms.
async fn is_silent(waiter: &mut JoinHandle<Answer>) {
    let woken = tokio::time::timeout(Duration::from_millis(300), waiter).await;
    assert!(woken.is_err(), "woken by what it did not ask for: {woken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_wakes_those_who_asked_for_it_on_every_member() {
    let cluster = Cluster::three().await;
    register(&cluster, 0, "n1", "web", "passing").await;
    register(&cluster, 0, "n2", "api", "passing").await;
    let paths = [
        "/v1/health/service/web",
        "/v1/health/service/web?stale",
        "/v1/catalog/service/web",
        "/v1/catalog/node/n1",
        "/v1/health/node/n1",
        "/v1/health/checks/web",
        "/v1/health/state/any",
    ];
    let mut waiters = Vec::new();
    for member in 0..3 {
        for path in paths {
            let before = get(&cluster, member, &path.replace("?stale", "")).await;
            waiters.push((path, before.index(), wait(&cluster, member, path, before.index(), "60s")));
        }
    }
    register(&cluster, 1, "n1", "web", "critical").await;
    for (path, before, waiter) in waiters {
        let answer = within("a waiter is woken", waiter).await.unwrap();
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.index() > before, "{path}: {} after {before}", answer.index());
        if path.starts_with("/v1/health") {
            assert!(answer.text.contains("\"critical\""), "{path}: {}", answer.text);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_woken_by_what_he_did_not_ask_for() {
    let cluster = Cluster::three().await;
    register(&cluster, 0, "n1", "web", "passing").await;
    register(&cluster, 0, "n2", "api", "passing").await;
    let follower = cluster.follower().await;
    let mut waiters = Vec::new();
    for path in ["/v1/health/service/web", "/v1/catalog/service/web", "/v1/catalog/node/n1", "/v1/health/checks/web"] {
        let index = get(&cluster, follower, path).await.index();
        waiters.push((path, index, wait(&cluster, follower, path, index, "60s")));
    }
    // Another service on another node, the same registration again, a key: these queries ask for
    // none of it.
    register(&cluster, 0, "n2", "api", "critical").await;
    register(&cluster, 0, "n1", "web", "passing").await;
    register(&cluster, 0, "n3", "db", "passing").await;
    put(&cluster, 0, "/v1/catalog/deregister", json!({"Node": "n3"})).await;
    cluster.kv(0).put(crate::cluster::put("k", "v")).await.unwrap();
    for (path, index, waiter) in &mut waiters {
        is_silent(waiter).await;
        assert_eq!(get(&cluster, follower, path).await.index(), *index, "{path}");
    }
    for (_, _, waiter) in waiters {
        waiter.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_nodes_and_services_wake_by_their_tables() {
    let cluster = Cluster::three().await;
    register(&cluster, 0, "n1", "web", "passing").await;
    let services = get(&cluster, 1, "/v1/catalog/services").await;
    let nodes = get(&cluster, 1, "/v1/catalog/nodes").await;
    let unknown = get(&cluster, 1, "/v1/health/service/new").await;
    let services = wait(&cluster, 1, "/v1/catalog/services", services.index(), "60s");
    let nodes = wait(&cluster, 1, "/v1/catalog/nodes", nodes.index(), "60s");
    let unknown = wait(&cluster, 1, "/v1/health/service/new", unknown.index(), "60s");
    register(&cluster, 2, "n2", "new", "passing").await;
    assert_eq!(within("services", services).await.unwrap().json, json!({"web": ["Main", "n1"], "new": ["Main", "n2"]}));
    assert_eq!(within("nodes", nodes).await.unwrap().json.as_array().unwrap().len(), 2);
    assert_eq!(within("the new service", unknown).await.unwrap().json[0]["Service"]["Service"], "new");
    // A removal wakes, too.
    let health = get(&cluster, 1, "/v1/health/service/new").await;
    let gone = wait(&cluster, 1, "/v1/health/service/new", health.index(), "60s");
    put(&cluster, 0, "/v1/catalog/deregister", json!({"Node": "n2"})).await;
    let gone = within("the end of the service", gone).await.unwrap();
    assert_eq!(gone.json, json!([]));
    assert!(gone.index() > health.index(), "the index of what is gone does not go back");
}

#[tokio::test(flavor = "multi_thread")]
async fn time_ends_a_query_with_the_index_that_it_has() {
    let cluster = Cluster::three().await;
    register(&cluster, 0, "n1", "web", "passing").await;
    let before = get(&cluster, 0, "/v1/health/service/web").await;
    let began = Instant::now();
    let answer = get(&cluster, 0, &format!("/v1/health/service/web?index={}&wait=200ms", before.index())).await;
    assert!(began.elapsed() >= Duration::from_millis(200));
    assert_eq!((answer.index(), &answer.json), (before.index(), &before.json));
    // Index 0 and an older one are answered at once; so is an index that this store has never
    // reached.
    for after in ["0", "1", "18446744073709551615"] {
        let began = Instant::now();
        let answer = get(&cluster, 0, &format!("/v1/health/service/web?index={after}&wait=60s")).await;
        assert!(began.elapsed() < Duration::from_secs(30), "{after}");
        assert_eq!(answer.index(), before.index());
    }
}

/// As after a restore, the client's index is far above all indexes of this store.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_of_another_history_is_answered_at_once_from_a_stale_state_too() {
    let mut cluster = Cluster::three().await;
    register(&cluster, 0, "n1", "web", "passing").await;
    put(&cluster, 0, "/v1/kv/key", "value").await;
    for path in ["/v1/health/service/web", "/v1/catalog/nodes", "/v1/kv/key", "/v1/health/service/unknown"] {
        let before = get(&cluster, 0, path).await;
        let old = before.index() + 1_000_000;
        for member in 0..3 {
            for how in ["stale", "cached", "max_stale=1h", "consistent"] {
                let path = format!("{path}?{how}");
                let answer = within(&path, wait(&cluster, member, &path, old, "600s")).await.unwrap();
                assert_eq!(
                    (answer.status, answer.index(), &answer.json),
                    (200, before.index(), &before.json),
                    "{path}"
                );
            }
        }
    }
    // Without another member to ask, a query waits for its whole time, and then gets the state.
    let before = get(&cluster, 0, "/v1/health/service/web").await;
    cluster.stop(1).await;
    cluster.stop(2).await;
    let old = before.index() + 1_000_000;
    let began = Instant::now();
    let waiter = wait(&cluster, 0, "/v1/health/service/web?stale", old, "2s");
    let answer = within("the time is over", waiter).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert_eq!((answer.status, answer.index(), &answer.json), (200, before.index(), &before.json));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_waiting_queries_in_order() {
    let mut cluster = Cluster::three().await;
    register(&cluster, 0, "n1", "web", "passing").await;
    let before = get(&cluster, 2, "/v1/health/service/web").await;
    let mut waiter = wait(&cluster, 2, "/v1/health/service/web", before.index(), "600s");
    is_silent(&mut waiter).await;
    cluster.stop(2).await;
    let answer = within("the waiter is told", waiter).await.unwrap();
    assert_eq!((answer.status, answer.index()), (200, before.index()));
    // The client continues at another member, with its index.
    let other = wait(&cluster, 0, "/v1/health/service/web", answer.index(), "60s");
    register(&cluster, 1, "n1", "web", "warning").await;
    assert!(within("it is woken there", other).await.unwrap().index() > before.index());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_seen_by_a_client_that_passes_its_index() {
    let cluster = Cluster::three().await;
    register(&cluster, 0, "n1", "web", "passing").await;
    let mut index = get(&cluster, 1, "/v1/health/service/web").await.index();
    let writer = async {
        for number in 0..30 {
            let body = json!({
                "Node": "n1", "SkipNodeUpdate": true,
                "Check": {"CheckID": "service:web", "Name": "alive", "Status": "passing", "ServiceID": "web-1",
                          "Output": number.to_string()},
            });
            assert_eq!(ask(&cluster, number % 3, Method::PUT, "/v1/catalog/register", body).await.status, 200);
        }
    };
    let reader = async {
        let mut last = String::new();
        while last != "29" {
            let answer = get(&cluster, 1, &format!("/v1/health/service/web?index={index}&wait=60s")).await;
            assert!(answer.index() > index, "woken for nothing: {} after {index}", answer.index());
            index = answer.index();
            last = answer.json[0]["Checks"][0]["Output"].as_str().unwrap().to_owned();
        }
    };
    within("all is seen", async { tokio::join!(writer, reader) }).await;
}
