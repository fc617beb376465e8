//! The one way to serve a stream of changes: requests in, frames out.
//!
//! [`Driver`] owns the waits of a stream (readable subscriptions, requests, the client's deadline,
//! the stop of the node, a lost leader, changed rights), the frames that the client has not taken,
//! and the counting. A [`StreamService`] owns the subscriptions and encodes. Invariants: new frames
//! are made only after the client took all earlier ones, so an unread stream does not grow; a
//! stream ends with the status of its first [`StreamEnd`]; no frame is handed on after rights have
//! changed, before the service has judged the stream again.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use prost::Message;
use tokio::time::Sleep;
use tokio_stream::wrappers::WatchStream;
use tonic::{Status, Streaming};

use super::frames::{Frame, Frames};
use super::leader_probe::LeaderProbe;
use super::stream_metrics::{StreamGuard, WatchMetrics};
use headwater_node::{CloseReason, Node, NodeError, Session};
use headwater_types::{AuthRefusal, LogIndex};

/// The reason for the end of a stream. Each service has a table from it to statuses.
#[derive(Clone, Debug)]
pub enum StreamEnd {
    /// The feed was closed. A stop of the node is [`CloseReason::Stopping`], whether it closes the
    /// feed or ends the stream.
    Closed(CloseReason),
    /// The deadline of the client passed.
    Expired,
    /// The node knew no leader for too long.
    LeaderLost,
    /// The node could not begin or read a subscription.
    Failed(NodeError),
    /// A request of the client could not be received or decoded.
    BadRequest(Status),
    /// The rights of the client have changed since the stream began: it may have lost the right to
    /// a part of the stream, or have gained one to more.
    RightsChanged(AuthRefusal),
}

impl From<CloseReason> for StreamEnd {
    fn from(reason: CloseReason) -> Self {
        Self::Closed(reason)
    }
}

impl From<NodeError> for StreamEnd {
    fn from(error: NodeError) -> Self {
        Self::Failed(error)
    }
}

/// One stream's subscriptions and their encoding.
pub trait StreamService: Send + 'static {
    /// Message that the client sends on an open stream. [`Infallible`](std::convert::Infallible)
    /// for a method that takes one request: that request opens the stream.
    type Request: Send + 'static;

    /// Rounds of the driver's loop from one check for a request to the next, in a stream that
    /// always has something to send. Each check takes the lock of the whole connection.
    const TURNS_PER_REQUEST_CHECK: usize = 1;

    /// The status at the end of the stream.
    fn status(end: StreamEnd) -> Status;

    /// Reads without a wait, and pushes the frames. `false` if nothing was readable: the driver
    /// then waits for a wake-up.
    fn advance(&mut self, out: &mut Outbox) -> impl Future<Output = Result<bool, StreamEnd>> + Send;

    /// Checks the stream against the present rights of its client. Called before the first frame,
    /// and whenever rights have changed since the last call. Ends the stream, or the parts of it
    /// that the client may not read any more; frames of these parts are removed from `out`.
    fn rejudge(&mut self, node: &Node, out: &mut Outbox) -> Result<(), StreamEnd>;

    /// Carries out one request of the client.
    fn handle(
        &mut self,
        request: Self::Request,
        out: &mut Outbox,
    ) -> impl Future<Output = Result<(), StreamEnd>> + Send;

    /// Called with the tokens of subscriptions that may be readable.
    fn raised(&mut self, _tokens: Vec<u64>) {}

    /// Ready when a timer of the service has fired, so that [`advance`](Self::advance) must be
    /// called again.
    fn poll_timer(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    /// Whether no subscription is left. The stream then ends once the client has closed its side.
    fn is_finished(&self) -> bool {
        false
    }

    /// True: when the node stops, the feed ends the stream after its last event. False: the driver
    /// ends the stream as soon as it would wait.
    fn ends_with_feed(&self) -> bool {
        false
    }
}

/// A frame, with the token of its subscription; `None` for a frame that is never discarded.
struct Queued {
    frame: Frame,
    token: Option<u64>,
}

/// Frames that the client has not taken yet.
pub struct Outbox {
    /// The oldest frame. Kept apart, because most calls of [`advance`](StreamService::advance) push
    /// one frame and need no queue.
    first: Option<Queued>,
    /// Empty while `first` is empty.
    rest: VecDeque<Queued>,
    counted: StreamGuard,
}

impl Outbox {
    fn new(metrics: &WatchMetrics) -> Self {
        Self { first: None, rest: VecDeque::new(), counted: metrics.stream() }
    }

    /// Appends a frame that [`discard`](Self::discard) never removes.
    pub fn push(&mut self, frame: Frame) {
        self.queue(Queued { frame, token: None });
    }

    /// Appends a frame of one subscription, which [`discard`](Self::discard) may remove again.
    pub fn push_of(&mut self, token: u64, frame: Frame) {
        self.queue(Queued { frame, token: Some(token) });
    }

