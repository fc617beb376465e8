//! Commands of the access control lists, and the reasons to refuse them.

use thiserror::Error;

use super::{AclBinding, AclMethod, AclPolicy, AclRole, AclToken};
use crate::LogIndex;
use crate::limits::ACL_LINKS_MAX;

/// A change of tokens, policies, roles, auth methods or binding rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AclCommand {
    /// Creates a token, which the proposer has given all rights. Refused after an earlier
    /// bootstrap, unless `reset` is the log index of the last one.
    Bootstrap {
        /// The token.
        token: Box<AclToken>,
        /// Log index of the bootstrap that this one replaces; zero for the first.
        reset: LogIndex,
    },
    /// Adds a row if `is_new` is set, else replaces the stored one. A replaced row keeps `created`,
    /// and a replaced token also its secret, its auth method and its times.
    Put {
        /// The row; `created` and `modified` are ignored.
        row: AclRow,
        /// True: refused if the row exists. False: refused if it does not exist.
        is_new: bool,
    },
    /// Removes a row; with an auth method also its binding rules. Succeeds if the row does not
    /// exist.
    Delete(AclKey),
    /// Removes tokens, each given by its accessor and its `modified`. The proposer names those that
    /// have expired, or whose auth method was removed. Apply has no clock. It skips a token that
    /// has changed since, and one without an expiry unless its auth method was removed.
    Expire(Vec<(String, LogIndex)>),
}

/// One row of the access control lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AclRow {
    /// A token.
    Token(Box<AclToken>),
    /// A policy.
    Policy(Box<AclPolicy>),
    /// A role.
    Role(Box<AclRole>),
    /// An auth method.
    Method(Box<AclMethod>),
    /// A binding rule.
    Binding(Box<AclBinding>),
}

/// The table and the key of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AclKey {
    /// A token, by accessor.
    Token(String),
    /// A policy, by id.
    Policy(String),
    /// A role, by id.
    Role(String),
    /// An auth method, by name. Its binding rules are removed with it. Its tokens are not accepted
    /// any more, and are removed later by [`AclCommand::Expire`].
    Method(String),
    /// A binding rule, by id.
    Binding(String),
}

/// Result of a command that was not refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AclDone {
    /// Number of rows that were written or removed. The record of the bootstrap and the index of
    /// names do not count.
    pub changed: u64,
    /// `created` of the written row; zero if rows were removed.
    pub created: LogIndex,
}

/// Reason for which a change of the access control lists is refused. The numbers are in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[repr(i32)]
pub enum AclRefusal {
    /// There was a bootstrap already, and `reset` is not the log index of the last one; or there
    /// was none, and `reset` is not zero.
    #[error("ACL bootstrap no longer allowed")]
    Bootstrapped = 1,
    /// The row that a put is to replace does not exist. Removing an absent row is not refused.
    #[error("it does not exist")]
    Absent = 2,
    /// A row with this key ([`AclKey`]) exists.
    #[error("the id is in use")]
    IdTaken = 3,
    /// Another row of this kind has the name.
    #[error("the name is in use")]
    NameTaken = 4,
    /// A token with this secret exists.
    #[error("SecretID is already in use")]
    SecretTaken = 5,
    /// The row links a policy that does not exist.
    #[error("a policy that it names does not exist")]
    PolicyAbsent = 6,
    /// The row links a role that does not exist.
    #[error("a role that it names does not exist")]
    RoleAbsent = 7,
    /// The auth method that the row names does not exist.
    #[error("the auth method does not exist")]
    MethodAbsent = 8,
    /// The row exists in every cluster: a builtin policy never changes, and the anonymous token
    /// cannot be removed.
    #[error("it is builtin and cannot be changed so")]
    Builtin = 9,
    /// The command would change a field that never changes: the type of an auth method, or `local`
    /// of a token.
    #[error("cannot change the type of an auth method, nor toggle local mode of a token")]
    Fixed = 10,
    /// A token or role has more than [`ACL_LINKS_MAX`] links of one kind.
    #[error("at most {ACL_LINKS_MAX} policies, roles and identities can be linked")]
    TooManyLinks = 11,
}

impl AclRefusal {
    /// Every refusal, in the order of its number.
    pub const ALL: [Self; 11] = [
        Self::Bootstrapped,
        Self::Absent,
        Self::IdTaken,
        Self::NameTaken,
        Self::SecretTaken,
        Self::PolicyAbsent,
        Self::RoleAbsent,
        Self::MethodAbsent,
        Self::Builtin,
        Self::Fixed,
        Self::TooManyLinks,
    ];
}
