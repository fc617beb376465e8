//! The read path: admission, barrier, then one view.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::Stream;
use tokio::sync::mpsc;

use super::pieces::to_the_last;
use super::{Consistency, Inner, Node, NodeError, RangePiece, Read, RequestContext};
use headwater_storage::{ReadView, StorageError};
use headwater_types::{KeyRange, RangeQuery, RangeResult, Refusal, Revision, SortTarget, Txn, TxnDone};

/// Pairs in one piece of a streamed range, count.
const PIECE_KEYS_MAX: usize = 1000;
/// Keys and values in one piece of a streamed range, bytes; one pair always fits.
const PIECE_BYTES_MAX: usize = 1024 * 1024;
/// Longest time that a reader of a streamed range may take for one piece, beyond the queued ones.
const READER_PATIENCE: Duration = Duration::from_secs(30);
/// Pieces of a streamed range that wait for a slow reader, count.
const PIECES_QUEUED: usize = 2;

/// A hash of the keys, and its range of revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvHash {
    /// The hash.
    pub hash: u64,
    /// The last revision in it.
    pub revision: Revision,
    /// The compaction point, if there ever was one. The hash does not depend on it.
    pub compacted: Option<Revision>,
}

impl Node {
    /// Reads keys.
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] for a revision that cannot be read; the errors of the read path
    /// otherwise. A failed read may always be repeated.
    pub async fn range(
        &self,
        ctx: &RequestContext,
        consistency: Consistency,
        query: RangeQuery,
    ) -> Result<Read<RangeResult>, NodeError> {
        self.ready_to_read(ctx, consistency).await?;
        // One key is read on the calling thread. An interval may hold any number of keys, and its
        // count visits all of them.
        let is_small = matches!(query.range, KeyRange::One(_));
        let metrics = self.inner.metrics.clone();
        self.read(is_small, ctx.deadline, move |view| {
            let began = Instant::now();
            let result = headwater_fsm::range(view, &query);
            metrics.ranged(1, began, matches!(result, Ok(Ok(_))));
            result
        })
        .await
    }

    /// Evaluates a transaction that changes nothing ([`Txn::is_read_only`]) without replicating it.
    ///
    /// # Errors
    ///
    /// As [`Node::range`].
    pub async fn read_txn(
        &self,
        ctx: &RequestContext,
        consistency: Consistency,
        txn: Txn,
    ) -> Result<Read<TxnDone>, NodeError> {
        self.ready_to_read(ctx, consistency).await?;
        let metrics = self.inner.metrics.clone();
        self.read(false, ctx.deadline, move |view| {
            let began = Instant::now();
            let result = headwater_fsm::read_txn(view, &txn);
            let ranges = result.as_ref().map_or(0, |done| done.as_ref().map_or(0, |done| done.responses.len()));
            metrics.ranged(ranges, began, matches!(result, Ok(Ok(_))));
            metrics.read_txn();
            result
        })
        .await
    }

    /// Reads keys piece by piece from one view, without holding the result in memory. Every piece
    /// but the last holds only pairs; the last one holds `more` and `count` of the whole.
    ///
    /// # Errors
    ///
    /// As [`Node::range`]; [`NodeError::Timeout`] if other reads hold all permits until the
    /// deadline; the stream ends with an error if the storage fails on the way, or if its reader
    /// stalls for long.
    pub async fn range_stream(
        &self,
        ctx: &RequestContext,
        consistency: Consistency,
        query: RangeQuery,
    ) -> Result<Read<impl Stream<Item = Result<RangePiece, NodeError>> + Send + use<>>, NodeError> {
        self.ready_to_read(ctx, consistency).await?;
        let turn = self.inner.range_streams.turn(ctx.deadline).await?;
        let inner = self.inner.clone();
        let (opened_tx, opened) = tokio::sync::oneshot::channel();
        // The view lives on the stack of this thread until the reader has finished. It pins one
        // snapshot of the database.
        let (pieces_tx, pieces) = mpsc::channel(PIECES_QUEUED);
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            stream_pieces(&inner, &query, opened_tx, &pieces_tx);
        });
        let (index, revision) = opened.await.map_err(|_| NodeError::Stopped)??;
        let pieces = to_the_last(pieces, |piece| matches!(piece, RangePiece::End { .. }));
        Ok(Read { index, revision, value: pieces })
    }

    /// The hash of the whole logical state: equal on all members at an equal index.
    ///
    /// # Errors
    ///
    /// As [`Node::range`] with serializable consistency.
    pub async fn state_hash(&self, ctx: &RequestContext) -> Result<Read<u64>, NodeError> {
        self.ready_to_read(ctx, Consistency::Serializable).await?;
        self.read(false, ctx.deadline, |view| view.state_hash().map(Ok)).await
    }

    /// The hash of the data of clients, leases and history included. Writes, ends of leases and
    /// compaction change it; restarts and elections do not. Equal on all members that have applied
    /// the same entries.
    ///
    /// # Errors
    ///
    /// As [`Node::range`] with serializable consistency.
    pub async fn content_hash(&self, ctx: &RequestContext) -> Result<Read<u64>, NodeError> {
        self.ready_to_read(ctx, Consistency::Serializable).await?;
        let metrics = self.inner.metrics.clone();
        self.read(false, ctx.deadline, move |view| {
            let _timer = metrics.hash_seconds.start_timer();
            view.content_hash().map(Ok)
        })
        .await
    }

    /// The hash of the keys and values that can be read at `revision`, or at the current revision.
    /// Equal on all members, independent of compaction and of their other state.
    ///
    /// # Errors
    ///
    /// As [`Node::range`] with serializable consistency; [`Refusal::FutureRevision`] and
    /// [`Refusal::Compacted`].
    pub async fn kv_hash(&self, ctx: &RequestContext, revision: Option<Revision>) -> Result<Read<KvHash>, NodeError> {
        self.ready_to_read(ctx, Consistency::Serializable).await?;
        let metrics = self.inner.metrics.clone();
        self.read(false, ctx.deadline, move |view| {
            let _timer = metrics.hash_rev_seconds.start_timer();
            let current = view.revision();
            let compacted = view.head().compaction.map(|point| point.revision);
            let compact_revision = compacted.unwrap_or(Revision(0));
            let revision = revision.unwrap_or(current);
            if revision > current {
                return Ok(Err(Refusal::FutureRevision { current }));
            }
            if revision < compact_revision || revision < Revision(0) {
                return Ok(Err(Refusal::Compacted { compact_revision }));
            }
            Ok(Ok(KvHash { hash: view.kv_hash(revision)?, revision, compacted }))
        })
        .await
    }

    /// Waits until this node may answer for the context from its own state.
    ///
    /// # Errors
    ///
    /// As [`Node::range`] with serializable consistency.
    pub async fn wait_ready(&self, ctx: &RequestContext) -> Result<(), NodeError> {
        self.ready_to_read(ctx, Consistency::Serializable).await
    }

    /// Waits until a local view may answer for this context: admission, the read barrier if
    /// linearizable, and `min_index`.
    pub(super) async fn ready_to_read(&self, ctx: &RequestContext, consistency: Consistency) -> Result<(), NodeError> {
        self.admit(ctx).await?;
        if consistency == Consistency::Linearizable {
            match self.inner.barrier.pass(ctx.deadline).await {
                // A client that requires a leader gets `NoLeader`, also if the leader went away
                // while the read waited.
                Err(NodeError::Timeout) if ctx.require_leader && self.live_leader().is_none() => {
                    return Err(NodeError::NoLeader);
                }
                passed => passed?,
            }
        }
        if let Some(wanted) = ctx.min_index {
            let reached = self.inner.barrier.wait_applied(wanted, ctx.deadline).await;
            if let Err(NodeError::Timeout) = reached {
                return Err(NodeError::MinIndexNotReached { wanted, applied: self.applied_index() });
            }
            reached?;
        }
        Ok(())
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        is_small: bool,
        deadline: Instant,
        work: impl FnOnce(&ReadView<'_>) -> Result<Result<T, Refusal>, StorageError> + Send + 'static,
    ) -> Result<Read<T>, NodeError> {
        if is_small {
            return read_now(&self.inner, work);
        }
        let inner = self.inner.clone();
        self.inner.long_reads.run(deadline, move || read_now(&inner, work)).await
    }

    /// As [`Node::read`], for the node's own tasks: clients' reads do not delay them.
    pub(super) async fn read_by_itself<T: Send + 'static>(
        &self,
        deadline: Instant,
        work: impl FnOnce(&ReadView<'_>) -> Result<Result<T, Refusal>, StorageError> + Send + 'static,
    ) -> Result<Read<T>, NodeError> {
        let inner = self.inner.clone();
        self.inner.own_reads.run(deadline, move || read_now(&inner, work)).await
    }
}

