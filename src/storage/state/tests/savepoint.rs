//! A rollback to a savepoint undoes exactly the writes since: a transaction with random writes that
//! are undone equals one that never made them.

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;

use super::bed::*;
use crate::state::{
    AppliedState, CatalogReader, Committed, ConsulReader, NEWEST, Registration, StateReader, Table, WriteTxn,
    WrittenTwice,
};
use headwater_types::auth::TokenChange;
use headwater_types::catalog::{
    CatalogBody, CatalogEvent, CatalogNode, CatalogOp, CatalogTable, CatalogTopic, QueryIndexSubject,
};
use headwater_types::consul::{Deadline, KvSide, Session};
use headwater_types::resource::{Resource, ResourceId, Scope, Tenancy, Type, TypeName, resource_key};
use headwater_types::{
    Alarm, AlarmKind, ChangeKind, ClusterEvent, Invitation, InvitationId, KeyValue, Lease, LeaseId, LogIndex,
    MemberProgram, NodeId, Quota, Supported, Term, TokenHash,
};

/// One write of any kind; the numbers choose among few names.
#[derive(Clone, Debug)]
enum Act {
    Put(u8, u8, u8),
    Delete(u8),
    Lease(u8, bool),
    Deadline(u8, bool),
    Side(u8, u8),
    Session(u8, bool),
    Node(u8, u8),
    DropNode(u8),
    Events(u8),
    QueryIndex(u8, bool),
    Resource(u8, u8, bool),
    DropResource(u8),
    Register(u8, bool),
    Cluster(u8),
    LeaseClock(u8),
    Alarms(u8),
    Quota(u8),
    Token,
    Invitation(u8, bool),
    Program(u8, bool),
    Count,
}

fn act() -> impl Strategy<Value = Act> {
    let few = || 0..4u8;
    prop_oneof![
        4 => (few(), few(), few()).prop_map(|(key, value, lease)| Act::Put(key, value, lease)),
        2 => few().prop_map(Act::Delete),
        2 => (few(), any::<bool>()).prop_map(|(id, there)| Act::Lease(id, there)),
        2 => (few(), any::<bool>()).prop_map(|(about, begins)| Act::Deadline(about, begins)),
        2 => (few(), few()).prop_map(|(path, session)| Act::Side(path, session)),
        2 => (few(), any::<bool>()).prop_map(|(id, comes)| Act::Session(id, comes)),
        3 => (few(), few()).prop_map(|(name, address)| Act::Node(name, address)),
        2 => few().prop_map(Act::DropNode),
        1 => few().prop_map(Act::Events),
        1 => (few(), any::<bool>()).prop_map(|(name, there)| Act::QueryIndex(name, there)),
        3 => (few(), few(), any::<bool>()).prop_map(|(name, data, moves)| Act::Resource(name, data, moves)),
        2 => few().prop_map(Act::DropResource),
        1 => (few(), any::<bool>()).prop_map(|(name, there)| Act::Register(name, there)),
        1 => few().prop_map(Act::Cluster),
        1 => few().prop_map(Act::LeaseClock),
        1 => few().prop_map(Act::Alarms),
        1 => few().prop_map(Act::Quota),
        1 => Just(Act::Token),
        1 => (few(), any::<bool>()).prop_map(|(id, there)| Act::Invitation(id, there)),
        1 => (few(), any::<bool>()).prop_map(|(id, there)| Act::Program(id, there)),
        1 => Just(Act::Count),
    ]
}

fn key(table: &str, name: u8) -> Bytes {
    format!("{table}{name}").into()
}

/// Table and name of the record that a write changes; `None` for a write that may be repeated. A
/// command of the test leaves out the second write of such a record.
fn record(act: &Act) -> Option<(&'static str, u8)> {
    Some(match *act {
        Act::Put(name, ..) | Act::Delete(name) => ("key", name),
        Act::Side(name, _) => ("side", name),
        Act::Session(name, _) => ("session", name),
        Act::Node(name, _) | Act::DropNode(name) => ("node", name),
        Act::Resource(name, ..) | Act::DropResource(name) => ("resource", name),
        _ => return None,
    })
}

