//! Blocking queries: an answer at once, or after the next change (spec: consul §3.7).
//!
//! Owns the loop, and knows no subject: an endpoint passes a read, which returns the query index of
//! its result, and a wait for a change. Invariant: a client that passes the last index loses no
//! change. It gets a result before its deadline in three cases only: the query index is above the
//! client's, the client's index is of another lineage, or the node stops. At the deadline it gets
//! the current result. A refusal, such as for a lost right, ends the wait too.

use std::future::Future;
use std::time::Instant;

use futures::StreamExt;
use http::StatusCode;

use super::answer::{Meta, Refusal};
use super::call::{Call, Freshness};
use headwater_node::{CatalogSubject, Consistency, Limit, Node, NodeError, RequestContext};
use headwater_types::LogIndex;

/// Result of a read.
#[derive(Debug)]
pub(super) struct Found<T> {
    /// Query index: log index of the last change of the subject, not of the store.
    pub(super) index: LogIndex,
    /// Log index of the state that was read.
    pub(super) seen: LogIndex,
    pub(super) value: T,
}

impl<T> Found<T> {
    /// The values of the headers of an answer with this result.
    pub(super) fn meta(&self, freshness: &Freshness) -> Meta {
        Meta { index: self.index, state: self.seen, consistency: freshness.name }
    }
}

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitEnd {
    /// The subject may have changed: read it again.
    Changed,
    /// The deadline passed, or the node stops: answer with the current result.
    Ended,
}

/// Calls `read` once; with `?index`, again until the query index is above the client's, the
/// client's index is found to be of another lineage, or the wait has ended. `read` gets the context
/// and the consistency of each attempt; `changed` resolves once the subject may have changed after
/// an index, or with [`WaitEnd::Ended`] at the latest at the deadline. `still_permitted` refuses a
/// request whose right is gone; it is called when the wait begins and after each change of rights,
/// so that the wait ends then and not with the next change of the subject. The result is not
/// judged: the caller does that. Refused with 429 if too many requests wait already.
pub(super) async fn query<T, Reading, Waiting>(
    call: &Call,
    freshness: &Freshness,
    read: impl Fn(RequestContext, Consistency) -> Reading,
    changed: impl Fn(LogIndex, Instant) -> Waiting,
    still_permitted: impl Fn() -> Result<(), Refusal>,
) -> Result<Found<T>, Refusal>
where
    Reading: Future<Output = Result<Found<T>, Refusal>>,
    Waiting: Future<Output = Result<WaitEnd, Refusal>>,
{
    let mut found = read(call.context()?, freshness.consistency).await?;
    let Some(wait) = freshness.wait else { return Ok(found) };
    let is_ahead = |seen: LogIndex| wait.after > seen.max(LogIndex(1));
    // After a linearizable read, an index beyond the state that was read is of another history.
    let is_foreign = freshness.consistency == Consistency::Linearizable && is_ahead(found.seen);
    if found.index > wait.after || is_foreign {
        return Ok(found);
    }
    let _share = call.shared.waiting.take(call.caller.client).ok_or_else(|| {
        call.node().limit_counters().count(Limit::BlockingQueries);
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too many requests wait for changes on this node, ask another one")
    })?;
    let deadline = Instant::now() + wait.with_jitter();
    let mut rights_changes = call.node().rights_changes();
    // The right may have gone between its last check and this subscription.
    still_permitted()?;
    let stopping = call.node().streams_closing();
    tokio::pin!(stopping);
    // A stale state behind the client's index: this node may lag, or the index is of another
    // history. Only the leader knows.
    let mut asks_leader = is_ahead(found.seen);
    let up_to_date = async { read(call.context()?, Consistency::Linearizable).await };
    tokio::pin!(up_to_date);
    loop {
        let woken = tokio::select! {
            woken = changed(found.seen, deadline) => woken?,
            read = &mut up_to_date, if asks_leader => {
                asks_leader = false;
                // Without a leader that stays unknown, and the wait continues with local reads.
                let Ok(newest) = read else { continue };
                if newest.index > wait.after || is_ahead(newest.seen) {
                    return Ok(newest);
                }
                // This read may have started before the last local one, and be older.
                if newest.seen > found.seen {
                    found = newest;
                }
                continue;
            }
            Some(_) = rights_changes.next() => {
                // The answer itself is judged by the rights of its own time.
                still_permitted()?;
                continue;
            }
            () = &mut stopping => WaitEnd::Ended,
        };
        if woken == WaitEnd::Ended {
            return Ok(found);
        }
        // The change is in this node's state, so a local read is enough.
        let before = found.seen;
        found = read(call.context()?, Consistency::Serializable).await?;
        // The indexes of a restored store begin again, below the former ones.
        if found.index > wait.after || found.seen < before {
            return Ok(found);
        }
    }
}

/// Waits until a row of the access control lists has changed after the log index `after`.
/// [`WaitEnd::Ended`] if none has by the deadline.
pub(super) async fn acl_changed(call: &Call, after: LogIndex, deadline: Instant) -> Result<WaitEnd, Refusal> {
    let mut changes = call.node().follow_acl();
    let changed = changes.wait_for(|index| *index > after);
    match tokio::time::timeout_at(deadline.into(), changed).await {
        Ok(Ok(_)) => Ok(WaitEnd::Changed),
        Ok(Err(_)) | Err(_) => Ok(WaitEnd::Ended),
    }
}

/// Waits until one of the subjects may have changed after the log index `after`. [`WaitEnd::Ended`]
/// at the deadline, or if the node stops.
pub(super) async fn catalog_changed(
    node: &Node,
    subjects: &[CatalogSubject],
    after: LogIndex,
    deadline: Instant,
) -> Result<WaitEnd, Refusal> {
    woken(node.follow().wait_for_catalog(subjects, after, deadline).await)
}

/// The end of a wait for a change, from the node's answer: whether something changed before the
/// deadline. A stop of the node ends the wait without a change: the client gets the current result,
/// and continues at another node.
pub(super) fn woken(waited: Result<bool, NodeError>) -> Result<WaitEnd, Refusal> {
    match waited {
        Ok(true) => Ok(WaitEnd::Changed),
        Ok(false) | Err(NodeError::Stopped) => Ok(WaitEnd::Ended),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_stops_ends_waiting_without_an_error() {
        for (waited, wanted) in [
            (Ok(true), Ok(WaitEnd::Changed)),
            (Ok(false), Ok(WaitEnd::Ended)),
            (Err(NodeError::Stopped), Ok(WaitEnd::Ended)),
            (Err(NodeError::Removed), Err(StatusCode::SERVICE_UNAVAILABLE)),
        ] {
            assert_eq!(woken(waited).map_err(|refusal| refusal.status), wanted);
        }
    }
}
