//! Errors of requests: one enum for the layer, and the few kinds that callers act on.
//!
//! `StorageError` and `BackupError` become [`NodeError::Storage`]; a `Refusal` becomes
//! [`NodeError::Refused`]. A face has one exhaustive table, from [`NodeErrorKind`] to its wire
//! codes, or from [`NodeError`] if each error has a text of its own there.

use thiserror::Error;

use headwater_storage::StorageError;
use headwater_storage::backup::BackupError;
use headwater_stream::{CloseReason, ListingError};
use headwater_types::{AuthRefusal, LogIndex, MemberRefusal, Refusal};

/// The reason for which a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NodeError {
    /// The state machine refused the request; nothing changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The encoded command exceeds this member's limit (`max-request-bytes`), or is nested too deep
    /// to be encoded; nothing changed.
    #[error("request is too large")]
    RequestTooLarge,
    /// A bound on concurrent or waiting work, or on memory, is reached; nothing changed. Retry
    /// later.
    #[error("too many requests")]
    TooManyRequests,
    /// This member's bound on watchers is reached, in all or for this client; nothing changed.
    /// Cancel some, or ask another member.
    #[error("too many watchers on this member: cancel some, or ask another member")]
    TooManyWatchers,
    /// Answers that their readers do not take fill the memory for answers; nothing changed. Take
    /// open answers, or ask for less at once.
    #[error(
        "answers that clients do not read fill the memory for answers: read the open ones, ask for pages (limit), or \
         retry later"
    )]
    AnswersUnread,
    /// No leader is known or alive, a majority is known to be lost, or this node has not recovered
    /// before the deadline. Nothing was proposed; nothing changed.
    #[error("no leader")]
    NoLeader,
    /// The deadline passed before a read was complete, or before a write was sent to a leader:
    /// nothing changed.
    #[error("request timed out")]
    Timeout,
    /// The write was proposed and no answer came: it may or may not take effect, now or later. Read
    /// before you retry.
    #[error("write is indeterminate: {0}")]
    Indeterminate(Unanswered),
    /// This node did not reach the index that the request asked for before its deadline.
    #[error("state at index {wanted} was not reached, applied is {applied}")]
    MinIndexNotReached {
        /// The index that the request asked for.
        wanted: LogIndex,
        /// This node's applied index.
        applied: LogIndex,
    },
    /// A change of the membership is refused, or a request names an unknown member; nothing
    /// changed.
    #[error(transparent)]
    Membership(MemberRefusal),
    /// This node does not lead, and only a leader can hand leadership over. Ask the leader.
    #[error("not leader")]
    NotLeader,
    /// The chosen next leader is not a member, does not vote, or is being removed.
    #[error("bad leader transferee")]
    BadTransferee,
    /// The chosen next leader did not answer, and the transfer was not begun. Or it did not take
    /// over in time: it or another member may lead later, or leads already.
    #[error("leader transfer took too long")]
    TransferTimeout,
    /// The leader cannot decode the command; nothing changed. Possible causes: the members run
    /// incompatible versions, or a connection between them corrupts bytes.
    #[error("the leader cannot read the command: {0}")]
    Unreadable(String),
    /// This member has no private key for signed tokens; nothing changed. Authenticate at another
    /// one.
    #[error("this member cannot sign tokens: authenticate at another one")]
    CannotSign,
    /// This node was removed from the cluster. Ask another one.
    #[error("this member was removed from the cluster")]
    Removed,
    /// The node is stopping, or a task of it failed. Also the end of a stream whose state was
    /// replaced as a whole, or is of another lineage.
    #[error("server stopped")]
    Stopped,
    /// The local storage failed. If a read of the state failed, the node is going down.
    #[error("storage failed: {0}")]
    Storage(String),
}

/// The reason for which a write stayed without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unanswered {
    /// The deadline passed.
    #[error("request timed out")]
    Timeout,
    /// The leader changed or went away while the write was under way. Also for an outcome that is
    /// not one of the command.
    #[error("leader failed while the request was under way")]
    LeaderFailed,
    /// The connection to the leader broke.
    #[error("connection to the leader was lost")]
    ConnectionLost,
}

/// The class of a [`NodeError`]. Errors of one class call for the same reaction of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeErrorKind {
    /// A rule of the state machine forbids the request; nothing changed. Retrying does not help.
    Refused,
    /// The principal lacks a right; nothing changed.
    Denied,
    /// The credentials are missing, invalid or expired, or users or roles have changed since the
    /// client authenticated. Authenticate and retry.
    Unauthenticated,
    /// The request exceeds a size limit; nothing changed. Retrying does not help.
    TooLarge,
    /// A bound on concurrent work or on memory is reached; nothing changed. Retry after a pause.
    Exhausted,
    /// No leader, or a state that is too old; nothing changed. Retry here or at another member.
    Unavailable,
    /// The deadline passed; nothing changed. Retry.
    Timeout,
    /// The write may take effect, now or later. Read before a retry.
    Indeterminate,
    /// Only the leader can do this; nothing changed. Send the request to the leader.
    NotLeader,
    /// A change of the membership or of the leader was refused or did not complete in time.
    Membership,
    /// This member is stopping, was removed, or cannot sign tokens. Send the request to another
    /// member.
    Stopped,
    /// A defect of this member: its storage failed, or the leader cannot decode its commands.
    Internal,
}

