//! Keys: ranges and read-only transactions from this node's own state, whole or streamed in parts.
//!
//! Owns the streamed range: its thread, its view, and the timeout of a stalled reader. The
//! evaluation of a query belongs to the state machine; the checks before it to the read path
//! (`reads`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::Stream;
use tokio::sync::mpsc;

use super::parts::to_the_last;
use super::{Answers, Charge, Consistency, Inner, Limit, Node, NodeError, Principal, RangePart, Read, RequestContext};
use headwater_storage::{ReadView, StorageError};
use headwater_types::limits::SMALL_ANSWER_BYTES_MAX;
use headwater_types::{Access, KeyRange, RangeQuery, RangeResult, Refusal, SortTarget, Space, Txn, TxnDone};

/// Most pairs in one part of a streamed range, count.
const PART_KEYS_MAX: usize = 1000;
/// Bytes of keys and values with which a part of a streamed range is complete. Its last pair may
/// exceed this.
const PART_BYTES_MAX: usize = 1024 * 1024;
/// Longest wait for space in the full queue of parts. A reader that takes no part for this long
/// loses the stream.
const READER_WAIT_MAX: Duration = Duration::from_secs(30);
/// Most parts of a streamed range that wait for a slow reader, count.
const PARTS_QUEUED: usize = 2;

/// Handle to keys.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    node: &'a Node,
}

impl Node {
    /// Handle to keys.
    pub fn keys(&self) -> Keys<'_> {
        Keys { node: self }
    }
}

impl Keys<'_> {
    /// Evaluates a range query.
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] for a revision that cannot be read, or a missing right;
    /// [`NodeError::AnswersUnread`] without capacity for the answer; the errors of the read path
    /// otherwise. A failed read may always be repeated.
    pub async fn range(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        query: RangeQuery,
    ) -> Result<Read<RangeResult>, NodeError> {
        ctx.note_read(Space::Kv, &query.range);
        self.node.ready_to_read(ctx, consistency).await?;
        // One key is read on the calling thread. An interval may hold any number of keys, and its
        // count visits all of them.
        let is_small = matches!(query.range, KeyRange::One(_));
        loop {
            let read = match is_small {
                true => self.node.read_now(|view| evaluate(&self.node.inner, &ctx.principal, view, &query)),
                false => {
                    let (inner, principal, query) = (self.node.inner.clone(), ctx.principal.clone(), query.clone());
                    self.node.read(false, ctx, move |view| evaluate(&inner, &principal, view, &query)).await
                }
            };
            let Read { index, revision, value } = read?;
            match value {
                // The port charges the answer before this task yields. Another thread may take the
                // capacity meanwhile: the account exceeds its bound by at most one answer a thread.
                Ok((result, _charge)) => return Ok(Read { index, revision, value: result }),
                Err(NoCapacity { bytes }) => self.node.inner.answers.wait_for_capacity(bytes, ctx.deadline).await?,
            }
        }
    }

    /// Evaluates a transaction that changes nothing ([`Txn::is_read_only`]) without replicating it.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`].
    pub async fn read_txn(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        txn: Txn,
    ) -> Result<Read<TxnDone>, NodeError> {
        ctx.note_read_txn(&txn);
        self.node.ready_to_read(ctx, consistency).await?;
        let metrics = self.node.inner.metrics.clone();
        let (authority, principal) = (self.node.inner.authority.clone(), ctx.principal.clone());
        self.node
            .read(false, ctx, move |view| {
                let began = Instant::now();
                let permitted = match authority.authorizer(view, &principal)? {
                    Ok(authorizer) => match authorizer.rights() {
                        Some(rights) => headwater_fsm::permit_txn(view, rights, &txn)?,
                        None => Ok(()),
                    },
                    Err(refusal) => Err(refusal),
                };
                if let Err(denied) = permitted {
                    return Ok(Err(Refusal::Auth(denied)));
                }
                let result = headwater_fsm::read_txn(view, &txn);
                let ranges = result.as_ref().map_or(0, |done| done.as_ref().map_or(0, |done| done.responses.len()));
                metrics.ranged(ranges, began, matches!(result, Ok(Ok(_))));
                metrics.read_txn();
                result
            })
            .await
    }

    /// Reads keys part by part from one view. A result in the order of keys is never held in memory
    /// as a whole; a result in another order is. Every part but the last holds only pairs; the last
    /// one holds `more` and `count` of the whole.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`], but for the capacity for an answer; [`NodeError::Timeout`] if other
    /// streamed ranges hold all permits until the deadline; [`NodeError::TooManyRequests`] if too
    /// many wait. The stream ends with an error if the storage fails on the way, or if its reader
    /// stalls for long.
    pub async fn range_stream(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        query: RangeQuery,
    ) -> Result<Read<impl Stream<Item = Result<RangePart, NodeError>> + Send + use<>>, NodeError> {
        ctx.note_read(Space::Kv, &query.range);
        self.node.ready_to_read(ctx, consistency).await?;
        let turn = self.node.inner.reads.streams.turn(ctx.client, ctx.deadline).await;
        let turn = turn.inspect_err(self.node.inner.limit_counters.note(Limit::RangeStreams))?;
        let inner = self.node.inner.clone();
        let principal = ctx.principal.clone();
        let (opened_tx, opened) = tokio::sync::oneshot::channel();
        // The view lives on the stack of this thread until the reader has finished. It pins one
        // snapshot of the database.
        let (parts_tx, parts) = mpsc::channel(PARTS_QUEUED);
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            stream_parts(&inner, &principal, &query, opened_tx, &parts_tx);
        });
        let (index, revision) = opened.await.map_err(|_| NodeError::Stopped)??;
        let parts = to_the_last(parts, |part| matches!(part, RangePart::End { .. }));
        Ok(Read { index, revision, value: parts })
    }
}

