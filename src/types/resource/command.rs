//! Commands about resources, and their outcomes (spec: consul §5.6 to §5.10).
//!
//! A command carries all choices of the proposer: ULIDs, times, and for a write the version of the
//! registration that the data was checked against. Everything else is decided in apply, where no
//! other command can come in between.

use bytes::Bytes;
use thiserror::Error;

use super::{Resource, ResourceId, Scope, Status, Type};
use crate::LogIndex;

/// A change of resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceCommand {
    /// Creates or replaces a resource.
    Write(Box<ResourceWrite>),
    /// Sets one status of a resource.
    WriteStatus(Box<ResourceWriteStatus>),
    /// Deletes a resource, or marks it for deletion.
    Delete(Box<ResourceDelete>),
    /// Deletes the next children of a deleted owner, and after the last ones its tombstone.
    Reap(Box<ResourceReap>),
}

/// Creates or replaces a resource (spec: consul §5.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceWrite {
    /// The resource to store. With a uid, it replaces only that incarnation; without one it is
    /// created or replaced. `version` and `generation` are ignored. An empty `status` keeps the
    /// stored statuses.
    pub resource: Resource,
    /// The version that the stored resource must have; zero never matches. `None` for any: the mark
    /// and the finalizers that the write leaves out are then kept.
    pub expected: Option<LogIndex>,
    /// The ULID that the resource gets if it is new.
    pub uid: String,
    /// The new generation, a ULID.
    pub generation: String,
    /// The version of the type's registration that the data was checked against; zero for a
    /// built-in type. Refused if the registration has another version by now.
    pub type_version: LogIndex,
    /// The type that the resource registers, and its scope. `None` if the resource is no
    /// `headwater.v1.ResourceType`.
    pub registers: Option<(Type, Scope)>,
}

/// Sets one status of a resource, in place of the one with the same key (spec: consul §5.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceWriteStatus {
    /// The resource, with its uid. Refused if the stored resource has another uid.
    pub id: ResourceId,
    /// The version that the stored resource must have; `None` for any. Zero never matches.
    pub expected: Option<LogIndex>,
    /// Key of the status.
    pub key: String,
    /// The new status, with `updated_at` set.
    pub status: Status,
}

/// Deletes a resource, or marks it for deletion (spec: consul §5.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceDelete {
    /// The resource. With a uid, refused if the stored resource has another one.
    pub id: ResourceId,
    /// The version that the stored resource must have; `None` for any. Zero never matches.
    pub expected: Option<LogIndex>,
    /// ULIDs and time, chosen by the proposer.
    pub chosen: ProposerChoices,
}

/// Deletes the next children of a deleted resource, and after the last ones its tombstone (spec:
/// consul §5.10). Children that cannot be deleted yet are only marked; those that must not be
/// deleted stay. If the owner exists, only the tombstone is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceReap {
    /// The deleted owner, with its uid.
    pub owner: ResourceId,
    /// Version of the owner's tombstone when the first step began. Refused if the tombstone has
    /// another version by now.
    pub tombstone_version: LogIndex,
    /// Storage key of the last child that the previous step visited; empty in the first step.
    pub after: Bytes,
    /// ULIDs and time, chosen by the proposer.
    pub chosen: ProposerChoices,
}

/// ULIDs and time that the proposer has chosen for all resources that one command deletes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProposerChoices {
    /// The first of the ULIDs that the command may need; the further ones are the numbers after it.
    pub ulid: u128,
    /// The wall clock of the proposer, in RFC 3339 format. Used as time of marks and tombstones.
    pub now: String,
}

/// Outcome of a command about resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceOutcome {
    /// Of [`ResourceCommand::Write`] and [`ResourceCommand::WriteStatus`]: the resource as it is
    /// stored now.
    Written(Box<Resource>),
    /// Of [`ResourceCommand::Delete`].
    Deleted(ResourceDeletion),
    /// Outcome of [`ResourceCommand::Reap`]: the children that the step removed and marked.
    Reaped(ResourceReaped),
}

