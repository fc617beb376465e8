//! Encoding of outcomes: the leader's answers to the member that forwarded a command.

use bytes::Bytes;

use super::CodecError;
use super::command::{decode_message, encode_message};
use super::kv::{read_kv, read_result, required, write_kv, write_result};
use super::{acl, auth, catalog, commit, consul, invitation, resource, version};
use crate::pb::internal as pb;
use headwater_types::{Applied, Deleted, LogIndex, Outcome, PutDone, RangeDone, Refusal, Revision, TxnDone, TxnOpDone};

/// The only format of outcomes so far.
const FORMAT: u8 = 1;
const WHAT: &str = "outcome";

/// The bytes of an outcome with its log index and revision.
pub fn encode_applied(applied: &Applied) -> Bytes {
    let outcome = match &applied.outcome {
        Outcome::Nothing => pb::applied::Outcome::Nothing(pb::Unit {}),
        Outcome::Bootstrapped => pb::applied::Outcome::Bootstrapped(pb::Unit {}),
        Outcome::Put(put) => pb::applied::Outcome::Put(write_put_done(put)),
        Outcome::DeleteRange(deleted) => pb::applied::Outcome::DeleteRange(write_deleted(deleted)),
        Outcome::Txn(txn) => pb::applied::Outcome::Txn(write_txn(txn)),
        Outcome::Compacted => pb::applied::Outcome::Compacted(pb::Unit {}),
        Outcome::LeaseGranted { ttl_seconds } => {
            pb::applied::Outcome::LeaseGranted(pb::LeaseGranted { ttl_seconds: *ttl_seconds })
        }
        Outcome::LeaseEnded { deleted } => pb::applied::Outcome::LeaseEnded(pb::LeaseEnded { deleted: *deleted }),
        Outcome::LeaseCheckpointed => pb::applied::Outcome::LeaseCheckpointed(pb::Unit {}),
        Outcome::LeaseAttached => pb::applied::Outcome::LeaseAttached(pb::Unit {}),
        Outcome::AlarmSet { was_active } => pb::applied::Outcome::AlarmSet(pb::AlarmSet { was_active: *was_active }),
        Outcome::QuotaSet => pb::applied::Outcome::QuotaSet(pb::Unit {}),
        Outcome::Resource(outcome) => pb::applied::Outcome::Resource(resource::write_outcome(outcome)),
        Outcome::Consul(outcome) => pb::applied::Outcome::Consul(consul::write_outcome(outcome)),
        Outcome::Catalog(done) => pb::applied::Outcome::Catalog(catalog::write_done(*done)),
        Outcome::VersionSet => pb::applied::Outcome::VersionSet(pb::Unit {}),
        Outcome::ProgramAnnounced => pb::applied::Outcome::ProgramAnnounced(pb::Unit {}),
        Outcome::Invitation(done) => pb::applied::Outcome::Invitation(invitation::write_done(*done)),
        Outcome::Acl(done) => pb::applied::Outcome::Acl(acl::write_done(*done)),
        Outcome::Commit(outcome) => pb::applied::Outcome::Commit(commit::write_outcome(outcome)),
        Outcome::AuthChanged { auth_revision } => pb::applied::Outcome::AuthChanged(*auth_revision),
        #[cfg(feature = "next-version")]
        Outcome::Noted => pb::applied::Outcome::Noted(pb::Unit {}),
        Outcome::Refused(refusal) => pb::applied::Outcome::Refused(write_refusal(*refusal)),
    };
    let message = pb::Applied { index: applied.index.get(), revision: applied.revision.get(), outcome: Some(outcome) };
    encode_message(FORMAT, &message)
}

