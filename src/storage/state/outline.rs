//! Outline of a resource: the part that its next write needs. Data and generation are left out,
//! because the write replaces them.
//!
//! Owns its compact form, which is cached for hot resources, so that a write to one need not read
//! its record. Invariant: an outline, with the name from its key, agrees with the record.

use std::collections::BTreeMap;

use headwater_types::LogIndex;
use headwater_types::resource::{Resource, ResourceId, Status, Type};

/// Estimated memory of an outline without its rare fields, with its allocations, bytes.
const OUTLINE_BYTES: usize = 112;
/// Estimated memory of one entry of a map without its texts, bytes.
const ENTRY_BYTES: usize = 96;

/// The uid, group version, owner, metadata and statuses of a resource. Name, group, kind and
/// tenancy are in its key; its version is kept beside the outline. Data and generation are left
/// out.
pub(super) struct Outline {
    uid: Box<str>,
    group_version: Box<str>,
    /// Fields that few resources have.
    rare_fields: Option<Box<RareFields>>,
}

struct RareFields {
    owner: Option<ResourceId>,
    metadata: BTreeMap<String, String>,
    status: BTreeMap<String, Status>,
}

impl Outline {
    pub(super) fn of(resource: &Resource) -> Self {
        let Resource { id, owner, metadata, status, .. } = resource;
        let is_plain = owner.is_none() && metadata.is_empty() && status.is_empty();
        let rare_fields =
            || Box::new(RareFields { owner: owner.clone(), metadata: metadata.clone(), status: status.clone() });
        Self {
            uid: id.uid.as_str().into(),
            group_version: id.type_.group_version.as_str().into(),
            rare_fields: (!is_plain).then(rare_fields),
        }
    }

    /// The resource of this outline. Name, group, kind and tenancy are those in `id`; data and
    /// generation are empty.
    pub(super) fn resource(&self, id: &ResourceId, version: LogIndex) -> Resource {
        let Type { group, kind, .. } = &id.type_;
        let id = ResourceId {
            uid: self.uid.as_ref().to_owned(),
            name: id.name.clone(),
            type_: Type::new(group, &self.group_version, kind),
            tenancy: id.tenancy.clone(),
        };
        let resource = Resource { id, version, ..Resource::default() };
        match self.rare_fields.as_deref() {
            None => resource,
            Some(RareFields { owner, metadata, status }) => {
                Resource { owner: owner.clone(), metadata: metadata.clone(), status: status.clone(), ..resource }
            }
        }
    }

    /// Approximate memory, bytes.
    pub(super) fn bytes(&self) -> usize {
        let Some(rare_fields) = &self.rare_fields else { return OUTLINE_BYTES };
        let owner = rare_fields.owner.as_ref().map_or(0, |owner| {
            let ResourceId { uid, name, type_, tenancy } = owner;
            let Type { group, group_version, kind } = type_;
            let texts = [uid, name, group, group_version, kind, &tenancy.partition, &tenancy.namespace];
            texts.iter().map(|text| text.len()).sum()
        });
        let metadata: usize =
            rare_fields.metadata.iter().map(|(key, value)| key.len() + value.len() + ENTRY_BYTES).sum();
        let conditions = rare_fields.status.values().flat_map(|status| &status.conditions);
        let conditions: usize = conditions
            .map(|found| found.type_.len() + found.reason.len() + found.message.len() + 3 * ENTRY_BYTES)
            .sum();
        OUTLINE_BYTES
            + size_of::<RareFields>()
            + owner
            + metadata
            + rare_fields.status.len() * 2 * ENTRY_BYTES
            + conditions
    }
}
