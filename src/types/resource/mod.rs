//! Typed resources as every layer below the faces sees them (spec: consul §5).
//!
//! Owns the parts of a resource, the rules of names, and the types that exist without registration.
//! Knows nothing of protobuf: `data` is an encoded message with the message's name. Invariant: maps
//! are ordered, so that equal resources encode to equal bytes.

mod command;
mod names;
mod registration;
mod selector;
mod ulid;

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

use super::LogIndex;
use super::limits::RESOURCE_FINDING_BYTES;

pub use command::{
    ProposerChoices, ResourceCommand, ResourceDelete, ResourceDeletion, ResourceOutcome, ResourceReap, ResourceReaped,
    ResourceRefusal, ResourceWrite, ResourceWriteStatus,
};
pub use names::{DEFAULT_UNIT, NameProblem, WILDCARD, check_group, check_group_version, check_kind, check_name};
pub use registration::{ResourceType, Rule, Scope, TypeName, builtin_registrations, builtin_scope, builtin_types};
pub use selector::{Selector, resource_key};
pub use ulid::{is_ulid, ulid_text};

/// Metadata key that marks a resource for deletion.
pub const DELETION_TIMESTAMP: &str = "deletionTimestamp";
/// Metadata key of a resource's finalizers: names separated by white space. A resource with
/// finalizers is marked instead of deleted.
pub const FINALIZERS: &str = "finalizers";

/// Whether `text` is a point in time in RFC 3339 format.
pub fn is_rfc3339(text: &str) -> bool {
    chrono::DateTime::parse_from_rfc3339(text).is_ok()
}

/// Type of a resource. Written `group.version.Kind`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Type {
    /// Name of the group, in lower snake case.
    pub group: String,
    /// Version of the group, such as `v1` or `v2beta1`. Not part of a resource's identity: two
    /// versions of a kind share one space of names.
    pub group_version: String,
    /// Kind, in Pascal case.
    pub kind: String,
}

impl Type {
    /// A type by its parts.
    pub fn new(group: &str, group_version: &str, kind: &str) -> Self {
        Self { group: group.to_owned(), group_version: group_version.to_owned(), kind: kind.to_owned() }
    }

    /// Whether this is the type of tombstones, [`tombstone`](Self::tombstone).
    pub fn is_tombstone(&self) -> bool {
        (self.group.as_str(), self.group_version.as_str(), self.kind.as_str()) == ("internal", "v1", "Tombstone")
    }

    /// Whether this is the type of registrations, [`resource_type`](Self::resource_type).
    pub fn is_resource_type(&self) -> bool {
        (self.group.as_str(), self.group_version.as_str(), self.kind.as_str()) == ("headwater", "v1", "ResourceType")
    }

    /// `internal.v1.Tombstone`, the type of tombstones.
    pub fn tombstone() -> Self {
        Self::new("internal", "v1", "Tombstone")
    }

    /// `headwater.v1.ResourceType`, the type of registrations of types.
    pub fn resource_type() -> Self {
        Self::new("headwater", "v1", "ResourceType")
    }

    /// `tenancy.v2beta1.Partition`, the type of partitions.
    pub fn partition() -> Self {
        Self::new("tenancy", "v2beta1", "Partition")
    }

    /// `tenancy.v2beta1.Namespace`, the type of namespaces.
    pub fn namespace() -> Self {
        Self::new("tenancy", "v2beta1", "Namespace")
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.group, self.group_version, self.kind)
    }
}

/// Partition and namespace of a resource. A unit that the type's scope does not have is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenancy {
    /// Name of the partition, the outer unit. In a query, `*` means every partition.
    pub partition: String,
    /// Name of the namespace, the inner unit. In a query, `*` means every namespace.
    pub namespace: String,
}

impl Tenancy {
    /// Tenancy by its units.
    pub fn new(partition: &str, namespace: &str) -> Self {
        Self { partition: partition.to_owned(), namespace: namespace.to_owned() }
    }
}

/// The identity of one resource and, if `uid` is not empty, of one incarnation of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId {
    /// ULID of one incarnation, from its creation to its deletion. Chosen by the server at
    /// creation. If empty in a request, the stored incarnation is meant.
    pub uid: String,
    /// Name of the resource: a DNS label, but for tombstones, whose names may be longer.
    pub name: String,
    /// Type of the resource.
    pub type_: Type,
    /// Tenancy of the resource.
    pub tenancy: Tenancy,
}

impl ResourceId {
    /// Id of the tombstone that remembers this incarnation, with an empty uid. `self.uid` must be
    /// set (spec: consul §5.9). The name may be longer than
    /// [`RESOURCE_NAME_BYTES_MAX`](super::limits::RESOURCE_NAME_BYTES_MAX).
    pub fn tombstone(&self) -> Self {
        Self {
            uid: String::new(),
            name: format!("tombstone-{}-{}", self.name, self.uid.to_ascii_lowercase()),
            type_: Type::tombstone(),
            tenancy: self.tenancy.clone(),
        }
    }
}