/// Reads an outcome with its log index and revision. Keys and values are slices of `bytes`.
///
/// # Errors
///
/// [`CodecError`] for another format byte, and for a malformed or unknown outcome. The command has
/// been applied all the same: the client must learn that the write is indeterminate.
pub fn decode_applied(bytes: Bytes) -> Result<Applied, CodecError> {
    let message: pb::Applied = decode_message(WHAT, FORMAT, bytes)?;
    let outcome = match message.outcome.ok_or(CodecError::UnknownOutcome)? {
        pb::applied::Outcome::Nothing(pb::Unit {}) => Outcome::Nothing,
        pb::applied::Outcome::Bootstrapped(pb::Unit {}) => Outcome::Bootstrapped,
        pb::applied::Outcome::Put(put) => Outcome::Put(read_put_done(put)),
        pb::applied::Outcome::DeleteRange(deleted) => Outcome::DeleteRange(read_deleted(deleted)),
        pb::applied::Outcome::Txn(txn) => Outcome::Txn(read_txn(txn)?),
        pb::applied::Outcome::Compacted(pb::Unit {}) => Outcome::Compacted,
        pb::applied::Outcome::LeaseGranted(pb::LeaseGranted { ttl_seconds }) => Outcome::LeaseGranted { ttl_seconds },
        pb::applied::Outcome::LeaseEnded(pb::LeaseEnded { deleted }) => Outcome::LeaseEnded { deleted },
        pb::applied::Outcome::LeaseCheckpointed(pb::Unit {}) => Outcome::LeaseCheckpointed,
        pb::applied::Outcome::LeaseAttached(pb::Unit {}) => Outcome::LeaseAttached,
        pb::applied::Outcome::AlarmSet(pb::AlarmSet { was_active }) => Outcome::AlarmSet { was_active },
        pb::applied::Outcome::QuotaSet(pb::Unit {}) => Outcome::QuotaSet,
        pb::applied::Outcome::Resource(outcome) => Outcome::Resource(resource::read_outcome(outcome)?),
        pb::applied::Outcome::Consul(outcome) => Outcome::Consul(consul::read_outcome(outcome)?),
        pb::applied::Outcome::Catalog(done) => Outcome::Catalog(catalog::read_done(&done)),
        pb::applied::Outcome::VersionSet(pb::Unit {}) => Outcome::VersionSet,
        pb::applied::Outcome::ProgramAnnounced(pb::Unit {}) => Outcome::ProgramAnnounced,
        pb::applied::Outcome::Invitation(done) => Outcome::Invitation(invitation::read_done(&done)),
        pb::applied::Outcome::Acl(done) => Outcome::Acl(acl::read_done(&done)),
        pb::applied::Outcome::Commit(outcome) => Outcome::Commit(commit::read_outcome(outcome)?),
        pb::applied::Outcome::AuthChanged(auth_revision) => Outcome::AuthChanged { auth_revision },
        #[cfg(feature = "next-version")]
        pb::applied::Outcome::Noted(pb::Unit {}) => Outcome::Noted,
        pb::applied::Outcome::Refused(refusal) => Outcome::Refused(read_refusal(&refusal)?),
    };
    Ok(Applied { index: LogIndex(message.index), revision: Revision(message.revision), outcome })
}

pub(super) fn write_put_done(put: &PutDone) -> pb::PutDone {
    pb::PutDone { revision: put.revision.get(), prev: put.prev.as_ref().map(write_kv) }
}

pub(super) fn read_put_done(put: pb::PutDone) -> PutDone {
    PutDone { revision: Revision(put.revision), prev: put.prev.map(read_kv) }
}

pub(super) fn write_deleted(deleted: &Deleted) -> pb::Deleted {
    pb::Deleted {
        revision: deleted.revision.get(),
        deleted: deleted.deleted,
        prev: deleted.prev.iter().map(write_kv).collect(),
    }
}

pub(super) fn read_deleted(deleted: pb::Deleted) -> Deleted {
    Deleted {
        revision: Revision(deleted.revision),
        deleted: deleted.deleted,
        prev: deleted.prev.into_iter().map(read_kv).collect(),
    }
}

fn write_txn(txn: &TxnDone) -> pb::TxnDone {
    let write = |done: &TxnOpDone| {
        let op = match done {
            TxnOpDone::Range(ranged) => pb::txn_op_done::Op::Range(pb::Ranged {
                revision: ranged.revision.get(),
                result: Some(write_result(&ranged.result)),
            }),
            TxnOpDone::Put(put) => pb::txn_op_done::Op::Put(write_put_done(put)),
            TxnOpDone::DeleteRange(deleted) => pb::txn_op_done::Op::DeleteRange(write_deleted(deleted)),
            TxnOpDone::Txn(txn) => pb::txn_op_done::Op::Txn(write_txn(txn)),
        };
        pb::TxnOpDone { op: Some(op) }
    };
    pb::TxnDone { succeeded: txn.succeeded, responses: txn.responses.iter().map(write).collect() }
}

fn read_txn(txn: pb::TxnDone) -> Result<TxnDone, CodecError> {
    let read = |done: pb::TxnOpDone| {
        Ok(match required(done.op, "TxnOpDone.op")? {
            pb::txn_op_done::Op::Range(ranged) => TxnOpDone::Range(RangeDone {
                revision: Revision(ranged.revision),
                result: read_result(required(ranged.result, "Ranged.result")?),
            }),
            pb::txn_op_done::Op::Put(put) => TxnOpDone::Put(read_put_done(put)),
            pb::txn_op_done::Op::DeleteRange(deleted) => TxnOpDone::DeleteRange(read_deleted(deleted)),
            pb::txn_op_done::Op::Txn(txn) => TxnOpDone::Txn(read_txn(txn)?),
        })
    };
    Ok(TxnDone {
        succeeded: txn.succeeded,
        responses: txn.responses.into_iter().map(read).collect::<Result<_, CodecError>>()?,
    })
}

