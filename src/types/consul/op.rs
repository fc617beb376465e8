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
    /// [`ConsulOutcome::Kv`] with `false`. `Lock` and `Unlock` are refused without a session,
    /// `Lock` also for a session that does not exist.
    Kv(KvOp),
    /// A transaction: operations in order, all or nothing; at most
    /// [`TXN_OPS_MAX`](crate::limits::TXN_OPS_MAX).
    Txn(Vec<TxnOp>),
    /// Creates a session.
    SessionCreate(Box<SessionCreate>),
    /// Ends the session with this id. Succeeds if it does not exist.
    SessionDestroy(String),
}

/// One operation on a path, or on all paths with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvOp {
    /// Kind of the operation.
    pub verb: KvVerb,
    /// The path, or for [`is_about_prefix`](KvVerb::is_about_prefix) the prefix of paths. Only a
    /// prefix may be empty.
    pub path: Bytes,
    /// The value, for verbs that write.
    pub value: Bytes,
    /// The flags, for verbs that write.
    pub flags: u64,
    /// The expected [`KvEntry::modified`], for `Cas`, `DeleteCas` and `CheckIndex`.
    pub index: LogIndex,
    /// Id of the session, for `Lock`, `Unlock` and `CheckSession`; else empty.
    pub session: String,
}

/// Kind of an operation on a path or prefix. *The index* is [`KvOp::index`], *the session* is
/// [`KvOp::session`]; the index of the key is [`KvEntry::modified`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvVerb {
    /// Writes value and flags, unless both are as stored. A session that holds the key's lock keeps
    /// it.
    Set,
    /// As `Set`, if the index is that of the key, or if the index is 0 and the key is absent.
    Cas,
    /// Writes the key and takes its lock for the session, which must exist. Fails if another
    /// session holds the lock, or the lock delay is not over. If the session holds the lock
    /// already, it keeps the lock.
    Lock,
    /// Writes the key and releases its lock, which the session must hold.
    Unlock,
    /// Deletes the key. Succeeds if it is absent.
    Delete,
    /// Deletes the key if the index is that of the key. Succeeds if it is absent.
    DeleteCas,
    /// Deletes all keys that begin with the path. Succeeds if there are none.
    DeleteTree,
    /// Reads the key, which must exist.
    Get,
    /// Reads the key. An absent key reads as one with an empty value and index 0.
    GetOrEmpty,
    /// Reads all keys that begin with the path. Succeeds if there are none.
    GetTree,
    /// Requires that the key exists and that the index is that of the key.
    CheckIndex,
    /// Requires that the key exists and that the session holds its lock; with an empty session,
    /// that no session does.
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

    /// Whether it reads or compares only, so that it need not be replicated.
    pub const fn is_read(self) -> bool {
        match self {
            Self::Get | Self::GetOrEmpty | Self::GetTree => true,
            Self::CheckIndex | Self::CheckSession | Self::CheckNotExists => true,
            Self::Set | Self::Cas | Self::Lock | Self::Unlock => false,
            Self::Delete | Self::DeleteCas | Self::DeleteTree => false,
        }
    }

    /// Whether its result contains the values of keys.
    pub const fn reads_value(self) -> bool {
        matches!(self, Self::Get | Self::GetOrEmpty | Self::GetTree)
    }

    /// Whether it is an operation on all paths that begin with [`KvOp::path`].
    pub const fn is_about_prefix(self) -> bool {
        matches!(self, Self::DeleteTree | Self::GetTree)
    }

    /// Whether it writes a value, and so may make the store larger.
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
    /// The operation if it is on a path and [`is_read`](KvVerb::is_read); else `None`. Operations
    /// on the catalog, also reads, are always replicated.
    pub fn as_read(&self) -> Option<&KvOp> {
        match self {
            Self::Kv(op) => op.verb.is_read().then_some(op),
            Self::Catalog(..) => None,
        }
    }
}

