//! Tokens, policies, roles, auth methods and binding rules of Consul's ACLs (spec: security §4).
//!
//! Owns the rules of each change: unique names, links that exist, fields that never change. Knows
//! no rights: they are compiled where requests are judged. Invariant: a token's secret never
//! changes, and no two tokens have the same one.

use super::error::FsmError;
use headwater_storage::StorageError;
use headwater_storage::state::{AclReader, Table, WriteTxn, acl_rows};
use headwater_types::acl::{
    ACL_ANONYMOUS_ACCESSOR, AclBinding, AclCommand, AclDone, AclGrants, AclKey, AclMethod, AclPolicy, AclRefusal,
    AclRole, AclRow, AclToken, builtin_policy,
};
use headwater_types::limits::ACL_LINKS_MAX;
use headwater_types::{LogIndex, Outcome, Refusal};

/// Applies the command of the log entry at `index`.
pub(super) fn apply(txn: &mut WriteTxn<'_>, index: LogIndex, command: &AclCommand) -> Result<Outcome, FsmError> {
    let done = match command {
        AclCommand::Bootstrap { token, reset } => bootstrap(txn, index, token, *reset)?,
        AclCommand::Put { row, is_new } => put(txn, index, row, *is_new)?,
        AclCommand::Delete(key) => AclDone { changed: delete(txn, key)?, ..AclDone::default() },
        AclCommand::Expire(tokens) => AclDone { changed: expire(txn, tokens)?, ..AclDone::default() },
    };
    Ok(Outcome::Acl(done))
}

fn refuse<T>(refusal: AclRefusal) -> Result<T, FsmError> {
    Err(Refusal::Acl(refusal).into())
}

fn bootstrap(txn: &mut WriteTxn<'_>, index: LogIndex, token: &AclToken, reset: LogIndex) -> Result<AclDone, FsmError> {
    if txn.acl_bootstrapped()? != reset {
        return refuse(AclRefusal::Bootstrapped);
    }
    let row = AclRow::Token(Box::new(token.clone()));
    let done = put(txn, index, &row, true)?;
    txn.set_acl_bootstrapped()?;
    Ok(done)
}

fn put(txn: &mut WriteTxn<'_>, index: LogIndex, row: &AclRow, is_new: bool) -> Result<AclDone, FsmError> {
    let (row, created) = match row {
        AclRow::Token(token) => {
            let token = whole_token(txn, index, token, is_new)?;
            let created = token.created;
            (AclRow::Token(Box::new(token)), created)
        }
        AclRow::Policy(policy) => {
            if builtin_policy(&policy.id).is_some() {
                return refuse(AclRefusal::Builtin);
            }
            let stored = txn.acl_policy(&policy.id)?;
            unique(is_new, stored.is_some())?;
            unique_name(&policy.id, txn.acl_policy_id(&policy.name)?)?;
            let created = stored.map_or(index, |stored| stored.created);
            (AclRow::Policy(Box::new(AclPolicy { created, ..AclPolicy::clone(policy) })), created)
        }
        AclRow::Role(role) => {
            let stored = txn.acl_role(&role.id)?;
            unique(is_new, stored.is_some())?;
            unique_name(&role.id, txn.acl_role_id(&role.name)?)?;
            check_grants(txn, &role.grants)?;
            let created = stored.map_or(index, |stored| stored.created);
            (AclRow::Role(Box::new(AclRole { created, ..AclRole::clone(role) })), created)
        }
        AclRow::Method(method) => {
            let stored = txn.acl_method(&method.name)?;
            unique(is_new, stored.is_some())?;
            if stored.as_ref().is_some_and(|stored| stored.kind != method.kind) {
                return refuse(AclRefusal::Fixed);
            }
            let created = stored.map_or(index, |stored| stored.created);
            (AclRow::Method(Box::new(AclMethod { created, ..AclMethod::clone(method) })), created)
        }
        AclRow::Binding(binding) => {
            let stored = txn.acl_binding(&binding.id)?;
            unique(is_new, stored.is_some())?;
            if txn.acl_method(&binding.method)?.is_none() {
                return refuse(AclRefusal::MethodAbsent);
            }
            let created = stored.map_or(index, |stored| stored.created);
            (AclRow::Binding(Box::new(AclBinding { created, ..AclBinding::clone(binding) })), created)
        }
    };
    txn.put_acl_row(&row)?;
    Ok(AclDone { changed: 1, created })
}

