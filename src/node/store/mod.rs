//! The store as one history: entities of every space at one point, and their changes, with authors
//! and faces (docs/store.md).
//!
//! Owns points of history, targets, pages of entities, and the stream of changes. Entities have the
//! names of the watcher. Every answer comes from the history on this member's disk, so any member
//! can resume any stream. Invariant: the changes after an index, applied to the state at it, give
//! every later state.

mod changes;
mod error;
mod history;
mod instance;
mod list;
mod past;
mod point;
mod size;

use std::sync::Arc;

use super::watcher::rights;
use super::{Consistency, Entity, EntitySpace, Node, NodeError, RequestContext};
use headwater_storage::StorageError;
use headwater_storage::state::NEWEST;
use headwater_types::{KeyRange, LogIndex, Revision, Space, StoreEpoch};

pub use changes::{CommandChanges, EntityChange, EntityChangeKind, EntityState};
pub use error::StoreError;
pub use history::{HistoryPage, HistoryQuery, HistoryReader};
pub use list::StoreEntity;
pub use point::Point;

use list::Page;

/// A result, or the reason for which a request has none.
type Found<T> = Result<Result<T, StoreError>, StorageError>;

/// The extent of a target in the tree of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Depth {
    /// The entity alone.
    Itself,
    /// The entity and the entities one level below it.
    Children,
    /// The entity and everything below.
    All,
}

/// Entities that a request is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreTarget {
    /// The space of the entity.
    pub space: EntitySpace,
    /// The name in the space, which must be valid
    /// ([`key_of`](headwater_types::entity::key_of)). The empty name is the root of the space.
    pub name: String,
    /// The extent below the name.
    pub depth: Depth,
}

impl StoreTarget {
    /// Targets with everything in the store.
    pub fn everything() -> Vec<Self> {
        EntitySpace::ALL.into_iter().map(|space| Self { space, name: String::new(), depth: Depth::All }).collect()
    }

    /// Whether the entity with this name in the target's space is one of the target.
    fn has(&self, name: &str) -> bool {
        match headwater_types::entity::relative(name, &self.name) {
            None => false,
            Some("") => true,
            Some(below) => match self.depth {
                Depth::Itself => false,
                Depth::Children => !below.contains('/'),
                Depth::All => true,
            },
        }
    }

    /// The intervals that the principal must be able to read.
    fn wanted(&self) -> Vec<(Space, KeyRange)> {
        let Self { space, name, depth } = self;
        if *space == EntitySpace::Kv && *depth == Depth::Itself && !name.is_empty() {
            return vec![(Space::Kv, KeyRange::One(super::watcher::kv::key(name).into()))];
        }
        rights::wanted(&Entity { space: *space, name: name.clone(), recursive: *depth == Depth::All })
    }
}

/// The intervals that the principal must be able to read for a request.
#[derive(Clone, Debug)]
struct Wanted {
    intervals: Vec<(Space, KeyRange)>,
}

impl Wanted {
    fn of(targets: &[StoreTarget]) -> Self {
        match targets {
            [target] => Self { intervals: target.wanted() },
            targets => Self { intervals: targets.iter().flat_map(StoreTarget::wanted).collect() },
        }
    }

    /// What `targets` want, if the principal may read all of it.
    ///
    /// # Errors
    ///
    /// As [`permit`](Self::permit), but [`StoreError::Denied`] names the first target that would be
    /// denied alone.
    fn permitted(node: &Node, ctx: &RequestContext, targets: &[StoreTarget]) -> Result<Self, StoreError> {
        let wanted = Self::of(targets);
        let Err(error) = wanted.permit(node, ctx) else { return Ok(wanted) };
        let is_denied = |target: &&StoreTarget| {
            let alone = Self::of(std::slice::from_ref(*target));
            error == NodeError::DENIED && alone.permit(node, ctx) == Err(NodeError::DENIED)
        };
        let denied = targets.iter().find(is_denied).cloned();
        Err(denied.map_or_else(|| error.into(), StoreError::Denied))
    }

    /// Checks that the principal may read all of the intervals.
    ///
    /// # Errors
    ///
    /// If the principal is not authenticated, or may not read all of them.
    fn permit(&self, node: &Node, ctx: &RequestContext) -> Result<(), NodeError> {
        rights::permit(node, ctx, &self.intervals)
    }
}

/// The point of history at which a view is read.
#[derive(Clone, Copy, Debug)]
struct At {
    /// The log index.
    index: LogIndex,
    /// Argument of lookups. [`NEWEST`] if the point is the newest state: the caches of the view
    /// serve no other argument. Otherwise `index`.
    lookup: LogIndex,
}

