//! The directory of the state: generations, of which one is current, and the atomic step from one
//! to the next.
//!
//! Owns `CURRENT` and the generations' directories. Does not know their content. Invariant:
//! `CURRENT` always names one complete generation; a crash at any step of an installation leaves
//! either the old one or the new one.
//!
//! ```text
//! state/CURRENT        one line: the name of the current generation
//! state/gen-7/         a RocksDB
//! state/draft/         the very first generation, while it is made
//! state/gen-8/         a snapshot that is being installed, or a generation that is still being read; removed at start
//! ```

use std::any::Any;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLock};

use headwater_files as files;

use super::db::{DiskHealth, StateDb};
use super::head::StateHead;
use super::options::{StateOptions, Tuning};
use super::ranges::RangeCacheMetrics;
use super::txn::WriteTxn;
use super::view::ReadView;
use crate::StorageError;
use headwater_types::LogIndex;

pub(super) const CURRENT: &str = "CURRENT";
const PREFIX: &str = "gen-";
const DRAFT: &str = "draft";

type Listener = Box<dyn Fn(&StorageError) + Send + Sync>;

/// The state of one node.
pub struct StateStore {
    pub(super) dir: PathBuf,
    tuning: Tuning,
    health: Arc<DiskHealth>,
    current: RwLock<Arc<StateDb>>,
    /// Number of the newest generation; locked while the next one is chosen.
    newest: Mutex<u64>,
    /// Listener to failed reads. Empty until [`StateStore::on_failed_read`] is called.
    on_failed_read: OnceLock<Listener>,
}

/// A snapshot that was verified and lies beside the current generation, ready to replace it.
/// Its files are removed if it is dropped without [`StateStore::install_prepared`].
pub struct PreparedState {
    db: Option<Arc<StateDb>>,
    name: String,
}

impl PreparedState {
    /// The folder of its files.
    pub fn path(&self) -> PathBuf {
        self.db.as_ref().expect("invariant: taken only when it is consumed").path().to_owned()
    }

    /// The head of the snapshot.
    pub fn head(&self) -> StateHead {
        self.db.as_ref().expect("invariant: taken only when it is consumed").head()
    }
}

impl fmt::Debug for PreparedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PreparedState").field(&self.name).finish()
    }
}

impl Drop for PreparedState {
    fn drop(&mut self) {
        if let Some(db) = self.db.take() {
            db.retire();
        }
    }
}

impl StateStore {
    /// Opens the state in `dir`, or makes an empty one if `dir` has none. Removes every generation
    /// but the current one, for example the remains of an interrupted installation.
    ///
    /// # Errors
    ///
    /// If the disk failed, the data is damaged or newer than this program, the current state is
    /// missing, or `CURRENT` is missing although there are generations.
    pub fn open(dir: &Path, options: &StateOptions) -> Result<Self, StorageError> {
        let tuning = Tuning::new(options.clone());
        let health = Arc::<DiskHealth>::default();
        files::create_dir(dir)?;
        let generations = generations(dir)?;
        let name = match read_current(dir)? {
            Some(name) => name,
            None => {
                let name = match generations.as_slice() {
                    [] => Self::make_first(dir, &tuning, &health)?,
                    // Interrupted on the very first start, between making the state and naming it.
                    [(1, name)] => name.clone(),
                    _ => {
                        return Err(StorageError::WrongDirectory {
                            path: dir.join(CURRENT),
                            detail: "the file that names the current state is missing, and there are several states: \
                                     put it back, or remove the data directory and let the node rejoin as an empty \
                                     member"
                                .to_owned(),
                        });
                    }
                };
                files::replace(&dir.join(CURRENT), format!("{name}\n").as_bytes())?;
                name
            }
        };
        let path = dir.join(&name);
        if !is_complete(&path) {
            return Err(StorageError::WrongDirectory {
                path,
                detail: "the current state is missing: restore the data directory, or remove it and let the node \
                         rejoin as an empty member"
                    .to_owned(),
            });
        }
        let db = StateDb::open(&path, false, &tuning, Arc::clone(&health))?;
        for (_, other) in generations.iter().filter(|(_, other)| *other != name) {
            files::remove_tree(&dir.join(other))?;
        }
        let newest = generations.iter().map(|(number, _)| *number).max().unwrap_or(1);
        let (dir, current, newest) = (dir.to_owned(), RwLock::new(Arc::new(db)), Mutex::new(newest));
        Ok(Self { dir, tuning, health, current, newest, on_failed_read: OnceLock::new() })
    }

