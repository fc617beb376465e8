//! Private files, which other users cannot read, and private folders, in which they cannot create
//! files.
//!
//! Owns the modes of the files and folders that this crate creates, and the umask for those of
//! other code. Invariant: no function here follows a symbolic link below the folder that it was
//! given, and none removes anything behind one.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::{FileError, Lock, LockError, at, clear_dir, parent, remove_tree, sync_rename};

/// Mode of a folder: the owner alone may enter it.
pub const DIR_MODE: u32 = 0o700;
/// Mode of a file: the owner alone may read and write it.
pub const FILE_MODE: u32 = 0o600;
/// The rights of the group and of other users.
const FOREIGN_RIGHTS: u32 = 0o077;
/// Right of every user to make, rename and remove names in a folder.
const OTHERS_WRITE: u32 = 0o002;
/// In a folder with this bit, users rename and remove only names of their own.
const STICKY: u32 = 0o1000;
/// Name of the folder for recovered files at the top of a file system. It belongs to root.
const LOST_AND_FOUND: &str = "lost+found";

/// Sets the umask of the process, so that the files and folders that other code makes, such as
/// RocksDB, are private, too.
pub fn set_private_umask() {
    rustix::process::umask(Mode::from_raw_mode(FOREIGN_RIGHTS));
}

/// Options that open a file without following a symbolic link at its name, and with [`FILE_MODE`]
/// if they create it. An existing file keeps its mode.
pub(super) fn open_options() -> OpenOptions {
    let mut options = File::options();
    options.mode(FILE_MODE).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    options
}

/// A builder of folders with [`DIR_MODE`].
pub(super) fn dir_builder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(DIR_MODE);
    builder
}

/// Failure to remove the rights of the group and of other users to a file or folder.
#[derive(Debug, thiserror::Error)]
pub enum PrivacyError {
    /// Another user owns the file or folder.
    #[error("{} belongs to user {owner}, and this process runs as user {me}", path.display())]
    Foreign {
        /// The file or folder.
        path: PathBuf,
        /// The id of the user that owns it.
        owner: u32,
        /// The effective user id of this process.
        me: u32,
    },
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Removes the rights of the group and of other users to `dir` and everything below it. Returns the
/// number of files and folders with such rights. Skips symbolic links below `dir`, and a folder
/// `lost+found` in it. **Not durable**: after a power failure, old modes may be back.
///
/// # Errors
///
/// [`PrivacyError::Foreign`] for the first file or folder that another user owns,
/// [`PrivacyError::File`] if a file operation failed. Modes of other files and folders may have
/// been changed before.
pub fn make_private(dir: &Path) -> Result<usize, PrivacyError> {
    let found = fs::metadata(dir).map_err(at(dir))?;
    // `dir` first: once other users cannot enter it, they cannot change its content meanwhile.
    let mut changed = tighten(dir, &found)?;
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(at(&folder))? {
            let entry = entry.map_err(at(&folder))?;
            let path = entry.path();
            let is_of_the_system = folder == dir && entry.file_name() == LOST_AND_FOUND;
            let found = fs::symlink_metadata(&path).map_err(at(&path))?;
            if is_of_the_system || found.is_symlink() {
                continue;
            }
            changed += tighten(&path, &found)?;
            if found.is_dir() {
                folders.push(path);
            }
        }
    }
    Ok(changed)
}

/// Removes the rights of the group and of other users to `path`, a file or folder with the metadata
/// `found`. Returns 1 if the mode was changed, else 0. Refuses a file or folder of another user.
pub(super) fn tighten(path: &Path, found: &Metadata) -> Result<usize, PrivacyError> {
    let me = user();
    if found.uid() != me {
        return Err(PrivacyError::Foreign { path: path.into(), owner: found.uid(), me });
    }
    let mode = found.permissions().mode();
    if mode & FOREIGN_RIGHTS == 0 {
        return Ok(0);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & 0o7777 & !FOREIGN_RIGHTS)).map_err(at(path))?;
    Ok(1)
}

