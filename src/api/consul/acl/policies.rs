//! `/v1/acl/policy` and `/v1/acl/policies`.

use serde_json::{Map, Value, json};

use super::super::answer::{Answer, Refusal};
use super::super::call::Call;
use super::super::decode::Object;
use super::{absent, check_description, content_hash, delete, is_name, refused, require_read, require_write};
use headwater_node::{AclKind, Consistency, new_uuid, parse_rules};
use headwater_types::acl::{ACL_GLOBAL_MANAGEMENT_ID, AclKey, AclPolicy, AclRow, builtin_policy};

const KIND: &str = "Policy";
/// Longest name of a policy, bytes.
const NAME_BYTES_MAX: usize = 128;

/// The JSON object of a policy. `with_rules` is false for an element of a list.
pub(super) fn show(policy: &AclPolicy, with_rules: bool) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("ID".to_owned(), policy.id.as_str().into());
    body.insert("Name".to_owned(), policy.name.as_str().into());
    body.insert("Description".to_owned(), policy.description.as_str().into());
    if with_rules {
        body.insert("Rules".to_owned(), policy.rules.as_str().into());
    }
    if !policy.datacenters.is_empty() {
        body.insert("Datacenters".to_owned(), json!(policy.datacenters));
    } else if !with_rules {
        body.insert("Datacenters".to_owned(), Value::Null);
    }
    let hash = content_hash(&json!([policy.name, policy.description, policy.rules, policy.datacenters]));
    body.insert("Hash".to_owned(), hash.into());
    body.insert("CreateIndex".to_owned(), policy.created.get().into());
    body.insert("ModifyIndex".to_owned(), policy.modified.get().into());
    body
}

fn read(body: &Object<'_>, id: String) -> Result<AclPolicy, Refusal> {
    let (name, description) = (body.text("Name")?, body.text("Description")?);
    if !is_name(&name, NAME_BYTES_MAX) {
        return Err(Refusal::bad(
            "Invalid Policy: invalid Name. Only alphanumeric characters, '-' and '_' are allowed, 128 at most",
        ));
    }
    check_description(&description)?;
    let rules = body.text("Rules")?;
    parse_rules(&rules).map_err(|error| Refusal::bad(format!("Invalid Policy: Failed to parse ACL rules: {error}")))?;
    Ok(AclPolicy { id, name, description, rules, datacenters: body.texts("Datacenters")?, ..AclPolicy::default() })
}

async fn store(call: &Call, policy: AclPolicy, is_new: bool) -> Result<Answer, Refusal> {
    let row = AclRow::Policy(Box::new(policy.clone()));
    let done = call.node().acl().put(&call.context()?, row, is_new).await;
    let done = done.map_err(|error| refused(error, KIND, &policy.name))?;
    let policy = AclPolicy { created: done.value.created, modified: done.index, ..policy };
    Ok(call.answer(&show(&policy, true)).at(done.index))
}

/// Makes a policy.
pub(crate) async fn create(call: Call) -> Result<Answer, Refusal> {
    require_write(&call)?;
    let json = call.json()?;
    let body = Object::of(&json)?;
    if !body.text("ID")?.is_empty() {
        return Err(Refusal::bad("Cannot specify the ID when creating a new policy"));
    }
    store(&call, read(&body, new_uuid())?, true).await
}

/// Replaces a policy, which must exist (else 404) and not be builtin (else 400).
pub(crate) async fn update(call: Call) -> Result<Answer, Refusal> {
    require_write(&call)?;
    let id = call.rest("Missing policy ID")?.to_owned();
    let json = call.json()?;
    let body = Object::of(&json)?;
    let given = body.text("ID")?;
    if !given.is_empty() && given != id {
        return Err(Refusal::bad("Policy ID in URL and payload do not match"));
    }
    if let Some(builtin) = builtin_policy(&id) {
        return Err(Refusal::bad(format!("Changing the builtin policy {:?} is not permitted", builtin.name)));
    }
    store(&call, read(&body, id)?, false).await
}

/// A policy by its id.
pub(crate) async fn get(call: Call) -> Result<Answer, Refusal> {
    require_read(&call)?;
    let id = call.rest("Missing policy ID")?.to_owned();
    one(&call, id).await
}

/// A policy by its name.
pub(crate) async fn by_name(call: Call) -> Result<Answer, Refusal> {
    require_read(&call)?;
    let name = call.rest("Missing policy Name")?.to_owned();
    let (ctx, kind) = (call.context()?, AclKind::Policy);
    let id = call.node().acl().id_of_name(&ctx, Consistency::Linearizable, kind, name).await?;
    require_read(&call)?;
    one(&call, id.ok_or_else(|| absent(KIND))?).await
}

async fn one(call: &Call, id: String) -> Result<Answer, Refusal> {
    let (row, meta) = super::row(call, AclKey::Policy(id)).await?;
    require_read(call)?;
    let Some(AclRow::Policy(policy)) = row else { return Err(absent(KIND)) };
    Ok(call.answer(&show(&policy, true)).meta(meta))
}

/// Removes a policy. Tokens and roles that name it lose its rights. Refused (400) for a builtin
/// policy.
pub(crate) async fn remove(call: Call) -> Result<Answer, Refusal> {
    require_write(&call)?;
    let id = call.rest("Missing policy ID")?.to_owned();
    if id == ACL_GLOBAL_MANAGEMENT_ID || builtin_policy(&id).is_some() {
        return Err(Refusal::bad("Delete operation not permitted on the builtin policies"));
    }
    delete(&call, AclKey::Policy(id), KIND).await
}

/// Every policy, without rules.
pub(crate) async fn list(call: Call) -> Result<Answer, Refusal> {
    require_read(&call)?;
    let (rows, meta) = super::rows(&call, AclKind::Policy).await?;
    require_read(&call)?;
    let show = |row: &AclRow| match row {
        AclRow::Policy(policy) => Some(show(policy, false)),
        AclRow::Token(_) | AclRow::Role(_) | AclRow::Method(_) | AclRow::Binding(_) => None,
    };
    Ok(call.answer(&rows.iter().filter_map(show).collect::<Vec<_>>()).meta(meta))
}