fn run(txn: &mut WriteTxn<'_>, index: LogIndex, act: &Act) {
    let revision = txn.revision_before().next();
    match *act {
        Act::Put(name, value, lease) => {
            let (key, lease) = (key("consul/kv/", name), LeaseId(lease.into()));
            let previous = txn.lookup(Table::Kv, &key, NEWEST).unwrap();
            let (create_revision, version) =
                previous.map_or((revision, 1), |previous| (previous.create_revision, previous.version + 1));
            let value = vec![value; value.into()].into();
            let kv = KeyValue { key, value, create_revision, mod_revision: revision, version, lease };
            txn.put(Table::Kv, kv, previous.as_ref());
            txn.set_revision(revision);
        }
        Act::Delete(name) => {
            let key = key("consul/kv/", name);
            if let Some(previous) = txn.lookup(Table::Kv, &key, NEWEST).unwrap() {
                txn.delete(Table::Kv, key, ChangeKind::Delete, revision, &previous);
                txn.set_revision(revision);
            }
        }
        Act::Lease(id, there) => {
            let lease = Lease { granted: index, ttl_seconds: 5, due_ms: None };
            txn.set_lease(LeaseId(id.into()), there.then_some(lease));
        }
        Act::Deadline(about, begins) => {
            let about = Deadline::LockDelay(key("p", about));
            if begins { txn.begin_deadline(&about, 5) } else { txn.end_deadline(&about) }.unwrap();
        }
        Act::Side(path, session) => {
            let side = KvSide { session: format!("s{session}"), ..KvSide::default() };
            txn.set_side(&key("p", path), (session > 0).then_some(&side)).unwrap();
        }
        Act::Session(id, comes) => {
            let session = Session { id: format!("s{id}"), node: "n".to_owned(), ..Session::default() };
            let known = txn.session(&session.id).unwrap();
            match (known, comes) {
                (None, true) => txn.put_session(&session),
                (Some(known), false) => txn.delete_session(&known).unwrap(),
                _ => {}
            }
            txn.mark_sessions_changed();
        }
        Act::Node(name, address) => {
            let node =
                CatalogNode { name: format!("n{name}"), address: format!("a{address}"), ..CatalogNode::default() };
            let previous = txn.row::<CatalogNode>(node.name.as_bytes()).unwrap();
            txn.put_row(node, previous.as_ref());
        }
        Act::DropNode(name) => {
            if let Some(stored) = txn.row::<CatalogNode>(format!("n{name}").as_bytes()).unwrap() {
                txn.delete_row(&stored);
            }
        }
        Act::Events(name) => {
            let (topic, op) = (CatalogTopic::ServiceList, CatalogOp::Register);
            let name: std::sync::Arc<str> = format!("e{name}").into();
            let body = CatalogBody::Name(std::sync::Arc::clone(&name));
            txn.add_catalog_events(vec![CatalogEvent { topic, op, key: name, body }]);
        }
        Act::QueryIndex(name, there) => {
            txn.set_query_index(&QueryIndexSubject::Service(format!("q{name}")), there.then_some(index));
            txn.set_query_index(&QueryIndexSubject::Table(CatalogTable::Nodes), Some(index));
        }
        Act::Resource(name, data, moves) => {
            let type_ = Type::new("demo", if moves { "v2" } else { "v1" }, "Thing");
            let id = ResourceId { uid: "U".into(), name: format!("r{name}"), type_, tenancy: Tenancy::new("p", "n") };
            let previous = txn.resource(&resource_key(&id)).unwrap();
            let owner = ResourceId { name: "owner".into(), ..id.clone() };
            let owner = previous.as_ref().map_or((data > 1).then_some(owner), |(_, stored)| stored.owner.clone());
            let resource = Resource { id, owner, generation: format!("g{data}"), ..Resource::default() };
            txn.put_resource(resource, previous.as_ref().map(|(version, stored)| (version, stored))).unwrap();
        }
        Act::DropResource(name) => {
            let (type_, tenancy) = (Type::new("demo", "v1", "Thing"), Tenancy::new("p", "n"));
            let id = ResourceId { uid: String::new(), name: format!("r{name}"), type_, tenancy };
            if let Some((version, stored)) = txn.resource(&resource_key(&id)).unwrap() {
                txn.delete_resource(&version, stored).unwrap();
            }
        }
        Act::Register(name, there) => {
            let type_ = Type::new("demo", "v1", &format!("T{name}"));
            let registered = Registration { type_, scope: Scope::Cluster, version: index };
            txn.set_registration(TypeName(format!("t{name}")), index, there.then_some(registered)).unwrap();
        }
        Act::Cluster(id) => txn.add_cluster_event(ClusterEvent::LeaseEnded(LeaseId(id.into()))),
        Act::LeaseClock(ms) => txn.set_lease_clock(ms.into()),
        Act::Alarms(member) => {
            txn.set_alarms(vec![Alarm { member: NodeId(member.into()), kind: AlarmKind::NoSpace }]);
        }
        Act::Quota(member) => txn.set_quota(Quota { bytes_max: None, member: NodeId(member.into()) }),
        Act::Token => txn.add_token_change(TokenChange::AllEnded),
        Act::Invitation(id, there) => {
            let invitation = Invitation {
                name: String::new(),
                hash: TokenHash([7; 32]),
                expires_unix_ms: 300,
                uses_max: None,
                learner: false,
                used: 0,
                uses: vec![],
            };
            txn.set_invitation(InvitationId(id.into()), there.then_some(invitation));
        }
        Act::Program(member, there) => {
            let program = MemberProgram { program: "p".to_owned(), supported: Supported::RELEASE };
            txn.set_program(NodeId(member.into()), there.then_some(program));
        }
        Act::Count => txn.count(|done| done.txns += 1),
    }
}

