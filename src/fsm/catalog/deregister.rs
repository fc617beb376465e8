//! Removes a node with everything on it, or an instance with its checks, or a check. Succeeds if
//! the row is absent.

use super::desk::Desk;
use crate::stop::Stop;
use headwater_types::catalog::{Deregistered, Deregistration};

pub(super) fn run(desk: &mut Desk<'_, '_>, deregistration: &Deregistration) -> Result<(), Stop> {
    let node = &deregistration.node;
    desk.check_guard(node, deregistration.guard.as_ref())?;
    match &deregistration.what {
        Deregistered::Node => desk.delete_node(node),
        Deregistered::Service(id) => desk.delete_service(node, id),
        Deregistered::Check(id) => desk.delete_check(node, id),
    }
}
