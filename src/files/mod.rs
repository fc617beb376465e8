//! Durable file operations: the only module that calls fsync on a node's own files.
//!
//! Owns no file format and no file name. Exceptions: RocksDB syncs its own files, `storage::log`
//! writes segments and mark of the log in place and syncs segments, and commands sync the files
//! that they make.
//! Invariants: when a function returns `Ok`, its effect survives a power failure, unless its
//! documentation says otherwise; files and folders are made for their owner alone; no file is
//! written, and nothing is removed, through a symbolic link. All functions block. Every error names
//! the path that failed; after an error, the effect may or may not be on disk.
//!
//! ```text
//! replace    draft written ─► draft synced ─► draft renamed ─► folder synced      a crash leaves the old file or the new one
//! ```

mod lock;
mod private;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub use lock::{Lock, LockError};
pub use private::{
    DIR_MODE, FILE_MODE, PrivacyError, RenameError, StagingDir, StagingError, lock_existing, make_private, read_secret,
    set_private_umask,
};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// A file operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct FileError {
    /// The file or folder.
    pub path: PathBuf,
    /// The error of the operating system.
    pub source: io::Error,
}

impl From<FileError> for io::Error {
    /// Keeps the kind of the source. The text names the path.
    fn from(error: FileError) -> Self {
        Self::new(error.source.kind(), error)
    }
}

/// Function for `map_err` that adds `path` to an error of the operating system.
pub fn at(path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError { path, source }
}

/// Whether the error means that the process or the system is out of file descriptors. The disk is
/// not at fault: the same operation succeeds once descriptors are closed.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    let out = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| out.contains(&code))
}

/// Checks that `count` file descriptors can be opened, by opening and closing them. For work that
/// must not fail half-way. Reserves nothing: other threads and processes may take the descriptors
/// before the work begins.
///
/// # Errors
///
/// The error of the operating system. [`is_out_of_descriptors`] is true for it if fewer than
/// `count` are left.
pub fn probe_descriptors(count: usize) -> io::Result<()> {
    (0..count).map(|_| File::open("/dev/null")).collect::<io::Result<Vec<File>>>().map(drop)
}

/// The folder that contains `path`: `.` for a name without a folder.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates the folder `dir` and its missing parents, durably. Existing folders keep their modes. If
/// `dir` exists, nothing is synced.
///
/// Crash: some of the missing folders may exist.
///
/// # Errors
///
/// [`FileError`], also if `dir` is a file.
pub fn create_dir(dir: &Path) -> Result<(), FileError> {
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.is_dir();
    let missing: Vec<&Path> = dir.ancestors().take_while(is_missing).collect();
    private::dir_builder().recursive(true).create(dir).map_err(at(dir))?;
    missing.into_iter().rev().try_for_each(|folder| sync_dir(parent(folder)))
}

/// Replaces `dir` by an empty folder, for files that do not outlive the process. Missing parents
/// are created. **Not durable**: after a power failure, old content may be back.
///
/// # Errors
///
/// [`FileError`].
pub fn recreate_dir(dir: &Path) -> Result<(), FileError> {
    remove_tree(dir)?;
    private::dir_builder().recursive(true).create(dir).map_err(at(dir))
}

/// Removes the file `path`, if there is one.
///
/// # Errors
///
/// [`FileError`]; a missing file is no error.
pub fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(at(path)(error)),
        Ok(()) => sync_dir(parent(path)),
    }
}

/// Removes the folder `dir` with its content, if it exists. Symbolic links are removed, not their
/// targets. **Not durable**: after a crash, any part of it may be left.
///
/// # Errors
///
/// [`FileError`]; a missing folder is no error.
pub fn remove_tree(dir: &Path) -> Result<(), FileError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(at(dir)(error)),
        _ => Ok(()),
    }
}

/// Removes the content of the folder `dir`, and keeps the folder. Symbolic links are removed, not
/// their targets. **Not durable**: after a crash, any part of it may be left.
///
/// # Errors
///
/// [`FileError`].
pub fn clear_dir(dir: &Path) -> Result<(), FileError> {
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let entry = entry.map_err(at(dir))?;
        let path = entry.path();
        let is_dir = entry.file_type().map_err(at(&path))?.is_dir();
        let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(at(&path))?;
    }
    Ok(())
}

/// Replaces the content of the file `path` atomically, or creates the file. The draft is `path`
/// with `.tmp` appended.
///
/// Crash: the old content or the new one, and perhaps a draft, which the next call overwrites.
///
/// # Errors
///
/// [`FileError`].
pub fn replace(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".tmp");
    let draft = PathBuf::from(draft);
    let mut file = FileWriter::create(&draft)?;
    file.write(content)?;
    file.finish()?;
    fs::rename(&draft, path).map_err(at(path))?;
    sync_dir(parent(path))
}

