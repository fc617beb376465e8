//! Tests of the operations that undo changes.

use super::*;
use headwater_proto::pb::pbcommon;

fn entity(path: &str, name: &str, message: &impl Message) -> Option<pb::Entity> {
    let type_url = format!("type.googleapis.com/{name}");
    let data = Some(prost_types::Any { type_url, value: message.encode_to_vec() });
    Some(pb::Entity { path: path.to_owned(), data, index: 7 })
}

fn change(path: &str, before: Option<pb::Entity>, after: Option<pb::Entity>) -> pb::EntityChange {
    pb::EntityChange { path: path.to_owned(), before, after, ..Default::default() }
}

fn undone(change: &pb::EntityChange) -> Result<Op, &'static str> {
    undo(change, &mut NodeChecks::new())
}

fn key(value: &str, lease: i64) -> Option<pb::Entity> {
    let kv = mvccpb::KeyValue { key: "a".into(), value: value.to_owned().into(), lease, ..Default::default() };
    entity("/kv/a", "mvccpb.KeyValue", &kv)
}

#[test]
fn keys_are_written_back_or_removed() {
    let of = |before, after| undone(&change("/kv/a", before, after)).unwrap();
    let wanted = |value: &str, ignore_lease| {
        let (key, value) = ("a".into(), value.to_owned().into());
        Op::Put(etcd::PutRequest { key, value, ignore_lease, ..Default::default() })
    };
    assert_eq!(of(key("1", 0), key("2", 0)), wanted("1", false));
    assert_eq!(of(key("1", 7), key("2", 7)), wanted("1", true));
    assert_eq!(of(key("1", 7), key("2", 8)), wanted("1", false));
    assert_eq!(of(key("1", 7), None), wanted("1", false));
    let removed = etcd::DeleteRangeRequest { key: "a".into(), ..Default::default() };
    assert_eq!(of(None, key("2", 0)), Op::DeleteRange(removed));
}

#[test]
fn a_key_of_consul_keeps_its_lock() {
    let key = |key: &str, value: &str, lease: i64| {
        let (key, value) = (key.to_owned().into(), value.to_owned().into());
        entity("/kv/x", "mvccpb.KeyValue", &mvccpb::KeyValue { key, value, lease, ..Default::default() })
    };
    let of = |before, after| undone(&change("/kv/x", before, after)).unwrap();
    let set = pb::ConsulKv { verb: "set".to_owned(), path: "a".into(), value: "1".into(), ..Default::default() };
    assert_eq!(of(key("consul/kv/a", "1", 0), key("consul/kv/a", "2", 0)), Op::ConsulKv(set));
    let large = "1".repeat(CONSUL_VALUE_BYTES_MAX + 1);
    // It is gone and has no lock; Consul has no such key; it has a lease; it is too large.
    for (before, after) in [
        (key("consul/kv/a", "1", 0), None),
        (key("consul/kv/", "1", 0), key("consul/kv/", "2", 0)),
        (key("consul/kv/a", "1", 7), key("consul/kv/a", "2", 7)),
        (key("consul/kv/a", "1", 0), key("consul/kv/a", "2", 7)),
        (key("consul/kv/a", &large, 0), key("consul/kv/a", "2", 0)),
    ] {
        assert!(matches!(of(before, after), Op::Put(_)));
    }
}

#[test]
fn resources_keep_the_identity_that_they_have() {
    let resource = |uid: &str, version: &str| pbresource::Resource {
        id: Some(pbresource::Id { uid: uid.to_owned(), name: "r".to_owned(), ..Default::default() }),
        version: version.to_owned(),
        generation: "g".to_owned(),
        metadata: [("k".to_owned(), version.to_owned())].into(),
        ..Default::default()
    };
    let stored = |uid: &str, version: &str| entity("/resources/r", "Resource", &resource(uid, version));
    let of = |before, after| undone(&change("/resources/r", before, after)).unwrap();
    let Op::WriteResource(write) = of(stored("1", "5"), stored("2", "9")) else { panic!("a write") };
    let written = write.resource.unwrap();
    assert_eq!((written.id.as_ref().unwrap().uid.as_str(), written.version.as_str()), ("2", "9"));
    assert_eq!((written.metadata["k"].as_str(), written.generation.as_str()), ("5", ""));
    let Op::WriteResource(write) = of(stored("1", "5"), None) else { panic!("a write") };
    let written = write.resource.unwrap();
    assert_eq!((written.id.unwrap().uid.as_str(), written.version.as_str()), ("", ""));
    let Op::DeleteResource(delete) = of(None, stored("2", "9")) else { panic!("a deletion") };
    assert_eq!((delete.id.unwrap().uid.as_str(), delete.version.as_str()), ("2", "9"));
}

