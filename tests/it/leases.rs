//! Leases on a cluster (spec: etcd §3, §7.5). Their time is a clock that the tests move; elections
//! take real time.

use std::time::Duration;

use headwater::node::{LeaseClock, ManualClock};
use headwater::pb::early;
use headwater::pb::early::etcd_client::EtcdClient;
use headwater::pb::early::event::EventType;
use headwater::pb::early::watch_client::WatchClient;
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::lease_client::LeaseClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Streaming};

use crate::cluster::{Cluster, Settings, get, get_local, pass, put, wait_until, within};
use crate::watch::client::{Stream, prefix, show};

/// Longest time by which one election extends a lease, seconds, with the timing of these tests:
/// twice the longest election timeout, and the renewals that were not in the log yet.
const LATE_MAX: u64 = 2 + 6;

async fn cluster() -> (Cluster, ManualClock) {
    let (clock, hand) = LeaseClock::by_hand();
    (Cluster::start_with_clock(Settings::default(), clock).await, hand)
}

async fn leases(cluster: &Cluster, member: usize) -> LeaseClient<Channel> {
    LeaseClient::connect(cluster.client_url(member)).await.unwrap()
}

async fn early(cluster: &Cluster, member: usize) -> EtcdClient<Channel> {
    EtcdClient::connect(cluster.client_url(member)).await.unwrap()
}

async fn grant(cluster: &Cluster, member: usize, id: i64, ttl: i64) -> pb::LeaseGrantResponse {
    leases(cluster, member).await.lease_grant(pb::LeaseGrantRequest { id, ttl }).await.unwrap().into_inner()
}

fn attached(key: &str, lease: i64) -> pb::PutRequest {
    pb::PutRequest { lease, ..put(key, "v") }
}

async fn standing(cluster: &Cluster, member: usize, id: i64) -> pb::LeaseTimeToLiveResponse {
    let request = pb::LeaseTimeToLiveRequest { id, keys: true };
    within("a lease is looked at", leases(cluster, member).await.lease_time_to_live(request))
        .await
        .unwrap()
        .into_inner()
}

async fn is_there(cluster: &Cluster, member: usize, key: &str) -> bool {
    !cluster.kv(member).range(get_local(key)).await.unwrap().into_inner().kvs.is_empty()
}

struct KeepAlive {
    requests: mpsc::Sender<pb::LeaseKeepAliveRequest>,
    answers: Streaming<pb::LeaseKeepAliveResponse>,
}

impl KeepAlive {
    async fn open(cluster: &Cluster, member: usize) -> Self {
        let (requests, queued) = mpsc::channel(64);
        let answers = leases(cluster, member).await.lease_keep_alive(ReceiverStream::new(queued)).await.unwrap();
        Self { requests, answers: answers.into_inner() }
    }

