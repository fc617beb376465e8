//! `/v1/acl/login` and `/v1/acl/logout`: logins, which give a token in exchange for a JSON web
//! token (RFC 7519).
//!
//! Owns the settings of auth methods of the kind `jwt`, and the binding of claims to links. The
//! crate `jsonwebtoken` verifies signatures. Invariants: a JSON web token that does not verify
//! gives no token, and the answer does not reveal which part of it was wrong; a token is made only
//! if no right has changed between the check of the login and the apply of the token's log entry.

use std::collections::BTreeMap;
use std::time::Instant;

use http::StatusCode;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Map, Value, json};

use super::super::answer::{Answer, Refusal};
use super::super::call::Call;
use super::super::decode::Object;
use super::super::filter::{Filter, shape};
use super::links::add_once;
use super::{require_enabled, tokens};
use headwater_node::{
    AclKind, Consistency, NodeError, RequestContext, Secret, Template, hash_secret, is_identity_name, new_uuid,
};
use headwater_types::acl::{
    AclBinding, AclGrants, AclKey, AclMethod, AclRow, AclToken, NodeIdentity, ServiceIdentity, TemplatedPolicy,
};

/// Signature algorithms that a method may name in `JWTSupportedAlgs`.
const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];

/// Allowed difference of clocks if a method sets none or zero, seconds; Consul's default.
const LEEWAY_S: u64 = 150;

/// The settings of an auth method of the kind `jwt`.
pub(super) struct JwtConfig {
    keys: Vec<String>,
    algorithms: Vec<Algorithm>,
    issuer: String,
    audiences: Vec<String>,
    /// The attributes that are one text: from a claim (a JSON pointer or a name) to the attribute's
    /// name.
    values: BTreeMap<String, String>,
    /// The attributes that are lists of texts: from a claim to the attribute's name.
    lists: BTreeMap<String, String>,
    leeway_s: u64,
}

impl JwtConfig {
    /// Reads the settings. Refused (400) if they are invalid, or a key fits none of the algorithms.
    pub(super) fn read(config: &Value) -> Result<Self, Refusal> {
        let body = Object::of(config)?;
        let invalid = |why: String| Refusal::bad(format!("Invalid Auth Method: {why}"));
        for name in ["JWKSURL", "OIDCDiscoveryURL"] {
            if !body.text(name)?.is_empty() {
                return Err(invalid(format!("{name} is not supported: give the keys in JWTValidationPubKeys")));
            }
        }
        let keys = body.texts("JWTValidationPubKeys")?;
        if keys.is_empty() {
            return Err(invalid("JWTValidationPubKeys is missing".to_owned()));
        }
        let mut algorithms = Vec::new();
        for name in body.texts("JWTSupportedAlgs")? {
            let known = ALGORITHMS.iter().find(|(known, _)| *known == name);
            let known = known.ok_or_else(|| invalid(format!("JWTSupportedAlgs: {name:?} is not supported")))?;
            algorithms.push(known.1);
        }
        if algorithms.is_empty() {
            algorithms.push(Algorithm::RS256);
        }
        // Whole seconds, rounded up: a small leeway must not become the default.
        let leeway_s = body.duration("ClockSkewLeeway")?.as_millis().div_ceil(1000) as u64;
        let config = Self {
            keys,
            algorithms,
            issuer: body.text("BoundIssuer")?,
            audiences: body.texts("BoundAudiences")?,
            values: body.text_map("ClaimMappings")?,
            lists: body.text_map("ListClaimMappings")?,
            leeway_s: if leeway_s == 0 { LEEWAY_S } else { leeway_s },
        };
        for (number, key) in config.keys.iter().enumerate() {
            if !config.algorithms.iter().any(|algorithm| decoding_key(*algorithm, key).is_some()) {
                return Err(invalid(format!(
                    "JWTValidationPubKeys[{number}] is no PEM of a public key for JWTSupportedAlgs"
                )));
            }
        }
        Ok(config)
    }