    fn queue(&mut self, queued: Queued) {
        match self.first {
            None => self.first = Some(queued),
            Some(_) => self.rest.push_back(queued),
        }
    }

    /// Removes the frames of one subscription.
    pub fn discard(&mut self, token: u64) {
        let is_of = |queued: &Queued| queued.token == Some(token);
        self.rest.retain(|queued| !is_of(queued));
        if self.first.as_ref().is_some_and(is_of) {
            self.first = self.rest.pop_front();
        }
    }

    /// Appends a message that is encoded for this stream alone.
    pub fn message(&mut self, message: &impl Message) {
        self.push(Frame::new(message));
    }

    /// Counts events as sent.
    pub fn events_sent(&self, count: usize) {
        self.counted.events_sent(count);
    }

    /// Counts events as read and not yet taken, until the outbox is empty.
    pub fn events_pending(&mut self, count: usize) {
        self.counted.events_pending(count);
    }

    fn pop(&mut self) -> Option<Frame> {
        let frame = self.first.take().map(|queued| queued.frame);
        self.first = self.rest.pop_front();
        if frame.is_none() {
            self.counted.nothing_pending();
        }
        frame
    }
}

/// The reason why a wait ended.
enum Wake<Q> {
    /// Subscriptions with these tokens may be readable.
    Feed(Vec<u64>),
    /// The client's next request, or the error of reading it. `None`: the client has closed its
    /// side.
    Request(Option<Result<Q, Status>>),
    /// The timer of the service.
    Timer,
    /// Rights have changed: the stream must be judged again.
    Rights,
}

/// Longest delay of an idle stream's judgement after rights have changed. Each stream has a random
/// delay, so that ten thousand of them do not delay requests.
const REJUDGE_SPREAD: Duration = Duration::from_millis(500);

/// Notices that rights have changed.
struct RightsProbe {
    /// Log index of the last change of rights that the stream was judged by; `None` before the
    /// first judgement.
    judged: Option<LogIndex>,
    /// Wakes an idle stream. Only the node's state says whether rights have changed: a stream may
    /// read a commit before the change is announced here.
    changes: WatchStream<LogIndex>,
    /// Timer of an idle stream's judgement; set between a change of rights and that judgement.
    due: Option<Pin<Box<Sleep>>>,
}

impl RightsProbe {
    fn new(changes: WatchStream<LogIndex>) -> Self {
        Self { judged: None, changes, due: None }
    }

    /// Whether the stream must be judged before it hands on a frame. `now` is the log index of the
    /// last change of rights. True on the first call, and if rights have changed since the last
    /// one.
    fn take_changed(&mut self, now: LogIndex) -> bool {
        // Noted before the judgement: a change during it is judged again.
        let is_due = self.judged != Some(now);
        if is_due {
            (self.judged, self.due) = (Some(now), None);
        }
        is_due
    }

    /// Ready after rights have changed, with a random delay of up to [`REJUDGE_SPREAD`]. Changes
    /// during the delay count as one. The stream may be judged already by then:
    /// [`take_changed`](Self::take_changed) decides.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Poll::Ready(Some(_)) = self.changes.poll_next_unpin(cx) {
            self.due.get_or_insert_with(|| Box::pin(tokio::time::sleep(REJUDGE_SPREAD.mul_f64(rand::random()))));
        }
        let Some(due) = &mut self.due else { return Poll::Pending };
        ready!(due.poll_unpin(cx));
        self.due = None;
        Poll::Ready(())
    }
}

/// Drives one stream of one client.
pub struct Driver<S: StreamService> {
    service: S,
    node: Node,
    session: Arc<Session>,
    out: Outbox,
    /// `None` for a stream without further requests, and once the client has closed its side.
    requests: Option<Streaming<S::Request>>,
    /// Rounds of the loop since the last check for a request.
    turns: usize,
    /// Resolves when the node stops.
    closing: BoxFuture<'static, ()>,
    expired: Option<Pin<Box<Sleep>>>,
    leader: Option<LeaderProbe>,
    rights: RightsProbe,
}

impl<S: StreamService> Driver<S> {
    /// A stream without further requests, deadline or need of a leader; other methods add these.
    /// `session` must be the one with which the subscriptions of `service` were made.
    pub fn new(node: &Node, metrics: &WatchMetrics, session: Arc<Session>, service: S) -> Self {
        Self {
            service,
            session,
            out: Outbox::new(metrics),
            requests: None,
            turns: 0,
            closing: node.streams_closing().boxed(),
            node: node.clone(),
            expired: None,
            leader: None,
            rights: RightsProbe::new(node.rights_changes()),
        }
    }

    /// Also reads `requests`, the further messages of the client.
    pub(crate) fn with_requests(self, requests: Streaming<S::Request>) -> Self {
        Self { requests: Some(requests), ..self }
    }

    /// Ends the stream at the client's deadline; `None` for no deadline.
    pub fn until(self, deadline: Option<Instant>) -> Self {
        Self { expired: deadline.map(|at| Box::pin(tokio::time::sleep_until(at.into()))), ..self }
    }

