//! The rule that no two operations of a commit name the same entity.
//!
//! Decided from the operations alone, in less than quadratic time. An overlap between consequences
//! of operations, such as the keys of a revoked lease, is found in apply.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bytes::Bytes;

use super::{Commit, FaceOp};
use crate::KeyRange;
use crate::catalog::{CatalogCommand, CatalogNode, Deregistration, DeregistrationTarget, Registration, canonical};
use crate::consul::consul_key;
use crate::resource::{ResourceCommand, ResourceId, resource_key};

/// The numbers of two operations, the smaller one first.
type Pair = (u32, u32);

impl Commit {
    /// Two operations that name the same entity, by number from 0, the smaller one first. `None` if
    /// there are none. Checks of Consul's keys do not count, nor does a node that several
    /// registrations give the same row.
    pub fn overlap(&self) -> Option<Pair> {
        if let [one] = &self.operations[..]
            && matches!(one.of_face(), FaceOp::Put(_) | FaceOp::DeleteRange(_))
        {
            return None;
        }
        let mut named = Named::default();
        for (number, operation) in (0u32..).zip(&self.operations) {
            if let Err(first) = named.add(number, operation.of_face()) {
                return Some((first, number));
            }
        }
        named.overlapping_spans()
    }
}

/// An entity that only one operation may name.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Lease(i64),
    Resource(Bytes),
    Session(String),
    Instance(String, String),
    Check(String, String),
    /// All checks of an instance (node, id), named by an operation that may remove them. With an
    /// empty id, the checks of the node itself.
    ChecksOf(String, String),
}

/// The entities that the operations so far have named, each with the number of the operation.
#[derive(Default)]
struct Named<'c> {
    names: BTreeMap<Name, u32>,
    keys: BTreeMap<Bytes, u32>,
    /// Intervals of keys: start, end (exclusive; `None` for no end), number of the operation.
    spans: Vec<(Bytes, Option<Bytes>, u32)>,
    /// Canonical names of nodes that an operation writes, or on which it writes or removes a row.
    /// With the first such operation.
    nodes: BTreeMap<String, u32>,
    /// Canonical names of nodes that an operation removes with everything on them.
    removed: BTreeMap<String, u32>,
    /// Rows of nodes to be written, by canonical name.
    rows: BTreeMap<String, (&'c CatalogNode, u32)>,
    /// Operations with a check, by node and id of the instance; that of a check of the node is
    /// empty.
    checked: BTreeMap<(String, String), Vec<u32>>,
}

impl<'c> Named<'c> {
    /// Adds the entities that an operation names. The error is the number of an earlier operation
    /// that names one of them. Overlaps of intervals are left to `overlapping_spans`.
    fn add(&mut self, number: u32, operation: FaceOp<'c>) -> Result<(), u32> {
        match operation {
            FaceOp::Put(put) => self.key(number, &put.key),
            FaceOp::DeleteRange(delete) => self.range(number, &delete.range),
            FaceOp::LeaseGrant(grant) => self.name(number, Name::Lease(grant.id.get())),
            FaceOp::LeaseRevoke(revoke) => self.name(number, Name::Lease(revoke.id.get())),
            FaceOp::Resource(command) => match command {
                ResourceCommand::Write(write) => self.resource(number, &write.resource.id),
                ResourceCommand::WriteStatus(write) => self.resource(number, &write.id),
                ResourceCommand::Delete(delete) => self.resource(number, &delete.id),
                ResourceCommand::Reap(_) => Ok(()),
            },
            FaceOp::Catalog(command) => match command {
                CatalogCommand::Register(registration) => self.registration(number, registration),
                CatalogCommand::Deregister(gone) => self.deregistration(number, gone),
                CatalogCommand::SetGateway(_) | CatalogCommand::DeleteGateway(_) => Ok(()),
            },
            FaceOp::ConsulKv(op) if op.verb.is_read() => Ok(()),
            FaceOp::ConsulKv(op) if op.verb.is_about_prefix() => {
                self.range(number, &KeyRange::prefix(consul_key(&op.path)))
            }
            FaceOp::ConsulKv(op) => self.key(number, &consul_key(&op.path)),
            FaceOp::SessionCreate(create) => self.name(number, Name::Session(create.session.id.clone())),
            FaceOp::SessionDestroy(id) => self.name(number, Name::Session(id.to_owned())),
        }
    }

