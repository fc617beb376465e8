//! The service catalog as the faces see it: register, deregister, read (spec: consul §2, §8.3;
//! ARCHITECTURE.md §16).
//!
//! Owns the checks of a registration before it is proposed, and the read path of each query. The
//! state machine decides its effect. Invariant: a proposed registration is complete: apply adds
//! nothing to it.

mod error;
mod reads;
mod watch;
mod writes;

pub use error::CatalogError;
pub(crate) use watch::CatalogSnapshots;
pub use watch::{CatalogListing, CatalogWatch, Encode, EntryKey};

use super::Node;

/// Handle to the service catalog.
#[derive(Clone, Copy)]
pub struct ServiceCatalog<'a> {
    node: &'a Node,
}

impl Node {
    /// Handle to the service catalog.
    pub fn catalog(&self) -> ServiceCatalog<'_> {
        ServiceCatalog { node: self }
    }
}
