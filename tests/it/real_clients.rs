//! A third-party client library against a real cluster.

use etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, GetOptions, LockOptions, ProclaimOptions, PutOptions, ResignOptions,
    SortOrder, SortTarget, Txn, TxnOp,
};

use headwater::pb::etcdserverpb::kv_client::KvClient;

use crate::cluster::{Cluster, get};

async fn client(cluster: &Cluster) -> Client {
    let endpoints: Vec<_> = (0..3).map(|member| cluster.client_url(member)).collect();
    Client::connect(endpoints, None).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_etcd_client_crate_puts_gets_and_deletes() {
    let cluster = Cluster::three().await;
    let mut client = client(&cluster).await;
    let first = client.put("a", "1", None).await.unwrap().header().unwrap().revision();
    let second = client.put("a", "2", Some(PutOptions::new().with_prev_key())).await.unwrap();
    assert_eq!(second.prev_key().unwrap().value(), b"1");
    assert_eq!(second.header().unwrap().revision(), first + 1);
    client.put("b", "3", None).await.unwrap();

    let old = client.get("a", Some(GetOptions::new().with_revision(first))).await.unwrap();
    assert_eq!(old.kvs()[0].value(), b"1");
    let all = GetOptions::new().with_all_keys().with_sort(SortTarget::Mod, SortOrder::Descend).with_limit(1);
    let newest = client.get("", Some(all)).await.unwrap();
    assert_eq!((newest.kvs()[0].key(), newest.count(), newest.more()), (&b"b"[..], 2, true));

    let removed = client.delete("a", Some(DeleteOptions::new().with_from_key())).await.unwrap();
    assert_eq!(removed.deleted(), 2);
    assert!(client.get("a", None).await.unwrap().kvs().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_etcd_client_crate_compares_and_swaps() {
    let cluster = Cluster::three().await;
    let mut client = client(&cluster).await;
    let create = || {
        Txn::new()
            .when([Compare::create_revision("lock", CompareOp::Equal, 0)])
            .and_then([TxnOp::put("lock", "mine", None)])
            .or_else([TxnOp::get("lock", None)])
    };
    assert!(client.txn(create()).await.unwrap().succeeded());
    assert!(!client.txn(create()).await.unwrap().succeeded());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_etcd_client_crate_compacts_and_reads_the_members() {
    let cluster = Cluster::three().await;
    let mut client = client(&cluster).await;
    client.put("k", "1", None).await.unwrap();
    let revision = client.put("k", "2", None).await.unwrap().header().unwrap().revision();
    client.compact(revision, None).await.unwrap();
    let error = client.get("k", Some(GetOptions::new().with_revision(revision - 1))).await.unwrap_err();
    assert!(error.to_string().contains("required revision has been compacted"), "{error}");
    let members = client.member_list().await.unwrap();
    let names: Vec<_> = members.members().iter().map(|member| member.name().to_owned()).collect();
    assert_eq!(names, ["node1", "node2", "node3"]);
    let status = client.status().await.unwrap();
    assert!((1..=3).contains(&status.leader()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_at_the_peer_port_is_told_where_to_go() {
    let cluster = Cluster::three().await;
    let mut client = KvClient::connect(cluster.peer_url(0)).await.unwrap();
    let refused = client.range(get("a")).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unimplemented);
    assert!(refused.message().contains("clients connect to listen-client"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_etcd_client_crate_locks_and_elects() {
    let cluster = Cluster::three().await;
    let mut client = client(&cluster).await;
    let lease = client.lease_grant(600, None).await.unwrap().id();
    let held = client.lock("l", Some(LockOptions::new().with_lease(lease))).await.unwrap();
    assert_eq!(held.key(), format!("l/{lease:x}").as_bytes());
    let kv = client.get(held.key(), None).await.unwrap().kvs()[0].clone();
    assert_eq!(kv.lease(), lease);
    // The fencing token in a transaction: accepted while the lock is held, refused afterwards.
    let guarded = || {
        let holds = Compare::create_revision(kv.key(), CompareOp::Equal, kv.create_revision());
        Txn::new().when([holds]).and_then([TxnOp::put("guarded", "v", None)])
    };
    assert!(client.txn(guarded()).await.unwrap().succeeded());
    client.unlock(held.key()).await.unwrap();
    assert!(!client.txn(guarded()).await.unwrap().succeeded());

    let elected = client.campaign("e", "one", lease).await.unwrap();
    let leader = elected.leader().unwrap().clone();
    let mut observed = client.observe("e").await.unwrap();
    client.proclaim("two", Some(ProclaimOptions::new().with_leader(leader.clone()))).await.unwrap();
    let mut values = Vec::new();
    while values.last().is_none_or(|value| value != b"two") {
        values.push(observed.message().await.unwrap().unwrap().kv().unwrap().value().to_vec());
    }
    assert_eq!(client.leader("e").await.unwrap().kv().unwrap().value(), b"two");
    client.resign(Some(ResignOptions::new().with_leader(leader))).await.unwrap();
    let error = client.leader("e").await.unwrap_err();
    assert!(error.to_string().contains("election: no leader"), "{error}");
}
