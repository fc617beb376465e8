//! Encoding of etcd's users and roles, of authentication's state, and of proposers: in storage, in
//! commands and in proposals.

use std::sync::Arc;

use bytes::Bytes;

use super::CodecError;
use super::command::{decode_message, encode_message};
use super::kv::{read_range, required, unknown, write_range};
use crate::pb::internal as pb;
use headwater_types::auth::{
    AuthCommand, AuthRefusal, AuthState, Permission, PermissionKind, Proposer, Role, SecretHash, User,
};
use headwater_types::{Access, KeyRange, LogIndex, Rights, Space};

/// The only format of stored records so far.
const FORMAT: u8 = 1;

/// The bytes of a user of etcd's Auth, as they are stored.
pub fn encode_user(user: &User) -> Bytes {
    let User { password, roles } = user;
    encode_message(FORMAT, &pb::AuthUser { password: write_secret(password.as_ref()), roles: roles.clone() })
}

/// Decodes a user of etcd's Auth.
///
/// # Errors
///
/// [`CodecError`] for another format byte, for malformed bytes, and for a value that this version
/// does not know. Unknown fields are ignored.
pub fn decode_user(bytes: Bytes) -> Result<User, CodecError> {
    let pb::AuthUser { password, roles } = decode_message("user", FORMAT, bytes)?;
    Ok(User { password: password.map(SecretHash), roles })
}

/// The bytes of a role of etcd's Auth, as they are stored.
pub fn encode_role(role: &Role) -> Bytes {
    encode_message(FORMAT, &pb::AuthRole { permissions: role.permissions.iter().map(write_permission).collect() })
}

/// Decodes a role of etcd's Auth.
///
/// # Errors
///
/// [`CodecError`] for another format byte, for malformed bytes, and for a value that this version
/// does not know. Unknown fields are ignored.
pub fn decode_role(bytes: Bytes) -> Result<Role, CodecError> {
    let role: pb::AuthRole = decode_message("role", FORMAT, bytes)?;
    Ok(Role { permissions: role.permissions.into_iter().map(read_permission).collect::<Result<_, _>>()? })
}

/// The bytes of [`AuthState`], as they are stored: whether authentication is on, and the auth
/// revision.
pub fn encode_auth_state(state: AuthState) -> Bytes {
    encode_message(FORMAT, &pb::AuthState { enabled: state.enabled, revision: state.revision })
}

/// The inverse of [`encode_auth_state`].
///
/// # Errors
///
/// [`CodecError`] for another format byte, for malformed bytes, and for a value that this version
/// does not know. Unknown fields are ignored.
pub fn decode_auth_state(bytes: Bytes) -> Result<AuthState, CodecError> {
    let pb::AuthState { enabled, revision } = decode_message("state of authentication", FORMAT, bytes)?;
    Ok(AuthState { enabled, revision })
}

pub(super) fn write_proposer(proposer: &Proposer) -> pb::Proposer {
    use pb::proposer::Who;
    let who = match proposer {
        Proposer::System => Who::System(pb::Unit {}),
        Proposer::User { name, auth_revision } => {
            Who::User(pb::UserProposer { name: name.clone(), auth_revision: *auth_revision })
        }
        Proposer::Token { accessor, as_of, rights } => Who::Token(pb::TokenProposer {
            accessor: accessor.clone(),
            as_of: as_of.get(),
            rights: rights.as_deref().map(write_rights),
        }),
    };
    pb::Proposer { who: Some(who) }
}

pub(super) fn read_proposer(proposer: pb::Proposer) -> Result<Proposer, CodecError> {
    use pb::proposer::Who;
    Ok(match required(proposer.who, "Proposer.who")? {
        Who::System(pb::Unit {}) => Proposer::System,
        Who::User(pb::UserProposer { name, auth_revision }) => Proposer::User { name, auth_revision },
        Who::Token(pb::TokenProposer { accessor, as_of, rights }) => {
            let rights = rights.map(read_rights).transpose()?.map(Arc::new);
            Proposer::Token { accessor, as_of: LogIndex(as_of), rights }
        }
    })
}

fn write_rights(rights: &Rights) -> pb::CarriedRights {
    let write_grant = |(space, range, access): (Space, KeyRange, Access)| pb::CarriedGrant {
        space: space.number().into(),
        range: Some(write_range(&range)),
        access: access.bits().into(),
    };
    pb::CarriedRights { grants: rights.grants().map(write_grant).collect() }
}

