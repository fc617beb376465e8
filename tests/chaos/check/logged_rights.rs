//! A model of users and roles. It follows the entries of a Raft log and tells which entries are
//! refused when they are applied, for lack of rights (spec: security §3).
//!
//! A second implementation of the rules that the harness needs: permissions of whole intervals, and
//! puts by users. Consul's tokens are not used.

use std::collections::{BTreeMap, BTreeSet};

use headwater_types::auth::{AuthCommand, AuthState, Permission, PermissionKind, Proposer};

use crate::history::Request;
use crate::login::ROOT;
use crate::raft_log::{LogEntry, LoggedCommand};

/// Users, roles, and whether authentication is enabled, after the entries that were applied.
#[derive(Debug, Default)]
pub(super) struct LoggedRights {
    enabled: bool,
    /// The auth revision minus its initial value: the number of changes of users and roles, and of
    /// times that authentication was turned off.
    changes: u64,
    users: BTreeMap<String, BTreeSet<String>>,
    roles: BTreeMap<String, Vec<Permission>>,
}

impl LoggedRights {
    /// Whether the command of an entry is refused in the present state. False while authentication
    /// is off, for proposals of the store itself, and for [`LoggedCommand::Expire`] and
    /// [`LoggedCommand::Other`]. A command of a token, or without a proposer, is refused. A user's
    /// command is refused without the right to it; also, unless it is [`LoggedCommand::Auth`], if
    /// it was judged by an older auth revision.
    pub(super) fn refuses(&self, entry: &LogEntry) -> bool {
        let is_judged = match entry.ask {
            LoggedCommand::Client(_)
            | LoggedCommand::Commit { .. }
            | LoggedCommand::Grant { .. }
            | LoggedCommand::Revoke { .. }
            | LoggedCommand::Auth(_) => true,
            LoggedCommand::Expire { .. } | LoggedCommand::Other => false,
        };
        if !self.enabled || !is_judged {
            return false;
        }
        match &entry.proposer {
            Some(Proposer::System) => false,
            Some(Proposer::User { name, auth_revision }) => {
                let is_old = *auth_revision < AuthState::INITIAL.revision + self.changes
                    && !matches!(entry.ask, LoggedCommand::Auth(_));
                is_old || !self.permits(name, &entry.ask)
            }
            Some(Proposer::Token { .. }) | None => true,
        }
    }

    /// Whether a user may do what `ask` asks for. Only root may do more than put keys without a
    /// lease.
    fn permits(&self, user: &str, ask: &LoggedCommand) -> bool {
        let Some(roles) = self.users.get(user) else { return false };
        if roles.contains(ROOT) {
            return true;
        }
        match ask {
            LoggedCommand::Client(Request::Put { key, lease: 0, .. }) => {
                let mut permissions = roles.iter().filter_map(|role| self.roles.get(role)).flatten();
                permissions.any(|permission| {
                    permission.kind != PermissionKind::Read && permission.range().contains(key.as_bytes())
                })
            }
            // No user asks for it.
            _ => false,
        }
    }

    /// Carries out a command. One that is refused has no effect.
    pub(super) fn apply(&mut self, command: &AuthCommand) {
        if self.change(command).is_some() {
            self.changes += 1;
        }
    }

