//! Ranges, hashes, sizes and leases, as clients of etcd's API and of its early draft expect them,
//! over real connections.

use std::collections::BTreeSet;
use std::time::Duration;

use headwater::pb::early;
use headwater::pb::early::etcd_client::EtcdClient;
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::kv_client::KvClient;
use headwater::pb::etcdserverpb::lease_client::LeaseClient;
use headwater::types::limits::RANGE_STREAMS_OF_CLIENT_MAX;
use pb::range_request::{SortOrder, SortTarget};
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::alarms::wait_for_default_units;
use crate::cluster::{Cluster, Settings, get, put, within};

async fn one() -> Cluster {
    Cluster::start(Settings::alone()).await
}

fn all() -> pb::RangeRequest {
    pb::RangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() }
}

async fn drain(mut stream: Streaming<pb::RangeStreamResponse>) -> Result<Vec<pb::RangeResponse>, Status> {
    let mut messages = Vec::new();
    while let Some(message) = within("a piece of the range", stream.message()).await? {
        messages.push(message.range_response.expect("every message has one"));
    }
    Ok(messages)
}

async fn streamed(kv: &mut KvClient<Channel>, request: pb::RangeRequest) -> Vec<pb::RangeResponse> {
    drain(kv.range_stream(request).await.unwrap().into_inner()).await.unwrap()
}

/// The messages of a streamed range as one answer, as clients join them: all pairs, and the last
/// message's other fields.
fn joined(messages: &[pb::RangeResponse]) -> pb::RangeResponse {
    let last = messages.last().expect("there is at least one message");
    let kvs = messages.iter().flat_map(|message| message.kvs.clone()).collect();
    pb::RangeResponse { kvs, ..last.clone() }
}

