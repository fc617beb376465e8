//! Leases as the state machine holds them, and the commands that make, end and change them (spec:
//! etcd §3, §7.5).
//!
//! Nothing here reads a clock. The leader measures time, and passes two facts to later leaders
//! through the log: how far the cluster's **lease clock** has come, and at which point of it a
//! lease expires unless it was kept alive since.

use bytes::Bytes;

use super::{LeaseId, LogIndex, Term, Txn};

/// A lease. The keys attached to it are in an index of the state, not in this record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Log index of the command that granted the lease. It distinguishes the lease from a later one
    /// with the same id.
    pub granted: LogIndex,
    /// Time to live, whole seconds, 1 to
    /// [`LEASE_TTL_SECONDS_MAX`](super::limits::LEASE_TTL_SECONDS_MAX).
    pub ttl_seconds: i64,
    /// Due point: the point on the lease clock, milliseconds, at which the lease ends, as the last
    /// [`LeaseCheckpoint`] recorded it. `None` if none is recorded, or the lease may have been kept
    /// alive since the record: a new leader then gives the lease its whole time to live.
    pub due_ms: Option<u64>,
}

/// A lease that one commit of the state has written or ended, as it is after the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseChange {
    /// Id of the lease.
    pub id: LeaseId,
    /// The lease after the commit; `None` if it has ended.
    pub lease: Option<Lease>,
}

/// Makes a lease (spec: etcd §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrant {
    /// Id of the new lease. It must be free, not [`LeaseId::NONE`], and not the id of a deadline.
    /// The proposing node picks one if the client did not.
    pub id: LeaseId,
    /// Requested time to live, whole seconds. The proposing node has raised it to its minimum;
    /// apply raises it to at least 1.
    pub ttl_seconds: i64,
}

/// Ends a lease at a client's request, with all keys attached to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRevoke {
    /// Id of the lease.
    pub id: LeaseId,
}

/// Ends a lease that has expired, with all keys attached to it. For a deadline of the store,
/// carries out the deadline's effect instead ([`Deadline`](super::consul::Deadline)). Refused if
/// the log entry has another term than [`term`](Self::term): another leader may have kept the lease
/// alive since. Also refused if the lease has ended, or if the id now belongs to a later grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseExpire {
    /// Id of the lease.
    pub id: LeaseId,
    /// Log index of the grant of the lease that has expired.
    pub granted: LogIndex,
    /// The term of the leader that found the lease expired.
    pub term: Term,
}

/// Moves the lease clock, and records the due points of leases, for later leaders. Refused if the
/// log entry has another term than [`term`](Self::term).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseCheckpoint {
    /// The term of the leader that measured the time.
    pub term: Term,
    /// The lease clock, milliseconds. A value below the replicated clock leaves that clock as it
    /// is.
    pub clock_ms: u64,
    /// The leases whose due point is recorded or deleted; at most
    /// [`LEASE_CHECKPOINTS_MAX`](super::limits::LEASE_CHECKPOINTS_MAX).
    pub leases: Vec<LeaseRemaining>,
}

/// The record of one lease in a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRemaining {
    /// Id of the lease.
    pub id: LeaseId,
    /// Log index of the grant. Nothing is recorded if the lease has ended, or if the id now belongs
    /// to a later grant.
    pub granted: LogIndex,
    /// Remaining time to live, milliseconds. The recorded due point is the lease clock after the
    /// checkpoint plus this time. `None` deletes the recorded due point, because the lease has been
    /// kept alive since.
    pub remaining_ms: Option<u64>,
}

/// Attaches an existing key to an existing lease (spec: etcd §7.5). Writes a new version of the key
/// with the same value; changes nothing if the key is attached to that lease already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseAttach {
    /// Id of the lease.
    pub id: LeaseId,
    /// The key; not empty.
    pub key: Bytes,
}

/// A transaction that also attaches keys to leases, all in one revision (spec: etcd §7.5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseTxn {
    /// The transaction.
    pub txn: Txn,
    /// Attachments to make if all compares hold. If several name one key, the last counts.
    pub success: Vec<LeaseAttach>,
    /// Attachments to make if a compare does not hold. If several name one key, the last counts.
    pub failure: Vec<LeaseAttach>,
}

/// A request of a member to the leader, about a lease: only the leader measures time. The member
/// may be the leader itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseQuestion {
    /// Restarts the time to live of this lease.
    KeepAlive(LeaseId),
    /// Asks for the remaining time of this lease.
    Remaining(LeaseId),
}

/// Answer to a [`LeaseQuestion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// The lease is alive; it was renewed if the question was [`LeaseQuestion::KeepAlive`].
    Alive {
        /// Whole time to live of the lease, seconds.
        granted_seconds: i64,
        /// Remaining time to live, milliseconds.
        remaining_ms: u64,
    },
    /// There is no such lease, or it has expired.
    Unknown,
    /// The question stays open; the request may be repeated. The asked member does not lead, has
    /// not loaded the leases yet, or could not confirm in time that it leads. Or no readable answer
    /// came in time.
    NotLeader,
    /// Too many questions about leases wait, at the asking member or at the leader.
    Busy,
}
