//! Commits, by table.

use std::sync::Arc;

use super::bed::*;
use headwater_storage::state::{CatalogReader, ConsulReader, Table};
use headwater_types::catalog::{
    CatalogCommand, CatalogNode, CatalogRefusal, Check, CheckStatus, Deregistration, DeregistrationTarget,
    Registration, Service,
};
use headwater_types::commit::{
    CommitCondition, CommitDone, CommitEntity, CommitFault, CommitKey, CommitOp, CommitOpFault, CommitResult,
    ConditionFault, EntityTest,
};
use headwater_types::consul::{
    ConsulCommand, KvOp, KvVerb, Session, SessionBehavior, SessionCreate, SessionRefusal, TxnFaultReason,
};
use headwater_types::resource::{
    ProposerChoices, Resource, ResourceCommand, ResourceDelete, ResourceId, ResourceRefusal, ResourceWrite, Selector,
    Tenancy, Type,
};
use headwater_types::{
    Command, Commit, CommitOutcome, CompareOp, CompareTarget, KvEvent, LeaseChoice, LeaseId, LeaseRevoke, LogIndex,
    Outcome, Put, Refusal, Revision, StoreEpoch, Term, Version, VersionChange,
};

pub(super) fn version(to: Version) -> Command {
    Command::SetVersion(VersionChange::Raise { to, term: Term(1) })
}

/// A state of version 0.4; the next command has log index 2.
pub(super) fn bed() -> TestBed {
    TestBed::with([version(Version::V0_4)])
}

pub(super) fn commit_of(conditions: Vec<CommitCondition>, operations: Vec<Command>, key: Option<CommitKey>) -> Commit {
    let operations = operations.into_iter().map(|command| CommitOp::new(command).unwrap()).collect();
    Commit { conditions, operations, key }
}

pub(super) fn commit(operations: Vec<Command>) -> Command {
    Command::Commit(Box::new(commit_of(vec![], operations, None)))
}

fn guarded(entity: CommitEntity, test: EntityTest) -> Command {
    let condition = CommitCondition::Entity(entity, test, None);
    Command::Commit(Box::new(commit_of(vec![condition], vec![put("guarded", "x")], None)))
}

pub(super) fn revoke(lease: i64) -> Command {
    Command::LeaseRevoke(LeaseRevoke { id: LeaseId(lease) })
}

pub(super) fn attached(key: &str, lease: i64) -> Command {
    Command::Put(Put { lease: LeaseChoice::Set(LeaseId(lease)), ..put_of(key, "v") })
}

pub(super) fn node(name: &str) -> CatalogNode {
    CatalogNode { name: name.to_owned(), address: "10.0.0.1".to_owned(), ..CatalogNode::default() }
}

pub(super) fn register(node_name: &str, service: &str, status: Option<CheckStatus>) -> Command {
    let id = format!("{service}-1");
    let check = |status| Check {
        node: node_name.to_owned(),
        id: format!("check-{service}"),
        service_id: id.clone(),
        status,
        ..Check::default()
    };
    let checks = status.map(check).into_iter().collect();
    let service =
        Service { node: node_name.to_owned(), id: id.clone(), name: service.to_owned(), ..Service::default() };
    let registration =
        Registration { node: node(node_name), service: Some(service), checks, ..Registration::default() };
    Command::Catalog(CatalogCommand::Register(Box::new(registration)))
}

pub(super) fn deregister(node: &str, what: DeregistrationTarget) -> Command {
    let gone = Deregistration { node: node.to_owned(), what, guard: None };
    Command::Catalog(CatalogCommand::Deregister(Box::new(gone)))
}

pub(super) fn kv(verb: KvVerb, path: &str, session: &str) -> Command {
    let op = KvOp {
        verb,
        path: bytes(path),
        value: bytes("v"),
        flags: 0,
        index: LogIndex::ZERO,
        session: session.to_owned(),
    };
    Command::Consul(ConsulCommand::Kv(op))
}

