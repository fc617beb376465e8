//! Sets and removes the services of a terminating gateway: the part of its configuration entry that
//! events depend on.

use super::catalog_txn::CatalogTxn;
use crate::error::FsmError;
use headwater_storage::state::CatalogRow;
use headwater_types::catalog::{TerminatingGateway, canonical};

impl CatalogTxn<'_, '_> {
    /// Stages the configuration of a gateway.
    pub(crate) fn set_gateway(&mut self, gateway: &TerminatingGateway) -> Result<(), FsmError> {
        Ok(self.gateways.set(self.txn, gateway.key(), Some(gateway.clone()))?)
    }

    /// Stages the removal of a gateway's configuration, if there is one.
    pub(crate) fn delete_gateway(&mut self, name: &str) -> Result<(), FsmError> {
        Ok(self.gateways.set(self.txn, canonical(name).into(), None)?)
    }
}
