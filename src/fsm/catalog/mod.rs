//! Commands about the catalog (spec: consul §2): one command is one transaction of rows, and one
//! set of events.
//!
//! Owns the rules of registration, and the events of a change. [`CatalogTxn`] stages the rows of a
//! command, so that a refusal changes nothing, and each row is written once however often a command
//! changes it; [`CatalogTxn::finish`] writes rows and adds events. Catalog commands never move the
//! KV revision. Virtual addresses (`consul-virtual`) are not assigned.

mod catalog_txn;
mod deregister;
mod events;
mod gateway;
mod node;
mod register;
mod rows;

pub(super) use catalog_txn::{CatalogEffect, CatalogTxn, FailedCheck, TouchedCheck};

use super::error::FsmError;
use headwater_storage::state::WriteTxn;
use headwater_types::catalog::{CatalogCommand, CatalogRefusal};
use headwater_types::{LogIndex, Refusal};

/// Applies a command of the log entry at `index`. Returns its effect for sessions and deadlines,
/// which depend on the catalog.
pub(super) fn apply(
    txn: &mut WriteTxn<'_>,
    index: LogIndex,
    command: &CatalogCommand,
) -> Result<CatalogEffect, FsmError> {
    let mut catalog = CatalogTxn::new(txn, index);
    stage(&mut catalog, command)?;
    Ok(catalog.finish()?)
}

/// The steps of a command, in their order. A commit takes each step for all of its operations
/// before the next step, so that the order of the operations does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Guards are checked; rows are removed.
    Removals,
    /// Nodes are written, unless the registration has `skip_node_update`.
    Nodes,
    /// Absent nodes of registrations with `skip_node_update` are written.
    MissingNodes,
    /// Instances and the configurations of gateways are written. If a registration replaces checks,
    /// the stored checks that it lacks are removed: those of the instance, or without one those of
    /// the node.
    Services,
    /// Checks are written.
    Checks,
}

impl Step {
    pub(super) const ALL: [Self; 5] = [Self::Removals, Self::Nodes, Self::MissingNodes, Self::Services, Self::Checks];
}

fn stage(catalog: &mut CatalogTxn<'_, '_>, command: &CatalogCommand) -> Result<(), FsmError> {
    Step::ALL.into_iter().try_for_each(|step| stage_step(catalog, step, command))
}

/// Stages the rows of one step of a command.
pub(super) fn stage_step(
    catalog: &mut CatalogTxn<'_, '_>,
    step: Step,
    command: &CatalogCommand,
) -> Result<(), FsmError> {
    match (command, step) {
        (CatalogCommand::Register(registration), _) => register::run(catalog, step, registration),
        (CatalogCommand::Deregister(deregistration), Step::Removals) => deregister::run(catalog, deregistration),
        (CatalogCommand::DeleteGateway(name), Step::Removals) => catalog.delete_gateway(name),
        (CatalogCommand::SetGateway(gateway), Step::Services) => catalog.set_gateway(gateway),
        (CatalogCommand::Deregister(_) | CatalogCommand::DeleteGateway(_) | CatalogCommand::SetGateway(_), _) => Ok(()),
    }
}

impl From<CatalogRefusal> for FsmError {
    fn from(refusal: CatalogRefusal) -> Self {
        Self::Refused(Refusal::Catalog(refusal))
    }
}
