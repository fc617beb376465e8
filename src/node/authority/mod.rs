//! Authentication and authorization: the principal of a request, and its rights (spec: security §3
//! and §5).
//!
//! Owns the step from a request's principal to its rights as of one state, and the decisions on
//! reads; writes are judged again when they are applied (`fsm::authorize`). Knows no wire format;
//! every face asks here. Invariant: a request is judged by the rights of the same state in which it
//! is carried out.

mod authorizer;
mod calls;
mod password_tokens;
mod passwords;
mod signed;
mod source;
mod tokens;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

pub use authorizer::{Authorizer, NamedPrincipal, PrincipalKind};
pub use calls::{Auth, UserPassword};
pub use signed::{BadTokenKeys, TokenKeys};
pub(crate) use source::RightsSource;

use super::acl::AclState;
use super::{Node, NodeError, Principal, RequestContext};
use password_tokens::PasswordTokens;
use passwords::Passwords;
use source::{CachedRights, NotCached};
use tokens::SimpleTokens;

use headwater_storage::{ReadView, StorageError};
use headwater_types::auth::{AuthState, TokenChange};
use headwater_types::{Access, AuthRefusal, KeyRange, LogIndex, Refusal, Rights, Space};

/// Settings of the tokens of etcd's Auth.
#[derive(Clone, Debug)]
pub struct AuthOptions {
    /// Time that a simple token lives after its last use.
    pub token_ttl: Duration,
    /// The keys of signed tokens; `None` for simple ones.
    pub token_keys: Option<TokenKeys>,
}

/// Default of etcd's `--auth-token-ttl`: time that a simple token lives after its last use.
const TOKEN_TTL: Duration = Duration::from_secs(300);

impl Default for AuthOptions {
    fn default() -> Self {
        Self { token_ttl: TOKEN_TTL, token_keys: None }
    }
}

/// The state of authentication and authorization on this member that is not replicated: tokens,
/// keys, caches.
pub(crate) struct Authority {
    tokens: SimpleTokens,
    keys: Option<TokenKeys>,
    passwords: Passwords,
    /// Settings of Consul's ACLs, and the cached rights of their tokens.
    acl: AclState,
    password_tokens: PasswordTokens,
    /// Log index of the last change of rights, by etcd's Auth or Consul's ACLs. A new token is no
    /// change, unless it is the anonymous one. After the whole state was replaced: its log index.
    changed: watch::Sender<LogIndex>,
    /// Log index of the last change of the access control lists.
    acl_changed: watch::Sender<LogIndex>,
}

impl Authority {
    /// The log indexes are those of the last change of rights, and of the last change of the access
    /// control lists.
    pub(crate) fn new(options: AuthOptions, acl: AclState, (changed, acl_changed): (LogIndex, LogIndex)) -> Self {
        Self {
            tokens: SimpleTokens::new(options.token_ttl),
            keys: options.token_keys,
            passwords: Passwords::new(),
            acl,
            password_tokens: PasswordTokens::new(),
            changed: watch::Sender::new(changed),
            acl_changed: watch::Sender::new(acl_changed),
        }
    }

    /// Takes a commit's changes of tokens, and the log indexes of the last changes of rights and of
    /// the access control lists. Wakes the watchers of an index that has changed.
    pub(crate) fn changed(&self, rights: LogIndex, acl: LogIndex, tokens: &[TokenChange]) {
        self.tokens.apply(tokens, Instant::now());
        for (watched, index) in [(&self.changed, rights), (&self.acl_changed, acl)] {
            watched.send_if_modified(|known| std::mem::replace(known, index) != index);
        }
    }

    /// Settings of Consul's ACLs, and the cached rights of their tokens.
    pub(crate) fn acl(&self) -> &AclState {
        &self.acl
    }

    /// Forgets all simple tokens and all cached rights of Consul's tokens, because the whole state
    /// was replaced by one at `index`. Wakes all watchers of changes, so that streams are judged
    /// again.
    pub(crate) fn reset(&self, index: LogIndex) {
        self.tokens.clear();
        self.acl.clear();
        self.changed.send_replace(index);
        self.acl_changed.send_replace(index);
    }