pub(super) fn session(id: &str, node: &str, checks: &[&str]) -> Command {
    let service_checks = checks.iter().map(|check| (*check).to_owned()).collect();
    let session =
        Session { id: id.to_owned(), node: node.to_owned(), service_checks, lock_delay_ms: 0, ..Session::default() };
    let create = SessionCreate { session, default_check: false, node_required: false };
    Command::Consul(ConsulCommand::SessionCreate(Box::new(create)))
}

/// Command that creates a session. The end of the session removes the keys that it holds.
pub(super) fn deleting_session(id: &str, node: &str) -> Command {
    let behavior = SessionBehavior::Delete;
    let session = Session { id: id.to_owned(), node: node.to_owned(), behavior, ..Session::default() };
    let create = SessionCreate { session, default_check: false, node_required: false };
    Command::Consul(ConsulCommand::SessionCreate(Box::new(create)))
}

pub(super) fn destroy(id: &str) -> Command {
    Command::Consul(ConsulCommand::SessionDestroy(id.to_owned()))
}

/// The id of a partition. Its type is built in.
pub(super) fn partition(name: &str) -> ResourceId {
    ResourceId { name: name.to_owned(), type_: Type::partition(), ..ResourceId::default() }
}

fn namespace(partition: &str, name: &str) -> ResourceId {
    let tenancy = Tenancy::new(partition, "");
    ResourceId { name: name.to_owned(), type_: Type::namespace(), tenancy, ..ResourceId::default() }
}

fn write_owned(id: ResourceId, owner: Option<ResourceId>) -> Command {
    let resource = Resource { id, owner, ..Resource::default() };
    let (uid, generation) = (format!("U-{}", resource.id.name), "G".to_owned());
    let write =
        ResourceWrite { resource, expected: None, uid, generation, type_version: LogIndex::ZERO, registers: None };
    Command::Resource(ResourceCommand::Write(Box::new(write)))
}

pub(super) fn write(id: ResourceId) -> Command {
    write_owned(id, None)
}

fn delete(id: ResourceId) -> Command {
    let chosen = ProposerChoices { ulid: 7, now: "2026-01-01T00:00:00Z".to_owned() };
    Command::Resource(ResourceCommand::Delete(Box::new(ResourceDelete { id, expected: None, chosen })))
}

