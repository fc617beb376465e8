//! Positions in the history of the store, and the one rule for resuming after a position.
//!
//! Owns the rule, and [`WatchStart`]. Streams of the catalog, and watches of resources and of
//! entities use the rule; each of them decides which error or which new state follows from a
//! refused position. Other users of positions, such as page tokens, only compare the lineage.
//! Watches of keys begin at a revision, which means the same in every lineage (`key_watch`).
//!
//! Invariant: if the verdict is [`Resume::Continue`], history has every change after the position.

use crate::history::lineages_differ;
use crate::{Consistency, Node, NodeError, RequestContext};
use headwater_storage::state::StateHead;
use headwater_types::{LogIndex, StoreEpoch};

/// A point in the history of the store: every change up to `index` is known to its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The last log index that the holder knows.
    pub index: LogIndex,
    /// The lineage to which the index belongs. `None` if the holder does not know it, or if the
    /// lineage had no name yet.
    pub epoch: Option<StoreEpoch>,
}

/// The point at which a watch begins. A watch of an entity may merge changes that its reader has
/// not read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// The present state, then the changes after it.
    State {
        /// A position that the state must have reached, if it is of this lineage.
        since: Option<Position>,
    },
    /// The changes from now on.
    Now,
    /// The changes after a position.
    After(Position),
}

impl WatchStart {
    /// The present state, at any index that this member has.
    pub const STATE: Self = Self::State { since: None };

    /// The position that the client has, if any.
    pub(crate) fn position(self) -> Option<Position> {
        match self {
            Self::State { since } => since,
            Self::Now => None,
            Self::After(position) => Some(position),
        }
    }
}

/// The verdict on a position from which a watch is to resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// History has every change after the position.
    Continue,
    /// The position names another lineage. Or it names none, and the index after its own is from
    /// before this lineage.
    OtherLineage,
    /// The index is newer than this member's state.
    Ahead,
    /// Changes after the position were compacted.
    Compacted,
}

impl Position {
    /// Whether the position is of another lineage than the store's. True also for a position
    /// without an epoch if even the index after the position's is from before the store's lineage.
    /// A lineage without a name counts as the same as any named one.
    pub(crate) fn is_of_another_lineage(self, head: &StateHead) -> bool {
        let is_older = self.epoch.is_none() && self.index.get().saturating_add(1) < head.epoch_since.get();
        is_older || lineages_differ(self.epoch, head.epoch)
    }

    /// The verdict on this position. `floor` is the first index of the topic's history, `reached`
    /// the last index that the watch can begin after.
    pub(crate) fn resume(self, head: &StateHead, floor: LogIndex, reached: LogIndex) -> Resume {
        if self.is_of_another_lineage(head) {
            Resume::OtherLineage
        } else if self.index > reached {
            Resume::Ahead
        } else if self.index.next() < floor {
            Resume::Compacted
        } else {
            Resume::Continue
        }
    }
}

impl Node {
    /// The lineage of the store; `None` before it is known. An index means nothing in another one.
    pub fn epoch(&self) -> Option<StoreEpoch> {
        self.inner.store.current().head().epoch
    }

    /// Whether a position is of another lineage than that of the store. Waits until the store knows
    /// its own, if the position names one.
    ///
    /// # Errors
    ///
    /// Those of a serializable read.
    pub(super) async fn is_of_another_lineage(
        &self,
        ctx: &RequestContext,
        position: Position,
    ) -> Result<bool, NodeError> {
        if position.epoch.is_some() {
            self.ready_to_read(&RequestContext { min_index: None, ..ctx.clone() }, Consistency::Serializable).await?;
            self.lineage_known(ctx).await?;
        }
        Ok(position.is_of_another_lineage(&self.inner.store.current().head()))
    }

    /// Waits until the lineage is known. Without it a client could not safely resume at another
    /// member: a lagging member would take the index for one of another lineage.
    pub(crate) async fn lineage_known(&self, ctx: &RequestContext) -> Result<(), NodeError> {
        let mut applied = self.inner.consensus.progress().applied();
        let known = applied.wait_for(|_| self.epoch().is_some());
        match tokio::time::timeout_at(ctx.deadline.into(), known).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(NodeError::Stopped),
            // A leader names the lineage before all else, so there was none.
            Err(_) => Err(NodeError::NoLeader),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_storage::state::CompactionPoint;
    use headwater_types::{Revision, Term};

    const OWN: Option<StoreEpoch> = Some(StoreEpoch(7));
    const OTHER: Option<StoreEpoch> = Some(StoreEpoch(8));

    /// A lineage that began at 50; compacted through 60, then the history of all but keys through
    /// 70; applied through 100.
    const HEAD: StateHead = StateHead {
        applied: Some((Term(2), LogIndex(100))),
        compaction: Some(CompactionPoint { revision: Revision(3), index: LogIndex(60) }),
        history_floor: LogIndex(70),
        epoch: OWN,
        epoch_since: LogIndex(50),
        ..StateHead::EMPTY
    };

    #[test]
    fn a_position_continues_only_in_its_lineage_and_in_history() {
        use Resume::{Ahead, Compacted, Continue, OtherLineage};
        let topics = [("keys", HEAD.key_floor()), ("catalog, resources, leases, members", HEAD.compacted_index())];
        // (index, lineage, verdict for keys, verdict for the others)
        for (index, epoch, keys, others) in [
            (100, OWN, Continue, Continue),
            (100, None, Continue, Continue),
            (100, OTHER, OtherLineage, OtherLineage),
            (101, OWN, Ahead, Ahead),
            (101, None, Ahead, Ahead),
            (101, OTHER, OtherLineage, OtherLineage),
            (u64::MAX, OWN, Ahead, Ahead),
            (u64::MAX, None, Ahead, Ahead),
            // The first change after 69 is that of 70, with which history begins.
            (69, OWN, Continue, Continue),
            (68, OWN, Continue, Compacted),
            (59, None, Continue, Compacted),
            (58, OWN, Compacted, Compacted),
            (58, None, Compacted, Compacted),
            (49, None, Compacted, Compacted),
            // An older index than the lineage belongs to it only if the client says so.
            (48, None, OtherLineage, OtherLineage),
            (48, OWN, Compacted, Compacted),
            (0, None, OtherLineage, OtherLineage),
            (0, OWN, Compacted, Compacted),
        ] {
            let position = Position { index: LogIndex(index), epoch };
            for ((topic, floor), wanted) in topics.iter().zip([keys, others]) {
                let verdict = position.resume(&HEAD, *floor, HEAD.applied_index());
                assert_eq!(verdict, wanted, "{topic}: {position:?}");
            }
        }
    }

    #[test]
    fn a_lineage_without_a_name_takes_every_position_but_older_ones() {
        let head = StateHead { epoch: None, ..HEAD };
        for (index, epoch, is_foreign) in [(100, OTHER, false), (50, None, false), (48, None, true), (48, OTHER, false)]
        {
            let position = Position { index: LogIndex(index), epoch };
            assert_eq!(position.is_of_another_lineage(&head), is_foreign, "{position:?}");
        }
    }

    #[test]
    fn a_store_that_was_never_compacted_has_everything() {
        let head = StateHead { compaction: None, history_floor: LogIndex::ZERO, epoch_since: LogIndex::ZERO, ..HEAD };
        let position = Position { index: LogIndex::ZERO, epoch: None };
        assert_eq!(position.resume(&head, head.compacted_index(), head.applied_index()), Resume::Continue);
    }
}
