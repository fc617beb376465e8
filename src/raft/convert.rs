//! Conversions between openraft's types and the messages of the peer port. They refuse malformed
//! messages, and answers with a term that is too high.

use openraft::entry::RaftEntry;
use openraft::raft::{AppendEntriesRequest, StreamAppendError, VoteRequest, VoteResponse};

use super::network::admission::check_term;
use super::types::{EncodedCommand, EntryPayload, LogEntry, LogId, TypeConfig, Vote, log_id, term_of};
use headwater_proto::codec;
use headwater_proto::pb::peer as pb;

/// A message of the peer port that no member of this cluster can have sent.
#[derive(Debug, thiserror::Error)]
#[error("malformed peer message: {0}")]
pub(crate) struct Malformed(pub(crate) String);

impl From<Malformed> for tonic::Status {
    fn from(error: Malformed) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

fn required<T>(value: Option<T>, field: &str) -> Result<T, Malformed> {
    value.ok_or_else(|| Malformed(format!("{field} is missing")))
}

pub(crate) fn log_id_to_pb(id: &LogId) -> pb::LogId {
    pb::LogId { term: term_of(id), index: id.index }
}

pub(crate) fn log_id_from_pb(id: pb::LogId) -> LogId {
    log_id(id.term, id.index)
}

pub(crate) fn vote_to_pb(vote: &Vote) -> pb::Vote {
    pb::Vote { term: vote.leader_id.term, node_id: vote.leader_id.voted_for, committed: vote.committed }
}

pub(crate) fn vote_from_pb(vote: pb::Vote) -> Vote {
    Vote {
        leader_id: openraft::impls::leader_id_std::LeaderId { term: vote.term, voted_for: vote.node_id },
        committed: vote.committed,
    }
}

pub(crate) fn required_vote(vote: Option<pb::Vote>) -> Result<Vote, Malformed> {
    required(vote, "vote").map(vote_from_pb)
}

/// The vote in an answer to a member in `own_term`. Refuses a term that is too far above
/// `own_term`.
pub(crate) fn answered_vote(vote: pb::Vote, own_term: u64) -> Result<Vote, Malformed> {
    check_term(own_term, vote.term)?;
    Ok(vote_from_pb(vote))
}

pub(crate) fn entry_to_pb(entry: &LogEntry) -> pb::Entry {
    let (kind, payload) = match &entry.payload {
        EntryPayload::Blank => (pb::entry::Kind::Blank, bytes::Bytes::new()),
        EntryPayload::Normal(command) => (pb::entry::Kind::Normal, command.0.clone()),
        EntryPayload::Membership(membership) => (pb::entry::Kind::Membership, super::membership::encode(membership)),
    };
    pb::Entry { log_id: Some(log_id_to_pb(&entry.log_id)), kind: kind as i32, payload }
}

pub(crate) fn entry_from_pb(entry: pb::Entry) -> Result<LogEntry, Malformed> {
    let id = log_id_from_pb(required(entry.log_id, "entry.log_id")?);
    let payload = match pb::entry::Kind::try_from(entry.kind) {
        Ok(pb::entry::Kind::Blank) => EntryPayload::Blank,
        Ok(pb::entry::Kind::Normal) => EntryPayload::Normal(EncodedCommand(entry.payload)),
        Ok(pb::entry::Kind::Membership) => EntryPayload::Membership(
            super::membership::decode(&entry.payload)
                .map_err(|error: codec::CodecError| Malformed(error.to_string()))?,
        ),
        Err(unknown) => return Err(Malformed(format!("entry kind {unknown}"))),
    };
    Ok(LogEntry::new(id, payload))
}

pub(crate) fn append_to_pb(request: &AppendEntriesRequest<TypeConfig>) -> pb::AppendRequest {
    pb::AppendRequest {
        vote: Some(vote_to_pb(&request.vote)),
        prev: request.prev_log_id.as_ref().map(log_id_to_pb),
        entries: request.entries.iter().map(entry_to_pb).collect(),
        leader_commit: request.leader_commit.as_ref().map(log_id_to_pb),
        blocked: false,
    }
}

pub(crate) fn append_from_pb(request: pb::AppendRequest) -> Result<AppendEntriesRequest<TypeConfig>, Malformed> {
    Ok(AppendEntriesRequest {
        vote: required_vote(request.vote)?,
        prev_log_id: request.prev.map(log_id_from_pb),
        entries: request.entries.into_iter().map(entry_from_pb).collect::<Result<_, _>>()?,
        leader_commit: request.leader_commit.map(log_id_from_pb),
    })
}

pub(crate) type AppendResult = Result<Option<LogId>, StreamAppendError<TypeConfig>>;

pub(crate) fn append_result_to_pb(result: &AppendResult) -> pb::AppendResponse {
    use pb::append_response::Result as R;
    let result = match result {
        Ok(last) => R::Accepted(pb::Accepted { last: last.as_ref().map(log_id_to_pb) }),
        Err(StreamAppendError::Conflict(id)) => R::Conflict(log_id_to_pb(id)),
        Err(StreamAppendError::HigherVote(vote)) => R::HigherVote(vote_to_pb(vote)),
    };
    pb::AppendResponse { result: Some(result) }
}

/// The answer to an append of a leader in `own_term`. Refuses a vote with a term too far above
/// `own_term`.
pub(crate) fn append_result_from_pb(response: pb::AppendResponse, own_term: u64) -> Result<AppendResult, Malformed> {
    use pb::append_response::Result as R;
    Ok(match required(response.result, "append result")? {
        R::Accepted(accepted) => Ok(accepted.last.map(log_id_from_pb)),
        R::Conflict(id) => Err(StreamAppendError::Conflict(log_id_from_pb(id))),
        R::HigherVote(vote) => Err(StreamAppendError::HigherVote(answered_vote(vote, own_term)?)),
    })
}

pub(crate) fn vote_request_to_pb(request: &VoteRequest<TypeConfig>, pre_vote: bool) -> pb::VoteRequest {
    pb::VoteRequest {
        vote: Some(vote_to_pb(&request.vote)),
        last: request.last_log_id.as_ref().map(log_id_to_pb),
        leadership_transfer: request.leadership_transfer,
        pre_vote,
    }
}

pub(crate) fn vote_request_from_pb(request: pb::VoteRequest) -> Result<VoteRequest<TypeConfig>, Malformed> {
    Ok(VoteRequest {
        vote: required_vote(request.vote)?,
        last_log_id: request.last.map(log_id_from_pb),
        leadership_transfer: request.leadership_transfer,
    })
}

pub(crate) fn vote_response_to_pb(response: &VoteResponse<TypeConfig>) -> pb::VoteResponse {
    pb::VoteResponse {
        vote: Some(vote_to_pb(&response.vote)),
        last: response.last_log_id.as_ref().map(log_id_to_pb),
        granted: response.vote_granted,
    }
}

/// The answer to a candidate in `own_term`. Refuses a vote with a term too far above `own_term`.
pub(crate) fn vote_response_from_pb(
    response: pb::VoteResponse,
    own_term: u64,
) -> Result<VoteResponse<TypeConfig>, Malformed> {
    let vote = answered_vote(required(response.vote, "vote")?, own_term)?;
    Ok(VoteResponse::new(vote, response.last.map(log_id_from_pb), response.granted))
}
