//! Encoding of commits, of their outcomes, and of the commits that are kept with their idempotency
//! keys.

use bytes::Bytes;

use super::CodecError;
use super::command::{
    decode_message, encode_message, read_compare, read_delete, read_put, write_compare, write_delete, write_put,
};
use super::kv::required;
use super::outcome::{read_deleted, read_put_done, read_refusal, write_deleted, write_put_done, write_refusal};
use super::{catalog, consul, lease, resource};
use crate::pb::internal as pb;
use crate::pb::pbresource;
use headwater_types::catalog::CatalogDone;
use headwater_types::commit::{
    Commit, CommitCondition, CommitDone, CommitEntity, CommitFault, CommitKey, CommitOp, CommitOpFault, CommitOutcome,
    CommitResult, ConditionFault, EntityTest, FaceOp, KeptCommit,
};
use headwater_types::consul::{ConsulCommand, TxnFault};
use headwater_types::resource::{ResourceId, ResourceOutcome, Selector};
use headwater_types::{Command, Deleted, Feature, LeaseId, LogIndex, PutDone, Revision, StoreEpoch};

/// The format byte of a kept commit, and of [`commit_body`].
const FORMAT: u8 = Feature::Commits.since().byte();
const WHAT: &str = "commit";

/// The bytes of a commit that is kept with its idempotency key.
pub fn encode_kept_commit(kept: &KeptCommit) -> Bytes {
    let KeptCommit { index, revision, unix_ms, body, results } = kept;
    let message = pb::KeptCommit {
        index: index.get(),
        revision: revision.get(),
        unix_ms: *unix_ms,
        body: Bytes::copy_from_slice(body),
        results: results.iter().map(write_result).collect(),
    };
    encode_message(FORMAT, &message)
}

/// Reads a kept commit.
///
/// # Errors
///
/// [`CodecError`] for another format byte, for bytes that are not a kept commit, and for a missing
/// or unknown result.
pub fn decode_kept_commit(bytes: Bytes) -> Result<KeptCommit, CodecError> {
    let message: pb::KeptCommit = decode_message(WHAT, FORMAT, bytes)?;
    Ok(KeptCommit {
        index: LogIndex(message.index),
        revision: Revision(message.revision),
        unix_ms: message.unix_ms,
        body: read_hash(&message.body)?,
        results: message.results.into_iter().map(read_result).collect::<Result<_, _>>()?,
    })
}

/// The conditions and operations of a commit as bytes, without its key. Commits with equal bytes
/// ask for the same; the key holds a hash of them.
pub fn commit_body(commit: &Commit) -> Bytes {
    let key = None;
    let Commit { conditions, operations, .. } = commit;
    encode_message(FORMAT, &pb::Commit { key, ..write_parts(conditions, operations) })
}

pub(super) fn write_commit(commit: &Commit) -> pb::Commit {
    let Commit { conditions, operations, key } = commit;
    let key =
        key.map(|key| pb::CommitKey { id: Bytes::copy_from_slice(&key.id), body: Bytes::copy_from_slice(&key.body) });
    pb::Commit { key, ..write_parts(conditions, operations) }
}

fn write_parts(conditions: &[CommitCondition], operations: &[CommitOp]) -> pb::Commit {
    pb::Commit {
        conditions: conditions.iter().map(write_condition).collect(),
        operations: operations.iter().map(write_operation).collect(),
        key: None,
    }
}

pub(super) fn read_commit(commit: pb::Commit) -> Result<Commit, CodecError> {
    let key = match commit.key {
        Some(key) => Some(CommitKey { id: read_hash(&key.id)?, body: read_hash(&key.body)? }),
        None => None,
    };
    Ok(Commit {
        conditions: commit.conditions.into_iter().map(read_condition).collect::<Result<_, _>>()?,
        operations: commit.operations.into_iter().map(read_operation).collect::<Result<_, _>>()?,
        key,
    })
}

fn read_hash(bytes: &[u8]) -> Result<[u8; 16], CodecError> {
    let detail = || format!("a hash of {} bytes", bytes.len());
    bytes.try_into().map_err(|_| CodecError::Malformed { what: WHAT, detail: detail() })
}

fn write_condition(condition: &CommitCondition) -> pb::CommitCondition {
    use pb::commit_condition::Condition as Wire;
    let condition = match condition {
        CommitCondition::Compare(compare) => Wire::Compare(write_compare(compare)),
        CommitCondition::Entity(entity, test, epoch) => Wire::Entity(write_test(entity, *test, *epoch)),
    };
    pb::CommitCondition { condition: Some(condition) }
}

