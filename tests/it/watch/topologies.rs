//! Every case on every kind of member: a leader, a follower, a restarted one, and one with a state
//! from a snapshot.

use headwater::stream::FeedOptions;

use super::cases::{Member, run_all};
use crate::cluster::{Cluster, Settings, put};
use crate::snapshots;

/// Options with a window of two items: readers fall behind it and catch up repeatedly.
fn narrow() -> FeedOptions {
    FeedOptions { window_items_max: 2, ..FeedOptions::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_on_the_leader() {
    let cluster = Cluster::three().await;
    run_all(&Member { cluster: &cluster, index: cluster.leader().await }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_on_a_follower() {
    let cluster = Cluster::three().await;
    run_all(&Member { cluster: &cluster, index: cluster.follower().await }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_on_a_member_whose_window_is_too_small() {
    let cluster = Cluster::start(Settings { feed: narrow(), ..Settings::default() }).await;
    run_all(&Member { cluster: &cluster, index: cluster.follower().await }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_on_a_restarted_member() {
    let mut cluster = Cluster::three().await;
    let index = cluster.leader().await;
    for number in 0..100 {
        cluster.kv(index).put(put(format!("before/{number}"), "x")).await.unwrap();
    }
    cluster.crash(index).await;
    cluster.restart(index).await;
    cluster.wait_healthy().await;
    run_all(&Member { cluster: &cluster, index }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_on_a_member_whose_state_was_installed() {
    let mut cluster = Cluster::start(snapshots::settings()).await;
    let index = cluster.follower().await;
    cluster.crash(index).await;
    snapshots::install(&mut cluster, index).await;
    run_all(&Member { cluster: &cluster, index }).await;
}
