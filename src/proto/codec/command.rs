//! Encoding of proposals: the commands in the log, which every member applies.
//!
//! The bytes of [`encode_proposal`] are sent to the leader and stored in the log unchanged. Keys
//! and values of a decoded proposal are slices of the input, not copies.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use super::CodecError;
use super::kv::{read_query, read_range, required, unknown, write_query, write_range};
use super::{acl, alarm, auth, catalog, commit, consul, invitation, lease, resource, version};
use crate::pb::internal as pb;
#[cfg(feature = "next-version")]
use headwater_types::NodeId;
use headwater_types::limits::TXN_DEPTH_MAX;
use headwater_types::{
    Command, Compact, Compare, CompareOp, CompareTarget, DeleteRange, Face, LeaseChoice, LeaseId, LogIndex, Proposal,
    Put, Revision, StoreEpoch, Supported, TrimHistory, Txn, TxnOp, ValueChoice, Version,
};

/// The versions that this program supports, from the lowest to the highest. Tests can start a node
/// that supports less.
#[cfg(not(feature = "next-version"))]
pub const NEWEST: Supported = Supported::RELEASE;
/// The versions that this program supports, built as the stand-in for the next version.
#[cfg(feature = "next-version")]
pub const NEWEST: Supported = Supported::NEXT;

const WHAT: &str = "the command";

/// The bytes of a proposal: the version that it needs, as one byte, then the message.
///
/// # Errors
///
/// [`CodecError::TooDeep`] if transactions are nested deeper than `limits::TXN_DEPTH_MAX`: no
/// member could decode such a proposal. A [`Command::LeaseTxn`] counts as one more level.
pub fn encode_proposal(proposal: &Proposal) -> Result<Bytes, CodecError> {
    let command = match &proposal.command {
        Command::Bootstrap(epoch) => pb::proposal::Command::Bootstrap(pb::Bootstrap { epoch: epoch.get() }),
        Command::Put(put) => pb::proposal::Command::Put(write_put(put)),
        Command::DeleteRange(delete) => pb::proposal::Command::DeleteRange(write_delete(delete)),
        Command::Txn(txn) => pb::proposal::Command::Txn(write_txn(txn, 1)?),
        Command::Compact(compact) => pb::proposal::Command::Compact(pb::Compact { revision: compact.revision.get() }),
        Command::TrimHistory(trim) => {
            pb::proposal::Command::TrimHistory(pb::TrimHistory { from_index: trim.from.get() })
        }
        Command::LeaseGrant(grant) => pb::proposal::Command::LeaseGrant(lease::write_grant(grant)),
        Command::LeaseRevoke(revoke) => pb::proposal::Command::LeaseRevoke(lease::write_revoke(revoke)),
        Command::LeaseExpire(expire) => pb::proposal::Command::LeaseExpire(lease::write_expire(expire)),
        Command::LeaseCheckpoint(checkpoint) => {
            pb::proposal::Command::LeaseCheckpoint(lease::write_checkpoint(checkpoint))
        }
        Command::LeaseAttach(attach) => pb::proposal::Command::LeaseAttach(lease::write_attach(attach)),
        Command::LeaseTxn(request) => pb::proposal::Command::LeaseTxn(lease::write_lease_txn(request)?),
        Command::SetAlarm(set) => pb::proposal::Command::SetAlarm(alarm::write_alarm(set)),
        Command::SetQuota(quota) => pb::proposal::Command::SetQuota(alarm::write_quota(*quota)),
        Command::Resource(command) => pb::proposal::Command::Resource(resource::write_command(command)),
        Command::Consul(command) => pb::proposal::Command::Consul(consul::write_command(command)),
        Command::Catalog(command) => pb::proposal::Command::Catalog(catalog::write_command(command)),
        Command::SetVersion(change) => pb::proposal::Command::SetVersion(version::write_change(*change)),
        Command::AnnounceProgram(member, program) => {
            pb::proposal::Command::AnnounceProgram(version::write_program(*member, program))
        }
        Command::Invitation(command) => pb::proposal::Command::Invitation(invitation::write_command(command)),
        Command::Auth(command) => pb::proposal::Command::Auth(auth::write_command(command)),
        Command::Acl(command) => pb::proposal::Command::Acl(acl::write_command(command)),
        Command::Commit(request) => pb::proposal::Command::Commit(commit::write_commit(request)),
        #[cfg(feature = "next-version")]
        Command::Note(text) => pb::proposal::Command::Note(text.clone()),
    };
    let message = pb::Proposal {
        unix_ms: proposal.unix_ms,
        // Every command so far changes replicated state, so none is skippable.
        skippable: false,
        command: Some(command),
        proposer: proposal.proposer.as_ref().map(auth::write_proposer),
        face: proposal.face.map_or(0, |face| i32::from(face as u8)),
        #[cfg(feature = "next-version")]
        origin: proposal.origin.map(NodeId::get),
    };
    Ok(encode_message(proposal.needs().byte(), &message))
}

