//! Commands of Consul's API, and their outcomes.

use bytes::Bytes;
use thiserror::Error;

use super::{KvEntry, SessionCreate, SessionRefusal};
use crate::LogIndex;
use crate::catalog::{CatalogNode, CatalogRefusal, Check, Service};
use crate::limits::{CONSUL_LIST_BYTES_MAX, CONSUL_TXN_RESULT_BYTES_MAX, CONSUL_TXN_RESULT_KEYS_MAX};

/// A command of Consul's KV and session API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsulCommand {
    /// One operation on a path. If its condition does not hold, the outcome is
    /// [`ConsulOutcome::Kv`] with `false`, not a refusal.
    Kv(KvOp),
    /// Operations, all or nothing; at most [`TXN_OPS_MAX`](crate::limits::TXN_OPS_MAX).
    Txn(Vec<TxnOp>),
    /// Creates a session.
    SessionCreate(Box<SessionCreate>),
    /// Ends a session, by id. Succeeds if it does not exist.
    SessionDestroy(String),
}

/// One operation on a path, or on all paths that begin with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvOp {
    /// Kind of the operation.
    pub verb: KvVerb,
    /// The path or the prefix; only a prefix may be empty.
    pub path: Bytes,
    /// The value, for verbs that write.
    pub value: Bytes,
    /// The flags, for verbs that write.
    pub flags: u64,
    /// The expected `ModifyIndex`, for verbs that compare.
    pub index: LogIndex,
    /// Id of a session, for locks; else empty.
    pub session: String,
}

/// Operation on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvVerb {
    /// Writes; keeps the lock if one is held.
    Set,
    /// Writes if the index is that of the key, or if the index is 0 and the key is absent.
    Cas,
    /// Writes and takes the lock.
    Lock,
    /// Writes and releases the lock.
    Unlock,
    /// Deletes the key. Succeeds if it is absent.
    Delete,
    /// Deletes the key if the index is that of the key. Succeeds if it is absent.
    DeleteCas,
    /// Deletes all keys that begin with the path.
    DeleteTree,
    /// Reads the key, which must exist.
    Get,
    /// Reads the key; an absent one reads as empty.
    GetOrEmpty,
    /// Reads all keys that begin with the path.
    GetTree,
    /// Requires that the index is that of the key.
    CheckIndex,
    /// Requires that the session holds the key's lock.
    CheckSession,
    /// Requires that the key is absent.
    CheckNotExists,
}

impl KvVerb {
    /// Every verb. The number of a verb on the wire is its position here, from 1.
    pub const ALL: [Self; 13] = [
        Self::Set,
        Self::Cas,
        Self::Lock,
        Self::Unlock,
        Self::Delete,
        Self::DeleteCas,
        Self::DeleteTree,
        Self::Get,
        Self::GetOrEmpty,
        Self::GetTree,
        Self::CheckIndex,
        Self::CheckSession,
        Self::CheckNotExists,
    ];

    /// Whether it changes nothing, so that it need not be replicated.
    pub const fn is_read(self) -> bool {
        match self {
            Self::Get | Self::GetOrEmpty | Self::GetTree => true,
            Self::CheckIndex | Self::CheckSession | Self::CheckNotExists => true,
            Self::Set | Self::Cas | Self::Lock | Self::Unlock => false,
            Self::Delete | Self::DeleteCas | Self::DeleteTree => false,
        }
    }

    /// Whether it concerns all paths that begin with the given one.
    pub const fn is_about_prefix(self) -> bool {
        matches!(self, Self::DeleteTree | Self::GetTree)
    }

    /// Whether it may make the store larger.
    pub const fn may_grow(self) -> bool {
        matches!(self, Self::Set | Self::Cas | Self::Lock | Self::Unlock)
    }
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnOp {
    /// An operation on a path.
    Kv(KvOp),
    /// An operation on a row of the catalog.
    Catalog(CatalogVerb, TxnRow),
}

impl TxnOp {
    /// The operation, if it is one on a path that changes nothing and need not be replicated.
    /// Operations on the catalog are always replicated.
    pub fn as_read(&self) -> Option<&KvOp> {
        match self {
            Self::Kv(op) => op.verb.is_read().then_some(op),
            Self::Catalog(..) => None,
        }
    }
}

/// Operation on a row of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogVerb {
    /// Reads the row, which must exist.
    Get,
    /// Writes the row.
    Set,
    /// Writes it if the index is that of the stored row, or if the index is 0 and the row is
    /// absent.
    Cas,
    /// Removes the row, with everything on it.
    Delete,
    /// Removes it if the index is that of the stored row. Succeeds if it is absent.
    DeleteCas,
}

impl CatalogVerb {
    /// Every verb. The number of a verb on the wire is its position here, from 1.
    pub const ALL: [Self; 5] = [Self::Get, Self::Set, Self::Cas, Self::Delete, Self::DeleteCas];
}

/// A row of the catalog. In an operation, `modified` is the expected index, and verbs that do not
/// write use only the names and ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnRow {
    /// A node.
    Node(Box<CatalogNode>),
    /// An instance of a service on a node.
    Service(Box<Service>),
    /// A check on a node.
    Check(Box<Check>),
}

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsulOutcome {
    /// Outcome of one operation: whether it was done. If `false`, nothing changed.
    Kv(bool),
    /// Outcome of a transaction that was carried out: the results of its operations, in order.
    Txn(Vec<TxnItem>),
    /// Outcome of a transaction of which nothing was carried out.
    TxnFailed(Vec<TxnFault>),
    /// Outcome of [`ConsulCommand::SessionCreate`]: the session was created.
    SessionCreated,
    /// Outcome of [`ConsulCommand::SessionDestroy`]: the session is gone, or there was none.
    SessionDestroyed,
}

/// Result of an operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnItem {
    /// A key; without its value after a write.
    Kv(KvEntry),
    /// A row of the catalog.
    Catalog(TxnRow),
}

/// The operation that stopped its transaction, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnFault {
    /// Position of the operation, from 0.
    pub op: u32,
    /// The condition that does not hold.
    pub reason: TxnFaultReason,
}

/// The condition that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TxnFaultReason {
    /// The index is not that of the key.
    #[error("index is stale")]
    Stale,
    /// Another session holds the lock.
    #[error("lock is already held")]
    Held,
    /// The session does not hold the lock.
    #[error("lock isn't held, or is held by another session")]
    NotHeld,
    /// The session that held the lock has ended, and the lock delay has not.
    #[error("due to lock delay")]
    Delayed,
    /// There is no such key.
    #[error("key doesn't exist")]
    Absent,
    /// There is such a key.
    #[error("key exists")]
    Present,
    /// No session is named, the session does not exist, or it cannot be used.
    #[error(transparent)]
    Session(#[from] SessionRefusal),
    /// There is no such row in the catalog.
    #[error("it doesn't exist")]
    RowAbsent,
    /// A rule of the catalog forbids it.
    #[error(transparent)]
    Catalog(#[from] CatalogRefusal),
    /// With this operation the results exceed the limits of one transaction.
    #[error(
        "the transaction reads too much (more than {CONSUL_TXN_RESULT_KEYS_MAX} keys or {CONSUL_TXN_RESULT_BYTES_MAX} bytes \
         where it writes, {CONSUL_LIST_BYTES_MAX} bytes where it does not): read longer prefixes, or in several transactions"
    )]
    ResultTooLarge,
}
