//! `/v1/acl`: tokens, policies, roles, auth methods, binding rules, logins (spec: security §4;
//! `docs/consul-acl.md`).
//!
//! Owns shapes, texts and codes. The state machine has the rules of changes, `node::acl` the
//! language of policies. Invariant: a secret is shown only in the answer to the request that
//! created it, and to requests that carry the same secret.

pub(super) mod bindings;
mod links;
pub(super) mod login;
pub(super) mod methods;
pub(super) mod policies;
pub(super) mod roles;
pub(super) mod templates;
pub(super) mod tokens;

use http::StatusCode;
use serde_json::{Value, json};

use super::access::Right;
use super::answer::{Answer, Meta, Refusal};
use super::blocking::{self, Found};
use super::call::Call;
use headwater_node::{AclKind, NodeError};
use headwater_types::acl::{AclGrants, AclKey, AclRefusal, AclRow, NodeIdentity, ServiceIdentity, TemplatedPolicy};
use headwater_types::limits::ACL_DESCRIPTION_BYTES_MAX;
use headwater_types::{Access, Refusal as Refused, Space};

/// Refuses every request (401) while Consul's ACLs are off.
fn require_enabled(call: &Call) -> Result<(), Refusal> {
    match call.node().acl().is_enabled() {
        true => Ok(()),
        false => Err(Refusal::new(StatusCode::UNAUTHORIZED, "ACL support disabled")),
    }
}

fn require_read(call: &Call) -> Result<(), Refusal> {
    require_enabled(call)?;
    call.require(&Right::whole(Space::Auth, Access::READ))
}

fn require_write(call: &Call) -> Result<(), Refusal> {
    require_enabled(call)?;
    call.require(&Right::whole(Space::Auth, Access::WRITE))
}

/// The refusal for an error of a change of an ACL row. `kind` is the kind of the row, such as
/// `Policy`; `name` is its name, or its id if it has no name.
fn refused(error: NodeError, kind: &str, name: &str) -> Refusal {
    let NodeError::Refused(Refused::Acl(refusal)) = &error else { return error.into() };
    let text = match refusal {
        AclRefusal::NameTaken => format!("Invalid {kind}: A {kind} with Name {name:?} already exists"),
        AclRefusal::IdTaken => format!("Invalid {kind}: its id {name:?} is already in use"),
        AclRefusal::Absent => return absent(kind),
        refusal => format!("Invalid {kind}: {refusal}"),
    };
    Refusal::bad(text)
}

/// The refusal (404) of a request for a row that does not exist.
fn absent(kind: &str) -> Refusal {
    Refusal::not_found(format!("{} does not exist: ACL not found", kind.to_lowercase()))
}

/// One row, `None` if it does not exist, with the values of the answer's headers. With `?index`,
/// waits for a change of any ACL row; refused if the right to read is lost meanwhile. The calling
/// function must call [`require_read`] right before this call and right after it.
async fn row(call: &Call, key: AclKey) -> Result<(Option<AclRow>, Meta), Refusal> {
    let freshness = call.freshness()?;
    let read = |ctx, consistency| {
        let key = key.clone();
        async move {
            let read = call.node().acl().row(&ctx, consistency, key).await?;
            Ok(Found { index: read.value.index, seen: read.index, value: read.value.value })
        }
    };
    let changed = |after, until| blocking::acl_changed(call, after, until);
    let found = blocking::query(call, &freshness, read, changed, || require_read(call)).await?;
    let meta = found.meta(&freshness);
    Ok((found.value, meta))
}

/// As [`row`], for every row of a kind.
async fn rows(call: &Call, kind: AclKind) -> Result<(Vec<AclRow>, Meta), Refusal> {
    let freshness = call.freshness()?;
    let read = |ctx, consistency| async move {
        let read = call.node().acl().rows(&ctx, consistency, kind).await?;
        Ok(Found { index: read.value.index, seen: read.index, value: read.value.value })
    };
    let changed = |after, until| blocking::acl_changed(call, after, until);
    let found = blocking::query(call, &freshness, read, changed, || require_read(call)).await?;
    let meta = found.meta(&freshness);
    Ok((found.value, meta))
}

/// Removes a row. The answer is `true`, also if the row does not exist.
async fn delete(call: &Call, key: AclKey, kind: &str) -> Result<Answer, Refusal> {
    let done = call.node().acl().delete(&call.context()?, key).await.map_err(|error| refused(error, kind, ""))?;
    Ok(call.answer(&true).at(done.index))
}

