//! Every case on every kind of member, over both transports: the leader, a follower, a restarted
//! member, and a member with a state from a snapshot.

use super::operations::{commit, put};
use super::{cases, ready};
use crate::cluster::Cluster;
use crate::resources::client::Client as Resources;
use crate::snapshots;
use crate::store::client::{BOTH, Member};

async fn run_all(cluster: &Cluster, index: usize) {
    ready(cluster).await;
    Resources::of(cluster, index).register_demo().await;
    for via in BOTH {
        cases::run_all(Member { cluster, index, via }).await;
    }
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_at_the_leader() {
    let cluster = Cluster::three().await;
    run_all(&cluster, cluster.leader().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_at_a_follower() {
    let cluster = Cluster::three().await;
    run_all(&cluster, cluster.follower().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_at_a_restarted_member() {
    let mut cluster = Cluster::three().await;
    let index = cluster.leader().await;
    let keyed = || {
        let idempotency_key = "before".into();
        headwater::pb::headwater_v1::CommitRequest { idempotency_key, ..commit(vec![put("before", "x")]) }
    };
    ready(&cluster).await;
    let first = Member { cluster: &cluster, index, via: BOTH[0] }.commit(keyed()).await.unwrap();
    cluster.crash(index).await;
    cluster.restart(index).await;
    cluster.wait_healthy().await;
    let again = Member { cluster: &cluster, index, via: BOTH[0] }.commit(keyed()).await.unwrap();
    assert_eq!((again.index, again.done_before), (first.index, true));
    run_all(&cluster, index).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_at_a_member_whose_state_was_installed() {
    let mut cluster = Cluster::start(snapshots::settings()).await;
    let index = cluster.follower().await;
    let keyed = || {
        let idempotency_key = "before".into();
        headwater::pb::headwater_v1::CommitRequest { idempotency_key, ..commit(vec![put("before", "x")]) }
    };
    ready(&cluster).await;
    let first = Member { cluster: &cluster, index, via: BOTH[0] }.commit(keyed()).await.unwrap();
    cluster.crash(index).await;
    snapshots::install(&mut cluster, index).await;
    let again = Member { cluster: &cluster, index, via: BOTH[0] }.commit(keyed()).await.unwrap();
    assert_eq!((again.index, again.done_before), (first.index, true));
    run_all(&cluster, index).await;
}
