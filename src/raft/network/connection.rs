//! The connection of one peer client, and the rule for its replacement.
//!
//! A connection breaks by itself when bytes get lost on it, or when its probes stay unanswered. One
//! that goes on answering probes while calls on it wait for ever, or come to nonsense, would be
//! kept for good: here such a one is closed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tonic::Code;
use tonic::transport::Channel;

use super::endpoint;
use super::line::Line;
use headwater_proto::pb::peer::peer_client::PeerClient as Grpc;
use headwater_types::limits::PEER_MESSAGE_BYTES_MAX;

/// How long all calls may stay unanswered before the connection is closed: as long as its probes
/// may.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// Calls that wait one after the other, further apart than this, are not one silence.
const CALLS_APART_MAX: Duration = Duration::from_secs(1);
/// Age below which a connection is kept despite failures: calls of the previous connection fail
/// with it.
const AGE_MIN: Duration = Duration::from_secs(1);

/// The generated client with the address that it connects to, or why that address cannot be used.
pub(super) struct Connection {
    url: Arc<str>,
    grpc: Result<Grpc<Channel>, String>,
    line: Option<Line>,
    health: Health,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Answer,
    Failure(Code),
    /// Nothing yet; since when that is awaited.
    Silence(Instant),
}

impl Connection {
    pub(super) fn to(url: Arc<str>) -> Self {
        let (grpc, line) = match endpoint(&url) {
            Ok(endpoint) => {
                let (channel, line) = Line::of(&endpoint);
                let grpc = Grpc::new(channel)
                    // Requests are bounded; outcomes of forwarded writes (removed pairs, ranges)
                    // are as large as they are.
                    .max_decoding_message_size(usize::MAX)
                    .max_encoding_message_size(PEER_MESSAGE_BYTES_MAX);
                (Ok(grpc), Some(line))
            }
            Err(error) => (Err(error), None),
        };
        Self { url, grpc, line, health: Health::new(Instant::now()) }
    }

    /// The generated client for an address, which may be another one than before.
    pub(super) fn grpc(&mut self, url: Option<Arc<str>>) -> Result<Grpc<Channel>, String> {
        if let Some(url) = url
            && url != self.url
        {
            // Calls under way may finish.
            *self = Self::to(url);
        }
        self.grpc.clone()
    }

    /// Records the result of a call; true if the connection was replaced.
    pub(super) fn hear(&mut self, heard: Heard, now: Instant) -> bool {
        let is_over = self.health.is_over(heard, now);
        if is_over {
            self.renew();
        }
        is_over
    }

    /// Closes the connection; the next call connects anew.
    pub(super) fn renew(&mut self) {
        let old = std::mem::replace(self, Self::to(Arc::clone(&self.url)));
        if let Some(line) = old.line {
            line.close();
        }
    }
}

/// Evidence for and against a connection.
#[derive(Debug)]
struct Health {
    made: Instant,
    answered: Instant,
    /// From when to when some call or other has waited in vain.
    silence: Option<(Instant, Instant)>,
}

impl Health {
    fn new(now: Instant) -> Self {
        Self { made: now, answered: now, silence: None }
    }

    /// Whether the result of a call is reason to replace the connection.
    fn is_over(&mut self, heard: Heard, now: Instant) -> bool {
        let is_useless = match heard {
            Heard::Answer => {
                self.answered = now;
                self.silence = None;
                false
            }
            Heard::Failure(code) => is_nonsense(code),
            // It has answered others since.
            Heard::Silence(since) if since < self.answered => false,
            Heard::Silence(since) => {
                // A connection that nobody used meanwhile was not silent.
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

/// Whether the receiver, or a middlebox, has misread the call. A well-behaved member sends none of
/// these codes; one that is meant appears again on a new connection.
fn is_nonsense(code: Code) -> bool {
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
        assert!(!health.is_over(Heard::Silence(at(4)), at(5)));
        assert!(!health.is_over(Heard::Silence(at(5)), at(6)));
        assert!(health.is_over(Heard::Silence(at(6)), at(7)), "three seconds since the first one");

        let mut health = Health::new(begin);
        assert!(!health.is_over(Heard::Silence(at(4)), at(5)));
        assert!(!health.is_over(Heard::Silence(at(60)), at(61)), "nobody asked meanwhile");
        assert!(health.is_over(Heard::Silence(at(60)), at(63)));

        let mut health = Health::new(begin);
        assert!(!health.is_over(Heard::Silence(at(4)), at(5)));
        assert!(!health.is_over(Heard::Answer, at(6)));
        assert!(!health.is_over(Heard::Silence(at(5)), at(60)), "others were answered meanwhile");
        assert!(!health.is_over(Heard::Silence(at(60)), at(62)));
        assert!(health.is_over(Heard::Silence(at(60)), at(63)));
    }

    #[test]
    fn a_connection_with_nonsense_on_it_is_given_up_unless_it_is_new() {
        let begin = Instant::now();
        let mut health = Health::new(begin);
        assert!(!health.is_over(Heard::Failure(Code::DataLoss), begin + AGE_MIN / 2));
        assert!(health.is_over(Heard::Failure(Code::DataLoss), begin + AGE_MIN));
        assert!(!health.is_over(Heard::Failure(Code::Unavailable), begin + AGE_MIN), "it says that it starts");
    }

    #[tokio::test]
    async fn an_address_that_cannot_be_used_is_told_by_every_call() {
        let mut connection = Connection::to("http://[".into());
        assert!(connection.grpc(None).unwrap_err().contains("http://["));
        connection.renew();
        assert!(connection.grpc(None).is_err());
        assert!(connection.grpc(Some("http://127.0.0.1:1".into())).is_ok());
    }
}
