//! Services of this agent: list, register, deregister.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue};

use super::super::answer::{Answer, Refusal};
use super::super::call::Call;
use super::super::decode::Object;
use super::super::filter::{Filter, shape};
use super::super::registration::{agent_check, check_tenancy, service as read_service};
use super::super::{rights, shapes};
use super::checks::check_runnable;
use super::{AgentServices, deregister, register, service_for};
use headwater_types::Access;
use headwater_types::catalog::{DeregistrationTarget, Registration};

/// Header with a hash of the service in the answer: a change of the service changes it.
const X_CONSUL_CONTENT_HASH: HeaderName = HeaderName::from_static("x-consul-contenthash");

/// The services of this agent that the request may see and that match `?filter`, by id.
pub(crate) async fn list(call: Call) -> Result<Answer, Refusal> {
    let filter = Filter::of(&call, shape::SERVICE)?;
    let mut local = AgentServices::read(&call).await?;
    let visibility = call.visibility()?;
    visibility.keep(&mut local.services, |service| visibility.sees_service(&service.name));
    let datacenter = call.node().datacenter();
    let services = local.services.iter().map(|it| (it.id.as_str(), shapes::agent_service(it, datacenter)));
    let services: BTreeMap<_, _> = services.filter(|(_, service)| filter.takes_element(service)).collect();
    Ok(call.answer(&services))
}

/// One service of this agent, with its content hash.
pub(crate) async fn one(call: Call) -> Result<Answer, Refusal> {
    let service = service_for(&call, call.rest("Missing service ID")?, Access::READ).await?;
    let mut body = serde_json::to_value(shapes::agent_service(&service, call.node().datacenter()))
        .map_err(|error| Refusal::bad(error.to_string()))?;
    // FNV-1a: enough to distinguish versions of one service.
    let hash = body
        .to_string()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let hash = format!("{hash:016x}");
    body["ContentHash"] = hash.clone().into();
    let header = HeaderValue::from_str(&hash).expect("hexadecimal digits");
    Ok(call.answer(&body).header(X_CONSUL_CONTENT_HASH, header))
}

/// Registers a service with its checks. Refused (400) if a check is not a TTL check, or if the
/// service has `Connect.SidecarService`. With `?replace-existing-checks`, removes its other checks.
pub(crate) async fn add(call: Call) -> Result<Answer, Refusal> {
    let replace_checks = call.query.switch("replace-existing-checks")?;
    let json = call.json()?;
    let body = Object::of(&json)?;
    check_tenancy(&body)?;
    let mut service = read_service(&body, "Name")?;
    if service.name.is_empty() {
        return Err(Refusal::bad("Missing service name"));
    }
    if service.id.is_empty() {
        service.id.clone_from(&service.name);
    }
    if let Some(connect) = body.object("Connect")?
        && connect.get("SidecarService").is_some()
    {
        return Err(Refusal::bad(
            "Connect.SidecarService is not supported: register the sidecar as a service of kind connect-proxy",
        ));
    }
    let mut checks = Vec::new();
    let listed = body.objects("Checks")?;
    for check in body.object("Check")?.iter().chain(&listed) {
        checks.extend(agent_check(check)?);
    }
    let count = checks.len();
    for (number, check) in checks.iter_mut().enumerate() {
        check_runnable(check)?;
        check.service_id.clone_from(&service.id);
        if check.id.is_empty() {
            check.id = match count {
                1 => format!("service:{}", service.id),
                _ => format!("service:{}:{}", service.id, number + 1),
            };
        }
        if check.name.is_empty() {
            check.name = format!("Service '{}' check", service.name);
        }
    }
    rights::require_service_write(&call, call.node().name(), &service.id, &service.name).await?;
    let registration =
        Registration { service: Some(service), checks, replace_checks, keep_statuses: true, ..Registration::default() };
    register(&call, registration).await
}

/// Removes a service of this agent with its checks.
pub(crate) async fn remove(call: Call) -> Result<Answer, Refusal> {
    let id = call.rest("Missing service ID")?.to_owned();
    service_for(&call, &id, Access::WRITE).await?;
    deregister(&call, DeregistrationTarget::Service(id)).await
}
