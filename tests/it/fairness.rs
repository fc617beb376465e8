//! One greedy client beside fifty modest ones (spec: security §2, Fairness), and the bounds for
//! each client. Judged by counts, not by times.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use headwater::node::{Limit, RateOptions};
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::kv_client::KvClient;
use headwater::pb::etcdserverpb::lease_client::LeaseClient;
use headwater::pb::subscribe::Topic;
use headwater::pb::subscribe::state_change_subscription_client::StateChangeSubscriptionClient;
use headwater::raft::Timing;
use headwater::types::limits::{PENDING_PROPOSALS_MAX, RANGE_STREAMS_OF_CLIENT_MAX};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::auth::start_held;
use crate::cluster::{Cluster, Settings, get, put, wait_until, within};
use crate::gateway::client::Connection;
use crate::subscribe::client::wildcard;
use crate::watch::client::{Stream, key};

const MODEST: u8 = 50;

/// A connection from the loopback address `127.0.HOST.1`, which counts as a client of its own. All
/// other connections of a test come from `127.0.0.1`.
async fn client(url: &str, host: u8) -> Channel {
    let from = IpAddr::from([127, 0, host, 1]);
    let endpoint = Endpoint::from_shared(url.to_owned()).unwrap().local_address(Some(from));
    within("a client connects", endpoint.connect()).await.unwrap()
}

fn limit_counters(cluster: &Cluster, member: usize, limit: Limit) -> u64 {
    cluster.node(member).limit_counters().counter(limit).get()
}

/// Number of puts of a greedy client beyond those that may be pending.
const REFUSED: usize = 100;

/// A client that sends more puts at once than may be pending, each of them once.
struct Greedy {
    tasks: JoinSet<()>,
    refused: Arc<AtomicUsize>,
}

