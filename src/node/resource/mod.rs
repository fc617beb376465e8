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
mod rights;
mod units;
mod watch;
mod writes;

pub use error::ResourceError;
pub use prepare::Prepared;
pub use reads::{Listed, PageToken, ResourceQuery};
pub(super) use reaper::{ReaperNotify, reap};
pub(super) use registry::TypeRegistry;
pub use registry::{KnownType, TypeMap};
pub(super) use units::keep_tenancy;
pub(super) use watch::ResourceSnapshots;
pub use watch::ResourceWatch;
pub(super) use writes::TYPE_CHANGES_MAX;

use super::Node;

/// Handle to typed resources.
#[derive(Clone, Copy)]
pub struct TypedResources<'a> {
    node: &'a Node,
}

impl Node {
    /// Handle to typed resources.
    pub fn resources(&self) -> TypedResources<'_> {
        TypedResources { node: self }
    }
}
