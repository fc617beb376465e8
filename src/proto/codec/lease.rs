//! Encoding of commands about leases, and of members' questions about leases with the leader's
//! answers.

use bytes::Bytes;

use super::CodecError;
use super::command::{decode_message, encode_message, read_txn, write_txn};
use super::kv::required;
use crate::pb::internal as pb;
use headwater_types::{
    LeaseAnswer, LeaseAttach, LeaseCheckpoint, LeaseExpire, LeaseGrant, LeaseId, LeaseQuestion, LeaseRemaining,
    LeaseRevoke, LeaseTxn, LogIndex, Term,
};

/// The only format of questions and answers so far.
const FORMAT: u8 = 1;

pub(super) fn write_grant(grant: &LeaseGrant) -> pb::LeaseGrant {
    pb::LeaseGrant { id: grant.id.get(), ttl_seconds: grant.ttl_seconds }
}

pub(super) fn read_grant(grant: &pb::LeaseGrant) -> LeaseGrant {
    LeaseGrant { id: LeaseId(grant.id), ttl_seconds: grant.ttl_seconds }
}

pub(super) fn write_revoke(revoke: &LeaseRevoke) -> pb::LeaseRevoke {
    pb::LeaseRevoke { id: revoke.id.get() }
}

pub(super) fn read_revoke(revoke: &pb::LeaseRevoke) -> LeaseRevoke {
    LeaseRevoke { id: LeaseId(revoke.id) }
}

pub(super) fn write_expire(expire: &LeaseExpire) -> pb::LeaseExpire {
    pb::LeaseExpire { id: expire.id.get(), granted: expire.granted.get(), term: expire.term.get() }
}

pub(super) fn read_expire(expire: &pb::LeaseExpire) -> LeaseExpire {
    LeaseExpire { id: LeaseId(expire.id), granted: LogIndex(expire.granted), term: Term(expire.term) }
}

pub(super) fn write_checkpoint(checkpoint: &LeaseCheckpoint) -> pb::LeaseCheckpoint {
    let write = |lease: &LeaseRemaining| pb::LeaseRemaining {
        id: lease.id.get(),
        granted: lease.granted.get(),
        remaining_ms: lease.remaining_ms,
    };
    pb::LeaseCheckpoint {
        term: checkpoint.term.get(),
        clock_ms: checkpoint.clock_ms,
        leases: checkpoint.leases.iter().map(write).collect(),
    }
}

pub(super) fn read_checkpoint(checkpoint: &pb::LeaseCheckpoint) -> LeaseCheckpoint {
    let read = |lease: &pb::LeaseRemaining| LeaseRemaining {
        id: LeaseId(lease.id),
        granted: LogIndex(lease.granted),
        remaining_ms: lease.remaining_ms,
    };
    LeaseCheckpoint {
        term: Term(checkpoint.term),
        clock_ms: checkpoint.clock_ms,
        leases: checkpoint.leases.iter().map(read).collect(),
    }
}

pub(super) fn write_attach(attach: &LeaseAttach) -> pb::LeaseAttach {
    pb::LeaseAttach { id: attach.id.get(), key: attach.key.clone() }
}

pub(super) fn read_attach(attach: pb::LeaseAttach) -> LeaseAttach {
    LeaseAttach { id: LeaseId(attach.id), key: attach.key }
}

pub(super) fn write_lease_txn(request: &LeaseTxn) -> Result<pb::LeaseTxn, CodecError> {
    Ok(pb::LeaseTxn {
        // The message `LeaseTxn` is one more level around the transaction.
        txn: Some(write_txn(&request.txn, 2)?),
        success: request.success.iter().map(write_attach).collect(),
        failure: request.failure.iter().map(write_attach).collect(),
    })
}

pub(super) fn read_lease_txn(request: pb::LeaseTxn) -> Result<LeaseTxn, CodecError> {
    Ok(LeaseTxn {
        txn: read_txn(required(request.txn, "LeaseTxn.txn")?)?,
        success: request.success.into_iter().map(read_attach).collect(),
        failure: request.failure.into_iter().map(read_attach).collect(),
    })
}

