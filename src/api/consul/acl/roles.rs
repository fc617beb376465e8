//! `/v1/acl/role` and `/v1/acl/roles`.

use serde_json::{Map, Value, json};

use super::super::answer::{Answer, Refusal};
use super::super::call::Call;
use super::super::decode::Object;
use super::links::{self, Names};
use super::{
    absent, check_description, content_hash, delete, grants_content, is_name, refused, require_read, require_write,
};
use headwater_node::{AclKind, Consistency, new_uuid};
use headwater_types::acl::{AclKey, AclRole, AclRow};

const KIND: &str = "Role";
/// Longest name of a role, bytes.
const NAME_BYTES_MAX: usize = 256;

/// The JSON object of a role, with the names of its links.
pub(super) fn show(role: &AclRole, names: &Names) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("ID".to_owned(), role.id.as_str().into());
    body.insert("Name".to_owned(), role.name.as_str().into());
    body.insert("Description".to_owned(), role.description.as_str().into());
    links::show(&mut body, &role.grants, &[], names);
    let hash = content_hash(&json!([role.name, role.description, grants_content(&role.grants)]));
    body.insert("Hash".to_owned(), hash.into());
    body.insert("CreateIndex".to_owned(), role.created.get().into());
    body.insert("ModifyIndex".to_owned(), role.modified.get().into());
    body
}

async fn read(call: &Call, body: &Object<'_>, id: String) -> Result<AclRole, Refusal> {
    let (name, description) = (body.text("Name")?, body.text("Description")?);
    if !is_name(&name, NAME_BYTES_MAX) {
        return Err(Refusal::bad(
            "Invalid Role: invalid Name. Only alphanumeric characters, '-' and '_' are allowed, 256 at most",
        ));
    }
    check_description(&description)?;
    Ok(AclRole { id, name, description, grants: links::read(call, body).await?, ..AclRole::default() })
}

async fn store(call: &Call, role: AclRole, is_new: bool) -> Result<Answer, Refusal> {
    let row = AclRow::Role(Box::new(role.clone()));
    let done = call.node().acl().put(&call.context()?, row, is_new).await;
    let done = done.map_err(|error| refused(error, KIND, &role.name))?;
    let role = AclRole { created: done.value.created, modified: done.index, ..role };
    let names = Names::of(call, &role.grants, &[]).await?;
    Ok(call.answer(&show(&role, &names)).at(done.index))
}

/// Makes a role.
pub(crate) async fn create(call: Call) -> Result<Answer, Refusal> {
    require_write(&call)?;
    let json = call.json()?;
    let body = Object::of(&json)?;
    if !body.text("ID")?.is_empty() {
        return Err(Refusal::bad("Role ID in URL and payload do not match"));
    }
    let role = read(&call, &body, new_uuid()).await?;
    store(&call, role, true).await
}

/// Replaces a role, which must exist (else 404).
pub(crate) async fn update(call: Call) -> Result<Answer, Refusal> {
    require_write(&call)?;
    let id = call.rest("Missing role ID")?.to_owned();
    let json = call.json()?;
    let body = Object::of(&json)?;
    let given = body.text("ID")?;
    if !given.is_empty() && given != id {
        return Err(Refusal::bad("Role ID in URL and payload do not match"));
    }
    let role = read(&call, &body, id).await?;
    store(&call, role, false).await
}

/// A role by its id.
pub(crate) async fn get(call: Call) -> Result<Answer, Refusal> {
    require_read(&call)?;
    let id = call.rest("Missing role ID")?.to_owned();
    one(&call, id).await
}

/// A role by its name.
pub(crate) async fn by_name(call: Call) -> Result<Answer, Refusal> {
    require_read(&call)?;
    let name = call.rest("Missing role Name")?.to_owned();
    let (ctx, kind) = (call.context()?, AclKind::Role);
    let id = call.node().acl().id_of_name(&ctx, Consistency::Linearizable, kind, name).await?;
    require_read(&call)?;
    one(&call, id.ok_or_else(|| absent(KIND))?).await
}

async fn one(call: &Call, id: String) -> Result<Answer, Refusal> {
    let (row, meta) = super::row(call, AclKey::Role(id)).await?;
    require_read(call)?;
    let Some(AclRow::Role(role)) = row else { return Err(absent(KIND)) };
    let names = Names::of(call, &role.grants, &[]).await?;
    require_read(call)?;
    Ok(call.answer(&show(&role, &names)).meta(meta))
}

/// Removes a role. Tokens that name it lose its rights.
pub(crate) async fn remove(call: Call) -> Result<Answer, Refusal> {
    require_write(&call)?;
    let id = call.rest("Missing role ID")?.to_owned();
    delete(&call, AclKey::Role(id), KIND).await
}

/// Every role; with `?policy`, those that name the policy with that id.
pub(crate) async fn list(call: Call) -> Result<Answer, Refusal> {
    require_read(&call)?;
    let (rows, meta) = super::rows(&call, AclKind::Role).await?;
    let names = Names::all(&call).await?;
    require_read(&call)?;
    let policy = call.query.get("policy").filter(|text| !text.is_empty());
    let mut shown: Vec<Map<String, Value>> = Vec::new();
    for row in rows {
        if let AclRow::Role(role) = row
            && policy.is_none_or(|id| role.grants.policies.iter().any(|it| it == id))
        {
            shown.push(show(&role, &names));
        }
    }
    Ok(call.answer(&shown).meta(meta))
}
