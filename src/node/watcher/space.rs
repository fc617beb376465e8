//! The definition of a space of entities: a part of the store that is followed as a tree of named
//! elements.
//!
//! Owns the trait that a new space implements: the names of changed elements, the list of the
//! state, and the existence of an element at a point of history. Invariants: `touched` and `list`
//! use the same names. Where a change does not show whether its element existed before, `is_there`
//! answers for every index from the compaction point on. So the effect of a change on the tree
//! follows from history alone.

use std::sync::Arc;

use crate::history::Recorded;
use headwater_storage::state::{HistoryRecord, StateReader, Table, Version};
use headwater_storage::{ReadView, StorageError};
use headwater_stream::{EventPublisher, Feed, Topic};
use headwater_types::catalog::{CatalogNode, CheckServiceNode};
use headwater_types::{ClusterMember, KeyRange, KeyValue, LeaseId, LogIndex, Resource};

/// Most records that are loaded together, count.
const BATCH: usize = 1024;

/// The data of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementData {
    /// No data: a space, or a directory that exists only by the elements below it.
    Empty,
    /// A key with its value.
    Kv(KeyValue),
    /// A resource.
    Resource(Arc<Resource>),
    /// An instance of a service, with its node and its checks.
    Instance(Arc<CheckServiceNode>),
    /// A node of the service catalog.
    CatalogNode(Arc<CatalogNode>),
    /// A lease.
    Lease {
        /// Id of the lease.
        id: LeaseId,
        /// Time to live of the lease, whole seconds.
        ttl_seconds: i64,
    },
    /// A member of the cluster.
    Member(Arc<ClusterMember>),
}

/// The effect of one change on one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Touched {
    /// The element's data after the change; `None` if the element does not exist by itself then.
    pub(super) data: Option<ElementData>,
    /// Whether the element existed by itself before the change; `None` if the change does not show
    /// that. Always `Some(true)` for a member, also for a new one: its directory exists anyway.
    pub(super) was_there: Option<bool>,
}

/// A part of the store that is followed as a tree of elements. The empty name is the root of the
/// tree.
pub(super) trait Space: Send + Sync + 'static {
    /// The topic of the space's changes.
    type Topic: Recorded;

    /// Whether the calling thread computes the changes of a small commit, because that needs few
    /// reads. A blocking thread computes those of all other commits.
    const READS_LITTLE: bool = true;

    /// The topic's feed.
    fn feed(events: &EventPublisher) -> &Arc<Feed<Self::Topic>>;

    /// The topic's subject that covers every change at `root` and below; it may cover more.
    fn subject(&self, root: &str) -> <Self::Topic as Topic>::Subject;

    /// Calls `emit` with the name of each element that the change `event` of the command at `index`
    /// touches, and with the effect on it.
    fn touched(
        &self,
        view: &ReadView<'_>,
        index: LogIndex,
        event: &<Self::Topic as Topic>::Event,
        emit: &mut dyn FnMut(String, Touched),
    ) -> Result<(), StorageError>;

    /// Whether `name`, or an element below it, existed right after the command at `at`. A space
    /// without versions answers for the present state.
    fn is_there(&self, view: &ReadView<'_>, name: &str, at: LogIndex) -> Result<bool, StorageError> {
        Ok(self.read(view, name, at)?.is_some() || self.has_below(view, name, at)?)
    }

    /// Whether an element below `name` existed right after the command at `at`.
    fn has_below(&self, view: &ReadView<'_>, name: &str, at: LogIndex) -> Result<bool, StorageError>;

    /// The data of `name` itself right after the command at `at`; `None` if it did not exist by
    /// itself. Leases and members have no versions: their spaces give the present data for any
    /// `at`.
    fn read(&self, view: &ReadView<'_>, name: &str, at: LogIndex) -> Result<Option<ElementData>, StorageError>;

    /// Lists the present elements at `root` and, if `recursive`, all below it, otherwise its
    /// children. Calls `emit` in any order until it returns `false`. A deeper element may be listed
    /// in place of the directories above it.
    fn list(
        &self,
        view: &ReadView<'_>,
        root: &str,
        recursive: bool,
        emit: &mut dyn FnMut(String, ElementData) -> bool,
    ) -> Result<(), StorageError>;
}

/// Visits the records of an interval that were live at `at`, in the order of their keys, until
/// `visit` returns false. The first loads are small, for callers that need one record.
pub(in super::super) fn each(
    view: &ReadView<'_>,
    table: Table,
    range: &KeyRange,
    at: LogIndex,
    mut visit: impl FnMut(HistoryRecord, &Version) -> Result<bool, StorageError>,
) -> Result<(), StorageError> {
    let mut scan = view.scan(table, range, at)?;
    let mut batch: Vec<Version> = Vec::new();
    let mut batch_max = 1;
    loop {
        batch.clear();
        while batch.len() < batch_max {
            match scan.next()? {
                Some((_, version)) => batch.push(version),
                None => break,
            }
        }
        let is_last = batch.len() < batch_max;
        for (record, version) in view.load(&batch)?.into_iter().zip(&batch) {
            if !visit(record, version)? {
                return Ok(());
            }
        }
        if is_last {
            return Ok(());
        }
        batch_max = (batch_max * 4).min(BATCH);
    }
}
