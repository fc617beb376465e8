//! Encoding of Consul's keys, sessions and transactions: in storage, in commands and in outcomes.

use bytes::Bytes;

use super::CodecError;
use super::catalog;
use super::command::{decode_message, encode_message};
use super::kv::{required, unknown};
use crate::pb::internal as pb;
use headwater_types::LogIndex;
use headwater_types::consul::{
    CatalogVerb, ConsulCommand, ConsulOutcome, KvEntry, KvOp, KvSide, KvVerb, Session, SessionBehavior, SessionCreate,
    SessionRefusal, TxnFault, TxnFaultReason, TxnItem, TxnOp, TxnRow,
};

/// The only format of stored records so far.
const FORMAT: u8 = 1;

/// The bytes of the side record of a key.
pub fn encode_side(side: &KvSide) -> Bytes {
    encode_message(FORMAT, &write_side(side))
}

/// Decodes the side record of a key.
///
/// # Errors
///
/// [`CodecError`] for another format byte, and for bytes that are not a side record.
pub fn decode_side(bytes: Bytes) -> Result<KvSide, CodecError> {
    Ok(read_side(decode_message("side record of a key", FORMAT, bytes)?))
}

/// The bytes of a session as it is stored, without `created`, which is the log index of the stored
/// record.
pub fn encode_session(session: &Session) -> Bytes {
    encode_message(FORMAT, &write_session(session))
}

/// Reads a session from the record with the log index `created`.
///
/// # Errors
///
/// [`CodecError`] for another format byte, and for bytes that are not a session.
pub fn decode_session(bytes: Bytes, created: LogIndex) -> Result<Session, CodecError> {
    Ok(Session { created, ..read_session(decode_message("session", FORMAT, bytes)?) })
}

pub(super) fn write_command(command: &ConsulCommand) -> pb::ConsulCommand {
    use pb::consul_command::Command;
    let command = match command {
        ConsulCommand::Kv(op) => Command::Kv(write_op(op)),
        ConsulCommand::Txn(ops) => {
            let op = |op: &TxnOp| match op {
                TxnOp::Kv(op) => pb::consul_txn_op::Op::Kv(write_op(op)),
                TxnOp::Catalog(verb, row) => pb::consul_txn_op::Op::Catalog(write_catalog_op(*verb, row)),
            };
            Command::Txn(pb::ConsulTxn { ops: ops.iter().map(|it| pb::ConsulTxnOp { op: Some(op(it)) }).collect() })
        }
        ConsulCommand::SessionCreate(create) => Command::SessionCreate(pb::ConsulSessionCreate {
            session: Some(write_session(&create.session)),
            default_check: create.default_check,
            node_required: create.node_required,
        }),
        ConsulCommand::SessionDestroy(id) => Command::SessionDestroy(id.clone()),
    };
    pb::ConsulCommand { command: Some(command) }
}

pub(super) fn read_command(command: pb::ConsulCommand) -> Result<ConsulCommand, CodecError> {
    use pb::consul_command::Command;
    Ok(match required(command.command, "ConsulCommand.command")? {
        Command::Kv(op) => ConsulCommand::Kv(read_op(op)?),
        Command::Txn(txn) => {
            let op = |op: pb::ConsulTxnOp| {
                Ok(match required(op.op, "ConsulTxnOp.op")? {
                    pb::consul_txn_op::Op::Kv(op) => TxnOp::Kv(read_op(op)?),
                    pb::consul_txn_op::Op::Catalog(op) => read_catalog_op(op)?,
                })
            };
            ConsulCommand::Txn(txn.ops.into_iter().map(op).collect::<Result<_, CodecError>>()?)
        }
        Command::SessionCreate(create) => ConsulCommand::SessionCreate(Box::new(SessionCreate {
            session: read_session(required(create.session, "ConsulSessionCreate.session")?),
            default_check: create.default_check,
            node_required: create.node_required,
        })),
        Command::SessionDestroy(id) => ConsulCommand::SessionDestroy(id),
    })
}

pub(super) fn write_outcome(outcome: &ConsulOutcome) -> pb::ConsulOutcome {
    use pb::consul_outcome::Outcome;
    let outcome = match outcome {
        ConsulOutcome::Kv(done) => Outcome::Kv(*done),
        ConsulOutcome::Txn(items) => {
            let item = |item: &TxnItem| match item {
                TxnItem::Kv(entry) => pb::consul_txn_item::Item::Kv(write_entry(entry)),
                TxnItem::Catalog(row) => pb::consul_txn_item::Item::Catalog(write_row(row)),
            };
            let items = items.iter().map(|it| pb::ConsulTxnItem { item: Some(item(it)) });
            Outcome::Txn(pb::ConsulTxnDone { items: items.collect() })
        }
        ConsulOutcome::TxnFailed(faults) => {
            Outcome::TxnFailed(pb::ConsulTxnFailed { faults: faults.iter().map(write_fault).collect() })
        }
        ConsulOutcome::SessionCreated => Outcome::SessionCreated(pb::Unit {}),
        ConsulOutcome::SessionDestroyed => Outcome::SessionDestroyed(pb::Unit {}),
    };
    pb::ConsulOutcome { outcome: Some(outcome) }
}

