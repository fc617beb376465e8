//! Finds the token of a request's secret, and the token's rights as of one state.
//!
//! Owns the caches: of rights by the hash of a secret or by accessor, and of rules by policy.
//! Invariant: cached rights are used only as long as no right in the state has changed since they
//! were compiled, and the token has not expired.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use quick_cache::sync::Cache;

use super::rules::{RulesError, parse};
use super::templates::{includes_datacenter, of_node, of_service, of_template};
use super::{Acl, AclOptions, compile, hash_secret};
use crate::authority::RightsSource;
use crate::{Authorizer, NamedPrincipal, NodeError, Principal, PrincipalKind};
use headwater_storage::StorageError;
use headwater_storage::state::{AclReader, ReadView, StateHead};
use headwater_types::acl::{ACL_ANONYMOUS_ACCESSOR, ACL_GLOBAL_MANAGEMENT_ID, AclGrants, AclPolicy, AclToken};
use headwater_types::auth::AuthState;
use headwater_types::limits::{ACL_CACHED_POLICIES_MAX, ACL_CACHED_TOKENS_MAX};
use headwater_types::rights::Rule;
use headwater_types::{AuthRefusal, LogIndex, Rights};

/// A token with its rights, as of one state.
#[derive(Clone, Debug)]
pub struct TokenRights {
    /// The token.
    pub token: Arc<AclToken>,
    /// Its rights.
    pub rights: Arc<Rights>,
    /// Log index of the last change of rights in that state.
    pub as_of: LogIndex,
}

/// The settings and the caches.
pub(crate) struct AclState {
    options: AclOptions,
    datacenter: String,
    /// Tokens with their rights: by the hash of the secret (empty for the anonymous token), and by
    /// accessor.
    tokens: Cache<Bytes, TokenRights>,
    /// The rules of policies, by the id of the policy and the log index of its last change; `None`
    /// for rules that cannot be read.
    policies: Cache<(String, LogIndex), Option<Arc<Vec<Rule>>>>,
}

impl AclState {
    pub(crate) fn new(options: AclOptions, datacenter: String) -> Self {
        Self {
            options,
            datacenter,
            tokens: Cache::new(ACL_CACHED_TOKENS_MAX),
            policies: Cache::new(ACL_CACHED_POLICIES_MAX),
        }
    }

    pub(super) fn options(&self) -> &AclOptions {
        &self.options
    }

    /// Empties the caches of rights and of rules: the state was replaced as a whole.
    pub(crate) fn clear(&self) {
        self.tokens.clear();
        self.policies.clear();
    }

    /// Whether names without a rule are allowed. False while etcd's Auth is on: ACLs must not give
    /// a caller without a secret any right that Auth refuses.
    pub(super) fn allows_by_default(&self, auth: AuthState) -> bool {
        self.options.default_allow && !auth.enabled
    }

    /// The rights of a token; none at all if a stored policy or the rules of an identity cannot be
    /// read. Compiled again after Auth is turned on or off, because the default then changes.
    fn compile(&self, view: &ReadView<'_>, token: &AclToken) -> Result<Rights, StorageError> {
        let mut sources = Sources { policies: BTreeSet::new(), texts: BTreeSet::new(), datacenter: &self.datacenter };
        sources.add(&token.grants);
        for role in &token.roles {
            if let Some(role) = view.acl_role(role)? {
                sources.add(&role.grants);
            }
        }
        let manages = sources.policies.contains(ACL_GLOBAL_MANAGEMENT_ID);
        let mut all: Vec<Rule> = Vec::new();
        for id in &sources.policies {
            let Some(policy) = view.acl_policy(id)? else { continue };
            if includes_datacenter(&policy.datacenters, &self.datacenter) {
                let Some(rules) = self.rules_of(&policy) else { return Ok(Rights::none()) };
                all.extend(rules.iter().cloned());
            }
        }
        for text in &sources.texts {
            let Some(rules) = parse_stored("an identity", text) else { return Ok(Rights::none()) };
            all.extend(rules);
        }
        Ok(compile::compile(all, manages, self.allows_by_default(view.head().auth)))
    }

    /// The rules of a policy; `None` if they cannot be read.
    fn rules_of(&self, policy: &AclPolicy) -> Option<Arc<Vec<Rule>>> {
        let key = (policy.id.clone(), policy.modified);
        if let Some(known) = self.policies.get(&key) {
            return known;
        }
        let rules = parse_stored(&policy.name, &policy.rules).map(Arc::new);
        self.policies.insert(key, rules.clone());
        rules
    }
}

/// The rules of a text that was checked before it was stored. `None` if it cannot be parsed:
/// another version of the program accepted it, and it may contain any denial.
fn parse_stored(name: &str, text: &str) -> Option<Vec<Rule>> {
    let unread = |error: &RulesError| {
        tracing::error!(policy = name, %error, "a stored policy cannot be read: its tokens have no rights");
    };
    parse(text).inspect_err(unread).ok()
}

struct Sources<'a> {
    policies: BTreeSet<String>,
    texts: BTreeSet<String>,
    datacenter: &'a str,
}

impl Sources<'_> {
    fn add(&mut self, grants: &AclGrants) {
        let AclGrants { policies, services, nodes, templates } = grants;
        self.policies.extend(policies.iter().cloned());
        self.texts.extend(services.iter().filter_map(|it| of_service(it, self.datacenter)));
        self.texts.extend(nodes.iter().filter_map(|it| of_node(it, self.datacenter)));
        self.texts.extend(templates.iter().filter_map(|it| of_template(it, self.datacenter)));
    }
}

