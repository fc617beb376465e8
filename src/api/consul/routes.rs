//! Paths, their methods, and their handlers.
//!
//! A path that ends in `/` matches itself, with and without that slash, and everything below it. An
//! endpoint with exactly the requested path wins; else the longest match. To add an endpoint, add a
//! row to [`ENDPOINTS`] and a function of the shape of [`Handler`].

use futures::future::BoxFuture;
use http::Method;

use super::acl::{self, bindings, login, methods, policies, roles, templates, tokens};
use super::agent::{self, about, checks, maintenance, services};
use super::answer::{Answer, Refusal};
use super::call::Call;
use super::{catalog, config, health, kv, session, status, txn};
use headwater_types::limits::{CONSUL_BODY_BYTES_MAX, CONSUL_TXN_BODY_BYTES_MAX, CONSUL_VALUE_BYTES_MAX};

/// Serves one method of one path.
pub(super) type Handler = fn(Call) -> BoxFuture<'static, Result<Answer, Refusal>>;

/// One path with its methods and their handlers.
pub(super) struct Endpoint {
    pub(super) path: &'static str,
    pub(super) methods: &'static [(Method, Handler)],
    /// Largest body of a request, bytes.
    pub(super) body_bytes_max: usize,
}

macro_rules! endpoint {
    ($path:literal, $($method:ident => $handler:path),+) => {
        endpoint!($path, CONSUL_BODY_BYTES_MAX, $($method => $handler),+)
    };
    ($path:literal, $body_bytes_max:expr, $($method:ident => $handler:path),+) => {
        Endpoint {
            path: $path,
            methods: &[$((Method::$method, |call| Box::pin($handler(call)))),+],
            body_bytes_max: $body_bytes_max,
        }
    };
}

/// Every endpoint.
pub(super) const ENDPOINTS: &[Endpoint] = &[
    endpoint!("/v1/acl/auth-method", PUT => methods::create),
    endpoint!("/v1/acl/auth-method/", GET => methods::get, PUT => methods::update, DELETE => methods::remove),
    endpoint!("/v1/acl/auth-methods", GET => methods::list),
    endpoint!("/v1/acl/binding-rule", PUT => bindings::create),
    endpoint!("/v1/acl/binding-rule/", GET => bindings::get, PUT => bindings::update, DELETE => bindings::remove),
    endpoint!("/v1/acl/binding-rules", GET => bindings::list),
    endpoint!("/v1/acl/bootstrap", PUT => tokens::bootstrap),
    endpoint!("/v1/acl/clone/", PUT => acl::legacy),
    endpoint!("/v1/acl/create", PUT => acl::legacy),
    endpoint!("/v1/acl/destroy/", PUT => acl::legacy),
    endpoint!("/v1/acl/info/", GET => acl::legacy),
    endpoint!("/v1/acl/list", GET => acl::legacy),
    endpoint!("/v1/acl/login", PUT => login::login, POST => login::login),
    endpoint!("/v1/acl/logout", PUT => login::logout, POST => login::logout),
    endpoint!("/v1/acl/policies", GET => policies::list),
    endpoint!("/v1/acl/policy", PUT => policies::create),
    endpoint!("/v1/acl/policy/", GET => policies::get, PUT => policies::update, DELETE => policies::remove),
    endpoint!("/v1/acl/policy/name/", GET => policies::by_name),
    endpoint!("/v1/acl/replication", GET => acl::replication),
    endpoint!("/v1/acl/role", PUT => roles::create),
    endpoint!("/v1/acl/role/", GET => roles::get, PUT => roles::update, DELETE => roles::remove),
    endpoint!("/v1/acl/role/name/", GET => roles::by_name),
    endpoint!("/v1/acl/roles", GET => roles::list),
    endpoint!("/v1/acl/rules/translate", POST => acl::legacy),
    endpoint!("/v1/acl/rules/translate/", GET => acl::legacy),
    endpoint!("/v1/acl/templated-policies", GET => templates::list),
    endpoint!("/v1/acl/templated-policy/name/", GET => templates::get),
    endpoint!("/v1/acl/templated-policy/preview/", POST => templates::preview),
    endpoint!("/v1/acl/token", PUT => tokens::create),
    endpoint!("/v1/acl/token/", GET => tokens::get, PUT => tokens::update, DELETE => tokens::remove),
    endpoint!("/v1/acl/token/self", GET => tokens::own),
    endpoint!("/v1/acl/tokens", GET => tokens::list),
    endpoint!("/v1/acl/update", PUT => acl::legacy),
    endpoint!("/v1/agent/check/deregister/", PUT => checks::remove),
    endpoint!("/v1/agent/check/fail/", PUT => checks::fail),
    endpoint!("/v1/agent/check/pass/", PUT => checks::pass),
    endpoint!("/v1/agent/check/register", PUT => checks::add),
    endpoint!("/v1/agent/check/update/", PUT => checks::update),
    endpoint!("/v1/agent/check/warn/", PUT => checks::warn),
    endpoint!("/v1/agent/checks", GET => checks::list),
    endpoint!("/v1/agent/health/service/id/", GET => agent::health::by_id),
    endpoint!("/v1/agent/health/service/name/", GET => agent::health::by_name),
    endpoint!("/v1/agent/maintenance", PUT => maintenance::node),
    endpoint!("/v1/agent/members", GET => about::list_members),
    endpoint!("/v1/agent/self", GET => about::own),
    endpoint!("/v1/agent/service/", GET => services::one),
    endpoint!("/v1/agent/service/deregister/", PUT => services::remove),
    endpoint!("/v1/agent/service/maintenance/", PUT => maintenance::service),
    endpoint!("/v1/agent/service/register", PUT => services::add),
    endpoint!("/v1/agent/services", GET => services::list),
    endpoint!("/v1/agent/version", GET => about::version),
    endpoint!("/v1/catalog/connect/", GET => catalog::connect),
    endpoint!("/v1/catalog/datacenters", GET => catalog::datacenters),
    endpoint!("/v1/catalog/deregister", PUT => catalog::deregister),
    endpoint!("/v1/catalog/gateway-services/", GET => catalog::gateway_services),
    endpoint!("/v1/catalog/node-services/", GET => catalog::node_services),
    endpoint!("/v1/catalog/node/", GET => catalog::node),
    endpoint!("/v1/catalog/nodes", GET => catalog::nodes),
    endpoint!("/v1/catalog/register", PUT => catalog::register),
    endpoint!("/v1/catalog/service/", GET => catalog::service),
    endpoint!("/v1/catalog/services", GET => catalog::services),
    endpoint!("/v1/config", PUT => config::put),
    endpoint!("/v1/config/", GET => config::get, DELETE => config::delete),
    endpoint!("/v1/health/checks/", GET => health::service_checks),
    endpoint!("/v1/health/connect/", GET => health::connect),
    endpoint!("/v1/health/node/", GET => health::node),
    endpoint!("/v1/health/service/", GET => health::service),
    endpoint!("/v1/health/state/", GET => health::state),
    endpoint!("/v1/kv/", CONSUL_VALUE_BYTES_MAX, GET => kv::get, PUT => kv::put, DELETE => kv::delete),
    endpoint!("/v1/session/create", PUT => session::create),
    endpoint!("/v1/session/destroy/", PUT => session::destroy),
    endpoint!("/v1/session/renew/", PUT => session::renew),
    endpoint!("/v1/session/info/", GET => session::info),
    endpoint!("/v1/session/list", GET => session::list),
    endpoint!("/v1/session/node/", GET => session::of_node),
    endpoint!("/v1/txn", CONSUL_TXN_BODY_BYTES_MAX, PUT => txn::put),
    endpoint!("/v1/status/leader", GET => status::leader),
    endpoint!("/v1/status/peers", GET => status::peers),
];

