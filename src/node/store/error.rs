//! The reasons for which a point, a page or a stream of changes cannot be read.

use thiserror::Error;

use super::StoreTarget;
use crate::NodeError;
use headwater_types::LogIndex;

/// The reason for which a request about the history has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// Any error that is not about a point of history, for example of admission.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The principal may not read a target, which is given.
    #[error("permission denied for {:?} in the space {:?}", .0.name, .0.space)]
    Denied(StoreTarget),
    /// The index is newer than everything in the store.
    #[error("index {index} is in the future: the newest index of the store is {newest}")]
    Future {
        /// The index of the request.
        index: LogIndex,
        /// The highest log index that the member had applied when it answered.
        newest: LogIndex,
    },
    /// The point is older than the kept history. A state can be read at `oldest` and later.
    #[error("{} is older than the history, which is kept from index {oldest} on{}", point_text(*index), since(*oldest_unix_ms))]
    Compacted {
        /// The index of the request; `None` if it named a time.
        index: Option<LogIndex>,
        /// The oldest index whose state can be read.
        oldest: LogIndex,
        /// Time of the last change at `oldest` or before, milliseconds since the Unix epoch; zero
        /// if unknown.
        oldest_unix_ms: u64,
    },
    /// The index belongs to another lineage: another cluster, or one from before a restore.
    #[error("the index is from another cluster, or from before a backup was restored; read anew, and use that index")]
    OtherEpoch,
    /// The requested part of history ends before it begins.
    #[error(
        "the history from index {from} to index {to} is empty: \"from\" comes first in the direction of the request"
    )]
    Reversed {
        /// The log index at which the request begins, in its direction.
        from: LogIndex,
        /// The log index at which the request ends, in its direction.
        to: LogIndex,
    },
    /// Leases and members have no versions, and more was written since the point than is searched.
    #[error(
        "leases and members at index {index} cannot be told: more than {searched} changes came later; ask for a later \
         index"
    )]
    TooFar {
        /// The index of the request.
        index: LogIndex,
        /// Most entries of history that are searched, count.
        searched: usize,
    },
    /// A member has changed since the point, and its state there comes from a change that is older
    /// than the history.
    #[error(
        "members at index {index} cannot be told: the last change of one is older than the history, which is kept from \
         index {oldest} on; ask for a later index"
    )]
    MemberCompacted {
        /// The index of the request.
        index: LogIndex,
        /// The oldest index whose state can be read.
        oldest: LogIndex,
    },
}

fn point_text(index: Option<LogIndex>) -> String {
    index.map_or_else(|| "the time".to_owned(), |index| format!("index {index}"))
}

fn since(unix_ms: u64) -> String {
    if unix_ms == 0 { String::new() } else { format!(" (unix_ms {unix_ms})") }
}
