//! Transactions of Consul's API: all operations are done or none (spec: consul §8.3). Operations
//! after a failed one are evaluated, too, so that the client gets every fault.
//!
//! Operations on keys are evaluated first, then those on the catalog. They do not see each other,
//! with one exception: sessions that end because the transaction made a check fail also release
//! keys that it has written.
//!
//! Results are bounded, because every member computes them, also when it applies the log again
//! after a restart.

use super::draft::{Changes, Draft};
use super::follow::follow_with;
use super::{kv, rows};
use crate::catalog::Desk;
use crate::room::Room;
use crate::stop::{Stop, settle};
use crate::writer::Writer;
use headwater_storage::StorageError;
use headwater_storage::state::StateReader;
use headwater_types::LogIndex;
use headwater_types::consul::{ConsulOutcome, KvOp, TxnFault, TxnItem, TxnOp};

/// Results of operations and faults, with the positions of the operations.
#[derive(Default)]
struct Told {
    items: Vec<(u32, TxnItem)>,
    faults: Vec<TxnFault>,
}

pub(super) fn apply(
    writer: &mut Writer<'_, '_>,
    index: LogIndex,
    ops: &[TxnOp],
    want: bool,
) -> Result<ConsulOutcome, Stop> {
    let (mut told, mut room) = (Told::default(), Room::of_consul_command(want));
    let on_keys = (0u32..).zip(ops).filter_map(|(place, op)| match op {
        TxnOp::Kv(op) => Some((place, op)),
        TxnOp::Catalog(..) => None,
    });
    let changes = work(&*writer.txn, index, on_keys, &mut told, &mut room)?;
    let mut desk = Desk::new(writer.txn, index);
    for (place, op) in (0u32..).zip(ops) {
        let TxnOp::Catalog(verb, row) = op else { continue };
        match rows::run(&mut desk, *verb, row, &mut room)? {
            Ok(item) => told.items.extend(item.map(|item| (place, item))),
            Err(reason) => told.faults.push(TxnFault { op: place, reason }),
        }
    }
    if !told.faults.is_empty() {
        told.faults.sort_by_key(|fault| fault.op);
        return Ok(ConsulOutcome::TxnFailed(told.faults));
    }
    let finished = desk.finish()?;
    follow_with(writer, index, changes, &finished)?;
    // In order of the operations. The sort is stable, so several results of one operation keep
    // their order.
    told.items.sort_by_key(|(place, _)| *place);
    let mut items = Vec::with_capacity(told.items.len());
    for (_, item) in told.items {
        items.push(match item {
            TxnItem::Catalog(row) => TxnItem::Catalog(rows::as_stored(&*writer.txn, &row)?.unwrap_or(row)),
            item @ TxnItem::Kv(_) => item,
        });
    }
    Ok(ConsulOutcome::Txn(items))
}

/// Evaluates operations that only read.
///
/// # Errors
///
/// If the disk failed.
pub fn read_txn(state: &impl StateReader, ops: &[KvOp]) -> Result<Result<Vec<TxnItem>, Vec<TxnFault>>, StorageError> {
    debug_assert!(ops.iter().all(|op| op.verb.is_read()), "invariant: checked by the caller");
    let mut told = Told::default();
    let worked = settle(work(state, LogIndex::ZERO, (0u32..).zip(ops), &mut told, &mut Room::of_consul_read()))?;
    worked.map(drop).expect("invariant: nothing is refused");
    Ok(match told.faults.is_empty() {
        true => Ok(told.items.into_iter().map(|(_, item)| item).collect()),
        false => Err(told.faults),
    })
}

fn work<'a>(
    state: &impl StateReader,
    index: LogIndex,
    ops: impl Iterator<Item = (u32, &'a KvOp)>,
    told: &mut Told,
    room: &mut Room,
) -> Result<Changes, Stop> {
    let mut draft = Draft::new(state, index);
    for (place, op) in ops {
        match kv::run(&mut draft, op, room)? {
            Ok(_) if !room.is_wanted() => {}
            Ok(entries) => told.items.extend(entries.into_iter().map(|entry| (place, TxnItem::Kv(entry)))),
            Err(reason) => told.faults.push(TxnFault { op: place, reason }),
        }
    }
    Ok(draft.into_changes())
}
