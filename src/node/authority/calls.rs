//! The calls of etcd's Auth: users, roles, turning authentication on and off, and tokens for
//! passwords (spec: etcd §4.3).
//!
//! Owns the work around the log: hashing before a proposal, and the check of a password before a
//! token is issued, which is repeated if users or roles changed in between. The rules of changes
//! belong to the state machine.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::{Consistency, Node, NodeError, Read, RequestContext, Secret};
use super::{passwords, tokens};
use headwater_storage::ReadView;
use headwater_storage::state::{AuthReader, Table};
use headwater_types::auth::{AuthCommand, AuthState, Permission, PermissionKind, ROOT, SecretHash};
use headwater_types::{Applied, AuthRefusal, Command, Feature, LogIndex, Refusal, Revision};

/// Longest wait of a change until the cluster's version has users: a new cluster agrees on its
/// version shortly after its start.
const VERSION_TIMEOUT: Duration = Duration::from_secs(3);

/// Handle to users and roles.
#[derive(Clone, Copy)]
pub struct Auth<'a> {
    pub(super) node: &'a Node,
}

/// The password of a new or changed user.
#[derive(Clone, Debug)]
pub enum UserPassword {
    /// No password: the user authenticates by certificate.
    None,
    /// The password itself.
    Plain(Secret),
    /// The hash of argon2id, in PHC form or base64 of it.
    Hashed(Secret),
}

impl Node {
    /// Handle to users and roles.
    pub fn auth(&self) -> Auth<'_> {
        Auth { node: self }
    }
}

type Judged<T> = Result<T, Refusal>;

