//! The staged rows of one command of the catalog: changed one by one, then written at once.
//!
//! Owns the order: first every rule, then every row, then the events. Invariant: nothing is written
//! before [`CatalogTxn::finish`]; it writes a row at most once, and skips a row that equals the
//! stored one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::events;
use super::rows::Rows;
use crate::error::FsmError;
use headwater_storage::StorageError;
use headwater_storage::state::{CatalogReader, CatalogRow, WriteTxn, node_key, on_node_key};
use headwater_types::LogIndex;
use headwater_types::catalog::{
    CatalogNode, CatalogRefusal, Check, CheckGuard, CheckStatus, Service, TerminatingGateway, canonical,
};

/// Effect of a command on rows that sessions and deadlines depend on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CatalogEffect {
    /// Whether the command changed any row.
    pub(crate) changed: bool,
    /// Checks that turned critical, new ones included, or were removed: the sessions that depend on
    /// them end.
    pub(crate) failed_checks: Vec<FailedCheck>,
    /// Canonical names of removed nodes, each with the number of the operation that removed it:
    /// their sessions end.
    pub(crate) removed_nodes: BTreeMap<String, u32>,
    /// Checks with a deadline, now or before, that were written, even without a change, or removed.
    pub(crate) touched_checks: Vec<TouchedCheck>,
}

/// A check that turned critical or was removed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FailedCheck {
    pub(crate) node: String,
    pub(crate) id: String,
    /// Number of the operation of a commit that changed the check last; 0 in other commands.
    pub(crate) by: u32,
}

/// A check that a command has written or removed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TouchedCheck {
    pub(crate) before: Option<Arc<Check>>,
    pub(crate) after: Option<Arc<Check>>,
}

impl TouchedCheck {
    /// Whether the check has a deadline before or after the command. Most checks have none.
    fn may_have_deadline(&self) -> bool {
        let has_deadline =
            |check: &Arc<Check>| check.definition.ttl_ns > 0 || check.definition.deregister_critical_after_ns > 0;
        self.before.iter().chain(&self.after).any(has_deadline)
    }
}

/// The staged rows of one command.
pub(crate) struct CatalogTxn<'t, 'db> {
    pub(super) txn: &'t mut WriteTxn<'db>,
    index: LogIndex,
    pub(super) nodes: Rows<CatalogNode>,
    pub(super) services: Rows<Service>,
    pub(super) checks: Rows<Check>,
    pub(super) gateways: Rows<TerminatingGateway>,
}

impl<'t, 'db> CatalogTxn<'t, 'db> {
    /// A catalog transaction without staged rows, for the command of the log entry at `index`.
    pub(crate) fn new(txn: &'t mut WriteTxn<'db>, index: LogIndex) -> Self {
        Self {
            txn,
            index,
            nodes: Rows::default(),
            services: Rows::default(),
            checks: Rows::default(),
            gateways: Rows::default(),
        }
    }

    /// Begins the operation `number` of a commit: nodes, instances and checks that are staged from
    /// now on carry this number.
    pub(crate) fn begin_operation(&mut self, number: u32) {
        (self.nodes.operation, self.services.operation, self.checks.operation) = (number, number, number);
    }

    /// The node of that name, with staged changes.
    pub(crate) fn node(&self, name: &str) -> Result<Option<Arc<CatalogNode>>, StorageError> {
        self.nodes.find(self.txn, &node_key(name))
    }

    /// The instance of that id on a node, with staged changes.
    pub(crate) fn service(&self, node: &str, id: &str) -> Result<Option<Arc<Service>>, StorageError> {
        self.services.find(self.txn, &on_node_key(node, id))
    }

    /// The check of that id on a node, with staged changes.
    pub(crate) fn check(&self, node: &str, id: &str) -> Result<Option<Arc<Check>>, StorageError> {
        self.checks.find(self.txn, &on_node_key(node, id))
    }

    /// The instances on a node, with staged changes.
    pub(super) fn services_on(&self, node: &str) -> Result<Vec<Arc<Service>>, StorageError> {
        let node = canonical(node);
        self.services.list(self.txn, &self.txn.service_keys(&node)?, |row| canonical(&row.node) == node)
    }

    /// The checks on a node, with staged changes: all of them, or those of one instance. An empty
    /// `service_id` selects the checks of the node itself.
    pub(super) fn checks_on(&self, node: &str, service_id: Option<&str>) -> Result<Vec<Arc<Check>>, StorageError> {
        let node = canonical(node);
        let of_instance = |row: &Check| service_id.is_none_or(|id| row.service_id == id);
        let indexed = self.txn.check_keys(&node, service_id)?;
        self.checks.list(self.txn, &indexed, |row| canonical(&row.node) == node && of_instance(row))
    }

