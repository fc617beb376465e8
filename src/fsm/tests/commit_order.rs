//! The order of the operations of a commit cannot be seen.

use proptest::prelude::*;

use super::bed::*;
use super::commit::*;
use headwater_storage::state::{CatalogReader, ConsulReader, sessions};
use headwater_types::catalog::{
    CatalogCommand, CatalogNode, Check, CheckStatus, DeregistrationTarget, Registration, Service,
};
use headwater_types::commit::{CommitOp, FaceOp};
use headwater_types::consul::{Deadline, KvVerb, consul_key};
use headwater_types::{Command, CommitOutcome, KeyRange, LeaseChoice, Outcome, RangeQuery, ValueChoice};

#[test]
fn the_order_of_operations_on_the_catalog_does_not_count() {
    let with_id = |name: &str, id: &str| CatalogNode { id: id.to_owned(), ..node(name) };
    let plain = |node: CatalogNode, skip_node_update: bool| {
        let registration = Registration { node, skip_node_update, ..Registration::default() };
        Command::Catalog(CatalogCommand::Register(Box::new(registration)))
    };
    let on = |mut command: Command, row: CatalogNode| {
        let Command::Catalog(CatalogCommand::Register(registration)) = &mut command else { unreachable!() };
        registration.node = row;
        command
    };
    let check = |id: &str| {
        let check =
            Check { node: "n1".to_owned(), id: id.to_owned(), service_id: "db-1".to_owned(), ..Check::default() };
        let registration = Registration { node: with_id("n1", "U"), checks: vec![check], ..Registration::default() };
        Command::Catalog(CatalogCommand::Register(Box::new(registration)))
    };
    let service = |id: &str| DeregistrationTarget::Service(id.to_owned());
    let renamed = || plain(with_id("n2", "U"), false);
    let elsewhere = || CatalogNode { address: "10.0.0.2".to_owned(), ..node("new") };
    for (operations, is_refused) in [
        (vec![renamed(), deregister("N1", DeregistrationTarget::Node)], true),
        (vec![renamed(), deregister("n1", service("web-1"))], true),
        (vec![renamed(), deregister("n2", service("web-1"))], true),
        (vec![renamed(), plain(with_id("n1", "V"), false)], true),
        (vec![renamed(), plain(with_id("n3", "U"), false)], true),
        (vec![renamed(), plain(node("n1"), true)], true),
        (vec![renamed(), session("s", "n1", &[])], true),
        (vec![renamed(), on(register("n2", "db", None), with_id("n2", "U"))], false),
        (vec![renamed(), register("n3", "db", None)], false),
        (vec![plain(node("new"), true), plain(elsewhere(), true)], true),
        (vec![plain(node("new"), true), plain(elsewhere(), false)], false),
        (vec![plain(node("n1"), true), plain(elsewhere(), true)], false),
        (vec![on(register("n1", "db", None), with_id("n1", "U")), check("c")], false),
        (
            vec![
                deregister("n1", service("web-1")),
                check("check-web"),
                on(register("n1", "db", None), with_id("n1", "U")),
            ],
            false,
        ),
    ] {
        let both = [operations.clone(), operations.iter().rev().cloned().collect()].map(|operations: Vec<Command>| {
            let mut bed = bed();
            bed.apply(on(register("n1", "web", Some(CheckStatus::Passing)), with_id("n1", "U")));
            let outcome = bed.apply(commit(operations));
            let db = bed.store.current();
            let view = db.view().unwrap();
            let rows = ["n1", "n2", "n3", "new"].map(|node| {
                let row = view.node(node).unwrap().value;
                (row, view.services_of_node(node).unwrap().value, view.checks_of_node(node).unwrap().value)
            });
            (matches!(outcome, Outcome::Commit(CommitOutcome::Failed(_))), rows)
        });
        assert_eq!(both[0].0, is_refused, "{operations:?}");
        assert_eq!(both[0], both[1], "{operations:?}");
    }
    let mut bed = bed();
    bed.apply(on(register("n1", "web", None), with_id("n1", "U")));
    let outcome = bed.apply(commit(vec![put("x", "1"), renamed(), deregister("n1", service("web-1"))]));
    assert_eq!(fault(outcome), same(1, 2));
}

const NODES: [&str; 3] = ["n1", "n2", "n3"];
const PATHS: [&str; 3] = ["a", "a/1", "b"];
const SESSIONS: [&str; 3] = ["s0", "s1", "s2"];
const CHECKS: [&str; 2] = ["c0", "c1"];

