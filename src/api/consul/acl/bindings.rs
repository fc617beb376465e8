//! `/v1/acl/binding-rule` and `/v1/acl/binding-rules`.

use serde_json::{Map, Value, json};

use super::super::answer::{Answer, Refusal};
use super::super::call::Call;
use super::super::decode::Object;
use super::super::filter::{Filter, shape};
use super::login::check_placeholders;
use super::{check_description, delete, refused, require_read, require_write};
use headwater_node::{AclKind, Template, new_uuid};
use headwater_types::acl::{AclBinding, AclKey, AclRow};

const KIND: &str = "Binding rule";
/// Kinds of links that a binding rule can give to a token.
const BIND_TYPES: [&str; 5] = ["service", "node", "role", "policy", "templated-policy"];

fn show(binding: &AclBinding) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("ID".to_owned(), binding.id.as_str().into());
    body.insert("Description".to_owned(), binding.description.as_str().into());
    body.insert("AuthMethod".to_owned(), binding.method.as_str().into());
    body.insert("Selector".to_owned(), binding.selector.as_str().into());
    body.insert("BindType".to_owned(), binding.bind_type.as_str().into());
    body.insert("BindName".to_owned(), binding.bind_name.as_str().into());
    if !binding.bind_var.is_empty() {
        body.insert("BindVars".to_owned(), json!({"Name": binding.bind_var}));
    }
    body.insert("CreateIndex".to_owned(), binding.created.get().into());
    body.insert("ModifyIndex".to_owned(), binding.modified.get().into());
    body
}

fn read(body: &Object<'_>, id: String) -> Result<AclBinding, Refusal> {
    let invalid = |why: &str| Refusal::bad(format!("Invalid Binding Rule: {why}"));
    let (description, selector) = (body.text("Description")?, body.text("Selector")?);
    check_description(&description)?;
    Filter::read(&selector, shape::JWT).map_err(|why| invalid(&format!("invalid Selector: {why}")))?;
    let (bind_type, bind_name) = (body.text("BindType")?, body.text("BindName")?);
    if !BIND_TYPES.contains(&bind_type.as_str()) {
        return Err(invalid(&format!("unknown BindType {bind_type:?}: there are {}", BIND_TYPES.join(", "))));
    }
    if bind_name.is_empty() {
        return Err(invalid("no BindName is set"));
    }
    if bind_type == "templated-policy" && Template::named(&bind_name).is_none() {
        return Err(invalid(&format!("there is no templated policy {bind_name:?}")));
    }
    let bind_var = match body.object("BindVars")? {
        Some(variables) => variables.text("Name")?,
        None => String::new(),
    };
    for text in [&bind_name, &bind_var] {
        check_placeholders(text).map_err(|why| invalid(&why))?;
    }
    let method = body.text("AuthMethod")?;
    if method.is_empty() {
        return Err(invalid("AuthMethod is missing"));
    }
    Ok(AclBinding { id, description, method, selector, bind_type, bind_name, bind_var, ..AclBinding::default() })
}

async fn store(call: &Call, binding: AclBinding, is_new: bool) -> Result<Answer, Refusal> {
    let row = AclRow::Binding(Box::new(binding.clone()));
    let done = call.node().acl().put(&call.context()?, row, is_new).await;
    let done = done.map_err(|error| refused(error, KIND, &binding.id))?;
    let binding = AclBinding { created: done.value.created, modified: done.index, ..binding };
    Ok(call.answer(&show(&binding)).at(done.index))
}

/// Makes a binding rule.
pub(crate) async fn create(call: Call) -> Result<Answer, Refusal> {
    require_write(&call)?;
    let json = call.json()?;
    let body = Object::of(&json)?;
    if !body.text("ID")?.is_empty() {
        return Err(Refusal::bad("BindingRule ID in URL and payload do not match"));
    }
    store(&call, read(&body, new_uuid())?, true).await
}

/// Replaces a binding rule, which must exist (else 404).
pub(crate) async fn update(call: Call) -> Result<Answer, Refusal> {
    require_write(&call)?;
    let id = call.rest("Missing binding rule ID")?.to_owned();
    let json = call.json()?;
    let body = Object::of(&json)?;
    let given = body.text("ID")?;
    if !given.is_empty() && given != id {
        return Err(Refusal::bad("BindingRule ID in URL and payload do not match"));
    }
    store(&call, read(&body, id)?, false).await
}

/// A binding rule by its id.
pub(crate) async fn get(call: Call) -> Result<Answer, Refusal> {
    require_read(&call)?;
    let id = call.rest("Missing binding rule ID")?.to_owned();
    let (row, meta) = super::row(&call, AclKey::Binding(id)).await?;
    require_read(&call)?;
    let Some(AclRow::Binding(binding)) = row else { return Err(super::absent(KIND)) };
    Ok(call.answer(&show(&binding)).meta(meta))
}

/// Removes a binding rule. Tokens of earlier logins keep the links that it gave them.
pub(crate) async fn remove(call: Call) -> Result<Answer, Refusal> {
    require_write(&call)?;
    let id = call.rest("Missing binding rule ID")?.to_owned();
    delete(&call, AclKey::Binding(id), KIND).await
}

/// Every binding rule; with `?authmethod`, those of the auth method with that name.
pub(crate) async fn list(call: Call) -> Result<Answer, Refusal> {
    require_read(&call)?;
    let (rows, meta) = super::rows(&call, AclKind::Binding).await?;
    require_read(&call)?;
    let method = call.query.get("authmethod").filter(|text| !text.is_empty());
    let mut shown = Vec::new();
    for row in &rows {
        if let AclRow::Binding(binding) = row
            && method.is_none_or(|name| binding.method == name)
        {
            shown.push(show(binding));
        }
    }
    Ok(call.answer(&shown).meta(meta))
}
