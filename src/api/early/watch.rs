//! The early `watch` service (spec: etcd §7.6): every request adds a key or a prefix, every
//! response is one event.
//!
//! There are no ids, no acknowledgements and no cancel; a client that closes its side still gets
//! the events that it has asked for. Events of all watchers of a stream come merged ([`Merge`]).
//! Invariant: the header's revision is the event's.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use tonic::{Status, Streaming};

use super::convert::key_value;
use super::errors::undecodable;
use super::merge::{Merge, Told};
use crate::ApiOptions;
use crate::etcd::errors::{Failure, Invalid};
use crate::shared::etcd_texts::refusal;
use crate::shared::frames::{Frame, field};
use crate::shared::leader_probe::{LeaderProbe, lost};
use crate::shared::stream_metrics::{StreamGuard, WatchMetrics};
use crate::shared::watch_service::{Frames, WatchFace, WatchParts, WatchServer};
use headwater_node::{CloseReason, Encoding, Item, KeyWatch, Kv, Node, NodeError, RequestContext, Session, WatchQuery};
use headwater_proto::pb::early as pb;
use headwater_proto::pb::early::event::EventType;
use headwater_types::{ChangeKind, KeyRange, Refusal, Revision};

/// Field of the event in a response.
const EVENT: u32 = 2;

/// Serves the early `watch`.
pub(crate) type EarlyWatchService = WatchServer<EarlyWatch>;

/// The method.
pub(crate) enum EarlyWatch {}

impl WatchFace for EarlyWatch {
    type Request = pb::WatchRequest;

    fn open(
        parts: WatchParts,
        context: RequestContext,
        requests: Streaming<pb::WatchRequest>,
    ) -> Result<Frames, Status> {
        let WatchParts { node, options, metrics } = parts;
        let stream = EarlyStream {
            _counted: metrics.stream(),
            closing: Box::pin(node.streams_closing()),
            leader: context.require_leader.then(LeaderProbe::new),
            node,
            options,
            metrics,
            context,
            requests,
            requests_ended: false,
            session: Session::new(),
            watchers: Merge::new(),
            ready: VecDeque::new(),
        };
        Ok(stream.into_frames())
    }
}

struct EarlyStream {
    node: Node,
    options: ApiOptions,
    metrics: WatchMetrics,
    _counted: StreamGuard,
    context: RequestContext,
    requests: Streaming<pb::WatchRequest>,
    /// The client has closed its side: its watchers go on, and the stream ends with the last of
    /// them.
    requests_ended: bool,
    session: Arc<Session>,
    watchers: Merge<KeyWatch>,
    ready: VecDeque<Frame>,
    leader: Option<LeaderProbe>,
    /// Resolves when the node stops: a stream without watchers hears of it in no other way.
    closing: BoxFuture<'static, ()>,
}

/// The query of a request; a refusal goes into the header.
fn query(request: &pb::WatchRequest) -> Result<WatchQuery, &'static str> {
    let range = match (request.key.is_empty(), request.prefix.is_empty()) {
        (false, true) => KeyRange::One(request.key.clone()),
        (true, false) => KeyRange::prefix(request.prefix.clone()),
        (true, true) => return Err(Invalid::EmptyKey.wire().1),
        (false, false) => return Err("headwater: give a key or a prefix to watch, not both"),
    };
    let start = match request.start_revision {
        ..0 => return Err(compacted()),
        0 => None,
        revision => Some(Revision(revision)),
    };
    Ok(WatchQuery { range, start })
}

/// One change as the event of a response, encoded once for all streams.
fn event(item: &Item<Kv>, position: usize) -> Bytes {
    let commit = item.commit();
    let change = &commit.events()[position];
    let encode = || {
        let (kind, kv) = match change.kind {
            ChangeKind::Put => (EventType::Put, None),
            ChangeKind::Delete => (EventType::Delete, commit.prev(position).flatten()),
            ChangeKind::Expire => (EventType::Expire, commit.prev(position).flatten()),
        };
        let kv = key_value(kv.unwrap_or(&change.kv).clone());
        field(EVENT, &pb::Event { event_type: kind.into(), kv: Some(kv) })
    };
    commit.encoded(position, Encoding::Early, encode).clone()
}