    /// Makes an empty state under a draft name, so that a generation with its final name is always
    /// complete.
    fn make_first(dir: &Path, tuning: &Tuning, health: &Arc<DiskHealth>) -> Result<String, StorageError> {
        let draft = dir.join(DRAFT);
        files::remove_tree(&draft)?;
        drop(StateDb::open(&draft, true, tuning, Arc::clone(health))?);
        files::sync_tree(&draft)?;
        let name = first_generation();
        files::rename(&draft, &dir.join(&name))?;
        Ok(name)
    }

    /// The current generation. Its holders may read it even after an installation.
    pub fn current(&self) -> Arc<StateDb> {
        Arc::clone(&self.current.read())
    }

    /// Calls `work` with a view of the newest state, and passes an error to
    /// [`failed`](Self::failed). A read outside of apply that does not use this must do the same.
    ///
    /// # Errors
    ///
    /// Those of `work`; also if the disk failed, now or earlier, or the head cannot be decoded.
    pub fn read<T>(&self, work: impl FnOnce(&ReadView<'_>) -> Result<T, StorageError>) -> Result<T, StorageError> {
        let db = self.current();
        let read = db.view().and_then(|view| work(&view));
        read.map_err(|error| self.failed(error))
    }

    /// Counts of the cache of ranges.
    pub fn range_cache_metrics(&self) -> &RangeCacheMetrics {
        &self.tuning.range_metrics
    }

    /// Returns `error`, which a read met. Reports it to the listener first if it is
    /// [`StorageError::RocksDb`] or [`StorageError::Corrupt`], but not if file descriptors ran out.
    /// Errors of apply stop the node anyway; errors of reads would go unnoticed.
    pub fn failed(&self, error: StorageError) -> StorageError {
        let is_of_the_disk =
            matches!(error, StorageError::RocksDb(_) | StorageError::Corrupt { .. }) && !error.is_out_of_descriptors();
        if let Some(listener) = self.on_failed_read.get().filter(|_| is_of_the_disk) {
            listener(&error);
        }
        error
    }

    /// Sets the listener to which [`failed`](Self::failed) reports, on any thread: the node cannot
    /// serve and must stop. Only the first call has an effect.
    pub fn on_failed_read(&self, listener: impl Fn(&StorageError) + Send + Sync + 'static) {
        let _there_is_one = self.on_failed_read.set(Box::new(listener)).is_err();
    }

    /// A handle that shows whether files of this store may be open. Once it cannot be upgraded, the
    /// store and every generation are closed.
    pub fn files(&self) -> Weak<dyn Any + Send + Sync> {
        // Every generation holds it and drops it after its database.
        let health: Arc<dyn Any + Send + Sync> = self.health.clone();
        Arc::downgrade(&health)
    }

    /// Highest applied index that is surely on disk; `None` if no applied entry is.
    pub fn durable_applied(&self) -> Option<LogIndex> {
        self.current().durable_applied()
    }

    /// Begins a write transaction on `db`, which [`current`](Self::current) has returned.
    ///
    /// # Errors
    ///
    /// As [`StateDb::begin`]; also if `db` was replaced meanwhile, because its writes would be
    /// lost.
    pub fn begin<'db>(&self, db: &'db Arc<StateDb>) -> Result<WriteTxn<'db>, StorageError> {
        if !Arc::ptr_eq(&self.current.read(), db) {
            return Err(StorageError::WrongDirectory {
                path: db.path().to_owned(),
                detail: "this state was replaced by a snapshot; begin on the current one".to_owned(),
            });
        }
        db.begin()
    }

    /// Moves the checkpoint in `dir`, which is on the same file system, beside the current state.
    /// Verifies it and opens it. Blocks.
    ///
    /// # Errors
    ///
    /// If it is no complete, readable state, or the disk failed, now or earlier. The current state
    /// is unchanged then; `dir` is unchanged or removed.
    pub fn prepare(&self, dir: &Path) -> Result<PreparedState, StorageError> {
        self.health.check()?;
        if !is_complete(dir) {
            return Err(StorageError::WrongDirectory {
                path: dir.to_owned(),
                detail: "this is no complete copy of a state; fetch the snapshot again".to_owned(),
            });
        }
        files::sync_tree(dir)?;
        let name = {
            let mut newest = self.newest.lock();
            *newest += 1;
            format!("{PREFIX}{newest}")
        };
        let path = self.dir.join(&name);
        headwater_fail_points::fail_point!(InstallRename);
        files::rename(dir, &path)?;
        headwater_fail_points::fail_point!(InstallRenamed);
        match StateDb::open(&path, false, &self.tuning, Arc::clone(&self.health)) {
            Ok(db) => Ok(PreparedState { db: Some(Arc::new(db)), name }),
            Err(error) => {
                files::remove_tree(&path)?;
                Err(error)
            }
        }
    }

    /// Makes a prepared state the current one: one rename. The files of the old one are removed
    /// when its last user drops it.
    ///
    /// # Errors
    ///
    /// If its applied index is below that of the current state, which must never go back; or if the
    /// disk failed, now or earlier.
    ///
    /// # Panics
    ///
    /// If a write transaction is open: its writes would be lost.
    pub fn install_prepared(&self, mut prepared: PreparedState) -> Result<(), StorageError> {
        self.health.check()?;
        let mut current = self.current.write();
        let writing = current.writing.load(std::sync::atomic::Ordering::Acquire);
        assert!(!writing, "invariant: a snapshot is installed between write transactions");
        let (old, new) = (current.head().applied, prepared.head().applied);
        if new.map(|(_, index)| index) < old.map(|(_, index)| index) {
            return Err(StorageError::WrongDirectory {
                path: self.dir.join(&prepared.name),
                detail: format!("the snapshot ends at {new:?}, before what is applied, {old:?}"),
            });
        }
        headwater_fail_points::fail_point!(InstallSwitch);
        // From here on its files stay: CURRENT may name them even if writing it fails.
        let db = prepared.db.take().expect("invariant: taken only here and on drop");
        files::replace(&self.dir.join(CURRENT), format!("{}\n", prepared.name).as_bytes())?;
        headwater_fail_points::fail_point!(InstallSwitched);
        let old = std::mem::replace(&mut *current, db);
        drop(current);
        old.retire();
        Ok(())
    }

    /// [`prepare`](Self::prepare), then [`install_prepared`](Self::install_prepared).
    ///
    /// # Errors
    ///
    /// As the errors of those two.
    pub fn install(&self, dir: &Path) -> Result<(), StorageError> {
        let prepared = self.prepare(dir)?;
        self.install_prepared(prepared)
    }
}