impl AclState {
    /// The rights of a principal. `None` if Consul's ACLs do not decide: they are off; the
    /// principal is the node itself; or etcd's Auth is on, and the principal is a user, has a
    /// certificate, or shows a secret that leads to no usable ACL token. Without etcd's Auth, such
    /// a secret is refused by the inner `Err`; so is an accessor of no usable token, in any case.
    pub(crate) fn authorizer<S: RightsSource>(
        &self,
        state: &S,
        principal: &Principal,
    ) -> Result<Result<Option<Authorizer>, AuthRefusal>, S::Error> {
        if !self.options.enabled {
            return Ok(Ok(None));
        }
        let has_users = state.head().auth.enabled;
        let secret = match principal {
            Principal::System => return Ok(Ok(None)),
            Principal::Bearer(secret) if secret.reveal().is_empty() => TokenName::Secret(Bytes::new()),
            Principal::Bearer(secret) => TokenName::Secret(hash_secret(secret.reveal()).0),
            Principal::Named(named) if named.kind == PrincipalKind::Token => TokenName::Accessor(&named.name),
            Principal::Certificate(_) | Principal::Named(_) if has_users => return Ok(Ok(None)),
            // Without etcd's Auth a certificate proves only that the client may connect.
            Principal::Anonymous | Principal::Joining(_) | Principal::Certificate(_) | Principal::Named(_) => {
                TokenName::Secret(Bytes::new())
            }
        };
        let Some(found) = state.token_rights(self, &secret)? else {
            let may_be_of_auth = has_users && !matches!(secret, TokenName::Accessor(_));
            return Ok(if may_be_of_auth { Ok(None) } else { Err(AuthRefusal::InvalidToken) });
        };
        let named = NamedPrincipal {
            name: found.token.accessor.as_str().into(),
            kind: PrincipalKind::Token,
            auth_revision: 0,
            follows: true,
        };
        let authorizer = Authorizer::of(Some(Arc::new(named)), found.rights, found.as_of).made_at(found.token.created);
        Ok(Ok(Some(authorizer.allowing_anonymous(self.allows_by_default(state.head().auth)))))
    }

    /// A token with its rights as of `head`; the outer `None` if the cache has none as of `head`,
    /// the inner if the token has expired.
    pub(crate) fn cached(&self, head: &StateHead, name: &TokenName<'_>) -> Option<Option<TokenRights>> {
        let known = self.tokens.get(name.key()).filter(|known| known.as_of == head.rights_changed)?;
        Some(Some(known).filter(TokenRights::is_usable))
    }

    /// A token with its rights in a view. `None` if there is none, it has expired, or its auth
    /// method is gone.
    pub(crate) fn look_up(
        &self,
        view: &ReadView<'_>,
        name: &TokenName<'_>,
    ) -> Result<Option<TokenRights>, StorageError> {
        if let Some(known) = self.cached(view.head(), name) {
            return Ok(known);
        }
        let as_of = view.head().rights_changed;
        let token = match name {
            TokenName::Secret(hash) if hash.is_empty() => view.acl_token(ACL_ANONYMOUS_ACCESSOR)?,
            TokenName::Secret(hash) => view.acl_token_of_secret(hash)?,
            TokenName::Accessor(accessor) => view.acl_token(accessor)?,
        };
        let is_alive = |token: &AclToken| view.acl_method_is_gone(token).map(|is_gone| !is_gone);
        let token = match token {
            Some(token) if is_alive(&token)? => Some(token),
            _ => None,
        };
        let Some(token) = token else {
            // Unknown secrets are not remembered: their number has no bound.
            self.tokens.remove(name.key());
            return Ok(None);
        };
        let rights = Arc::new(self.compile(view, &token)?);
        let found = TokenRights { token: Arc::new(token), rights, as_of };
        self.tokens.insert(Bytes::copy_from_slice(name.key()), found.clone());
        Ok(Some(found).filter(TokenRights::is_usable))
    }
}

impl TokenRights {
    /// Whether the token has not expired.
    fn is_usable(&self) -> bool {
        !self.token.has_expired(crate::unix_ms())
    }
}

/// The key by which a token is looked up.
pub(crate) enum TokenName<'a> {
    /// The hash of its secret; empty for the anonymous token.
    Secret(Bytes),
    Accessor(&'a str),
}

impl TokenName<'_> {
    /// The key in the cache of tokens.
    fn key(&self) -> &[u8] {
        match self {
            Self::Secret(hash) => hash,
            Self::Accessor(accessor) => accessor.as_bytes(),
        }
    }
}

impl Acl<'_> {
    /// The token of a secret, with its rights as of this member's state; without a secret the
    /// anonymous token. `None` for a secret that no token has, and for a token that has expired or
    /// whose auth method is gone.
    ///
    /// # Errors
    ///
    /// If the disk failed.
    pub fn rights_of(self, secret: Option<&str>) -> Result<Option<TokenRights>, NodeError> {
        let name = TokenName::Secret(secret.map_or_else(Bytes::new, |secret| hash_secret(secret).0));
        Ok(self.node.inner.store.read(|view| self.node.inner.authority.acl().look_up(view, &name))?)
    }
}
