//! The requirement of each HTTP path that is not a gRPC method.
//!
//! The gateway (`/v3/…`, `/v1/store/…`), REST (`/api/…`) and `/v1/watch` call gRPC methods in this
//! process, so the requirements of those methods apply. The paths of Consul have a row for each
//! method of its routes; a test compares.

use headwater_types::{Access, Space};
use http::Method;

use super::{Effect, Requirement, Row};

const READ: Access = Access::READ;
const WRITE: Access = Access::WRITE;

const NODE_READ: (Space, Access) = (Space::CatalogNode, READ);
const NODE_WRITE: (Space, Access) = (Space::CatalogNode, WRITE);
const SERVICE_READ: (Space, Access) = (Space::CatalogService, READ);
const SERVICE_WRITE: (Space, Access) = (Space::CatalogService, WRITE);
const MESH_WRITE: (Space, Access) = (Space::Mesh, WRITE);
const SESSION_READ: (Space, Access) = (Space::Session, READ);
const SESSION_WRITE: (Space, Access) = (Space::Session, WRITE);
const AGENT_READ: (Space, Access) = (Space::Agent, READ);
const AUTH_READ: Requirement = judged(&[(Space::Auth, READ)]);
const AUTH_WRITE: Requirement = judged(&[(Space::Auth, WRITE)]);
const KEY_READ: (Space, Access) = (Space::Kv, READ);
const KEY_WRITE: (Space, Access) = (Space::Kv, WRITE);

/// Paths of plain HTTP. Their answers have the node's health, version and metrics, or the console's
/// files, and no stored data. Load balancers and monitoring ask without credentials, as they ask
/// etcd.
pub(super) const PLAIN: &[Row] = &[
    plain("/health"),
    plain("/livez"),
    plain("/livez/"),
    plain("/readyz"),
    plain("/readyz/"),
    plain("/version"),
    plain("/metrics"),
    // Files without data.
    plain("/ui"),
    plain("/ui/"),
];

const fn plain(path: &'static str) -> Row {
    Row { path, requirement: Requirement::Open, effect: Effect::Reads }
}

/// A method of a path of Consul's, with its requirement.
pub(super) struct ConsulRow {
    pub(super) method: Method,
    pub(super) row: Row,
}

const fn get(path: &'static str, requirement: Requirement) -> ConsulRow {
    ConsulRow { method: Method::GET, row: Row { path, requirement, effect: Effect::Reads } }
}

const fn put(path: &'static str, requirement: Requirement) -> ConsulRow {
    ConsulRow { method: Method::PUT, row: Row { path, requirement, effect: Effect::Changes } }
}

const fn post(path: &'static str, requirement: Requirement) -> ConsulRow {
    ConsulRow { method: Method::POST, row: Row { path, requirement, effect: Effect::Changes } }
}

const fn delete(path: &'static str, requirement: Requirement) -> ConsulRow {
    ConsulRow { method: Method::DELETE, row: Row { path, requirement, effect: Effect::Changes } }
}

/// A requirement that leaves the judgement to the handler, which asks for the accesses `wanted` by
/// the exact names. Lists leave out rows that may not be read. Without the right, a request for a
/// single object is refused, or answered as if the object did not exist.
const fn judged(wanted: &'static [(Space, Access)]) -> Requirement {
    Requirement::ByHandler(wanted)
}

