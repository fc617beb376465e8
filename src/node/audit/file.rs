//! The file of the audit log, and its rotation.
//!
//! `FILE` is written; `FILE.1` is the one before it, and so on. Rotation renames, so that a program
//! that follows the log by its name finds the new file. A crash between two renames leaves a gap in
//! the numbers, and loses no line. If no earlier file is kept, rotation removes the full one.

use std::path::{Path, PathBuf};

use super::AuditError;
use super::AuditOptions;
use headwater_files::{AppendFile, PrivacyError, remove, rename};

pub(super) struct AuditFile {
    path: PathBuf,
    rotate_bytes: u64,
    keep: u32,
    file: AppendFile,
}

impl AuditFile {
    pub(super) fn open(options: &AuditOptions) -> Result<Self, AuditError> {
        let AuditOptions { file: path, rotate_bytes, keep, .. } = options;
        let file = AppendFile::open(path)?;
        Ok(Self { path: path.clone(), rotate_bytes: *rotate_bytes, keep: *keep, file })
    }

    /// Appends whole lines. Rotates the file first if it is not empty and the lines would take it
    /// above `rotate_bytes`.
    pub(super) fn append(&mut self, lines: &[u8]) -> Result<(), PrivacyError> {
        if !self.file.is_empty() && self.file.len() + lines.len() as u64 > self.rotate_bytes {
            self.rotate()?;
        }
        Ok(self.file.write(lines)?)
    }

    fn rotate(&mut self) -> Result<(), PrivacyError> {
        self.file.sync()?;
        // If an earlier rotation could not open the new file, the others have moved already.
        if self.path.exists() {
            remove(&numbered(&self.path, self.keep))?;
            for number in (0..self.keep).rev() {
                let from = numbered(&self.path, number);
                if from.exists() {
                    rename(&from, &numbered(&self.path, number + 1))?;
                }
            }
        }
        self.file = AppendFile::open(&self.path)?;
        Ok(())
    }

    pub(super) fn finish(mut self) {
        if let Err(error) = self.file.sync() {
            tracing::warn!(%error, "the end of the audit log may not be on disk");
        }
    }
}

/// The name of a rotated file; number 0 is the file that is written.
fn numbered(path: &Path, number: u32) -> PathBuf {
    if number == 0 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}
