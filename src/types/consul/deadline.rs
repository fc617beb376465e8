//! Deadlines of checks and sessions without news (`docs/consul-kv.md`).
//!
//! A deadline is a lease that no client can name: see
//! [`LeaseId::is_deadline`](crate::LeaseId::is_deadline).

use bytes::Bytes;

/// Subject of a deadline. There is at most one for each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deadline {
    /// The session with this id ends.
    Session(String),
    /// The check was not refreshed in time.
    TtlCheck {
        /// Name of the node.
        node: String,
        /// Id of the check.
        check: String,
    },
    /// The service of the check was critical for too long.
    CriticalService {
        /// Name of the node.
        node: String,
        /// Id of the check.
        check: String,
    },
    /// The lock of this path may be taken again.
    LockDelay(Bytes),
}
