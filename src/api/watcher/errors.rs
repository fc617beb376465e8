//! The one table from errors of watches to gRPC codes and texts (spec: watcher §2).
//!
//! A new kind of [`Failure`] or [`EntityError`] needs a line here.

use tonic::{Code, Status};

use super::marker;
use headwater_api_shared::errors::{self, InvalidMetadata};
use headwater_api_shared::stream::StreamEnd;
use headwater_api_shared::target;
use headwater_node::{EntityError, NodeError, NodeErrorKind};

/// A failure that keeps a stream from beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The target is invalid.
    Target(target::Invalid),
    /// The marker is invalid.
    Marker(marker::Invalid),
    /// The request's metadata cannot be read.
    Metadata(InvalidMetadata),
    /// The node refused the request, or could not serve it.
    Entity(EntityError),
    /// The client's deadline passed before the stream began.
    Expired,
}

impl From<target::Invalid> for Failure {
    fn from(invalid: target::Invalid) -> Self {
        Self::Target(invalid)
    }
}

impl From<marker::Invalid> for Failure {
    fn from(invalid: marker::Invalid) -> Self {
        Self::Marker(invalid)
    }
}

impl From<InvalidMetadata> for Failure {
    fn from(invalid: InvalidMetadata) -> Self {
        Self::Metadata(invalid)
    }
}

impl From<EntityError> for Failure {
    fn from(error: EntityError) -> Self {
        Self::Entity(error)
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Target(invalid) => {
                let code = match invalid {
                    target::Invalid::NotRecursive(_) => Code::Unimplemented,
                    target::Invalid::TooLong
                    | target::Invalid::NotAPath
                    | target::Invalid::Fragment
                    | target::Invalid::Control
                    | target::Invalid::Escape(_)
                    | target::Invalid::Name(_)
                    | target::Invalid::Slash
                    | target::Invalid::Space(_)
                    | target::Invalid::Parts { .. }
                    | target::Invalid::Parameter { .. }
                    | target::Invalid::Root => Code::InvalidArgument,
                };
                Self::new(code, invalid.to_string())
            }
            Failure::Marker(invalid) => Self::invalid_argument(invalid.to_string()),
            Failure::Metadata(invalid) => invalid.into(),
            Failure::Entity(error) => {
                let code = match &error {
                    EntityError::Node(error) => node(error),
                    EntityError::OtherEpoch
                    | EntityError::Compacted
                    | EntityError::Future
                    | EntityError::OtherRights => Code::FailedPrecondition,
                    EntityError::TooLarge => Code::ResourceExhausted,
                };
                Self::new(code, error.to_string())
            }
            Failure::Expired => expired(),
        }
    }
}

/// Status after the client's own deadline.
fn expired() -> Status {
    Status::deadline_exceeded("the time that the client gave the stream is over")
}

/// The code of a node error. A timeout is `UNAVAILABLE`: the client may try again here, or at
/// another member.
fn node(error: &NodeError) -> Code {
    match error.kind() {
        NodeErrorKind::Timeout => Code::Unavailable,
        // No request of this face writes.
        NodeErrorKind::TooLarge | NodeErrorKind::Indeterminate => Code::Internal,
        kind => errors::code(kind),
    }
}

/// The status at the end of a stream: `FAILED_PRECONDITION` if a new one must begin with the state.
pub(super) fn stream_ended(end: StreamEnd) -> Status {
    match end {
        StreamEnd::Closed(reason) => errors::closed(&reason, Code::FailedPrecondition),
        StreamEnd::Expired => expired(),
        StreamEnd::LeaderLost => Status::unavailable("this node knows no leader; go on at another one"),
        StreamEnd::Failed(error) => Status::new(node(&error), error.to_string()),
        StreamEnd::BadRequest(status) => status,
        StreamEnd::RightsChanged(refusal) => errors::denied(refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_node::CloseReason;

    #[test]
    fn who_must_begin_anew_and_who_must_go_elsewhere() {
        for (failure, code) in [
            (Failure::Entity(EntityError::Compacted), Code::FailedPrecondition),
            (Failure::Entity(EntityError::OtherEpoch), Code::FailedPrecondition),
            (Failure::Entity(EntityError::Future), Code::FailedPrecondition),
            (Failure::Entity(NodeError::Timeout.into()), Code::Unavailable),
            (Failure::Entity(NodeError::NoLeader.into()), Code::Unavailable),
            (Failure::Marker(marker::Invalid::Garbage), Code::InvalidArgument),
            (Failure::Marker(marker::Invalid::OtherTarget), Code::InvalidArgument),
            (Failure::Target(target::Invalid::NotRecursive("x".to_owned())), Code::Unimplemented),
            (Failure::Target(target::Invalid::NotAPath), Code::InvalidArgument),
            (Failure::Expired, Code::DeadlineExceeded),
        ] {
            let status = Status::from(failure.clone());
            assert_eq!(status.code(), code, "{failure:?}");
            assert!(!status.message().is_empty());
        }
        assert_eq!(stream_ended(CloseReason::EpochChanged.into()).code(), Code::FailedPrecondition);
        assert_eq!(stream_ended(CloseReason::Stopping.into()).code(), Code::Unavailable);
    }
}
