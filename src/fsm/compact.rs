//! Moves the compaction point: to a revision that a client names (spec: etcd §1.7), or by age. The
//! effect is immediate; each member reclaims the space later, at its own pace.

use super::error::FsmError;
use headwater_storage::StorageError;
use headwater_storage::state::{CompactionPoint, StateReader, WriteTxn};
use headwater_types::{Compact, LogIndex, Outcome, Refusal, Revision, TrimHistory};

/// The compaction point of a store that was never compacted, so that compacting to 0 succeeds once.
const NEVER_COMPACTED: Revision = Revision(-1);

pub(super) fn apply(txn: &mut WriteTxn<'_>, compact: &Compact) -> Result<Outcome, FsmError> {
    let head = *txn.head();
    let before = head.compaction.map_or(NEVER_COMPACTED, |point| point.revision);
    if compact.revision <= before {
        return Err(Refusal::Compacted { compact_revision: before }.into());
    }
    if compact.revision > head.revision {
        return Err(Refusal::FutureRevision { current: head.revision }.into());
    }
    let index = txn.index_of(compact.revision)?;
    txn.set_compaction(CompactionPoint { revision: compact.revision, index });
    Ok(Outcome::Compacted)
}

/// Moves the beginning of history to the command at `trim.from`, but never beyond this command, at
/// `at`. A trim that would not move it forward succeeds without effect: its leader did not know of
/// a later trim or compaction.
pub(super) fn trim(txn: &mut WriteTxn<'_>, at: LogIndex, trim: TrimHistory) -> Result<Outcome, FsmError> {
    let from = trim.from.min(at);
    if from <= txn.head().compacted_index() {
        return Ok(Outcome::Compacted);
    }
    // No key changed before the first revision, so a store that was compacted to 0 starts there,
    // too.
    let before = txn.head().compaction.map_or(NEVER_COMPACTED, |point| point.revision).max(Revision::INITIAL);
    let revision = revision_at(txn, before, from)?;
    if revision > before {
        let index = txn.index_of(revision)?;
        txn.set_compaction(CompactionPoint { revision, index });
    }
    txn.set_history_floor(from);
    Ok(Outcome::Compacted)
}

/// The revision that was current right after the command at `index`, but at least `lowest`.
fn revision_at(txn: &WriteTxn<'_>, lowest: Revision, index: LogIndex) -> Result<Revision, StorageError> {
    let (mut known, mut above) = (lowest.get(), txn.head().revision.get() + 1);
    while above - known > 1 {
        let middle = known + (above - known) / 2;
        match txn.index_of(Revision(middle))? <= index {
            true => known = middle,
            false => above = middle,
        }
    }
    Ok(Revision(known))
}
