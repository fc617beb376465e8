//! One client's watch stream: requests in, responses out, everything in one order.
//!
//! Owns the ids of the watchers and the order of sending. Invariants: a response is made when the
//! client takes it; the answer to a progress request comes after every event that it vouches for;
//! after a cancel nothing follows for the watcher.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use tokio::time::{Interval, MissedTickBehavior, interval_at};
use tonic::{Status, Streaming};

use super::super::errors::Failure;
use super::super::header;
use super::encode;
use super::watcher::{DUPLICATE_ID, Watcher, Wish};
use crate::ApiOptions;
use crate::shared::frames::Frame;
use crate::shared::leader_probe::{LeaderProbe, lost};
use crate::shared::stream_metrics::{StreamGuard, WatchMetrics};
use crate::shared::watch_service::{Frames, WatchParts};
use headwater_node::{CloseReason, Node, NodeError, RequestContext, Session, StatePoint, WatchQuery};
use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::watch_request::RequestUnion;
use headwater_types::{LogIndex, Refusal, Revision};

/// Turns of a stream that has something to send, after which it looks for requests; one that has
/// nothing looks at once.
const TURNS_UNHEARD_MAX: usize = 16;

/// The id of responses that are about the whole stream.
const WHOLE_STREAM: i64 = -1;

pub(super) struct WatchStream {
    node: Node,
    options: ApiOptions,
    metrics: WatchMetrics,
    counted: StreamGuard,
    context: RequestContext,
    requests: Streaming<pb::WatchRequest>,
    /// The client has closed its side: its watchers go on, and the stream ends with the last of
    /// them.
    requests_ended: bool,
    session: Arc<Session>,
    /// By token. Tokens are never used twice.
    watchers: BTreeMap<u64, Watcher>,
    tokens: HashMap<i64, u64>,
    next_token: u64,
    next_id: i64,
    /// Made and not yet taken.
    ready: VecDeque<Frame>,
    /// Watchers that may have something to read.
    raised: VecDeque<u64>,
    progress: Option<Progress>,
    /// Requests for progress that came after that, and wait for a point of their own.
    asked: usize,
    /// Ticks once a watcher wants to hear of progress.
    ticker: Option<Interval>,
    leader: Option<LeaderProbe>,
    /// Resolves when the node stops: a stream without watchers hears of it in no other way.
    closing: BoxFuture<'static, ()>,
    /// Turns since the client's side was looked at.
    turns_unheard: usize,
}

/// Requests for progress that are not yet answered. Until they are, nothing beyond its point is
/// sent, so that the answer never names a revision older than an event before it.
struct Progress {
    /// The point that every watcher must reach.
    point: StatePoint,
    /// Watchers that stopped there and have to read on.
    stopped: BTreeSet<u64>,
    /// How many requests it answers.
    requests: usize,
}

impl WatchStream {
    pub(super) fn new(parts: WatchParts, context: RequestContext, requests: Streaming<pb::WatchRequest>) -> Self {
        let WatchParts { node, options, metrics } = parts;
        let leader = context.require_leader.then(LeaderProbe::new);
        let closing = Box::pin(node.streams_closing());
        Self {
            node,
            options,
            counted: metrics.stream(),
            metrics,
            context,
            requests,
            requests_ended: false,
            session: Session::new(),
            watchers: BTreeMap::new(),
            tokens: HashMap::new(),
            next_token: 0,
            next_id: 0,
            ready: VecDeque::new(),
            raised: VecDeque::new(),
            progress: None,
            asked: 0,
            ticker: None,
            leader,
            closing,
            turns_unheard: 0,
        }
    }

    pub(super) fn into_frames(self) -> Frames {
        // Boxed: it is handed on with every response.
        stream::unfold(Some(Box::new(self)), |this| async move {
            let mut this = this?;
            match this.next().await {
                Ok(Some(frame)) => Some((Ok(frame), Some(this))),
                Ok(None) => None,
                Err(status) => Some((Err(status), None)),
            }
        })
        .boxed()
    }

