//! Notes of the data directory that hold one number or nothing.
//!
//! Invariant: a note is durable when the function that writes it returns.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use headwater_files::{self as files, FileWriter};

use super::Layout;
use crate::StorageError;

pub(super) const INCARNATION: &str = "JOINING";
pub(super) const INCARNATION_DRAFT: &str = "JOINING.tmp";
const ORIGIN: &str = "ORIGIN";

/// A note without content: a flag, which is set while the file exists.
#[derive(Clone, Debug)]
pub struct FlagNote {
    path: PathBuf,
}

impl FlagNote {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Whether the note exists.
    pub fn is_set(&self) -> bool {
        self.path.exists()
    }

    /// Makes the note. Setting it twice changes nothing.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`].
    pub fn set(&self) -> Result<(), StorageError> {
        Ok(files::touch(&self.path)?)
    }

    /// Removes the note, if there is one.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`].
    pub fn clear(&self) -> Result<(), StorageError> {
        Ok(files::remove(&self.path)?)
    }
}

impl Layout {
    /// The number that stands for the restore that made this data directory (its backup and
    /// options). `None` if it was not restored.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`], also for a note that holds no number.
    pub fn read_origin(&self) -> Result<Option<u64>, StorageError> {
        let path = self.path().join(ORIGIN);
        let wrong = |error: std::num::ParseIntError| std::io::Error::new(ErrorKind::InvalidData, error);
        let number = |text: String| u64::from_str_radix(text.trim(), 16).map_err(wrong).map_err(files::at(&path));
        Ok(read(&path)?.map(number).transpose()?)
    }

    /// Writes the number of a restore into a data directory that is being made. Does not sync the
    /// folder: writing the stamp later does.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`], also if the note exists already.
    pub fn write_origin(&self, origin: u64) -> Result<(), StorageError> {
        let mut file = FileWriter::create_new(&self.path().join(ORIGIN))?;
        file.write(format!("{origin:016x}\n").as_bytes())?;
        Ok(file.finish()?)
    }
}

pub(super) fn read_incarnation(dir: &Path) -> Result<Option<u64>, StorageError> {
    let path = dir.join(INCARNATION);
    let number = |text: String| {
        u64::from_str_radix(text.trim(), 16).map_err(|error| StorageError::Corrupt {
            location: path.display().to_string(),
            detail: format!("holds {text:?} ({error}); remove the directory, nothing is in it yet"),
        })
    };
    read(&path)?.map(number).transpose()
}

pub(super) fn choose_incarnation(dir: &Path) -> Result<u64, StorageError> {
    let incarnation = rand::random_range(1..u64::MAX);
    files::replace(&dir.join(INCARNATION), format!("{incarnation:016x}\n").as_bytes())?;
    Ok(incarnation)
}

/// Removes the incarnation, if there is one: a directory with an owner needs no other identity.
pub(super) fn remove_incarnation(dir: &Path) -> Result<(), StorageError> {
    Ok(files::remove(&dir.join(INCARNATION))?)
}

/// The text of a note. `None` if the note does not exist.
pub(super) fn read(path: &Path) -> Result<Option<String>, StorageError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(files::at(path)(error).into()),
    }
}
