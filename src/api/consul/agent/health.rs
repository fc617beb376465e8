//! The state of this agent's services, as the status code: 200 passing, 429 warning, 503 critical,
//! 404 unknown.

use http::StatusCode;
use serde::Serialize;

use super::super::answer::{Answer, Refusal};
use super::super::call::Call;
use super::super::shapes;
use super::{Local, maintenance};
use headwater_types::catalog::{Check, CheckStatus, Service, canonical};

/// The state of an instance as a whole, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Passing,
    Warning,
    Critical,
    Maintenance,
}

impl Standing {
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

fn standing(local: &Local, service: &Service) -> Standing {
    Standing::of(local.checks_of(&service.id).map(|check| &**check))
}

fn body<'a>(call: &'a Call, local: &'a Local, service: &'a Service) -> Body<'a> {
    Body {
        aggregated_status: standing(local, service).word(),
        service: shapes::agent_service(service, call.node().datacenter()),
        checks: local.checks_of(&service.id).map(|it| shapes::check(it)).collect(),
    }
}

fn answer(call: &Call, standing: Standing, body: &impl Serialize) -> Answer {
    let answer = match call.query.get("format") {
        Some("text") => Answer::text(standing.word()),
        _ => call.answer(body),
    };
    answer.status(standing.code()).reason(standing.word())
}

/// The worst state of all instances of a name.
pub(in crate::consul) async fn by_name(call: Call) -> Result<Answer, Refusal> {
    let local = Local::read(&call).await?;
    let asked = call.rest("Missing service Name")?.to_owned();
    let name = canonical(&asked);
    let services: Vec<&Service> =
        local.services.iter().map(|it| &**it).filter(|it| canonical(&it.name) == name).collect();
    let worst = services.iter().map(|service| standing(&local, service)).max();
    let worst = worst.ok_or_else(|| Refusal::not_found(format!("ServiceName {asked} Not Found")))?;
    let bodies: Vec<_> = services.into_iter().map(|service| body(&call, &local, service)).collect();
    Ok(answer(&call, worst, &bodies))
}

/// The state of one instance.
pub(in crate::consul) async fn by_id(call: Call) -> Result<Answer, Refusal> {
    let local = Local::read(&call).await?;
    let id = call.rest("Missing service id")?;
    let service = local.services.iter().find(|service| service.id == id);
    let service = service.ok_or_else(|| Refusal::not_found(format!("ServiceId {id} not found")))?;
    Ok(answer(&call, standing(&local, service), &body(&call, &local, service)))
}