#[track_caller]
pub(super) fn done(outcome: Outcome) -> CommitDone {
    match outcome {
        Outcome::Commit(CommitOutcome::Done(done)) => done,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub(super) fn fault(outcome: Outcome) -> CommitFault {
    match outcome {
        Outcome::Commit(CommitOutcome::Failed(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

pub(super) fn refused(operation: u32, reason: impl Into<Refusal>) -> CommitFault {
    CommitFault::Operation { operation, reason: CommitOpFault::Refused(reason.into()) }
}

pub(super) fn same(first: u32, second: u32) -> CommitFault {
    CommitFault::SameEntity { first, second }
}

/// One operation of each kind, for the state of [`prepared`].
pub(super) fn of_all_faces() -> Vec<Command> {
    vec![
        attached("a", 7),
        del("gone", ""),
        grant(7, 60),
        revoke(8),
        write(partition("p")),
        register("n", "web", Some(CheckStatus::Passing)),
        kv(KvVerb::Lock, "lock", "new"),
        session("new", "n", &["check-web"]),
        destroy("old"),
    ]
}

pub(super) fn prepared() -> TestBed {
    let mut bed = bed();
    for command in [put("gone", "1"), grant(8, 60), attached("leased", 8), session("old", "m", &[])] {
        assert!(!matches!(bed.apply(command), Outcome::Refused(_)));
    }
    bed
}

#[test]
fn operations_of_all_faces_share_one_index() {
    let mut bed = prepared();
    let (index, revision) = (LogIndex(bed.next), Revision(bed.revision() + 1));
    let (outcomes, committed) = bed.apply_all([commit(of_all_faces())], true);
    let CommitDone { index: at, revision: made, is_repeated, results } = done(outcomes.into_iter().next().unwrap());
    assert_eq!((at, made, is_repeated), (index, revision, false));
    let id = ResourceId { uid: "U-p".to_owned(), ..partition("p") };
    let stored = Resource { id, version: index, generation: "G".to_owned(), ..Resource::default() };
    assert_eq!(
        results,
        [
            CommitResult::Put { prev: None },
            CommitResult::Deleted { deleted: 1, prev: vec![] },
            CommitResult::LeaseGranted { id: LeaseId(7), ttl_seconds: 60 },
            CommitResult::LeaseRevoked { deleted: 1 },
            CommitResult::ResourceWritten(Box::new(stored)),
            CommitResult::Catalog { changed: true },
            CommitResult::ConsulKv,
            CommitResult::SessionCreated { id: "new".to_owned() },
            CommitResult::SessionDestroyed,
        ]
    );
    let [events] = &committed.events[..] else { panic!("one command: {:?}", committed.events) };
    assert_eq!((events.index, events.revision), (index, Some(revision)));
    assert_eq!((events.kv.len(), events.resources.len(), events.cluster.len()), (4, 1, 2));
    let sessions = events.catalog.iter().filter(|event| format!("{:?}", event.body).contains("Sessions")).count();
    assert_eq!(sessions, 1, "one event for all changes of sessions");
    // History tells the same.
    let db = bed.store.current();
    let view = db.view().unwrap();
    let mut told = Vec::new();
    view.history(index, |command| {
        let keys = command.records.iter().filter(|record| record.table == Table::Kv);
        let kv: Vec<_> = keys.map(|record| KvEvent { kind: record.kind, kv: record.kv.clone() }).collect();
        let catalog = view.catalog_events(&command).unwrap();
        told.push((kv, catalog, command.resource_events().unwrap(), command.cluster_events().unwrap()));
        true
    })
    .unwrap();
    let wanted =
        (events.kv.to_vec(), Arc::clone(&events.catalog), Arc::clone(&events.resources), events.cluster.to_vec());
    let [(kv, catalog, resources, cluster)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((kv.clone(), Arc::clone(catalog), Arc::clone(resources), cluster.clone()), wanted);
    assert_eq!(bed.pairs(), ["a=v@4/4/1/7", "consul/kv/lock=v@4/4/1"]);
    assert!(view.session("old").unwrap().is_none() && view.session("new").unwrap().is_some());
    assert_eq!((bed.lease(7).is_some(), bed.lease(8)), (true, None));
}

#[test]
fn a_commit_is_as_its_operations_one_by_one() {
    let (mut together, mut apart) = (prepared(), prepared());
    done(together.apply(commit(of_all_faces())));
    // In the order in which a commit carries them out.
    let mut all = of_all_faces();
    for at in [2, 5, 7, 6, 8, 0, 1, 3, 4] {
        let command = std::mem::replace(&mut all[at], compact(0));
        assert!(!matches!(apart.apply(command), Outcome::Refused(_)), "{at}");
    }
    let values = |bed: &TestBed| -> Vec<String> {
        bed.pairs().into_iter().map(|pair| pair.split('@').next().unwrap().to_owned()).collect()
    };
    assert_eq!(values(&together), values(&apart));
    let (one, other) = (together.store.current().head(), apart.store.current().head());
    assert_eq!((one.live_keys, one.live_bytes), (other.live_keys, other.live_bytes));
}

#[test]
fn a_failed_commit_has_written_nothing() {
    let absent = DeregistrationTarget::Node;
    let wrong_owner = ResourceId { uid: "U".to_owned(), ..partition("nobody") };
    for (bad, reason) in [
        (attached("b", 99), Refusal::LeaseNotFound),
        (Command::Put(Put { lease: LeaseChoice::Keep, ..put_of("absent", "v") }), Refusal::KeyNotFound),
        (grant(8, 60), Refusal::LeaseExists),
        (revoke(99), Refusal::LeaseNotFound),
        (write_owned(partition("q"), Some(wrong_owner)), ResourceRefusal::OwnerNotFound.into()),
        (write(namespace("q", "x")), ResourceRefusal::PartitionNotFound.into()),
        (session("other", "n", &["none"]), SessionRefusal::CheckUnknown.into()),
    ] {
        let mut bed = prepared();
        let (before, revision) = (bed.hash(), bed.revision());
        // The other operations of its phase come first; those of all phases have been run by then.
        let mut operations = of_all_faces();
        operations.retain(|other| !matches!((other, &bad), (Command::LeaseRevoke(_), Command::LeaseGrant(_))));
        operations.push(bad.clone());
        let last = operations.len() as u32 - 1;
        let (outcomes, committed) = bed.apply_all([commit(operations)], true);
        assert_eq!(fault(outcomes.into_iter().next().unwrap()), refused(last, reason), "{bad:?}");
        assert_eq!((committed.events.len(), committed.leases.len(), bed.revision()), (0, 0, revision), "{bad:?}");
        assert_eq!(committed.operations.refused, 1);
        let mut plain = prepared();
        plain.apply(del("none", ""));
        assert_eq!(bed.hash(), plain.hash(), "{bad:?}: equal to a command without an effect");
        assert_ne!(bed.hash(), before, "the applied index");
        // And the next command finds nothing of it.
        assert_eq!(done(bed.apply(commit(of_all_faces()))).results.len(), 9);
    }
    let mut bed = prepared();
    assert_eq!(
        done(bed.apply(commit(vec![deregister("nobody", absent)]))).results,
        [CommitResult::Catalog { changed: false }]
    );
    let missing = Registration { service: Some(Service::default()), ..Registration::default() };
    let mut other = missing.clone();
    other.node = node("n");
    other.checks = vec![Check { node: "m".to_owned(), ..Check::default() }];
    let other = Command::Catalog(CatalogCommand::Register(Box::new(other)));
    assert_eq!(fault(bed.apply(commit(vec![put("a", "1"), other]))), refused(1, CatalogRefusal::MissingNode));
    let held = kv(KvVerb::Lock, "free", "old");
    done(bed.apply(commit(vec![held.clone(), session("young", "m", &[])])));
    let reason = CommitOpFault::Kv(TxnFaultReason::Held);
    let stolen = kv(KvVerb::Lock, "free", "young");
    assert_eq!(fault(bed.apply(commit(vec![put("a", "1"), stolen]))), CommitFault::Operation { operation: 1, reason });
}

#[test]
fn what_others_need_comes_first() {
    let mut bed = bed();
    let operations = vec![
        kv(KvVerb::Lock, "lock", "s"),
        session("s", "n", &["check-web"]),
        register("n", "web", Some(CheckStatus::Passing)),
        attached("a", 5),
        grant(5, 60),
        write(partition("p")),
        write(namespace("p", "ns")),
    ];
    assert_eq!(done(bed.apply(commit(operations))).results.len(), 7);
    assert_eq!(bed.lease_keys(5), ["a"]);
    // Resources are written in the order of the request.
    let backwards = vec![write(namespace("q", "ns")), write(partition("q"))];
    assert_eq!(fault(bed.apply(commit(backwards))), refused(0, ResourceRefusal::PartitionNotFound));
}

#[test]
fn consequences_that_meet_are_found() {
    let locked = |bed: &mut TestBed| {
        done(bed.apply(commit(vec![
            register("n", "web", Some(CheckStatus::Passing)),
            session("s", "n", &["check-web"]),
            kv(KvVerb::Lock, "lock", "s"),
            grant(5, 60),
            attached("leased", 5),
            attached("consul/kv/leased", 5),
            deleting_session("d", "m"),
            kv(KvVerb::Lock, "held", "d"),
        ])));
    };
    for (operations, wanted) in [
        (vec![put("x", "1"), put("leased", "2"), revoke(5)], None),
        (vec![put("x", "1"), attached("leased", 5), revoke(5)], Some(same(1, 2))),
        (vec![revoke(5), attached("new", 5)], Some(same(0, 1))),
        (vec![put("consul/kv/lock", "2"), destroy("s")], Some(same(0, 1))),
        (vec![put("y", "2"), destroy("s"), del("consul/kv/", "consul/kv0")], Some(same(1, 2))),
        (vec![put("consul/kv/lock", "2"), deregister("n", DeregistrationTarget::Node)], Some(same(0, 1))),
        (vec![put("consul/kv/lock", "2"), register("n", "web", Some(CheckStatus::Critical))], Some(same(0, 1))),
        (vec![kv(KvVerb::Set, "lock", ""), destroy("s")], Some(same(0, 1))),
        (vec![destroy("s"), kv(KvVerb::Unlock, "lock", "s")], Some(same(0, 1))),
        (vec![put("y", "1"), destroy("s"), kv(KvVerb::Lock, "free", "s")], Some(same(1, 2))),
        (vec![kv(KvVerb::DeleteTree, "lo", ""), destroy("s")], Some(same(0, 1))),
        (vec![kv(KvVerb::Set, "other", ""), destroy("s")], None),
        (vec![kv(KvVerb::CheckSession, "lock", "s"), destroy("s")], None),
        (vec![destroy("s"), kv(KvVerb::CheckSession, "lock", "s")], None),
        (vec![kv(KvVerb::Lock, "free", "s"), deregister("n", DeregistrationTarget::Node)], Some(same(0, 1))),
        (vec![register("n", "web", Some(CheckStatus::Critical)), kv(KvVerb::Lock, "free", "s")], Some(same(0, 1))),
        // Those of the removal are named, not those of other operations on the catalog.
        (vec![register("m", "web", None), put("consul/kv/lock", "2"), destroy("s")], Some(same(1, 2))),
        (
            vec![register("m", "web", None), deregister("n", DeregistrationTarget::Node), put("consul/kv/lock", "2")],
            Some(same(1, 2)),
        ),
        (
            vec![
                register("m", "web", None),
                session("t", "n", &[]),
                kv(KvVerb::Set, "x", ""),
                deregister("n", DeregistrationTarget::Node),
            ],
            Some(same(1, 3)),
        ),
        // A key that a session held and removed was seen by another operation as gone.
        (vec![destroy("d"), del("consul/kv/held", "")], Some(same(0, 1))),
        (vec![kv(KvVerb::Set, "held", ""), put("y", "1"), destroy("d")], Some(same(0, 2))),
        // A key that is left as it is stays attached to its lease.
        (vec![kv(KvVerb::Set, "leased", ""), revoke(5)], Some(same(0, 1))),
        (vec![kv(KvVerb::Delete, "leased", ""), revoke(5)], None),
        (vec![session("t", "n", &[]), deregister("n", DeregistrationTarget::Node)], Some(same(0, 1))),
        (vec![put("a", "1"), put("a", "2")], Some(same(0, 1))),
        (vec![delete(partition("p")), write(partition("p"))], Some(same(0, 1))),
    ] {
        let mut bed = bed();
        locked(&mut bed);
        let outcome = bed.apply(commit(operations.clone()));
        match wanted {
            Some(wanted) => assert_eq!(fault(outcome), wanted, "{operations:?}"),
            None => assert_eq!(done(outcome).results.len(), operations.len(), "{operations:?}"),
        }
    }
}

#[test]
fn conditions_look_at_the_state_before() {
    let mut bed = bed();
    // Indexes 2 to 6.
    for command in [
        put("app/a", "1"),
        write(partition("p")),
        register("n", "web", Some(CheckStatus::Passing)),
        grant(5, 60),
        del("app/a", ""),
    ] {
        assert!(!matches!(bed.apply(command), Outcome::Refused(_)));
    }
    // Index 7: an instance is told with its checks and its node.
    bed.apply(register("n", "web", Some(CheckStatus::Warning)));
    bed.apply(put("app/b", "1"));
    let key = |key: &str| CommitEntity::Key(bytes(key));
    let below = |key: &str| CommitEntity::KeysBelow(bytes(key));
    let web = || CommitEntity::Instance { service: "WEB".to_owned(), node: "N".to_owned(), id: "web-1".to_owned() };
    let instances =
        |service: &str, node: &str| CommitEntity::Instances { service: service.to_owned(), node: node.to_owned() };
    let in_version_1 = ResourceId { type_: Type::new("tenancy", "v1", "Partition"), ..partition("p") };
    let selector = |group: &str| {
        CommitEntity::Resources(Selector {
            type_: Type::new(group, "v2beta1", "Partition"),
            tenancy: Tenancy::new("*", "*"),
            name_prefix: String::new(),
        })
    };
    let (index, since) = (|at| EntityTest::Index(LogIndex(at)), |at| EntityTest::UnchangedSince(LogIndex(at)));
    let exists = EntityTest::Exists;
    let failed = |at| Some(ConditionFault::Failed { changed: LogIndex(at) });
    for (entity, test, wanted) in [
        // Before the commits of this test.
        (below(""), since(7), failed(8)),
        (key("app/b"), index(8), None),
        (key("app/b"), index(7), failed(8)),
        (key("app/b"), index(0), failed(8)),
        (key("app/a"), index(0), None),
        (key("app/a"), index(6), failed(0)),
        (key("app/a"), since(6), None),
        (key("app/a"), since(5), failed(6)),
        (key("app/b"), exists(true), None),
        (key("app/a"), exists(true), failed(0)),
        (key("app/b"), exists(false), failed(8)),
        (key("app"), exists(false), None),
        (below("app"), since(8), None),
        (below("app"), since(7), failed(8)),
        (below("ap"), since(1), None),
        (CommitEntity::Resource(partition("p")), index(3), None),
        (CommitEntity::Resource(partition("p")), since(2), failed(3)),
        (CommitEntity::Resource(in_version_1), exists(true), failed(0)),
        (CommitEntity::Resource(partition("q")), index(0), None),
        (selector("tenancy"), since(3), None),
        (selector("tenancy"), since(2), failed(3)),
        (selector("other"), since(2), None),
        (web(), index(7), None),
        (web(), index(4), failed(7)),
        (web(), since(7), None),
        (web(), since(6), failed(7)),
        (instances("web", ""), since(7), None),
        (instances("web", ""), since(6), failed(7)),
        (instances("api", ""), since(2), None),
        (instances("", ""), since(6), failed(7)),
        (instances("web", "n"), since(6), failed(7)),
        (instances("web", "m"), since(2), None),
        (CommitEntity::Node("N".to_owned()), index(4), None),
        (CommitEntity::Node("m".to_owned()), exists(false), None),
        (CommitEntity::Lease(LeaseId(5)), index(5), None),
        (CommitEntity::Lease(LeaseId(6)), exists(true), failed(0)),
        // What cannot be asked does not hold.
        (CommitEntity::Lease(LeaseId(5)), since(5), failed(0)),
        (below("app"), exists(true), failed(0)),
    ] {
        let next = bed.next;
        let outcome = bed.apply(guarded(entity.clone(), test));
        match wanted {
            None => assert_eq!(done(outcome).index, LogIndex(next), "{test:?} of {entity:?}"),
            Some(reason) => {
                assert_eq!(fault(outcome), CommitFault::Condition { condition: 0, reason }, "{test:?} of {entity:?}");
            }
        }
    }
    // The index of the commit itself is in the future.
    let newest = LogIndex(bed.next - 1);
    let future = guarded(key("app/b"), EntityTest::UnchangedSince(newest.next()));
    let reason = ConditionFault::Future { newest };
    assert_eq!(fault(bed.apply(future)), CommitFault::Condition { condition: 0, reason });
    let newest = LogIndex(bed.next - 1);
    let future = guarded(key("app/b"), EntityTest::Index(newest.next()));
    let reason = ConditionFault::Future { newest };
    assert_eq!(fault(bed.apply(future)), CommitFault::Condition { condition: 0, reason });
    let newest = EntityTest::UnchangedSince(LogIndex(bed.next - 1));
    done(bed.apply(guarded(key("app/b"), newest)));
}

#[test]
fn a_condition_about_another_lineage_is_refused() {
    let mut bed = bed();
    let of = |epoch: u64| {
        let test = EntityTest::Exists(false);
        let condition = CommitCondition::Entity(CommitEntity::Key(bytes("a")), test, Some(StoreEpoch(epoch)));
        Command::Commit(Box::new(commit_of(vec![condition], vec![put("b", "1")], None)))
    };
    let other = CommitFault::Condition { condition: 0, reason: ConditionFault::OtherEpoch };
    assert_eq!(fault(bed.apply(of(7))), other, "the store has none");
    bed.apply(Command::Bootstrap(StoreEpoch(7)));
    done(bed.apply(of(7)));
    assert_eq!(fault(bed.apply(of(8))), other);
}

#[test]
fn a_removed_check_changes_its_instance() {
    let mut bed = bed();
    bed.apply(register("n", "web", Some(CheckStatus::Passing)));
    bed.apply(deregister("n", DeregistrationTarget::Check("check-web".to_owned())));
    let web = || CommitEntity::Instance { service: "web".to_owned(), node: "n".to_owned(), id: "web-1".to_owned() };
    let since = |at| guarded(web(), EntityTest::UnchangedSince(LogIndex(at)));
    let reason = ConditionFault::Failed { changed: LogIndex(3) };
    assert_eq!(fault(bed.apply(since(2))), CommitFault::Condition { condition: 0, reason });
    done(bed.apply(since(3)));
    let head = bed.store.current();
    assert_eq!(head.view().unwrap().service("n", "web-1").unwrap().unwrap().row.modified, LogIndex(2));
    drop(head);
    let index = |at| guarded(web(), EntityTest::Index(LogIndex(at)));
    assert_eq!(fault(bed.apply(index(2))), CommitFault::Condition { condition: 0, reason });
    done(bed.apply(index(3)));
    // A check of another instance, and one of the node.
    bed.apply(register("n", "db", Some(CheckStatus::Passing)));
    bed.apply(deregister("n", DeregistrationTarget::Check("check-db".to_owned())));
    bed.apply(register("n", "web", None));
    done(bed.apply(index(3)));
    // Before the kept history the removal is not known, whether its record is still there or not.
    bed.apply(trim(3));
    for reclaimed in [false, true] {
        if reclaimed {
            bed.reclaim(100);
        }
        done(bed.apply(index(2)));
        let reason = ConditionFault::Failed { changed: LogIndex(2) };
        assert_eq!(fault(bed.apply(index(3))), CommitFault::Condition { condition: 0, reason });
    }
}

#[test]
fn a_condition_about_compacted_history_is_refused() {
    let mut bed = bed();
    bed.apply(put("a", "1"));
    bed.apply(del("a", ""));
    bed.apply(put("b", "1"));
    bed.apply(compact(4));
    let key = |at| guarded(CommitEntity::Key(bytes("a")), EntityTest::UnchangedSince(LogIndex(at)));
    let node = |at| guarded(CommitEntity::Node("n".to_owned()), EntityTest::UnchangedSince(LogIndex(at)));
    let oldest = LogIndex(4);
    let compacted = || CommitFault::Condition { condition: 0, reason: ConditionFault::Compacted { oldest } };
    for reclaimed in [false, true] {
        if reclaimed {
            bed.reclaim(100);
        }
        assert_eq!(fault(bed.apply(key(3))), compacted());
        assert_eq!(fault(bed.apply(node(3))), compacted());
        done(bed.apply(key(4)));
    }
}

#[test]
fn compares_are_those_of_transactions() {
    let mut bed = bed();
    bed.apply(put("a", "1"));
    let with = |compares: Vec<headwater_types::Compare>| {
        let conditions = compares.into_iter().map(CommitCondition::Compare).collect();
        Command::Commit(Box::new(commit_of(conditions, vec![put("b", "1")], None)))
    };
    let value = |value: &str| compare("a", CompareOp::Equal, CompareTarget::Value(bytes(value)));
    done(bed.apply(with(vec![exists("a"), value("1")])));
    let reason = ConditionFault::Failed { changed: LogIndex::ZERO };
    let failed = fault(bed.apply(with(vec![exists("a"), value("2"), exists("none")])));
    assert_eq!(failed, CommitFault::Condition { condition: 1, reason });
}
