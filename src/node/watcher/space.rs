//! What a space of entities is: a part of the store that is followed as a tree of named elements.
//!
//! Owns the trait that a new space implements: how what changes is named, how the state is listed, and whether something was
//! there at a point of history. Invariant: `touched` and `list` name the same thing alike, and `is_there` answers for every index
//! from the compaction point on, so that what a change means for the tree follows from history alone.

use std::sync::Arc;

use crate::history::Recorded;
use headwater_storage::state::{HistoryRecord, StateReader, Table, Version};
use headwater_storage::{ReadView, StorageError};
use headwater_stream::{EventPublisher, Feed, Topic};
use headwater_types::catalog::{CheckServiceNode, Node};
use headwater_types::{ClusterMember, KeyRange, KeyValue, LeaseId, LogIndex, Resource};

/// Records that are loaded together, count.
const BATCH: usize = 1024;

/// What an element carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementData {
    /// Nothing: something is below it, or it is a space.
    Empty,
    /// A key with its value.
    Kv(KeyValue),
    /// A resource.
    Resource(Arc<Resource>),
    /// An instance of a service, with its node and its checks.
    Instance(Arc<CheckServiceNode>),
    /// A node of the service catalog.
    CatalogNode(Arc<Node>),
    /// A lease.
    Lease {
        /// Which.
        id: LeaseId,
        /// Its time to live, whole seconds.
        ttl_seconds: i64,
    },
    /// A member of the cluster.
    Member(Arc<ClusterMember>),
}

/// What one change does to one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Touched {
    /// What it carries afterwards; `None` if it carries nothing of its own.
    pub(super) data: Option<ElementData>,
    /// Whether it was there before by itself, if the change tells.
    pub(super) was_there: Option<bool>,
}

/// A space.
pub(super) trait Space: Send + Sync + 'static {
    /// Where its changes come from.
    type Topic: Recorded;

    /// Whether it takes few reads to work out what a few changes come to; else it is done on a thread that may block.
    const READS_LITTLE: bool = true;

    /// The topic's feed.
    fn feed(events: &EventPublisher) -> &Arc<Feed<Self::Topic>>;

    /// What tells of every change at `root` and below; it may tell of more.
    fn subject(&self, root: &str) -> <Self::Topic as Topic>::Subject;

    /// Tells what the change of the command at `index` touches, by the elements' names in the space.
    fn touched(
        &self,
        view: &ReadView<'_>,
        index: LogIndex,
        event: &<Self::Topic as Topic>::Event,
        tell: &mut dyn FnMut(String, Touched),
    ) -> Result<(), StorageError>;

    /// Whether `name`, or something below it, was there right after the command at `at`.
    fn is_there(&self, view: &ReadView<'_>, name: &str, at: LogIndex) -> Result<bool, StorageError> {
        Ok(self.read(view, name, at)?.is_some() || self.has_below(view, name, at)?)
    }

    /// Whether something below `name` was there right after the command at `at`.
    fn has_below(&self, view: &ReadView<'_>, name: &str, at: LogIndex) -> Result<bool, StorageError>;

    /// What `name` itself carried right after the command at `at`, if it was there by itself.
    fn read(&self, view: &ReadView<'_>, name: &str, at: LogIndex) -> Result<Option<ElementData>, StorageError>;

    /// Lists what is there now at `root` and below, or directly below, in any order, until told `false`. What is there only because
    /// something is below it may be left out, except where it is the only trace of that.
    fn list(
        &self,
        view: &ReadView<'_>,
        root: &str,
        recursive: bool,
        tell: &mut dyn FnMut(String, ElementData) -> bool,
    ) -> Result<(), StorageError>;
}

/// Goes through the live records of an interval in the order of their keys, until `visit` answers false. Few are loaded at first, for
/// who looks for one.
pub(super) fn each(
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
