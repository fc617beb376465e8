//! Cases of commits. Each runs at one member, over gRPC or as JSON.

use headwater::pb::headwater_v1 as pb;
use headwater::pb::headwater_v1::entity_change::Kind;
use headwater::pb::headwater_v1::operation_result::Result as Done;
use tonic::Code;

use super::operations::*;
use crate::resources::client::{Client as Resources, Delivery as Event, artist_type};
use crate::store::client::{Member, Via, at, changes, shown};
use crate::subscribe::client::{Delivery, Subscriber, health};
use crate::watch::client as watch;
use crate::watcher::client::{Follower, Via as FollowVia};

pub async fn run_all(member: Member<'_>) {
    let name = match member.via {
        Via::Grpc => "grpc",
        Via::Json => "json",
    };
    everything_changes_at_one_index(member, name).await;
    conditions_decide(member, name).await;
    a_refused_operation_undoes_all(member, name).await;
    no_two_operations_change_one_entity(member, name).await;
    a_key_makes_repeating_harmless(member, name).await;
    what_is_wrong_is_said(member).await;
}

/// The targets that cover every key, resource, service and node of the test `name`.
fn targets(name: &str) -> Vec<String> {
    vec![
        format!("/kv/{name}?recursive=true"),
        format!("/resources/demo/v2/Artist/default/default/{name}?recursive=true"),
        format!("/services/{name}?recursive=true"),
        format!("/nodes/{name}"),
    ]
}

