//! The topic of resources: subjects are the selectors of lists, wildcards included.
//!
//! Owns the routing of a change to its subscribers. A subject is found by type, tenancy and name
//! prefix. Type and tenancy are tried as they are and in each of their wildcard forms, prefixes by
//! the lengths in use. The cost of a change depends on the number of wildcard forms and prefix
//! lengths, not on the number of subjects.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::commit::Commit;
use super::topic::{SubjectIndex, Topic};
use headwater_types::resource::{Resource, ResourceId, Selector, Tenancy, Type, WILDCARD};
use headwater_types::{CommandEvents, ResourceEvent};

/// Changes of resources. A subject is the selector of a watch.
#[derive(Debug)]
pub struct Resources;

/// Data derived from one change of one resource.
#[derive(Debug, Default)]
pub struct ResourceMemo {
    encoded: OnceLock<Bytes>,
}

/// Memory beside a change's content, bytes: its item in lists, its memo, the parts of the resource.
const OVERHEAD_BYTES: usize = 768;

impl Commit<Resources> {
    /// The encoding of the change at `position` of [`events`](Self::events), made by `encode` on
    /// first use.
    pub fn encoded(&self, position: usize, encode: impl FnOnce() -> Bytes) -> &Bytes {
        self.memo(position).encoded.get_or_init(encode)
    }
}

impl Topic for Resources {
    type Event = ResourceEvent;
    type Memo = ResourceMemo;
    type Subject = Selector;
    type Index = ResourceIndex;

    const NAME: &'static str = "resources";

    fn events(commit: &CommandEvents) -> Arc<[ResourceEvent]> {
        Arc::clone(&commit.resources)
    }

    fn matches(subject: &Selector, event: &ResourceEvent) -> bool {
        subject.matches(&event.resource.id)
    }

    /// Counts the content twice: once decoded, once encoded.
    fn cost_bytes(event: &ResourceEvent) -> usize {
        2 * content_bytes(&event.resource) + OVERHEAD_BYTES
    }
}

/// Approximate size of a resource's own content, bytes.
fn content_bytes(resource: &Resource) -> usize {
    let metadata: usize = resource.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    let conditions = resource.status.values().flat_map(|status| &status.conditions);
    let status: usize =
        conditions.map(|found| found.type_.len() + found.reason.len() + found.message.len() + OVERHEAD_BYTES / 4).sum();
    metadata + status + resource.data.as_ref().map_or(0, |data| data.type_url.len() + data.value.len())
}

/// Slots by type and tenancy, then by name prefix.
#[derive(Default)]
pub struct ResourceIndex {
    prefixes: HashMap<(Type, Tenancy), Prefixes>,
    /// Each type in `prefixes`, with the number of its entries there. A type may contain wildcards.
    types: HashMap<Type, usize>,
}

#[derive(Default)]
struct Prefixes {
    slots: HashMap<String, usize>,
    /// Lengths of the name prefixes, bytes, each with the number of subjects that have a prefix of
    /// that length.
    lengths: BTreeMap<usize, usize>,
}

impl SubjectIndex<Resources> for ResourceIndex {
    fn get(&self, subject: &Selector) -> Option<usize> {
        let prefixes = self.prefixes.get(&(subject.type_.clone(), subject.tenancy.clone()))?;
        prefixes.slots.get(&subject.name_prefix).copied()
    }

    fn insert(&mut self, subject: &Selector, slot: usize) {
        let prefixes = self.prefixes.entry((subject.type_.clone(), subject.tenancy.clone())).or_insert_with(|| {
            *self.types.entry(subject.type_.clone()).or_default() += 1;
            Prefixes::default()
        });
        prefixes.slots.insert(subject.name_prefix.clone(), slot);
        *prefixes.lengths.entry(subject.name_prefix.len()).or_default() += 1;
    }

    fn remove(&mut self, subject: &Selector) {
        let key = (subject.type_.clone(), subject.tenancy.clone());
        let Some(prefixes) = self.prefixes.get_mut(&key) else { return };
        if prefixes.slots.remove(&subject.name_prefix).is_some() {
            let length = subject.name_prefix.len();
            if let Some(count) = prefixes.lengths.get_mut(&length) {
                *count -= 1;
                if *count == 0 {
                    prefixes.lengths.remove(&length);
                }
            }
        }
        if prefixes.slots.is_empty() {
            self.prefixes.remove(&key);
            if let Some(count) = self.types.get_mut(&key.0) {
                *count -= 1;
                if *count == 0 {
                    self.types.remove(&key.0);
                }
            }
        }
    }

