//! Every node answers every request, and forwards it to the leader if needed.

use headwater::pb::etcdserverpb as pb;

use crate::cluster::{Cluster, get, get_local, put};

#[tokio::test(flavor = "multi_thread")]
async fn every_member_takes_writes_and_serves_linearizable_reads() {
    let cluster = Cluster::three().await;
    for writer in 0..3 {
        let key = format!("from-{writer}");
        let answer = cluster.kv(writer).put(put(&key, "value")).await.unwrap().into_inner();
        let revision = answer.header.unwrap().revision;
        for reader in 0..3 {
            let found = cluster.kv(reader).range(get(&key)).await.unwrap().into_inner();
            assert_eq!(found.kvs.len(), 1, "written through {writer}, read through {reader}");
            assert_eq!(found.kvs[0].mod_revision, revision);
            assert!(found.header.unwrap().revision >= revision);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_reads_the_same_on_every_member() {
    let cluster = Cluster::three().await;
    cluster.kv(0).put(put("k", "v")).await.unwrap();
    for member in 0..3 {
        let future = pb::RangeRequest { revision: 99, ..get("k") };
        let status = cluster.kv(member).range(future).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::OutOfRange);
        assert_eq!(status.message(), "etcdserver: mvcc: required revision is a future revision");
        let absent = pb::PutRequest { ignore_value: true, ..put("absent", "") };
        let status = cluster.kv(member).put(absent).await.unwrap_err();
        assert_eq!(status.message(), "etcdserver: key not found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_its_own_write_on_a_follower_by_min_index() {
    let cluster = Cluster::three().await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    for round in 0..50 {
        let answer = cluster.kv(leader).put(put("k", round.to_string())).await.unwrap();
        let index = answer.metadata().get("headwater-index").expect("every answer carries it").clone();
        let mut request = tonic::Request::new(get_local("k"));
        request.metadata_mut().insert("headwater-min-index", index);
        let found = cluster.kv(follower).range(request).await.unwrap().into_inner();
        assert_eq!(found.kvs[0].value, round.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_through_a_follower_is_there_at_once() {
    let cluster = Cluster::three().await;
    let follower = cluster.follower().await;
    let mut kv = cluster.kv(follower);
    for round in 0..50 {
        kv.put(put("k", round.to_string())).await.unwrap();
        let found = kv.range(get_local("k")).await.unwrap().into_inner();
        assert_eq!(found.kvs[0].value, round.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_not_reached_is_unavailable_within_the_deadline() {
    let cluster = Cluster::three().await;
    let mut request = tonic::Request::new(get_local("k"));
    request.metadata_mut().insert("headwater-min-index", "1000000".parse().unwrap());
    request.set_timeout(std::time::Duration::from_millis(300));
    let status = cluster.kv(0).range(request).await.unwrap_err();
    assert!(
        matches!(status.code(), tonic::Code::Unavailable | tonic::Code::Cancelled | tonic::Code::DeadlineExceeded),
        "{status:?}"
    );
}

/// An encoded put of `key` without the lease field, which every put in the log has: applying it
/// would stop every member.
fn put_without_a_lease(key: &str) -> Vec<u8> {
    use headwater::pb::headwater::internal;
    use prost::Message;
    let value = Some(internal::put::Value::Set("v".into()));
    let put = internal::Put { key: key.to_owned().into(), value, lease: None, ..Default::default() };
    let proposal = internal::Proposal { command: Some(internal::proposal::Command::Put(put)), ..Default::default() };
    let format = 1;
    [vec![format], proposal.encode_to_vec()].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_that_cannot_be_decoded_is_refused_before_the_log() {
    use headwater::codec::encode_proposal;
    use headwater::pb::headwater::peer::{self, peer_client::PeerClient, propose_result::Result as Fate};
    use headwater::types::{Command, DeleteRange, KeyRange, Proposal};

    let mut cluster = Cluster::three().await;
    let header = cluster.kv(0).put(put("k", "v")).await.unwrap().into_inner().header.unwrap();
    let leader = cluster.leader().await;
    let delete = DeleteRange { range: KeyRange::from_etcd("k".into(), "".into()), prev_kv: false };
    let readable = encode_proposal(&Proposal::new(1, Command::DeleteRange(delete))).unwrap();
    let commands: Vec<bytes::Bytes> = vec![
        put_without_a_lease("k").into(),
        readable,
        bytes::Bytes::new(),
        bytes::Bytes::from_static(&[9, 1, 2, 3]),
        bytes::Bytes::from_static(&[1, 255, 255, 255]),
    ];
    let mut request = tonic::Request::new(tokio_stream::iter([peer::ProposeRequest { commands }]));
    for (key, value) in [
        ("headwater-cluster", header.cluster_id),
        ("headwater-from", cluster.id((leader + 1) % 3)),
        ("headwater-to", cluster.id(leader)),
    ] {
        request.metadata_mut().insert(key, value.into());
    }
    let mut client = PeerClient::connect(cluster.peer_url(leader)).await.unwrap();
    let mut answers = client.propose(request).await.unwrap().into_inner();
    let results = answers.message().await.unwrap().expect("an answer to the batch").results;
    let fates: Vec<Fate> = results.into_iter().map(|result| result.result.expect("a fate")).collect();
    let [no_lease, applied, blank, format, garbage] = &fates[..] else { panic!("{fates:?}") };
    assert!(matches!(no_lease, Fate::Unreadable(why) if why.contains("Put.lease is missing")), "{no_lease:?}");
    assert!(matches!(applied, Fate::Applied(_)), "{applied:?}");
    assert!(matches!(blank, Fate::Applied(_)), "a follower whose apply is stuck asks for a blank entry: {blank:?}");
    for refused in [format, garbage] {
        assert!(matches!(refused, Fate::Unreadable(_)), "{refused:?}");
    }

    // All members continue, and restart.
    for member in 0..3 {
        assert_eq!(
            cluster.kv(member).range(get("k")).await.unwrap().into_inner().kvs,
            [],
            "deleted by the second command"
        );
        cluster.kv(member).put(put(format!("from-{member}"), "v")).await.unwrap();
    }
    cluster.crash(leader).await;
    cluster.restart(leader).await;
    cluster.wait_healthy().await;
    cluster.kv(leader).put(put("again", "v")).await.unwrap();
}
