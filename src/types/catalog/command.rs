//! Commands about the catalog, and their outcomes (spec: consul §2.7, §8.3).

use thiserror::Error;

use super::{CatalogNode, Check, Service, TerminatingGateway};
use crate::LogIndex;

/// The commands that are about the catalog alone. Consul's transactions, commits and expired
/// deadlines change the catalog as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogCommand {
    /// Registers a node, at most one instance on it, and checks.
    Register(Box<Registration>),
    /// Removes a node with its instances and checks, or an instance with its checks, or a check.
    Deregister(Box<Deregistration>),
    /// Stores the configuration of a terminating gateway, in place of the previous one.
    SetGateway(Box<TerminatingGateway>),
    /// Removes the configuration of the gateway of this name, if there is one.
    DeleteGateway(String),
}

/// Registers a node, at most one instance on it, and checks of the node or its instances, all or
/// nothing. It must be [`complete`](Registration::complete)d before it is proposed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// The node. `created` and `modified` are ignored, also those of the instance and the checks.
    pub node: CatalogNode,
    /// Whether the row of an existing node stays unchanged. A node that does not exist is created.
    pub skip_node_update: bool,
    /// An instance on the node.
    pub service: Option<Service>,
    /// Checks of the node or of instances on it.
    pub checks: Vec<Check>,
    /// Whether stored checks of the instance `service` that are not in `checks` are removed
    /// (`replace-existing-checks`). Without an instance: those of the node itself.
    pub replace_checks: bool,
    /// Whether checks that are stored already keep their status and output. Set for an agent, which
    /// repeats its registration: a passing check must not turn critical until its next report.
    pub keep_statuses: bool,
    /// The command is refused if this check was changed or removed since the proposer read it.
    pub guard: Option<CheckGuard>,
}

/// Removes a node, an instance or a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deregistration {
    /// Name of the node.
    pub node: String,
    /// The part to remove: the node, an instance or a check.
    pub what: DeregistrationTarget,
    /// The command is refused if this check was changed or removed since the proposer read it.
    pub guard: Option<CheckGuard>,
}

/// The part to remove: the node, an instance or a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeregistrationTarget {
    /// The node, with all its instances and checks.
    #[default]
    Node,
    /// The instance with this id, and its checks.
    Service(String),
    /// The check with this id.
    Check(String),
}

/// The check on which the decision for a command was based. The command is refused if the check
/// has changed since, or is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckGuard {
    /// Id of the check. Its node is that of the command.
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
    /// The name belongs to another node, whose check `serfHealth` is not critical.
    #[error("node name is reserved by a node with another id")]
    NodeNameReserved = 1,
    /// An instance or a check was registered on a node that does not exist.
    #[error("Missing node registration")]
    MissingNode = 2,
    /// A check was registered for an instance that does not exist.
    #[error("Missing service registration")]
    MissingService = 3,
    /// A check in the registration names another node than the registration.
    #[error("check is of another node than the registration")]
    CheckOfOtherNode = 4,
    /// The check of the [`CheckGuard`] has changed since it was read, or is absent.
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