impl Greedy {
    async fn begin(url: &str) -> Self {
        let (refused, mut tasks) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
        let kv = KvClient::new(client(url, 200).await);
        for number in 0..PENDING_PROPOSALS_MAX + REFUSED {
            let (mut kv, refused) = (kv.clone(), Arc::clone(&refused));
            tasks.spawn(async move {
                if let Err(status) = kv.put(put(format!("greedy/{number}"), "v")).await {
                    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { tasks, refused }
    }

    async fn wait_until_refused(&self, count: usize) {
        wait_until("puts of the greedy client are refused", async || self.refused.load(Ordering::Relaxed) >= count)
            .await;
    }
}

/// Lets each of fifty modest clients send a put to the member whose queue a greedy client has
/// filled. Nothing is committed until all of them are in the queue: the members of `holds` are
/// held. Returns for each put how many revisions were made until it had its own, sorted.
async fn puts_beside_a_greedy_client(cluster: &Cluster, member: usize, holds: &[&watch::Sender<bool>]) -> Vec<i64> {
    let url = cluster.client_url(member);
    let mut modest = Vec::new();
    for host in 1..=MODEST {
        modest.push(KvClient::new(client(&url, host).await));
    }
    // A follower is connected to the leader then.
    let first = cluster.kv(member).put(put("first", "v")).await.unwrap().into_inner().header.unwrap().revision;
    for hold in holds {
        hold.send_replace(true);
    }
    let greedy = Greedy::begin(&url).await;
    greedy.wait_until_refused(REFUSED).await;
    let mut asking = JoinSet::new();
    for (host, mut kv) in modest.into_iter().enumerate() {
        asking.spawn(async move {
            let answer = kv.put(put(format!("modest/{host}"), "v")).await;
            answer.expect("a modest client is not refused").into_inner().header.unwrap().revision
        });
    }
    // In the full queue, each put of a modest client takes the place of one of the greedy client.
    greedy.wait_until_refused(REFUSED + usize::from(MODEST)).await;
    for hold in holds {
        hold.send_replace(false);
    }
    let revisions = within("modest puts", asking.join_all()).await;
    within("greedy puts", greedy.tasks.join_all()).await;
    let mut passed: Vec<_> = revisions.into_iter().map(|revision| revision - first).collect();
    passed.sort_unstable();
    passed
}

#[tokio::test(flavor = "multi_thread")]
async fn puts_of_fifty_modest_clients_are_served_in_turn_with_a_greedy_one() {
    // Longer than the queue takes to fill on a busy machine: the held members begin no election.
    let timing = Timing {
        election_min: Duration::from_secs(15),
        election_max: Duration::from_secs(16),
        ..Settings::calm().timing
    };
    let (cluster, holds) = start_held(Settings { timing, ..Settings::calm() }).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let followers: Vec<_> = (0..holds.len()).filter(|member| *member != leader).map(|member| &holds[member]).collect();
    for member in [leader, follower] {
        let passed = puts_beside_a_greedy_client(&cluster, member, &followers).await;
        // Of the greedy client's 4950 commands, 2048 are with the leader when the modest ones come.
        // The first turns of all clients are next, perhaps behind one more batch of 1024: batches
        // that are sent at once may overtake each other. The others of the greedy client follow.
        assert!(passed[0] > 2048, "member {member}: commands were committed meanwhile: {passed:?}");
        assert!(passed[passed.len() - 1] < 3200, "member {member}: a put waited for more than its turn: {passed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streamed_ranges_of_fifty_modest_clients_are_served_beside_those_of_a_greedy_one() {
    let cluster = Cluster::start(Settings { request_timeout: Duration::from_secs(15), ..Settings::calm() }).await;
    let member = cluster.follower().await;
    let url = cluster.client_url(member);
    for number in 0..20 {
        cluster.kv(member).put(put(format!("{number:02}"), "v".repeat(500_000))).await.unwrap();
    }
    let all = || pb::RangeRequest { range_end: "9".into(), ..get("0") };
    // The greedy client opens twice as many as may run and reads none to its end.
    let (opened, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
    let mut greedy = JoinSet::new();
    for _ in 0..64 {
        let mut kv = KvClient::new(client(&url, 200).await);
        let (opened, open) = (Arc::clone(&opened), Arc::clone(&open));
        greedy.spawn(async move {
            let Ok(answer) = kv.range_stream(all()).await else { return };
            let mut stream = answer.into_inner();
            if open.load(Ordering::Relaxed) && matches!(stream.message().await, Ok(Some(_))) {
                opened.fetch_add(1, Ordering::Relaxed);
                std::future::pending::<()>().await;
            }
        });
    }
    wait_until("the greedy client has all that it may have", async || {
        opened.load(Ordering::Relaxed) >= RANGE_STREAMS_OF_CLIENT_MAX
    })
    .await;
    let mut modest = JoinSet::new();
    for host in 1..=MODEST {
        let mut kv = KvClient::new(client(&url, host).await);
        modest.spawn(async move {
            let mut stream = kv.range_stream(get("07")).await.unwrap().into_inner();
            let mut count = 0;
            while let Some(message) = stream.message().await.unwrap() {
                count += message.range_response.map_or(0, |part| part.kvs.len());
            }
            count
        });
    }
    assert_eq!(within("modest ranges", modest.join_all()).await, [1; MODEST as usize]);
    assert_eq!(opened.load(Ordering::Relaxed), RANGE_STREAMS_OF_CLIENT_MAX, "the greedy client waits for its own");
    open.store(false, Ordering::Relaxed);
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_are_bounded_by_stream_and_in_all_and_the_others_go_on() {
    let settings = Settings { members: 1, watchers_max: 8, watchers_per_stream_max: 4, ..Settings::default() };
    let cluster = Cluster::start(settings).await;
    let url = cluster.client_url(0);
    let mut first = Stream::open(&url).await.unwrap();
    for _ in 0..4 {
        assert!(!first.create(key("k")).await.canceled, "at the limit of a stream");
    }
    let past = first.create(key("k")).await;
    assert!(past.canceled && past.watch_id == -1, "{past:?}");
    assert_eq!(past.cancel_reason, "headwater: too many watchers on this stream: cancel some, or open another stream");
    // All clients share the first six watchers; of the last two, each client may have one.
    let mut second = Stream::open(&url).await.unwrap();
    for _ in 0..3 {
        assert!(!second.create(key("k")).await.canceled, "at the limit in all");
    }
    let reason = "headwater: too many watchers on this member: cancel some, or ask another member";
    let past = second.create(key("k")).await;
    assert!(past.canceled && past.watch_id == -1, "{past:?}");
    assert_eq!(past.cancel_reason, reason);
    let subscribe = || wildcard(Topic::ServiceList);
    let mut other = StateChangeSubscriptionClient::new(client(&url, 7).await);
    let _last = other.subscribe(subscribe()).await.expect("another client has one of the last quarter");
    let refused = other.subscribe(subscribe()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("too many watchers on this member"), "{}", refused.message());
    assert_eq!(
        (limit_counters(&cluster, 0, Limit::WatchersPerStream), limit_counters(&cluster, 0, Limit::Watchers)),
        (1, 2)
    );

    cluster.kv(0).put(put("k", "v")).await.unwrap();
    first.events(4).await;
    second.events(3).await;
    first.cancel(0).await;
    assert!(first.next().await.canceled);
    assert!(!second.create(key("k")).await.canceled, "a cancelled watcher makes room");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_has_its_rate_and_health_and_keep_alives_have_none() {
    let rate = RateOptions { requests_per_second: 1, burst: 5 };
    let cluster = Cluster::start(Settings { members: 1, request_rate: Some(rate), ..Settings::default() }).await;
    let url = cluster.client_url(0);
    let began = Instant::now();
    let mut kv = KvClient::new(client(&url, 1).await);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..40 {
        match kv.put(put("k", "v")).await {
            Ok(_) => taken += 1,
            Err(status) => {
                assert_eq!(
                    (status.code(), status.message()),
                    (Code::ResourceExhausted, "etcdserver: too many requests")
                );
                refused += 1;
            }
        }
    }
    let most = 5 + began.elapsed().as_secs() + 1;
    assert!((5..=most).contains(&taken), "{taken} of {most}");
    assert_eq!(limit_counters(&cluster, 0, Limit::RequestRate), refused);

    let mut other = KvClient::new(client(&url, 2).await);
    other.put(put("k", "v")).await.expect("another client has a rate of its own");
    let mut leases = LeaseClient::new(client(&url, 3).await);
    let lease = pb::LeaseGrantRequest { ttl: 60, id: 7 };
    leases.lease_grant(lease).await.unwrap();
    let mut http = Connection::open(&url, http::Version::HTTP_11).await;
    let mut statuses = Vec::new();
    while !(statuses.contains(&200) && statuses.contains(&429)) {
        let answer = http.post("/v3/kv/put", r#"{"key":"aw==","value":"dg=="}"#).await;
        if answer.status == 429 {
            assert_eq!(answer.headers["retry-after"], "1");
            assert_eq!(answer.json["message"], "etcdserver: too many requests");
        }
        statuses.push(answer.status);
    }
    // A stream counts when it opens, and its watchers as they begin; events do not.
    let mut watches = Vec::new();
    for _ in 0..20 {
        let live = http.send(http::Request::get("/livez").body(tonic::body::Body::empty()).unwrap()).await;
        assert_eq!(live.status(), 200);
        // A read body frees the connection of HTTP/1.
        http_body_util::BodyExt::collect(live.into_body()).await.unwrap();
        let keep = tokio_stream::iter([pb::LeaseKeepAliveRequest { id: 7 }]);
        let mut kept = leases.lease_keep_alive(keep).await.unwrap().into_inner();
        assert_eq!(kept.message().await.unwrap().unwrap().ttl, 60);
        watches.push(Stream::open(&url).await.map(drop).map_err(|status| status.code()));
    }
    assert!(watches.contains(&Err(Code::ResourceExhausted)), "{watches:?}");
}