pub(super) fn read_outcome(outcome: pb::ConsulOutcome) -> Result<ConsulOutcome, CodecError> {
    use pb::consul_outcome::Outcome;
    Ok(match outcome.outcome.ok_or(CodecError::UnknownOutcome)? {
        Outcome::Kv(done) => ConsulOutcome::Kv(done),
        Outcome::Txn(done) => {
            let item = |item: pb::ConsulTxnItem| {
                Ok(match required(item.item, "ConsulTxnItem.item")? {
                    pb::consul_txn_item::Item::Kv(entry) => TxnItem::Kv(read_entry(entry)?),
                    pb::consul_txn_item::Item::Catalog(row) => TxnItem::Catalog(read_row(row)?),
                })
            };
            ConsulOutcome::Txn(done.items.into_iter().map(item).collect::<Result<_, CodecError>>()?)
        }
        Outcome::TxnFailed(failed) => {
            ConsulOutcome::TxnFailed(failed.faults.into_iter().map(read_fault).collect::<Result<_, _>>()?)
        }
        Outcome::SessionCreated(pb::Unit {}) => ConsulOutcome::SessionCreated,
        Outcome::SessionDestroyed(pb::Unit {}) => ConsulOutcome::SessionDestroyed,
    })
}

pub(super) fn write_refusal(refusal: SessionRefusal) -> i32 {
    let position = SessionRefusal::ALL.iter().position(|reason| *reason == refusal);
    i32::try_from(position.expect("invariant: every reason is listed") + 1).expect("invariant: there are few")
}

pub(super) fn read_refusal(number: i32) -> Result<SessionRefusal, CodecError> {
    listed(&SessionRefusal::ALL, number).ok_or_else(|| unknown("Refusal.session", number))
}

fn listed<T: Copy>(all: &[T], number: i32) -> Option<T> {
    all.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
}

fn write_side(side: &KvSide) -> pb::ConsulSide {
    pb::ConsulSide {
        flags: side.flags,
        session: side.session.clone(),
        lock_index: side.lock_index,
        created: side.created.get(),
    }
}

fn read_side(side: pb::ConsulSide) -> KvSide {
    KvSide { flags: side.flags, session: side.session, lock_index: side.lock_index, created: LogIndex(side.created) }
}

fn write_session(session: &Session) -> pb::ConsulSession {
    pb::ConsulSession {
        id: session.id.clone(),
        name: session.name.clone(),
        node: session.node.clone(),
        node_checks: session.node_checks.clone(),
        service_checks: session.service_checks.clone(),
        deletes_keys: match session.behavior {
            SessionBehavior::Release => false,
            SessionBehavior::Delete => true,
        },
        lock_delay_ms: session.lock_delay_ms,
        ttl_ms: session.ttl_ms,
        ttl: session.ttl.clone(),
    }
}

fn read_session(session: pb::ConsulSession) -> Session {
    Session {
        id: session.id,
        name: session.name,
        node: session.node,
        node_checks: session.node_checks,
        service_checks: session.service_checks,
        behavior: if session.deletes_keys { SessionBehavior::Delete } else { SessionBehavior::Release },
        lock_delay_ms: session.lock_delay_ms,
        ttl_ms: session.ttl_ms,
        ttl: session.ttl,
        created: LogIndex::ZERO,
    }
}

fn write_op(op: &KvOp) -> pb::ConsulKvOp {
    let position = KvVerb::ALL.iter().position(|verb| *verb == op.verb).expect("invariant: every verb is listed");
    pb::ConsulKvOp {
        verb: i32::try_from(position + 1).expect("invariant: there are few"),
        path: op.path.clone(),
        value: op.value.clone(),
        flags: op.flags,
        index: op.index.get(),
        session: op.session.clone(),
    }
}

fn read_op(op: pb::ConsulKvOp) -> Result<KvOp, CodecError> {
    Ok(KvOp {
        verb: listed(&KvVerb::ALL, op.verb).ok_or_else(|| unknown("ConsulKvOp.verb", op.verb))?,
        path: op.path,
        value: op.value,
        flags: op.flags,
        index: LogIndex(op.index),
        session: op.session,
    })
}

