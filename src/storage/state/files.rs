//! Directory operations that survive a power cut: what is named is on disk before something else names it.
//!
//! Owns no format. Invariant: when a function returns, its effect is durable.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::StorageError;

pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> StorageError {
    let path = path.to_owned();
    move |source| StorageError::Io { path, source }
}

/// Makes the names in `dir` durable.
pub(super) fn sync_dir(dir: &Path) -> Result<(), StorageError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(at(dir))
}

/// Makes everything below `dir`, and `dir` itself, durable.
pub(super) fn sync_tree(dir: &Path) -> Result<(), StorageError> {
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let path = entry.map_err(at(dir))?.path();
        if path.is_dir() {
            sync_tree(&path)?;
        } else {
            File::open(&path).and_then(|file| file.sync_all()).map_err(at(&path))?;
        }
    }
    sync_dir(dir)
}

/// Replaces the file `name` in `dir` in one step.
pub(super) fn replace(dir: &Path, name: &str, content: &[u8]) -> Result<(), StorageError> {
    let draft = dir.join(format!("{name}.tmp"));
    let write = || {
        let mut file = File::create(&draft)?;
        file.write_all(content)?;
        file.sync_all()
    };
    write().map_err(at(&draft))?;
    let path = dir.join(name);
    fs::rename(&draft, &path).map_err(at(&path))?;
    sync_dir(dir)
}

/// Renames a directory, durably on both sides.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), StorageError> {
    fs::rename(from, to).map_err(at(from))?;
    for path in [from, to] {
        if let Some(parent) = path.parent() {
            sync_dir(parent)?;
        }
    }
    Ok(())
}

/// Removes RocksDB's information logs from `dir`.
pub(super) fn remove_logs(dir: &Path) -> Result<(), StorageError> {
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let entry = entry.map_err(at(dir))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name == "LOG" || name.starts_with("LOG.old") {
            fs::remove_file(entry.path()).map_err(at(&entry.path()))?;
        }
    }
    Ok(())
}
