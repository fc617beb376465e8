//! The data directory: whose it is, and that only one process uses it.
//!
//! On first start the directory is stamped with a format version, the cluster, the node, and a random store id; every
//! later start compares. The stamp also notes when the directory has come into use: from then on a missing log or state is
//! a loss, not a beginning. Invariant: the stamp is replaced atomically, and nothing here ever repairs one.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::StorageError;
use headwater_types::{ClusterId, NodeId};

/// Version of the layout of the data directory as a whole.
const FORMAT: u32 = 1;
const STAMP_FILE: &str = "STAMP";
const STAMP_TEMP: &str = "STAMP.tmp";
const LOCK_FILE: &str = "LOCK";
/// What a directory that has no owner yet is called while its node joins a cluster.
const JOINING_FILE: &str = "JOINING";
const JOINING_TEMP: &str = "JOINING.tmp";
const HEADER: &str = "# Whose data this is. Written by headwater and compared at every start; do not edit.\n";

/// The node that a data directory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// Its id there.
    pub node_id: NodeId,
}

/// A data directory that this process owns while the value lives.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    owner: Owner,
    store_id: u64,
    in_use: bool,
    /// Holds the lock; the operating system releases it when the process ends, however it ends.
    _lock: File,
}

/// The stamp as it is written. Numbers are text because TOML's integers are signed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stamp {
    format: u32,
    cluster_id: String,
    node_id: String,
    store_id: String,
    in_use: bool,
}

/// What every version of the stamp has.
#[derive(Deserialize)]
struct AnyStamp {
    format: u32,
}

impl DataDir {
    /// Whose directory `path` is, if it was ever stamped.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] for a stamp that cannot be read, [`StorageError::WrongDirectory`] for one of another format.
    pub fn owner(path: &Path) -> Result<Option<Owner>, StorageError> {
        read(path)?.map(|stamp| owner_of(path, &stamp)).transpose()
    }