/// The name of the generation in `CURRENT`; `None` if there is no such file.
pub(super) fn read_current(dir: &Path) -> Result<Option<String>, StorageError> {
    let path = dir.join(CURRENT);
    match fs::read_to_string(&path) {
        Ok(content) => match content.strip_suffix('\n').filter(|name| number(name).is_some()) {
            Some(name) => Ok(Some(name.to_owned())),
            None => Err(StorageError::Corrupt {
                location: path.display().to_string(),
                detail: "it should hold the name of a state directory".to_owned(),
            }),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(files::at(&path)(error).into()),
    }
}

/// The name of the first generation of a state.
pub(super) fn first_generation() -> String {
    format!("{PREFIX}1")
}

fn number(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// Number and name of each generation in `dir`, by ascending number.
fn generations(dir: &Path) -> Result<Vec<(u64, String)>, StorageError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(files::at(dir))? {
        let name = entry.map_err(files::at(dir))?.file_name();
        if let Some(name) = name.to_str()
            && let Some(number) = number(name)
        {
            found.push((number, name.to_owned()));
        }
    }
    found.sort();
    Ok(found)
}

/// Whether `dir` has RocksDB's own file `CURRENT`. The other files are not checked.
fn is_complete(dir: &Path) -> bool {
    dir.join("CURRENT").is_file()
}