impl At {
    fn new(index: LogIndex, newest: LogIndex) -> Self {
        Self { index, lookup: if index == newest { NEWEST } else { index } }
    }

    fn is_newest(self) -> bool {
        self.lookup == NEWEST
    }
}

/// The cursor at which a further page of a read begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePage {
    /// The lineage of the index.
    pub epoch: StoreEpoch,
    /// Log index of the state that all pages show.
    pub at: LogIndex,
    /// Number of the target that is continued, from 0.
    pub target: usize,
    /// The target's last entity in the pages before, opaque to clients. Empty: the target begins
    /// with its first entity.
    pub after: Vec<u8>,
}

/// A request for a page of entities at one point of history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreQuery {
    /// The entities; at least one target.
    pub targets: Arc<[StoreTarget]>,
    /// The point of history; `None` for the newest state. Ignored if there is a `page`, which has
    /// its own.
    pub at: Option<Point>,
    /// Most entities of the page, count; zero for the default. A number above `STORE_PAGE_MAX`
    /// counts as that.
    pub page_size: usize,
    /// The page to read; `None` for the first.
    pub page: Option<StorePage>,
}

/// A page of entities at one point of history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreRead {
    /// The index of the state.
    pub index: LogIndex,
    /// The lineage of the index.
    pub epoch: Option<StoreEpoch>,
    /// The KV revision of the state.
    pub revision: Revision,
    /// Time of the last change of the state, milliseconds since the Unix epoch; zero if unknown.
    pub unix_ms: u64,
    /// The entities of the page, in the order of the targets.
    pub entities: Vec<StoreEntity>,
    /// Size of the entities' names and data, estimated, bytes.
    pub bytes: usize,
    /// The cursor of the next page; `None` if there is none.
    pub next: Option<StorePage>,
}

/// Handle to the store as one history.
#[derive(Clone, Copy)]
pub struct Store<'a> {
    node: &'a Node,
}

impl Node {
    /// Handle to the store as one history.
    pub fn store(&self) -> Store<'_> {
        Store { node: self }
    }
}

impl Store<'_> {
    /// Reads entities at one point of history, in pages.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; among them [`StoreError::Denied`] if the principal may not read a target.
    pub async fn read(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
        query: StoreQuery,
    ) -> Result<StoreRead, StoreError> {
        self.node.ready_to_read(ctx, consistency).await?;
        // Before anything is looked up, so that the answer does not depend on what exists.
        Wanted::permitted(self.node, ctx, &query.targets)?;
        let at = match &query.page {
            Some(page) => Some(Point::Index(crate::Position { index: page.at, epoch: Some(page.epoch) })),
            None => query.at,
        };
        self.await_point(ctx, at).await?;
        let is_small = matches!(&query.targets[..], [target] if target.depth == Depth::Itself)
            && !matches!(at, Some(Point::UnixMs(_)));
        let read = self.node.read(is_small, ctx, move |view| {
            let index = match point::resolve(view, at)? {
                Ok(index) => index,
                Err(error) => return Ok(Ok(Err(error))),
            };
            let at = At::new(index, view.applied());
            let mut page = Page::new(query.page_size);
            let (first, after) = match &query.page {
                Some(page) => (page.target, &page.after[..]),
                None => (0, &[][..]),
            };
            let mut next = None;
            for (number, target) in query.targets.iter().enumerate().skip(first) {
                let after = if number == first { after } else { &[] };
                if let Err(error) = list::list(view, at, target, after, &mut page)? {
                    return Ok(Ok(Err(error)));
                }
                if let Some(after) = page.cut() {
                    next = Some(StorePage {
                        epoch: view.head().epoch.unwrap_or_default(),
                        at: index,
                        target: number,
                        after,
                    });
                    break;
                }
            }
            let last = view.last_command(index)?;
            Ok(Ok(Ok(StoreRead {
                index,
                epoch: view.head().epoch,
                revision: point::revision_at(view, index, last)?,
                unix_ms: last.map_or(0, |command| command.unix_ms),
                bytes: page.bytes(),
                entities: page.into_entities(),
                next,
            })))
        });
        read.await?.value
    }

    /// If `at` is an index that this member has not applied, waits for the newest acknowledged
    /// state: another member may have shown that index.
    async fn await_point(self, ctx: &RequestContext, at: Option<Point>) -> Result<(), NodeError> {
        if let Some(Point::Index(position)) = at
            && position.index > self.node.applied_index()
        {
            self.node.ready_to_read(ctx, Consistency::Linearizable).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
