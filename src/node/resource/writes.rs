//! Write, write a status, delete, and validate a write without storing it (spec: consul §5.6 to
//! §5.9, §5.14).

use std::sync::Arc;

use super::TypedResources;
use super::error::ResourceError;
use super::prepare::{Prepared, Wildcards, complete_tenancy, unit_refusal, writable};
use crate::{Consistency, NodeError, Read, RequestContext, Unanswered, unix_ms};
use headwater_types::resource::{
    ProposerChoices, Resource, ResourceCommand, ResourceDelete, ResourceDeletion, ResourceId, ResourceOutcome,
    ResourceReap, ResourceReaped, ResourceRefusal, ResourceWrite, ResourceWriteStatus, Status, Tenancy, Timestamp,
    ulid_text,
};
use headwater_types::{Access, Applied, Command, LogIndex, Outcome, Refusal};

/// Most attempts of a write, count, if its type is registered again during each of them.
pub(crate) const TYPE_CHANGES_MAX: usize = 5;
/// Random bits in a ULID.
const CHANCE_BITS: u32 = 80;

/// A new ULID: milliseconds since 1970, then random bits.
fn ulid() -> u128 {
    let chance = rand::random::<u128>() & ((1 << CHANCE_BITS) - 1);
    (u128::from(unix_ms()) & ((1 << 48) - 1)) << CHANCE_BITS | chance
}

/// The ULID and the time that the node chooses for one command.
fn choose() -> ProposerChoices {
    let now = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
    ProposerChoices { ulid: ulid(), now }
}