    fn name(&mut self, number: u32, name: Name) -> Result<(), u32> {
        match self.names.entry(name) {
            Entry::Vacant(vacant) => {
                vacant.insert(number);
                Ok(())
            }
            Entry::Occupied(known) if *known.get() == number => Ok(()),
            Entry::Occupied(known) => Err(*known.get()),
        }
    }

    fn resource(&mut self, number: u32, id: &ResourceId) -> Result<(), u32> {
        self.name(number, Name::Resource(resource_key(id)))
    }

    fn key(&mut self, number: u32, key: &Bytes) -> Result<(), u32> {
        match self.keys.insert(key.clone(), number) {
            Some(first) => Err(first),
            None => Ok(()),
        }
    }

    fn range(&mut self, number: u32, range: &KeyRange) -> Result<(), u32> {
        match range {
            KeyRange::One(key) => self.key(number, key),
            KeyRange::Span { .. } if range.is_empty() => Ok(()),
            KeyRange::Span { start, end } => {
                self.spans.push((start.clone(), end.clone(), number));
                Ok(())
            }
        }
    }

    /// Two operations that name a common key, of which one names an interval; smaller number first.
    /// `None` if there are none. Call it after the last `add`.
    fn overlapping_spans(&mut self) -> Option<Pair> {
        let pair = |a: u32, b: u32| (a.min(b), a.max(b));
        self.spans.sort();
        for ((_, end, number), (start, _, next)) in self.spans.iter().zip(self.spans.iter().skip(1)) {
            // The intervals so far are disjoint: only the one before can reach this one.
            if end.as_ref().is_none_or(|end| start < end) {
                return Some(pair(*number, *next));
            }
        }
        for (start, end, number) in &self.spans {
            let within = self.keys.range::<Bytes, _>(start..).next();
            if let Some((key, other)) = within
                && end.as_ref().is_none_or(|end| key < end)
            {
                return Some(pair(*number, *other));
            }
        }
        None
    }

    /// Adds that an operation writes a node, or writes or removes a row on it. Returns the node's
    /// canonical name. The error is the number of the operation that removes the node.
    fn on_node(&mut self, number: u32, node: &str) -> Result<String, u32> {
        let node = canonical(node);
        if let Some(first) = self.removed.get(&node) {
            return Err(*first);
        }
        self.nodes.entry(node.clone()).or_insert(number);
        Ok(node)
    }

    fn registration(&mut self, number: u32, registration: &'c Registration) -> Result<(), u32> {
        let node = self.on_node(number, &registration.node.name)?;
        if !registration.skip_node_update {
            match self.rows.get(&node) {
                // Many instances of one node are registered with the same node.
                Some((row, first)) if **row != registration.node => return Err(*first),
                Some(_) => {}
                None => {
                    self.rows.insert(node.clone(), (&registration.node, number));
                }
            }
        }
        if let Some(service) = &registration.service {
            self.name(number, Name::Instance(node.clone(), service.id.clone()))?;
        }
        if registration.replace_checks {
            self.checks_of(number, &node, registration.service_id())?;
        }
        for check in &registration.checks {
            self.name(number, Name::Check(node.clone(), check.id.clone()))?;
            let all = Name::ChecksOf(node.clone(), check.service_id.clone());
            if let Some(first) = self.names.get(&all).filter(|first| **first != number) {
                return Err(*first);
            }
            self.checked.entry((node.clone(), check.service_id.clone())).or_default().push(number);
        }
        Ok(())
    }

    /// Adds that an operation may remove every check of an instance. The error is the number of
    /// another operation that names such a check, or may remove them, too.
    fn checks_of(&mut self, number: u32, node: &str, instance: &str) -> Result<(), u32> {
        let checked = self.checked.get(&(node.to_owned(), instance.to_owned()));
        if let Some(first) = checked.into_iter().flatten().find(|first| **first != number) {
            return Err(*first);
        }
        self.name(number, Name::ChecksOf(node.to_owned(), instance.to_owned()))
    }

