//! Restore: makes the data directory of a member of a new cluster from a backup, with the keys of
//! the old cluster.
//!
//! Owns the order of the steps. Everything is made in a folder beside the data directory, stamped
//! last, and then renamed to the data directory. Invariants: an existing data directory is never
//! touched, and a new one is complete once it has its name; no other user can plant a file in it,
//! and nothing is removed through a link.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use headwater_files::{self as files, FileError, RenameError, StagingDir, StagingError};

use headwater_raft::MemberInfo;
use headwater_storage::StorageError;
use headwater_storage::backup::{self, BackupError, Verified};
use headwater_storage::data_dir::{DataDir, Layout, Owner};
use headwater_storage::state::{RestoreChanges, StateOptions, restore_state, restore_target};
use headwater_types::limits::{RESTORED_INDEX_MAX, RESTORED_REVISION_MAX};
use headwater_types::{ClusterId, LogIndex, NodeId, Revision};

/// Source and target of a restore.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// The backup.
    pub file: PathBuf,
    /// The data directory to make; it must not exist, or be empty.
    pub data_dir: PathBuf,
    /// Id of the member that gets the data directory.
    pub node_id: NodeId,
    /// Id of the new cluster, which must not be that of the cluster that was backed up.
    pub cluster_id: ClusterId,
    /// The voters of the new cluster; every one of them must be restored from the same backup.
    pub members: BTreeMap<NodeId, MemberInfo>,
    /// Log indexes to leave out after the backup's last one, count: more than the old cluster can
    /// have assigned since the backup. Then an index that a client has from the old cluster is
    /// below every index of the new lineage. At least 1.
    pub bump_index: u64,
    /// Revisions to leave out after the backup's last one, count; not negative. Above zero only
    /// with `mark_compacted`: skipped revisions cannot be read.
    pub bump_revision: i64,
    /// Whether to make the history before the restore unreadable, so that a watch from an old
    /// revision starts over.
    pub mark_compacted: bool,
    /// Whether to turn etcd's authentication off in the new cluster, for operators that cannot
    /// authenticate any more. Otherwise it is as in the backup. Users and roles stay.
    pub disable_auth: bool,
}

/// The result of a restore.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The backup, as it was verified.
    pub backup: Verified,
    /// The log index of the new cluster's state. The first log entry has the next index.
    pub index: LogIndex,
    /// The revision that the new cluster begins with.
    pub revision: Revision,
    /// The compaction point of the new cluster, if there is one.
    pub compact_revision: Option<Revision>,
}

/// The reason for which a restore failed. Each text advises the operator.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The backup cannot be used.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The new data could not be written, or the content of the backup could not be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A file operation failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder of the failed operation.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The data directory is there and complete, but a power failure may take it away.
    #[error("{} was restored, but may not survive a power failure ({source}): move it away, and restore again", data_dir.display())]
    NotSynced {
        /// The data directory.
        data_dir: PathBuf,
        /// The failed operation.
        source: FileError,
    },
    /// The data directory exists and is not empty.
    #[error("{} exists already, and nothing is ever restored over it: move it away, or name another --data-dir", .0.display())]
    Exists(PathBuf),
    /// Another user could plant files in the new data directory, or has done so.
    #[error(transparent)]
    Unsafe(StagingError),
    /// Another process is restoring into the same place.
    #[error("{} is being restored by another process", .0.display())]
    Busy(PathBuf),
    /// The new cluster would have the id of the old one.
    #[error(
        "the backup is of cluster {0:016x}, and the new cluster would have that name, too: members that were left over would \
         mix with it. Give it another cluster.token"
    )]
    SameCluster(u64),
    /// `bump_revision` without `mark_compacted`: skipped revisions cannot be read.
    #[error("--bump-revision needs --mark-compacted: the revisions that are left out cannot be read")]
    BumpWithoutMark,
    /// `bump_index` is 0: log indexes of the old cluster would be assigned again.
    #[error(
        "--bump-index must be at least 1, and more than the old cluster can have written entries since the backup: clients would \
         take its log indexes for those of the new cluster"
    )]
    NoIndexBump,
    /// `bump_index`, and the log index of the backup: their sum exceeds the highest index of a
    /// restored store. The new cluster would soon run out of log indexes.
    #[error(
        "--bump-index {0} is too much: the backup is at log index {index}, and a store is restored at {RESTORED_INDEX_MAX} at most; \
         give a smaller one that is still more than the old cluster can have written entries since the backup",
        index = .1.get()
    )]
    IndexBumpTooFar(u64, LogIndex),
    /// `bump_revision`, and the revision of the backup: their sum exceeds the highest revision of a
    /// restored store. The new cluster would soon run out of revisions.
    #[error(
        "--bump-revision {0} is too much: the backup is at revision {revision}, and a store is restored at {RESTORED_REVISION_MAX} at most",
        revision = .1.get()
    )]
    BumpTooFar(i64, Revision),
}

