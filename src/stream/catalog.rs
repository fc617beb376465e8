//! The topic of the service catalog: subjects are services, service names, nodes and tables.
//! Services also have subjects for their instances in the mesh.
//!
//! Owns the routing of an event to its subscribers. Every event names its subject, so routing is
//! one look-up, and a second one for the subscriptions to all services or all nodes. Client streams
//! and blocking queries subscribe alike.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::commit::Commit;
use super::topic::{SubjectIndex, Topic};
use headwater_types::CommandEvents;
use headwater_types::catalog::{
    CatalogBody, CatalogEvent, CatalogTable, CatalogTopic, Check, CheckServiceNode, canonical,
};

/// Changes of the service catalog.
#[derive(Debug)]
pub struct Catalog;

/// The subject of one subscription to the catalog. Names are canonical: make them with
/// [`service`](Self::service), [`connect`](Self::connect) and [`node`](Self::node).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CatalogSubject {
    /// Instances of a service and their health.
    Service(Arc<str>),
    /// All instances of all services.
    EveryService,
    /// Instances through which a service is reached in the mesh.
    Connect(Arc<str>),
    /// All instances through which any service is reached in the mesh.
    EveryConnect,
    /// Service names: one event when a name gets its first instance, one when it loses its last.
    ServiceList,
    /// A node: an event when its row, or an instance or a check on it, changes.
    Node(Arc<str>),
    /// Every node, as [`Node`](Self::Node).
    EveryNode,
    /// A table of the catalog: one event without content for each command that changed the table.
    Table(CatalogTable),
}

impl CatalogSubject {
    /// Instances of the service with this name, compared without letter case.
    pub fn service(name: &str) -> Self {
        Self::Service(canonical(name).into())
    }

    /// Instances through which the service with this name is reached in the mesh. The name is
    /// compared without letter case.
    pub fn connect(name: &str) -> Self {
        Self::Connect(canonical(name).into())
    }

    /// The node with this name, compared without letter case.
    pub fn node(name: &str) -> Self {
        Self::Node(canonical(name).into())
    }

    /// The subject that an event names: never one of all services, all mesh instances or all nodes.
    /// `None` if an event of [`CatalogTopic::Table`] does not name a table.
    fn of(event: &CatalogEvent) -> Option<Self> {
        let key = || Arc::clone(&event.key);
        match (event.topic, &event.body) {
            (CatalogTopic::ServiceHealth, _) => Some(Self::Service(key())),
            (CatalogTopic::ServiceHealthConnect, _) => Some(Self::Connect(key())),
            (CatalogTopic::ServiceList, _) => Some(Self::ServiceList),
            (CatalogTopic::Node, _) => Some(Self::Node(key())),
            (CatalogTopic::Table, CatalogBody::Table(table)) => Some(Self::Table(*table)),
            (CatalogTopic::Table, CatalogBody::Instance(_) | CatalogBody::Name(_) | CatalogBody::Node(_)) => None,
        }
    }
}

/// Data derived from one event: its encoding.
#[derive(Debug, Default)]
pub struct CatalogMemo {
    encoded: OnceLock<Bytes>,
}

/// Estimate of an event's memory besides its content, bytes: its item in lists, its memo, and small
/// allocations that are not counted one by one.
const OVERHEAD_BYTES: usize = 768;
/// Memory of a row, bytes, without the texts and maps that are counted one by one.
const ROW_BYTES: usize = 512;

impl Commit<Catalog> {
    /// The encoding of the event at `position` of [`events`](Self::events), made by `encode` on
    /// first use.
    pub fn encoded(&self, position: usize, encode: impl FnOnce() -> Bytes) -> &Bytes {
        self.memo(position).encoded.get_or_init(encode)
    }
}

impl Topic for Catalog {
    type Event = CatalogEvent;
    type Memo = CatalogMemo;
    type Subject = CatalogSubject;
    type Index = CatalogIndex;

    const NAME: &'static str = "catalog";

    fn events(commit: &CommandEvents) -> Arc<[CatalogEvent]> {
        Arc::clone(&commit.catalog)
    }

    fn matches(subject: &CatalogSubject, event: &CatalogEvent) -> bool {
        match subject {
            CatalogSubject::Service(name) => event.topic == CatalogTopic::ServiceHealth && event.key == *name,
            CatalogSubject::EveryService => event.topic == CatalogTopic::ServiceHealth,
            CatalogSubject::Connect(name) => event.topic == CatalogTopic::ServiceHealthConnect && event.key == *name,
            CatalogSubject::EveryConnect => event.topic == CatalogTopic::ServiceHealthConnect,
            CatalogSubject::ServiceList => event.topic == CatalogTopic::ServiceList,
            CatalogSubject::Node(name) => event.topic == CatalogTopic::Node && event.key == *name,
            CatalogSubject::EveryNode => event.topic == CatalogTopic::Node,
            CatalogSubject::Table(table) => event.body == CatalogBody::Table(*table),
        }
    }

