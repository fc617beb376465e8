//! Snapshots as openraft hands them around: a directory of files, removed when nobody needs it any more.

use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A snapshot on disk: a checkpoint that this node made, or a complete and verified copy that it received.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotFiles {
    dir: Arc<OwnedDir>,
}

#[derive(Debug)]
struct OwnedDir {
    path: PathBuf,
}

impl SnapshotFiles {
    /// Takes over `path`: the directory is removed with the last handle, if it is still there by then (an installed
    /// snapshot has been moved away).
    pub(crate) fn adopt(path: PathBuf) -> Self {
        Self { dir: Arc::new(OwnedDir { path }) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.dir.path
    }
}

impl Drop for OwnedDir {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        // Files that nobody else holds are freed here, which takes its time: not on a thread that serves requests.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || remove(&path))),
            Err(_) => remove(&path),
        }
    }
}

fn remove(path: &Path) {
    match std::fs::remove_dir_all(path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(path = %path.display(), %error, "could not remove a snapshot directory"),
    }
}
