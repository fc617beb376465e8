//! Commits of several faces: everything that is decided before a proposal (`docs/commits.md`).
//!
//! Owns the order of the checks, the choices of ids, and the hash of an idempotency key. The rights
//! of all operations are judged before any data that the request names is read. Knows no wire
//! format. Invariant: two requests with the same content have the same hash, whatever the node has
//! chosen for each.

use std::fmt;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::resource::TYPE_CHANGES_MAX;
use crate::{Consistency, Node, NodeError, Read, RequestContext, ResourceError, Unanswered, new_uuid};
use headwater_proto::codec;
use headwater_types::catalog::{CatalogCommand, Deregistration, Registration, RegistrationProblem};
use headwater_types::commit::{
    Commit, CommitCondition, CommitDone, CommitFault, CommitKey, CommitOp, CommitOpFault, CommitOutcome, KeptCommit,
};
use headwater_types::consul::{ConsulCommand, KvOp, SessionCreate, SessionRefusal};
use headwater_types::limits::COMMIT_KEY_BYTES_MAX;
use headwater_types::resource::{
    ProposerChoices, Resource, ResourceCommand, ResourceDelete, ResourceId, ResourceRefusal, ResourceWrite,
    ResourceWriteStatus, Status,
};
use headwater_types::{
    AuthRefusal, Command, DeleteRange, LeaseGrant, LeaseId, LeaseRevoke, LogIndex, Outcome, Proposer, Put, Refusal,
};

/// A commit as its client sent it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitRequest {
    /// Conditions on the state before the commit.
    pub conditions: Vec<CommitCondition>,
    /// The operations.
    pub operations: Vec<NewOperation>,
    /// The idempotency key; empty for none. At most [`COMMIT_KEY_BYTES_MAX`] bytes.
    pub key: Bytes,
}

/// One operation of a request, without the node's choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewOperation {
    /// Writes a key.
    Put(Put),
    /// Removes an interval of keys.
    DeleteRange(DeleteRange),
    /// Grants a lease.
    GrantLease {
        /// Id of the lease; [`LeaseId::NONE`] if the node picks it.
        id: LeaseId,
        /// Time to live, whole seconds; raised to the minimum.
        ttl_seconds: i64,
    },
    /// Revokes a lease.
    RevokeLease(LeaseId),
    /// Creates or replaces a resource.
    WriteResource {
        /// The resource.
        resource: Box<Resource>,
        /// The version that the stored resource must have, if given.
        expected: Option<LogIndex>,
    },
    /// Replaces one status of a resource.
    WriteStatus {
        /// Id of the resource.
        id: ResourceId,
        /// Key of the status.
        key: String,
        /// The status; its time is set by the node.
        status: Status,
        /// The version that the stored resource must have, if given.
        expected: Option<LogIndex>,
    },
    /// Deletes a resource, or marks it for deletion.
    DeleteResource {
        /// Id of the resource.
        id: ResourceId,
        /// The version that the stored resource must have, if given.
        expected: Option<LogIndex>,
    },
    /// Registers a node, an instance, or checks.
    Register(Box<Registration>),
    /// Deregisters a node, an instance, or a check.
    Deregister(Deregistration),
    /// Creates a session. The node picks an id if there is none.
    CreateSession(Box<SessionCreate>),
    /// Ends a session, by id.
    DestroySession(String),
    /// An operation on Consul's keys that does not read values.
    ConsulKv(KvOp),
}

/// The reason for which a commit changed nothing, or for which its effect is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CommitError {
    /// An operation was refused before the commit was proposed.
    #[error("operations[{operation}]: {error}")]
    Operation {
        /// Number of the operation, from 0.
        operation: u32,
        /// The error of its face.
        error: Box<OperationError>,
    },
    /// The principal lacks the right that a part of the commit needs. Nothing changed.
    #[error("{0}: permission denied")]
    Denied(CommitPart),
    /// The commit was applied and changed nothing.
    #[error(transparent)]
    Failed(#[from] CommitFault),
    /// Any other error of the node; the commit may be indeterminate.
    #[error(transparent)]
    Node(#[from] NodeError),
}

/// A condition or an operation of a commit, by its number from 0 in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitPart {
    /// A condition.
    Condition(u32),
    /// An operation.
    Operation(u32),
}

impl fmt::Display for CommitPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Condition(number) => write!(f, "conditions[{number}]"),
            Self::Operation(number) => write!(f, "operations[{number}]"),
        }
    }
}

