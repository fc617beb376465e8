//! Identity of nodes, fields copied into checks, refusals, and changes of query indexes (spec:
//! consul §2.6, §2.7).

use super::*;
use crate::tests::bed::quota;
use headwater_types::catalog::{CheckGuard, Proxy, QueryIndexSubject};

fn with_status(status: CheckStatus, check: Check) -> Check {
    Check { status, ..check }
}

#[test]
fn equal_writes_change_nothing_and_move_no_index() {
    let mut store = Store::new();
    let mut full = on("n1", typical("web"));
    full.checks = vec![check("alive", ""), check("ping", "web")];
    let first = store.register(full.clone()).unwrap();
    assert_eq!(first, ["H/web + n1/web [alive ping]", "L/web +"]);
    let index = || LogIndex(1);
    for registration in [full.clone(), on("n1", typical("web")), checks("N1", [check("ping", "web")])] {
        assert_eq!(store.register(registration), Ok(Vec::new()));
    }
    store.view(|view| {
        assert_eq!(view.instances("WEB").unwrap().index, index());
        assert_eq!(view.nodes().unwrap().index, index());
        let node = view.node("N1").unwrap().value.unwrap();
        assert_eq!((node.created, node.modified), (index(), index()));
    });
}

#[test]
fn every_member_of_a_row_counts() {
    let base = typical("web");
    let changed: Vec<Service> = vec![
        Service { tags: vec!["a".to_owned()], ..base.clone() },
        Service { address: "10.1.1.1".to_owned(), ..base.clone() },
        Service { tagged_addresses: [("lan".to_owned(), Default::default())].into(), ..base.clone() },
        Service { meta: [("k".to_owned(), "v".to_owned())].into(), ..base.clone() },
        Service { port: 1, ..base.clone() },
        Service { socket_path: "/s".to_owned(), ..base.clone() },
        Service { weights: headwater_types::catalog::Weights { passing: 2, warning: 1 }, ..base.clone() },
        Service { enable_tag_override: true, ..base.clone() },
        Service { proxy: Proxy { more_json: "{}".to_owned(), ..Proxy::default() }, ..base.clone() },
        Service { connect: ServiceConnect { more_json: "{}".to_owned(), ..Default::default() }, ..base.clone() },
        Service { locality: Some(Default::default()), ..base.clone() },
    ];
    for service in changed {
        let mut store = Store::new();
        store.register(on("n1", base.clone())).unwrap();
        assert_eq!(store.register(on("n1", service.clone())).unwrap(), ["H/web + n1/web"], "{service:?}");
        let stored = store.view(|view| view.service("n1", "web").unwrap().unwrap());
        assert_eq!((stored.row.created, stored.row.modified), (LogIndex(1), LogIndex(2)));
        assert_eq!(store.register(on("n1", service)), Ok(Vec::new()));
    }
    let tags = |tags: &[&str]| Service { tags: tags.iter().map(|&tag| tag.to_owned()).collect(), ..typical("web") };
    let mut store = Store::new();
    store.register(on("n1", tags(&["a", "b"]))).unwrap();
    assert_eq!(store.register(on("n1", tags(&["b", "a"]))).unwrap(), ["H/web + n1/web"], "the order of tags counts");
}

#[test]
fn names_are_found_in_any_case_and_keep_that_of_their_first_registration() {
    let mut store = Store::new();
    store.register(on("Node-1", typical("Web"))).unwrap();
    store.register(on("NODE-1", typical("db"))).unwrap();
    assert_eq!(store.instances("wEB"), ["Node-1/Web"]);
    let names = store.view(|view| view.nodes().unwrap().value.iter().map(|node| node.name.clone()).collect::<Vec<_>>());
    assert_eq!(names, ["Node-1"]);
    assert_eq!(store.view(|view| view.services_of_node("node-1").unwrap().value.len()), 2);
    // Ids of instances are compared with their case.
    store.register(on("node-1", with_id("DB", typical("db")))).unwrap();
    assert_eq!(store.instances("db"), ["Node-1/DB", "Node-1/db"]);
}