fn read_condition(condition: pb::CommitCondition) -> Result<CommitCondition, CodecError> {
    use pb::commit_condition::Condition as Wire;
    Ok(match required(condition.condition, "CommitCondition.condition")? {
        Wire::Compare(compare) => CommitCondition::Compare(read_compare(compare)?),
        Wire::Entity(test) => {
            let epoch = test.epoch.map(StoreEpoch);
            let (entity, test) = read_test(test)?;
            CommitCondition::Entity(entity, test, epoch)
        }
    })
}

fn write_test(entity: &CommitEntity, test: EntityTest, epoch: Option<StoreEpoch>) -> pb::CommitEntityTest {
    use pb::commit_entity_test::{Entity, Test};
    let instance = |service: &String, node: &String, id: &str| pb::CommitInstance {
        service: service.clone(),
        node: node.clone(),
        id: id.to_owned(),
    };
    let entity = match entity {
        CommitEntity::Key(key) => Entity::Key(key.clone()),
        CommitEntity::KeysBelow(key) => Entity::KeysBelow(key.clone()),
        CommitEntity::Resource(id) => Entity::Resource(id.clone().into()),
        CommitEntity::Resources(Selector { type_, tenancy, name_prefix }) => Entity::Resources(
            ResourceId {
                uid: String::new(),
                name: name_prefix.clone(),
                type_: type_.clone(),
                tenancy: tenancy.clone(),
            }
            .into(),
        ),
        CommitEntity::Instance { service, node, id } => Entity::Instance(instance(service, node, id)),
        CommitEntity::Instances { service, node } => Entity::Instances(instance(service, node, "")),
        CommitEntity::Node(name) => Entity::Node(name.clone()),
        CommitEntity::Lease(id) => Entity::Lease(id.get()),
    };
    let test = match test {
        EntityTest::Index(index) => Test::Index(index.get()),
        EntityTest::UnchangedSince(index) => Test::UnchangedSince(index.get()),
        EntityTest::Exists(exists) => Test::Exists(exists),
    };
    pb::CommitEntityTest { entity: Some(entity), test: Some(test), epoch: epoch.map(StoreEpoch::get) }
}

fn read_test(test: pb::CommitEntityTest) -> Result<(CommitEntity, EntityTest), CodecError> {
    use pb::commit_entity_test::{Entity, Test};
    let id = |id: pbresource::Id| ResourceId::from(id);
    let entity = match required(test.entity, "CommitEntityTest.entity")? {
        Entity::Key(key) => CommitEntity::Key(key),
        Entity::KeysBelow(key) => CommitEntity::KeysBelow(key),
        Entity::Resource(named) => CommitEntity::Resource(id(named)),
        Entity::Resources(named) => {
            let ResourceId { name, type_, tenancy, .. } = id(named);
            CommitEntity::Resources(Selector { type_, tenancy, name_prefix: name })
        }
        Entity::Instance(pb::CommitInstance { service, node, id }) => CommitEntity::Instance { service, node, id },
        Entity::Instances(pb::CommitInstance { service, node, .. }) => CommitEntity::Instances { service, node },
        Entity::Node(name) => CommitEntity::Node(name),
        Entity::Lease(id) => CommitEntity::Lease(LeaseId(id)),
    };
    let test = match required(test.test, "CommitEntityTest.test")? {
        Test::Index(index) => EntityTest::Index(LogIndex(index)),
        Test::UnchangedSince(index) => EntityTest::UnchangedSince(LogIndex(index)),
        Test::Exists(exists) => EntityTest::Exists(exists),
    };
    Ok((entity, test))
}

fn write_operation(operation: &CommitOp) -> pb::CommitOperation {
    use pb::commit_operation::Operation as Wire;
    let consul = |command: ConsulCommand| Wire::Consul(consul::write_command(&command));
    let operation = match operation.of_face() {
        FaceOp::Put(put) => Wire::Put(write_put(put)),
        FaceOp::DeleteRange(delete) => Wire::DeleteRange(write_delete(delete)),
        FaceOp::LeaseGrant(grant) => Wire::LeaseGrant(lease::write_grant(grant)),
        FaceOp::LeaseRevoke(revoke) => Wire::LeaseRevoke(lease::write_revoke(revoke)),
        FaceOp::Resource(command) => Wire::Resource(resource::write_command(command)),
        FaceOp::Catalog(command) => Wire::Catalog(catalog::write_command(command)),
        FaceOp::ConsulKv(op) => consul(ConsulCommand::Kv(op.clone())),
        FaceOp::SessionCreate(create) => consul(ConsulCommand::SessionCreate(Box::new(create.clone()))),
        FaceOp::SessionDestroy(id) => consul(ConsulCommand::SessionDestroy(id.to_owned())),
    };
    pb::CommitOperation { operation: Some(operation) }
}

