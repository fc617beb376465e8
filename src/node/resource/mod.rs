//! Typed resources as the faces see them: read, write, list, watch (spec: consul §5;
//! ARCHITECTURE.md §15).
//!
//! Owns the checks before a command is proposed (type, units, validity of the data) and the values
//! that a command carries (ULIDs, times). The state machine decides the effect of a command.
//! Invariant: a write names the registration that validated it. The state machine refuses a write
//! that an older registration validated, and the write is prepared again.

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

    /// Evicts every snapshot that only the cache holds.
    pub(super) fn let_go(&self) {
        self.snapshots.let_go(|_| false);
    }
}

/// Evicts old snapshots until the node is dropped.
pub(super) async fn sweep(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(SNAPSHOT_KEPT).await;
        let Some(inner) = inner.upgrade() else { return };
        inner.resources.snapshots.sweep(Instant::now());
    }
}