impl EarlyStream {
    fn into_frames(self) -> Frames {
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

    async fn next(&mut self) -> Result<Option<Frame>, Status> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Ok(Some(frame));
            }
            if !self.requests_ended
                && let Some(request) = self.requests.message().now_or_never()
            {
                match request.map_err(undecodable)? {
                    Some(request) => self.add(request).await?,
                    None => self.requests_ended = true,
                }
                continue;
            }
            if self.advance().await? {
                continue;
            }
            if self.requests_ended && self.watchers.is_over() {
                return Ok(None);
            }
            tokio::select! {
                _ = self.session.raised() => self.watchers.raise(),
                request = self.requests.message(), if !self.requests_ended => match request.map_err(undecodable)? {
                    Some(request) => self.add(request).await?,
                    None => self.requests_ended = true,
                },
                () = &mut self.closing => return Err(Failure::Node(NodeError::Stopped).into()),
                () = lost(&mut self.leader, &self.node, self.options.leader_loss_timeout) => {
                    return Err(Failure::Node(NodeError::NoLeader).into());
                }
            }
        }
    }

    async fn add(&mut self, request: pb::WatchRequest) -> Result<(), Failure> {
        let query = match query(&request) {
            Ok(query) => query,
            Err(words) => {
                self.say(words);
                return Ok(());
            }
        };
        let context = self.context.within_stream(self.options.request_timeout);
        let token = self.watchers.next_token();
        match self.node.watch(&context, query, &self.session, token).await {
            Ok(watch) => self.watchers.add(watch),
            Err(NodeError::Refused(reason)) => self.say(refusal(&reason).1),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Makes responses of the next items. Returns whether there were any.
    async fn advance(&mut self) -> Result<bool, Failure> {
        let node = &self.node;
        let item = match self.watchers.next(|| node.watch_point().index) {
            None => return Ok(false),
            Some(Told::Changed(item)) => item,
            Some(Told::Ended(reason)) => {
                self.say_ended(reason)?;
                return Ok(true);
            }
        };
        let is_removal = |position: usize| item.commit().events()[position].kind != ChangeKind::Put;
        if item.positions().any(is_removal) {
            self.node.resolve_predecessors(std::slice::from_ref(&item), 0).await?;
        }
        self.metrics.events_sent(item.len());
        let header = self.header(item.commit().revision().unwrap_or_default());
        let head = pb::WatchResponse { header: Some(header), event: None };
        self.ready.extend(item.positions().map(|position| Frame::with_tails(&head, [event(&item, position)])));
        Ok(true)
    }

    /// Why a watcher has ended; the others go on, unless the node does not.
    fn say_ended(&mut self, reason: CloseReason) -> Result<(), Failure> {
        match reason {
            CloseReason::Compacted { .. } => self.say(compacted()),
            CloseReason::EpochChanged | CloseReason::Reset => self.say(&reason.to_string()),
            CloseReason::Stopping | CloseReason::Failed(_) => return Err(NodeError::from(reason).into()),
        }
        Ok(())
    }

    /// A response that is an error and no event.
    fn say(&mut self, words: &str) {
        let header = self.header(self.node.watch_point().revision);
        let header = pb::ResponseHeader { error: words.to_owned(), ..header };
        self.ready.push_back(Frame::new(&pb::WatchResponse { header: Some(header), event: None }));
    }

    fn header(&self, revision: Revision) -> pb::ResponseHeader {
        super::header(&self.node, revision)
    }
}

fn compacted() -> &'static str {
    refusal(&Refusal::Compacted { compact_revision: Revision(0) }).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_or_a_prefix() {
        let read = |key: &'static str, prefix: &'static str| {
            query(&pb::WatchRequest { key: key.into(), prefix: prefix.into(), start_revision: 0 })
                .map(|query| query.range)
        };
        assert_eq!(read("k", ""), Ok(KeyRange::One("k".into())));
        assert_eq!(read("", "k"), Ok(KeyRange::prefix("k".into())));
        assert_eq!(read("", ""), Err("etcdserver: key is not provided"));
        assert!(read("k", "k").is_err());
    }
}