impl Auth<'_> {
    /// Whether authentication is on, and the auth revision. Needs no right: clients ask before they
    /// authenticate.
    ///
    /// # Errors
    ///
    /// Those of the read path.
    pub async fn status(self, ctx: &RequestContext) -> Result<Read<AuthState>, NodeError> {
        self.node.ready_to_read(ctx, Consistency::Linearizable).await?;
        self.node.read(true, ctx, |view| Ok(Ok(view.head().auth))).await
    }

    /// Issues a token for a name and a password. Returns log index and revision of the log entry
    /// that issued it, and the token.
    ///
    /// # Errors
    ///
    /// [`AuthRefusal::NotEnabled`]; [`AuthRefusal::NoPasswordUser`] for a user that has none;
    /// [`AuthRefusal::Failed`] for a wrong name or a wrong password, which look the same;
    /// [`NodeError::CannotSign`]; [`NodeError::TooManyRequests`] or [`NodeError::Timeout`] if too
    /// many other passwords are hashed; those of the read path and of [`Node::propose`].
    pub async fn authenticate(
        self,
        ctx: &RequestContext,
        name: &str,
        password: &Secret,
    ) -> Result<(LogIndex, Revision, Secret), NodeError> {
        // The node's own steps from here on: the client is not authenticated yet.
        let own = RequestContext { principal: super::Principal::System, ..ctx.clone() };
        loop {
            self.node.ready_to_read(&own, Consistency::Linearizable).await?;
            let known = self.node.inner.store.read(|view| Ok((view.head().auth, view.user(name)?)))?;
            let (auth, user) = known;
            if !auth.enabled {
                return Err(Refusal::Auth(AuthRefusal::NotEnabled).into());
            }
            let has_none = user.as_ref().is_some_and(|user| user.password.is_none());
            let hash = user.and_then(|user| user.password);
            let is_password = self.node.inner.authority.passwords.matches(ctx, password.clone(), hash).await?;
            if has_none || !is_password {
                if let Some(trail) = &ctx.trail {
                    trail.deny();
                }
                let refusal = if has_none { AuthRefusal::NoPasswordUser } else { AuthRefusal::Failed };
                return Err(Refusal::Auth(refusal).into());
            }
            if self.node.inner.authority.keys.as_ref().is_some_and(|keys| !keys.can_sign()) {
                return Err(NodeError::CannotSign);
            }
            let (letters, token) = tokens::new_letters();
            let issue = AuthCommand::Issue { name: name.to_owned(), auth_revision: auth.revision, token };
            match self.node.propose(&own, Command::Auth(issue)).await {
                // Users or roles changed while the password was checked.
                Err(NodeError::Refused(Refusal::Auth(AuthRefusal::OldRevision | AuthRefusal::UserNotFound))) => {}
                Err(error) => return Err(error),
                Ok(Applied { index, revision, .. }) => {
                    let token = match &self.node.inner.authority.keys {
                        Some(keys) => keys.issue(name, auth.revision)?,
                        None => tokens::complete(&letters, index),
                    };
                    return Ok((index, revision, token));
                }
            }
        }
    }

    /// Carries out a change of users or roles, or turns authentication on or off.
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] with the [`AuthRefusal`]; those of [`Node::propose`].
    pub async fn change(self, ctx: &RequestContext, command: AuthCommand) -> Result<Applied, NodeError> {
        self.node.admit(ctx).await?;
        self.await_version(ctx).await;
        self.node.propose(ctx, Command::Auth(command)).await
    }

    /// Waits until the cluster's version has users, at most 3 s and until the context's deadline: a
    /// new cluster agrees on it within a second. Returns also if it has not risen by then.
    async fn await_version(self, ctx: &RequestContext) {
        let has_users = || Feature::Auth.is_in(self.node.versions().cluster().version);
        if !has_users() {
            let until = ctx.deadline.min(Instant::now() + VERSION_TIMEOUT);
            let mut applied = self.node.applied();
            // If it has not risen by then, the refusal of the proposal says so.
            let _risen = tokio::time::timeout_at(until.into(), applied.wait_for(|_| has_users())).await.is_ok();
        }
    }

    /// The hash of a new password; `None` for [`UserPassword::None`]. The principal's right is
    /// judged first: hashing is work.
    ///
    /// # Errors
    ///
    /// As [`Node::authorize`]; [`AuthRefusal::InvalidManagement`] for a given hash that is
    /// malformed or costs too much; [`NodeError::RequestTooLarge`] for a password that is too long;
    /// [`NodeError::TooManyRequests`] or [`NodeError::Timeout`] if too many others are hashed.
    pub async fn hash(self, ctx: &RequestContext, password: UserPassword) -> Result<Option<SecretHash>, NodeError> {
        self.node.admit(ctx).await?;
        self.node.authorizer(ctx)?.permit_root().map_err(Refusal::Auth)?;
        match password {
            UserPassword::None => Ok(None),
            UserPassword::Plain(plain) => self.node.inner.authority.passwords.hash(ctx, plain).await.map(Some),
            UserPassword::Hashed(hashed) => {
                let decoded = STANDARD.decode(hashed.reveal()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                let text = decoded.as_deref().unwrap_or(hashed.reveal());
                Ok(Some(passwords::take_hash(text).map_err(Refusal::Auth)?))
            }
        }
    }

    /// The names of a user's roles. Users may read their own; other principals need all rights.
    ///
    /// # Errors
    ///
    /// [`AuthRefusal::UserNotFound`]; the refusal of the principal; those of the read path.
    pub async fn user(self, ctx: &RequestContext, name: &str) -> Result<Read<Vec<String>>, NodeError> {
        let name = name.to_owned();
        self.read(ctx, move |view, authorizer| {
            let is_own = authorizer.user() == Some(name.as_str());
            if !is_own && let Err(denied) = authorizer.permit_root() {
                return Ok(Err(Refusal::Auth(denied)));
            }
            Ok(view.user(&name)?.map(|user| user.roles).ok_or(Refusal::Auth(AuthRefusal::UserNotFound)))
        })
        .await
    }

    /// The names of all users, in order. The principal needs all rights.
    ///
    /// # Errors
    ///
    /// The refusal of a principal without them; those of the read path.
    pub async fn users(self, ctx: &RequestContext) -> Result<Read<Vec<String>>, NodeError> {
        self.names(ctx, Table::AuthUser).await
    }

    /// The names of all roles, in order. The principal needs all rights.
    ///
    /// # Errors
    ///
    /// The refusal of a principal without them; those of the read path.
    pub async fn roles(self, ctx: &RequestContext) -> Result<Read<Vec<String>>, NodeError> {
        self.names(ctx, Table::AuthRole).await
    }

    /// The permissions of a role. Users may read those of their own roles; other principals need
    /// all rights. The role `root` has everything once it was added.
    ///
    /// # Errors
    ///
    /// [`AuthRefusal::RoleNotFound`]; the refusal of the principal; those of the read path.
    pub async fn role(self, ctx: &RequestContext, name: &str) -> Result<Read<Vec<Permission>>, NodeError> {
        let name = name.to_owned();
        self.read(ctx, move |view, authorizer| {
            if let Err(denied) = authorizer.permit_root() {
                let own = authorizer.user().map(|name| view.user(name)).transpose()?.flatten();
                if !own.is_some_and(|user| user.roles.contains(&name)) {
                    return Ok(Err(Refusal::Auth(denied)));
                }
            }
            let role = view.role(&name)?;
            if name == ROOT && role.is_some() {
                let everything = Permission { kind: PermissionKind::ReadWrite, key: "".into(), range_end: "\0".into() };
                return Ok(Ok(vec![everything]));
            }
            Ok(role.map(|role| role.permissions).ok_or(Refusal::Auth(AuthRefusal::RoleNotFound)))
        })
        .await
    }

    async fn names(self, ctx: &RequestContext, table: Table) -> Result<Read<Vec<String>>, NodeError> {
        self.read(ctx, move |view, authorizer| match authorizer.permit_root() {
            Ok(()) => Ok(Ok(view.auth_names(table)?)),
            Err(denied) => Ok(Err(Refusal::Auth(denied))),
        })
        .await
    }

    async fn read<T: Send + 'static>(
        self,
        ctx: &RequestContext,
        work: impl FnOnce(&ReadView<'_>, &super::Authorizer) -> Result<Judged<T>, headwater_storage::StorageError>
        + Send
        + 'static,
    ) -> Result<Read<T>, NodeError> {
        self.node.ready_to_read(ctx, Consistency::Linearizable).await?;
        let (authority, principal) = (self.node.inner.authority.clone(), ctx.principal.clone());
        self.node
            .read(false, ctx, move |view| match authority.authorizer(view, &principal)? {
                Ok(authorizer) => work(view, &authorizer),
                Err(refusal) => Ok(Err(Refusal::Auth(refusal))),
            })
            .await
    }
}