    /// A random number that names the directory `path` before it has an owner: the same one at every call, across crashes,
    /// until the directory is stamped or wiped. Creates the directory.
    ///
    /// # Errors
    ///
    /// [`StorageError::WrongDirectory`] if it holds files that are not ours, [`StorageError::Corrupt`] if the number cannot be
    /// read.
    pub fn incarnation(path: &Path) -> Result<u64, StorageError> {
        create_dir(path)?;
        let file = path.join(JOINING_FILE);
        match fs::read_to_string(&file) {
            Ok(text) => u64::from_str_radix(text.trim(), 16).map_err(|error| StorageError::Corrupt {
                place: file.display().to_string(),
                detail: format!("holds {text:?} ({error}); remove the directory, nothing is in it yet"),
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                refuse_strangers(path)?;
                let incarnation = rand::random_range(1..u64::MAX);
                replace(path, JOINING_TEMP, JOINING_FILE, &format!("{incarnation:016x}\n"))?;
                Ok(incarnation)
            }
            Err(source) => Err(fail(&file, source)),
        }
    }

    /// Takes possession of `path` for `owner`: creates and stamps it if it is new or empty, compares the stamp otherwise.
    ///
    /// # Errors
    ///
    /// [`StorageError::WrongDirectory`] if another process uses it, if it belongs to another node, cluster or format, or
    /// if it holds files that are not ours; the message says what to do. [`StorageError::Corrupt`] for a stamp that cannot
    /// be read.
    pub fn open(path: &Path, owner: Owner) -> Result<Self, StorageError> {
        create_dir(path)?;
        let lock = lock(path)?;
        let (store_id, in_use) = match read(path)? {
            Some(stamp) => compare(path, owner, &stamp)?,
            None => {
                refuse_strangers(path)?;
                let store_id = rand::random();
                write(path, owner, store_id, false)?;
                (store_id, false)
            }
        };
        forget_incarnation(path)?;
        Ok(Self { path: path.into(), owner, store_id, in_use, _lock: lock })
    }

    /// Stamps a directory whose databases were made from a backup; the last step of a restore.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if the stamp cannot be written.
    pub fn stamp_restored(path: &Path, owner: Owner, store_id: u64) -> Result<(), StorageError> {
        write(path, owner, store_id, true)
    }

    /// Notes durably that the databases below exist. From now on a missing one is an error. Called once all of them are
    /// created, and before the node takes part in anything.
    ///
    /// # Errors
    ///
    /// [`StorageError::Io`] if the stamp cannot be written.
    pub fn mark_in_use(&mut self) -> Result<(), StorageError> {
        if !self.in_use {
            write(&self.path, self.owner, self.store_id, true)?;
            self.in_use = true;
        }
        Ok(())
    }

    /// Whether [`Self::mark_in_use`] was ever called: then the databases must be there.
    pub fn is_in_use(&self) -> bool {
        self.in_use
    }

    /// A random id made when the directory was stamped. The log carries it too, so that a log from elsewhere is noticed.
    pub fn store_id(&self) -> u64 {
        self.store_id
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the Raft log lives.
    pub fn log_dir(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Where the state machine lives.
    pub fn state_dir(&self) -> PathBuf {
        self.path.join("state")
    }
}

/// Creates `path` such that a power failure does not take it away again.
fn create_dir(path: &Path) -> Result<(), StorageError> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(|source| fail(path, source))?;
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => sync_dir(parent),
        None => sync_dir(Path::new(".")),
    }
}

fn lock(path: &Path) -> Result<File, StorageError> {
    let file_path = path.join(LOCK_FILE);
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&file_path)
        .map_err(|source| fail(&file_path, source))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(errno) if errno == rustix::io::Errno::WOULDBLOCK => {
            let mut holder = String::new();
            let known = file.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
            let holder = if known { format!(" (pid {})", holder.trim()) } else { String::new() };
            let detail = format!(
                "data directory is in use by another process{holder}: stop it, or give this node a data directory of its \
                 own"
            );
            return Err(StorageError::WrongDirectory { path: path.into(), detail });
        }
        Err(errno) => return Err(fail(&file_path, errno.into())),
    }
    // Who holds it, for the message above; the lock does not depend on it.
    file.set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(|source| fail(&file_path, source))?;
    Ok(file)
}

fn read(path: &Path) -> Result<Option<Stamp>, StorageError> {
    let file = path.join(STAMP_FILE);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(fail(&file, source)),
    };
    let unreadable = |error: toml::de::Error| StorageError::Corrupt {
        place: file.display().to_string(),
        detail: format!("{}; put back the original, which is written at the first start only", error.message()),
    };
    let AnyStamp { format } = toml::from_str(&text).map_err(unreadable)?;
    if format != FORMAT {
        let detail = format!(
            "data directory has format {format} and this version reads format {FORMAT}: run the version that wrote it, or a \
             newer one"
        );
        return Err(StorageError::WrongDirectory { path: path.into(), detail });
    }
    toml::from_str(&text).map(Some).map_err(unreadable)
}

/// The directory has an owner now, and needs no other name.
fn forget_incarnation(path: &Path) -> Result<(), StorageError> {
    let file = path.join(JOINING_FILE);
    match fs::remove_file(&file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(fail(&file, error)),
        _ => Ok(()),
    }
}

fn number(path: &Path, field: &str, text: &str, radix: u32) -> Result<u64, StorageError> {
    u64::from_str_radix(text, radix).map_err(|error| StorageError::Corrupt {
        place: path.join(STAMP_FILE).display().to_string(),
        detail: format!("{field} is {text:?}: {error}"),
    })
}

fn owner_of(path: &Path, stamp: &Stamp) -> Result<Owner, StorageError> {
    let cluster_id = ClusterId(number(path, "cluster_id", &stamp.cluster_id, 16)?);
    let node_id = NodeId(number(path, "node_id", &stamp.node_id, 10)?);
    Ok(Owner { cluster_id, node_id })
}