    /// The next response; `None` when nothing can follow.
    async fn next(&mut self) -> Result<Option<Frame>, Status> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                headwater_fail_points::fail_point!(WatchSend);
                return Ok(Some(frame));
            }
            self.counted.nothing_pending();
            // A stream of events must not keep a cancel or another request waiting for long; each
            // look takes the lock of the whole connection.
            self.turns_unheard += 1;
            if self.turns_unheard >= TURNS_UNHEARD_MAX && !self.requests_ended {
                self.turns_unheard = 0;
                if let Some(request) = self.requests.message().now_or_never() {
                    match request? {
                        Some(request) => self.handle(request).await?,
                        None => self.requests_ended = true,
                    }
                    continue;
                }
            }
            if self.requests_ended && self.watchers.is_empty() {
                return Ok(None);
            }
            // Nor may the events of one watcher keep the others from hearing of progress. What
            // answers a request for progress comes before.
            if self.progress.is_none() && tick(&mut self.ticker).now_or_never().is_some() {
                self.notify_progress();
                continue;
            }
            // Whoever was raised meanwhile comes after those who wait; one that is far behind goes
            // to the end of the queue after each response, which is never empty then.
            self.raised.extend(self.session.take_raised());
            if let Some(token) = self.raised.pop_front() {
                self.advance(token).await?;
                continue;
            }
            if self.progress.is_some() && self.answer_progress() {
                continue;
            }
            tokio::select! {
                raised = self.session.raised() => self.raised.extend(raised),
                request = self.requests.message(), if !self.requests_ended => match request? {
                    Some(request) => self.handle(request).await?,
                    None => self.requests_ended = true,
                },
                () = tick(&mut self.ticker) => self.notify_progress(),
                // Watchers end with their feed.
                () = &mut self.closing, if self.watchers.is_empty() => {
                    return Err(Failure::Node(NodeError::Stopped).into());
                }
                () = lost(&mut self.leader, &self.node, self.options.leader_loss_timeout) => {
                    return Err(Failure::Node(NodeError::NoLeader).into());
                }
            }
        }
    }

    async fn handle(&mut self, request: pb::WatchRequest) -> Result<(), Failure> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(request)) => self.create(request).await?,
            Some(RequestUnion::CancelRequest(request)) => self.cancel(request.watch_id),
            Some(RequestUnion::ProgressRequest(_)) => {
                self.asked += 1;
                self.begin_progress();
            }
            None => {}
        }
        Ok(())
    }

    async fn create(&mut self, request: pb::WatchCreateRequest) -> Result<(), Failure> {
        let wanted_id = request.watch_id;
        let wish = match Wish::read(request) {
            Ok(_) if wanted_id != 0 && self.tokens.contains_key(&wanted_id) => Err(DUPLICATE_ID),
            read => read,
        };
        let wish = match wish {
            Ok(wish) => wish,
            Err(words) => {
                self.reject(words);
                return Ok(());
            }
        };
        let id = match wanted_id {
            0 => {
                while self.tokens.contains_key(&self.next_id) {
                    self.next_id += 1;
                }
                self.next_id += 1;
                self.next_id - 1
            }
            id => id,
        };
        let token = self.next_token;
        self.next_token += 1;
        let context = self.context.within_stream(self.options.request_timeout);
        let query = WatchQuery { range: wish.range.clone(), start: wish.start };
        match self.node.watch(&context, query, &self.session, token).await {
            Ok(watch) => {
                self.push(pb::WatchResponse { watch_id: id, created: true, ..self.head(watch.started()) });
                if wish.progress_notify {
                    self.start_ticker();
                }
                self.tokens.insert(id, token);
                self.watchers.insert(token, Watcher::new(id, wish, watch));
                self.raised.push_back(token);
            }
            Err(NodeError::Refused(Refusal::Compacted { compact_revision })) => {
                let current = self.node.watch_point().revision;
                self.push(pb::WatchResponse { watch_id: id, created: true, ..self.head(current) });
                self.push(self.compacted(id, compact_revision));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn reject(&mut self, words: &str) {
        let current = self.node.watch_point().revision;
        self.push(pb::WatchResponse {
            watch_id: WHOLE_STREAM,
            created: true,
            canceled: true,
            cancel_reason: words.to_owned(),
            ..self.head(current)
        });
    }

    fn cancel(&mut self, id: i64) {
        if let Some(token) = self.tokens.remove(&id) {
            self.watchers.remove(&token);
            let current = self.node.watch_point().revision;
            self.push(pb::WatchResponse { watch_id: id, canceled: true, ..self.head(current) });
        }
    }

    /// Makes a response of a watcher's unread events.
    async fn advance(&mut self, token: u64) -> Result<(), Failure> {
        let Some(watcher) = self.watchers.get_mut(&token) else { return Ok(()) };
        let through = match &mut self.progress {
            Some(progress) => {
                progress.stopped.insert(token);
                progress.point.index
            }
            None => LogIndex(u64::MAX),
        };
        let batch = watcher.read(&self.node, through).await?;
        let id = watcher.id;
        if !batch.events.is_empty() {
            watcher.is_idle = false;
            let may_split = watcher.wish.fragment;
            self.metrics.events_sent(batch.events.len());
            self.counted.events_pending(batch.events.len());
            let head = pb::WatchResponse { watch_id: id, ..self.head(batch.revision) };
            self.ready.extend(encode::responses(head, batch.events, may_split));
        }
        if batch.more {
            self.raised.push_back(token);
        }
        match batch.ended {
            None => {}
            Some(CloseReason::Compacted { revision }) => {
                self.forget(token, id);
                self.push(self.compacted(id, revision));
            }
            // Clients know only this word for "start over".
            Some(reason @ (CloseReason::EpochChanged | CloseReason::Reset)) => {
                self.forget(token, id);
                let current = self.node.watch_point().revision;
                self.push(pb::WatchResponse { cancel_reason: reason.to_string(), ..self.compacted(id, current) });
            }
            Some(reason @ (CloseReason::Stopping | CloseReason::Failed(_))) => {
                return Err(NodeError::from(reason).into());
            }
        }
        Ok(())
    }

    fn forget(&mut self, token: u64, id: i64) {
        self.watchers.remove(&token);
        self.tokens.remove(&id);
    }

    /// Makes everybody stop where the node is now, for those who have asked, unless an answer is
    /// still under way.
    fn begin_progress(&mut self) {
        if self.asked > 0 && self.progress.is_none() {
            let requests = std::mem::take(&mut self.asked);
            self.progress = Some(Progress { point: self.node.watch_point(), stopped: BTreeSet::new(), requests });
        }
    }

    /// Answers progress requests if every watcher is through; else lets those read who are not, or
    /// gives up if one is catching up: the client asks again (spec: etcd §2.1). Whether there is
    /// something to do now.
    fn answer_progress(&mut self) -> bool {
        let Some(Progress { point, stopped, requests }) = self.progress.take() else { return false };
        let mut pending = Vec::new();
        let mut gives_up = self.watchers.is_empty();
        for (token, watcher) in &self.watchers {
            let begins_later = watcher.wish.start.is_some_and(|start| start > point.revision);
            let is_through = watcher.is_through(point.index);
            gives_up |= begins_later || (!is_through && watcher.is_lagging());
            if !is_through {
                pending.push(*token);
            }
        }
        if !gives_up && !pending.is_empty() {
            self.raised.extend(pending);
            self.progress = Some(Progress { point, stopped, requests });
            return true;
        }
        if !gives_up {
            for _ in 0..requests {
                self.push(pb::WatchResponse { watch_id: WHOLE_STREAM, ..self.head(point.revision) });
            }
        }
        let goes_on = !gives_up || !stopped.is_empty() || self.asked > 0;
        self.raised.extend(stopped);
        self.begin_progress();
        goes_on
    }

    /// Tells the idle among those who want to hear it how far they have come.
    fn notify_progress(&mut self) {
        let point = self.node.watch_point();
        let mut idle = Vec::new();
        for watcher in self.watchers.values_mut().filter(|watcher| watcher.wish.progress_notify) {
            let has_begun = watcher.wish.start.is_none_or(|start| start <= point.revision);
            if std::mem::replace(&mut watcher.is_idle, true) && has_begun && watcher.is_through(point.index) {
                idle.push(watcher.id);
            }
        }
        for watch_id in idle {
            self.push(pb::WatchResponse { watch_id, ..self.head(point.revision) });
        }
    }

    fn start_ticker(&mut self) {
        self.ticker.get_or_insert_with(|| {
            // A little apart from each other, so that ten thousand streams do not tick at once.
            let jitter = rand::random_range(0.0..0.1);
            let period = self.options.watch_progress_interval.mul_f64(1.0 + jitter);
            let mut ticker = interval_at(tokio::time::Instant::now() + period, period);
            ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticker
        });
    }

    fn compacted(&self, watch_id: i64, revision: Revision) -> pb::WatchResponse {
        let compact_revision = revision.get();
        pb::WatchResponse { watch_id, canceled: true, compact_revision, ..self.head(Revision(0)) }
    }

    fn head(&self, revision: Revision) -> pb::WatchResponse {
        pb::WatchResponse { header: Some(header::full(&self.node, revision)), ..Default::default() }
    }

    fn push(&mut self, response: pb::WatchResponse) {
        self.ready.push_back(Frame::new(&response));
    }
}

async fn tick(ticker: &mut Option<Interval>) {
    match ticker {
        Some(ticker) => drop(ticker.tick().await),
        None => std::future::pending().await,
    }
}