    fn route(&self, event: &ResourceEvent, found: &mut dyn FnMut(usize)) {
        if self.prefixes.is_empty() {
            return;
        }
        let id = &event.resource.id;
        let Type { group, group_version, kind } = &id.type_;
        let types = [
            (group.as_str(), group_version.as_str(), kind.as_str()),
            (group, WILDCARD, kind),
            (group, group_version, WILDCARD),
            (group, WILDCARD, WILDCARD),
            (WILDCARD, WILDCARD, WILDCARD),
        ];
        for (group, group_version, kind) in types {
            self.route_as(Type::new(group, group_version, kind), id, found);
        }
    }
}

impl ResourceIndex {
    /// Calls `found` with the slots of the subjects that match `id` and have exactly the type
    /// `type_`, which may contain wildcards.
    fn route_as(&self, type_: Type, id: &ResourceId, found: &mut dyn FnMut(usize)) {
        if !self.types.contains_key(&type_) {
            return;
        }
        let mut key = (type_, Tenancy::default());
        for partition in [id.tenancy.partition.as_str(), WILDCARD] {
            for namespace in [id.tenancy.namespace.as_str(), WILDCARD] {
                key.1.partition.clear();
                key.1.partition.push_str(partition);
                key.1.namespace.clear();
                key.1.namespace.push_str(namespace);
                let Some(prefixes) = self.prefixes.get(&key) else { continue };
                for &length in prefixes.lengths.keys() {
                    if length > id.name.len() {
                        break;
                    }
                    // No prefix ends inside a character.
                    let Some(prefix) = id.name.get(..length) else { continue };
                    if let Some(&slot) = prefixes.slots.get(prefix) {
                        found(slot);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use headwater_types::ChangeKind;

    fn unit() -> impl Strategy<Value = String> {
        prop::sample::select(vec!["", "p", "q"]).prop_map(str::to_owned)
    }

    fn wanted_unit() -> impl Strategy<Value = String> {
        prop::sample::select(vec!["", "p", "q", WILDCARD]).prop_map(str::to_owned)
    }

    fn type_() -> impl Strategy<Value = Type> {
        (prop::sample::select(vec!["v1", "v2"]), prop::sample::select(vec!["A", "B"]))
            .prop_map(|(version, kind)| Type::new("demo", version, kind))
    }

    /// A type, or one of the forms with wildcards.
    fn wanted_type() -> impl Strategy<Value = Type> {
        (type_(), 0..5).prop_map(|(mut type_, form)| {
            if form >= 1 && form != 2 {
                WILDCARD.clone_into(&mut type_.group_version);
            }
            if form >= 2 {
                WILDCARD.clone_into(&mut type_.kind);
            }
            if form == 4 {
                WILDCARD.clone_into(&mut type_.group);
            }
            type_
        })
    }

    fn selector() -> impl Strategy<Value = Selector> {
        (wanted_type(), wanted_unit(), wanted_unit(), "[ab]{0,3}").prop_map(
            |(type_, partition, namespace, name_prefix)| Selector {
                type_,
                tenancy: Tenancy { partition, namespace },
                name_prefix,
            },
        )
    }

    fn event() -> impl Strategy<Value = ResourceEvent> {
        (type_(), unit(), unit(), "[abä]{1,3}").prop_map(|(type_, partition, namespace, name)| {
            let id = ResourceId { uid: String::new(), name, type_, tenancy: Tenancy { partition, namespace } };
            ResourceEvent { kind: ChangeKind::Put, resource: Resource { id, ..Resource::default() }.into() }
        })
    }

    proptest! {
        #[test]
        fn routing_finds_what_matches(
            subjects in prop::collection::hash_set(selector(), 0..20),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
            events in prop::collection::vec(event(), 1..10),
        ) {
            let mut subjects: Vec<Selector> = subjects.into_iter().collect();
            let mut index = ResourceIndex::default();
            for (slot, subject) in subjects.iter().enumerate() {
                index.insert(subject, slot);
            }
            let mut slots: Vec<usize> = (0..subjects.len()).collect();
            for at in removed {
                if !subjects.is_empty() {
                    let at = at.index(subjects.len());
                    index.remove(&subjects.remove(at));
                    slots.remove(at);
                }
            }
            for (subject, slot) in subjects.iter().zip(&slots) {
                prop_assert_eq!(index.get(subject), Some(*slot));
            }
            for event in events {
                let mut routed = Vec::new();
                index.route(&event, &mut |slot| routed.push(slot));
                routed.sort_unstable();
                let matching = subjects.iter().zip(&slots).filter(|(subject, _)| Resources::matches(subject, &event));
                prop_assert_eq!(routed, matching.map(|(_, slot)| *slot).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn an_index_without_subjects_keeps_nothing() {
        let mut index = ResourceIndex::default();
        let subject = Selector::everywhere(Type::new("demo", "v1", "A"));
        index.insert(&subject, 3);
        index.remove(&subject);
        assert!(index.prefixes.is_empty() && index.types.is_empty());
        assert_eq!(index.get(&subject), None);
    }
}
