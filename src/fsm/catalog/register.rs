//! Registers a node, an instance on it, and checks of either (spec: consul §2.7).

use std::collections::BTreeSet;

use super::Step;
use super::catalog_txn::CatalogTxn;
use crate::error::FsmError;
use headwater_types::catalog::{CatalogRefusal, Registration, canonical};

pub(super) fn run(catalog: &mut CatalogTxn<'_, '_>, step: Step, registration: &Registration) -> Result<(), FsmError> {
    let name = &registration.node.name;
    match step {
        Step::Removals => catalog.check_guard(name, registration.guard.as_ref()),
        Step::Nodes if !registration.skip_node_update => catalog.set_node(registration.node.clone()),
        Step::MissingNodes if registration.skip_node_update && catalog.node(name)?.is_none() => {
            catalog.set_node(registration.node.clone())
        }
        Step::Nodes | Step::MissingNodes => Ok(()),
        Step::Services => set_service(catalog, registration),
        Step::Checks => set_checks(catalog, registration),
    }
}

fn set_service(catalog: &mut CatalogTxn<'_, '_>, registration: &Registration) -> Result<(), FsmError> {
    let name = &registration.node.name;
    if let Some(service) = &registration.service {
        catalog.set_service(service.clone())?;
    }
    if registration.replace_checks {
        let kept: BTreeSet<&str> = registration.checks.iter().map(|check| check.id.as_str()).collect();
        for check in catalog.checks_on(name, Some(registration.service_id()))? {
            if !kept.contains(check.id.as_str()) {
                catalog.delete_check(name, &check.id)?;
            }
        }
    }
    Ok(())
}

fn set_checks(catalog: &mut CatalogTxn<'_, '_>, registration: &Registration) -> Result<(), FsmError> {
    let name = &registration.node.name;
    for check in &registration.checks {
        if canonical(&check.node) != canonical(name) {
            return Err(CatalogRefusal::CheckOfOtherNode.into());
        }
        let mut check = check.clone();
        if registration.keep_statuses
            && let Some(known) = catalog.check(name, &check.id)?
        {
            (check.status, check.output) = (known.status, known.output.clone());
        }
        catalog.set_check(check)?;
    }
    Ok(())
}
