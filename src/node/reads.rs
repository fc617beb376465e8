//! The read path: admission, barrier, then one view.

use std::sync::Arc;
use std::time::Instant;

use super::barrier::ReadBarrier;
use super::long_reads::{LongReadBounds, LongReads};
use super::metrics::NodeMetrics;
use super::{ClientKey, Consistency, Inner, Limit, Node, NodeError, Read, RequestContext};
use headwater_raft::Consensus;
use headwater_storage::{ReadView, StorageError};
use headwater_types::Refusal;
use headwater_types::limits::{
    LONG_READS_MAX, LONG_READS_OF_CLIENT_MAX, LONG_READS_RUNNING_MAX, OWN_READS_RUNNING_MAX, RANGE_STREAMS_MAX,
    RANGE_STREAMS_OF_CLIENT_MAX, SMALL_ANSWER_BYTES_MAX,
};

/// The barrier of linearizable reads, and the permits of long reads.
pub(super) struct ReadPath {
    /// The barrier of linearizable reads.
    pub(super) barrier: ReadBarrier,
    /// Permits of clients' long reads.
    pub(super) long: LongReads,
    /// Permits of the long reads of the node's own tasks.
    pub(super) own: LongReads,
    /// Permits of streamed ranges.
    pub(super) streams: LongReads,
}

impl ReadPath {
    pub(super) fn start(consensus: Consensus, metrics: Arc<NodeMetrics>) -> Self {
        let bounds = |running_max, running_of_client_max| LongReadBounds {
            reads_max: LONG_READS_MAX,
            running_max,
            running_of_client_max,
        };
        Self {
            barrier: ReadBarrier::start(consensus, metrics),
            long: LongReads::new(bounds(LONG_READS_RUNNING_MAX, LONG_READS_OF_CLIENT_MAX)),
            own: LongReads::new(bounds(OWN_READS_RUNNING_MAX, OWN_READS_RUNNING_MAX)),
            streams: LongReads::new(bounds(RANGE_STREAMS_MAX, RANGE_STREAMS_OF_CLIENT_MAX)),
        }
    }
}

impl Node {
    /// Waits until this node may answer the request from its own state: admission and `min_index`,
    /// without a barrier.
    ///
    /// # Errors
    ///
    /// As [`Keys::range`](crate::Keys::range) with serializable consistency.
    pub async fn wait_ready(&self, ctx: &RequestContext) -> Result<(), NodeError> {
        self.ready_to_read(ctx, Consistency::Serializable).await
    }

    /// Waits until a local view may answer this request: admission, the read barrier if
    /// linearizable, and `min_index`.
    pub(super) async fn ready_to_read(&self, ctx: &RequestContext, consistency: Consistency) -> Result<(), NodeError> {
        self.admit(ctx).await?;
        if consistency == Consistency::Linearizable {
            let passed = self.inner.reads.barrier.pass(ctx.client, ctx.deadline).await;
            match passed.inspect_err(self.inner.limit_counters.note(Limit::WaitingReads)) {
                // A client that requires a leader gets `NoLeader`, also if the leader went away
                // while the read waited.
                Err(NodeError::Timeout) if ctx.require_leader && self.live_leader().is_none() => {
                    return Err(NodeError::NoLeader);
                }
                passed => passed?,
            }
        }
        if let Some(wanted) = ctx.min_index {
            let reached = self.inner.reads.barrier.wait_applied(wanted, ctx.deadline).await;
            if let Err(NodeError::Timeout) = reached {
                return Err(NodeError::MinIndexNotReached { wanted, applied: self.applied_index() });
            }
            reached?;
        }
        Ok(())
    }

    /// Runs `work` on one view. Small work runs on the calling thread at once. Other work waits for
    /// the memory of answers and for a permit of a long read, and runs on a blocking thread; work
    /// of the node's own tasks as in [`read_by_itself`](Self::read_by_itself). The caller has
    /// passed `ready_to_read`.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        is_small: bool,
        ctx: &RequestContext,
        work: impl FnOnce(&ReadView<'_>) -> Result<Result<T, Refusal>, StorageError> + Send + 'static,
    ) -> Result<Read<T>, NodeError> {
        if is_small {
            return read_now(&self.inner, work);
        }
        if ctx.client == ClientKey::Own {
            return self.read_by_itself(ctx.deadline, work).await;
        }
        // Readers that take their answers free capacity; without capacity the work would be
        // useless.
        self.inner.answers.wait_for_capacity(SMALL_ANSWER_BYTES_MAX + 1, ctx.deadline).await?;
        let inner = self.inner.clone();
        let read = self.inner.reads.long.run(ctx.client, ctx.deadline, move || read_now(&inner, work)).await;
        read.inspect_err(self.inner.limit_counters.note(Limit::LongReads))
    }

    /// Runs `work`, which must be small, on one view, on the calling thread. The caller has passed
    /// `ready_to_read`.
    pub(super) fn read_now<T>(
        &self,
        work: impl FnOnce(&ReadView<'_>) -> Result<Result<T, Refusal>, StorageError>,
    ) -> Result<Read<T>, NodeError> {
        read_now(&self.inner, work)
    }

    /// Runs `work` on one view, on a blocking thread, for the node's own tasks. Their permits are
    /// separate, so that clients' reads do not delay them.
    pub(super) async fn read_by_itself<T: Send + 'static>(
        &self,
        deadline: Instant,
        work: impl FnOnce(&ReadView<'_>) -> Result<Result<T, Refusal>, StorageError> + Send + 'static,
    ) -> Result<Read<T>, NodeError> {
        let inner = self.inner.clone();
        self.inner.reads.own.run(ClientKey::Own, deadline, move || read_now(&inner, work)).await
    }
}

fn read_now<T>(
    inner: &Arc<Inner>,
    work: impl FnOnce(&ReadView<'_>) -> Result<Result<T, Refusal>, StorageError>,
) -> Result<Read<T>, NodeError> {
    let read = inner.store.read(|view| {
        let head = view.head();
        Ok(work(view)?.map(|value| Read { index: head.applied_index(), revision: head.revision, value }))
    });
    Ok(read??)
}
