//! Leases as the state machine holds them, and the commands that make, end and change them (spec:
//! etcd §3, §7.5).
//!
//! Nothing here tells the time. A leader measures it, and passes two facts to later leaders through
//! the log: how far the cluster's **lease clock** has come, and at which point of it a lease runs
//! out unless it was kept alive since.

use bytes::Bytes;

use super::{LeaseId, LogIndex, Term, Txn};

/// A lease. Keys are attached to it in an index of their own, not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Log index of the command that granted it: tells a lease from a later one with the same id.
    pub granted: LogIndex,
    /// Time to live, whole seconds, 1 to
    /// [`LEASE_TTL_SECONDS_MAX`](super::limits::LEASE_TTL_SECONDS_MAX).
    pub ttl_seconds: i64,
    /// When it runs out, on the lease clock in milliseconds, if the leader has let everybody know.
    /// `None` while it may have been kept alive since then: a new leader then gives it its whole
    /// time to live.
    pub due_ms: Option<u64>,
}

/// A lease that a commit has made, changed or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseChange {
    /// Which.
    pub id: LeaseId,
    /// The lease after the commit; `None` if no lease has that id.
    pub lease: Option<Lease>,
}

/// Makes a lease (spec: etcd §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrant {
    /// Its id, which must be free and not [`LeaseId::NONE`]. The node picks one if the client did
    /// not.
    pub id: LeaseId,
    /// Time to live, whole seconds. The node has raised it to the least that makes sense.
    pub ttl_seconds: i64,
}

/// Ends a lease at a client's wish, with all keys attached to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRevoke {
    /// Which.
    pub id: LeaseId,
}

/// Ends a lease that has run out, with all keys attached to it. Takes effect only if nobody but the
/// leader that decided it can have kept the lease alive, and the lease is still the one that it
/// decided about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseExpire {
    /// Which.
    pub id: LeaseId,
    /// The grant that has run out.
    pub granted: LogIndex,
    /// The term of the leader that decided it. In the log of another term it is refused.
    pub term: Term,
}

/// The leases' time for later leaders: moves the lease clock, and sets when leases run out. Takes
/// effect only in the term of the leader that measured it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseCheckpoint {
    /// The term of the leader that measured it.
    pub term: Term,
    /// How far the lease clock has come, milliseconds. It never goes back.
    pub clock_ms: u64,
    /// Leases about which something is said; at most
    /// [`LEASE_CHECKPOINTS_MAX`](super::limits::LEASE_CHECKPOINTS_MAX).
    pub leases: Vec<LeaseRemaining>,
}

/// The entry of one lease in a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRemaining {
    /// Which.
    pub id: LeaseId,
    /// The grant that is meant.
    pub granted: LogIndex,
    /// Remaining time to live as of the checkpoint's clock, milliseconds; `None` takes back the
    /// value set before, because the lease is being kept alive.
    pub remaining_ms: Option<u64>,
}

/// Attaches a key that exists to a lease that exists: a new version of the key with the same value,
/// or nothing if it is attached to that lease already (spec: etcd §7.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseAttach {
    /// The lease.
    pub id: LeaseId,
    /// The key; not empty.
    pub key: Bytes,
}

/// A transaction that also attaches, all in one revision (spec: etcd §7.5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseTxn {
    /// The transaction.
    pub txn: Txn,
    /// Attached if its compares hold; of several that name one key the last counts.
    pub success: Vec<LeaseAttach>,
    /// Attached otherwise.
    pub failure: Vec<LeaseAttach>,
}

/// A question about leases to the leader, which alone measures their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseQuestion {
    /// Start the time of this lease anew.
    KeepAlive(LeaseId),
    /// How much time does it have left?
    Remaining(LeaseId),
}

/// The leader's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// The lease is alive.
    Alive {
        /// Its time to live, whole seconds.
        granted_seconds: i64,
        /// Remaining time, milliseconds.
        remaining_ms: u64,
    },
    /// There is no such lease, or it has run out.
    Unknown,
    /// The member asked does not lead, or could not make sure of it, or of the outcome, in time:
    /// ask again. Nothing changed that matters.
    NotLeader,
    /// Too many questions wait at the leader.
    Busy,
}
