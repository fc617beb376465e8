//! Records for later leaders how much time leases have left.

use super::error::FsmError;
use headwater_storage::state::WriteTxn;
use headwater_types::{Lease, LeaseCheckpoint, Outcome, Refusal, Term};

/// Applies the command of a log entry of `term`.
pub(super) fn apply(txn: &mut WriteTxn<'_>, term: Term, checkpoint: &LeaseCheckpoint) -> Result<Outcome, FsmError> {
    // A later leader may have kept leases alive, so the measurements of an earlier one are void.
    if checkpoint.term != term {
        return Err(Refusal::LeaseStale.into());
    }
    let clock_ms = checkpoint.clock_ms.max(txn.lease_clock()?);
    txn.set_lease_clock(clock_ms);
    for remaining in &checkpoint.leases {
        // A lease that has ended meanwhile, or whose id belongs to a later grant, is skipped.
        if let Some(lease) = txn.lease(remaining.id)?
            && lease.granted == remaining.granted
        {
            let due_ms = remaining.remaining_ms.map(|remaining_ms| clock_ms.saturating_add(remaining_ms));
            txn.set_lease(remaining.id, Some(Lease { due_ms, ..lease }));
        }
    }
    Ok(Outcome::LeaseCheckpointed)
}
