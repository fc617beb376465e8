//! History as the feeds read it: the committed changes, back to the compaction point.

use std::sync::{Arc, Weak};

use futures::future::{BoxFuture, FutureExt};

use headwater_raft::run_blocking;
use headwater_storage::state::{CommandHistory, StateHead, Table};
use headwater_storage::{ReadView, StateStore, StorageError};
use headwater_stream::{
    Catalog, Chunk, CloseReason, ClusterChanges, Commit, Feed, History, Kv, Resources, ScanLimits, Topic,
};
use headwater_types::{CommandEvents, KvEvent, LogIndex, Revision, StoreEpoch};

/// Most commands that one scan reads, count. Bounded because many commands in a row may have no
/// change of the topic.
const COMMANDS_MAX: usize = 65_536;

/// A topic whose changes are recorded in history.
pub trait Recorded: Topic {
    /// The first log index whose changes the topic's history still has. Zero if history begins with
    /// the log.
    fn floor(head: &StateHead) -> LogIndex {
        head.compacted_index()
    }

    /// The topic's changes by `command`, which comes from the history of `view`.
    fn events_of(view: &ReadView<'_>, command: CommandHistory) -> Result<CommandEvents, StorageError>;
}

impl Recorded for Kv {
    /// The log index of the compaction point. Retention may have trimmed history further, but then
    /// no later command up to there has changed a key.
    fn floor(head: &StateHead) -> LogIndex {
        head.key_floor()
    }

    fn events_of(_: &ReadView<'_>, command: CommandHistory) -> Result<CommandEvents, StorageError> {
        let kv = command.records.into_iter().filter(|record| record.table == Table::Kv);
        let kv = kv.map(|record| KvEvent { kind: record.kind, kv: record.kv }).collect();
        Ok(CommandEvents {
            index: command.index,
            revision: command.head.revision,
            kv,
            resources: [].into(),
            catalog: [].into(),
            cluster: [].into(),
        })
    }
}

impl Recorded for Resources {
    fn events_of(_: &ReadView<'_>, command: CommandHistory) -> Result<CommandEvents, StorageError> {
        let resources = command.resource_events()?;
        Ok(CommandEvents {
            index: command.index,
            revision: command.head.revision,
            kv: [].into(),
            resources,
            catalog: [].into(),
            cluster: [].into(),
        })
    }
}

impl Recorded for Catalog {
    fn events_of(view: &ReadView<'_>, command: CommandHistory) -> Result<CommandEvents, StorageError> {
        let catalog = view.catalog_events(&command)?;
        let CommandHistory { index, head, .. } = command;
        Ok(CommandEvents {
            index,
            revision: head.revision,
            kv: [].into(),
            resources: [].into(),
            catalog,
            cluster: [].into(),
        })
    }
}

impl Recorded for ClusterChanges {
    fn events_of(_: &ReadView<'_>, command: CommandHistory) -> Result<CommandEvents, StorageError> {
        let cluster = command.cluster_events()?.into();
        let (index, revision) = (command.index, command.head.revision);
        Ok(CommandEvents { index, revision, kv: [].into(), resources: [].into(), catalog: [].into(), cluster })
    }
}

/// History as one feed reads it.
pub struct StateHistory<T: Topic> {
    store: Arc<StateStore>,
    /// The feed of the readers. It knows the lineage that they read.
    feed: Weak<Feed<T>>,
}

impl<T: Topic> StateHistory<T> {
    /// The history in `store`, for the readers of `feed`.
    pub fn new(store: Arc<StateStore>, feed: &Arc<Feed<T>>) -> Self {
        Self { store, feed: Arc::downgrade(feed) }
    }
}

/// Whether positions in one lineage are meaningless in the other. A lineage without a known epoch
/// counts as equal to any.
pub(super) fn lineages_differ(ours: Option<StoreEpoch>, theirs: Option<StoreEpoch>) -> bool {
    matches!((ours, theirs), (Some(ours), Some(theirs)) if ours != theirs)
}

impl<T: Recorded> History<T> for StateHistory<T> {
    fn read(&self, after: LogIndex, limits: ScanLimits) -> BoxFuture<'static, Result<Chunk<T>, CloseReason>> {
        let (store, feed) = (Arc::clone(&self.store), Weak::clone(&self.feed));
        let scan = run_blocking(move || {
            store.read(|view| {
                // A state of another lineage is installed before the feed is reset, which ends the
                // readers. Readers that begin after the reset read the new lineage.
                let read = feed.upgrade().and_then(|feed| feed.published().epoch);
                if lineages_differ(read, view.head().epoch) {
                    return Ok(Err(CloseReason::EpochChanged));
                }
                scan(view, after, limits)
            })
        });
        scan.map(|scanned| match scanned {
            Ok(Ok(chunk)) => chunk,
            Ok(Err(error)) => Err(CloseReason::Failed(StorageError::to_string(&error))),
            Err(_) => Err(CloseReason::Stopping),
        })
        .boxed()
    }
}

fn scan<T: Recorded>(
    view: &ReadView<'_>,
    after: LogIndex,
    limits: ScanLimits,
) -> Result<Result<Chunk<T>, CloseReason>, StorageError> {
    if after.next() < T::floor(view.head()) {
        let revision = view.head().compaction.map_or(Revision(0), |point| point.revision);
        return Ok(Err(CloseReason::Compacted { revision }));
    }
    let mut chunk = Chunk { after, reached: view.applied().max(after), commits: Vec::new() };
    let (mut bytes, mut commands) = (0, 0);
    let mut failed = None;
    view.history(after.next(), |command| {
        let index = command.index;
        match T::events_of(view, command) {
            Ok(events) => {
                if let Some(commit) = Commit::new(&events) {
                    bytes += commit.bytes();
                    chunk.commits.push(Arc::new(commit));
                }
            }
            Err(error) => {
                failed = Some(error);
                return false;
            }
        }
        commands += 1;
        let goes_on = chunk.commits.len() < limits.commits_max && bytes < limits.bytes_max && commands < COMMANDS_MAX;
        if !goes_on {
            chunk.reached = index;
        }
        goes_on
    })?;
    match failed {
        Some(error) => Err(error),
        None => Ok(Ok(chunk)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lineages_differ_only_if_both_have_a_name() {
        let (one, other) = (Some(StoreEpoch(1)), Some(StoreEpoch(2)));
        for (ours, theirs, wanted) in
            [(None, None, false), (one, None, false), (None, one, false), (one, one, false), (one, other, true)]
        {
            assert_eq!(lineages_differ(ours, theirs), wanted, "{ours:?} {theirs:?}");
        }
    }
}
