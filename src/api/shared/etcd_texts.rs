//! Codes and texts of the node's errors as etcd spells them (spec: etcd §6).
//!
//! The v3 API, the early API and the health endpoints share them. Clients match the texts
//! literally, so they are API. No wildcard arms: a new error needs a line here.

use std::borrow::Cow;

use http::HeaderValue;
use tonic::{Code, Status};

use super::context::{HEADWATER_INDETERMINATE, HEADWATER_INDEX, unindexed};
use super::grpc_metrics::code_name;
use headwater_node::{NodeError, Unanswered};
use headwater_types::{AlarmKind, AuthRefusal, MemberRefusal, Refusal, VersionRefusal};

const LEADER_CHANGED: &str = "etcdserver: leader changed";
/// The cancel reason of a new watcher on a stream that has its maximum of watchers already.
pub const TOO_MANY_ON_STREAM: &str = "headwater: too many watchers on this stream: cancel some, or open another stream";
/// The text of a transaction that writes a key twice.
pub const DUPLICATE_KEY: &str = "etcdserver: duplicate key given in txn request";

/// Code and text of a refusal by the state machine.
pub fn refusal(refusal: &Refusal) -> (Code, &'static str) {
    match refusal {
        Refusal::Compacted { compact_revision: _ } => {
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted")
        }
        Refusal::FutureRevision { current: _ } => {
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision")
        }
        Refusal::KeyNotFound => (Code::InvalidArgument, "etcdserver: key not found"),
        Refusal::LeaseNotFound => (Code::NotFound, "etcdserver: requested lease not found"),
        Refusal::DuplicateKey => (Code::InvalidArgument, DUPLICATE_KEY),
        Refusal::TooMuchRead => (
            Code::ResourceExhausted,
            "headwater: the transaction reads too much: compare and read smaller intervals, or in several transactions",
        ),
        Refusal::LeaseExists => (Code::FailedPrecondition, "etcdserver: lease already exists"),
        Refusal::LeaseTtlTooLarge => (Code::OutOfRange, "etcdserver: too large lease TTL"),
        // Only the leader's own lease commands are refused so, never a client's request.
        Refusal::LeaseStale => (Code::Unavailable, LEADER_CHANGED),
        Refusal::NoSpace => (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
        Refusal::Corrupt => (Code::DataLoss, "etcdserver: corrupt cluster"),
        // No request with etcd's texts can cause these.
        Refusal::Resource(_) => (Code::Internal, "etcdserver: refused by a rule of resources"),
        Refusal::Session(_) => (Code::Internal, "etcdserver: refused by a rule of sessions"),
        Refusal::NeedsVersion { .. } => (
            Code::FailedPrecondition,
            "headwater: the cluster's version is too low for this: upgrade all members first",
        ),
        Refusal::Invitation(_) => (Code::Internal, "etcdserver: refused by a rule of invitations"),
        Refusal::Version(VersionRefusal::Target) => {
            (Code::InvalidArgument, "etcdserver: invalid downgrade target version")
        }
        Refusal::Version(VersionRefusal::Downgrading) => {
            (Code::FailedPrecondition, "etcdserver: cluster has a downgrade job in progress")
        }
        Refusal::Version(VersionRefusal::NotDowngrading) => {
            (Code::FailedPrecondition, "etcdserver: no inflight downgrade job")
        }
        Refusal::Version(VersionRefusal::Stale) => (Code::Unavailable, LEADER_CHANGED),
        Refusal::Version(VersionRefusal::Guarded) => (
            Code::FailedPrecondition,
            "headwater: there are users and roles, which older versions do not have: remove them by a restore",
        ),
        Refusal::Auth(refusal) => auth(*refusal),
        Refusal::Acl(_) => (Code::Internal, "etcdserver: refused by a rule of access control lists"),
        Refusal::Catalog(_) => (Code::Internal, "etcdserver: refused by a rule of the catalog"),
    }
}

/// Code and text of a refused request, or of a refused change of users and roles.
pub fn auth(refusal: AuthRefusal) -> (Code, &'static str) {
    use AuthRefusal as R;
    match refusal {
        R::PermissionDenied => (Code::PermissionDenied, "etcdserver: permission denied"),
        R::UserEmpty => (Code::InvalidArgument, "etcdserver: user name is empty"),
        R::OldRevision => (Code::InvalidArgument, "etcdserver: revision of auth store is old"),
        R::InvalidToken => (Code::Unauthenticated, "etcdserver: invalid auth token"),
        R::Failed => (Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password"),
        R::NotEnabled => (Code::FailedPrecondition, "etcdserver: authentication is not enabled"),
        R::RootUserNotExist => (Code::FailedPrecondition, "etcdserver: root user does not exist"),
        R::RootRoleNotExist => (Code::FailedPrecondition, "etcdserver: root user does not have root role"),
        R::UserExists => (Code::FailedPrecondition, "etcdserver: user name already exists"),
        R::UserNotFound => (Code::FailedPrecondition, "etcdserver: user name not found"),
        R::RoleEmpty => (Code::InvalidArgument, "etcdserver: role name is empty"),
        R::RoleExists => (Code::FailedPrecondition, "etcdserver: role name already exists"),
        R::RoleNotFound => (Code::FailedPrecondition, "etcdserver: role name not found"),
        R::RoleNotGranted => (Code::FailedPrecondition, "etcdserver: role is not granted to the user"),
        R::PermissionNotGranted => (Code::FailedPrecondition, "etcdserver: permission is not granted to the role"),
        R::PermissionNotGiven => (Code::InvalidArgument, "etcdserver: permission not given"),
        R::InvalidManagement => (Code::InvalidArgument, "etcdserver: invalid auth management"),
        R::NoPasswordUser => (Code::Unknown, "auth: authentication failed, password was given for no password user"),
    }
}

/// A status in the form in which Go's clients print it. etcd gives the cancel reason of a refused
/// watch in this form.
pub fn as_go_prints((code, text): (Code, &str)) -> String {
    format!("rpc error: code = {} desc = {text}", code_name(code))
}

/// Code and text of a refused change of the membership.
fn membership(refusal: MemberRefusal) -> (Code, &'static str) {
    match refusal {
        MemberRefusal::NotFound => (Code::NotFound, "etcdserver: member not found"),
        MemberRefusal::PeerUrlExists => (Code::FailedPrecondition, "etcdserver: Peer URLs already exists"),
        MemberRefusal::NotLearner => (Code::FailedPrecondition, "etcdserver: can only promote a learner member"),
        MemberRefusal::LearnerNotReady => {
            (Code::FailedPrecondition, "etcdserver: can only promote a learner member which is in sync with leader")
        }
        MemberRefusal::NotEnoughStarted => {
            (Code::FailedPrecondition, "etcdserver: re-configuration failed due to not enough started members")
        }
        MemberRefusal::Unhealthy => (Code::Unavailable, "etcdserver: unhealthy cluster"),
        MemberRefusal::TooManyLearners => (Code::FailedPrecondition, "etcdserver: too many learner members in cluster"),
        MemberRefusal::TooManyVoters => {
            (Code::FailedPrecondition, "headwater: too many voting members in cluster; add a learner instead")
        }
        MemberRefusal::Version => (
            Code::FailedPrecondition,
            "headwater: the node's program does not support the cluster's version (headwater version shows it)",
        ),
        // Only nodes that join are refused so, on the peer port.
        MemberRefusal::Uninvited | MemberRefusal::InvitationUnknown | MemberRefusal::InvitationUsedUp => {
            (Code::PermissionDenied, "headwater: the node needs an invitation (headwater member invite)")
        }
        MemberRefusal::StillRuns => (
            Code::FailedPrecondition,
            "headwater: the member with that peer URL still runs; stop it first, or use another URL",
        ),
    }
}

/// Code and text of an error of the node.
pub fn node_error(error: &NodeError) -> (Code, Cow<'static, str>) {
    let (code, text) = match error {
        NodeError::Refused(reason) => refusal(reason),
        NodeError::RequestTooLarge => (Code::InvalidArgument, "etcdserver: request is too large"),
        NodeError::TooManyRequests => (Code::ResourceExhausted, "etcdserver: too many requests"),
        NodeError::TooManyWatchers => return (Code::ResourceExhausted, format!("headwater: {error}").into()),
        NodeError::AnswersUnread => return (Code::ResourceExhausted, format!("headwater: {error}").into()),
        NodeError::NoLeader => (Code::Unavailable, "etcdserver: no leader"),
        NodeError::Timeout | NodeError::Indeterminate(Unanswered::Timeout) => {
            (Code::Unavailable, "etcdserver: request timed out")
        }
        NodeError::Indeterminate(Unanswered::LeaderFailed) => {
            (Code::Unavailable, "etcdserver: request timed out, possibly due to previous leader failure")
        }
        NodeError::Indeterminate(Unanswered::ConnectionLost) => {
            (Code::Unavailable, "etcdserver: request timed out, possibly due to connection lost")
        }
        NodeError::MinIndexNotReached { wanted: _, applied: _ } => {
            (Code::Unavailable, "etcdserver: request timed out, waiting for the applied index took too long")
        }
        NodeError::Membership(refusal) => membership(*refusal),
        NodeError::NotLeader => (Code::FailedPrecondition, "etcdserver: not leader"),
        NodeError::BadTransferee => (Code::FailedPrecondition, "etcdserver: bad leader transferee"),
        NodeError::TransferTimeout => (Code::Unknown, "etcdserver: request timed out, leader transfer took too long"),
        NodeError::CannotSign => (Code::Unknown, "auth: token signing attempted with verify-only key"),
        NodeError::Removed => (Code::Unavailable, "headwater: this member was removed from the cluster, ask another"),
        NodeError::Stopped => (Code::Unavailable, "etcdserver: server stopped"),
        NodeError::Unreadable(detail) => {
            let text =
                format!("headwater: the leader cannot read this member's command, do both run one version? {detail}");
            return (Code::Internal, text.into());
        }
        NodeError::Storage(detail) => {
            let text = format!("headwater: this member's storage failed and it is stopping, ask another: {detail}");
            return (Code::Unavailable, text.into());
        }
    };
    (code, text.into())
}

/// The status of an error of the node. It marks an indeterminate write
/// ([`HEADWATER_INDETERMINATE`]); the error for a minimum index that was not reached has the
/// applied index ([`HEADWATER_INDEX`]).
pub fn node_status(error: &NodeError) -> Status {
    let (code, text) = node_error(error);
    let mut status = Status::new(code, text);
    let metadata = status.metadata_mut().as_mut();
    if let NodeError::Indeterminate(_) = error {
        metadata.insert(HEADWATER_INDETERMINATE, HeaderValue::from_static("true"));
    }
    if let NodeError::MinIndexNotReached { wanted: _, applied } = error {
        metadata.insert(HEADWATER_INDEX, unindexed(applied.get()));
    }
    status
}

/// The name of an alarm in etcd.
pub fn alarm_name(kind: AlarmKind) -> &'static str {
    match kind {
        AlarmKind::NoSpace => "NOSPACE",
        AlarmKind::Corrupt => "CORRUPT",
    }
}
