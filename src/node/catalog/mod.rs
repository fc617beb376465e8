//! The service catalog as the faces see it: register, deregister, read (spec: consul §2, §8.3; ARCHITECTURE.md §16).
//!
//! Owns what a registration is checked for before it is proposed, and the read path of each question. What a registration does
//! is the state machine's. Invariant: what is proposed is complete, so that nothing is filled in where it is applied.

mod error;
mod reads;
mod watch;
mod writes;

pub use error::CatalogError;
pub(crate) use watch::{Catalog, sweep};
pub use watch::{CatalogListing, CatalogWatch, Encode, EntryKey};
