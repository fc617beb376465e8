//! The conditions of a commit, on the state before it.
//!
//! Owns the log index of an entity's last change. For an instance that is the newest change of its
//! own row, of its node's row, and of the checks of both. The removal of a check counts until it is
//! compacted. Invariant: a condition about history that is no longer kept is refused, never
//! guessed, because members give history back at different times.

use bytes::Bytes;

use crate::error::FsmError;
use crate::read_budget::ReadBudget;
use crate::txn::holds;
use headwater_storage::StorageError;
use headwater_storage::state::{CatalogReader, NEWEST, StateReader, Table, Version, WriteTxn, node_key, on_node_key};
use headwater_types::catalog::{Check, canonical};
use headwater_types::commit::{CommitCondition, CommitEntity, CommitFault, ConditionFault, EntityTest};
use headwater_types::resource::resource_key;
use headwater_types::{KeyRange, LogIndex, Refusal};

/// Reason why a condition does not hold or cannot be judged; `Failed` if the disk failed.
enum Unmet {
    Fault(ConditionFault),
    Failed(StorageError),
}

impl From<StorageError> for Unmet {
    fn from(error: StorageError) -> Self {
        Self::Failed(error)
    }
}

impl From<ConditionFault> for Unmet {
    fn from(fault: ConditionFault) -> Self {
        Self::Fault(fault)
    }
}

/// Judges the conditions of a commit at `index`. `None` if all hold, else the fault of the first
/// that does not hold or cannot be judged.
pub(super) fn judge(
    txn: &WriteTxn<'_>,
    index: LogIndex,
    conditions: &[CommitCondition],
) -> Result<Option<CommitFault>, FsmError> {
    let mut budget = ReadBudget::of_txn();
    for (condition, wanted) in (0u32..).zip(conditions) {
        let reason = match wanted {
            CommitCondition::Compare(compare) => match holds(txn, compare, &mut budget) {
                Ok(true) => continue,
                Ok(false) => ConditionFault::Failed { changed: LogIndex::ZERO },
                Err(FsmError::Refused(Refusal::TooMuchRead)) => ConditionFault::TooMuchRead,
                Err(error) => return Err(error),
            },
            CommitCondition::Entity(_, _, Some(epoch)) if txn.head().epoch != Some(*epoch) => {
                ConditionFault::OtherEpoch
            }
            CommitCondition::Entity(entity, test, _) => match test_entity(txn, index, entity, *test, &mut budget) {
                Ok(()) => continue,
                Err(Unmet::Fault(fault)) => fault,
                Err(Unmet::Failed(error)) => return Err(error.into()),
            },
        };
        return Ok(Some(CommitFault::Condition { condition, reason }));
    }
    Ok(None)
}

fn test_entity(
    txn: &WriteTxn<'_>,
    index: LogIndex,
    entity: &CommitEntity,
    test: EntityTest,
    budget: &mut ReadBudget,
) -> Result<(), Unmet> {
    let require = |holds: bool, changed: LogIndex| match holds {
        true => Ok(()),
        false => Err(ConditionFault::Failed { changed }.into()),
    };
    match test {
        // The proposer has checked it, too.
        _ if !test.fits(entity) => require(false, LogIndex::ZERO),
        EntityTest::Index(at) | EntityTest::UnchangedSince(at) if at >= index => {
            Err(ConditionFault::Future { newest: LogIndex(index.get() - 1) }.into())
        }
        EntityTest::Index(wanted) => {
            let mut changed = last_change(txn, entity)?.unwrap_or(LogIndex::ZERO);
            if changed > LogIndex::ZERO && matches!(entity, CommitEntity::Instance { .. }) {
                // A removed check counts as long as every member knows of it.
                let newest = newest_change(txn, entity, budget)?;
                if newest > txn.head().compacted_index() {
                    changed = changed.max(newest);
                }
            }
            require(changed == wanted, changed)
        }
        EntityTest::Exists(wanted) => {
            let changed = last_change(txn, entity)?;
            require(changed.is_some() == wanted, changed.unwrap_or(LogIndex::ZERO))
        }
        EntityTest::UnchangedSince(since) => {
            let head = txn.head();
            if since.next() < head.epoch_since {
                return Err(ConditionFault::OtherEpoch.into());
            }
            let oldest = match entity {
                CommitEntity::Key(_) | CommitEntity::KeysBelow(_) => head.key_floor(),
                CommitEntity::Resource(_)
                | CommitEntity::Resources(_)
                | CommitEntity::Instance { .. }
                | CommitEntity::Instances { .. }
                | CommitEntity::Node(_)
                | CommitEntity::Lease(_) => head.compacted_index(),
            };
            if since < oldest {
                return Err(ConditionFault::Compacted { oldest }.into());
            }
            let changed = newest_change(txn, entity, budget)?;
            require(changed <= since, changed)
        }
    }
}

