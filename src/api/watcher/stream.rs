//! One stream of changes: pulls them from the node and puts them into batches.
//!
//! Invariants: untaken batches are not made; a batch is sent as soon as there is something to send,
//! and holds whatever has come by then; changes are never split, groups may be.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, stream};
use tonic::Status;

use super::errors::{closed, expired, leaderless};
use super::target::SPACES;
use crate::ApiOptions;
use crate::shared::frames::Frame;
use crate::shared::leader_probe::LeaderProbe;
use crate::shared::stream_metrics::{StreamGuard, WatchMetrics};
use headwater_node::{
    ElementChange, ElementData, ElementEncoder, ElementState, EntityWatch, Node, Position, Session, WatchStart,
};
use headwater_proto::pb::pbwatcher::ChangeBatch;
use headwater_types::limits::ENTITY_BATCH_BYTES_MAX;

pub(super) struct ChangeStream {
    /// `None` follows the list of the spaces, which never changes.
    watch: Option<EntityWatch>,
    session: Arc<Session>,
    /// Encoded and not yet sent.
    queue: VecDeque<Bytes>,
    batch_bytes: usize,
    closing: BoxFuture<'static, ()>,
    expired: Option<BoxFuture<'static, ()>>,
    leaderless: BoxFuture<'static, ()>,
    _counted: StreamGuard,
    metrics: WatchMetrics,
}

impl ChangeStream {
    /// A stream that begins with `first`.
    pub(super) fn new(
        node: &Node,
        options: ApiOptions,
        metrics: &WatchMetrics,
        watch: Option<EntityWatch>,
        first: Vec<Bytes>,
        session: Arc<Session>,
    ) -> Self {
        Self {
            watch,
            session,
            queue: first.into(),
            batch_bytes: ENTITY_BATCH_BYTES_MAX,
            closing: node.streams_closing().boxed(),
            expired: None,
            leaderless: without_leader(node.clone(), options.leader_loss_timeout).boxed(),
            _counted: metrics.stream(),
            metrics: metrics.clone(),
        }
    }

    /// Ends when the client's time is over.
    pub(super) fn until(mut self, until: Option<Instant>) -> Self {
        self.expired = until.map(|until| tokio::time::sleep_until(until.into()).boxed());
        self
    }

    /// Puts so many bytes into one message; one change always fits.
    pub(super) fn in_batches_of(mut self, bytes: usize) -> Self {
        self.batch_bytes = bytes;
        self
    }

    pub(super) fn into_frames(self) -> impl Stream<Item = Result<Frame, Status>> + Send + 'static {
        stream::unfold(Some(self), |stream| async {
            let mut stream = stream?;
            match stream.next().await {
                Ok(frame) => Some((Ok(frame), Some(stream))),
                Err(status) => Some((Err(status), None)),
            }
        })
    }

    async fn next(&mut self) -> Result<Frame, Status> {
        loop {
            if let Some(batch) = self.batch() {
                return Ok(batch);
            }
            let told = match &mut self.watch {
                Some(watch) => watch.next().await.map_err(|reason| closed(&reason))?,
                None => None,
            };
            match told {
                Some(groups) => groups.iter().for_each(|group| self.queue.extend(group.iter().cloned())),
                None => self.wait().await?,
            }
        }
    }

    /// Pending changes, as far as they fit into one message.
    fn batch(&mut self) -> Option<Frame> {
        let first = self.queue.pop_front()?;
        let mut bytes = first.len();
        let mut changes = vec![first];
        while let Some(next) = self.queue.front()
            && bytes + next.len() <= self.batch_bytes
        {
            bytes += next.len();
            changes.extend(self.queue.pop_front());
        }
        self.metrics.events_sent(changes.len());
        Some(Frame::with_tails(&ChangeBatch::default(), changes))
    }

    /// Waits until there may be something to read.
    async fn wait(&mut self) -> Result<(), Status> {
        let Self { session, closing, expired: at, leaderless: lost, .. } = self;
        std::future::poll_fn(|cx| {
            if session.poll_raised(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            if closing.poll_unpin(cx).is_ready() {
                return Poll::Ready(Err(closed(&headwater_node::CloseReason::Stopping)));
            }
            if at.as_mut().is_some_and(|at| at.poll_unpin(cx).is_ready()) {
                return Poll::Ready(Err(expired()));
            }
            if lost.poll_unpin(cx).is_ready() {
                return Poll::Ready(Err(leaderless()));
            }
            Poll::Pending
        })
        .await
    }
}

/// Resolves when the node has known no leader for a while: its changes may be incomplete.
async fn without_leader(node: Node, patience: Duration) {
    LeaderProbe::new().lost(&node, patience).await;
}

/// The list of the spaces, which is the same on every node and never changes.
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
