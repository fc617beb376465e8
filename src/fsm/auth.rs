//! Users, roles, and turning authentication on and off (spec: security §3; etcd §4.3).
//!
//! Owns the rules of each change. A change of users or roles, and turning authentication off,
//! advances the auth revision by one; the revision of keys does not move. Invariant: while
//! authentication is on, there is a user `root` with the role `root`.

use bytes::Bytes;

use super::error::FsmError;
use headwater_storage::state::{AuthReader, StateReader, Table, WriteTxn};
use headwater_types::auth::{
    AuthCommand, AuthRefusal, AuthState, Permission, ROOT, Role, SecretHash, TokenChange, User,
};
use headwater_types::{LogIndex, Outcome, Refusal};

/// Applies the command of the log entry at `index`.
pub(super) fn apply(txn: &mut WriteTxn<'_>, index: LogIndex, command: &AuthCommand) -> Result<Outcome, FsmError> {
    match command {
        AuthCommand::Enable => enable(txn)?,
        AuthCommand::Disable => disable(txn)?,
        AuthCommand::Issue { name, auth_revision, token } => issue(txn, index, name, *auth_revision, token)?,
        AuthCommand::UserAdd { name, password } => user_add(txn, name, password.as_ref())?,
        AuthCommand::UserDelete { name } => user_delete(txn, name)?,
        AuthCommand::UserChangePassword { name, password } => change_password(txn, name, password.as_ref())?,
        AuthCommand::UserGrantRole { user, role } => grant_role(txn, user, role)?,
        AuthCommand::UserRevokeRole { user, role } => revoke_role(txn, user, role)?,
        AuthCommand::RoleAdd { name } => role_add(txn, name)?,
        AuthCommand::RoleDelete { name } => role_delete(txn, name)?,
        AuthCommand::RoleGrantPermission { role, permission } => grant_permission(txn, role, permission)?,
        AuthCommand::RoleRevokePermission { role, key, range_end } => revoke_permission(txn, role, key, range_end)?,
    }
    Ok(Outcome::AuthChanged { auth_revision: txn.head().auth.revision })
}

fn refuse<T>(refusal: AuthRefusal) -> Result<T, FsmError> {
    Err(Refusal::Auth(refusal).into())
}

/// Advances the auth revision.
fn changed(txn: &mut WriteTxn<'_>) -> Result<(), FsmError> {
    let auth = txn.head().auth;
    Ok(txn.set_auth(AuthState { revision: auth.revision + 1, ..auth })?)
}

fn user(txn: &WriteTxn<'_>, name: &str) -> Result<User, FsmError> {
    match txn.user(name)? {
        Some(user) => Ok(user),
        None => refuse(AuthRefusal::UserNotFound),
    }
}

fn role(txn: &WriteTxn<'_>, name: &str) -> Result<Role, FsmError> {
    match txn.role(name)? {
        Some(role) => Ok(role),
        None => refuse(AuthRefusal::RoleNotFound),
    }
}

fn enable(txn: &mut WriteTxn<'_>) -> Result<(), FsmError> {
    let auth = txn.head().auth;
    if auth.enabled {
        return Ok(());
    }
    let Some(root) = txn.user(ROOT)? else { return refuse(AuthRefusal::RootUserNotExist) };
    if !root.roles.iter().any(|role| role == ROOT) {
        return refuse(AuthRefusal::RootRoleNotExist);
    }
    Ok(txn.set_auth(AuthState { enabled: true, ..auth })?)
}

fn disable(txn: &mut WriteTxn<'_>) -> Result<(), FsmError> {
    let auth = txn.head().auth;
    if !auth.enabled {
        return Ok(());
    }
    txn.add_token_change(TokenChange::AllEnded);
    Ok(txn.set_auth(AuthState { enabled: false, revision: auth.revision + 1 })?)
}

fn issue(
    txn: &mut WriteTxn<'_>,
    index: LogIndex,
    name: &str,
    auth_revision: u64,
    token: &SecretHash,
) -> Result<(), FsmError> {
    let auth = txn.head().auth;
    if !auth.enabled {
        return refuse(AuthRefusal::NotEnabled);
    }
    // The password may have changed since it was checked.
    if auth_revision != auth.revision {
        return refuse(AuthRefusal::OldRevision);
    }
    user(txn, name)?;
    txn.add_token_change(TokenChange::Issued { name: name.to_owned(), token: token.clone(), index });
    Ok(())
}