#[test]
fn an_instance_that_moved_is_registered_once() {
    let instance = |service: &str| {
        let checks = [("c", "i"), ("node", "")].map(|(id, service_id)| pbservice::HealthCheck {
            check_id: id.to_owned(),
            service_id: service_id.to_owned(),
            ..Default::default()
        });
        let found = pbservice::CheckServiceNode {
            node: Some(pbservice::Node { node: "N".to_owned(), ..Default::default() }),
            service: Some(pbservice::NodeService {
                id: "i".to_owned(),
                service: service.to_owned(),
                ..Default::default()
            }),
            checks: checks.into(),
        };
        entity("/services/x", "CheckServiceNode", &found)
    };
    let back = undone(&change("/services/old/n/i", instance("old"), None)).unwrap();
    let gone = undone(&change("/services/new/n/i", None, instance("new"))).unwrap();
    let Op::Register(register) = &back else { panic!("{back:?}") };
    assert_eq!((register.checks.len(), register.skip_node_update), (1, true));
    let gone = (change("/services/new/n/i", instance("new"), None), gone);
    let back = (change("/services/old/n/i", None, instance("old")), back);
    let node = nodes_that_return(&["/nodes/n".to_owned()], &[gone.clone(), back.clone()]);
    assert!(matches!(&node[..], [node] if node.path == "/nodes/n" && node.kind() == Kind::Created), "{node:?}");
    assert!(nodes_that_return(&["/nodes/m".to_owned()], std::slice::from_ref(&back)).is_empty());
    assert_eq!(in_one(&[gone.clone(), back]).len(), 1);
    assert_eq!(in_one(&[gone]).len(), 1);
}

#[test]
fn a_node_that_gets_its_name_back_takes_its_instances_along() {
    let instance = |name: &str, id: &str| {
        let node = pbservice::Node { id: "u".to_owned(), node: name.to_owned(), ..Default::default() };
        let service = pbservice::NodeService { id: id.to_owned(), service: "s".to_owned(), ..Default::default() };
        let found = pbservice::CheckServiceNode { node: Some(node), service: Some(service), ..Default::default() };
        entity("/services/x", "CheckServiceNode", &found)
    };
    let undo_of = |path: &str, before: Option<pb::Entity>, after: Option<pb::Entity>| {
        let undone = undone(&change(path, before.clone(), after.clone())).unwrap();
        (change(path, after, before), undone)
    };
    let all = [
        undo_of("/services/s/n1/i", instance("n1", "i"), None),
        undo_of("/services/s/n2/i", None, instance("n2", "i")),
        // It came after the node was renamed.
        undo_of("/services/s/n2/j", None, instance("n2", "j")),
    ];
    let operations = in_one(&all);
    assert!(matches!(&operations[..], [pb::Operation { operation: Some(Op::Register(_)) }]), "{operations:?}");
    assert_eq!(in_one(&all[1..]).len(), 2);
}

#[test]
fn versions_alone_are_no_difference() {
    let differs = |before, after| differs(&change("/kv/a", before, after));
    let newer = |value: &str, mod_revision| {
        let kv = mvccpb::KeyValue { value: value.to_owned().into(), mod_revision, ..Default::default() };
        entity("/kv/a", "mvccpb.KeyValue", &kv)
    };
    assert!(!differs(newer("1", 5), newer("1", 9)));
    assert!(differs(newer("1", 5), newer("2", 9)));
    assert!(differs(None, newer("1", 9)) && differs(newer("1", 9), None));
    let resource = |version: &str, owner: &str| {
        let owner = Some(pbresource::Id { name: owner.to_owned(), ..Default::default() });
        let version = version.to_owned();
        let resource = pbresource::Resource { version, owner, ..Default::default() };
        entity("/resources/r", "hashicorp.consul.resource.Resource", &resource)
    };
    assert!(!differs(resource("5", "o"), resource("9", "o")));
    assert!(differs(resource("5", "o"), resource("9", "p")));
    let instance = |index: u64, port| {
        let raft_index = Some(pbcommon::RaftIndex { create_index: 1, modify_index: index });
        let service = Some(pbservice::NodeService { port, raft_index, ..Default::default() });
        let found = pbservice::CheckServiceNode { service, ..Default::default() };
        entity("/services/w", "hashicorp.consul.internal.service.CheckServiceNode", &found)
    };
    assert!(!differs(instance(5, 80), instance(9, 80)));
    assert!(differs(instance(5, 80), instance(9, 81)));
}

