//! Watches when members stop, leaders are lost, and clients do not read.

use std::time::Duration;

use headwater::pb::early;
use headwater::pb::early::watch_client::WatchClient as EarlyClient;
use headwater::pb::etcdserverpb as pb;
use headwater::stream::FeedOptions;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use super::cases::Member;
use super::client::{Stream, TIMEOUT, everything, key, prefix, show};
use crate::cluster::{Cluster, Settings, put, wait_until, within};
use crate::snapshots;

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_stops_ends_its_streams() {
    let mut cluster = Cluster::three().await;
    let index = cluster.follower().await;
    let mut stream = Stream::open(&cluster.client_url(index)).await.unwrap();
    stream.create(key("k")).await;
    // Streams without watchers end as well: before the first one, after the last one, in both APIs.
    let mut empty = Stream::open(&cluster.client_url(index)).await.unwrap();
    let mut emptied = Stream::open(&cluster.client_url(index)).await.unwrap();
    let watch_id = emptied.create(key("k")).await.watch_id;
    emptied.cancel(watch_id).await;
    assert!(emptied.next().await.canceled);
    let (_requests, queued) = mpsc::channel::<early::WatchRequest>(1);
    let mut client = EarlyClient::connect(cluster.client_url(index)).await.unwrap();
    let mut early = client.watch(ReceiverStream::new(queued)).await.unwrap().into_inner();
    // Called directly, because an orderly stop would also end the streams in another way.
    cluster.node(index).close_streams();
    let ended = [stream.try_next().await, empty.try_next().await, emptied.try_next().await];
    let early = tokio::time::timeout(TIMEOUT, early.message()).await.expect("it ends in time");
    for status in ended.into_iter().map(Result::unwrap_err).chain([early.unwrap_err()]) {
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "etcdserver: server stopped"));
    }
    cluster.stop(index).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_requires_a_leader_ends_without_one() {
    let settings = Settings { leader_loss_timeout: Duration::from_secs(1), ..Settings::default() };
    let mut cluster = Cluster::start(settings).await;
    let survivor = cluster.follower().await;
    let url = cluster.client_url(survivor);
    let mut requires = Stream::open_with(&url, true).await.unwrap();
    requires.create(key("k")).await;
    let mut patient = Stream::open(&url).await.unwrap();
    patient.create(key("k")).await;
    let early = |requires_leader: bool| {
        let wish = early::WatchRequest { key: "k".into(), ..Default::default() };
        let mut request = tonic::Request::new(tokio_stream::once(wish));
        if requires_leader {
            request.metadata_mut().insert("hasleader", "true".parse().unwrap());
        }
        let url = url.clone();
        async move { Ok::<_, Status>(EarlyClient::connect(url).await.unwrap().watch(request).await?.into_inner()) }
    };
    let mut early_requires = early(true).await.unwrap();
    let mut early_patient = early(false).await.unwrap();
    for index in 0..3 {
        if index != survivor {
            cluster.crash(index).await;
        }
    }
    let status = requires.try_next().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "etcdserver: no leader"));
    let early_status = within("the early stream ends", early_requires.message()).await.unwrap_err();
    assert_eq!((early_status.code(), early_status.message()), (Code::Unavailable, "etcdserver: no leader"));
    let refused: [Status; 2] = [Stream::open_with(&url, true).await.err().unwrap(), early(true).await.err().unwrap()];
    for refused in refused {
        assert_eq!((refused.code(), refused.message()), (Code::Unavailable, "etcdserver: no leader"));
    }
    for index in 0..3 {
        if index != survivor {
            cluster.restart(index).await;
        }
    }
    cluster.wait_healthy().await;
    let revision = cluster.kv(survivor).put(put("k", "v")).await.unwrap().into_inner().header.unwrap().revision;
    assert_eq!(show(&patient.events(1).await), [format!("+k=v@{revision}")], "the other one went on");
    let event = within("an early event", early_patient.message()).await.unwrap().unwrap();
    assert_eq!(event.header.unwrap().revision, revision, "and so did the early one");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_read_loses_nothing_and_pins_little() {
    let feed = FeedOptions { window_items_max: 100, ..FeedOptions::default() };
    let cluster = Cluster::start(Settings { feed, ..Settings::default() }).await;
    let index = cluster.leader().await;
    let member = Member { cluster: &cluster, index };
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut stream = member.stream().await;
        stream.create(prefix("slow/")).await;
        slow.push(stream);
    }
    let mut fast = member.stream().await;
    fast.create(prefix("slow/")).await;
    let value = "x".repeat(10_000);
    let mut wanted = Vec::new();
    // One connection: one for each of the writes would cost more than the writes.
    let mut kv = cluster.kv(index);
    for number in 0..1000 {
        let answer = kv.put(put(format!("slow/{}", number % 10), value.as_str())).await.unwrap().into_inner();
        let revision = answer.header.unwrap().revision;
        wanted.push(revision);
        let event = fast.events(1).await;
        assert_eq!(event[0].kv.as_ref().unwrap().mod_revision, revision);
    }
    let stats = cluster.node(index).follow().key_stats();
    assert!(stats.window_items <= 100 && stats.window_bytes < 4 << 20, "{stats:?}");
    for stream in &mut slow {
        let events = stream.events(wanted.len()).await;
        let found: Vec<_> = events.iter().map(|event| event.kv.as_ref().unwrap().mod_revision).collect();
        assert_eq!(found, wanted);
    }
    let stats = cluster.node(index).follow().key_stats();
    assert!(stats.fell_behind > 0, "they were slow: {stats:?}");
    drop((slow, fast));
    wait_until("watchers of closed streams are gone", async || {
        cluster.node(index).follow().key_stats().subscriptions == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_is_far_behind_leaves_the_others_of_its_stream_their_turns() {
    const BACKLOG: usize = 24;
    let cluster = Cluster::start(Settings::calm()).await;
    let member = Member { cluster: &cluster, index: cluster.leader().await };
    let mut stream = member.stream().await;
    let quick = stream.create(key("quick")).await.watch_id;
    let first = member.put("backlog", "first").await;
    // Each event fills a response, and all of them exceed the buffers of a connection without a
    // reader.
    let value = "x".repeat(1_000_000);
    for _ in 0..BACKLOG {
        member.put("backlog", &value).await;
    }
    let behind = stream.create(pb::WatchCreateRequest { start_revision: first, ..key("backlog") }).await.watch_id;
    let (mut before, mut seen) = (0, stream.next().await.events.len());
    let revision = member.put("quick", "x").await;
    while seen <= BACKLOG {
        let response = stream.next().await;
        if response.watch_id == quick {
            assert_eq!(show(&response.events), [format!("+quick=x@{revision}")]);
            before = seen;
        } else {
            assert_eq!(response.watch_id, behind);
            seen += response.events.len();
        }
    }
    assert!(before > 0, "it waited until the other had caught up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_skips_by_snapshot_serves_what_it_skipped() {
    let mut cluster = Cluster::start(snapshots::settings()).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let first = cluster.kv(leader).put(put("first", "x")).await.unwrap().into_inner().header.unwrap().revision;
    cluster.hashes().await;
    cluster.crash(follower).await;
    let missed = snapshots::write_past(&cluster, leader, "skip").await;
    cluster.restart(follower).await;
    // Opened before the member has caught up: the snapshot is installed while the watcher is open.
    let mut stream = Stream::open(&cluster.client_url(follower)).await.unwrap();
    stream.create(pb::WatchCreateRequest { start_revision: first, ..everything() }).await;
    let events = tokio::time::timeout(Duration::from_secs(60), stream.events(1 + missed)).await.unwrap();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event.kv.as_ref().unwrap().mod_revision, first + number as i64);
    }
    snapshots::assert_skipped(&cluster, follower, missed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_outlives_its_requests_and_ends_with_its_last_watcher() {
    let cluster = Cluster::three().await;
    let mut stream = Stream::open(&cluster.client_url(0)).await.unwrap();
    stream.create(key("k")).await;
    stream.close();
    for value in ["1", "2"] {
        cluster.kv(1).put(put("k", value)).await.unwrap();
        assert_eq!(stream.events(1).await[0].kv.as_ref().unwrap().value, value);
    }
    let mut stream = Stream::open(&cluster.client_url(0)).await.unwrap();
    let watch_id = stream.create(key("k")).await.watch_id;
    stream.cancel(watch_id).await;
    stream.close();
    assert!(stream.next().await.canceled);
    assert!(stream.try_next().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_too_large_ends_its_stream_as_in_go() {
    let cluster = Cluster::three().await;
    let mut stream = Stream::open(&cluster.client_url(0)).await.unwrap();
    stream.create(key("k")).await;
    let key = vec![b'k'; 3 << 20].into();
    stream.ask(pb::WatchCreateRequest { key, ..Default::default() }).await;
    let status = stream.try_next().await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().starts_with("grpc: received message larger than max ("), "{status}");
}
