//! The one table from what can go wrong with a subscription to gRPC codes (spec: consul §1.10, §1.11).
//!
//! No wildcard arms: a new way to fail has to find its line here.

use tonic::{Code, Status};

use super::super::etcd::errors::Invalid as InvalidMetadata;
use super::request::Invalid;
use headwater_node::{CloseReason, NodeError};

/// Why a stream did not begin.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// It asks for what cannot be: the node was never asked.
    Invalid(Invalid),
    /// Its metadata cannot be read.
    Metadata(InvalidMetadata),
    /// The node cannot serve it now.
    Node(NodeError),
    /// What another datacenter says.
    Elsewhere(Box<Status>),
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<InvalidMetadata> for Failure {
    fn from(invalid: InvalidMetadata) -> Self {
        Self::Metadata(invalid)
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        Self::Node(error)
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Invalid(invalid) => Self::invalid_argument(invalid.to_string()),
            Failure::Metadata(invalid) => {
                let (code, text) = invalid.wire();
                Self::new(code, text)
            }
            Failure::Node(error) => node(&error),
            Failure::Elsewhere(status) => *status,
        }
    }
}

fn node(error: &NodeError) -> Status {
    let code = match error {
        // Only a state that was replaced or compacted in the very moment: begin again.
        NodeError::Refused(_) => Code::Aborted,
        NodeError::TooManyRequests => Code::ResourceExhausted,
        NodeError::Timeout => Code::DeadlineExceeded,
        NodeError::NoLeader
        | NodeError::LeaderChanged
        | NodeError::NotLeader
        | NodeError::Indeterminate(_)
        | NodeError::MinIndexNotReached { .. }
        | NodeError::Removed
        | NodeError::Stopped => Code::Unavailable,
        NodeError::RequestTooLarge
        | NodeError::Membership(_)
        | NodeError::BadTransferee
        | NodeError::Unreadable(_)
        | NodeError::TransferTimeout
        | NodeError::Storage(_) => Code::Internal,
    };
    Status::new(code, error.to_string())
}

/// How a stream ends: with `ABORTED` if the client must begin anew with Index 0, with `UNAVAILABLE` if it may go on elsewhere.
pub(super) fn closed(reason: &CloseReason) -> Status {
    let code = match reason {
        CloseReason::Compacted { .. } | CloseReason::EpochChanged | CloseReason::Reset => Code::Aborted,
        CloseReason::Stopping => Code::Unavailable,
        CloseReason::Failed(_) => Code::Internal,
    };
    Status::new(code, reason.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::Revision;

    #[test]
    fn a_stream_that_ends_says_where_to_begin() {
        for (reason, code) in [
            (CloseReason::Compacted { revision: Revision(3) }, Code::Aborted),
            (CloseReason::EpochChanged, Code::Aborted),
            (CloseReason::Reset, Code::Aborted),
            (CloseReason::Stopping, Code::Unavailable),
            (CloseReason::Failed("x".to_owned()), Code::Internal),
        ] {
            assert_eq!(closed(&reason).code(), code, "{reason:?}");
        }
        assert_eq!(Status::from(Failure::from(Invalid::NoSubject)).code(), Code::InvalidArgument);
        assert_eq!(Status::from(Failure::from(NodeError::TooManyRequests)).code(), Code::ResourceExhausted);
    }
}
