//! The rule that no two operations of a commit change one node of the catalog, as far as it depends
//! on the state.
//!
//! A registration with the id of a node that is stored under another name renames that node, and
//! moves everything on it. One that leaves a node as it is makes the node if there is none.
//! Invariant: the order of the operations does not count.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use headwater_storage::StorageError;
use headwater_storage::state::{CatalogReader, WriteTxn};
use headwater_types::catalog::{CatalogCommand, CatalogNode, canonical};
use headwater_types::commit::{CommitFault, CommitOp, FaceOp};

/// The nodes that operations name, by canonical name; the numbers are those of the operations.
#[derive(Default)]
struct Nodes<'c> {
    /// The first operation about a node, or about anything on it.
    named: BTreeMap<String, u32>,
    /// The first operation that deregisters a node, or anything on it.
    deregistered: BTreeMap<String, u32>,
    /// Nodes that operations write whether they exist or not.
    updated: BTreeSet<String>,
    /// The registrations: number, canonical name, row, and whether an existing node stays as it is.
    registered: Vec<(u32, String, &'c CatalogNode, bool)>,
}

/// The fault that two operations change one node. `None` if no two do.
pub(super) fn conflict(txn: &WriteTxn<'_>, operations: &[CommitOp]) -> Result<Option<CommitFault>, StorageError> {
    let nodes = Nodes::of(operations);
    let (mut rows, mut ids) = (BTreeMap::new(), BTreeMap::new());
    for (number, name, row, skips) in &nodes.registered {
        if *skips && (nodes.updated.contains(name) || txn.node(name)?.value.is_some()) {
            continue;
        }
        match rows.entry(name) {
            Entry::Occupied(known) => {
                let (first, other): &(u32, &CatalogNode) = known.get();
                if other != row {
                    return Ok(Some(CommitFault::same_entity(*first, *number)));
                }
            }
            Entry::Vacant(vacant) => drop(vacant.insert((*number, *row))),
        }
        if row.id.is_empty() {
            continue;
        }
        let (first, other) = *ids.entry(&row.id).or_insert((*number, name));
        if other != name {
            return Ok(Some(CommitFault::same_entity(first, *number)));
        }
        let stored = txn.node_by_id(&row.id)?.map(|stored| canonical(&stored.row.name));
        let Some(old) = stored.filter(|old| old != name) else { continue };
        if let Some(other) = nodes.named.get(&old).or_else(|| nodes.deregistered.get(name)) {
            return Ok(Some(CommitFault::same_entity(*number, *other)));
        }
    }
    Ok(None)
}

impl<'c> Nodes<'c> {
    fn of(operations: &'c [CommitOp]) -> Self {
        let mut nodes = Self::default();
        for (number, operation) in (0u32..).zip(operations) {
            let FaceOp::Catalog(command) = operation.of_face() else { continue };
            let name = match command {
                CatalogCommand::Register(registration) => {
                    let (name, skips) = (canonical(&registration.node.name), registration.skip_node_update);
                    if !skips {
                        nodes.updated.insert(name.clone());
                    }
                    nodes.registered.push((number, name.clone(), &registration.node, skips));
                    name
                }
                CatalogCommand::Deregister(gone) => {
                    let name = canonical(&gone.node);
                    nodes.deregistered.entry(name.clone()).or_insert(number);
                    name
                }
                CatalogCommand::SetGateway(_) | CatalogCommand::DeleteGateway(_) => continue,
            };
            nodes.named.entry(name).or_insert(number);
        }
        nodes
    }
}
