//! The intervals of keys in the line of one request: those of its commands, and those of the checks
//! of its reads.
//!
//! Owns their names in the log. Must not take values from a command, only keys and names.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::line::AuditInterval;
use headwater_types::catalog::CatalogCommand;
use headwater_types::commit::CommitCondition;
use headwater_types::consul::{ConsulCommand, KvOp, TxnOp as ConsulTxnOp, consul_key};
use headwater_types::limits::AUDIT_INTERVALS_MAX;
use headwater_types::resource::{ResourceCommand, resource_key};
use headwater_types::{Access, Command, KeyRange, Space, Txn, TxnOp};

/// The intervals that the checks of one request have judged, for its line. Shared by all steps of
/// the request.
#[derive(Clone, Debug, Default)]
pub struct AuditTrail {
    inner: Arc<Mutex<Judged>>,
}

#[derive(Debug, Default)]
struct Judged {
    intervals: Vec<AuditInterval>,
    /// Whether one of the intervals, or the request as a whole, was denied.
    is_denied: bool,
}

impl AuditTrail {
    /// Adds an interval with its verdict. Intervals beyond [`AUDIT_INTERVALS_MAX`] are left out; a
    /// denial of one still counts.
    pub fn add(&self, interval: AuditInterval, allowed: bool) {
        let mut judged = self.inner.lock();
        judged.is_denied |= !allowed;
        if judged.intervals.len() < AUDIT_INTERVALS_MAX {
            judged.intervals.push(interval);
        }
    }

    /// Adds the intervals that one check of rights asked for. All get its result, `allowed`.
    pub(crate) fn add_all(&self, wanted: &[(Space, &KeyRange, Access)], allowed: bool) {
        for (space, keys, access) in wanted {
            self.add(
                AuditInterval { space: space_name(*space), keys: (*keys).clone(), rights: rights_name(*access) },
                allowed,
            );
        }
    }

    /// Adds the intervals that a command names; commands of leases, for example, name none. All
    /// get the verdict on the command, `allowed`. A denied command without intervals still marks
    /// the request as denied.
    pub(crate) fn add_command(&self, command: &Command, allowed: bool) {
        let mut found = Vec::new();
        of_command(command, &mut found);
        let wanted: Vec<_> = found.iter().map(|(space, keys, access)| (*space, keys, *access)).collect();
        self.add_all(&wanted, allowed);
        if wanted.is_empty() && !allowed {
            self.deny();
        }
    }

    /// Notes that the request was denied for a reason without an interval, such as a wrong
    /// password.
    pub(crate) fn deny(&self) {
        self.inner.lock().is_denied = true;
    }

    /// Whether anything of the request was denied.
    pub fn was_denied(&self) -> bool {
        self.inner.lock().is_denied
    }

    /// Takes out the intervals that were added so far. [`was_denied`](Self::was_denied) keeps its
    /// value.
    pub fn take(&self) -> Vec<AuditInterval> {
        std::mem::take(&mut self.inner.lock().intervals)
    }
}

/// The name of a space in the log.
fn space_name(space: Space) -> &'static str {
    match space {
        Space::Kv => "keys",
        Space::Resource => "resources",
        Space::CatalogNode => "nodes",
        Space::CatalogService => "services",
        Space::Intention => "intentions",
        Space::Session => "sessions",
        Space::Query => "queries",
        Space::Event => "events",
        Space::Agent => "agents",
        Space::Cluster => "cluster",
        Space::Operator => "operator",
        Space::Auth => "auth",
        Space::Keyring => "keyring",
        Space::Mesh => "mesh",
        Space::Peering => "peering",
    }
}

/// The name of an access in the log. A list is not named beside a read or a write.
fn rights_name(access: Access) -> &'static str {
    match (access.has(Access::READ), access.has(Access::LIST), access.has(Access::WRITE)) {
        (_, _, true) if access.has(Access::READ) => "read+write",
        (_, _, true) => "write",
        (true, _, false) => "read",
        (false, true, false) => "list",
        (false, false, false) => "none",
    }
}

type Wanted = Vec<(Space, KeyRange, Access)>;

