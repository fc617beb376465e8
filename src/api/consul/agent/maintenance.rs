//! Maintenance mode: a critical check that exists while the mode is on, so that clients avoid the
//! instances.

use super::super::access::Right;
use super::super::answer::{Answer, Refusal};
use super::super::call::Call;
use super::{deregister, register, service_for};
use headwater_types::Access;
use headwater_types::catalog::{Check, CheckStatus, DeregistrationTarget, Registration};

/// Id of the check of the node's maintenance mode. Consul's clients know it.
pub(super) const OF_NODE: &str = "_node_maintenance";
/// Beginning of the id of the check of a service's maintenance mode; the service's id follows.
pub(super) const OF_SERVICE: &str = "_service_maintenance:";

/// Switches the maintenance mode of the whole node on or off, by `?enable`.
pub(crate) async fn node(call: Call) -> Result<Answer, Refusal> {
    call.require(&Right::node(call.node().name(), Access::WRITE))?;
    let check = Check { id: OF_NODE.to_owned(), name: "Node Maintenance Mode".to_owned(), ..Check::default() };
    set(&call, check, "node").await
}

/// Switches the maintenance mode of one service on or off, by `?enable`.
pub(crate) async fn service(call: Call) -> Result<Answer, Refusal> {
    let id = call.rest("Missing service ID")?.to_owned();
    is_enabled(&call)?;
    service_for(&call, &id, Access::WRITE).await?;
    let check = Check {
        id: format!("{OF_SERVICE}{id}"),
        name: "Service Maintenance Mode".to_owned(),
        service_id: id,
        ..Check::default()
    };
    set(&call, check, "service").await
}

fn is_enabled(call: &Call) -> Result<bool, Refusal> {
    match call.query.get("enable") {
        None | Some("") => Err(Refusal::bad("Missing value for enable")),
        Some(_) => call.query.switch("enable").map_err(|_| Refusal::bad("Invalid value for enable: true or false")),
    }
}

async fn set(call: &Call, mut check: Check, of: &str) -> Result<Answer, Refusal> {
    if is_enabled(call)? {
        let reason = call.query.get("reason").filter(|reason| !reason.is_empty());
        check.notes = reason.map_or_else(
            || {
                format!(
                    "Maintenance mode is enabled for this {of}, but no reason was provided. This is a default message."
                )
            },
            str::to_owned,
        );
        check.status = CheckStatus::Critical;
        check.type_ = "maintenance".to_owned();
        register(call, Registration { checks: vec![check], ..Registration::default() }).await
    } else {
        deregister(call, DeregistrationTarget::Check(check.id)).await
    }
}
