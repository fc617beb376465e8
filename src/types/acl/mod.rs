//! Consul's access control lists: tokens, policies, roles, auth methods and binding rules
//! (spec: security §4; `docs/consul-acl.md`).
//!
//! Owns the records, and the commands that change them. Does not interpret rules: `node::acl`
//! compiles them to rights. Invariant: no record holds a token's secret, only the secret's hash.

mod builtin;
mod command;

pub use builtin::{
    ACL_ANONYMOUS_ACCESSOR, ACL_GLOBAL_MANAGEMENT_ID, ACL_GLOBAL_READ_ONLY_ID, ACL_RESERVED_PREFIX, builtin_policies,
    builtin_policy,
};
pub use command::{AclCommand, AclDone, AclKey, AclRefusal, AclRow};

use super::LogIndex;
use super::auth::SecretHash;

/// A token. It gives the rights of its policies, roles, identities and templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclToken {
    /// The accessor id, a UUID: the token's name in public.
    pub accessor: String,
    /// SHA-256 of the secret; empty for the anonymous token, which has none.
    pub secret: SecretHash,
    /// For people; may be empty.
    pub description: String,
    /// The sources of its rights.
    pub grants: AclGrants,
    /// Ids of the token's roles; it has their rights as well. A role that does not exist any more
    /// gives none.
    pub roles: Vec<String>,
    /// Consul's `Local`. Stored for clients; the rights do not depend on it.
    pub local: bool,
    /// Name of the auth method that issued the token; empty if none did.
    pub method: String,
    /// Wall clock of the creation, milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// Wall clock from which on it is not accepted, milliseconds since the Unix epoch; 0 for never.
    pub expires_ms: u64,
    /// Log index of the command that created the row; always 1 in the anonymous token.
    pub created: LogIndex,
    /// Log index of the last change of the row.
    pub modified: LogIndex,
}

impl AclToken {
    /// The anonymous token as it is in a cluster that has not changed it: without rights.
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

    /// Whether the token has expired at `now_ms`, milliseconds since the Unix epoch. True from
    /// [`expires_ms`](Self::expires_ms) on; false if that is 0.
    pub fn has_expired(&self, now_ms: u64) -> bool {
        self.expires_ms != 0 && self.expires_ms <= now_ms
    }
}

/// The sources of the rights of a token or role: policies, identities and templates. A token has
/// roles besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclGrants {
    /// Ids of policies. A policy that does not exist any more gives no rights.
    pub policies: Vec<String>,
    /// Services that the token or role may act as.
    pub services: Vec<ServiceIdentity>,
    /// Nodes that the token or role may act as.
    pub nodes: Vec<NodeIdentity>,
    /// Policies that are made from templates.
    pub templates: Vec<TemplatedPolicy>,
}

/// The right to act as a service: to register the service and its sidecar, and to discover other
/// services and nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceIdentity {
    /// Name of the service.
    pub name: String,
    /// Names of the datacenters in which it gives rights; empty for all.
    pub datacenters: Vec<String>,
}

/// The right to act as a node: to register the node, and to discover services.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeIdentity {
    /// Name of the node.
    pub name: String,
    /// Name of the datacenter in which it gives rights.
    pub datacenter: String,
}

/// A use of a template. It gives the rights of the policy that the template makes of `name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TemplatedPolicy {
    /// Name of the template, such as `builtin/service`.
    pub template: String,
    /// Value of the template's variable `name`; empty if the template has no such variable.
    pub name: String,
    /// Names of the datacenters in which it gives rights; empty for all.
    pub datacenters: Vec<String>,
}

/// A policy: rules under a name.
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
    /// Names of the datacenters in which it gives rights; empty for all.
    pub datacenters: Vec<String>,
    /// Log index of the command that created the row.
    pub created: LogIndex,
    /// Log index of the last change of the row.
    pub modified: LogIndex,
}

/// A role: policies, identities and templates under a name.
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
    /// Log index of the command that created the row.
    pub created: LogIndex,
    /// Log index of the last change of the row.
    pub modified: LogIndex,
}

/// An auth method: a way to obtain a token by a proof from another party, such as a JSON web token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclMethod {
    /// Name of the method, unique among methods.
    pub name: String,
    /// Kind of the method: `jwt`.
    pub kind: String,
    /// For people; may be empty.
    pub display_name: String,
    /// For people; may be empty.
    pub description: String,
    /// Time to live of tokens that the method issues, milliseconds; 0 for no expiry.
    pub max_token_ttl_ms: u64,
    /// Consul's `TokenLocality`: `local` or `global`.
    pub locality: String,
    /// Settings for this kind of method: the text of a JSON object with sorted keys.
    pub config_json: String,
    /// Log index of the command that created the row.
    pub created: LogIndex,
    /// Log index of the last change of the row.
    pub modified: LogIndex,
}

/// A binding rule: the role, policy, identity or template that a token gets if an auth method
/// issues it for a matching proof.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclBinding {
    /// A UUID.
    pub id: String,
    /// For people; may be empty.
    pub description: String,
    /// Name of the auth method.
    pub method: String,
    /// Filter expression over the attributes of a proof; empty for every proof.
    pub selector: String,
    /// Kind of the grant: `service`, `node`, `role`, `policy` or `templated-policy`.
    pub bind_type: String,
    /// Name of the role, policy, identity or template, with `${…}` for attributes of the proof.
    pub bind_name: String,
    /// Value of the template's variable `name`, with `${…}` for attributes of the proof.
    pub bind_var: String,
    /// Log index of the command that created the row.
    pub created: LogIndex,
    /// Log index of the last change of the row.
    pub modified: LogIndex,
}