    /// Carries out a command; `None` if the auth revision does not rise by it.
    fn change(&mut self, command: &AuthCommand) -> Option<()> {
        match command {
            AuthCommand::Enable => {
                self.enabled |= self.users.get(ROOT).is_some_and(|roles| roles.contains(ROOT));
                None
            }
            AuthCommand::Disable => std::mem::take(&mut self.enabled).then_some(()),
            AuthCommand::Issue { .. } => None,
            AuthCommand::UserAdd { name, .. } if self.users.contains_key(name) => None,
            AuthCommand::UserAdd { name, .. } => {
                self.users.insert(name.clone(), BTreeSet::new());
                Some(())
            }
            AuthCommand::UserDelete { name } if self.enabled && name == ROOT => None,
            AuthCommand::UserDelete { name } => self.users.remove(name).map(drop),
            AuthCommand::UserChangePassword { name, .. } => self.users.get(name).map(|_| ()),
            AuthCommand::UserGrantRole { role, .. } if role != ROOT && !self.roles.contains_key(role) => None,
            AuthCommand::UserGrantRole { user, role } => self.users.get_mut(user)?.insert(role.clone()).then_some(()),
            AuthCommand::UserRevokeRole { user, role } if self.enabled && user == ROOT && role == ROOT => None,
            AuthCommand::UserRevokeRole { user, role } => self.users.get_mut(user)?.remove(role).then_some(()),
            AuthCommand::RoleAdd { name } if self.roles.contains_key(name) => None,
            AuthCommand::RoleAdd { name } => {
                self.roles.insert(name.clone(), Vec::new());
                Some(())
            }
            AuthCommand::RoleDelete { name } if self.enabled && name == ROOT => None,
            AuthCommand::RoleDelete { name } => {
                self.roles.remove(name)?;
                self.users.values_mut().for_each(|roles| roles.retain(|role| role != name));
                Some(())
            }
            AuthCommand::RoleGrantPermission { role, permission } => {
                let permissions = self.roles.get_mut(role)?;
                permissions.retain(|known| known.range() != permission.range());
                permissions.push(permission.clone());
                Some(())
            }
            AuthCommand::RoleRevokePermission { role, key, range_end } => {
                let permissions = self.roles.get_mut(role)?;
                let position =
                    permissions.iter().position(|known| known.key == *key && known.range_end == *range_end)?;
                permissions.remove(position);
                Some(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, proposer: Option<Proposer>) -> LogEntry {
        let ask = LoggedCommand::Client(Request::Put { key: key.into(), value: "v".into(), lease: 0 });
        LogEntry { index: 1, term: 1, payload: Default::default(), proposer, ask }
    }

    fn by(name: &str, auth_revision: u64) -> Option<Proposer> {
        Some(Proposer::User { name: name.to_owned(), auth_revision })
    }

    #[test]
    fn who_is_refused_where_an_entry_is_applied() {
        let text = str::to_owned;
        let (kind, key, range_end) = (PermissionKind::ReadWrite, "a/".into(), "a0".into());
        let permission = Permission { kind, key, range_end };
        let mut rights = LoggedRights::default();
        assert!(!rights.refuses(&put("k", None)), "nothing is judged");
        for command in [
            AuthCommand::Enable,
            AuthCommand::UserAdd { name: text(ROOT), password: None },
            AuthCommand::UserAdd { name: text(ROOT), password: None },
            AuthCommand::UserGrantRole { user: text(ROOT), role: text(ROOT) },
            AuthCommand::Enable,
            AuthCommand::UserAdd { name: text("u"), password: None },
            AuthCommand::UserGrantRole { user: text("u"), role: text("r") },
            AuthCommand::RoleAdd { name: text("r") },
            AuthCommand::RoleGrantPermission { role: text("r"), permission },
            AuthCommand::UserGrantRole { user: text("u"), role: text("r") },
        ] {
            rights.apply(&command);
        }
        assert_eq!((rights.enabled, rights.changes), (true, 6), "two of them were refused");
        for (entry, refused) in [
            (put("k", None), true),
            (put("k", Some(Proposer::System)), false),
            (put("k", by(ROOT, 7)), false),
            (put("k", by(ROOT, 6)), true),
            (put("a/k", by("u", 7)), false),
            (put("k", by("u", 7)), true),
            (put("a/k", by("nobody", 7)), true),
            (LogEntry { ask: LoggedCommand::Other, ..put("k", None) }, false),
            (LogEntry { ask: LoggedCommand::Auth(AuthCommand::Disable), ..put("k", by(ROOT, 1)) }, false),
            (LogEntry { ask: LoggedCommand::Auth(AuthCommand::Disable), ..put("k", by("u", 7)) }, true),
        ] {
            assert_eq!(rights.refuses(&entry), refused, "{entry:?}");
        }
        rights.apply(&AuthCommand::RoleDelete { name: text("r") });
        assert!(rights.refuses(&put("a/k", by("u", 8))));
    }
}
