//! Rules for a write of a resource that is marked for deletion, or that the write marks (spec:
//! consul §5.8).

use std::collections::BTreeMap;

use headwater_types::resource::{DELETION_TIMESTAMP, FINALIZERS, Resource, ResourceRefusal, is_rfc3339};

/// Purpose of a write. A unit of tenancy that is being deleted accepts only writes for deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The write marks the resource for deletion, or removes finalizers.
    Deletion,
    /// Any other write.
    Other,
}

/// Whether [`vet`] may compare the data, so that it must be loaded.
pub(super) fn compares_data(stored: &Resource, input: &Resource) -> bool {
    stored.is_marked() || input.is_marked() || !stored.finalizers().is_empty()
}

/// Refuses a mark that is neither a time nor empty, unless it is stored already: a mark that an
/// earlier version of the program accepted can still be deleted.
pub(super) fn check_mark(stored: Option<&Resource>, input: &Resource) -> Result<(), ResourceRefusal> {
    let mark_of = |resource: &Resource| resource.metadata.get(DELETION_TIMESTAMP).cloned();
    match mark_of(input) {
        Some(mark) if !mark.is_empty() && !is_rfc3339(&mark) && stored.and_then(mark_of).as_ref() != Some(&mark) => {
            Err(ResourceRefusal::MarkInvalid)
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks the change from `stored` to `input`, both with their final metadata. Returns its purpose.
pub(super) fn vet(stored: &Resource, input: &Resource) -> Result<Purpose, ResourceRefusal> {
    let same_data = || stored.data == input.data;
    let finalizers = || removes_finalizers(stored, input);
    match (stored.metadata.get(DELETION_TIMESTAMP), input.metadata.get(DELETION_TIMESTAMP)) {
        (None, None) if finalizers() && same_data() => Ok(Purpose::Deletion),
        (None, None) => Ok(Purpose::Other),
        (Some(_), None) => Err(ResourceRefusal::MarkRemoved),
        (None, Some(_)) => {
            check_mark(Some(stored), input)?;
            // A write that marks may change nothing else.
            if !same_but(stored, input, &[DELETION_TIMESTAMP]) {
                Err(ResourceRefusal::MetadataModified)
            } else if !same_data() {
                Err(ResourceRefusal::DataModified)
            } else {
                Ok(Purpose::Deletion)
            }
        }
        (Some(before), Some(after)) => {
            if !before.is_empty() && before != after {
                return Err(ResourceRefusal::MarkModified);
            }
            check_mark(Some(stored), input)?;
            if same_data() && same_but(stored, input, &[DELETION_TIMESTAMP]) {
                return Err(ResourceRefusal::NoOpWrite);
            }
            if stored.finalizers().is_empty() {
                return Ok(Purpose::Other);
            }
            // From now on writes may only remove finalizers.
            if !same_but(stored, input, &[DELETION_TIMESTAMP, FINALIZERS]) {
                Err(ResourceRefusal::MetadataModified)
            } else if !same_data() {
                Err(ResourceRefusal::DataModified)
            } else if !finalizers() {
                Err(ResourceRefusal::FinalizerNotRemoved)
            } else {
                Ok(Purpose::Deletion)
            }
        }
    }
}

/// Whether `input` removes at least one finalizer of `stored`, and adds none.
fn removes_finalizers(stored: &Resource, input: &Resource) -> bool {
    let (before, after) = (stored.finalizers(), input.finalizers());
    after.len() < before.len() && after.iter().all(|name| before.binary_search(name).is_ok())
}

/// Whether metadata are the same, without the given keys.
fn same_but(stored: &Resource, input: &Resource, keys: &[&str]) -> bool {
    let rest = |metadata: &BTreeMap<String, String>| -> Vec<(String, String)> {
        let kept = metadata.iter().filter(|(key, _)| !keys.contains(&key.as_str()));
        kept.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    rest(&stored.metadata) == rest(&input.metadata)
}
