//! Errors that every face can meet: unreadable metadata, errors of the node, closed feeds.
//!
//! Owns the table from kinds of node errors to gRPC codes. A face writes down only the codes that
//! differ on its wire, and passes the other kinds on to [`code`]. Texts in etcd's words are in
//! [`etcd_texts`](super::etcd_texts). No wildcard arms: a new kind needs a line here.

use tonic::{Code, Status};

use headwater_node::{CloseReason, NodeErrorKind};
use headwater_types::AuthRefusal;

/// Metadata of a request that cannot be read (spec: etcd §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidMetadata {
    /// `client-api-version` is not text.
    ClientApiVersion,
    /// `grpc-timeout` is not a timeout.
    Timeout,
    /// `headwater-min-index` is not a log index.
    MinIndex,
}

impl InvalidMetadata {
    /// Code and text on the wire.
    pub fn wire(self) -> (Code, &'static str) {
        let text = match self {
            Self::ClientApiVersion => "etcdserver: invalid client api version",
            Self::Timeout => "headwater: grpc-timeout must be up to eight digits and one of HMSmun",
            Self::MinIndex => "headwater: headwater-min-index must be a decimal log index",
        };
        (Code::InvalidArgument, text)
    }
}

impl From<InvalidMetadata> for Status {
    fn from(invalid: InvalidMetadata) -> Self {
        let (code, text) = invalid.wire();
        Self::new(code, text)
    }
}

/// The gRPC code of a kind of node error. A refusal is `INTERNAL` here: a face with requests that
/// can be refused has a table of its own for refusals.
pub fn code(kind: NodeErrorKind) -> Code {
    match kind {
        NodeErrorKind::Denied => Code::PermissionDenied,
        NodeErrorKind::Unauthenticated => Code::Unauthenticated,
        NodeErrorKind::TooLarge => Code::InvalidArgument,
        NodeErrorKind::Exhausted => Code::ResourceExhausted,
        NodeErrorKind::Timeout => Code::DeadlineExceeded,
        NodeErrorKind::Unavailable
        | NodeErrorKind::Indeterminate
        | NodeErrorKind::NotLeader
        | NodeErrorKind::Stopped => Code::Unavailable,
        NodeErrorKind::Refused | NodeErrorKind::Membership | NodeErrorKind::Internal => Code::Internal,
    }
}

/// The status of a request that is refused for its principal: its credentials, or a missing right.
/// The text does not repeat the request.
pub fn denied(refusal: AuthRefusal) -> Status {
    let code = if refusal.is_unauthenticated() { Code::Unauthenticated } else { Code::PermissionDenied };
    Status::new(code, refusal.to_string())
}

/// The status (`ABORTED`) at the end of a stream that begins with a list, after the rights of its
/// client have changed: the client begins again, and gets the list that its new rights permit.
pub fn rights_changed() -> Status {
    Status::aborted("the rights of this client have changed; begin anew")
}

/// The status at the end of a stream after its feed was closed. `restart` is the code if the
/// client's position cannot be resumed: the client begins with a new list.
pub fn closed(reason: &CloseReason, restart: Code) -> Status {
    let code = match reason {
        CloseReason::Compacted { .. } | CloseReason::EpochChanged | CloseReason::Reset => restart,
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
    fn every_kind_has_its_code() {
        for (kind, code_wanted) in [
            (NodeErrorKind::Refused, Code::Internal),
            (NodeErrorKind::Denied, Code::PermissionDenied),
            (NodeErrorKind::Unauthenticated, Code::Unauthenticated),
            (NodeErrorKind::TooLarge, Code::InvalidArgument),
            (NodeErrorKind::Exhausted, Code::ResourceExhausted),
            (NodeErrorKind::Unavailable, Code::Unavailable),
            (NodeErrorKind::Timeout, Code::DeadlineExceeded),
            (NodeErrorKind::Indeterminate, Code::Unavailable),
            (NodeErrorKind::NotLeader, Code::Unavailable),
            (NodeErrorKind::Membership, Code::Internal),
            (NodeErrorKind::Stopped, Code::Unavailable),
            (NodeErrorKind::Internal, Code::Internal),
        ] {
            assert_eq!(code(kind), code_wanted, "{kind:?}");
        }
    }

    #[test]
    fn a_closed_feed_says_whether_a_stream_can_resume() {
        for (reason, wanted) in [
            (CloseReason::Compacted { revision: Revision(3) }, Code::Aborted),
            (CloseReason::EpochChanged, Code::Aborted),
            (CloseReason::Reset, Code::Aborted),
            (CloseReason::Stopping, Code::Unavailable),
        ] {
            let status = closed(&reason, Code::Aborted);
            assert_eq!((status.code(), status.message()), (wanted, reason.to_string().as_str()));
        }
    }
}
