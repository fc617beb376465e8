//! The answers of a replication session, and the time for which one may be missing.
//!
//! openraft waits for an answer without end. An answer may never come: lost bytes can leave a
//! stream that waits for the rest of a message, or a sender without HTTP/2's leave to send more, on
//! a connection that still answers pings. So a session ends together with its connection if it owes
//! an answer, or takes no request, for too long; the next session begins after the last answer. A
//! session whose requests have ended ends with the last answer, because the end of the answers may
//! be lost, too. Invariant: a session ends, or answers.

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

/// How long a member that was sent entries may answer nothing when the log waits for it. One that
/// is cut off for a slow disk or line gets a whole snapshot instead, so it is far more than an
/// answer takes there.
const SILENCE_HELD_MAX: Duration = Duration::from_secs(10);
/// The longest that an answer is waited for in any case.
const PATIENCE_MAX: Duration = Duration::from_secs(60);
/// How long answers must come sooner before less patience is had again.
const PATIENCE_KEPT: Duration = Duration::from_secs(60);
/// How often it is looked whether an answer is overdue.
const LOOK: Duration = Duration::from_millis(250);

/// Longest wait for a member's answer. It doubles after a slow answer, so that a slow disk or
/// network does not cause everything to be sent again and again.
#[derive(Debug)]
pub(super) struct Patience {
    least: Duration,
    now: Duration,
    changed: Option<Instant>,
}

impl Patience {
    pub(super) fn new(least: Duration) -> Self {
        Self { least, now: least, changed: None }
    }

    /// An answer stayed away for all of it.
    fn ended(&mut self, now: Instant) {
        self.set(self.now * 2, now);
    }

    /// An answer came after `silence`. A session whose first one comes soon shows that the one
    /// before was not slow but stuck.
    fn answered(&mut self, silence: Duration, is_first: bool, now: Instant) {
        if is_first && silence * 2 <= self.least {
            self.now = self.least;
        } else if silence * 2 > self.now {
            self.set(silence * 2, now);
        } else if self.now > self.least && self.changed.is_none_or(|changed| now - changed >= PATIENCE_KEPT) {
            self.set(self.now / 2, now);
        }
    }

    fn set(&mut self, patience: Duration, now: Instant) {
        self.now = patience.min(PATIENCE_MAX).max(self.least);
        self.changed = Some(now);
    }
}

/// Sessions that the log keeper ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ends {
    /// Those in which nothing was answered for a while: the log waits for them.
    #[default]
    OfTheSilent,
    With(NodeId),
}

/// Requests of a session that wait for their answers, or to be sent.
pub(super) struct Unanswered {
    requests: usize,
    /// When the first of them was sent, or anything was answered since.
    since: Option<Instant>,
    /// Since when the connection has not asked for the next request: it has not sent the one
    /// before, or may not.
    blocked_since: Option<Instant>,
    /// No request comes any more.
    has_ended: bool,
}

impl Unanswered {
    /// For a session whose first request waits to be sent.
    pub(super) fn new(now: Instant) -> Self {
        Self { requests: 0, since: None, blocked_since: Some(now), has_ended: false }
    }

    fn asked(&mut self, now: Instant) {
        self.requests += 1;
        self.since.get_or_insert(now);
        self.blocked_since = Some(now);
    }

    /// The connection asks for the next request.
    fn unblocked(&mut self) {
        self.blocked_since = None;
    }

    fn end(&mut self) {
        self.unblocked();
        self.has_ended = true;
    }

    /// Whether everything was asked and answered.
    fn is_complete(&self) -> bool {
        self.has_ended && self.requests == 0
    }

    fn answered(&mut self, now: Instant) {
        self.requests = self.requests.saturating_sub(1);
        self.since = (self.requests > 0).then_some(now);
    }

    /// For how long nothing was answered although something was to be, or nothing could be sent.
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
    incoming: tonic::Streaming<pb::AppendResponse>,
    /// Signal to end the session.
    session_ends: Option<watch::Receiver<Ends>>,
    unanswered: Arc<Mutex<Unanswered>>,
    looks: Interval,
    has_answered: bool,
    /// The outgoing side ends with it.
    _session: oneshot::Sender<()>,
}

impl Answers {
    pub(super) fn new(
        client: PeerClient,
        incoming: tonic::Streaming<pb::AppendResponse>,
        session_ends: Option<watch::Receiver<Ends>>,
        unanswered: Arc<Mutex<Unanswered>>,
        session: oneshot::Sender<()>,
    ) -> Self {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { client, incoming, session_ends, unanswered, looks, has_answered: false, _session: session }
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
                        Ends::OfTheSilent if silence >= SILENCE_HELD_MAX => {
                            return Some(Err(self.give_up(silence, "the log waits for it")));
                        }
                        Ends::With(member) if member == self.client.route().to => {
                            return Some(Err(self.give_up(silence, "its log comes no nearer")));
                        }
                        Ends::OfTheSilent | Ends::With(_) => {}
                    }
                }
                _ = self.looks.tick() => {
                    let now = Instant::now();
                    if self.unanswered.lock().is_complete() {
                        return None;
                    }
                    let silence = self.unanswered.lock().silence(now);
                    let patience = self.client.patience();
                    if silence >= patience.lock().now {
                        patience.lock().ended(now);
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
                self.client.patience().lock().answered(silence, is_first, now);
                convert::append_result_from_pb(response).map_err(|error| RPCError::Network(NetworkError::new(&error)))
            }
            Err(status) => {
                self.client.hear_failure(&status);
                Err(rpc_error(&status))
            }
        }
    }

    fn give_up(&self, silence: Duration, why: &str) -> RPCError<TypeConfig> {
        self.client.give_up("replication", silence);
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
        let mut patience = Patience::new(seconds(3));
        for expected in [6, 12, 24, 48, 60, 60] {
            patience.ended(begin);
            assert_eq!(patience.now, seconds(expected));
        }
        patience.answered(seconds(1), false, begin + seconds(59));
        assert_eq!(patience.now, seconds(60), "one quick answer says little");
        for (at, expected) in [(60, 30), (61, 30), (120, 15), (180, 7), (240, 3), (300, 3)] {
            patience.answered(seconds(1), false, begin + seconds(at));
            assert_eq!(patience.now.as_secs(), expected);
        }
        patience.answered(seconds(5), true, begin + seconds(301));
        assert_eq!(patience.now, seconds(10), "an answer that took five seconds is given ten");
        patience.answered(seconds(1), true, begin + seconds(302));
        assert_eq!(patience.now, seconds(3), "the session before was stuck");
    }
}
