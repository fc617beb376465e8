//! The rights that changes of the catalog need (spec: security §4).
//!
//! Owns the walk through registrations and transactions, with Consul's texts; apply judges again.
//! Invariant: an instance or a check does not change hands: the right to the row that is
//! stored under the id is needed, too.

use std::sync::Arc;

use super::access::Right;
use super::answer::Refusal;
use super::call::Call;
use headwater_node::{Consistency, Judge};
use headwater_types::catalog::{CatalogNode, Check, DeregistrationTarget, Registration, Service};
use headwater_types::consul::{CatalogVerb, KvOp, TxnOp, TxnRow};
use headwater_types::{Access, Space};

async fn stored_node(call: &Call, node: &str) -> Result<Option<Arc<CatalogNode>>, Refusal> {
    Ok(call.node().catalog().node(&call.context()?, Consistency::Linearizable, node.to_owned()).await?.value.value)
}

async fn node_with_id(call: &Call, id: &str) -> Result<Option<Arc<CatalogNode>>, Refusal> {
    Ok(call
        .node()
        .catalog()
        .node_by_id(&call.context()?, Consistency::Linearizable, id.to_ascii_lowercase())
        .await?
        .value
        .value)
}

async fn stored_service(call: &Call, node: &str, id: &str) -> Result<Option<Arc<Service>>, Refusal> {
    let catalog = call.node().catalog();
    let (node, id) = (node.to_owned(), id.to_owned());
    Ok(catalog.service_on_node(&call.context()?, Consistency::Linearizable, node, id).await?.value.value)
}

async fn stored_check(call: &Call, node: &str, id: &str) -> Result<Option<Arc<Check>>, Refusal> {
    let catalog = call.node().catalog();
    let (node, id) = (node.to_owned(), id.to_owned());
    Ok(catalog.check_on_node(&call.context()?, Consistency::Linearizable, node, id).await?.value.value)
}

/// Refuses a registration that the token may not write.
pub(super) async fn require_registration(call: &Call, registration: &Registration) -> Result<(), Refusal> {
    let judge = call.judge()?;
    if judge.is_open() {
        return Ok(());
    }
    let node = &registration.node;
    let writes_node = match registration.skip_node_update {
        true => stored_node(call, &node.name).await?.is_none(),
        false => stored_node(call, &node.name).await?.is_none_or(|stored| stored.is_changed_by(node)),
    };
    if writes_node {
        call.require(&Right::node(&node.name, Access::WRITE))?;
        // The node with this id is renamed, with everything on it.
        if !node.id.is_empty()
            && let Some(renamed) = node_with_id(call, &node.id).await?
        {
            call.require(&Right::node(&renamed.name, Access::WRITE).discreet(&judge))?;
        }
    }
    if let Some(service) = &registration.service {
        let id = if service.id.is_empty() { &service.name } else { &service.id };
        require_service_write(call, &node.name, id, &service.name).await?;
    }
    for check in &registration.checks {
        let own = registration.service.as_ref().filter(|service| {
            let id = if service.id.is_empty() { &service.name } else { &service.id };
            *id == check.service_id
        });
        for right in check_rights(call, &node.name, check, own).await? {
            if !right.0.is_given_by(&judge) {
                return Err(right.0.denied(&judge));
            }
        }
    }
    Ok(())
}

/// Refuses a write of an instance: the right to its name is needed, and to the name that it had.
pub(super) async fn require_service_write(call: &Call, node: &str, id: &str, name: &str) -> Result<(), Refusal> {
    call.require(&Right::service(name, Access::WRITE))?;
    if call.judge()?.is_open() {
        return Ok(());
    }
    match stored_service(call, node, id).await? {
        Some(stored) => call.require(&Right::service(&stored.name, Access::WRITE)),
        None => Ok(()),
    }
}

