//! Admission of commands while an alarm is active, or when the store is full (spec: etcd §1.8).
//!
//! Decided in apply, from replicated state: every member refuses the same commands. Commands that
//! only free space are always accepted, unless the alarm of corruption is active.

use headwater_storage::state::{StateReader, WriteTxn};
use headwater_types::acl::{AclCommand, AclGrants, AclRow};
use headwater_types::catalog::{CatalogCommand, CatalogNode, Check, Registration, Service};
use headwater_types::consul::{CatalogVerb, ConsulCommand, KvOp, TxnOp as ConsulTxnOp, TxnRow};
use headwater_types::resource::{Condition, ResourceCommand};
use headwater_types::{AlarmKind, Command, LeaseAttach, Put, Refusal, Txn, TxnOp, ValueChoice};

/// Overhead of a put beside key and value, bytes.
const PUT_OVERHEAD_BYTES: u64 = 256;
/// Cost of a lease, bytes.
const LEASE_BYTES: u64 = 64;

/// Refuses a command that the quota or an alarm forbids.
pub(super) fn admit(txn: &WriteTxn<'_>, command: &Command) -> Result<(), Refusal> {
    let head = txn.head();
    if head.alarms.has(AlarmKind::Corrupt) && is_stopped_by_corruption(command) {
        return Err(Refusal::Corrupt);
    }
    let bytes_max = head.quota.and_then(|quota| quota.bytes_max);
    let is_full = head.alarms.has(AlarmKind::NoSpace);
    if !is_full && bytes_max.is_none() {
        return Ok(());
    }
    match cost_bytes(command) {
        0 => Ok(()),
        _ if is_full => Err(Refusal::NoSpace),
        cost if bytes_max.is_some_and(|max| head.live_bytes.saturating_add(cost) > max) => Err(Refusal::NoSpace),
        _ => Ok(()),
    }
}

/// Estimate of the bytes that the command could add. 0 for a command that a full store accepts: it
/// frees space, or adds little. The size of replaced values is not subtracted.
fn cost_bytes(command: &Command) -> u64 {
    match command {
        Command::Put(put) => put_bytes(put),
        Command::Txn(txn) => txn_bytes(txn),
        Command::LeaseGrant(_) => LEASE_BYTES,
        Command::LeaseAttach(attach) => attach_bytes(attach),
        Command::LeaseTxn(request) => {
            let attaches = |list: &[LeaseAttach]| list.iter().map(attach_bytes).sum::<u64>();
            txn_bytes(&request.txn) + attaches(&request.success).max(attaches(&request.failure))
        }
        Command::Resource(command) => resource_bytes(command),
        Command::Consul(command) => consul_bytes(command),
        Command::Catalog(command) => catalog_bytes(command),
        Command::Acl(command) => acl_bytes(command),
        Command::Commit(commit) => commit.operations.iter().map(|operation| cost_bytes(operation.command())).sum(),
        Command::Bootstrap(_)
        | Command::DeleteRange(_)
        | Command::Compact(_)
        | Command::TrimHistory(_)
        | Command::LeaseRevoke(_)
        | Command::LeaseExpire(_)
        | Command::LeaseCheckpoint(_)
        | Command::SetAlarm(_)
        | Command::SetQuota(_)
        | Command::SetVersion(_)
        | Command::AnnounceProgram(..)
        | Command::Auth(_) => 0,
        // Few and small, and a member that joins may bring space.
        Command::Invitation(_) => 0,
        #[cfg(feature = "next-version")]
        Command::Note(_) => 0,
    }
}

fn put_bytes(put: &Put) -> u64 {
    let value = match &put.value {
        ValueChoice::Set(value) => value.len(),
        ValueChoice::Keep => 0,
    };
    PUT_OVERHEAD_BYTES + (put.key.len() + value) as u64
}

/// Cost of an attachment: that of a new version of the key, without its value. The value is stored
/// already, and was counted when it was put.
fn attach_bytes(attach: &LeaseAttach) -> u64 {
    PUT_OVERHEAD_BYTES + attach.key.len() as u64
}

/// Approximate bytes that a command on resources adds: metadata and data of the written resource,
/// or the texts of the written status. A deletion counts 0, although it writes a tombstone: it
/// frees space.
fn resource_bytes(command: &ResourceCommand) -> u64 {
    match command {
        ResourceCommand::Write(write) => {
            let resource = &write.resource;
            // A write that removes a finalizer helps to free space, but is counted like any other
            // write.
            let metadata: usize = resource.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
            PUT_OVERHEAD_BYTES + (metadata + resource.data.as_ref().map_or(0, |data| data.value.len())) as u64
        }
        ResourceCommand::WriteStatus(write) => {
            let text = |condition: &Condition| condition.type_.len() + condition.reason.len() + condition.message.len();
            PUT_OVERHEAD_BYTES + write.status.conditions.iter().map(text).sum::<usize>() as u64
        }
        ResourceCommand::Delete(_) | ResourceCommand::Reap(_) => 0,
    }
}

