//! Deadlines that the store keeps for sessions, checks and lock delays (`docs/consul-kv.md`).
//!
//! A deadline is a lease that no client can name: see
//! [`LeaseId::is_deadline`](crate::LeaseId::is_deadline).

use bytes::Bytes;

/// Subject of a deadline. A variant describes the effect when the deadline expires. Each subject
/// has at most one deadline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deadline {
    /// Ends the session with this id, because it was not renewed in time.
    Session(String),
    /// Turns a check critical, because its status was not reported in time.
    TtlCheck {
        /// Canonical name of the node.
        node: String,
        /// Id of the check.
        check: String,
    },
    /// Deregisters the instance of a check, because the check was critical for too long.
    CriticalService {
        /// Canonical name of the node.
        node: String,
        /// Id of the check.
        check: String,
    },
    /// Ends the lock delay of this path: the lock can be taken again.
    LockDelay(Bytes),
}
