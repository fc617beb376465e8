//! The early watch service (spec: etcd §7.6).

use headwater::pb::early as pb;
use headwater::pb::early::event::EventType;
use headwater::pb::early::watch_client::WatchClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::cases::{Member, put_op};
use crate::cluster::{Cluster, within};

fn show(response: &pb::WatchResponse) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let header = response.header.as_ref().expect("always there");
    let Some(event) = &response.event else { return format!("!{}", header.error) };
    let kv = event.kv.as_ref().expect("always there");
    let kind = match event.event_type() {
        EventType::Put => "put",
        EventType::Delete => "delete",
        EventType::Expire => "expire",
    };
    format!("{kind} {}={} of {} at {}", text(&kv.key), text(&kv.value), kv.mod_revision, header.revision)
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_prefixes_from_the_past_and_live() {
    let cluster = Cluster::three().await;
    let member = Member { cluster: &cluster, index: cluster.follower().await };
    let a = member.put("a/1", "one").await;
    let b = member.put("b", "two").await;
    let c = member.put("a/1", "three").await;
    let d = member.delete("a/1").await;

    let (requests, queued) = mpsc::channel(8);
    let mut client = WatchClient::connect(cluster.client_url(member.index)).await.unwrap();
    let mut responses = client.watch(ReceiverStream::new(queued)).await.unwrap().into_inner();
    let mut next = async || {
        let response = tokio::time::timeout(std::time::Duration::from_secs(60), responses.message()).await;
        show(&response.expect("in time").unwrap().expect("open"))
    };
    let ask = |key: &'static str, prefix: &'static str, start_revision| {
        let request = pb::WatchRequest { key: key.into(), prefix: prefix.into(), start_revision };
        async { requests.send(request).await.unwrap() }
    };
    ask("", "a/", a).await;
    assert_eq!(next().await, format!("put a/1=one of {a} at {a}"));
    assert_eq!(next().await, format!("put a/1=three of {c} at {c}"));
    assert_eq!(next().await, format!("delete a/1=three of {c} at {d}"), "a removal carries the pair before");
    ask("b", "", b).await;
    assert_eq!(next().await, format!("put b=two of {b} at {b}"));
    let e = member.txn(vec![put_op("b", "x"), put_op("c", "y"), put_op("a/2", "z")]).await;
    let mut found = [next().await, next().await];
    found.sort();
    assert_eq!(found, [format!("put a/2=z of {e} at {e}"), format!("put b=x of {e} at {e}")]);
    // In order across watchers.
    let mut wanted = Vec::new();
    for round in 0..20 {
        let key = ["a/1", "b"][round % 2];
        let revision = member.put(key, &round.to_string()).await;
        wanted.push(format!("put {key}={round} of {revision} at {revision}"));
    }
    for wanted in wanted {
        assert_eq!(next().await, wanted);
    }
    ask("", "", 0).await;
    assert_eq!(next().await, "!etcdserver: key is not provided");
    ask("k", "k", 0).await;
    assert_eq!(next().await, "!headwater: give a key or a prefix to watch, not both");
    member.compact(e).await;
    ask("b", "", b).await;
    assert_eq!(next().await, "!etcdserver: mvcc: required revision has been compacted");
    ask("b", "", -1).await;
    assert_eq!(next().await, "!etcdserver: mvcc: required revision has been compacted");
    let f = member.put("b", "last").await;
    assert_eq!(next().await, format!("put b=last of {f} at {f}"), "the stream stays open");
    drop(requests);
    let g = member.put("b", "after").await;
    assert_eq!(next().await, format!("put b=after of {g} at {g}"), "a client that asks no more still hears");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_anything_to_watch_ends_with_its_requests() {
    let cluster = Cluster::three().await;
    let mut client = WatchClient::connect(cluster.client_url(0)).await.unwrap();
    let refused = pb::WatchRequest { key: "k".into(), start_revision: -1, ..Default::default() };
    let mut responses = client.watch(tokio_stream::once(refused)).await.unwrap().into_inner();
    let mut next = async || within("a stream goes on", responses.message()).await.unwrap();
    assert_eq!(show(&next().await.unwrap()), "!etcdserver: mvcc: required revision has been compacted");
    assert_eq!(next().await, None);
}
