//! Catalog events of a command, as history keeps them and as catch-up reads them.
//!
//! Owns the reconstruction: a stored event names its rows, which are read as they were right after
//! the command; a row that the command removed is in the event itself. So events take little space,
//! and the derived events equal the published ones. Invariant: from the compaction point on every
//! row that an event names can be read.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::super::db::corrupt;
use super::super::keys::Table;
use super::super::options::HISTORY;
use super::super::reader::StateReader;
use super::super::view::{CommandHistory, ReadView};
use super::keys;
use super::reads::CatalogReader;
use super::row::CatalogRow;
use crate::StorageError;
use headwater_proto::codec::catalog::{RecordedBody, decode_events, encode_events};
use headwater_types::LogIndex;
use headwater_types::catalog::{CatalogBody, CatalogEvent, CatalogNode, CatalogOp, Check, CheckServiceNode, Service};

pub(super) fn encode(events: &[CatalogEvent]) -> Bytes {
    encode_events(events)
}

impl ReadView<'_> {
    /// The catalog events of a command, in order. The command comes from
    /// [`history`](ReadView::history) of this view, at or above the compaction point.
    ///
    /// # Errors
    ///
    /// If the disk failed, or history is damaged.
    pub fn catalog_events(&self, command: &CommandHistory) -> Result<Arc<[CatalogEvent]>, StorageError> {
        let mut found = Vec::new();
        for record in command.records.iter().filter(|record| record.table == Table::CatalogEvents) {
            let broken = |detail: &str| {
                corrupt(
                    HISTORY,
                    &super::super::keys::history(command.index, 0),
                    &format!("events of the catalog: {detail}"),
                )
            };
            let recorded = decode_events(record.kv.value.clone()).map_err(|error| broken(&error.to_string()))?;
            let mut rows = Rows { view: self, at: command.index, nodes: BTreeMap::new() };
            for event in recorded {
                let missing = || broken(&format!("a row of {} is not there", event.key));
                let body = match event.body {
                    RecordedBody::Instance { node, service_id, check_ids } => {
                        let service = rows.read::<Service>(&keys::on_node(&node, &service_id))?.ok_or_else(missing)?;
                        let mut checks = Vec::with_capacity(check_ids.len());
                        for id in &check_ids {
                            checks.push(rows.read::<Check>(&keys::on_node(&node, id))?.ok_or_else(missing)?);
                        }
                        let node = rows.node(&node)?.ok_or_else(missing)?;
                        CatalogBody::Instance(Arc::new(CheckServiceNode { node, service, checks }))
                    }
                    RecordedBody::Gone { node, service } => CatalogBody::Instance(Arc::new(CheckServiceNode {
                        node: Arc::new(CatalogNode { name: node, ..CatalogNode::default() }),
                        service: Arc::new(*service),
                        checks: Vec::new(),
                    })),
                    RecordedBody::Name(name) => CatalogBody::Name(name.into()),
                    RecordedBody::Node(name) if event.op == CatalogOp::Deregister => {
                        CatalogBody::Node(Arc::new(CatalogNode { name, ..CatalogNode::default() }))
                    }
                    RecordedBody::Node(name) => CatalogBody::Node(rows.node(&name)?.ok_or_else(missing)?),
                    RecordedBody::Table(table) => CatalogBody::Table(table),
                };
                found.push(CatalogEvent { topic: event.topic, op: event.op, key: event.key.into(), body });
            }
        }
        Ok(found.into())
    }
}

/// Rows as they were right after a command.
struct Rows<'v, 'db> {
    view: &'v ReadView<'db>,
    at: LogIndex,
    /// The nodes read so far: the events of all instances of a node name it.
    nodes: BTreeMap<Bytes, Option<Arc<CatalogNode>>>,
}

impl Rows<'_, '_> {
    fn node(&mut self, name: &str) -> Result<Option<Arc<CatalogNode>>, StorageError> {
        let key = keys::node(name);
        if let Some(node) = self.nodes.get(&key) {
            return Ok(node.clone());
        }
        let node = self.read::<CatalogNode>(&key)?;
        self.nodes.insert(key, node.clone());
        Ok(node)
    }

    fn read<R: CatalogRow>(&self, key: &[u8]) -> Result<Option<Arc<R>>, StorageError> {
        let Some(version) = self.view.lookup(R::TABLE, key, self.at)? else { return Ok(None) };
        Ok(self.view.rows_of(std::slice::from_ref(&version))?.pop())
    }
}
