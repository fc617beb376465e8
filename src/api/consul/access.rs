//! Rights of a request: its token, the rights that it needs, and the part of each list that it may
//! see (spec: security §4).

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use http::{HeaderMap, HeaderName, StatusCode, header};

use super::answer::Refusal;
use super::call::{Call, Query};
use headwater_node::{Authorizer, NodeError, Principal, PrincipalKind, Secret, Seen};
use headwater_types::acl::ACL_ANONYMOUS_ACCESSOR;
use headwater_types::catalog::{Check, CheckServiceNode};
use headwater_types::consul::consul_key;
use headwater_types::{Access, AuthRefusal, KeyRange, Refusal as Refused, Space};

const X_CONSUL_TOKEN: HeaderName = HeaderName::from_static("x-consul-token");

/// The secret of a request: the first one that is not empty of `?token`, `X-Consul-Token` and
/// `Authorization: Bearer`. `None` without any.
pub(super) fn secret_of(query: &Query, headers: &HeaderMap) -> Option<Secret> {
    let of_header = |name: &HeaderName| headers.get(name)?.to_str().ok();
    let bearer = || {
        let (scheme, secret) = of_header(&header::AUTHORIZATION)?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
    };
    let found = [query.get("token"), of_header(&X_CONSUL_TOKEN), bearer()];
    found.into_iter().flatten().find(|secret| !secret.is_empty()).map(Secret::new)
}

/// A right that a request needs.
#[derive(Clone, Debug)]
pub(super) struct Right<'a> {
    space: Space,
    range: KeyRange,
    access: Access,
    /// The name in the text of a refusal. `None` for the right to a whole space, and if the request
    /// may not read the name: the refusal then shows no name.
    name: Option<Cow<'a, str>>,
}

impl<'a> Right<'a> {
    /// The right to one path of the KV store.
    pub(super) fn key(path: &'a [u8], access: Access) -> Self {
        let range = KeyRange::One(consul_key(path));
        Self { space: Space::Kv, range, access, name: Some(String::from_utf8_lossy(path)) }
    }

    /// The right to all paths with a prefix.
    pub(super) fn keys(prefix: &'a [u8], access: Access) -> Self {
        Self { range: KeyRange::prefix(consul_key(prefix)), ..Self::key(prefix, access) }
    }

    /// The right to one name of a space. Borrows the name.
    pub(super) fn name(space: Space, name: &'a str, access: Access) -> Self {
        Self { space, range: KeyRange::One(space.key_of(name)), access, name: Some(Cow::Borrowed(name)) }
    }

    /// As [`name`](Self::name), with an owned name.
    pub(super) fn named(space: Space, name: String, access: Access) -> Right<'static> {
        Right { space, range: KeyRange::One(space.key_of(&name)), access, name: Some(Cow::Owned(name)) }
    }

    /// The same right with another access.
    pub(super) fn with(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// The same right, but without its name if the request may not read the name. For the name of a
    /// stored row, which a refusal must not reveal.
    fn discreet(self, authorizer: &Authorizer) -> Self {
        let may_read = self.clone().with(Access::READ).is_given_by(authorizer);
        Self { name: self.name.filter(|_| may_read), ..self }
    }

    /// The right to a whole space. A refusal shows no name.
    pub(super) fn whole(space: Space, access: Access) -> Self {
        Self { space, range: Space::WHOLE, access, name: None }
    }

    pub(super) fn node(name: &'a str, access: Access) -> Self {
        Self::name(Space::CatalogNode, name, access)
    }

    pub(super) fn service(name: &'a str, access: Access) -> Self {
        Self::name(Space::CatalogService, name, access)
    }

    pub(super) fn is_given_by(&self, authorizer: &Authorizer) -> bool {
        authorizer.permit(self.space, &self.range, self.access).is_ok()
    }

    /// The refusal (403) of a request that lacks the right, in Consul's words.
    pub(super) fn denied(&self, authorizer: &Authorizer) -> Refusal {
        Refusal::new(StatusCode::FORBIDDEN, self.denial(authorizer))
    }

    /// The text of [`denied`](Self::denied).
    pub(super) fn denial(&self, authorizer: &Authorizer) -> String {
        let (mut who, mut hint) = ("provided token".to_owned(), "");
        if let Some(named) = authorizer.named() {
            who = match named.kind {
                PrincipalKind::Token if &*named.name == ACL_ANONYMOUS_ACCESSOR => {
                    hint = ". The anonymous token is used implicitly when a request does not specify a token.";
                    "anonymous token".to_owned()
                }
                PrincipalKind::Token => format!("token with AccessorID '{}'", named.name),
                PrincipalKind::User | PrincipalKind::Certificate => format!("user '{}'", named.name),
            };
        }
        let on = self.name.as_ref().map(|name| format!(" on {name:?}")).unwrap_or_default();
        format!("Permission denied: {who} lacks permission '{}:{}'{on}{hint}", word(self.space), verb(self.access))
    }
}

