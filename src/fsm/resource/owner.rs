//! Owners of resources (spec: consul §5.6, §5.10).
//!
//! Decided in apply: an owner exists when its child is created, so that the owner's later tombstone
//! finds every child. Units that a reference leaves out are filled in by the scope of the owner's
//! type.

use super::{find_outline, type_of};
use crate::error::FsmError;
use headwater_storage::state::StateReader;
use headwater_types::resource::{Resource, ResourceId, ResourceRefusal};

/// The owner that `given` has once it is written. `stored` is the resource that it replaces, `None`
/// for a new resource. The result is `None` for no owner.
pub(super) fn resolve(
    state: &impl StateReader,
    given: &Resource,
    stored: Option<&Resource>,
) -> Result<Option<ResourceId>, FsmError> {
    match stored {
        None => given.owner.as_ref().map(|owner| live_owner(state, owner)).transpose(),
        Some(stored) => kept_owner(state, given.owner.as_ref(), stored.owner.as_ref()),
    }
}

/// The owner of a new resource, as it is stored. It must exist.
fn live_owner(state: &impl StateReader, owner: &ResourceId) -> Result<ResourceId, FsmError> {
    let target = with_units(state, owner)?;
    if type_of(state, &target.type_)?.is_some_and(|(scope, _)| !scope.fits(&target.tenancy)) {
        return Err(ResourceRefusal::OwnerScopeMismatch.into());
    }
    match find_outline(state, &target)? {
        None => Err(ResourceRefusal::OwnerNotFound.into()),
        Some(found) if !owner.uid.is_empty() && owner.uid != found.resource.id.uid => {
            Err(ResourceRefusal::OwnerWrongUid.into())
        }
        Some(found) if found.resource.id.type_ != owner.type_ => Err(ResourceRefusal::OwnerOtherVersion.into()),
        Some(found) => Ok(found.resource.id),
    }
}

/// The owner of an existing resource: the stored one, which `given` must name. It need not exist
/// any more: children of a deleted owner must be able to lose their finalizers.
fn kept_owner(
    state: &impl StateReader,
    given: Option<&ResourceId>,
    stored: Option<&ResourceId>,
) -> Result<Option<ResourceId>, FsmError> {
    let is_same = match (given, stored) {
        (None, None) => true,
        (Some(given), Some(stored)) => {
            let uid = if given.uid.is_empty() { &stored.uid } else { &given.uid };
            let given = ResourceId { uid: uid.clone(), ..given.clone() };
            given == *stored || with_units(state, &given)? == with_units(state, stored)?
        }
        (None, Some(_)) | (Some(_), None) => false,
    };
    if is_same { Ok(stored.cloned()) } else { Err(ResourceRefusal::OwnerChanged.into()) }
}

/// Whether `owner` exists, with exactly its uid.
pub(super) fn is_live(state: &impl StateReader, owner: &ResourceId) -> Result<bool, FsmError> {
    let found = find_outline(state, &with_units(state, owner)?)?;
    Ok(found.is_some_and(|stored| stored.resource.id.uid == owner.uid))
}

/// `owner` with default units where its type's scope has a unit that `owner` leaves out. Unchanged
/// if the type is not registered.
pub(super) fn with_units(state: &impl StateReader, owner: &ResourceId) -> Result<ResourceId, FsmError> {
    let mut owner = owner.clone();
    if let Some((scope, _)) = type_of(state, &owner.type_)? {
        scope.fill(&mut owner.tenancy);
    }
    Ok(owner)
}
