//! The one table from errors about resources to gRPC codes and texts (spec: consul §5.3 to §5.14).
//!
//! A new kind of resource error, or of refusal, needs a line here.

use http::HeaderValue;
use tonic::{Code, Status};

use super::validate::Invalid;
use headwater_api_shared::context::HEADWATER_INDETERMINATE;
use headwater_api_shared::errors::{self, InvalidMetadata};
use headwater_api_shared::stream::StreamEnd;
use headwater_node::{NodeError, ResourceError, Unanswered};
use headwater_schema::{SchemaError, Violation};
use headwater_types::Refusal;
use headwater_types::resource::ResourceRefusal;

/// Length at which a text is cut, bytes. An ellipsis follows the cut.
const TEXT_BYTES_MAX: usize = 4096;

/// The failure of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The request is invalid: the node was never asked.
    Invalid(Invalid),
    /// The request's metadata cannot be read.
    Metadata(InvalidMetadata),
    /// The node refused the request, or could not serve it.
    Resource(Box<ResourceError>),
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

impl From<ResourceError> for Failure {
    fn from(error: ResourceError) -> Self {
        Self::Resource(Box::new(error))
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Invalid(invalid) => Self::invalid_argument(cut(invalid.to_string())),
            Failure::Metadata(invalid) => invalid.into(),
            Failure::Resource(error) => status(&error),
        }
    }
}

/// The gRPC status of an error of the node. An indeterminate write is marked by
/// `headwater-indeterminate`.
pub fn status(error: &ResourceError) -> Status {
    let code = match error {
        ResourceError::Node(NodeError::Refused(Refusal::Resource(refusal))) => refusal_code(*refusal),
        ResourceError::Node(error) => return node(error),
        ResourceError::NotFound(_) => Code::NotFound,
        ResourceError::Schema(SchemaError::Unavailable(_)) | ResourceError::Violation(Violation::Unavailable(_)) => {
            Code::Unavailable
        }
        ResourceError::TypeUnknown(_)
        | ResourceError::Scope { .. }
        | ResourceError::GroupVersion { .. }
        | ResourceError::Reserved(_)
        | ResourceError::Schema(_)
        | ResourceError::RegistrationName { .. }
        | ResourceError::BuiltIn(_)
        | ResourceError::Violation(_)
        | ResourceError::Data(_)
        | ResourceError::PageToken => Code::InvalidArgument,
        ResourceError::PageExpired | ResourceError::Unsettled(_) | ResourceError::ResumeOtherRights => Code::Aborted,
        ResourceError::ListTooLong(_) | ResourceError::WatchTooLarge(_) | ResourceError::OwnsTooMuch(_) => {
            Code::ResourceExhausted
        }
        ResourceError::ResumeCompacted(_) | ResourceError::ResumeOtherEpoch => Code::OutOfRange,
    };
    Status::new(code, cut(error.to_string()))
}

/// Cuts a text that is too long for a header; some texts repeat a client's input.
fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push('…');
    }
    text
}

/// The gRPC code of a refusal. The client also gets the refusal's `Display` as text; the store puts
/// the number of the operation in front of it.
pub fn refusal_code(refusal: ResourceRefusal) -> Code {
    match refusal {
        ResourceRefusal::TypeUnknown
        | ResourceRefusal::ScopeMismatch
        | ResourceRefusal::PartitionNotFound
        | ResourceRefusal::NamespaceNotFound
        | ResourceRefusal::TenancyMarked
        | ResourceRefusal::StatusAtCreation
        | ResourceRefusal::StatusModified
        | ResourceRefusal::MarkedAtCreation
        | ResourceRefusal::OwnerNotFound
        | ResourceRefusal::OwnerWrongUid
        | ResourceRefusal::OwnerOtherVersion
        | ResourceRefusal::OwnerScopeMismatch
        | ResourceRefusal::OwnerChanged
        | ResourceRefusal::MarkRemoved
        | ResourceRefusal::MarkModified
        | ResourceRefusal::MarkInvalid
        | ResourceRefusal::MetadataModified
        | ResourceRefusal::DataModified
        | ResourceRefusal::NoOpWrite
        | ResourceRefusal::FinalizerNotRemoved
        | ResourceRefusal::OtherGroupVersion
        | ResourceRefusal::TypeIdentityChanged
        | ResourceRefusal::DefaultUnit => Code::InvalidArgument,
        ResourceRefusal::NotFound => Code::NotFound,
        ResourceRefusal::VersionMismatch | ResourceRefusal::TypeChanged | ResourceRefusal::Gone => Code::Aborted,
        ResourceRefusal::WrongUid | ResourceRefusal::TypeInUse | ResourceRefusal::NothingToReap => {
            Code::FailedPrecondition
        }
        ResourceRefusal::TooManyTypes | ResourceRefusal::TooLarge => Code::ResourceExhausted,
    }
}

