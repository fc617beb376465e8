//! One stream of changes: pulls groups from the node and puts them into batches.
//!
//! Invariants: a batch is made only when the client reads; it is sent as soon as one change is
//! queued, with all queued changes up to its size; a change is never split, a group may be.

use std::collections::VecDeque;
use std::convert::Infallible;

use bytes::Bytes;
use tonic::Status;

use super::errors::stream_ended;
use headwater_api_shared::frames::Frame;
use headwater_api_shared::stream::{Outbox, StreamEnd, StreamService};
use headwater_api_shared::target::SPACES;
use headwater_node::{
    ElementChange, ElementData, ElementEncoder, ElementState, EntityWatch, Node, Position, RequestContext, WatchStart,
};
use headwater_proto::pb::pbwatcher::ChangeBatch;

pub(super) struct ChangeStream {
    /// The source of changes after the first ones; `None` for the list of the spaces, which never
    /// changes.
    watch: Option<EntityWatch>,
    /// Encoded changes that are not yet in a batch.
    queue: VecDeque<Bytes>,
    /// Limit of the changes in one batch, bytes. A larger change is a batch of its own.
    batch_bytes: usize,
    context: RequestContext,
}

impl ChangeStream {
    /// A stream that begins with the changes `first`.
    pub(super) fn new(
        watch: Option<EntityWatch>,
        first: Vec<Bytes>,
        batch_bytes: usize,
        context: RequestContext,
    ) -> Self {
        Self { watch, queue: first.into(), batch_bytes, context }
    }

    /// The queued changes, as far as they fit into one batch; `None` if there are none.
    fn batch(&mut self) -> Option<Vec<Bytes>> {
        let first = self.queue.pop_front()?;
        let mut bytes = first.len();
        let mut changes = vec![first];
        while let Some(next) = self.queue.front()
            && bytes + next.len() <= self.batch_bytes
        {
            bytes += next.len();
            changes.extend(self.queue.pop_front());
        }
        Some(changes)
    }
}

impl StreamService for ChangeStream {
    type Request = Infallible;

    fn status(end: StreamEnd) -> Status {
        stream_ended(end)
    }

    async fn advance(&mut self, out: &mut Outbox) -> Result<bool, StreamEnd> {
        if let Some(changes) = self.batch() {
            out.events_sent(changes.len());
            out.push(Frame::with_tails(&ChangeBatch::default(), changes));
            return Ok(true);
        }
        let Some(watch) = &mut self.watch else { return Ok(false) };
        let Some(groups) = watch.next().await? else { return Ok(false) };
        groups.iter().for_each(|group| self.queue.extend(group.iter().cloned()));
        Ok(true)
    }

    fn rejudge(&mut self, node: &Node, _: &mut Outbox) -> Result<(), StreamEnd> {
        let judged = match &self.watch {
            Some(watch) => watch.rejudge(node, &self.context),
            None => node.authorizer(&self.context).map(drop),
        };
        judged.map_err(StreamEnd::Failed)
    }

    async fn handle(&mut self, request: Infallible, _: &mut Outbox) -> Result<(), StreamEnd> {
        match request {}
    }
}

/// The changes with which a watch of `/` begins. The list of the spaces is the same on every node
/// and never changes, so no others follow.
pub(super) fn spaces(encoder: &dyn ElementEncoder, start: WatchStart, at: Position) -> Vec<Bytes> {
    let change = |element: &str, state| ElementChange { element: element.to_owned(), state };
    let there = |element| change(element, ElementState::Exists(ElementData::Empty));
    let changes = match start {
        WatchStart::State { .. } => {
            std::iter::once("").chain(SPACES.iter().map(|(name, _)| *name)).map(there).collect()
        }
        WatchStart::Now => vec![change("", ElementState::Skipped)],
        WatchStart::After(_) => vec![there("")],
    };
    let last = changes.len() - 1;
    let encode = |(number, change)| encoder.encode(change, (number == last).then_some(at));
    changes.iter().enumerate().map(encode).collect()
}