fn of_command(command: &Command, out: &mut Wanted) {
    match command {
        Command::Put(put) => key(Space::Kv, &put.key, Access::WRITE, out),
        Command::DeleteRange(delete) => out.push((Space::Kv, delete.range.clone(), Access::WRITE)),
        Command::Txn(txn) => of_txn(txn, out),
        Command::LeaseTxn(request) => of_txn(&request.txn, out),
        Command::LeaseAttach(attach) => key(Space::Kv, &attach.key, Access::WRITE, out),
        Command::Resource(command) => {
            let id = match command {
                ResourceCommand::Write(write) => &write.resource.id,
                ResourceCommand::WriteStatus(write) => &write.id,
                ResourceCommand::Delete(delete) => &delete.id,
                ResourceCommand::Reap(reap) => &reap.owner,
            };
            key(Space::Resource, &resource_key(id), Access::WRITE, out);
        }
        Command::Consul(command) => match command {
            ConsulCommand::Kv(op) => of_path(op, out),
            ConsulCommand::Txn(ops) => ops.iter().for_each(|op| match op {
                ConsulTxnOp::Kv(op) => of_path(op, out),
                ConsulTxnOp::Catalog(..) => {}
            }),
            ConsulCommand::SessionCreate(create) => name(Space::Session, &create.session.node, out),
            ConsulCommand::SessionDestroy(_) => {}
        },
        Command::Catalog(command) => match command {
            CatalogCommand::Register(registration) => {
                name(Space::CatalogNode, &registration.node.name, out);
                if let Some(service) = &registration.service {
                    name(Space::CatalogService, &service.name, out);
                }
            }
            CatalogCommand::Deregister(gone) => name(Space::CatalogNode, &gone.node, out),
            CatalogCommand::SetGateway(gateway) => name(Space::CatalogService, &gateway.name, out),
            CatalogCommand::DeleteGateway(gateway) => name(Space::CatalogService, gateway, out),
        },
        Command::Commit(commit) => {
            for condition in &commit.conditions {
                match condition {
                    CommitCondition::Compare(compare) => {
                        out.push((Space::Kv, compare.range.clone(), Access::READ));
                    }
                    CommitCondition::Entity(entity, ..) => {
                        let intervals = entity.intervals().into_iter();
                        out.extend(intervals.map(|(space, range)| (space, range, Access::READ)));
                    }
                }
            }
            commit.operations.iter().for_each(|operation| of_command(operation.command(), out));
        }
        Command::Compact(_)
        | Command::SetAlarm(_)
        | Command::SetQuota(_)
        | Command::SetVersion(_)
        | Command::Invitation(_) => out.push((Space::Cluster, Space::WHOLE, Access::WRITE)),
        Command::Auth(_) | Command::Acl(_) => out.push((Space::Auth, Space::WHOLE, Access::WRITE)),
        Command::Bootstrap(_)
        | Command::TrimHistory(_)
        | Command::LeaseGrant(_)
        | Command::LeaseRevoke(_)
        | Command::LeaseExpire(_)
        | Command::LeaseCheckpoint(_)
        | Command::AnnounceProgram(..) => {}
        #[cfg(feature = "next-version")]
        Command::Note(_) => {}
    }
}

fn key(space: Space, key: &Bytes, access: Access, out: &mut Wanted) {
    out.push((space, KeyRange::One(Bytes::copy_from_slice(key)), access));
}

fn name(space: Space, name: &str, out: &mut Wanted) {
    out.push((space, KeyRange::One(space.key_of(name)), Access::WRITE));
}

fn of_path(op: &KvOp, out: &mut Wanted) {
    let key = consul_key(&op.path);
    let keys = if op.verb.is_about_prefix() { KeyRange::prefix(key) } else { KeyRange::One(key) };
    out.push((Space::Kv, keys, if op.verb.is_read() { Access::READ } else { Access::WRITE }));
}

/// The intervals of the comparisons and of both branches: all of them are judged. Adds no operation
/// once there are [`AUDIT_INTERVALS_MAX`] intervals.
fn of_txn(txn: &Txn, out: &mut Wanted) {
    out.extend(txn.compares.iter().map(|compare| (Space::Kv, compare.range.clone(), Access::READ)));
    for op in txn.success.iter().chain(&txn.failure) {
        if out.len() >= AUDIT_INTERVALS_MAX {
            return;
        }
        match op {
            TxnOp::Range(query) => out.push((Space::Kv, query.range.clone(), Access::READ)),
            TxnOp::Put(put) => key(Space::Kv, &put.key, Access::WRITE, out),
            TxnOp::DeleteRange(delete) => out.push((Space::Kv, delete.range.clone(), Access::WRITE)),
            TxnOp::Txn(inner) => of_txn(inner, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_not_taken() {
        use headwater_types::{LeaseChoice, LeaseId, Put, ValueChoice};
        let put = Put {
            key: "k".into(),
            value: ValueChoice::Set("canary".into()),
            lease: LeaseChoice::Set(LeaseId(0)),
            prev_kv: false,
        };
        let trail = AuditTrail::default();
        trail.add_command(&Command::Put(put), false);
        assert!(trail.was_denied());
        let found = trail.take();
        assert_eq!(found, [AuditInterval { space: "keys", keys: KeyRange::One("k".into()), rights: "write" }]);
        assert!(!format!("{found:?}").contains("canary"));
    }
}
