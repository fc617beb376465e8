//! A backup of this node, taken while it serves.
//!
//! Owns the bound on concurrent backups, of which one client cannot take all, and the timeout of a
//! stalled reader. Invariant: a backup is the state right after one log entry; its files are
//! removed when it ends, complete or not.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use tokio::sync::mpsc;

use super::long_reads::{LongReadBounds, LongReads, Turn};
use super::parts::to_the_last;
use super::{Consistency, Identity, Limit, Maintenance, NodeError, RequestContext, unix_ms};
use headwater_raft::SnapshotFiles;
use headwater_storage::backup::BackupSource;
use headwater_storage::state::describe_checkpoint;
use headwater_storage::{StateStore, StorageError};
use headwater_types::BackupInfo;
use headwater_types::limits::{BACKUP_CHUNK_BYTES, BACKUPS_MAX, BACKUPS_OF_CLIENT_MAX};

/// Most chunks that are read ahead of a slow client, count.
const CHUNKS_QUEUED: usize = 8;
/// Longest wait for space in the full queue of chunks. A client that takes no chunk for this long
/// loses the backup: its files take space on the disk.
const READER_WAIT_MAX: Duration = Duration::from_secs(60);

/// A backup under way.
pub struct Backup {
    /// The description of the content.
    pub info: BackupInfo,
    /// Length of the whole stream, checksum included, bytes.
    pub total_bytes: u64,
    /// The bytes of the backup, in order; the last chunk is the checksum alone. An error, such as
    /// the timeout of a stalled client, ends the stream early and is its last item.
    pub chunks: BoxStream<'static, Result<Bytes, NodeError>>,
}

/// The directory of the files of backups, and the bounds on backups under way.
pub(super) struct Backups {
    dir: std::path::PathBuf,
    next: AtomicU64,
    turns: LongReads,
}

impl Backups {
    /// The backups of this node, with their files in `dir`. Empties `dir` first: backups of an
    /// earlier process cannot be continued.
    pub(super) fn new(dir: std::path::PathBuf) -> std::io::Result<Self> {
        headwater_files::recreate_dir(&dir)?;
        // No backup waits for a permit: a refused client asks again.
        let bounds = LongReadBounds {
            reads_max: BACKUPS_MAX,
            running_max: BACKUPS_MAX,
            running_of_client_max: BACKUPS_OF_CLIENT_MAX,
        };
        Ok(Self { dir, next: AtomicU64::new(1), turns: LongReads::new(bounds) })
    }
}

impl Maintenance<'_> {
    /// Takes a backup of this node's applied state, without a pause of the node. It needs no
    /// quorum.
    ///
    /// # Errors
    ///
    /// [`NodeError::TooManyRequests`] if the bound on concurrent backups is reached, in all or for
    /// this client; [`NodeError::NoLeader`] if the store is new and still empty;
    /// [`NodeError::Refused`] without the right to write the cluster; [`NodeError::Storage`] if the
    /// disk failed or is full.
    pub async fn backup(self, ctx: &RequestContext) -> Result<Backup, NodeError> {
        self.node.ready_to_read(ctx, Consistency::Serializable).await?;
        self.node.authorize_cluster(ctx, headwater_types::Access::WRITE)?;
        let backups = &self.node.inner.maintenance.backups;
        let turn =
            backups.turns.turn_now(ctx.client).inspect_err(self.node.inner.limit_counters.note(Limit::Backups))?;
        let dir = backups.dir.join(backups.next.fetch_add(1, Ordering::Relaxed).to_string());
        let (store, identity) = (self.node.inner.store.clone(), self.node.identity());
        let needs = self.node.versions().cluster().version;
        let made = tokio::task::spawn_blocking(move || {
            let files = SnapshotFiles::adopt(dir, needs);
            make(&store, &files, identity).map(|source| (files, source))
        });
        let (files, source) = made.await.map_err(|_| NodeError::Stopped)??;
        tracing::info!(
            revision = %source.info().revision, index = %source.info().index, bytes = source.total_bytes(), "sending a backup"
        );
        let (sender, chunks) = mpsc::channel(CHUNKS_QUEUED);
        let (info, total_bytes) = (source.info().clone(), source.total_bytes());
        tokio::task::spawn_blocking(move || send(&source, &sender, files, turn));
        let mut left = total_bytes;
        let chunks = to_the_last(chunks, move |chunk: &Bytes| {
            left = left.saturating_sub(chunk.len() as u64);
            left == 0
        });
        Ok(Backup { info, total_bytes, chunks: chunks.boxed() })
    }
}

fn make(store: &StateStore, files: &SnapshotFiles, identity: Identity) -> Result<BackupSource, NodeError> {
    store.current().checkpoint(files.path())?;
    let info = describe(files.path(), identity, unix_ms())?.ok_or(NodeError::NoLeader)?;
    Ok(BackupSource::new(files.path(), info)?)
}

/// The description of a checkpoint, with [`BackupInfo::files`] left empty. `None` if no log entry
/// was ever applied to the state in it.
pub(super) fn describe(
    checkpoint: &Path,
    identity: Identity,
    taken_unix_ms: u64,
) -> Result<Option<BackupInfo>, StorageError> {
    let contents = describe_checkpoint(checkpoint)?;
    let head = contents.head;
    let Some((term, index)) = head.applied.filter(|(term, _)| term.get() > 0) else { return Ok(None) };
    Ok(Some(BackupInfo {
        cluster_id: identity.cluster_id,
        node_id: identity.node_id,
        epoch: head.epoch,
        term,
        index,
        revision: head.revision,
        compact_revision: head.compaction.map(|point| point.revision),
        live_keys: head.live_keys,
        live_bytes: head.live_bytes,
        leases: contents.leases,
        taken_unix_ms,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        needs: head.version.version,
        files: Vec::new(),
    }))
}

fn send(source: &BackupSource, chunks: &mpsc::Sender<Result<Bytes, NodeError>>, files: SnapshotFiles, _turn: Turn) {
    let runtime = tokio::runtime::Handle::current();
    // A dropped or stalled reader ends the backup: its files take space on the disk.
    let pass = |chunk| {
        let sent = runtime.block_on(tokio::time::timeout(READER_WAIT_MAX, chunks.send(chunk)));
        matches!(sent, Ok(Ok(())))
    };
    if let Err(error) = source.send(BACKUP_CHUNK_BYTES, |chunk| pass(Ok(chunk))) {
        tracing::warn!(%error, "a backup was not sent to its end");
        pass(Err(error.into()));
    }
    drop(files);
}
