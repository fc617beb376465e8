//! The cases about markers and targets: resuming, and refusals.

use headwater::pb::etcdserverpb as etcd;
use tonic::Code;

use super::cases::Member;
use super::client::{Follower, View, encode, show};

pub async fn run_all(member: Member<'_>) {
    w09_nothing_was_missed(member.case("w09")).await;
    w10_w11_what_was_missed_comes_first(member.case("w10")).await;
    w12_gone_and_back(member.case("w12")).await;
    w22_markers_of_every_group_go_on(member.case("w22")).await;
    a_marker_goes_on_at_another_member(member.case("elsewhere")).await;
    w08_w14_w15_markers_that_are_none(member.case("w14")).await;
    w16_w18_markers_of_another_time(member.case("w16")).await;
    w36_to_w43_targets_that_are_none(member.case("w36")).await;
    w53_who_leaves_is_forgotten(member.case("w53")).await;
    w13_what_was_compacted_is_gone(member.case("w13")).await;
    a_follower_outlives_compaction(member.case("compaction")).await;
}

const TREE: &str = "/app?recursive=true";

async fn code(member: Member<'_>, target: &str, marker: &[u8]) -> Code {
    let url = member.cluster.client_url(member.index);
    match Follower::open(&url, member.via, target, marker).await {
        Ok(mut stream) => match stream.try_next().await {
            Ok(seen) => panic!("{target} {marker:?} was not refused: {seen:?}"),
            Err(status) => status.code(),
        },
        Err(status) => {
            assert!(!status.message().is_empty());
            status.code()
        }
    }
}

/// Writes the fixture, and returns the marker after its last change.
async fn marked(member: Member<'_>) -> Vec<u8> {
    member.fixture().await;
    member.follow(TREE).await.group().await.last().unwrap().marker.clone()
}

async fn w09_nothing_was_missed(member: Member<'_>) {
    let marker = marked(member).await;
    let mut stream = member.follow_from(TREE, &marker).await;
    let again = stream.expect(&["C(,E,d0,m)"]).await;
    stream.silent().await;
    member.follow_from(TREE, &again).await.expect(&["C(,E,d0,m)"]).await;
    let mut nope = member.follow("/nope").await;
    let marker = nope.expect(&["C(,X,m)"]).await;
    member.follow_from("/nope", &marker).await.expect(&["C(,X,m)"]).await;
}

async fn w10_w11_what_was_missed_comes_first(member: Member<'_>) {
    let marker = marked(member).await;
    member.put("/app/b", "7").await;
    member.del("/app/a").await;
    let mut stream = member.follow_from(TREE, &marker).await;
    // In the order of the commits.
    stream.expect(&["C(b,E,7,+)", "C(a,X,m)"]).await;
    member.put("/app/b", "8").await;
    stream.expect(&["C(b,E,8,m)"]).await;
    let group = member.follow_from(TREE, &marker).await.group().await;
    let values: Vec<_> =
        group.iter().filter(|seen| seen.element == "b").map(|seen| seen.value.clone().unwrap()).collect();
    assert!(values == [b"7".to_vec(), b"8".to_vec()] || values == [b"8".to_vec()], "{values:?}");
}

async fn w12_gone_and_back(member: Member<'_>) {
    let marker = marked(member).await;
    member.del("/app/b").await;
    member.put("/app/b", "9").await;
    let group = member.follow_from(TREE, &marker).await.group().await;
    assert_eq!(show(&group).last().unwrap(), "C(b,E,9,m)");
    assert!(group.iter().rev().skip(1).all(|seen| seen.element != "b" || seen.state == "DOES_NOT_EXIST"), "{group:?}");
}

async fn w22_markers_of_every_group_go_on(member: Member<'_>) {
    let mut markers = vec![marked(member).await];
    let mut stream = member.follow_from(TREE, &markers[0]).await;
    stream.group().await;
    for number in 0..5 {
        member.put(&format!("/app/n{number}"), "x").await;
        markers.push(stream.expect(&[&format!("C(n{number},E,x,m)")]).await);
    }
    for (number, marker) in markers.iter().enumerate() {
        let group = member.follow_from(TREE, marker).await.group().await;
        let names: Vec<_> = group.into_iter().map(|seen| seen.element).collect();
        let wanted: Vec<_> = (number..5).map(|number| format!("n{number}")).collect();
        assert_eq!(names, if wanted.is_empty() { vec![String::new()] } else { wanted });
    }
}

/// W17: a member that has not reached the marker waits until it has. Whether one lags here depends
/// on chance.
async fn a_marker_goes_on_at_another_member(member: Member<'_>) {
    let mut marker = marked(member).await;
    let members: Vec<_> = member.cluster.running().collect();
    for round in 0..12 {
        let (writer, reader) = (members[round % members.len()], members[(round + 1) % members.len()]);
        let value = round.to_string();
        Member { index: writer, ..member }.put("/app/a", &value).await;
        let mut stream = Member { index: reader, ..member }.follow_from(TREE, &marker).await;
        marker = stream.expect(&[&format!("C(a,E,{value},m)")]).await;
    }
}

