//! Deletes what a deleted resource owned, a bounded number in one command (spec: consul §5.10).
//!
//! A tombstone stands for a life that has ended until nothing is left that it owned, but for what is marked and waits for
//! its finalizers. Invariant: a resource whose owner's life has ended, and that is not marked, has a tombstone that will
//! find it: whoever creates such a resource renews the tombstone, and a walk that began before does not remove it.

use super::ulid::Ulids;
use super::{Stored, delete, find, find_outline, store};
use crate::fsm::stop::Stop;
use crate::storage::state::{StateReader, WriteTxn, tombstone_data};
use crate::types::LogIndex;
use crate::types::limits::{RESOURCE_REAP_BATCH, RESOURCE_REAP_BYTES_MAX};
use crate::types::resource::{
    Resource, ResourceDeletion, ResourceId, ResourceOutcome, ResourceReap, ResourceReaped, ResourceRefusal,
};

/// Metadata key of a tombstone: when it was written.
const GENERATED_AT: &str = "generated_at";

pub(super) fn apply(
    txn: &mut WriteTxn<'_>,
    index: LogIndex,
    reap: &ResourceReap,
) -> Result<Option<ResourceOutcome>, Stop> {
    let tombstone = match find(txn, &reap.owner.tombstone())? {
        Some(tombstone) if tombstone.resource.version == reap.tombstone_version => tombstone,
        Some(_) | None => return Err(ResourceRefusal::NothingToReap.into()),
    };
    if lives(txn, &reap.owner)? {
        // Nobody but an operator can have written it.
        txn.delete_resource(&tombstone.version, tombstone.resource)?;
        return Ok(Some(ResourceOutcome::Reaped(ResourceReaped::default())));
    }
    let mut ulids = Ulids::new(reap.chosen.ulid);
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
            // What must stay outlives its owner.
            Err(Stop::Refused(_)) => {}
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

/// Whether this life of the resource goes on.
fn lives(txn: &WriteTxn<'_>, owner: &ResourceId) -> Result<bool, Stop> {
    Ok(find_outline(txn, owner)?.is_some_and(|stored| stored.resource.id.uid == owner.uid))
}

/// Writes the tombstone of a life that ends, unless there is one.
pub(super) fn put_tombstone(
    txn: &mut WriteTxn<'_>,
    index: LogIndex,
    owner: &ResourceId,
    [uid, generation]: [String; 2],
    now: &str,
) -> Result<(), Stop> {
    let place = owner.tombstone();
    if find(txn, &place)?.is_some() {
        return Ok(());
    }
    let tombstone = Resource {
        id: ResourceId { uid, ..place },
        generation,
        metadata: [(GENERATED_AT.to_owned(), now.to_owned())].into(),
        data: Some(tombstone_data(owner)),
        ..Resource::default()
    };
    store(txn, index, tombstone, None, None)?;
    Ok(())
}

/// A child of `owner` was created: if that life has ended, the child must go as well. `ulid` is one that the command
/// brought.
pub(super) fn ensure_reaped(
    txn: &mut WriteTxn<'_>,
    index: LogIndex,
    owner: &ResourceId,
    ulid: &str,
) -> Result<(), Stop> {
    if lives(txn, owner)? {
        return Ok(());
    }
    match find(txn, &owner.tombstone())? {
        // Written again, so that a walk which is past the child's place begins anew.
        Some(stored) => {
            let tombstone = Resource { generation: ulid.to_owned(), ..stored.resource.clone() };
            store(txn, index, tombstone, Some(&stored), None)?;
        }
        None => put_tombstone(txn, index, owner, [ulid.to_owned(), ulid.to_owned()], "")?,
    }
    Ok(())
}
