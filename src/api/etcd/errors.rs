//! The table from failures of etcd's API to gRPC codes and texts (spec: etcd §6). Errors of the
//! node have theirs in [`etcd_texts`].
//!
//! Clients match the texts literally, so they are API. No wildcard arms: a new failure needs a line
//! here.

use std::borrow::Cow;

use tonic::{Code, Status};

use headwater_api_shared::errors::InvalidMetadata;
use headwater_api_shared::etcd_texts::{self, DUPLICATE_KEY};
use headwater_api_shared::stream::StreamEnd;
use headwater_node::{InvalidTxn, NodeError};

/// The failure of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request is malformed. The node was not asked.
    Invalid(Invalid),
    /// The metadata is unreadable.
    Metadata(InvalidMetadata),
    /// The node refused the request, or could not carry it out.
    Node(NodeError),
    /// A rule of locks or elections refuses the request.
    Contest(Contest),
    /// The node's answer does not fit the request: a bug.
    Mismatch,
}

/// The reason why a request about a lock or an election failed (spec: etcd §4.4, §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contest {
    /// The contender's key was removed while it waited for the lock, usually because its lease
    /// ended.
    SessionExpired,
    /// The client does not lead: its key was removed, or removed and created again.
    NotLeader,
    /// The election has no leader.
    NoLeader,
    /// The field `leader` of the request is missing.
    LeaderMissing,
    /// The client's deadline passed before it got the lock or the leadership.
    OutOfTime,
}

impl From<Contest> for Failure {
    fn from(contest: Contest) -> Self {
        Self::Contest(contest)
    }
}

impl Contest {
    /// Code and text on the wire.
    pub fn wire(self) -> (Code, &'static str) {
        match self {
            Self::SessionExpired => (Code::Unknown, "mutex: session is expired"),
            Self::NotLeader => (Code::Unknown, "election: not leader"),
            Self::NoLeader => (Code::Unknown, "election: no leader"),
            Self::LeaderMissing => (Code::Unknown, "\"leader\" field must be provided"),
            Self::OutOfTime => (Code::DeadlineExceeded, "context deadline exceeded"),
        }
    }
}

/// The defect of a malformed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// A key is empty.
    EmptyKey,
    /// An operation of a transaction is missing, or of an unknown kind.
    EmptyOperation,
    /// A put has `ignore_value` and a value.
    ValueProvided,
    /// A put has `ignore_lease` and a lease.
    LeaseProvided,
    /// A list of a transaction is too long, or a transaction has too many compares and operations
    /// in all.
    TooManyOperations,
    /// A transaction could change a key twice.
    DuplicateKey,
    /// Sort order or target is unknown.
    SortOption,
    /// Result or target of a compare is unknown.
    CompareOption,
    /// A streamed range has an explicit order other than ascending by key.
    StreamOrder,
    /// A streamed range has bounds on revisions.
    StreamFilter,
    /// A member is given no URL, or one that is not `http://host:port`.
    MemberUrls,
    /// A member is given several URLs.
    SeveralMemberUrls,
    /// The kind of an alarm is unknown or missing.
    UnknownAlarm,
    /// The action of a request about alarms or downgrades is unknown.
    UnknownAction,
    /// The target of a downgrade is a version that Headwater cannot have.
    DowngradeTarget,
    /// The target of a downgrade is not the text of a version.
    DowngradeFormat,
    /// A grant without a permission.
    PermissionNotGiven,
    /// The kind of a permission is unknown.
    PermissionKind,
    /// The id of a lease is in the range that is reserved for the store.
    LeaseReserved,
}

impl From<InvalidTxn> for Invalid {
    fn from(invalid: InvalidTxn) -> Self {
        match invalid {
            InvalidTxn::TooManyOps => Self::TooManyOperations,
            InvalidTxn::EmptyKey => Self::EmptyKey,
            InvalidTxn::DuplicateKey => Self::DuplicateKey,
        }
    }
}

impl From<InvalidMetadata> for Failure {
    fn from(invalid: InvalidMetadata) -> Self {
        Self::Metadata(invalid)
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        Self::Node(error)
    }
}

impl Failure {
    /// Code and text on the wire.
    pub fn wire(&self) -> (Code, Cow<'static, str>) {
        match self {
            Self::Invalid(invalid) => {
                let (code, text) = invalid.wire();
                (code, text.into())
            }
            Self::Metadata(invalid) => {
                let (code, text) = invalid.wire();
                (code, text.into())
            }
            Self::Node(error) => etcd_texts::node_error(error),
            Self::Contest(contest) => {
                let (code, text) = contest.wire();
                (code, text.into())
            }
            Self::Mismatch => {
                (Code::Internal, "headwater: the outcome is not of the request's kind; report this".into())
            }
        }
    }
}

