//! Users, roles and identities (spec: security §3 and §5).
//!
//! Owns the commands of etcd's Auth, the reasons for which they are refused and other requests are
//! denied, and the principal that a proposal carries. Knows no password: hashes are made before a
//! command, and nothing here prints one. Invariant: the proposal of a [`Proposer::User`] has no
//! rights: apply looks them up in the state.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use super::rights::{Access, Rights};
use super::{KeyRange, LogIndex};

/// Name of the role that gives the right to everything, and of the user that must have this role
/// while authentication is on.
pub const ROOT: &str = "root";

/// The auth revision of a store that never had users or roles.
pub const AUTH_REVISION_INITIAL: u64 = 1;

/// The switch of etcd's authentication and the revision of users and roles; part of the state's
/// head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthState {
    /// Whether etcd's authentication is on: only then are the rights of users checked.
    pub enabled: bool,
    /// The auth revision. It advances by one with every change of users and roles, and when
    /// authentication is turned off.
    pub revision: u64,
}

impl AuthState {
    /// The state of a store that never had users.
    pub const INITIAL: Self = Self { enabled: false, revision: AUTH_REVISION_INITIAL };
}

/// The principal of a proposal: apply judges the proposal by it. A proposal without one is
/// anonymous, or was made while authentication was off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proposer {
    /// The store's own tasks, which may do everything. Their proposals name no principal while
    /// authentication is off.
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
        /// Version of the rights by which the request was permitted: the log index of their last
        /// change. Apply refuses the proposal if the rights have a later change by then.
        as_of: LogIndex,
        /// The token's rights in the spaces of the command, if permission depends on stored data:
        /// apply judges the command again by them. `None` if it does not, for a token with the
        /// right to everything, and if the rights are too large to carry.
        rights: Option<Arc<Rights>>,
    },
}

/// The hash of a password or of a token's secret. Its `Debug` does not print it.
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
    /// Names of the user's roles, sorted. `root` may be among them without a stored role.
    pub roles: Vec<String>,
}

/// A role of etcd's Auth: permissions, sorted by key and end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// The permissions; no two have the same `key` and `range_end`.
    pub permissions: Vec<Permission>,
}

/// A permission of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The access that it gives.
    pub kind: PermissionKind,
    /// First key of the interval; not empty.
    pub key: Bytes,
    /// etcd's `range_end`: empty for one key, `"\0"` for all keys from `key` on; else the first
    /// key after the interval.
    pub range_end: Bytes,
}

impl Permission {
    /// The keys that the permission applies to.
    pub fn range(&self) -> KeyRange {
        KeyRange::from_etcd(self.key.clone(), self.range_end.clone())
    }

    /// Whether its interval can be granted: `key` is not empty, and the interval contains it.
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
    /// Reading, listing and writing.
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
    /// Turns authentication off; all tokens of etcd's Auth end.
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
    /// Grants a role to a user.
    UserGrantRole {
        /// The user.
        user: String,
        /// The role.
        role: String,
    },
    /// Revokes a role from a user.
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
    /// Adds a permission to a role, or replaces the one with the same `key` and `range_end`.
    RoleGrantPermission {
        /// The role.
        role: String,
        /// The permission.
        permission: Permission,
    },
    /// Removes from a role the permission with exactly this `key` and `range_end`.
    RoleRevokePermission {
        /// The role.
        role: String,
        /// First key of the interval.
        key: Bytes,
        /// etcd's `range_end`, as in [`Permission::range_end`].
        range_end: Bytes,
    },
}

/// A change of the simple tokens that each member keeps in memory; not part of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenChange {
    /// A simple token was issued.
    Issued {
        /// The user that the token authenticates.
        name: String,
        /// SHA-256 of the token's random letters.
        token: SecretHash,
        /// Log index of the command that issued the token; part of the token's text.
        index: LogIndex,
    },
    /// All simple tokens of the user with this name ended.
    UserEnded(String),
    /// All simple tokens ended.
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
    /// The request is anonymous and needs a user. Or it adds a user, or changes a password, with an
    /// empty user name. Other changes with an empty name: [`Self::UserNotFound`].
    #[error("user name is empty")]
    UserEmpty = 2,
    /// Users or roles changed since the principal was authenticated; for a token of Consul's ACLs:
    /// any rights changed since the request was judged. The principal must be authenticated again.
    #[error("revision of auth store is old")]
    OldRevision = 3,
    /// The token that the request shows is malformed or unknown, or has expired.
    #[error("invalid auth token")]
    InvalidToken = 4,
    /// The password is wrong, or the user does not exist.
    #[error("authentication failed, invalid user ID or password")]
    Failed = 5,
    /// The request asks for a token while authentication is off.
    #[error("authentication is not enabled")]
    NotEnabled = 6,
    /// Authentication cannot be turned on: there is no user `root`.
    #[error("root user does not exist")]
    RootUserNotExist = 7,
    /// Authentication cannot be turned on: the user `root` lacks the role `root`.
    #[error("root user does not have root role")]
    RootRoleNotExist = 8,
    /// The user to add exists already.
    #[error("user name already exists")]
    UserExists = 9,
    /// The user does not exist.
    #[error("user name not found")]
    UserNotFound = 10,
    /// The role to add has an empty name.
    #[error("role name is empty")]
    RoleEmpty = 11,
    /// The role to add exists already.
    #[error("role name already exists")]
    RoleExists = 12,
    /// The role does not exist.
    #[error("role name not found")]
    RoleNotFound = 13,
    /// The user does not have the role.
    #[error("role is not granted to the user")]
    RoleNotGranted = 14,
    /// The role has no permission with exactly this `key` and `range_end`.
    #[error("permission is not granted to the role")]
    PermissionNotGranted = 15,
    /// A request to grant a permission does not contain one. No command has this outcome: a face
    /// refuses such a request before it becomes a command.
    #[error("permission not given")]
    PermissionNotGiven = 16,
    /// A granted interval is empty or has no first key, or a given password hash is not accepted.
    /// Or, while authentication is on, the change deletes the user `root`, deletes the role `root`,
    /// or revokes that role from that user.
    #[error("invalid auth management")]
    InvalidManagement = 17,
    /// The request shows a password for a user that has none.
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

    /// Whether the refusal means that the credentials are missing, invalid or expired, so that
    /// authenticating again may help. Also true for a change that [`Self::UserEmpty`] refuses.
    pub fn is_unauthenticated(self) -> bool {
        matches!(self, Self::UserEmpty | Self::OldRevision | Self::InvalidToken | Self::Failed | Self::NoPasswordUser)
    }
}
