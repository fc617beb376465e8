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
//! | `STAMP` | version, owner, store id, whether the databases exist | first start, restore, change of the version | never |
//! | `JOINING` | incarnation: identity of a directory without owner | before a node asks to join | once stamped |
//! | `ORIGIN` | number that stands for the backup and the options of a restore | restore | never |
//! | `REJOINING` | marker: no votes, no campaigns | a first member has lost its data | caught up |
//! | `REMOVED` | marker: removed from the cluster; never starts again | the member learns of it | never |
//! | `*.tmp` | draft of a note | while the note is replaced | renamed, or overwritten |
//! | `log/` | the Raft log: `segments/` or a RocksDB, `headwater-mark` ([`log`](crate::log)) | first start | never |
//! | `state/` | `CURRENT` and generations ([`StateStore`](crate::StateStore)) | start, snapshots | once replaced |
//! | `snapshots/` | checkpoints for other members | at any time | emptied at start |
//! | `incoming/` | snapshots being received, one folder for each sender | at any time | moved to `state/`, or another sender begins |
//! | `backups/` | checkpoints of backups being sent | at any time | emptied at start |
//!
//! Beside the data directory, `NAME.restoring` is one that a restore is making; it is renamed last.
//! `NAME.recovering` holds the copy of a survivor's state while `NAME` is made of it.

mod layout;
mod notes;
mod stamp;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_files::{self as files, Lock, LockError, PrivacyError};
use parking_lot::Mutex;

use crate::StorageError;
use headwater_types::{ClusterId, ClusterVersion, NodeId, Supported, Version};
use stamp::Stamp;

pub use layout::Layout;
pub use notes::FlagNote;

const LOCK_FILE: &str = "LOCK";

/// The node that a data directory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The cluster of the node.
    pub cluster_id: ClusterId,
    /// Id of the node in that cluster.
    pub node_id: NodeId,
}

/// The content of a data directory's stamp, for commands that read the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryIdentity {
    /// The node that it belongs to.
    pub owner: Owner,
    /// The random id of the store, which the log in the directory also holds.
    pub store_id: u64,
    /// The lowest version of the program that understands everything in the directory.
    pub needs: Version,
}

/// Keeps nodes out of a data directory while the value lives, if the directory has a lock file.
#[derive(Debug)]
pub struct ReadLock {
    _lock: Option<Lock>,
}

/// A data directory that this process uses alone while the value lives.
#[derive(Debug)]
pub struct DataDir {
    layout: Layout,
    stamp: VersionMark,
    _lock: Lock,
}

impl DataDir {
    /// The owner of the directory `path`. `None` before it is stamped, or if it does not exist.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] for an unreadable stamp, [`StorageError::TooNew`] if the directory
    /// needs a newer version than `supported` has, [`StorageError::Io`] if the stamp cannot be
    /// read.
    pub fn owner(path: &Path, supported: Supported) -> Result<Option<Owner>, StorageError> {
        Ok(stamp::read(path, supported)?.map(|stamp| stamp.owner))
    }

    /// The owner, the store id and the needed version of the directory `path`. `None` before it is
    /// stamped, or if it does not exist.
    ///
    /// # Errors
    ///
    /// As [`Self::owner`].
    pub fn identity(path: &Path, supported: Supported) -> Result<Option<DirectoryIdentity>, StorageError> {
        let identity = |Stamp { owner, store_id, needs, .. }: Stamp| DirectoryIdentity { owner, store_id, needs };
        Ok(stamp::read(path, supported)?.map(identity))
    }

    /// Keeps nodes out of the directory `path` while the value lives, and changes nothing in it. A
    /// directory without a lock file, such as a copy, is not locked.
    ///
    /// # Errors
    ///
    /// [`StorageError::WrongDirectory`] if a process uses it, or if there is no such directory;
    /// [`StorageError::Io`] if the lock file cannot be opened or locked.
    pub fn lock_for_reading(path: &Path) -> Result<ReadLock, StorageError> {
        if !path.is_dir() {
            let detail = "there is no such directory: name the data directory of a node".to_owned();
            return Err(StorageError::WrongDirectory { path: path.into(), detail });
        }
        match files::lock_existing(&path.join(LOCK_FILE)) {
            Ok(lock) => Ok(ReadLock { _lock: lock }),
            Err(LockError::File(error)) => Err(error.into()),
            Err(LockError::Held { holder }) => {
                let holder = if holder.is_empty() { holder } else { format!(" (pid {holder})") };
                let detail = format!(
                    "data directory is in use by another process{holder}: stop the node first, or ask it (`headwater status`, \
                     `headwater snapshot save`)"
                );
                Err(StorageError::WrongDirectory { path: path.into(), detail })
            }
        }
    }

    /// A random number that identifies the directory `path` until it has an owner: the same one at
    /// every call, across crashes, until the directory is stamped or wiped. Creates the directory.
    ///
    /// # Errors
    ///
    /// [`StorageError::WrongDirectory`] if the directory belongs to another user, or has no such
    /// number and holds foreign files or a stamp. [`StorageError::Corrupt`] if the number is
    /// unreadable, [`StorageError::Io`] if a file operation failed.
    pub fn incarnation(path: &Path) -> Result<u64, StorageError> {
        files::create_dir(path)?;
        make_private(path)?;
        if let Some(incarnation) = notes::read_incarnation(path)? {
            return Ok(incarnation);
        }
        refuse_foreign_files(path)?;
        notes::choose_incarnation(path)
    }

