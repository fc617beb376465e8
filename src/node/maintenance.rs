//! Maintenance: hashes, reclaimed space, and the rewriting of files. `alarms`, `backup` and
//! `retention` add their concerns to the handle.
//!
//! Owns the state of maintenance on this node. Invariant: nothing here changes the content of the
//! store but alarms and compaction, which are proposed as any command.

use std::sync::Arc;

use tokio::sync::watch;

use super::alarms::QuotaOptions;
use super::backup::Backups;
use super::{Consistency, Node, NodeError, Read, RequestContext};
use headwater_types::{Access, LogIndex, Refusal, Revision};

/// State behind [`Maintenance`].
pub(super) struct MaintenanceState {
    pub(super) backups: Backups,
    /// The quota that this member is configured with; the leader's is in effect.
    pub(super) quota: QuotaOptions,
    /// Held while this node rewrites its files.
    defragmenting: Arc<tokio::sync::Mutex<()>>,
    /// Log index of the newest compaction point below which all space is reclaimed.
    reclaimed: watch::Receiver<LogIndex>,
}

impl MaintenanceState {
    pub(super) fn new(backups: Backups, quota: QuotaOptions, reclaimed: watch::Receiver<LogIndex>) -> Self {
        Self { backups, quota, defragmenting: Arc::default(), reclaimed }
    }
}

/// Handle to maintenance.
#[derive(Clone, Copy)]
pub struct Maintenance<'a> {
    pub(super) node: &'a Node,
}

impl Node {
    /// Handle to maintenance.
    pub fn maintenance(&self) -> Maintenance<'_> {
        Maintenance { node: self }
    }
}

/// A hash of all keys and values at one revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvHash {
    /// Hash of the keys and values as they were at `revision`.
    pub hash: u64,
    /// The hashed revision.
    pub revision: Revision,
    /// The compaction point, if there ever was one. The hash does not depend on it.
    pub compacted: Option<Revision>,
}

impl Maintenance<'_> {
    /// The hash of the whole logical state: equal on all members at an equal index.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range) with serializable consistency.
    pub async fn state_hash(self, ctx: &RequestContext) -> Result<Read<u64>, NodeError> {
        self.node.ready_to_read(ctx, Consistency::Serializable).await?;
        self.node.authorize_cluster(ctx, Access::WRITE)?;
        self.node.read(false, ctx, |view| view.state_hash().map(Ok)).await
    }

    /// The hash of the data of clients, leases and history included. Writes, ends of leases and
    /// compaction change it; restarts and elections do not. Equal on all members that have applied
    /// the same entries.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range) with serializable consistency.
    pub async fn content_hash(self, ctx: &RequestContext) -> Result<Read<u64>, NodeError> {
        self.node.ready_to_read(ctx, Consistency::Serializable).await?;
        self.node.authorize_cluster(ctx, Access::WRITE)?;
        let metrics = self.node.inner.metrics.clone();
        self.node
            .read(false, ctx, move |view| {
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
    /// As [`Keys::range`](crate::Keys::range) with serializable consistency;
    /// [`Refusal::FutureRevision`] and [`Refusal::Compacted`].
    pub async fn kv_hash(self, ctx: &RequestContext, revision: Option<Revision>) -> Result<Read<KvHash>, NodeError> {
        self.node.ready_to_read(ctx, Consistency::Serializable).await?;
        self.node.authorize_cluster(ctx, Access::WRITE)?;
        let metrics = self.node.inner.metrics.clone();
        self.node
            .read(false, ctx, move |view| {
                let _timer = metrics.hash_rev_seconds.start_timer();
                let current = view.revision();
                let compacted = view.head().compaction.map(|point| point.revision);
                let compact_revision = compacted.unwrap_or(Revision(0));
                // As in etcd, only a positive revision counts.
                let revision = revision.filter(|revision| *revision > Revision(0)).unwrap_or(current);
                if revision > current {
                    return Ok(Err(Refusal::FutureRevision { current }));
                }
                if revision < compact_revision {
                    return Ok(Err(Refusal::Compacted { compact_revision }));
                }
                Ok(Ok(KvHash { hash: view.kv_hash(revision)?, revision, compacted }))
            })
            .await
    }

    /// Waits until this node has applied the log entry `compacted`, a compaction, and has reclaimed
    /// the space below the compaction point that it then has (etcd's `physical`).
    ///
    /// # Errors
    ///
    /// [`NodeError::Timeout`] at the context's deadline; [`NodeError::Stopped`] if the node stops.
    pub async fn wait_reclaimed(self, ctx: &RequestContext, compacted: LogIndex) -> Result<(), NodeError> {
        // This member may not have applied the compaction yet.
        self.node.inner.reads.barrier.wait_applied(compacted, ctx.deadline).await?;
        let target = self.node.inner.store.current().head().compacted_index();
        let mut reclaimed = self.node.inner.maintenance.reclaimed.clone();
        let reached = reclaimed.wait_for(|done| *done >= target);
        match tokio::time::timeout_at(ctx.deadline.into(), reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(NodeError::Stopped),
            Err(_) => Err(NodeError::Timeout),
        }
    }

    /// Rewrites this node's files while it serves, so that removed data takes no space on disk. It
    /// may take long, and the context's deadline does not bound it; concurrent calls run one by
    /// one.
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] without the right to write the cluster; [`NodeError::Storage`] if the
    /// disk failed; the errors of admission.
    pub async fn defragment(self, ctx: &RequestContext) -> Result<(), NodeError> {
        self.node.admit(ctx).await?;
        self.node.authorize_cluster(ctx, Access::WRITE)?;
        let turn = self.node.inner.maintenance.defragmenting.clone().lock_owned().await;
        let store = self.node.inner.store.clone();
        let metrics = self.node.inner.metrics.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            metrics.defragment(|| store.current().compact_files())
        });
        Ok(done.await.map_err(|_| NodeError::Stopped)??)
    }
}