/// A range that exceeds the remaining capacity of the account of answers.
struct NoCapacity {
    /// Capacity that the range needs, bytes.
    bytes: usize,
}

/// A range with its charge in the account of answers; `None` for a small one, which the port alone
/// charges.
type Loaded = (RangeResult, Option<Charge>);

/// Checks the right to read the range, then evaluates it as [`load_within`] does, and counts it.
fn evaluate(
    inner: &Inner,
    principal: &Principal,
    view: &ReadView<'_>,
    query: &RangeQuery,
) -> Result<Result<Result<Loaded, NoCapacity>, Refusal>, StorageError> {
    let began = Instant::now();
    if let Err(denied) = inner.authority.permit(view, principal, &[(Space::Kv, &query.range, Access::READ)])? {
        return Ok(Err(denied));
    }
    let result = load_within(&inner.answers, view, query);
    inner.metrics.ranged(1, began, matches!(result, Ok(Ok(Ok(_)))));
    result
}

/// Evaluates a range. Its values are loaded only if the account of answers has capacity for them,
/// else the result is `NoCapacity`. The values of a large range are charged before they are loaded.
fn load_within(
    answers: &Arc<Answers>,
    view: &ReadView<'_>,
    query: &RangeQuery,
) -> Result<Result<Result<Loaded, NoCapacity>, Refusal>, StorageError> {
    let selection = match headwater_fsm::select(view, query)? {
        Ok(selection) => selection,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let bytes = selection.bytes();
    // For the values, and for the answer that is encoded from them while they exist.
    let needed = 2 * bytes;
    let charge = match bytes <= SMALL_ANSWER_BYTES_MAX {
        true if answers.has_capacity(bytes) => None,
        true => return Ok(Ok(Err(NoCapacity { bytes }))),
        false => match answers.try_charge(needed) {
            Some(charge) => Some(charge),
            None => return Ok(Ok(Err(NoCapacity { bytes: needed }))),
        },
    };
    Ok(Ok(Ok((selection.load(view)?, charge))))
}

type Opened = Result<(headwater_types::LogIndex, headwater_types::Revision), NodeError>;

/// Yields the next part at each call: the pairs in order, then [`RangePart::End`], then `None`.
type NextPart<'view> = Box<dyn FnMut() -> Result<Option<RangePart>, StorageError> + 'view>;

/// Splits a range that was read as a whole into parts.
fn parts_of(result: RangeResult) -> Vec<RangePart> {
    let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
    for kv in result.kvs {
        bytes += kv.key.len() + kv.value.len();
        part.push(kv);
        if part.len() >= PART_KEYS_MAX || bytes >= PART_BYTES_MAX {
            parts.push(RangePart::Kvs(std::mem::take(&mut part)));
            bytes = 0;
        }
    }
    parts.push(RangePart::Kvs(part));
    parts.push(RangePart::End { more: result.more, count: result.count });
    parts
}

fn stream_parts(
    inner: &Arc<Inner>,
    principal: &Principal,
    query: &RangeQuery,
    opened: tokio::sync::oneshot::Sender<Opened>,
    parts: &mpsc::Sender<Result<RangePart, NodeError>>,
) {
    let db = inner.store.current();
    let failed = |error| NodeError::from(inner.store.failed(error));
    let view = match db.view() {
        Ok(view) => view,
        Err(error) => return drop(opened.send(Err(failed(error)))),
    };
    match inner.authority.permit(&view, principal, &[(Space::Kv, &query.range, Access::READ)]) {
        Ok(Ok(())) => {}
        Ok(Err(denied)) => return drop(opened.send(Err(denied.into()))),
        Err(error) => return drop(opened.send(Err(failed(error)))),
    }
    let next: Result<Result<NextPart<'_>, Refusal>, StorageError> = if query.target == SortTarget::Key {
        headwater_fsm::RangeCursor::new(&view, query.clone()).map(|opened| {
            opened.map(|mut cursor| -> NextPart<'_> { Box::new(move || cursor.next(PART_KEYS_MAX, PART_BYTES_MAX)) })
        })
    } else {
        // In another order than that of keys, the first pair is known only after all are read.
        headwater_fsm::range(&view, query).map(|read| {
            read.map(|result| -> NextPart<'_> {
                let mut parts = parts_of(result).into_iter();
                Box::new(move || Ok(parts.next()))
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
        let part = match next() {
            Ok(Some(part)) => Ok(part),
            Ok(None) => return,
            Err(error) => Err(failed(error)),
        };
        let is_last = !matches!(part, Ok(RangePart::Kvs(_)));
        if is_last {
            inner.metrics.ranged(1, began, part.is_ok());
        }
        // A dropped or stalled reader ends the scan, which holds a thread and a snapshot.
        let sent = runtime.block_on(tokio::time::timeout(READER_WAIT_MAX, parts.send(part)));
        if !matches!(sent, Ok(Ok(()))) || is_last {
            return;
        }
    }
}
