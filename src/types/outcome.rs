//! Outcomes of commands, and the reasons of refusals. A refusal is an outcome like any other: it is
//! deterministic, so that all members compute the same one, and it is not an error of apply.

use thiserror::Error;

use super::acl::{AclDone, AclRefusal};
use super::auth::AuthRefusal;
use super::catalog::{CatalogDone, CatalogRefusal};
use super::commit::CommitOutcome;
use super::consul::{ConsulOutcome, SessionRefusal};
use super::limits::{TXN_READ_BYTES_MAX, TXN_READ_KEYS_MAX};
use super::resource::{ResourceOutcome, ResourceRefusal};
use super::{InvitationDone, InvitationRefusal, KeyValue, LogIndex, RangeResult, Revision, Version, VersionRefusal};

/// An outcome with the log index and the revision at which it was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Log index of the command.
    pub index: LogIndex,
    /// The revision right after the command.
    pub revision: Revision,
    /// The outcome of the command.
    pub outcome: Outcome,
}

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The log entry has no command (a blank entry, a membership change), or a skippable one that
    /// this program does not know. Or the caller of apply does not need the outcome.
    Nothing,
    /// Of [`Command::Bootstrap`](super::Command::Bootstrap), also if the epoch was set already.
    Bootstrapped,
    /// Of [`Command::Put`](super::Command::Put).
    Put(PutDone),
    /// Of [`Command::DeleteRange`](super::Command::DeleteRange).
    DeleteRange(Deleted),
    /// Of [`Command::Txn`](super::Command::Txn) and
    /// [`Command::LeaseTxn`](super::Command::LeaseTxn). Attachments to leases have no results of
    /// their own.
    Txn(TxnDone),
    /// Of [`Command::Compact`](super::Command::Compact), and of
    /// [`Command::TrimHistory`](super::Command::TrimHistory), also if the trim had no effect.
    Compacted,
    /// Of [`Command::LeaseGrant`](super::Command::LeaseGrant).
    LeaseGranted {
        /// Time to live, whole seconds.
        ttl_seconds: i64,
    },
    /// Of [`Command::LeaseRevoke`](super::Command::LeaseRevoke) and
    /// [`Command::LeaseExpire`](super::Command::LeaseExpire).
    LeaseEnded {
        /// Number of keys removed with it.
        deleted: u64,
    },
    /// Of [`Command::LeaseCheckpoint`](super::Command::LeaseCheckpoint).
    LeaseCheckpointed,
    /// Of [`Command::LeaseAttach`](super::Command::LeaseAttach), also if the key was attached to
    /// the lease already.
    LeaseAttached,
    /// Of [`Command::SetAlarm`](super::Command::SetAlarm).
    AlarmSet {
        /// Whether the same alarm of the same member was active before.
        was_active: bool,
    },
    /// Of [`Command::SetQuota`](super::Command::SetQuota).
    QuotaSet,
    /// Of [`Command::Resource`](super::Command::Resource).
    Resource(ResourceOutcome),
    /// Of [`Command::Consul`](super::Command::Consul).
    Consul(ConsulOutcome),
    /// Of [`Command::Catalog`](super::Command::Catalog).
    Catalog(CatalogDone),
    /// Of [`Command::SetVersion`](super::Command::SetVersion).
    VersionSet,
    /// Of [`Command::AnnounceProgram`](super::Command::AnnounceProgram).
    ProgramAnnounced,
    /// Of [`Command::Invitation`](super::Command::Invitation).
    Invitation(InvitationDone),
    /// Of [`Command::Auth`](super::Command::Auth).
    AuthChanged {
        /// The auth revision after the command.
        auth_revision: u64,
    },
    /// Of [`Command::Acl`](super::Command::Acl).
    Acl(AclDone),
    /// Of [`Command::Commit`](super::Command::Commit).
    Commit(CommitOutcome),
    /// Of [`Command::Note`](super::Command::Note).
    #[cfg(feature = "next-version")]
    Noted,
    /// The command changed nothing, for this reason.
    Refused(Refusal),
}

/// A put that was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutDone {
    /// The new revision: the `mod_revision` of the key after the put.
    pub revision: Revision,
    /// The pair before the put. `None` if it was not requested, or the key was absent.
    pub prev: Option<KeyValue>,
}