    /// Refuses the command if the check of its guard is absent, or has changed since the guard was
    /// made. Accepts a command without a guard.
    pub(super) fn check_guard(&self, node: &str, guard: Option<&CheckGuard>) -> Result<(), FsmError> {
        let Some(guard) = guard else { return Ok(()) };
        match self.check(node, &guard.check_id)? {
            Some(check) if check.modified == guard.modified => Ok(()),
            Some(_) | None => Err(CatalogRefusal::Stale.into()),
        }
    }

    /// Stages an instance of a service.
    ///
    /// # Errors
    ///
    /// [`CatalogRefusal::MissingNode`] if its node is neither stored nor staged.
    pub(crate) fn set_service(&mut self, mut service: Service) -> Result<(), FsmError> {
        let Some(node) = self.node(&service.node)? else { return Err(CatalogRefusal::MissingNode.into()) };
        service.node.clone_from(&node.name);
        Ok(self.services.set(self.txn, service.key(), Some(service))?)
    }

    /// Stages a check; name and tags of its service are copied into it (spec: consul §2.7).
    ///
    /// # Errors
    ///
    /// [`CatalogRefusal::MissingNode`] or [`CatalogRefusal::MissingService`] if the node, or the
    /// instance that the check names, is neither stored nor staged.
    pub(crate) fn set_check(&mut self, mut check: Check) -> Result<(), FsmError> {
        let Some(node) = self.node(&check.node)? else { return Err(CatalogRefusal::MissingNode.into()) };
        check.node.clone_from(&node.name);
        (check.service_name, check.service_tags) = if check.service_id.is_empty() {
            Default::default()
        } else {
            match self.service(&check.node, &check.service_id)? {
                Some(service) => (service.name.clone(), service.tags.clone()),
                None => return Err(CatalogRefusal::MissingService.into()),
            }
        };
        Ok(self.checks.set(self.txn, check.key(), Some(check))?)
    }

    /// Stages the removal of a check, if there is one.
    pub(crate) fn delete_check(&mut self, node: &str, id: &str) -> Result<(), FsmError> {
        Ok(self.checks.set(self.txn, on_node_key(node, id), None)?)
    }

    /// Stages the removal of an instance with its checks, if there is one.
    pub(crate) fn delete_service(&mut self, node: &str, id: &str) -> Result<(), FsmError> {
        // An empty id would select the checks of the node.
        if self.service(node, id)?.is_none() {
            return Ok(());
        }
        for check in self.checks_on(node, Some(id))? {
            self.delete_check(node, &check.id)?;
        }
        Ok(self.services.set(self.txn, on_node_key(node, id), None)?)
    }

    /// Stages the removal of a node with everything on it, if there is one.
    pub(crate) fn delete_node(&mut self, name: &str) -> Result<(), FsmError> {
        for check in self.checks_on(name, None)? {
            self.delete_check(name, &check.id)?;
        }
        for service in self.services_on(name)? {
            self.services.set(self.txn, service.key(), None)?;
        }
        Ok(self.nodes.set(self.txn, node_key(name), None)?)
    }

    /// Writes the changed rows and their query indexes, and adds the events for subscribers.
    /// Returns the effect on sessions and deadlines.
    pub(crate) fn finish(self) -> Result<CatalogEffect, StorageError> {
        let Self { txn, index, nodes, services, checks, gateways } = self;
        let touched = checks.touched().map(|(before, after)| TouchedCheck { before, after });
        let touched_checks = touched.filter(TouchedCheck::may_have_deadline).collect();
        let changes = events::RowChanges {
            nodes: nodes.into_changes(),
            services: services.into_changes(),
            checks: checks.into_changes(),
            gateways: gateways.into_changes(),
        };
        if changes.is_empty() {
            return Ok(CatalogEffect { touched_checks, ..CatalogEffect::default() });
        }
        let failed = changes.checks.values().filter_map(|touched| {
            let check = match (&touched.before, &touched.after) {
                (Some(before), None) => &before.row,
                (before, Some(after)) => {
                    let was = before.as_ref().is_some_and(|before| before.row.status == CheckStatus::Critical);
                    if was || after.status != CheckStatus::Critical {
                        return None;
                    }
                    after
                }
                (None, None) => return None,
            };
            Some(FailedCheck { node: check.node.clone(), id: check.id.clone(), by: touched.by })
        });
        let removed = changes
            .nodes
            .values()
            .filter(|touched| touched.after.is_none())
            .filter_map(|touched| Some((canonical(&touched.before.as_ref()?.row.name), touched.by)));
        let effect = CatalogEffect {
            changed: true,
            failed_checks: failed.collect(),
            removed_nodes: removed.collect(),
            touched_checks,
        };
        events::write(txn, index, changes)?;
        Ok(effect)
    }
}
