//! `/v1/health`: instances with their checks, and checks by node, service or status.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::answer::{Answer, Refusal};
use super::call::Call;
use super::filter::{Filter, shape};
use super::lookup::{InstanceFilter, LookUp, Reach, instances, look_up};
use super::shapes;
use headwater_node::{CatalogSubject, Consistency, Read};
use headwater_types::catalog::{CatalogTable, Check, CheckServiceNode, CheckStatus, Indexed};

/// The instances of a service with their nodes and checks, narrowed by the query.
pub(super) async fn service(call: Call) -> Result<Answer, Refusal> {
    instances_of(call, Reach::Direct).await
}

/// The instances through which clients reach a service in the mesh, with their nodes and checks,
/// narrowed by the query.
pub(super) async fn connect(call: Call) -> Result<Answer, Refusal> {
    instances_of(call, Reach::Connect).await
}

async fn instances_of(call: Call, reach: Reach) -> Result<Answer, Refusal> {
    let filter = Filter::of(&call, shape::CHECK_SERVICE_NODE)?;
    let datacenter = call.node().datacenter();
    let json = |instance: &CheckServiceNode| {
        serde_json::to_value(shapes::instance(instance, datacenter)).expect("its maps have texts for keys")
    };
    let look_up = instances(&call, reach, &filter, json).await?;
    let instances = look_up.found.value.iter().map(|it| shapes::instance(it, datacenter));
    Ok(look_up.answer(&call, &instances.collect::<Vec<_>>()))
}

fn checks(call: &Call, filter: &Filter, mut look_up: LookUp<Vec<Arc<Check>>>) -> Result<Answer, Refusal> {
    let visibility = call.visibility()?;
    visibility.keep(&mut look_up.found.value, |check| visibility.sees_check(check));
    Ok(look_up.answer(call, &filter.keep(look_up.found.value.iter().map(|it| shapes::check(it)).collect())))
}

/// The checks of a node and of the instances on it.
pub(super) async fn node(call: Call) -> Result<Answer, Refusal> {
    let filter = Filter::of(&call, shape::CHECK)?;
    let name = call.rest("Missing node name")?.to_owned();
    let look_up = look_up(&call, vec![CatalogSubject::node(&name)], |node, ctx, consistency| {
        let name = name.clone();
        async move { node.catalog().checks_of_node(&ctx, consistency, name).await }
    })
    .await?;
    checks(&call, &filter, look_up)
}

/// The checks of a service's instances, without those of their nodes.
pub(super) async fn service_checks(call: Call) -> Result<Answer, Refusal> {
    let (filter, narrow) = (Filter::of(&call, shape::CHECK)?, Arc::new(InstanceFilter::of(&call)));
    let name = call.rest("Missing service name")?.to_owned();
    let look_up = look_up(&call, vec![CatalogSubject::service(&name)], |node, ctx, consistency| {
        let (name, narrow) = (name.clone(), Arc::clone(&narrow));
        async move {
            if !narrow.has_meta() {
                return node.catalog().checks_of_service(&ctx, consistency, name).await;
            }
            // A filter on nodes needs the nodes of the checks.
            let Read { index, revision, value } = node.catalog().instances(&ctx, consistency, name).await?;
            let fitting = value.value.iter().filter(|instance| narrow.matches_node(&instance.node));
            let checks = fitting.flat_map(|instance| &instance.checks);
            let checks = checks.filter(|check| !check.service_id.is_empty()).cloned().collect();
            Ok(Read { index, revision, value: Indexed { index: value.index, value: checks } })
        }
    })
    .await?;
    checks(&call, &filter, look_up)
}

/// The checks with the status that the path names; all checks for `any`.
pub(super) async fn state(call: Call) -> Result<Answer, Refusal> {
    let (filter, narrow) = (Filter::of(&call, shape::CHECK)?, Arc::new(InstanceFilter::of(&call)));
    let status = match call.rest("Missing check state")? {
        "any" => None,
        text => {
            let known = "there are any, passing, warning and critical";
            let unknown = || Refusal::bad(format!("Invalid state {text:?}: {known}"));
            Some(CheckStatus::from_text(text).ok_or_else(unknown)?)
        }
    };
    let mut subjects = vec![CatalogSubject::Table(CatalogTable::Checks)];
    if narrow.has_meta() {
        subjects.push(CatalogSubject::Table(CatalogTable::Nodes));
    }
    let look_up = look_up(&call, subjects, |node, ctx, consistency| {
        let narrow = Arc::clone(&narrow);
        async move {
            if !narrow.has_meta() {
                return node.catalog().checks_in_state(&ctx, consistency, status).await;
            }
            // The nodes are read later, so the answer may be newer than its index, never older.
            let mut checks = node.catalog().checks_in_state(&ctx, consistency, status).await?;
            let nodes = node.catalog().nodes(&ctx, Consistency::Serializable).await?.value;
            let fitting = nodes.value.iter().filter(|node| narrow.matches_node(node));
            let names: BTreeSet<&str> = fitting.map(|node| node.name.as_str()).collect();
            checks.value.value.retain(|check| names.contains(check.node.as_str()));
            // Not beyond the state in which the checks were read: a wait from there must not miss a
            // change between the two reads.
            checks.value.index = checks.value.index.max(nodes.index.min(checks.index));
            Ok(checks)
        }
    })
    .await?;
    checks(&call, &filter, look_up)
}
