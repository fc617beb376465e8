//! Removes a node with everything on it, or an instance with its checks, or a check. Succeeds
//! without effect if the row is absent, unless a guard refuses it.

use super::catalog_txn::CatalogTxn;
use crate::error::FsmError;
use headwater_types::catalog::{Deregistration, DeregistrationTarget};

pub(super) fn run(catalog: &mut CatalogTxn<'_, '_>, deregistration: &Deregistration) -> Result<(), FsmError> {
    let node = &deregistration.node;
    catalog.check_guard(node, deregistration.guard.as_ref())?;
    match &deregistration.what {
        DeregistrationTarget::Node => catalog.delete_node(node),
        DeregistrationTarget::Service(id) => catalog.delete_service(node, id),
        DeregistrationTarget::Check(id) => catalog.delete_check(node, id),
    }
}
