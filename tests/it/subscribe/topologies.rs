//! Every case on every kind of member: a leader, a follower, a restarted one, one with a state from
//! a snapshot, and one with subscribers that always fall behind its window.

use headwater::stream::FeedOptions;

use super::cases::{Member, run_all};
use super::client::register;
use crate::cluster::{Cluster, Settings};
use crate::snapshots;

async fn write_some(cluster: &Cluster, member: usize, count: usize) {
    for number in 0..count {
        register(cluster, member, &format!("before-{}", number % 9), &format!("s-{number}"), "before").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribing_at_the_leader() {
    let cluster = Cluster::three().await;
    run_all(&Member { cluster: &cluster, index: cluster.leader().await }).await;
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribing_at_a_follower() {
    let cluster = Cluster::three().await;
    run_all(&Member { cluster: &cluster, index: cluster.follower().await }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribing_at_a_member_whose_window_is_too_small() {
    // S30: a slow subscriber catches up from history, and holds no window.
    let feed = FeedOptions { window_items_max: 2, ..FeedOptions::default() };
    let cluster = Cluster::start(Settings { feed, ..Settings::default() }).await;
    run_all(&Member { cluster: &cluster, index: cluster.follower().await }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribing_at_a_restarted_member() {
    let mut cluster = Cluster::three().await;
    let index = cluster.leader().await;
    write_some(&cluster, index, 30).await;
    cluster.crash(index).await;
    cluster.restart(index).await;
    cluster.wait_healthy().await;
    run_all(&Member { cluster: &cluster, index }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribing_at_a_member_whose_state_was_installed() {
    let mut cluster = Cluster::start(snapshots::settings()).await;
    let index = cluster.follower().await;
    cluster.crash(index).await;
    let leader = cluster.leader().await;
    write_some(&cluster, leader, 30).await;
    snapshots::install(&mut cluster, index).await;
    run_all(&Member { cluster: &cluster, index }).await;
}
