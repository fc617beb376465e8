//! Why storage failed. Every variant means that the node must stop: nothing here is retried or papered over. What a read
//! meets is told to whoever stops it ([`StateStore::failed`](super::StateStore::failed)).

use std::io;
use std::path::PathBuf;

use headwater_files::FileError;
use thiserror::Error;

/// Why storage failed.
#[derive(Debug, Error)]
pub enum StorageError {
    /// RocksDB reported an error (full or broken disk, failed fsync, corruption that it found itself).
    #[error("rocksdb: {0}{what_to_do}", what_to_do = remedy(.0.as_ref()))]
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

impl From<FileError> for StorageError {
    fn from(FileError { path, source }: FileError) -> Self {
        Self::Io { path, source }
    }
}

/// What the operator can do about damaged data. The node sees to the rest (ARCHITECTURE.md, "What is durable when"): a first
/// member without data does not vote before it has caught up, and whoever joins is another member.
pub(super) const DAMAGED: &str = "the data on this disk is damaged: move this node's data directory away and start the \
                                  node as before; it fetches everything from the others (a cluster of one is restored \
                                  from a backup)";

/// What the operator can do about an error of RocksDB's, which begins with its kind.
fn remedy(text: &str) -> String {
    let what = if text.starts_with("Corruption") {
        DAMAGED
    } else if text.contains("No space left on device") {
        "the disk is full: free some space, then start this node again"
    } else if text.contains("Too many open files") {
        "the process has run out of file descriptors, the disk is well: raise the limit of open files (ulimit -n, \
         LimitNOFILE=), then start this node again"
    } else if text.starts_with("IO error") {
        "the disk fails: see to it, then start this node again"
    } else {
        return String::new();
    };
    format!("; {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_follows_from_the_kind() {
        for (text, wanted) in [
            ("Corruption: block checksum mismatch: stored = 1, computed = 2", "move this node's data directory away"),
            ("IO error: No space left on device: While appending to file: 000004.log", "free some space"),
            (
                "IO error: While open a file for random read: 000009.sst: Too many open files",
                "raise the limit of open files",
            ),
            ("IO error: While fdatasync: 000004.log: Input/output error", "see to it"),
        ] {
            assert!(remedy(text).contains(wanted), "{text}");
        }
        assert_eq!(remedy("Operation aborted: "), "");
    }
}
