//! Followers at members that fail, stop, or have lost their majority; and server-sent events, with
//! clients that reconnect by themselves.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::{StreamExt, stream};
use http::{Request, Version};
use http_body_util::BodyExt;
use serde_json::Value;
use tonic::body::Body;
use tonic::{Code, Status};

use super::cases::Member;
use super::client::{BOTH, Follower, Via, View, show};
use super::events::Events;
use crate::cluster::{Cluster, Settings, within};
use crate::gateway::client::{Connection, TIMEOUTS};

const TREE: &str = "/app?recursive=true";

/// Reads to the end of a stream; returns the code of its error, or `Unavailable` without an error.
async fn end(stream: &mut Follower) -> Code {
    loop {
        match stream.try_next().await {
            Ok(Some(_)) => {}
            Ok(None) => return Code::Unavailable,
            Err(status) => return status.code(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w50_a_follower_survives_the_leader() {
    let mut cluster = Cluster::three().await;
    let leader = cluster.leader().await;
    for (round, via) in BOTH.into_iter().enumerate() {
        let other = (leader + 1 + round) % 3;
        let member = Member { cluster: &cluster, index: other, via, case: "w50" };
        member.fixture().await;
        let mut there = member.follow(TREE).await;
        there.group().await;
        let mut at_leader = Member { index: leader, ..member }.follow(TREE).await;
        let marker = at_leader.group().await.last().unwrap().marker.clone();
        cluster.crash(leader).await;
        let member = Member { cluster: &cluster, index: other, via, case: "w50" };
        // The code depends on the moment of the crash, so it is not checked.
        end(&mut at_leader).await;
        cluster.leader().await;
        member.put("/app/a", "after").await;
        there.expect(&["C(a,E,after,m)"]).await;
        member.follow_from(TREE, &marker).await.expect(&["C(a,E,after,m)"]).await;
        cluster.restart(leader).await;
        cluster.wait_healthy().await;
        // A restarted member accepts its earlier markers.
        let member = Member { cluster: &cluster, index: leader, via, case: "w50" };
        member.follow_from(TREE, &marker).await.expect(&["C(a,E,after,m)"]).await;
        member.txn(vec![member.del_tree_op("/app"), member.del_tree_op("/other")]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w51_a_member_alone_shows_nothing_old() {
    let (request_timeout, leader_loss_timeout) = (Duration::from_secs(7), Duration::from_secs(1));
    let mut cluster = Cluster::start(Settings { request_timeout, leader_loss_timeout, ..Settings::default() }).await;
    let alone = cluster.follower().await;
    let member = Member { cluster: &cluster, index: alone, via: Via::Grpc, case: "w51" };
    member.fixture().await;
    let (target, url) = (member.target(TREE), cluster.client_url(alone));
    let mut streams = Vec::new();
    for via in BOTH {
        let mut stream = Follower::open(&url, via, &target, b"").await.unwrap();
        stream.group().await;
        streams.push(stream);
    }
    for other in (0..3).filter(|other| *other != alone) {
        cluster.crash(other).await;
    }
    for stream in &mut streams {
        assert_eq!(end(stream).await, Code::Unavailable);
    }
    for via in BOTH {
        let refused = Follower::open(&url, via, &target, b"").await.err().expect("no stream begins");
        assert_eq!(refused.code(), Code::Unavailable);
    }
}

/// Number of writes while a follower does not read: more than fit into the buffers in between, so
/// that commits are merged.
const UNREAD: usize = 1500;
const UNREAD_VALUE_BYTES: usize = 16 * 1024;

/// Writes two keys in one transaction [`UNREAD`] times, then the key `last`. A follower must never
/// see the two keys with different values.
async fn write_twins(member: Member<'_>) {
    let text = ".".repeat(UNREAD_VALUE_BYTES / 2);
    let write = |number: usize| {
        let value = format!("{number}{text}");
        let twins = vec![member.put_op("/app/a", &value), member.put_op("/app/twin", &value)];
        async move { member.txn(twins).await }
    };
    stream::iter(0..UNREAD).map(write).buffer_unordered(32).collect::<()>().await;
    member.put("/app/last", "!").await;
}

/// Applies groups to `view` until the key `last` is there, or `groups_max` groups have come.
/// Returns their number. Panics if the stream ends, or if the twins differ.
async fn take(stream: &mut Follower, view: &mut View, groups_max: usize) -> usize {
    let mut groups = 0;
    while groups < groups_max && !view.elements.contains_key("last") {
        if view.take(stream.try_next().await.unwrap().expect("nobody is sent away")) {
            groups += 1;
            let twin = |name| view.elements.get(name);
            assert!(twin("twin").is_none() || twin("a") == twin("twin"), "half a transaction was told");
        }
    }
    groups
}

#[tokio::test(flavor = "multi_thread")]
async fn w25_w52_who_does_not_read_is_told_sums_and_not_sent_away() {
    let cluster = Cluster::three().await;
    let index = cluster.follower().await;
    for via in BOTH {
        let member = Member { cluster: &cluster, index, via, case: "w52" };
        member.fixture().await;
        let (mut slow, mut leaving) = (member.follow(TREE).await, member.follow(TREE).await);
        let (mut view, mut left) = (View::default(), View::default());
        take(&mut slow, &mut view, 1).await;
        take(&mut leaving, &mut left, 1).await;
        write_twins(member).await;
        let groups = take(&mut slow, &mut view, usize::MAX).await;
        assert!(groups < UNREAD / 2, "{UNREAD} commits came in {groups} groups");
        // A follower that leaves in between resumes from its last marker at any member.
        take(&mut leaving, &mut left, 3).await;
        drop(leaving);
        assert!(!left.elements.contains_key("last"));
        let member = Member { index: (index + 1) % 3, ..member };
        let mut there = member.follow_from(TREE, &left.marker).await;
        take(&mut there, &mut left, usize::MAX).await;
        let mut now = View::default();
        take(&mut member.follow(TREE).await, &mut now, usize::MAX).await;
        assert_eq!(view.elements, now.elements);
        assert_eq!(left.elements, now.elements);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w53_the_clients_time_is_kept() {
    let cluster = Cluster::three().await;
    let mut client = super::client::grpc(&cluster.client_url(0)).await;
    let mut begin = async |timeout: &str| -> Result<_, Status> {
        let request = headwater::pb::google::watcher::v1::Request { target: "/kv/w53".into(), ..Default::default() };
        let mut request = tonic::Request::new(request);
        request.metadata_mut().insert("grpc-timeout", timeout.parse().unwrap());
        let mut stream = client.watch(request).await?.into_inner();
        assert!(stream.message().await?.is_some());
        Ok(stream)
    };
    let mut begun = None;
    for timeout in TIMEOUTS {
        begun = begin(timeout).await.ok();
        if begun.is_some() {
            break;
        }
    }
    let ended = within("the time is over", begun.expect("it begins in time").message()).await.unwrap_err();
    assert_eq!(ended.code(), Code::DeadlineExceeded);

    let mut connection = Connection::open(&cluster.client_url(0), Version::HTTP_11).await;
    let mut get = async |timeout: &str| {
        let request = Request::get("/v1/watch?target=%2Fkv%2Fw53").header("grpc-timeout", timeout);
        let response = connection.send(request.body(Body::empty()).unwrap()).await;
        let status = response.status().as_u16();
        let body = within("the time is over", response.into_body().collect()).await.unwrap().to_bytes();
        let last = body.trim_ascii().rsplit(|byte| *byte == b'\n').next().unwrap();
        (status, serde_json::from_slice::<Value>(last).unwrap())
    };
    let mut ended = (0, Value::Null);
    for timeout in TIMEOUTS {
        ended = get(timeout).await;
        if ended.0 == 200 {
            break;
        }
    }
    let (status, last) = ended;
    assert_eq!((status, &last["error"]["grpc_code"], &last["error"]["http_code"]), (200, &4.into(), &504.into()));
    // Deadline passed before the stream began (W55).
    let (status, refused) = get("1n").await;
    assert_eq!((status, &refused["code"]), (504, &4.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_member_ends_its_streams() {
    let mut cluster = Cluster::three().await;
    let url = cluster.client_url(0);
    let mut streams = Vec::new();
    for (via, target) in [(Via::Grpc, "/kv/a"), (Via::Http, "/kv/a"), (Via::Grpc, "/"), (Via::Http, "/")] {
        let mut stream = Follower::open(&url, via, target, b"").await.unwrap();
        stream.group().await;
        streams.push(stream);
    }
    cluster.stop(0).await;
    for stream in &mut streams {
        assert_eq!(stream.try_next().await.unwrap_err().code(), Code::Unavailable);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_go_on_where_they_were() {
    let mut cluster = Cluster::three().await;
    let member = Member { cluster: &cluster, index: 0, via: Via::Http, case: "sse" };
    member.fixture().await;
    let target = member.target(TREE);
    let mut events = Events::open(&cluster.client_url(0), &target, &[]).await.unwrap();
    assert_eq!(events.block().await.unwrap(), [("retry".to_owned(), "1000".to_owned())]);
    let block = events.block().await.unwrap();
    assert_eq!(block.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["id", "data"]);
    let data: Value = serde_json::from_str(&block[1].1).unwrap();
    let last = data["changes"].as_array().unwrap().last().unwrap().clone();
    let marker = base64::engine::general_purpose::STANDARD.decode(last["resumeMarker"].as_str().unwrap()).unwrap();
    assert_eq!(block[0].1, URL_SAFE_NO_PAD.encode(&marker));
    cluster.stop(0).await;
    let mut said = None;
    while let Some(block) = events.block().await {
        said = Some(block);
    }
    assert_eq!(said.unwrap()[0], ("event".to_owned(), "end".to_owned()));
    let member = Member { cluster: &cluster, index: 1, via: Via::Http, case: "sse" };
    member.put("/app/a", "7").await;
    let url = cluster.client_url(1);
    let mut events = Events::open(&url, &target, &[("last-event-id", &block[0].1)]).await.unwrap();
    events.block().await.unwrap();
    let data: Value = serde_json::from_str(&events.block().await.unwrap()[1].1).unwrap();
    let changes = data["changes"].as_array().unwrap();
    assert_eq!((changes.len(), changes[0]["element"].as_str()), (1, Some("a")));
    assert_eq!(Events::open(&url, &target, &[("last-event-id", "garbage")]).await.err(), Some(400));
    let group = member.follow_from(TREE, &marker).await.group().await;
    assert_eq!(show(&group), ["C(a,E,7,m)"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn w55_other_methods_are_not_allowed() {
    let cluster = Cluster::three().await;
    let mut connection = Connection::open(&cluster.client_url(0), Version::HTTP_11).await;
    let answer = connection.post("/v1/watch?target=%2Fkv", "").await;
    assert_eq!((answer.status, answer.headers["allow"].to_str().unwrap()), (405, "GET"));
}