#[test]
fn a_check_copies_its_service_when_it_is_written() {
    let mut store = Store::new();
    store.register(on("n1", Service { tags: vec!["v1".to_owned()], ..typical("web") })).unwrap();
    store.register(checks("n1", [Check { service_name: "lie".to_owned(), ..check("ping", "web") }])).unwrap();
    let copied = |store: &Store| {
        store.view(|view| {
            let check = view.check("n1", "ping").unwrap().unwrap().row;
            (check.service_name.clone(), check.service_tags.join(","))
        })
    };
    assert_eq!(copied(&store), ("web".to_owned(), "v1".to_owned()));
    store.register(on("n1", Service { tags: vec!["v2".to_owned()], ..typical("web") })).unwrap();
    assert_eq!(copied(&store).1, "v1", "until it is written again");
    assert_eq!(store.register(checks("n1", [check("ping", "web")])).unwrap(), ["H/web + n1/web [ping]"]);
    assert_eq!(copied(&store).1, "v2");
}

#[test]
fn what_cannot_be_registered_is_refused_and_leaves_nothing_behind() {
    let mut store = Store::new();
    store.register(on("n1", typical("web"))).unwrap();
    let mut other = on("n1", typical("db"));
    other.checks = vec![Check { node: "n2".to_owned(), ..check("c", "") }];
    assert_eq!(store.register(other), Err(CatalogRefusal::CheckOfOtherNode));
    let mut missing = on("n2", typical("db"));
    missing.checks = vec![check("c", "nothing")];
    assert_eq!(store.register(missing), Err(CatalogRefusal::MissingService));
    let stale = Registration {
        guard: Some(CheckGuard { check_id: "c".to_owned(), modified: LogIndex(1) }),
        ..on("n1", typical("db"))
    };
    assert_eq!(store.register(stale), Err(CatalogRefusal::Stale));
    assert_eq!(store.view(|view| view.service_names().unwrap().value.len()), 1);
    assert_eq!(store.view(|view| view.nodes().unwrap().value.len()), 1);
    let (effect, events) = store.catalog(|catalog| {
        assert!(catalog.set_service(Service { node: "n9".to_owned(), ..typical("db") }).is_err(), "missing node");
        assert!(catalog.set_check(Check { node: "n9".to_owned(), ..check("c", "") }).is_err(), "missing node");
        Ok(())
    });
    assert_eq!((effect, events), (CatalogEffect::default(), Vec::new()));
}

#[test]
fn an_id_has_one_node_also_within_a_transaction() {
    let node = |name: &str, id| node_with_id(name, id).node;
    let mut store = Store::new();
    store.register(node_with_id("stored", 1)).unwrap();
    store.catalog(|catalog| {
        catalog.set_node(node("new", 2))?;
        catalog.set_node(node("newer", 2))?;
        catalog.set_node(node("moved", 1))?;
        catalog.set_service(Service { node: "moved".to_owned(), ..typical("web") })?;
        catalog.set_node(node("moved again", 1))?;
        // The same node again, and a node that gets another id before a second one takes its first.
        catalog.set_node(node("NEWER", 2))?;
        catalog.set_node(node("giver", 3))?;
        catalog.set_node(node("giver", 4))?;
        catalog.set_node(node("taker", 3))
    });
    let names: Vec<String> =
        store.view(|view| view.nodes().unwrap().value.iter().map(|node| node.name.clone()).collect());
    assert_eq!(names, ["giver", "moved again", "newer", "taker"]);
    assert!(store.view(|view| view.service("moved again", "web").unwrap().is_some()));
}

