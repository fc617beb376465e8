//! The end of a node, and the signals of its state: whether it serves, closes streams, or must
//! stop.
//!
//! Owns the data directory's lock and the signals. Invariant: a node that stops in order has handed
//! leadership over and closed its streams before consensus ends, and its state is durable
//! afterwards.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{CloseReason, Node};
use headwater_storage::StateStore;
use headwater_storage::data_dir::DataDir;
use headwater_storage::log::WeakLog;

/// Interval of the checks of [`Node::gone`].
const GONE_POLL: Duration = Duration::from_millis(5);

/// Signals and resources that belong to the node from start to end.
pub(super) struct Lifecycle {
    pub(super) serving: watch::Receiver<bool>,
    /// The error of the first read of the state that failed; `None` before.
    storage_failed: watch::Receiver<Option<String>>,
    stopping: watch::Sender<bool>,
    hand_over_timeout: Duration,
    pub(super) log: WeakLog,
    /// The data directory, with the lock on it that lasts as long as anything of the node is alive.
    pub(super) data_dir: DataDir,
}

impl Lifecycle {
    pub(super) fn new(
        store: &Arc<StateStore>,
        serving: watch::Receiver<bool>,
        hand_over_timeout: Duration,
        log: WeakLog,
        data_dir: DataDir,
    ) -> Self {
        let (failed, storage_failed) = watch::channel(None);
        store.on_failed_read(move |error| {
            failed.send_if_modified(|why: &mut Option<String>| {
                let is_first = why.is_none();
                why.get_or_insert_with(|| error.to_string());
                is_first
            });
        });
        Self { serving, storage_failed, stopping: watch::Sender::new(false), hand_over_timeout, log, data_dir }
    }
}

impl Node {
    /// A receiver that turns true once this node has recovered everything that it had acknowledged
    /// before its restart, and serves.
    pub fn serving(&self) -> watch::Receiver<bool> {
        self.inner.lifecycle.serving.clone()
    }

    /// Resolves with the error once a read of this node's state has failed: the node must stop.
    pub async fn storage_failed(&self) -> String {
        let mut failed = self.inner.lifecycle.storage_failed.clone();
        let why = failed.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        match why {
            Some(why) => why,
            // The store is gone: no read can fail any more.
            None => std::future::pending().await,
        }
    }

    /// Ends all streams: their clients continue at another member.
    pub fn close_streams(&self) {
        self.inner.lifecycle.stopping.send_replace(true);
        self.inner.follow.events.close(CloseReason::Stopping);
    }

    /// Resolves when streams must end: their clients should continue at another member.
    pub fn streams_closing(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stopping = self.inner.lifecycle.stopping.subscribe();
        async move {
            // The sender is gone: the node has stopped as well.
            let _gone = stopping.wait_for(|stopping| *stopping).await.is_err();
        }
    }

    /// Hands leadership to another member, if this one leads. Waits for that, at most the
    /// configured timeout.
    pub async fn hand_over(&self) {
        self.inner.consensus.leadership().step_aside(self.inner.lifecycle.hand_over_timeout).await;
    }

    /// Ends consensus at once, without the flush of [`stop`](Self::stop).
    pub async fn crash(&self) {
        self.inner.consensus.shutdown().await;
    }

    /// Resolves once nothing uses this node's files any more, so that its data directory can be
    /// opened again.
    pub async fn gone(self) {
        // The count of references to the store falls before its files are closed.
        let (node, files) = (Arc::downgrade(&self.inner), self.inner.store.files());
        let log = self.inner.lifecycle.log.clone();
        drop(self);
        while node.strong_count() + files.strong_count() > 0 || !log.is_gone() {
            tokio::time::sleep(GONE_POLL).await;
        }
    }

    /// Forms the cluster if there is none yet. The peer port must be served.
    pub fn form_cluster(&self) {
        self.inner.consensus.form();
    }

    /// Ends consensus and makes the state durable, so that the next start re-applies nothing.
    pub async fn stop(&self) {
        self.inner.consensus.shutdown().await;
        let store = self.inner.store.clone();
        match tokio::task::spawn_blocking(move || store.current().flush()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "the state was not flushed; it will be re-applied at the next start")
            }
            Err(error) => tracing::warn!(%error, "the state was not flushed; it will be re-applied at the next start"),
        }
    }

    /// Resolves once this node was removed from the cluster: it serves nothing any more.
    pub async fn removed(&self) {
        self.inner.consensus.removed().await;
    }
}
