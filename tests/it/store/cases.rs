//! Cases of reads at points of the history, and of the history itself. Each runs at one member,
//! over gRPC or as JSON.

use std::time::Duration;

use headwater::pb::etcdserverpb as etcd;
use headwater::pb::etcdserverpb::lease_client::LeaseClient;
use headwater::pb::headwater_v1 as pb;
use headwater::pb::headwater_v1::entity_change::Kind;
use headwater::types::Feature;
use headwater::types::catalog::DeregistrationTarget;
use prost::Message;
use tonic::Code;

use super::client::{Changes, Member, Via, at, at_time, changes, data, of, shown};
use crate::cluster::{wait_until, within};
use crate::subscribe::client::{deregister, register};

/// Time without a message after which a stream counts as silent.
const SILENCE: Duration = Duration::from_millis(200);

pub async fn run_all(member: Member<'_>) {
    wait_until("every member has the version that has authors", async || {
        let version = |index| member.cluster.node(index).versions().cluster().version;
        member.cluster.running().all(|index| Feature::Authors.is_in(version(index)))
    })
    .await;
    let name = match member.via {
        Via::Grpc => "grpc",
        Via::Json => "json",
    };
    keys_are_read_at_points(member, name).await;
    pages_show_one_state(member, name).await;
    changes_go_both_ways(member, name).await;
    a_live_stream_goes_on_anywhere(member, name).await;
    a_large_command_comes_in_parts(member, name).await;
    every_space_has_a_history(member, name).await;
    what_is_wrong_is_said(member).await;
}

