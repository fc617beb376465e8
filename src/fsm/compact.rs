//! Moves the compaction point (spec: etcd §1.7). The effect is immediate; space is given back later, on each member at its
//! own pace.

use super::stop::Stop;
use crate::storage::state::{CompactionPoint, StateReader, WriteTxn};
use crate::types::{Compact, Outcome, Refusal, Revision};

/// The compaction point of a store that was never compacted, so that compacting to 0 succeeds once.
const NEVER: Revision = Revision(-1);

pub(super) fn apply(txn: &mut WriteTxn<'_>, compact: &Compact) -> Result<Outcome, Stop> {
    let head = *txn.head();
    let before = head.compaction.map_or(NEVER, |point| point.revision);
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