/// The token to store: `token`, with the fields that never change taken from the stored one, if
/// there is one. Refuses a wrong `is_new`, too many links, links to absent rows, a change of
/// `local`, and a new token whose secret is taken or whose auth method is absent.
fn whole_token(txn: &WriteTxn<'_>, index: LogIndex, token: &AclToken, is_new: bool) -> Result<AclToken, FsmError> {
    let stored = txn.acl_token(&token.accessor)?;
    unique(is_new, stored.is_some())?;
    check_grants(txn, &token.grants)?;
    if token.roles.len() > ACL_LINKS_MAX {
        return refuse(AclRefusal::TooManyLinks);
    }
    for role in &token.roles {
        if txn.acl_role(role)?.is_none() {
            return refuse(AclRefusal::RoleAbsent);
        }
    }
    let Some(stored) = stored else {
        if txn.acl_token_of_secret(&token.secret.0)?.is_some() {
            return refuse(AclRefusal::SecretTaken);
        }
        if !token.method.is_empty() && txn.acl_method(&token.method)?.is_none() {
            return refuse(AclRefusal::MethodAbsent);
        }
        return Ok(AclToken { created: index, ..token.clone() });
    };
    if stored.local != token.local {
        return refuse(AclRefusal::Fixed);
    }
    Ok(AclToken {
        secret: stored.secret,
        method: stored.method,
        created_ms: stored.created_ms,
        expires_ms: stored.expires_ms,
        created: stored.created,
        ..token.clone()
    })
}

fn unique(is_new: bool, exists: bool) -> Result<(), FsmError> {
    match (is_new, exists) {
        (true, true) => refuse(AclRefusal::IdTaken),
        (false, false) => refuse(AclRefusal::Absent),
        _ => Ok(()),
    }
}

/// Refuses a name that another row has. `owner` is the id of the stored row with the name.
fn unique_name(id: &str, owner: Option<String>) -> Result<(), FsmError> {
    if owner.is_some_and(|owner| owner != id) { refuse(AclRefusal::NameTaken) } else { Ok(()) }
}

fn check_grants(txn: &WriteTxn<'_>, grants: &AclGrants) -> Result<(), FsmError> {
    let AclGrants { policies, services, nodes, templates } = grants;
    if [policies.len(), services.len(), nodes.len(), templates.len()].into_iter().any(|count| count > ACL_LINKS_MAX) {
        return refuse(AclRefusal::TooManyLinks);
    }
    for policy in policies {
        if txn.acl_policy(policy)?.is_none() {
            return refuse(AclRefusal::PolicyAbsent);
        }
    }
    Ok(())
}

fn delete(txn: &mut WriteTxn<'_>, key: &AclKey) -> Result<u64, FsmError> {
    match key {
        AclKey::Token(accessor) if accessor == ACL_ANONYMOUS_ACCESSOR => return refuse(AclRefusal::Builtin),
        AclKey::Policy(id) if builtin_policy(id).is_some() => return refuse(AclRefusal::Builtin),
        AclKey::Method(name) => return Ok(delete_method(txn, name)?),
        AclKey::Token(_) | AclKey::Policy(_) | AclKey::Role(_) | AclKey::Binding(_) => {}
    }
    Ok(txn.delete_acl_row(key)?.into())
}

/// Removes a method with its binding rules. Returns the number of removed rows. The method's tokens
/// are invalid at once; the leader removes their rows later, in parts, because there may be any
/// number of them.
fn delete_method(txn: &mut WriteTxn<'_>, name: &str) -> Result<u64, StorageError> {
    let mut gone = vec![AclKey::Method(name.to_owned())];
    for row in acl_rows(txn, Table::AclBinding)? {
        if let AclRow::Binding(binding) = row
            && binding.method == name
        {
            gone.push(AclKey::Binding(binding.id));
        }
    }
    let mut changed = 0;
    for key in &gone {
        changed += u64::from(txn.delete_acl_row(key)?);
    }
    Ok(changed)
}

/// Removes tokens that the leader has found expired or without their auth method: each by its
/// accessor, with the log index of its last change. Returns the number of removed ones. A token
/// stays if it was changed since, or if it has neither an expiry nor a lost auth method. Apply has
/// no clock, so it does not test the expiry.
fn expire(txn: &mut WriteTxn<'_>, tokens: &[(String, LogIndex)]) -> Result<u64, StorageError> {
    let mut changed = 0;
    for (accessor, modified) in tokens {
        let Some(token) = txn.acl_token(accessor)?.filter(|token| token.modified == *modified) else { continue };
        if token.expires_ms != 0 || txn.acl_method_is_gone(&token)? {
            changed += u64::from(txn.delete_acl_row(&AclKey::Token(accessor.clone()))?);
        }
    }
    Ok(changed)
}