#[test]
fn a_decision_about_a_check_holds_only_for_what_it_was_based_on() {
    let mut store = Store::new();
    store.register(on("n1", typical("web"))).unwrap();
    store.register(checks("n1", [check("ttl", "web")])).unwrap();
    let expire = |modified| Registration {
        guard: Some(CheckGuard { check_id: "ttl".to_owned(), modified: LogIndex(modified) }),
        ..checks("n1", [with_status(CheckStatus::Critical, check("ttl", "web"))])
    };
    assert_eq!(store.register(expire(1)), Err(CatalogRefusal::Stale));
    assert_eq!(store.register(expire(2)).unwrap(), ["H/web + n1/web [ttl]"]);
    let reap = |modified| {
        CatalogCommand::Deregister(Box::new(Deregistration {
            node: "n1".to_owned(),
            what: DeregistrationTarget::Service("web".to_owned()),
            guard: Some(CheckGuard { check_id: "ttl".to_owned(), modified: LogIndex(modified) }),
        }))
    };
    assert_eq!(store.run(reap(2)), Err(CatalogRefusal::Stale));
    let (done, _) = store.run(reap(4)).unwrap();
    assert!(done.changed);
}

#[test]
fn a_node_is_who_its_id_says() {
    let mut store = Store::new();
    store.register(Registration { service: Some(typical("web")), ..node_with_id("n1", 1) }).unwrap();
    // A registration without an id means the node of that name, and does not remove its id.
    assert_eq!(store.register(node("n1")), Ok(Vec::new()));
    let id_of =
        |store: &Store, name: &str| store.view(|view| view.node(name).unwrap().value.map(|node| node.id.clone()));
    let first = node_with_id("n1", 1).node.id;
    assert_eq!(id_of(&store, "n1"), Some(first.clone()));
    // The owner of the name has no passing serf check: the name may be taken.
    assert_eq!(store.register(node_with_id("N1", 2)).unwrap(), ["H/web + n1/web"]);
    assert_eq!(id_of(&store, "n1"), Some(node_with_id("n1", 2).node.id));
    assert_eq!(store.view(|view| view.node_by_id(&first).unwrap().map(|stored| stored.row)), None);
    // With a passing serf check it may not.
    store.register(checks("n1", [check("serfHealth", "")])).unwrap();
    assert_eq!(store.register(node_with_id("N1", 1)), Err(CatalogRefusal::NodeNameReserved));
    assert_eq!(store.register(node_with_id("n1", 2)), Ok(Vec::new()));
    // With a critical one it may.
    store.register(checks("n1", [with_status(CheckStatus::Critical, check("serfHealth", ""))])).unwrap();
    store.register(node_with_id("n1", 1)).unwrap();
    assert_eq!(id_of(&store, "n1"), Some(first));
    // A node without an id gives its name to one that has a new id.
    store.register(on("n2", typical("db"))).unwrap();
    assert_eq!(store.register(node_with_id("n2", 7)).unwrap(), ["H/db + n2/db"]);
}

#[test]
fn a_node_is_not_renamed_to_the_name_of_one_that_lives() {
    let alive = |name: &str| checks(name, [check("serfHealth", "")]);
    let dead = |name: &str| checks(name, [with_status(CheckStatus::Critical, check("serfHealth", ""))]);
    let first = |store: &mut Store, owner: Registration| {
        store.register(Registration { service: Some(typical("web")), ..node_with_id("x", 1) }).unwrap();
        store.register(Registration { service: Some(typical("db")), ..owner }).unwrap();
    };
    let names = |store: &Store| -> Vec<String> {
        store.view(|view| view.nodes().unwrap().value.iter().map(|node| node.name.clone()).collect())
    };
    for owner in [node("y"), node_with_id("y", 2)] {
        let mut store = Store::new();
        first(&mut store, owner.clone());
        store.register(alive("y")).unwrap();
        assert_eq!(store.register(node_with_id("Y", 1)), Err(CatalogRefusal::NodeNameReserved), "{owner:?}");
        assert_eq!(names(&store), ["x", "y"]);
        // A node without a passing serf check loses its name.
        store.register(dead("y")).unwrap();
        assert_eq!(
            store.register(node_with_id("Y", 1)).unwrap(),
            ["H/web - x/web", "H/db + y/db [serfHealth]", "H/web + y/web [serfHealth]"]
        );
        assert_eq!(names(&store), ["y"]);
    }
    // A new id takes the name of a node without an id, even of one that is alive; then the name is
    // owned.
    let mut store = Store::new();
    first(&mut store, node("y"));
    store.register(alive("y")).unwrap();
    assert_eq!(store.register(node_with_id("y", 3)).unwrap(), ["H/db + y/db [serfHealth]"]);
    assert_eq!(store.register(node_with_id("y", 4)), Err(CatalogRefusal::NodeNameReserved));
    // So does an id of a node that the same transaction has removed before, but not the id of a
    // node that it has created under another name.
    let mut store = Store::new();
    first(&mut store, node("y"));
    store.register(alive("y")).unwrap();
    store.catalog(|catalog| {
        catalog.set_node(node_with_id("z", 5).node)?;
        assert!(catalog.set_node(node_with_id("y", 5).node).is_err(), "it is called z");
        catalog.delete_node("z")?;
        catalog.set_node(node_with_id("y", 5).node)
    });
    assert_eq!(names(&store), ["x", "y"]);
}