/// A delete that was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// The revision as of this operation: the new one if the command has changed a key so far, by
    /// this operation or an earlier one; otherwise the one before the command.
    pub revision: Revision,
    /// Number of keys removed.
    pub deleted: u64,
    /// The removed pairs, in key order. Empty if they were not requested.
    pub prev: Vec<KeyValue>,
}

/// The result of a range inside a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeDone {
    /// The revision as of this operation: the new one if an earlier operation of the transaction
    /// has changed a key, otherwise the one before. Independent of the revision that the range
    /// reads at.
    pub revision: Revision,
    /// The pairs and the count.
    pub result: RangeResult,
}

/// A transaction that was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxnDone {
    /// Whether all compares held. If so, the list `success` ran, otherwise `failure`.
    pub succeeded: bool,
    /// One result for each operation of the list that ran, in order.
    pub responses: Vec<TxnOpDone>,
}

/// Result of one operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnOpDone {
    /// Of a range.
    Range(RangeDone),
    /// Of a put.
    Put(PutDone),
    /// Of a delete.
    DeleteRange(Deleted),
    /// Of a nested transaction.
    Txn(TxnDone),
}

/// The reason for which a command or a read was refused. The texts are for logs; each face has its
/// own table to wire codes and texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The revision to read is below the compaction point, or the revision to compact to is not
    /// above it.
    #[error("revision is below the compaction point {compact_revision}")]
    Compacted {
        /// The compaction point at the time of the refusal. If nothing was compacted yet, 0 for a
        /// read and -1 for a compaction.
        compact_revision: Revision,
    },
    /// The revision to read, or to compact to, is above the current one.
    #[error("revision is in the future of {current}")]
    FutureRevision {
        /// The current revision.
        current: Revision,
    },
    /// The key of an attachment, or of a put that keeps the value or the lease, does not exist.
    #[error("key not found")]
    KeyNotFound,
    /// The lease that the request names does not exist, or its id is not one that a client may use.
    #[error("lease not found")]
    LeaseNotFound,
    /// A transaction would change a key twice in one revision. Deleting a key twice is legal.
    #[error("duplicate key in one transaction")]
    DuplicateKey,
    /// The transaction reads more keys or bytes than the limits allow.
    #[error("a transaction reads more than {TXN_READ_KEYS_MAX} keys or {TXN_READ_BYTES_MAX} bytes")]
    TooMuchRead,
    /// A lease with the requested id exists, or the id is one of those kept for the store's own
    /// deadlines.
    #[error("lease already exists")]
    LeaseExists,
    /// The requested time to live exceeds
    /// [`LEASE_TTL_SECONDS_MAX`](super::limits::LEASE_TTL_SECONDS_MAX).
    #[error("time to live is too large")]
    LeaseTtlTooLarge,
    /// A leader's command about leases is out of date: the term has changed, or the id belongs to a
    /// later grant.
    #[error("decision about a lease is out of date")]
    LeaseStale,
    /// The command would exceed the quota, or it may add data while the alarm
    /// [`NoSpace`](super::AlarmKind::NoSpace) is active.
    #[error("database space exceeded")]
    NoSpace,
    /// The alarm [`Corrupt`](super::AlarmKind::Corrupt) is active, and the command is of a kind
    /// that it stops.
    #[error("corrupt cluster")]
    Corrupt,
    /// A rule of resources forbids it.
    #[error(transparent)]
    Resource(#[from] ResourceRefusal),
    /// A rule of sessions forbids it.
    #[error(transparent)]
    Session(#[from] SessionRefusal),
    /// A rule of the catalog forbids it.
    #[error(transparent)]
    Catalog(#[from] CatalogRefusal),
    /// The cluster's version is too low for the command or a part of it.
    #[error("this needs cluster version {needs}: upgrade all members first")]
    NeedsVersion {
        /// The lowest version that has the command or the part.
        needs: Version,
    },
    /// A rule of the cluster's version forbids it.
    #[error(transparent)]
    Version(#[from] VersionRefusal),
    /// A rule of invitations forbids it.
    #[error(transparent)]
    Invitation(#[from] InvitationRefusal),
    /// The principal lacks a right or valid credentials, or a rule of users and roles forbids the
    /// command.
    #[error(transparent)]
    Auth(#[from] AuthRefusal),
    /// A rule of Consul's ACLs forbids it.
    #[error(transparent)]
    Acl(#[from] AclRefusal),
}
