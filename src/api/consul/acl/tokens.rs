//! `/v1/acl/bootstrap`, `/v1/acl/token` and `/v1/acl/tokens`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::super::answer::{Answer, Refusal};
use super::super::call::Call;
use super::super::decode::Object;
use super::links::{self, Names};
use super::{
    absent, check_description, content_hash, delete, grants_content, is_uuid, refused, require_read, require_write,
};
use headwater_node::{AclKind, Consistency, NodeError, Read, RequestContext, Secret, hash_secret, new_uuid};
use headwater_types::acl::{ACL_RESERVED_PREFIX, AclDone, AclKey, AclRefusal, AclRow, AclToken};
use headwater_types::{AuthRefusal, LogIndex, Refusal as Refused};

/// Shortest time from now to the expiry that a request may give a token.
const TTL_MIN: Duration = Duration::from_secs(1);
/// Longest time from now to the expiry that a request may give a token.
const TTL_MAX: Duration = Duration::from_secs(24 * 3600);

/// Text that is shown in place of a secret: only a hash of the secret is stored.
const HIDDEN: &str = "<hidden>";
const KIND: &str = "Token";

pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The last moment of the year 9999: dates have four digits.
const DATE_UNIX_MS_MAX: u64 = 253_402_300_799_999;

/// A time as a date in UTC; a later one than dates can show is the last of them.
fn time(unix_ms: u64) -> String {
    let shown = Duration::from_millis(unix_ms.min(DATE_UNIX_MS_MAX));
    humantime::format_rfc3339_millis(UNIX_EPOCH + shown).to_string()
}

/// The JSON object of a token. Without `secret`, its secret is shown as `<hidden>`, and that of the
/// anonymous token as `anonymous`.
pub(super) fn show(token: &AclToken, names: &Names, secret: Option<&str>) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("AccessorID".to_owned(), token.accessor.as_str().into());
    let is_anonymous = token.secret.0.is_empty();
    body.insert("SecretID".to_owned(), secret.unwrap_or(if is_anonymous { "anonymous" } else { HIDDEN }).into());
    body.insert("Description".to_owned(), token.description.as_str().into());
    links::show(&mut body, &token.grants, &token.roles, names);
    body.insert("Local".to_owned(), token.local.into());
    if !token.method.is_empty() {
        body.insert("AuthMethod".to_owned(), token.method.as_str().into());
    }
    if token.expires_ms != 0 {
        body.insert("ExpirationTime".to_owned(), time(token.expires_ms).into());
    }
    body.insert("CreateTime".to_owned(), time(token.created_ms).into());
    let hash = content_hash(&json!([token.description, grants_content(&token.grants), token.roles]));
    body.insert("Hash".to_owned(), hash.into());
    body.insert("CreateIndex".to_owned(), token.created.get().into());
    body.insert("ModifyIndex".to_owned(), token.modified.get().into());
    body
}

/// Makes the first token, which has all rights. Refused (403) after the first time, unless the
/// settings permit another bootstrap.
pub(crate) async fn bootstrap(call: Call) -> Result<Answer, Refusal> {
    super::require_enabled(&call)?;
    let json = call.json_or_nothing()?;
    let given = Object::of(&json)?.text("BootstrapSecret")?;
    if !given.is_empty() && !is_uuid(&given) {
        return Err(Refusal::bad("BootstrapSecret is not a valid UUID"));
    }
    let secret = Secret::new(if given.is_empty() { new_uuid() } else { given });
    let acl = call.node().acl();
    let done = match acl.bootstrap(&call.context()?, new_uuid(), &secret).await {
        Ok(done) => done,
        Err(NodeError::Refused(Refused::Acl(AclRefusal::Bootstrapped))) => {
            let index = acl.bootstrapped(&call.context()?).await?;
            let text = format!("Permission denied: ACL bootstrap no longer allowed (reset index: {index})");
            return Err(Refusal::new(StatusCode::FORBIDDEN, text));
        }
        Err(error) => return Err(error.into()),
    };
    let names = Names::of(&call, &done.value.grants, &[]).await?;
    let mut body = show(&done.value, &names, Some(secret.reveal()));
    body.insert("ID".to_owned(), secret.reveal().into());
    Ok(call.answer(&body).at(done.index))
}

