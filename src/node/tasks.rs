//! A node's own tasks: recover, name the store's lineage, reclaim space.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::metrics::NodeMetrics;
use super::{Inner, Node, RequestContext};
use headwater_raft::Consensus;
use headwater_storage::StateStore;
use headwater_types::limits::RECLAIM_BATCH_ENTRIES;
use headwater_types::{Command, LogIndex, StoreEpoch};

/// Interval of the leader's proposals of a name for the lineage, and the timeout of each.
const EPOCH_RETRY: Duration = Duration::from_secs(1);

/// Interval of the checks of the compaction point.
const COMPACTION_POLL: Duration = Duration::from_millis(100);

/// Lets the node serve once it has re-applied everything that it had acknowledged before its
/// restart.
pub(super) async fn recover(consensus: Consensus, serving: watch::Sender<bool>) {
    match consensus.progress().wait_for_recovery().await {
        Ok(()) => {
            tracing::info!(applied = %*consensus.progress().applied().borrow(), "recovered, serving");
            serving.send_replace(true);
        }
        // The task that waits for the end of consensus reports it.
        Err(error) => tracing::debug!(error, "did not recover"),
    }
}

/// Waits until the node serves. `false` if the node stops before.
pub(super) async fn once_serving(inner: &Weak<Inner>) -> bool {
    // This task must not keep the node alive.
    let Some(mut serving) = inner.upgrade().map(|inner| inner.lifecycle.serving.clone()) else { return false };
    serving.wait_for(|serving| *serving).await.is_ok()
}

/// Names the lineage of a new store while this node leads. Of several proposals, the first one
/// applied counts. Returns once the lineage has a name, or the node is dropped.
pub(super) async fn name_epoch(inner: Weak<Inner>) {
    if !once_serving(&inner).await {
        return;
    }
    loop {
        let Some(inner) = inner.upgrade() else { return };
        if inner.store.current().head().epoch.is_some() {
            return;
        }
        let node = Node { inner };
        if node.leadership().leader == Some(node.identity().node_id) {
            let epoch = StoreEpoch(rand::random());
            let ctx = RequestContext::own(EPOCH_RETRY);
            if let Err(error) = node.propose(&ctx, Command::Bootstrap(epoch)).await {
                tracing::debug!(%error, "could not name the lineage yet");
            }
        }
        drop(node);
        tokio::time::sleep(EPOCH_RETRY).await;
    }
}

/// Reclaims the space below the compaction point, batch by batch, whenever the point has moved or
/// another state was installed. After a restart it continues an interrupted run. Returns when
/// consensus ends, or on an error.
pub(super) async fn reclaim(
    consensus: Consensus,
    store: Arc<StateStore>,
    reclaimed: watch::Sender<LogIndex>,
    metrics: Arc<NodeMetrics>,
) {
    let mut working_since = None;
    let mut generation = std::sync::Weak::new();
    loop {
        let current = store.current();
        if generation.as_ptr() != Arc::as_ptr(&current) {
            // Another state was installed, with space of its own to reclaim.
            generation = Arc::downgrade(&current);
            reclaimed.send_replace(LogIndex::ZERO);
        }
        let target = current.head().compacted_index();
        drop(current);
        if target > *reclaimed.borrow() {
            let began = Instant::now();
            let working_since_when = *working_since.get_or_insert(began);
            let done = {
                let store = store.clone();
                tokio::task::spawn_blocking(move || store.current().reclaim_step(RECLAIM_BATCH_ENTRIES)).await
            };
            if let Ok(Ok(progress)) = &done {
                metrics.reclaimed_batch(progress.removed, began);
            }
            match done {
                Ok(Ok(progress)) if progress.done => {
                    metrics.reclaimed(working_since_when);
                    working_since = None;
                    tracing::debug!(%target, "space below the compaction point is reclaimed");
                    reclaimed.send_replace(progress.target);
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::error!(%error, "reclaiming space failed");
                    store.failed(error);
                    return;
                }
                Err(error) => {
                    tracing::error!(%error, "reclaiming space failed");
                    return;
                }
            }
            tokio::task::yield_now().await;
            continue;
        }
        tokio::select! {
            // Polled: a notification at every apply would cost each write.
            () = tokio::time::sleep(COMPACTION_POLL) => {}
            _ = consensus.ended() => return,
        }
    }
}
