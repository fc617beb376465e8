//! Sessions, which hold locks (spec: consul §8.3).

use thiserror::Error;

use crate::LogIndex;

/// Effect of a session's end on the keys that it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionBehavior {
    /// The keys remain, and their locks are released.
    #[default]
    Release,
    /// The keys are deleted.
    Delete,
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Id of the session: a UUID, 36 characters.
    pub id: String,
    /// Name for people; may be empty.
    pub name: String,
    /// Name of the node that it belongs to.
    pub node: String,
    /// Checks of the node that must not be critical, by id.
    pub node_checks: Vec<String>,
    /// Checks of services on the node that must not be critical, by id.
    pub service_checks: Vec<String>,
    /// Effect of its end on its keys.
    pub behavior: SessionBehavior,
    /// Time for which keys that it held cannot be locked after its end, milliseconds; 0 for none.
    pub lock_delay_ms: u64,
    /// Time that it lives without being renewed, milliseconds; 0 for ever.
    pub ttl_ms: u64,
    /// The time to live as the client wrote it; empty without one.
    pub ttl: String,
    /// Log index of the command that made it.
    pub created: LogIndex,
}

impl Session {
    /// Every check that it depends on.
    pub fn checks(&self) -> impl Iterator<Item = &String> {
        self.node_checks.iter().chain(&self.service_checks)
    }
}

/// Creates a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionCreate {
    /// The session to create; `created` is ignored.
    pub session: Session,
    /// Whether it depends on [`DEFAULT_CHECK`](super::DEFAULT_CHECK) if the node has that check.
    pub default_check: bool,
    /// Whether the node must be registered. Set if the client named a node other than the member
    /// itself.
    pub node_required: bool,
}

/// The reason for which a command about sessions or locks was refused. The texts are for Consul's
/// clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SessionRefusal {
    /// An operation on a lock names no session.
    #[error("missing session")]
    Missing,
    /// There is no such session.
    #[error("invalid session")]
    Invalid,
    /// A session with this id exists.
    #[error("session already exists")]
    Exists,
    /// The node of the session is not registered.
    #[error("Missing node registration")]
    NodeUnknown,
    /// A check of the session is not registered.
    #[error("Missing check registration")]
    CheckUnknown,
    /// A check of the session is critical.
    #[error("Check is in critical state")]
    CheckCritical,
}

impl SessionRefusal {
    /// Every reason. The number of a reason on the wire is its position here, from 1.
    pub const ALL: [Self; 6] =
        [Self::Missing, Self::Invalid, Self::Exists, Self::NodeUnknown, Self::CheckUnknown, Self::CheckCritical];
}
