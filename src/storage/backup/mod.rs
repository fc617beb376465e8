//! Backups: one file that holds a whole state, protected by a checksum (ARCHITECTURE.md,
//! "Backups").
//!
//! Owns the format. A backup is made of a checkpoint by [`BackupSource`], verified by [`inspect`],
//! and unpacked by [`extract`]. Does not know the content of the files. Invariant: a backup that
//! differs in one bit from the one written is refused.
//!
//! ```text
//! "HWBACKUP"  length (4, BE)  description    zeros up to a multiple of 512
//! the files, one behind the other            zeros up to a multiple of 512
//! SHA-256 of everything before it, 32 bytes
//! ```
//!
//! The file is a multiple of 512 bytes long, plus 32, as etcd's backups are: etcd's tools recognise
//! a complete backup by it.

mod read;
mod source;
#[cfg(test)]
mod tests;

pub use read::{Verified, extract, inspect};
pub use source::BackupSource;

use std::io;
use std::path::PathBuf;

use headwater_files::FileError;
use headwater_types::TooNew;

/// The first bytes of every backup.
const MAGIC: &[u8; 8] = b"HWBACKUP";
/// Bytes before the description.
const PREFIX_BYTES: usize = 12;
/// Length of a block, bytes. Zeros pad the description, and all files together, to a multiple of
/// it.
const BLOCK_BYTES: u64 = 512;
/// Bytes of the checksum.
const DIGEST_BYTES: usize = 32;
/// Longest description, bytes. It lists the files: this is enough for many thousands.
const INFO_BYTES_MAX: usize = 4 << 20;
/// Bytes that are read and hashed at once.
const BUFFER_BYTES: usize = 128 << 10;

/// The reason for which a backup cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file operation failed, or a checkpoint has too many files or an unusable name for a
    /// backup.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The reason, such as an error of the operating system.
        source: io::Error,
    },
    /// The file is no backup made by this software.
    #[error("{} is not a backup that `headwater snapshot save` or `etcdctl snapshot save` made of Headwater", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file differs from the one written.
    #[error("{} is damaged: {detail}; use another backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The defect that was found.
        detail: String,
    },
    /// The backup is newer than this program.
    #[error(transparent)]
    TooNew(#[from] TooNew),
}

impl From<FileError> for BackupError {
    fn from(FileError { path, source }: FileError) -> Self {
        Self::Io { path, source }
    }
}

/// Number of zeros that pad `bytes` bytes to a multiple of a block.
fn padding(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES) - bytes
}
