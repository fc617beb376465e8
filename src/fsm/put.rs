//! Writes one key (spec: etcd §1.4; §7.5 for the early API's put, which keeps the lease).

use super::error::FsmError;
use super::writer::KvWriter;
use headwater_storage::state::{NEWEST, StateReader, Table};
use headwater_types::{LeaseChoice, LeaseId, Put, PutDone, Refusal, ValueChoice};

/// Applies a put that is not an operation of a transaction: checks its lease, then writes.
pub(super) fn apply(writer: &mut KvWriter<'_, '_>, put: &Put, want: bool) -> Result<PutDone, FsmError> {
    check_lease(writer, put)?;
    run(writer, put, want)
}

/// Refuses a put with a lease that does not exist, or that is a deadline of the store.
pub(super) fn check_lease(writer: &KvWriter<'_, '_>, put: &Put) -> Result<(), FsmError> {
    match put.lease {
        LeaseChoice::Set(lease) if lease.is_some() && writer.client_lease(lease)?.is_none() => {
            Err(Refusal::LeaseNotFound.into())
        }
        LeaseChoice::Set(_) | LeaseChoice::Keep | LeaseChoice::KeepIfPresent => Ok(()),
    }
}

/// Refuses to keep the value or the lease of an absent key.
pub(super) fn check_present(writer: &KvWriter<'_, '_>, put: &Put) -> Result<(), FsmError> {
    if needs_present(put) && writer.txn.lookup(Table::Kv, &put.key, NEWEST)?.is_none() {
        return Err(Refusal::KeyNotFound.into());
    }
    Ok(())
}

fn needs_present(put: &Put) -> bool {
    put.value == ValueChoice::Keep || put.lease == LeaseChoice::Keep
}

/// Writes the key. [`check_lease`] must have accepted the lease. Refuses to keep the value or the
/// lease of an absent key, as [`check_present`] does.
pub(super) fn run(writer: &mut KvWriter<'_, '_>, put: &Put, want: bool) -> Result<PutDone, FsmError> {
    let previous = writer.txn.lookup(Table::Kv, &put.key, NEWEST)?;
    if previous.is_none() && needs_present(put) {
        return Err(Refusal::KeyNotFound.into());
    }
    let wants_prev = put.prev_kv && want;
    let prev = match &previous {
        Some(version) if wants_prev || put.value == ValueChoice::Keep => Some(writer.txn.load_one(version)?.kv),
        _ => None,
    };
    let value = match (&put.value, &prev) {
        (ValueChoice::Set(value), _) => value.clone(),
        (ValueChoice::Keep, prev) => prev.as_ref().expect("invariant: loaded, for it is kept").value.clone(),
    };
    let lease = match put.lease {
        LeaseChoice::Set(lease) => lease,
        LeaseChoice::Keep | LeaseChoice::KeepIfPresent => previous.map_or(LeaseId::NONE, |version| version.lease),
    };
    writer.put(put.key.clone(), value, lease, previous.as_ref())?;
    Ok(PutDone { revision: writer.revision(), prev: if wants_prev { prev } else { None } })
}
