//! Every case on every kind of member, over both transports: the leader, a follower, a restarted
//! member, and a member with a state from a snapshot.

use super::cases;
use super::client::{BOTH, Member};
use crate::cluster::{Cluster, put};
use crate::snapshots;

async fn run_all(cluster: &Cluster, index: usize) {
    for via in BOTH {
        cases::run_all(Member { cluster, index, via }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_on_the_leader() {
    let cluster = Cluster::three().await;
    run_all(&cluster, cluster.leader().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_on_a_follower() {
    let cluster = Cluster::three().await;
    run_all(&cluster, cluster.follower().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_on_a_restarted_member() {
    let mut cluster = Cluster::three().await;
    let index = cluster.leader().await;
    for number in 0..100 {
        cluster.kv(index).put(put(format!("before/{number}"), "x")).await.unwrap();
    }
    cluster.crash(index).await;
    cluster.restart(index).await;
    cluster.wait_healthy().await;
    let member = Member { cluster: &cluster, index, via: BOTH[0] };
    assert_eq!(member.changes("/kv/before?recursive=true").await.len(), 100);
    run_all(&cluster, index).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_on_a_member_whose_state_was_installed() {
    let mut cluster = Cluster::start(snapshots::settings()).await;
    let index = cluster.follower().await;
    cluster.crash(index).await;
    snapshots::install(&mut cluster, index).await;
    run_all(&cluster, index).await;
}
