//! What is on disk: column families, keys, write transactions, read views, checkpoints, the Raft log.
//!
//! Owns the `rocksdb` crate; no other module names it. Knows no business rules. Invariant: what is on disk is always one
//! prefix of the log, named by the applied index inside it.

pub mod backup;
pub mod data_dir;
mod error;
pub mod log;
pub mod state;

pub use error::StorageError;
pub use state::{AppliedState, PreparedState, ReadView, StateDb, StateOptions, StateReader, StateStore, WriteTxn};
