//! Catalog events of a command, as history keeps them and as catch-up reads them.
//!
//! Owns the reconstruction: a stored event names its rows, which are read as they were right after
//! the command; of a removed row the event itself has the part that subscribers get. So events take
//! little space, and the derived events equal the published ones. Invariant: every row that an
//! event names can be read, from the beginning of history on.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::super::db::corrupt;
use super::super::keys::Table;
use super::super::options::HISTORY;
use super::super::reader::StateReader;
use super::super::record::HistoryRecord;
use super::super::view::{CommandHistory, ReadView};
use super::keys;
use super::reads::CatalogReader;
use super::row::CatalogRow;
use crate::StorageError;
use headwater_proto::codec::catalog::{RecordedBody, RecordedEvent, decode_events, encode_events};
use headwater_types::LogIndex;
use headwater_types::catalog::{CatalogBody, CatalogEvent, CatalogNode, CatalogOp, Check, CheckServiceNode, Service};

pub(super) fn encode(events: &[CatalogEvent]) -> Bytes {
    encode_events(events)
}

impl<'db> ReadView<'db> {
    /// The catalog events of a command, in order. `command` comes from
    /// [`history`](ReadView::history) of this view, and is not below the beginning of history.
    ///
    /// # Errors
    ///
    /// If the disk failed, or history is damaged.
    pub fn catalog_events(&self, command: &CommandHistory) -> Result<Arc<[CatalogEvent]>, StorageError> {
        let mut found = Vec::new();
        for record in command.records.iter().filter(|record| record.table == Table::CatalogEvents) {
            let mut events = self.recorded_events(command.index, record)?;
            while let Some(event) = events.next()? {
                found.push(event);
            }
        }
        Ok(found.into())
    }

    /// The catalog events in `record`, one by one. It is a record of the table `CatalogEvents`, of
    /// the command at `index`.
    ///
    /// # Errors
    ///
    /// If the record cannot be decoded.
    pub fn recorded_events<'v>(
        &'v self,
        index: LogIndex,
        record: &HistoryRecord,
    ) -> Result<RecordedEvents<'v, 'db>, StorageError> {
        let events = decode_events(record.kv.value.clone()).map_err(|error| broken(index, &error.to_string()))?;
        let rows = Rows { view: self, at: index, nodes: BTreeMap::new() };
        Ok(RecordedEvents { rows, left: events.into_iter() })
    }
}

fn broken(index: LogIndex, detail: &str) -> StorageError {
    corrupt(HISTORY, &super::super::keys::history(index, 0), &format!("events of the catalog: {detail}"))
}

/// The catalog events in one record. The rows of an event are read when [`next`](Self::next)
/// returns it.
pub struct RecordedEvents<'v, 'db> {
    rows: Rows<'v, 'db>,
    left: std::vec::IntoIter<RecordedEvent>,
}

impl RecordedEvents<'_, '_> {
    /// Leaves out the next `count` events, without reading their rows.
    pub fn skip(&mut self, count: usize) {
        if let Some(last) = count.checked_sub(1) {
            self.left.nth(last);
        }
    }

    /// The next event. `None` after the last one.
    ///
    /// # Errors
    ///
    /// If the disk failed, or history is damaged.
    #[allow(clippy::should_implement_trait)] // It fails.
    pub fn next(&mut self) -> Result<Option<CatalogEvent>, StorageError> {
        let Some(event) = self.left.next() else { return Ok(None) };
        let rows = &mut self.rows;
        let at = rows.at;
        let missing = || broken(at, &format!("a row of {} is not there", event.key));
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
        Ok(Some(CatalogEvent { topic: event.topic, op: event.op, key: event.key.into(), body }))
    }
}

/// Rows as they were right after a command.
struct Rows<'v, 'db> {
    view: &'v ReadView<'db>,
    at: LogIndex,
    /// The nodes read so far, by key; `None` for one that is not there. The events of all instances
    /// of a node name the same node.
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
