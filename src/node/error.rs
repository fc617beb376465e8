//! Why a request failed. One enum for the layer; each face has one exhaustive table from it to wire codes.

use thiserror::Error;

use headwater_types::{LogIndex, MemberRefusal, Refusal};

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NodeError {
    /// The state machine refused the request; nothing changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The encoded command is larger than this member takes (`max-request-bytes`); nothing changed.
    #[error("request is too large")]
    RequestTooLarge,
    /// Too many proposals are waiting; nothing changed. Retry later.
    #[error("too many requests")]
    TooManyRequests,
    /// This node knows no leader, and the request was not proposed; nothing changed.
    #[error("no leader")]
    NoLeader,
    /// A read lost its leader while it waited. Retry.
    #[error("leader changed")]
    LeaderChanged,
    /// A read could not be confirmed before its deadline, or a write could not be handed to a leader: nothing changed.
    #[error("request timed out")]
    Timeout,
    /// The write was proposed and no answer came: it may or may not take effect, now or later. Read before you retry.
    #[error("write is indeterminate: {0}")]
    Indeterminate(Unanswered),
    /// This node did not reach the index that the request asked for before its deadline.
    #[error("state at index {wanted} was not reached, applied is {applied}")]
    MinIndexNotReached {
        /// The index that the request asked for.
        wanted: LogIndex,
        /// Where this node is.
        applied: LogIndex,
    },
    /// A change of the membership is refused; nothing changed.
    #[error(transparent)]
    Membership(MemberRefusal),
    /// This node does not lead, and only a leader can hand leadership over. Ask the leader.
    #[error("not leader")]
    NotLeader,
    /// The member that is to lead is none, or does not vote.
    #[error("bad leader transferee")]
    BadTransferee,
    /// The member that is to lead did not take over in time; it may yet, or another one may.
    #[error("leader transfer took too long")]
    TransferTimeout,
    /// The leader cannot read the encoded command; nothing changed. The members run versions that do not fit each other, or a
    /// connection between them changes bytes.
    #[error("the leader cannot read the command: {0}")]
    Unreadable(String),
    /// This node was removed from the cluster. Ask another one.
    #[error("this member was removed from the cluster")]
    Removed,
    /// The node is starting (re-applying what it had acknowledged) or stopping.
    #[error("server stopped")]
    Stopped,
    /// The local storage failed; the node is going down.
    #[error("storage failed: {0}")]
    Storage(String),
}

/// Why no answer to a write came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unanswered {
    /// The deadline passed.
    #[error("request timed out")]
    Timeout,
    /// The leader changed or went away while the write was under way.
    #[error("leader failed while the request was under way")]
    LeaderFailed,
    /// The connection to the leader broke.
    #[error("connection to the leader was lost")]
    ConnectionLost,
}
