//! The data directory of a node: its layout, its owner, its lock and its notes.
//!
//! Owns every name below the data directory that is not a database's; the content of `state` and
//! `log` belongs to those modules. Notes are small files, written through [`headwater_files`] and
//! durable before a function returns. Invariant: the stamp is replaced atomically and never
//! repaired; a directory without a stamp holds nothing of value.
//!
//! | name | content | written | removed |
//! |---|---|---|---|
//! | `LOCK` | process id of the holder; the lock counts, not the text | at every start | never |
//! | `STAMP` | format, owner, store id, whether the databases exist | first start, restore | never |
//! | `JOINING` | incarnation: identity of a directory without owner | before a node asks to join | once stamped |
//! | `ORIGIN` | number of the backup and options of a restore | restore | never |
//! | `REJOINING` | marker: no votes, no campaigns | a first member has lost its data | caught up |
//! | `REMOVED` | marker: removed from the cluster; never starts again | the member learns of it | never |
//! | `*.tmp` | draft of a note | while the note is replaced | renamed, or overwritten |
//! | `log/` | the Raft log: RocksDB, `headwater-mark` ([`log`](crate::log)) | first start | never |
//! | `state/` | `CURRENT` and generations ([`StateStore`](crate::StateStore)) | start, snapshots | once replaced |
//! | `snapshots/` | checkpoints for other members | at any time | emptied at start |
//! | `incoming/` | snapshots being received, a folder a sender | at any time | moved to `state/`, or next sender |
//! | `backups/` | checkpoints of backups being sent | at any time | emptied at start |
//!
//! Beside the data directory, `NAME.restoring` is one that a restore is making; it is renamed last.

mod layout;
mod notes;
mod stamp;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use headwater_files::{self as files, Lock, LockError};

use crate::StorageError;
use headwater_types::{ClusterId, NodeId};
use stamp::Stamp;

pub use layout::Layout;
pub use notes::Marker;

const LOCK_FILE: &str = "LOCK";

/// The node that a data directory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The cluster of the node.
    pub cluster_id: ClusterId,
    /// Its id there.
    pub node_id: NodeId,
}

/// A data directory that this process uses alone while the value lives.
#[derive(Debug)]
pub struct DataDir {
    layout: Layout,
    stamp: Stamp,
    _lock: Lock,
}

impl DataDir {
    /// The owner of the directory `path`. `None` before it is stamped.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] for an unreadable stamp, [`StorageError::WrongDirectory`] for one
    /// of another format.
    pub fn owner(path: &Path) -> Result<Option<Owner>, StorageError> {
        Ok(stamp::read(path)?.map(|stamp| stamp.owner))
    }

    /// A random number that identifies the directory `path` until it has an owner: the same one at
    /// every call, across crashes, until the directory is stamped or wiped. Creates the directory.
    ///
    /// # Errors
    ///
    /// [`StorageError::WrongDirectory`] if the directory holds foreign files,
    /// [`StorageError::Corrupt`] if the number is unreadable.
    pub fn incarnation(path: &Path) -> Result<u64, StorageError> {
        files::create_dir(path)?;
        if let Some(incarnation) = notes::read_incarnation(path)? {
            return Ok(incarnation);
        }
        refuse_foreign_files(path)?;
        notes::choose_incarnation(path)
    }

    /// Takes possession of `path` for `owner`: stamps a new or empty directory, compares the stamp
    /// of any other.
    ///
    /// # Errors
    ///
    /// [`StorageError::WrongDirectory`] if another process uses it, if it belongs to another node,
    /// cluster or format, or if it holds foreign files; the text says how to proceed.
    /// [`StorageError::Corrupt`] for an unreadable stamp.
    pub fn open(path: &Path, owner: Owner) -> Result<Self, StorageError> {
        files::create_dir(path)?;
        let lock = lock(path)?;
        let stamp = match stamp::read(path)? {
            Some(stamp) => {
                stamp.check_owner(path, owner)?;
                stamp
            }
            None => {
                refuse_foreign_files(path)?;
                let stamp = Stamp { owner, store_id: rand::random(), in_use: false };
                stamp.write(path)?;
                stamp
            }
        };
        notes::remove_incarnation(path)?;
        Ok(Self { layout: Layout::new(path), stamp, _lock: lock })
    }

    /// Stamps a directory with databases made from a backup: the last step of a restore inside the
    /// directory.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if the stamp cannot be written.
    pub fn stamp_restored(path: &Path, owner: Owner, store_id: u64) -> Result<(), StorageError> {
        Stamp { owner, store_id, in_use: true }.write(path)
    }

    /// Records durably that the databases exist: a missing one is an error from now on. Called once
    /// all of them are created, and before the node takes part in anything.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if the stamp cannot be written.
    pub fn mark_in_use(&mut self) -> Result<(), StorageError> {
        if !self.stamp.in_use {
            let stamp = Stamp { in_use: true, ..self.stamp };
            stamp.write(self.path())?;
            self.stamp = stamp;
        }
        Ok(())
    }

    /// Whether [`Self::mark_in_use`] was ever called: the databases must exist.
    pub fn is_in_use(&self) -> bool {
        self.stamp.in_use
    }

    /// A random id, chosen when the directory was stamped. The log holds it too, so that a log of
    /// another directory is recognised.
    pub fn store_id(&self) -> u64 {
        self.stamp.store_id
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        self.layout.path()
    }

    /// The folder of the Raft log.
    pub fn log_dir(&self) -> PathBuf {
        self.layout.log_dir()
    }

    /// The folder of the state machine.
    pub fn state_dir(&self) -> PathBuf {
        self.layout.state_dir()
    }
}

fn lock(path: &Path) -> Result<Lock, StorageError> {
    Lock::file(&path.join(LOCK_FILE)).map_err(|error| match error {
        LockError::File(error) => error.into(),
        LockError::Held { holder } => {
            let holder = if holder.is_empty() { holder } else { format!(" (pid {holder})") };
            let detail = format!(
                "data directory is in use by another process{holder}: stop it, or give this node a data directory of its \
                 own"
            );
            StorageError::WrongDirectory { path: path.into(), detail }
        }
    })
}

/// A directory without a stamp must be empty but for the files of an interrupted first start or of
/// a file system.
fn refuse_foreign_files(path: &Path) -> Result<(), StorageError> {
    for entry in fs::read_dir(path).map_err(files::at(path))? {
        let name = entry.map_err(files::at(path))?.file_name();
        let own = [LOCK_FILE, stamp::DRAFT, notes::INCARNATION, notes::INCARNATION_DRAFT, "lost+found"];
        if !own.iter().any(|own| name == *own) {
            let detail = format!(
                "directory is not empty (it holds {}) and has no stamp, so it is not a data directory of headwater: choose an \
                 empty one",
                name.display()
            );
            return Err(StorageError::WrongDirectory { path: path.into(), detail });
        }
    }
    Ok(())
}