fn read_now<T>(
    inner: &Arc<Inner>,
    work: impl FnOnce(&ReadView<'_>) -> Result<Result<T, Refusal>, StorageError>,
) -> Result<Read<T>, NodeError> {
    let read = inner.store.read(|view| {
        let head = view.head();
        Ok(work(view)?.map(|value| Read { index: head.applied_index(), revision: head.revision, value }))
    });
    Ok(read??)
}

type Opened = Result<(headwater_types::LogIndex, headwater_types::Revision), NodeError>;

/// Yields the pieces in order, the end last, then `None`.
type NextPiece<'view> = Box<dyn FnMut() -> Result<Option<RangePiece>, StorageError> + 'view>;

/// Splits a range that was read as a whole into pieces.
fn pieces_of(result: RangeResult) -> Vec<RangePiece> {
    let (mut pieces, mut piece, mut bytes) = (Vec::new(), Vec::new(), 0);
    for kv in result.kvs {
        bytes += kv.key.len() + kv.value.len();
        piece.push(kv);
        if piece.len() >= PIECE_KEYS_MAX || bytes >= PIECE_BYTES_MAX {
            pieces.push(RangePiece::Kvs(std::mem::take(&mut piece)));
            bytes = 0;
        }
    }
    pieces.push(RangePiece::Kvs(piece));
    pieces.push(RangePiece::End { more: result.more, count: result.count });
    pieces
}

fn stream_pieces(
    inner: &Arc<Inner>,
    query: &RangeQuery,
    opened: tokio::sync::oneshot::Sender<Opened>,
    pieces: &mpsc::Sender<Result<RangePiece, NodeError>>,
) {
    let db = inner.store.current();
    let failed = |error| NodeError::from(inner.store.failed(error));
    let view = match db.view() {
        Ok(view) => view,
        Err(error) => return drop(opened.send(Err(failed(error)))),
    };
    let next: Result<Result<NextPiece<'_>, Refusal>, StorageError> = if query.target == SortTarget::Key {
        headwater_fsm::RangeCursor::new(&view, query.clone()).map(|opened| {
            opened.map(|mut cursor| -> NextPiece<'_> { Box::new(move || cursor.next(PIECE_KEYS_MAX, PIECE_BYTES_MAX)) })
        })
    } else {
        // In another order than that of keys, the first pair is known only after all are read.
        headwater_fsm::range(&view, query).map(|read| {
            read.map(|result| -> NextPiece<'_> {
                let mut pieces = pieces_of(result).into_iter();
                Box::new(move || Ok(pieces.next()))
            })
        })
    };
    let mut next = match next {
        Ok(Ok(next)) => next,
        Ok(Err(refusal)) => return drop(opened.send(Err(refusal.into()))),
        Err(error) => return drop(opened.send(Err(failed(error)))),
    };
    if opened.send(Ok((view.head().applied_index(), view.head().revision))).is_err() {
        return;
    }
    let began = Instant::now();
    let runtime = tokio::runtime::Handle::current();
    loop {
        let piece = match next() {
            Ok(Some(piece)) => Ok(piece),
            Ok(None) => return,
            Err(error) => Err(failed(error)),
        };
        let is_last = !matches!(piece, Ok(RangePiece::Kvs(_)));
        if is_last {
            inner.metrics.ranged(1, began, piece.is_ok());
        }
        // A dropped or stalled reader ends the scan, which holds a thread and a snapshot.
        let sent = runtime.block_on(tokio::time::timeout(READER_PATIENCE, pieces.send(piece)));
        if !matches!(sent, Ok(Ok(()))) || is_last {
            return;
        }
    }
}
