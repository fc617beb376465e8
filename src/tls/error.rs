//! Reasons for which TLS cannot be set up.

use std::path::PathBuf;

use thiserror::Error;

/// Reason for which certificates or files cannot be used. Files that were loaded before stay in
/// use.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{path}: {error}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The content of a file is malformed.
    #[error("{path}: {detail}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The defect.
        detail: String,
    },
    /// The files do not belong together, a required one is not named, or a certificate cannot be
    /// made or read.
    #[error("{0}")]
    Unfit(String),
}