/// The store id and whether the directory is in use, if the stamp is that of `owner`.
fn compare(path: &Path, owner: Owner, stamp: &Stamp) -> Result<(u64, bool), StorageError> {
    let store_id = number(path, "store_id", &stamp.store_id, 16)?;
    let found = owner_of(path, stamp)?;
    if found == owner {
        return Ok((store_id, stamp.in_use));
    }
    let name = |owner: Owner| format!("node {} of cluster {:016x}", owner.node_id, owner.cluster_id.get());
    let detail = format!(
        "data directory belongs to {}, and this node is configured as {}: correct the configuration (a node that \
         joined is started with --join), or choose another data directory",
        name(found),
        name(owner)
    );
    Err(StorageError::WrongDirectory { path: path.into(), detail })
}

/// A directory without a stamp must be empty but for what an interrupted first start or a file system leaves there.
fn refuse_strangers(path: &Path) -> Result<(), StorageError> {
    for entry in fs::read_dir(path).map_err(|source| fail(path, source))? {
        let name = entry.map_err(|source| fail(path, source))?.file_name();
        if ![LOCK_FILE, STAMP_TEMP, JOINING_FILE, JOINING_TEMP, "lost+found"].iter().any(|ours| name == *ours) {
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

/// Replaces the stamp atomically and durably.
fn write(path: &Path, owner: Owner, store_id: u64, in_use: bool) -> Result<(), StorageError> {
    let stamp = Stamp {
        format: FORMAT,
        cluster_id: format!("{:016x}", owner.cluster_id.get()),
        node_id: owner.node_id.to_string(),
        store_id: format!("{store_id:016x}"),
        in_use,
    };
    let body = toml::to_string(&stamp).expect("invariant: a flat struct of text and numbers is TOML");
    replace(path, STAMP_TEMP, STAMP_FILE, &format!("{HEADER}{body}"))
}

/// Writes a file of the directory such that after a crash it is as before or as it should be.
fn replace(path: &Path, temp: &str, file: &str, text: &str) -> Result<(), StorageError> {
    let (temp, file) = (path.join(temp), path.join(file));
    let written = File::create(&temp).and_then(|mut out| {
        out.write_all(text.as_bytes())?;
        out.sync_all()
    });
    written.map_err(|source| fail(&temp, source))?;
    fs::rename(&temp, &file).map_err(|source| fail(&file, source))?;
    sync_dir(path)
}

fn sync_dir(path: &Path) -> Result<(), StorageError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(|source| fail(path, source))
}

fn fail(path: &Path, source: io::Error) -> StorageError {
    StorageError::Io { path: path.into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { cluster_id: ClusterId(0xabc), node_id: NodeId(3) };

    fn refusal(path: &Path, owner: Owner) -> String {
        match DataDir::open(path, owner).unwrap_err() {
            StorageError::WrongDirectory { detail, .. } => detail,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_new_directory_is_stamped_once_and_recognised_later() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("some/where");
        let mut first = DataDir::open(&path, OWNER).unwrap();
        assert!(!first.is_in_use());
        first.mark_in_use().unwrap();
        let store_id = first.store_id();
        drop(first);
        let second = DataDir::open(&path, OWNER).unwrap();
        assert!(second.is_in_use());
        assert_eq!(second.store_id(), store_id);
        let other = DataDir::open(&temp.path().join("other"), OWNER).unwrap();
        assert_ne!(other.store_id(), store_id, "a directory made anew is another store");
    }

    #[test]
    fn golden_text() {
        let temp = tempfile::tempdir().unwrap();
        write(temp.path(), OWNER, 0x1f, true).unwrap();
        let text = fs::read_to_string(temp.path().join(STAMP_FILE)).unwrap();
        let wanted = "format = 1\ncluster_id = \"0000000000000abc\"\nnode_id = \"3\"\n\
                      store_id = \"000000000000001f\"\nin_use = true\n";
        assert_eq!(text.strip_prefix(HEADER), Some(wanted));
        assert_eq!(DataDir::open(temp.path(), OWNER).unwrap().store_id(), 0x1f);
    }

    #[test]
    fn the_message_says_what_differs_and_what_to_do() {
        let temp = tempfile::tempdir().unwrap();
        drop(DataDir::open(temp.path(), OWNER).unwrap());
        let cases = [
            (Owner { node_id: NodeId(4), ..OWNER }, "configured as node 4 of cluster 0000000000000abc"),
            (Owner { cluster_id: ClusterId(1), ..OWNER }, "configured as node 3 of cluster 0000000000000001"),
        ];
        for (owner, wanted) in cases {
            let detail = refusal(temp.path(), owner);
            assert!(detail.contains("belongs to node 3 of cluster 0000000000000abc"), "{detail}");
            assert!(detail.contains(wanted) && detail.contains("choose another data directory"), "{detail}");
        }
        DataDir::open(temp.path(), OWNER).unwrap();
    }

    #[test]
    fn only_one_process_at_a_time() {
        let temp = tempfile::tempdir().unwrap();
        let held = DataDir::open(temp.path(), OWNER).unwrap();
        let detail = refusal(temp.path(), OWNER);
        let wanted = format!("data directory is in use by another process (pid {})", std::process::id());
        assert!(detail.contains(&wanted), "{detail}");
        drop(held);
        DataDir::open(temp.path(), OWNER).unwrap();
    }

    #[test]
    fn files_of_others_are_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("thesis.doc"), "x").unwrap();
        let detail = refusal(temp.path(), OWNER);
        assert!(detail.contains("thesis.doc") && detail.contains("choose an empty one"), "{detail}");
        assert!(!temp.path().join(STAMP_FILE).exists());
    }

    #[test]
    fn an_interrupted_first_start_begins_again() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("lost+found")).unwrap();
        fs::write(temp.path().join(STAMP_TEMP), "form").unwrap();
        assert!(!DataDir::open(temp.path(), OWNER).unwrap().is_in_use());
    }

    #[test]
    fn a_directory_that_joins_keeps_its_number_until_it_has_an_owner() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("new");
        let incarnation = DataDir::incarnation(&path).unwrap();
        assert_eq!(DataDir::incarnation(&path).unwrap(), incarnation, "asked again after a crash");
        assert_eq!(DataDir::owner(&path).unwrap(), None);
        drop(DataDir::open(&path, OWNER).unwrap());
        assert_eq!(DataDir::owner(&path).unwrap(), Some(OWNER));
        assert!(!path.join(JOINING_FILE).exists());
        fs::remove_dir_all(&path).unwrap();
        assert_ne!(DataDir::incarnation(&path).unwrap(), incarnation, "a wiped directory is another one");
        fs::write(path.join(JOINING_FILE), "x").unwrap();
        assert!(matches!(DataDir::incarnation(&path), Err(StorageError::Corrupt { .. })));
        fs::remove_file(path.join(JOINING_FILE)).unwrap();
        fs::write(path.join("thesis.doc"), "x").unwrap();
        assert!(matches!(DataDir::incarnation(&path), Err(StorageError::WrongDirectory { .. })));
    }

    #[test]
    fn a_damaged_or_newer_stamp_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        drop(DataDir::open(temp.path(), OWNER).unwrap());
        let file = temp.path().join(STAMP_FILE);
        let good = fs::read_to_string(&file).unwrap();

        fs::write(&file, good.replace("format = 1", "format = 2").replace("in_use", "used_since")).unwrap();
        let detail = refusal(temp.path(), OWNER);
        assert!(detail.contains("has format 2 and this version reads format 1"), "{detail}");

        let damaged = [
            "".to_owned(),
            good[..good.len() / 2].to_owned(),
            good.replace("\"3\"", "\"x\""),
            good.clone() + "more = 1\n",
        ];
        for text in damaged {
            fs::write(&file, &text).unwrap();
            let error = DataDir::open(temp.path(), OWNER).unwrap_err();
            assert!(matches!(error, StorageError::Corrupt { .. }), "{text}: {error}");
        }
    }
}
