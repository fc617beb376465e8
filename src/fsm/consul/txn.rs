//! Transactions of Consul's API: all operations are done or none (spec: consul §8.3). Operations
//! after a failed one are evaluated, too, so that the client gets all errors.
//!
//! Operations on keys are evaluated first, then those on the catalog. They do not see each other,
//! with one exception: sessions that end because the transaction made a check fail also release
//! keys that it has written.
//!
//! Results are bounded, because every member computes them, also when it applies the log again
//! after a restart.

use super::cascade::cascade_with;
use super::draft::{Changes, Draft};
use super::{kv, rows};
use crate::catalog::CatalogTxn;
use crate::error::{FsmError, split_refusal};
use crate::read_budget::ReadBudget;
use crate::writer::KvWriter;
use headwater_storage::StorageError;
use headwater_storage::state::StateReader;
use headwater_types::LogIndex;
use headwater_types::consul::{ConsulOutcome, KvOp, TxnFault, TxnItem, TxnOp};

/// Results of operations and faults, with the positions of the operations.
#[derive(Default)]
struct TxnResults {
    items: Vec<(u32, TxnItem)>,
    faults: Vec<TxnFault>,
}

pub(super) fn apply(
    writer: &mut KvWriter<'_, '_>,
    index: LogIndex,
    ops: &[TxnOp],
    want: bool,
) -> Result<ConsulOutcome, FsmError> {
    let (mut results, mut budget) = (TxnResults::default(), ReadBudget::of_consul_command(want));
    let on_keys = (0u32..).zip(ops).filter_map(|(position, op)| match op {
        TxnOp::Kv(op) => Some((position, op)),
        TxnOp::Catalog(..) => None,
    });
    let changes = work(&*writer.txn, index, on_keys, &mut results, &mut budget)?;
    let mut catalog = CatalogTxn::new(writer.txn, index);
    for (position, op) in (0u32..).zip(ops) {
        let TxnOp::Catalog(verb, row) = op else { continue };
        match rows::run(&mut catalog, *verb, row, &mut budget)? {
            Ok(item) => results.items.extend(item.map(|item| (position, item))),
            Err(reason) => results.faults.push(TxnFault { op: position, reason }),
        }
    }
    if !results.faults.is_empty() {
        results.faults.sort_by_key(|fault| fault.op);
        return Ok(ConsulOutcome::TxnFailed(results.faults));
    }
    let effect = catalog.finish()?;
    cascade_with(writer, index, changes, &effect)?;
    // In order of the operations. The sort is stable, so several results of one operation keep
    // their order.
    results.items.sort_by_key(|(position, _)| *position);
    let mut items = Vec::with_capacity(results.items.len());
    for (_, item) in results.items {
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
/// The outer one if the disk failed, the inner one with the operations that failed.
pub fn read_txn(state: &impl StateReader, ops: &[KvOp]) -> Result<Result<Vec<TxnItem>, Vec<TxnFault>>, StorageError> {
    debug_assert!(ops.iter().all(|op| op.verb.is_read()), "invariant: checked by the caller");
    let mut results = TxnResults::default();
    let worked =
        split_refusal(work(state, LogIndex::ZERO, (0u32..).zip(ops), &mut results, &mut ReadBudget::of_consul_read()))?;
    worked.map(drop).expect("invariant: nothing is refused");
    Ok(match results.faults.is_empty() {
        true => Ok(results.items.into_iter().map(|(_, item)| item).collect()),
        false => Err(results.faults),
    })
}

fn work<'a>(
    state: &impl StateReader,
    index: LogIndex,
    ops: impl Iterator<Item = (u32, &'a KvOp)>,
    results: &mut TxnResults,
    budget: &mut ReadBudget,
) -> Result<Changes, FsmError> {
    let mut draft = Draft::new(state, index);
    for (position, op) in ops {
        match kv::run(&mut draft, op, budget)? {
            Ok(_) if !budget.is_wanted() => {}
            Ok(entries) => results.items.extend(entries.into_iter().map(|entry| (position, TxnItem::Kv(entry)))),
            Err(reason) => results.faults.push(TxnFault { op: position, reason }),
        }
    }
    Ok(draft.into_changes())
}