    async fn once(&mut self, id: i64) -> i64 {
        self.requests.send(pb::LeaseKeepAliveRequest { id }).await.unwrap();
        let answer = within("an answer", self.answers.message()).await.unwrap().expect("the stream is open");
        assert!(answer.id == id && answer.header.unwrap().revision > 0);
        answer.ttl
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_ends_on_every_member_with_its_keys_in_one_revision() {
    let (cluster, clock) = cluster().await;
    let follower = cluster.follower().await;
    let granted = grant(&cluster, follower, 0, 10).await;
    assert!(granted.id > 0 && granted.ttl == 10 && granted.error.is_empty(), "{granted:?}");
    let mut streams = Vec::new();
    for member in 0..3 {
        let mut stream = Stream::open(&cluster.client_url(member)).await.unwrap();
        stream.create(pb::WatchCreateRequest { prev_kv: true, ..prefix("session/") }).await;
        streams.push(stream);
    }
    for (member, key) in ["session/b", "session/a", "session/c"].into_iter().enumerate() {
        cluster.kv(member).put(attached(key, granted.id)).await.unwrap();
    }
    let last = cluster.kv(0).put(put("session/c", "detached")).await.unwrap().into_inner().header.unwrap().revision;
    for stream in &mut streams {
        stream.events(4).await;
    }
    let stands = standing(&cluster, follower, granted.id).await;
    assert_eq!((stands.granted_ttl, stands.keys.clone()), (10, vec!["session/a".into(), "session/b".into()]));
    pass(&clock, 9).await;
    assert!(is_there(&cluster, follower, "session/a").await);
    // On a loaded machine the leader may change at any time.
    pass(&clock, 1 + LATE_MAX).await;
    let at = last + 1;
    for (member, stream) in streams.iter_mut().enumerate() {
        let events = show(&stream.events(2).await);
        assert_eq!(events, [format!("-session/a@{at}<v"), format!("-session/b@{at}<v")], "member {member}");
    }
    for member in 0..3 {
        let found = cluster.kv(member).range(get("session/c")).await.unwrap().into_inner();
        assert_eq!((found.kvs.len(), found.header.unwrap().revision), (1, at));
        let stands = standing(&cluster, member, granted.id).await;
        assert_eq!((stands.ttl, stands.granted_ttl, stands.keys.len()), (-1, 0, 0));
    }
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_about_leases_and_their_refusals_read_the_same_on_every_member() {
    let (cluster, _clock) = cluster().await;
    for member in 0..3 {
        let id = 100 + member as i64;
        assert_eq!(grant(&cluster, member, id, -5).await.ttl, 3, "raised to what outlives an election");
        assert_eq!(grant(&cluster, member, -id, 60).await.id, -id);
        let mut client = leases(&cluster, member).await;
        let status = client.lease_grant(pb::LeaseGrantRequest { id, ttl: 60 }).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "etcdserver: lease already exists"));
        let status = client.lease_grant(pb::LeaseGrantRequest { id: 0, ttl: 9_000_000_001 }).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::OutOfRange, "etcdserver: too large lease TTL"));
        let status = client.lease_revoke(pb::LeaseRevokeRequest { id: 7 }).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::NotFound, "etcdserver: requested lease not found"));
        let status = cluster.kv(member).put(attached("k", 7)).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::NotFound, "etcdserver: requested lease not found"));
        assert_eq!(standing(&cluster, member, 7).await.ttl, -1);
        assert_eq!(KeepAlive::open(&cluster, member).await.once(7).await, 0);

        cluster.kv(member).put(attached("k", -id)).await.unwrap();
        client.lease_revoke(pb::LeaseRevokeRequest { id: -id }).await.unwrap();
        assert!(cluster.kv(member).range(get("k")).await.unwrap().into_inner().kvs.is_empty());
        let listed = client.lease_leases(pb::LeaseLeasesRequest {}).await.unwrap().into_inner().leases;
        let listed: Vec<_> = listed.into_iter().map(|lease| lease.id).collect();
        assert_eq!(listed, (100..=id).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_kept_alive_through_a_follower() {
    let (cluster, clock) = cluster().await;
    let follower = cluster.follower().await;
    grant(&cluster, follower, 1, 4).await;
    cluster.kv(follower).put(attached("k", 1)).await.unwrap();
    let mut stream = KeepAlive::open(&cluster, follower).await;
    for _ in 0..10 {
        pass(&clock, 2).await;
        assert_eq!(stream.once(1).await, 4);
    }
    // A lease that is kept alive after a long time: that renewal is in the log.
    grant(&cluster, follower, 2, 60).await;
    for _ in 0..8 {
        pass(&clock, 2).await;
        assert_eq!(stream.once(1).await, 4);
    }
    assert_eq!(stream.once(2).await, 60);
    assert!((60..=60 + LATE_MAX as i64).contains(&standing(&cluster, follower, 2).await.ttl));
    pass(&clock, 4 + LATE_MAX).await;
    wait_until("it ends when nobody keeps it alive", async || !is_there(&cluster, follower, "k").await).await;
    assert_eq!((stream.once(1).await, stream.once(2).await), (0, 60));
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_leader_dies_no_lease_ends_early_and_none_much_late() {
    let (mut cluster, clock) = cluster().await;
    let leader = cluster.leader().await;
    grant(&cluster, leader, 1, 60).await;
    grant(&cluster, leader, 2, 60).await;
    for lease in [1, 2] {
        cluster.kv(leader).put(attached(&format!("k{lease}"), lease)).await.unwrap();
    }
    pass(&clock, 40).await;
    assert_eq!(KeepAlive::open(&cluster, leader).await.once(2).await, 60);
    cluster.crash(leader).await;
    let other = cluster.leader().await;
    let stands = standing(&cluster, other, 1).await;
    assert!((20..=20 + LATE_MAX as i64).contains(&stands.ttl), "{stands:?}");
    pass(&clock, 19).await;
    assert!(is_there(&cluster, other, "k1").await, "not early");
    pass(&clock, 1 + LATE_MAX).await;
    wait_until("not much late", async || !is_there(&cluster, other, "k1").await).await;
    // The other lease was kept alive at the old leader: it lives its whole time.
    pass(&clock, 60 - 20 - LATE_MAX - 1).await;
    assert!(is_there(&cluster, other, "k2").await, "not early");
    pass(&clock, 1 + LATE_MAX).await;
    wait_until("not much late", async || !is_there(&cluster, other, "k2").await).await;
    cluster.restart(leader).await;
    cluster.wait_healthy().await;
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_outlive_a_restart_of_all_members() {
    let (mut cluster, clock) = cluster().await;
    grant(&cluster, 0, 1, 60).await;
    cluster.kv(0).put(attached("k", 1)).await.unwrap();
    pass(&clock, 30).await;
    for member in 0..3 {
        cluster.crash(member).await;
    }
    // Time without a leader does not count.
    pass(&clock, 500).await;
    for member in 0..3 {
        cluster.restart(member).await;
    }
    cluster.wait_healthy().await;
    let stands = standing(&cluster, 0, 1).await;
    assert!((30..=30 + LATE_MAX as i64).contains(&stands.ttl), "{stands:?}");
    assert_eq!((stands.granted_ttl, stands.keys), (60, vec!["k".into()]));
    pass(&clock, 30 + LATE_MAX).await;
    wait_until("it ends", async || !is_there(&cluster, 0, "k").await).await;
}

async fn early_watch(cluster: &Cluster, member: usize, start_revision: i64) -> Streaming<early::WatchResponse> {
    let mut client = WatchClient::connect(cluster.client_url(member)).await.unwrap();
    let request = early::WatchRequest { prefix: "k/".into(), start_revision, ..Default::default() };
    let requests = futures::StreamExt::chain(futures::stream::iter([request]), futures::stream::pending());
    client.watch(requests).await.unwrap().into_inner()
}

async fn next_early(stream: &mut Streaming<early::WatchResponse>) -> String {
    let response = within("an event", stream.message()).await.unwrap().expect("the stream is open");
    let (revision, event) = (response.header.unwrap().revision, response.event.unwrap());
    let kind = match event.event_type() {
        EventType::Put => "put",
        EventType::Delete => "delete",
        EventType::Expire => "expire",
    };
    let kv = event.kv.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{kind} {}={} of {} at {revision}", text(&kv.key), text(&kv.value), kv.mod_revision)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_early_api_attaches_apart_from_puts_and_tells_expiry_from_removal() {
    let (mut cluster, clock) = cluster().await;
    let member = cluster.follower().await;
    let mut client = early(&cluster, member).await;
    let created = client.lease_create(early::LeaseCreateRequest { ttl: 10 }).await.unwrap().into_inner();
    assert!(created.lease_id > 0 && created.ttl == 10 && created.error.is_empty(), "{created:?}");
    let lease_id = created.lease_id;
    let put = |key: &'static str, value: &'static str| early::PutRequest { key: key.into(), value: value.into() };
    let attach = |key: &'static str, lease_id| early::LeaseAttachRequest { lease_id, key: key.into() };
    client.put(put("k/a", "1")).await.unwrap();
    let refused = client.lease_attach(attach("k/x", lease_id)).await.unwrap().into_inner().header.unwrap();
    assert_eq!(refused.error, "etcdserver: key not found");
    let refused = client.lease_attach(attach("k/a", 7)).await.unwrap().into_inner().header.unwrap();
    assert_eq!(refused.error, "etcdserver: requested lease not found");
    let first = client.lease_attach(attach("k/a", lease_id)).await.unwrap().into_inner().header.unwrap().revision;
    let again = client.lease_attach(attach("k/a", lease_id)).await.unwrap().into_inner().header.unwrap().revision;
    assert_eq!(first, again, "attached already");
    client.put(put("k/a", "2")).await.unwrap();
    let txn = early::LeaseTxnRequest {
        request: Some(early::TxnRequest {
            success: vec![early::RequestUnion {
                request: Some(early::request_union::Request::RequestPut(put("k/b", "3"))),
            }],
            ..Default::default()
        }),
        success: vec![attach("k/b", lease_id)],
        failure: vec![attach("k/nothing", lease_id)],
    };
    let done = client.lease_txn(txn).await.unwrap().into_inner();
    let (header, response) = (done.header.unwrap(), done.response.unwrap());
    assert!(header.error.is_empty() && response.succeeded, "{header:?}");
    assert_eq!((response.responses.len(), done.attach_responses.len()), (1, 1));
    assert_eq!(done.attach_responses[0].header.as_ref().unwrap().revision, header.revision);
    let stands = standing(&cluster, member, lease_id).await;
    assert_eq!(stands.keys, ["k/a", "k/b"], "the modern API sees the same lease");

    let keep = futures::stream::iter([early::LeaseKeepAliveRequest { lease_id }]);
    let mut answers = client.lease_keep_alive(keep).await.unwrap().into_inner();
    assert_eq!(within("an answer", answers.message()).await.unwrap().unwrap().ttl, 10);

    let mut live = early_watch(&cluster, member, header.revision).await;
    assert_eq!(next_early(&mut live).await, format!("put k/b=3 of {0} at {0}", header.revision));
    pass(&clock, 10 + LATE_MAX).await;
    let (at, a, b) = (header.revision + 1, first + 1, header.revision);
    let wanted = [format!("expire k/a=2 of {a} at {at}"), format!("expire k/b=3 of {b} at {at}")];
    assert_eq!([next_early(&mut live).await, next_early(&mut live).await], wanted);
    // Also in replay, on a member that was down and has restarted.
    cluster.crash(member).await;
    cluster.restart(member).await;
    cluster.wait_healthy().await;
    let mut replay = early_watch(&cluster, member, at).await;
    assert_eq!([next_early(&mut replay).await, next_early(&mut replay).await], wanted);

    // Keys of a lease that is revoked expire as well; one that is removed does not.
    let mut client = early(&cluster, member).await;
    let lease_id = client.lease_create(early::LeaseCreateRequest { ttl: 10 }).await.unwrap().into_inner().lease_id;
    let revision = client.put(put("k/c", "4")).await.unwrap().into_inner().header.unwrap().revision;
    client.lease_attach(attach("k/c", lease_id)).await.unwrap();
    client.lease_revoke(early::LeaseRevokeRequest { lease_id }).await.unwrap();
    let mut replay = early_watch(&cluster, member, revision + 2).await;
    assert_eq!(next_early(&mut replay).await, format!("expire k/c=4 of {} at {}", revision + 1, revision + 2));
    client.put(put("k/c", "5")).await.unwrap();
    assert_eq!(next_early(&mut replay).await, format!("put k/c=5 of {0} at {0}", revision + 3));
    client.delete_range(early::DeleteRangeRequest { key: "k/c".into(), ..Default::default() }).await.unwrap();
    assert_eq!(next_early(&mut replay).await, format!("delete k/c=5 of {} at {}", revision + 3, revision + 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_leases_end_while_writes_go_on() {
    // Its load must not depose the leader on a busy machine.
    let (lease_clock, clock) = LeaseClock::by_hand();
    let cluster = Cluster::start_with_clock(Settings::calm(), lease_clock).await;
    let leader = cluster.leader().await;
    let count = 2000;
    let mut granting = tokio::task::JoinSet::new();
    for worker in 0..20 {
        let (mut client, mut kv) = (leases(&cluster, leader).await, cluster.kv(leader));
        granting.spawn(async move {
            for number in 0..count / 20 {
                let id = 1 + worker * (count / 20) + number;
                client.lease_grant(pb::LeaseGrantRequest { id, ttl: 10 }).await.unwrap();
                kv.put(attached(&format!("many/{id}"), id)).await.unwrap();
            }
        });
    }
    within("leases are granted", granting.join_all()).await;
    let before = cluster.kv(leader).range(get("x")).await.unwrap().into_inner().header.unwrap().revision;
    clock.advance(Duration::from_secs(10));
    for number in 0..50 {
        within("a write", cluster.kv(leader).put(put("x", number.to_string()))).await.unwrap();
    }
    let left = pb::RangeRequest { range_end: "many0".into(), count_only: true, ..get("many/") };
    wait_until("all are gone", async || {
        // A change of leader adds a little time.
        clock.advance(Duration::from_millis(10));
        cluster.kv(leader).range(left.clone()).await.unwrap().into_inner().count == 0
    })
    .await;
    let revision = cluster.kv(leader).range(get("x")).await.unwrap().into_inner().header.unwrap().revision;
    assert_eq!(revision, before + count + 50, "each in a revision of its own, each once");
    let hashes = cluster.hashes().await;
    assert!(hashes.windows(2).all(|pair| pair[0] == pair[1]), "{hashes:?}");
}
