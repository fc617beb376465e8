//! The one table from errors of a subscription to gRPC codes (spec: consul §1.10, §1.11).
//!
//! A new kind of [`Failure`] needs a line here.

use tonic::{Code, Status};

use super::request::Invalid;
use headwater_api_shared::errors::{self, InvalidMetadata};
use headwater_api_shared::stream::StreamEnd;
use headwater_node::{NodeError, NodeErrorKind};
use headwater_types::{AuthRefusal, Refusal};

/// A failure that keeps a stream from beginning.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// The request is invalid; the node was not asked.
    Invalid(Invalid),
    /// The request's metadata cannot be read.
    Metadata(InvalidMetadata),
    /// The node refused the request, or cannot serve it now.
    Node(NodeError),
    /// Another datacenter answered with this status.
    Remote(Box<Status>),
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
            Failure::Metadata(invalid) => invalid.into(),
            // The stream has not begun, so there is no view to replace: `UNAUTHENTICATED`, not
            // `ABORTED`.
            Failure::Node(NodeError::Refused(Refusal::Auth(refusal))) => Self::unauthenticated(match refusal {
                AuthRefusal::InvalidToken => "ACL not found".to_owned(),
                refusal => refusal.to_string(),
            }),
            Failure::Node(error) => node(&error),
            Failure::Remote(status) => *status,
        }
    }
}

fn node(error: &NodeError) -> Status {
    let code = match error.kind() {
        // The state was replaced or compacted meanwhile: a new subscription begins with a snapshot.
        NodeErrorKind::Refused => Code::Aborted,
        // The rights have changed or the token is gone: the client's view is out of date.
        NodeErrorKind::Denied | NodeErrorKind::Unauthenticated => Code::Aborted,
        // No request of this face writes.
        NodeErrorKind::TooLarge => Code::Internal,
        kind => errors::code(kind),
    };
    Status::new(code, error.to_string())
}

/// The status at the end of a stream. With `ABORTED` the client must begin again with index 0; with
/// `UNAVAILABLE` it may resume at another member.
pub(super) fn stream_ended(end: StreamEnd) -> Status {
    match end {
        StreamEnd::Closed(reason) => errors::closed(&reason, Code::Aborted),
        StreamEnd::Expired => Status::deadline_exceeded("the time that the client gave the watch is over"),
        StreamEnd::LeaderLost => node(&NodeError::NoLeader),
        StreamEnd::Failed(error) => node(&error),
        StreamEnd::BadRequest(status) => status,
        StreamEnd::RightsChanged(_) => errors::rights_changed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_node::CloseReason;
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
            assert_eq!(stream_ended(reason.clone().into()).code(), code, "{reason:?}");
        }
        assert_eq!(Status::from(Failure::from(Invalid::NoSubject)).code(), Code::InvalidArgument);
        assert_eq!(Status::from(Failure::from(NodeError::TooManyRequests)).code(), Code::ResourceExhausted);
    }
}
