//! Outcomes of commits.

use thiserror::Error;

use crate::consul::TxnFaultReason;
use crate::resource::{Resource, ResourceDeletion};
use crate::{KeyValue, LeaseId, LogIndex, Refusal, Revision};

/// A commit that took effect, as the state keeps it with its idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCommit {
    /// Log index of the commit.
    pub index: LogIndex,
    /// The KV revision right after it.
    pub revision: Revision,
    /// Time of the proposal by the proposer's clock, milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// [`CommitKey::body`](super::CommitKey::body) of the commit.
    pub body: [u8; 16],
    /// The results of its operations, brief ([`CommitResult::into_brief`]).
    pub results: Vec<CommitResult>,
}

/// The outcome of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// Every operation took effect.
    Done(CommitDone),
    /// Nothing took effect, for this reason.
    Failed(CommitFault),
}

/// A commit that took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitDone {
    /// Log index of the commit that took effect. If `is_repeated`, that of the earlier commit.
    pub index: LogIndex,
    /// The KV revision right after that commit.
    pub revision: Revision,
    /// Whether an earlier commit with the same idempotency key took effect, and this one did not.
    /// The results are brief then ([`CommitResult::into_brief`]).
    pub is_repeated: bool,
    /// The results of the operations, in order.
    pub results: Vec<CommitResult>,
}

/// The result of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitResult {
    /// A key was written.
    Put {
        /// The previous pair, if it was requested and there was one.
        prev: Option<KeyValue>,
    },
    /// Keys were deleted.
    Deleted {
        /// Number of keys removed.
        deleted: u64,
        /// The removed pairs in key order, if they were requested.
        prev: Vec<KeyValue>,
    },
    /// A lease was granted.
    LeaseGranted {
        /// Id of the lease.
        id: LeaseId,
        /// Time to live, whole seconds.
        ttl_seconds: i64,
    },
    /// A lease was revoked.
    LeaseRevoked {
        /// Number of keys removed with it.
        deleted: u64,
    },
    /// A resource, or one of its statuses, was written: the resource as it is stored.
    ResourceWritten(Box<Resource>),
    /// A resource was deleted.
    ResourceDeleted(ResourceDeletion),
    /// Rows of the catalog were registered or deregistered.
    Catalog {
        /// Whether any row changed by all catalog operations of the commit together.
        changed: bool,
    },
    /// A session was created.
    SessionCreated {
        /// Id of the session.
        id: String,
    },
    /// A session was ended, or did not exist.
    SessionDestroyed,
    /// An operation on Consul's keys was done.
    ConsulKv,
}

impl CommitResult {
    /// The part that is kept with an idempotency key: without previous pairs, and of a resource
    /// only its id, version and generation.
    #[must_use]
    pub fn into_brief(self) -> Self {
        match self {
            Self::Put { .. } => Self::Put { prev: None },
            Self::Deleted { deleted, .. } => Self::Deleted { deleted, prev: Vec::new() },
            Self::ResourceWritten(resource) => {
                let Resource { id, version, generation, .. } = *resource;
                Self::ResourceWritten(Box::new(Resource { id, version, generation, ..Resource::default() }))
            }
            brief @ (Self::LeaseGranted { .. }
            | Self::LeaseRevoked { .. }
            | Self::ResourceDeleted(_)
            | Self::Catalog { .. }
            | Self::SessionCreated { .. }
            | Self::SessionDestroyed
            | Self::ConsulKv) => brief,
        }
    }
}

/// The reason for which a commit changed nothing. Numbers of conditions and operations begin at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CommitFault {
    /// A condition does not hold, or cannot be judged.
    #[error("conditions[{condition}]: {reason}")]
    Condition {
        /// Number of the condition.
        condition: u32,
        /// The reason.
        reason: ConditionFault,
    },
    /// An operation was refused.
    #[error("operations[{operation}]: {reason}")]
    Operation {
        /// Number of the operation.
        operation: u32,
        /// The reason.
        reason: CommitOpFault,
    },
    /// Two operations name the same entity, or would change the same record. A change may be a
    /// consequence, such as removing a key because its session ends.
    #[error(
        "operations[{first}] and operations[{second}] change the same entity: make them one operation, or two commits"
    )]
    SameEntity {
        /// The smaller number of the two.
        first: u32,
        /// The larger number of the two.
        second: u32,
    },
    /// The idempotency key belongs to a commit with other conditions or operations.
    #[error("the idempotency key was used for another commit: choose a new key")]
    OtherBody,
    /// The state cannot keep another idempotency key: the number or the size of the kept ones is at
    /// its bound.
    #[error("too many idempotency keys are kept: try again later, or commit without a key")]
    TooManyKeys,
}

impl CommitFault {
    /// The fault of two operations that change the same entity, given in any order.
    pub fn same_entity(one: u32, other: u32) -> Self {
        Self::SameEntity { first: one.min(other), second: one.max(other) }
    }
}

/// The reason for which a condition does not hold or cannot be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConditionFault {
    /// The condition does not hold.
    #[error("it does not hold")]
    Failed {
        /// Log index of the newest change of the tested entity; zero if none was found, and for a
        /// compare.
        changed: LogIndex,
    },
    /// The condition's log index is below the beginning of history.
    #[error("changes since that index are no longer known, only those after {oldest}: read again")]
    Compacted {
        /// The oldest log index that the condition could name.
        oldest: LogIndex,
    },
    /// The condition's log index is that of the commit or a later one.
    #[error("the index is newer than the store, which is at {newest}: read again")]
    Future {
        /// Log index of the entry before the commit.
        newest: LogIndex,
    },
    /// The condition names another epoch, or a log index from before the store was restored.
    #[error("the index is of another store, or from before this one was restored: read again")]
    OtherEpoch,
    /// The conditions of the commit look at more than the limits allow.
    #[error("the conditions look at too many entities: use smaller targets")]
    TooMuchRead,
}

/// The reason for which an operation is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CommitOpFault {
    /// A rule of the operation's face forbids it, or the commit reads too much.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The condition of an operation on Consul's keys does not hold.
    #[error(transparent)]
    Kv(#[from] TxnFaultReason),
}
