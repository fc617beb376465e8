//! The answers of a replication session, and the time for which one may be missing.
//!
//! openraft waits for an answer for ever. An answer may never come: lost bytes can leave a stream
//! that waits for the rest of a message, or a sender with a closed HTTP/2 flow-control window, on a
//! connection that still answers pings. So a session ends together with its connection if an answer
//! is overdue, or if the connection takes no request for too long. The next session begins after
//! the last answer. A session without further requests ends with the last answer, because the end
//! of the answers may be lost, too. Invariant: openraft never waits without bound for a session: it
//! gets an answer, an error or the end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use openraft::errors::{NetworkError, RPCError};
use openraft::raft::StreamAppendResult;
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::{oneshot, watch};
use tokio::time::{Interval, MissedTickBehavior};

use super::client::{PeerClient, rpc_error};
use crate::convert;
use crate::types::TypeConfig;
use headwater_proto::pb::peer as pb;
use headwater_types::NodeId;

/// Time without an expected answer after which a session ends if entries cannot be purged because
/// of it. The member then gets a whole snapshot instead, so this is far longer than an answer takes
/// with a slow disk or network.
const SILENCE_HELD_MAX: Duration = Duration::from_secs(10);
/// Upper bound of [`AnswerTimeout`].
const ANSWER_TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// Shortest time between a change of the timeout and its halving after a quick answer.
const ANSWER_TIMEOUT_KEPT: Duration = Duration::from_secs(60);
/// Time between two checks for an overdue answer.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Longest wait for a member's answer. It doubles after an overdue answer and grows to twice the
/// time of a slow one, so that a slow disk or network does not cause everything to be sent again
/// and again. Quick answers shorten it.
#[derive(Debug)]
pub(super) struct AnswerTimeout {
    least: Duration,
    now: Duration,
    changed: Option<Instant>,
}

impl AnswerTimeout {
    pub(super) fn new(least: Duration) -> Self {
        Self { least, now: least, changed: None }
    }

    /// Doubles the timeout, up to [`ANSWER_TIMEOUT_MAX`], because no answer came within it.
    fn ended(&mut self, now: Instant) {
        self.set(self.now * 2, now);
    }

    /// Adapts the timeout to an answer that came after `silence`. A quick first answer of a session
    /// resets it to the least one: the session before was stuck, not slow.
    fn answered(&mut self, silence: Duration, is_first: bool, now: Instant) {
        if is_first && silence * 2 <= self.least {
            self.now = self.least;
        } else if silence * 2 > self.now {
            self.set(silence * 2, now);
        } else if self.now > self.least && self.changed.is_none_or(|changed| now - changed >= ANSWER_TIMEOUT_KEPT) {
            self.set(self.now / 2, now);
        }
    }

    fn set(&mut self, answer_timeout: Duration, now: Instant) {
        self.now = answer_timeout.min(ANSWER_TIMEOUT_MAX).max(self.least);
        self.changed = Some(now);
    }
}

/// Order of the log keeper to end replication sessions; selects them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// Sessions without any answer for [`SILENCE_HELD_MAX`]: the log keeps entries that they still
    /// have to send.
    #[default]
    Silent,
    With(NodeId),
}

/// Record of the requests that a session's connection has taken: the number of those without an
/// answer, and the times from which [`silence`](Self::silence) is measured. Every answer begins the
/// wait for the next one anew, so an old request is not overdue while other answers come.
pub(super) struct Unanswered {
    requests: usize,
    /// The time at which the wait for the next answer began: that of the request, or of the last
    /// answer if that came later. `None` if no request waits for an answer.
    since: Option<Instant>,
    /// The time at which the connection took the last request; `None` once it asks for the next
    /// one. Until then the last one may wait to be sent, for example for capacity in the peer's
    /// window.
    blocked_since: Option<Instant>,
    /// Whether the stream of requests has ended.
    has_ended: bool,
}

impl Unanswered {
    /// The state of a session with a first request that waits to be sent.
    pub(super) fn new(now: Instant) -> Self {
        Self { requests: 0, since: None, blocked_since: Some(now), has_ended: false }
    }

    fn asked(&mut self, now: Instant) {
        self.requests += 1;
        self.since.get_or_insert(now);
        self.blocked_since = Some(now);
    }

    /// Records that the connection asks for the next request: it is not blocked any more.
    fn unblocked(&mut self) {
        self.blocked_since = None;
    }

