//! The state of this agent's services. The status code of an answer also tells it: 200 passing, 429
//! warning, 503 critical or in maintenance, 404 unknown.

use http::StatusCode;
use serde::Serialize;

use super::super::access::Right;
use super::super::answer::{Answer, Refusal};
use super::super::call::Call;
use super::super::shapes;
use super::{AgentServices, maintenance, require_stored};
use headwater_types::Access;
use headwater_types::catalog::{Check, CheckStatus, Service, canonical};

/// The worst state among the checks of an instance and of its node; passing without any check.
/// Ordered from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HealthState {
    Passing,
    Warning,
    Critical,
    Maintenance,
}

impl HealthState {
    fn of<'a>(checks: impl Iterator<Item = &'a Check>) -> Self {
        let of_check = |check: &Check| match check.status {
            _ if check.id == maintenance::OF_NODE || check.id.starts_with(maintenance::OF_SERVICE) => Self::Maintenance,
            CheckStatus::Passing => Self::Passing,
            CheckStatus::Warning => Self::Warning,
            CheckStatus::Critical => Self::Critical,
        };
        checks.map(of_check).max().unwrap_or(Self::Passing)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Passing => "passing",
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Maintenance => "maintenance",
        }
    }

    fn code(self) -> StatusCode {
        match self {
            Self::Passing => StatusCode::OK,
            Self::Warning => StatusCode::TOO_MANY_REQUESTS,
            Self::Critical | Self::Maintenance => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Body<'a> {
    aggregated_status: &'static str,
    service: shapes::ServiceJson<'a>,
    checks: Vec<shapes::CheckJson<'a>>,
}

fn health_state(local: &AgentServices, service: &Service) -> HealthState {
    HealthState::of(local.checks_of(&service.id).map(|check| &**check))
}

fn body<'a>(call: &'a Call, local: &'a AgentServices, service: &'a Service) -> Body<'a> {
    Body {
        aggregated_status: health_state(local, service).word(),
        service: shapes::agent_service(service, call.node().datacenter()),
        checks: local.checks_of(&service.id).map(|it| shapes::check(it)).collect(),
    }
}

fn answer(call: &Call, health_state: HealthState, body: &impl Serialize) -> Answer {
    let answer = match call.query.get("format") {
        Some("text") => Answer::text(health_state.word()),
        _ => call.answer(body),
    };
    answer.status(health_state.code()).reason(health_state.word())
}

/// All instances of a service on this agent, each with its state. The status code is that of the
/// worst one; 404 if there are none.
pub(crate) async fn by_name(call: Call) -> Result<Answer, Refusal> {
    let local = AgentServices::read(&call).await?;
    let asked = call.rest("Missing service Name")?.to_owned();
    let name = canonical(&asked);
    call.require(&Right::service(&asked, Access::READ))?;
    let services: Vec<&Service> =
        local.services.iter().map(|it| &**it).filter(|it| canonical(&it.name) == name).collect();
    let worst = services.iter().map(|service| health_state(&local, service)).max();
    let worst = worst.ok_or_else(|| Refusal::not_found(format!("ServiceName {asked} Not Found")))?;
    let bodies: Vec<_> = services.into_iter().map(|service| body(&call, &local, service)).collect();
    Ok(answer(&call, worst, &bodies))
}

/// One instance of this agent by its id, with its state. 404 if there is none, or if the request
/// may not read it.
pub(crate) async fn by_id(call: Call) -> Result<Answer, Refusal> {
    let local = AgentServices::read(&call).await?;
    let id = call.rest("Missing service id")?;
    let service = local.services.iter().find(|service| service.id == id);
    let absent = || Refusal::not_found(format!("ServiceId {id} not found"));
    let service = service.ok_or_else(absent)?;
    require_stored(&call, &Right::service(&service.name, Access::READ), absent)?;
    Ok(answer(&call, health_state(&local, service), &body(&call, &local, service)))
}
