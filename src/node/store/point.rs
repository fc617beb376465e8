//! Points of history: an index or a time becomes the log index of a state that can be read.
//!
//! Times are those of the proposers' clocks. Clocks of members differ and may jump, so a time names
//! a state, but not always the one that an observer has seen then.

use super::Found;
use super::error::StoreError;
use crate::Position;
use headwater_storage::state::LastCommand;
use headwater_storage::{ReadView, StorageError};
use headwater_types::{LogIndex, Revision};

/// A point of history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The state right after the log entry at an index.
    Index(Position),
    /// The state at a time, milliseconds since the Unix epoch: after the last command that was
    /// proposed at it or before.
    UnixMs(u64),
}

/// The log index of a point; of the newest state for `None`. The inner error if the point is of
/// another lineage, newer than the view, or older than history.
pub(super) fn resolve(view: &ReadView<'_>, point: Option<Point>) -> Found<LogIndex> {
    let (oldest, newest) = (view.head().compacted_index(), view.applied());
    let compacted = |index| compacted(view, index).map(Err);
    match point {
        None => Ok(Ok(newest)),
        Some(Point::Index(position)) if position.is_of_another_lineage(view.head()) => Ok(Err(StoreError::OtherEpoch)),
        Some(Point::Index(Position { index, .. })) => {
            if index > newest {
                return Ok(Err(StoreError::Future { index, newest }));
            }
            if index < oldest { compacted(Some(index)) } else { Ok(Ok(index)) }
        }
        Some(Point::UnixMs(unix_ms)) => match view.last_command_until(unix_ms)? {
            Some(index) => Ok(Ok(index)),
            // History begins with the log: nothing had been written yet.
            None if oldest == LogIndex::ZERO => Ok(Ok(oldest)),
            None => match view.last_command(oldest)?.map(|command| command.unix_ms) {
                Some(first_ms) if first_ms != 0 && first_ms <= unix_ms => Ok(Ok(oldest)),
                Some(_) | None => compacted(None),
            },
        },
    }
}

/// The error for a point before the beginning of history; `index` is `None` if the point is a time.
pub(super) fn compacted(view: &ReadView<'_>, index: Option<LogIndex>) -> Result<StoreError, StorageError> {
    let oldest = view.head().compacted_index();
    let oldest_unix_ms = view.last_command(oldest)?.map_or(0, |command| command.unix_ms);
    Ok(StoreError::Compacted { index, oldest, oldest_unix_ms })
}

/// The KV revision of the state at `index`, which must be readable. `last` is the last command at
/// `index` or before it; if it made no revision, a binary search.
pub(super) fn revision_at(
    view: &ReadView<'_>,
    index: LogIndex,
    last: Option<LastCommand>,
) -> Result<Revision, StorageError> {
    if index == view.applied() {
        return Ok(view.revision());
    }
    let first = view.head().compaction.map_or(Revision::INITIAL, |point| point.revision);
    if let Some(revision) = last.and_then(|command| command.revision) {
        // A restore may raise the revision of the compaction point above that of the command there.
        return Ok(revision.max(first));
    }
    let (mut known, mut young) = (first.get(), view.revision().get() + 1);
    // `known` was made at `index` or before; `young` was not.
    while young - known > 1 {
        let middle = known + (young - known) / 2;
        if view.command_of(Revision(middle))? <= index { known = middle } else { young = middle }
    }
    Ok(Revision(known))
}