/// Effect of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceDeletion {
    /// The delete changed nothing. The resource is absent, or it is marked already and still has
    /// finalizers or, as a unit of tenancy, resources in it.
    Nothing,
    /// The resource is now marked for deletion. It has finalizers, or is a unit of tenancy with
    /// resources in it.
    Marked,
    /// The resource is removed.
    Removed,
}

/// Effect of one [`ResourceReap`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceReaped {
    /// Number of children that this step removed.
    pub removed: u64,
    /// Number of children that this step newly marked for deletion, because they have finalizers or
    /// are units of tenancy with resources in them. Children that were marked before, or that
    /// cannot be deleted, are in neither count.
    pub marked: u64,
    /// Value of [`ResourceReap::after`] for the next step; `None` if this step was the last one.
    pub next: Option<Bytes>,
}

/// The reason for which the state machine refused a command about resources. The texts are for
/// clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
#[repr(u8)]
pub enum ResourceRefusal {
    /// The type is not registered. Another version of its group may be.
    #[error("resource type not registered")]
    TypeUnknown = 1,
    /// The type's registration is not the one that the data was checked against. Check the data
    /// again and retry.
    #[error("resource type was changed meanwhile")]
    TypeChanged = 2,
    /// The given units of tenancy do not match the type's scope.
    #[error("tenancy does not fit the scope of the resource type")]
    ScopeMismatch = 3,
    /// The partition of the resource does not exist.
    #[error("partition not found")]
    PartitionNotFound = 4,
    /// The namespace of the resource does not exist.
    #[error("namespace not found")]
    NamespaceNotFound = 5,
    /// The partition or namespace is marked for deletion. Only deletes, statuses and writes for
    /// deletion are accepted in it.
    #[error("tenancy marked for deletion: nothing new can be written there")]
    TenancyMarked = 6,
    /// A new resource came with a status.
    #[error("cannot set a status while creating a resource, use the WriteStatus endpoint instead")]
    StatusAtCreation = 7,
    /// A write came with statuses that are not the stored ones. A write without any keeps the
    /// stored ones.
    #[error("cannot modify resource.status using the Write endpoint, use the WriteStatus endpoint instead")]
    StatusModified = 8,
    /// A new resource came marked for deletion.
    #[error("cannot create a resource that is marked for deletion (deletionTimestamp)")]
    MarkedAtCreation = 9,
    /// There is no resource of the owner's name.
    #[error("resource.owner does not exist")]
    OwnerNotFound = 10,
    /// The owner is stored under another version of its type's group.
    #[error("resource.owner is stored with a different GroupVersion")]
    OwnerOtherVersion = 11,
    /// A write named another owner than the stored one, left it out, or named one for a resource
    /// without owner.
    #[error("owner cannot be changed")]
    OwnerChanged = 12,
    /// The expected version is not that of the stored resource; or nothing is stored for a write
    /// that expects a version.
    #[error("CAS operation failed because the given version doesn't match what is stored")]
    VersionMismatch = 13,
    /// The stored resource of that name has another uid than the given one.
    #[error("the given uid doesn't match what is stored")]
    WrongUid = 14,
    /// A write removed the mark for deletion.
    #[error("cannot remove deletionTimestamp")]
    MarkRemoved = 15,
    /// A write changed the mark for deletion, which was not empty.
    #[error("cannot modify deletionTimestamp")]
    MarkModified = 16,
    /// A write changed metadata that it must keep. A write that sets the mark may change no other
    /// key. Of a marked resource with finalizers only [`FINALIZERS`](super::FINALIZERS) may change.
    #[error("cannot modify metadata of a resource that is marked for deletion, but for removing finalizers")]
    MetadataModified = 17,
    /// A write changed the data of a marked resource with finalizers, or set the mark and changed
    /// the data.
    #[error("cannot modify data of a resource that is marked for deletion")]
    DataModified = 18,
    /// A write to a marked resource changed neither its data nor its other metadata.
    #[error("cannot no-op write resource marked for deletion")]
    NoOpWrite = 19,
    /// A write to a marked resource with finalizers removed none of them, or added one.
    #[error("expected at least one finalizer to be removed, and none to be added")]
    FinalizerNotRemoved = 20,
    /// There is no resource of that name or, for a read with a uid, it has another uid.
    #[error("resource not found")]
    NotFound = 21,
    /// The resource is stored under another version of its type's group.
    #[error("resource is stored with a different GroupVersion than was requested")]
    OtherGroupVersion = 22,
    /// The type to delete has resources.
    #[error("resource type is in use: delete its resources first")]
    TypeInUse = 23,
    /// A write changed the group, version, kind or scope of a registered type. Kinds that differ
    /// only in case count as such a change.
    #[error("group, version, kind and scope of a registered resource type cannot be changed")]
    TypeIdentityChanged = 24,
    /// The request would mark or delete the default partition, or its default namespace. Both
    /// always exist.
    #[error("the default partition and namespace cannot be deleted")]
    DefaultUnit = 25,
    /// The owner has no tombstone, or its tombstone has another version by now.
    #[error("nothing to reap")]
    NothingToReap = 26,
    /// There are [`RESOURCE_TYPES_MAX`](crate::limits::RESOURCE_TYPES_MAX) registered types
    /// already.
    #[error("too many resource types are registered")]
    TooManyTypes = 27,
    /// The resource would exceed [`RESOURCE_BYTES_MAX`](crate::limits::RESOURCE_BYTES_MAX).
    #[error("the resource would become too large")]
    TooLarge = 28,
    /// The stored resource with the owner's name has another uid than the given owner.
    #[error(
        "resource.owner.uid doesn't match what is stored under the owner's name; leave it out to mean the stored one"
    )]
    OwnerWrongUid = 29,
    /// The owner's units of tenancy do not match the scope of its type.
    #[error("resource.owner.tenancy does not fit the scope of the owner's type")]
    OwnerScopeMismatch = 30,
    /// A write names a uid, and no resource of that name exists: that incarnation was deleted.
    #[error("the resource with the given uid does not exist any more; leave out the uid to create a new one")]
    Gone = 31,
    /// A write sets `deletionTimestamp` to a text that is neither empty nor an RFC 3339 time.
    #[error("deletionTimestamp must be a time as RFC 3339 has it, such as 2026-01-31T12:00:00Z")]
    MarkInvalid = 32,
}

