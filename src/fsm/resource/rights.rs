//! The rights that commands about resources need (spec: security §5).
//!
//! Owns the effects beyond the named resource: the principal must have the right to write
//! everything that a deletion removes, now or later by the reaper. Knows no principal. Invariant: a
//! deletion that cannot be judged completely needs the right to every resource.

use super::tenancy::unit_of;
use super::{owner, split_refusal};
use headwater_storage::StorageError;
use headwater_storage::state::StateReader;
use headwater_types::limits::RESOURCE_CASCADE_JUDGED_MAX;
use headwater_types::resource::{ResourceCommand, ResourceId, resource_key};
use headwater_types::{Access, KeyRange, Rights, Space};

/// Children of an owner that are loaded together, count.
const BATCH: usize = 256;

/// Whether `rights` permit the command in `state`.
///
/// # Errors
///
/// If the disk failed.
pub(in super::super) fn permit(
    state: &impl StateReader,
    rights: &Rights,
    command: &ResourceCommand,
) -> Result<bool, StorageError> {
    let may_write = |id: &ResourceId| rights.allows(Space::Resource, &resource_key(id), Access::WRITE);
    Ok(match command {
        ResourceCommand::Write(write) => {
            let resource = &write.resource;
            if !may_write(&resource.id) {
                return Ok(false);
            }
            // Otherwise the answer would reveal whether the owner exists.
            if let Some(given) = &resource.owner
                && !may_read_owner(state, rights, given)?
            {
                return Ok(false);
            }
            // The last finalizer of a resource that waits for its deletion may go with this write.
            match state.resource(&resource_key(&resource.id))? {
                Some((_, stored)) if stored.is_marked() => may_remove(state, rights, &stored.id)?,
                _ if resource.is_marked() => may_remove(state, rights, &resource.id)?,
                _ => true,
            }
        }
        ResourceCommand::WriteStatus(write) => may_write(&write.id),
        ResourceCommand::Delete(delete) => {
            if !may_write(&delete.id) {
                return Ok(false);
            }
            match state.resource(&resource_key(&delete.id))? {
                Some((_, stored)) => may_remove(state, rights, &stored.id)?,
                None => true,
            }
        }
        // The store's own task.
        ResourceCommand::Reap(_) => false,
    })
}

fn may_read_owner(state: &impl StateReader, rights: &Rights, given: &ResourceId) -> Result<bool, StorageError> {
    let named = split_refusal(owner::with_units(state, given))?;
    Ok(named.is_ok_and(|owner| rights.allows(Space::Resource, &resource_key(&owner), Access::READ)))
}

/// Whether the principal may write all resources that are removed together with a resource, because
/// it owns them directly or indirectly. A unit of tenancy, and an owner of more than
/// [`RESOURCE_CASCADE_JUDGED_MAX`] resources, need the right to write every resource.
fn may_remove(state: &impl StateReader, rights: &Rights, id: &ResourceId) -> Result<bool, StorageError> {
    if rights.covers(Space::Resource, &KeyRange::all(), Access::WRITE) {
        return Ok(true);
    }
    if unit_of(id).is_some() {
        return Ok(false);
    }
    let mut owners = vec![id.clone()];
    let mut judged = 0;
    while let Some(owner) = owners.pop() {
        let mut after = bytes::Bytes::new();
        loop {
            let keys = state.owned(&owner, &after, BATCH)?;
            judged += keys.len();
            let may_write = |key: &bytes::Bytes| rights.allows(Space::Resource, key, Access::WRITE);
            if judged > RESOURCE_CASCADE_JUDGED_MAX || !keys.iter().all(may_write) {
                return Ok(false);
            }
            for key in &keys {
                owners.extend(state.resource(key)?.map(|(_, owned)| owned.id));
            }
            match keys.last() {
                Some(last) if keys.len() == BATCH => after.clone_from(last),
                _ => break,
            }
        }
    }
    Ok(true)
}
