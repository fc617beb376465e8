//! The connection of one peer client, and the rule for its replacement.
//!
//! A connection breaks by itself when its probes stay unanswered. A connection that answers probes,
//! but no calls, or calls only with damaged answers, would be kept for ever: this module replaces
//! it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tonic::Code;
use tonic::transport::Channel;

use super::closable::ConnectionCloser;
use super::endpoint;
use headwater_proto::pb::peer::peer_client::PeerClient as Grpc;
use headwater_tls::Dialer;
use headwater_types::limits::PEER_MESSAGE_BYTES_MAX;

/// Time without an answer to any call after which the connection is closed. Equal to the interval
/// plus the timeout of keep-alive probes: unanswered probes end the connection as fast.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// Longest pause between two unanswered calls of one silence. After a longer pause the time without
/// an answer is measured anew.
const CALLS_APART_MAX: Duration = Duration::from_secs(1);
/// Age below which a connection is kept despite failures: they may be late failures of calls on the
/// previous connection.
const AGE_MIN: Duration = Duration::from_secs(1);

/// The generated client with the address that it connects to, or the reason why that address cannot
/// be used.
pub(super) struct Connection {
    url: Arc<str>,
    dialer: Dialer,
    grpc: Result<Grpc<Channel>, String>,
    closer: Option<ConnectionCloser>,
    health: Health,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallResult {
    Answer,
    Failure(Code),
    /// No answer came. The caller has waited since this time.
    Silence(Instant),
}

impl Connection {
    pub(super) fn to(url: Arc<str>, dialer: &Dialer) -> Self {
        let (grpc, closer) = match endpoint(&url, dialer) {
            Ok((endpoint, connector)) => {
                let (channel, closer) = ConnectionCloser::of(&endpoint, connector);
                let grpc = Grpc::new(channel)
                    // Requests are bounded; outcomes of forwarded writes (removed pairs, ranges)
                    // are not.
                    .max_decoding_message_size(usize::MAX)
                    .max_encoding_message_size(PEER_MESSAGE_BYTES_MAX);
                (Ok(grpc), Some(closer))
            }
            Err(error) => (Err(error), None),
        };
        Self { url, dialer: dialer.clone(), grpc, closer, health: Health::new(Instant::now()) }
    }

    /// The generated client for an address, which may be another one than before; `None` keeps the
    /// address. The error is the reason why the address cannot be used.
    pub(super) fn grpc(&mut self, url: Option<Arc<str>>) -> Result<Grpc<Channel>, String> {
        if let Some(url) = url
            && url != self.url
        {
            // Calls under way may finish.
            *self = Self::to(url, &self.dialer);
        }
        self.grpc.clone()
    }

    /// Records the result of a call; true if the connection was replaced.
    pub(super) fn record(&mut self, result: CallResult, now: Instant) -> bool {
        let must_reconnect = self.health.must_reconnect(result, now);
        if must_reconnect {
            self.renew();
        }
        must_reconnect
    }

    /// Closes the connection; the next call reconnects.
    pub(super) fn renew(&mut self) {
        let old = std::mem::replace(self, Self::to(Arc::clone(&self.url), &self.dialer));
        if let Some(closer) = old.closer {
            closer.close();
        }
    }
}

/// Evidence for and against a connection.
#[derive(Debug)]
struct Health {
    made: Instant,
    answered: Instant,
    /// Begin and end of the time in which calls have waited without any answer.
    silence: Option<(Instant, Instant)>,
}

impl Health {
    fn new(now: Instant) -> Self {
        Self { made: now, answered: now, silence: None }
    }

    /// Whether the result of a call is reason to replace the connection.
    fn must_reconnect(&mut self, result: CallResult, now: Instant) -> bool {
        let is_useless = match result {
            CallResult::Answer => {
                self.answered = now;
                self.silence = None;
                false
            }
            CallResult::Failure(code) => is_misread(code),
            // It has answered other calls since.
            CallResult::Silence(since) if since < self.answered => false,
            CallResult::Silence(since) => {
                // A connection without calls is not silent.
                let begun = match self.silence {
                    Some((begun, ended)) if since <= ended + CALLS_APART_MAX => begun.min(since),
                    Some(_) | None => since,
                };
                self.silence = Some((begun, now));
                now - begun >= SILENCE_MAX
            }
        };
        is_useless && now - self.made >= AGE_MIN
    }
}

/// Whether the code shows that the call was misread on the way. The intended member normally sends
/// none of these codes; a genuine one (another member at the address) returns on the new
/// connection, too.
fn is_misread(code: Code) -> bool {
    match code {
        Code::DataLoss
        | Code::FailedPrecondition
        | Code::Internal
        | Code::InvalidArgument
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Unknown => true,
        Code::Ok
        | Code::Aborted
        | Code::AlreadyExists
        | Code::Cancelled
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::Unauthenticated
        | Code::Unavailable => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_answers_nothing_for_a_while_is_given_up() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut health = Health::new(begin);
        assert!(!health.must_reconnect(CallResult::Silence(at(4)), at(5)));
        assert!(!health.must_reconnect(CallResult::Silence(at(5)), at(6)));
        assert!(health.must_reconnect(CallResult::Silence(at(6)), at(7)), "three seconds since the first one");

        let mut health = Health::new(begin);
        assert!(!health.must_reconnect(CallResult::Silence(at(4)), at(5)));
        assert!(!health.must_reconnect(CallResult::Silence(at(60)), at(61)), "nobody asked meanwhile");
        assert!(health.must_reconnect(CallResult::Silence(at(60)), at(63)));

        let mut health = Health::new(begin);
        assert!(!health.must_reconnect(CallResult::Silence(at(4)), at(5)));
        assert!(!health.must_reconnect(CallResult::Answer, at(6)));
        assert!(!health.must_reconnect(CallResult::Silence(at(5)), at(60)), "others were answered meanwhile");
        assert!(!health.must_reconnect(CallResult::Silence(at(60)), at(62)));
        assert!(health.must_reconnect(CallResult::Silence(at(60)), at(63)));
    }

    #[test]
    fn a_connection_with_nonsense_on_it_is_given_up_unless_it_is_new() {
        let begin = Instant::now();
        let mut health = Health::new(begin);
        assert!(!health.must_reconnect(CallResult::Failure(Code::DataLoss), begin + AGE_MIN / 2));
        assert!(health.must_reconnect(CallResult::Failure(Code::DataLoss), begin + AGE_MIN));
        assert!(
            !health.must_reconnect(CallResult::Failure(Code::Unavailable), begin + AGE_MIN),
            "it says that it starts"
        );
    }

    #[tokio::test]
    async fn an_address_that_cannot_be_used_is_told_by_every_call() {
        let mut connection = Connection::to("http://[".into(), &Dialer::default());
        assert!(connection.grpc(None).unwrap_err().contains("http://["));
        connection.renew();
        assert!(connection.grpc(None).is_err());
        assert!(connection.grpc(Some("http://127.0.0.1:1".into())).is_ok());
        let why = connection.grpc(Some("https://127.0.0.1:1".into())).unwrap_err();
        assert!(why.contains("trusted authority"), "{why}");
    }
}
