//! `/v1/agent`: this node as the agent of the services that are registered with it
//! (spec: consul §8.3).
//!
//! An agent of Consul keeps registrations itself, and copies them into the catalog later. Here a
//! registration goes into the catalog at once, on the catalog node with this member's name
//! (`node.name`), which the first registration creates. So the services of an agent are those of
//! that catalog node, also those registered with `/v1/catalog/register`, and they survive this
//! process. Invariant: every row that a handler here changes belongs to that catalog node.

pub(super) mod about;
pub(super) mod checks;
pub(super) mod health;
pub(super) mod maintenance;
pub(super) mod services;

use std::sync::Arc;

use super::access::Right;
use super::answer::{Answer, Refusal};
use super::call::Call;
use headwater_node::{Consistency, Node, Principal, RequestContext};
use headwater_types::Access;
use headwater_types::catalog::{self, Check, Deregistration, DeregistrationTarget, Registration, Service};

/// The service instances and checks of this agent, all from one state.
pub(super) struct AgentServices {
    pub(super) services: Vec<Arc<Service>>,
    pub(super) checks: Vec<Arc<Check>>,
}

impl AgentServices {
    /// Reads the services and checks linearizably: every registration that was acknowledged before
    /// is included, also one through another member.
    pub(super) async fn read(call: &Call) -> Result<Self, Refusal> {
        let (ctx, node) = (call.context()?, call.node());
        let read = node.catalog().contents_of_node(&ctx, Consistency::Linearizable, node.name().to_owned()).await?;
        let (services, checks) = read.value.value;
        Ok(Self { services, checks })
    }

    /// The checks that determine an instance's state: its own and those of the node.
    pub(super) fn checks_of<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Arc<Check>> {
        self.checks.iter().filter(move |check| check.service_id.is_empty() || check.service_id == id)
    }
}

/// One service of this agent, read as [`AgentServices::read`] does. 404 if there is none.
async fn service(call: &Call, id: &str) -> Result<Arc<Service>, Refusal> {
    let (ctx, node) = (call.context()?, call.node());
    let read =
        node.catalog().service_on_node(&ctx, Consistency::Linearizable, node.name().to_owned(), id.to_owned()).await?;
    read.value.value.ok_or_else(|| no_service(id))
}

fn no_service(id: &str) -> Refusal {
    Refusal::not_found(format!(
        "Unknown service ID {id:?}. Ensure that the service ID is passed, not the service name."
    ))
}

/// One service of this agent, for a request that needs `access` to it. 404 if it does not exist, or
/// if the request may not even read it; 403 if the request lacks `access` only.
async fn service_for(call: &Call, id: &str, access: Access) -> Result<Arc<Service>, Refusal> {
    let found = service(call, id).await?;
    require_stored(call, &Right::service(&found.name, access), || no_service(id))?;
    Ok(found)
}

/// Refuses a request without `right`, which is a right to a stored row. The refusal is 403; or
/// `absent`, the refusal for a missing row, if the request may not even read the row.
fn require_stored(call: &Call, right: &Right<'_>, absent: impl FnOnce() -> Refusal) -> Result<(), Refusal> {
    let authorizer = call.authorizer()?;
    if right.is_given_by(&authorizer) {
        return Ok(());
    }
    match right.clone().with(Access::READ).is_given_by(&authorizer) {
        true => Err(right.denied(&authorizer)),
        false => Err(absent()),
    }
}

/// One check of this agent, read as [`AgentServices::read`] does. 404 if there is none.
async fn check(call: &Call, id: &str) -> Result<Arc<Check>, Refusal> {
    let (ctx, node) = (call.context()?, call.node());
    let read =
        node.catalog().check_on_node(&ctx, Consistency::Linearizable, node.name().to_owned(), id.to_owned()).await?;
    read.value.value.ok_or_else(|| no_check(id))
}

fn no_check(id: &str) -> Refusal {
    Refusal::not_found(format!("Unknown check ID {id:?}. Ensure that the check ID is passed, not the check name."))
}

/// One check of this agent, for a request that writes it. That needs the write right to the check's
/// service, or to its node if it has none. 404 if it does not exist, or if the request may not even
/// read it; 403 if the request lacks the write right only.
async fn check_to_write(call: &Call, id: &str) -> Result<Arc<Check>, Refusal> {
    let found = check(call, id).await?;
    let right = match found.service_id.is_empty() {
        true => Right::node(&found.node, Access::WRITE),
        false => Right::service(&found.service_name, Access::WRITE),
    };
    require_stored(call, &right, || no_check(id))?;
    Ok(found)
}

/// How a registration treats this agent's node of the catalog.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryChange {
    /// The node exists, and the registration does not change it.
    Keep,
    /// The node did not exist when it was read: the registration creates it. If another request has
    /// created it meanwhile, it stays as it is.
    Create,
    /// The node exists with this member's id and another address: it gets this member's address.
    Move,
}

/// This agent's node of the catalog as a registration must send it, and its change by that
/// registration.
async fn own_entry(call: &Call) -> Result<(catalog::CatalogNode, EntryChange), Refusal> {
    let (node, address) = (call.node(), about::own_address(call).await?);
    let (name, id) = (node.name().to_owned(), node_id(node));
    let found = node.catalog().node(&call.context()?, Consistency::Serializable, name.clone()).await?.value.value;
    Ok(match found {
        Some(found) if found.id == id && found.address != address => {
            (catalog::CatalogNode { address, ..catalog::CatalogNode::clone(&found) }, EntryChange::Move)
        }
        found => {
            let change = if found.is_some() { EntryChange::Keep } else { EntryChange::Create };
            (catalog::CatalogNode { name, id, address, ..catalog::CatalogNode::default() }, change)
        }
    })
}

/// Registers services or checks on this agent's node of the catalog; the answer is empty. The
/// caller has judged the request's right to them. The node itself is written with the rights of
/// this member, not of the request.
async fn register(call: &Call, registration: Registration) -> Result<Answer, Refusal> {
    let (node, change) = own_entry(call).await?;
    let mut skip_node_update = change != EntryChange::Move;
    if change != EntryChange::Keep && !call.authorizer()?.is_open() {
        let own = RequestContext { principal: Principal::System, ..call.context()? };
        let entry = Registration { node: node.clone(), skip_node_update, ..Registration::default() };
        call.node().catalog().register(&own, entry).await?;
        skip_node_update = true;
    }
    let registration = Registration { node, skip_node_update, ..registration };
    let done = call.node().catalog().register(&call.context()?, registration).await?;
    Ok(Answer::empty().at(done.index))
}

/// Removes a service or a check from this agent's node of the catalog; the answer is empty.
async fn deregister(call: &Call, what: DeregistrationTarget) -> Result<Answer, Refusal> {
    let deregistration = Deregistration { node: call.node().name().to_owned(), what, ..Deregistration::default() };
    let done = call.node().catalog().deregister(&call.context()?, deregistration).await?;
    Ok(Answer::empty().at(done.index))
}

/// A UUID of this member, made of the ids of the cluster and of the member. It never changes.
fn node_id(node: &Node) -> String {
    let identity = node.identity();
    let (cluster, member) = (identity.cluster_id.get(), identity.node_id.get());
    // Version 8 leaves the bits to the implementation (RFC 9562 §5.8).
    format!(
        "{:08x}-{:04x}-8{:03x}-8{:03x}-{:012x}",
        cluster >> 32,
        (cluster >> 16) & 0xffff,
        (cluster >> 4) & 0xfff,
        (cluster & 0xf) << 8 | (member >> 48) & 0xff,
        member & 0xffff_ffff_ffff
    )
}
