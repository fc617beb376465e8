//! The table from the errors of `Read` and `History` to gRPC codes and texts. `Commit` has a table
//! of its own.
//!
//! A new kind of [`StoreError`] needs a line here.

use tonic::{Code, Status};

use super::request::Invalid;
use headwater_api_shared::errors::{self, InvalidMetadata};
use headwater_api_shared::etcd_texts;
use headwater_api_shared::stream::StreamEnd;
use headwater_api_shared::target::path_of;
use headwater_node::{CloseReason, NodeError, NodeErrorKind, StoreError};
use headwater_types::{AuthRefusal, Refusal};

/// A failure of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The request has a wrong shape.
    Request(Invalid),
    /// The request's metadata cannot be read.
    Metadata(InvalidMetadata),
    /// The node refused the request, or could not carry it out.
    Store(StoreError),
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::Request(invalid)
    }
}

impl From<InvalidMetadata> for Failure {
    fn from(invalid: InvalidMetadata) -> Self {
        Self::Metadata(invalid)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        Self::Store(error.into())
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Request(invalid) => Self::invalid_argument(invalid.to_string()),
            Failure::Metadata(invalid) => invalid.into(),
            Failure::Store(error) => {
                let code = match &error {
                    StoreError::Node(error) => node(error),
                    StoreError::Denied(_) => Code::PermissionDenied,
                    StoreError::Future { .. } => Code::OutOfRange,
                    StoreError::Reversed { .. } => Code::InvalidArgument,
                    StoreError::Compacted { .. }
                    | StoreError::OtherEpoch
                    | StoreError::TooFar { .. }
                    | StoreError::MemberCompacted { .. } => Code::FailedPrecondition,
                };
                let text = match &error {
                    StoreError::Denied(target) => {
                        let (_, text) = etcd_texts::refusal(&Refusal::Auth(AuthRefusal::PermissionDenied));
                        format!("{}: {text}", path_of(target.space, &target.name))
                    }
                    error => error.to_string(),
                };
                Self::new(code, text)
            }
        }
    }
}

fn node(error: &NodeError) -> Code {
    match error.kind() {
        // Neither method writes.
        NodeErrorKind::TooLarge | NodeErrorKind::Indeterminate => Code::Internal,
        kind => errors::code(kind),
    }
}

/// The status at the end of a stream.
pub(super) fn stream_ended(end: StreamEnd) -> Status {
    match end {
        StreamEnd::Closed(reason) => errors::closed(&reason, Code::FailedPrecondition),
        StreamEnd::Expired => Status::deadline_exceeded("the time that the client gave the stream is over"),
        StreamEnd::LeaderLost => Status::unavailable("this node knows no leader; go on at another one"),
        StreamEnd::Failed(error) => Status::new(node(&error), error.to_string()),
        StreamEnd::BadRequest(status) => status,
        StreamEnd::RightsChanged(refusal) => errors::denied(refusal),
    }
}

/// The end of a stream whose next page could not be read.
pub(super) fn stream_failed(error: StoreError) -> StreamEnd {
    match error {
        StoreError::Node(NodeError::Stopped) => StreamEnd::Closed(CloseReason::Stopping),
        StoreError::Node(error) => StreamEnd::Failed(error),
        error => StreamEnd::BadRequest(Failure::Store(error).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_node::{Depth, EntitySpace, StoreTarget};
    use headwater_types::LogIndex;

    #[test]
    fn every_failure_has_its_code() {
        let compacted = StoreError::Compacted { index: Some(LogIndex(1)), oldest: LogIndex(5), oldest_unix_ms: 7 };
        for (failure, code, text) in [
            (Failure::Request(Invalid::NoTargets), Code::InvalidArgument, "targets"),
            (Failure::Store(compacted.clone()), Code::FailedPrecondition, "kept from index 5 on (unix_ms 7)"),
            (
                Failure::Store(StoreError::Future { index: LogIndex(9), newest: LogIndex(8) }),
                Code::OutOfRange,
                "the newest index of the store is 8",
            ),
            (Failure::Store(StoreError::OtherEpoch), Code::FailedPrecondition, "another cluster"),
            (
                Failure::Store(StoreError::TooFar { index: LogIndex(1), searched: 10 }),
                Code::FailedPrecondition,
                "ask for a later index",
            ),
            (
                Failure::Store(StoreError::MemberCompacted { index: LogIndex(6), oldest: LogIndex(5) }),
                Code::FailedPrecondition,
                "older than the history, which is kept from index 5 on",
            ),
            (
                Failure::Store(StoreError::Reversed { from: LogIndex(2), to: LogIndex(1) }),
                Code::InvalidArgument,
                "from index 2 to index 1",
            ),
            (
                Failure::Store(StoreError::Denied(StoreTarget {
                    space: EntitySpace::Kv,
                    name: "app/a".to_owned(),
                    depth: Depth::Itself,
                })),
                Code::PermissionDenied,
                "/kv/app/a: etcdserver: permission denied",
            ),
            (NodeError::NoLeader.into(), Code::Unavailable, "no leader"),
            (NodeError::Timeout.into(), Code::DeadlineExceeded, "timed out"),
            (NodeError::TooManyRequests.into(), Code::ResourceExhausted, "too many"),
        ] {
            let status = Status::from(failure.clone());
            assert_eq!(status.code(), code, "{failure:?}");
            assert!(status.message().contains(text), "{status:?}");
        }
        assert_eq!(stream_ended(stream_failed(compacted)).code(), Code::FailedPrecondition);
        assert_eq!(stream_ended(stream_failed(NodeError::Stopped.into())).code(), Code::Unavailable);
        assert_eq!(stream_ended(StreamEnd::LeaderLost).code(), Code::Unavailable);
    }
}
