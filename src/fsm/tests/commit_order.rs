//! The order of the operations of a commit cannot be seen.

use super::bed::*;
use super::commit::*;
use headwater_storage::state::CatalogReader;
use headwater_types::catalog::{CatalogCommand, CatalogNode, Check, CheckStatus, DeregistrationTarget, Registration};
use headwater_types::{Command, CommitOutcome, Outcome};

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
