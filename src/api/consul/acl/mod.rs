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
use serde_json::json;

use super::access::Right;
use super::answer::{Answer, Meta, Refusal};
use super::blocking::{self, Found};
use super::call::Call;
use headwater_node::{AclKind, NodeError};
use headwater_types::acl::{AclKey, AclRefusal, AclRow};
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
/// waits for a change of any ACL row. The caller requires the read right before and after.
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

/// The hash of a row's content, which clients compare: SHA-256 of its JSON, in base64.
fn content_hash(content: &serde_json::Value) -> String {
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