/// Random registrations of a node, some with an instance, some with a check.
fn registration() -> impl Strategy<Value = Command> {
    let row = (0..NODES.len(), prop::sample::select(vec!["", "U", "V"]), 0..2u8);
    let service = prop::option::of((prop::sample::select(vec!["web", "db"]), 0..2u8, any::<bool>()));
    let check = prop::option::of((
        prop::sample::select(CHECKS.to_vec()),
        prop::sample::select(vec!["", "web-1", "db-1"]),
        prop::sample::select(vec![CheckStatus::Passing, CheckStatus::Critical]),
    ));
    (row, service, check, any::<bool>()).prop_map(|((at, id, address), service, check, skip_node_update)| {
        let name = NODES[at].to_owned();
        let node = CatalogNode { id: id.to_owned(), address: format!("10.0.0.{address}"), ..node(NODES[at]) };
        let replace_checks = service.is_some_and(|(.., replaces)| replaces);
        let service = service.map(|(service, tag, _)| Service {
            node: name.clone(),
            id: format!("{service}-1"),
            name: service.to_owned(),
            tags: vec![tag.to_string()],
            ..Service::default()
        });
        let check = check.map(|(id, of, status)| Check {
            node: name.clone(),
            id: id.to_owned(),
            service_id: of.to_owned(),
            status,
            ..Check::default()
        });
        let checks = check.into_iter().collect();
        let registration =
            Registration { node, service, checks, skip_node_update, replace_checks, ..Default::default() };
        Command::Catalog(CatalogCommand::Register(Box::new(registration)))
    })
}

fn operation() -> impl Strategy<Value = Command> {
    let path = || prop::sample::select(PATHS.to_vec());
    let id = || prop::sample::select(SESSIONS.to_vec());
    let at = || prop::sample::select(NODES.to_vec());
    let checks = prop::sample::select(vec![vec![], vec![CHECKS[0]], CHECKS.to_vec()]);
    let what = prop_oneof![
        1 => Just(DeregistrationTarget::Node),
        1 => prop::sample::select(vec!["web-1", "db-1"]).prop_map(|id| DeregistrationTarget::Service(id.to_owned())),
        1 => prop::sample::select(CHECKS.to_vec()).prop_map(|id| DeregistrationTarget::Check(id.to_owned())),
    ];
    let verbs = vec![
        KvVerb::Set,
        KvVerb::Cas,
        KvVerb::Lock,
        KvVerb::Lock,
        KvVerb::Unlock,
        KvVerb::Delete,
        KvVerb::DeleteTree,
        KvVerb::CheckSession,
        KvVerb::CheckNotExists,
    ];
    prop_oneof![
        6 => registration(),
        3 => (at(), what).prop_map(|(node, what)| deregister(node, what)),
        3 => (id(), at(), checks).prop_map(|(id, node, checks)| session(id, node, &checks)),
        2 => (id(), at()).prop_map(|(id, node)| deleting_session(id, node)),
        3 => id().prop_map(destroy),
        8 => (prop::sample::select(verbs), path(), id()).prop_map(|(verb, path, id)| kv(verb, path, id)),
        2 => path().prop_map(|path| put(format!("consul/kv/{path}"), "e")),
        1 => path().prop_map(|path| attached(&format!("consul/kv/{path}"), 5)),
        1 => path().prop_map(|path| del(format!("consul/kv/{path}"), "")),
        1 => Just(del("consul/kv/", "consul/kv0")),
        1 => Just(attached("k", 5)),
        1 => Just(grant(5, 60)),
        1 => Just(revoke(5)),
    ]
}

/// Everything that clients can see of the rows, keys, sessions and leases of these tests.
fn visible(bed: &TestBed) -> Vec<String> {
    let db = bed.store.current();
    let view = db.view().unwrap();
    let mut seen = bed.pairs();
    for path in PATHS.map(bytes) {
        let entry = view.consul_entry(&path).unwrap().map(|(_, entry)| entry);
        let is_delayed = view.deadline(&Deadline::LockDelay(path)).unwrap().is_some();
        seen.push(format!("{entry:?} {is_delayed}"));
    }
    for session in sessions(&view).unwrap() {
        let paths = view.session_paths(&session.id).unwrap();
        seen.push(format!("{session:?} {paths:?}"));
    }
    for name in NODES {
        let (node, services) = (view.node(name).unwrap(), view.services_of_node(name).unwrap());
        seen.push(format!("{node:?} {services:?} {:?}", view.checks_of_node(name).unwrap()));
    }
    seen.extend(["web", "db"].map(|name| format!("{:?}", view.instances(name).unwrap())));
    seen.push(format!("{:?} {:?}", bed.lease(5), bed.lease_keys(5)));
    seen
}

