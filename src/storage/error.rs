//! Why storage failed. Every variant means that the node must stop: nothing here is retried or papered over.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why storage failed.
#[derive(Debug, Error)]
pub enum StorageError {
    /// RocksDB reported an error (full or broken disk, failed fsync, corruption that it found itself).
    #[error("rocksdb: {0}")]
    RocksDb(#[from] rocksdb::Error),
    /// A file operation failed.
    #[error("{path}: {source}")]
    Io {
        /// What it was about.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A record is not what was written: wrong checksum, undecodable, a hole where there must be none.
    #[error("corrupt record in {place}: {detail}")]
    Corrupt {
        /// Where: database, column family, key.
        place: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The data directory belongs to something else (another node, cluster or format version).
    #[error("{path}: {detail}")]
    WrongDirectory {
        /// The data directory.
        path: PathBuf,
        /// What does not match, and what to do about it.
        detail: String,
    },
    /// An earlier write failed; the store takes nothing more.
    #[error("storage is poisoned by an earlier failure: {0}")]
    Poisoned(String),
}