/// The endpoint of a path, and the rest of the path after it. `None` if no endpoint matches.
pub(super) fn find(path: &str) -> Option<(&'static Endpoint, &str)> {
    if let Some(endpoint) = ENDPOINTS.iter().find(|endpoint| endpoint.path == path) {
        return Some((endpoint, ""));
    }
    let below = |endpoint: &'static Endpoint| {
        let head = endpoint.path.strip_suffix('/')?;
        let rest = path.strip_prefix(head)?;
        // `/v1/kv` is `/v1/kv/` with an empty rest.
        let rest = if rest.is_empty() { rest } else { rest.strip_prefix('/')? };
        Some((endpoint, rest))
    };
    ENDPOINTS.iter().filter_map(below).max_by_key(|(endpoint, _)| endpoint.path.len())
}

impl Endpoint {
    pub(super) fn handler(&self, method: &Method) -> Option<Handler> {
        self.methods.iter().find(|(known, _)| known == method).map(|(_, handler)| *handler)
    }

    /// The methods in the form of the header `Allow`: `OPTIONS`, then those with a handler,
    /// separated by commas.
    pub(super) fn allow(&self) -> String {
        let names: Vec<&str> =
            std::iter::once("OPTIONS").chain(self.methods.iter().map(|(method, _)| method.as_str())).collect();
        names.join(",")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn paths_are_listed_once_and_begin_alike() {
        let paths: BTreeSet<&str> = ENDPOINTS.iter().map(|endpoint| endpoint.path).collect();
        assert_eq!(paths.len(), ENDPOINTS.len());
        assert!(paths.iter().all(|path| path.starts_with("/v1/")));
    }

    #[test]
    fn unknown_paths_and_methods_are_found_out() {
        assert!(find("/v1").is_none() && find("/v1/").is_none() && find("/v1/nothing").is_none());
        assert!(find("/v1/status/leader/x").is_none());
        let (leader, rest) = find("/v1/status/leader").unwrap();
        assert_eq!((leader.path, rest, leader.allow().as_str()), ("/v1/status/leader", "", "OPTIONS,GET"));
        assert!(leader.handler(&Method::GET).is_some() && leader.handler(&Method::PUT).is_none());
    }
}
