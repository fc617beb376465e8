//! Every method and path has a row, and the rows admit and refuse as they should.

use std::collections::BTreeSet;

use super::*;
use headwater_node::{NamedPrincipal, PrincipalKind};

#[test]
fn every_served_method_has_one_row() {
    let listed: Vec<&str> = methods::METHODS.iter().map(|row| row.path).collect();
    let rows: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(rows.len(), listed.len(), "a method is listed twice");
    let served = crate::service::served_methods();
    let missing: Vec<_> = served.iter().filter(|path| !rows.contains(path.as_str())).collect();
    assert!(missing.is_empty(), "these methods have no requirement: {missing:?}");
    let gone: Vec<_> = rows.iter().filter(|path| !served.contains(**path)).collect();
    assert!(gone.is_empty(), "these rows are of no method: {gone:?}");
}

#[test]
fn every_path_of_consul_has_one_row() {
    let name = |method: &Method, path: &str| format!("{method} {path}");
    let listed: Vec<String> = paths::CONSUL.iter().map(|found| name(&found.method, found.row.path)).collect();
    let rows: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(rows.len(), listed.len(), "a path is listed twice");
    let served: BTreeSet<String> =
        headwater_api_consul::served_paths().map(|(method, path)| name(method, path)).collect();
    let missing: Vec<_> = served.difference(&rows).collect();
    assert!(missing.is_empty(), "these paths have no requirement: {missing:?}");
    let gone: Vec<_> = rows.difference(&served).collect();
    assert!(gone.is_empty(), "these rows are of no path: {gone:?}");
}

#[test]
fn configuration_entries_are_changed_with_the_right_to_the_mesh() {
    let mesh = Requirement::ByHandler(&[(Space::Mesh, Access::WRITE)]);
    assert_eq!(Operation::of_consul(&Method::PUT, "/v1/config").requirement, mesh);
    assert_eq!(Operation::of_consul(&Method::DELETE, "/v1/config/").requirement, mesh);
}

#[test]
fn every_plain_path_has_a_row() {
    for path in
        ["/health", "/livez", "/livez/x", "/readyz", "/readyz/x", "/version", "/metrics", "/ui", "/ui/", "/ui/app.js"]
    {
        assert_eq!(Operation::of_plain(&Method::GET, path).requirement, Requirement::Open, "{path}");
    }
    for path in ["/", "/healthz", "/metrics/x", "/debug/pprof", "/livezz", "/uix"] {
        assert_eq!(Operation::of_plain(&Method::GET, path).requirement, Requirement::Root, "{path}");
    }
}

#[test]
fn what_has_no_row_is_for_root() {
    assert_eq!(Operation::of_method("etcd", "/etcdserverpb.KV/Fly").requirement, Requirement::Root);
    assert_eq!(Operation::of_consul(&Method::POST, "/v1/kv/").requirement, Requirement::Root);
}

#[test]
fn refusals_name_nothing_and_have_the_texts_of_their_faces() {
    let refused = |refusal| NodeError::from(Refusal::from(refusal));
    for (path, refusal, wanted) in [
        ("/etcdserverpb.KV/Range", AuthRefusal::UserEmpty, (3, "etcdserver: user name is empty")),
        ("/etcdserverpb.KV/Range", AuthRefusal::PermissionDenied, (7, "etcdserver: permission denied")),
        ("/etcdserverpb.KV/Range", AuthRefusal::InvalidToken, (16, "etcdserver: invalid auth token")),
        ("/watch/Watch", AuthRefusal::PermissionDenied, (7, "etcdserver: permission denied")),
        ("/google.watcher.v1.Watcher/Watch", AuthRefusal::UserEmpty, (16, "user name is empty")),
        ("/google.watcher.v1.Watcher/Watch", AuthRefusal::PermissionDenied, (7, "permission denied")),
    ] {
        let status = grpc_refusal(path, &refused(refusal));
        assert_eq!((status.code() as i32, status.message()), wanted, "{path} {refusal:?}");
    }
    assert_eq!(plain_refusal(&refused(AuthRefusal::UserEmpty)).status(), 401);
    assert_eq!(plain_refusal(&refused(AuthRefusal::PermissionDenied)).status(), 403);
}

#[test]
fn locks_open_for_those_who_have_the_right() {
    use headwater_types::acl::ACL_ANONYMOUS_ACCESSOR;
    use headwater_types::{LogIndex, Rights};
    let authorizer = |name: Option<&str>, rights: Rights| {
        let named = name.map(|name| NamedPrincipal {
            name: name.into(),
            kind: PrincipalKind::User,
            auth_revision: 1,
            follows: true,
        });
        Authorizer::of(named.map(Arc::new), Arc::new(rights), LogIndex(1))
    };
    let keys = |access| Rights::union([(Space::Kv, KeyRange::prefix("a".into()), access)]);
    let nothing = Rights::none;
    let table = [
        (Requirement::Open, [true, true, true, true]),
        (Requirement::Stream, [true, true, true, true]),
        (Requirement::Authenticated, [false, true, true, true]),
        (Requirement::ByNode, [false, true, true, true]),
        (Requirement::AnyOf(&[(Space::Kv, Access::READ)]), [false, false, true, true]),
        (Requirement::AnyOf(&[(Space::Kv, Access::WRITE)]), [false, false, false, true]),
        (Requirement::ByHandler(&[(Space::Kv, Access::READ)]), [true, true, true, true]),
        (Requirement::Whole(Space::Cluster, Access::WRITE), [false, false, false, true]),
        (Requirement::Root, [false, false, false, true]),
    ];
    for (requirement, wanted) in table {
        let judges = [
            authorizer(None, nothing()),
            authorizer(Some("alice"), nothing()),
            authorizer(Some("alice"), keys(Access::READ)),
            authorizer(Some("root"), Rights::everything()),
        ];
        assert_eq!(judges.map(|authorizer| requirement.permit(&authorizer).is_ok()), wanted, "{requirement:?}");
    }
    let anonymous = authorizer(None, nothing());
    assert_eq!(Requirement::Root.permit(&anonymous), Err(AuthRefusal::UserEmpty));
    // Consul's anonymous token may have rights, but never counts as authenticated.
    let token = |rights| {
        let (name, kind) = (ACL_ANONYMOUS_ACCESSOR.into(), PrincipalKind::Token);
        Authorizer::of(
            Some(Arc::new(NamedPrincipal { name, kind, auth_revision: 0, follows: true })),
            Arc::new(rights),
            LogIndex(1),
        )
    };
    for anonymous in [authorizer(None, keys(Access::READ)), token(keys(Access::READ))] {
        assert_eq!(Requirement::ByNode.permit(&anonymous), Ok(()));
        assert_eq!(Requirement::AnyOf(&[(Space::Kv, Access::READ)]).permit(&anonymous), Ok(()));
        for requirement in [Requirement::Authenticated, Requirement::Members, Requirement::Root] {
            assert_eq!(requirement.permit(&anonymous), Err(AuthRefusal::PermissionDenied), "{requirement:?}");
        }
    }
    for requirement in [Requirement::Authenticated, Requirement::Members, Requirement::ByNode, Requirement::Root] {
        assert_eq!(requirement.permit(&token(nothing())), Err(AuthRefusal::UserEmpty), "{requirement:?}");
    }
}