    /// The principal's name, as of a state in which authentication is on. `None` for the node's own
    /// tasks. The anonymous principal and unknown credentials are refused.
    fn identify(&self, auth: AuthState, principal: &Principal) -> Result<Option<Arc<NamedPrincipal>>, AuthRefusal> {
        let user = |name: Arc<str>, kind, auth_revision, follows| {
            Ok(Some(Arc::new(NamedPrincipal { name, kind, auth_revision, follows })))
        };
        match principal {
            Principal::Anonymous | Principal::Joining(_) => Err(AuthRefusal::UserEmpty),
            Principal::System => Ok(None),
            Principal::Certificate(name) => user(name.clone(), PrincipalKind::Certificate, auth.revision, true),
            Principal::Named(named) => match named.follows {
                true => user(named.name.clone(), named.kind, auth.revision, true),
                false => Ok(Some(named.clone())),
            },
            Principal::Bearer(token) => {
                if let Some(parts) = tokens::parse(token.reveal()) {
                    let name = self.tokens.user(parts, Instant::now()).ok_or(AuthRefusal::InvalidToken)?;
                    return user(name, PrincipalKind::User, auth.revision, true);
                }
                let keys = self.keys.as_ref().ok_or(AuthRefusal::InvalidToken)?;
                let (name, auth_revision) = keys.read(token.reveal())?;
                user(name.into(), PrincipalKind::User, auth_revision, false)
            }
        }
    }

    /// Judges a principal by the rights in a state. The inner `Err` is the reason for which its
    /// credentials are refused.
    pub(crate) fn authorizer<S: RightsSource>(
        &self,
        state: &S,
        principal: &Principal,
    ) -> Result<Result<Authorizer, AuthRefusal>, S::Error> {
        let head = state.head();
        if let Principal::System = principal {
            return Ok(Ok(Authorizer::system(head.rights_changed, head.auth.enabled)));
        }
        match self.acl.authorizer(state, principal)? {
            Ok(Some(authorizer)) => return Ok(Ok(authorizer)),
            Ok(None) => {}
            Err(refusal) => return Ok(Err(refusal)),
        }
        if !head.auth.enabled {
            return Ok(Ok(Authorizer::open(head.rights_changed)));
        }
        let named = match self.identify(head.auth, principal) {
            Ok(Some(named)) => named,
            Ok(None) => return Ok(Ok(Authorizer::system(head.rights_changed, true))),
            Err(refusal) => return Ok(Err(refusal)),
        };
        // A revision from the future is that of another lineage: it says nothing here.
        if named.auth_revision != head.auth.revision {
            return Ok(Err(AuthRefusal::OldRevision));
        }
        // A user that is not there has no right.
        let rights = state.user_rights(&named.name)?.unwrap_or_else(|| Arc::new(Rights::none()));
        Ok(Ok(Authorizer::of(Some(named), rights, head.rights_changed)))
    }

    /// Checks that the rights in a view permit all wanted accesses to a principal. The inner `Err`:
    /// its credentials are refused, or it lacks one of the accesses. The outer: the disk failed.
    pub(crate) fn permit(
        &self,
        view: &ReadView<'_>,
        principal: &Principal,
        wanted: &[(Space, &KeyRange, Access)],
    ) -> Result<Result<(), Refusal>, StorageError> {
        Ok(self
            .authorizer(view, principal)?
            .and_then(|authorizer| authorizer.permit_all(wanted))
            .map_err(Refusal::Auth))
    }
}

