//! The rights that changes of the catalog need (spec: security §4).
//!
//! Owns the walk through registrations and transactions, with Consul's texts. The state machine
//! judges again when it applies a change. Invariants: a change needs the right to the stored row
//! with the same id, too, so that nobody can take over an instance or a check; a request is judged
//! by its rights after the read of the rows that decide which rights it needs.

use std::sync::Arc;

use super::access::Right;
use super::answer::Refusal;
use super::call::Call;
use headwater_node::{Authorizer, Consistency};
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

/// Refuses a registration that the token may not make. It needs the write right to the service, to
/// the checks, and to each stored row that is replaced or renamed. It needs that to the node only
/// if the node changes.
pub(super) async fn require_registration(call: &Call, registration: &Registration) -> Result<(), Refusal> {
    if call.authorizer()?.is_open() {
        return Ok(());
    }
    let node = &registration.node;
    let writes_node = match registration.skip_node_update {
        true => stored_node(call, &node.name).await?.is_none(),
        false => stored_node(call, &node.name).await?.is_none_or(|stored| stored.is_changed_by(node)),
    };
    if writes_node {
        call.require(&Right::node(&node.name, Access::WRITE))?;
        // The registration renames the stored node with this id, with everything on it.
        if !node.id.is_empty()
            && let Some(renamed) = node_with_id(call, &node.id).await?
        {
            call.require_discreet(Right::node(&renamed.name, Access::WRITE))?;
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
        let needed = check_rights(call, &node.name, check, own, Access::WRITE).await?;
        let authorizer = call.authorizer()?;
        if let Some(lacking) = needed.iter().find(|needed| !needed.is_given_by(&authorizer)) {
            return Err(lacking.denied(&authorizer));
        }
    }
    Ok(())
}

/// Refuses a write of an instance unless the token has the write right to the service's name, and
/// to the name of the stored instance with this id.
pub(super) async fn require_service_write(call: &Call, node: &str, id: &str, name: &str) -> Result<(), Refusal> {
    call.require(&Right::service(name, Access::WRITE))?;
    if call.authorizer()?.is_open() {
        return Ok(());
    }
    match stored_service(call, node, id).await? {
        Some(stored) => call.require_discreet(Right::service(&stored.name, Access::WRITE)),
        None => Ok(()),
    }
}

/// A right that a change or a read of a row needs.
struct Needed {
    right: Right<'static>,
    /// The right to the row's node. `Some` if `right` names a stored row: a refusal must not reveal
    /// that name.
    of_node: Option<Right<'static>>,
}

impl Needed {
    /// The right to a name that the request itself gives.
    fn given(space: Space, name: &str, access: Access) -> Self {
        Self { right: Right::named(space, name.to_owned(), access), of_node: None }
    }

    /// The right to the service of a row that is stored on `node`.
    fn stored(service: &str, node: &str, access: Access) -> Self {
        let of_node = Right::named(Space::CatalogNode, node.to_owned(), access);
        Self { of_node: Some(of_node), ..Self::given(Space::CatalogService, service, access) }
    }

    /// The right to a stored check: to its service, or to its node if it has none.
    fn to_check(check: &Check, access: Access) -> Self {
        match check.service_id.is_empty() {
            true => Self::given(Space::CatalogNode, &check.node, access),
            false => Self::stored(&check.service_name, &check.node, access),
        }
    }

    fn is_given_by(&self, authorizer: &Authorizer) -> bool {
        self.right.is_given_by(authorizer)
    }

    /// The right that a refusal names. If the request may not read the service of the stored row,
    /// the right to the node, as if the row did not exist.
    fn shown(&self, authorizer: &Authorizer) -> &Right<'static> {
        match &self.of_node {
            Some(of_node) if !self.right.clone().with(Access::READ).is_given_by(authorizer) => of_node,
            _ => &self.right,
        }
    }

    fn denied(&self, authorizer: &Authorizer) -> Refusal {
        self.shown(authorizer).denied(authorizer)
    }
}

/// The rights that an access to a check needs: to its service, or to its node if it has none or the
/// service does not exist; and those to the stored check with its id. `own` is the check's service
/// if the same request registers it.
async fn check_rights(
    call: &Call,
    node: &str,
    check: &Check,
    own: Option<&Service>,
    access: Access,
) -> Result<Vec<Needed>, Refusal> {
    let mut rights = Vec::new();
    if check.service_id.is_empty() {
        rights.push(Needed::given(Space::CatalogNode, node, access));
    } else if let Some(service) = own {
        rights.push(Needed::given(Space::CatalogService, &service.name, access));
    } else {
        match stored_service(call, node, &check.service_id).await? {
            Some(service) => rights.push(Needed::stored(&service.name, node, access)),
            // The state machine refuses a check of a missing service. Only a request with the right
            // to the node gets that far.
            None => rights.push(Needed::given(Space::CatalogNode, node, access)),
        }
    }
    let id = if check.id.is_empty() { &check.name } else { &check.id };
    if let Some(stored) = stored_check(call, node, id).await? {
        rights.push(Needed::to_check(&stored, access));
    }
    Ok(rights)
}

