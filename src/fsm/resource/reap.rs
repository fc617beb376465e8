//! Deletes the children of a deleted resource, a bounded number in one command (spec: consul
//! §5.10).
//!
//! A tombstone stands for a deleted resource, by its uid, until the walk through its children has
//! ended. Children that are marked and wait for their own finalizers, or that cannot be deleted,
//! are left behind. Invariant: a deleted owner has a tombstone until a walk has visited each of its
//! children; only existing resources get children. No child is deleted unless a deletion wrote the
//! tombstone and the owner is gone: an earlier version of the program wrote tombstones for owners
//! that it had not found.

use super::ulid::UlidGenerator;
use super::{Stored, delete, find, owner, store};
use crate::error::FsmError;
use headwater_storage::state::{StateReader, WriteTxn, tombstone_data};
use headwater_types::LogIndex;
use headwater_types::limits::{RESOURCE_REAP_BATCH, RESOURCE_REAP_BYTES_MAX};
use headwater_types::resource::{
    Resource, ResourceDeletion, ResourceId, ResourceOutcome, ResourceReap, ResourceReaped, ResourceRefusal,
};

/// Metadata key of a tombstone: time of the deletion that wrote it.
const GENERATED_AT: &str = "generated_at";

pub(super) fn apply(
    txn: &mut WriteTxn<'_>,
    index: LogIndex,
    reap: &ResourceReap,
) -> Result<Option<ResourceOutcome>, FsmError> {
    let tombstone = match find(txn, &reap.owner.tombstone())? {
        Some(tombstone) if tombstone.resource.version == reap.tombstone_version => tombstone,
        Some(_) | None => return Err(ResourceRefusal::NothingToReap.into()),
    };
    if !is_of_a_deletion(&tombstone.resource) || owner::is_live(txn, &reap.owner)? {
        // Without proof that the owner was deleted, its children stay.
        txn.delete_resource(&tombstone.version, tombstone.resource)?;
        return Ok(Some(ResourceOutcome::Reaped(ResourceReaped::default())));
    }
    let mut ulids = UlidGenerator::new(reap.chosen.ulid);
    let children = txn.owned(&reap.owner, &reap.after, RESOURCE_REAP_BATCH)?;
    let is_last = children.len() < RESOURCE_REAP_BATCH;
    let mut reaped = ResourceReaped::default();
    let mut bytes = 0;
    for key in children {
        if bytes >= RESOURCE_REAP_BYTES_MAX {
            return Ok(Some(ResourceOutcome::Reaped(reaped)));
        }
        let Some((version, resource)) = txn.resource(&key)? else {
            unreachable!("invariant: the index of owners names resources that are there")
        };
        bytes += u64::from(version.value_len);
        match delete::delete_one(txn, index, Stored { version, resource }, &mut ulids, &reap.chosen.now) {
            Ok(ResourceDeletion::Removed) => reaped.removed += 1,
            Ok(ResourceDeletion::Marked) => reaped.marked += 1,
            Ok(ResourceDeletion::Nothing) => {}
            // A resource that cannot be deleted outlives its owner.
            Err(FsmError::Refused(_)) => {}
            Err(failed) => return Err(failed),
        }
        reaped.next = Some(key);
    }
    if is_last {
        txn.delete_resource(&tombstone.version, tombstone.resource)?;
        reaped.next = None;
    }
    Ok(Some(ResourceOutcome::Reaped(reaped)))
}

/// Whether a deletion wrote this tombstone. An earlier version of the program also wrote some for
/// owners that it could not find.
fn is_of_a_deletion(tombstone: &Resource) -> bool {
    tombstone.metadata.get(GENERATED_AT).is_some_and(|at| !at.is_empty())
}

/// Writes the tombstone of the deleted resource `owner`, unless there is one.
pub(super) fn put_tombstone(
    txn: &mut WriteTxn<'_>,
    index: LogIndex,
    owner: &ResourceId,
    [uid, generation]: [String; 2],
    now: &str,
) -> Result<(), FsmError> {
    let tombstone_id = owner.tombstone();
    if find(txn, &tombstone_id)?.is_some() {
        return Ok(());
    }
    let tombstone = Resource {
        id: ResourceId { uid, ..tombstone_id },
        generation,
        metadata: [(GENERATED_AT.to_owned(), now.to_owned())].into(),
        data: Some(tombstone_data(owner)),
        ..Resource::default()
    };
    store(txn, index, tombstone, None, None)?;
    Ok(())
}