impl Node {
    /// Judges the principal of a request by the rights in this node's applied state.
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] with [`Refusal::Auth`] if its credentials are refused. Also if the
    /// disk failed.
    pub fn authorizer(&self, ctx: &RequestContext) -> Result<Authorizer, NodeError> {
        let authority = &self.inner.authority;
        let judged = match authority.authorizer(&CachedRights::now(&self.inner.store.current()), &ctx.principal) {
            Ok(judged) => judged,
            Err(NotCached) => self.inner.store.read(|view| authority.authorizer(view, &ctx.principal))?,
        };
        Ok(judged.map_err(Refusal::Auth)?)
    }

    /// Checks that the principal has `access` to every key of the interval, in this node's applied
    /// state. Adds interval and verdict to the request's [`AuditTrail`](crate::AuditTrail), if it
    /// has one.
    ///
    /// # Errors
    ///
    /// As [`Node::authorizer`], and if the principal lacks the right.
    pub fn authorize(
        &self,
        ctx: &RequestContext,
        space: Space,
        range: &KeyRange,
        access: Access,
    ) -> Result<(), NodeError> {
        self.authorize_all(ctx, &[(space, range, access)])
    }

    /// As [`Node::authorize`], for several intervals: all of them must be permitted.
    ///
    /// # Errors
    ///
    /// As [`Node::authorize`].
    pub fn authorize_all(&self, ctx: &RequestContext, wanted: &[(Space, &KeyRange, Access)]) -> Result<(), NodeError> {
        let permitted = self.authorizer(ctx)?.permit_all(wanted);
        if let Some(trail) = &ctx.trail {
            trail.add_all(wanted, permitted.is_ok());
        }
        Ok(permitted.map_err(Refusal::Auth)?)
    }

    /// Checks that the principal is authenticated, in this node's applied state. The anonymous
    /// principal passes if nothing is judged, if the default of the ACLs is to allow and etcd's
    /// Auth is off, or if it has all rights.
    ///
    /// # Errors
    ///
    /// As [`Node::authorizer`], and for an anonymous principal that does not pass.
    pub fn authorize_somebody(&self, ctx: &RequestContext) -> Result<(), NodeError> {
        Ok(self.authorizer(ctx)?.permit_somebody().map_err(Refusal::Auth)?)
    }

    /// Whether the simple token of a request names a log entry that this member has not applied
    /// yet. Requests wait for that entry ([`Node::await_token`]). False while etcd's Auth is off.
    pub fn awaits_token(&self, ctx: &RequestContext) -> bool {
        self.index_of_token(ctx).is_some()
    }

    /// Whether the request shows a secret that may be that of a token of Consul's ACLs. False for a
    /// simple token of etcd's Auth, and while ACLs are off.
    pub fn shows_acl_token(&self, ctx: &RequestContext) -> bool {
        let Principal::Bearer(secret) = &ctx.principal else { return false };
        self.acl().is_enabled() && !secret.reveal().is_empty() && tokens::parse(secret.reveal()).is_none()
    }

    /// Checks that the principal has `access` to the cluster, in this node's applied state.
    ///
    /// # Errors
    ///
    /// As [`Node::authorize`].
    pub fn authorize_cluster(&self, ctx: &RequestContext, access: Access) -> Result<(), NodeError> {
        self.authorize(ctx, Space::Cluster, &Space::WHOLE, access)
    }

    /// The context of a stream that this request opens. It stays authenticated after a token of
    /// etcd's Auth has expired, for as long as the principal has rights. For a principal without a
    /// name it is the context of the request.
    ///
    /// # Errors
    ///
    /// As [`Node::authorizer`].
    pub fn stream_context(&self, ctx: &RequestContext) -> Result<RequestContext, NodeError> {
        match self.authorizer(ctx)?.named() {
            Some(named) => {
                let named = Arc::new(NamedPrincipal { follows: true, ..NamedPrincipal::clone(named) });
                Ok(RequestContext { principal: Principal::Named(named), ..ctx.clone() })
            }
            None => Ok(ctx.clone()),
        }
    }

    /// The log index of the last change after which known rights may be out of date, in this node's
    /// applied state. Every change of etcd's Auth and of Consul's ACLs counts, also a new user or
    /// policy; a new token does not, except the anonymous one. A stream keeps the index as of which
    /// it was judged. It is judged again once the index has moved.
    pub fn rights_changed(&self) -> LogIndex {
        self.inner.store.current().head().rights_changed
    }

    /// Yields the new [`rights_changed`](Self::rights_changed) after each change: a stream that
    /// waits for events is judged again then. Several changes may be yielded as one.
    pub fn rights_changes(&self) -> WatchStream<LogIndex> {
        WatchStream::from_changes(self.inner.authority.changed.subscribe())
    }

    /// A receiver of the log index of the last change of the access control lists, present and
    /// future.
    pub fn follow_acl(&self) -> watch::Receiver<LogIndex> {
        self.inner.authority.acl_changed.subscribe()
    }

    /// The log index that this member must apply to know the request's token. `None` if it has
    /// applied it, or the request shows no simple token, or authentication is off.
    pub(super) fn index_of_token(&self, ctx: &RequestContext) -> Option<LogIndex> {
        let Principal::Bearer(token) = &ctx.principal else { return None };
        let head = self.inner.store.current().head();
        let index = tokens::parse(token.reveal())?.index;
        (head.auth.enabled && index > head.applied_index()).then_some(index)
    }
}
