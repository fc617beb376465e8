//! The shape of a commit: the message in, the node's request out.

use bytes::Bytes;
use thiserror::Error;
use tonic::Status;

use headwater_api_etcd::errors::{Failure as EtcdFailure, Invalid as EtcdInvalid};
use headwater_api_etcd::{decode_compare, decode_delete_range, decode_put};
use headwater_api_resource::validate as resource;
use headwater_api_shared::catalog::{BadRegistration, read_check, read_node, read_service};
use headwater_api_shared::context::read_epoch_text;
use headwater_api_shared::duration;
use headwater_api_shared::target::{self, Target};
use headwater_node::{CommitRequest, Entity, EntitySpace, NewOperation};
use headwater_proto::pb::headwater_v1 as pb;
use headwater_types::catalog::{Deregistration, DeregistrationTarget, Registration};
use headwater_types::commit::{CommitCondition, CommitEntity, EntityTest};
use headwater_types::consul::{KvOp, KvVerb, Session, SessionBehavior, SessionCreate};
use headwater_types::entity::{key_of, part_of};
use headwater_types::limits::{
    CATALOG_NAME_BYTES_MAX, COMMIT_KEY_BYTES_MAX, CONSUL_PATH_BYTES_MAX, CONSUL_VALUE_BYTES_MAX, LOCK_DELAY_MS_DEFAULT,
    LOCK_DELAY_MS_MAX, SESSION_CHECKS_MAX, SESSION_TTL_MS_MAX, SESSION_TTL_MS_MIN,
};
use headwater_types::resource::{ResourceId, Selector, Tenancy, Type, WILDCARD};
use headwater_types::{LeaseId, LogIndex};

/// The mistake in a commit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Invalid {
    #[error("operations is empty: a commit needs at least one")]
    NoOperations,
    #[error("{list} has {count} items, and {max} are allowed (max-txn-ops): make several commits")]
    TooMany { list: &'static str, count: usize, max: usize },
    #[error("idempotency_key has at most {COMMIT_KEY_BYTES_MAX} bytes")]
    Key,
    #[error("conditions[{number}]: {error}")]
    Condition { number: usize, error: InvalidCondition },
    #[error("operations[{number}]: {error}")]
    Operation { number: usize, error: InvalidOperation },
}

/// The mistake in a condition.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum InvalidCondition {
    #[error("a condition has either a target with index, unchanged_since or exists, or a key to compare")]
    Empty,
    #[error(transparent)]
    Target(#[from] target::Invalid),
    #[error(
        "{0} names no entity that can change by a commit: a key is /kv/KEY, an instance /services/SERVICE/NODE/ID, a \
         resource /resources/GROUP/VERSION/KIND/PARTITION/NAMESPACE/NAME, a node /nodes/NODE, a lease /leases/ID"
    )]
    NoEntity(String),
    #[error("{0} is more than one entity: with recursive=true only unchanged_since can be asked")]
    Several(String),
    #[error("unchanged_since of a lease is not known, because an ended lease leaves no trace; use exists or index")]
    Lease,
    #[error("key: {0}")]
    Compare(String),
    #[error("epoch must be 16 hexadecimal digits, as answers have it")]
    Epoch,
    #[error("epoch goes with a target, not with a key to compare")]
    EpochOfKey,
}