fn user_add(txn: &mut WriteTxn<'_>, name: &str, password: Option<&SecretHash>) -> Result<(), FsmError> {
    if name.is_empty() {
        return refuse(AuthRefusal::UserEmpty);
    }
    if txn.user(name)?.is_some() {
        return refuse(AuthRefusal::UserExists);
    }
    txn.set_user(name, Some(&User { password: password.cloned(), roles: Vec::new() }))?;
    changed(txn)
}

fn user_delete(txn: &mut WriteTxn<'_>, name: &str) -> Result<(), FsmError> {
    if txn.head().auth.enabled && name == ROOT {
        return refuse(AuthRefusal::InvalidManagement);
    }
    user(txn, name)?;
    txn.set_user(name, None)?;
    txn.add_token_change(TokenChange::UserEnded(name.to_owned()));
    changed(txn)
}

/// Gives a user another password. A user that was added to have none keeps having none, as in etcd.
fn change_password(txn: &mut WriteTxn<'_>, name: &str, password: Option<&SecretHash>) -> Result<(), FsmError> {
    let user = user(txn, name)?;
    let password = password.filter(|_| user.password.is_some()).cloned();
    txn.set_user(name, Some(&User { password, ..user }))?;
    txn.add_token_change(TokenChange::UserEnded(name.to_owned()));
    changed(txn)
}

fn grant_role(txn: &mut WriteTxn<'_>, name: &str, granted: &str) -> Result<(), FsmError> {
    let mut user = user(txn, name)?;
    // The root role need not exist.
    if granted != ROOT {
        role(txn, granted)?;
    }
    match user.roles.binary_search_by(|role| role.as_str().cmp(granted)) {
        Ok(_) => Ok(()),
        Err(position) => {
            user.roles.insert(position, granted.to_owned());
            txn.set_user(name, Some(&user))?;
            changed(txn)
        }
    }
}

fn revoke_role(txn: &mut WriteTxn<'_>, name: &str, revoked: &str) -> Result<(), FsmError> {
    if txn.head().auth.enabled && name == ROOT && revoked == ROOT {
        return refuse(AuthRefusal::InvalidManagement);
    }
    let mut user = user(txn, name)?;
    let Some(position) = user.roles.iter().position(|role| role == revoked) else {
        return refuse(AuthRefusal::RoleNotGranted);
    };
    user.roles.remove(position);
    txn.set_user(name, Some(&user))?;
    changed(txn)
}

fn role_add(txn: &mut WriteTxn<'_>, name: &str) -> Result<(), FsmError> {
    if name.is_empty() {
        return refuse(AuthRefusal::RoleEmpty);
    }
    if txn.role(name)?.is_some() {
        return refuse(AuthRefusal::RoleExists);
    }
    txn.set_role(name, Some(&Role::default()))?;
    changed(txn)
}

fn role_delete(txn: &mut WriteTxn<'_>, name: &str) -> Result<(), FsmError> {
    if txn.head().auth.enabled && name == ROOT {
        return refuse(AuthRefusal::InvalidManagement);
    }
    role(txn, name)?;
    txn.set_role(name, None)?;
    for holder in txn.auth_names(Table::AuthUser)? {
        let mut user = user(txn, &holder)?;
        let before = user.roles.len();
        user.roles.retain(|role| role != name);
        if user.roles.len() != before {
            txn.set_user(&holder, Some(&user))?;
        }
    }
    changed(txn)
}

fn grant_permission(txn: &mut WriteTxn<'_>, name: &str, permission: &Permission) -> Result<(), FsmError> {
    if !permission.is_valid() {
        return refuse(AuthRefusal::InvalidManagement);
    }
    let mut role = role(txn, name)?;
    let interval = |permission: &Permission| (permission.key.clone(), permission.range_end.clone());
    match role.permissions.binary_search_by_key(&interval(permission), interval) {
        Ok(position) => role.permissions[position] = permission.clone(),
        Err(position) => role.permissions.insert(position, permission.clone()),
    }
    txn.set_role(name, Some(&role))?;
    changed(txn)
}

fn revoke_permission(txn: &mut WriteTxn<'_>, name: &str, key: &Bytes, range_end: &Bytes) -> Result<(), FsmError> {
    let mut role = role(txn, name)?;
    let is_meant = |permission: &Permission| permission.key == *key && permission.range_end == *range_end;
    let Some(position) = role.permissions.iter().position(is_meant) else {
        return refuse(AuthRefusal::PermissionNotGranted);
    };
    role.permissions.remove(position);
    txn.set_role(name, Some(&role))?;
    changed(txn)
}