/// Refuses a deregistration unless the token has the write right to the node, or to the service of
/// the instance or check that is removed.
pub(super) async fn require_deregistration(
    call: &Call,
    node: &str,
    what: &DeregistrationTarget,
) -> Result<(), Refusal> {
    let of_node = Right::node(node, Access::WRITE);
    if of_node.is_given_by(&call.authorizer()?) {
        return Ok(());
    }
    let other = match what {
        DeregistrationTarget::Node => None,
        DeregistrationTarget::Service(id) => {
            let stored = stored_service(call, node, id).await?;
            stored.map(|stored| Needed::stored(&stored.name, node, Access::WRITE))
        }
        DeregistrationTarget::Check(id) => {
            let stored = stored_check(call, node, id).await?;
            stored.filter(|check| !check.service_id.is_empty()).map(|check| Needed::to_check(&check, Access::WRITE))
        }
    };
    let authorizer = call.authorizer()?;
    match other {
        _ if of_node.is_given_by(&authorizer) => Ok(()),
        Some(right) if right.is_given_by(&authorizer) => Ok(()),
        Some(right) => Err(right.denied(&authorizer)),
        None => Err(of_node.denied(&authorizer)),
    }
}

/// Positions of a transaction's operations that the token may not carry out, each with the text of
/// its refusal. Empty if the token may carry out all.
pub(super) async fn txn_faults(call: &Call, ops: &[TxnOp]) -> Result<Vec<(u32, String)>, Refusal> {
    if call.authorizer()?.is_open() {
        return Ok(Vec::new());
    }
    let mut needed = Vec::new();
    for op in ops {
        needed.push(match op {
            TxnOp::Kv(_) => Vec::new(),
            TxnOp::Catalog(verb, row) => row_rights(call, *verb, row).await?,
        });
    }
    let authorizer = call.authorizer()?;
    let mut faults = Vec::new();
    for (number, (op, needed)) in (0u32..).zip(ops.iter().zip(&needed)) {
        let denial = match op {
            TxnOp::Kv(op) => kv_denial(&authorizer, op),
            TxnOp::Catalog(..) => row_denial(&authorizer, needed),
        };
        faults.extend(denial.map(|text| (number, text)));
    }
    Ok(faults)
}

fn kv_denial(authorizer: &Authorizer, op: &KvOp) -> Option<String> {
    let access = if op.verb.is_read() { Access::READ } else { Access::WRITE };
    let right = match op.verb.is_about_prefix() {
        true => Right::keys(&op.path, access),
        false => Right::key(&op.path, access),
    };
    (!right.is_given_by(authorizer)).then(|| right.denial(authorizer))
}

fn row_denial(authorizer: &Authorizer, needed: &[Needed]) -> Option<String> {
    let lacking = needed.iter().find(|needed| !needed.is_given_by(authorizer))?;
    Some(lacking.shown(authorizer).denial(authorizer))
}

/// The rights that an operation on a row needs: to the row that the request gives, and to the
/// stored row with the same id.
async fn row_rights(call: &Call, verb: CatalogVerb, row: &TxnRow) -> Result<Vec<Needed>, Refusal> {
    let access = match verb {
        CatalogVerb::Get => Access::READ,
        CatalogVerb::Set | CatalogVerb::Cas | CatalogVerb::Delete | CatalogVerb::DeleteCas => Access::WRITE,
    };
    let mut wanted: Vec<Needed> = Vec::new();
    match row {
        TxnRow::Node(node) => wanted.push(Needed::given(Space::CatalogNode, &node.name, access)),
        TxnRow::Service(service) => {
            // The given name comes first, so that its refusal is the same whether the instance
            // exists or not.
            if !service.name.is_empty() {
                wanted.push(Needed::given(Space::CatalogService, &service.name, access));
            }
            let stored = stored_service(call, &service.node, &service.id).await?;
            wanted.extend(stored.iter().map(|stored| Needed::stored(&stored.name, &service.node, access)));
        }
        TxnRow::Check(check) => wanted.extend(check_rights(call, &check.node, check, None, access).await?),
    }
    if wanted.is_empty()
        && let TxnRow::Service(service) = row
    {
        // Nobody learns whether an instance exists without a right to its node.
        wanted.push(Needed::given(Space::CatalogNode, &service.node, access));
    }
    Ok(wanted)
}
