//! Blocking queries: an answer at once, or after the next change (spec: consul §3.7).
//!
//! Owns the loop, and nothing about its subject: an endpoint brings a read, which returns the index
//! of its result, and a wake-up. Invariant: a client that passes the last index loses no change. It
//! is answered early only with a higher index, or if its own index is of another history; at the
//! deadline, with the current index.

use std::future::Future;
use std::time::Instant;

use http::StatusCode;

use super::answer::{Meta, Refusal};
use super::call::{Call, Freshness};
use headwater_node::{CatalogSubject, Consistency, Node, NodeError, RequestContext};
use headwater_types::LogIndex;

/// Result of a read.
#[derive(Debug)]
pub(super) struct Found<T> {
    /// Index of the last change of the subject: its own, not the store's.
    pub(super) index: LogIndex,
    /// The index of the state that was read.
    pub(super) seen: LogIndex,
    pub(super) value: T,
}

impl<T> Found<T> {
    /// The headers of an answer with this result.
    pub(super) fn meta(&self, freshness: &Freshness) -> Meta {
        Meta { index: self.index, state: self.seen, consistency: freshness.name }
    }
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// The subject may have changed.
    Changed,
    /// The deadline passed, or the node stops.
    Ended,
}

/// Reads until the result is newer than the client's, or its time is over. `read` is called with
/// the context and consistency of each attempt; `changed` resolves once the subject may have
/// changed after an index, or with [`Woken::Ended`] at the latest at the deadline.
pub(super) async fn query<T, Reading, Waiting>(
    call: &Call,
    freshness: &Freshness,
    read: impl Fn(RequestContext, Consistency) -> Reading,
    changed: impl Fn(LogIndex, Instant) -> Waiting,
) -> Result<Found<T>, Refusal>
where
    Reading: Future<Output = Result<Found<T>, Refusal>>,
    Waiting: Future<Output = Result<Woken, Refusal>>,
{
    let mut found = read(call.context()?, freshness.consistency).await?;
    let Some(wait) = freshness.wait else { return Ok(found) };
    let is_ahead = |seen: LogIndex| wait.after > seen.max(LogIndex(1));
    // An index beyond the leader's state is of another history.
    let is_foreign = freshness.consistency == Consistency::Linearizable && is_ahead(found.seen);
    if found.index > wait.after || is_foreign {
        return Ok(found);
    }
    let _permit = call.shared.waiting.try_acquire().map_err(|_| {
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too many requests wait for changes on this node, ask another one")
    })?;
    let deadline = Instant::now() + wait.with_jitter();
    let stopping = call.node().streams_closing();
    tokio::pin!(stopping);
    // A stale state may be behind the client's index: that is not known yet.
    let mut asks_leader = is_ahead(found.seen);
    let up_to_date = async { read(call.context()?, Consistency::Linearizable).await };
    tokio::pin!(up_to_date);
    loop {
        let woken = tokio::select! {
            woken = changed(found.seen, deadline) => woken?,
            read = &mut up_to_date, if asks_leader => {
                asks_leader = false;
                // Without a leader it is unknown; a change may still come.
                let Ok(newest) = read else { continue };
                if newest.index > wait.after || is_ahead(newest.seen) {
                    return Ok(newest);
                }
                // The change may have come before this read.
                if newest.seen > found.seen {
                    found = newest;
                }
                continue;
            }
            () = &mut stopping => Woken::Ended,
        };
        if woken == Woken::Ended {
            return Ok(found);
        }
        // The change is in this node's state: a local read is enough.
        let before = found.seen;
        found = read(call.context()?, Consistency::Serializable).await?;
        // The indexes of a restored store begin again, below the client's.
        if found.index > wait.after || found.seen < before {
            return Ok(found);
        }
    }
}

/// Waits for a change of one of the subjects.
pub(super) async fn catalog_changed(
    node: &Node,
    subjects: &[CatalogSubject],
    after: LogIndex,
    deadline: Instant,
) -> Result<Woken, Refusal> {
    woken(node.wait_catalog(subjects, after, deadline).await)
}

/// Result of waiting for a change. A node that stops has not changed; its client hears what it has,
/// and asks another one.
pub(super) fn woken(waited: Result<bool, NodeError>) -> Result<Woken, Refusal> {
    match waited {
        Ok(true) => Ok(Woken::Changed),
        Ok(false) | Err(NodeError::Stopped) => Ok(Woken::Ended),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_stops_ends_waiting_without_an_error() {
        for (waited, wanted) in [
            (Ok(true), Ok(Woken::Changed)),
            (Ok(false), Ok(Woken::Ended)),
            (Err(NodeError::Stopped), Ok(Woken::Ended)),
            (Err(NodeError::Removed), Err(StatusCode::SERVICE_UNAVAILABLE)),
        ] {
            assert_eq!(woken(waited).map_err(|refusal| refusal.status), wanted);
        }
    }
}
