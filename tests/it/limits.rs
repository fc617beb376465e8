//! Limits that an operator sets, and the Unix socket. A limit is checked by the member that gets
//! the request from the client, and by no other.

use etcd_client::{Client, EventType};
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::cluster_client::ClusterClient;
use headwater::pb::etcdserverpb::kv_client::KvClient;
use headwater::pb::etcdserverpb::request_op::Request as Op;
use headwater::types::NodeId;
use headwater::types::limits::{
    REQUEST_BYTES_MAX, REQUEST_BYTES_SET_MAX, REQUEST_BYTES_SET_MIN, REQUEST_OVERHEAD_BYTES,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::cluster::{Cluster, Settings, get, put, wait_until, within};

/// A client of etcd's `KV` service at one member that accepts answers of any size.
fn large(cluster: &Cluster, member: usize) -> KvClient<Channel> {
    cluster.kv(member).max_decoding_message_size(usize::MAX)
}

fn txn(ops: usize) -> pb::TxnRequest {
    let op = |number| pb::RequestOp { request: Some(Op::RequestPut(put(format!("t/{number}"), "x"))) };
    pb::TxnRequest { success: (0..ops).map(op).collect(), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_request_that_can_be_configured_reaches_everybody() {
    let mut cluster = Cluster::start(Settings { max_request_bytes: REQUEST_BYTES_SET_MAX, ..Settings::calm() }).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let watcher = Client::connect([cluster.client_url(leader)], None).await.unwrap();
    let mut watcher = watcher.watch_client().max_decoding_message_size(usize::MAX);
    let mut events = watcher.watch("k", None).await.unwrap();
    let value = "v".repeat(REQUEST_BYTES_SET_MAX - 200);
    // Several at once, so that they form batches. They go through the follower, which forwards
    // them.
    let mut kv = large(&cluster, follower);
    let writes = (0..3).map(|number| {
        let (mut kv, value) = (kv.clone(), value.clone());
        async move { kv.put(put(format!("other/{number}"), value)).await }
    });
    for written in futures::future::join_all(writes).await {
        written.unwrap();
    }
    kv.put(put("k", value.clone())).await.unwrap();
    for member in 0..3 {
        let found = large(&cluster, member).range(get("k")).await.unwrap().into_inner();
        assert_eq!(found.kvs[0].value.len(), value.len(), "member {member}");
    }
    let event = loop {
        let response = within("the event", events.message()).await.unwrap().unwrap();
        if !response.events().is_empty() {
            break response;
        }
    };
    assert_eq!(
        (event.events()[0].event_type(), event.events()[0].kv().unwrap().value().len()),
        (EventType::Put, value.len())
    );

    let too_large = kv.put(put("k", "v".repeat(REQUEST_BYTES_SET_MAX))).await.unwrap_err();
    assert_eq!((too_large.code(), too_large.message()), (Code::InvalidArgument, "etcdserver: request is too large"));
    let message_max = REQUEST_BYTES_SET_MAX + REQUEST_OVERHEAD_BYTES;
    let refused = kv.put(put("k", "v".repeat(message_max))).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().ends_with(&format!(" vs. {message_max})")), "{}", refused.message());

    // After a restart, the follower reads the entries from its log.
    cluster.crash(follower).await;
    cluster.restart(follower).await;
    cluster.wait_healthy().await;
    cluster.hashes().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_the_member_that_is_asked_counts_and_what_it_let_in_is_applied_everywhere() {
    let mut cluster = Cluster::start(Settings::calm()).await;
    let follower = cluster.follower().await;
    cluster.crash(follower).await;
    cluster.settings.max_request_bytes = REQUEST_BYTES_SET_MIN;
    cluster.settings.max_txn_ops = 5;
    cluster.restart(follower).await;
    cluster.wait_healthy().await;
    let leader = cluster.leader().await;

    let value = "v".repeat(REQUEST_BYTES_MAX - 200);
    let refused = cluster.kv(follower).put(put("k", value.clone())).await.unwrap_err();
    let words = (Code::ResourceExhausted, REQUEST_BYTES_SET_MIN + REQUEST_OVERHEAD_BYTES);
    assert_eq!(refused.code(), words.0, "{refused:?}");
    assert!(refused.message().ends_with(&format!(" vs. {})", words.1)), "{}", refused.message());
    let refused = cluster.kv(follower).put(put("k", "v".repeat(REQUEST_BYTES_SET_MIN))).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "etcdserver: request is too large"));
    let refused = cluster.kv(follower).txn(txn(6)).await.unwrap_err();
    assert_eq!(refused.message(), "etcdserver: too many operations in txn request");
    cluster.kv(follower).txn(txn(5)).await.unwrap();

    cluster.kv(leader).put(put("k", value.clone())).await.unwrap();
    cluster.kv(leader).txn(txn(100)).await.unwrap();
    let found = cluster.kv(follower).range(get("k")).await.unwrap().into_inner();
    assert_eq!(found.kvs[0].value.len(), value.len());
    cluster.hashes().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_has_as_many_operations_as_are_configured() {
    let cluster = Cluster::start(Settings { max_txn_ops: 300, ..Settings::alone() }).await;
    let done = cluster.kv(0).txn(txn(300)).await.unwrap().into_inner();
    assert_eq!((done.succeeded, done.responses.len()), (true, 300));
    let refused = cluster.kv(0).txn(txn(301)).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::InvalidArgument, "etcdserver: too many operations in txn request")
    );
    let nested = pb::RequestOp { request: Some(Op::RequestTxn(txn(299))) };
    cluster.kv(0).txn(pb::TxnRequest { success: vec![nested.clone()], ..Default::default() }).await.unwrap();
    let deeper = pb::TxnRequest { success: vec![nested; 5], ..Default::default() };
    let refused = cluster.kv(0).txn(deeper).await.unwrap_err();
    assert_eq!(refused.message(), "etcdserver: too many operations in txn request", "five lists of 299");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_strict_check_a_voter_is_announced_beside_one_that_is_down_and_the_majority_is_kept() {
    let mut cluster = Cluster::start(Settings { strict_reconfig_check: false, ..Settings::default() }).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let down = NodeId(cluster.id(follower));
    cluster.crash(follower).await;
    wait_until("its silence is noticed", async || {
        let progress = cluster.node(leader).consensus().members().progress();
        progress.get(&down).is_some_and(|progress| !progress.is_live)
    })
    .await;
    let add = pb::MemberAddRequest { peer_ur_ls: vec!["http://127.0.0.1:1".to_owned()], ..Default::default() };
    cluster.members(leader).member_add(add).await.unwrap();
    let other = (0..3).find(|member| *member != leader && *member != follower).unwrap();
    let remove = pb::MemberRemoveRequest { id: cluster.id(other) };
    let refused = cluster.members(leader).member_remove(remove).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::Unavailable, "etcdserver: unhealthy cluster"));
    cluster.kv(leader).put(put("k", "v")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_on_the_same_machine_use_a_unix_socket() {
    let mut cluster = Cluster::start(Settings { unix: true, ..Settings::alone() }).await;
    let path = cluster.socket(0);
    let url = format!("unix://{}", path.display());
    let channel = Endpoint::from_shared(url).unwrap().connect().await.unwrap();
    let mut kv = KvClient::new(channel.clone());
    kv.put(put("k", "v")).await.unwrap();
    assert_eq!(cluster.kv(0).range(get("k")).await.unwrap().into_inner().count, 1, "one store, by TCP as well");
    let list = ClusterClient::new(channel).member_list(pb::MemberListRequest { linearizable: true }).await.unwrap();
    assert_eq!(list.into_inner().members.len(), 1);

    let mut plain = UnixStream::connect(&path).await.unwrap();
    plain.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    within("the answer", plain.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"health\":\"true\""), "{answer}");

    cluster.stop(0).await;
    assert!(!path.exists(), "the socket goes with the member");
    // The socket file of a killed process does not block the next start.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    cluster.restart(0).await;
    cluster.wait_healthy().await;
    assert!(UnixStream::connect(&path).await.is_ok());
}
