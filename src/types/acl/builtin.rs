//! The token and the policies that exist in every cluster.

use super::AclPolicy;
use crate::LogIndex;

/// Accessor of the anonymous token, which stands for requests without a secret.
pub const ACL_ANONYMOUS_ACCESSOR: &str = "00000000-0000-0000-0000-000000000002";
/// Id of the policy `global-management`.
pub const ACL_GLOBAL_MANAGEMENT_ID: &str = "00000000-0000-0000-0000-000000000001";
/// Id of the policy `builtin/global-read-only`.
pub const ACL_GLOBAL_READ_ONLY_ID: &str = "00000000-0000-0000-0000-000000000002";
/// Prefix of accessors and ids that are reserved: clients cannot choose them.
pub const ACL_RESERVED_PREFIX: &str = "00000000-0000-0000-0000-0000000000";

/// Text of rules that give `access` to everything, and `intentions` as the access to intentions.
fn rules(access: &str, intentions: &str) -> String {
    let mut rules = format!("acl = \"{access}\"\n");
    for kind in ["agent", "event", "key", "node", "query", "session"] {
        rules.push_str(&format!("{kind}_prefix \"\" {{\n\tpolicy = \"{access}\"\n}}\n"));
    }
    rules.push_str(&format!("service_prefix \"\" {{\n\tpolicy = \"{access}\"\n\tintentions = \"{intentions}\"\n}}\n"));
    for kind in ["keyring", "mesh", "operator", "peering"] {
        rules.push_str(&format!("{kind} = \"{access}\"\n"));
    }
    rules
}

/// The policies that exist in every cluster and never change.
pub fn builtin_policies() -> [AclPolicy; 2] {
    let policy = |id: &str, name: &str, description: &str, rules: String| AclPolicy {
        id: id.to_owned(),
        name: name.to_owned(),
        description: description.to_owned(),
        rules,
        datacenters: Vec::new(),
        created: LogIndex(1),
        modified: LogIndex(1),
    };
    [
        policy(
            ACL_GLOBAL_MANAGEMENT_ID,
            "global-management",
            "Builtin Policy that grants unlimited access",
            rules("write", "write"),
        ),
        policy(
            ACL_GLOBAL_READ_ONLY_ID,
            "builtin/global-read-only",
            "Builtin Policy that grants unlimited read access",
            rules("read", "read"),
        ),
    ]
}

/// The builtin policy with this id or name; `None` if there is none.
pub fn builtin_policy(id_or_name: &str) -> Option<AclPolicy> {
    builtin_policies().into_iter().find(|policy| policy.id == id_or_name || policy.name == id_or_name)
}
