//! Operations of which all are done or none (spec: consul §8.3). Those after one that does not hold are looked at all the
//! same, so that the client hears of everything that is wrong.

use super::draft::Draft;
use super::kv;
use crate::fsm::stop::Stop;
use crate::fsm::writer::Writer;
use crate::types::LogIndex;
use crate::types::consul::{ConsulOutcome, TxnFault, TxnItem, TxnOp};

pub(super) fn apply(writer: &mut Writer<'_, '_>, index: LogIndex, ops: &[TxnOp]) -> Result<ConsulOutcome, Stop> {
    let mut draft = Draft::new(writer.txn, index);
    let (mut items, mut faults) = (Vec::new(), Vec::new());
    for (place, op) in (0u32..).zip(ops) {
        let TxnOp::Kv(op) = op;
        match kv::run(&mut draft, op)? {
            Ok(entries) => items.extend(entries.into_iter().map(TxnItem::Kv)),
            Err(reason) => faults.push(TxnFault { op: place, reason }),
        }
    }
    let changes = draft.into_changes();
    if !faults.is_empty() {
        return Ok(ConsulOutcome::TxnFailed(faults));
    }
    changes.write(writer)?;
    Ok(ConsulOutcome::Txn(items))
}