/// Consul's name of a kind of rights.
fn word(space: Space) -> &'static str {
    match space {
        Space::Kv => "key",
        Space::Resource => "resource",
        Space::CatalogNode => "node",
        Space::CatalogService => "service",
        Space::Intention => "intention",
        Space::Session => "session",
        Space::Query => "query",
        Space::Event => "event",
        Space::Agent => "agent",
        Space::Cluster => "cluster",
        Space::Operator => "operator",
        Space::Auth => "acl",
        Space::Keyring => "keyring",
        Space::Mesh => "mesh",
        Space::Peering => "peering",
    }
}

fn verb(access: Access) -> &'static str {
    if access.has(Access::WRITE) {
        "write"
    } else if access.has(Access::LIST) {
        "list"
    } else {
        "read"
    }
}

/// The refusal for an error of [`Node::authorizer`](headwater_node::Node::authorizer). Unknown or
/// outdated credentials are 403 `ACL not found`.
pub(super) fn of_judging(error: NodeError) -> Refusal {
    match error {
        NodeError::Refused(Refused::Auth(AuthRefusal::InvalidToken | AuthRefusal::OldRevision)) => {
            Refusal::new(StatusCode::FORBIDDEN, "ACL not found")
        }
        error => error.into(),
    }
}

impl Call {
    /// The principal that `api::access` has found. If that is the anonymous one and the request
    /// shows a secret, the bearer of the secret.
    pub(super) fn principal(&self) -> Principal {
        match (&self.caller.principal, &self.secret) {
            (Principal::Anonymous, Some(secret)) => Principal::Bearer(secret.clone()),
            (principal, _) => principal.clone(),
        }
    }

    /// The rights of the request, as of now. Refused if its credentials are invalid.
    pub(super) fn authorizer(&self) -> Result<Authorizer, Refusal> {
        self.node().authorizer(&self.context()?).map_err(of_judging)
    }

    /// Refuses (403) a request that lacks `right`.
    pub(super) fn require(&self, right: &Right<'_>) -> Result<(), Refusal> {
        let authorizer = self.authorizer()?;
        if right.is_given_by(&authorizer) { Ok(()) } else { Err(right.denied(&authorizer)) }
    }

    /// As [`require`](Self::require), for a right with the name of a stored row. Call it after the
    /// row was read: the refusal names the row only to a request that may still read it.
    pub(super) fn require_discreet(&self, right: Right<'_>) -> Result<(), Refusal> {
        let authorizer = self.authorizer()?;
        if right.is_given_by(&authorizer) { Ok(()) } else { Err(right.discreet(&authorizer).denied(&authorizer)) }
    }

    /// Refuses (403) a request that has this access to no name of the space. The refusal shows no
    /// name, so it is the same whether the row exists or not.
    pub(super) fn require_some(&self, space: Space, access: Access) -> Result<(), Refusal> {
        let authorizer = self.authorizer()?;
        match authorizer.rights().is_none_or(|rights| rights.touches(space, &KeyRange::all(), access)) {
            true => Ok(()),
            false => Err(Right::whole(space, access).denied(&authorizer)),
        }
    }