/// Creates the empty file `path`. An existing file stays as it is; a symbolic link is replaced.
///
/// Crash: an existing file stays; a new one may be missing.
///
/// # Errors
///
/// [`FileError`].
pub fn touch(path: &Path) -> Result<(), FileError> {
    match private::open_options().write(true).create(true).truncate(false).open(path) {
        // The error for a symbolic link.
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => return replace(path, &[]),
        opened => opened.and_then(|file| file.sync_all()).map_err(at(path))?,
    }
    sync_dir(parent(path))
}

/// Renames a file or folder, durably. A file replaces a file at `to`, a folder an empty folder. The
/// content of `from` must be synced before ([`sync_tree`]).
///
/// Crash: the old name or the new one is left; both, if they are in two folders of a file system
/// without a journal.
///
/// # Errors
///
/// [`FileError`]; it names `from` if the rename itself failed.
pub fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    fs::rename(from, to).map_err(at(from))?;
    sync_rename(from, to)
}

/// Makes a rename durable.
fn sync_rename(from: &Path, to: &Path) -> Result<(), FileError> {
    let (left, entered) = (parent(from), parent(to));
    sync_dir(left)?;
    if left == entered { Ok(()) } else { sync_dir(entered) }
}

/// Makes the names in the folder `dir` durable: files that were created, renamed or removed in it.
///
/// # Errors
///
/// [`FileError`].
pub fn sync_dir(dir: &Path) -> Result<(), FileError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(at(dir))
}

/// Makes everything below the folder `dir`, and `dir` itself, durable. The name of `dir` in its
/// parent is not synced.
///
/// # Errors
///
/// [`FileError`].
pub fn sync_tree(dir: &Path) -> Result<(), FileError> {
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let entry = entry.map_err(at(dir))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(at(&path))?;
        if kind.is_dir() {
            sync_tree(&path)?;
        } else if kind.is_file() {
            File::open(&path).and_then(|file| file.sync_all()).map_err(at(&path))?;
        }
    }
    sync_dir(dir)
}

/// A file to which whole records are appended, such as a log for people. Records, and the name of a
/// new file, are **not durable** before [`sync`](Self::sync).
#[derive(Debug)]
pub struct AppendFile {
    path: PathBuf,
    file: File,
    len: u64,
    /// Whether the name in the folder is known to be durable.
    is_name_durable: bool,
}

impl AppendFile {
    /// Opens the file `path` for appending, or creates it, with rights for its owner alone. Removes
    /// the rights of the group and of other users to an existing file.
    ///
    /// # Errors
    ///
    /// [`PrivacyError`]: the file belongs to another user, or cannot be opened. A symbolic link,
    /// and anything else that is not a regular file, is refused.
    pub fn open(path: &Path) -> Result<Self, PrivacyError> {
        let mut options = private::open_options();
        // A named pipe would wait for a reader.
        options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
        let file = options.append(true).create(true).open(path).map_err(at(path))?;
        let found = file.metadata().map_err(at(path))?;
        if !found.is_file() {
            return Err(at(path)(io::Error::new(ErrorKind::InvalidInput, "not a file")).into());
        }
        private::tighten(path, &found)?;
        Ok(Self { path: path.to_owned(), file, len: found.len(), is_name_durable: false })
    }

    /// Length of the file, bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file has no content.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    ///
    /// [`FileError`]. The file is cut to its earlier length then. If that fails, too, the file ends
    /// with a part of `bytes`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        if let Err(error) = self.file.write_all(bytes) {
            // Otherwise the next record would follow a part of this one.
            let _is_cut = self.file.set_len(self.len);
            return Err(at(&self.path)(error));
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Makes the content durable, and the name with the first call: the file may be new, made by
    /// this or by an earlier process.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn sync(&mut self) -> Result<(), FileError> {
        self.file.sync_all().map_err(at(&self.path))?;
        if !self.is_name_durable {
            sync_dir(parent(&self.path))?;
            self.is_name_durable = true;
        }
        Ok(())
    }
}

/// A new file that is written once, from its beginning to its end. Nothing is durable before
/// [`finish`](Self::finish).
#[derive(Debug)]
pub struct FileWriter {
    path: PathBuf,
    file: File,
}

impl FileWriter {
    /// Creates the file `path`. An earlier file of that name is removed first; other hard links to
    /// it keep its content.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn create(path: &Path) -> Result<Self, FileError> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(at(path)(error)),
            _ => Self::create_new(path),
        }
    }

    /// Creates the file `path`, which must not exist.
    ///
    /// # Errors
    ///
    /// [`FileError`], of kind `AlreadyExists` if it does.
    pub fn create_new(path: &Path) -> Result<Self, FileError> {
        let file = private::open_options().write(true).create_new(true).open(path).map_err(at(path))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    ///
    /// [`FileError`]; the file may then hold any part of `bytes`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.file.write_all(bytes).map_err(at(&self.path))
    }

    /// Makes the content durable. The name is durable only after [`sync_dir`] of the folder.
    ///
    /// # Errors
    ///
    /// [`FileError`]; the content on disk is then unknown. A second sync could succeed without
    /// writing the content, so do not retry.
    pub fn finish(self) -> Result<(), FileError> {
        self.file.sync_all().map_err(at(&self.path))
    }
}