/// Approximate bytes that a command of Consul's API adds. The end of a session costs nothing: it
/// rewrites keys, but adds nothing to them.
fn consul_bytes(command: &ConsulCommand) -> u64 {
    let op_bytes = |op: &KvOp| match op.verb.may_grow() {
        true => PUT_OVERHEAD_BYTES + (op.path.len() + op.value.len()) as u64,
        false => 0,
    };
    match command {
        ConsulCommand::Kv(op) => op_bytes(op),
        ConsulCommand::Txn(ops) => {
            let bytes = |op: &ConsulTxnOp| match op {
                ConsulTxnOp::Kv(op) => op_bytes(op),
                ConsulTxnOp::Catalog(CatalogVerb::Set | CatalogVerb::Cas, row) => row_bytes(row),
                ConsulTxnOp::Catalog(CatalogVerb::Get | CatalogVerb::Delete | CatalogVerb::DeleteCas, _) => 0,
            };
            ops.iter().map(bytes).sum()
        }
        ConsulCommand::SessionCreate(create) => {
            let session = &create.session;
            let checks: usize = session.checks().map(String::len).sum();
            PUT_OVERHEAD_BYTES + (session.name.len() + session.node.len() + session.ttl.len() + checks) as u64
        }
        ConsulCommand::SessionDestroy(_) => 0,
    }
}

/// The cost of one row, bytes: that of a registration of this row alone. So the row of an instance
/// or a check also counts the overhead of a node.
pub(super) fn row_bytes(row: &TxnRow) -> u64 {
    let mut registration = Registration::default();
    match row {
        TxnRow::Node(row) => registration.node = CatalogNode::clone(row),
        TxnRow::Service(row) => registration.service = Some(Service::clone(row)),
        TxnRow::Check(row) => registration.checks.push(Check::clone(row)),
    }
    catalog_bytes(&CatalogCommand::Register(Box::new(registration)))
}

/// Approximate size of the rows that a command writes, bytes: texts that may be long are counted,
/// all else is in the overhead of a row.
fn catalog_bytes(command: &CatalogCommand) -> u64 {
    let service = |service: &Service| {
        let tags: usize = service.tags.iter().map(String::len).sum();
        let meta: usize = service.meta.iter().map(|(key, value)| key.len() + value.len()).sum();
        let more = service.proxy.more_json.len() + service.connect.more_json.len();
        PUT_OVERHEAD_BYTES + (service.name.len() + service.id.len() + tags + meta + more) as u64
    };
    let check = |check: &Check| {
        let texts = check.id.len() + check.name.len() + check.notes.len() + check.output.len();
        PUT_OVERHEAD_BYTES + texts as u64
    };
    match command {
        CatalogCommand::Register(registration) => {
            let node = &registration.node;
            let meta: usize = node.meta.iter().map(|(key, value)| key.len() + value.len()).sum();
            let rows = registration.service.iter().map(service).chain(registration.checks.iter().map(check));
            PUT_OVERHEAD_BYTES + (node.name.len() + meta) as u64 + rows.sum::<u64>()
        }
        CatalogCommand::SetGateway(gateway) => {
            let links = gateway.services.iter().map(|link| PUT_OVERHEAD_BYTES + link.name.len() as u64);
            PUT_OVERHEAD_BYTES + links.sum::<u64>()
        }
        CatalogCommand::Deregister(_) | CatalogCommand::DeleteGateway(_) => 0,
    }
}

/// Approximate size of the row that a command writes, bytes: texts that may be long are counted. 0
/// for commands other than [`AclCommand::Put`], the bootstrap included.
fn acl_bytes(command: &AclCommand) -> u64 {
    let AclCommand::Put { row, .. } = command else {
        // A bootstrap must be possible while the store is full. The others free space.
        return 0;
    };
    let texts = match row {
        AclRow::Token(token) => token.description.len() + grants_bytes(&token.grants) + 40 * token.roles.len(),
        AclRow::Policy(policy) => policy.description.len() + policy.rules.len(),
        AclRow::Role(role) => role.description.len() + grants_bytes(&role.grants),
        AclRow::Method(method) => method.description.len() + method.config_json.len(),
        AclRow::Binding(binding) => binding.description.len() + binding.selector.len() + binding.bind_name.len(),
    };
    PUT_OVERHEAD_BYTES + texts as u64
}

fn grants_bytes(grants: &AclGrants) -> usize {
    let AclGrants { policies, services, nodes, templates } = grants;
    40 * policies.len() + 64 * (services.len() + nodes.len() + templates.len())
}

/// Cost of the more expensive of the two lists, bytes.
fn txn_bytes(txn: &Txn) -> u64 {
    let ops = |ops: &[TxnOp]| {
        ops.iter()
            .map(|op| match op {
                TxnOp::Put(put) => put_bytes(put),
                TxnOp::Txn(inner) => txn_bytes(inner),
                TxnOp::Range(_) | TxnOp::DeleteRange(_) => 0,
            })
            .sum::<u64>()
    };
    ops(&txn.success).max(ops(&txn.failure))
}

/// Whether the command is refused while the alarm `CORRUPT` is active. Leases still expire.
fn is_stopped_by_corruption(command: &Command) -> bool {
    match command {
        Command::Put(_)
        | Command::DeleteRange(_)
        | Command::Txn(_)
        | Command::Compact(_)
        | Command::TrimHistory(_)
        | Command::LeaseGrant(_)
        | Command::LeaseRevoke(_)
        | Command::LeaseAttach(_)
        | Command::LeaseTxn(_)
        | Command::Resource(_)
        | Command::Consul(_)
        | Command::Catalog(_)
        | Command::Acl(_)
        | Command::Commit(_) => true,
        Command::Bootstrap(_)
        | Command::LeaseExpire(_)
        | Command::LeaseCheckpoint(_)
        | Command::SetAlarm(_)
        | Command::SetQuota(_)
        | Command::SetVersion(_)
        | Command::AnnounceProgram(..)
        | Command::Invitation(_)
        | Command::Auth(_) => false,
        #[cfg(feature = "next-version")]
        Command::Note(_) => true,
    }
}