impl NodeError {
    /// The refusal of a principal that lacks a right.
    pub(crate) const DENIED: Self = Self::Refused(Refusal::Auth(AuthRefusal::PermissionDenied));

    /// The class of the error. Every error has exactly one.
    pub fn kind(&self) -> NodeErrorKind {
        match self {
            Self::Refused(Refusal::Auth(AuthRefusal::PermissionDenied)) => NodeErrorKind::Denied,
            Self::Refused(Refusal::Auth(refusal)) if refusal.is_unauthenticated() => NodeErrorKind::Unauthenticated,
            Self::Refused(_) => NodeErrorKind::Refused,
            Self::RequestTooLarge => NodeErrorKind::TooLarge,
            Self::TooManyRequests | Self::TooManyWatchers | Self::AnswersUnread => NodeErrorKind::Exhausted,
            Self::NoLeader | Self::MinIndexNotReached { .. } => NodeErrorKind::Unavailable,
            Self::Timeout => NodeErrorKind::Timeout,
            Self::Indeterminate(_) => NodeErrorKind::Indeterminate,
            Self::NotLeader => NodeErrorKind::NotLeader,
            Self::Membership(_) | Self::BadTransferee | Self::TransferTimeout => NodeErrorKind::Membership,
            Self::CannotSign | Self::Removed | Self::Stopped => NodeErrorKind::Stopped,
            Self::Unreadable(_) | Self::Storage(_) => NodeErrorKind::Internal,
        }
    }
}

impl From<StorageError> for NodeError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error.to_string())
    }
}

impl From<BackupError> for NodeError {
    fn from(error: BackupError) -> Self {
        Self::Storage(error.to_string())
    }
}

impl From<CloseReason> for NodeError {
    fn from(reason: CloseReason) -> Self {
        match reason {
            CloseReason::Compacted { revision } => Refusal::Compacted { compact_revision: revision }.into(),
            CloseReason::EpochChanged | CloseReason::Reset | CloseReason::Stopping => Self::Stopped,
            CloseReason::Failed(detail) => Self::Storage(detail),
        }
    }
}

impl From<ListingError> for NodeError {
    fn from(error: ListingError) -> Self {
        match error {
            ListingError::Timeout => Self::Timeout,
            ListingError::NoCapacity => Self::TooManyRequests,
            ListingError::Closed(reason) => reason.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_its_kind() {
        let table = [
            (NodeError::Refused(Refusal::KeyNotFound), NodeErrorKind::Refused),
            (NodeError::RequestTooLarge, NodeErrorKind::TooLarge),
            (NodeError::TooManyRequests, NodeErrorKind::Exhausted),
            (NodeError::TooManyWatchers, NodeErrorKind::Exhausted),
            (NodeError::AnswersUnread, NodeErrorKind::Exhausted),
            (NodeError::NoLeader, NodeErrorKind::Unavailable),
            (NodeError::MinIndexNotReached { wanted: LogIndex(2), applied: LogIndex(1) }, NodeErrorKind::Unavailable),
            (NodeError::Timeout, NodeErrorKind::Timeout),
            (NodeError::Indeterminate(Unanswered::Timeout), NodeErrorKind::Indeterminate),
            (NodeError::Indeterminate(Unanswered::LeaderFailed), NodeErrorKind::Indeterminate),
            (NodeError::Indeterminate(Unanswered::ConnectionLost), NodeErrorKind::Indeterminate),
            (NodeError::NotLeader, NodeErrorKind::NotLeader),
            (NodeError::Membership(MemberRefusal::NotFound), NodeErrorKind::Membership),
            (NodeError::BadTransferee, NodeErrorKind::Membership),
            (NodeError::TransferTimeout, NodeErrorKind::Membership),
            (NodeError::CannotSign, NodeErrorKind::Stopped),
            (NodeError::Removed, NodeErrorKind::Stopped),
            (NodeError::Stopped, NodeErrorKind::Stopped),
            (NodeError::Unreadable("field".into()), NodeErrorKind::Internal),
            (NodeError::Storage("disk".into()), NodeErrorKind::Internal),
        ];
        for (error, kind) in table {
            assert_eq!(error.kind(), kind, "{error:?}");
        }
    }
}
