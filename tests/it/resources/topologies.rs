//! Every case on every kind of member: a leader, a follower, a restarted one, one with a state from
//! a snapshot, and one with watchers that always fall behind its window.

use headwater::stream::FeedOptions;

use super::client::{Client, Scope, named, type_of};
use super::conformance::{Member, run_all};
use crate::cluster::{Cluster, Settings};
use crate::snapshots;

async fn write_some(client: &Client, count: usize) {
    let type_ = type_of("before", "v1", "Thing");
    client.register(&type_, Scope::Namespace).await;
    for number in 0..count {
        let resource = named(type_.clone(), ("default", "default"), &format!("thing-{number}"));
        client.write(resource).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_on_the_leader() {
    let cluster = Cluster::three().await;
    run_all(&Member { cluster: &cluster, index: cluster.leader().await }).await;
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_on_a_follower() {
    let cluster = Cluster::three().await;
    run_all(&Member { cluster: &cluster, index: cluster.follower().await }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_on_a_member_whose_window_is_too_small() {
    let feed = FeedOptions { window_items_max: 2, ..FeedOptions::default() };
    let cluster = Cluster::start(Settings { feed, ..Settings::default() }).await;
    run_all(&Member { cluster: &cluster, index: cluster.follower().await }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_on_a_restarted_member() {
    let mut cluster = Cluster::three().await;
    let index = cluster.leader().await;
    write_some(&Client::of(&cluster, index), 50).await;
    cluster.crash(index).await;
    cluster.restart(index).await;
    cluster.wait_healthy().await;
    run_all(&Member { cluster: &cluster, index }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_on_a_member_whose_state_was_installed() {
    let mut cluster = Cluster::start(snapshots::settings()).await;
    let index = cluster.follower().await;
    cluster.crash(index).await;
    let leader = cluster.leader().await;
    write_some(&Client::of(&cluster, leader), 50).await;
    snapshots::install(&mut cluster, index).await;
    run_all(&Member { cluster: &cluster, index }).await;
}
