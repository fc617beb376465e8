//! Creates or replaces a resource (spec: consul §5.6, phases B and C).

use super::deferred::{Purpose, compares_data, vet};
use super::tenancy::{UnitState, is_default};
use super::{Stored, check_registration, check_size, find, find_outline, owner, store, tenancy, type_of};
use crate::error::FsmError;
use headwater_storage::state::WriteTxn;
use headwater_types::LogIndex;
use headwater_types::resource::{
    DELETION_TIMESTAMP, FINALIZERS, Resource, ResourceOutcome, ResourceRefusal, ResourceWrite,
};

pub(super) fn apply(
    txn: &mut WriteTxn<'_>,
    index: LogIndex,
    write: &ResourceWrite,
    want: bool,
) -> Result<Option<ResourceOutcome>, FsmError> {
    let id = &write.resource.id;
    let Some((scope, type_version)) = type_of(txn, &id.type_)? else {
        return Err(ResourceRefusal::TypeUnknown.into());
    };
    if type_version != write.type_version {
        return Err(ResourceRefusal::TypeChanged.into());
    }
    if !scope.fits(&id.tenancy) {
        return Err(ResourceRefusal::ScopeMismatch.into());
    }
    let units = tenancy::unit_state(txn, scope, &id.tenancy)?;
    let stored = match find_outline(txn, id)? {
        // The event of a resource that leaves its type has its last state, with its data.
        Some(outline) if outline.resource.id.type_ != id.type_ || compares_data(&outline.resource, &write.resource) => {
            find(txn, id)?
        }
        found => found,
    };
    let resource = match &stored {
        None => {
            // A uid, or an expected version, names a resource that was deleted since.
            if !id.uid.is_empty() {
                return Err(ResourceRefusal::Gone.into());
            }
            check_new(write, units)?;
            if write.expected.is_some() {
                return Err(ResourceRefusal::VersionMismatch.into());
            }
            create(txn, write)?
        }
        Some(stored) if !id.uid.is_empty() && id.uid != stored.resource.id.uid => {
            // The uid names an earlier resource of this name, which cannot be created again.
            return Err(ResourceRefusal::WrongUid.into());
        }
        Some(stored) => update(txn, write, stored, units)?,
    };
    check_registration(txn, write.registers.as_ref())?;
    check_size(&resource)?;
    let written = store(txn, index, resource, stored.as_ref(), write.registers.clone())?;
    Ok(want.then(|| ResourceOutcome::Written(Box::new(Resource::clone(&written)))))
}

/// Refuses a new resource that has statuses or a mark, and one in a unit that is being deleted.
fn check_new(write: &ResourceWrite, units: UnitState) -> Result<(), ResourceRefusal> {
    if !write.resource.status.is_empty() {
        Err(ResourceRefusal::StatusAtCreation)
    } else if units == UnitState::Marked {
        Err(ResourceRefusal::TenancyMarked)
    } else if write.resource.is_marked() {
        Err(ResourceRefusal::MarkedAtCreation)
    } else {
        Ok(())
    }
}

/// The resource to store for a write that creates it: with its owner resolved, and with the new uid
/// and generation. The caller has checked that the name is free and the write may create.
fn create(txn: &WriteTxn<'_>, write: &ResourceWrite) -> Result<Resource, FsmError> {
    let mut resource = write.resource.clone();
    resource.owner = owner::resolve(txn, &resource, None)?;
    resource.id.uid.clone_from(&write.uid);
    resource.generation.clone_from(&write.generation);
    Ok(resource)
}

/// The resource to store in place of another one, which may be of another version of its kind.
fn update(txn: &WriteTxn<'_>, write: &ResourceWrite, stored: &Stored, units: UnitState) -> Result<Resource, FsmError> {
    let before = &stored.resource;
    let mut resource = write.resource.clone();
    resource.id.uid.clone_from(&before.id.uid);
    match write.expected {
        Some(expected) if expected != before.version => return Err(ResourceRefusal::VersionMismatch.into()),
        Some(_) => {}
        // A write without an expected version keeps the mark and the finalizers that it leaves out:
        // its client may not have seen them.
        None => {
            for key in [DELETION_TIMESTAMP, FINALIZERS] {
                if let Some(value) = before.metadata.get(key)
                    && !resource.metadata.contains_key(key)
                {
                    resource.metadata.insert(key.to_owned(), value.clone());
                }
            }
        }
    }
    resource.owner = owner::resolve(txn, &resource, Some(before))?;
    if resource.status.is_empty() {
        resource.status.clone_from(&before.status);
    } else if resource.status != before.status {
        return Err(ResourceRefusal::StatusModified.into());
    }
    if is_default(&resource.id) && resource.is_marked() {
        return Err(ResourceRefusal::DefaultUnit.into());
    }
    let purpose = vet(before, &resource)?;
    if units == UnitState::Marked && purpose == Purpose::Other {
        return Err(ResourceRefusal::TenancyMarked.into());
    }
    resource.generation.clone_from(&write.generation);
    Ok(resource)
}