/// Whether the state shows the effect of `operation`. True for operations that only check, and for
/// those that these tests do not make.
fn has_effect(bed: &TestBed, operation: &Command) -> bool {
    let db = bed.store.current();
    let view = db.view().unwrap();
    let keys = |range: &KeyRange| bed.range(&RangeQuery::new(range.clone())).unwrap().kvs;
    match CommitOp::new(operation.clone()).unwrap().of_face() {
        FaceOp::Put(put) => keys(&KeyRange::One(put.key.clone()))
            .iter()
            .any(|kv| (&ValueChoice::Set(kv.value.clone()), &LeaseChoice::Set(kv.lease)) == (&put.value, &put.lease)),
        FaceOp::DeleteRange(delete) => keys(&delete.range).is_empty(),
        FaceOp::LeaseGrant(grant) => bed.lease(grant.id.get()).is_some(),
        FaceOp::LeaseRevoke(revoke) => bed.lease(revoke.id.get()).is_none(),
        FaceOp::Catalog(CatalogCommand::Register(made)) => {
            let node = view.node(&made.node.name).unwrap().value;
            let service = made.service.as_ref().is_none_or(|wanted| {
                let found = view.service(&wanted.node, &wanted.id).unwrap();
                found.is_some_and(|found| found.row.tags == wanted.tags)
            });
            let checks = made.checks.iter().all(|wanted| {
                let found = view.check(&wanted.node, &wanted.id).unwrap();
                found.is_some_and(|found| {
                    (&found.row.service_id, found.row.status) == (&wanted.service_id, wanted.status)
                })
            });
            let is_updated = |node: &CatalogNode| made.skip_node_update || node.address == made.node.address;
            node.is_some_and(|node| is_updated(&node)) && service && checks
        }
        FaceOp::Catalog(CatalogCommand::Deregister(gone)) => match &gone.what {
            DeregistrationTarget::Node => view.node(&gone.node).unwrap().value.is_none(),
            DeregistrationTarget::Service(id) => view.service(&gone.node, id).unwrap().is_none(),
            DeregistrationTarget::Check(id) => view.check(&gone.node, id).unwrap().is_none(),
        },
        FaceOp::SessionCreate(create) => view.session(&create.session.id).unwrap().is_some(),
        FaceOp::SessionDestroy(id) => view.session(id).unwrap().is_none(),
        FaceOp::ConsulKv(op) => {
            let entry = view.consul_entry(&op.path).unwrap().map(|(_, entry)| entry);
            match op.verb {
                KvVerb::Set | KvVerb::Cas => entry.is_some_and(|entry| entry.value == op.value),
                KvVerb::Lock => entry.is_some_and(|entry| entry.side.session == op.session),
                KvVerb::Unlock => entry.is_some_and(|entry| entry.side.session.is_empty()),
                KvVerb::Delete => entry.is_none(),
                KvVerb::DeleteTree => keys(&KeyRange::prefix(consul_key(&op.path))).is_empty(),
                _ => true,
            }
        }
        FaceOp::Catalog(CatalogCommand::SetGateway(_) | CatalogCommand::DeleteGateway(_)) | FaceOp::Resource(_) => true,
    }
}

/// Commands that make nodes, instances, checks, sessions and locks, and a key that is attached to a
/// lease.
fn furnished() -> Vec<Command> {
    let check = |id: &str, of: &str| Check {
        node: "n1".to_owned(),
        id: id.to_owned(),
        service_id: of.to_owned(),
        status: CheckStatus::Passing,
        ..Check::default()
    };
    let service =
        Service { node: "n1".to_owned(), id: "web-1".to_owned(), name: "web".to_owned(), ..Service::default() };
    let registration = Registration {
        node: CatalogNode { id: "U".to_owned(), ..node("n1") },
        service: Some(service),
        checks: vec![check("c0", "web-1"), check("c1", "")],
        ..Registration::default()
    };
    vec![
        Command::Catalog(CatalogCommand::Register(Box::new(registration))),
        register("n2", "db", None),
        session("s0", "n1", &["c0"]),
        deleting_session("s1", "n2"),
        kv(KvVerb::Lock, "a", "s0"),
        kv(KvVerb::Lock, "b", "s1"),
        grant(5, 60),
        attached("k", 5),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A commit and its permutation give the same state and the same results, or both are refused.
    /// After a commit, each of its operations has its effect: none undoes another. A refused
    /// commit changes nothing.
    #[test]
    fn no_order_can_be_seen(
        before in prop::collection::vec(operation(), 0..4),
        (operations, order) in prop::collection::vec(operation(), 2..5)
            .prop_flat_map(|operations| {
                let order: Vec<usize> = (0..operations.len()).collect();
                (Just(operations), Just(order).prop_shuffle())
            }),
    ) {
        let run = |operations: Vec<Command>| {
            let mut bed = bed();
            furnished().into_iter().chain(before.clone()).for_each(|command| drop(bed.apply(command)));
            let untouched = visible(&bed);
            match bed.apply(commit(operations.clone())) {
                Outcome::Commit(CommitOutcome::Done(done)) => {
                    for operation in &operations {
                        prop_assert!(has_effect(&bed, operation), "{:?}", operation);
                    }
                    Ok((Some(done.results), visible(&bed)))
                }
                Outcome::Commit(CommitOutcome::Failed(_)) => {
                    prop_assert_eq!(visible(&bed), untouched);
                    Ok((None, visible(&bed)))
                }
                other => panic!("{other:?}"),
            }
        };
        let (results, state) = run(operations.clone())?;
        let (others, other_state) = run(order.iter().map(|at| operations[*at].clone()).collect())?;
        let results = results.map(|results| order.iter().map(|at| results[*at].clone()).collect::<Vec<_>>());
        prop_assert_eq!(results, others);
        prop_assert_eq!(state, other_state);
    }
}
