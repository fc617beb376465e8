//! The one table from the errors of a commit to gRPC codes and texts.
//!
//! An error about an operation has the code and the text of its face, behind the number of the
//! operation. A new kind of fault or refusal needs a line here.

use http::{HeaderName, HeaderValue};
use tonic::{Code, Status};

use headwater_api_resource::errors as resource;
use headwater_api_shared::etcd_texts;
use headwater_node::{CommitError, CommitPart, NodeError, OperationError};
use headwater_types::catalog::CatalogRefusal;
use headwater_types::commit::{CommitFault, CommitOpFault, ConditionFault};
use headwater_types::consul::{SessionRefusal, TxnFaultReason};
use headwater_types::{AuthRefusal, Refusal};

/// On an error about a condition: its number, from 0.
const HEADWATER_CONDITION: HeaderName = HeaderName::from_static("headwater-condition");
/// On an error about an operation: its number, from 0.
const HEADWATER_OPERATION: HeaderName = HeaderName::from_static("headwater-operation");
/// On the error for a condition that does not hold: the log index of the newest change that it
/// looked at; zero if there is none, and for a key to compare.
const HEADWATER_CHANGED: HeaderName = HeaderName::from_static("headwater-changed-index");

/// Names the condition that a status is about.
pub(super) fn name_condition(status: &mut Status, number: u32) {
    status.metadata_mut().as_mut().insert(HEADWATER_CONDITION, HeaderValue::from(number));
}

/// Names the operation that a status is about.
pub(super) fn name_operation(status: &mut Status, number: u32) {
    status.metadata_mut().as_mut().insert(HEADWATER_OPERATION, HeaderValue::from(number));
}

/// The gRPC status of a failed commit. It names the condition or operation that is at fault, if one
/// is.
pub(super) fn status(error: &CommitError) -> Status {
    match error {
        CommitError::Node(error) => node(error),
        CommitError::Operation { operation, error } => {
            let (code, text) = of_operation(error);
            let mut status = Status::new(code, format!("operations[{operation}]: {text}"));
            name_operation(&mut status, *operation);
            status
        }
        CommitError::Denied(part) => {
            let (code, text) = etcd_texts::refusal(&Refusal::Auth(AuthRefusal::PermissionDenied));
            let mut status = Status::new(code, format!("{part}: {text}"));
            match *part {
                CommitPart::Condition(number) => name_condition(&mut status, number),
                CommitPart::Operation(number) => name_operation(&mut status, number),
            }
            status
        }
        CommitError::Failed(fault) => failed(*fault),
    }
}

fn of_operation(error: &OperationError) -> (Code, String) {
    match error {
        OperationError::Resource(error) => {
            let status = resource::status(error);
            (status.code(), status.message().to_owned())
        }
        OperationError::Catalog(problem) => (Code::InvalidArgument, problem.to_string()),
        OperationError::Read => (Code::InvalidArgument, error.to_string()),
    }
}

/// The status of a commit over `max-request-bytes`, also if its message is too large to be read.
pub(crate) fn too_large() -> Status {
    Status::invalid_argument("the commit is too large (max-request-bytes): make several commits, or smaller values")
}

fn node(error: &NodeError) -> Status {
    match error {
        NodeError::RequestTooLarge => too_large(),
        error => etcd_texts::node_status(error),
    }
}

fn failed(fault: CommitFault) -> Status {
    match fault {
        CommitFault::Condition { condition, reason } => {
            let code = match reason {
                ConditionFault::Failed { .. } | ConditionFault::Compacted { .. } | ConditionFault::OtherEpoch => {
                    Code::FailedPrecondition
                }
                ConditionFault::Future { .. } => Code::OutOfRange,
                ConditionFault::TooMuchRead => Code::ResourceExhausted,
            };
            let mut status = Status::new(code, fault.to_string());
            name_condition(&mut status, condition);
            if let ConditionFault::Failed { changed } = reason {
                status.metadata_mut().as_mut().insert(HEADWATER_CHANGED, HeaderValue::from(changed.get()));
            }
            status
        }
        CommitFault::Operation { operation, reason } => {
            let (code, text) = match reason {
                CommitOpFault::Refused(refusal) => refused(refusal),
                CommitOpFault::Kv(reason) => (kv_code(reason), reason.to_string()),
            };
            let mut status = Status::new(code, format!("operations[{operation}]: {text}"));
            name_operation(&mut status, operation);
            status
        }
        CommitFault::SameEntity { second, .. } => {
            let mut status = Status::invalid_argument(fault.to_string());
            name_operation(&mut status, second);
            status
        }
        CommitFault::OtherBody => Status::new(Code::AlreadyExists, fault.to_string()),
        CommitFault::TooManyKeys => Status::resource_exhausted(fault.to_string()),
    }
}

/// Code and text of the refusal of an operation, as in the API that the operation belongs to.
fn refused(refusal: Refusal) -> (Code, String) {
    match refusal {
        Refusal::Resource(refusal) => (resource::refusal_code(refusal), refusal.to_string()),
        Refusal::Session(refusal) => (session_code(refusal), refusal.to_string()),
        Refusal::Catalog(refusal) => (catalog_code(refusal), refusal.to_string()),
        Refusal::Compacted { .. }
        | Refusal::FutureRevision { .. }
        | Refusal::KeyNotFound
        | Refusal::LeaseNotFound
        | Refusal::DuplicateKey
        | Refusal::TooMuchRead
        | Refusal::LeaseExists
        | Refusal::LeaseTtlTooLarge
        | Refusal::LeaseStale
        | Refusal::NoSpace
        | Refusal::Corrupt
        | Refusal::NeedsVersion { .. }
        | Refusal::Version(_)
        | Refusal::Invitation(_)
        | Refusal::Auth(_)
        | Refusal::Acl(_) => {
            let (code, text) = etcd_texts::refusal(&refusal);
            (code, text.to_owned())
        }
    }
}