impl Invalid {
    /// Code and text on the wire.
    pub fn wire(self) -> (Code, &'static str) {
        match self {
            Self::EmptyKey => (Code::InvalidArgument, "etcdserver: key is not provided"),
            Self::EmptyOperation => (Code::InvalidArgument, "etcdserver: key not found"),
            Self::ValueProvided => (Code::InvalidArgument, "etcdserver: value is provided"),
            Self::LeaseProvided => (Code::InvalidArgument, "etcdserver: lease is provided"),
            Self::TooManyOperations => (Code::InvalidArgument, "etcdserver: too many operations in txn request"),
            Self::DuplicateKey => (Code::InvalidArgument, DUPLICATE_KEY),
            Self::SortOption => (Code::InvalidArgument, "etcdserver: invalid sort option"),
            Self::CompareOption => {
                (Code::InvalidArgument, "headwater: result or target of a compare is not a known one")
            }
            Self::StreamOrder => (Code::Unimplemented, "RangeStream does not support custom sort orders"),
            Self::StreamFilter => (Code::Unimplemented, "RangeStream does not support revision filters"),
            Self::MemberUrls => (Code::InvalidArgument, "etcdserver: given member URLs are invalid"),
            Self::SeveralMemberUrls => {
                (Code::InvalidArgument, "headwater: a member has one peer URL; a host name may have several addresses")
            }
            Self::UnknownAlarm => (Code::InvalidArgument, "headwater: the alarm must be NOSPACE or CORRUPT"),
            Self::UnknownAction => (Code::InvalidArgument, "headwater: the action is none of the known ones"),
            Self::DowngradeTarget => (Code::InvalidArgument, "etcdserver: invalid downgrade target version"),
            Self::DowngradeFormat => (Code::InvalidArgument, "etcdserver: wrong downgrade target version format"),
            Self::PermissionNotGiven => (Code::InvalidArgument, "etcdserver: permission not given"),
            Self::PermissionKind => {
                (Code::InvalidArgument, "headwater: the permission must be READ, WRITE or READWRITE")
            }
            Self::LeaseReserved => (
                Code::InvalidArgument,
                "headwater: lease ids below -4611686018427387904 are reserved: choose a larger one, or 0 to be given one",
            ),
        }
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        match &failure {
            Failure::Node(error) => etcd_texts::node_status(error),
            Failure::Invalid(_) | Failure::Metadata(_) | Failure::Contest(_) | Failure::Mismatch => {
                let (code, text) = failure.wire();
                Self::new(code, text)
            }
        }
    }
}