impl ResourceRefusal {
    /// Every refusal, by number.
    pub const ALL: [Self; 32] = [
        Self::TypeUnknown,
        Self::TypeChanged,
        Self::ScopeMismatch,
        Self::PartitionNotFound,
        Self::NamespaceNotFound,
        Self::TenancyMarked,
        Self::StatusAtCreation,
        Self::StatusModified,
        Self::MarkedAtCreation,
        Self::OwnerNotFound,
        Self::OwnerOtherVersion,
        Self::OwnerChanged,
        Self::VersionMismatch,
        Self::WrongUid,
        Self::MarkRemoved,
        Self::MarkModified,
        Self::MetadataModified,
        Self::DataModified,
        Self::NoOpWrite,
        Self::FinalizerNotRemoved,
        Self::NotFound,
        Self::OtherGroupVersion,
        Self::TypeInUse,
        Self::TypeIdentityChanged,
        Self::DefaultUnit,
        Self::NothingToReap,
        Self::TooManyTypes,
        Self::TooLarge,
        Self::OwnerWrongUid,
        Self::OwnerScopeMismatch,
        Self::Gone,
        Self::MarkInvalid,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_listed_by_number() {
        for (at, refusal) in ResourceRefusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, at + 1, "{refusal}");
        }
    }
}
