//! Attaches a key to a lease (spec: etcd §7.5): a new version of the key with the same value, so
//! that past revisions stay unchanged. Nothing happens if the key is attached to that lease
//! already.

use super::error::FsmError;
use super::put;
use super::writer::KvWriter;
use headwater_storage::state::{NEWEST, StateReader, Table};
use headwater_types::{LeaseAttach, LeaseChoice, Outcome, Put, Refusal, ValueChoice};

pub(super) fn apply(writer: &mut KvWriter<'_, '_>, attach: &LeaseAttach) -> Result<Outcome, FsmError> {
    if writer.client_lease(attach.id)?.is_none() {
        return Err(Refusal::LeaseNotFound.into());
    }
    if !is_attached(writer, attach)? {
        put::apply(writer, &as_put(attach), false)?;
    }
    Ok(Outcome::LeaseAttached)
}

/// Whether the key is attached to that lease at the moment.
pub(super) fn is_attached(writer: &KvWriter<'_, '_>, attach: &LeaseAttach) -> Result<bool, FsmError> {
    let version = writer.txn.lookup(Table::Kv, &attach.key, NEWEST)?;
    Ok(version.is_some_and(|version| version.lease == attach.id))
}

/// The attachment as a put that keeps the value.
pub(super) fn as_put(attach: &LeaseAttach) -> Put {
    Put { key: attach.key.clone(), value: ValueChoice::Keep, lease: LeaseChoice::Set(attach.id), prev_kv: false }
}
