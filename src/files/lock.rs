//! Advisory locks, so that only one process at a time uses a folder.
//!
//! Invariant: the operating system releases a lock when its process ends, for any reason.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::private::open_options;
use super::{FileError, at};

/// A lock that this process holds until the value is dropped.
#[derive(Debug)]
pub struct Lock {
    pub(super) _file: File,
}

/// A lock that could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process, or another [`Lock`] of this process, holds the lock.
    #[error("locked by another process")]
    Held {
        /// Id of the last process that took the lock with [`Lock::file`], as text; a hint for
        /// people. Empty if that process has ended: then another one holds the lock, by
        /// [`lock_existing`](super::lock_existing). Also empty if the file has no text, and for a
        /// folder.
        holder: String,
    },
    /// The file or folder could not be opened or locked, or the file not written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Lock {
    /// Locks the file `path`, creates it if it is missing, and replaces its content by the process
    /// id. The id is only a hint for people: it is not durable, and stays after the release.
    ///
    /// # Errors
    ///
    /// [`LockError::Held`] if another process, or another [`Lock`] of this process, holds the lock;
    /// [`LockError::File`] otherwise.
    pub fn file(path: &Path) -> Result<Self, LockError> {
        let file = open_options().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = Self::take(file.map_err(at(path))?, path)?;
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(at(path))?;
        Ok(Self { _file: file })
    }

    /// Locks the folder `dir` itself, which must not be a link.
    ///
    /// # Errors
    ///
    /// [`LockError::Held`] if another process, or another [`Lock`] of this process, holds the lock;
    /// [`LockError::File`] otherwise.
    pub fn dir(dir: &Path) -> Result<Self, LockError> {
        let flags = (OFlags::NOFOLLOW | OFlags::DIRECTORY).bits() as i32;
        let file = File::options().read(true).custom_flags(flags).open(dir).map_err(at(dir))?;
        Ok(Self { _file: Self::take(file, dir)? })
    }

    pub(super) fn take(mut file: File, path: &Path) -> Result<File, LockError> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(file),
            Err(Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let holder = file.read_to_string(&mut text).map_or("", |_| text.trim());
                let holder = if has_ended(holder) { "" } else { holder };
                Err(LockError::Held { holder: holder.to_owned() })
            }
            Err(errno) => Err(at(path)(errno.into()).into()),
        }
    }
}

/// Whether `pid` is a process id, and no such process runs.
fn has_ended(pid: &str) -> bool {
    let pid = pid.parse().ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}