#[test]
fn a_renamed_node_takes_everything_along() {
    let mut store = Store::new();
    store.register(Registration { service: Some(sidecar("p", "web")), ..node_with_id("n1", 1) }).unwrap();
    store.register(checks("n1", [check("alive", ""), check("ping", "p")])).unwrap();
    let mut renamed = node_with_id("n2", 1);
    renamed.service = Some(Service { port: 9, ..sidecar("p", "web") });
    let events = store.register(renamed).unwrap();
    assert_eq!(events, ["H/p - n1/p", "C/web - n1/p", "H/p + n2/p [alive ping]", "C/web + n2/p [alive ping]"]);
    store.view(|view| {
        assert_eq!(view.node("n1").unwrap().value, None);
        assert_eq!(view.checks_of_node("n1").unwrap().value, []);
        assert_eq!(view.service("n2", "p").unwrap().unwrap().row.port, 9, "what the registration says counts");
        assert_eq!(view.checks_in_state(None).unwrap().value.len(), 2);
    });
    assert_eq!(store.connect("web"), ["n2/p [alive ping]"]);
}

#[test]
fn checks_that_are_not_named_go_if_that_is_asked_for() {
    let mut store = Store::new();
    store.register(on("n1", typical("web"))).unwrap();
    store.register(checks("n1", [check("a", "web"), check("b", "web"), check("alive", "")])).unwrap();
    let replace = Registration {
        replace_checks: true,
        checks: vec![check("b", "web"), check("c", "web")],
        ..on("n1", typical("web"))
    };
    assert_eq!(store.register(replace).unwrap(), ["H/web + n1/web [alive b c]"]);
    // Without an instance it is about the checks of the node.
    let replace = Registration { replace_checks: true, ..checks("n1", [check("disk", ""), check("c", "web")]) };
    assert_eq!(store.register(replace).unwrap(), ["H/web + n1/web [disk b c]"]);
}

#[test]
fn a_command_tells_which_checks_failed_and_which_nodes_went() {
    let mut store = Store::new();
    store.register(on("n1", typical("web"))).unwrap();
    store.register(checks("n1", [check("a", "web"), check("b", "")])).unwrap();
    let pairs = |effect: CatalogEffect| {
        let failed: Vec<_> = effect.failed_checks.into_iter().map(|failed| (failed.node, failed.id)).collect();
        (failed, effect.removed_nodes.into_keys().collect::<Vec<_>>())
    };
    let set = |check: Check| {
        move |catalog: &mut CatalogTxn<'_, '_>| catalog.set_check(Check { node: "n1".to_owned(), ..check })
    };
    let failing = with_status(CheckStatus::Critical, check("a", "web"));
    let (effect, _) = store.catalog(set(with_status(CheckStatus::Warning, check("a", "web"))));
    assert_eq!(pairs(effect), (vec![], vec![]));
    let (effect, _) = store.catalog(set(failing.clone()));
    assert_eq!(pairs(effect), (vec![("n1".to_owned(), "a".to_owned())], vec![]));
    let (effect, _) = store.catalog(set(Check { output: "still".to_owned(), ..failing }));
    assert_eq!(pairs(effect), (vec![], vec![]));
    let (effect, _) = store.catalog(|catalog| catalog.delete_node("n1"));
    let gone = vec![("n1".to_owned(), "a".to_owned()), ("n1".to_owned(), "b".to_owned())];
    assert_eq!(pairs(effect), (gone, vec!["n1".to_owned()]));
}