    /// The claims of a JSON web token. `None` if it does not verify with any key and algorithm.
    fn verify(&self, bearer: &str) -> Option<Map<String, Value>> {
        for algorithm in &self.algorithms {
            let mut validation = Validation::new(*algorithm);
            validation.leeway = self.leeway_s;
            validation.validate_nbf = true;
            validation.set_required_spec_claims(&["exp"]);
            match self.audiences.is_empty() {
                true => validation.validate_aud = false,
                false => {
                    validation.set_audience(&self.audiences);
                    validation.required_spec_claims.insert("aud".to_owned());
                }
            }
            if !self.issuer.is_empty() {
                validation.set_issuer(&[&self.issuer]);
                validation.required_spec_claims.insert("iss".to_owned());
            }
            for key in self.keys.iter().filter_map(|key| decoding_key(*algorithm, key)) {
                if let Ok(found) = jsonwebtoken::decode::<Map<String, Value>>(bearer, &key, &validation) {
                    return Some(found.claims);
                }
            }
        }
        None
    }

    /// The attributes that the settings map from claims. An attribute of a missing claim is left
    /// out. Refused (403) if a claim cannot be mapped to text.
    fn attributes(&self, claims: &Map<String, Value>) -> Result<Attributes, Refusal> {
        let claims = Value::Object(claims.clone());
        let find = |path: &str| if path.starts_with('/') { claims.pointer(path) } else { claims.get(path) };
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Bool(flag) => Some(flag.to_string()),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        };
        let mut attributes = Attributes::default();
        for (claim, name) in &self.values {
            if let Some(found) = find(claim) {
                let found = text(found).ok_or_else(|| unusable(claim))?;
                attributes.values.insert(name.clone(), found);
            }
        }
        for (claim, name) in &self.lists {
            let found = match find(claim) {
                None => continue,
                Some(Value::Array(items)) => items.iter().map(text).collect::<Option<Vec<_>>>(),
                Some(single) => text(single).map(|text| vec![text]),
            };
            attributes.lists.insert(name.clone(), found.ok_or_else(|| unusable(claim))?);
        }
        Ok(attributes)
    }
}

fn unusable(claim: &str) -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, format!("the claim {claim:?} is no text and cannot be mapped"))
}

fn decoding_key(algorithm: Algorithm, pem: &str) -> Option<DecodingKey> {
    let pem = pem.as_bytes();
    let key = match algorithm {
        Algorithm::ES256 | Algorithm::ES384 => DecodingKey::from_ec_pem(pem),
        Algorithm::EdDSA => DecodingKey::from_ed_pem(pem),
        _ => DecodingKey::from_rsa_pem(pem),
    };
    key.ok()
}

/// The attributes of a verified JSON web token, by name: texts, and lists of texts.
#[derive(Debug, Default)]
struct Attributes {
    values: BTreeMap<String, String>,
    lists: BTreeMap<String, Vec<String>>,
}

impl Attributes {
    /// The JSON that selectors are evaluated on, in the shape [`shape::JWT`].
    fn as_json(&self) -> Value {
        json!({"value": self.values, "list": self.lists})
    }

    /// The text with each `${value.NAME}` replaced by that attribute. `None` if an attribute is
    /// missing, or if the text has another placeholder.
    fn fill(&self, text: &str) -> Option<String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some(begin) = rest.find("${") {
            let end = begin + rest[begin..].find('}')?;
            let name = rest[begin + 2..end].trim().strip_prefix("value.")?;
            filled.push_str(&rest[..begin]);
            filled.push_str(self.values.get(name)?);
            rest = &rest[end + 1..];
        }
        filled.push_str(rest);
        Some(filled)
    }
}

/// Checks that every `${…}` of a text is `${value.NAME}`. The error is the reason why one is not.
pub(super) fn check_placeholders(text: &str) -> Result<(), String> {
    let mut rest = text;
    while let Some(begin) = rest.find("${") {
        let end = rest[begin..].find('}').ok_or_else(|| format!("{text:?} has a ${{ without an end"))?;
        let name = rest[begin + 2..begin + end].trim();
        if name.strip_prefix("value.").is_none_or(str::is_empty) {
            return Err(format!("{text:?} names {name:?}, which is no value.NAME"));
        }
        rest = &rest[begin + end + 1..];
    }
    Ok(())
}

fn denied() -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, "Permission denied")
}

