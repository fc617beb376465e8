//! An election follows at once when the leader's process has ended, and none follows when only its
//! connections break (docs/design/cluster.md).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::cluster::{Cluster, Settings, get, put, wait_until};
use crate::metrics::Samples;

/// Number of elections that `member` began because the leader's process had ended.
async fn ends_seen(cluster: &Cluster, member: usize) -> f64 {
    Samples::of(cluster, member).await.one("headwater_leader_process_ends_total")
}

#[tokio::test(flavor = "multi_thread")]
async fn survivors_elect_another_leader_because_the_process_has_ended() {
    for members in [3, 5] {
        let mut cluster = Cluster::start(Settings { members, ..Settings::calm() }).await;
        cluster.kv(0).put(put("k", "v")).await.unwrap();
        let leader = cluster.leader().await;
        let ended = cluster.id(leader);
        cluster.crash(leader).await;
        let survivor = cluster.running().next().unwrap();
        wait_until("another member leads", async || {
            let next = cluster.node(survivor).live_leader();
            next.is_some_and(|id| id.get() != ended)
        })
        .await;
        let mut elections = 0.0;
        for member in cluster.running() {
            elections += ends_seen(&cluster, member).await;
        }
        assert!(elections >= 1.0, "the leader of {members} was elected by the timeout");
        cluster.kv(survivor).put(put("k", "w")).await.unwrap();
        let read = cluster.kv(survivor).range(get("k")).await.unwrap().into_inner();
        assert_eq!(&read.kvs[0].value[..], b"w");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_follower_is_no_reason_for_an_election() {
    let mut cluster = Cluster::start(Settings::calm()).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let term = cluster.node(leader).leadership().term;
    cluster.crash(follower).await;
    for round in 0..20 {
        cluster.kv(leader).put(put(format!("k{round}"), "v")).await.unwrap();
    }
    cluster.restart(follower).await;
    cluster.wait_healthy().await;
    assert_eq!(cluster.node(leader).leadership().term, term);
    for member in cluster.running() {
        assert_eq!(ends_seen(&cluster, member).await, 0.0, "member {member}");
    }
}

/// A relay that passes connections on to members, and resets all of them when `cut` changes.
struct Relay {
    cut: watch::Sender<u64>,
    resets: AtomicUsize,
}

impl Relay {
    fn new() -> Arc<Self> {
        Arc::new(Self { cut: watch::Sender::new(0), resets: AtomicUsize::new(0) })
    }

    /// Listens in front of a member; returns the address.
    async fn before(self: &Arc<Self>, member: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let relay = Arc::clone(self);
        tokio::spawn(async move {
            while let Ok((incoming, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&relay).pass(incoming, member));
            }
        });
        address
    }

    async fn pass(self: Arc<Self>, mut incoming: TcpStream, member: SocketAddr) {
        let mut cut = self.cut.subscribe();
        let Ok(mut outgoing) = TcpStream::connect(member).await else { return };
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut incoming, &mut outgoing) => {}
            _ = cut.changed() => {
                // Closed with a reset, as by a middlebox.
                for end in [&incoming, &outgoing] {
                    socket2::SockRef::from(end).set_linger(Some(Duration::ZERO)).unwrap();
                }
                self.resets.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_reset_connections_between_live_members_change_no_term() {
    let relay = Relay::new();
    let through = Arc::clone(&relay);
    let cluster = Cluster::start_through(Settings::calm(), async move |peer| through.before(peer).await).await;
    let leader = cluster.leader().await;
    let term = cluster.node(leader).leadership().term;
    let mut round = 0;
    while relay.resets.load(Ordering::Relaxed) < 1000 {
        round += 1;
        // A write makes the members connect; its answer may be lost with them.
        let mut kv = cluster.kv(leader);
        let writing = kv.put(put(format!("k{}", round % 10), "v"));
        let _ended = tokio::time::timeout(Duration::from_millis(50), writing).await.is_ok();
        relay.cut.send_modify(|cuts| *cuts += 1);
        assert!(round < 5000, "connections are made again after each cut");
    }
    cluster.wait_healthy().await;
    cluster.kv(leader).put(put("last", "v")).await.unwrap();
    for member in cluster.running() {
        let now = cluster.node(member).leadership();
        assert_eq!((now.term, now.leader), (term, Some(cluster.node(leader).identity().node_id)), "member {member}");
    }
}