/// The lowest version that understands an encoded proposal; `None` if there are no bytes.
pub fn proposal_needs(bytes: &[u8]) -> Option<Version> {
    bytes.first().copied().map(Version::from_byte)
}

/// Reads a proposal. `None` for an unknown command that is marked as skippable and needs no version
/// above `supported`: apply treats it like an empty log entry.
///
/// # Errors
///
/// [`CodecError`] for anything else that a program with the versions `supported` does not fully
/// understand. A node that meets it in the log must stop, because other members may have applied
/// it.
pub fn decode_proposal(bytes: Bytes, supported: Supported) -> Result<Option<Proposal>, CodecError> {
    let needs = proposal_needs(&bytes).ok_or(CodecError::Empty { what: WHAT })?;
    supported.check(WHAT, needs)?;
    let body = bytes.slice(1..);
    let length = body.len();
    let message =
        pb::Proposal::decode(body).map_err(|error| CodecError::Malformed { what: WHAT, detail: error.to_string() })?;
    // The decoder drops fields that it does not know.
    if message.command.is_some() && message.encoded_len() != length {
        return Err(CodecError::UnknownField { what: WHAT });
    }
    let unix_ms = message.unix_ms;
    let proposer = message.proposer.map(auth::read_proposer).transpose()?;
    let face = read_face(message.face)?;
    #[cfg(feature = "next-version")]
    let origin = message.origin.map(NodeId);
    let command = match message.command {
        Some(pb::proposal::Command::Bootstrap(bootstrap)) => Command::Bootstrap(StoreEpoch(bootstrap.epoch)),
        Some(pb::proposal::Command::Put(put)) => Command::Put(read_put(put)?),
        Some(pb::proposal::Command::DeleteRange(delete)) => Command::DeleteRange(read_delete(delete)?),
        Some(pb::proposal::Command::Txn(txn)) => Command::Txn(read_txn(txn)?),
        Some(pb::proposal::Command::Compact(compact)) => {
            Command::Compact(Compact { revision: Revision(compact.revision) })
        }
        Some(pb::proposal::Command::TrimHistory(trim)) => {
            Command::TrimHistory(TrimHistory { from: LogIndex(trim.from_index) })
        }
        Some(pb::proposal::Command::LeaseGrant(grant)) => Command::LeaseGrant(lease::read_grant(&grant)),
        Some(pb::proposal::Command::LeaseRevoke(revoke)) => Command::LeaseRevoke(lease::read_revoke(&revoke)),
        Some(pb::proposal::Command::LeaseExpire(expire)) => Command::LeaseExpire(lease::read_expire(&expire)),
        Some(pb::proposal::Command::LeaseCheckpoint(checkpoint)) => {
            Command::LeaseCheckpoint(lease::read_checkpoint(&checkpoint))
        }
        Some(pb::proposal::Command::LeaseAttach(attach)) => Command::LeaseAttach(lease::read_attach(attach)),
        Some(pb::proposal::Command::LeaseTxn(request)) => Command::LeaseTxn(lease::read_lease_txn(request)?),
        Some(pb::proposal::Command::SetAlarm(set)) => Command::SetAlarm(alarm::read_alarm(&set)?),
        Some(pb::proposal::Command::SetQuota(quota)) => Command::SetQuota(alarm::read_quota(quota)),
        Some(pb::proposal::Command::Resource(command)) => Command::Resource(resource::read_command(command)?),
        Some(pb::proposal::Command::Consul(command)) => Command::Consul(consul::read_command(command)?),
        Some(pb::proposal::Command::Catalog(command)) => Command::Catalog(catalog::read_command(command)?),
        Some(pb::proposal::Command::SetVersion(change)) => Command::SetVersion(version::read_change(&change)?),
        Some(pb::proposal::Command::AnnounceProgram(program)) => {
            let (member, program) = version::read_program(program)?;
            Command::AnnounceProgram(member, program)
        }
        Some(pb::proposal::Command::Invitation(command)) => Command::Invitation(invitation::read_command(command)?),
        Some(pb::proposal::Command::Auth(command)) => Command::Auth(auth::read_command(command)?),
        Some(pb::proposal::Command::Acl(command)) => Command::Acl(acl::read_command(command)?),
        Some(pb::proposal::Command::Commit(request)) => Command::Commit(Box::new(commit::read_commit(request)?)),
        #[cfg(feature = "next-version")]
        Some(pb::proposal::Command::Note(text)) => Command::Note(text),
        None if message.skippable => return Ok(None),
        None => return Err(CodecError::UnknownCommand),
    };
    Ok(Some(Proposal {
        unix_ms,
        command,
        proposer,
        face,
        #[cfg(feature = "next-version")]
        origin,
    }))
}