/// The mistake in an operation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum InvalidOperation {
    #[error("the operation is missing, or of a kind that this member does not know")]
    Empty,
    #[error("{0}")]
    Etcd(String),
    #[error("{0}")]
    Resource(String),
    #[error("{0}")]
    Catalog(#[from] BadRegistration),
    #[error("register.node is required: the name of the node at least, as Node")]
    NoNode,
    #[error("there is no verb {0:?} of Consul's keys that writes; there are {verbs}", verbs = verbs())]
    Verb(String),
    #[error("path must not be empty")]
    NoPath,
    #[error("path has at most {CONSUL_PATH_BYTES_MAX} bytes")]
    Path,
    #[error("value has at most {CONSUL_VALUE_BYTES_MAX} bytes")]
    Value,
    #[error("id of a session must be a UUID, such as 7a2b8c1e-0c3d-4e5f-8a9b-0c1d2e3f4a5b, or empty")]
    SessionId,
    #[error("ttl_ms of a session must lie between {SESSION_TTL_MS_MIN} and {SESSION_TTL_MS_MAX}, or be 0 for none")]
    SessionTtl,
    #[error("{0} of a session has at most {CATALOG_NAME_BYTES_MAX} bytes, and no control characters")]
    SessionName(&'static str),
    #[error("a session has at most {SESSION_CHECKS_MAX} checks")]
    SessionChecks,
}

impl From<Invalid> for Status {
    fn from(invalid: Invalid) -> Self {
        let mut status = Self::invalid_argument(invalid.to_string());
        match invalid {
            Invalid::Condition { number, .. } => super::errors::name_condition(&mut status, number as u32),
            Invalid::Operation { number, .. } => super::errors::name_operation(&mut status, number as u32),
            Invalid::NoOperations | Invalid::TooMany { .. } | Invalid::Key => {}
        }
        status
    }
}

/// The verbs of Consul's keys that a commit may have, by their names in Consul's transactions.
/// Verbs that return values are not among them.
const VERBS: [(&str, KvVerb); 10] = [
    ("set", KvVerb::Set),
    ("cas", KvVerb::Cas),
    ("lock", KvVerb::Lock),
    ("unlock", KvVerb::Unlock),
    ("delete", KvVerb::Delete),
    ("delete-cas", KvVerb::DeleteCas),
    ("delete-tree", KvVerb::DeleteTree),
    ("check-index", KvVerb::CheckIndex),
    ("check-session", KvVerb::CheckSession),
    ("check-not-exists", KvVerb::CheckNotExists),
];

fn verbs() -> String {
    VERBS.map(|(name, _)| name).join(", ")
}

/// Decodes a commit. `own_node` becomes the node of sessions that name none. `ops_max` is the
/// largest number of conditions, and of operations.
pub(super) fn request(message: pb::CommitRequest, own_node: &str, ops_max: usize) -> Result<CommitRequest, Invalid> {
    let pb::CommitRequest { conditions, operations, idempotency_key } = message;
    if operations.is_empty() {
        return Err(Invalid::NoOperations);
    }
    for (list, count) in [("conditions", conditions.len()), ("operations", operations.len())] {
        if count > ops_max {
            return Err(Invalid::TooMany { list, count, max: ops_max });
        }
    }
    if idempotency_key.len() > COMMIT_KEY_BYTES_MAX {
        return Err(Invalid::Key);
    }
    let conditions = conditions.into_iter().enumerate();
    let conditions = conditions.map(|(number, it)| condition(it).map_err(|error| Invalid::Condition { number, error }));
    let operations = operations.into_iter().enumerate();
    let operations =
        operations.map(|(number, it)| operation(it, own_node).map_err(|error| Invalid::Operation { number, error }));
    Ok(CommitRequest {
        conditions: conditions.collect::<Result<_, _>>()?,
        operations: operations.collect::<Result<_, _>>()?,
        key: idempotency_key,
    })
}

fn condition(condition: pb::Condition) -> Result<CommitCondition, InvalidCondition> {
    use pb::condition::Condition as Wire;
    let test = match (condition.key, condition.condition) {
        (Some(_), _) if !condition.epoch.is_empty() => return Err(InvalidCondition::EpochOfKey),
        (Some(compare), None) if condition.target.is_empty() => {
            let compare = decode_compare(compare).map_err(|invalid| InvalidCondition::Compare(etcd_text(invalid)))?;
            return Ok(CommitCondition::Compare(compare));
        }
        (None, Some(Wire::Index(index))) => EntityTest::Index(LogIndex(index)),
        (None, Some(Wire::UnchangedSince(index))) => EntityTest::UnchangedSince(LogIndex(index)),
        (None, Some(Wire::Exists(exists))) => EntityTest::Exists(exists),
        (Some(_) | None, _) => return Err(InvalidCondition::Empty),
    };
    let epoch = match condition.epoch.as_str() {
        "" => None,
        text => Some(read_epoch_text(text).ok_or(InvalidCondition::Epoch)?),
    };
    let entity = Target::read(&condition.target)?.entity.as_ref().and_then(entity);
    let entity = entity.ok_or_else(|| InvalidCondition::NoEntity(condition.target.clone()))?;
    match test.fits(&entity) {
        true => Ok(CommitCondition::Entity(entity, test, epoch)),
        false if matches!(entity, CommitEntity::Lease(_)) => Err(InvalidCondition::Lease),
        false => Err(InvalidCondition::Several(condition.target)),
    }
}

/// The entity of a target. `None` for one that no commit changes, such as a member, and for one
/// that can be named only with `recursive=true`.
fn entity(entity: &Entity) -> Option<CommitEntity> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok();
    let keys = || entity.name.split('/').map(|part| key_of(part).ok().and_then(text)).collect::<Option<Vec<_>>>();
    let parts = || entity.name.split('/').map(|part| part_of(part).ok().and_then(text)).collect::<Option<Vec<_>>>();
    Some(match entity.space {
        EntitySpace::Kv => {
            let key = Bytes::from(key_of(&entity.name).ok()?);
            match entity.recursive {
                true => CommitEntity::KeysBelow(key),
                false if key.is_empty() => return None,
                false => CommitEntity::Key(key),
            }
        }
        EntitySpace::Resources => {
            let parts = if entity.name.is_empty() { Vec::new() } else { keys()? };
            let part = |at: usize| parts.get(at).map_or(WILDCARD, String::as_str);
            let (type_, tenancy) = (Type::new(part(0), part(1), part(2)), Tenancy::new(part(3), part(4)));
            match parts.get(5) {
                Some(name) => {
                    CommitEntity::Resource(ResourceId { uid: String::new(), name: name.clone(), type_, tenancy })
                }
                None if entity.recursive => {
                    CommitEntity::Resources(Selector { type_, tenancy, name_prefix: String::new() })
                }
                None => return None,
            }
        }
        EntitySpace::Services => {
            let parts = if entity.name.is_empty() { Vec::new() } else { parts()? };
            let part = |at: usize| parts.get(at).cloned().unwrap_or_default();
            match parts.len() {
                3 => CommitEntity::Instance { service: part(0), node: part(1), id: part(2) },
                _ if entity.recursive => CommitEntity::Instances { service: part(0), node: part(1) },
                _ => return None,
            }
        }
        EntitySpace::Nodes => match &parts()?[..] {
            [name] if !name.is_empty() => CommitEntity::Node(name.clone()),
            _ => return None,
        },
        EntitySpace::Leases => CommitEntity::Lease(LeaseId(u64::from_str_radix(&entity.name, 16).ok()?.cast_signed())),
        EntitySpace::Cluster => return None,
    })
}

