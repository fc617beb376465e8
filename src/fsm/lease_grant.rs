//! Grants a lease (spec: etcd §3.1). The KV revision does not move.

use super::error::FsmError;
use headwater_storage::state::WriteTxn;
use headwater_types::limits::LEASE_TTL_SECONDS_MAX;
use headwater_types::{ClusterEvent, Lease, LeaseGrant, LogIndex, Outcome, Refusal};

pub(super) fn apply(txn: &mut WriteTxn<'_>, index: LogIndex, grant: &LeaseGrant) -> Result<Outcome, FsmError> {
    // The minimum time to live depends on the timeouts of consensus, which members may configure
    // differently, so the proposing node enforces it. The maximum is the same everywhere, and every
    // member enforces it.
    let ttl_seconds = grant.ttl_seconds.max(1);
    if ttl_seconds > LEASE_TTL_SECONDS_MAX {
        return Err(Refusal::LeaseTtlTooLarge.into());
    }
    if !grant.id.is_some() {
        return Err(Refusal::LeaseNotFound.into());
    }
    if grant.id.is_deadline() || txn.lease(grant.id)?.is_some() {
        return Err(Refusal::LeaseExists.into());
    }
    txn.set_lease(grant.id, Some(Lease { granted: index, ttl_seconds, due_ms: None }));
    txn.add_cluster_event(ClusterEvent::LeaseGranted { id: grant.id, ttl_seconds });
    Ok(Outcome::LeaseGranted { ttl_seconds })
}