/// All running members, `member` included, over the same transport.
fn others(member: Member<'_>) -> impl Iterator<Item = Member<'_>> {
    member.cluster.running().map(move |index| Member { index, ..member })
}

async fn keys_are_read_at_points(member: Member<'_>, name: &str) {
    let root = format!("read-{name}");
    let all = format!("/kv/{root}?recursive=true");
    let (_, first) = member.put(&format!("{root}/a"), "1").await;
    let (revision, second) = member.put(&format!("{root}/b/c"), "2").await;
    member.put(&format!("{root}/a"), "3").await;
    let last = member.delete(&format!("{root}/b/c")).await;
    let path = |rest: &str| format!("/kv/{root}/{rest}");
    for (index, wanted) in [
        (first, vec![format!("{}=1", path("a"))]),
        (second, vec![format!("{}=1", path("a")), format!("{}=2", path("b/c"))]),
        (last, vec![format!("{}=3", path("a"))]),
    ] {
        let read = member.read(&[&all], at(index)).await.unwrap();
        assert_eq!((shown(&read.entities), read.index), (wanted.clone(), index), "at {index}");
        assert!(read.next_page_token.is_empty() && read.epoch.len() == 16 && read.unix_ms > 0);
        // Members that propose at once stamp times that are not in the order of the log.
        let by_time = member.read(&[&all], at_time(read.unix_ms)).await.unwrap();
        assert!(by_time.unix_ms <= read.unix_ms, "{by_time:?}");
        let later = member.read(&[&all], at_time(read.unix_ms + 60_000)).await.unwrap();
        assert!(later.index >= last, "{later:?}");
    }
    let read = member.read(&[&all], at(second)).await.unwrap();
    assert_eq!((read.revision, read.entities[1].index), (revision, second));
    let now = member.read(&[&format!("/kv/{root}"), &all], None).await.unwrap();
    assert_eq!(shown(&now.entities), [format!("{}=3", path("a")), format!("{}=3", path("a"))]);
    let children = member.read(&[&format!("/kv/{root}")], at(second)).await.unwrap();
    assert_eq!(shown(&children.entities), [format!("{}=1", path("a")), format!("{}=Empty", path("b"))]);
    let alone = member.read(&[&format!("/kv/{root}/a?children=false")], at(second)).await.unwrap();
    assert_eq!(shown(&alone.entities), [format!("{}=1", path("a"))]);
    let long_ago = member.read(&[&all], at_time(1)).await;
    assert!(long_ago.is_err() || long_ago.unwrap().entities.is_empty());
    let targets = vec![all];
    let local = pb::ReadRequest { targets, serializable: true, at: at(last), ..Default::default() };
    assert_eq!(member.read_request(local).await.unwrap().entities.len(), 1);
}

async fn pages_show_one_state(member: Member<'_>, name: &str) {
    let root = format!("page-{name}");
    for key in ["a", "b", "c", "d", "e"] {
        member.put(&format!("{root}/{key}"), "old").await;
    }
    let request = pb::ReadRequest {
        targets: vec![format!("/kv/{root}?recursive=true"), format!("/kv/{root}/b?children=false")],
        page_size: 2,
        ..Default::default()
    };
    let mut pages = vec![member.read_request(request.clone()).await.unwrap()];
    for key in ["b", "c", "x"] {
        member.put(&format!("{root}/{key}"), "new").await;
    }
    // Each page from another member.
    let members: Vec<_> = others(member).collect();
    while !pages.last().unwrap().next_page_token.is_empty() {
        let page_token = pages.last().unwrap().next_page_token.clone();
        let next = pb::ReadRequest { page_token, ..request.clone() };
        pages.push(members[pages.len() % members.len()].read_request(next).await.unwrap());
    }
    let found: Vec<_> = pages.iter().flat_map(|page| shown(&page.entities)).collect();
    let wanted = ["a", "b", "c", "d", "e", "b"].map(|key| format!("/kv/{root}/{key}=old"));
    assert_eq!(found, wanted);
    assert!(pages.iter().all(|page| page.index == pages[0].index && page.entities.len() <= 2));
    assert_eq!(pages.len(), 3, "a full last page is the last one");
}

async fn changes_go_both_ways(member: Member<'_>, name: &str) {
    let root = format!("change-{name}");
    let target = format!("/kv/{root}?recursive=true");
    let path = format!("/kv/{root}/a");
    let mut indexes = Vec::new();
    for value in ["1", "2", "3"] {
        indexes.push(member.put(&format!("{root}/a"), value).await.1);
        member.put(&format!("{root}-other"), value).await;
    }
    indexes.push(member.delete(&format!("{root}/a")).await);
    let steps = ["- -> 1", "1 -> 2", "2 -> 3", "3 -> -"];
    let all: Vec<_> = steps.iter().map(|step| vec![format!("{path} {step}")]).collect();
    let forward = member.changes(&target).await;
    assert_eq!(forward.iter().map(changes).collect::<Vec<_>>(), all);
    assert_eq!(forward.iter().map(|command| command.index).collect::<Vec<_>>(), indexes);
    let kinds: Vec<_> = forward.iter().map(|command| command.changes[0].kind()).collect();
    assert_eq!(kinds, [Kind::Created, Kind::Updated, Kind::Updated, Kind::Removed]);
    assert!(forward.iter().all(|command| command.face == "etcd" && command.author.is_empty() && command.unix_ms > 0));
    assert!(forward.is_sorted_by_key(|command| command.revision));
    assert_eq!(forward[2].changes[0].before.as_ref().unwrap().index, indexes[1]);
    // Backward it is the same, and every other member says the same.
    for other in others(member) {
        let request = pb::HistoryRequest { direction: pb::Direction::Backward.into(), ..of(&target) };
        let (mut backward, reached) = other.history(request).await.unwrap().rest().await.unwrap();
        backward.reverse();
        assert_eq!(backward, forward);
        assert!(reached < indexes[0]);
    }
    // Parts of it: by points, by number, by face, and without states.
    let between = pb::HistoryRequest { from: at(indexes[0]), to: at(indexes[2]), ..of(&target) };
    let found = member.history(between.clone()).await.unwrap().rest().await.unwrap();
    assert_eq!(found, (forward[1..3].to_vec(), indexes[2]));
    let (from, to) = (between.to.clone(), between.from.clone());
    let backward = pb::HistoryRequest { from, to, direction: 1, limit: 1, ..of(&target) };
    let found = member.history(backward.clone()).await.unwrap().rest().await.unwrap();
    assert_eq!(found, (forward[2..3].to_vec(), indexes[2] - 1));
    let next = pb::HistoryRequest { from: at(found.1), ..backward };
    assert_eq!(member.history(next).await.unwrap().rest().await.unwrap().0, forward[1..2]);
    let by_consul = pb::HistoryRequest { faces: vec!["consul".to_owned()], ..of(&target) };
    assert_eq!(member.history(by_consul).await.unwrap().rest().await.unwrap().0, []);
    let short = pb::HistoryRequest { paths_only: true, faces: vec!["etcd".to_owned()], ..of(&target) };
    let (short, _) = member.history(short).await.unwrap().rest().await.unwrap();
    assert_eq!(short.iter().flat_map(changes).collect::<Vec<_>>(), vec![format!("{path} - -> -"); 4]);
}

async fn a_live_stream_goes_on_anywhere(member: Member<'_>, name: &str) {
    let target = format!("/kv/live-{name}?recursive=true");
    let key = |number: usize| format!("live-{name}/{number}");
    let (_, before) = member.put(&key(0), "v").await;
    let live = |from| pb::HistoryRequest { live: true, from: at(from), ..of(&target) };
    let mut reached = before;
    for (number, other) in others(member).chain(others(member)).enumerate().map(|(at, other)| (at + 1, other)) {
        let mut stream = other.history(live(reached)).await.unwrap();
        let first = stream.next().await.unwrap().unwrap();
        assert!(first.commands.is_empty() && first.reached >= reached, "{first:?}");
        member.put("unrelated", "x").await;
        let (_, index) = member.put(&key(number), "v").await;
        let (command, now) = stream.command().await;
        assert_eq!((command.index, changes(&command)), (index, vec![format!("/kv/{} - -> v", key(number))]));
        assert!(now >= index);
        reached = now;
    }
    // Nothing is sent while nothing happens.
    let mut stream = member.history(live(reached)).await.unwrap();
    stream.next().await.unwrap();
    assert!(tokio::time::timeout(SILENCE, stream.next()).await.is_err());
}

/// Longest message that a gRPC client accepts by default, bytes.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Reads one command that comes in several messages, up to its end. Returns `PATH LENGTH` of each
/// change (LENGTH in bytes, of the value before), and the position in the message before its last
/// one.
async fn parts(stream: &mut Changes) -> (Vec<String>, u64) {
    let (mut found, mut reached) = (Vec::new(), None);
    loop {
        let message = stream.next().await.unwrap().expect("the command has an end");
        assert!(message.encoded_len() < MESSAGE_BYTES_MAX, "{} bytes", message.encoded_len());
        let Some(command) = message.commands.iter().find(|it| it.continued || reached.is_some()) else { continue };
        assert_eq!(message.commands.len(), 1);
        let length = |change: &pb::EntityChange| change.before.as_ref().map_or(0, |before| data(before).len());
        found.extend(command.changes.iter().map(|change| format!("{} {}", change.path, length(change))));
        if !command.continued {
            return (found, reached.unwrap());
        }
        reached = Some(message.reached);
    }
}

async fn a_large_command_comes_in_parts(member: Member<'_>, name: &str) {
    let root = format!("large-{name}");
    let target = format!("/kv/{root}?recursive=true");
    let value = "x".repeat(500_000);
    for number in 0..10 {
        member.put(&format!("{root}/{number}"), &value).await;
    }
    let (_, before) = member.put(&format!("{root}-other"), "x").await;
    let live = pb::HistoryRequest { live: true, from: at(before), ..of(&target) };
    let mut live = member.history(live).await.unwrap();
    live.next().await.unwrap();
    let mut kv = member.cluster.kv(member.index);
    let (key, range_end) = (format!("{root}/").into(), format!("{root}0").into());
    let gone = kv.delete_range(etcd::DeleteRangeRequest { key, range_end, ..Default::default() }).await.unwrap();
    assert_eq!(gone.get_ref().deleted, 10);
    let index: u64 = gone.metadata().get("headwater-index").unwrap().to_str().unwrap().parse().unwrap();
    let wanted: Vec<_> = (0..10).map(|number| format!("/kv/{root}/{number} 500000")).collect();
    assert_eq!(parts(&mut live).await, (wanted.clone(), index - 1));
    for other in others(member) {
        let mut forward = other.history(of(&target)).await.unwrap();
        let (found, reached) = parts(&mut forward).await;
        assert_eq!((&found, reached), (&wanted, index - 1));
        let backward = pb::HistoryRequest { direction: 1, limit: 2, ..of(&target) };
        let mut stream = other.history(backward.clone()).await.unwrap();
        let (found, reached) = parts(&mut stream).await;
        assert_eq!((&found, reached), (&wanted, index));
        // The limit counts it once.
        let (rest, _) = stream.rest().await.unwrap();
        assert_eq!(rest.iter().flat_map(|command| &command.changes).count(), 1);
        // A reader that stopped in the middle of it misses nothing.
        for resumed in [
            pb::HistoryRequest { from: at(index - 1), ..of(&target) },
            pb::HistoryRequest { from: at(index), ..backward },
        ] {
            assert_eq!(parts(&mut other.history(resumed).await.unwrap()).await.0, wanted);
        }
    }
}

async fn every_space_has_a_history(member: Member<'_>, name: &str) {
    let (cluster, index) = (member.cluster, member.index);
    let service = format!("web-{name}");
    let registered = register(cluster, index, "n1", &format!("id-{name}"), &service).await;
    let gone = deregister(cluster, index, "n1", DeregistrationTarget::Service(format!("id-{name}"))).await;
    let target = format!("/services/{service}?recursive=true");
    let path = format!("/services/{service}/n1/id-{name}");
    let then = member.read(&[&target], at(registered)).await.unwrap();
    assert_eq!(shown(&then.entities), [format!("{path}=CheckServiceNode")]);
    assert_eq!(shown(&member.read(&[&target], at(gone)).await.unwrap().entities), [""; 0]);
    let found = member.changes(&target).await;
    let wanted = [format!("{path} - -> CheckServiceNode"), format!("{path} CheckServiceNode -> -")];
    assert_eq!(found.iter().flat_map(changes).collect::<Vec<_>>(), wanted);
    assert!(!member.changes("/nodes").await.is_empty());

    let mut leases = LeaseClient::new(cluster.channel(index));
    let id = 0x7000 + index as i64 + 16 * member.via as i64;
    let granted = leases.lease_grant(etcd::LeaseGrantRequest { id, ttl: 600 }).await.unwrap();
    let granted: u64 = granted.metadata().get("headwater-index").unwrap().to_str().unwrap().parse().unwrap();
    leases.lease_revoke(etcd::LeaseRevokeRequest { id }).await.unwrap();
    let target = format!("/leases/{id:016x}");
    let then = member.read(&[&target], at(granted)).await.unwrap();
    assert_eq!(shown(&then.entities), [format!("{target}=LeaseGrantResponse")]);
    assert_eq!(shown(&member.read(&[&target], None).await.unwrap().entities), [""; 0]);
    let found = member.changes(&target).await;
    assert!(found.len() >= 2 && found.iter().all(|command| command.face == "etcd"), "{found:?}");

    let members = member.read(&["/cluster?recursive=true"], None).await.unwrap();
    assert_eq!(members.entities.len(), cluster.running().count());
    let everything = pb::HistoryRequest { limit: 10, direction: 1, ..Default::default() };
    let (everything, _) = member.history(everything).await.unwrap().rest().await.unwrap();
    assert_eq!(everything.len(), 10);
    assert!(everything.windows(2).all(|pair| pair[0].index > pair[1].index));
    let resources = member.read(&["/resources?recursive=true"], None).await.unwrap();
    assert!(resources.entities.iter().all(|entity| entity.path.starts_with("/resources/")));
    assert!(!resources.entities.is_empty());
}

async fn what_is_wrong_is_said(member: Member<'_>) {
    let newest = member.read(&["/nodes"], None).await.unwrap().index;
    let future = newest + 1_000_000;
    let epoch = "00000000000000ff".to_owned();
    let foreign = at(newest).map(|point| pb::Point { epoch, ..point });
    for (target, point, code, text) in [
        ("/kv", at(future), Code::OutOfRange, "the newest index of the store is"),
        ("/kv", foreign.clone(), Code::FailedPrecondition, "another cluster"),
        ("/nothing", None, Code::InvalidArgument, "there is no space \"nothing\""),
        ("kv", None, Code::InvalidArgument, "must be a URL path"),
        ("/", None, Code::InvalidArgument, "names no entity"),
    ] {
        let refused = member.read(&[target], point.clone()).await.unwrap_err();
        assert_eq!(refused.code(), code, "{target} {point:?}: {refused:?}");
        assert!(refused.message().contains(text), "{refused:?}");
        let refused = match member.history(pb::HistoryRequest { from: point, ..of(target) }).await {
            Ok(_) => panic!("{target}"),
            Err(refused) => refused,
        };
        assert_eq!(refused.code(), code, "{target}: {refused:?}");
    }
    for (request, code, text) in [
        (
            pb::HistoryRequest { faces: vec!["tcp".to_owned()], ..of("/kv") },
            Code::InvalidArgument,
            "the faces are etcd",
        ),
        (pb::HistoryRequest { live: true, to: at(newest), ..of("/kv") }, Code::InvalidArgument, "live"),
        (pb::HistoryRequest { from: at(newest), to: at(newest - 1), ..of("/kv") }, Code::InvalidArgument, "empty"),
    ] {
        let refused = match member.history(request.clone()).await {
            Ok(_) => panic!("{request:?}"),
            Err(refused) => refused,
        };
        assert_eq!(refused.code(), code, "{refused:?}");
        assert!(refused.message().contains(text), "{refused:?}");
    }
    let garbage = pb::ReadRequest { targets: vec!["/kv".to_owned()], page_token: "x".into(), ..Default::default() };
    assert_eq!(member.read_request(garbage).await.unwrap_err().code(), Code::InvalidArgument);
    within("the member answers", member.read(&["/kv"], None)).await.unwrap();
}