fn read_operation(operation: pb::CommitOperation) -> Result<CommitOp, CodecError> {
    use pb::commit_operation::Operation as Wire;
    let command = match required(operation.operation, "CommitOperation.operation")? {
        Wire::Put(put) => Command::Put(read_put(put)?),
        Wire::DeleteRange(delete) => Command::DeleteRange(read_delete(delete)?),
        Wire::LeaseGrant(grant) => Command::LeaseGrant(lease::read_grant(&grant)),
        Wire::LeaseRevoke(revoke) => Command::LeaseRevoke(lease::read_revoke(&revoke)),
        Wire::Resource(command) => Command::Resource(resource::read_command(command)?),
        Wire::Catalog(command) => Command::Catalog(catalog::read_command(command)?),
        Wire::Consul(command) => Command::Consul(consul::read_command(command)?),
    };
    let detail = |command: &Command| format!("no commit can contain: {}", command.summary());
    CommitOp::new(command).map_err(|command| CodecError::Malformed { what: WHAT, detail: detail(&command) })
}

pub(super) fn write_outcome(outcome: &CommitOutcome) -> pb::CommitOutcome {
    use pb::commit_outcome::Outcome as Wire;
    let outcome = match outcome {
        CommitOutcome::Done(CommitDone { index, revision, is_repeated, results }) => Wire::Done(pb::CommitDone {
            index: index.get(),
            revision: revision.get(),
            repeated_commit: *is_repeated,
            results: results.iter().map(write_result).collect(),
        }),
        CommitOutcome::Failed(fault) => Wire::Failed(write_fault(*fault)),
    };
    pb::CommitOutcome { outcome: Some(outcome) }
}

pub(super) fn read_outcome(outcome: pb::CommitOutcome) -> Result<CommitOutcome, CodecError> {
    use pb::commit_outcome::Outcome as Wire;
    Ok(match outcome.outcome.ok_or(CodecError::UnknownOutcome)? {
        Wire::Done(done) => CommitOutcome::Done(CommitDone {
            index: LogIndex(done.index),
            revision: Revision(done.revision),
            is_repeated: done.repeated_commit,
            results: done.results.into_iter().map(read_result).collect::<Result<_, _>>()?,
        }),
        Wire::Failed(fault) => CommitOutcome::Failed(read_fault(fault)?),
    })
}

fn write_result(result: &CommitResult) -> pb::CommitResult {
    use pb::commit_result::Result as Wire;
    let deleted = |deleted, prev: &[_]| Deleted { revision: Revision::default(), deleted, prev: prev.to_vec() };
    let result = match result {
        CommitResult::Put { prev } => {
            Wire::Put(write_put_done(&PutDone { revision: Revision::default(), prev: prev.clone() }))
        }
        CommitResult::Deleted { deleted: count, prev } => Wire::Deleted(write_deleted(&deleted(*count, prev))),
        CommitResult::LeaseGranted { id, ttl_seconds } => {
            Wire::LeaseGranted(pb::CommitLease { id: id.get(), ttl_seconds: *ttl_seconds })
        }
        CommitResult::LeaseRevoked { deleted } => Wire::LeaseRevoked(pb::LeaseEnded { deleted: *deleted }),
        CommitResult::ResourceWritten(resource) => {
            Wire::Resource(resource::write_outcome(&ResourceOutcome::Written(resource.clone())))
        }
        CommitResult::ResourceDeleted(deletion) => {
            Wire::Resource(resource::write_outcome(&ResourceOutcome::Deleted(*deletion)))
        }
        CommitResult::Catalog { changed } => Wire::Catalog(catalog::write_done(CatalogDone { changed: *changed })),
        CommitResult::SessionCreated { id } => Wire::SessionCreated(id.clone()),
        CommitResult::SessionDestroyed => Wire::SessionDestroyed(pb::Unit {}),
        CommitResult::ConsulKv => Wire::ConsulKv(pb::Unit {}),
    };
    pb::CommitResult { result: Some(result) }
}