pub(super) fn write_refusal(refusal: Refusal) -> pb::Refusal {
    let reason = match refusal {
        Refusal::Compacted { compact_revision } => pb::refusal::Reason::Compacted(compact_revision.get()),
        Refusal::FutureRevision { current } => pb::refusal::Reason::FutureRevision(current.get()),
        Refusal::KeyNotFound => pb::refusal::Reason::KeyNotFound(pb::Unit {}),
        Refusal::LeaseNotFound => pb::refusal::Reason::LeaseNotFound(pb::Unit {}),
        Refusal::DuplicateKey => pb::refusal::Reason::DuplicateKey(pb::Unit {}),
        Refusal::TooMuchRead => pb::refusal::Reason::TooMuchRead(pb::Unit {}),
        Refusal::LeaseExists => pb::refusal::Reason::LeaseExists(pb::Unit {}),
        Refusal::LeaseTtlTooLarge => pb::refusal::Reason::LeaseTtlTooLarge(pb::Unit {}),
        Refusal::LeaseStale => pb::refusal::Reason::LeaseStale(pb::Unit {}),
        Refusal::NoSpace => pb::refusal::Reason::NoSpace(pb::Unit {}),
        Refusal::Corrupt => pb::refusal::Reason::Corrupt(pb::Unit {}),
        Refusal::Resource(refusal) => pb::refusal::Reason::Resource(refusal as i32),
        Refusal::Session(refusal) => pb::refusal::Reason::Session(consul::write_refusal(refusal)),
        Refusal::Catalog(refusal) => pb::refusal::Reason::Catalog(refusal as i32),
        Refusal::NeedsVersion { needs } => pb::refusal::Reason::NeedsVersion(needs.byte().into()),
        Refusal::Version(refusal) => pb::refusal::Reason::Version(refusal as i32),
        Refusal::Invitation(refusal) => pb::refusal::Reason::Invitation(refusal as i32),
        Refusal::Acl(refusal) => pb::refusal::Reason::Acl(refusal as i32),
        Refusal::Auth(refusal) => pb::refusal::Reason::Auth(refusal as i32),
    };
    pb::Refusal { reason: Some(reason) }
}

pub(super) fn read_refusal(refusal: &pb::Refusal) -> Result<Refusal, CodecError> {
    Ok(match refusal.reason.as_ref().ok_or(CodecError::UnknownOutcome)? {
        pb::refusal::Reason::Compacted(revision) => Refusal::Compacted { compact_revision: Revision(*revision) },
        pb::refusal::Reason::FutureRevision(revision) => Refusal::FutureRevision { current: Revision(*revision) },
        pb::refusal::Reason::KeyNotFound(pb::Unit {}) => Refusal::KeyNotFound,
        pb::refusal::Reason::LeaseNotFound(pb::Unit {}) => Refusal::LeaseNotFound,
        pb::refusal::Reason::DuplicateKey(pb::Unit {}) => Refusal::DuplicateKey,
        pb::refusal::Reason::TooMuchRead(pb::Unit {}) => Refusal::TooMuchRead,
        pb::refusal::Reason::LeaseExists(pb::Unit {}) => Refusal::LeaseExists,
        pb::refusal::Reason::LeaseTtlTooLarge(pb::Unit {}) => Refusal::LeaseTtlTooLarge,
        pb::refusal::Reason::LeaseStale(pb::Unit {}) => Refusal::LeaseStale,
        pb::refusal::Reason::NoSpace(pb::Unit {}) => Refusal::NoSpace,
        pb::refusal::Reason::Corrupt(pb::Unit {}) => Refusal::Corrupt,
        pb::refusal::Reason::Resource(number) => Refusal::Resource(resource::read_refusal(*number)?),
        pb::refusal::Reason::Session(number) => Refusal::Session(consul::read_refusal(*number)?),
        pb::refusal::Reason::Catalog(number) => Refusal::Catalog(catalog::read_refusal(*number)?),
        pb::refusal::Reason::NeedsVersion(needs) => {
            Refusal::NeedsVersion { needs: version::read_version(*needs, "Refusal.needs_version")? }
        }
        pb::refusal::Reason::Version(number) => Refusal::Version(version::read_refusal(*number)?),
        pb::refusal::Reason::Invitation(number) => Refusal::Invitation(invitation::read_refusal(*number)?),
        pb::refusal::Reason::Acl(number) => Refusal::Acl(acl::read_refusal(*number)?),
        pb::refusal::Reason::Auth(number) => Refusal::Auth(auth::read_refusal(*number)?),
    })
}
