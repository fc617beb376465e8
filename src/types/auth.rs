//! Users, roles and identities (spec: security §3 and §5).
//!
//! Owns the commands of etcd's Auth, the reasons for which they and all other requests are refused,
//! and the identity that a proposal carries. Knows no password: hashes are made before a command,
//! and nothing here prints one. Invariant: a proposal names a principal, never its rights; rights
//! are looked up in the state that judges.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use super::rights::{Access, Rights};
use super::{KeyRange, LogIndex};

/// The user and the role that may do everything.
pub const ROOT: &str = "root";

/// The auth revision of a store without any change of users and roles.
pub const AUTH_REVISION_INITIAL: u64 = 1;

/// The switch of etcd's authentication and the revision of users and roles; part of the state's
/// head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthState {
    /// Whether authentication is on: only then are requests judged.
    pub enabled: bool,
    /// Advances by one with every change of users and roles, and when authentication is disabled.
    pub revision: u64,
}

impl AuthState {
    /// Of a store that never had users.
    pub const INITIAL: Self = Self { enabled: false, revision: AUTH_REVISION_INITIAL };
}

/// The identity in a proposal, as apply judges it. A proposal without one is anonymous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proposer {
    /// The store's own tasks, which may do everything.
    System,
    /// A user of etcd's Auth.
    User {
        /// The user's name.
        name: String,
        /// The auth revision as of which the request was authenticated.
        auth_revision: u64,
    },
    /// A token of Consul's ACLs.
    Token {
        /// The token's accessor id.
        accessor: String,
        /// Log index of the last change of rights in the state in which the request was judged.
        as_of: LogIndex,
        /// The token's rights in the spaces of the command, if the verdict depends on stored data:
        /// it is judged again where it is applied. Never the rights to everything.
        rights: Option<Arc<Rights>>,
    },
}

/// A secret that never prints: the hash of a password or of a token.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretHash(pub Bytes);

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash")
    }
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The hash of the password, in PHC form; `None` for a user that has none and authenticates by
    /// certificate.
    pub password: Option<SecretHash>,
    /// Names of roles, sorted. A role need not exist.
    pub roles: Vec<String>,
}

/// A role of etcd's Auth: permissions, sorted by key and end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// The permissions; no two of equal interval.
    pub permissions: Vec<Permission>,
}

/// A permission of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The access that it gives.
    pub kind: PermissionKind,
    /// First key of the interval; not empty.
    pub key: Bytes,
    /// etcd's `range_end`: empty for one key, `"\0"` for all keys from `key` on.
    pub range_end: Bytes,
}

impl Permission {
    /// The keys that the permission applies to.
    pub fn range(&self) -> KeyRange {
        KeyRange::from_etcd(self.key.clone(), self.range_end.clone())
    }

    /// Whether its interval can be granted: it has a first key, and contains it.
    pub fn is_valid(&self) -> bool {
        !self.key.is_empty() && !self.range().is_empty()
    }
}

/// The access that a permission gives. The numbers are etcd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PermissionKind {
    /// Reading and listing.
    Read = 0,
    /// Writing.
    Write = 1,
    /// Both.
    ReadWrite = 2,
}

impl PermissionKind {
    /// Every kind, in the order of its number.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::ReadWrite];

    /// The access that it gives.
    pub fn access(self) -> Access {
        match self {
            Self::Read => Access::READ | Access::LIST,
            Self::Write => Access::WRITE,
            Self::ReadWrite => Access::ALL,
        }
    }
}

/// A change of users, roles or the switch; or a token that was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthCommand {
    /// Turns authentication on.
    Enable,
    /// Turns authentication off; all tokens end.
    Disable,
    /// Issues a simple token to a user after the check of the password.
    Issue {
        /// The user.
        name: String,
        /// The auth revision at which the password was checked.
        auth_revision: u64,
        /// SHA-256 of the token's random letters.
        token: SecretHash,
    },
    /// Adds a user.
    UserAdd {
        /// The name.
        name: String,
        /// The hash of the password, if the user has one.
        password: Option<SecretHash>,
    },
    /// Removes a user; its tokens end.
    UserDelete {
        /// The name.
        name: String,
    },
    /// Replaces a password; the user's tokens end.
    UserChangePassword {
        /// The name.
        name: String,
        /// The hash of the new password; `None` takes the password away.
        password: Option<SecretHash>,
    },
    /// Gives a role to a user.
    UserGrantRole {
        /// The user.
        user: String,
        /// The role.
        role: String,
    },
    /// Takes a role from a user.
    UserRevokeRole {
        /// The user.
        user: String,
        /// The role.
        role: String,
    },
    /// Adds a role without permissions.
    RoleAdd {
        /// The name.
        name: String,
    },
    /// Removes a role, from all users too.
    RoleDelete {
        /// The name.
        name: String,
    },
    /// Adds a permission to a role, or replaces the one of the same interval.
    RoleGrantPermission {
        /// The role.
        role: String,
        /// The permission.
        permission: Permission,
    },
    /// Removes the permission of exactly this interval from a role.
    RoleRevokePermission {
        /// The role.
        role: String,
        /// First key of the interval.
        key: Bytes,
        /// etcd's `range_end`.
        range_end: Bytes,
    },
}

