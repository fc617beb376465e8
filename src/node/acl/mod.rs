//! Consul's access control lists as the faces see them: a secret leads to its token, and a token to
//! its rights (spec: security §4; `docs/consul-acl.md`).
//!
//! Owns the settings, the step from a secret to rights, and the end of expired tokens. Knows no
//! wire format. The state machine has the rules of changes. Invariant: a secret is hashed here;
//! only the hash is proposed and stored.

mod compile;
mod expiry;
mod resolve;
mod rules;
mod templates;

use sha2::{Digest, Sha256};

use super::{Consistency, Node, NodeError, Principal, Read, RequestContext, Secret, Unanswered};
use headwater_storage::state::{AclReader, Table, acl_rows};
use headwater_types::acl::{
    ACL_ANONYMOUS_ACCESSOR, ACL_GLOBAL_MANAGEMENT_ID, AclCommand, AclDone, AclGrants, AclKey, AclPolicy, AclRefusal,
    AclRow, AclToken, builtin_policies,
};
use headwater_types::auth::SecretHash;
use headwater_types::catalog::Indexed;
use headwater_types::{Applied, Command, LogIndex, Outcome, Proposal, Proposer, Refusal};

pub(crate) use expiry::keep as keep_expiry;
pub use resolve::TokenRights;
pub(crate) use resolve::{AclState, TokenName};
pub use rules::{RulesError, parse as parse_rules};
pub use templates::{TEMPLATES, Template, is_identity_name};

/// Settings of the access control lists, of this member.
#[derive(Clone, Debug, Default)]
pub struct AclOptions {
    /// Whether requests are judged by access control lists.
    pub enabled: bool,
    /// Whether names without a rule are allowed, except in the spaces of rights and of the cluster.
    /// Has no effect while etcd's Auth is on.
    pub default_allow: bool,
    /// The secret of a management token. The leader makes the token if none has this secret.
    pub initial_management: Option<Secret>,
    /// The secret of the token that gives DNS questions their rights; `None` for the anonymous
    /// token.
    pub dns_token: Option<Secret>,
    /// One more bootstrap is allowed if the last one has this log index. Zero allows only the
    /// first.
    pub bootstrap_reset: LogIndex,
    /// Whether the keys below a prefix are listed only with the right `list`.
    pub key_list_policy: bool,
}

/// Handle to the access control lists.
#[derive(Clone, Copy)]
pub struct Acl<'a> {
    pub(super) node: &'a Node,
}

impl Node {
    /// Handle to the access control lists.
    pub fn acl(&self) -> Acl<'_> {
        Acl { node: self }
    }
}

/// The stored form of a secret: its SHA-256.
pub fn hash_secret(secret: &str) -> SecretHash {
    SecretHash(Sha256::digest(secret.as_bytes()).to_vec().into())
}

/// A token with all rights, made at `now_ms`, milliseconds since the Unix epoch.
fn management_token(accessor: String, secret: &Secret, description: &str, now_ms: u64) -> AclToken {
    AclToken {
        accessor,
        secret: hash_secret(secret.reveal()),
        description: description.to_owned(),
        grants: AclGrants { policies: vec![ACL_GLOBAL_MANAGEMENT_ID.to_owned()], ..AclGrants::default() },
        created_ms: now_ms,
        ..AclToken::anonymous()
    }
}