impl TypedResources<'_> {
    /// Creates or replaces a resource, and returns it as stored. With `expected`, only if the
    /// stored version is that one.
    ///
    /// # Errors
    ///
    /// [`ResourceError`] if the resource is invalid or the write is not allowed;
    /// [`ResourceError::Unsettled`] if its type changes during every attempt;
    /// [`ResourceError::Node`] with the errors of [`Node::propose`](crate::Node::propose).
    pub async fn write(
        self,
        ctx: &RequestContext,
        resource: Resource,
        expected: Option<LogIndex>,
    ) -> Result<Read<Resource>, ResourceError> {
        self.node.ready_to_read(ctx, Consistency::Serializable).await?;
        self.permit_resource(ctx, &resource).await?;
        for _ in 0..TYPE_CHANGES_MAX {
            let write = self.write_command(ctx, resource.clone(), expected).await?;
            match self.propose(ctx, write).await {
                // The type was registered again or removed since: this node lags behind the leader,
                // or its state has changed since the validation.
                Err(NodeError::Refused(Refusal::Resource(ResourceRefusal::TypeChanged))) => {
                    self.node.ready_to_read(ctx, Consistency::Linearizable).await?;
                }
                done => return written(done?),
            }
        }
        Err(ResourceError::Unsettled(resource.id.type_))
    }

    /// Replaces the status `key` of a resource, and sets the status's time to now. With `expected`,
    /// only if the stored version of the resource is that one.
    ///
    /// # Errors
    ///
    /// [`ResourceError::NotFound`] if the resource is missing; otherwise as
    /// [`TypedResources::write`].
    pub async fn write_status(
        self,
        ctx: &RequestContext,
        id: ResourceId,
        key: String,
        status: Status,
        expected: Option<LogIndex>,
    ) -> Result<Read<Resource>, ResourceError> {
        self.node.ready_to_read(ctx, Consistency::Serializable).await?;
        let write = self.status_command(ctx, id, key, status, expected).await?;
        match self.propose(ctx, write).await {
            Err(NodeError::Refused(Refusal::Resource(ResourceRefusal::NotFound))) => {
                Err(ResourceError::NotFound(ResourceRefusal::NotFound))
            }
            done => written(done?),
        }
    }

    /// Deletes a resource. Only marks it if it has finalizers, or is a unit of tenancy with
    /// resources. With `expected`, only if the stored version is that one. Deleting a missing
    /// resource succeeds.
    ///
    /// # Errors
    ///
    /// As [`TypedResources::write`].
    pub async fn delete(
        self,
        ctx: &RequestContext,
        id: ResourceId,
        expected: Option<LogIndex>,
    ) -> Result<Read<ResourceDeletion>, ResourceError> {
        self.node.ready_to_read(ctx, Consistency::Serializable).await?;
        let delete = self.delete_command(ctx, id, expected).await?;
        let applied = self.propose(ctx, delete).await?;
        match applied.outcome {
            Outcome::Resource(ResourceOutcome::Deleted(value)) => {
                Ok(Read { index: applied.index, revision: applied.revision, value })
            }
            outcome => Err(mismatch(&outcome).into()),
        }
    }

    /// The resource that a write would store, with units, defaults and owner filled in. Stores
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`TypedResources::write`]; versions, uids and statuses are not compared with the stored
    /// ones.
    pub async fn mutate_and_validate(
        self,
        ctx: &RequestContext,
        resource: Resource,
    ) -> Result<Read<Resource>, ResourceError> {
        self.node.ready_to_read(ctx, Consistency::Serializable).await?;
        self.permit_resource(ctx, &resource).await?;
        let Prepared { resource, scope, .. } = self.prepare(ctx, resource).await?;
        let tenancy = resource.id.tenancy.clone();
        let found = self.node.read(true, ctx, move |view| headwater_fsm::unit_is_marked(view, scope, &tenancy)).await;
        let found = found.map_err(|error| match error {
            NodeError::Refused(refusal) => unit_refusal(refusal),
            error => error.into(),
        })?;
        if found.value {
            return Err(ResourceRefusal::TenancyMarked.into());
        }
        let resource = Arc::new(resource);
        let owned = match self.resolve_owner(ctx, &resource).await {
            // Another member may have written the owner a moment ago.
            Err(NodeError::Refused(_)) => {
                self.node.ready_to_read(ctx, Consistency::Linearizable).await?;
                self.resolve_owner(ctx, &resource).await?
            }
            judged => judged?,
        };
        let value = Resource { owner: owned.value, ..Arc::unwrap_or_clone(resource) };
        Ok(Read { index: owned.index, revision: owned.revision, value })
    }

    /// The command that writes a resource, with a new generation and, in case that it is new, a
    /// uid. The caller has checked the rights ([`permit_resource`](Self::permit_resource)).
    ///
    /// # Errors
    ///
    /// As [`TypedResources::write`].
    pub(crate) async fn write_command(
        self,
        ctx: &RequestContext,
        resource: Resource,
        expected: Option<LogIndex>,
    ) -> Result<ResourceCommand, ResourceError> {
        let Prepared { resource, type_version, registers, .. } = self.prepare(ctx, resource).await?;
        let (uid, generation) = (ulid_text(ulid()), ulid_text(ulid()));
        let write = ResourceWrite { resource, expected, uid, generation, type_version, registers };
        Ok(ResourceCommand::Write(Box::new(write)))
    }

    /// The command that replaces a status and sets its time to now. Checks the rights.
    ///
    /// # Errors
    ///
    /// As [`TypedResources::write`].
    pub(crate) async fn status_command(
        self,
        ctx: &RequestContext,
        mut id: ResourceId,
        key: String,
        mut status: Status,
        expected: Option<LogIndex>,
    ) -> Result<ResourceCommand, ResourceError> {
        id.tenancy = self.permit_write(ctx, &id).await?;
        status.updated_at = Some(Timestamp::from_unix_ms(unix_ms()));
        Ok(ResourceCommand::WriteStatus(Box::new(ResourceWriteStatus { id, expected, key, status })))
    }

    /// The command that deletes a resource. Checks the rights.
    ///
    /// # Errors
    ///
    /// As [`TypedResources::write`].
    pub(crate) async fn delete_command(
        self,
        ctx: &RequestContext,
        mut id: ResourceId,
        expected: Option<LogIndex>,
    ) -> Result<ResourceCommand, ResourceError> {
        id.tenancy = self.permit_write(ctx, &id).await?;
        Ok(ResourceCommand::Delete(Box::new(ResourceDelete { id, expected, chosen: choose() })))
    }

    /// Checks that the principal may write the resource and read its owner, before anything about
    /// either is read.
    ///
    /// # Errors
    ///
    /// As [`TypedResources::write`].
    pub(crate) async fn permit_resource(self, ctx: &RequestContext, resource: &Resource) -> Result<(), ResourceError> {
        self.permit_write(ctx, &resource.id).await?;
        match &resource.owner {
            Some(owner) => self.permit_owner(ctx, owner).await,
            None => Ok(()),
        }
    }

    /// Checks that the principal may write the resource, before anything about the resource is
    /// read. Returns the resource's tenancy with the default units filled in.
    pub(crate) async fn permit_write(self, ctx: &RequestContext, id: &ResourceId) -> Result<Tenancy, ResourceError> {
        let (known, rights) = self.resolve_for(ctx, &id.type_, Access::WRITE).await?;
        let known = writable(known)?;
        let tenancy = complete_tenancy(&known, id.tenancy.clone(), Wildcards::Refused)?;
        rights.permit(&ResourceId { tenancy: tenancy.clone(), ..id.clone() }, Access::WRITE)?;
        Ok(tenancy)
    }

    /// Refuses an owner that the principal may not read: any other answer would reveal whether the
    /// owner exists. Accepts an owner of an unknown type, which a later check refuses.
    async fn permit_owner(self, ctx: &RequestContext, owner: &ResourceId) -> Result<(), ResourceError> {
        let (known, rights) = match self.resolve_for(ctx, &owner.type_, Access::READ).await {
            // There is no owner of this type, and the request is refused for that later.
            Err(ResourceError::TypeUnknown(_)) => return Ok(()),
            found => found?,
        };
        let given = owner.tenancy.clone();
        let tenancy = complete_tenancy(&known, given.clone(), Wildcards::Refused).unwrap_or(given);
        rights.permit(&ResourceId { tenancy, ..owner.clone() }, Access::READ)
    }

    async fn resolve_owner(
        self,
        ctx: &RequestContext,
        resource: &Arc<Resource>,
    ) -> Result<Read<Option<ResourceId>>, NodeError> {
        let resource = Arc::clone(resource);
        self.node.read(true, ctx, move |view| headwater_fsm::resolve_owner(view, &resource)).await
    }

    /// Deletes the next batch of an owner's dependents, after the key `after`.
    pub(super) async fn reap_step(
        self,
        ctx: &RequestContext,
        owner: &ResourceId,
        tombstone_version: LogIndex,
        after: bytes::Bytes,
    ) -> Result<ResourceReaped, NodeError> {
        let reap = ResourceReap { owner: owner.clone(), tombstone_version, after, chosen: choose() };
        let applied = self.propose(ctx, ResourceCommand::Reap(Box::new(reap))).await?;
        match applied.outcome {
            Outcome::Resource(ResourceOutcome::Reaped(reaped)) => Ok(reaped),
            outcome => Err(mismatch(&outcome)),
        }
    }

    async fn propose(self, ctx: &RequestContext, command: ResourceCommand) -> Result<Applied, NodeError> {
        self.node.propose(ctx, Command::Resource(command)).await
    }
}

fn written(applied: Applied) -> Result<Read<Resource>, ResourceError> {
    match applied.outcome {
        Outcome::Resource(ResourceOutcome::Written(resource)) => {
            Ok(Read { index: applied.index, revision: applied.revision, value: *resource })
        }
        outcome => Err(mismatch(&outcome).into()),
    }
}

/// The error for an outcome that the command cannot have. The command was applied, and its effect
/// is unknown.
fn mismatch(outcome: &Outcome) -> NodeError {
    tracing::error!(?outcome, "a command about resources came to something else");
    NodeError::Indeterminate(Unanswered::LeaderFailed)
}
