//! Checks of this agent: list, register, deregister, and report the state of a TTL check.

use std::collections::BTreeMap;

use super::super::access::Right;
use super::super::answer::{Answer, Refusal};
use super::super::call::Call;
use super::super::decode::Object;
use super::super::filter::{Filter, shape};
use super::super::registration::{agent_check, check_tenancy, status as read_status};
use super::super::shapes;
use super::{AgentServices, check_to_write, deregister, register, service_for};
use headwater_types::Access;
use headwater_types::catalog::{Check, CheckGuard, CheckStatus, DeregistrationTarget, Registration};

/// Most attempts to write one report, count. An attempt fails if another request writes the check
/// between this one's read and write.
const UPDATE_ATTEMPTS: usize = 8;

/// The checks of this agent that the request may see and that match `?filter`, by id.
pub(crate) async fn list(call: Call) -> Result<Answer, Refusal> {
    let filter = Filter::of(&call, shape::CHECK)?;
    let mut local = AgentServices::read(&call).await?;
    let visibility = call.visibility()?;
    visibility.keep(&mut local.checks, |check| visibility.sees_check(check));
    let checks = local.checks.iter().map(|it| (it.id.as_str(), shapes::check(it)));
    let checks: BTreeMap<_, _> = checks.filter(|(_, check)| filter.takes_element(check)).collect();
    Ok(call.answer(&checks))
}

/// Registers a check of this node or of one of its services. Refused (400) unless it is a TTL
/// check.
pub(crate) async fn add(call: Call) -> Result<Answer, Refusal> {
    let json = call.json()?;
    let body = Object::of(&json)?;
    check_tenancy(&body)?;
    let mut check =
        agent_check(&body)?.filter(|check| !check.name.is_empty()).ok_or_else(|| Refusal::bad("Missing check name"))?;
    check_runnable(&check)?;
    if check.id.is_empty() {
        check.id.clone_from(&check.name);
    }
    if check.service_id.is_empty() {
        call.require(&Right::node(call.node().name(), Access::WRITE))?;
    } else {
        service_for(&call, &check.service_id, Access::WRITE).await?;
    }
    register(&call, Registration { checks: vec![check], keep_statuses: true, ..Registration::default() }).await
}

/// Refuses (400) a check other than a TTL check: nothing would run it, and it would stay critical
/// for ever.
pub(super) fn check_runnable(check: &Check) -> Result<(), Refusal> {
    match check.type_.as_str() {
        "ttl" => Ok(()),
        "" => Err(Refusal::bad(format!("check {:?} says neither TTL nor how else it is to be run", check.name))),
        kind => Err(Refusal::bad(format!(
            "checks of type {kind} are not run by this server: give the check a TTL and report to /v1/agent/check/pass/, or write \
             its status with /v1/catalog/register"
        ))),
    }
}

/// Removes a check of this agent.
pub(crate) async fn remove(call: Call) -> Result<Answer, Refusal> {
    let id = call.rest("Missing check ID")?.to_owned();
    check_to_write(&call, &id).await?;
    deregister(&call, DeregistrationTarget::Check(id)).await
}

/// Reports a TTL check as passing.
pub(crate) async fn pass(call: Call) -> Result<Answer, Refusal> {
    noted(call, CheckStatus::Passing).await
}

/// Reports a TTL check as warning.
pub(crate) async fn warn(call: Call) -> Result<Answer, Refusal> {
    noted(call, CheckStatus::Warning).await
}

/// Reports a TTL check as critical.
pub(crate) async fn fail(call: Call) -> Result<Answer, Refusal> {
    noted(call, CheckStatus::Critical).await
}

async fn noted(call: Call, status: CheckStatus) -> Result<Answer, Refusal> {
    let output = call.query.get("note").unwrap_or_default().to_owned();
    update_ttl(&call, status, output).await
}

/// Reports a TTL check with the status and the output in the body.
pub(crate) async fn update(call: Call) -> Result<Answer, Refusal> {
    let json = call.json()?;
    let body = Object::of(&json)?;
    let (status, output) = (read_status(&body.text("Status")?)?, body.text("Output")?);
    update_ttl(&call, status, output).await
}

/// Writes the status and the output of a TTL check, on condition that the check is unchanged since
/// its read; retries if it has changed. A report that repeats the stored one restarts the TTL
/// without a log entry. Refused (400) if the check has no TTL.
async fn update_ttl(call: &Call, status: CheckStatus, output: String) -> Result<Answer, Refusal> {
    let id = call.rest("Missing check ID")?;
    let mut attempt = 1;
    loop {
        let check = check_to_write(call, id).await?;
        if check.definition.ttl_ns <= 0 {
            return Err(Refusal::bad(format!("CheckID {id:?} does not have associated TTL")));
        }
        if check.status == status && check.output == output {
            // A client may report every second for years: a repeated report costs no log entry.
            if call.node().consul().renew_check(&call.context()?, &check).await? {
                return Ok(Answer::empty());
            }
        }
        let guard = CheckGuard { check_id: check.id.clone(), modified: check.modified };
        let written = Check { status, output: output.clone(), ..Check::clone(&check) };
        let registration = Registration { checks: vec![written], guard: Some(guard), ..Registration::default() };
        match register(call, registration).await {
            Err(refusal) if refusal.is_stale && attempt < UPDATE_ATTEMPTS => attempt += 1,
            done => return done,
        }
    }
}