impl<'a> Acl<'a> {
    /// The settings of this member.
    pub fn options(self) -> &'a AclOptions {
        self.node.inner.authority.acl().options()
    }

    /// Whether this member judges requests by access control lists.
    pub fn is_enabled(self) -> bool {
        self.options().enabled
    }

    /// Whether names without a rule are allowed now: [`AclOptions::default_allow`], but false while
    /// etcd's Auth is on.
    pub fn allows_by_default(self) -> bool {
        self.node.inner.authority.acl().allows_by_default(self.node.inner.store.current().head().auth)
    }

    /// The principal of DNS questions: [`AclOptions::dns_token`], or the anonymous one without that
    /// setting.
    pub fn of_dns(self) -> Principal {
        self.options().dns_token.clone().map_or(Principal::Anonymous, Principal::Bearer)
    }

    /// One row, or `None`, with the log index of the last change of any ACL row, or of the restore
    /// if that is later. The built-in policies and the anonymous token are always found. The caller
    /// checks the rights of the principal.
    ///
    /// # Errors
    ///
    /// Those of the read path, as [`Keys::range`](crate::Keys::range).
    pub async fn row(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        key: AclKey,
    ) -> Result<Read<Indexed<Option<AclRow>>>, NodeError> {
        self.node.ready_to_read(ctx, consistency).await?;
        self.node
            .read(true, ctx, move |view| {
                let value = match &key {
                    AclKey::Token(accessor) => view.acl_token(accessor)?.map(|it| AclRow::Token(Box::new(it))),
                    AclKey::Policy(id) => view.acl_policy(id)?.map(|it| AclRow::Policy(Box::new(it))),
                    AclKey::Role(_) | AclKey::Method(_) | AclKey::Binding(_) => view.acl_row(&key)?,
                };
                Ok(Ok(Indexed { index: view.head().floored(view.head().acl_changed), value }))
            })
            .await
    }

    /// All rows of a kind, with the index of [`Acl::row`]. Built-in policies, or the anonymous
    /// token unless it was changed, are first. The others follow in the order of accessors, ids or
    /// names. The caller checks the rights of the principal.
    ///
    /// # Errors
    ///
    /// As [`Acl::row`].
    pub async fn rows(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        kind: AclKind,
    ) -> Result<Read<Indexed<Vec<AclRow>>>, NodeError> {
        self.node.ready_to_read(ctx, consistency).await?;
        self.node
            .read(false, ctx, move |view| {
                let mut value = match kind {
                    AclKind::Policy => builtin_policies().into_iter().map(|it| AclRow::Policy(Box::new(it))).collect(),
                    AclKind::Token => {
                        let stored = view.acl_row(&AclKey::Token(ACL_ANONYMOUS_ACCESSOR.to_owned()))?;
                        let is_stored = stored.is_some();
                        if is_stored { Vec::new() } else { vec![AclRow::Token(Box::new(AclToken::anonymous()))] }
                    }
                    AclKind::Role | AclKind::Method | AclKind::Binding => Vec::new(),
                };
                value.extend(acl_rows(view, kind.table())?);
                Ok(Ok(Indexed { index: view.head().floored(view.head().acl_changed), value }))
            })
            .await
    }

    /// The id of the policy or role with this name; `None` if there is none, and for every other
    /// kind.
    ///
    /// # Errors
    ///
    /// As [`Acl::row`].
    pub async fn id_of_name(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        kind: AclKind,
        name: String,
    ) -> Result<Option<String>, NodeError> {
        self.node.ready_to_read(ctx, consistency).await?;
        let read = self.node.read(true, ctx, move |view| {
            Ok(Ok(match kind {
                AclKind::Policy => view.acl_policy_id(&name)?,
                AclKind::Role => view.acl_role_id(&name)?,
                AclKind::Token | AclKind::Method | AclKind::Binding => None,
            }))
        });
        Ok(read.await?.value)
    }

    /// Log index of the last bootstrap; zero before the first.
    ///
    /// # Errors
    ///
    /// As [`Acl::row`].
    pub async fn bootstrapped(self, ctx: &RequestContext) -> Result<LogIndex, NodeError> {
        self.node.ready_to_read(ctx, Consistency::Linearizable).await?;
        Ok(self.node.read(true, ctx, |view| Ok(Ok(view.acl_bootstrapped()?))).await?.value)
    }

    /// Bootstraps the access control lists: makes a token with all rights, and returns it.
    ///
    /// # Errors
    ///
    /// [`AclRefusal::Bootstrapped`] if there was a bootstrap whose log index is not
    /// [`AclOptions::bootstrap_reset`], or if [`AclOptions::initial_management`] is set and
    /// `bootstrap_reset` is zero; those of [`Node::propose`](crate::Node::propose).
    pub async fn bootstrap(
        self,
        ctx: &RequestContext,
        accessor: String,
        secret: &Secret,
    ) -> Result<Read<AclToken>, NodeError> {
        let reset = self.options().bootstrap_reset;
        // Refused also before the leader has made that token.
        if self.options().initial_management.is_some() && reset == LogIndex::ZERO {
            return Err(Refusal::Acl(AclRefusal::Bootstrapped).into());
        }
        let token = management_token(accessor, secret, "Bootstrap Token (Global Management)", crate::unix_ms());
        let command = AclCommand::Bootstrap { token: Box::new(token.clone()), reset };
        let done = self.propose(ctx, command).await?;
        let value = AclToken { created: done.value.created, modified: done.index, ..token };
        Ok(Read { index: done.index, revision: done.revision, value })
    }

    /// Adds a row if `is_new` is set, else replaces the stored one. The result has the log index of
    /// the row's creation, and as its own index that of this write.
    ///
    /// # Errors
    ///
    /// [`Refusal::Acl`]; those of
    /// [`Node::propose`](crate::Node::propose).
    pub async fn put(self, ctx: &RequestContext, row: AclRow, is_new: bool) -> Result<Read<AclDone>, NodeError> {
        self.propose(ctx, AclCommand::Put { row, is_new }).await
    }

    /// Stores the new token of a login. `as_of` is the log index of the last change of rights in a
    /// state that is no newer than those in which the method and its rules were read.
    ///
    /// # Errors
    ///
    /// [`AuthRefusal::OldRevision`](headwater_types::AuthRefusal::OldRevision) if any right has
    /// changed after `as_of`: the login must be judged again. Otherwise as [`Acl::put`].
    pub async fn put_as_of(
        self,
        ctx: &RequestContext,
        token: AclToken,
        as_of: LogIndex,
    ) -> Result<Read<AclDone>, NodeError> {
        self.node.admit(ctx).await?;
        // Judged as a command of the token itself: its rights are those that the login gives it.
        let proposer = Proposer::Token { accessor: token.accessor.clone(), as_of, rights: None };
        let command = Command::Acl(AclCommand::Put { row: AclRow::Token(Box::new(token)), is_new: true });
        if let Some(trail) = &ctx.trail {
            trail.add_command(&command, true);
        }
        self.node.require_version(command.needs(), ctx).await?;
        let proposal = Proposal { proposer: Some(proposer), ..self.node.proposal(ctx, command) };
        done(self.node.propose_as(ctx, &proposal).await?)
    }

    /// Removes a row; an auth method together with its binding rules. The result counts the removed
    /// rows.
    ///
    /// # Errors
    ///
    /// As [`Acl::put`].
    pub async fn delete(self, ctx: &RequestContext, key: AclKey) -> Result<Read<AclDone>, NodeError> {
        self.propose(ctx, AclCommand::Delete(key)).await
    }

    async fn propose(self, ctx: &RequestContext, command: AclCommand) -> Result<Read<AclDone>, NodeError> {
        done(self.node.propose(ctx, Command::Acl(command)).await?)
    }
}

/// The result of an applied command of the lists. An outcome of another command is logged, and is
/// returned as an indeterminate write.
fn done(applied: Applied) -> Result<Read<AclDone>, NodeError> {
    match applied.outcome {
        Outcome::Acl(value) => Ok(Read { index: applied.index, revision: applied.revision, value }),
        outcome => {
            tracing::error!(?outcome, "a command of the access control lists came to something else");
            Err(NodeError::Indeterminate(Unanswered::LeaderFailed))
        }
    }
}

/// A kind of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclKind {
    /// Tokens.
    Token,
    /// Policies.
    Policy,
    /// Roles.
    Role,
    /// Auth methods.
    Method,
    /// Binding rules.
    Binding,
}

impl AclKind {
    fn table(self) -> Table {
        match self {
            Self::Token => Table::AclToken,
            Self::Policy => Table::AclPolicy,
            Self::Role => Table::AclRole,
            Self::Method => Table::AclMethod,
            Self::Binding => Table::AclBinding,
        }
    }
}

/// The policy that a template or identity stands for, in the form shown to clients.
pub fn shown_policy(name: String, description: String, rules: String) -> AclPolicy {
    AclPolicy { name, description, rules, ..AclPolicy::default() }
}