fn keys(response: &pb::RangeResponse) -> String {
    response.kvs.iter().map(|kv| String::from_utf8_lossy(&kv.key).into_owned()).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_message_of_a_streamed_range_has_pairs_and_what_holds_for_all() {
    let cluster = one().await;
    let mut kv = cluster.kv(0);
    for number in 0..25 {
        kv.put(put(format!("k{number:02}"), "v")).await.unwrap();
    }
    for number in 0..4 {
        kv.put(put(format!("large/{number}"), "v".repeat(700_000))).await.unwrap();
    }
    let few = pb::RangeRequest { key: "k".into(), range_end: "l".into(), ..Default::default() };
    let requests = [
        ("a limit", pb::RangeRequest { limit: 10, ..few.clone() }, true),
        ("a limit that cuts nothing", pb::RangeRequest { limit: 25, ..few.clone() }, true),
        ("a limit of one", pb::RangeRequest { limit: 1, ..few.clone() }, true),
        ("no limit", few.clone(), true),
        ("keys only", pb::RangeRequest { keys_only: true, limit: 7, ..few.clone() }, true),
        ("several messages", all(), true),
        ("several messages and a limit", pb::RangeRequest { limit: 28, ..all() }, true),
        ("one key", pb::RangeRequest { key: "k07".into(), ..Default::default() }, true),
        ("an absent key", pb::RangeRequest { key: "q".into(), ..Default::default() }, false),
        ("an empty interval", pb::RangeRequest { key: "x".into(), range_end: "y".into(), ..Default::default() }, false),
        ("only the count", pb::RangeRequest { count_only: true, limit: 3, ..few }, false),
    ];
    for (name, request, has_pairs) in requests {
        let messages = streamed(&mut kv, request.clone()).await;
        let (last, others) = messages.split_last().unwrap();
        assert_eq!(!last.kvs.is_empty(), has_pairs, "{name}: {} messages", messages.len());
        assert!(last.header.is_some(), "{name}");
        for other in others {
            assert!(!other.kvs.is_empty(), "{name}");
            assert_eq!((other.header, other.more, other.count), (None, false, 0), "{name}");
        }
        assert_eq!(others.is_empty(), !name.starts_with("several"), "{name}: {} messages", messages.len());
        assert_eq!(joined(&messages), kv.range(request).await.unwrap().into_inner(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_streamed_ranges_than_run_at_once_wait_for_their_turn() {
    let cluster = one().await;
    let mut kv = cluster.kv(0);
    for number in 0..20 {
        kv.put(put(format!("{number:02}"), "v".repeat(500_000))).await.unwrap();
    }
    // Readers that have stopped reading: each has a connection, and so a window, of its own.
    let mut held = Vec::new();
    for _ in 0..RANGE_STREAMS_OF_CLIENT_MAX {
        let mut stream = cluster.kv(0).range_stream(all()).await.unwrap().into_inner();
        assert!(within("the first piece", stream.message()).await.unwrap().is_some());
        held.push(stream);
    }
    // A request gets an error if its deadline passes meanwhile.
    let mut hasty = tonic::Request::new(all());
    hasty.set_timeout(Duration::from_millis(200));
    let refused = async { drain(cluster.kv(0).range_stream(hasty).await?.into_inner()).await }.await;
    let code = refused.unwrap_err().code();
    assert!(matches!(code, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled), "{code:?}");

    let mut waiting = JoinSet::new();
    for _ in 0..100 - RANGE_STREAMS_OF_CLIENT_MAX {
        let mut kv = cluster.kv(0);
        waiting.spawn(async move { drain(kv.range_stream(all()).await?.into_inner()).await });
    }
    for stream in held {
        drain(stream).await.unwrap();
    }
    for messages in waiting.join_all().await {
        assert_eq!(joined(&messages.unwrap()).count, 20);
    }
}

async fn sizes(cluster: &Cluster, member: usize) -> (i64, i64) {
    let status = cluster.maintenance(member).status(pb::StatusRequest {}).await.unwrap().into_inner();
    (status.db_size, status.db_size_in_use)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_size_of_a_member_is_never_less_than_what_is_in_use() {
    let mut cluster = Cluster::start(Settings::calm()).await;
    let mut kv = cluster.kv(0);
    // Compresses to almost nothing.
    for number in 0..10 {
        kv.put(put(format!("{number}"), "v".repeat(500_000))).await.unwrap();
    }
    cluster.hashes().await;
    let check = async |cluster: &Cluster, when: &str| {
        let mut found = Vec::new();
        for member in 0..3 {
            let (size, in_use) = sizes(cluster, member).await;
            assert!(in_use > 5_000_000, "{when}: member {member} uses {in_use}");
            assert!(size >= in_use, "{when}: member {member} has {size} bytes, and uses {in_use}");
            found.push(size);
        }
        let (least, most) = (*found.iter().min().unwrap(), *found.iter().max().unwrap());
        assert!(most < 10 * least, "{when}: {found:?}");
    };
    check(&cluster, "in write buffers").await;
    cluster.stop(2).await;
    cluster.restart(2).await;
    cluster.wait_healthy().await;
    check(&cluster, "after a restart").await;
    cluster.maintenance(1).defragment(pb::DefragmentRequest {}).await.unwrap();
    check(&cluster, "compressed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_sort_alike_stay_in_key_order() {
    let cluster = one().await;
    let mut kv = cluster.kv(0);
    for key in ["b", "a", "d", "c", "e"] {
        kv.put(put(key, if key == "c" { "z" } else { "v" })).await.unwrap();
    }
    kv.put(put("d", "v")).await.unwrap();
    for (target, order, limit, wanted) in [
        (SortTarget::Version, SortOrder::Descend, 0, "d a b c e"),
        (SortTarget::Version, SortOrder::Descend, 3, "d a b"),
        (SortTarget::Version, SortOrder::Ascend, 0, "a b c e d"),
        (SortTarget::Value, SortOrder::Descend, 0, "c a b d e"),
        (SortTarget::Value, SortOrder::Ascend, 0, "a b d e c"),
        (SortTarget::Key, SortOrder::Descend, 0, "e d c b a"),
        (SortTarget::Version, SortOrder::None, 0, "a b c e d"),
    ] {
        for keys_only in [false, true] {
            let request =
                pb::RangeRequest { sort_order: order.into(), sort_target: target.into(), limit, keys_only, ..all() };
            let found = kv.range(request.clone()).await.unwrap().into_inner();
            assert_eq!(keys(&found), wanted, "{target:?} {order:?} {limit}");
            // As a transaction that only reads, and as one that every member executes.
            for writes in [false, true] {
                let range = pb::RequestOp { request: Some(pb::request_op::Request::RequestRange(request.clone())) };
                let touch = pb::DeleteRangeRequest { key: "absent".into(), ..Default::default() };
                let touch = pb::RequestOp { request: Some(pb::request_op::Request::RequestDeleteRange(touch)) };
                let success = if writes { vec![range, touch] } else { vec![range] };
                let txn = pb::TxnRequest { success, ..Default::default() };
                let done = kv.txn(txn).await.unwrap().into_inner();
                let Some(pb::response_op::Response::ResponseRange(inside)) = &done.responses[0].response else {
                    panic!("{done:?}")
                };
                assert_eq!(keys(inside), wanted, "in a transaction: {target:?} {order:?} {limit}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_range_sorts_as_the_range_does() {
    let cluster = one().await;
    let mut kv = cluster.kv(0);
    for (key, value) in [("a", "3"), ("b", "1"), ("c", "2"), ("b", "1")] {
        kv.put(put(key, value)).await.unwrap();
    }
    for target in [SortTarget::Key, SortTarget::Version, SortTarget::Create, SortTarget::Mod, SortTarget::Value] {
        for limit in [0, 1, 2, 3] {
            for (keys_only, count_only) in [(false, false), (true, false), (false, true)] {
                let request = pb::RangeRequest { sort_target: target.into(), limit, keys_only, count_only, ..all() };
                let found = kv.range(request.clone()).await.unwrap().into_inner();
                let messages = streamed(&mut kv, request).await;
                assert_eq!(joined(&messages), found, "{target:?} {limit}");
                assert!(messages.last().unwrap().header.is_some());
            }
        }
        for order in [SortOrder::Ascend, SortOrder::Descend] {
            if (target, order) != (SortTarget::Key, SortOrder::Ascend) {
                let request = pb::RangeRequest { sort_target: target.into(), sort_order: order.into(), ..all() };
                let refused = kv.range_stream(request).await.unwrap_err();
                assert_eq!(refused.message(), "RangeStream does not support custom sort orders");
            }
        }
    }
    let request = pb::RangeRequest { sort_target: SortTarget::Value.into(), ..all() };
    assert_eq!(keys(&joined(&streamed(&mut kv, request).await)), "b c a");
    // A revision that cannot be read is refused, with every sort target.
    for sort_target in [SortTarget::Key, SortTarget::Value] {
        let request = pb::RangeRequest { sort_target: sort_target.into(), revision: 100, ..all() };
        assert_eq!(kv.range_stream(request).await.unwrap_err().code(), Code::OutOfRange);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hash_of_a_revision_outlives_compaction_at_it() {
    let cluster = Cluster::start(Settings::calm()).await;
    let mut kv = cluster.kv(0);
    let ask = async |revision: i64| {
        cluster.hashes().await;
        let mut answers = BTreeSet::new();
        for member in 0..3 {
            let answer = cluster.maintenance(member).hash_kv(pb::HashKvRequest { revision }).await?.into_inner();
            answers.insert((answer.hash, answer.compact_revision, answer.hash_revision));
        }
        assert_eq!(answers.len(), 1, "members tell different hashes: {answers:?}");
        Ok::<_, Status>(answers.pop_first().unwrap())
    };
    let mut revision = 1;
    for number in 0..20 {
        let request = put(format!("k{}", number % 3), number.to_string());
        revision = kv.put(request).await.unwrap().into_inner().header.unwrap().revision;
    }
    let delete = pb::DeleteRangeRequest { key: "k1".into(), ..Default::default() };
    revision = kv.delete_range(delete).await.unwrap().into_inner().header.unwrap().revision.max(revision);
    let (before, compacted, hashed) = ask(revision).await.unwrap();
    assert_eq!((compacted, hashed), (-1, revision), "never compacted");
    assert_eq!(ask(0).await.unwrap(), (before, -1, revision));

    kv.put(put("k0", "later")).await.unwrap();
    let earlier = ask(revision - 4).await.unwrap().0;
    for (point, text) in [(revision - 5, "below"), (revision - 4, "at an earlier one"), (revision, "at it")] {
        kv.compact(pb::CompactionRequest { revision: point, physical: true }).await.unwrap();
        assert_eq!(ask(revision).await.unwrap(), (before, point, revision), "compacted {text}");
        if point <= revision - 4 {
            assert_eq!(ask(revision - 4).await.unwrap().0, earlier, "compacted {text}");
        }
    }
    assert_ne!(ask(0).await.unwrap().0, before);
    assert_eq!(ask(revision - 1).await.unwrap_err().code(), Code::OutOfRange);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hash_of_a_store_outlives_a_restart() {
    let mut cluster = one().await;
    let hash =
        async |cluster: &Cluster| cluster.maintenance(0).hash(pb::HashRequest {}).await.unwrap().into_inner().hash;
    cluster.kv(0).put(put("k", "v")).await.unwrap();
    let mut leases = LeaseClient::connect(cluster.client_url(0)).await.unwrap();
    leases.lease_grant(pb::LeaseGrantRequest { id: 7, ttl: 6000 }).await.unwrap();
    wait_for_default_units(&cluster).await;
    let (before, state) = (hash(&cluster).await, cluster.hashes().await);
    for turn in 0..2 {
        cluster.crash(0).await;
        cluster.restart(0).await;
        cluster.wait_healthy().await;
        assert_eq!(hash(&cluster).await, before, "restart {turn}");
        // The entry of a new term does not change stored data, only the applied index. A member
        // serves before that entry is applied; a linearizable read waits for it.
        cluster.kv(0).range(get("k")).await.unwrap();
        assert_eq!(hash(&cluster).await, before, "restart {turn}");
        assert_ne!(cluster.hashes().await, state, "restart {turn}");
    }
    cluster.kv(0).put(put("k", "w")).await.unwrap();
    let written = hash(&cluster).await;
    assert_ne!(written, before);
    let mut leases = LeaseClient::connect(cluster.client_url(0)).await.unwrap();
    leases.lease_grant(pb::LeaseGrantRequest { id: 8, ttl: 6000 }).await.unwrap();
    assert_ne!(hash(&cluster).await, written, "leases count");
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_listed_in_the_order_of_their_grants() {
    let mut cluster = one().await;
    let mut leases = LeaseClient::connect(cluster.client_url(0)).await.unwrap();
    let ids = [5, 3, -1, 9, i64::MAX, 1, i64::MIN / 2];
    for id in ids {
        leases.lease_grant(pb::LeaseGrantRequest { id, ttl: 6000 }).await.unwrap();
    }
    let list = async |leases: &mut LeaseClient<Channel>| -> Vec<i64> {
        let listed = leases.lease_leases(pb::LeaseLeasesRequest {}).await.unwrap().into_inner();
        listed.leases.into_iter().map(|lease| lease.id).collect()
    };
    assert_eq!(list(&mut leases).await, ids);
    cluster.stop(0).await;
    cluster.restart(0).await;
    cluster.wait_healthy().await;
    let mut leases = LeaseClient::connect(cluster.client_url(0)).await.unwrap();
    assert_eq!(list(&mut leases).await, ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_id_that_is_reserved_is_said_to_be() {
    let cluster = one().await;
    let mut leases = LeaseClient::connect(cluster.client_url(0)).await.unwrap();
    for id in [i64::MIN, i64::MIN + 1, i64::MIN / 2 - 1] {
        let refused = leases.lease_grant(pb::LeaseGrantRequest { id, ttl: 60 }).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains("reserved") && refused.message().contains("-4611686018427387904"));
        let standing = pb::LeaseTimeToLiveRequest { id, keys: true };
        assert_eq!(leases.lease_time_to_live(standing).await.unwrap().into_inner().ttl, -1);
        assert_eq!(leases.lease_revoke(pb::LeaseRevokeRequest { id }).await.unwrap_err().code(), Code::NotFound);
    }
    leases.lease_grant(pb::LeaseGrantRequest { id: i64::MIN / 2, ttl: 60 }).await.unwrap();
}

async fn early_client(cluster: &Cluster) -> EtcdClient<Channel> {
    EtcdClient::connect(cluster.client_url(0)).await.unwrap()
}

fn early_op(request: early::request_union::Request) -> early::RequestUnion {
    early::RequestUnion { request: Some(request) }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_early_range_in_a_transaction_takes_a_negative_revision_for_the_newest() {
    let cluster = one().await;
    let mut client = early_client(&cluster).await;
    client.put(early::PutRequest { key: "k".into(), value: "1".into() }).await.unwrap();
    for revision in [-1, 0, i64::MIN] {
        let range = early::RangeRequest { key: "k".into(), revision, ..Default::default() };
        let alone = client.range(range.clone()).await.unwrap().into_inner();
        assert_eq!(alone.kvs.len(), 1, "{alone:?}");
        let range = early_op(early::request_union::Request::RequestRange(range));
        let put = early::PutRequest { key: "other".into(), value: "1".into() };
        let put = early_op(early::request_union::Request::RequestPut(put));
        for success in [vec![range.clone()], vec![range.clone(), put]] {
            let txn = early::TxnRequest { success, ..Default::default() };
            let done = client.txn(txn.clone()).await.unwrap().into_inner();
            assert_eq!(done.header.as_ref().unwrap().error, "", "{revision}");
            let Some(early::response_union::Response::ResponseRange(inside)) = &done.responses[0].response else {
                panic!("{done:?}")
            };
            assert_eq!(inside.kvs, alone.kvs);
            let with_leases = early::LeaseTxnRequest { request: Some(txn), ..Default::default() };
            let done = client.lease_txn(with_leases).await.unwrap().into_inner();
            assert_eq!(done.header.unwrap().error, "", "{revision}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_transaction_that_writes_a_key_twice_is_told_so() {
    let cluster = one().await;
    let mut client = early_client(&cluster).await;
    let put = |value: &'static str| {
        early_op(early::request_union::Request::RequestPut(early::PutRequest { key: "k".into(), value: value.into() }))
    };
    let txn = early::TxnRequest { success: vec![put("1"), put("2")], ..Default::default() };
    let header = client.txn(txn.clone()).await.unwrap().into_inner().header.unwrap();
    assert!(header.error.starts_with("etcdserver: duplicate key given in txn request"), "{header:?}");
    assert!(header.error.contains("once"), "it says what to do: {header:?}");
    let with_leases = early::LeaseTxnRequest { request: Some(txn), ..Default::default() };
    let header = client.lease_txn(with_leases).await.unwrap().into_inner().header.unwrap();
    assert!(header.error.contains("once"), "{header:?}");
    assert_eq!(header.revision, 1, "nothing was written");
}

/// Calls a method with a first field of the wrong type in the message; returns the status. Sends
/// bytes if that field is a number (`has_number`), else a number.
async fn undecodable(cluster: &Cluster, path: &'static str, has_number: bool) -> Status {
    let channel = Channel::from_shared(cluster.client_url(0)).unwrap().connect_lazy();
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static(path);
    if has_number {
        let codec = tonic_prost::ProstCodec::<_, early::PutResponse>::default();
        let message = early::PutRequest { key: "k".into(), value: "v".into() };
        return client.unary(tonic::Request::new(message), path, codec).await.unwrap_err();
    }
    let codec = tonic_prost::ProstCodec::<_, early::PutResponse>::default();
    let message = early::LeaseRevokeRequest { lease_id: 5 };
    client.unary(tonic::Request::new(message), path, codec).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_decoded_is_an_invalid_argument_of_the_early_draft() {
    let cluster = one().await;
    for (path, has_number) in [
        ("/etcd/Range", false),
        ("/etcd/Put", false),
        ("/etcd/DeleteRange", false),
        ("/etcd/Txn", false),
        ("/etcd/Compact", true),
        ("/etcd/LeaseCreate", true),
        ("/etcd/LeaseRevoke", true),
        ("/etcd/LeaseAttach", true),
        ("/etcd/LeaseTxn", false),
        ("/etcd/LeaseKeepAlive", true),
        ("/watch/Watch", false),
    ] {
        let status = undecodable(&cluster, path, has_number).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{path}: {status}");
        assert!(status.message().contains("decode"), "{path}: {status}");
    }
    // As etcd's implementation does.
    for (path, has_number) in [("/etcdserverpb.KV/Put", false), ("/etcdserverpb.Lease/LeaseRevoke", true)] {
        assert_eq!(undecodable(&cluster, path, has_number).await.code(), Code::Internal, "{path}");
    }
}
