//! Replaces one status of a resource (spec: consul §5.7). Generation, data and metadata stay the
//! same.

use super::{check_size, find, store, tenancy, type_of};
use crate::error::FsmError;
use headwater_storage::state::WriteTxn;
use headwater_types::LogIndex;
use headwater_types::resource::{Resource, ResourceOutcome, ResourceRefusal, ResourceWriteStatus};

pub(super) fn apply(
    txn: &mut WriteTxn<'_>,
    index: LogIndex,
    write: &ResourceWriteStatus,
    want: bool,
) -> Result<Option<ResourceOutcome>, FsmError> {
    let Some((scope, _)) = type_of(txn, &write.id.type_)? else {
        return Err(ResourceRefusal::TypeUnknown.into());
    };
    if !scope.fits(&write.id.tenancy) {
        return Err(ResourceRefusal::ScopeMismatch.into());
    }
    // The units must exist. Statuses are accepted also while a unit is being deleted.
    tenancy::unit_state(txn, scope, &write.id.tenancy)?;
    let stored = match find(txn, &write.id)? {
        Some(stored) if stored.resource.id.uid == write.id.uid => stored,
        Some(_) => return Err(ResourceRefusal::WrongUid.into()),
        None => return Err(ResourceRefusal::NotFound.into()),
    };
    if stored.resource.id.type_ != write.id.type_ {
        return Err(ResourceRefusal::OtherGroupVersion.into());
    }
    if write.expected.is_some_and(|expected| expected != stored.resource.version) {
        return Err(ResourceRefusal::VersionMismatch.into());
    }
    let mut resource = stored.resource.clone();
    resource.status.insert(write.key.clone(), write.status.clone());
    check_size(&resource)?;
    let written = store(txn, index, resource, Some(&stored), None)?;
    Ok(want.then(|| ResourceOutcome::Written(Box::new(Resource::clone(&written)))))
}