/// The gRPC status of a node's error. Not for a refusal by a rule of resources, which would be
/// `INTERNAL` here: [`status`] takes its code from [`refusal_code`].
fn node(error: &NodeError) -> Status {
    let code = match error {
        NodeError::Refused(refusal) => match refusal {
            Refusal::NoSpace => Code::ResourceExhausted,
            Refusal::Corrupt => Code::DataLoss,
            Refusal::Compacted { .. } => Code::OutOfRange,
            Refusal::FutureRevision { .. }
            | Refusal::KeyNotFound
            | Refusal::LeaseNotFound
            | Refusal::DuplicateKey
            | Refusal::TooMuchRead
            | Refusal::LeaseExists
            | Refusal::LeaseTtlTooLarge
            | Refusal::LeaseStale
            | Refusal::Session(_)
            | Refusal::Resource(_)
            | Refusal::Version(_)
            | Refusal::Invitation(_)
            | Refusal::Acl(_)
            | Refusal::Catalog(_) => Code::Internal,
            Refusal::Auth(_) => errors::code(error.kind()),
            Refusal::NeedsVersion { .. } => Code::FailedPrecondition,
        },
        NodeError::Indeterminate(Unanswered::Timeout) => Code::DeadlineExceeded,
        error => errors::code(error.kind()),
    };
    let mut status = Status::new(code, error.to_string());
    if let NodeError::Indeterminate(_) = error {
        status.metadata_mut().as_mut().insert(HEADWATER_INDETERMINATE, HeaderValue::from_static("true"));
    }
    status
}

/// The status at the end of a watch: `ABORTED` if a new one must begin with a list.
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
    use headwater_types::resource::{Scope, Type};

    #[test]
    fn every_refusal_has_its_code() {
        let wanted = |refusal| match refusal {
            ResourceRefusal::VersionMismatch | ResourceRefusal::TypeChanged | ResourceRefusal::Gone => Code::Aborted,
            ResourceRefusal::WrongUid | ResourceRefusal::TypeInUse | ResourceRefusal::NothingToReap => {
                Code::FailedPrecondition
            }
            ResourceRefusal::NotFound => Code::NotFound,
            ResourceRefusal::TooManyTypes | ResourceRefusal::TooLarge => Code::ResourceExhausted,
            _ => Code::InvalidArgument,
        };
        for refusal in ResourceRefusal::ALL {
            let status = Status::from(Failure::from(ResourceError::from(refusal)));
            assert_eq!((status.code(), status.message()), (wanted(refusal), refusal.to_string().as_str()));
        }
    }

    #[test]
    fn the_texts_that_clients_look_for() {
        let type_ = Type::new("demo", "v2", "Artist");
        for (error, code, text) in [
            (
                ResourceError::TypeUnknown(type_.clone()),
                Code::InvalidArgument,
                "resource type demo.v2.Artist not registered",
            ),
            (
                ResourceError::Scope {
                    scope: Scope::Partition,
                    type_: type_.clone(),
                    unit: "namespace",
                    given: "n".into(),
                },
                Code::InvalidArgument,
                "partition scoped resource demo.v2.Artist cannot have a namespace. got: n",
            ),
            (ResourceError::NotFound(ResourceRefusal::NotFound), Code::NotFound, "resource not found"),
            (ResourceError::NotFound(ResourceRefusal::PartitionNotFound), Code::NotFound, "partition not found"),
            (
                ResourceError::GroupVersion { requested: "v1".into(), stored: "v2".into() },
                Code::InvalidArgument,
                "resource was requested with GroupVersion=\"v1\", but stored with GroupVersion=\"v2\"",
            ),
            (ResourceError::Node(NodeError::NoLeader), Code::Unavailable, "no leader"),
            (
                ResourceError::Violation(Violation::Unavailable("no thread".into())),
                Code::Unavailable,
                "rules cannot be evaluated at the moment: no thread",
            ),
            (
                ResourceError::Schema(SchemaError::Unavailable("no thread".into())),
                Code::Unavailable,
                "the resource type cannot be registered: rules cannot be compiled at the moment: no thread",
            ),
            (
                ResourceError::Node(NodeError::Refused(Refusal::NoSpace)),
                Code::ResourceExhausted,
                "database space exceeded",
            ),
            (
                ResourceError::PageExpired,
                Code::Aborted,
                "the list is too old for another page: its state was compacted; begin again",
            ),
        ] {
            let status = Status::from(Failure::from(error));
            assert_eq!((status.code(), status.message()), (code, text));
        }
    }

    #[test]
    fn no_text_is_longer_than_a_header_may_be() {
        let long = "ä".repeat(1024 * 1024);
        let error = ResourceError::Schema(SchemaError::NoSuchMessage { name: long, known: Vec::new() });
        let status = Status::from(Failure::from(error));
        assert_eq!(status.code(), Code::InvalidArgument);
        let text = status.message();
        assert!(text.starts_with("the resource type cannot be registered") && text.len() <= TEXT_BYTES_MAX + 3);
    }

    #[test]
    fn who_cannot_know_is_told_so() {
        let status = status(&NodeError::Indeterminate(Unanswered::LeaderFailed).into());
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(status.metadata().get("headwater-indeterminate").unwrap(), "true");
    }
}
