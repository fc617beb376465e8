//! Consul's access control lists: tokens, policies, roles, auth methods and binding rules
//! (spec: security §4; `docs/consul-acl.md`).
//!
//! Owns the records, and the commands that change them. Knows neither the language of policies nor
//! the resulting rights: `node::acl` compiles them. Invariant: no record holds a secret, only its
//! hash.

mod builtin;
mod command;

pub use builtin::{
    ACL_ANONYMOUS_ACCESSOR, ACL_GLOBAL_MANAGEMENT_ID, ACL_GLOBAL_READ_ONLY_ID, ACL_RESERVED_PREFIX, builtin_policies,
    builtin_policy,
};
pub use command::{AclCommand, AclDone, AclKey, AclRefusal, AclRow};

use super::LogIndex;
use super::auth::SecretHash;

/// A token: it has the rights of its links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclToken {
    /// The public name, a UUID.
    pub accessor: String,
    /// SHA-256 of the secret; empty for the anonymous token, which has none.
    pub secret: SecretHash,
    /// For people; may be empty.
    pub description: String,
    /// The sources of its rights.
    pub grants: AclGrants,
    /// Ids of roles. A role that does not exist any more gives nothing.
    pub roles: Vec<String>,
    /// Consul's `Local`: whether the token is valid in one datacenter alone. Stored for clients;
    /// the rights do not depend on it.
    pub local: bool,
    /// Name of the auth method that issued it; empty for other tokens.
    pub method: String,
    /// Wall clock of the creation, milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// Wall clock from which on it is not accepted, milliseconds since the Unix epoch; 0 for never.
    pub expires_ms: u64,
    /// Log index of the command that made it.
    pub created: LogIndex,
    /// Log index of the last change.
    pub modified: LogIndex,
}

impl AclToken {
    /// The anonymous token of a cluster that has not changed it: it gives nothing.
    pub fn anonymous() -> Self {
        Self {
            accessor: ACL_ANONYMOUS_ACCESSOR.to_owned(),
            secret: SecretHash(bytes::Bytes::new()),
            description: "Anonymous Token".to_owned(),
            grants: AclGrants::default(),
            roles: Vec::new(),
            local: false,
            method: String::new(),
            created_ms: 0,
            expires_ms: 0,
            created: LogIndex(1),
            modified: LogIndex(1),
        }
    }

    /// Whether it is not accepted any more at `now_ms`.
    pub fn has_expired(&self, now_ms: u64) -> bool {
        self.expires_ms != 0 && self.expires_ms <= now_ms
    }
}

/// The sources of the rights of a token or role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclGrants {
    /// Ids of policies. A policy that does not exist any more gives nothing.
    pub policies: Vec<String>,
    /// Services that it may act as.
    pub services: Vec<ServiceIdentity>,
    /// Nodes that it may act as.
    pub nodes: Vec<NodeIdentity>,
    /// Policies by template.
    pub templates: Vec<TemplatedPolicy>,
}

/// The right to act as a service: to register it and its sidecar, and to discover others.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceIdentity {
    /// Name of the service.
    pub name: String,
    /// The datacenters in which it counts; all of them if empty.
    pub datacenters: Vec<String>,
}

/// The right to act as a node: to register it, and to discover services.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeIdentity {
    /// Name of the node.
    pub name: String,
    /// The datacenter in which it counts.
    pub datacenter: String,
}

/// A policy that is made from a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TemplatedPolicy {
    /// Name of the template: `builtin/service`.
    pub template: String,
    /// Value of the variable `name`; empty if the template has none.
    pub name: String,
    /// The datacenters in which it counts; all of them if empty.
    pub datacenters: Vec<String>,
}

/// Rules under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclPolicy {
    /// A UUID.
    pub id: String,
    /// Unique among policies.
    pub name: String,
    /// For people; may be empty.
    pub description: String,
    /// The rules as they were written, in HCL or JSON.
    pub rules: String,
    /// The datacenters in which it counts; all of them if empty.
    pub datacenters: Vec<String>,
    /// Log index of the command that made it.
    pub created: LogIndex,
    /// Log index of the last change.
    pub modified: LogIndex,
}

/// Grants under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclRole {
    /// A UUID.
    pub id: String,
    /// Unique among roles.
    pub name: String,
    /// For people; may be empty.
    pub description: String,
    /// The sources of its rights.
    pub grants: AclGrants,
    /// Log index of the command that made it.
    pub created: LogIndex,
    /// Log index of the last change.
    pub modified: LogIndex,
}

/// A way to obtain a token by a proof from another party.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclMethod {
    /// Unique among methods.
    pub name: String,
    /// The kind of proof: `jwt`.
    pub kind: String,
    /// For people; may be empty.
    pub display_name: String,
    /// For people; may be empty.
    pub description: String,
    /// Longest life of a token, milliseconds; 0 for no bound.
    pub max_token_ttl_ms: u64,
    /// `local` or `global`, as Consul keeps it.
    pub locality: String,
    /// Settings of the kind: the text of a JSON object with sorted keys.
    pub config_json: String,
    /// Log index of the command that made it.
    pub created: LogIndex,
    /// Log index of the last change.
    pub modified: LogIndex,
}

/// A binding rule: a link that tokens get if an auth method issues them for a matching proof.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclBinding {
    /// A UUID.
    pub id: String,
    /// For people; may be empty.
    pub description: String,
    /// Name of the auth method.
    pub method: String,
    /// A filter over the attributes of a proof; empty for every proof.
    pub selector: String,
    /// The kind of link: `service`, `node`, `role`, `policy` or `templated-policy`.
    pub bind_type: String,
    /// The name that is linked, with `${…}` for attributes.
    pub bind_name: String,
    /// Value of the variable `name` of a template, with `${…}` for attributes.
    pub bind_var: String,
    /// Log index of the command that made it.
    pub created: LogIndex,
    /// Log index of the last change.
    pub modified: LogIndex,
}
