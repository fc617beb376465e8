//! Commands about the catalog, and their outcomes (spec: consul §2.7, §8.3).

use thiserror::Error;

use super::{CatalogNode, Check, Service, TerminatingGateway};
use crate::LogIndex;

/// Every change of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogCommand {
    /// Registers a node, and perhaps an instance on it and checks.
    Register(Box<Registration>),
    /// Removes a node with everything on it, or an instance with its checks, or a check.
    Deregister(Box<Deregistration>),
    /// Sets the services that a terminating gateway represents.
    SetGateway(Box<TerminatingGateway>),
    /// Removes the configuration of the gateway of this name.
    DeleteGateway(String),
}

/// Registers a node, an instance on it, and checks of either, all or nothing. See
/// [`Registration::complete`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// The node. Its log indexes are ignored, as are those of the instance and the checks.
    pub node: CatalogNode,
    /// Whether an existing node is left unchanged.
    pub skip_node_update: bool,
    /// An instance on the node.
    pub service: Option<Service>,
    /// Checks of the node or of instances on it.
    pub checks: Vec<Check>,
    /// Whether checks of the instance that are not in `checks` are removed
    /// (`replace-existing-checks`).
    pub replace_checks: bool,
    /// Whether existing checks keep status and output in spite of this registration: an agent
    /// registers the same again and again, and a check that passes must not fail until its next
    /// report.
    pub keep_statuses: bool,
    /// Refuses the command if this check was written since.
    pub guard: Option<CheckGuard>,
}

/// Removes a node, an instance or a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deregistration {
    /// Name of the node.
    pub node: String,
    /// The part to remove.
    pub what: DeregistrationTarget,
    /// Refuses the command if this check was written since.
    pub guard: Option<CheckGuard>,
}

/// The part to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeregistrationTarget {
    /// The node with everything on it.
    #[default]
    Node,
    /// The instance with this id, and its checks.
    Service(String),
    /// The check with this id.
    Check(String),
}

/// The check on which a decision is based. A later write of it makes the decision out of date.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckGuard {
    /// Id of the check, on the node of the command.
    pub check_id: String,
    /// The `modified` that the check must still have.
    pub modified: LogIndex,
}

/// Effect of a command about the catalog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatalogDone {
    /// Whether the command changed any row.
    pub changed: bool,
}

/// The reason for which the state machine refused a command about the catalog. The texts are for
/// clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
#[repr(u8)]
pub enum CatalogRefusal {
    /// The name belongs to a node with another id and a check `serfHealth` that is not critical.
    #[error("node name is reserved by a node with another id")]
    NodeNameReserved = 1,
    /// An instance or a check was registered on a node that does not exist.
    #[error("Missing node registration")]
    MissingNode = 2,
    /// A check was registered for an instance that does not exist.
    #[error("Missing service registration")]
    MissingService = 3,
    /// A check named another node than the registration.
    #[error("check is of another node than the registration")]
    CheckOfOtherNode = 4,
    /// The check of the [`CheckGuard`] was written or removed since.
    #[error("the check was written since")]
    Stale = 5,
}

impl CatalogRefusal {
    /// Every refusal, by number.
    pub const ALL: [Self; 5] =
        [Self::NodeNameReserved, Self::MissingNode, Self::MissingService, Self::CheckOfOtherNode, Self::Stale];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_listed_by_number() {
        for (at, refusal) in CatalogRefusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, at + 1, "{refusal}");
        }
    }
}
