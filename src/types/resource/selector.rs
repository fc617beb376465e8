//! The storage key of a resource, and queries for many resources.
//!
//! The storage key has group, kind, partition, namespace and name. Each part but the name is
//! followed by a separator that sorts before every character of a name. So the resources of a type
//! are ordered by partition, namespace and name, and a query without a wildcard is one interval of
//! keys. The version of the group is not part of the key: all versions of a kind share one space of
//! names (spec: consul §5.15).

use bytes::Bytes;

use super::{ResourceId, Tenancy, Type, WILDCARD};
use crate::KeyRange;

/// Byte after each part of a key but the name. It sorts before every character of a name.
const SEPARATOR: u8 = 1;

/// The storage key of a resource. The same for all its incarnations, and for all versions of its
/// type's group.
pub fn resource_key(id: &ResourceId) -> Bytes {
    let mut key = Vec::with_capacity(
        id.type_.group.len()
            + id.type_.kind.len()
            + id.tenancy.partition.len()
            + id.tenancy.namespace.len()
            + id.name.len()
            + 4,
    );
    for part in [&id.type_.group, &id.type_.kind, &id.tenancy.partition, &id.tenancy.namespace] {
        push_part(&mut key, part);
    }
    key.extend_from_slice(id.name.as_bytes());
    key.into()
}

fn push_part(key: &mut Vec<u8>, part: &str) {
    key.extend_from_slice(part.as_bytes());
    key.push(SEPARATOR);
}

/// A query for resources by type, units of tenancy and prefix of the name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector {
    /// The type. A part that is [`WILDCARD`] matches every value. If the group is a wildcard, the
    /// version and the kind must be, too: subscriptions find no event otherwise.
    pub type_: Type,
    /// The partition and the namespace. A unit that is [`WILDCARD`] matches every value, also the
    /// empty one.
    pub tenancy: Tenancy,
    /// Prefix of the resources' names; empty for all.
    pub name_prefix: String,
}

impl Selector {
    /// The selector of all resources of a type, in all partitions and namespaces.
    pub fn everywhere(type_: Type) -> Self {
        Self { type_, tenancy: Tenancy::new(WILDCARD, WILDCARD), name_prefix: String::new() }
    }

    /// Whether the selector matches the resource `id`, its group version included. The uid does not
    /// matter.
    pub fn matches(&self, id: &ResourceId) -> bool {
        let part = |wanted: &str, part: &str| wanted == WILDCARD || wanted == part;
        part(&self.type_.group, &id.type_.group)
            && part(&self.type_.group_version, &id.type_.group_version)
            && part(&self.type_.kind, &id.type_.kind)
            && self.is_at(id)
    }

    /// Whether partition, namespace and name of `id` match.
    fn is_at(&self, id: &ResourceId) -> bool {
        let unit = |wanted: &str, unit: &str| wanted == WILDCARD || wanted == unit;
        unit(&self.tenancy.partition, &id.tenancy.partition)
            && unit(&self.tenancy.namespace, &id.tenancy.namespace)
            && id.name.starts_with(&self.name_prefix)
    }

    /// An interval of storage keys that contains the key of every match. It may contain other keys,
    /// too: it ignores all parts after the first wildcard, and the version of the group. Check each
    /// resource with [`matches`](Self::matches).
    pub fn range(&self) -> KeyRange {
        let mut prefix = Vec::new();
        for part in [&self.type_.group, &self.type_.kind] {
            if part == WILDCARD {
                return KeyRange::prefix(prefix.into());
            }
            push_part(&mut prefix, part);
        }
        for unit in [&self.tenancy.partition, &self.tenancy.namespace] {
            if unit == WILDCARD {
                return KeyRange::prefix(prefix.into());
            }
            push_part(&mut prefix, unit);
        }
        prefix.extend_from_slice(self.name_prefix.as_bytes());
        KeyRange::prefix(prefix.into())
    }

    /// The keys of [`range`](Self::range) after the storage key `last`, which must be one of them.
    pub fn range_after(&self, last: &[u8]) -> KeyRange {
        let mut next = last.to_vec();
        next.push(0);
        let end = match self.range() {
            KeyRange::Span { end, .. } => end,
            KeyRange::One(_) => unreachable!("a prefix is a span"),
        };
        KeyRange::Span { start: next.into(), end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(kind: &str, partition: &str, namespace: &str, name: &str) -> ResourceId {
        ResourceId {
            uid: String::new(),
            name: name.to_owned(),
            type_: Type::new("demo", "v1", kind),
            tenancy: Tenancy::new(partition, namespace),
        }
    }

    #[test]
    fn keys_are_pinned_and_in_order() {
        let keys: Vec<Bytes> = [
            id("A", "", "", "x"),
            id("A", "p", "", "x"),
            id("A", "p", "n", "a"),
            id("A", "p", "n", "a-b"),
            id("A", "p", "n-n", "a"),
            id("A", "p-p", "n", "a"),
            id("Ab", "", "", "a"),
        ]
        .iter()
        .map(resource_key)
        .collect();
        assert_eq!(keys[2], &b"demo\x01A\x01p\x01n\x01a"[..]);
        assert!(keys.is_sorted(), "{keys:?}");
    }

    #[test]
    fn a_selector_finds_what_it_asks_for() {
        let everything = [
            id("A", "default", "default", "admin"),
            id("A", "default", "default", "api"),
            id("A", "default", "default", "web"),
            id("A", "billing", "payments", "api"),
            id("B", "default", "default", "admin"),
            id("A", "default", "other", "autoscaler"),
        ];
        for (partition, namespace, prefix, wanted) in [
            ("default", "default", "", vec![0, 1, 2]),
            ("billing", "payments", "", vec![3]),
            ("default", "default", "a", vec![0, 1]),
            ("*", "*", "", vec![0, 1, 2, 3, 5]),
            ("default", "*", "", vec![0, 1, 2, 5]),
            ("*", "default", "", vec![0, 1, 2]),
            ("*", "*", "a", vec![0, 1, 3, 5]),
        ] {
            let selector = Selector {
                type_: Type::new("demo", "v1", "A"),
                tenancy: Tenancy::new(partition, namespace),
                name_prefix: prefix.to_owned(),
            };
            let found: Vec<usize> = (0..everything.len()).filter(|&at| selector.matches(&everything[at])).collect();
            assert_eq!(found, wanted, "{selector:?}");
            for at in wanted {
                let key = resource_key(&everything[at]);
                assert!(selector.range().contains(&key), "{selector:?} {at}");
                assert!(!selector.range_after(&key).contains(&key));
            }
            assert!(!selector.range().contains(&resource_key(&everything[4])), "{selector:?}");
        }
    }
}
