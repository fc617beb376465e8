//! Says for which services a terminating gateway stands: the part of its configuration entry that events depend on.

use super::desk::Desk;
use crate::fsm::stop::Stop;
use crate::storage::state::CatalogRow;
use crate::types::catalog::{TerminatingGateway, canonical};

pub(super) fn set(desk: &mut Desk<'_, '_>, gateway: &TerminatingGateway) -> Result<(), Stop> {
    Ok(desk.gateways.set(desk.txn, gateway.key(), Some(gateway.clone()))?)
}

pub(super) fn delete(desk: &mut Desk<'_, '_>, name: &str) -> Result<(), Stop> {
    Ok(desk.gateways.set(desk.txn, canonical(name).into(), None)?)
}
