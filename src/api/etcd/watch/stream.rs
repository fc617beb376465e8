//! One client's watch stream: requests in, responses out, everything in one order.
//!
//! Owns the ids of the watchers and the order in which they are read. Invariants: the answer to a
//! progress request comes after every event up to its revision; after the answer to a cancel the
//! watcher gets nothing more.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use tokio::time::{Interval, MissedTickBehavior, interval_at};
use tonic::Status;

use super::super::{errors, header};
use super::encode;
use super::watcher::{DUPLICATE_ID, TOO_FAST, WatchOptions, Watcher};
use headwater_api_shared::ApiOptions;
use headwater_api_shared::etcd_texts::{self, TOO_MANY_ON_STREAM};
use headwater_api_shared::stream::{Outbox, StreamEnd, StreamService};
use headwater_api_shared::stream_server;
use headwater_node::{CloseReason, Limit, Node, NodeError, RequestContext, Session, StatePoint, WatchQuery};
use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::watch_request::RequestUnion;
use headwater_types::{Access, KeyRange, LogIndex, Refusal, Revision, Space};

/// The id in responses about no watcher: answers to progress requests, and refusals of create
/// requests. A refusal below the compaction point has the id that the watch would have had.
const INVALID_WATCH_ID: i64 = -1;

/// One client's stream.
pub(crate) struct WatchStream {
    node: Node,
    options: ApiOptions,
    context: RequestContext,
    session: Arc<Session>,
    /// Watchers by token. Tokens are never used twice.
    watchers: BTreeMap<u64, Watcher>,
    tokens: HashMap<i64, u64>,
    next_token: u64,
    next_id: i64,
    /// Watchers that may be readable, by token, in the order in which they will be read.
    raised: VecDeque<u64>,
    progress: Option<Progress>,
    /// Number of progress requests that came after `progress` had begun. They get an answer of
    /// their own after it.
    asked: usize,
    /// Timer of progress notifications; `None` until a watcher wants them.
    ticker: Option<Interval>,
    /// Whether the ticker has ticked during a wait, and the tick is not handled yet.
    has_ticked: bool,
    /// Log index of the newest change of rights that the last judgement of the watchers knew.
    judged: LogIndex,
}

/// Progress requests that are not yet answered. Until the answer, no event after `point` is sent:
/// the answer never names an older revision than an event that was sent before it.
struct Progress {
    /// The point that every watcher must reach.
    point: StatePoint,
    /// Watchers that were read up to the point only; they are read on after the answer.
    stopped: BTreeSet<u64>,
    /// Number of requests that the answer is for.
    requests: usize,
}

impl stream_server::WatchStream for WatchStream {
    fn new(node: Node, options: ApiOptions, context: RequestContext, session: Arc<Session>) -> Self {
        Self {
            judged: node.rights_changed(),
            node,
            options,
            context,
            session,
            watchers: BTreeMap::new(),
            tokens: HashMap::new(),
            next_token: 0,
            next_id: 0,
            raised: VecDeque::new(),
            progress: None,
            asked: 0,
            ticker: None,
            has_ticked: false,
        }
    }
}

impl StreamService for WatchStream {
    type Request = pb::WatchRequest;

    const TURNS_PER_REQUEST_CHECK: usize = 16;

    fn status(end: StreamEnd) -> Status {
        errors::stream_ended(end)
    }

    async fn advance(&mut self, out: &mut Outbox) -> Result<bool, StreamEnd> {
        // The events of one watcher must not delay the notifications of the others. An unfinished
        // answer to a progress request comes first.
        if self.progress.is_none() && (std::mem::take(&mut self.has_ticked) || self.is_tick_due()) {
            self.notify_progress(out);
            return Ok(true);
        }
        // A watcher that is far behind returns to the end of the queue after each response, so the
        // queue may never be empty: watchers that were raised meanwhile are appended here.
        self.raised.extend(self.session.take_raised());
        if let Some(token) = self.raised.pop_front() {
            self.read(token, out).await?;
            return Ok(true);
        }
        Ok(self.progress.is_some() && self.answer_progress(out))
    }

    fn rejudge(&mut self, _: &Node, out: &mut Outbox) -> Result<(), StreamEnd> {
        self.reauthorize(out)
    }

    async fn handle(&mut self, request: pb::WatchRequest, out: &mut Outbox) -> Result<(), StreamEnd> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(request)) => self.create(request, out).await?,
            Some(RequestUnion::CancelRequest(request)) => self.cancel(request.watch_id, out),
            Some(RequestUnion::ProgressRequest(_)) => {
                self.asked += 1;
                self.begin_progress();
            }
            None => {}
        }
        Ok(())
    }

    fn raised(&mut self, tokens: Vec<u64>) {
        self.raised.extend(tokens);
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(ticker) = &mut self.ticker else { return Poll::Pending };
        ticker.poll_tick(cx).map(|_| self.has_ticked = true)
    }

    fn is_finished(&self) -> bool {
        self.watchers.is_empty()
    }

    fn ends_with_feed(&self) -> bool {
        !self.watchers.is_empty()
    }
}

