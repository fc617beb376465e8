//! The early watch service (spec: etcd §7.6).

use headwater::pb::early as pb;
use headwater::pb::early::event::EventType;
use headwater::pb::early::watch_client::WatchClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

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

/// A stream of the early draft, with any number of watchers.
struct Asking {
    requests: mpsc::Sender<pb::WatchRequest>,
    responses: Streaming<pb::WatchResponse>,
}

impl Asking {
    async fn open(member: &Member<'_>) -> Self {
        let (requests, queued) = mpsc::channel(8);
        let mut client = WatchClient::connect(member.cluster.client_url(member.index)).await.unwrap();
        let responses = client.watch(ReceiverStream::new(queued)).await.unwrap().into_inner();
        Self { requests, responses }
    }

    async fn ask(&self, key: &'static str, prefix: &'static str, start_revision: i64) {
        let request = pb::WatchRequest { key: key.into(), prefix: prefix.into(), start_revision };
        self.requests.send(request).await.unwrap();
    }

    async fn next(&mut self) -> String {
        show(&within("a response", self.responses.message()).await.unwrap().expect("open"))
    }
}

/// The case of the early draft's watch: keys and prefixes, from earlier revisions and live.
pub async fn keys_and_prefixes_from_the_past_and_live(member: &Member<'_>) {
    let a = member.put("early/a/1", "one").await;
    let b = member.put("early/b", "two").await;
    let c = member.put("early/a/1", "three").await;
    let d = member.delete("early/a/1").await;
    let mut stream = Asking::open(member).await;
    stream.ask("", "early/a/", a).await;
    assert_eq!(stream.next().await, format!("put early/a/1=one of {a} at {a}"));
    assert_eq!(stream.next().await, format!("put early/a/1=three of {c} at {c}"));
    let removed = format!("delete early/a/1=three of {c} at {d}");
    assert_eq!(stream.next().await, removed, "a removal carries the pair before");
    stream.ask("early/b", "", b).await;
    assert_eq!(stream.next().await, format!("put early/b=two of {b} at {b}"));
    let ops = vec![put_op("early/b", "x"), put_op("early/c", "y"), put_op("early/a/2", "z")];
    let e = member.txn(ops).await;
    let mut found = [stream.next().await, stream.next().await];
    found.sort();
    assert_eq!(found, [format!("put early/a/2=z of {e} at {e}"), format!("put early/b=x of {e} at {e}")]);
    // Each watcher's events are in order; one that catches up may be behind another.
    let (mut wanted, mut found) = ([vec![], vec![]], [vec![], vec![]]);
    for round in 0..20 {
        let key = ["early/a/1", "early/b"][round % 2];
        let revision = member.put(key, &round.to_string()).await;
        wanted[round % 2].push(format!("put {key}={round} of {revision} at {revision}"));
    }
    for _ in 0..20 {
        let event = stream.next().await;
        found[usize::from(event.starts_with("put early/b"))].push(event);
    }
    assert_eq!(found, wanted);
    stream.ask("", "", 0).await;
    assert_eq!(stream.next().await, "!etcdserver: key is not provided");
    stream.ask("k", "k", 0).await;
    assert_eq!(stream.next().await, "!headwater: give a key or a prefix to watch, not both");
    member.compact(e).await;
    stream.ask("early/b", "", b).await;
    assert_eq!(stream.next().await, "!etcdserver: mvcc: required revision has been compacted");
    stream.ask("early/b", "", -1).await;
    assert_eq!(stream.next().await, "!etcdserver: mvcc: required revision has been compacted");
    let f = member.put("early/b", "last").await;
    assert_eq!(stream.next().await, format!("put early/b=last of {f} at {f}"), "the stream stays open");
    (stream.requests, _) = mpsc::channel(1);
    let g = member.put("early/b", "after").await;
    let event = stream.next().await;
    assert_eq!(event, format!("put early/b=after of {g} at {g}"), "a client that asks no more still hears");
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_that_keep_up_are_told_in_one_order() {
    let cluster = Cluster::three().await;
    let member = Member { cluster: &cluster, index: cluster.follower().await };
    let mut stream = Asking::open(&member).await;
    let start = member.put("a/1", "one").await;
    stream.ask("", "a/", start).await;
    stream.ask("b", "", start).await;
    let mut wanted = vec![format!("put a/1=one of {start} at {start}")];
    for round in 0..20 {
        let key = ["a/1", "b"][round % 2];
        let revision = member.put(key, &round.to_string()).await;
        wanted.push(format!("put {key}={round} of {revision} at {revision}"));
    }
    for wanted in wanted {
        assert_eq!(stream.next().await, wanted);
    }
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