fn etcd_text(invalid: EtcdInvalid) -> String {
    Status::from(EtcdFailure::Invalid(invalid)).message().to_owned()
}

fn operation(operation: pb::Operation, own_node: &str) -> Result<NewOperation, InvalidOperation> {
    use pb::operation::Operation as Wire;
    let etcd = |invalid| InvalidOperation::Etcd(etcd_text(invalid));
    let of_resource = |invalid: resource::Invalid| InvalidOperation::Resource(invalid.to_string());
    Ok(match operation.operation.ok_or(InvalidOperation::Empty)? {
        Wire::Put(put) => NewOperation::Put(decode_put(put).map_err(etcd)?),
        Wire::DeleteRange(delete) => NewOperation::DeleteRange(decode_delete_range(delete).map_err(etcd)?),
        Wire::GrantLease(grant) if LeaseId(grant.id).is_deadline() => return Err(etcd(EtcdInvalid::LeaseReserved)),
        Wire::GrantLease(grant) => NewOperation::GrantLease { id: LeaseId(grant.id), ttl_seconds: grant.ttl },
        Wire::RevokeLease(revoke) => NewOperation::RevokeLease(LeaseId(revoke.id)),
        Wire::WriteResource(write) => {
            let (resource, expected) = resource::resource(write.resource).map_err(of_resource)?;
            NewOperation::WriteResource { resource: Box::new(resource), expected }
        }
        Wire::WriteResourceStatus(write) => {
            let resource::StatusWrite { id, key, status, expected } = resource::status(write).map_err(of_resource)?;
            NewOperation::WriteStatus { id, key, status, expected }
        }
        Wire::DeleteResource(delete) => {
            let expected = resource::expected(&delete.version);
            NewOperation::DeleteResource { id: resource::id(delete.id, "id").map_err(of_resource)?, expected }
        }
        Wire::Register(register) => NewOperation::Register(Box::new(registration(register)?)),
        Wire::Deregister(gone) => NewOperation::Deregister(deregistration(gone)),
        Wire::CreateSession(create) => NewOperation::CreateSession(Box::new(session(create, own_node)?)),
        Wire::DestroySession(destroy) => NewOperation::DestroySession(destroy.id),
        Wire::ConsulKv(op) => NewOperation::ConsulKv(consul_kv(op)?),
    })
}

