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

/// Stages the rows of a command.
pub(super) fn stage(catalog: &mut CatalogTxn<'_, '_>, command: &CatalogCommand) -> Result<(), FsmError> {
    match command {
        CatalogCommand::Register(registration) => register::run(catalog, registration),
        CatalogCommand::Deregister(deregistration) => deregister::run(catalog, deregistration),
        CatalogCommand::SetGateway(gateway) => catalog.set_gateway(gateway),
        CatalogCommand::DeleteGateway(name) => catalog.delete_gateway(name),
    }
}

impl From<CatalogRefusal> for FsmError {
    fn from(refusal: CatalogRefusal) -> Self {
        Self::Refused(Refusal::Catalog(refusal))
    }
}
