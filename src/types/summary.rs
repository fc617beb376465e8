//! One line of text for a command, for operators that inspect a log.
//!
//! Invariant: only the length of a value is printed, because the text may end up in reports.

use super::acl::{AclCommand, AclKey, AclRow};
use super::auth::AuthCommand;
use super::catalog::{CatalogCommand, DeregistrationTarget};
use super::consul::ConsulCommand;
use super::resource::{ResourceCommand, ResourceId};
use super::{
    AlarmKind, Command, Commit, InvitationCommand, KeyRange, LeaseChoice, LeaseId, Put, Txn, ValueChoice, VersionChange,
};

impl Command {
    /// The command in one line: its kind, and names or keys that it is about. Of a value only the
    /// length is printed; of a transaction only the numbers of its compares and operations. A
    /// commit lists the summaries of its operations.
    pub fn summary(&self) -> String {
        let detail = match self {
            Self::Bootstrap(epoch) => format!("epoch {:016x}", epoch.get()),
            Self::Put(request) => put(request),
            Self::DeleteRange(delete) => keys(&delete.range),
            Self::Txn(request) => txn(request),
            Self::Compact(compact) => format!("revision {}", compact.revision),
            Self::TrimHistory(trim) => format!("from log index {}", trim.from),
            Self::LeaseGrant(grant) => format!("{}, {} s", lease(grant.id), grant.ttl_seconds),
            Self::LeaseRevoke(revoke) => lease(revoke.id),
            Self::LeaseExpire(expire) => format!("{} of entry {}", lease(expire.id), expire.granted),
            Self::LeaseCheckpoint(checkpoint) => {
                format!("clock {} ms, {} leases", checkpoint.clock_ms, checkpoint.leases.len())
            }
            Self::LeaseAttach(attach) => format!("{} to {}", key(&attach.key), lease(attach.id)),
            Self::LeaseTxn(request) => txn(&request.txn),
            Self::SetAlarm(set) => {
                let kind = match set.alarm.kind {
                    AlarmKind::NoSpace => "NOSPACE",
                    AlarmKind::Corrupt => "CORRUPT",
                };
                format!("{kind} of member {} {}", set.alarm.member, if set.active { "raised" } else { "disarmed" })
            }
            Self::SetQuota(quota) => {
                quota.bytes_max.map_or_else(|| "no bound".to_owned(), |bytes| format!("{bytes} bytes"))
            }
            Self::Resource(command) => resource(command),
            Self::Consul(command) => consul(command),
            Self::Catalog(command) => catalog(command),
            Self::SetVersion(change) => match change {
                VersionChange::Raise { to, .. } => format!("raised to {to}"),
                VersionChange::Downgrade { to } => format!("lowered to {to}"),
                VersionChange::EndDowngrade => "may rise again".to_owned(),
            },
            Self::AnnounceProgram(member, program) => format!("member {member} runs {}", program.program),
            Self::Invitation(command) => match command {
                InvitationCommand::Create(new) => format!("create {:?}", new.name),
                InvitationCommand::Delete(id) => format!("delete {id}"),
                InvitationCommand::Use { node, .. } => format!("used by {node:?}"),
            },
            Self::Auth(command) => auth(command),
            Self::Acl(command) => acl(command),
            Self::Commit(request) => commit(request),
            #[cfg(feature = "next-version")]
            Self::Note(text) => format!("{} bytes", text.len()),
        };
        format!("{} {detail}", Self::KINDS[self.kind()])
    }
}

fn auth(command: &AuthCommand) -> String {
    match command {
        AuthCommand::Enable => "on".to_owned(),
        AuthCommand::Disable => "off".to_owned(),
        AuthCommand::Issue { name, .. } => format!("token for user {name:?}"),
        AuthCommand::UserAdd { name, .. } => format!("user {name:?} added"),
        AuthCommand::UserDelete { name } => format!("user {name:?} deleted"),
        AuthCommand::UserChangePassword { name, .. } => format!("password of user {name:?} changed"),
        AuthCommand::UserGrantRole { user, role } => format!("role {role:?} granted to user {user:?}"),
        AuthCommand::UserRevokeRole { user, role } => format!("role {role:?} revoked from user {user:?}"),
        AuthCommand::RoleAdd { name } => format!("role {name:?} added"),
        AuthCommand::RoleDelete { name } => format!("role {name:?} deleted"),
        AuthCommand::RoleGrantPermission { role, permission } => {
            format!("role {role:?} granted {:?} on {}", permission.kind, keys(&permission.range()))
        }
        AuthCommand::RoleRevokePermission { role, key, range_end } => {
            let range = KeyRange::from_etcd(key.clone(), range_end.clone());
            format!("role {role:?} revoked {}", keys(&range))
        }
    }
}

fn acl(command: &AclCommand) -> String {
    match command {
        AclCommand::Bootstrap { token, .. } => format!("bootstrap, token {}", token.accessor),
        AclCommand::Put { row, is_new } => {
            let row = match row {
                AclRow::Token(token) => format!("token {}", token.accessor),
                AclRow::Policy(policy) => format!("policy {:?} {}", policy.name, policy.id),
                AclRow::Role(role) => format!("role {:?} {}", role.name, role.id),
                AclRow::Method(method) => format!("auth method {:?}", method.name),
                AclRow::Binding(binding) => format!("binding rule {}", binding.id),
            };
            format!("{row} {}", if *is_new { "made" } else { "changed" })
        }
        AclCommand::Delete(key) => {
            let (kind, name) = match key {
                AclKey::Token(accessor) => ("token", accessor),
                AclKey::Policy(id) => ("policy", id),
                AclKey::Role(id) => ("role", id),
                AclKey::Method(name) => ("auth method", name),
                AclKey::Binding(id) => ("binding rule", id),
            };
            format!("{kind} {name} removed")
        }
        AclCommand::Expire(tokens) => format!("{} expired tokens removed", tokens.len()),
    }
}