#[test]
fn what_stays_as_it_is_has_a_reason() {
    let tombstone = "/resources/internal/v1/Tombstone/default/default/t";
    let paths = ["/leases/0000000000000001", "/cluster/members/1", "/nodes/n", tombstone];
    for path in paths.into_iter().chain(DEFAULT_UNITS) {
        assert!(undone(&change(path, None, key("1", 0))).is_err(), "{path}");
    }
}

#[test]
fn the_hint_for_a_node_is_a_command() {
    use clap::Parser;
    let reason = undone(&change("/nodes/n", None, key("1", 0))).unwrap_err();
    let (_, hint) = reason.split_once("use ").unwrap();
    assert!(crate::Cli::try_parse_from(hint.split(' ')).is_ok(), "{hint}");
}

#[test]
fn the_conditions_are_about_everything_below() {
    let outside = ["/nodes/n".to_owned()];
    let targets = |target| {
        let conditions = conditions(target, &["/kv/a", "/kv/b"], &outside, (7, "e"));
        conditions.into_iter().map(|condition| condition.target).collect::<Vec<_>>()
    };
    assert_eq!(targets("/kv?recursive=true"), ["/kv?recursive=true", "/nodes/n"]);
    assert_eq!(targets("/?recursive=true"), ["/kv/a", "/kv/b", "/nodes/n"]);
    assert_eq!(targets("/kv/a?children=false"), ["/kv/a", "/kv/b", "/nodes/n"]);
}

#[test]
fn a_commit_that_no_member_takes_is_not_made() {
    let of = |count| {
        let request = pb::CommitRequest { operations: vec![Default::default(); count], ..Default::default() };
        too_many(&request, &["/kv/a/1", "/kv/a/2", "/kv/b"]).map_err(|error| error.to_string())
    };
    assert_eq!(of(TXN_OPS_MAX), Ok(None));
    let warning = of(TXN_OPS_MAX + 1).unwrap().unwrap();
    assert!(warning.starts_with("129 operations in one commit") && warning.contains("max-txn-ops"), "{warning}");
    assert!(warning.ends_with("a smaller target is /kv"), "{warning}");
    let refused = of(TXN_OPS_SET_MAX + 1).unwrap_err();
    assert!(refused.ends_with("nothing was undone"), "{refused}");
}

#[test]
fn a_smaller_target_fits_into_one_commit() {
    let paths = ["/kv/app/a/1", "/kv/app/a/2", "/kv/app/a2/1", "/kv/app/b"];
    let small = |max| small_target(&paths, max);
    assert_eq!([4, 3, 2, 1].map(small), [Some("/kv"), Some("/kv/app/a"), Some("/kv/app/a"), None]);
    assert_eq!(small_target(&["/kv/a", "/kv/b", "/kv/b/1", "/kv/b/2"], 3), Some("/kv/b"));
}

#[test]
fn what_others_need_is_written_first_and_deleted_last() {
    let id = |kind: &str, uid: &str| pbresource::Id {
        uid: uid.to_owned(),
        name: "x".to_owned(),
        r#type: Some(pbresource::Type { kind: kind.to_owned(), ..Default::default() }),
        ..Default::default()
    };
    let stored = |kind: &str, path: &str, owner: Option<&str>| {
        let owner = owner.map(|kind| id(kind, "old"));
        let path = format!("/resources/{path}/x");
        let resource = pbresource::Resource { id: Some(id(kind, "new")), owner, ..Default::default() };
        (entity(&path, "Resource", &resource), path)
    };
    let all = || {
        [
            stored("Album", "demo/v2/Album", Some("Artist")),
            stored("Artist", "demo/v2/Artist", None),
            stored("Namespace", "tenancy/v2beta1/Namespace", None),
            stored("Partition", "tenancy/v2beta1/Partition", None),
            stored("Track", "demo/v2/Track", Some("Album")),
        ]
    };
    let order = |changes: Vec<pb::EntityChange>| {
        let mut changes = changes;
        put_in_order(&mut changes);
        let kind = |change: &pb::EntityChange| change.path.rsplit('/').nth(1).unwrap().to_owned();
        changes.iter().map(kind).collect::<Vec<_>>().join(" ")
    };
    let went = all().into_iter().map(|(state, path)| change(&path, state, None)).collect();
    assert_eq!(order(went), "Partition Namespace Artist Album Track");
    let came = all().into_iter().map(|(state, path)| change(&path, None, state)).collect();
    assert_eq!(order(came), "Track Album Artist Namespace Partition");
    // The owner that is made again has another uid.
    let (state, path) = stored("Album", "demo/v2/Album", Some("Artist"));
    let Ok(Op::WriteResource(write)) = undone(&change(&path, state, None)) else { panic!("a write") };
    assert_eq!(write.resource.unwrap().owner.unwrap().uid, "");
}