fn registration(register: pb::Register) -> Result<Registration, InvalidOperation> {
    let pb::Register { node, service, checks, skip_node_update, replace_checks } = register;
    Ok(Registration {
        node: read_node(node.ok_or(InvalidOperation::NoNode)?)?,
        skip_node_update,
        service: service.map(read_service).transpose()?,
        checks: checks.into_iter().map(read_check).collect::<Result<_, _>>()?,
        replace_checks,
        keep_statuses: false,
        guard: None,
    })
}

fn deregistration(gone: pb::Deregister) -> Deregistration {
    use pb::deregister::What;
    let what = match gone.what {
        None => DeregistrationTarget::Node,
        Some(What::ServiceId(id)) => DeregistrationTarget::Service(id),
        Some(What::CheckId(id)) => DeregistrationTarget::Check(id),
    };
    Deregistration { node: gone.node, what, guard: None }
}

fn session(create: pb::CreateSession, own_node: &str) -> Result<SessionCreate, InvalidOperation> {
    let pb::CreateSession { id, name, node, node_checks, no_default_check, .. } = &create;
    if !id.is_empty() && !is_uuid(id) {
        return Err(InvalidOperation::SessionId);
    }
    for (what, text) in [("name", name), ("node", node)] {
        if text.len() > CATALOG_NAME_BYTES_MAX || text.chars().any(char::is_control) {
            return Err(InvalidOperation::SessionName(what));
        }
    }
    if create.ttl_ms != 0 && !(SESSION_TTL_MS_MIN..=SESSION_TTL_MS_MAX).contains(&create.ttl_ms) {
        return Err(InvalidOperation::SessionTtl);
    }
    let sorted = |checks: &[String]| {
        let mut checks: Vec<String> = checks.iter().filter(|check| !check.is_empty()).cloned().collect();
        checks.sort_unstable();
        checks.dedup();
        checks
    };
    let (node_checks, service_checks) = (sorted(node_checks), sorted(&create.service_checks));
    if node_checks.len() + service_checks.len() > SESSION_CHECKS_MAX {
        return Err(InvalidOperation::SessionChecks);
    }
    let ttl = match create.ttl_ms {
        0 => String::new(),
        ms => duration::format(std::time::Duration::from_millis(ms)),
    };
    Ok(SessionCreate {
        default_check: node_checks.is_empty() && !no_default_check,
        node_required: !node.is_empty() && node != own_node,
        session: Session {
            id: id.to_ascii_lowercase(),
            name: name.clone(),
            node: if node.is_empty() { own_node.to_owned() } else { node.clone() },
            node_checks,
            service_checks,
            behavior: if create.deletes_keys { SessionBehavior::Delete } else { SessionBehavior::Release },
            lock_delay_ms: create.lock_delay_ms.unwrap_or(LOCK_DELAY_MS_DEFAULT).min(LOCK_DELAY_MS_MAX),
            ttl_ms: create.ttl_ms,
            ttl,
            ..Session::default()
        },
    })
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn consul_kv(op: pb::ConsulKv) -> Result<KvOp, InvalidOperation> {
    let pb::ConsulKv { verb, path, value, flags, index, session } = op;
    let known = VERBS.iter().find(|(name, _)| *name == verb).map(|(_, verb)| *verb);
    let verb = known.ok_or(InvalidOperation::Verb(verb))?;
    if path.is_empty() && !verb.is_about_prefix() {
        return Err(InvalidOperation::NoPath);
    }
    if path.len() > CONSUL_PATH_BYTES_MAX {
        return Err(InvalidOperation::Path);
    }
    if value.len() > CONSUL_VALUE_BYTES_MAX {
        return Err(InvalidOperation::Value);
    }
    Ok(KvOp { verb, path, value, flags, index: LogIndex(index), session })
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