/// The reason for which an operation was refused before the commit was proposed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OperationError {
    /// An operation on a resource was refused.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// A registration, or a deregistration, is invalid: a field is missing or has an illegal
    /// value, or two fields contradict each other.
    #[error(transparent)]
    Catalog(#[from] RegistrationProblem),
    /// The operation reads values, and so cannot be part of a commit.
    #[error(
        "an operation that reads values cannot be part of a commit: read with Store.Read, and guard with a condition"
    )]
    Read,
}

fn of_operation(operation: u32, error: impl Into<OperationError>) -> CommitError {
    match error.into() {
        // Other errors of the node are about no operation.
        OperationError::Resource(ResourceError::Node(error))
            if !matches!(error, NodeError::Refused(Refusal::Resource(_))) =>
        {
            CommitError::Node(error)
        }
        error => CommitError::Operation { operation, error: Box::new(error) },
    }
}

impl Node {
    /// Commits operations of any faces in one log entry: all or none. A repetition of an earlier
    /// commit, with the same idempotency key and content, changes nothing and returns the earlier
    /// results ([`CommitDone::is_repeated`]).
    ///
    /// # Errors
    ///
    /// [`CommitError::Operation`], [`CommitError::Denied`] and [`CommitError::Failed`]: nothing
    /// changed.
    /// [`CommitError::Node`]: as [`Node::propose`]; an indeterminate commit with an idempotency key
    /// can be sent again.
    pub async fn commit(
        &self,
        ctx: &RequestContext,
        mut request: CommitRequest,
    ) -> Result<Read<CommitDone>, CommitError> {
        debug_assert!(request.key.len() <= COMMIT_KEY_BYTES_MAX, "invariant: checked by the face");
        self.ready_to_read(ctx, Consistency::Serializable).await?;
        for (number, operation) in (0u32..).zip(&mut request.operations) {
            complete(operation).map_err(|error| of_operation(number, error))?;
        }
        let asked = as_asked(&request)?;
        let permitted = self.permit_commit(ctx, &request, &asked).await;
        if let Err(error @ (CommitError::Node(_) | CommitError::Denied(_))) = permitted {
            return Err(error);
        }
        let key = self.commit_key(ctx, &request, &asked)?;
        if let Err(error) = permitted {
            // Nothing was denied. The commit may have been done before its type was removed.
            return self.repeated(ctx, key).await?.ok_or(error);
        }
        for _ in 0..TYPE_CHANGES_MAX {
            let operations = match self.prepare_operations(ctx, &request).await {
                Ok(operations) => operations,
                // What is refused now may have been done before.
                Err(error) => return self.repeated(ctx, key).await?.ok_or(error),
            };
            let commit = Commit { conditions: request.conditions.clone(), operations, key };
            let applied = self.propose(ctx, Command::Commit(Box::new(commit))).await?;
            match applied.outcome {
                Outcome::Commit(CommitOutcome::Done(value)) => {
                    return Ok(Read { index: applied.index, revision: applied.revision, value });
                }
                Outcome::Commit(CommitOutcome::Failed(fault)) => self.retry_or_fail(ctx, &request, fault).await?,
                outcome => {
                    tracing::error!(?outcome, "a commit came to something else");
                    return Err(NodeError::Indeterminate(Unanswered::LeaderFailed).into());
                }
            }
        }
        Err(NodeError::TooManyRequests.into())
    }

    /// The outcome of an earlier commit with the same key and the same content. `None` without a
    /// key, or if no such commit is kept.
    async fn repeated(
        &self,
        ctx: &RequestContext,
        key: Option<CommitKey>,
    ) -> Result<Option<Read<CommitDone>>, CommitError> {
        let Some(CommitKey { id, body }) = key else { return Ok(None) };
        self.ready_to_read(ctx, Consistency::Linearizable).await?;
        let Read { index, revision, value } = self.read(true, ctx, move |view| Ok(Ok(view.kept_commit(&id)?))).await?;
        let Some(kept) = value.filter(|kept| kept.body == body) else { return Ok(None) };
        let KeptCommit { index: at, revision: made, results, .. } = kept;
        let value = CommitDone { index: at, revision: made, is_repeated: true, results };
        Ok(Some(Read { index, revision, value }))
    }

