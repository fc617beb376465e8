//! Sessions, which hold locks (spec: consul §8.3).

use thiserror::Error;

use crate::LogIndex;

/// Effect of a session's end on the keys that it has locked.
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
    /// Name of the catalog's node that the session belongs to. The session ends when the node is
    /// removed.
    pub node: String,
    /// Ids of checks of the node. The session ends when one of them becomes critical or is removed.
    pub node_checks: Vec<String>,
    /// Ids of checks of instances on the node. The session ends when one of them becomes critical
    /// or is removed.
    pub service_checks: Vec<String>,
    /// Effect of the session's end on the keys that it has locked.
    pub behavior: SessionBehavior,
    /// Lock delay: time for which the keys that it had locked cannot be locked after its end,
    /// milliseconds; 0 for none.
    pub lock_delay_ms: u64,
    /// Time to live without a renewal, milliseconds; 0 for no bound.
    pub ttl_ms: u64,
    /// The time to live as text, as the client wrote it; empty if it gave none.
    pub ttl: String,
    /// Log index of the command that created the session.
    pub created: LogIndex,
}

impl Session {
    /// The ids of all checks that the session depends on.
    pub fn checks(&self) -> impl Iterator<Item = &String> {
        self.node_checks.iter().chain(&self.service_checks)
    }
}

/// Creates a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionCreate {
    /// The session to create; `created` is ignored.
    pub session: Session,
    /// Whether [`DEFAULT_CHECK`](super::DEFAULT_CHECK) is added to the session's checks if the node
    /// has it.
    pub default_check: bool,
    /// Whether the session is refused if its node is not registered. Set if the client named a node
    /// other than the member itself.
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
