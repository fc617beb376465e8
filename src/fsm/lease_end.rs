//! Ends a lease with all keys attached to it, in one revision and in key order (spec: etcd §3.1,
//! §3.2): at a client's request, or because it has expired. In both cases its keys expire (§7.6),
//! which clients of the early draft see as EXPIRE events. A deadline of the store has no keys: its
//! end is passed to [`consul::due`].

use super::consul;
use super::error::FsmError;
use super::writer::KvWriter;
use headwater_storage::state::{NEWEST, StateReader, Table};
use headwater_types::{ChangeKind, ClusterEvent, LeaseExpire, LeaseId, LeaseRevoke, LogIndex, Outcome, Refusal, Term};

pub(super) fn revoke(writer: &mut KvWriter<'_, '_>, revoke: &LeaseRevoke) -> Result<Outcome, FsmError> {
    if writer.client_lease(revoke.id)?.is_none() {
        return Err(Refusal::LeaseNotFound.into());
    }
    end(writer, revoke.id)
}

/// Ends an expired lease, by the command of the log entry `at` (term and index).
pub(super) fn expire(
    writer: &mut KvWriter<'_, '_>,
    at: (Term, LogIndex),
    expire: &LeaseExpire,
) -> Result<Outcome, FsmError> {
    let (term, index) = at;
    let Some(lease) = writer.txn.lease(expire.id)? else {
        return Err(Refusal::LeaseNotFound.into());
    };
    // In another term another leader may have kept the lease alive without a log entry. With
    // another grant, the id belongs to a later lease.
    if expire.term != term || expire.granted != lease.granted {
        return Err(Refusal::LeaseStale.into());
    }
    if expire.id.is_deadline() {
        let deleted = consul::due(writer, index, expire.id)?;
        return Ok(Outcome::LeaseEnded { deleted });
    }
    end(writer, expire.id)
}

fn end(writer: &mut KvWriter<'_, '_>, id: LeaseId) -> Result<Outcome, FsmError> {
    let mut deleted = 0;
    #[cfg_attr(not(feature = "next-version"), allow(unused_mut, reason = "the next version changes the order"))]
    let mut keys = writer.txn.lease_keys(id)?;
    #[cfg(feature = "next-version")]
    if headwater_types::Feature::LastKeyFirst.is_in(writer.txn.head().version.version) {
        keys.reverse();
    }
    for key in keys {
        let version = writer.txn.lookup(Table::Kv, &key, NEWEST)?;
        let version = version.expect("invariant: a key that is deleted is detached with it");
        writer.delete(key, ChangeKind::Expire, &version)?;
        deleted += 1;
    }
    writer.txn.count(|done| done.deletes += deleted);
    writer.txn.set_lease(id, None);
    writer.txn.add_cluster_event(ClusterEvent::LeaseEnded(id));
    Ok(Outcome::LeaseEnded { deleted })
}
