//! Bad input gets a clear error: no status that means a defect of the server.

use tonic::Code;

use crate::target::Outcome;
use crate::wire::grpc::Answer;

/// Beginnings of error texts with the code INTERNAL that gRPC itself prescribes: for a message that
/// cannot be decoded, or one with a wrong header.
const PRESCRIBED: &[&str] = &[
    "failed to decode Protobuf message",
    "protocol error: received message with invalid compression flag",
    "protocol error: received message with compressed-flag but no grpc-encoding was specified",
    "Unexpected EOF decoding stream",
    "Missing request message",
];

/// Texts of refusals that etcd sends with the code UNKNOWN, because its clients compare the texts.
const OF_ETCD: &[&str] = &[
    "election: no leader",
    "election: session expired",
    "election: not leader",
    "mutex: session is expired",
    "\"leader\" field must be provided",
    "etcdserver: request timed out, leader transfer took too long",
];

/// Judges the answer to a call of `method`: a finding for the codes UNKNOWN, INTERNAL and
/// DATA_LOSS, except with a text of `PRESCRIBED` or `OF_ETCD`. Also for HTTP 5xx, and for HTTP 200
/// without a gRPC status.
pub(crate) fn judge(method: &str, answer: Answer) -> Outcome {
    match answer {
        Answer::Status(code @ (Code::Unknown | Code::Internal | Code::DataLoss), message) => {
            let kind = format!("{code:?}");
            if PRESCRIBED.iter().any(|text| message.starts_with(text)) || OF_ETCD.contains(&message.as_str()) {
                return Outcome::of(kind);
            }
            Outcome::finding(kind, format!("{method} answers {code:?}: {message}"))
        }
        Answer::Status(code, _) => Outcome::of(format!("{code:?}")),
        Answer::Http(200) => Outcome::finding("no status", format!("{method} ends without a status")),
        Answer::Http(status @ 500..) => Outcome::finding("HTTP 5xx", format!("{method} answers HTTP {status}")),
        Answer::Http(status) => Outcome::of(format!("HTTP {status}")),
        Answer::Reset(_) => Outcome::of("reset"),
        Answer::Open => Outcome::of("open"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_the_server_are_found_and_refusals_are_not() {
        for (answer, is_finding) in [
            (Answer::Status(Code::InvalidArgument, "key is empty".into()), false),
            (Answer::Status(Code::Internal, "failed to decode Protobuf message: x".into()), false),
            (Answer::Status(Code::Internal, "index out of bounds".into()), true),
            (Answer::Status(Code::Unknown, "x".into()), true),
            (Answer::Http(200), true),
            (Answer::Http(415), false),
            (Answer::Http(500), true),
            (Answer::Open, false),
        ] {
            let text = format!("{answer:?}");
            assert_eq!(judge("KV.Put", answer).finding.is_some(), is_finding, "{text}");
        }
    }
}
