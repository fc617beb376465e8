//! Every case on every kind of member, over both transports: a leader, a follower, one with a
//! window that is too small, a restarted one, and one with a state from a snapshot.

use headwater::stream::FeedOptions;

use super::cases::{self, Member};
use super::client::BOTH;
use super::{positions, spaces};
use crate::cluster::{Cluster, Settings, put};
use crate::snapshots;

async fn run_all(cluster: &Cluster, index: usize) {
    for via in BOTH {
        let member = Member { cluster, index, via, case: "" };
        cases::run_all(member).await;
        spaces::run_all(member).await;
        // These compact, which affects all keys.
        positions::run_all(member).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_on_the_leader() {
    let cluster = Cluster::three().await;
    run_all(&cluster, cluster.leader().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_on_a_follower() {
    let cluster = Cluster::three().await;
    run_all(&cluster, cluster.follower().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_on_a_member_whose_window_is_too_small() {
    let feed = FeedOptions { window_items_max: 2, ..FeedOptions::default() };
    let cluster = Cluster::start(Settings { feed, ..Settings::default() }).await;
    run_all(&cluster, cluster.follower().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_on_a_restarted_member() {
    let mut cluster = Cluster::three().await;
    let index = cluster.leader().await;
    for number in 0..100 {
        cluster.kv(index).put(put(format!("before/{number}"), "x")).await.unwrap();
    }
    cluster.crash(index).await;
    cluster.restart(index).await;
    cluster.wait_healthy().await;
    run_all(&cluster, index).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_on_a_member_whose_state_was_installed() {
    let mut cluster = Cluster::start(snapshots::settings()).await;
    let index = cluster.follower().await;
    cluster.crash(index).await;
    snapshots::install(&mut cluster, index).await;
    run_all(&cluster, index).await;
}
