//! Every row of the table of spec consul §2.4, and every case of §2.11 that applies here: a step,
//! and its events. With `--nocapture` the tests print them.

use super::*;

/// Preparation, step, and the events of the step, in order.
type Case = (&'static str, fn(&mut Store), fn(&mut Store) -> Vec<String>, &'static [&'static str]);

fn ok(done: Done) -> Vec<String> {
    done.unwrap()
}

fn nothing(_: &mut Store) {}

/// Registers an instance of `web` on `n1`.
fn web(store: &mut Store) {
    ok(store.register(on("n1", typical("web"))));
}

/// `web` and its sidecar on `n1`.
fn meshed(store: &mut Store) {
    web(store);
    ok(store.register(on("n1", sidecar("web-proxy", "web"))));
}

/// `web`, a sidecar and a native `api` on `n1`.
fn several(store: &mut Store) {
    meshed(store);
    ok(store.register(on("n1", native("api"))));
}

/// A gateway `gw` on `n1`, with its configuration.
fn linked(store: &mut Store) {
    ok(store.link("gw", &["srv1", "srv2"]));
    ok(store.register(on("n1", gateway_instance("gw"))));
}

fn run_all(cases: &[Case]) {
    let mut wrong = Vec::new();
    for (name, before, act, wanted) in cases {
        let mut store = Store::new();
        before(&mut store);
        let events = act(&mut store);
        println!("{name}");
        for event in &events {
            println!("    {event}");
        }
        if events != *wanted {
            wrong.push(format!("{name}: {events:?}, wanted {wanted:?}"));
        }
        history::assert_replays(store, name);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn services_nodes_and_checks() {
    let cases: &[Case] = &[
        ("register a node alone: irrelevant", nothing, |s| ok(s.register(node("n1"))), &[]),
        ("a change of a gateway's entry without instances: irrelevant", nothing, |s| ok(s.link("gw", &["srv1"])), &[]),
        (
            "register a service on a new node",
            nothing,
            |s| ok(s.register(on("n1", typical("web")))),
            &["H/web + n1/web", "L/web +"],
        ),
        ("register the same again", web, |s| ok(s.register(on("n1", typical("web")))), &[]),
        (
            "register a second service on a node that stays as it is",
            web,
            |s| ok(s.register(on("n1", typical("db")))),
            &["H/db + n1/db", "L/db +"],
        ),
        ("register a second instance", web, |s| ok(s.register(on("n2", typical("web")))), &["H/web + n2/web"]),
        (
            "change the address of a node",
            several,
            |s| {
                let mut registration = node("n1");
                registration.node.address = "10.0.0.2".to_owned();
                ok(s.register(registration))
            },
            &[
                "H/api + n1/api",
                "H/web + n1/web",
                "H/web-proxy + n1/web-proxy",
                "C/api + n1/api",
                "C/web + n1/web-proxy",
            ],
        ),
        (
            "change the meta of a node",
            web,
            |s| {
                let mut registration = node("n1");
                registration.node.meta.insert("a".to_owned(), "b".to_owned());
                ok(s.register(registration))
            },
            &["H/web + n1/web"],
        ),
        (
            "change a tagged address of a node",
            web,
            |s| {
                let mut registration = node("n1");
                registration.node.tagged_addresses.insert("lan".to_owned(), "10.0.0.3".to_owned());
                ok(s.register(registration))
            },
            &["H/web + n1/web"],
        ),
        (
            "change a node that must not be updated",
            web,
            |s| {
                let mut registration = Registration { skip_node_update: true, ..node("n1") };
                registration.node.address = "10.0.0.2".to_owned();
                ok(s.register(registration))
            },
            &[],
        ),
        (
            "rename a node with several services",
            |s| {
                ok(s.register(Registration { service: Some(typical("web")), ..node_with_id("n1", 1) }));
                ok(s.register(Registration { service: Some(native("api")), ..node_with_id("n1", 1) }));
                ok(s.register(checks("n1", [check("alive", ""), check("ping", "web")])));
            },
            |s| ok(s.register(node_with_id("n2", 1))),
            &[
                "H/api - n1/api",
                "H/web - n1/web",
                "C/api - n1/api",
                "H/api + n2/api [alive]",
                "H/web + n2/web [alive ping]",
                "C/api + n2/api [alive]",
            ],
        ),
        (
            "add a check of the node",
            several,
            |s| ok(s.register(checks("n1", [check("alive", "")]))),
            &[
                "H/api + n1/api [alive]",
                "H/web + n1/web [alive]",
                "H/web-proxy + n1/web-proxy [alive]",
                "C/api + n1/api [alive]",
                "C/web + n1/web-proxy [alive]",
            ],
        ),
        (
            "a check of the node fails",
            |s| {
                several(s);
                ok(s.register(checks("n1", [check("alive", "")])));
            },
            |s| ok(s.register(checks("n1", [Check { status: CheckStatus::Critical, ..check("alive", "") }]))),
            &[
                "H/api + n1/api [alive]",
                "H/web + n1/web [alive]",
                "H/web-proxy + n1/web-proxy [alive]",
                "C/api + n1/api [alive]",
                "C/web + n1/web-proxy [alive]",
            ],
        ),
        (
            "delete a check of the node",
            |s| {
                several(s);
                ok(s.register(checks("n1", [check("alive", "")])));
            },
            |s| ok(s.deregister("n1", DeregistrationTarget::Check("alive".to_owned()))),
            &[
                "H/api + n1/api",
                "H/web + n1/web",
                "H/web-proxy + n1/web-proxy",
                "C/api + n1/api",
                "C/web + n1/web-proxy",
            ],
        ),
        (
            "add a check of an instance",
            several,
            |s| ok(s.register(checks("n1", [check("ping", "web")]))),
            &["H/web + n1/web [ping]"],
        ),
        (
            "a check of an instance fails",
            |s| {
                several(s);
                ok(s.register(checks("n1", [check("ping", "api")])));
            },
            |s| ok(s.register(checks("n1", [Check { status: CheckStatus::Critical, ..check("ping", "api") }]))),
            &["H/api + n1/api [ping]", "C/api + n1/api [ping]"],
        ),
        (
            "the output of a check changes",
            |s| {
                web(s);
                ok(s.register(checks("n1", [check("ping", "web")])));
            },
            |s| ok(s.register(checks("n1", [Check { output: "4 ms".to_owned(), ..check("ping", "web") }]))),
            &["H/web + n1/web [ping]"],
        ),
        (
            "delete a check of an instance",
            |s| {
                several(s);
                ok(s.register(checks("n1", [check("ping", "web-proxy")])));
            },
            |s| ok(s.deregister("n1", DeregistrationTarget::Check("ping".to_owned()))),
            &["H/web-proxy + n1/web-proxy", "C/web + n1/web-proxy"],
        ),
        (
            "a check moves from the node to an instance",
            |s| {
                several(s);
                ok(s.register(checks("n1", [check("c", "")])));
            },
            |s| ok(s.register(checks("n1", [check("c", "web")]))),
            &[
                "H/api + n1/api",
                "H/web + n1/web [c]",
                "H/web-proxy + n1/web-proxy",
                "C/api + n1/api",
                "C/web + n1/web-proxy",
            ],
        ),
        (
            "a check moves from an instance to the node",
            |s| {
                meshed(s);
                ok(s.register(checks("n1", [check("c", "web")])));
            },
            |s| ok(s.register(checks("n1", [check("c", "")]))),
            &["H/web + n1/web [c]", "H/web-proxy + n1/web-proxy [c]", "C/web + n1/web-proxy [c]"],
        ),
        (
            "a check moves from one instance to another",
            |s| {
                web(s);
                ok(s.register(on("n1", typical("db"))));
                ok(s.register(checks("n1", [check("c", "web")])));
            },
            |s| ok(s.register(checks("n1", [check("c", "db")]))),
            &["H/db + n1/db [c]", "H/web + n1/web"],
        ),
        (
            "deregister a service",
            |s| {
                web(s);
                ok(s.register(on("n1", typical("db"))));
                ok(s.register(checks("n1", [check("ping", "web")])));
            },
            |s| ok(s.deregister("n1", DeregistrationTarget::Service("web".to_owned()))),
            &["H/web - n1/web", "L/web -"],
        ),
        (
            "deregister what is not there",
            web,
            |s| {
                let mut events = ok(s.deregister("n1", DeregistrationTarget::Service("db".to_owned())));
                events.extend(ok(s.deregister("n1", DeregistrationTarget::Check("c".to_owned()))));
                events.extend(ok(s.deregister("n2", DeregistrationTarget::Node)));
                events
            },
            &[],
        ),
        (
            "deregister a node",
            several,
            |s| ok(s.deregister("n1", DeregistrationTarget::Node)),
            &[
                "H/api - n1/api",
                "H/web - n1/web",
                "H/web-proxy - n1/web-proxy",
                "C/api - n1/api",
                "C/web - n1/web-proxy",
                "L/api -",
                "L/web -",
                "L/web-proxy -",
            ],
        ),
        (
            "rename a service, whose id stays",
            web,
            |s| ok(s.register(on("n1", with_id("web", typical("web2"))))),
            &["H/web - n1/web", "L/web -", "H/web2 + n1/web", "L/web2 +"],
        ),
        (
            "rename a service by the case of its name alone",
            web,
            |s| ok(s.register(on("n1", with_id("web", typical("Web"))))),
            &["L/web -", "H/web + n1/web", "L/Web +"],
        ),
        (
            "remove a node and make it again, written otherwise, in one transaction",
            meshed,
            |s| {
                let (effect, events) = s.catalog(|catalog| {
                    catalog.delete_node("n1")?;
                    catalog.set_node(node("N1").node)?;
                    catalog.set_service(Service { node: "n1".to_owned(), ..typical("web") })?;
                    catalog.set_service(Service { node: "n1".to_owned(), ..sidecar("web-proxy", "web") })
                });
                assert!(effect.removed_nodes.is_empty());
                show_events(&events)
            },
            &[
                "H/web - n1/web",
                "H/web-proxy - n1/web-proxy",
                "C/web - n1/web-proxy",
                "H/web + N1/web",
                "H/web-proxy + N1/web-proxy",
                "C/web + N1/web-proxy",
            ],
        ),
        (
            "many services on many nodes in one transaction",
            |s| {
                several(s);
                ok(s.register(on("n2", typical("web"))));
                ok(s.register(on("n3", typical("db"))));
            },
            |s| {
                let (effect, events) = s.catalog(|catalog| {
                    catalog.delete_node("n3")?;
                    catalog.set_service(Service { node: "n1".to_owned(), port: 80, ..typical("web") })?;
                    catalog.set_service(Service { node: "n2".to_owned(), ..typical("cache") })?;
                    catalog.set_check(Check { node: "n2".to_owned(), ..check("alive", "") })?;
                    catalog.set_check(Check { node: "n1".to_owned(), ..check("ping", "api") })
                });
                assert!(effect.removed_nodes.keys().eq(["n3"]));
                show_events(&events)
            },
            &[
                "H/db - n3/db",
                "L/db -",
                "H/api + n1/api [ping]",
                "H/cache + n2/cache [alive]",
                "H/web + n1/web",
                "H/web + n2/web [alive]",
                "C/api + n1/api [ping]",
                "L/cache +",
            ],
        ),
    ];
    run_all(cases);
}

#[test]
fn the_mesh() {
    let cases: &[Case] = &[
        (
            "register a native service on a new node",
            nothing,
            |s| ok(s.register(on("n1", native("api")))),
            &["H/api + n1/api", "C/api + n1/api", "L/api +"],
        ),
        (
            "register a native service on a node that is there",
            web,
            |s| ok(s.register(on("n1", native("api")))),
            &["H/api + n1/api", "C/api + n1/api", "L/api +"],
        ),
        (
            "deregister a native service",
            |s| {
                ok(s.register(on("n1", native("api"))));
            },
            |s| ok(s.deregister("n1", DeregistrationTarget::Service("api".to_owned()))),
            &["H/api - n1/api", "C/api - n1/api", "L/api -"],
        ),
        (
            "a native service is native no more",
            |s| {
                ok(s.register(on("n1", native("api"))));
            },
            |s| ok(s.register(on("n1", typical("api")))),
            &["C/api - n1/api", "H/api + n1/api"],
        ),
        (
            "register a sidecar on a new node",
            nothing,
            |s| ok(s.register(on("n1", sidecar("web-proxy", "web")))),
            &["H/web-proxy + n1/web-proxy", "C/web + n1/web-proxy", "L/web-proxy +"],
        ),
        (
            "register a sidecar on the node of its service",
            web,
            |s| ok(s.register(on("n1", sidecar("web-proxy", "web")))),
            &["H/web-proxy + n1/web-proxy", "C/web + n1/web-proxy", "L/web-proxy +"],
        ),
        (
            "deregister a sidecar",
            meshed,
            |s| ok(s.deregister("n1", DeregistrationTarget::Service("web-proxy".to_owned()))),
            &["H/web-proxy - n1/web-proxy", "C/web - n1/web-proxy", "L/web-proxy -"],
        ),
        (
            "change a service whose sidecar stays as it is",
            meshed,
            |s| ok(s.register(on("n1", Service { port: 80, ..typical("web") }))),
            &["H/web + n1/web"],
        ),
        (
            "change a sidecar",
            meshed,
            |s| ok(s.register(on("n1", Service { port: 80, ..sidecar("web-proxy", "web") }))),
            &["H/web-proxy + n1/web-proxy", "C/web + n1/web-proxy"],
        ),
        (
            "rename a sidecar",
            meshed,
            |s| ok(s.register(on("n1", with_id("web-proxy", sidecar("front", "web"))))),
            &[
                "H/web-proxy - n1/web-proxy",
                "C/web - n1/web-proxy",
                "L/web-proxy -",
                "H/front + n1/web-proxy",
                "C/web + n1/web-proxy",
                "L/front +",
            ],
        ),
        (
            "rename a sidecar and change its node at once",
            meshed,
            |s| {
                let mut registration = on("n1", with_id("web-proxy", sidecar("front", "web")));
                registration.node.address = "10.0.0.2".to_owned();
                ok(s.register(registration))
            },
            &[
                "H/web-proxy - n1/web-proxy",
                "C/web - n1/web-proxy",
                "L/web-proxy -",
                "H/front + n1/web-proxy",
                "H/web + n1/web",
                "C/web + n1/web-proxy",
                "L/front +",
            ],
        ),
        (
            "change the destination of a sidecar",
            meshed,
            |s| ok(s.register(on("n1", sidecar("web-proxy", "api")))),
            &["C/web - n1/web-proxy", "H/web-proxy + n1/web-proxy", "C/api + n1/web-proxy"],
        ),
        (
            "a mesh gateway has no subscribers in the mesh",
            nothing,
            |s| ok(s.register(on("n1", Service { kind: ServiceKind::MeshGateway, ..typical("mesh") }))),
            &["H/mesh + n1/mesh", "L/mesh +"],
        ),
    ];
    run_all(cases);
}

#[test]
fn terminating_gateways() {
    let cases: &[Case] = &[
        (
            "an instance without an entry",
            nothing,
            |s| ok(s.register(on("n1", gateway_instance("gw")))),
            &["H/gw + n1/gw", "L/gw +"],
        ),
        ("an entry without an instance", nothing, |s| ok(s.link("gw", &["srv1"])), &[]),
        (
            "an instance after the entry",
            |s| {
                ok(s.link("gw", &["srv1", "srv2"]));
            },
            |s| ok(s.register(on("n1", gateway_instance("gw")))),
            &["H/gw + n1/gw", "C/srv1 + n1/gw", "C/srv2 + n1/gw", "L/gw +"],
        ),
        (
            "an instance is updated",
            linked,
            |s| ok(s.register(on("n1", Service { port: 443, ..gateway_instance("gw") }))),
            &["H/gw + n1/gw", "C/srv1 + n1/gw", "C/srv2 + n1/gw"],
        ),
        (
            "the entry after two instances",
            |s| {
                ok(s.register(on("n1", gateway_instance("gw"))));
                ok(s.register(on("n2", gateway_instance("gw"))));
            },
            |s| ok(s.link("gw", &["srv1", "srv2"])),
            &["C/srv1 + n1/gw", "C/srv1 + n2/gw", "C/srv2 + n1/gw", "C/srv2 + n2/gw"],
        ),
        (
            "the entry adds a service",
            |s| {
                ok(s.link("gw", &["srv1"]));
                ok(s.register(on("n1", gateway_instance("gw"))));
            },
            |s| ok(s.link("gw", &["srv1", "srv2"])),
            &["C/srv2 + n1/gw"],
        ),
        // The event without a service name is for subscribers of the whole mesh: the gateway is
        // still in it.
        ("the entry removes a service", linked, |s| ok(s.link("gw", &["srv2"])), &["C/srv1 - n1/gw", "C/ + n1/gw"]),
        (
            "the entry removes a service and adds another",
            linked,
            |s| ok(s.link("gw", &["srv2", "srv3"])),
            &["C/srv1 - n1/gw", "C/srv3 + n1/gw"],
        ),
        ("the entry is the same", linked, |s| ok(s.link("gw", &["srv1", "srv2"])), &[]),
        (
            "a linked service is linked otherwise",
            linked,
            |s| {
                let mut changed = gateway("gw", &["srv1", "srv2"]);
                changed.services[0].sni = "srv1.example".to_owned();
                let (_, events) = s.run(CatalogCommand::SetGateway(Box::new(changed))).unwrap();
                show_events(&events)
            },
            &["C/srv1 - n1/gw", "C/srv1 + n1/gw"],
        ),
        (
            "the entry is deleted",
            linked,
            |s| {
                let (_, events) = s.run(CatalogCommand::DeleteGateway("gw".to_owned())).unwrap();
                show_events(&events)
            },
            &["C/srv1 - n1/gw", "C/srv2 - n1/gw"],
        ),
        (
            "an instance of a linked service comes",
            linked,
            |s| ok(s.register(on("n2", typical("srv1")))),
            &["H/srv1 + n2/srv1", "L/srv1 +"],
        ),
        (
            "an instance of a linked service goes",
            |s| {
                linked(s);
                ok(s.register(on("n2", typical("srv1"))));
            },
            |s| ok(s.deregister("n2", DeregistrationTarget::Node)),
            &["H/srv1 - n2/srv1", "L/srv1 -"],
        ),
        (
            "the gateway is renamed, and another entry is about its new name",
            |s| {
                linked(s);
                ok(s.link("gw2", &["srv3"]));
            },
            |s| ok(s.register(on("n1", with_id("gw", gateway_instance("gw2"))))),
            &[
                "H/gw - n1/gw",
                "C/srv1 - n1/gw",
                "C/srv2 - n1/gw",
                "L/gw -",
                "H/gw2 + n1/gw",
                "C/srv3 + n1/gw",
                "L/gw2 +",
            ],
        ),
        (
            "the gateway is deregistered",
            linked,
            |s| ok(s.deregister("n1", DeregistrationTarget::Service("gw".to_owned()))),
            &["H/gw - n1/gw", "C/srv1 - n1/gw", "C/srv2 - n1/gw", "L/gw -"],
        ),
        (
            "the gateway and its entry go in one transaction",
            linked,
            |s| {
                let (_, events) = s.catalog(|catalog| {
                    catalog.delete_gateway("gw")?;
                    catalog.delete_service("n1", "gw")
                });
                show_events(&events)
            },
            &["H/gw - n1/gw", "C/srv1 - n1/gw", "C/srv2 - n1/gw", "L/gw -"],
        ),
    ];
    run_all(cases);
}
