//! The databases on disk: column families, keys, write transactions, read views, checkpoints, the
//! Raft log.
//!
//! Owns the `rocksdb` crate; no other module names it. Knows no business rules. Invariant: the
//! state on disk is always that of one prefix of the log, which ends at the applied index stored
//! with it.

pub mod backup;
pub mod damage;
pub mod data_dir;
mod error;
pub mod log;
mod manifest;
mod silent;
pub mod state;

pub use error::StorageError;
pub use state::{AppliedState, PreparedState, ReadView, StateDb, StateOptions, StateReader, StateStore, WriteTxn};