/// Makes a token in exchange for a JSON web token that an auth method accepts.
pub(crate) async fn login(call: Call) -> Result<Answer, Refusal> {
    require_enabled(&call)?;
    let json = call.json()?;
    let body = Object::of(&json)?;
    let (name, bearer) = (body.text("AuthMethod")?, Secret::new(body.text("BearerToken")?));
    let meta = body.text_map("Meta")?;
    // The JSON web token is the right to log in: the request has no token yet.
    let ctx = RequestContext { principal: headwater_node::Principal::System, ..call.context()? };
    loop {
        // No state that is read below is older than this one.
        call.node().check_linearizable(&ctx).await?;
        let as_of = call.node().rights_changed();
        let token = prove(&call, &ctx, &name, &bearer, &meta).await?;
        let secret = new_uuid();
        let token = AclToken { secret: hash_secret(&secret), ..token };
        if let Some(answer) = tokens::store_as_of(&call, &ctx, token, &secret, as_of).await? {
            return Ok(answer);
        }
        // The method or one of its rules may have changed since.
        if Instant::now() >= ctx.deadline {
            return Err(NodeError::Timeout.into());
        }
    }
}

/// The token, without a secret, that the method `name` gives for a JSON web token, by this member's
/// state. Refused (403) if the method does not exist or does not accept it; (400) if `meta` makes
/// the description too long.
async fn prove(
    call: &Call,
    ctx: &RequestContext,
    name: &str,
    bearer: &Secret,
    meta: &BTreeMap<String, String>,
) -> Result<AclToken, Refusal> {
    let key = AclKey::Method(name.to_owned());
    let row = call.node().acl().row(ctx, Consistency::Serializable, key).await?.value.value;
    let Some(AclRow::Method(method)) = row else {
        return Err(Refusal::new(StatusCode::FORBIDDEN, format!("auth method {name:?} not found: ACL not found")));
    };
    let config: Value = serde_json::from_str(&method.config_json).map_err(|error| Refusal::bad(error.to_string()))?;
    let config = JwtConfig::read(&config)?;
    let claims = config.verify(bearer.reveal()).ok_or_else(denied)?;
    let attributes = config.attributes(&claims)?;
    let (grants, roles) = bind(call, ctx, &method, &attributes).await?;
    let description = match meta.is_empty() {
        true => "token created via login".to_owned(),
        false => format!("token created via login: {}", json!(meta)),
    };
    super::check_description(&description)?;
    let created_ms = tokens::now_ms();
    Ok(AclToken {
        accessor: new_uuid(),
        description,
        grants,
        roles,
        local: method.locality == "local",
        method: method.name.clone(),
        created_ms,
        expires_ms: if method.max_token_ttl_ms == 0 { 0 } else { created_ms.saturating_add(method.max_token_ttl_ms) },
        ..AclToken::anonymous()
    })
}

/// The grants and the ids of roles that the binding rules of a method give for attributes, each
/// once. Refused (403) if there are none, or if an attribute makes an invalid name. A rule that
/// names a missing attribute, role, policy or template gives nothing.
async fn bind(
    call: &Call,
    ctx: &RequestContext,
    method: &AclMethod,
    attributes: &Attributes,
) -> Result<(AclGrants, Vec<String>), Refusal> {
    let (mut grants, mut roles) = (AclGrants::default(), Vec::new());
    let shown = attributes.as_json();
    let rows = call.node().acl().rows(ctx, Consistency::Serializable, AclKind::Binding).await?;
    for row in rows.value.value {
        let AclRow::Binding(binding) = row else { continue };
        let is_selected = || Filter::read(&binding.selector, shape::JWT).is_ok_and(|filter| filter.takes(&shown));
        if binding.method != method.name || !is_selected() {
            continue;
        }
        add(call, ctx, &binding, attributes, &mut grants, &mut roles).await?;
    }
    if grants == AclGrants::default() && roles.is_empty() {
        return Err(denied());
    }
    Ok((grants, roles))
}

