//! Meaning of a status for the request: may another endpoint be asked?
//!
//! Two tables for the clients of this project: one for calls, one for streams, to which some
//! streams add codes. The chaos test has its own on purpose: it checks these.

use std::error::Error;
use std::iter::successors;

use tonic::{Code, ConnectError, Status};

/// Meaning of a status for its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The server refused the request; no other endpoint is asked.
    Final,
    /// The request was certainly not carried out, and another endpoint may do better.
    Undone,
    /// The request may have been carried out, or may still be.
    Unknown,
}

/// Judges the status of a call that was made at one endpoint.
pub(crate) fn judge(status: &Status) -> Verdict {
    match status.code() {
        // The connection could not be made, so that nothing was sent.
        _ if is_caused_by::<ConnectError>(status) => Verdict::Undone,
        Code::Unavailable | Code::Unknown | Code::ResourceExhausted
            if matches!(
                status.message(),
                "etcdserver: no leader"
                    | "no leader"
                    | "too many requests"
                    | "etcdserver: too many requests"
                    | "headwater: this member was removed from the cluster, ask another"
            ) =>
        {
            Verdict::Undone
        }
        // A refusal of a change of members, although it is transient.
        Code::Unavailable if status.message() == "etcdserver: unhealthy cluster" => Verdict::Final,
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Internal => Verdict::Unknown,
        // A broken connection has this code too; then there is a cause, and no server wrote the
        // message.
        Code::Unknown if status.source().is_some() => Verdict::Unknown,
        _ => Verdict::Final,
    }
}

/// Whether an error of this type is among the causes of the status.
pub(crate) fn is_caused_by<E: Error + 'static>(status: &Status) -> bool {
    successors(status.source(), |&error| error.source()).any(|error| error.is::<E>())
}

/// Whether a stream that ends with this code would end with it at every endpoint. A stream repeats
/// no write, so that any other end is a reason to try the next endpoint.
#[must_use]
pub fn is_final_for_streams(code: Code) -> bool {
    matches!(code, Code::InvalidArgument | Code::Unimplemented | Code::PermissionDenied | Code::Unauthenticated)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn only_a_request_that_was_certainly_not_carried_out_is_undone() {
        for (status, wanted) in [
            (Status::unavailable("etcdserver: no leader"), Verdict::Undone),
            (Status::unavailable("no leader"), Verdict::Undone),
            (Status::resource_exhausted("too many requests"), Verdict::Undone),
            (Status::unavailable("write is indeterminate: the leader was lost"), Verdict::Unknown),
            (Status::unknown("etcdserver: too many requests"), Verdict::Undone),
            (Status::resource_exhausted("etcdserver: too many requests"), Verdict::Undone),
            (Status::resource_exhausted("etcdserver: mvcc: database space exceeded"), Verdict::Final),
            (Status::unavailable("headwater: this member was removed from the cluster, ask another"), Verdict::Undone),
            (Status::unavailable("etcdserver: unhealthy cluster"), Verdict::Final),
            (Status::unavailable("etcdserver: request timed out"), Verdict::Unknown),
            (Status::unavailable("etcdserver: leader changed"), Verdict::Unknown),
            (Status::deadline_exceeded("x"), Verdict::Unknown),
            (Status::invalid_argument("etcdserver: key is not provided"), Verdict::Final),
            (Status::unknown("election: no leader"), Verdict::Final),
        ] {
            assert_eq!(judge(&status), wanted, "{status:?}");
        }
    }

    #[test]
    fn a_stream_ends_for_good_only_with_a_refusal() {
        let is_final = |code: &i32| is_final_for_streams(Code::from(*code));
        let refusals = [Code::InvalidArgument, Code::PermissionDenied, Code::Unimplemented, Code::Unauthenticated];
        assert_eq!((0..=16).filter(is_final).map(Code::from).collect::<Vec<_>>(), refusals);
    }

    #[test]
    fn a_broken_connection_leaves_the_outcome_open_and_a_refused_one_does_not() {
        let broken = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        for code in [Code::Unavailable, Code::Unknown] {
            let mut status = Status::new(code, "transport error");
            status.set_source(Arc::new(broken()));
            assert_eq!(judge(&status), Verdict::Unknown);
            status.set_source(Arc::new(ConnectError(Box::new(broken()))));
            assert_eq!(judge(&status), Verdict::Undone);
        }
    }
}