/// A token as a request describes it, without a secret. Its accessor is empty if the request names
/// none.
async fn read(call: &Call, body: &Object<'_>) -> Result<AclToken, Refusal> {
    let grants = links::read(call, body).await?;
    let roles = links::read_ids(call, body, "Roles", AclKind::Role).await?;
    let description = body.text("Description")?;
    check_description(&description)?;
    if body.get("Rules").is_some_and(|rules| rules.as_str().is_some_and(|rules| !rules.is_empty())) {
        return Err(Refusal::bad("Rules cannot be specified for this token: put them into a policy"));
    }
    let created_ms = now_ms();
    let ttl = body.duration("ExpirationTTL")?;
    let at = body.text("ExpirationTime")?;
    let expires_ms = match (ttl.is_zero(), at.as_str()) {
        (true, "") => 0,
        (false, "") => created_ms + u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX / 2),
        (true, at) => {
            let at = humantime::parse_rfc3339(at)
                .map_err(|_| Refusal::bad(format!("ExpirationTime {at:?} is no time such as 2026-01-31T12:00:00Z")))?;
            at.duration_since(UNIX_EPOCH).map_or(1, |since| since.as_millis() as u64)
        }
        (false, _) => return Err(Refusal::bad("Token Expiration TTL and Expiration Time cannot both be set")),
    };
    if expires_ms != 0 {
        let life = Duration::from_millis(expires_ms.saturating_sub(created_ms));
        if !(TTL_MIN..=TTL_MAX).contains(&life) {
            return Err(Refusal::bad(format!(
                "ExpirationTime must be {} s to {} h in the future",
                TTL_MIN.as_secs(),
                TTL_MAX.as_secs() / 3600
            )));
        }
    }
    Ok(AclToken {
        accessor: body.text("AccessorID")?,
        description,
        grants,
        roles,
        local: body.flag("Local")?,
        created_ms,
        expires_ms,
        ..AclToken::anonymous()
    })
}

/// The id `given` by a request, in lower case; a new one if it is empty. Refused (400) if it is no
/// UUID or is reserved.
fn chosen_id(given: String, member: &str) -> Result<String, Refusal> {
    if given.is_empty() {
        return Ok(new_uuid());
    }
    if !is_uuid(&given) {
        return Err(Refusal::bad(format!("Invalid Token: {member} is not a valid UUID")));
    }
    if given.starts_with(ACL_RESERVED_PREFIX) {
        return Err(Refusal::bad(format!("Invalid Token: UUIDs with the prefix {ACL_RESERVED_PREFIX:?} are reserved")));
    }
    Ok(given.to_ascii_lowercase())
}

/// Stores a new token. The answer shows it with its secret.
async fn store(call: &Call, token: AclToken, secret: &str) -> Result<Answer, Refusal> {
    let row = AclRow::Token(Box::new(token.clone()));
    let done = call.node().acl().put(&call.context()?, row, true).await;
    let done = done.map_err(|error| refused(error, KIND, &token.accessor))?;
    made(call, token, secret, &done).await
}

/// Stores the new token of a login. The answer shows it with its secret. `None` if any right has
/// changed after the log index `as_of`: nothing was stored, and the login must be judged again.
pub(super) async fn store_as_of(
    call: &Call,
    ctx: &RequestContext,
    token: AclToken,
    secret: &str,
    as_of: LogIndex,
) -> Result<Option<Answer>, Refusal> {
    let done = match call.node().acl().put_as_of(ctx, token.clone(), as_of).await {
        Err(NodeError::Refused(Refused::Auth(AuthRefusal::OldRevision))) => return Ok(None),
        done => done.map_err(|error| refused(error, KIND, &token.accessor))?,
    };
    made(call, token, secret, &done).await.map(Some)
}

/// The answer that shows a stored token with its secret.
async fn made(call: &Call, token: AclToken, secret: &str, done: &Read<AclDone>) -> Result<Answer, Refusal> {
    let token = AclToken { created: done.value.created, modified: done.index, ..token };
    let names = Names::of(call, &token.grants, &token.roles).await?;
    Ok(call.answer(&show(&token, &names, Some(secret))).at(done.index))
}

/// Makes a token.
pub(crate) async fn create(call: Call) -> Result<Answer, Refusal> {
    require_write(&call)?;
    let json = call.json_or_nothing()?;
    let body = Object::of(&json)?;
    let mut token = read(&call, &body).await?;
    token.accessor = chosen_id(token.accessor, "AccessorID")?;
    let secret = chosen_id(body.text("SecretID")?, "SecretID")?;
    token.secret = hash_secret(&secret);
    store(&call, token, &secret).await
}