    /// Counts the content twice: once decoded, once encoded.
    fn cost_bytes(event: &CatalogEvent) -> usize {
        let content = match &event.body {
            CatalogBody::Instance(instance) => instance_bytes(instance),
            CatalogBody::Name(name) => name.len(),
            CatalogBody::Node(node) => ROW_BYTES + texts(node.meta.iter()) + texts(node.tagged_addresses.iter()),
            CatalogBody::Table(_) => 0,
        };
        2 * content + OVERHEAD_BYTES
    }
}

/// Approximate size of an instance's own content, bytes.
fn instance_bytes(instance: &CheckServiceNode) -> usize {
    let (node, service) = (&instance.node, &instance.service);
    let node = texts(node.meta.iter()) + texts(node.tagged_addresses.iter());
    let tags: usize = service.tags.iter().map(String::len).sum();
    let more = service.proxy.more_json.len() + service.connect.more_json.len();
    let check = |check: &Arc<Check>| ROW_BYTES + check.output.len() + check.notes.len();
    let checks: usize = instance.checks.iter().map(check).sum();
    2 * ROW_BYTES + node + texts(service.meta.iter()) + tags + more + checks
}

fn texts<'a>(pairs: impl Iterator<Item = (&'a String, &'a String)>) -> usize {
    pairs.map(|(key, value)| key.len() + value.len()).sum()
}

/// The feed's slot of each subject.
#[derive(Default)]
pub struct CatalogIndex {
    slots: HashMap<CatalogSubject, usize>,
}

impl SubjectIndex<Catalog> for CatalogIndex {
    fn get(&self, subject: &CatalogSubject) -> Option<usize> {
        self.slots.get(subject).copied()
    }

    fn insert(&mut self, subject: &CatalogSubject, slot: usize) {
        self.slots.insert(subject.clone(), slot);
    }

    fn remove(&mut self, subject: &CatalogSubject) {
        self.slots.remove(subject);
    }

    fn route(&self, event: &CatalogEvent, found: &mut dyn FnMut(usize)) {
        if self.slots.is_empty() {
            return;
        }
        if let Some(slot) = CatalogSubject::of(event).and_then(|subject| self.get(&subject)) {
            found(slot);
        }
        let everything = match event.topic {
            CatalogTopic::ServiceHealth => CatalogSubject::EveryService,
            CatalogTopic::ServiceHealthConnect => CatalogSubject::EveryConnect,
            CatalogTopic::Node => CatalogSubject::EveryNode,
            CatalogTopic::ServiceList | CatalogTopic::Table => return,
        };
        if let Some(slot) = self.get(&everything) {
            found(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use headwater_types::catalog::{CatalogNode, CatalogOp, Service};

    fn key() -> impl Strategy<Value = Arc<str>> {
        prop_oneof![Just("web"), Just("we"), Just("db"), Just("")].prop_map(Arc::from)
    }

    fn subjects() -> impl Strategy<Value = CatalogSubject> {
        prop_oneof![
            key().prop_map(CatalogSubject::Service),
            Just(CatalogSubject::EveryService),
            key().prop_map(CatalogSubject::Connect),
            Just(CatalogSubject::EveryConnect),
            Just(CatalogSubject::ServiceList),
            key().prop_map(CatalogSubject::Node),
            Just(CatalogSubject::EveryNode),
            (0..CatalogTable::ALL.len()).prop_map(|at| CatalogSubject::Table(CatalogTable::ALL[at])),
        ]
    }

    fn events() -> impl Strategy<Value = CatalogEvent> {
        (0..CatalogTopic::ALL.len(), key(), 0..CatalogTable::ALL.len()).prop_map(|(topic, key, table)| {
            let topic = CatalogTopic::ALL[topic];
            let body = match topic {
                CatalogTopic::ServiceHealth | CatalogTopic::ServiceHealthConnect => {
                    let (node, service) = (Arc::<CatalogNode>::default(), Arc::<Service>::default());
                    CatalogBody::Instance(Arc::new(CheckServiceNode { node, service, checks: Vec::new() }))
                }
                CatalogTopic::ServiceList => CatalogBody::Name(Arc::clone(&key)),
                CatalogTopic::Node => CatalogBody::Node(Arc::default()),
                CatalogTopic::Table => CatalogBody::Table(CatalogTable::ALL[table]),
            };
            let key = if topic == CatalogTopic::Table { "".into() } else { key };
            CatalogEvent { topic, op: CatalogOp::Register, key, body }
        })
    }

    proptest! {
        #[test]
        fn an_event_finds_exactly_the_subjects_that_want_it(
            subjects in prop::collection::btree_set(subjects(), 0..12),
            removed in 0_usize..4,
            events in prop::collection::vec(events(), 1..8),
        ) {
            let mut subjects: Vec<_> = subjects.into_iter().enumerate().collect();
            let mut index = CatalogIndex::default();
            subjects.iter().for_each(|(slot, subject)| index.insert(subject, *slot));
            for (_, subject) in subjects.drain(..removed.min(subjects.len())) {
                index.remove(&subject);
            }
            for event in events {
                let mut routed = Vec::new();
                index.route(&event, &mut |slot| routed.push(slot));
                routed.sort_unstable();
                let wanted = subjects.iter().filter(|(_, subject)| Catalog::matches(subject, &event));
                prop_assert_eq!(routed, wanted.map(|(slot, _)| *slot).collect::<Vec<_>>());
            }
        }
    }
}