/// A right with the text that it borrows its name from.
struct Owned(Right<'static>);

impl Owned {
    fn of(space: Space, name: &str) -> Self {
        Self(Right::named(space, name.to_owned(), Access::WRITE))
    }
}

/// The rights to write a check: to its service or its node, and to those of the stored check.
async fn check_rights(call: &Call, node: &str, check: &Check, own: Option<&Service>) -> Result<Vec<Owned>, Refusal> {
    let mut rights = Vec::new();
    if check.service_id.is_empty() {
        rights.push(Owned::of(Space::CatalogNode, node));
    } else if let Some(service) = own {
        rights.push(Owned::of(Space::CatalogService, &service.name));
    } else {
        match stored_service(call, node, &check.service_id).await? {
            Some(service) => rights.push(Owned::of(Space::CatalogService, &service.name)),
            // The state machine refuses it, but says so only to holders of the right to the node.
            None => rights.push(Owned::of(Space::CatalogNode, node)),
        }
    }
    let id = if check.id.is_empty() { &check.name } else { &check.id };
    if let Some(stored) = stored_check(call, node, id).await? {
        rights.push(of_stored(&stored));
    }
    Ok(rights)
}

fn of_stored(check: &Check) -> Owned {
    match check.service_id.is_empty() {
        true => Owned::of(Space::CatalogNode, &check.node),
        false => Owned::of(Space::CatalogService, &check.service_name),
    }
}

/// Refuses a deregistration: the right to a node is the right to all on it.
pub(super) async fn require_deregistration(
    call: &Call,
    node: &str,
    what: &DeregistrationTarget,
) -> Result<(), Refusal> {
    let judge = call.judge()?;
    let of_node = Right::node(node, Access::WRITE);
    if of_node.is_given_by(&judge) {
        return Ok(());
    }
    let other = match what {
        DeregistrationTarget::Node => None,
        DeregistrationTarget::Service(id) => {
            let stored = stored_service(call, node, id).await?;
            stored.map(|stored| Owned::of(Space::CatalogService, &stored.name))
        }
        DeregistrationTarget::Check(id) => {
            let stored = stored_check(call, node, id).await?;
            stored.filter(|check| !check.service_id.is_empty()).map(|check| of_stored(&check))
        }
    };
    match other {
        Some(right) if right.0.is_given_by(&judge) => Ok(()),
        Some(right) => Err(right.0.denied(&judge)),
        None => Err(of_node.denied(&judge)),
    }
}

/// The operations of a transaction that the token may not carry out, with their texts.
pub(super) async fn txn_faults(call: &Call, ops: &[TxnOp]) -> Result<Vec<(u32, String)>, Refusal> {
    let judge = call.judge()?;
    let mut faults = Vec::new();
    if judge.is_open() {
        return Ok(faults);
    }
    for (number, op) in (0u32..).zip(ops) {
        let denial = match op {
            TxnOp::Kv(op) => kv_denial(&judge, op),
            TxnOp::Catalog(verb, row) => row_denial(call, &judge, *verb, row).await?,
        };
        faults.extend(denial.map(|text| (number, text)));
    }
    Ok(faults)
}

fn kv_denial(judge: &Judge, op: &KvOp) -> Option<String> {
    let access = if op.verb.is_read() { Access::READ } else { Access::WRITE };
    let right = match op.verb.is_about_prefix() {
        true => Right::keys(&op.path, access),
        false => Right::key(&op.path, access),
    };
    (!right.is_given_by(judge)).then(|| right.denial(judge))
}

async fn row_denial(call: &Call, judge: &Judge, verb: CatalogVerb, row: &TxnRow) -> Result<Option<String>, Refusal> {
    let access = match verb {
        CatalogVerb::Get => Access::READ,
        CatalogVerb::Set | CatalogVerb::Cas | CatalogVerb::Delete | CatalogVerb::DeleteCas => Access::WRITE,
    };
    let mut wanted: Vec<Right<'static>> = Vec::new();
    match row {
        TxnRow::Node(node) => wanted.push(Right::named(Space::CatalogNode, node.name.clone(), access)),
        TxnRow::Service(service) => {
            let stored = stored_service(call, &service.node, &service.id).await?;
            let names = stored.iter().map(|stored| stored.name.clone());
            let names = names.chain(Some(service.name.clone()).filter(|name| !name.is_empty()));
            wanted.extend(names.map(|name| Right::named(Space::CatalogService, name, access)));
        }
        TxnRow::Check(check) => {
            let rights = check_rights(call, &check.node, check, None).await?;
            wanted.extend(rights.into_iter().map(|right| right.0.with(access)));
        }
    }
    if wanted.is_empty() {
        // Nobody learns whether an instance exists without a right to its node.
        let TxnRow::Service(service) = row else { return Ok(None) };
        wanted.push(Right::named(Space::CatalogNode, service.node.clone(), access));
    }
    Ok(wanted.iter().find(|right| !right.is_given_by(judge)).map(|right| right.denial(judge)))
}