fn session_code(refusal: SessionRefusal) -> Code {
    match refusal {
        SessionRefusal::Missing => Code::InvalidArgument,
        SessionRefusal::Exists => Code::AlreadyExists,
        SessionRefusal::Invalid | SessionRefusal::NodeUnknown | SessionRefusal::CheckUnknown => Code::NotFound,
        SessionRefusal::CheckCritical => Code::FailedPrecondition,
    }
}

fn catalog_code(refusal: CatalogRefusal) -> Code {
    match refusal {
        CatalogRefusal::CheckOfOtherNode => Code::InvalidArgument,
        CatalogRefusal::MissingNode | CatalogRefusal::MissingService => Code::NotFound,
        CatalogRefusal::NodeNameReserved | CatalogRefusal::Stale => Code::FailedPrecondition,
    }
}

fn kv_code(reason: TxnFaultReason) -> Code {
    match reason {
        TxnFaultReason::Session(refusal) => session_code(refusal),
        TxnFaultReason::Catalog(refusal) => catalog_code(refusal),
        TxnFaultReason::Absent | TxnFaultReason::RowAbsent => Code::NotFound,
        TxnFaultReason::Stale
        | TxnFaultReason::Held
        | TxnFaultReason::NotHeld
        | TxnFaultReason::Delayed
        | TxnFaultReason::Present => Code::FailedPrecondition,
        TxnFaultReason::ResultTooLarge => Code::ResourceExhausted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_node::{ResourceError, Unanswered};
    use headwater_types::LogIndex;
    use headwater_types::catalog::RegistrationProblem;
    use headwater_types::resource::ResourceRefusal;

    #[test]
    fn every_failure_has_its_code_and_names_its_part() {
        let condition = |reason| CommitFault::Condition { condition: 2, reason }.into();
        let refused =
            |refusal: Refusal| CommitFault::Operation { operation: 3, reason: CommitOpFault::Refused(refusal) }.into();
        let kv = |reason| CommitFault::Operation { operation: 3, reason: CommitOpFault::Kv(reason) }.into();
        let early = |error: OperationError| CommitError::Operation { operation: 3, error: Box::new(error) };
        let cases: Vec<(CommitError, Code, &str)> = vec![
            (condition(ConditionFault::Failed { changed: LogIndex(7) }), Code::FailedPrecondition, "conditions[2]: it"),
            (
                condition(ConditionFault::Compacted { oldest: LogIndex(7) }),
                Code::FailedPrecondition,
                "only those after 7: read again",
            ),
            (condition(ConditionFault::Future { newest: LogIndex(7) }), Code::OutOfRange, "at 7"),
            (condition(ConditionFault::OtherEpoch), Code::FailedPrecondition, "restored"),
            (condition(ConditionFault::TooMuchRead), Code::ResourceExhausted, "smaller targets"),
            (refused(Refusal::LeaseNotFound), Code::NotFound, "operations[3]: etcdserver: requested lease not found"),
            (refused(ResourceRefusal::VersionMismatch.into()), Code::Aborted, "operations[3]: CAS operation failed"),
            (refused(CatalogRefusal::MissingNode.into()), Code::NotFound, "operations[3]: Missing node"),
            (refused(SessionRefusal::CheckCritical.into()), Code::FailedPrecondition, "critical"),
            (kv(TxnFaultReason::Held), Code::FailedPrecondition, "operations[3]: lock is already held"),
            (
                CommitFault::SameEntity { first: 1, second: 3 }.into(),
                Code::InvalidArgument,
                "operations[1] and operations[3] change the same entity",
            ),
            (CommitFault::OtherBody.into(), Code::AlreadyExists, "choose a new key"),
            (CommitFault::TooManyKeys.into(), Code::ResourceExhausted, "without a key"),
            (early(RegistrationProblem::NoNode.into()), Code::InvalidArgument, "operations[3]: Must provide node"),
            (early(ResourceError::PageToken.into()), Code::InvalidArgument, "operations[3]: "),
            (early(OperationError::Read), Code::InvalidArgument, "Store.Read"),
            (
                CommitError::Denied(CommitPart::Operation(3)),
                Code::PermissionDenied,
                "operations[3]: etcdserver: permission denied",
            ),
            (
                CommitError::Denied(CommitPart::Condition(2)),
                Code::PermissionDenied,
                "conditions[2]: etcdserver: permission denied",
            ),
            (NodeError::RequestTooLarge.into(), Code::InvalidArgument, "max-request-bytes"),
            (NodeError::Indeterminate(Unanswered::Timeout).into(), Code::Unavailable, "timed out"),
        ];
        for (error, code, text) in cases {
            let status = status(&error);
            assert_eq!(status.code(), code, "{error:?}");
            assert!(status.message().contains(text), "{status:?}");
            let number =
                |name: &HeaderName| status.metadata().as_ref().get(name).map(|it| it.to_str().unwrap().to_owned());
            let has = |text: &str| status.message().starts_with(text);
            assert_eq!(number(&HEADWATER_OPERATION).is_some(), has("operations["), "{status:?}");
            assert_eq!(number(&HEADWATER_CONDITION).is_some(), has("conditions["), "{status:?}");
        }
        let failed = status(&condition(ConditionFault::Failed { changed: LogIndex(7) }));
        assert_eq!(failed.metadata().as_ref()[HEADWATER_CHANGED], "7");
    }
}
