//! The errors of requests about resources. Texts are for clients.

use thiserror::Error;

use crate::NodeError;
use headwater_schema::{SchemaError, Violation};
use headwater_storage::StorageError;
use headwater_stream::CloseReason;
use headwater_types::resource::{ResourceRefusal, Scope, Type};
use headwater_types::{LogIndex, Refusal};

/// The reason for which a request about resources failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ResourceError {
    /// Any error of the node: of admission, the read or the proposal, or a refusal by the state
    /// machine.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The type is not registered.
    #[error("resource type {0} not registered")]
    TypeUnknown(Type),
    /// The type has no such unit of tenancy.
    #[error("{scope} scoped resource {type_} cannot have a {unit}. got: {given}")]
    Scope {
        /// The type's scope.
        scope: Scope,
        /// The type.
        type_: Type,
        /// `partition` or `namespace`.
        unit: &'static str,
        /// The given name of the unit.
        given: String,
    },
    /// The resource does not exist, or its uid is another one than requested, or a unit of its
    /// tenancy does not exist.
    #[error("{0}")]
    NotFound(ResourceRefusal),
    /// The resource is stored under another version of its type's group.
    #[error("resource was requested with GroupVersion=\"{requested}\", but stored with GroupVersion=\"{stored}\"")]
    GroupVersion {
        /// The requested version.
        requested: String,
        /// The stored version.
        stored: String,
    },
    /// Only the store itself writes resources of the type.
    #[error("{0} is written by the store alone")]
    Reserved(Type),
    /// The registration of a type is invalid.
    #[error("the resource type cannot be registered: {0}")]
    Schema(#[from] SchemaError),
    /// The resource that registers a type does not have the name that the type demands.
    #[error("resource.id.name invalid: the resource that registers {type_} must be named {wanted:?}, not {given:?}")]
    RegistrationName {
        /// The type.
        type_: Type,
        /// The required name.
        wanted: String,
        /// The given name.
        given: String,
    },
    /// A built-in type cannot be registered.
    #[error("the resource type {0} is built in")]
    BuiltIn(Type),
    /// The data violates the type's schema.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The data of a built-in type is missing, is another message, or is invalid. The text says
    /// which.
    #[error("{0}")]
    Data(String),
    /// The page token is invalid, or belongs to another list.
    #[error("headwater-page-token is not one of this list")]
    PageToken,
    /// The state of the list's first page was compacted, or is of another lineage.
    #[error("the list is too old for another page: its state was compacted; begin again")]
    PageExpired,
    /// Rights have changed since the index that a watch resumes after.
    #[error("rights have changed since that index; begin with a list")]
    ResumeOtherRights,
    /// The list without pages exceeds the size of one answer: the limit, bytes.
    #[error("the list is longer than {0} bytes: ask for it in pages, with headwater-page-size")]
    ListTooLong(usize),
    /// The list that the watch begins with exceeds this limit, bytes.
    #[error("what is watched is more than {0} bytes: ask for less, by units or by a prefix of names")]
    WatchTooLarge(usize),
    /// The resources of an owner exceed the size of one answer: the limit, bytes.
    #[error("what the resource owns is more than {0} bytes: list its types in pages, with headwater-page-size")]
    OwnsTooMuch(usize),
    /// The changes after this index, from which the watch was to resume, were compacted.
    #[error("changes after index {0} are no longer there; begin without headwater-resume-index")]
    ResumeCompacted(LogIndex),
    /// The position from which the watch was to resume is of another lineage.
    #[error("the index is from before the store was restored; begin without headwater-resume-index")]
    ResumeOtherEpoch,
    /// The type was registered again during every attempt of the write.
    #[error("resource type {0} keeps changing; try again")]
    Unsettled(Type),
}

impl From<CloseReason> for ResourceError {
    fn from(reason: CloseReason) -> Self {
        Self::Node(reason.into())
    }
}

impl From<StorageError> for ResourceError {
    fn from(error: StorageError) -> Self {
        Self::Node(error.into())
    }
}

impl From<ResourceRefusal> for ResourceError {
    fn from(refusal: ResourceRefusal) -> Self {
        Self::Node(NodeError::Refused(Refusal::Resource(refusal)))
    }
}
