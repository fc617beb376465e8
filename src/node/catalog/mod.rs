//! The service catalog as the faces see it: register, deregister, read (spec: consul §2, §8.3;
//! ARCHITECTURE.md §16).
//!
//! Owns the checks of a registration before it is proposed, and the read path of each question. The
//! effect of a registration belongs to the state machine. Invariant: a proposed registration is
//! complete, so that apply fills in nothing.

mod error;
mod reads;
mod watch;
mod writes;

pub use error::CatalogError;
pub(crate) use watch::{Catalog, sweep};
pub use watch::{CatalogListing, CatalogWatch, Encode, EntryKey};
