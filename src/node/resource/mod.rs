//! Typed resources as the faces see them: read, write, list, watch (spec: consul §5; ARCHITECTURE.md §15).
//!
//! Owns what has to be found out before a command is proposed (which type, which units, whether the data is good) and what
//! is chosen for it (ULIDs, times). What becomes of a command is the state machine's. Invariant: what a write was judged by is
//! named in its command, and a command that was judged by an older registration of its type is refused and made again.

mod error;
mod prepare;
mod reads;
mod reaper;
mod registry;
mod units;
mod watch;
mod writes;

use std::sync::Weak;
use std::time::Instant;

pub use error::ResourceError;
pub use prepare::Prepared;
pub use reads::{Listed, PageToken, ResourceQuery};
pub(super) use reaper::{ReaperBell, reap};
pub use registry::{KnownType, TypeMap};
pub(super) use units::keep_tenancy;
pub use watch::ResourceWatch;

use super::Inner;
use headwater_stream::{EventPublisher, SnapshotCache};
use headwater_types::limits::SNAPSHOT_KEPT;
use registry::TypeRegistry;
use watch::Contents;

/// The resources' part of a node.
pub(super) struct Resources {
    types: TypeRegistry,
    snapshots: SnapshotCache<headwater_stream::Resources, Contents>,
}

impl Resources {
    pub(super) fn new(events: &EventPublisher) -> Self {
        let snapshots = SnapshotCache::new(events.resources().clone(), SNAPSHOT_KEPT);
        Self { types: TypeRegistry::default(), snapshots }
    }

    /// Lets go of every snapshot that is only kept.
    pub(super) fn let_go(&self) {
        self.snapshots.let_go(|_| false);
    }
}

/// Lets go of old snapshots, for as long as the node is there.
pub(super) async fn sweep(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(SNAPSHOT_KEPT).await;
        let Some(inner) = inner.upgrade() else { return };
        inner.resources.snapshots.sweep(Instant::now());
    }
}
