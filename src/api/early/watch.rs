//! The early `watch` service (spec: etcd §7.6): every request adds a key or a prefix, every
//! response is one event, or one error in its header.
//!
//! Watches have no ids, are not acknowledged, and cannot be cancelled. They continue after the
//! client closes its side. Events of all watchers of a stream are merged ([`Merge`]). Invariant:
//! the header's revision is the event's; for an error it is the current one.

use std::sync::Arc;

use bytes::Bytes;
use tonic::Status;

use super::convert::key_value;
use super::errors::undecodable;
use super::merge::{Merge, MergeStep};
use headwater_api_etcd::errors::{Invalid, stream_ended};
use headwater_api_shared::ApiOptions;
use headwater_api_shared::etcd_texts::{TOO_MANY_ON_STREAM, node_error, refusal};
use headwater_api_shared::frames::{Frame, field};
use headwater_api_shared::stream::{Outbox, StreamEnd, StreamService};
use headwater_api_shared::stream_server::{WatchServer, WatchStream};
use headwater_node::{
    CloseReason, Encoding, Item, KeyWatch, Kv, Limit, Node, NodeError, RequestContext, Session, WatchQuery,
};
use headwater_proto::pb::early as pb;
use headwater_proto::pb::early::event::EventType;
use headwater_types::{Access, ChangeKind, KeyRange, LogIndex, Refusal, Revision, Space};

/// Number of the field of the event in a response.
const EVENT: u32 = 2;

/// Serves the early `watch`.
pub(crate) type EarlyWatchService = WatchServer<EarlyStream>;

/// One client's stream.
pub(crate) struct EarlyStream {
    node: Node,
    options: ApiOptions,
    context: RequestContext,
    session: Arc<Session>,
    watchers: Merge<KeyWatch>,
    /// The intervals of all watchers that were added, also of those that have ended.
    ranges: Vec<KeyRange>,
    /// Log index of the last change of rights by which `ranges` were judged.
    judged: LogIndex,
}

/// The query of a request: its key or prefix, and its first revision. Revision 0 becomes a `start`
/// of `None`: watch from now on. The error is a text for `header.error`.
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

/// One change as the event of a response, encoded once for all streams. The caller has resolved the
/// predecessor of a removal.
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

impl WatchStream for EarlyStream {
    fn new(node: Node, options: ApiOptions, context: RequestContext, session: Arc<Session>) -> Self {
        let judged = node.rights_changed();
        Self { node, options, context, session, watchers: Merge::new(), ranges: Vec::new(), judged }
    }
}

impl StreamService for EarlyStream {
    type Request = pb::WatchRequest;

    fn status(end: StreamEnd) -> Status {
        match end {
            StreamEnd::BadRequest(status) => undecodable(status),
            end => stream_ended(end),
        }
    }

    async fn advance(&mut self, out: &mut Outbox) -> Result<bool, StreamEnd> {
        let node = &self.node;
        let item = match self.watchers.next(|| node.follow().published().index) {
            None => return Ok(false),
            Some(MergeStep::Changed(item)) => item,
            Some(MergeStep::Ended(reason)) => {
                self.say_ended(reason, out)?;
                return Ok(true);
            }
        };
        let is_removal = |position: usize| item.commit().events()[position].kind != ChangeKind::Put;
        if item.positions().any(is_removal) {
            self.node.follow().resolve_predecessors(std::slice::from_ref(&item), 0).await?;
        }
        self.reauthorize()?;
        out.events_sent(item.len());
        let header = self.header(item.commit().revision().unwrap_or_default());
        let head = pb::WatchResponse { header: Some(header), event: None };
        for position in item.positions() {
            out.push(Frame::with_tails(&head, [event(&item, position)]));
        }
        Ok(true)
    }

    async fn handle(&mut self, request: pb::WatchRequest, out: &mut Outbox) -> Result<(), StreamEnd> {
        // Watchers of this API cannot be cancelled.
        if self.watchers.next_token() >= self.options.watchers_per_stream_max as u64 {
            self.node.limit_counters().count(Limit::WatchersPerStream);
            self.say(TOO_MANY_ON_STREAM, out);
            return Ok(());
        }
        if self.node.count_request(self.context.client).is_err() {
            self.say(&node_error(&NodeError::TooManyRequests).1, out);
            return Ok(());
        }
        let query = match query(&request) {
            Ok(query) => query,
            Err(words) => {
                self.say(words, out);
                return Ok(());
            }
        };
        let context = self.context.within_stream(self.options.request_timeout);
        self.node.wait_ready(&context).await?;
        let context = match self.node.stream_context(&context) {
            Ok(context) => context,
            Err(NodeError::Refused(reason)) => {
                self.say(refusal(&reason).1, out);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        // The stream stays the principal's after its token has expired.
        self.context.principal = context.principal.clone();
        let token = self.watchers.next_token();
        let range = query.range.clone();
        match self.node.follow().keys(&context, query, &self.session, token).await {
            Ok(watch) => {
                self.watchers.add(watch);
                self.ranges.push(range);
            }
            Err(error @ (NodeError::Refused(_) | NodeError::TooManyWatchers)) => self.say(&node_error(&error).1, out),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn rejudge(&mut self, _: &Node, _: &mut Outbox) -> Result<(), StreamEnd> {
        self.reauthorize()
    }

    fn raised(&mut self, _tokens: Vec<u64>) {
        self.watchers.raise();
    }

    fn is_finished(&self) -> bool {
        self.watchers.is_empty()
    }
}

impl EarlyStream {
    /// Ends the stream if the principal has lost the right to one of its intervals. A single watch
    /// cannot be ended, because it has no id.
    fn reauthorize(&mut self) -> Result<(), StreamEnd> {
        if self.node.rights_changed() != self.judged {
            let authorizer = self.node.authorizer(&self.context)?;
            for range in &self.ranges {
                authorizer
                    .permit(Space::Kv, range, Access::READ)
                    .map_err(|denied| NodeError::from(Refusal::Auth(denied)))?;
            }
            self.judged = authorizer.as_of();
        }
        Ok(())
    }

    /// Reports the end of a watcher. The others continue, unless the node stops or its feed has
    /// failed: these end the stream.
    fn say_ended(&self, reason: CloseReason, out: &mut Outbox) -> Result<(), StreamEnd> {
        match reason {
            CloseReason::Compacted { .. } => self.say(compacted(), out),
            CloseReason::EpochChanged | CloseReason::Reset => self.say(&reason.to_string(), out),
            CloseReason::Stopping | CloseReason::Failed(_) => return Err(reason.into()),
        }
        Ok(())
    }

    /// Pushes a response with an error and without an event.
    fn say(&self, words: &str, out: &mut Outbox) {
        let header = self.header(self.node.follow().published().revision);
        let header = pb::ResponseHeader { error: words.to_owned(), ..header };
        out.message(&pb::WatchResponse { header: Some(header), event: None });
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