impl WatchStream {
    /// Whether a tick of progress is due now.
    fn is_tick_due(&mut self) -> bool {
        self.ticker.as_mut().is_some_and(|ticker| ticker.tick().now_or_never().is_some())
    }

    async fn create(&mut self, request: pb::WatchCreateRequest, out: &mut Outbox) -> Result<(), StreamEnd> {
        let wanted_id = request.watch_id;
        if self.watchers.len() >= self.options.watchers_per_stream_max {
            self.node.limit_counters().count(Limit::WatchersPerStream);
            self.reject(TOO_MANY_ON_STREAM, out);
            return Ok(());
        }
        // The request rate counts the beginning of a watch, and none of its events.
        if self.node.count_request(self.context.client).is_err() {
            self.reject(TOO_FAST, out);
            return Ok(());
        }
        let options = match WatchOptions::read(request) {
            Ok(_) if wanted_id != 0 && self.tokens.contains_key(&wanted_id) => Err(DUPLICATE_ID),
            read => read,
        };
        let options = match options {
            Ok(options) => options,
            Err(words) => {
                self.reject(words, out);
                return Ok(());
            }
        };
        // Checked before an id is assigned: a refused watch uses none.
        let context = match self.settled(&options.range).await {
            Ok(context) => context,
            Err(NodeError::Refused(Refusal::Auth(refusal))) => {
                self.reject(&etcd_texts::as_go_prints(etcd_texts::auth(refusal)), out);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
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
        let query = WatchQuery { range: options.range.clone(), start: options.start };
        match self.node.follow().keys(&context, query, &self.session, token).await {
            Ok(watch) => {
                out.message(&pb::WatchResponse { watch_id: id, created: true, ..self.head(watch.started()) });
                if options.progress_notify {
                    self.start_ticker();
                }
                self.tokens.insert(id, token);
                self.watchers.insert(token, Watcher::new(id, options, watch));
                self.raised.push_back(token);
            }
            Err(NodeError::Refused(Refusal::Auth(refusal))) => {
                self.reject(&etcd_texts::as_go_prints(etcd_texts::auth(refusal)), out);
            }
            Err(NodeError::Refused(Refusal::Compacted { compact_revision })) => {
                let current = self.node.follow().published().revision;
                out.message(&pb::WatchResponse { watch_id: id, created: true, ..self.head(current) });
                out.message(&self.compacted(id, compact_revision));
            }
            // The other watchers of the stream go on.
            Err(error @ NodeError::TooManyWatchers) => self.reject(&etcd_texts::node_error(&error).1, out),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Waits until this node may answer, and checks that the principal may watch `range`. Returns
    /// the context of the watch. The stream keeps its principal: it stays authenticated after a
    /// token of etcd's Auth has expired.
    async fn settled(&mut self, range: &KeyRange) -> Result<RequestContext, NodeError> {
        let context = self.context.within_stream(self.options.request_timeout);
        self.node.wait_ready(&context).await?;
        let context = self.node.stream_context(&context)?;
        self.node.authorize(&context, Space::Kv, range, Access::READ)?;
        self.context.principal = context.principal.clone();
        Ok(context)
    }

    /// If any rights have changed, cancels the watchers whose range the principal may not read any
    /// more, and drops their unsent frames.
    fn reauthorize(&mut self, out: &mut Outbox) -> Result<(), StreamEnd> {
        let changed = self.node.rights_changed();
        if changed == self.judged {
            return Ok(());
        }
        let judged = match self.node.authorizer(&self.context) {
            Ok(authorizer) => {
                self.judged = authorizer.as_of();
                Ok(authorizer)
            }
            Err(NodeError::Refused(Refusal::Auth(refusal))) => {
                self.judged = changed;
                Err(refusal)
            }
            Err(error) => return Err(error.into()),
        };
        let verdict = |range: &KeyRange| match &judged {
            Ok(authorizer) => authorizer.permit(Space::Kv, range, Access::READ),
            Err(refusal) => Err(*refusal),
        };
        let denied: Vec<_> = self
            .watchers
            .iter()
            .filter_map(|(token, watcher)| Some((*token, watcher.id, verdict(&watcher.options.range).err()?)))
            .collect();
        for (token, watch_id, refusal) in denied {
            self.forget(token, watch_id);
            out.discard(token);
            let current = self.node.follow().published().revision;
            let cancel_reason = etcd_texts::as_go_prints(etcd_texts::auth(refusal));
            out.message(&pb::WatchResponse { watch_id, canceled: true, cancel_reason, ..self.head(current) });
        }
        Ok(())
    }

    fn reject(&self, words: &str, out: &mut Outbox) {
        let current = self.node.follow().published().revision;
        out.message(&pb::WatchResponse {
            watch_id: INVALID_WATCH_ID,
            created: true,
            canceled: true,
            cancel_reason: words.to_owned(),
            ..self.head(current)
        });
    }

    fn cancel(&mut self, id: i64, out: &mut Outbox) {
        if let Some(token) = self.tokens.remove(&id) {
            self.watchers.remove(&token);
            let current = self.node.follow().published().revision;
            out.message(&pb::WatchResponse { watch_id: id, canceled: true, ..self.head(current) });
        }
    }

    /// Reads a watcher's next events and pushes them as responses. While a progress answer is
    /// unfinished, reads up to its point only. Cancels a watcher that has ended. An error ends the
    /// whole stream; so do a stop of the node and a failure of the feed.
    async fn read(&mut self, token: u64, out: &mut Outbox) -> Result<(), StreamEnd> {
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
            let may_split = watcher.options.fragment;
            out.events_sent(batch.count);
            out.events_pending(batch.count);
            let head = pb::WatchResponse { watch_id: id, ..self.head(batch.revision) };
            let bytes_max = self.options.message_bytes_max();
            let frames = encode::responses(head, batch.events, may_split, bytes_max);
            frames.into_iter().for_each(|frame| out.push_of(token, frame));
        }
        if batch.more {
            self.raised.push_back(token);
        }
        match batch.ended {
            None => {}
            Some(CloseReason::Compacted { revision }) => {
                self.forget(token, id);
                out.message(&self.compacted(id, revision));
            }
            // Clients know no other reply that makes them start over.
            Some(reason @ (CloseReason::EpochChanged | CloseReason::Reset)) => {
                self.forget(token, id);
                let current = self.node.follow().published().revision;
                out.message(&pb::WatchResponse { cancel_reason: reason.to_string(), ..self.compacted(id, current) });
            }
            Some(reason @ (CloseReason::Stopping | CloseReason::Failed(_))) => {
                return Err(reason.into());
            }
        }
        Ok(())
    }

    fn forget(&mut self, token: u64, id: i64) {
        self.watchers.remove(&token);
        self.tokens.remove(&id);
    }

    /// Begins a progress answer for the requests so far: every watcher stops at the node's current
    /// point. Does nothing while another answer is unfinished.
    fn begin_progress(&mut self) {
        if self.asked > 0 && self.progress.is_none() {
            let requests = std::mem::take(&mut self.asked);
            self.progress =
                Some(Progress { point: self.node.follow().published(), stopped: BTreeSet::new(), requests });
        }
    }

    /// Answers the progress requests if every watcher has reached their point. Drops them without
    /// an answer if there is no watcher, or one is catching up behind the point or begins at a
    /// later revision: the client must repeat them (spec: etcd §2.1). In all other cases the
    /// watchers behind the point read on. Returns false if the stream may wait: nothing was sent,
    /// and nothing is left to do now.
    fn answer_progress(&mut self, out: &mut Outbox) -> bool {
        let Some(Progress { point, stopped, requests }) = self.progress.take() else { return false };
        let mut pending = Vec::new();
        let mut gives_up = self.watchers.is_empty();
        for (token, watcher) in &self.watchers {
            let begins_later = watcher.options.start.is_some_and(|start| start > point.revision);
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
                out.message(&pb::WatchResponse { watch_id: INVALID_WATCH_ID, ..self.head(point.revision) });
            }
        }
        let goes_on = !gives_up || !stopped.is_empty() || self.asked > 0;
        self.raised.extend(stopped);
        self.begin_progress();
        goes_on
    }

    /// Sends a notification of progress to each watcher that wants it and had no event since the
    /// last tick. Leaves out watchers with unread events, or with a start in the future.
    fn notify_progress(&mut self, out: &mut Outbox) {
        let point = self.node.follow().published();
        let mut idle = Vec::new();
        for watcher in self.watchers.values_mut().filter(|watcher| watcher.options.progress_notify) {
            let has_begun = watcher.options.start.is_none_or(|start| start <= point.revision);
            if std::mem::replace(&mut watcher.is_idle, true) && has_begun && watcher.is_through(point.index) {
                idle.push(watcher.id);
            }
        }
        for watch_id in idle {
            out.message(&pb::WatchResponse { watch_id, ..self.head(point.revision) });
        }
    }

    fn start_ticker(&mut self) {
        self.ticker.get_or_insert_with(|| {
            // Jitter, so that ten thousand streams do not tick at once.
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
}
