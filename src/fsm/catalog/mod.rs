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

pub(super) use catalog_txn::{CatalogEffect, CatalogTxn, TouchedCheck};

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
    match command {
        CatalogCommand::Register(registration) => register::run(&mut catalog, registration)?,
        CatalogCommand::Deregister(deregistration) => deregister::run(&mut catalog, deregistration)?,
        CatalogCommand::SetGateway(gateway) => catalog.set_gateway(gateway)?,
        CatalogCommand::DeleteGateway(name) => catalog.delete_gateway(name)?,
    }
    Ok(catalog.finish()?)
}

impl From<CatalogRefusal> for FsmError {
    fn from(refusal: CatalogRefusal) -> Self {
        Self::Refused(Refusal::Catalog(refusal))
    }
}
