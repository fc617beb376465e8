//! The number of leases, as far as the quota needs it.
//!
//! Apply compares each single grant with the quota and does not sum leases: that would change the
//! replicated rule. So the member that receives the request for a grant counts the leases, in the
//! state and in the commits since. Invariant: the error of the number is bounded, because the
//! leases are counted again after a certain number of changes.

use parking_lot::Mutex;

use super::Leases;
use crate::{Limit, NodeError, RequestContext};
use headwater_types::limits::LEASE_QUOTA_BYTES;
use headwater_types::{LeaseChange, LogIndex, Refusal};

/// Fewest changes after which the leases are counted again, count.
const RECOUNT_MIN: u64 = 1024;
/// Part of the leases that may change before they are counted again: 1 / this.
const RECOUNT_PART: u64 = 8;

/// The approximate number of leases of the applied state; unknown until they are counted.
#[derive(Debug, Default)]
pub(super) struct LeaseCount {
    counted: Mutex<Option<Counted>>,
    /// Held while the leases are counted.
    counting: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    leases: u64,
    /// Grants and ends of leases since the leases were counted. Other changes do not count.
    changes: u64,
}

impl LeaseCount {
    /// Follows the lease changes of commits; those granted after `before` are new. A lease that one
    /// commit grants and ends is subtracted only.
    pub(super) fn changed(&self, changes: &[LeaseChange], before: LogIndex) {
        let mut counted = self.counted.lock();
        let Some(counted) = &mut *counted else { return };
        for change in changes {
            match change.lease {
                None => counted.leases = counted.leases.saturating_sub(1),
                Some(lease) if lease.granted > before => counted.leases += 1,
                Some(_) => continue,
            }
            counted.changes += 1;
        }
    }

    /// Forgets the number of leases, because the whole state was replaced.
    pub(super) fn forget(&self) {
        *self.counted.lock() = None;
    }

    /// The approximate number of leases. `None` if they must be counted: for the first time, after
    /// the state was replaced, or again after many changes.
    fn known(&self) -> Option<u64> {
        let counted = (*self.counted.lock())?;
        let changes_max = (counted.leases / RECOUNT_PART).max(RECOUNT_MIN);
        (counted.changes <= changes_max).then_some(counted.leases)
    }

    fn set(&self, leases: u64) {
        *self.counted.lock() = Some(Counted { leases, changes: 0 });
    }
}

impl Leases<'_> {
    /// Refuses grants if live data, the leases and the `new` ones together exceed the quota.
    pub(crate) async fn check_quota(self, ctx: &RequestContext, new: u64) -> Result<(), NodeError> {
        let Some(bytes_max) = self.node.maintenance().quota_bytes() else { return Ok(()) };
        let leases = self.count(ctx).await?;
        let live_bytes = self.node.inner.store.current().head().live_bytes;
        if live_bytes.saturating_add((leases + new).saturating_mul(LEASE_QUOTA_BYTES)) <= bytes_max {
            return Ok(());
        }
        self.node.inner.limit_counters.count(Limit::Leases);
        Err(Refusal::NoSpace.into())
    }

    async fn count(self, ctx: &RequestContext) -> Result<u64, NodeError> {
        let count = self.node.inner.leases.keeper.held();
        if let Some(leases) = count.known() {
            return Ok(leases);
        }
        let _counting = tokio::time::timeout_at(ctx.deadline.into(), count.counting.lock())
            .await
            .map_err(|_| NodeError::Timeout)?;
        // Another grant may have counted meanwhile.
        if let Some(leases) = count.known() {
            return Ok(leases);
        }
        let read = self.node.read_by_itself(ctx.deadline, |view| {
            let mut leases = 0;
            view.leases(|_, _| leases += 1)?;
            Ok(Ok(leases))
        });
        let leases = read.await?.value;
        count.set(leases);
        Ok(leases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::{Lease, LeaseId};

    fn change(granted: Option<u64>) -> LeaseChange {
        let lease = granted.map(|index| Lease { granted: LogIndex(index), ttl_seconds: 9, due_ms: None });
        LeaseChange { id: LeaseId(1), lease }
    }

    #[test]
    fn the_number_follows_grants_and_ends_until_it_must_be_counted_anew() {
        let count = LeaseCount::default();
        count.changed(&[change(Some(9))], LogIndex(1));
        assert_eq!(count.known(), None, "never counted");
        count.set(10);
        count.changed(&[change(Some(9)), change(Some(3)), change(None), change(Some(8))], LogIndex(5));
        assert_eq!(count.known(), Some(11), "the second is known and only renewed");
        for _ in 0..RECOUNT_MIN - 3 {
            count.changed(&[change(None)], LogIndex(5));
        }
        assert_eq!(count.known(), Some(0), "at the bound, and never below zero");
        count.changed(&[change(None)], LogIndex(5));
        assert_eq!(count.known(), None);
        count.set(7);
        count.forget();
        assert_eq!(count.known(), None);
    }
}