impl From<FileError> for RestoreError {
    fn from(FileError { path, source }: FileError) -> Self {
        Self::Io { path, source }
    }
}

/// Makes the data directory from the backup. Blocks; everything is synced to disk when it returns
/// `Ok`.
///
/// # Errors
///
/// [`RestoreError`]. The data directory is then as it was before, except after
/// [`RestoreError::NotSynced`].
pub fn restore(options: &RestoreOptions) -> Result<Restored, RestoreError> {
    if options.bump_revision > 0 && !options.mark_compacted {
        return Err(RestoreError::BumpWithoutMark);
    }
    if options.bump_index == 0 {
        return Err(RestoreError::NoIndexBump);
    }
    refuse_existing(&options.data_dir)?;
    let staging = begin(&options.data_dir)?;
    let restored = fill(staging.path(), options)?;
    finish(staging, &options.data_dir)?;
    Ok(restored)
}

fn fill(dir: &Path, options: &RestoreOptions) -> Result<Restored, RestoreError> {
    let layout = Layout::new(dir);
    let state_dir = layout.state_dir();
    let target = restore_target(&state_dir);
    files::create_dir(&target)?;
    let backup = backup::extract(&options.file, &target)?;
    let info = &backup.info;
    if info.cluster_id == options.cluster_id {
        return Err(RestoreError::SameCluster(info.cluster_id.get()));
    }
    if info.revision.get().checked_add(options.bump_revision).is_none_or(|bumped| bumped > RESTORED_REVISION_MAX) {
        return Err(RestoreError::BumpTooFar(options.bump_revision, info.revision));
    }
    let index = info.index.get().checked_add(options.bump_index).filter(|bumped| *bumped <= RESTORED_INDEX_MAX);
    let index = LogIndex(index.ok_or(RestoreError::IndexBumpTooFar(options.bump_index, info.index))?);
    let changes = RestoreChanges {
        membership: headwater_raft::first_membership(&options.members, info.term, index),
        index,
        bump_revision: options.bump_revision,
        mark_compacted: options.mark_compacted,
        disable_auth: options.disable_auth,
    };
    let head = restore_state(&state_dir, &StateOptions::default(), &changes)?;
    let store_id = rand::random();
    headwater_raft::make_log(&layout.log_dir(), store_id, options.node_id, info.term, index)?;
    let RestoreOptions { bump_index, bump_revision, mark_compacted, disable_auth, .. } = *options;
    let origin = backup.origin(bump_index, bump_revision, mark_compacted, disable_auth);
    layout.write_origin(origin)?;
    let owner = Owner { cluster_id: options.cluster_id, node_id: options.node_id };
    DataDir::stamp_restored(dir, owner, store_id, head.version.version)?;
    let compact_revision = head.compaction.map(|point| point.revision);
    Ok(Restored { index, revision: head.revision, compact_revision, backup })
}

/// Fails unless `data_dir` is missing or an empty directory, as orchestrators make them. A link is
/// neither.
fn refuse_existing(data_dir: &Path) -> Result<(), RestoreError> {
    let is_free = match fs::symlink_metadata(data_dir) {
        Ok(found) if found.is_dir() => fs::read_dir(data_dir).is_ok_and(|mut entries| entries.next().is_none()),
        Ok(_) => false,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if is_free { Ok(()) } else { Err(RestoreError::Exists(data_dir.into())) }
}

/// Makes and locks the folder in which everything is made, beside `data_dir`.
fn begin(data_dir: &Path) -> Result<StagingDir, RestoreError> {
    let mut name = data_dir.file_name().map_or_else(|| OsString::from("data"), OsString::from);
    name.push(".restoring");
    StagingDir::begin(&files::parent(data_dir).join(name)).map_err(|error| match error {
        StagingError::Busy(_) => RestoreError::Busy(data_dir.into()),
        StagingError::File(error) => error.into(),
        error @ (StagingError::Planted { .. } | StagingError::Exposed { .. }) => RestoreError::Unsafe(error),
    })
}

fn finish(staging: StagingDir, data_dir: &Path) -> Result<(), RestoreError> {
    // Replaces nothing but an empty directory.
    let FileError { path, source } = match staging.rename_to(data_dir) {
        Ok(()) => return Ok(()),
        Err(RenameError::NotSynced(source)) => {
            return Err(RestoreError::NotSynced { data_dir: data_dir.into(), source });
        }
        Err(RenameError::NotRenamed(error)) => error,
    };
    Err(match source.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            RestoreError::Exists(data_dir.into())
        }
        io::ErrorKind::ResourceBusy | io::ErrorKind::CrossesDevices => {
            let text = format!("{source}; if a file system is mounted there, name a folder in it as --data-dir");
            RestoreError::Io { path: data_dir.into(), source: io::Error::new(source.kind(), text) }
        }
        _ => FileError { path, source }.into(),
    })
}