fn check_description(text: &str) -> Result<(), Refusal> {
    match text.len() > ACL_DESCRIPTION_BYTES_MAX {
        true => Err(Refusal::bad(format!("a description has at most {ACL_DESCRIPTION_BYTES_MAX} bytes"))),
        false => Ok(()),
    }
}

/// Whether a name has 1 to `longest` bytes, all of them ASCII letters, digits, `-` or `_`.
fn is_name(name: &str, longest: usize) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=longest).contains(&name.len()) && name.bytes().all(is_fine)
}

/// Whether a text has the form of a UUID, in either letter case.
fn is_uuid(text: &str) -> bool {
    let is_fine = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.bytes().enumerate().all(is_fine)
}

/// The content of `grants` for [`content_hash`], without the names of fields: members of all
/// versions must answer the same hash.
fn grants_content(grants: &AclGrants) -> Value {
    let AclGrants { policies, services, nodes, templates } = grants;
    let service = |ServiceIdentity { name, datacenters }: &ServiceIdentity| json!([name, datacenters]);
    let node = |NodeIdentity { name, datacenter }: &NodeIdentity| json!([name, datacenter]);
    let template = |it: &TemplatedPolicy| {
        let TemplatedPolicy { template, name, datacenters } = it;
        json!([template, name, datacenters])
    };
    json!([
        policies,
        services.iter().map(service).collect::<Vec<_>>(),
        nodes.iter().map(node).collect::<Vec<_>>(),
        templates.iter().map(template).collect::<Vec<_>>(),
    ])
}

/// The hash of a row's content, which clients compare: SHA-256 of its JSON, in base64.
fn content_hash(content: &Value) -> String {
    use base64::Engine;
    use sha2::{Digest, Sha256};
    base64::engine::general_purpose::STANDARD.encode(Sha256::digest(content.to_string().as_bytes()))
}

/// The state of ACL replication between datacenters: always disabled.
pub(super) async fn replication(call: Call) -> Result<Answer, Refusal> {
    require_enabled(&call)?;
    let never = "0001-01-01T00:00:00Z";
    Ok(call.answer(&json!({
        "Enabled": false, "Running": false, "SourceDatacenter": "", "ReplicationType": "", "ReplicatedIndex": 0,
        "ReplicatedRoleIndex": 0, "ReplicatedTokenIndex": 0, "LastSuccess": never, "LastError": never,
        "LastErrorMessage": "",
    })))
}

/// Refuses (410) a request of the legacy ACL system (before Consul 1.4), which Consul removed.
pub(super) async fn legacy(call: Call) -> Result<Answer, Refusal> {
    require_enabled(&call)?;
    let text = "Endpoint for the legacy ACL system was removed in Consul 1.11: use /v1/acl/token and /v1/acl/policy";
    Err(Refusal::new(StatusCode::GONE, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::LogIndex;
    use headwater_types::acl::{AclRole, AclToken};

    #[test]
    fn the_hash_of_a_role_and_of_a_token_never_changes() {
        let grants = || AclGrants {
            policies: vec!["p".to_owned()],
            services: vec![ServiceIdentity { name: "s".to_owned(), datacenters: vec!["dc1".to_owned()] }],
            nodes: vec![NodeIdentity { name: "n".to_owned(), datacenter: "dc1".to_owned() }],
            templates: vec![TemplatedPolicy {
                template: "builtin/service".to_owned(),
                name: "t".to_owned(),
                datacenters: Vec::new(),
            }],
        };
        let names = links::Names::default();
        let role = AclRole {
            name: "r".to_owned(),
            description: "d".to_owned(),
            grants: grants(),
            modified: LogIndex(7),
            ..AclRole::default()
        };
        assert_eq!(roles::show(&role, &names)["Hash"], "GewQwSGGEDfZJEDAUZ6xUttZQ6klSE4Hxt7+O3nEfvw=");
        let roles = vec!["r".to_owned()];
        let token = AclToken { grants: grants(), roles, created_ms: 1, ..AclToken::anonymous() };
        assert_eq!(tokens::show(&token, &names, None)["Hash"], "gSAhxKDLuJKEutFXVIgWToWcF+jHA2ZVoZZujDGMOpg=");
    }

    #[test]
    fn names_and_ids_have_a_form() {
        for (name, fine) in [("a-B_9", true), ("", false), ("a b", false), ("a/b", false), ("abcd", false)] {
            assert_eq!(is_name(name, if name == "abcd" { 3 } else { 10 }), fine, "{name}");
        }
        assert!(is_uuid("00000000-0000-0000-0000-000000000002"));
        for bad in ["", "0000000000000-0000-0000-000000000002", "00000000-0000-0000-0000-00000000000g"] {
            assert!(!is_uuid(bad), "{bad}");
        }
    }
}
