//! Writes a node: the rules about its id, its renaming, and the conflict over a name (spec: consul
//! §2.7).

use super::catalog_txn::CatalogTxn;
use crate::error::FsmError;
use headwater_storage::state::{CatalogReader, CatalogRow};
use headwater_types::catalog::{CatalogNode, CatalogRefusal, CheckStatus, canonical};

/// Id of the check that Consul's agents register for the liveness of their node.
const SERF_CHECK: &str = "serfHealth";

impl CatalogTxn<'_, '_> {
    /// Stages a node. If its id is stored under another name, the node is renamed, with everything
    /// on it.
    ///
    /// # Errors
    ///
    /// [`CatalogRefusal::NodeNameReserved`] if a live node with another id has the name. Also if
    /// the live node has no id, and `node` would be renamed to that name.
    pub(crate) fn set_node(&mut self, mut node: CatalogNode) -> Result<(), FsmError> {
        let named = self.node(&node.name)?;
        if let Some(named) = &named
            && node.id.is_empty()
        {
            // A registration without an id keeps the stored one.
            node.id.clone_from(&named.id);
        }
        let renamed = if node.id.is_empty() { None } else { self.other_name(&node)? };
        if let Some(named) = &named {
            // A stored node without an id may get a new one. Otherwise a node with another id
            // cannot take the name of a node that is alive.
            let gives_way = named.id.is_empty() && renamed.is_none();
            if named.id != node.id && !gives_way && self.is_alive(&named.name)? {
                return Err(CatalogRefusal::NodeNameReserved.into());
            }
            // A name keeps the case of its first registration, as in the rows on the node.
            node.name.clone_from(&named.name);
        }
        let name = node.name.clone();
        self.nodes.set(self.txn, node.key(), Some(node))?;
        match renamed {
            Some(old) => self.move_all(&old, &name),
            None => Ok(()),
        }
    }

    /// The other name under which a node with this id is stored, if there is one.
    fn other_name(&self, node: &CatalogNode) -> Result<Option<String>, FsmError> {
        let is_other = |other: &CatalogNode| other.id == node.id && canonical(&other.name) != canonical(&node.name);
        // Rows written earlier in the same command are in no index yet.
        let mut written = self.nodes.touched().filter_map(|(_, after)| after);
        if let Some(other) = written.find(|written| is_other(written)) {
            return Ok(Some(other.name.clone()));
        }
        let Some(stored) = self.txn.node_by_id(&node.id)? else { return Ok(None) };
        // The same command may have removed it, or given it another id.
        let current = self.node(&stored.row.name)?.filter(|current| is_other(current));
        Ok(current.map(|current| current.name.clone()))
    }

    /// Whether a node has a serf check that is not critical.
    fn is_alive(&self, node: &str) -> Result<bool, FsmError> {
        Ok(self.check(node, SERF_CHECK)?.is_some_and(|check| check.status != CheckStatus::Critical))
    }

    /// Removes the node `from`, and moves everything on it to the node `to`, which exists. An
    /// instance or check that `to` has already is kept, and that of `from` is dropped.
    fn move_all(&mut self, from: &str, to: &str) -> Result<(), FsmError> {
        let (services, checks) = (self.services_on(from)?, self.checks_on(from, None)?);
        self.delete_node(from)?;
        for service in services {
            let mut service = service.as_ref().clone();
            to.clone_into(&mut service.node);
            // A row under the new name is newer.
            if self.service(to, &service.id)?.is_none() {
                self.set_service(service)?;
            }
        }
        for check in checks {
            let mut check = check.as_ref().clone();
            to.clone_into(&mut check.node);
            if self.check(to, &check.id)?.is_none() {
                self.set_check(check)?;
            }
        }
        Ok(())
    }
}
