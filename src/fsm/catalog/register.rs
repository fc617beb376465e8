//! Registers a node, an instance on it, and checks of either (spec: consul §2.7).

use std::collections::BTreeSet;

use super::desk::Desk;
use crate::stop::Stop;
use headwater_types::catalog::{CatalogRefusal, Registration, canonical};

pub(super) fn run(desk: &mut Desk<'_, '_>, registration: &Registration) -> Result<(), Stop> {
    let name = &registration.node.name;
    desk.check_guard(name, registration.guard.as_ref())?;
    if !(registration.skip_node_update && desk.node(name)?.is_some()) {
        desk.set_node(registration.node.clone())?;
    }
    if let Some(service) = &registration.service {
        desk.set_service(service.clone())?;
        if registration.replace_checks {
            let kept: BTreeSet<&str> = registration.checks.iter().map(|check| check.id.as_str()).collect();
            for check in desk.checks_on(name, Some(&service.id))? {
                if !kept.contains(check.id.as_str()) {
                    desk.delete_check(name, &check.id)?;
                }
            }
        }
    }
    for check in &registration.checks {
        if canonical(&check.node) != canonical(name) {
            return Err(CatalogRefusal::CheckOfOtherNode.into());
        }
        let mut check = check.clone();
        if registration.keep_statuses
            && let Some(known) = desk.check(name, &check.id)?
        {
            (check.status, check.output) = (known.status, known.output.clone());
        }
        desk.set_check(check)?;
    }
    Ok(())
}
