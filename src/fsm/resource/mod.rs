//! Commands about resources (spec: consul §5.6 to §5.10). One command, one file.
//!
//! Owns the rules; they read only the state and the command, and no command comes between a check
//! and its effect: a write without an expected version never loses a race, and a refused delete
//! leaves no tombstone. Resources never move the KV revision.

mod deferred;
mod delete;
mod owner;
mod reap;
mod rights;
mod status;
mod tenancy;
mod ulid;
mod write;

use super::error::{FsmError, split_refusal};
use headwater_storage::StorageError;
use headwater_storage::state::{Registration, StateReader, Version, WriteTxn};
use headwater_types::limits::{RESOURCE_BYTES_MAX, RESOURCE_TYPES_MAX};
use headwater_types::resource::{
    Resource, ResourceCommand, ResourceId, ResourceRefusal, Scope, Tenancy, Type, TypeName, builtin_scope, resource_key,
};
use headwater_types::{LogIndex, Outcome, Refusal};

pub(super) use rights::permit;

/// Applies a command of the log entry at `index`.
pub(super) fn apply(
    txn: &mut WriteTxn<'_>,
    index: LogIndex,
    command: &ResourceCommand,
    want: bool,
) -> Result<Outcome, FsmError> {
    let outcome = match command {
        ResourceCommand::Write(write) => write::apply(txn, index, write, want)?,
        ResourceCommand::WriteStatus(write) => status::apply(txn, index, write, want)?,
        ResourceCommand::Delete(delete) => delete::apply(txn, index, delete)?,
        ResourceCommand::Reap(reap) => reap::apply(txn, index, reap)?,
    };
    Ok(outcome.map_or(Outcome::Nothing, Outcome::Resource))
}

/// Whether a unit of `tenancy` is being deleted: its partition if `scope` has one, its namespace if
/// `scope` has one.
///
/// # Errors
///
/// The inner one for a unit that does not exist, the outer one if the disk failed.
pub fn unit_is_marked(
    state: &impl StateReader,
    scope: Scope,
    tenancy: &Tenancy,
) -> Result<Result<bool, Refusal>, StorageError> {
    split_refusal(tenancy::unit_state(state, scope, tenancy).map(|units| units == tenancy::UnitState::Marked))
}

/// The owner that a resource would get if it were written now; `None` for no owner. Refuses an
/// owner that [`ResourceCommand::Write`] would refuse, and a mark for deletion that is no time.
///
/// # Errors
///
/// The inner one is the refusal, the outer one if the disk failed.
pub fn resolve_owner(
    state: &impl StateReader,
    resource: &Resource,
) -> Result<Result<Option<ResourceId>, Refusal>, StorageError> {
    let judged = || {
        let stored = find_outline(state, &resource.id)?.map(|stored| stored.resource);
        deferred::check_mark(stored.as_ref(), resource)?;
        owner::resolve(state, resource, stored.as_ref())
    };
    split_refusal(judged())
}

impl From<ResourceRefusal> for FsmError {
    fn from(refusal: ResourceRefusal) -> Self {
        Self::Refused(Refusal::Resource(refusal))
    }
}

/// A stored resource.
struct Stored {
    version: Version,
    resource: Resource,
}

/// The stored resource with this name, with any uid and of any version of its kind.
fn find(state: &impl StateReader, id: &ResourceId) -> Result<Option<Stored>, FsmError> {
    let found = state.resource(&resource_key(id))?;
    Ok(found.map(|(version, resource)| Stored { version, resource }))
}

/// As [`find`], but without data and generation, which need not be read from disk if the resource
/// was written recently.
fn find_outline(state: &impl StateReader, id: &ResourceId) -> Result<Option<Stored>, FsmError> {
    let found = state.resource_outline(id)?;
    Ok(found.map(|(version, resource)| Stored { version, resource }))
}

/// The scope of a type, and the version of its registration, which is zero for built-in types.
/// `None` for a type that is not registered with this group version.
fn type_of(state: &impl StateReader, type_: &Type) -> Result<Option<(Scope, LogIndex)>, FsmError> {
    if let Some(scope) = builtin_scope(type_) {
        return Ok(Some((scope, LogIndex::ZERO)));
    }
    let registered = state.registration(&TypeName::of(type_))?;
    let same = registered.filter(|registered| registered.type_ == *type_);
    Ok(same.map(|registered| (registered.scope, registered.version)))
}

/// Refuses a registration that changes the names or the scope of a registered type, or that exceeds
/// the number of types.
fn check_registration(state: &impl StateReader, registers: Option<&(Type, Scope)>) -> Result<(), FsmError> {
    let Some((type_, scope)) = registers else { return Ok(()) };
    match state.registration(&TypeName::of(type_))? {
        Some(old) if old.type_ == *type_ && old.scope == *scope => Ok(()),
        Some(_) => Err(ResourceRefusal::TypeIdentityChanged.into()),
        None if state.head().types.count >= RESOURCE_TYPES_MAX => Err(ResourceRefusal::TooManyTypes.into()),
        None => Ok(()),
    }
}

/// Refuses a resource that is too large.
fn check_size(resource: &Resource) -> Result<(), ResourceRefusal> {
    if resource.content_bytes() > RESOURCE_BYTES_MAX { Err(ResourceRefusal::TooLarge) } else { Ok(()) }
}

/// Stores a resource. If it registers a type and its data is new, the registration gets this
/// command's version, so that writes checked against the old one are refused. A status or a mark is
/// not part of the data, and keeps the version.
fn store(
    txn: &mut WriteTxn<'_>,
    index: LogIndex,
    resource: Resource,
    previous: Option<&Stored>,
    registers: Option<(Type, Scope)>,
) -> Result<std::sync::Arc<Resource>, FsmError> {
    let is_type = resource.id.type_.is_resource_type();
    let name = is_type.then(|| TypeName(resource.id.name.clone()));
    let says_the_same = is_type && find(txn, &resource.id)?.is_some_and(|old| old.resource.data == resource.data);
    let previous = previous.map(|stored| (&stored.version, &stored.resource));
    let stored = txn.put_resource(resource, previous)?;
    if let Some(name) = name.filter(|_| !says_the_same) {
        let old = || Ok::<_, FsmError>(txn.registration(&name)?.map(|old| (old.type_, old.scope)));
        let identity = match registers {
            Some(registers) => Some(registers),
            None => old()?,
        };
        let registration = identity.map(|(type_, scope)| Registration { type_, scope, version: index });
        txn.set_registration(name, index, registration)?;
    }
    Ok(stored)
}