fn read_result(result: pb::CommitResult) -> Result<CommitResult, CodecError> {
    use pb::commit_result::Result as Wire;
    Ok(match result.result.ok_or(CodecError::UnknownOutcome)? {
        Wire::Put(put) => CommitResult::Put { prev: read_put_done(put).prev },
        Wire::Deleted(deleted) => {
            let Deleted { deleted, prev, .. } = read_deleted(deleted);
            CommitResult::Deleted { deleted, prev }
        }
        Wire::LeaseGranted(lease) => {
            CommitResult::LeaseGranted { id: LeaseId(lease.id), ttl_seconds: lease.ttl_seconds }
        }
        Wire::LeaseRevoked(ended) => CommitResult::LeaseRevoked { deleted: ended.deleted },
        Wire::Resource(outcome) => match resource::read_outcome(outcome)? {
            ResourceOutcome::Written(resource) => CommitResult::ResourceWritten(resource),
            ResourceOutcome::Deleted(deletion) => CommitResult::ResourceDeleted(deletion),
            ResourceOutcome::Reaped(_) => return Err(CodecError::UnknownOutcome),
        },
        Wire::Catalog(done) => CommitResult::Catalog { changed: catalog::read_done(&done).changed },
        Wire::SessionCreated(id) => CommitResult::SessionCreated { id },
        Wire::SessionDestroyed(pb::Unit {}) => CommitResult::SessionDestroyed,
        Wire::ConsulKv(pb::Unit {}) => CommitResult::ConsulKv,
    })
}

fn write_fault(fault: CommitFault) -> pb::CommitFault {
    use pb::commit_condition_fault::Reason as Unmet;
    use pb::commit_fault::Fault;
    use pb::commit_operation_fault::Reason;
    let fault = match fault {
        CommitFault::Condition { condition, reason } => {
            let reason = match reason {
                ConditionFault::Failed { changed } => Unmet::Failed(changed.get()),
                ConditionFault::Compacted { oldest } => Unmet::Compacted(oldest.get()),
                ConditionFault::Future { newest } => Unmet::Future(newest.get()),
                ConditionFault::OtherEpoch => Unmet::OtherEpoch(pb::Unit {}),
                ConditionFault::TooMuchRead => Unmet::TooMuchRead(pb::Unit {}),
            };
            Fault::Condition(pb::CommitConditionFault { condition, reason: Some(reason) })
        }
        CommitFault::Operation { operation, reason } => {
            let reason = match reason {
                CommitOpFault::Refused(refusal) => Reason::Refused(write_refusal(refusal)),
                CommitOpFault::Kv(reason) => Reason::Kv(consul::write_fault(&TxnFault { op: 0, reason })),
            };
            Fault::Operation(pb::CommitOperationFault { operation, reason: Some(reason) })
        }
        CommitFault::SameEntity { first, second } => Fault::SameEntity(pb::CommitSameEntity { first, second }),
        CommitFault::OtherBody => Fault::OtherBody(pb::Unit {}),
        CommitFault::TooManyKeys => Fault::TooManyKeys(pb::Unit {}),
    };
    pb::CommitFault { fault: Some(fault) }
}

fn read_fault(fault: pb::CommitFault) -> Result<CommitFault, CodecError> {
    use pb::commit_condition_fault::Reason as Unmet;
    use pb::commit_fault::Fault;
    use pb::commit_operation_fault::Reason;
    Ok(match fault.fault.ok_or(CodecError::UnknownOutcome)? {
        Fault::Condition(pb::CommitConditionFault { condition, reason }) => {
            let reason = match reason.ok_or(CodecError::UnknownOutcome)? {
                Unmet::Failed(changed) => ConditionFault::Failed { changed: LogIndex(changed) },
                Unmet::Compacted(oldest) => ConditionFault::Compacted { oldest: LogIndex(oldest) },
                Unmet::Future(newest) => ConditionFault::Future { newest: LogIndex(newest) },
                Unmet::OtherEpoch(pb::Unit {}) => ConditionFault::OtherEpoch,
                Unmet::TooMuchRead(pb::Unit {}) => ConditionFault::TooMuchRead,
            };
            CommitFault::Condition { condition, reason }
        }
        Fault::Operation(pb::CommitOperationFault { operation, reason }) => {
            let reason = match reason.ok_or(CodecError::UnknownOutcome)? {
                Reason::Refused(refusal) => CommitOpFault::Refused(read_refusal(&refusal)?),
                Reason::Kv(fault) => CommitOpFault::Kv(consul::read_fault(fault)?.reason),
            };
            CommitFault::Operation { operation, reason }
        }
        Fault::SameEntity(pb::CommitSameEntity { first, second }) => CommitFault::SameEntity { first, second },
        Fault::OtherBody(pb::Unit {}) => CommitFault::OtherBody,
        Fault::TooManyKeys(pb::Unit {}) => CommitFault::TooManyKeys,
    })
}

#[cfg(test)]
#[path = "commit_tests.rs"]
mod tests;