/// The verb of an operation on a row of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogVerb {
    /// Reads the row, which must exist.
    Get,
    /// Writes the row.
    Set,
    /// Writes the row if its `modified` is that of the stored row, or if its `modified` is 0 and no
    /// such row is stored.
    Cas,
    /// Removes the row. A node is removed with its instances and checks, an instance with its
    /// checks. Succeeds if no such row is stored.
    Delete,
    /// Removes the row, as `Delete`, if its `modified` is that of the stored row. Succeeds if no
    /// such row is stored.
    DeleteCas,
}

impl CatalogVerb {
    /// Every verb. The number of a verb on the wire is its position here, from 1.
    pub const ALL: [Self; 5] = [Self::Get, Self::Set, Self::Cas, Self::Delete, Self::DeleteCas];
}

/// A row of the catalog. In an operation, its `modified` is the log index that `Cas` and
/// `DeleteCas` expect. Verbs other than `Set` and `Cas` use only the names, the ids and `modified`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnRow {
    /// A node.
    Node(Box<CatalogNode>),
    /// An instance of a service on a node.
    Service(Box<Service>),
    /// A check on a node.
    Check(Box<Check>),
}

/// The outcome of a [`ConsulCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsulOutcome {
    /// Outcome of [`ConsulCommand::Kv`]: whether the operation was done. If `false`, its condition
    /// did not hold, and nothing changed.
    Kv(bool),
    /// Outcome of a transaction that was carried out: the results in the order of the operations,
    /// of which each has none, one or several.
    Txn(Vec<TxnItem>),
    /// Outcome of a transaction that failed: nothing changed. Holds a fault for each operation that
    /// failed, in the order of the operations.
    TxnFailed(Vec<TxnFault>),
    /// Outcome of [`ConsulCommand::SessionCreate`]: the session was created.
    SessionCreated,
    /// Outcome of [`ConsulCommand::SessionDestroy`]: the session was ended, or did not exist.
    SessionDestroyed,
}

/// Result of an operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnItem {
    /// A key. Its value is empty unless the operation is `Get`, `GetOrEmpty` or `GetTree`.
    Kv(KvEntry),
    /// A row of the catalog.
    Catalog(TxnRow),
}

/// An operation that failed in a transaction, and the reason. One fault fails the transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnFault {
    /// Position of the operation in the transaction, from 0.
    pub op: u32,
    /// The reason of the failure.
    pub reason: TxnFaultReason,
}

/// Reason for which an operation of a transaction failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TxnFaultReason {
    /// The operation's index is not that of the last change of the key or row, or the index is 0
    /// and the key or row exists.
    #[error("index is stale")]
    Stale,
    /// Another session holds the lock.
    #[error("lock is already held")]
    Held,
    /// The session does not hold the lock.
    #[error("lock isn't held, or is held by another session")]
    NotHeld,
    /// A session that held the lock has ended, and the lock delay is not over.
    #[error("due to lock delay")]
    Delayed,
    /// The key does not exist.
    #[error("key doesn't exist")]
    Absent,
    /// The key exists, against [`KvVerb::CheckNotExists`].
    #[error("key exists")]
    Present,
    /// The operation names no session; or, for a `Lock`, one that does not exist.
    #[error(transparent)]
    Session(#[from] SessionRefusal),
    /// There is no such row in the catalog.
    #[error("it doesn't exist")]
    RowAbsent,
    /// A rule of the catalog forbids the operation.
    #[error(transparent)]
    Catalog(#[from] CatalogRefusal),
    /// With the results of this operation, the results exceed the limits of one transaction.
    #[error(
        "the transaction reads too much (more than {CONSUL_TXN_RESULT_KEYS_MAX} keys or {CONSUL_TXN_RESULT_BYTES_MAX} bytes \
         where it writes, {CONSUL_LIST_BYTES_MAX} bytes where it does not): read longer prefixes, or in several transactions"
    )]
    ResultTooLarge,
}