#[test]
fn an_index_moves_with_what_it_is_about_and_with_nothing_else() {
    let mut store = Store::new();
    let web = |store: &Store| store.view(|view| view.instances("web").unwrap().index.get());
    let mesh = |store: &Store| store.view(|view| view.connect_instances("web").unwrap().index.get());
    let node = |store: &Store, name: &str| store.view(|view| view.node(name).unwrap().index.get());
    assert_eq!((web(&store), mesh(&store), node(&store, "n1")), (0, 0, 0));
    store.register(on("n1", typical("web"))).unwrap(); // 1
    assert_eq!((web(&store), mesh(&store), node(&store, "n1")), (1, 0, 1));
    store.register(on("n2", typical("other"))).unwrap(); // 2
    store.register(on("n1", typical("other"))).unwrap(); // 3
    assert_eq!((web(&store), mesh(&store), node(&store, "n1")), (1, 0, 3), "somebody else's");
    store.register(checks("n1", [check("ping", "web")])).unwrap(); // 4
    assert_eq!((web(&store), node(&store, "n1"), node(&store, "n2")), (4, 4, 2));
    store.register(checks("n1", [check("alive", "")])).unwrap(); // 5
    assert_eq!(web(&store), 5);
    store.register(on("n3", sidecar("proxy", "web"))).unwrap(); // 6
    assert_eq!((web(&store), mesh(&store)), (5, 6));
    store.deregister("n3", DeregistrationTarget::Node).unwrap(); // 7
    assert_eq!((web(&store), mesh(&store), node(&store, "n3")), (5, 7, 7));
    store.deregister("n1", DeregistrationTarget::Service("web".to_owned())).unwrap(); // 8
    assert_eq!((web(&store), mesh(&store)), (8, 7));
    store.register(on("n3", sidecar("proxy", "web"))).unwrap(); // 9
    store.register(on("n1", typical("web"))).unwrap(); // 10
    assert_eq!((web(&store), mesh(&store)), (10, 9), "an index never goes back");
    let gone = store.view(|view| view.query_index(&QueryIndexSubject::ServiceGone).unwrap());
    assert_eq!(gone, LogIndex(8));
    assert_eq!(store.view(|view| view.instances("nobody").unwrap().index), gone);
    assert_eq!(store.view(|view| view.head().revision.get()), 1, "the key-value face has not moved");
}

#[test]
fn nodes_and_tables_are_told_of_as_well() {
    let mut store = Store::new();
    let mut full = on("n1", typical("web"));
    full.checks = vec![check("ping", "web")];
    let all = |registration: Registration, store: &mut Store| {
        let mut registration = registration;
        registration.complete().unwrap();
        let (_, events) = store.run(CatalogCommand::Register(Box::new(registration))).unwrap();
        events.iter().map(show_event).filter(|event| event.starts_with(['N', 'T'])).collect::<Vec<_>>()
    };
    assert_eq!(all(full, &mut store), ["N/n1 +", "T/ + Nodes", "T/ + Services", "T/ + Checks"]);
    assert_eq!(all(checks("n1", [check("a", "")]), &mut store), ["N/n1 +", "T/ + Checks"]);
    let (_, events) = store.run(CatalogCommand::SetGateway(Box::new(gateway("gw", &["a"])))).unwrap();
    assert_eq!(events.iter().map(show_event).collect::<Vec<_>>(), ["T/ + Config"]);
    let (_, events) = store
        .run(CatalogCommand::Deregister(Box::new(Deregistration { node: "N1".to_owned(), ..Default::default() })))
        .unwrap();
    let events: Vec<String> = events.iter().map(show_event).filter(|event| event.starts_with(['N', 'T'])).collect();
    assert_eq!(events, ["N/n1 -", "T/ + Nodes", "T/ + Services", "T/ + Checks"]);
}