/// A key in quotation marks. Quotation marks, backslashes, and bytes other than printable ASCII are
/// escaped.
fn key(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

fn lease(id: LeaseId) -> String {
    format!("lease {:x}", id.get())
}

fn keys(range: &KeyRange) -> String {
    match range {
        KeyRange::One(one) => key(one),
        KeyRange::Span { start, end: Some(end) } => format!("[{}, {})", key(start), key(end)),
        KeyRange::Span { start, end: None } => format!("[{}, end)", key(start)),
    }
}

fn commit(commit: &Commit) -> String {
    let operations: Vec<String> = commit.operations.iter().map(|operation| operation.command().summary()).collect();
    let key = if commit.key.is_some() { ", with a key" } else { "" };
    format!("{} conditions{key}: {}", commit.conditions.len(), operations.join("; "))
}

fn put(put: &Put) -> String {
    let value = match &put.value {
        ValueChoice::Set(value) => format!("value of {} bytes", value.len()),
        ValueChoice::Keep => "value kept".to_owned(),
    };
    let lease = match put.lease {
        LeaseChoice::Set(LeaseId::NONE) | LeaseChoice::KeepIfPresent => String::new(),
        LeaseChoice::Set(id) => format!(", {}", lease(id)),
        LeaseChoice::Keep => ", lease kept".to_owned(),
    };
    format!("{}, {value}{lease}", key(&put.key))
}

fn txn(txn: &Txn) -> String {
    format!("{} compares, {} operations, else {}", txn.compares.len(), txn.success.len(), txn.failure.len())
}

fn resource(command: &ResourceCommand) -> String {
    let name = |id: &ResourceId| format!("{}/{}", id.type_.kind, id.name);
    match command {
        ResourceCommand::Write(write) => format!("write {}", name(&write.resource.id)),
        ResourceCommand::WriteStatus(write) => format!("write status {} of {}", write.key, name(&write.id)),
        ResourceCommand::Delete(delete) => format!("delete {}", name(&delete.id)),
        ResourceCommand::Reap(reap) => format!("reap children of {}", name(&reap.owner)),
    }
}

fn consul(command: &ConsulCommand) -> String {
    match command {
        ConsulCommand::Kv(op) => format!("{:?} {}, value of {} bytes", op.verb, key(&op.path), op.value.len()),
        ConsulCommand::Txn(ops) => format!("transaction of {} operations", ops.len()),
        ConsulCommand::SessionCreate(create) => format!("session of node {}", create.session.node),
        ConsulCommand::SessionDestroy(id) => format!("session {id} ends"),
    }
}

fn catalog(command: &CatalogCommand) -> String {
    match command {
        CatalogCommand::Register(registration) => {
            let service =
                registration.service.as_ref().map_or_else(String::new, |service| format!(", service {}", service.id));
            format!("register node {}{service}, {} checks", registration.node.name, registration.checks.len())
        }
        CatalogCommand::Deregister(deregistration) => {
            let node = &deregistration.node;
            match &deregistration.what {
                DeregistrationTarget::Node => format!("deregister node {node}"),
                DeregistrationTarget::Service(id) => format!("deregister service {id} of node {node}"),
                DeregistrationTarget::Check(id) => format!("deregister check {id} of node {node}"),
            }
        }
        CatalogCommand::SetGateway(gateway) => format!("set gateway {}", gateway.name),
        CatalogCommand::DeleteGateway(name) => format!("delete gateway {name}"),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::commit::CommitOp;
    use crate::{DeleteRange, LogIndex, NodeId, SetAlarm, StoreEpoch};

    #[test]
    fn a_command_is_one_line_without_values() {
        let put = Put {
            key: Bytes::from_static(b"a\n\xff"),
            value: ValueChoice::Set(Bytes::from_static(b"secret")),
            lease: LeaseChoice::Set(LeaseId(0x1f)),
            prev_kv: false,
        };
        let kept = Put { value: ValueChoice::Keep, lease: LeaseChoice::Keep, ..put.clone() };
        let span = |end| DeleteRange { range: KeyRange::Span { start: Bytes::from_static(b"a"), end }, prev_kv: false };
        let ended = CommitOp::new(Command::Consul(ConsulCommand::SessionDestroy("s".into()))).unwrap();
        let alarm = crate::Alarm { member: NodeId(2), kind: AlarmKind::Corrupt };
        for (command, wanted) in [
            (Command::Put(put), r#"Put "a\n\xff", value of 6 bytes, lease 1f"#),
            (Command::Put(kept), r#"Put "a\n\xff", value kept, lease kept"#),
            (Command::DeleteRange(span(Some(Bytes::from_static(b"b")))), r#"DeleteRange ["a", "b")"#),
            (Command::DeleteRange(span(None)), r#"DeleteRange ["a", end)"#),
            (Command::Txn(Txn::default()), "Txn 0 compares, 0 operations, else 0"),
            (Command::Bootstrap(StoreEpoch(0xab)), "Bootstrap epoch 00000000000000ab"),
            (Command::SetAlarm(SetAlarm { alarm, active: true }), "Alarm CORRUPT of member 2 raised"),
            (Command::TrimHistory(crate::TrimHistory { from: LogIndex(7) }), "TrimHistory from log index 7"),
            (Command::Consul(ConsulCommand::SessionDestroy("s".into())), "Consul session s ends"),
            (
                Command::Commit(Box::new(Commit { operations: vec![ended], ..Commit::default() })),
                "Commit 0 conditions: Consul session s ends",
            ),
        ] {
            assert_eq!(command.summary(), wanted);
        }
    }
}