/// The status with which a stream ends, by the reason of its end.
pub fn stream_ended(end: StreamEnd) -> Status {
    match end {
        StreamEnd::Closed(reason) => etcd_texts::node_status(&reason.into()),
        StreamEnd::Expired => Failure::Contest(Contest::OutOfTime).into(),
        StreamEnd::LeaderLost => etcd_texts::node_status(&NodeError::NoLeader),
        StreamEnd::Failed(error) => etcd_texts::node_status(&error),
        StreamEnd::BadRequest(status) => status,
        StreamEnd::RightsChanged(refusal) => {
            etcd_texts::node_status(&NodeError::Refused(headwater_types::Refusal::Auth(refusal)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_node::Unanswered;
    use headwater_types::{AuthRefusal, LogIndex, MemberRefusal, Refusal, Revision};

    #[test]
    fn every_failure_has_its_code_and_text() {
        let refused = |refusal| Failure::Node(NodeError::Refused(refusal));
        let member = |refusal: MemberRefusal| Failure::Node(NodeError::Membership(refusal));
        let unanswered = |why| Failure::Node(NodeError::Indeterminate(why));
        let invalid = Failure::Invalid;
        let auth = |refusal| Failure::Node(NodeError::Refused(Refusal::Auth(refusal)));
        let table = [
            (invalid(Invalid::EmptyKey), 3, "etcdserver: key is not provided"),
            (invalid(Invalid::EmptyOperation), 3, "etcdserver: key not found"),
            (invalid(Invalid::ValueProvided), 3, "etcdserver: value is provided"),
            (invalid(Invalid::LeaseProvided), 3, "etcdserver: lease is provided"),
            (invalid(Invalid::TooManyOperations), 3, "etcdserver: too many operations in txn request"),
            (invalid(Invalid::DuplicateKey), 3, "etcdserver: duplicate key given in txn request"),
            (invalid(Invalid::SortOption), 3, "etcdserver: invalid sort option"),
            (invalid(Invalid::CompareOption), 3, "headwater: result or target of a compare is not a known one"),
            (invalid(Invalid::StreamOrder), 12, "RangeStream does not support custom sort orders"),
            (invalid(Invalid::StreamFilter), 12, "RangeStream does not support revision filters"),
            (Failure::Metadata(InvalidMetadata::ClientApiVersion), 3, "etcdserver: invalid client api version"),
            (
                Failure::Metadata(InvalidMetadata::Timeout),
                3,
                "headwater: grpc-timeout must be up to eight digits and one of HMSmun",
            ),
            (
                Failure::Metadata(InvalidMetadata::MinIndex),
                3,
                "headwater: headwater-min-index must be a decimal log index",
            ),
            (invalid(Invalid::UnknownAlarm), 3, "headwater: the alarm must be NOSPACE or CORRUPT"),
            (invalid(Invalid::UnknownAction), 3, "headwater: the action is none of the known ones"),
            (invalid(Invalid::DowngradeTarget), 3, "etcdserver: invalid downgrade target version"),
            (invalid(Invalid::DowngradeFormat), 3, "etcdserver: wrong downgrade target version format"),
            (invalid(Invalid::PermissionNotGiven), 3, "etcdserver: permission not given"),
            (invalid(Invalid::PermissionKind), 3, "headwater: the permission must be READ, WRITE or READWRITE"),
            (auth(AuthRefusal::PermissionDenied), 7, "etcdserver: permission denied"),
            (auth(AuthRefusal::UserEmpty), 3, "etcdserver: user name is empty"),
            (auth(AuthRefusal::OldRevision), 3, "etcdserver: revision of auth store is old"),
            (auth(AuthRefusal::InvalidToken), 16, "etcdserver: invalid auth token"),
            (auth(AuthRefusal::Failed), 3, "etcdserver: authentication failed, invalid user ID or password"),
            (auth(AuthRefusal::NotEnabled), 9, "etcdserver: authentication is not enabled"),
            (auth(AuthRefusal::RootUserNotExist), 9, "etcdserver: root user does not exist"),
            (auth(AuthRefusal::RootRoleNotExist), 9, "etcdserver: root user does not have root role"),
            (auth(AuthRefusal::UserExists), 9, "etcdserver: user name already exists"),
            (auth(AuthRefusal::UserNotFound), 9, "etcdserver: user name not found"),
            (auth(AuthRefusal::RoleEmpty), 3, "etcdserver: role name is empty"),
            (auth(AuthRefusal::RoleExists), 9, "etcdserver: role name already exists"),
            (auth(AuthRefusal::RoleNotFound), 9, "etcdserver: role name not found"),
            (auth(AuthRefusal::RoleNotGranted), 9, "etcdserver: role is not granted to the user"),
            (auth(AuthRefusal::PermissionNotGranted), 9, "etcdserver: permission is not granted to the role"),
            (auth(AuthRefusal::PermissionNotGiven), 3, "etcdserver: permission not given"),
            (auth(AuthRefusal::InvalidManagement), 3, "etcdserver: invalid auth management"),
            (
                auth(AuthRefusal::NoPasswordUser),
                2,
                "auth: authentication failed, password was given for no password user",
            ),
            (
                refused(Refusal::Compacted { compact_revision: Revision(4) }),
                11,
                "etcdserver: mvcc: required revision has been compacted",
            ),
            (
                refused(Refusal::FutureRevision { current: Revision(4) }),
                11,
                "etcdserver: mvcc: required revision is a future revision",
            ),
            (refused(Refusal::KeyNotFound), 3, "etcdserver: key not found"),
            (refused(Refusal::LeaseNotFound), 5, "etcdserver: requested lease not found"),
            (refused(Refusal::DuplicateKey), 3, "etcdserver: duplicate key given in txn request"),
            (
                refused(Refusal::TooMuchRead),
                8,
                "headwater: the transaction reads too much: compare and read smaller intervals, or in several transactions",
            ),
            (refused(Refusal::LeaseExists), 9, "etcdserver: lease already exists"),
            (refused(Refusal::LeaseTtlTooLarge), 11, "etcdserver: too large lease TTL"),
            (refused(Refusal::LeaseStale), 14, "etcdserver: leader changed"),
            (refused(Refusal::NoSpace), 8, "etcdserver: mvcc: database space exceeded"),
            (refused(Refusal::Corrupt), 15, "etcdserver: corrupt cluster"),
            (NodeError::RequestTooLarge.into(), 3, "etcdserver: request is too large"),
            (NodeError::TooManyRequests.into(), 8, "etcdserver: too many requests"),
            (NodeError::NoLeader.into(), 14, "etcdserver: no leader"),
            (NodeError::Timeout.into(), 14, "etcdserver: request timed out"),
            (unanswered(Unanswered::Timeout), 14, "etcdserver: request timed out"),
            (
                unanswered(Unanswered::LeaderFailed),
                14,
                "etcdserver: request timed out, possibly due to previous leader failure",
            ),
            (
                unanswered(Unanswered::ConnectionLost),
                14,
                "etcdserver: request timed out, possibly due to connection lost",
            ),
            (
                NodeError::MinIndexNotReached { wanted: LogIndex(9), applied: LogIndex(7) }.into(),
                14,
                "etcdserver: request timed out, waiting for the applied index took too long",
            ),
            (member(MemberRefusal::NotFound), 5, "etcdserver: member not found"),
            (member(MemberRefusal::PeerUrlExists), 9, "etcdserver: Peer URLs already exists"),
            (member(MemberRefusal::NotLearner), 9, "etcdserver: can only promote a learner member"),
            (
                member(MemberRefusal::LearnerNotReady),
                9,
                "etcdserver: can only promote a learner member which is in sync with leader",
            ),
            (
                member(MemberRefusal::NotEnoughStarted),
                9,
                "etcdserver: re-configuration failed due to not enough started members",
            ),
            (member(MemberRefusal::Unhealthy), 14, "etcdserver: unhealthy cluster"),
            (member(MemberRefusal::Uninvited), 7, "headwater: the node needs an invitation (headwater member invite)"),
            (member(MemberRefusal::TooManyLearners), 9, "etcdserver: too many learner members in cluster"),
            (
                member(MemberRefusal::TooManyVoters),
                9,
                "headwater: too many voting members in cluster; add a learner instead",
            ),
            (
                member(MemberRefusal::StillRuns),
                9,
                "headwater: the member with that peer URL still runs; stop it first, or use another URL",
            ),
            (invalid(Invalid::MemberUrls), 3, "etcdserver: given member URLs are invalid"),
            (
                invalid(Invalid::SeveralMemberUrls),
                3,
                "headwater: a member has one peer URL; a host name may have several addresses",
            ),
            (NodeError::NotLeader.into(), 9, "etcdserver: not leader"),
            (NodeError::BadTransferee.into(), 9, "etcdserver: bad leader transferee"),
            (NodeError::TransferTimeout.into(), 2, "etcdserver: request timed out, leader transfer took too long"),
            (NodeError::CannotSign.into(), 2, "auth: token signing attempted with verify-only key"),
            (NodeError::Removed.into(), 14, "headwater: this member was removed from the cluster, ask another"),
            (NodeError::Stopped.into(), 14, "etcdserver: server stopped"),
            (
                NodeError::Unreadable("Put.lease is missing".into()).into(),
                13,
                "headwater: the leader cannot read this member's command, do both run one version? Put.lease is missing",
            ),
            (
                NodeError::Storage("disk full".into()).into(),
                14,
                "headwater: this member's storage failed and it is stopping, ask another: disk full",
            ),
            (Contest::SessionExpired.into(), 2, "mutex: session is expired"),
            (Contest::NotLeader.into(), 2, "election: not leader"),
            (Contest::NoLeader.into(), 2, "election: no leader"),
            (Contest::LeaderMissing.into(), 2, "\"leader\" field must be provided"),
            (Contest::OutOfTime.into(), 4, "context deadline exceeded"),
            (Failure::Mismatch, 13, "headwater: the outcome is not of the request's kind; report this"),
        ];
        for (failure, code, text) in table {
            let status = Status::from(failure.clone());
            assert_eq!((status.code() as i32, status.message()), (code, text), "{failure:?}");
        }
    }

    #[test]
    fn only_an_unanswered_write_says_that_it_may_have_taken_effect() {
        let says =
            |error: NodeError| Status::from(Failure::Node(error)).metadata().get("headwater-indeterminate").is_some();
        assert!(says(NodeError::Indeterminate(Unanswered::Timeout)));
        assert!(!says(NodeError::Timeout));
        assert!(!says(NodeError::TooManyRequests));
    }

    #[test]
    fn an_unreached_index_comes_with_the_one_that_was_reached() {
        let error = NodeError::MinIndexNotReached { wanted: LogIndex(9), applied: LogIndex(7) };
        assert_eq!(Status::from(Failure::Node(error)).metadata().get("headwater-index").unwrap(), "7");
    }
}