    /// Takes possession of `path` for `owner`: stamps a new or empty directory, compares the stamp
    /// of any other. The data of a newer version is refused before anything is touched. Takes the
    /// rights of the group and of other users from the directory and all files in it. Removes the
    /// incarnation of a node that joined.
    ///
    /// # Errors
    ///
    /// [`StorageError::WrongDirectory`] if another process uses it, if it belongs to another node,
    /// cluster or user, or if it holds foreign files; the text says how to proceed.
    /// [`StorageError::TooNew`] if the directory needs a newer version than `supported` has.
    /// [`StorageError::Corrupt`] for an unreadable stamp. [`StorageError::Io`] if a file operation
    /// failed.
    pub fn open(path: &Path, owner: Owner, supported: Supported) -> Result<Self, StorageError> {
        stamp::read(path, supported)?;
        files::create_dir(path)?;
        let lock = lock(path)?;
        make_private(path)?;
        let stamp = match stamp::read(path, supported)? {
            Some(stamp) => {
                stamp.check_owner(path, owner)?;
                stamp
            }
            None => {
                refuse_foreign_files(path)?;
                let needs = ClusterVersion::FIRST.version;
                let stamp = Stamp { owner, store_id: rand::random(), in_use: false, needs };
                stamp.write(path)?;
                stamp
            }
        };
        notes::remove_incarnation(path)?;
        Ok(Self { layout: Layout::new(path), stamp: VersionMark::new(path, stamp), _lock: lock })
    }

    /// Stamps a directory whose databases were made from a backup, and marks it as in use. The last
    /// step of a restore inside the directory.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if the stamp cannot be written.
    pub fn stamp_restored(path: &Path, owner: Owner, store_id: u64, needs: Version) -> Result<(), StorageError> {
        Stamp { owner, store_id, in_use: true, needs }.write(path)
    }

    /// Records durably that the databases exist: a missing one is an error from now on. Called once
    /// all of them are created, and before the node takes part in anything.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if the stamp cannot be written.
    pub fn mark_in_use(&self) -> Result<(), StorageError> {
        self.stamp.change(|stamp| stamp.in_use = true)
    }

    /// Whether the databases must exist: after [`Self::mark_in_use`] was called, and in a directory
    /// that was restored.
    pub fn is_in_use(&self) -> bool {
        self.stamp.read().in_use
    }

    /// Handle to the version that the directory needs, for the code that raises and lowers it.
    pub fn version_mark(&self) -> VersionMark {
        self.stamp.clone()
    }

    /// A random id, chosen when the directory was made. The log holds it too, so that a log of
    /// another directory is recognised.
    pub fn store_id(&self) -> u64 {
        self.stamp.read().store_id
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

/// Handle to the version that a data directory needs: the lowest that understands everything in it.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct VersionMark {
    path: PathBuf,
    stamp: Arc<Mutex<Stamp>>,
}

impl VersionMark {
    fn new(path: &Path, stamp: Stamp) -> Self {
        Self { path: path.to_owned(), stamp: Arc::new(Mutex::new(stamp)) }
    }

    fn read(&self) -> Stamp {
        *self.stamp.lock()
    }

    /// Writes the stamp if `change` changes it.
    fn change(&self, change: impl FnOnce(&mut Stamp)) -> Result<(), StorageError> {
        let mut stamp = self.stamp.lock();
        let mut new = *stamp;
        change(&mut new);
        if new != *stamp {
            new.write(&self.path)?;
            *stamp = new;
        }
        Ok(())
    }

    /// Raises the version that the directory needs to at least `needs`, durably. Called before the
    /// first record of that version is written.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if the stamp cannot be written.
    pub fn raise(&self, needs: Version) -> Result<(), StorageError> {
        self.change(|stamp| stamp.needs = stamp.needs.max(needs))
    }

    /// Sets the version that the directory needs to `needs`, durably. Called to lower it, after the
    /// last record of a newer version is gone from the disk.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if the stamp cannot be written.
    pub fn lower(&self, needs: Version) -> Result<(), StorageError> {
        self.change(|stamp| stamp.needs = needs)
    }

    /// The lowest version that understands everything in the directory.
    pub fn needs(&self) -> Version {
        self.read().needs
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

/// Takes the rights of the group and of other users from the directory and everything in it.
fn make_private(path: &Path) -> Result<(), StorageError> {
    match files::make_private(path) {
        Ok(0) => Ok(()),
        Ok(changed) => {
            tracing::warn!(
                data = %path.display(), changed, "other users could read or change files of the data directory: took these rights away"
            );
            Ok(())
        }
        Err(PrivacyError::File(error)) => Err(error.into()),
        Err(PrivacyError::Foreign { path: foreign, owner, me }) => {
            let detail = format!(
                "{} belongs to user {owner}, and this process runs as user {me}: run it as user {owner}, or hand the data \
                 directory over with `chown -R {me} {}`, or choose another one (on a mounted file system, a folder in it)",
                foreign.display(),
                path.display()
            );
            Err(StorageError::WrongDirectory { path: path.into(), detail })
        }
    }
}

/// Refuses a directory with other files than those of an interrupted first start or of a file
/// system (`lost+found`). Called for a directory without a stamp.
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
