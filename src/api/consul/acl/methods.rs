//! `/v1/acl/auth-method` and `/v1/acl/auth-methods`: methods of the kind `jwt`.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::super::answer::{Answer, Refusal};
use super::super::call::Call;
use super::super::decode::Object;
use super::login::JwtConfig;
use super::{check_description, delete, is_name, refused, require_read, require_write};
use headwater_api_shared::duration;
use headwater_node::AclKind;
use headwater_types::acl::{AclKey, AclMethod, AclRow};

const KIND: &str = "Auth method";
/// Longest name of an auth method, bytes.
const NAME_BYTES_MAX: usize = 128;

fn show(method: &AclMethod, with_config: bool) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("Name".to_owned(), method.name.as_str().into());
    body.insert("Type".to_owned(), method.kind.as_str().into());
    if !method.display_name.is_empty() {
        body.insert("DisplayName".to_owned(), method.display_name.as_str().into());
    }
    body.insert("Description".to_owned(), method.description.as_str().into());
    if method.max_token_ttl_ms != 0 {
        let ttl = duration::format(Duration::from_millis(method.max_token_ttl_ms));
        body.insert("MaxTokenTTL".to_owned(), ttl.into());
    }
    body.insert("TokenLocality".to_owned(), method.locality.as_str().into());
    if with_config {
        // Every stored text was written from a JSON object.
        body.insert("Config".to_owned(), serde_json::from_str(&method.config_json).unwrap_or_default());
    }
    body.insert("CreateIndex".to_owned(), method.created.get().into());
    body.insert("ModifyIndex".to_owned(), method.modified.get().into());
    body
}

fn read(body: &Object<'_>, name: String) -> Result<AclMethod, Refusal> {
    if !is_name(&name, NAME_BYTES_MAX) {
        return Err(Refusal::bad(
            "Invalid Auth Method: invalid Name. Only alphanumeric characters, '-' and '_' are allowed, 128 at most",
        ));
    }
    let kind = body.text("Type")?;
    if kind != "jwt" {
        return Err(Refusal::bad(format!("Invalid Auth Method: Type should be one of: [jwt], not {kind:?}")));
    }
    let description = body.text("Description")?;
    check_description(&description)?;
    let locality = match body.text("TokenLocality")?.as_str() {
        "" | "local" => "local",
        "global" => "global",
        other => return Err(Refusal::bad(format!("Invalid Auth Method: TokenLocality {other:?} is no locality"))),
    };
    let config = Value::Object(body.map("Config")?.cloned().unwrap_or_default());
    JwtConfig::read(&config)?;
    Ok(AclMethod {
        name,
        kind,
        display_name: body.text("DisplayName")?,
        description,
        max_token_ttl_ms: u64::try_from(body.duration("MaxTokenTTL")?.as_millis()).unwrap_or(u64::MAX),
        locality: locality.to_owned(),
        config_json: config.to_string(),
        ..AclMethod::default()
    })
}

async fn store(call: &Call, method: AclMethod, is_new: bool) -> Result<Answer, Refusal> {
    let row = AclRow::Method(Box::new(method.clone()));
    let done = call.node().acl().put(&call.context()?, row, is_new).await;
    let done = done.map_err(|error| refused(error, KIND, &method.name))?;
    let method = AclMethod { created: done.value.created, modified: done.index, ..method };
    Ok(call.answer(&show(&method, true)).at(done.index))
}

/// Creates an auth method.
pub(crate) async fn create(call: Call) -> Result<Answer, Refusal> {
    require_write(&call)?;
    let json = call.json()?;
    let body = Object::of(&json)?;
    let name = body.text("Name")?;
    store(&call, read(&body, name)?, true).await
}

/// Replaces an auth method, which must exist (else 404).
pub(crate) async fn update(call: Call) -> Result<Answer, Refusal> {
    require_write(&call)?;
    let name = call.rest("Missing auth method name")?.to_owned();
    let json = call.json()?;
    let body = Object::of(&json)?;
    let given = body.text("Name")?;
    if !given.is_empty() && given != name {
        return Err(Refusal::bad("AuthMethod Name in URL and payload do not match"));
    }
    store(&call, read(&body, name)?, false).await
}

/// An auth method by its name, with its settings.
pub(crate) async fn get(call: Call) -> Result<Answer, Refusal> {
    require_read(&call)?;
    let name = call.rest("Missing auth method name")?.to_owned();
    let (row, meta) = super::row(&call, AclKey::Method(name)).await?;
    require_read(&call)?;
    let Some(AclRow::Method(method)) = row else { return Err(super::absent(KIND)) };
    Ok(call.answer(&show(&method, true)).meta(meta))
}

/// Removes an auth method with its binding rules. The tokens of its logins are invalid at once; the
/// leader removes them afterwards.
pub(crate) async fn remove(call: Call) -> Result<Answer, Refusal> {
    require_write(&call)?;
    let name = call.rest("Missing auth method name")?.to_owned();
    delete(&call, AclKey::Method(name), KIND).await
}

/// Every auth method, without its settings.
pub(crate) async fn list(call: Call) -> Result<Answer, Refusal> {
    require_read(&call)?;
    let (rows, meta) = super::rows(&call, AclKind::Method).await?;
    require_read(&call)?;
    let mut shown = Vec::new();
    for row in &rows {
        if let AclRow::Method(method) = row {
            shown.push(show(method, false));
        }
    }
    Ok(call.answer(&json!(shown)).meta(meta))
}
