//! The events of a commit, as the publisher delivers them to subscribers.

use std::sync::Arc;

use super::catalog::CatalogEvent;
use super::{ClusterMember, KeyValue, LeaseId, LogIndex, NodeId, Resource, Revision};

/// Everything that one command changed, in the order in which it changed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitEvents {
    /// Log index of the command.
    pub index: LogIndex,
    /// The KV revision that the command made, if it changed a KV key.
    pub revision: Option<Revision>,
    /// Changes of KV keys, by sub-revision.
    pub kv: Arc<[KvEvent]>,
    /// Changes of resources.
    pub resources: Arc<[ResourceEvent]>,
    /// Events of the catalog.
    pub catalog: Arc<[CatalogEvent]>,
    /// Changes of leases and members.
    pub cluster: Arc<[ClusterEvent]>,
}

/// One change of the cluster itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterEvent {
    /// A lease was granted.
    LeaseGranted {
        /// Which.
        id: LeaseId,
        /// Its time to live, whole seconds.
        ttl_seconds: i64,
    },
    /// A lease was revoked, or has run out.
    LeaseEnded(LeaseId),
    /// A member has come, or something about it is different: this is how it is now.
    MemberChanged(Arc<ClusterMember>),
    /// A member was removed.
    MemberLeft(NodeId),
}

/// One change of one resource. A write that moves it to another version of its kind makes two: it
/// goes where it was, and comes where it is from then on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceEvent {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// The resource after a write; as it was last, with its last version, after a removal.
    pub resource: Arc<Resource>,
}

/// One change of one KV key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvEvent {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// The pair after a put; for a removal only `key` and `mod_revision` (the removing revision)
    /// are set.
    pub kv: KeyValue,
}

/// How a key changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was written.
    Put,
    /// It was removed by a client.
    Delete,
    /// It was removed because its lease ended.
    Expire,
}
