//! One client's watch stream: requests in, responses out, everything in one order.
//!
//! Owns the ids of the watchers and what is to be sent next. Invariants: a response is made when the client takes it;
//! what answers a progress request comes after every event that it vouches for; after a cancel nothing follows for the
//! watcher.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use tokio::time::{Interval, MissedTickBehavior, interval_at};
use tonic::{Status, Streaming};

use super::super::super::ApiOptions;
use super::super::super::frames::Frame;
use super::super::super::leader_probe::LeaderProbe;
use super::super::super::watch_metrics::{StreamGuard, WatchMetrics};
use super::super::super::watch_service::{Frames, WatchParts};
use super::super::errors::Failure;
use super::super::header;
use super::encode;
use super::watcher::{DUPLICATE_ID, Watcher, Wish};
use crate::node::{CloseReason, Node, NodeError, RequestContext, Session, StatePoint, WatchQuery};
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::watch_request::RequestUnion;
use crate::types::{LogIndex, Refusal, Revision};

/// The id of responses that are about the whole stream.
const WHOLE_STREAM: i64 = -1;

pub(super) struct WatchStream {
    node: Node,
    options: ApiOptions,
    metrics: WatchMetrics,
    _counted: StreamGuard,
    context: RequestContext,
    requests: Streaming<pb::WatchRequest>,
    /// The client has closed its side: its watchers go on, and the stream ends with the last of them.
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
    /// Ticks once a watcher wants to hear of progress.
    ticker: Option<Interval>,
    leader: Option<LeaderProbe>,
    /// Resolves when the node stops: a stream without watchers hears of it in no other way.
    closing: BoxFuture<'static, ()>,
    has_ended: bool,
}

/// A progress request that is not yet answered. Until it is, nothing beyond its point is sent, so that the answer never
/// names a revision older than an event before it.
struct Progress {
    /// What everybody must be through with.
    point: StatePoint,
    /// Watchers that stopped there and have to read on.
    stopped: BTreeSet<u64>,
}

impl WatchStream {
    pub(super) fn new(parts: WatchParts, context: RequestContext, requests: Streaming<pb::WatchRequest>) -> Self {
        let WatchParts { node, options, metrics } = parts;
        let leader = context.require_leader.then(LeaderProbe::new);
        let closing = Box::pin(node.streams_closing());
        Self {
            node,
            options,
            _counted: metrics.stream(),
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
            ticker: None,
            leader,
            closing,
            has_ended: false,
        }
    }

    pub(super) fn into_frames(self) -> Frames {
        stream::unfold(self, |mut this| async move {
            if this.has_ended {
                return None;
            }
            match this.next().await {
                Ok(Some(frame)) => Some((Ok(frame), this)),
                Ok(None) => None,
                Err(status) => {
                    this.has_ended = true;
                    Some((Err(status), this))
                }
            }
        })
        .boxed()
    }

    /// The next response; `None` when nothing can follow.
    async fn next(&mut self) -> Result<Option<Frame>, Status> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                fail_point!(WatchSend);
                return Ok(Some(frame));
            }
            // A stream of events must not keep a cancel or another request waiting.
            if !self.requests_ended
                && let Some(request) = self.requests.message().now_or_never()
            {
                match request? {
                    Some(request) => self.handle(request).await?,
                    None => self.requests_ended = true,
                }
                continue;
            }
            if self.requests_ended && self.watchers.is_empty() {
                return Ok(None);
            }
            // Nor may the events of one watcher keep the others from hearing of progress. What answers a request for
            // progress comes before.
            if self.progress.is_none() && tick(&mut self.ticker).now_or_never().is_some() {
                self.notify_progress();
                continue;
            }
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
                () = &mut self.closing => return Err(Failure::Node(NodeError::Stopped).into()),
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
                // One answer serves two requests, if it is the later one's.
                let stopped = self.progress.take().map(|progress| progress.stopped).unwrap_or_default();
                self.progress = Some(Progress { point: self.node.watch_point(), stopped });
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
        let context = RequestContext {
            deadline: Instant::now() + self.options.request_timeout,
            // A stream outlives a moment without a leader; the probe ends it if the moment is long.
            require_leader: false,
            ..self.context.clone()
        };
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

    /// Makes a response of what a watcher has to read.
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

    /// Answers a progress request if every watcher is through; else lets those read who are not, or gives up if one is
    /// catching up: the client asks again (spec: etcd §2.1). Whether there is something to do now.
    fn answer_progress(&mut self) -> bool {
        let Some(Progress { point, stopped }) = self.progress.take() else { return false };
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
            self.progress = Some(Progress { point, stopped });
            return true;
        }
        if !gives_up {
            self.push(pb::WatchResponse { watch_id: WHOLE_STREAM, ..self.head(point.revision) });
        }
        let goes_on = !gives_up || !stopped.is_empty();
        self.raised.extend(stopped);
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

async fn lost(probe: &mut Option<LeaderProbe>, node: &Node, patience: Duration) {
    match probe {
        Some(probe) => probe.lost(node, patience).await,
        None => std::future::pending().await,
    }
}