    /// The part of lists that the request may see, as of now. Call it after the list was read.
    pub(super) fn visibility(&self) -> Result<Visibility<'_>, Refusal> {
        Ok(Visibility { call: self, authorizer: self.authorizer()? })
    }
}

/// The part of lists that a request may see.
pub(super) struct Visibility<'a> {
    call: &'a Call,
    authorizer: Authorizer,
}

impl Visibility<'_> {
    /// Whether an element with this name may be seen.
    pub(super) fn sees(&self, space: Space, name: &str) -> bool {
        self.authorizer.is_open() || self.authorizer.allows(space, &space.key_of(name), Access::READ)
    }

    pub(super) fn sees_node(&self, name: &str) -> bool {
        self.sees(Space::CatalogNode, name)
    }

    pub(super) fn sees_service(&self, name: &str) -> bool {
        self.sees(Space::CatalogService, name)
    }

    pub(super) fn sees_key(&self, path: &[u8]) -> bool {
        self.authorizer.is_open() || self.authorizer.allows(Space::Kv, &consul_key(path), Access::READ)
    }

    /// Whether an instance may be seen: both its node and its service must be readable.
    pub(super) fn sees_instance(&self, instance: &CheckServiceNode) -> bool {
        self.sees_node(&instance.node.name) && self.sees_service(&instance.service.name)
    }

    /// Whether a check may be seen: its node must be readable, and its service if it has one.
    pub(super) fn sees_check(&self, check: &Check) -> bool {
        self.sees_node(&check.node) && (check.service_id.is_empty() || self.sees_service(&check.service_name))
    }

    /// Removes the elements for which `sees` is false. If it removed any, a header of the answer
    /// reports that, but only to a request with a token ([`note_hidden`](Self::note_hidden)).
    pub(super) fn keep<T>(&self, elements: &mut Vec<T>, sees: impl Fn(&T) -> bool) {
        if self.authorizer.is_open() {
            return;
        }
        let before = elements.len();
        elements.retain(sees);
        if elements.len() < before {
            self.note_hidden();
        }
    }

    /// Moves the elements out of a list that was filtered when it was read. Drops those that may
    /// not be read any more. If either filter removed any, a request with a token gets a header
    /// that says so.
    pub(super) fn take<T>(&self, list: &mut Seen<T>, sees: impl Fn(&T) -> bool) -> Vec<T> {
        let mut elements = std::mem::take(&mut list.seen);
        self.keep(&mut elements, sees);
        if list.is_partial {
            self.note_hidden();
        }
        elements
    }

    /// Notes that something was left out of the answer, for the header of filtered lists. The
    /// header is not sent to a request without a token, as in Consul.
    pub(super) fn note_hidden(&self) {
        if self.call.secret.is_some() {
            self.call.has_hidden.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_come_from_three_places() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            headers
        };
        for (query, pairs, wanted) in [
            ("", &[][..], None),
            ("token=", &[("x-consul-token", "")][..], None),
            ("token=q", &[("x-consul-token", "h"), ("authorization", "Bearer b")][..], Some("q")),
            ("", &[("x-consul-token", "h"), ("authorization", "Bearer b")][..], Some("h")),
            ("token=", &[("authorization", "bearer b")][..], Some("b")),
            ("", &[("authorization", "Basic b")][..], None),
        ] {
            let found = secret_of(&Query::read(query).unwrap(), &headers(pairs));
            assert_eq!(found.as_ref().map(Secret::reveal), wanted, "{query} {pairs:?}");
        }
    }

    #[test]
    fn rights_have_consuls_names() {
        for (right, wanted) in [
            (Right::key(b"foo", Access::READ), "key:read"),
            (Right::keys(b"foo", Access::LIST | Access::READ), "key:list"),
            (Right::node("n", Access::WRITE), "node:write"),
            (Right::service("s", Access::READ), "service:read"),
            (Right::name(Space::Session, "n", Access::WRITE), "session:write"),
            (Right::whole(Space::Auth, Access::WRITE), "acl:write"),
            (Right::whole(Space::Operator, Access::READ), "operator:read"),
        ] {
            assert_eq!(format!("{}:{}", word(right.space), verb(right.access)), wanted);
        }
    }
}
