//! Failures are reported within the deadline, with a status that says whether a request may have
//! taken effect.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use headwater::node::{Consistency, NodeError, RequestContext};
use headwater::types::{Command, KeyRange, LeaseChoice, LeaseId, Put, RangeQuery, ValueChoice};

use crate::cluster::{Cluster, Settings, get, get_local, put, wait_until};
use crate::snapshots;

fn command(key: &'static str) -> Command {
    Command::Put(Put {
        key: key.into(),
        value: ValueChoice::Set("v".into()),
        lease: LeaseChoice::Set(LeaseId::NONE),
        prev_kv: false,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_writes_and_linearizable_reads_fail_in_time_and_local_reads_go_on() {
    let mut cluster = Cluster::three().await;
    cluster.kv(0).put(put("k", "v")).await.unwrap();
    let survivor = cluster.leader().await;
    for member in (0..3).filter(|member| *member != survivor) {
        cluster.crash(member).await;
    }
    let node = cluster.node(survivor).clone();
    let began = Instant::now();
    let write = node.propose(&RequestContext::within(Duration::from_secs(1)), command("x")).await.unwrap_err();
    // The write is in the log of a leader that cannot commit it: its outcome is unknown.
    assert!(matches!(write, NodeError::Indeterminate(_) | NodeError::NoLeader | NodeError::Timeout), "{write:?}");
    let query = RangeQuery::new(KeyRange::One("k".into()));
    let read = node
        .keys()
        .range(&RequestContext::within(Duration::from_secs(1)), Consistency::Linearizable, query)
        .await
        .unwrap_err();
    assert!(matches!(read, NodeError::Timeout | NodeError::NoLeader), "{read:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "deadlines hold");
    let found = cluster.kv(survivor).range(get_local("k")).await.unwrap().into_inner();
    assert_eq!(found.kvs[0].value, "v");

    wait_until("the survivor knows that it has no quorum", async || node.live_leader().is_none()).await;
    let mut picky = tonic::Request::new(get_local("k"));
    picky.metadata_mut().insert("hasleader", "true".parse().unwrap());
    let status = cluster.kv(survivor).range(picky).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (tonic::Code::Unavailable, "etcdserver: no leader"));
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_can_be_handed_over_under_writes() {
    let cluster = Cluster::three().await;
    let before = cluster.leader().await;
    let mut kv = cluster.kv(cluster.follower().await);
    let writer = tokio::spawn(async move {
        for key in 0..500 {
            kv.put(put(format!("key-{key}"), "v")).await.unwrap();
        }
    });
    wait_until("somebody else leads", async || {
        // The hand-over is tried for a short time only. At a follower it does nothing.
        cluster.node(before).hand_over().await;
        cluster.leader().await != before
    })
    .await;
    writer.await.unwrap();
    for member in 0..3 {
        let found = cluster.kv(member).range(get("key-499")).await.unwrap().into_inner();
        assert_eq!(found.kvs.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_and_loses_nothing() {
    // A leader that knows that it has no majority refuses for that reason. Here it knows after
    // fourteen seconds.
    let mut cluster = Cluster::start(Settings::calm()).await;
    let survivor = cluster.leader().await;
    // The members' own proposals would count among the pending ones.
    wait_until("the cluster is at rest", async || {
        let node = cluster.node(survivor);
        cluster.kv(survivor).put(put("k", "v")).await.is_ok()
            && node.versions().cluster().version == node.versions().own().supported.highest
            && node.counters().proposals_pending == 0
    })
    .await;
    for member in (0..3).filter(|member| *member != survivor) {
        cluster.crash(member).await;
    }
    // Nothing can be committed now, so that every proposal stays pending.
    let node = cluster.node(survivor).clone();
    let mut proposals = tokio::task::JoinSet::new();
    for _ in 0..headwater::types::limits::PENDING_PROPOSALS_MAX + 1 {
        let node = node.clone();
        proposals.spawn(async move {
            let ctx = RequestContext::within(Duration::from_secs(5));
            node.propose(&ctx, command("x")).await.unwrap_err()
        });
    }
    let mut refused = 0;
    while let Some(error) = proposals.join_next().await {
        if error.unwrap() == NodeError::TooManyRequests {
            refused += 1;
        }
    }
    assert_eq!(refused, 1, "one past the limit");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_too_large_changes_nothing() {
    let cluster = Cluster::three().await;
    let limit = headwater::types::limits::REQUEST_BYTES_MAX;
    let status = cluster.kv(0).put(put("k", "v".repeat(limit))).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (tonic::Code::InvalidArgument, "etcdserver: request is too large"));
    cluster.kv(0).put(put("k", "v".repeat(limit - 200))).await.unwrap();
    let found = cluster.kv(1).range(get("k")).await.unwrap().into_inner();
    assert_eq!((found.kvs[0].version, found.kvs[0].value.len()), (1, limit - 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_alone_goes_on_leading() {
    let cluster = Cluster::start(Settings::alone()).await;
    // Longer than the time for which a leader of several members counts as live without answers.
    let silence = Instant::now() + 3 * cluster.settings.timing.election_max;
    while Instant::now() < silence {
        assert!(cluster.node(0).live_leader().is_some());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hash_of_a_revision_stays_what_it_is() {
    let cluster = Cluster::three().await;
    let ctx = || RequestContext::within(Duration::from_secs(10));
    let mut kv = cluster.kv(0);
    for number in 0..10 {
        kv.put(put(format!("k{}", number % 3), number.to_string())).await.unwrap();
    }
    let first = cluster.node(0).maintenance().kv_hash(&ctx(), None).await.unwrap().value;
    kv.put(put("k1", "later")).await.unwrap();
    for member in 0..3 {
        cluster.hashes().await;
        let again = cluster.node(member).maintenance().kv_hash(&ctx(), Some(first.revision)).await.unwrap().value;
        assert_eq!(again, first, "member {member}");
        let newest = cluster.node(member).maintenance().kv_hash(&ctx(), None).await.unwrap().value;
        assert_ne!(newest.hash, first.hash);
    }
    let future = headwater::types::Revision(first.revision.get() + 2);
    assert!(cluster.node(0).maintenance().kv_hash(&ctx(), Some(future)).await.is_err());
}

/// A handler that accepts a gRPC call and never ends its answer.
async fn hang(request: Request) -> impl IntoResponse {
    let never = futures::stream::once(async move {
        let _taken = request;
        std::future::pending::<Result<Bytes, Infallible>>().await
    });
    ([(CONTENT_TYPE, "application/grpc")], Body::from_stream(never))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_takes_entries_and_never_answers_does_not_keep_the_others_logs_from_shrinking() {
    let mut cluster = Cluster::start(snapshots::settings()).await;
    let hung = cluster.follower().await;
    cluster.crash(hung).await;
    let listener = cluster.listen_as_peer(hung).await;
    // The connections of the false member end when this runtime is dropped.
    let hanging = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    hanging.spawn(axum::serve(listener, axum::Router::new().fallback(hang)).into_future());
    let leader = cluster.leader().await;
    let missed = snapshots::write_past(&cluster, leader, "hung").await;

    hanging.shutdown_background();
    cluster.restart(hung).await;
    cluster.wait_healthy().await;
    cluster.hashes().await;
    snapshots::assert_skipped(&cluster, hung, missed).await;
}
