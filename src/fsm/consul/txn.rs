//! Operations of which all are done or none (spec: consul §8.3). Those after one that does not hold are looked at all the
//! same, so that the client hears of everything that is wrong.

use super::draft::{Changes, Draft};
use super::kv;
use crate::fsm::stop::{Stop, settle};
use crate::fsm::writer::Writer;
use crate::storage::StorageError;
use crate::storage::state::StateReader;
use crate::types::LogIndex;
use crate::types::consul::{ConsulOutcome, TxnFault, TxnItem, TxnOp};

type Worked = Result<(Vec<TxnItem>, Changes), Vec<TxnFault>>;

pub(super) fn apply(writer: &mut Writer<'_, '_>, index: LogIndex, ops: &[TxnOp]) -> Result<ConsulOutcome, Stop> {
    let worked = work(&*writer.txn, index, ops)?;
    Ok(match worked {
        Ok((items, changes)) => {
            changes.write(writer)?;
            ConsulOutcome::Txn(items)
        }
        Err(faults) => ConsulOutcome::TxnFailed(faults),
    })
}

/// Evaluates operations of which none changes anything on a state.
///
/// # Errors
///
/// If the disk failed.
pub fn read_txn(state: &impl StateReader, ops: &[TxnOp]) -> Result<Result<Vec<TxnItem>, Vec<TxnFault>>, StorageError> {
    debug_assert!(ops.iter().all(TxnOp::is_read), "invariant: checked by the caller");
    let worked = settle(work(state, LogIndex::ZERO, ops))?.expect("invariant: nothing is refused");
    Ok(worked.map(|(items, _)| items))
}

fn work(state: &impl StateReader, index: LogIndex, ops: &[TxnOp]) -> Result<Worked, Stop> {
    let mut draft = Draft::new(state, index);
    let (mut items, mut faults) = (Vec::new(), Vec::new());
    for (place, op) in (0u32..).zip(ops) {
        let TxnOp::Kv(op) = op;
        match kv::run(&mut draft, op)? {
            Ok(entries) => items.extend(entries.into_iter().map(TxnItem::Kv)),
            Err(reason) => faults.push(TxnFault { op: place, reason }),
        }
    }
    Ok(if faults.is_empty() { Ok((items, draft.into_changes())) } else { Err(faults) })
}
