//! The choice between an error in the header and a status (spec: etcd §7.4, choice C).
//!
//! A refusal of the store is an answer: OK, with the reason in `header.error` and a valid revision.
//! So are too many operations in a transaction, and two writes of one key. A refusal of the
//! principal of a unary call, and every other error (a malformed request, no leader, a deadline),
//! is a gRPC status, as in the modern API. Texts are the modern API's in both places; where the
//! draft allows a request that is refused here, the text continues with advice. A new kind of
//! [`Invalid`] needs a line here.

use tonic::{Code, Status};

use headwater_api_etcd::errors::{Failure, Invalid};
use headwater_api_shared::etcd_texts::refusal;
use headwater_node::NodeError;
use headwater_proto::pb::early as pb;
use headwater_types::Refusal;

/// Text of the refusal of a transaction that writes a key twice. The draft has an example with
/// several operations on one key. Here a key changes at most once in a revision, because watches
/// rely on it.
const DUPLICATE_KEY: &str = "etcdserver: duplicate key given in txn request: a transaction may write a key once; leave out \
                             its other writes, or use several transactions";

/// The beginning of the transport's text about a message that could not be decoded.
const UNDECODABLE: &str = "failed to decode Protobuf message";

/// Turns the transport's `INTERNAL` for an undecodable message into `INVALID_ARGUMENT`; other
/// statuses stay.
pub(crate) fn undecodable(status: Status) -> Status {
    match status.code() == Code::Internal && status.message().starts_with(UNDECODABLE) {
        true => Status::invalid_argument(status.message()),
        false => status,
    }
}

/// The text for `header.error`; `None` if the answer to the failure is a gRPC status.
pub(super) fn in_header(failure: &Failure) -> Option<&'static str> {
    match failure {
        Failure::Node(NodeError::Refused(Refusal::DuplicateKey)) => Some(DUPLICATE_KEY),
        // A refusal of the principal is not an answer of the store: clients expect a status.
        Failure::Node(NodeError::Refused(Refusal::Auth(_))) => None,
        Failure::Node(NodeError::Refused(reason)) => Some(refusal(reason).1),
        // No other error is an answer of the store.
        Failure::Node(_) => None,
        Failure::Invalid(invalid) => match invalid {
            // Rules of the store about one transaction, not about the shape of the message.
            Invalid::TooManyOperations => Some(invalid.wire().1),
            Invalid::DuplicateKey => Some(DUPLICATE_KEY),
            Invalid::EmptyKey
            | Invalid::EmptyOperation
            | Invalid::ValueProvided
            | Invalid::LeaseProvided
            | Invalid::SortOption
            | Invalid::CompareOption
            | Invalid::StreamOrder
            | Invalid::StreamFilter
            | Invalid::MemberUrls
            | Invalid::SeveralMemberUrls
            | Invalid::UnknownAlarm
            | Invalid::UnknownAction
            | Invalid::DowngradeTarget
            | Invalid::DowngradeFormat
            | Invalid::PermissionNotGiven
            | Invalid::PermissionKind
            | Invalid::LeaseReserved => None,
        },
        Failure::Metadata(_) | Failure::Contest(_) | Failure::Mismatch => None,
    }
}

/// A response with an error field in its header.
pub(super) trait HasErrorHeader {
    /// A response with `header`. Its other fields have their default values, except one that
    /// repeats the error.
    fn refused(header: pb::ResponseHeader) -> Self;
}

impl HasErrorHeader for pb::LeaseCreateResponse {
    /// A response with `header`. The error of `header` is also in the response's own `error`.
    fn refused(header: pb::ResponseHeader) -> Self {
        Self { error: header.error.clone(), header: Some(header), ..Self::default() }
    }
}

macro_rules! headed {
    ($($response:ident { $($rest:ident),* }),*) => {
        $(impl HasErrorHeader for pb::$response {
            fn refused(header: pb::ResponseHeader) -> Self {
                Self { header: Some(header), $($rest: Default::default()),* }
            }
        })*
    };
}
headed!(
    RangeResponse { kvs, more },
    PutResponse {},
    DeleteRangeResponse {},
    TxnResponse { succeeded, responses },
    CompactionResponse {},
    LeaseRevokeResponse {},
    LeaseAttachResponse {},
    LeaseTxnResponse { response, attach_responses }
);

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_node::Unanswered;
    use headwater_types::{Refusal, Revision};

    #[test]
    fn the_store_answers_in_the_header() {
        let refused = |refusal| Failure::Node(NodeError::Refused(refusal));
        let table = [
            (
                refused(Refusal::Compacted { compact_revision: Revision(1) }),
                "etcdserver: mvcc: required revision has been compacted",
            ),
            (
                refused(Refusal::FutureRevision { current: Revision(1) }),
                "etcdserver: mvcc: required revision is a future revision",
            ),
            (refused(Refusal::KeyNotFound), "etcdserver: key not found"),
            (refused(Refusal::LeaseNotFound), "etcdserver: requested lease not found"),
            (refused(Refusal::DuplicateKey), DUPLICATE_KEY),
            (
                refused(Refusal::TooMuchRead),
                "headwater: the transaction reads too much: compare and read smaller intervals, or in several transactions",
            ),
            (refused(Refusal::LeaseExists), "etcdserver: lease already exists"),
            (refused(Refusal::LeaseTtlTooLarge), "etcdserver: too large lease TTL"),
            (refused(Refusal::NoSpace), "etcdserver: mvcc: database space exceeded"),
            (refused(Refusal::Corrupt), "etcdserver: corrupt cluster"),
            (Invalid::TooManyOperations.into(), "etcdserver: too many operations in txn request"),
            (Invalid::DuplicateKey.into(), DUPLICATE_KEY),
        ];
        for (failure, text) in table {
            assert_eq!(in_header(&failure), Some(text), "{failure:?}");
        }
    }

    #[test]
    fn everything_else_is_a_status() {
        for invalid in [
            Invalid::EmptyKey,
            Invalid::EmptyOperation,
            Invalid::ValueProvided,
            Invalid::LeaseProvided,
            Invalid::SortOption,
            Invalid::CompareOption,
            Invalid::StreamOrder,
            Invalid::StreamFilter,
            Invalid::UnknownAlarm,
            Invalid::UnknownAction,
            Invalid::DowngradeTarget,
            Invalid::DowngradeFormat,
            Invalid::PermissionNotGiven,
        ] {
            assert_eq!(in_header(&invalid.into()), None, "{invalid:?}");
        }
        for error in [
            NodeError::RequestTooLarge,
            NodeError::TooManyRequests,
            NodeError::NoLeader,
            NodeError::Timeout,
            NodeError::Indeterminate(Unanswered::Timeout),
            NodeError::MinIndexNotReached { wanted: 2.into(), applied: 1.into() },
            NodeError::Stopped,
            NodeError::Storage("gone".into()),
        ] {
            assert_eq!(in_header(&Failure::Node(error.clone())), None, "{error:?}");
        }
        assert_eq!(in_header(&Failure::Mismatch), None);
    }

    #[test]
    fn a_refused_response_holds_nothing_but_its_header() {
        let header = pb::ResponseHeader { error: "no".into(), revision: 4, ..Default::default() };
        let wanted = pb::TxnResponse { header: Some(header.clone()), succeeded: false, responses: vec![] };
        assert_eq!(pb::TxnResponse::refused(header.clone()), wanted);
        let created = pb::LeaseCreateResponse::refused(header.clone());
        assert_eq!((created.error.as_str(), created.header), ("no", Some(header)));
    }
}
