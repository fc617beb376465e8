//! A transaction that also attaches keys to leases (spec: etcd §7.5), all in one revision.
//!
//! The attachment of a key that the transaction puts becomes part of that put, for a key changes
//! once in a revision. The attachment of any other key is a put that keeps its value. So the whole
//! is one plain transaction, and obeys all its rules: in particular, it cannot attach a key that it
//! deletes.

use super::error::FsmError;
use super::lease_attach::{as_put, is_attached};
use super::txn;
use super::writer::KvWriter;
use headwater_types::{LeaseAttach, LeaseChoice, LeaseTxn, Refusal, Txn, TxnDone, TxnOp};

pub(super) fn apply(writer: &mut KvWriter<'_, '_>, request: &LeaseTxn, want: bool) -> Result<TxnDone, FsmError> {
    txn::check_legal(&request.txn)?;
    let (succeeded, mut ops) = txn::chosen(writer, &request.txn)?;
    let answered = ops.len();
    for attach in if succeeded { &request.success } else { &request.failure } {
        if writer.client_lease(attach.id)?.is_none() {
            return Err(Refusal::LeaseNotFound.into());
        }
        if !fold(&mut ops, attach) && !is_attached_for_good(writer, &ops, attach)? {
            ops.push(TxnOp::Put(as_put(attach)));
        }
    }
    let plain = Txn { compares: Vec::new(), success: ops, failure: Vec::new() };
    let mut done = txn::apply(writer, &plain, want)?;
    done.succeeded = succeeded;
    // The attachments have no responses of their own.
    done.responses.truncate(answered);
    Ok(done)
}

/// Makes the attachment part of the put of that key. False if `ops` has no such put.
fn fold(ops: &mut [TxnOp], attach: &LeaseAttach) -> bool {
    for op in ops {
        if let TxnOp::Put(put) = op
            && put.key == attach.key
        {
            put.lease = LeaseChoice::Set(attach.id);
            return true;
        }
    }
    false
}

/// Whether the key is attached to that lease already, and no operation deletes it.
fn is_attached_for_good(writer: &KvWriter<'_, '_>, ops: &[TxnOp], attach: &LeaseAttach) -> Result<bool, FsmError> {
    let deletes = |op: &TxnOp| matches!(op, TxnOp::DeleteRange(delete) if delete.range.contains(&attach.key));
    Ok(!ops.iter().any(deletes) && is_attached(writer, attach)?)
}