/// Replaces the description and the links of a token, which must exist (else 404). Its secret, auth
/// method, locality, creation and expiry never change. With `/clone` at the end of the path, copies
/// the token instead.
pub(crate) async fn update(call: Call) -> Result<Answer, Refusal> {
    require_write(&call)?;
    let accessor = call.rest("Missing token ID")?.to_owned();
    if let Some(accessor) = accessor.strip_suffix("/clone") {
        return clone(&call, accessor).await;
    }
    let json = call.json()?;
    let body = Object::of(&json)?;
    let mut token = read(&call, &body).await?;
    if !token.accessor.is_empty() && token.accessor != accessor {
        return Err(Refusal::bad("Token Accessor ID in URL and payload do not match"));
    }
    let stored = stored(&call, &accessor).await?;
    let given = body.text("SecretID")?;
    if !given.is_empty() && given != HIDDEN && hash_secret(&given) != stored.secret {
        return Err(Refusal::bad("Invalid Token: cannot change the SecretID of a token"));
    }
    if token.expires_ms != 0 && body.duration("ExpirationTTL")?.is_zero() && token.expires_ms != stored.expires_ms {
        return Err(Refusal::bad("Cannot change expiration time"));
    }
    token.accessor = accessor;
    token.local = stored.local;
    let row = AclRow::Token(Box::new(token.clone()));
    let done = call.node().acl().put(&call.context()?, row, false).await;
    let done = done.map_err(|error| refused(error, KIND, &token.accessor))?;
    let token = AclToken {
        secret: stored.secret,
        method: stored.method,
        created_ms: stored.created_ms,
        expires_ms: stored.expires_ms,
        created: done.value.created,
        modified: done.index,
        ..token
    };
    let names = Names::of(&call, &token.grants, &token.roles).await?;
    Ok(call.answer(&show(&token, &names, None)).at(done.index))
}

/// The stored token that a request changes; 404 if it does not exist. Requires the write right
/// again after the read, because later answers reveal the stored token.
async fn stored(call: &Call, accessor: &str) -> Result<AclToken, Refusal> {
    let key = AclKey::Token(accessor.to_owned());
    let row = call.node().acl().row(&call.context()?, Consistency::Linearizable, key).await?.value.value;
    require_write(call)?;
    match row {
        Some(AclRow::Token(token)) => Ok(*token),
        _ => Err(absent(KIND)),
    }
}

async fn clone(call: &Call, accessor: &str) -> Result<Answer, Refusal> {
    let json = call.json_or_nothing()?;
    let body = Object::of(&json)?;
    let mut token = stored(call, accessor).await?;
    if !token.method.is_empty() {
        return Err(Refusal::bad("Cannot clone a token created from an auth method"));
    }
    let description = body.text("Description")?;
    check_description(&description)?;
    if !description.is_empty() {
        token.description = description;
    }
    let secret = new_uuid();
    token.accessor = new_uuid();
    token.secret = hash_secret(&secret);
    token.created_ms = now_ms();
    store(call, token, &secret).await
}

/// A token by its accessor.
pub(crate) async fn get(call: Call) -> Result<Answer, Refusal> {
    require_read(&call)?;
    let accessor = call.rest("Missing token ID")?.to_owned();
    let (row, meta) = super::row(&call, AclKey::Token(accessor)).await?;
    require_read(&call)?;
    let Some(AclRow::Token(token)) = row else { return Err(absent(KIND)) };
    let names = Names::of(&call, &token.grants, &token.roles).await?;
    let mut body = show(&token, &names, own_secret(&call, &token));
    if call.query.is_there("expanded") {
        expand(&call, &mut body, &token).await?;
    }
    require_read(&call)?;
    Ok(call.answer(&body).meta(meta))
}

/// The secret of the request, if it is the secret of `token`.
fn own_secret<'a>(call: &'a Call, token: &AclToken) -> Option<&'a str> {
    let secret = call.secret.as_ref()?.reveal();
    (hash_secret(secret) == token.secret).then_some(secret)
}