/// The content of a resource: an encoded protobuf message, defined by the author of the type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Any {
    /// URL of the message's type. The part after its last `/` is the full name of the message, as
    /// in `type.googleapis.com/demo.v2.Artist`.
    pub type_url: String,
    /// The message, encoded.
    pub value: Bytes,
}

impl Any {
    /// Full name of the message: the part of the URL after its last `/`, or all of it.
    pub fn message_name(&self) -> &str {
        self.type_url.rsplit('/').next().unwrap_or_default()
    }
}

/// One resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// Type, tenancy, name and uid.
    pub id: ResourceId,
    /// The owner: its deletion also deletes this resource. Set at creation and never changed.
    pub owner: Option<ResourceId>,
    /// Log index of the command that wrote the resource or one of its statuses last. Zero if the
    /// resource is not stored. Decimal text on the wire.
    pub version: LogIndex,
    /// A ULID. Each change of the resource sets a new one, also the mark of a delete, but not a
    /// write of a status.
    pub generation: String,
    /// Key-value pairs of clients. The store itself interprets only [`DELETION_TIMESTAMP`] and
    /// [`FINALIZERS`].
    pub metadata: BTreeMap<String, String>,
    /// Statuses set by controllers, each under its own key.
    pub status: BTreeMap<String, Status>,
    /// Content of the resource. `None` if its type has none, or none was given.
    pub data: Option<Any>,
}

impl Resource {
    /// Whether it is marked for deletion. The store deletes a marked unit of tenancy once it is
    /// empty and has no finalizers. Any other marked resource stays until it is deleted again.
    pub fn is_marked(&self) -> bool {
        self.metadata.contains_key(DELETION_TIMESTAMP)
    }

    /// The names in [`FINALIZERS`], sorted, without repetitions.
    pub fn finalizers(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.metadata.get(FINALIZERS).map(|names| names.split_whitespace().collect()).unwrap_or_default();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Size of the resource, bytes, as [`RESOURCE_BYTES_MAX`](super::limits::RESOURCE_BYTES_MAX)
    /// counts it: metadata, statuses and data. The mark for deletion is left out, so that every
    /// resource that fits can be marked.
    pub fn content_bytes(&self) -> usize {
        let metadata = self.metadata.iter().filter(|(key, _)| *key != DELETION_TIMESTAMP);
        let metadata: usize = metadata.map(|(key, value)| key.len() + value.len()).sum();
        let status: usize = self.status.iter().map(|(key, status)| key.len() + status.content_bytes()).sum();
        let data = self.data.as_ref().map_or(0, |data| data.type_url.len() + data.value.len());
        metadata + status + data
    }
}

/// A status of a resource, set by one controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The generation of the resource that the status is about.
    pub observed_generation: String,
    /// The controller's findings.
    pub conditions: Vec<Condition>,
    /// Time at which the status was written. Set by the server; `None` in a request.
    pub updated_at: Option<Timestamp>,
}

impl Status {
    fn content_bytes(&self) -> usize {
        let findings: usize = self.conditions.iter().map(Condition::content_bytes).sum();
        self.observed_generation.len() + RESOURCE_FINDING_BYTES + findings
    }
}

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since the Unix epoch.
    pub seconds: i64,
    /// Nanoseconds after [`seconds`](Self::seconds), 0 to 999 999 999.
    pub nanos: i32,
}

impl Timestamp {
    /// The timestamp of a time in milliseconds since the Unix epoch.
    pub fn from_unix_ms(unix_ms: u64) -> Self {
        let seconds = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
        Self { seconds, nanos: (unix_ms % 1000) as i32 * 1_000_000 }
    }
}

/// One finding of a controller about a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Type of the condition, chosen by the controller.
    pub type_: String,
    /// State of the condition: 0 unknown, 1 true, 2 false. An earlier version of the program
    /// accepted other numbers, too; they stay as stored.
    pub state: i32,
    /// The reason, for programs.
    pub reason: String,
    /// The reason, for people.
    pub message: String,
    /// The resource that the condition is about; `None` if it is the one that has the status.
    pub resource: Option<Reference>,
}

impl Condition {
    fn content_bytes(&self) -> usize {
        let about = self.resource.as_ref().map_or(0, Reference::content_bytes);
        self.type_.len() + self.reason.len() + self.message.len() + RESOURCE_FINDING_BYTES + about
    }
}

/// A reference from a condition to another resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// Type of the resource.
    pub type_: Type,
    /// Tenancy of the resource.
    pub tenancy: Tenancy,
    /// Name of the resource.
    pub name: String,
    /// The part of the resource that is meant; empty for all of it.
    pub section: String,
}

impl Reference {
    fn content_bytes(&self) -> usize {
        let Type { group, group_version, kind } = &self.type_;
        let Tenancy { partition, namespace } = &self.tenancy;
        [group, group_version, kind, partition, namespace, &self.name, &self.section].map(String::len).iter().sum()
    }
}