/// Every method of every path of Consul's that is served.
pub(super) const CONSUL: &[ConsulRow] = &[
    // The handlers ask for the right to tokens and policies; a token may read itself.
    put("/v1/acl/auth-method", AUTH_WRITE),
    get("/v1/acl/auth-method/", AUTH_READ),
    put("/v1/acl/auth-method/", AUTH_WRITE),
    delete("/v1/acl/auth-method/", AUTH_WRITE),
    get("/v1/acl/auth-methods", AUTH_READ),
    put("/v1/acl/binding-rule", AUTH_WRITE),
    get("/v1/acl/binding-rule/", AUTH_READ),
    put("/v1/acl/binding-rule/", AUTH_WRITE),
    delete("/v1/acl/binding-rule/", AUTH_WRITE),
    get("/v1/acl/binding-rules", AUTH_READ),
    // The first client to ask gets the first token. While etcd's authentication is on, the node
    // asks for root.
    put("/v1/acl/bootstrap", Requirement::Open),
    put("/v1/acl/clone/", AUTH_WRITE),
    put("/v1/acl/create", AUTH_WRITE),
    put("/v1/acl/destroy/", AUTH_WRITE),
    get("/v1/acl/info/", AUTH_READ),
    get("/v1/acl/list", AUTH_READ),
    // No right but a token: the proof of an auth method for login, or the token to end for logout.
    put("/v1/acl/login", Requirement::Open),
    post("/v1/acl/login", Requirement::Open),
    put("/v1/acl/logout", Requirement::Open),
    post("/v1/acl/logout", Requirement::Open),
    get("/v1/acl/policies", AUTH_READ),
    put("/v1/acl/policy", AUTH_WRITE),
    get("/v1/acl/policy/", AUTH_READ),
    put("/v1/acl/policy/", AUTH_WRITE),
    delete("/v1/acl/policy/", AUTH_WRITE),
    get("/v1/acl/policy/name/", AUTH_READ),
    get("/v1/acl/replication", Requirement::Open),
    put("/v1/acl/role", AUTH_WRITE),
    get("/v1/acl/role/", AUTH_READ),
    put("/v1/acl/role/", AUTH_WRITE),
    delete("/v1/acl/role/", AUTH_WRITE),
    get("/v1/acl/role/name/", AUTH_READ),
    get("/v1/acl/roles", AUTH_READ),
    post("/v1/acl/rules/translate", AUTH_READ),
    get("/v1/acl/rules/translate/", AUTH_READ),
    get("/v1/acl/templated-policies", AUTH_READ),
    get("/v1/acl/templated-policy/name/", AUTH_READ),
    post("/v1/acl/templated-policy/preview/", AUTH_READ),
    put("/v1/acl/token", AUTH_WRITE),
    get("/v1/acl/token/", AUTH_READ),
    put("/v1/acl/token/", AUTH_WRITE),
    delete("/v1/acl/token/", AUTH_WRITE),
    get("/v1/acl/token/self", Requirement::Open),
    get("/v1/acl/tokens", AUTH_READ),
    put("/v1/acl/update", AUTH_WRITE),
    put("/v1/agent/check/deregister/", judged(&[SERVICE_WRITE, NODE_WRITE])),
    put("/v1/agent/check/fail/", judged(&[SERVICE_WRITE, NODE_WRITE])),
    put("/v1/agent/check/pass/", judged(&[SERVICE_WRITE, NODE_WRITE])),
    put("/v1/agent/check/register", judged(&[SERVICE_WRITE, NODE_WRITE])),
    put("/v1/agent/check/update/", judged(&[SERVICE_WRITE, NODE_WRITE])),
    put("/v1/agent/check/warn/", judged(&[SERVICE_WRITE, NODE_WRITE])),
    get("/v1/agent/checks", judged(&[SERVICE_READ, NODE_READ])),
    get("/v1/agent/health/service/id/", judged(&[SERVICE_READ])),
    get("/v1/agent/health/service/name/", judged(&[SERVICE_READ])),
    put("/v1/agent/maintenance", judged(&[NODE_WRITE])),
    get("/v1/agent/members", judged(&[NODE_READ])),
    get("/v1/agent/self", judged(&[AGENT_READ])),
    get("/v1/agent/service/", judged(&[SERVICE_READ])),
    put("/v1/agent/service/deregister/", judged(&[SERVICE_WRITE])),
    put("/v1/agent/service/maintenance/", judged(&[SERVICE_WRITE])),
    put("/v1/agent/service/register", judged(&[SERVICE_WRITE])),
    get("/v1/agent/services", judged(&[SERVICE_READ])),
    get("/v1/agent/version", judged(&[AGENT_READ])),
    get("/v1/catalog/connect/", judged(&[SERVICE_READ])),
    get("/v1/catalog/datacenters", Requirement::Open),
    put("/v1/catalog/deregister", judged(&[NODE_WRITE, SERVICE_WRITE])),
    get("/v1/catalog/gateway-services/", judged(&[SERVICE_READ])),
    get("/v1/catalog/node-services/", judged(&[NODE_READ])),
    get("/v1/catalog/node/", judged(&[NODE_READ])),
    get("/v1/catalog/nodes", judged(&[NODE_READ])),
    put("/v1/catalog/register", judged(&[NODE_WRITE, SERVICE_WRITE])),
    get("/v1/catalog/service/", judged(&[SERVICE_READ])),
    get("/v1/catalog/services", judged(&[SERVICE_READ])),
    put("/v1/config", judged(&[MESH_WRITE])),
    get("/v1/config/", judged(&[SERVICE_READ])),
    delete("/v1/config/", judged(&[MESH_WRITE])),
    get("/v1/health/checks/", judged(&[SERVICE_READ])),
    get("/v1/health/connect/", judged(&[SERVICE_READ])),
    get("/v1/health/node/", judged(&[NODE_READ])),
    get("/v1/health/service/", judged(&[SERVICE_READ])),
    get("/v1/health/state/", judged(&[SERVICE_READ, NODE_READ])),
    get("/v1/kv/", judged(&[KEY_READ])),
    put("/v1/kv/", judged(&[KEY_WRITE])),
    delete("/v1/kv/", judged(&[KEY_WRITE])),
    put("/v1/session/create", judged(&[SESSION_WRITE])),
    put("/v1/session/destroy/", judged(&[SESSION_WRITE])),
    put("/v1/session/renew/", judged(&[SESSION_WRITE])),
    get("/v1/session/info/", judged(&[SESSION_READ])),
    get("/v1/session/list", judged(&[SESSION_READ])),
    get("/v1/session/node/", judged(&[SESSION_READ])),
    put("/v1/txn", Requirement::ByNode),
    // Open, as in Consul: the answers have addresses of members, and no names.
    get("/v1/status/leader", Requirement::Open),
    get("/v1/status/peers", Requirement::Open),
];
