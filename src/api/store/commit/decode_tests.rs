//! Shapes of commits.

use super::*;
use headwater_proto::pb::{etcdserverpb, pbresource, pbservice};
use headwater_types::Compare;
use headwater_types::StoreEpoch;

fn asked(operation: pb::operation::Operation) -> pb::Operation {
    pb::Operation { operation: Some(operation) }
}

fn put(key: &'static str) -> pb::Operation {
    asked(pb::operation::Operation::Put(etcdserverpb::PutRequest { key: key.into(), ..Default::default() }))
}

fn on(target: &str, test: pb::condition::Condition) -> pb::Condition {
    pb::Condition { target: target.to_owned(), condition: Some(test), ..Default::default() }
}

#[test]
fn the_lists_are_bounded() {
    let of = |conditions: usize, operations: usize, key: usize| pb::CommitRequest {
        conditions: vec![on("/kv/a", pb::condition::Condition::Exists(true)); conditions],
        operations: vec![put("a"); operations],
        idempotency_key: vec![7; key].into(),
    };
    let decoded =
        |message| request(message, "n1", 3).map(|it| (it.conditions.len(), it.operations.len(), it.key.len()));
    assert_eq!(decoded(of(3, 3, COMMIT_KEY_BYTES_MAX)), Ok((3, 3, COMMIT_KEY_BYTES_MAX)));
    assert_eq!(decoded(of(0, 0, 0)), Err(Invalid::NoOperations));
    assert_eq!(decoded(of(4, 1, 0)), Err(Invalid::TooMany { list: "conditions", count: 4, max: 3 }));
    assert_eq!(decoded(of(0, 4, 0)), Err(Invalid::TooMany { list: "operations", count: 4, max: 3 }));
    assert_eq!(decoded(of(0, 1, COMMIT_KEY_BYTES_MAX + 1)), Err(Invalid::Key));
}

#[test]
fn targets_become_entities() {
    use pb::condition::Condition::{Exists, Index, UnchangedSince};
    let instances =
        |service: &str, node: &str| CommitEntity::Instances { service: service.to_owned(), node: node.to_owned() };
    let artist = |name: &str| ResourceId {
        uid: String::new(),
        name: name.to_owned(),
        type_: Type::new("demo", "v2", "Artist"),
        tenancy: Tenancy::new("default", "default"),
    };
    let kind = Selector {
        type_: Type::new("demo", "v2", "Artist"),
        tenancy: Tenancy::new(WILDCARD, WILDCARD),
        name_prefix: String::new(),
    };
    for (target, test, wanted) in [
        ("/kv/app/a", Index(7), CommitEntity::Key("app/a".into())),
        ("/kv/~/app", Exists(false), CommitEntity::Key("/app".into())),
        ("/kv/app?recursive=true", UnchangedSince(7), CommitEntity::KeysBelow("app".into())),
        ("/kv?recursive=true", UnchangedSince(7), CommitEntity::KeysBelow(Bytes::new())),
        ("/resources/demo/v2/Artist/default/default/korn", Index(1), CommitEntity::Resource(artist("korn"))),
        ("/resources/demo/v2/Artist?recursive=true", UnchangedSince(1), CommitEntity::Resources(kind)),
        (
            "/services/Web/N1/web-1",
            Exists(true),
            CommitEntity::Instance { service: "web".to_owned(), node: "n1".to_owned(), id: "web-1".to_owned() },
        ),
        ("/services/web?recursive=true", UnchangedSince(1), instances("web", "")),
        ("/services/web/n1?recursive=true", UnchangedSince(1), instances("web", "n1")),
        ("/services?recursive=true", UnchangedSince(1), instances("", "")),
        ("/nodes/N1", Index(1), CommitEntity::Node("n1".to_owned())),
        ("/leases/00000000000000ff", Exists(true), CommitEntity::Lease(LeaseId(255))),
    ] {
        match condition(on(target, test)) {
            Ok(CommitCondition::Entity(entity, ..)) => assert_eq!(entity, wanted, "{target}"),
            other => panic!("{target}: {other:?}"),
        }
    }
    for (target, test, wanted) in [
        ("/kv/app?recursive=true", Exists(true), InvalidCondition::Several("/kv/app?recursive=true".to_owned())),
        ("/kv", Index(0), InvalidCondition::NoEntity("/kv".to_owned())),
        ("/", Index(0), InvalidCondition::NoEntity("/".to_owned())),
        ("/services/web", UnchangedSince(1), InvalidCondition::NoEntity("/services/web".to_owned())),
        ("/cluster/members", Exists(true), InvalidCondition::NoEntity("/cluster/members".to_owned())),
        ("/leases/00000000000000ff", UnchangedSince(1), InvalidCondition::Lease),
        ("/leases/x", Exists(true), InvalidCondition::NoEntity("/leases/x".to_owned())),
        ("app", Exists(true), InvalidCondition::Target(target::Invalid::NotAPath)),
    ] {
        assert_eq!(condition(on(target, test)), Err(wanted), "{target}");
    }
}