fn read_face(number: i32) -> Result<Option<Face>, CodecError> {
    if number == 0 {
        return Ok(None);
    }
    let face = u8::try_from(number).ok().and_then(Face::from_byte);
    face.map(Some).ok_or_else(|| unknown("Proposal.face", number))
}

/// The bytes of a record: a format byte, then the message.
pub(super) fn encode_message(format: u8, message: &impl Message) -> Bytes {
    let mut out = BytesMut::with_capacity(1 + message.encoded_len());
    out.put_u8(format);
    message.encode(&mut out).expect("invariant: the buffer grows");
    out.freeze()
}

/// The error for a record with the format byte `found`, which its decoder does not know.
pub(super) fn unknown_format(what: &'static str, found: u8) -> CodecError {
    let found = Version::from_byte(found);
    match NEWEST.check(what, found) {
        Err(too_new) => too_new.into(),
        Ok(()) => CodecError::UnknownFormat { what, found },
    }
}

/// Reads the message after the format byte, which must be `known`. Fields of type bytes share
/// `bytes`. Unknown fields are ignored.
pub(super) fn decode_message<M: Message + Default>(
    what: &'static str,
    known: u8,
    bytes: Bytes,
) -> Result<M, CodecError> {
    match bytes.first() {
        None => Err(CodecError::Empty { what }),
        Some(&found) if found != known => Err(unknown_format(what, found)),
        Some(_) => {
            M::decode(bytes.slice(1..)).map_err(|error| CodecError::Malformed { what, detail: error.to_string() })
        }
    }
}

pub(super) fn write_put(put: &Put) -> pb::Put {
    pb::Put {
        key: put.key.clone(),
        value: Some(match &put.value {
            ValueChoice::Set(value) => pb::put::Value::Set(value.clone()),
            ValueChoice::Keep => pb::put::Value::Keep(pb::Unit {}),
        }),
        lease: Some(match put.lease {
            LeaseChoice::Set(lease) => pb::put::Lease::LeaseSet(lease.get()),
            LeaseChoice::Keep => pb::put::Lease::LeaseKeep(pb::Unit {}),
            LeaseChoice::KeepIfPresent => pb::put::Lease::LeaseKeepIfPresent(pb::Unit {}),
        }),
        prev_kv: put.prev_kv,
    }
}

pub(super) fn read_put(put: pb::Put) -> Result<Put, CodecError> {
    Ok(Put {
        key: put.key,
        value: match required(put.value, "Put.value")? {
            pb::put::Value::Set(value) => ValueChoice::Set(value),
            pb::put::Value::Keep(pb::Unit {}) => ValueChoice::Keep,
        },
        lease: match required(put.lease, "Put.lease")? {
            pb::put::Lease::LeaseSet(lease) => LeaseChoice::Set(LeaseId(lease)),
            pb::put::Lease::LeaseKeep(pb::Unit {}) => LeaseChoice::Keep,
            pb::put::Lease::LeaseKeepIfPresent(pb::Unit {}) => LeaseChoice::KeepIfPresent,
        },
        prev_kv: put.prev_kv,
    })
}

pub(super) fn write_delete(delete: &DeleteRange) -> pb::DeleteRange {
    pb::DeleteRange { range: Some(write_range(&delete.range)), prev_kv: delete.prev_kv }
}

pub(super) fn read_delete(delete: pb::DeleteRange) -> Result<DeleteRange, CodecError> {
    Ok(DeleteRange { range: read_range(delete.range, "DeleteRange.range")?, prev_kv: delete.prev_kv })
}

