//! Progress of this member's log: its indexes, recovery after a restart, stalls, and removal of
//! entries on request.

use std::time::{Duration, Instant};

use openraft::async_runtime::watch::WatchReceiver;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::consensus::Consensus;
use super::stalled::STALL_MIN;
use super::types::LogId;
use headwater_types::LogIndex;

/// Log indexes of this member, zero for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPoints {
    /// Last entry of the local log, or the last purged one if no entry is left.
    pub last: LogIndex,
    /// Highest index that the cluster is known to have committed. May exceed `last`.
    pub committed: LogIndex,
    /// Highest index applied.
    pub applied: LogIndex,
    /// Highest index that the last snapshot covers.
    pub snapshot: LogIndex,
    /// Highest index purged from the log.
    pub purged: LogIndex,
}

/// State behind [`Progress`].
pub(super) struct ProgressState {
    pub(super) applied: watch::Receiver<LogIndex>,
    /// Index of the last entry of the local log when this process started, or of the last purged
    /// entry if the log held none. `None` if the log never had an entry.
    pub(super) last_at_start: Option<u64>,
    /// Index that the leader called committed in its last append; `None` before the first one. Only
    /// a hint: this member's log may not equal the leader's up to it.
    pub(super) leader_commit: watch::Sender<Option<u64>>,
    /// Start of the current stall, in which entries are committed and none is applied; `None`
    /// without a stall.
    pub(super) stalled_since: Mutex<Option<Instant>>,
}

/// Handle to the progress of this member's log.
#[derive(Clone, Copy)]
pub struct Progress<'a> {
    pub(super) consensus: &'a Consensus,
}

impl<'a> Progress<'a> {
    fn state(self) -> &'a ProgressState {
        &self.consensus.inner().progress
    }

    /// Subscribes to the applied index; a value is sent only after its effects can be read.
    pub fn applied(self) -> watch::Receiver<LogIndex> {
        self.state().applied.clone()
    }

    /// The log indexes of this member now.
    pub fn points(self) -> LogPoints {
        let metrics = self.consensus.raft().metrics();
        let metrics = metrics.borrow_watched();
        let index = |id: &Option<LogId>| LogIndex(id.as_ref().map_or(0, |id| id.index));
        let announced = match metrics.state.is_leader() {
            true => LogIndex::ZERO,
            false => LogIndex(self.state().leader_commit.borrow().unwrap_or(0)),
        };
        LogPoints {
            last: LogIndex(metrics.last_log_index.unwrap_or(0)),
            committed: index(&metrics.cluster_committed).max(index(&metrics.local_committed)).max(announced),
            applied: index(&metrics.last_applied),
            snapshot: index(&metrics.snapshot),
            purged: index(&metrics.purged),
        }
    }

    /// Records the index that a leader calls committed.
    pub(super) fn note_leader_commit(self, index: LogIndex) {
        self.state().leader_commit.send_if_modified(|last| last.replace(index.get()) != Some(index.get()));
    }

    /// Duration of the current stall; `None` without one, or while it is shorter than five seconds.
    /// In a stall, entries are committed and none is applied, although there is a live leader and
    /// no snapshot is being received.
    pub fn stalled_for(self) -> Option<Duration> {
        let lasts = self.state().stalled_since.lock().as_ref().map(Instant::elapsed);
        lasts.filter(|lasts| *lasts >= STALL_MIN)
    }

    pub(super) fn set_stalled_since(self, since: Option<Instant>) {
        *self.state().stalled_since.lock() = since;
    }

    /// Makes a snapshot, and removes the entries of the log through `through`, which must be
    /// applied and flushed to disk. Members that lack those entries are sent the snapshot. Returns
    /// once they are removed; `false` if that takes longer than `limit`, or if consensus has ended.
    pub async fn forget_log(self, through: LogIndex, limit: Duration) -> bool {
        let raft = self.consensus.raft();
        let forget = async {
            if raft.trigger().snapshot().await.is_err() {
                return false;
            }
            let wait = raft.wait(None);
            let reached = |id: &Option<LogId>| id.as_ref().is_some_and(|id| id.index >= through.get());
            let held = wait.metrics(|now| reached(&now.snapshot), "a snapshot holds the log").await;
            if held.is_err() || raft.trigger().purge_log(through.get()).await.is_err() {
                return false;
            }
            raft.wait(None).metrics(|now| reached(&now.purged), "the log is removed").await.is_ok()
        };
        tokio::time::timeout(limit, forget).await.unwrap_or(false)
    }

    /// Waits until this member has applied all that it had acknowledged before its restart, and all
    /// that the cluster had committed when its leader first spoke to this process. So a member that
    /// takes the place of another one on an empty disk shows nothing older than the other one did.
    ///
    /// # Errors
    ///
    /// Consensus ended before that.
    pub async fn wait_for_recovery(self) -> Result<(), String> {
        // openraft's own wait is for a commit that covers the log as of the call, which under load
        // may never be seen. The entries acknowledged before the restart are those in the log at
        // the start. A shorter log now means that a leader has replaced its end.
        let at_start = self.state().last_at_start;
        let wait = self.consensus.raft().wait(None);
        let covered = wait.metrics(
            move |now| {
                let committed = now.cluster_committed.as_ref().map(|id| id.index);
                committed.is_some() && (committed >= at_start || committed >= now.last_log_index)
            },
            "a commit of the cluster covers the log as it was at the start",
        );
        let covered = covered.await.map_err(|error| error.to_string())?.cluster_committed.map_or(0, |id| id.index);
        let target = covered.max(self.announced_commit().await?);
        let mut applied = self.applied();
        applied.wait_for(|applied| applied.get() >= target).await.map(drop).map_err(|error| error.to_string())
    }

    /// The index that a leader called committed in its latest append to this process. Waits for an
    /// append if there was none. May be 0 once this member leads. `Err` if consensus has ended.
    async fn announced_commit(self) -> Result<u64, String> {
        let mut announced = self.state().leader_commit.subscribe();
        let leads = self.consensus.raft().wait(None);
        tokio::select! {
            index = announced.wait_for(Option::is_some) => {
                index.map(|index| index.unwrap_or(0)).map_err(|error| error.to_string())
            }
            leads = leads.metrics(|now| now.state.is_leader(), "this member leads") => {
                leads.map(|_| 0).map_err(|error| error.to_string())
            }
        }
    }
}
