//! Deadlines that the store keeps for sessions, checks and locks (`docs/consul-kv.md`).
//!
//! A deadline is a lease that no client can name: see
//! [`LeaseId::is_deadline`](crate::LeaseId::is_deadline).

use bytes::Bytes;

/// Subject of a deadline. There is at most one for each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deadline {
    /// Ends the session with this id: it was not renewed in time.
    Session(String),
    /// Turns a check critical: it was not refreshed in time.
    TtlCheck {
        /// Name of the node.
        node: String,
        /// Id of the check.
        check: String,
    },
    /// Deregisters the service of a check: the check was critical for too long.
    CriticalService {
        /// Name of the node.
        node: String,
        /// Id of the check.
        check: String,
    },
    /// Frees the lock of this path: its lock delay has passed.
    LockDelay(Bytes),
}