fn write_catalog_op(verb: CatalogVerb, row: &TxnRow) -> pb::ConsulCatalogOp {
    let position = CatalogVerb::ALL.iter().position(|known| *known == verb).expect("invariant: every verb is listed");
    let verb = i32::try_from(position + 1).expect("invariant: there are few");
    pb::ConsulCatalogOp { verb, row: Some(write_row(row)) }
}

fn read_catalog_op(op: pb::ConsulCatalogOp) -> Result<TxnOp, CodecError> {
    let verb = listed(&CatalogVerb::ALL, op.verb).ok_or_else(|| unknown("ConsulCatalogOp.verb", op.verb))?;
    Ok(TxnOp::Catalog(verb, read_row(required(op.row, "ConsulCatalogOp.row")?)?))
}

fn write_row(row: &TxnRow) -> pb::ConsulCatalogRow {
    use pb::consul_catalog_row::Row;
    let row = match row {
        TxnRow::Node(row) => Row::Node(catalog::write_node(row)),
        TxnRow::Service(row) => Row::Service(catalog::write_service(row)),
        TxnRow::Check(row) => Row::Check(catalog::write_check(row)),
    };
    pb::ConsulCatalogRow { row: Some(row) }
}

fn read_row(row: pb::ConsulCatalogRow) -> Result<TxnRow, CodecError> {
    use pb::consul_catalog_row::Row;
    Ok(match required(row.row, "ConsulCatalogRow.row")? {
        Row::Node(row) => TxnRow::Node(Box::new(catalog::read_node(row))),
        Row::Service(row) => TxnRow::Service(Box::new(catalog::read_service(row)?)),
        Row::Check(row) => TxnRow::Check(Box::new(catalog::read_check(row)?)),
    })
}

fn write_entry(entry: &KvEntry) -> pb::ConsulKvEntry {
    pb::ConsulKvEntry {
        path: entry.path.clone(),
        value: entry.value.clone(),
        side: Some(write_side(&entry.side)),
        modified: entry.modified.get(),
    }
}

fn read_entry(entry: pb::ConsulKvEntry) -> Result<KvEntry, CodecError> {
    Ok(KvEntry {
        path: entry.path,
        value: entry.value,
        side: read_side(required(entry.side, "ConsulKvEntry.side")?),
        modified: LogIndex(entry.modified),
    })
}

pub(super) fn write_fault(fault: &TxnFault) -> pb::ConsulTxnFault {
    use pb::consul_txn_fault::Reason;
    let reason = match fault.reason {
        TxnFaultReason::Stale => Reason::Stale(pb::Unit {}),
        TxnFaultReason::Held => Reason::Held(pb::Unit {}),
        TxnFaultReason::NotHeld => Reason::NotHeld(pb::Unit {}),
        TxnFaultReason::Delayed => Reason::Delayed(pb::Unit {}),
        TxnFaultReason::Absent => Reason::Absent(pb::Unit {}),
        TxnFaultReason::Present => Reason::Present(pb::Unit {}),
        TxnFaultReason::Session(refusal) => Reason::Session(write_refusal(refusal)),
        TxnFaultReason::RowAbsent => Reason::RowAbsent(pb::Unit {}),
        TxnFaultReason::Catalog(refusal) => Reason::Catalog(refusal as i32),
        TxnFaultReason::ResultTooLarge => Reason::TooMuchTold(pb::Unit {}),
    };
    pb::ConsulTxnFault { op: fault.op, reason: Some(reason) }
}

pub(super) fn read_fault(fault: pb::ConsulTxnFault) -> Result<TxnFault, CodecError> {
    use pb::consul_txn_fault::Reason;
    let reason = match required(fault.reason, "ConsulTxnFault.reason")? {
        Reason::Stale(pb::Unit {}) => TxnFaultReason::Stale,
        Reason::Held(pb::Unit {}) => TxnFaultReason::Held,
        Reason::NotHeld(pb::Unit {}) => TxnFaultReason::NotHeld,
        Reason::Delayed(pb::Unit {}) => TxnFaultReason::Delayed,
        Reason::Absent(pb::Unit {}) => TxnFaultReason::Absent,
        Reason::Present(pb::Unit {}) => TxnFaultReason::Present,
        Reason::Session(number) => TxnFaultReason::Session(read_refusal(number)?),
        Reason::RowAbsent(pb::Unit {}) => TxnFaultReason::RowAbsent,
        Reason::Catalog(number) => TxnFaultReason::Catalog(catalog::read_refusal(number)?),
        Reason::TooMuchTold(pb::Unit {}) => TxnFaultReason::ResultTooLarge,
    };
    Ok(TxnFault { op: fault.op, reason })
}

#[cfg(test)]
#[path = "consul_tests.rs"]
mod tests;
