//! The node in numbers: status and counters.
//!
//! Owns the types that the faces show. The numbers are read from the parts of the node that keep
//! them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Node, NodeError};
use headwater_types::{Alarm, ClusterId, ClusterVersion, LogIndex, NodeId, Revision, StoreEpoch, Term};

/// Counters of a node since it started, and its pending proposals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Proposals that are pending now, also if their clients have given up.
    pub proposals_pending: u64,
    /// Proposals that got an outcome, refusals included.
    pub proposals_answered: u64,
    /// Proposals that were given to the queue and ended without an outcome: failed, unanswered at
    /// their deadline, or refused by a full queue. A proposal that was refused before the queue
    /// does not count.
    pub proposals_failed: u64,
    /// Number of times that a leader became known to this node, also the same one again.
    pub leader_changes: u64,
}

/// The cluster and the id of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Id of the cluster.
    pub cluster_id: ClusterId,
    /// Id of this member.
    pub node_id: NodeId,
}

/// The leader and the term that this node knows. The leader may have failed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The leader, if one is known.
    pub leader: Option<NodeId>,
    /// This node's current term.
    pub term: Term,
}

/// The state of this node in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The term, and the leader if it was alive a moment ago ([`Node::live_leader`]).
    pub leadership: Leadership,
    /// Highest log index known to be committed.
    pub committed: LogIndex,
    /// Highest log index applied.
    pub applied: LogIndex,
    /// Current KV revision.
    pub revision: Revision,
    /// Compaction point; 0 if never compacted.
    pub compact_revision: Revision,
    /// First log index of which the changes of every topic can still be read; 0 if history begins
    /// with the log. Changes of keys may reach further back.
    pub history_from: LogIndex,
    /// First log index after the purged entries; 1 if none was purged. A member that needs an
    /// earlier entry gets a snapshot.
    pub log_from: LogIndex,
    /// The store's lineage, once known.
    pub epoch: Option<StoreEpoch>,
    /// Bytes of the state in files and write buffers, or [`live_bytes`](Self::live_bytes) if those
    /// are more: files are compressed, and the quota bounds live bytes.
    pub stored_bytes: u64,
    /// Views of the state that are open now, count.
    pub open_views: u64,
    /// Bytes of live keys and values.
    pub live_bytes: u64,
    /// Number of live keys.
    pub live_keys: u64,
    /// The quota in effect: the bound on bytes of live keys and values; `None` for no bound.
    pub quota_bytes: Option<u64>,
    /// The version that the cluster has agreed on.
    pub version: ClusterVersion,
    /// The active alarms, in order.
    pub alarms: Vec<Alarm>,
    /// Whether this node is a member without a vote.
    pub is_learner: bool,
    /// Whether the node has recovered everything that it had acknowledged before its restart, and
    /// serves.
    pub serving: bool,
    /// Duration of the current stall; `None` without one, or while it is shorter than five seconds.
    /// In a stall, entries are committed and none is applied, although there is a live leader and
    /// no snapshot is being received.
    pub stands_still: Option<Duration>,
}

impl Node {
    /// A snapshot of the node's numbers.
    ///
    /// # Errors
    ///
    /// [`NodeError::Storage`] if the disk failed.
    pub fn status(&self) -> Result<Status, NodeError> {
        let db = self.inner.store.current();
        let head = db.head();
        let points = self.inner.consensus.progress().points();
        let me = self.inner.profile.identity.node_id;
        let is_learner = self.inner.consensus.members().roster().find(me).is_some_and(|member| !member.voter);
        Ok(Status {
            leadership: Leadership { leader: self.live_leader(), ..self.leadership() },
            committed: LogIndex(points.committed.get().max(head.applied_index().get())),
            applied: head.applied_index(),
            revision: head.revision,
            compact_revision: head.compaction.map_or(Revision(0), |point| point.revision),
            history_from: head.compacted_index(),
            log_from: points.purged.next(),
            epoch: head.epoch,
            stored_bytes: db.stored_bytes()?.max(head.live_bytes),
            open_views: db.open_views()?,
            live_bytes: head.live_bytes,
            live_keys: head.live_keys,
            quota_bytes: self.maintenance().quota_bytes(),
            version: head.version,
            alarms: if head.alarms.is_empty() { Vec::new() } else { self.inner.store.read(|view| view.alarms())? },
            is_learner,
            serving: *self.inner.lifecycle.serving.borrow(),
            stands_still: self.stands_still(),
        })
    }

    /// Duration of the current stall; `None` without one, or while it is shorter than five seconds.
    /// In a stall, entries are committed and none is applied, although there is a live leader and
    /// no snapshot is being received.
    pub fn stands_still(&self) -> Option<Duration> {
        self.inner.consensus.progress().stalled_for()
    }

    /// Counters of the node, for metrics.
    pub fn counters(&self) -> Counters {
        let stats = self.inner.proposer.stats();
        Counters {
            proposals_pending: stats.pending.count.load(Ordering::Relaxed) as u64,
            proposals_answered: stats.answered.load(Ordering::Relaxed),
            proposals_failed: stats.failed.load(Ordering::Relaxed),
            leader_changes: self.inner.consensus.leadership().changes(),
        }
    }
}
