//! Blocking queries on keys and prefixes: woken by changes of their subject, by no others, and
//! their index never goes back.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::{Answer, call, call_url, get, put};
use crate::cluster::{Cluster, within};

/// Starts a blocking query at a member, in a task, with these parameters `index` and `wait`.
fn wait_for(cluster: &Cluster, member: usize, path: &str, index: u64, wait: &str) -> JoinHandle<Answer> {
    let separator = if path.contains('?') { '&' } else { '?' };
    let (url, path) = (cluster.client_url(member), format!("{path}{separator}index={index}&wait={wait}"));
    tokio::spawn(async move { call_url(&url, "GET", &path, "").await })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_wakes_for_its_key_alone() {
    let cluster = Cluster::three().await;
    put(&cluster, 0, "kv/a", "1").await;
    let first = get(&cluster, 1, "kv/a").await;
    let waiting = wait_for(&cluster, 1, "kv/a", first.index(), "60s");
    // A change of a neighbouring key wakes no query: a short query ends in time, with its index
    // unchanged.
    let began = Instant::now();
    let short = wait_for(&cluster, 2, "kv/a", first.index(), "500ms");
    put(&cluster, 0, "kv/ab", "1").await;
    // A put of the same value is no change.
    put(&cluster, 0, "kv/a", "1").await;
    let unchanged = within("a short query ends", short).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(500));
    assert_eq!((unchanged.status, unchanged.index()), (200, first.index()));
    assert_eq!(unchanged.body, first.body);
    assert!(!waiting.is_finished());

    put(&cluster, 2, "kv/a", "2").await;
    let woken = within("the query wakes", waiting).await.unwrap();
    assert_eq!(woken.json()[0]["Value"], "Mg==");
    assert!(woken.index() > first.index());
    assert_eq!(woken.json()[0]["ModifyIndex"], woken.index());

    // A deletion wakes, and so does a creation.
    let waiting = wait_for(&cluster, 0, "kv/a", woken.index(), "60s");
    call(&cluster, 1, "DELETE", "kv/a", "").await;
    let deleted = within("the query wakes", waiting).await.unwrap();
    assert_eq!((deleted.status, deleted.body.len()), (404, 0));
    assert!(deleted.index() > woken.index());
    let waiting = wait_for(&cluster, 2, "kv/a", deleted.index(), "60s");
    put(&cluster, 0, "kv/a", "3").await;
    let created = within("the query wakes", waiting).await.unwrap();
    assert!(created.status == 200 && created.index() > deleted.index());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_wakes_for_what_is_below_it() {
    let cluster = Cluster::three().await;
    for path in ["kv/p/1", "kv/p/2", "kv/q"] {
        put(&cluster, 0, path, "v").await;
    }
    let mut index = 0;
    for (query, method, path) in [
        ("kv/p/?recurse", "PUT", "kv/p/3"),
        ("kv/p/?keys", "DELETE", "kv/p/1"),
        ("kv/p/?recurse", "DELETE", "kv/p/?recurse"),
        ("kv/p/?keys", "PUT", "kv/p/1"),
    ] {
        let seen = get(&cluster, 1, query).await.index();
        assert!(seen >= index, "{query}: {seen} after {index}");
        put(&cluster, 0, "kv/q", path).await;
        let waiting = wait_for(&cluster, 1, query, seen, "60s");
        let still = wait_for(&cluster, 2, query, seen, "200ms");
        assert_eq!(within("a short query ends", still).await.unwrap().index(), seen, "{query}");
        call(&cluster, 2, method, path, "v").await;
        let woken = within("the query wakes", waiting).await.unwrap();
        assert!(woken.index() > seen, "{query}");
        index = woken.index();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_at_a_follower_outlives_the_leader() {
    let mut cluster = Cluster::three().await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    put(&cluster, leader, "kv/a", "1").await;
    let seen = get(&cluster, follower, "kv/a").await.index();
    let waiting = wait_for(&cluster, follower, "kv/a", seen, "60s");
    cluster.crash(leader).await;
    let next = cluster.leader().await;
    assert!(!waiting.is_finished());
    put(&cluster, next, "kv/a", "2").await;
    let woken = within("the query wakes", waiting).await.unwrap();
    assert_eq!(woken.json()[0]["Value"], "Mg==");
}