/// The effective user id of this process.
fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Reason why a [`StagingDir`] could not be made.
#[derive(Debug, thiserror::Error)]
pub enum StagingError {
    /// Another process, or another [`StagingDir`] of this process, has locked the folder.
    #[error("{} is in use by another process", .0.display())]
    Busy(PathBuf),
    /// At the path is a symbolic link, something other than a folder, or a folder of another user.
    #[error("{} is {what}, which no run of headwater by this user has made: look where it comes from and remove it", path.display())]
    Planted {
        /// Path of the staging folder.
        path: PathBuf,
        /// Description of the found object, for the message.
        what: &'static str,
    },
    /// The parent belongs to a user other than this one and root; or every user may write to it,
    /// and it has no sticky bit. Such users could rename and remove names in it. Rights of the
    /// group are accepted.
    #[error("{}: {why}: choose a folder that belongs to this user and that others cannot write to", path.display())]
    Exposed {
        /// Path of the parent.
        path: PathBuf,
        /// The users that may rename and remove names, and the danger, for the message.
        why: String,
    },
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Failure of [`StagingDir::rename_to`].
#[derive(Debug, thiserror::Error)]
pub enum RenameError {
    /// The folder was not renamed, and is removed.
    #[error(transparent)]
    NotRenamed(FileError),
    /// The folder has its final name, perhaps not durably: a sync failed.
    #[error(transparent)]
    NotSynced(FileError),
}

/// A private folder with a temporary name. Its content is made in it, then
/// [`rename_to`](Self::rename_to) gives it its final name. A drop before that removes the folder
/// with its content.
#[derive(Debug)]
pub struct StagingDir {
    path: PathBuf,
    is_renamed: bool,
    _lock: Lock,
}

impl StagingDir {
    /// Creates the folder `path` and its missing parents, and locks the folder. If the folder
    /// exists, removes its content, as left by an interrupted run. **Not durable** before
    /// [`rename_to`](Self::rename_to).
    ///
    /// # Errors
    ///
    /// [`StagingError`]. After [`StagingError::File`], content may have been removed; after the
    /// others, none was.
    pub fn begin(path: &Path) -> Result<Self, StagingError> {
        let above = parent(path);
        super::create_dir(above)?;
        refuse_exposed(above)?;
        match dir_builder().create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(at(path)(error).into()),
            _ => {}
        }
        let found = fs::symlink_metadata(path).map_err(at(path))?;
        let planted = |what| StagingError::Planted { path: path.into(), what };
        if found.is_symlink() {
            return Err(planted("a symbolic link"));
        }
        if !found.is_dir() {
            return Err(planted("no folder"));
        }
        // If this user owns it, nobody else can replace it: the parent was checked.
        if found.uid() != user() {
            return Err(planted("a folder of another user"));
        }
        let lock = Lock::dir(path).map_err(|error| match error {
            LockError::Held { .. } => StagingError::Busy(path.into()),
            LockError::File(error) => error.into(),
        })?;
        fs::set_permissions(path, Permissions::from_mode(DIR_MODE)).map_err(at(path))?;
        clear_dir(path)?;
        Ok(Self { path: path.to_owned(), is_renamed: false, _lock: lock })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the folder its final name, as [`rename`](super::rename) does. The content must be
    /// synced before ([`sync_tree`](super::sync_tree)).
    ///
    /// # Errors
    ///
    /// [`RenameError`].
    pub fn rename_to(self, to: &Path) -> Result<(), RenameError> {
        self.rename_and(to, sync_rename)
    }

    /// Renames the folder, and makes that durable by `sync`, which gets the old and the new path.
    pub(super) fn rename_and(
        mut self,
        to: &Path,
        sync: impl FnOnce(&Path, &Path) -> Result<(), FileError>,
    ) -> Result<(), RenameError> {
        fs::rename(&self.path, to).map_err(at(&self.path)).map_err(RenameError::NotRenamed)?;
        // From here on, a folder with the old name is that of another run.
        self.is_renamed = true;
        sync(&self.path, to).map_err(RenameError::NotSynced)
    }
}

impl Drop for StagingDir {
    fn drop(&mut self) {
        if !self.is_renamed {
            // The next run removes the content that is left.
            let _left = remove_tree(&self.path).is_err();
        }
    }
}

/// Refuses a folder of another user, other than root, and a folder that every user may write to if
/// it lacks the sticky bit. Rights of the group are accepted.
fn refuse_exposed(dir: &Path) -> Result<(), StagingError> {
    let found = fs::metadata(dir).map_err(at(dir))?;
    let exposed = |why| StagingError::Exposed { path: dir.into(), why };
    if found.uid() != user() && found.uid() != 0 {
        return Err(exposed(format!("user {} owns this folder and could plant files in it", found.uid())));
    }
    let mode = found.permissions().mode();
    if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
        return Err(exposed("every user may write to this folder and could plant files in it".to_owned()));
    }
    Ok(())
}

/// Reads a file to which neither the group nor other users have any right. Returns the first
/// `bytes_max` bytes of a longer file.
///
/// # Errors
///
/// If the group or other users have a right to the file, or it cannot be read.
pub fn read_secret(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mode = file.metadata()?.permissions().mode();
    if mode & FOREIGN_RIGHTS != 0 {
        return Err(io::Error::other(format!("other users may use it (mode {:o}): chmod 600 it", mode & 0o777)));
    }
    let mut content = Vec::new();
    file.take(bytes_max).read_to_end(&mut content)?;
    Ok(content)
}

/// Locks the file `path`, exclusively like [`Lock::file`], without writing to it: for a process
/// that reads a folder that no other process may use. `None` if there is no such file.
///
/// # Errors
///
/// As [`Lock::file`].
pub fn lock_existing(path: &Path) -> Result<Option<Lock>, LockError> {
    match open_options().read(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path)(error).into()),
        Ok(file) => Lock::take(file, path).map(|file| Some(Lock { _file: file })),
    }
}