fn read_rights(rights: pb::CarriedRights) -> Result<Rights, CodecError> {
    let read_grant = |grant: pb::CarriedGrant| {
        let pb::CarriedGrant { space, range, access } = grant;
        let known_space = u8::try_from(space).ok().and_then(Space::from_number);
        let known_access = u8::try_from(access).ok().and_then(Access::from_bits);
        Ok((
            known_space.ok_or_else(|| unknown("CarriedGrant.space", space))?,
            read_range(range, "CarriedGrant.range")?,
            known_access.ok_or_else(|| unknown("CarriedGrant.access", access))?,
        ))
    };
    let grants: Vec<_> = rights.grants.into_iter().map(read_grant).collect::<Result<_, CodecError>>()?;
    Ok(Rights::union(grants))
}

pub(super) fn write_command(command: &AuthCommand) -> pb::AuthCommand {
    use pb::auth_command::Command as Wire;
    let user_role = |user: &String, role: &String| pb::AuthUserRole { user: user.clone(), role: role.clone() };
    let command = match command {
        AuthCommand::Enable => Wire::Enable(pb::Unit {}),
        AuthCommand::Disable => Wire::Disable(pb::Unit {}),
        AuthCommand::Issue { name, auth_revision, token } => {
            Wire::Issue(pb::AuthIssue { name: name.clone(), auth_revision: *auth_revision, token: token.0.clone() })
        }
        AuthCommand::UserAdd { name, password } => Wire::UserAdd(write_new_password(name, password.as_ref())),
        AuthCommand::UserDelete { name } => Wire::UserDelete(name.clone()),
        AuthCommand::UserChangePassword { name, password } => {
            Wire::UserChangePassword(write_new_password(name, password.as_ref()))
        }
        AuthCommand::UserGrantRole { user, role } => Wire::UserGrantRole(user_role(user, role)),
        AuthCommand::UserRevokeRole { user, role } => Wire::UserRevokeRole(user_role(user, role)),
        AuthCommand::RoleAdd { name } => Wire::RoleAdd(name.clone()),
        AuthCommand::RoleDelete { name } => Wire::RoleDelete(name.clone()),
        AuthCommand::RoleGrantPermission { role, permission } => Wire::RoleGrantPermission(pb::AuthGrant {
            role: role.clone(),
            permission: Some(write_permission(permission)),
        }),
        AuthCommand::RoleRevokePermission { role, key, range_end } => Wire::RoleRevokePermission(pb::AuthRevoke {
            role: role.clone(),
            key: key.clone(),
            range_end: range_end.clone(),
        }),
    };
    pb::AuthCommand { command: Some(command) }
}

pub(super) fn read_command(command: pb::AuthCommand) -> Result<AuthCommand, CodecError> {
    use pb::auth_command::Command as Wire;
    Ok(match required(command.command, "AuthCommand.command")? {
        Wire::Enable(pb::Unit {}) => AuthCommand::Enable,
        Wire::Disable(pb::Unit {}) => AuthCommand::Disable,
        Wire::Issue(pb::AuthIssue { name, auth_revision, token }) => {
            AuthCommand::Issue { name, auth_revision, token: SecretHash(token) }
        }
        Wire::UserAdd(pb::AuthNewPassword { name, password }) => {
            AuthCommand::UserAdd { name, password: password.map(SecretHash) }
        }
        Wire::UserDelete(name) => AuthCommand::UserDelete { name },
        Wire::UserChangePassword(pb::AuthNewPassword { name, password }) => {
            AuthCommand::UserChangePassword { name, password: password.map(SecretHash) }
        }
        Wire::UserGrantRole(pb::AuthUserRole { user, role }) => AuthCommand::UserGrantRole { user, role },
        Wire::UserRevokeRole(pb::AuthUserRole { user, role }) => AuthCommand::UserRevokeRole { user, role },
        Wire::RoleAdd(name) => AuthCommand::RoleAdd { name },
        Wire::RoleDelete(name) => AuthCommand::RoleDelete { name },
        Wire::RoleGrantPermission(pb::AuthGrant { role, permission }) => AuthCommand::RoleGrantPermission {
            role,
            permission: read_permission(required(permission, "AuthGrant.permission")?)?,
        },
        Wire::RoleRevokePermission(pb::AuthRevoke { role, key, range_end }) => {
            AuthCommand::RoleRevokePermission { role, key, range_end }
        }
    })
}