#[test]
fn names_of_services_come_with_the_tags_of_all_instances() {
    let mut store = Store::new();
    let tagged = |tags: &[&str]| Service { tags: tags.iter().map(|&tag| tag.to_owned()).collect(), ..typical("web") };
    store.register(on("n1", tagged(&["b", "a"]))).unwrap();
    store.register(on("n2", tagged(&["c", "a"]))).unwrap();
    // A name that an earlier version of the program accepted stays a separate name.
    let mut odd = on("n2", typical("other"));
    odd.complete().unwrap();
    if let Some(service) = &mut odd.service {
        service.name = "web\u{0}x".to_owned();
    }
    store.run(CatalogCommand::Register(Box::new(odd))).unwrap();
    let names = |store: &Store| {
        store.view(|view| {
            let names = view.service_names().unwrap().value;
            names.into_iter().map(|found| (found.name, found.tags.into_iter().collect::<String>())).collect::<Vec<_>>()
        })
    };
    let both = [("web".to_owned(), "abc".to_owned()), ("web\u{0}x".to_owned(), String::new())];
    assert_eq!(names(&store), both);
    store.deregister("n2", DeregistrationTarget::Service("web".to_owned())).unwrap();
    assert_eq!(names(&store)[0].1, "ab");
    store.deregister("n1", DeregistrationTarget::Node).unwrap();
    assert_eq!(names(&store), [("web\u{0}x".to_owned(), String::new())]);
    assert_eq!(store.view(|view| view.gateways().unwrap().value.len()), 0);
}

#[test]
fn a_full_store_takes_no_registration_but_lets_go() {
    let mut store = Store::new();
    store.register(on("n1", typical("web"))).unwrap();
    store.bed.apply(quota(Some(1)));
    let registration = on("n1", typical("db"));
    let refused = store.bed.apply(Command::Catalog(CatalogCommand::Register(Box::new(registration))));
    assert_eq!(refused, Outcome::Refused(Refusal::NoSpace));
    let refused = store.bed.apply(Command::Catalog(CatalogCommand::SetGateway(Box::new(gateway("gw", &["a"])))));
    assert_eq!(refused, Outcome::Refused(Refusal::NoSpace));
    assert_eq!(store.deregister("n1", DeregistrationTarget::Node).unwrap(), ["H/web - n1/web", "L/web -"]);
    assert_eq!(store.view(|view| view.head().live_bytes), 0);
}

#[test]
fn a_view_keeps_its_checks_whatever_is_remembered_since() {
    let mut store = Store::new();
    store.register(on("n1", typical("web"))).unwrap();
    store.register(checks("n1", [check("c1", "web"), check("alive", "")])).unwrap();
    let db = store.bed.store.current();
    let ids = |view: &ReadView<'_>| -> Vec<String> {
        let found = view.instances("web").unwrap().value;
        found[0].checks.iter().map(|check| format!("{}={}", check.id, check.status.as_str())).collect()
    };
    let first = db.view().unwrap();
    store.register(checks("n1", [check("c2", "web"), Check { output: "x".to_owned(), ..check("c1", "web") }])).unwrap();
    let second = db.view().unwrap();
    store.deregister("n1", DeregistrationTarget::Check("alive".to_owned())).unwrap();
    let third = db.view().unwrap();
    // In every order of the readers, which share a cache.
    for order in [[&first, &second, &third], [&third, &second, &first], [&second, &first, &third]] {
        for view in order {
            let wanted: &[&str] = match view.applied() {
                at if at == first.applied() => &["alive=passing", "c1=passing"],
                at if at == second.applied() => &["alive=passing", "c1=passing", "c2=passing"],
                _ => &["c1=passing", "c2=passing"],
            };
            assert_eq!(ids(view), wanted, "at {}", view.applied());
        }
    }
}