/// All changes of `targets` after the log index `from`. Asserts that every running member returns
/// the same ones.
async fn history(member: Member<'_>, targets: &[String], from: u64) -> Vec<pb::CommandChanges> {
    let mut all = Vec::new();
    for index in member.cluster.running() {
        let request = pb::HistoryRequest { targets: targets.to_vec(), from: at(from), ..Default::default() };
        all.push(Member { index, ..member }.history(request).await.unwrap().rest().await.unwrap().0);
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:#?}");
    all.pop().unwrap()
}

async fn now(member: Member<'_>) -> u64 {
    member.read(&["/nodes"], None).await.unwrap().index
}

/// A session's id that is made from `number`.
fn uuid(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

async fn everything_changes_at_one_index(member: Member<'_>, name: &str) {
    let (cluster, root) = (member.cluster, format!("all-{name}"));
    let before = now(member).await;
    // Each stream at another member.
    let members: Vec<_> = cluster.running().collect();
    let of = |at: usize| members[(member.index + at) % members.len()];
    let mut keys = watch::Stream::open(&cluster.client_url(of(0))).await.unwrap();
    keys.create(watch::prefix(format!("{root}/"))).await;
    let mut instances = Subscriber::open(cluster, of(1), health(&root)).await.unwrap();
    instances.snapshot().await;
    let mut artists = Resources::of(cluster, of(2)).watch(artist_type(), Some(UNITS), &root).await.unwrap();
    artists.list().await;
    let url = cluster.client_url(of(1));
    let mut follower = Follower::open(&url, FollowVia::Grpc, &format!("/kv/{root}?recursive=true"), b"").await.unwrap();
    follower.group().await;

    let number = member.index + 8 * member.via as usize;
    let (lease, session_id) = (0x9000 + number as i64, uuid(number));
    let request = pb::CommitRequest {
        conditions: vec![version(&format!("{root}/a"), 0), exists(&format!("/services/{root}/{root}/1"), false)],
        operations: vec![
            put_with(&format!("{root}/a"), "1", lease),
            grant(lease),
            register(&root, "1", &root),
            artist(&root),
            session(&session_id, &root),
            lock(&format!("{root}/lock"), &session_id),
            consul("set", &format!("{root}/consul"), "v"),
        ],
        ..Default::default()
    };
    let done = member.commit(request).await.unwrap();
    assert!(done.index > before && done.revision > 0 && !done.done_before);
    assert_eq!(done.epoch.len(), 16, "{done:?}");
    let results: Vec<_> = done.results.iter().map(|it| it.result.clone().expect("a result")).collect();
    let [Done::Put(_), Done::GrantLease(granted), Done::Register(_), Done::WriteResource(written), rest @ ..] =
        &results[..]
    else {
        panic!("{results:?}");
    };
    let [Done::CreateSession(created), Done::ConsulKv(_), Done::ConsulKv(_)] = rest else { panic!("{rest:?}") };
    assert_eq!((granted.id, granted.ttl, &created.id), (lease, 600, &session_id));
    assert_eq!(written.resource.as_ref().unwrap().version, done.index.to_string());

    // One command in the history of every member.
    let all = [targets(&root), vec![format!("/leases/{lease:016x}")]].concat();
    let history = history(member, &all, before).await;
    let [command] = &history[..] else { panic!("{history:#?}") };
    assert_eq!((command.index, command.revision, &command.face[..]), (done.index, done.revision, "store"));
    assert!(command.changes.iter().all(|change| change.kind() == Kind::Created), "{command:#?}");
    assert_eq!(command.changes.len(), 5, "{command:#?}");
    // And one index in every stream.
    let event = keys.events(1).await.remove(0);
    assert_eq!(event.kv.unwrap().mod_revision, done.revision);
    let registered = instances.next().await;
    assert_eq!(registered, Delivery::Reg(done.index, format!("{root}/1")));
    let (written, index) = artists.next_with_index().await.unwrap();
    assert!(matches!(written, Event::Upsert(_)), "{written:?}");
    assert_eq!(index, done.index);
    let group = follower.group().await;
    assert!(group.iter().any(|seen| seen.element.ends_with("a")), "{group:?}");

    // All of it goes at once, too.
    let operations = vec![
        revoke(lease),
        deregister(&root, "1"),
        delete_artist(&root),
        consul("delete", &format!("{root}/consul"), ""),
    ];
    let gone = member.commit(commit(operations)).await.unwrap();
    let event = keys.events(1).await.remove(0);
    assert_eq!((event.kv.unwrap().mod_revision, event.r#type), (gone.revision, 1));
    assert_eq!(instances.next().await, Delivery::Dereg(gone.index, format!("{root}/1")));
    assert_eq!(artists.next_with_index().await.unwrap().1, gone.index);
    let read = member.read(&[&format!("/kv/{root}?recursive=true")], at(gone.index)).await.unwrap();
    assert_eq!(shown(&read.entities), [""; 0]);
    member.commit(commit(vec![destroy(&session_id)])).await.unwrap();
}

async fn conditions_decide(member: Member<'_>, name: &str) {
    let root = format!("if-{name}");
    let path = |rest: &str| format!("/kv/{root}/{rest}");
    let first = member.commit(commit(vec![put(&format!("{root}/a"), "1"), register(&root, "1", &root)])).await.unwrap();
    member.put(&format!("{root}/b/c"), "x").await;
    let instance = format!("/services/{root}/{root}/1");
    let below = format!("/kv/{root}?recursive=true");
    let index_now = now(member).await;
    for good in [
        vec![index(&path("a"), first.index), exists(&path("a"), true), unchanged(&path("a"), first.index)],
        vec![index(&instance, first.index), exists(&instance, true), unchanged(&instance, first.index)],
        vec![index(&path("none"), 0), exists(&path("none"), false), unchanged(&path("none"), first.index - 1)],
        vec![unchanged(&below, index_now), version(&format!("{root}/a"), 1)],
        vec![exists(&format!("/nodes/{root}"), true), exists("/leases/00000000000099ff", false)],
    ] {
        let operations = vec![put(&format!("{root}-done"), "x")];
        member.commit(pb::CommitRequest { conditions: good, operations, ..Default::default() }).await.unwrap();
    }
    for (number, bad) in [
        index(&path("a"), first.index - 1),
        index(&path("a"), 0),
        exists(&path("a"), false),
        exists(&path("none"), true),
        unchanged(&path("a"), first.index - 1),
        unchanged(&below, first.index),
        index(&instance, 0),
        unchanged(&format!("/services/{root}?recursive=true"), first.index - 1),
        exists("/resources/demo/v2/Artist/default/default/nobody", true),
        version(&format!("{root}/a"), 2),
    ]
    .into_iter()
    .enumerate()
    {
        let good = exists(&path("a"), true);
        let operations = vec![put(&format!("{root}/a"), "2"), register(&root, "2", &root)];
        let request = pb::CommitRequest { conditions: vec![good, bad], operations, ..Default::default() };
        let refused = member.commit(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{number}: {refused:?}");
        assert!(refused.message().starts_with("conditions[1]: "), "{number}: {refused:?}");
        assert_eq!(refused.metadata().get("headwater-condition").unwrap(), "1");
    }
    let later = now(member).await + 1_000_000;
    let other = pb::Condition { epoch: "0123456789abcdef".to_owned(), ..exists(&path("a"), true) };
    for (condition, code) in [
        (unchanged(&path("a"), later), Code::OutOfRange),
        (index(&path("a"), later), Code::OutOfRange),
        (other, Code::FailedPrecondition),
    ] {
        let conditions = vec![condition];
        let request = pb::CommitRequest { conditions, ..commit(vec![put(&format!("{root}/a"), "2")]) };
        assert_eq!(member.commit(request).await.unwrap_err().code(), code);
    }
    assert_eq!(history(member, &targets(&root), index_now).await, []);
}

async fn a_refused_operation_undoes_all(member: Member<'_>, name: &str) {
    let root = format!("undone-{name}");
    member.commit(commit(vec![artist(&root), consul("set", &format!("{root}/there"), "x")])).await.unwrap();
    let before = now(member).await;
    for (bad, code, text) in [
        (revoke(0x77ff), Code::NotFound, "lease not found"),
        (put_with(&format!("{root}/leased"), "x", 0x77ff), Code::NotFound, "lease not found"),
        (artist_if(&root, "1"), Code::Aborted, "cas operation failed"),
        (artist_if(&format!("{root}-new"), "1"), Code::Aborted, "cas operation failed"),
        (artist(""), Code::InvalidArgument, "name"),
        (consul("check-index", &format!("{root}/nothing"), ""), Code::NotFound, "doesn't exist"),
        (consul("check-not-exists", &format!("{root}/there"), ""), Code::FailedPrecondition, "exists"),
        (lock(&format!("{root}/lock"), &uuid(0xffff)), Code::NotFound, "session"),
        (session("", "no-such-node"), Code::NotFound, "node"),
    ] {
        let operations = vec![
            put(&format!("{root}/a"), "1"),
            register(&root, "1", &root),
            artist(&format!("{root}-other")),
            grant(0x7700),
            bad.clone(),
        ];
        let refused = member.commit(commit(operations)).await.unwrap_err();
        assert_eq!(refused.code(), code, "{bad:?}: {refused:?}");
        assert!(refused.message().starts_with("operations[4]: "), "{bad:?}: {refused:?}");
        assert!(refused.message().to_lowercase().contains(text), "{bad:?}: {refused:?}");
        assert_eq!(refused.metadata().get("headwater-operation").unwrap(), "4");
    }
    let all = [targets(&root), vec!["/leases/0000000000007700".to_owned()]].concat();
    assert_eq!(history(member, &all, before).await, []);
}

async fn no_two_operations_change_one_entity(member: Member<'_>, name: &str) {
    let root = format!("twice-{name}");
    let key = format!("{root}/a");
    let lease = 0x7800 + member.index as i64 + 8 * member.via as i64;
    member.commit(commit(vec![put_with(&key, "1", lease), grant(lease), register(&root, "1", &root)])).await.unwrap();
    let before = now(member).await;
    for (one, other) in [
        (put(&key, "2"), put(&key, "3")),
        (put(&key, "2"), delete(&key)),
        (delete_prefix(&format!("{root}/")), put(&format!("{root}/b"), "1")),
        // By what it brings with it: the lease has the key.
        (put_with(&key, "2", lease), revoke(lease)),
        (register(&root, "1", &root), deregister(&root, "1")),
        (artist(&root), delete_artist(&root)),
        (consul("set", &root, "1"), consul("delete-tree", &root, "")),
        (grant(lease + 0x100), grant(lease + 0x100)),
    ] {
        let refused = member.commit(commit(vec![one.clone(), other.clone()])).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{one:?} {other:?}: {refused:?}");
        let text = "operations[0] and operations[1] change the same entity";
        assert!(refused.message().contains(text), "{one:?} {other:?}: {refused:?}");
    }
    assert_eq!(history(member, &targets(&root), before).await, []);
    member.commit(commit(vec![revoke(lease)])).await.unwrap();
}

async fn a_key_makes_repeating_harmless(member: Member<'_>, name: &str) {
    let root = format!("once-{name}");
    let target = format!("/kv/{root}?recursive=true");
    let before = now(member).await;
    let keyed = |operations| pb::CommitRequest { idempotency_key: root.clone().into(), ..commit(operations) };
    // One that was refused does not count.
    member.commit(keyed(vec![put(&format!("{root}/a"), "0"), revoke(0x77ff)])).await.unwrap_err();
    let operations = || vec![put(&format!("{root}/a"), "1"), register(&root, "1", &root), artist(&root)];
    let first = member.commit(keyed(operations())).await.unwrap();
    assert!(!first.done_before);
    member.put(&format!("{root}/a"), "2").await;
    for index in member.cluster.running() {
        let again = Member { index, ..member }.commit(keyed(operations())).await.unwrap();
        assert!(again.done_before);
        assert_eq!((again.index, again.revision, again.results.len()), (first.index, first.revision, 3));
        let other = Member { index, ..member }.commit(keyed(vec![put(&format!("{root}/a"), "3")])).await.unwrap_err();
        assert_eq!(other.code(), Code::AlreadyExists, "{other:?}");
    }
    let found = history(member, &[target], before).await;
    let path = format!("/kv/{root}/a");
    assert_eq!(
        found.iter().flat_map(changes).collect::<Vec<_>>(),
        [format!("{path} - -> 1"), format!("{path} 1 -> 2")]
    );
}

async fn what_is_wrong_is_said(member: Member<'_>) {
    let one = || vec![put("wrong/a", "1")];
    let before = now(member).await;
    let with = |condition| pb::CommitRequest { conditions: vec![condition], ..commit(one()) };
    for (request, code, text) in [
        (commit(Vec::new()), Code::InvalidArgument, "operations is empty"),
        (commit(vec![pb::Operation::default()]), Code::InvalidArgument, "operations[0]: the operation is missing"),
        (commit((0..200).map(|at| put(&format!("wrong/{at}"), "")).collect()), Code::InvalidArgument, "max-txn-ops"),
        (commit(vec![put("wrong/a", &"x".repeat(1_600_000))]), Code::InvalidArgument, "too large"),
        // A message that the transport itself refuses.
        (commit(vec![put("wrong/a", &"x".repeat(3_000_000))]), Code::InvalidArgument, "make several commits"),
        (
            pb::CommitRequest { conditions: vec![exists("/kv/wrong/a", false); 200], ..commit(one()) },
            Code::InvalidArgument,
            "conditions has 200 items, and 128 are allowed (max-txn-ops)",
        ),
        (commit(vec![put("", "1")]), Code::InvalidArgument, "operations[0]: etcdserver: key is not provided"),
        (commit(vec![consul("get", "wrong/a", "")]), Code::InvalidArgument, "no verb \"get\""),
        (commit(vec![session("x", "n")]), Code::InvalidArgument, "must be a UUID"),
        (
            commit(vec![pb::Operation {
                operation: Some(pb::operation::Operation::Register(pb::Register::default())),
            }]),
            Code::InvalidArgument,
            "node",
        ),
        (
            pb::CommitRequest { idempotency_key: vec![1; 129].into(), ..commit(one()) },
            Code::InvalidArgument,
            "at most 128 bytes",
        ),
        (with(pb::Condition::default()), Code::InvalidArgument, "conditions[0]: a condition has either"),
        (with(exists("/cluster", true)), Code::InvalidArgument, "names no entity"),
        (with(exists("/kv?recursive=true", true)), Code::InvalidArgument, "more than one entity"),
        (with(exists("/nothing/a", true)), Code::InvalidArgument, "no space"),
        (with(unchanged("/leases/0000000000000001", 1)), Code::InvalidArgument, "lease"),
    ] {
        let refused = member.commit(request).await.unwrap_err();
        assert_eq!(refused.code(), code, "{text}: {refused:?}");
        assert!(refused.message().contains(text), "{text}: {refused:?}");
    }
    assert_eq!(history(member, &["/kv/wrong?recursive=true".to_owned()], before).await, []);
}