pub(super) fn read_refusal(number: i32) -> Result<AuthRefusal, CodecError> {
    let known = AuthRefusal::ALL.into_iter().find(|refusal| *refusal as i32 == number);
    known.ok_or_else(|| unknown("Refusal.auth", number))
}

fn write_secret(secret: Option<&SecretHash>) -> Option<Bytes> {
    secret.map(|SecretHash(hash)| hash.clone())
}

fn write_new_password(name: &str, password: Option<&SecretHash>) -> pb::AuthNewPassword {
    pb::AuthNewPassword { name: name.to_owned(), password: write_secret(password) }
}

fn write_permission(permission: &Permission) -> pb::AuthPermission {
    let kind = match permission.kind {
        PermissionKind::Read => pb::AuthPermissionKind::Read,
        PermissionKind::Write => pb::AuthPermissionKind::Write,
        PermissionKind::ReadWrite => pb::AuthPermissionKind::ReadWrite,
    };
    pb::AuthPermission { kind: kind.into(), key: permission.key.clone(), range_end: permission.range_end.clone() }
}

fn read_permission(permission: pb::AuthPermission) -> Result<Permission, CodecError> {
    let kind = match pb::AuthPermissionKind::try_from(permission.kind) {
        Ok(pb::AuthPermissionKind::Read) => PermissionKind::Read,
        Ok(pb::AuthPermissionKind::Write) => PermissionKind::Write,
        Ok(pb::AuthPermissionKind::ReadWrite) => PermissionKind::ReadWrite,
        Ok(pb::AuthPermissionKind::Unspecified) | Err(_) => {
            return Err(unknown("AuthPermission.kind", permission.kind));
        }
    };
    Ok(Permission { kind, key: permission.key, range_end: permission.range_end })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{NEWEST, decode_applied, decode_proposal, encode_applied, encode_proposal};
    use headwater_types::{Applied, Command, Outcome, Proposal, Refusal, Revision, StoreEpoch};

    fn permission() -> Permission {
        Permission { kind: PermissionKind::ReadWrite, key: "k".into(), range_end: "\0".into() }
    }

    fn secret() -> SecretHash {
        SecretHash("h".into())
    }

    #[test]
    fn commands_are_pinned() {
        let (user, role, name) = ("u".to_owned(), "r".to_owned(), "u".to_owned());
        let cases: [(AuthCommand, &[u8]); 14] = [
            (AuthCommand::Enable, b"\x0a\x00"),
            (AuthCommand::Disable, b"\x12\x00"),
            (
                AuthCommand::Issue { name: name.clone(), auth_revision: 7, token: secret() },
                b"\x1a\x08\x0a\x01u\x10\x07\x1a\x01h",
            ),
            (AuthCommand::UserAdd { name: name.clone(), password: Some(secret()) }, b"\x22\x06\x0a\x01u\x12\x01h"),
            (AuthCommand::UserAdd { name: name.clone(), password: None }, b"\x22\x03\x0a\x01u"),
            (AuthCommand::UserDelete { name: name.clone() }, b"\x2a\x01u"),
            (
                AuthCommand::UserChangePassword { name: name.clone(), password: Some(secret()) },
                b"\x32\x06\x0a\x01u\x12\x01h",
            ),
            (AuthCommand::UserChangePassword { name, password: None }, b"\x32\x03\x0a\x01u"),
            (AuthCommand::UserGrantRole { user: user.clone(), role: role.clone() }, b"\x3a\x06\x0a\x01u\x12\x01r"),
            (AuthCommand::UserRevokeRole { user, role: role.clone() }, b"\x42\x06\x0a\x01u\x12\x01r"),
            (AuthCommand::RoleAdd { name: role.clone() }, b"\x4a\x01r"),
            (AuthCommand::RoleDelete { name: role.clone() }, b"\x52\x01r"),
            (
                AuthCommand::RoleGrantPermission { role: role.clone(), permission: permission() },
                b"\x5a\x0d\x0a\x01r\x12\x08\x08\x03\x12\x01k\x1a\x01\x00",
            ),
            (
                AuthCommand::RoleRevokePermission { role, key: "k".into(), range_end: "\0".into() },
                b"\x62\x09\x0a\x01r\x12\x01k\x1a\x01\x00",
            ),
        ];
        for (command, bytes) in cases {
            let proposal = Proposal::new(5, Command::Auth(command));
            let encoded = encode_proposal(&proposal).unwrap();
            assert_eq!(encoded[..5], [4, 8, 5, 0x82, 4], "{proposal:?}");
            assert_eq!(encoded[6..], *bytes, "{proposal:?}");
            assert_eq!(decode_proposal(encoded, NEWEST), Ok(Some(proposal)));
        }
    }

    #[test]
    fn principals_are_pinned_and_raise_the_version() {
        let rights = Rights::union([
            (Space::Kv, KeyRange::Span { start: "k".into(), end: None }, Access::READ | Access::WRITE),
            (Space::Session, KeyRange::One("n".into()), Access::WRITE),
        ]);
        let cases: [(Option<Proposer>, &[u8]); 5] = [
            (None, b"\x01\x08\x05\x52\x02\x08\x09"),
            (Some(Proposer::System), b"\x04\x08\x05\x22\x02\x0a\x00\x52\x02\x08\x09"),
            (
                Some(Proposer::User { name: "u".to_owned(), auth_revision: 7 }),
                b"\x04\x08\x05\x22\x07\x12\x05\x0a\x01u\x10\x07\x52\x02\x08\x09",
            ),
            (
                Some(Proposer::Token { accessor: "a".to_owned(), as_of: LogIndex(7), rights: None }),
                b"\x04\x08\x05\x22\x07\x1a\x05\x0a\x01a\x10\x07\x52\x02\x08\x09",
            ),
            (
                Some(Proposer::Token { accessor: "a".to_owned(), as_of: LogIndex(7), rights: Some(Arc::new(rights)) }),
                b"\x04\x08\x05\x22\x27\x1a\x25\x0a\x01a\x10\x07\
                  \x1a\x1e\x0a\x0b\x08\x01\x12\x05\x12\x03\x0a\x01k\x18\x05\
                  \x0a\x0f\x08\x06\x12\x09\x12\x07\x0a\x01n\x12\x02n\x00\x18\x04\
                  \x52\x02\x08\x09",
            ),
        ];
        for (proposer, bytes) in cases {
            let proposal = Proposal { proposer, ..Proposal::new(5, Command::Bootstrap(StoreEpoch(9))) };
            let encoded = encode_proposal(&proposal).unwrap();
            assert_eq!(encoded, bytes, "{proposal:?}");
            assert_eq!(decode_proposal(encoded, NEWEST), Ok(Some(proposal)));
        }
    }

    #[test]
    fn records_are_pinned() {
        let user = User { password: Some(secret()), roles: vec!["a".to_owned(), "b".to_owned()] };
        let bytes = encode_user(&user);
        assert_eq!(bytes, &b"\x01\x0a\x01h\x12\x01a\x12\x01b"[..]);
        assert_eq!(decode_user(bytes), Ok(user));
        let bare = User { password: None, roles: Vec::new() };
        assert_eq!(encode_user(&bare), &b"\x01"[..]);
        assert_eq!(decode_user(encode_user(&bare)), Ok(bare));
        let role = Role { permissions: vec![permission()] };
        let bytes = encode_role(&role);
        assert_eq!(bytes, &b"\x01\x0a\x08\x08\x03\x12\x01k\x1a\x01\x00"[..]);
        assert_eq!(decode_role(bytes), Ok(role));
        let state = AuthState { enabled: true, revision: 300 };
        assert_eq!(encode_auth_state(state), &b"\x01\x08\x01\x10\xac\x02"[..]);
        assert_eq!(decode_auth_state(encode_auth_state(state)), Ok(state));
    }

    #[test]
    fn outcomes_are_pinned() {
        let round = |outcome| {
            let applied = Applied { index: LogIndex(8), revision: Revision(4), outcome };
            let encoded = encode_applied(&applied);
            assert_eq!(decode_applied(encoded.clone()), Ok(applied));
            encoded
        };
        assert_eq!(round(Outcome::AuthChanged { auth_revision: 3 })[5..], *b"\x80\x04\x03");
        for (number, refusal) in (1u8..).zip(AuthRefusal::ALL) {
            let encoded = round(Outcome::Refused(Refusal::Auth(refusal)));
            assert_eq!(encoded[5..], [0x82, 1, 3, 0x80, 4, number], "{refusal:?}");
        }
        assert!(read_refusal(0).is_err() && read_refusal(19).is_err());
    }

    #[test]
    fn no_secret_is_printed() {
        let user = User { password: Some(SecretHash("argon".into())), roles: Vec::new() };
        assert!(!format!("{user:?}").contains("argon"));
    }
}