/// The bytes of a question about a lease to the leader.
pub fn encode_lease_question(question: LeaseQuestion) -> Bytes {
    let question = match question {
        LeaseQuestion::KeepAlive(id) => pb::lease_question::Question::KeepAlive(id.get()),
        LeaseQuestion::Remaining(id) => pb::lease_question::Question::Remaining(id.get()),
    };
    encode_message(FORMAT, &pb::LeaseQuestion { question: Some(question) })
}

/// Reads a question about a lease to the leader.
///
/// # Errors
///
/// [`CodecError`] for another format byte, and for bytes without a known question.
pub fn decode_lease_question(bytes: Bytes) -> Result<LeaseQuestion, CodecError> {
    let message: pb::LeaseQuestion = decode_message("lease question", FORMAT, bytes)?;
    Ok(match required(message.question, "LeaseQuestion.question")? {
        pb::lease_question::Question::KeepAlive(id) => LeaseQuestion::KeepAlive(LeaseId(id)),
        pb::lease_question::Question::Remaining(id) => LeaseQuestion::Remaining(LeaseId(id)),
    })
}

/// The bytes of the leader's answer to a question about a lease.
pub fn encode_lease_answer(answer: LeaseAnswer) -> Bytes {
    let answer = match answer {
        LeaseAnswer::Alive { granted_seconds, remaining_ms } => {
            pb::lease_answer::Answer::Alive(pb::LeaseAlive { granted_seconds, remaining_ms })
        }
        LeaseAnswer::Unknown => pb::lease_answer::Answer::Unknown(pb::Unit {}),
        LeaseAnswer::NotLeader => pb::lease_answer::Answer::NotLeader(pb::Unit {}),
        LeaseAnswer::Busy => pb::lease_answer::Answer::Busy(pb::Unit {}),
    };
    encode_message(FORMAT, &pb::LeaseAnswer { answer: Some(answer) })
}

/// Reads the leader's answer to a question about a lease.
///
/// # Errors
///
/// [`CodecError`] for another format byte, and for bytes without a known answer.
pub fn decode_lease_answer(bytes: Bytes) -> Result<LeaseAnswer, CodecError> {
    let message: pb::LeaseAnswer = decode_message("lease answer", FORMAT, bytes)?;
    Ok(match required(message.answer, "LeaseAnswer.answer")? {
        pb::lease_answer::Answer::Alive(pb::LeaseAlive { granted_seconds, remaining_ms }) => {
            LeaseAnswer::Alive { granted_seconds, remaining_ms }
        }
        pb::lease_answer::Answer::Unknown(pb::Unit {}) => LeaseAnswer::Unknown,
        pb::lease_answer::Answer::NotLeader(pb::Unit {}) => LeaseAnswer::NotLeader,
        pb::lease_answer::Answer::Busy(pb::Unit {}) => LeaseAnswer::Busy,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_questions_and_answers() {
        let questions =
            [(LeaseQuestion::KeepAlive(LeaseId(7)), [1, 8, 7]), (LeaseQuestion::Remaining(LeaseId(8)), [1, 16, 8])];
        for (question, bytes) in questions {
            assert_eq!(encode_lease_question(question), &bytes[..], "{question:?}");
            assert_eq!(decode_lease_question(Bytes::copy_from_slice(&bytes)), Ok(question));
        }
        let answers: [(LeaseAnswer, &[u8]); 4] = [
            (LeaseAnswer::Alive { granted_seconds: 5, remaining_ms: 300 }, &[1, 10, 5, 8, 5, 16, 172, 2]),
            (LeaseAnswer::Unknown, &[1, 18, 0]),
            (LeaseAnswer::NotLeader, &[1, 26, 0]),
            (LeaseAnswer::Busy, &[1, 34, 0]),
        ];
        for (answer, bytes) in answers {
            assert_eq!(encode_lease_answer(answer), bytes, "{answer:?}");
            assert_eq!(decode_lease_answer(Bytes::copy_from_slice(bytes)), Ok(answer));
        }
        assert!(decode_lease_answer(Bytes::from_static(&[1])).is_err());
        assert!(decode_lease_question(Bytes::from_static(&[2, 8, 7])).is_err());
    }
}
