//! The choice of instances, and their addresses, ports and weights.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::*;
use headwater_types::catalog::{Check, Service, ServiceAddress, Weights};

fn csn(id: &str, checks: &[CheckStatus]) -> Arc<CheckServiceNode> {
    changed(id, checks, |_, _| {})
}

fn changed(
    id: &str,
    checks: &[CheckStatus],
    change: impl FnOnce(&mut catalog::CatalogNode, &mut Service),
) -> Arc<CheckServiceNode> {
    let mut node =
        catalog::CatalogNode { name: format!("node-{id}"), address: "10.0.0.1".into(), ..Default::default() };
    let mut service = Service {
        node: node.name.clone(),
        id: id.into(),
        name: "web".into(),
        port: 8080,
        tags: vec!["Primary".into(), "v1.2".into()],
        weights: Weights { passing: 10, warning: 2 },
        ..Default::default()
    };
    change(&mut node, &mut service);
    let check = |status: &CheckStatus| Arc::new(Check { status: *status, ..Check::default() });
    let checks = checks.iter().map(check).collect();
    Arc::new(CheckServiceNode { node: Arc::new(node), service: Arc::new(service), checks })
}

fn chosen(all: &[Arc<CheckServiceNode>], tag: Option<&str>, only_passing: bool) -> Vec<Instance> {
    let Found::Instances(mut chosen) = instances(all, tag, only_passing) else { panic!("these are instances") };
    chosen.sort_by(|a, b| a.node.cmp(&b.node));
    chosen
}

#[test]
fn health() {
    use CheckStatus::{Critical, Passing, Warning};
    let cases: &[(&[CheckStatus], bool, bool, u16)] = &[
        (&[], true, true, 10),
        (&[Passing], true, true, 10),
        (&[Passing, Warning], true, false, 2),
        (&[Critical], false, false, 0),
        (&[Passing, Critical], false, false, 0),
        (&[Critical, Warning, Passing], false, false, 0),
    ];
    for (checks, is_chosen, is_chosen_if_only_passing, weight) in cases {
        let all = [csn("a", checks)];
        let found = chosen(&all, None, false);
        assert_eq!(!found.is_empty(), *is_chosen, "{checks:?}");
        assert_eq!(!chosen(&all, None, true).is_empty(), *is_chosen_if_only_passing, "{checks:?}");
        assert!(found.iter().all(|instance| instance.weight == *weight), "{checks:?}: {found:?}");
    }
}

#[test]
fn tags_have_no_case() {
    let all = [csn("a", &[])];
    for (tag, is_there) in [("primary", true), ("v1.2", true), ("secondary", false), ("", false)] {
        assert_eq!(!chosen(&all, Some(tag), false).is_empty(), is_there, "{tag:?}");
    }
}

#[test]
fn addresses_of_instances() {
    let of = |change: fn(&mut catalog::CatalogNode, &mut Service)| {
        chosen(&[changed("a", &[], change)], None, false).remove(0)
    };
    let v4 = |text: &str| text.parse::<IpAddr>().unwrap();

    let plain = of(|_, _| {});
    assert_eq!((plain.address, plain.is_at_node, plain.port), (Address::At(v4("10.0.0.1"), None), true, 8080));

    let own = of(|_, service| service.address = "10.0.0.9".into());
    assert_eq!((own.address, own.is_at_node), (Address::At(v4("10.0.0.9"), None), false));

    let both = of(|node, _| {
        node.tagged_addresses = BTreeMap::from([
            ("lan_ipv6".into(), "::9".into()),
            ("wan_ipv6".into(), "::1".into()),
            ("lan".into(), "x".into()),
        ]);
    });
    assert_eq!(both.address, Address::At(v4("10.0.0.1"), Some(v4("::9"))));

    let tagged = of(|node, service| {
        node.tagged_addresses = BTreeMap::from([("lan_ipv6".into(), "::9".into())]);
        service.address = "::5".into();
        let tagged = ServiceAddress { address: "10.0.0.5".into(), port: 1 };
        service.tagged_addresses = BTreeMap::from([("lan_ipv4".into(), tagged)]);
    });
    assert_eq!(tagged.address, Address::At(v4("::5"), Some(v4("10.0.0.5"))), "those of the node are not the service's");

    let alias = of(|_, service| service.address = "db.example.com".into());
    assert!(matches!(alias.address, Address::Alias(name) if name.to_ascii() == "db.example.com."));
    assert_eq!(of(|node, _| node.address = "not a host".into()).address, Address::Unknown);
    assert_eq!(of(|node, _| node.address.clear()).address, Address::Unknown);
}

#[test]
fn numbers_that_records_cannot_hold() {
    let instance = changed("a", &[], |_, service| {
        service.port = -1;
        service.weights.passing = 1_000_000;
    });
    let found = chosen(&[instance], None, false).remove(0);
    assert_eq!((found.port, found.weight), (0, u16::MAX));
}

#[test]
fn instances_come_in_any_order() {
    let all: Vec<_> = (0..4).map(|at| csn(&at.to_string(), &[])).collect();
    let firsts: BTreeSet<String> = (0..200)
        .map(|_| match instances(&all, None, false) {
            Found::Instances(chosen) => chosen[0].node.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    // The chance that one of the four never comes first in 200 runs is below 10^-24.
    assert_eq!(firsts.len(), 4);
}

#[test]
fn addresses_of_members() {
    for (url, wanted) in [
        ("http://10.0.0.1:2379", Some("10.0.0.1")),
        ("http://[::1]:2379", Some("::1")),
        ("http://node1:2379", None),
        ("", None),
    ] {
        assert_eq!(address_of(url), wanted.map(|text| text.parse().unwrap()), "{url}");
    }
}