/// Encodes a transaction that is nested at `depth`; the outermost one has depth 1.
/// [`CodecError::TooDeep`] for a depth above [`TXN_DEPTH_MAX`], also of a transaction in it.
pub(super) fn write_txn(txn: &Txn, depth: usize) -> Result<pb::Txn, CodecError> {
    if depth > TXN_DEPTH_MAX {
        return Err(CodecError::TooDeep { max: TXN_DEPTH_MAX });
    }
    let ops = |ops: &[TxnOp]| ops.iter().map(|op| write_op(op, depth)).collect::<Result<_, _>>();
    Ok(pb::Txn {
        compares: txn.compares.iter().map(write_compare).collect(),
        success: ops(&txn.success)?,
        failure: ops(&txn.failure)?,
    })
}

fn write_op(op: &TxnOp, depth: usize) -> Result<pb::TxnOp, CodecError> {
    let op = match op {
        TxnOp::Range(query) => pb::txn_op::Op::Range(write_query(query)),
        TxnOp::Put(put) => pb::txn_op::Op::Put(write_put(put)),
        TxnOp::DeleteRange(delete) => pb::txn_op::Op::DeleteRange(write_delete(delete)),
        TxnOp::Txn(txn) => pb::txn_op::Op::Txn(write_txn(txn, depth + 1)?),
    };
    Ok(pb::TxnOp { op: Some(op) })
}

// Reading needs no check of the depth: the protobuf decoder has refused messages that are nested
// deeper than its own limit.
pub(super) fn read_txn(txn: pb::Txn) -> Result<Txn, CodecError> {
    let ops = |ops: Vec<pb::TxnOp>| ops.into_iter().map(read_op).collect::<Result<_, _>>();
    Ok(Txn {
        compares: txn.compares.into_iter().map(read_compare).collect::<Result<_, _>>()?,
        success: ops(txn.success)?,
        failure: ops(txn.failure)?,
    })
}

fn read_op(op: pb::TxnOp) -> Result<TxnOp, CodecError> {
    Ok(match required(op.op, "TxnOp.op")? {
        pb::txn_op::Op::Range(query) => TxnOp::Range(read_query(query)?),
        pb::txn_op::Op::Put(put) => TxnOp::Put(read_put(put)?),
        pb::txn_op::Op::DeleteRange(delete) => TxnOp::DeleteRange(read_delete(delete)?),
        pb::txn_op::Op::Txn(txn) => TxnOp::Txn(read_txn(txn)?),
    })
}

pub(super) fn write_compare(compare: &Compare) -> pb::Compare {
    pb::Compare {
        range: Some(write_range(&compare.range)),
        op: match compare.op {
            CompareOp::Equal => pb::CompareOp::Equal,
            CompareOp::Greater => pb::CompareOp::Greater,
            CompareOp::Less => pb::CompareOp::Less,
            CompareOp::NotEqual => pb::CompareOp::NotEqual,
        }
        .into(),
        target: Some(match &compare.target {
            CompareTarget::Version(version) => pb::compare::Target::Version(*version),
            CompareTarget::CreateRevision(revision) => pb::compare::Target::CreateRevision(*revision),
            CompareTarget::ModRevision(revision) => pb::compare::Target::ModRevision(*revision),
            CompareTarget::Value(value) => pb::compare::Target::Value(value.clone()),
            CompareTarget::Lease(lease) => pb::compare::Target::Lease(*lease),
        }),
    }
}

pub(super) fn read_compare(compare: pb::Compare) -> Result<Compare, CodecError> {
    let op = match pb::CompareOp::try_from(compare.op) {
        Ok(pb::CompareOp::Equal) => CompareOp::Equal,
        Ok(pb::CompareOp::Greater) => CompareOp::Greater,
        Ok(pb::CompareOp::Less) => CompareOp::Less,
        Ok(pb::CompareOp::NotEqual) => CompareOp::NotEqual,
        Ok(pb::CompareOp::Unspecified) | Err(_) => return Err(unknown("Compare.op", compare.op)),
    };
    let target = match required(compare.target, "Compare.target")? {
        pb::compare::Target::Version(version) => CompareTarget::Version(version),
        pb::compare::Target::CreateRevision(revision) => CompareTarget::CreateRevision(revision),
        pb::compare::Target::ModRevision(revision) => CompareTarget::ModRevision(revision),
        pb::compare::Target::Value(value) => CompareTarget::Value(value),
        pb::compare::Target::Lease(lease) => CompareTarget::Lease(lease),
    };
    Ok(Compare { range: read_range(compare.range, "Compare.range")?, op, target })
}