    fn end(&mut self) {
        self.unblocked();
        self.has_ended = true;
    }

    /// Whether the requests have ended and all are answered.
    fn is_complete(&self) -> bool {
        self.has_ended && self.requests == 0
    }

    fn answered(&mut self, now: Instant) {
        self.requests = self.requests.saturating_sub(1);
        self.since = (self.requests > 0).then_some(now);
    }

    /// Time without an expected answer, or in which the connection took no request: the longer of
    /// both. Zero if no answer is expected and the connection waits for a request.
    fn silence(&self, now: Instant) -> Duration {
        let since = self.since.into_iter().chain(self.blocked_since).min();
        since.map_or(Duration::ZERO, |since| now - since)
    }
}

/// The requests of a session, as the connection asks for them.
pub(super) struct Requests<S> {
    requests: S,
    unanswered: Arc<Mutex<Unanswered>>,
}

impl<S> Requests<S> {
    pub(super) fn new(requests: S, unanswered: Arc<Mutex<Unanswered>>) -> Self {
        Self { requests, unanswered }
    }
}

impl<S: Stream + Unpin> Stream for Requests<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.unanswered.lock().unblocked();
        let request = ready!(self.requests.poll_next_unpin(context));
        let mut unanswered = self.unanswered.lock();
        match request {
            Some(_) => unanswered.asked(Instant::now()),
            None => unanswered.end(),
        }
        drop(unanswered);
        Poll::Ready(request)
    }
}

impl<S> Drop for Requests<S> {
    fn drop(&mut self) {
        self.unanswered.lock().end();
    }
}

/// The answers of a replication session.
pub(super) struct Answers {
    client: PeerClient,
    /// Term of the leader that opened the session: this member.
    term: u64,
    incoming: tonic::Streaming<pb::AppendResponse>,
    /// Orders to end sessions; `None` for a connection outside of any membership.
    session_ends: Option<watch::Receiver<SessionEnd>>,
    unanswered: Arc<Mutex<Unanswered>>,
    checks: Interval,
    has_answered: bool,
    /// Dropping it ends the outgoing side.
    _session: oneshot::Sender<()>,
}

impl Answers {
    pub(super) fn new(
        client: PeerClient,
        term: u64,
        incoming: tonic::Streaming<pb::AppendResponse>,
        session_ends: Option<watch::Receiver<SessionEnd>>,
        unanswered: Arc<Mutex<Unanswered>>,
        session: oneshot::Sender<()>,
    ) -> Self {
        let mut checks = tokio::time::interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { client, term, incoming, session_ends, unanswered, checks, has_answered: false, _session: session }
    }

    pub(super) async fn next(&mut self) -> Option<Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>> {
        loop {
            let ends = async {
                let ends = self.session_ends.as_mut()?;
                ends.changed().await.ok()?;
                Some(*ends.borrow_and_update())
            };
            tokio::select! {
                biased;
                item = self.incoming.next() => return item.map(|item| self.answer(item)),
                Some(ends) = ends => {
                    let silence = self.unanswered.lock().silence(Instant::now());
                    match ends {
                        SessionEnd::Silent if silence >= SILENCE_HELD_MAX => {
                            return Some(Err(self.give_up(silence, "the log waits for it")));
                        }
                        SessionEnd::With(member) if member == self.client.route().to => {
                            return Some(Err(self.give_up(silence, "its log comes no nearer")));
                        }
                        SessionEnd::Silent | SessionEnd::With(_) => {}
                    }
                }
                _ = self.checks.tick() => {
                    let now = Instant::now();
                    if self.unanswered.lock().is_complete() {
                        return None;
                    }
                    let silence = self.unanswered.lock().silence(now);
                    let answer_timeout = self.client.answer_timeout();
                    if silence >= answer_timeout.lock().now {
                        answer_timeout.lock().ended(now);
                        return Some(Err(self.give_up(silence, "it is overdue")));
                    }
                }
            }
        }
    }

    fn answer(
        &mut self,
        item: Result<pb::AppendResponse, tonic::Status>,
    ) -> Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>> {
        let now = Instant::now();
        let silence = {
            let mut unanswered = self.unanswered.lock();
            let silence = unanswered.silence(now);
            unanswered.answered(now);
            silence
        };
        match item {
            Ok(response) => {
                self.client.count_received(response.encoded_len());
                self.client.note_answer();
                let is_first = !std::mem::replace(&mut self.has_answered, true);
                self.client.answer_timeout().lock().answered(silence, is_first, now);
                convert::append_result_from_pb(response, self.term)
                    .map_err(|error| RPCError::Network(NetworkError::new(&error)))
            }
            Err(status) => {
                self.client.record_failure(&status);
                self.client.note_session_failure(&status);
                Err(rpc_error(&status))
            }
        }
    }