/// A command: writes before the savepoint, writes that are undone or kept, writes after it.
#[derive(Clone, Debug)]
struct Command {
    before: Vec<Act>,
    since: Vec<Act>,
    is_undone: bool,
    after: Vec<Act>,
}

fn command() -> impl Strategy<Value = Command> {
    let acts = || prop::collection::vec(act(), 0..8);
    (acts(), acts(), any::<bool>(), acts()).prop_map(|(before, since, is_undone, after)| Command {
        before,
        since,
        is_undone,
        after,
    })
}

/// Applies commands in one transaction. Without savepoints the undone writes are never made.
fn apply(bed: &TestBed, first: u64, commands: &[Command], with_savepoints: bool) -> (Committed, usize) {
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    for (index, command) in (first..).map(LogIndex).zip(commands) {
        txn.begin_command(index, 1000);
        let mut written = BTreeSet::new();
        let all = |txn: &mut WriteTxn<'_>, acts: &[Act], written: &mut BTreeSet<_>| {
            acts.iter()
                .filter(|act| record(act).is_none_or(|record| written.insert(record)))
                .for_each(|act| run(txn, index, act));
        };
        all(&mut txn, &command.before, &mut written);
        let Command { since, is_undone, .. } = command;
        if with_savepoints {
            txn.set_savepoint();
        }
        match is_undone {
            true if with_savepoints => {
                all(&mut txn, since, &mut written.clone());
                txn.roll_back();
            }
            true => {}
            false => all(&mut txn, since, &mut written),
        }
        if with_savepoints && !is_undone {
            txn.release_savepoint();
        }
        all(&mut txn, &command.after, &mut written);
        txn.end_command();
        txn.set_applied(&AppliedState { term: Term(1), index, membership: None });
    }
    let held_bytes = txn.held_bytes();
    (txn.commit().unwrap(), held_bytes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn what_is_undone_was_never_done(
        commits in prop::collection::vec(prop::collection::vec(command(), 1..4), 1..4),
    ) {
        let (bed, plain) = (TestBed::new(), TestBed::new());
        let mut first = 1;
        for commands in commits {
            prop_assert_eq!(apply(&bed, first, &commands, true), apply(&plain, first, &commands, false));
            first += commands.len() as u64;
        }
        let hash = |bed: &TestBed| bed.store.current().view().unwrap().state_hash().unwrap();
        prop_assert_eq!(hash(&bed), hash(&plain));
        let wanted = hash(&plain);
        prop_assert_eq!(hash(&bed.reopened()), wanted);
    }
}

#[test]
fn a_record_that_is_written_twice_is_found() {
    let bed = TestBed::new();
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    let put = |txn: &mut WriteTxn<'_>, name| run(txn, LogIndex(1), &Act::Put(name, 1, 0));
    txn.begin_command(LogIndex(1), 0);
    put(&mut txn, 1);
    txn.set_savepoint();
    put(&mut txn, 2);
    assert_eq!((txn.written_twice(), txn.written()), (None, 2));
    put(&mut txn, 3);
    put(&mut txn, 2);
    put(&mut txn, 3);
    assert_eq!(txn.written_twice(), Some(WrittenTwice { first: 2, second: 4 }), "the first one");
    txn.roll_back();
    assert_eq!((txn.written_twice(), txn.written()), (None, 1));
    txn.set_savepoint();
    put(&mut txn, 1);
    assert_eq!(txn.written_twice(), Some(WrittenTwice { first: 1, second: 2 }), "the first write is older");
    txn.roll_back();
    txn.end_command();
    txn.begin_command(LogIndex(2), 0);
    txn.set_savepoint();
    put(&mut txn, 1);
    assert_eq!(txn.written_twice(), None, "another command wrote it");
    txn.release_savepoint();
    txn.end_command();
    txn.set_applied(&AppliedState { term: Term(1), index: LogIndex(2), membership: None });
    txn.commit().unwrap();
    assert_eq!(bed.pairs(NEWEST), ["consul/kv/1=\\x01"]);
}

#[test]
#[should_panic(expected = "a savepoint ends before its command")]
fn a_savepoint_does_not_outlive_its_command() {
    let bed = TestBed::new();
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    txn.begin_command(LogIndex(1), 0);
    txn.set_savepoint();
    txn.end_command();
}