/// Log index of the last change of an entity that exists, without removals of checks. `None` if it
/// is absent, for a deadline of the store, and for an entity that is a set of others. A lease has
/// the index of its grant.
fn last_change(txn: &WriteTxn<'_>, entity: &CommitEntity) -> Result<Option<LogIndex>, StorageError> {
    Ok(match entity {
        CommitEntity::Key(key) => txn.lookup(Table::Kv, key, NEWEST)?.map(|version| version.index),
        CommitEntity::Resource(id) => {
            let found = txn.resource_outline(id)?.filter(|(_, stored)| stored.id.type_ == id.type_);
            found.map(|(version, _)| version.index)
        }
        CommitEntity::Instance { service, node, id } => {
            let stored = txn.service(node, id)?.filter(|stored| canonical(&stored.row.name) == canonical(service));
            let Some(stored) = stored else { return Ok(None) };
            let mut changed = stored.row.modified;
            changed = changed.max(txn.node(node)?.value.map_or(LogIndex::ZERO, |node| node.modified));
            let node = canonical(node);
            for of in ["", id] {
                for check in txn.rows::<Check>(&txn.check_keys(&node, Some(of))?)? {
                    changed = changed.max(check.modified);
                }
            }
            Some(changed)
        }
        CommitEntity::Node(name) => txn.node(name)?.value.map(|node| node.modified),
        CommitEntity::Lease(id) if id.is_deadline() => None,
        CommitEntity::Lease(id) => txn.lease(*id)?.map(|lease| lease.granted),
        CommitEntity::KeysBelow(_) | CommitEntity::Resources(_) | CommitEntity::Instances { .. } => None,
    })
}

/// Log index of the newest change of an entity, or of anything below it, removals included; zero if
/// there is none, and for a lease.
fn newest_change(txn: &WriteTxn<'_>, entity: &CommitEntity, budget: &mut ReadBudget) -> Result<LogIndex, Unmet> {
    let mut newest = Newest { txn, budget, index: LogIndex::ZERO };
    let on_node = |node: &str| KeyRange::prefix(on_node_key(node, ""));
    match entity {
        CommitEntity::Key(_) | CommitEntity::KeysBelow(_) => {
            for range in entity.key_ranges() {
                newest.of(Table::Kv, &range)?;
            }
        }
        // A key of a resource does not tell the version of its type: those of other versions count.
        CommitEntity::Resource(id) => newest.of(Table::Resource, &KeyRange::One(resource_key(id)))?,
        CommitEntity::Resources(selector) => newest.of(Table::Resource, &selector.range())?,
        CommitEntity::Instance { node, id, .. } => {
            newest.of(Table::CatalogService, &KeyRange::One(on_node_key(node, id)))?;
            newest.of(Table::CatalogNode, &KeyRange::One(node_key(node)))?;
            newest.of_checks(&on_node(node), |of| of.is_empty() || of == id)?;
        }
        CommitEntity::Instances { node, .. } if !node.is_empty() => {
            newest.of(Table::CatalogService, &on_node(node))?;
            newest.of(Table::CatalogNode, &KeyRange::One(node_key(node)))?;
            newest.of(Table::CatalogCheck, &on_node(node))?;
        }
        // Every change that an instance of a service is told with moves the index of its queries.
        CommitEntity::Instances { service, .. } if !service.is_empty() => {
            newest.index = txn.service_index(service)?;
        }
        CommitEntity::Instances { .. } => {
            for table in [Table::CatalogService, Table::CatalogNode, Table::CatalogCheck] {
                newest.of(table, &KeyRange::all())?;
            }
        }
        CommitEntity::Node(name) => newest.of(Table::CatalogNode, &KeyRange::One(node_key(name)))?,
        CommitEntity::Lease(_) => {}
    }
    Ok(newest.index)
}

/// A search for the newest change: its log index so far, zero at first.
struct Newest<'a, 'db> {
    txn: &'a WriteTxn<'db>,
    budget: &'a mut ReadBudget,
    index: LogIndex,
}

impl Newest<'_, '_> {
    /// Looks at the newest change of each key of the table in `range`, removals included. A fault
    /// if the read budget does not suffice.
    fn of(&mut self, table: Table, range: &KeyRange) -> Result<(), Unmet> {
        self.each(table, range, |_| Ok(true))
    }

    /// As [`of`](Self::of), for the checks in `range` with an instance's id that `is_wanted`
    /// accepts. The id is empty for a check of the node.
    fn of_checks(&mut self, range: &KeyRange, is_wanted: impl Fn(&str) -> bool) -> Result<(), Unmet> {
        let txn = self.txn;
        self.each(Table::CatalogCheck, range, |version| {
            // The record of a removal has the last content.
            let check = txn.load_one(version)?.row::<Check>(version.index)?;
            Ok(is_wanted(&check.service_id))
        })
    }

    fn each(
        &mut self,
        table: Table,
        range: &KeyRange,
        mut counts: impl FnMut(&Version) -> Result<bool, StorageError>,
    ) -> Result<(), Unmet> {
        let mut fits = true;
        self.txn.each_change(table, range, |_: Bytes, version| {
            fits = self.budget.take_read(0);
            if fits && version.index > self.index && counts(&version)? {
                self.index = version.index;
            }
            Ok(fits)
        })?;
        if fits { Ok(()) } else { Err(ConditionFault::TooMuchRead.into()) }
    }
}