    /// `Ok` if a failed commit is to be proposed again: the node chose an id that is taken, or read
    /// a type that has changed since. The commit's error otherwise. After a change of a type, first
    /// waits for the current state.
    async fn retry_or_fail(
        &self,
        ctx: &RequestContext,
        request: &CommitRequest,
        fault: CommitFault,
    ) -> Result<(), CommitError> {
        let CommitFault::Operation { operation, reason: CommitOpFault::Refused(refusal) } = fault else {
            return Err(fault.into());
        };
        match (refusal, request.operations.get(operation as usize)) {
            // The type was registered again since this node has judged the data.
            (Refusal::Resource(ResourceRefusal::TypeChanged), _) => {
                Ok(self.ready_to_read(ctx, Consistency::Linearizable).await?)
            }
            // The random id is taken, or zero.
            (Refusal::LeaseExists | Refusal::LeaseNotFound, Some(NewOperation::GrantLease { id, .. }))
                if !id.is_some() =>
            {
                Ok(())
            }
            (Refusal::Session(SessionRefusal::Exists), Some(NewOperation::CreateSession(create)))
                if create.session.id.is_empty() =>
            {
                Ok(())
            }
            _ => Err(fault.into()),
        }
    }

    /// Checks the rights to all conditions and operations, before the data of resources is checked.
    ///
    /// # Errors
    ///
    /// A denial, if one was found; else the first other error. [`CommitError::Operation`], such as
    /// for an unknown type, means that nothing was denied: [`repeated`](Self::repeated) may answer
    /// the request.
    async fn permit_commit(
        &self,
        ctx: &RequestContext,
        request: &CommitRequest,
        asked: &Commit,
    ) -> Result<(), CommitError> {
        // Keys of resources depend on the scopes of their types: they are judged below.
        if self.authorizer(ctx)?.is_open() && !asked.operations.iter().any(is_of_resource) {
            return Ok(());
        }
        let others = Commit {
            operations: asked.operations.iter().filter(|operation| !is_of_resource(operation)).cloned().collect(),
            conditions: asked.conditions.clone(),
            key: None,
        };
        let others = Command::Commit(Box::new(others));
        if self.authorize_locally(ctx, &others)?.1.is_err() {
            // Reads the current state, and notes a denial.
            let permitted = self.authorize_command(ctx, &others).await;
            permitted.map_err(|error| self.name_denied(ctx, asked, error))?;
        }
        let mut first = None;
        for (number, operation) in (0u32..).zip(&request.operations) {
            let resources = self.resources();
            let judged = match operation {
                NewOperation::WriteResource { resource, .. } => resources.permit_resource(ctx, resource).await,
                NewOperation::WriteStatus { id, .. } | NewOperation::DeleteResource { id, .. } => {
                    resources.permit_write(ctx, id).await.map(drop)
                }
                _ => Ok(()),
            };
            let Err(error) = judged else { continue };
            match of_operation(number, error) {
                CommitError::Node(NodeError::DENIED) => return Err(CommitError::Denied(CommitPart::Operation(number))),
                error @ CommitError::Node(NodeError::Refused(Refusal::Auth(_))) => return Err(error),
                error => {
                    first.get_or_insert(error);
                }
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Names the first part of a denied commit that would be denied alone, other than operations on
    /// resources. Returns `error` unchanged if it is no denial, or if no part is denied any more.
    fn name_denied(&self, ctx: &RequestContext, asked: &Commit, error: NodeError) -> CommitError {
        if error != NodeError::DENIED {
            return error.into();
        }
        let is_denied = |(_, alone): &(CommitPart, Commit)| {
            let judged = self.authorize_locally(ctx, &Command::Commit(Box::new(alone.clone())));
            matches!(judged, Ok((_, Err(AuthRefusal::PermissionDenied))))
        };
        parts(asked).find(is_denied).map_or_else(|| error.into(), |(part, _)| CommitError::Denied(part))
    }

    /// Hashes of the idempotency key and of the content of a request; `None` if it has no key. The
    /// hash of the key includes the principal, so that equal keys of two principals differ.
    fn commit_key(
        &self,
        ctx: &RequestContext,
        request: &CommitRequest,
        asked: &Commit,
    ) -> Result<Option<CommitKey>, CommitError> {
        if request.key.is_empty() {
            return Ok(None);
        }
        let command = Command::Commit(Box::default());
        let principal = match self.authorizer(ctx)?.proposer(&command) {
            None => String::new(),
            Some(Proposer::System) => "system".to_owned(),
            Some(Proposer::User { name, .. }) => format!("user:{name}"),
            Some(Proposer::Token { accessor, .. }) => format!("token:{accessor}"),
        };
        let id = half(Sha256::new().chain_update(principal).chain_update([0]).chain_update(&request.key));
        let body = half(Sha256::new().chain_update(codec::commit_body(asked)));
        Ok(Some(CommitKey { id, body }))
    }

    /// The operations to propose, with everything that the node chooses and looks up.
    async fn prepare_operations(
        &self,
        ctx: &RequestContext,
        request: &CommitRequest,
    ) -> Result<Vec<CommitOp>, CommitError> {
        let new_leases = new_leases(&request.operations);
        if new_leases > 0 {
            self.leases().check_quota(ctx, new_leases).await?;
        }
        let resources = self.resources();
        let mut operations = Vec::with_capacity(request.operations.len());
        for (number, operation) in (0u32..).zip(&request.operations) {
            let of_resource = |command: Result<ResourceCommand, ResourceError>| {
                command.map(Command::Resource).map_err(|error| of_operation(number, error))
            };
            let command = match operation {
                NewOperation::WriteResource { resource, expected } => {
                    of_resource(resources.write_command(ctx, Resource::clone(resource), *expected).await)?
                }
                NewOperation::WriteStatus { id, key, status, expected } => of_resource(
                    resources.status_command(ctx, id.clone(), key.clone(), status.clone(), *expected).await,
                )?,
                NewOperation::DeleteResource { id, expected } => {
                    of_resource(resources.delete_command(ctx, id.clone(), *expected).await)?
                }
                NewOperation::GrantLease { id, ttl_seconds } => {
                    Command::LeaseGrant(self.leases().grant_command(*id, *ttl_seconds))
                }
                NewOperation::CreateSession(create) if create.session.id.is_empty() => {
                    let mut create = create.clone();
                    create.session.id = new_uuid();
                    Command::Consul(ConsulCommand::SessionCreate(create))
                }
                other => as_command(other),
            };
            operations.push(CommitOp::new(command).map_err(|_| of_operation(number, OperationError::Read))?);
        }
        Ok(operations)
    }
}

fn is_of_resource(operation: &CommitOp) -> bool {
    matches!(operation.command(), Command::Resource(_))
}

/// The conditions of a commit and its operations, other than those on resources: each as a commit
/// of its own.
fn parts(asked: &Commit) -> impl Iterator<Item = (CommitPart, Commit)> {
    let conditions = (0u32..).zip(&asked.conditions).map(|(number, condition)| {
        let alone = Commit { conditions: vec![condition.clone()], ..Commit::default() };
        (CommitPart::Condition(number), alone)
    });
    let operations = (0u32..).zip(&asked.operations).filter(|(_, operation)| !is_of_resource(operation));
    conditions.chain(operations.map(|(number, operation)| {
        let alone = Commit { operations: vec![operation.clone()], ..Commit::default() };
        (CommitPart::Operation(number), alone)
    }))
}

/// Number of leases that the operations grant.
fn new_leases(operations: &[NewOperation]) -> u64 {
    operations.iter().filter(|operation| matches!(operation, NewOperation::GrantLease { .. })).count() as u64
}

/// Checks a registration and fills in its defaults, or checks a deregistration. Does nothing for
/// other operations.
fn complete(operation: &mut NewOperation) -> Result<(), RegistrationProblem> {
    match operation {
        NewOperation::Register(registration) => registration.complete(),
        NewOperation::Deregister(deregistration) => deregistration.check(),
        _ => Ok(()),
    }
}

/// The request as a commit in which nothing was chosen or looked up: for its hash.
fn as_asked(request: &CommitRequest) -> Result<Commit, CommitError> {
    let numbered = (0u32..).zip(&request.operations);
    let operation = |(number, operation)| {
        CommitOp::new(as_command(operation)).map_err(|_| of_operation(number, OperationError::Read))
    };
    Ok(Commit {
        conditions: request.conditions.clone(),
        operations: numbered.map(operation).collect::<Result<_, _>>()?,
        key: None,
    })
}

/// The command of an operation, with the client's fields alone: those that the node chooses or
/// looks up are empty.
fn as_command(operation: &NewOperation) -> Command {
    match operation {
        NewOperation::Put(put) => Command::Put(put.clone()),
        NewOperation::DeleteRange(delete) => Command::DeleteRange(delete.clone()),
        NewOperation::GrantLease { id, ttl_seconds } => {
            Command::LeaseGrant(LeaseGrant { id: *id, ttl_seconds: *ttl_seconds })
        }
        NewOperation::RevokeLease(id) => Command::LeaseRevoke(LeaseRevoke { id: *id }),
        NewOperation::WriteResource { resource, expected } => {
            Command::Resource(ResourceCommand::Write(Box::new(ResourceWrite {
                resource: Resource::clone(resource),
                expected: *expected,
                uid: String::new(),
                generation: String::new(),
                type_version: LogIndex::ZERO,
                registers: None,
            })))
        }
        NewOperation::WriteStatus { id, key, status, expected } => {
            Command::Resource(ResourceCommand::WriteStatus(Box::new(ResourceWriteStatus {
                id: id.clone(),
                expected: *expected,
                key: key.clone(),
                status: status.clone(),
            })))
        }
        NewOperation::DeleteResource { id, expected } => {
            let (id, chosen) = (id.clone(), ProposerChoices::default());
            Command::Resource(ResourceCommand::Delete(Box::new(ResourceDelete { id, expected: *expected, chosen })))
        }
        NewOperation::Register(registration) => Command::Catalog(CatalogCommand::Register(registration.clone())),
        NewOperation::Deregister(gone) => Command::Catalog(CatalogCommand::Deregister(Box::new(gone.clone()))),
        NewOperation::CreateSession(create) => Command::Consul(ConsulCommand::SessionCreate(create.clone())),
        NewOperation::DestroySession(id) => Command::Consul(ConsulCommand::SessionDestroy(id.clone())),
        NewOperation::ConsulKv(op) => Command::Consul(ConsulCommand::Kv(op.clone())),
    }
}

/// The first half of a hash.
fn half(hash: Sha256) -> [u8; 16] {
    let digest = hash.finalize();
    let (first, _) = digest.split_first_chunk().expect("a digest has 32 bytes");
    *first
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::{LeaseChoice, ValueChoice};

    fn put(key: &'static str) -> NewOperation {
        NewOperation::Put(Put {
            key: key.into(),
            value: ValueChoice::Set("v".into()),
            lease: LeaseChoice::Set(LeaseId::NONE),
            prev_kv: false,
        })
    }

    #[test]
    fn the_hash_is_of_what_the_client_sent() {
        let body = |operations: Vec<NewOperation>| {
            let request = CommitRequest { operations, ..CommitRequest::default() };
            codec::commit_body(&as_asked(&request).unwrap())
        };
        let resource = |name: &str| NewOperation::WriteResource {
            resource: Box::new(Resource {
                id: ResourceId { name: name.to_owned(), ..ResourceId::default() },
                ..Resource::default()
            }),
            expected: None,
        };
        let all = || vec![put("a"), resource("r"), NewOperation::GrantLease { id: LeaseId::NONE, ttl_seconds: 5 }];
        assert_eq!(body(all()), body(all()));
        assert_ne!(body(all()), body(vec![put("b"), resource("r")]));
        assert_ne!(body(vec![resource("r")]), body(vec![resource("s")]));
    }

    #[test]
    fn each_part_is_named_by_its_number_in_the_request() {
        let resource = NewOperation::DeleteResource { id: ResourceId::default(), expected: None };
        let request = CommitRequest { operations: vec![put("a"), resource, put("b")], ..CommitRequest::default() };
        let asked = as_asked(&request).unwrap();
        let named: Vec<_> = parts(&asked).map(|(part, alone)| (part.to_string(), alone.operations)).collect();
        let [a, _, b] = &asked.operations[..] else { panic!("three operations") };
        let wanted = [("operations[0]".to_owned(), vec![a.clone()]), ("operations[2]".to_owned(), vec![b.clone()])];
        assert_eq!(named, wanted, "operations on resources are judged apart");
        assert_eq!(CommitError::Denied(CommitPart::Condition(1)).to_string(), "conditions[1]: permission denied");
    }

    #[test]
    fn every_new_lease_counts() {
        let grant = |id| NewOperation::GrantLease { id: LeaseId(id), ttl_seconds: 5 };
        assert_eq!(new_leases(&[grant(0), put("a"), grant(0), NewOperation::RevokeLease(LeaseId(7)), grant(8)]), 3);
        assert_eq!(new_leases(&[put("a")]), 0);
    }

    #[test]
    fn an_operation_that_reads_is_refused() {
        let op = KvOp {
            verb: headwater_types::consul::KvVerb::Get,
            path: "p".into(),
            value: Bytes::new(),
            flags: 0,
            index: LogIndex::ZERO,
            session: String::new(),
        };
        let request =
            CommitRequest { operations: vec![put("a"), NewOperation::ConsulKv(op)], ..CommitRequest::default() };
        assert_eq!(as_asked(&request), Err(of_operation(1, OperationError::Read)));
    }
}