async fn w08_w14_w15_markers_that_are_none(member: Member<'_>) {
    let marker = marked(member).await;
    let target = member.target(TREE);
    for wrong in [&b"NOW"[..], b"now ", b"now\0", b"\0", b"garbage", &marker[..marker.len() - 1], &vec![7; 4096]] {
        assert_eq!(code(member, &target, wrong).await, Code::InvalidArgument, "{wrong:?}");
    }
    if member.via == super::client::Via::Grpc {
        assert_eq!(code(member, &target, &vec![0; 1 << 20]).await, Code::InvalidArgument);
    }
    let mut flipped = marker.clone();
    flipped[20] ^= 1;
    assert_eq!(code(member, &target, &flipped).await, Code::InvalidArgument);
    for other in ["/app", "/app/a?recursive=true", "/nope"] {
        assert_eq!(code(member, &member.target(other), &marker).await, Code::InvalidArgument, "{other}");
    }
    // An equivalent target is the same target.
    member.follow_from("/app?x=y&recursive=true", &marker).await.expect(&["C(,E,d0,m)"]).await;
}

/// Forged markers with an index of the future, or with another epoch, are refused: such a marker
/// may come from another cluster, or from before a restore.
async fn w16_w18_markers_of_another_time(member: Member<'_>) {
    let marker = marked(member).await;
    let target = member.target(TREE);
    let forged = |at: usize| {
        let mut forged = marker.clone();
        forged[at] ^= 0x40;
        let checksum = crc32c(&forged[..25]);
        forged[25..].copy_from_slice(&checksum.to_be_bytes());
        forged
    };
    // The last eight bytes before the checksum are the index, those after the version the epoch.
    assert_eq!(code(member, &target, &forged(18)).await, Code::FailedPrecondition, "the future");
    assert_eq!(code(member, &target, &forged(4)).await, Code::FailedPrecondition, "another lineage");
    member.follow_from(TREE, b"").await.group().await;
}

/// The CRC-32C checksum of the bytes.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1)))
    })
}

async fn w36_to_w43_targets_that_are_none(member: Member<'_>) {
    assert_eq!(code(member, "/?recursive=true", b"").await, Code::Unimplemented, "W36");
    for target in [
        "/kv/app?recursive=TRUE",
        "/kv/app?recursive=1",
        "/kv/app?recursive=yes",
        "/kv/app?recursive=true&recursive=true",
        "app",
        "",
        "//",
        "myservice.googleapis.com/app",
        "http://h/kv/app",
        "/nosuchspace/app",
        "/kv/a%2Fb",
        "/kv/%zz",
        "/kv/%",
        "/kv/%FF",
        "/kv/a/../b",
        "/kv/a/./b",
        "/kv/app/",
        "/kv/app#x",
    ] {
        assert_eq!(code(member, target, b"").await, Code::InvalidArgument, "{target}");
    }
    // W38.
    member.fixture().await;
    member.follow("/app/a?foo=bar").await.expect(&["C(,E,1,m)"]).await;
    assert_eq!(encode("/app?recursive=true"), "%2Fapp%3Frecursive%3Dtrue", "W54");
}

async fn w53_who_leaves_is_forgotten(member: Member<'_>) {
    let url = member.cluster.client_url(member.index);
    let metric = |name: &'static str| crate::gateway::client::metric(&url, name);
    let streams = async || metric("headwater_stream_open{api=\"watcher\"}").await;
    crate::cluster::wait_until("earlier streams are forgotten", async || streams().await == 0).await;
    let mut stream = member.follow("/app").await;
    stream.group().await;
    assert_eq!(streams().await, 1);
    assert_eq!(metric("etcd_debugging_mvcc_watch_stream_total").await, 0, "that is the other API's");
    assert!(metric("headwater_stream_subscriptions{topic=\"kv\"}").await > 0);
    drop(stream);
    crate::cluster::wait_until("the stream is forgotten", async || streams().await == 0).await;
}

async fn compact(member: Member<'_>) {
    let mut kv = member.cluster.kv(member.index);
    let header = kv.range(crate::cluster::get("any")).await.unwrap().into_inner().header.unwrap();
    let request = etcd::CompactionRequest { revision: header.revision, physical: true };
    kv.compact(request).await.unwrap();
}

async fn w13_what_was_compacted_is_gone(member: Member<'_>) {
    let marker = marked(member).await;
    member.put("/app/a", "7").await;
    member.put("/app/a", "8").await;
    compact(member).await;
    assert_eq!(code(member, &member.target(TREE), &marker).await, Code::FailedPrecondition);
    let wanted = ["C(,E,d0,+)", "C(a,E,8,+)", "C(b,E,2,+)", "C(d,E,Empty,+)", "C(d/x,E,3,m)"];
    member.follow_from(TREE, b"").await.expect(&wanted).await;
}

/// Changes that a follower has not read may be compacted: then it gets the final state of each
/// element, not each change.
async fn a_follower_outlives_compaction(member: Member<'_>) {
    member.fixture().await;
    let mut stream = member.follow(TREE).await;
    let mut view = View::default();
    for number in 0..20 {
        member.put("/app/e/y", &number.to_string()).await;
        member.txn(vec![member.del_tree_op("/app/e")]).await;
        member.put(&format!("/app/f/{}", number % 3), &number.to_string()).await;
        compact(member).await;
    }
    member.put("/app/last", "!").await;
    while !view.elements.contains_key("last") {
        match stream.try_next().await {
            Ok(seen) => drop(view.take(seen.expect("the stream goes on"))),
            // Too late for a follower with a small window: it begins again.
            Err(status) => {
                assert_eq!(status.code(), Code::FailedPrecondition);
                view = View::default();
                stream = member.follow(TREE).await;
            }
        }
    }
    let value = |name: &str| view.elements.get(name).cloned().flatten();
    assert!(!view.elements.contains_key("e"));
    assert_eq!((value("f/0"), value("f/1"), value("f/2")), (Some("18".into()), Some("19".into()), Some("17".into())));
}