    /// Ends the stream after the node knew no leader for `timeout`.
    pub fn requires_leader(self, timeout: Duration) -> Self {
        Self { leader: Some(LeaderProbe::new(timeout)), ..self }
    }

    /// Sends `frame` before the frames of the service.
    pub fn begins_with(mut self, frame: Frame) -> Self {
        self.out.push(frame);
        self
    }

    /// The frames of the stream. They end with the status of the first [`StreamEnd`], or without
    /// one when nothing can follow.
    pub fn into_frames(self) -> Frames {
        // Boxed: the state is moved with every frame.
        stream::unfold(Some(Box::new(self)), |this| async move {
            let mut this = this?;
            match this.next().await {
                Ok(Some(frame)) => Some((Ok(frame), Some(this))),
                Ok(None) => None,
                Err(end) => Some((Err(S::status(end)), None)),
            }
        })
        .boxed()
    }

    /// The next frame; `None` when nothing can follow.
    async fn next(&mut self) -> Result<Option<Frame>, StreamEnd> {
        loop {
            if self.rights.take_changed(self.node.rights_changed()) {
                self.service.rejudge(&self.node, &mut self.out)?;
            }
            if let Some(frame) = self.out.pop() {
                headwater_fail_points::fail_point!(WatchSend);
                return Ok(Some(frame));
            }
            // Events must not delay a request for long.
            self.turns += 1;
            if self.turns >= S::TURNS_PER_REQUEST_CHECK {
                self.turns = 0;
                let request = self.requests.as_mut().and_then(|requests| requests.next().now_or_never());
                if let Some(request) = request {
                    self.take(request).await?;
                    continue;
                }
            }
            if self.service.advance(&mut self.out).await? {
                continue;
            }
            if self.requests.is_none() && self.service.is_finished() {
                return Ok(None);
            }
            match poll_fn(|cx| self.poll_wake(cx)).await? {
                Wake::Feed(tokens) => self.service.raised(tokens),
                Wake::Request(request) => self.take(request).await?,
                Wake::Timer | Wake::Rights => {}
            }
        }
    }

    async fn take(&mut self, request: Option<Result<S::Request, Status>>) -> Result<(), StreamEnd> {
        match request {
            Some(Ok(request)) => self.service.handle(request, &mut self.out).await,
            Some(Err(status)) => Err(StreamEnd::BadRequest(status)),
            None => {
                self.requests = None;
                Ok(())
            }
        }
    }

    fn poll_wake(&mut self, cx: &mut Context<'_>) -> Poll<Result<Wake<S::Request>, StreamEnd>> {
        if let Poll::Ready(tokens) = self.session.poll_raised(cx) {
            return Poll::Ready(Ok(Wake::Feed(tokens)));
        }
        if let Some(requests) = &mut self.requests
            && let Poll::Ready(request) = requests.poll_next_unpin(cx)
        {
            return Poll::Ready(Ok(Wake::Request(request)));
        }
        if self.service.poll_timer(cx).is_ready() {
            return Poll::Ready(Ok(Wake::Timer));
        }
        if self.rights.poll_due(cx).is_ready() {
            return Poll::Ready(Ok(Wake::Rights));
        }
        if !self.service.ends_with_feed() && self.closing.poll_unpin(cx).is_ready() {
            return Poll::Ready(Err(StreamEnd::Closed(CloseReason::Stopping)));
        }
        if self.expired.as_mut().is_some_and(|expired| expired.poll_unpin(cx).is_ready()) {
            return Poll::Ready(Err(StreamEnd::Expired));
        }
        if self.leader.as_mut().is_some_and(|leader| leader.poll_lost(cx, &self.node).is_ready()) {
            return Poll::Ready(Err(StreamEnd::LeaderLost));
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::watch;

    #[tokio::test(start_paused = true)]
    async fn a_change_of_rights_wakes_a_stream_once() {
        let (sender, receiver) = watch::channel(LogIndex(1));
        let mut probe = RightsProbe::new(WatchStream::from_changes(receiver));
        assert!(probe.take_changed(LogIndex(1)), "the first judgement");
        assert!(!probe.take_changed(LogIndex(1)));
        let wakes = async |probe: &mut RightsProbe| {
            tokio::time::timeout(2 * REJUDGE_SPREAD, poll_fn(|cx| probe.poll_due(cx))).await.is_ok()
        };
        assert!(!wakes(&mut probe).await);
        // An idle stream is woken, and judged.
        sender.send_replace(LogIndex(2));
        assert!(wakes(&mut probe).await && probe.take_changed(LogIndex(2)));
        assert!(!wakes(&mut probe).await);
        // A stream that was judged for its events is woken once more at most, and not again.
        sender.send_replace(LogIndex(3));
        assert!(probe.take_changed(LogIndex(3)));
        assert!(wakes(&mut probe).await && !probe.take_changed(LogIndex(3)));
        assert!(!wakes(&mut probe).await);
    }
}
