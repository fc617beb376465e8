//! Snapshots as openraft passes them around: a directory of files, removed with the last handle
//! unless it was installed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use headwater_proto::pb::peer::SnapshotFile;
use headwater_storage::{PreparedState, StateStore, StorageError};
use headwater_types::Version;

/// A snapshot on disk: a checkpoint that this node made, or a complete and verified copy that it
/// received.
#[derive(Clone, Debug)]
pub struct SnapshotFiles {
    dir: Arc<OwnedDir>,
}

#[derive(Debug)]
struct OwnedDir {
    path: PathBuf,
    /// The opened state beside the current one, if the snapshot is ready to install. It then owns
    /// the directory.
    ready: Mutex<Option<PreparedState>>,
    is_state: bool,
    /// The lowest version that understands the snapshot.
    needs: Version,
    /// The files of the snapshot with their checksums, computed on the first use by reading all of
    /// them.
    files: OnceLock<Vec<SnapshotFile>>,
}

impl SnapshotFiles {
    /// Takes over the directory `path`, a snapshot that needs the version `needs`. It is removed
    /// with the last handle, if it is still there by then (an installed snapshot has been moved
    /// away).
    pub fn adopt(path: PathBuf, needs: Version) -> Self {
        let ready = Mutex::new(None);
        Self { dir: Arc::new(OwnedDir { path, ready, is_state: false, needs, files: OnceLock::new() }) }
    }

    /// Takes over an opened state, so that its installation is one rename. The state is removed
    /// with the last handle, unless it was installed.
    pub fn ready(state: PreparedState) -> Self {
        let (path, needs) = (state.path(), state.head().version.version);
        let ready = Mutex::new(Some(state));
        Self { dir: Arc::new(OwnedDir { path, ready, is_state: true, needs, files: OnceLock::new() }) }
    }

    /// The lowest version that understands the snapshot.
    pub fn needs(&self) -> Version {
        self.dir.needs
    }

    /// The folder of the files.
    pub fn path(&self) -> &Path {
        &self.dir.path
    }

    /// The files of the snapshot. The first call gets the list from `list`, and keeps it for later
    /// calls.
    pub(crate) fn files(
        &self,
        list: impl FnOnce(&Path) -> io::Result<Vec<SnapshotFile>>,
    ) -> io::Result<&[SnapshotFile]> {
        if let Some(files) = self.dir.files.get() {
            return Ok(files);
        }
        let files = list(self.path())?;
        Ok(self.dir.files.get_or_init(|| files))
    }

    /// Makes the snapshot the current state. Blocks: for a rename if the snapshot was made by
    /// [`ready`](Self::ready), else also until it is verified and opened.
    ///
    /// # Errors
    ///
    /// As [`StateStore::prepare`] and [`StateStore::install_prepared`].
    pub(crate) fn install(&self, store: &StateStore) -> Result<(), StorageError> {
        let ready = self.dir.ready.lock().take();
        match ready {
            Some(state) => store.install_prepared(state),
            None => store.install(self.path()),
        }
    }
}

impl Drop for OwnedDir {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        let ready = self.ready.get_mut().take();
        if self.is_state && ready.is_none() {
            return;
        }
        let away = move || match ready {
            Some(state) => drop(state),
            None => remove(&path),
        };
        // Freeing the files may take long: not on a thread that serves requests.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(away)),
            Err(_) => away(),
        }
    }
}

fn remove(path: &Path) {
    if let Err(error) = headwater_files::remove_tree(path) {
        tracing::warn!(path = %path.display(), error = %error.source, "could not remove a snapshot directory");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use headwater_storage::StateOptions;

    fn files(dir: &Path) -> BTreeSet<String> {
        let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.to_string_lossy().into_owned()).collect()
    }

    // A state opened during its installation let openraft panic when leaders changed meanwhile.
    #[test]
    fn what_lies_ready_is_installed_by_a_rename_or_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (state, incoming) = (dir.path().join("state"), dir.path().join("incoming"));
        let store = StateStore::open(&state, &StateOptions::default()).unwrap();
        let before = files(&state);

        store.current().checkpoint(&incoming).unwrap();
        let refused = SnapshotFiles::ready(store.prepare(&incoming).unwrap());
        assert!(refused.path().starts_with(&state) && refused.path().exists() && !incoming.exists());
        drop(refused);
        assert_eq!(files(&state), before, "nobody installed it");

        store.current().checkpoint(&incoming).unwrap();
        let installed = SnapshotFiles::ready(store.prepare(&incoming).unwrap());
        // The installation does not read or write the files.
        let path = installed.path().to_owned();
        let there = files(&path);
        installed.install(&store).unwrap();
        assert_eq!(files(&path), there);
        drop(installed);
        let current = std::fs::read_to_string(state.join("CURRENT")).unwrap();
        assert_eq!(path.file_name().unwrap().to_str().unwrap(), current.trim_end(), "it is the state");
        assert!(path.exists(), "and it stays");
    }
}
