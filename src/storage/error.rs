//! Errors of storage. The node must stop after any of them, except for a read without file
//! descriptors ([`StorageError::is_out_of_descriptors`]): storage neither retries nor hides an
//! error. [`StateStore::failed`](super::StateStore::failed) reports errors of reads of the state to
//! the listener that stops the node.

use std::io;
use std::path::PathBuf;

use headwater_files::FileError;
use headwater_types::TooNew;
use thiserror::Error;

/// A failure of storage.
#[derive(Debug, Error)]
pub enum StorageError {
    /// RocksDB reported an error (full or broken disk, failed fsync, corruption that RocksDB itself
    /// found).
    #[error("rocksdb: {0}{what_to_do}", what_to_do = remedy(.0.as_ref()))]
    RocksDb(#[from] rocksdb::Error),
    /// A file operation failed.
    #[error("{path}: {source}{what_to_do}", what_to_do = remedy_of(source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A record or a note differs from the one written: wrong checksum, undecodable, or missing.
    #[error("corrupt record in {location}: {detail}")]
    Corrupt {
        /// The location: the database, column family and key of a record, or the path of a file.
        location: String,
        /// The difference between the record found and the one written.
        detail: String,
    },
    /// A directory cannot be used. A data directory: it belongs to another node, cluster, store or
    /// user, holds foreign files, is missing, or is in use by another process. A state: it is
    /// missing, incomplete, older than the current one, or replaced by a snapshot.
    #[error("{path}: {detail}")]
    WrongDirectory {
        /// The directory.
        path: PathBuf,
        /// The mismatch, and how to proceed.
        detail: String,
    },
    /// A record, a state or a data directory is newer than this program. Nothing was changed, and
    /// nothing is damaged.
    #[error(transparent)]
    TooNew(#[from] TooNew),
    /// The log or the state has failed before, for the reason in the text, or the log is closed.
    /// Every later write is refused, and every later read of the log.
    #[error("storage is poisoned by an earlier failure: {0}")]
    Poisoned(String),
}

impl StorageError {
    /// Whether the error means that the process, or the system, has no file descriptor left. The
    /// disk and the data are not at fault: a read, or a checkpoint that has not begun, may be
    /// repeated.
    pub fn is_out_of_descriptors(&self) -> bool {
        match self {
            Self::RocksDb(error) => error.as_ref().contains(OUT_OF_DESCRIPTORS),
            Self::Io { source, .. } => headwater_files::is_out_of_descriptors(source),
            Self::Corrupt { .. } | Self::WrongDirectory { .. } | Self::TooNew(_) | Self::Poisoned(_) => false,
        }
    }
}

/// Text of the operating system for a lack of descriptors, as it occurs in errors of RocksDB.
const OUT_OF_DESCRIPTORS: &str = "Too many open files";

impl From<FileError> for StorageError {
    fn from(FileError { path, source }: FileError) -> Self {
        Self::Io { path, source }
    }
}

/// Advice to the operator about damaged data. A start without data is safe (ARCHITECTURE.md, "What
/// is durable when"): a first member does not vote before it has caught up, and a node that joined
/// becomes a new member.
pub(super) const DAMAGED: &str = "the data on this disk is damaged: move this node's data directory away and start the \
                                  node as before; it fetches everything from the others (a cluster of one is restored \
                                  from a backup)";

const FULL: &str = "the disk is full: free some space, then start this node again";
const NO_DESCRIPTORS: &str = "the process has run out of file descriptors, the disk is well: raise the limit of open \
                              files (ulimit -n, LimitNOFILE=), then start this node again";
const FAILING: &str = "the disk fails: see to it, then start this node again";

/// Advice to the operator about an error of a file operation.
fn remedy_of(error: &io::Error) -> String {
    let what = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FULL,
        io::ErrorKind::ReadOnlyFilesystem => FAILING,
        _ if headwater_files::is_out_of_descriptors(error) => NO_DESCRIPTORS,
        _ if error.raw_os_error() == Some(EIO) => FAILING,
        _ => return String::new(),
    };
    format!("; {what}")
}

/// The number of the operating system's error for a failed read or write of a disk.
const EIO: i32 = 5;

/// Advice to the operator about an error of RocksDB. The text begins with the kind of the error.
fn remedy(text: &str) -> String {
    let what = if text.starts_with("Corruption") {
        DAMAGED
    } else if text.contains("No space left on device") {
        FULL
    } else if text.contains(OUT_OF_DESCRIPTORS) {
        NO_DESCRIPTORS
    } else if text.starts_with("IO error") {
        FAILING
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
        for (number, wanted) in [(28, "free some space"), (24, "raise the limit"), (5, "see to it"), (30, "see to it")]
        {
            let text = StorageError::Io { path: "f".into(), source: io::Error::from_raw_os_error(number) }.to_string();
            assert!(text.starts_with("f: ") && text.contains(wanted), "{text}");
        }
        assert_eq!(remedy_of(&io::Error::from_raw_os_error(2)), "");
    }
}