    fn give_up(&self, silence: Duration, why: &str) -> RPCError<TypeConfig> {
        self.client.give_up("replication", silence);
        self.client.note_session_end();
        RPCError::Network(NetworkError::from_string(format!("no answer for {silence:?}, and {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_owes_an_answer_is_silent() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let silence = |unanswered: &Unanswered, seconds| unanswered.silence(at(seconds)).as_secs();
        let mut unanswered = Unanswered::new(begin);
        unanswered.unblocked();
        assert_eq!(silence(&unanswered, 100), 0, "nobody asked");
        unanswered.asked(at(100));
        unanswered.unblocked();
        unanswered.asked(at(103));
        unanswered.unblocked();
        assert_eq!(silence(&unanswered, 105), 5);
        unanswered.answered(at(106));
        assert_eq!(silence(&unanswered, 108), 2, "it answers, slowly");
        unanswered.answered(at(109));
        assert_eq!(silence(&unanswered, 200), 0, "it has answered everything");
        unanswered.asked(at(200));
        assert_eq!(silence(&unanswered, 201), 1);
    }

    #[tokio::test]
    async fn a_session_is_silent_while_its_connection_takes_no_request() {
        let unanswered = Arc::new(Mutex::new(Unanswered::new(Instant::now())));
        let is_silent = || unanswered.lock().silence(Instant::now() + Duration::from_secs(9)) > Duration::ZERO;
        let (sender, receiver) = futures::channel::mpsc::unbounded();
        let mut requests = Requests::new(receiver, Arc::clone(&unanswered));
        assert!(is_silent(), "the first one waits to be sent");
        sender.unbounded_send("first").unwrap();
        assert_eq!(requests.next().await, Some("first"));
        unanswered.lock().answered(Instant::now());
        assert!(is_silent(), "it was answered, and nobody asks for the next one");
        assert!(futures::poll!(requests.next()).is_pending());
        assert!(!is_silent(), "there is no next one");
        sender.unbounded_send("second").unwrap();
        drop(sender);
        assert_eq!(requests.next().await, Some("second"));
        assert_eq!(requests.next().await, None);
        assert!(is_silent() && !unanswered.lock().is_complete(), "the second one is not answered");
        unanswered.lock().answered(Instant::now());
        assert!(!is_silent() && unanswered.lock().is_complete(), "the session is at its end");
    }

    #[test]
    fn a_session_whose_requests_are_let_go_is_complete_once_they_are_answered() {
        let unanswered = Arc::new(Mutex::new(Unanswered::new(Instant::now())));
        let requests = Requests::new(futures::stream::pending::<()>(), Arc::clone(&unanswered));
        unanswered.lock().asked(Instant::now());
        drop(requests);
        assert!(!unanswered.lock().is_complete());
        unanswered.lock().answered(Instant::now());
        assert!(unanswered.lock().is_complete());
    }

    #[test]
    fn whoever_is_slow_is_waited_for_longer_and_whoever_is_not_less_long() {
        let (begin, seconds) = (Instant::now(), Duration::from_secs);
        let mut answer_timeout = AnswerTimeout::new(seconds(3));
        for expected in [6, 12, 24, 48, 60, 60] {
            answer_timeout.ended(begin);
            assert_eq!(answer_timeout.now, seconds(expected));
        }
        answer_timeout.answered(seconds(1), false, begin + seconds(59));
        assert_eq!(answer_timeout.now, seconds(60), "one quick answer says little");
        for (at, expected) in [(60, 30), (61, 30), (120, 15), (180, 7), (240, 3), (300, 3)] {
            answer_timeout.answered(seconds(1), false, begin + seconds(at));
            assert_eq!(answer_timeout.now.as_secs(), expected);
        }
        answer_timeout.answered(seconds(5), true, begin + seconds(301));
        assert_eq!(answer_timeout.now, seconds(10), "an answer that took five seconds is given ten");
        answer_timeout.answered(seconds(1), true, begin + seconds(302));
        assert_eq!(answer_timeout.now, seconds(3), "the session before was stuck");
    }
}