#[test]
fn a_condition_may_name_its_lineage() {
    let of = |epoch: &str| {
        let exists = pb::condition::Condition::Exists(true);
        condition(pb::Condition { epoch: epoch.to_owned(), ..on("/kv/a", exists) })
    };
    let wanted = |epoch| Ok(CommitCondition::Entity(CommitEntity::Key("a".into()), EntityTest::Exists(true), epoch));
    assert_eq!(of(""), wanted(None));
    assert_eq!(of("8f320ec2c156f3b4"), wanted(Some(StoreEpoch(0x8f32_0ec2_c156_f3b4))));
    assert_eq!(of("8f32"), Err(InvalidCondition::Epoch));
    let key = Some(etcdserverpb::Compare { key: "k".into(), ..Default::default() });
    let compared = pb::Condition { key, epoch: "8f320ec2c156f3b4".to_owned(), ..Default::default() };
    assert_eq!(condition(compared), Err(InvalidCondition::EpochOfKey));
}

#[test]
fn a_condition_is_one_of_two() {
    let compare = || etcdserverpb::Compare { key: "k".into(), ..Default::default() };
    let of = |target: &str, test, key| pb::Condition {
        target: target.to_owned(),
        condition: test,
        key,
        ..Default::default()
    };
    let exists = Some(pb::condition::Condition::Exists(true));
    let decoded = condition(of("", None, Some(compare())));
    assert!(matches!(decoded, Ok(CommitCondition::Compare(Compare { .. }))), "{decoded:?}");
    for wrong in [
        of("", None, None),
        of("/kv/a", None, None),
        of("/kv/a", exists, Some(compare())),
        of("/kv/a", None, Some(compare())),
    ] {
        assert_eq!(condition(wrong.clone()), Err(InvalidCondition::Empty), "{wrong:?}");
    }
    let empty = etcdserverpb::Compare::default();
    let text = "etcdserver: key is not provided".to_owned();
    assert_eq!(condition(of("", None, Some(empty))), Err(InvalidCondition::Compare(text)));
}

#[test]
fn operations_are_refused_as_by_their_faces() {
    use pb::operation::Operation as Wire;
    let session = |it: pb::CreateSession| Wire::CreateSession(it);
    let kv = |verb: &str, path: &'static str, value: usize| {
        Wire::ConsulKv(pb::ConsulKv {
            verb: verb.to_owned(),
            path: path.into(),
            value: vec![0; value].into(),
            ..Default::default()
        })
    };
    let node = |name: &str| pbservice::Node { node: name.to_owned(), ..Default::default() };
    let reserved = etcdserverpb::LeaseGrantRequest { id: i64::MIN, ttl: 5 };
    for (operation, wanted) in [
        (Wire::Put(etcdserverpb::PutRequest::default()), "etcdserver: key is not provided"),
        (Wire::GrantLease(reserved), "lease"),
        (Wire::WriteResource(pbresource::WriteRequest::default()), "resource is required"),
        (Wire::DeleteResource(pbresource::DeleteRequest::default()), "id is required"),
        (Wire::WriteResourceStatus(pbresource::WriteStatusRequest::default()), "id is required"),
        (Wire::Register(pb::Register::default()), "register.node is required"),
        (
            Wire::Register(pb::Register {
                node: Some(node("n")),
                service: Some(pbservice::NodeService { kind: "odd".to_owned(), ..Default::default() }),
                ..Default::default()
            }),
            "Service.Kind \"odd\"",
        ),
        (kv("get", "a", 0), "there is no verb \"get\""),
        (kv("set", "", 0), "path must not be empty"),
        (kv("set", "a", CONSUL_VALUE_BYTES_MAX + 1), "value has at most"),
        (session(pb::CreateSession { id: "x".to_owned(), ..Default::default() }), "UUID"),
        (session(pb::CreateSession { ttl_ms: 1, ..Default::default() }), "ttl_ms"),
        (session(pb::CreateSession { name: "a\n".to_owned(), ..Default::default() }), "name of a session"),
    ] {
        let refused = request(
            pb::CommitRequest { operations: vec![put("a"), asked(operation.clone())], ..Default::default() },
            "n1",
            128,
        );
        let refused = refused.expect_err(&format!("{operation:?}")).to_string();
        assert!(refused.starts_with("operations[1]: ") && refused.contains(wanted), "{refused}");
    }
    let empty = pb::CommitRequest { operations: vec![pb::Operation::default()], ..Default::default() };
    assert_eq!(request(empty, "n1", 128), Err(Invalid::Operation { number: 0, error: InvalidOperation::Empty }));
}

#[test]
fn sessions_have_the_defaults_of_consul() {
    let decoded = session(pb::CreateSession::default(), "n1").unwrap();
    assert!(decoded.default_check && !decoded.node_required);
    assert_eq!((decoded.session.node.as_str(), decoded.session.lock_delay_ms), ("n1", LOCK_DELAY_MS_DEFAULT));
    let given = pb::CreateSession {
        node: "n2".to_owned(),
        node_checks: vec!["b".to_owned(), "a".to_owned(), "b".to_owned()],
        deletes_keys: true,
        lock_delay_ms: Some(0),
        ttl_ms: 15_000,
        ..Default::default()
    };
    let decoded = session(given, "n1").unwrap();
    assert!(!decoded.default_check && decoded.node_required);
    let Session { node_checks, behavior, lock_delay_ms, ttl, .. } = decoded.session;
    assert_eq!((node_checks, behavior), (vec!["a".to_owned(), "b".to_owned()], SessionBehavior::Delete));
    assert_eq!((lock_delay_ms, ttl.as_str()), (0, "15s"));
}
