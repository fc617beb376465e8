//! Operations of a transaction on nodes, services and checks.

use serde_json::Value;

use super::super::answer::Refusal;
use super::super::decode::{Object, failed};
use super::super::registration::{check_tenancy, health_check, locality, service as read_service};
use super::super::shapes;
use headwater_types::LogIndex;
use headwater_types::catalog::{CatalogNode, Registration};
use headwater_types::consul::{CatalogVerb, TxnRow};

/// The verbs of operations on rows, by their names in JSON.
const VERBS: [(&str, CatalogVerb); 5] = [
    ("get", CatalogVerb::Get),
    ("set", CatalogVerb::Set),
    ("cas", CatalogVerb::Cas),
    ("delete", CatalogVerb::Delete),
    ("delete-cas", CatalogVerb::DeleteCas),
];

/// The name of a verb, as JSON spells it.
pub(super) fn name(verb: CatalogVerb) -> &'static str {
    VERBS.iter().find(|(_, known)| *known == verb).expect("invariant: every verb is listed").0
}

/// The kind and name of a row, for the error text of a failed operation.
pub(super) fn describe(row: &TxnRow) -> String {
    match row {
        TxnRow::Node(row) => format!("node {:?}", row.name),
        TxnRow::Service(row) => format!("service {:?} on node {:?}", row.id, row.node),
        TxnRow::Check(row) => format!("check {:?} on node {:?}", row.id, row.node),
    }
}

/// A row as the catalog's own answers show it.
pub(super) fn body(row: &TxnRow, datacenter: &str) -> Value {
    let json = match row {
        TxnRow::Node(row) => serde_json::to_value(shapes::node(row, datacenter)),
        TxnRow::Service(row) => serde_json::to_value(shapes::service(row)),
        TxnRow::Check(row) => serde_json::to_value(shapes::check(row)),
    };
    json.expect("invariant: its keys are texts")
}

/// Reads `{"Verb": …, "Node": {…}}`.
pub(super) fn node(position: usize, op: &Object<'_>) -> Result<(CatalogVerb, TxnRow), Refusal> {
    let verb = verb(position, "Node", op)?;
    let row = op.object("Node")?.ok_or_else(|| missing(position, "Node.Node"))?;
    check_tenancy(&row)?;
    let node = CatalogNode {
        name: row.text("Node")?,
        id: row.text("ID")?,
        address: row.text("Address")?,
        tagged_addresses: row.text_map("TaggedAddresses")?,
        meta: row.text_map("Meta")?,
        locality: locality(&row)?,
        ..CatalogNode::default()
    };
    let registration = Registration { node, skip_node_update: !writes(verb), ..Registration::default() };
    let node = CatalogNode { modified: index(position, &row)?, ..complete(registration)?.node };
    Ok((verb, TxnRow::Node(Box::new(node))))
}

/// Reads `{"Verb": …, "Node": "name", "Service": {…}}`.
pub(super) fn service(position: usize, op: &Object<'_>) -> Result<(CatalogVerb, TxnRow), Refusal> {
    let verb = verb(position, "Service", op)?;
    let row = op.object("Service")?.ok_or_else(|| missing(position, "Service.Service"))?;
    let mut service = read_service(&row, "Service")?;
    // The id alone identifies an instance: the name is needed only by the rules for registrations.
    if !writes(verb) && service.name.is_empty() {
        service.name.clone_from(&service.id);
    }
    let registration = Registration { service: Some(service), ..on(op.text("Node")?) };
    let mut service = complete(registration)?.service.expect("invariant: it was put there");
    service.modified = index(position, &row)?;
    Ok((verb, TxnRow::Service(Box::new(service))))
}

/// Reads `{"Verb": …, "Check": {…}}`.
pub(super) fn check(position: usize, op: &Object<'_>) -> Result<(CatalogVerb, TxnRow), Refusal> {
    let verb = verb(position, "Check", op)?;
    let row = op.object("Check")?.ok_or_else(|| missing(position, "Check.Check"))?;
    let check = health_check(&row)?;
    let registration = on(check.node.clone());
    let mut checks = complete(Registration { checks: vec![check], ..registration })?.checks;
    let mut check = checks.pop().expect("invariant: it was put there");
    check.modified = index(position, &row)?;
    Ok((verb, TxnRow::Check(Box::new(check))))
}

/// A registration with only the name of its node.
fn on(node: String) -> Registration {
    Registration {
        node: CatalogNode { name: node, ..CatalogNode::default() },
        skip_node_update: true,
        ..Registration::default()
    }
}

/// Fills in omitted members by the catalog's rules. Refused (400) if a required member is missing.
fn complete(mut registration: Registration) -> Result<Registration, Refusal> {
    registration.complete().map_err(|problem| Refusal::bad(problem.to_string()))?;
    Ok(registration)
}

fn verb(position: usize, kind: &str, op: &Object<'_>) -> Result<CatalogVerb, Refusal> {
    let name = op.text("Verb")?;
    let known = VERBS.iter().find(|(known, _)| *known == name).map(|(_, verb)| *verb);
    known.ok_or_else(|| Refusal::bad(format!("operation {position} has the unknown {kind} verb {name:?}")))
}

fn writes(verb: CatalogVerb) -> bool {
    matches!(verb, CatalogVerb::Set | CatalogVerb::Cas)
}

fn missing(position: usize, member: &str) -> Refusal {
    failed(&format!("[{position}].{member} is missing"))
}

/// `ModifyIndex`: the log index that the stored row must have in an operation `cas` or
/// `delete-cas`. Zero if it is missing.
fn index(position: usize, row: &Object<'_>) -> Result<LogIndex, Refusal> {
    match row.get("ModifyIndex") {
        None => Ok(LogIndex::ZERO),
        Some(value) => value
            .as_u64()
            .map(LogIndex)
            .ok_or_else(|| failed(&format!("[{position}] ModifyIndex: wanted a whole number, got {value}"))),
    }
}
