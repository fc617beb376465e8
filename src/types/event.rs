//! The events of a command, as the publisher delivers them to subscribers.

use std::sync::Arc;

use super::catalog::CatalogEvent;
use super::{ClusterMember, KeyValue, LeaseId, LogIndex, NodeId, Resource, Revision};

/// The events of one command, by topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandEvents {
    /// Log index of the command.
    pub index: LogIndex,
    /// The KV revision that the command made; `None` if it changed no KV key.
    pub revision: Option<Revision>,
    /// Changes of KV keys, in the order of sub-revisions.
    pub kv: Arc<[KvEvent]>,
    /// Changes of resources, in the order of writing.
    pub resources: Arc<[ResourceEvent]>,
    /// Events of the catalog.
    pub catalog: Arc<[CatalogEvent]>,
    /// Changes of leases and members.
    pub cluster: Arc<[ClusterEvent]>,
}

/// One change of a client's lease or of a member of the cluster. The store's own deadlines make no
/// events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterEvent {
    /// A lease was granted.
    LeaseGranted {
        /// The lease.
        id: LeaseId,
        /// Time to live of the lease, whole seconds.
        ttl_seconds: i64,
    },
    /// A lease was revoked, or has expired.
    LeaseEnded(LeaseId),
    /// A member was added or changed; its new record.
    MemberChanged(Arc<ClusterMember>),
    /// A member was removed.
    MemberLeft(NodeId),
}

/// One change of one resource. A write that changes the group version of the resource's type makes
/// two events: a removal under the old type and a put under the new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceEvent {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// The resource after a write; after a removal, its last state with its last version.
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

/// Kind of a change of a key or a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The key or resource was written.
    Put,
    /// The key or resource was removed, but not by the end of a lease.
    Delete,
    /// The key was removed because its lease was revoked or has expired.
    Expire,
}
