//! Operations and conditions for tests.

use headwater::pb::etcdserverpb as etcd;
use headwater::pb::headwater_v1 as pb;
use headwater::pb::headwater_v1::condition::Condition as Test;
use headwater::pb::headwater_v1::operation::Operation as Op;
use headwater::pb::{pbresource, pbservice};

use crate::resources::client::{artist_data, artist_type, id, named};

pub const UNITS: (&str, &str) = ("default", "default");

fn operation(operation: Op) -> pb::Operation {
    pb::Operation { operation: Some(operation) }
}

pub fn put(key: &str, value: &str) -> pb::Operation {
    put_with(key, value, 0)
}

/// A put that attaches the key to the lease `lease`; 0 for no lease.
pub fn put_with(key: &str, value: &str, lease: i64) -> pb::Operation {
    let (key, value) = (key.to_owned().into(), value.to_owned().into());
    operation(Op::Put(etcd::PutRequest { key, value, lease, ..Default::default() }))
}

pub fn delete(key: &str) -> pb::Operation {
    operation(Op::DeleteRange(etcd::DeleteRangeRequest { key: key.to_owned().into(), ..Default::default() }))
}

/// A removal of all keys with a prefix. Panics if the prefix is empty.
pub fn delete_prefix(prefix: &str) -> pb::Operation {
    let mut end = prefix.as_bytes().to_vec();
    *end.last_mut().expect("not empty") += 1;
    let (key, range_end) = (prefix.to_owned().into(), end.into());
    operation(Op::DeleteRange(etcd::DeleteRangeRequest { key, range_end, ..Default::default() }))
}

pub fn grant(id: i64) -> pb::Operation {
    operation(Op::GrantLease(etcd::LeaseGrantRequest { id, ttl: 600 }))
}

pub fn revoke(id: i64) -> pb::Operation {
    operation(Op::RevokeLease(etcd::LeaseRevokeRequest { id }))
}

pub fn artist(name: &str) -> pb::Operation {
    artist_if(name, "")
}

/// A write of an artist on the condition that its stored version is `version`; an empty one is no
/// condition.
pub fn artist_if(name: &str, version: &str) -> pb::Operation {
    let resource = pbresource::Resource {
        data: Some(artist_data(name)),
        version: version.to_owned(),
        ..named(artist_type(), UNITS, name)
    };
    operation(Op::WriteResource(pbresource::WriteRequest { resource: Some(resource) }))
}

pub fn delete_artist(name: &str) -> pb::Operation {
    let id = Some(id(artist_type(), UNITS, name));
    operation(Op::DeleteResource(pbresource::DeleteRequest { id, version: String::new() }))
}

/// Registers an instance on a node.
pub fn register(node: &str, id: &str, service: &str) -> pb::Operation {
    let node = pbservice::Node { node: node.to_owned(), address: format!("{node}.example"), ..Default::default() };
    let service =
        pbservice::NodeService { id: id.to_owned(), service: service.to_owned(), port: 80, ..Default::default() };
    operation(Op::Register(pb::Register { node: Some(node), service: Some(service), ..Default::default() }))
}

pub fn deregister(node: &str, id: &str) -> pb::Operation {
    let what = Some(pb::deregister::What::ServiceId(id.to_owned()));
    operation(Op::Deregister(pb::Deregister { node: node.to_owned(), what }))
}

pub fn session(id: &str, node: &str) -> pb::Operation {
    let (id, node) = (id.to_owned(), node.to_owned());
    operation(Op::CreateSession(pb::CreateSession { id, node, no_default_check: true, ..Default::default() }))
}

pub fn destroy(id: &str) -> pb::Operation {
    operation(Op::DestroySession(pb::DestroySession { id: id.to_owned() }))
}

pub fn consul(verb: &str, path: &str, value: &str) -> pb::Operation {
    let (verb, path, value) = (verb.to_owned(), path.to_owned().into(), value.to_owned().into());
    operation(Op::ConsulKv(pb::ConsulKv { verb, path, value, ..Default::default() }))
}

pub fn lock(path: &str, session: &str) -> pb::Operation {
    let (path, session) = (path.to_owned().into(), session.to_owned());
    operation(Op::ConsulKv(pb::ConsulKv { verb: "lock".to_owned(), path, session, ..Default::default() }))
}

fn condition(target: &str, test: Test) -> pb::Condition {
    pb::Condition { target: target.to_owned(), condition: Some(test), ..Default::default() }
}

pub fn exists(target: &str, exists: bool) -> pb::Condition {
    condition(target, Test::Exists(exists))
}

pub fn index(target: &str, index: u64) -> pb::Condition {
    condition(target, Test::Index(index))
}

pub fn unchanged(target: &str, since: u64) -> pb::Condition {
    condition(target, Test::UnchangedSince(since))
}

/// The condition that a key has this version; 0 means that the key does not exist.
pub fn version(key: &str, version: i64) -> pb::Condition {
    let compare = etcd::Compare {
        key: key.to_owned().into(),
        target: etcd::compare::CompareTarget::Version.into(),
        target_union: Some(etcd::compare::TargetUnion::Version(version)),
        ..Default::default()
    };
    pb::Condition { key: Some(compare), ..Default::default() }
}

/// A commit of operations without conditions.
pub fn commit(operations: Vec<pb::Operation>) -> pb::CommitRequest {
    pb::CommitRequest { operations, ..Default::default() }
}