    fn deregistration(&mut self, number: u32, gone: &Deregistration) -> Result<(), u32> {
        match &gone.what {
            DeregistrationTarget::Node => {
                let node = canonical(&gone.node);
                if let Some(first) = self.nodes.get(&node).or_else(|| self.removed.get(&node)) {
                    return Err(*first);
                }
                self.removed.insert(node, number);
                Ok(())
            }
            DeregistrationTarget::Service(id) => {
                let node = self.on_node(number, &gone.node)?;
                self.name(number, Name::Instance(node.clone(), id.clone()))?;
                self.checks_of(number, &node, id)
            }
            DeregistrationTarget::Check(id) => {
                let node = self.on_node(number, &gone.node)?;
                self.name(number, Name::Check(node, id.clone()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::catalog::{Check, Service};
    use crate::commit::CommitOp;
    use crate::consul::{ConsulCommand, KvOp, KvVerb, SessionCreate};
    use crate::resource::{Resource, ResourceDelete, ResourceWrite};
    use crate::{Command, DeleteRange, LeaseChoice, LeaseGrant, LeaseId, LeaseRevoke, LogIndex, Put, ValueChoice};

    fn put(key: &str) -> Command {
        Command::Put(Put {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: ValueChoice::Keep,
            lease: LeaseChoice::Keep,
            prev_kv: false,
        })
    }

    fn delete(key: &str, end: &str) -> Command {
        let [key, end] = [key, end].map(|text| Bytes::copy_from_slice(text.as_bytes()));
        Command::DeleteRange(DeleteRange { range: KeyRange::from_etcd(key, end), prev_kv: false })
    }

    fn kv(verb: KvVerb, path: &str) -> Command {
        let (path, session) = (Bytes::copy_from_slice(path.as_bytes()), String::new());
        let op = KvOp { verb, path, value: Bytes::new(), flags: 0, index: LogIndex::ZERO, session };
        Command::Consul(ConsulCommand::Kv(op))
    }

    fn register(node: &str, address: &str, instance: &str, checks: &[(&str, &str)]) -> Command {
        let check = |(id, instance): &(&str, &str)| Check {
            id: (*id).to_owned(),
            service_id: (*instance).to_owned(),
            ..Check::default()
        };
        let service = Service { id: instance.to_owned(), ..Service::default() };
        Command::Catalog(CatalogCommand::Register(Box::new(Registration {
            node: CatalogNode { name: node.to_owned(), address: address.to_owned(), ..CatalogNode::default() },
            service: (!instance.is_empty()).then_some(service),
            checks: checks.iter().map(check).collect(),
            ..Registration::default()
        })))
    }

    /// A registration that removes the checks it does not name.
    fn replacing(node: &str, instance: &str, checks: &[(&str, &str)]) -> Command {
        let mut command = register(node, "1", instance, checks);
        let Command::Catalog(CatalogCommand::Register(registration)) = &mut command else { unreachable!() };
        registration.replace_checks = true;
        command
    }

    fn deregister(node: &str, what: DeregistrationTarget) -> Command {
        let gone = Deregistration { node: node.to_owned(), what, guard: None };
        Command::Catalog(CatalogCommand::Deregister(Box::new(gone)))
    }

    fn overlap(commands: impl IntoIterator<Item = Command>) -> Option<Pair> {
        let operations = commands.into_iter().map(|command| CommitOp::new(command).unwrap()).collect();
        Commit { operations, ..Commit::default() }.overlap()
    }

    #[test]
    fn two_operations_on_one_entity_are_found() {
        let service = |id: &str| DeregistrationTarget::Service(id.to_owned());
        let check = |id: &str| DeregistrationTarget::Check(id.to_owned());
        let id = ResourceId { name: "r".to_owned(), ..ResourceId::default() };
        let write = Command::Resource(ResourceCommand::Write(Box::new(ResourceWrite {
            resource: Resource { id: id.clone(), ..Resource::default() },
            expected: None,
            uid: String::new(),
            generation: String::new(),
            type_version: LogIndex::ZERO,
            registers: None,
        })));
        let deletion = ResourceDelete { id, expected: None, chosen: Default::default() };
        let deletion = Command::Resource(ResourceCommand::Delete(Box::new(deletion)));
        let grant = |id| Command::LeaseGrant(LeaseGrant { id: LeaseId(id), ttl_seconds: 1 });
        let revoke = |id| Command::LeaseRevoke(LeaseRevoke { id: LeaseId(id) });
        let session = Command::Consul(ConsulCommand::SessionCreate(Box::<SessionCreate>::default()));
        let ended = Command::Consul(ConsulCommand::SessionDestroy(String::new()));
        for (commands, wanted) in [
            (vec![put("a"), put("b"), put("a")], Some((0, 2))),
            (vec![put("a"), delete("a", "")], Some((0, 1))),
            (vec![put("a"), delete("a", "b"), put("b")], Some((0, 1))),
            (vec![put("b"), delete("a", "b"), delete("b", "c")], Some((0, 2))),
            (vec![delete("a", "c"), delete("b", "\0")], Some((0, 1))),
            (vec![delete("a", "b"), delete("b", "c"), put("c")], None),
            (vec![delete("b", "a"), put("a")], None),
            (vec![put("consul/kv/p"), kv(KvVerb::Set, "p")], Some((0, 1))),
            (vec![kv(KvVerb::DeleteTree, "p"), put("consul/kv/p/x")], Some((0, 1))),
            (vec![kv(KvVerb::CheckIndex, "p"), kv(KvVerb::Set, "p")], None),
            (vec![grant(1), grant(2), revoke(1)], Some((0, 2))),
            (vec![write.clone(), deletion], Some((0, 1))),
            (vec![session, ended], Some((0, 1))),
            (vec![register("n", "1", "a", &[]), register("N", "1", "b", &[])], Some((0, 1))),
            (vec![register("n", "1", "a", &[]), register("n", "1", "b", &[])], None),
            (vec![register("n", "1", "a", &[]), register("n", "2", "b", &[])], Some((0, 1))),
            (vec![register("n", "1", "a", &[]), register("m", "2", "a", &[])], None),
            (vec![register("n", "1", "a", &[("c", "a")]), register("n", "1", "b", &[("c", "b")])], Some((0, 1))),
            (vec![register("n", "1", "a", &[]), deregister("n", service("a"))], Some((0, 1))),
            (vec![register("n", "1", "a", &[]), deregister("n", service("b"))], None),
            (vec![register("n", "1", "", &[("c", "b")]), deregister("n", service("b"))], Some((0, 1))),
            (vec![deregister("n", service("b")), register("n", "1", "", &[("c", "b")])], Some((0, 1))),
            (vec![register("n", "1", "", &[("c", "")]), deregister("n", check("c"))], Some((0, 1))),
            (vec![register("n", "1", "", &[("c", "")]), replacing("n", "", &[("d", "")])], Some((0, 1))),
            (vec![replacing("n", "", &[("d", "")]), register("n", "1", "", &[("c", "")])], Some((0, 1))),
            (vec![replacing("n", "", &[("d", "")]), register("n", "1", "", &[("c", "b")])], None),
            (vec![replacing("n", "b", &[]), register("n", "1", "", &[("c", "b")])], Some((0, 1))),
            (vec![register("n", "1", "a", &[]), deregister("N", DeregistrationTarget::Node)], Some((0, 1))),
            (vec![deregister("n", DeregistrationTarget::Node), deregister("n", check("c"))], Some((0, 1))),
            (vec![put("a"), write, grant(1), kv(KvVerb::Set, "a")], None),
        ] {
            assert_eq!(overlap(commands.clone()), wanted, "{commands:?}");
        }
    }

    proptest! {
        /// Compares the result with the definition, which looks at every pair of intervals.
        #[test]
        fn intervals_overlap_as_their_keys_do(
            ranges in prop::collection::vec(("[a-d]{1,2}", prop::option::of("[a-d]{1,2}|\0")), 1..6),
        ) {
            let commands: Vec<_> =
                ranges.iter().map(|(key, end)| delete(key, end.as_deref().unwrap_or(""))).collect();
            let range = |command: &Command| match command {
                Command::DeleteRange(delete) => delete.range.clone(),
                _ => unreachable!(),
            };
            let all: Vec<KeyRange> = commands.iter().map(range).collect();
            // The start of one of two overlapping intervals lies in the other.
            let meet = |a: &KeyRange, b: &KeyRange| {
                !a.is_empty() && !b.is_empty() && (a.contains(b.start()) || b.contains(a.start()))
            };
            let wanted = (0..all.len()).any(|i| (0..i).any(|j| meet(&all[i], &all[j])));
            let found = overlap(commands);
            prop_assert_eq!(found.is_some(), wanted);
            if let Some((first, second)) = found {
                prop_assert!(first < second && meet(&all[first as usize], &all[second as usize]));
            }
        }
    }
}
