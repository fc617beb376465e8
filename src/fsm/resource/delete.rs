//! Deletes a resource, in one step with writing its tombstone, so that a refusal changes nothing
//! (spec: consul §5.9).

use super::tenancy::{is_default, unit_of};
use super::ulid::UlidGenerator;
use super::{Stored, find, reap, store};
use crate::error::FsmError;
use headwater_storage::state::{StateReader, WriteTxn};
use headwater_types::LogIndex;
use headwater_types::resource::{
    DELETION_TIMESTAMP, Resource, ResourceDelete, ResourceDeletion, ResourceOutcome, ResourceRefusal, TypeName,
};

pub(super) fn apply(
    txn: &mut WriteTxn<'_>,
    index: LogIndex,
    delete: &ResourceDelete,
) -> Result<Option<ResourceOutcome>, FsmError> {
    let mut ulids = UlidGenerator::new(delete.chosen.ulid);
    let stored = match find(txn, &delete.id)? {
        Some(stored) if delete.id.uid.is_empty() || delete.id.uid == stored.resource.id.uid => stored,
        Some(_) => return Err(ResourceRefusal::WrongUid.into()),
        None => return Ok(Some(ResourceOutcome::Deleted(ResourceDeletion::Nothing))),
    };
    if stored.resource.id.type_ != delete.id.type_ {
        return Err(ResourceRefusal::OtherGroupVersion.into());
    }
    if delete.expected.is_some_and(|expected| expected != stored.resource.version) {
        return Err(ResourceRefusal::VersionMismatch.into());
    }
    let deletion = delete_one(txn, index, stored, &mut ulids, &delete.chosen.now)?;
    Ok(Some(ResourceOutcome::Deleted(deletion)))
}

/// Deletes a resource and writes its tombstone. Refuses a default unit, and a type that resources
/// have. A held one ([`is_held`]) is marked for deletion instead, with the time `now`; if it is
/// marked already, nothing happens. A tombstone gets no tombstone.
pub(super) fn delete_one(
    txn: &mut WriteTxn<'_>,
    index: LogIndex,
    stored: Stored,
    ulids: &mut UlidGenerator,
    now: &str,
) -> Result<ResourceDeletion, FsmError> {
    let resource = &stored.resource;
    if is_default(&resource.id) {
        return Err(ResourceRefusal::DefaultUnit.into());
    }
    if is_held(txn, resource)? {
        if resource.is_marked() {
            return Ok(ResourceDeletion::Nothing);
        }
        let mut marked = resource.clone();
        marked.metadata.insert(DELETION_TIMESTAMP.to_owned(), now.to_owned());
        marked.generation = ulids.next();
        store(txn, index, marked, Some(&stored), None)?;
        return Ok(ResourceDeletion::Marked);
    }
    if resource.id.type_.is_resource_type() {
        let name = TypeName(resource.id.name.clone());
        if txn.type_record(&name)?.count > 0 {
            return Err(ResourceRefusal::TypeInUse.into());
        }
        txn.set_registration(name, index, None)?;
    }
    let Stored { version, resource } = stored;
    if !resource.id.type_.is_tombstone() {
        reap::put_tombstone(txn, index, &resource.id, [ulids.next(), ulids.next()], now)?;
    }
    txn.delete_resource(&version, resource)?;
    Ok(ResourceDeletion::Removed)
}

/// Whether the resource cannot be deleted yet: it has finalizers, or is a unit of tenancy with
/// resources in it.
fn is_held(txn: &WriteTxn<'_>, resource: &Resource) -> Result<bool, FsmError> {
    if !resource.finalizers().is_empty() {
        return Ok(true);
    }
    match unit_of(&resource.id) {
        Some(unit) => Ok(txn.unit_count(&unit)? > 0),
        None => Ok(false),
    }
}