async fn add(
    call: &Call,
    ctx: &RequestContext,
    binding: &AclBinding,
    attributes: &Attributes,
    grants: &mut AclGrants,
    roles: &mut Vec<String>,
) -> Result<(), Refusal> {
    let Some(name) = attributes.fill(&binding.bind_name) else { return Ok(()) };
    let unfit = |name: &str| Refusal::new(StatusCode::FORBIDDEN, format!("cannot bind to the invalid name {name:?}"));
    let id_of = async |kind| {
        let acl = call.node().acl();
        Ok::<_, Refusal>(acl.id_of_name(ctx, Consistency::Serializable, kind, name.clone()).await?)
    };
    match binding.bind_type.as_str() {
        "service" if is_identity_name(&name) => {
            add_once(&mut grants.services, ServiceIdentity { name, datacenters: Vec::new() });
        }
        "node" if is_identity_name(&name) => {
            add_once(&mut grants.nodes, NodeIdentity { name, datacenter: call.node().datacenter().to_owned() });
        }
        "service" | "node" => return Err(unfit(&name)),
        "role" => id_of(AclKind::Role).await?.into_iter().for_each(|id| add_once(roles, id)),
        "policy" => id_of(AclKind::Policy).await?.into_iter().for_each(|id| add_once(&mut grants.policies, id)),
        _ => {
            let Some(template) = Template::named(&name) else { return Ok(()) };
            let Some(variable) = attributes.fill(&binding.bind_var) else { return Ok(()) };
            if template.has_variable() && !is_identity_name(&variable) {
                return Err(unfit(&variable));
            }
            let policy = TemplatedPolicy { template: name, name: variable, datacenters: Vec::new() };
            add_once(&mut grants.templates, policy);
        }
    }
    Ok(())
}

/// Removes the token of the request. Refused (403) unless a login has made it.
pub(crate) async fn logout(call: Call) -> Result<Answer, Refusal> {
    require_enabled(&call)?;
    let unknown = || Refusal::new(StatusCode::FORBIDDEN, "ACL not found");
    let secret = call.secret.as_ref().ok_or_else(unknown)?;
    call.node().learn_token(&call.context()?).await;
    let found = call.node().acl().rights_of(Some(secret.reveal()))?.ok_or_else(unknown)?;
    if found.token.method.is_empty() {
        return Err(Refusal::new(StatusCode::FORBIDDEN, "Permission denied: token was not created by a login"));
    }
    let by = RequestContext { principal: headwater_node::Principal::System, ..call.context()? };
    let done = call.node().acl().delete(&by, AclKey::Token(found.token.accessor.clone())).await?;
    Ok(call.answer(&true).at(done.index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes() -> Attributes {
        Attributes {
            values: [("user".to_owned(), "ada".to_owned())].into(),
            lists: [("groups".to_owned(), vec!["ops".to_owned(), "dev".to_owned()])].into(),
        }
    }

    #[test]
    fn names_are_filled_with_attributes() {
        for (text, wanted) in [
            ("web", Some("web")),
            ("u-${value.user}-x", Some("u-ada-x")),
            ("${ value.user }", Some("ada")),
            ("${value.other}", None),
            ("${list.groups}", None),
            ("${value.user", None),
        ] {
            assert_eq!(attributes().fill(text).as_deref(), wanted, "{text}");
        }
        assert!(check_placeholders("a${value.x}b${value.y}").is_ok() && check_placeholders("").is_ok());
        for bad in ["${value.x", "${value.}", "${list.x}", "${x}"] {
            assert!(check_placeholders(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn selectors_see_attributes() {
        for (selector, wanted) in [
            ("", true),
            ("value.user == \"ada\"", true),
            ("value.user != \"ada\"", false),
            ("\"ops\" in list.groups", true),
            ("\"root\" in list.groups", false),
            ("value.other == \"x\"", false),
        ] {
            let filter = Filter::read(selector, shape::JWT).unwrap();
            assert_eq!(filter.takes(&attributes().as_json()), wanted, "{selector}");
        }
        assert!(Filter::read("values.user == \"ada\"", shape::JWT).is_err());
    }

    #[test]
    fn claims_become_attributes() {
        let config = JwtConfig {
            keys: Vec::new(),
            algorithms: Vec::new(),
            issuer: String::new(),
            audiences: Vec::new(),
            values: [("sub", "user"), ("/org/name", "org"), ("n", "n"), ("absent", "absent")]
                .map(|(claim, name)| (claim.to_owned(), name.to_owned()))
                .into(),
            lists: [("groups".to_owned(), "groups".to_owned())].into(),
            leeway_s: 0,
        };
        let claims = json!({"sub": "ada", "org": {"name": "x"}, "n": 7, "groups": ["a", "b"], "other": 1});
        let Value::Object(claims) = claims else { unreachable!("it is an object") };
        let found = config.attributes(&claims).unwrap();
        let values: Vec<_> = found.values.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(values, [("n", "7"), ("org", "x"), ("user", "ada")]);
        assert_eq!(found.lists["groups"], ["a", "b"]);
        let Value::Object(odd) = json!({"sub": ["ada"]}) else { unreachable!("it is an object") };
        assert!(config.attributes(&odd).is_err());
    }
}
