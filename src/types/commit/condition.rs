//! Conditions of a commit.

use bytes::Bytes;

use crate::resource::{ResourceId, Selector, resource_key};
use crate::{Compare, KeyRange, LeaseId, LogIndex, Space, StoreEpoch};

/// A condition on the state before the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitCondition {
    /// A compare of etcd's transactions.
    Compare(Compare),
    /// A test of an entity. With an epoch, the condition also fails in a store of another epoch.
    Entity(CommitEntity, EntityTest, Option<StoreEpoch>),
}

/// The entity that a condition tests, or a set of entities. Each variant corresponds to a path of
/// `google.watcher.v1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitEntity {
    /// A key.
    Key(Bytes),
    /// A key and the keys below it, which begin with it and a slash; every key, if it is empty.
    KeysBelow(Bytes),
    /// The resource with this id; the uid does not count. A resource that is stored under another
    /// version of its type counts as absent, except for [`EntityTest::UnchangedSince`].
    Resource(ResourceId),
    /// The resources that match the selector.
    Resources(Selector),
    /// An instance of a service, with its node and the checks of both.
    Instance {
        /// Name of the service.
        service: String,
        /// Name of the node.
        node: String,
        /// Id of the instance.
        id: String,
    },
    /// The instances of a service, on one node or on all of them.
    Instances {
        /// Name of the service; empty for every service.
        service: String,
        /// Name of the node; empty for every node.
        node: String,
    },
    /// A node of the service catalog, by name.
    Node(String),
    /// A lease.
    Lease(LeaseId),
}

impl CommitEntity {
    /// Whether it is a single entity and not a set. [`EntityTest::Index`] and
    /// [`EntityTest::Exists`] are only for single entities.
    pub fn is_one(&self) -> bool {
        match self {
            Self::Key(_) | Self::Resource(_) | Self::Instance { .. } | Self::Node(_) | Self::Lease(_) => true,
            Self::KeysBelow(_) | Self::Resources(_) | Self::Instances { .. } => false,
        }
    }

    /// The intervals, each with its space, that a principal must have the right to read in order to
    /// test the entity. For a lease: all keys.
    pub fn intervals(&self) -> Vec<(Space, KeyRange)> {
        let named = |space: Space, name: &str| match name {
            "" => (space, KeyRange::all()),
            name => (space, KeyRange::One(space.key_of(name))),
        };
        match self {
            Self::Key(key) => vec![(Space::Kv, KeyRange::One(key.clone()))],
            Self::KeysBelow(_) => self.key_ranges().into_iter().map(|range| (Space::Kv, range)).collect(),
            Self::Resource(id) => vec![(Space::Resource, KeyRange::One(resource_key(id)))],
            Self::Resources(selector) => vec![(Space::Resource, selector.range())],
            Self::Instance { service, node, .. } | Self::Instances { service, node } => {
                vec![named(Space::CatalogService, service), named(Space::CatalogNode, node)]
            }
            Self::Node(name) => vec![named(Space::CatalogNode, name)],
            Self::Lease(_) => vec![(Space::Kv, KeyRange::all())],
        }
    }

    /// The intervals of keys that the entity consists of. Empty unless it is [`Self::Key`] or
    /// [`Self::KeysBelow`].
    pub fn key_ranges(&self) -> Vec<KeyRange> {
        match self {
            Self::Key(key) => vec![KeyRange::One(key.clone())],
            Self::KeysBelow(key) if key.is_empty() => vec![KeyRange::all()],
            Self::KeysBelow(key) => {
                vec![KeyRange::One(key.clone()), KeyRange::prefix([key, &b"/"[..]].concat().into())]
            }
            Self::Resource(_)
            | Self::Resources(_)
            | Self::Instance { .. }
            | Self::Instances { .. }
            | Self::Node(_)
            | Self::Lease(_) => Vec::new(),
        }
    }
}

/// The test of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntityTest {
    /// The last change of the entity has this log index; zero requires that it does not exist. Only
    /// for single entities. A lease changes only when it is granted.
    Index(LogIndex),
    /// Nothing of the entity was created, changed or removed after this log index. Not for a lease,
    /// because its end leaves no trace in the state.
    UnchangedSince(LogIndex),
    /// The entity exists (true), or does not exist (false). Only for single entities.
    Exists(bool),
}

impl EntityTest {
    /// Whether the test is defined for the entity.
    pub fn fits(&self, entity: &CommitEntity) -> bool {
        match self {
            Self::Index(_) | Self::Exists(_) => entity.is_one(),
            Self::UnchangedSince(_) => !matches!(entity, CommitEntity::Lease(_)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_fit_their_entities() {
        let (key, below) = (CommitEntity::Key("a".into()), CommitEntity::KeysBelow("a".into()));
        let lease = CommitEntity::Lease(LeaseId(1));
        let (index, since) = (EntityTest::Index(LogIndex(1)), EntityTest::UnchangedSince(LogIndex(1)));
        for (test, entity, fits) in [
            (index, &key, true),
            (index, &below, false),
            (index, &lease, true),
            (since, &key, true),
            (since, &below, true),
            (since, &lease, false),
            (EntityTest::Exists(true), &below, false),
            (EntityTest::Exists(false), &lease, true),
        ] {
            assert_eq!(test.fits(entity), fits, "{test:?} of {entity:?}");
        }
    }

    #[test]
    fn keys_below_are_separated_by_a_slash() {
        let ranges = CommitEntity::KeysBelow("app".into()).key_ranges();
        let contains = |key: &str| ranges.iter().any(|range| range.contains(key.as_bytes()));
        let found = ["app", "app/", "app/a", "app0", "apple", "ap"].map(contains);
        assert_eq!(found, [true, true, true, false, false, false]);
        assert_eq!(CommitEntity::KeysBelow(Bytes::new()).key_ranges(), [KeyRange::all()]);
    }
}