/// A change of the simple tokens that members know; not part of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenChange {
    /// A token was issued.
    Issued {
        /// The user that it stands for.
        name: String,
        /// SHA-256 of its random letters.
        token: SecretHash,
        /// Log index of the entry, which is part of the token.
        index: LogIndex,
    },
    /// All tokens of a user ended.
    UserEnded(String),
    /// All tokens ended.
    AllEnded,
}

/// Reason for which a request is denied, or a change of users and roles refused. The numbers are in
/// records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[repr(i32)]
pub enum AuthRefusal {
    /// The principal lacks a right.
    #[error("permission denied")]
    PermissionDenied = 1,
    /// The request is anonymous and needs a user, or a change names no user.
    #[error("user name is empty")]
    UserEmpty = 2,
    /// Users or roles changed since the principal was authenticated. The client must authenticate
    /// again.
    #[error("revision of auth store is old")]
    OldRevision = 3,
    /// The token is unknown, or has expired.
    #[error("invalid auth token")]
    InvalidToken = 4,
    /// The password is wrong, or the user has none or does not exist.
    #[error("authentication failed, invalid user ID or password")]
    Failed = 5,
    /// Authentication is off.
    #[error("authentication is not enabled")]
    NotEnabled = 6,
    /// There is no user `root`.
    #[error("root user does not exist")]
    RootUserNotExist = 7,
    /// The user `root` lacks the role `root`.
    #[error("root user does not have root role")]
    RootRoleNotExist = 8,
    /// The user exists.
    #[error("user name already exists")]
    UserExists = 9,
    /// The user does not exist.
    #[error("user name not found")]
    UserNotFound = 10,
    /// A change names no role.
    #[error("role name is empty")]
    RoleEmpty = 11,
    /// The role exists.
    #[error("role name already exists")]
    RoleExists = 12,
    /// The role does not exist.
    #[error("role name not found")]
    RoleNotFound = 13,
    /// The user does not have the role.
    #[error("role is not granted to the user")]
    RoleNotGranted = 14,
    /// The role has no permission of exactly this interval.
    #[error("permission is not granted to the role")]
    PermissionNotGranted = 15,
    /// A grant without a permission.
    #[error("permission not given")]
    PermissionNotGiven = 16,
    /// A granted interval is empty or has no first key. Or, while authentication is on, the change
    /// deletes the user `root`, deletes the role `root`, or revokes that role from that user.
    #[error("invalid auth management")]
    InvalidManagement = 17,
    /// A user without a password was given one to authenticate with.
    #[error("authentication failed, password was given for no password user")]
    NoPasswordUser = 18,
}

impl AuthRefusal {
    /// Every refusal, in the order of its number.
    pub const ALL: [Self; 18] = [
        Self::PermissionDenied,
        Self::UserEmpty,
        Self::OldRevision,
        Self::InvalidToken,
        Self::Failed,
        Self::NotEnabled,
        Self::RootUserNotExist,
        Self::RootRoleNotExist,
        Self::UserExists,
        Self::UserNotFound,
        Self::RoleEmpty,
        Self::RoleExists,
        Self::RoleNotFound,
        Self::RoleNotGranted,
        Self::PermissionNotGranted,
        Self::PermissionNotGiven,
        Self::InvalidManagement,
        Self::NoPasswordUser,
    ];

    /// Whether the refusal means that the credentials are invalid or expired, so that
    /// authenticating again may help.
    pub fn is_unauthenticated(self) -> bool {
        matches!(self, Self::UserEmpty | Self::OldRevision | Self::InvalidToken | Self::Failed | Self::NoPasswordUser)
    }
}