/// Adds to `body` the token's roles, and the policies of the token and its roles, each in full.
/// Also adds the default policy of the ACLs.
async fn expand(call: &Call, body: &mut Map<String, Value>, token: &AclToken) -> Result<(), Refusal> {
    let (mut policies, mut roles) = (Vec::new(), Vec::new());
    let mut ids = token.grants.policies.clone();
    for role in &token.roles {
        let key = AclKey::Role(role.clone());
        if let Some(AclRow::Role(role)) =
            call.node().acl().row(&call.context()?, Consistency::Serializable, key).await?.value.value
        {
            ids.extend(role.grants.policies.iter().cloned());
            let names = Names::of(call, &role.grants, &[]).await?;
            roles.push(super::roles::show(&role, &names));
        }
    }
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        let key = AclKey::Policy(id);
        if let Some(AclRow::Policy(policy)) =
            call.node().acl().row(&call.context()?, Consistency::Serializable, key).await?.value.value
        {
            policies.push(super::policies::show(&policy, true));
        }
    }
    let default = if call.node().acl().allows_by_default() { "allow" } else { "deny" };
    body.insert("ExpandedPolicies".to_owned(), policies.into());
    body.insert("ExpandedRoles".to_owned(), roles.into());
    body.insert("AgentACLDefaultPolicy".to_owned(), default.into());
    body.insert("AgentACLDownPolicy".to_owned(), "extend-cache".into());
    Ok(())
}

/// The token of the request; the anonymous token if the request has none. Refused (403) if the
/// token is unknown.
pub(crate) async fn own(call: Call) -> Result<Answer, Refusal> {
    super::require_enabled(&call)?;
    call.node().learn_token(&call.context()?).await;
    let secret = call.secret.as_ref().map(Secret::reveal);
    let found = call.node().acl().rights_of(secret)?;
    let found = found.ok_or_else(|| Refusal::new(StatusCode::FORBIDDEN, "ACL not found"))?;
    let names = Names::of(&call, &found.token.grants, &found.token.roles).await?;
    Ok(call.answer(&show(&found.token, &names, secret)))
}

/// Removes a token, which must exist (else 404). Refused (400) for the request's own token and the
/// anonymous one.
pub(crate) async fn remove(call: Call) -> Result<Answer, Refusal> {
    require_write(&call)?;
    let accessor = call.rest("Missing token ID")?.to_owned();
    let found = stored(&call, &accessor).await?;
    if own_secret(&call, &found).is_some() {
        return Err(Refusal::bad("Deletion of the request's authorization token is not permitted"));
    }
    if found.secret.0.is_empty() {
        return Err(Refusal::bad("Delete operation not permitted on the anonymous token"));
    }
    delete(&call, AclKey::Token(accessor), KIND).await
}

/// Every token that has not expired; `?policy`, `?role`, `?authmethod` and `?servicename` narrow
/// the list.
pub(crate) async fn list(call: Call) -> Result<Answer, Refusal> {
    require_read(&call)?;
    let (rows, meta) = super::rows(&call, AclKind::Token).await?;
    let names = Names::all(&call).await?;
    require_read(&call)?;
    let now_ms = now_ms();
    let wanted = |name: &str| call.query.get(name).filter(|text| !text.is_empty());
    let (policy, role, method) = (wanted("policy"), wanted("role"), wanted("authmethod"));
    let service = wanted("servicename");
    let fits = |token: &AclToken| {
        policy.is_none_or(|id| token.grants.policies.iter().any(|it| it == id))
            && role.is_none_or(|id| token.roles.iter().any(|it| it == id))
            && method.is_none_or(|name| token.method == name)
            && service.is_none_or(|name| token.grants.services.iter().any(|it| it.name == name))
            && !token.has_expired(now_ms)
    };
    let mut shown: Vec<Map<String, Value>> = Vec::new();
    for row in rows {
        if let AclRow::Token(token) = row
            && fits(&token)
        {
            let secret = own_secret(&call, &token);
            shown.push(show(&token, &names, secret));
        }
    }
    Ok(call.answer(&shown).meta(meta))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_too_late_to_be_shown() {
        assert_eq!(time(1001), "1970-01-01T00:00:01.001Z");
        for late in [DATE_UNIX_MS_MAX, DATE_UNIX_MS_MAX + 1, u64::MAX] {
            assert_eq!(time(late), "9999-12-31T23:59:59.999Z");
        }
    }
}
