//! openraft's state machine on our storage and `fsm`.
//!
//! Owns the order "commit, then publish, then answer" (ARCHITECTURE.md §3): one function, nothing
//! awaited in between. Depends on no kind of command.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::{Stream, TryStreamExt};
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use openraft::{OptionalSend, RaftSnapshotBuilder};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::apply::{apply_command, apply_membership};
use super::blocking::run_blocking;
use super::log_store::io_error;
use super::membership;
use super::metrics::RaftMetrics;
use super::network::Lineage;
use super::roster::AppliedMembers;
use super::snapshot::SnapshotFiles;
use super::types::{EntryPayload, LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig, log_id, term_of};
use headwater_storage::state::StateCopy;
use headwater_storage::{AppliedState, StateReader, StateStore, StorageError, WriteTxn};
use headwater_stream::{Publisher, StatePoint};
use headwater_types::{Applied, LogIndex, NodeId, Outcome, Term};

/// Command bytes that one write transaction gathers before it is committed, so that a long run of
/// large entries does not pile up in memory.
const TXN_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes of changes that one write transaction holds in memory before it is committed. A command
/// may write far more than its own size, such as a put that keeps a large value. The cut does not
/// affect results.
const TXN_HELD_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Most entries for which memory is kept between calls of `apply`, count.
const PENDING_KEPT_MAX: usize = 1 << 10;

/// openraft's handle to the state machine; there is exactly one, and it is the only writer of
/// replicated state.
pub struct StateMachine {
    store: Arc<StateStore>,
    durable: watch::Receiver<u64>,
    applied: watch::Sender<LogIndex>,
    publisher: Arc<dyn Publisher>,
    snapshots: SnapshotDirs,
    shared: SharedApplyState,
    /// Empty between calls of `apply`; keeps its memory.
    pending: Vec<Pending>,
}

/// State that apply updates and the other parts of consensus read.
#[derive(Clone, Default)]
pub struct SharedApplyState {
    /// Command bytes applied and committed since the process started.
    pub(super) bytes: Arc<AtomicU64>,
    /// The applied membership.
    pub(super) members: Arc<AppliedMembers>,
    /// The lineage of the store.
    pub(super) lineage: Lineage,
    /// The metrics.
    pub(super) metrics: Arc<RaftMetrics>,
}

/// The newest snapshot that this process made; `None` if there is none, or one was installed since.
/// Kept so that handing it out costs nothing.
type Latest = Arc<Mutex<Option<Snapshot>>>;

/// Folder of the checkpoints that this process makes, and the newest snapshot among them. Older
/// ones are removed with their last user.
#[derive(Clone)]
struct SnapshotDirs {
    root: PathBuf,
    next: Arc<AtomicU64>,
    latest: Latest,
    /// Highest log index of the snapshots that were built or installed. A snapshot below it is not
    /// kept as `latest`.
    floor: Arc<AtomicU64>,
    metrics: Arc<RaftMetrics>,
}

impl SnapshotDirs {
    fn take(&self) -> PathBuf {
        self.root.join(format!("checkpoint-{}", self.next.fetch_add(1, Ordering::Relaxed)))
    }
}

struct Pending {
    index: u64,
    responder: Option<ApplyResponder<TypeConfig>>,
    outcome: Outcome,
    revision: headwater_types::Revision,
    membership: Option<(StoredMembership, NodeId)>,
}

impl StateMachine {
    /// Makes the state machine of `store`. Empties `snapshot_dir`: checkpoints do not outlive the
    /// process that made them. Apply updates `shared`, sends the applied index to `applied`, and
    /// waits for `durable`.
    pub fn new(
        store: Arc<StateStore>,
        durable: watch::Receiver<u64>,
        applied: watch::Sender<LogIndex>,
        publisher: Arc<dyn Publisher>,
        snapshot_dir: PathBuf,
        shared: SharedApplyState,
    ) -> io::Result<Self> {
        headwater_files::recreate_dir(&snapshot_dir)?;
        let snapshots = SnapshotDirs {
            root: snapshot_dir,
            next: Arc::new(AtomicU64::new(1)),
            latest: Latest::default(),
            floor: Arc::default(),
            metrics: shared.metrics.clone(),
        };
        read_members(&store, &shared.members)?;
        shared.lineage.learn(store.current().head().epoch);
        Ok(Self { store, durable, applied, publisher, snapshots, shared, pending: Vec::new() })
    }

    fn apply_entry(
        &self,
        txn: &mut WriteTxn<'_>,
        id: LogId,
        payload: EntryPayload,
        responder: Option<ApplyResponder<TypeConfig>>,
        pending: &[Pending],
    ) -> Result<Pending, io::Error> {
        let index = LogIndex(id.index);
        let mut changed_membership = None;
        let outcome = match payload {
            EntryPayload::Blank => Outcome::Nothing,
            EntryPayload::Normal(command) => {
                let term = Term(term_of(&id));
                let done = apply_command(txn, term, index, command.0, responder.is_some()).map_err(io::Error::other)?;
                if let Some((kind, success, took)) = done.measured {
                    self.shared.metrics.applied(kind, success, took);
                }
                done.outcome
            }
            EntryPayload::Membership(members) => {
                headwater_fail_points::fail_point!(MembershipApply);
                let stored = StoredMembership::new(Some(id), members);
                // The previous membership may be uncommitted.
                let before = pending.iter().rev().find_map(|entry| entry.membership.as_ref());
                match before {
                    Some((before, _)) => apply_membership(txn, index, before, &stored),
                    None => apply_membership(txn, index, &self.shared.members.stored(), &stored),
                }
                .map_err(io_error)?;
                let highest = self.shared.members.raise(membership::highest_id(stored.membership()));
                changed_membership = Some((membership::encode_applied(&stored, highest), (stored, highest)));
                Outcome::Nothing
            }
        };
        let (record, membership) = changed_membership.unzip();
        txn.set_applied(&AppliedState { term: Term(term_of(&id)), index, membership: record });
        Ok(Pending { index: id.index, responder, outcome, revision: txn.head().revision, membership })
    }

    /// Commit, then publish, then answer. Nothing is awaited in here.
    fn finish(&self, txn: WriteTxn<'_>, pending: &mut Vec<Pending>) -> Result<(), io::Error> {
        let Some(last) = pending.last().map(|entry| LogIndex(entry.index)) else { return Ok(()) };
        let epoch = txn.head().epoch;
        let began = Instant::now();
        let committed = txn.commit().map_err(io_error)?;
        self.shared.metrics.committed(began.elapsed(), &committed.operations);
        headwater_fail_points::fail_point!(StateCommitted);
        if !self.shared.lineage.has_epoch() {
            self.shared.lineage.learn(epoch);
        }
        if !committed.leases.is_empty() {
            self.publisher.leases_changed(&committed.leases);
        }
        if committed.rights_changed || !committed.tokens.is_empty() {
            let head = &committed.head;
            self.publisher.rights_changed(head.rights_changed, head.acl_changed, &committed.tokens);
        }
        self.publisher.publish(committed.events);
        if let Some((members, highest)) = pending.iter_mut().rev().find_map(|entry| entry.membership.take()) {
            self.shared.members.set(members, highest);
        }
        headwater_fail_points::fail_point!(StatePublished);
        // After the publication, so that a waiter for an index finds its events published, too.
        self.applied.send_replace(last);
        for entry in pending.drain(..) {
            if let Some(responder) = entry.responder {
                let index = LogIndex(entry.index);
                responder.send(Applied { index, revision: entry.revision, outcome: entry.outcome });
            }
        }
        Ok(())
    }

    async fn wait_durable(&mut self, index: u64) -> Result<(), io::Error> {
        // openraft may hand over an entry as soon as a quorum has it, before this member's own disk
        // does. Were it readable then, a crash could revoke data that a reader has seen.
        match self.durable.wait_for(|durable| *durable >= index).await {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::other("the log is gone")),
        }
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotFiles;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        read_applied(&self.store)
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let mut pending = std::mem::take(&mut self.pending);
        let db = self.store.current();
        let mut txn = self.store.begin(&db).map_err(io_error)?;
        let mut txn_bytes = 0;
        while let Some((entry, responder)) = entries.try_next().await? {
            if let EntryPayload::Normal(command) = &entry.payload {
                txn_bytes += command.0.len();
            }
            let applied = self.apply_entry(&mut txn, entry.log_id, entry.payload, responder, &pending)?;
            pending.push(applied);
            if txn_bytes >= TXN_BYTES_MAX || txn.held_bytes() >= TXN_HELD_BYTES_MAX {
                self.wait_durable(entry.log_id.index).await?;
                self.finish(txn, &mut pending)?;
                self.shared.bytes.fetch_add(txn_bytes as u64, Ordering::Relaxed);
                txn = self.store.begin(&db).map_err(io_error)?;
                txn_bytes = 0;
            }
        }
        if let Some(last) = pending.last().map(|entry| entry.index) {
            self.wait_durable(last).await?;
            self.finish(txn, &mut pending)?;
            self.shared.bytes.fetch_add(txn_bytes as u64, Ordering::Relaxed);
        }
        pending.shrink_to(PENDING_KEPT_MAX);
        self.pending = pending;
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<SnapshotBuilder> {
        Some(self.get_snapshot_builder().await)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder { store: self.store.clone(), dirs: self.snapshots.clone() }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: SnapshotFiles) -> Result<(), io::Error> {
        let _installing = self.shared.metrics.installing();
        let store = self.store.clone();
        let installed = run_blocking(move || {
            snapshot.install(&store)?;
            Ok::<_, headwater_storage::StorageError>(store)
        });
        let store = installed.await.map_err(io::Error::other)?.map_err(io_error)?;
        let (applied, _) = read_applied(&store)?;
        read_members(&store, &self.shared.members)?;
        self.snapshots.floor.fetch_max(applied.as_ref().map_or(0, |id| id.index), Ordering::AcqRel);
        *self.snapshots.latest.lock() = None;
        if applied != meta.last_log_id {
            return Err(io::Error::other(format!(
                "the installed snapshot holds {applied:?}, announced was {:?}",
                meta.last_log_id
            )));
        }
        let head = store.current().head();
        self.shared.lineage.learn(head.epoch);
        self.publisher.reset(StatePoint { index: head.applied_index(), revision: head.revision, epoch: head.epoch });
        headwater_fail_points::fail_point!(InstallPublished);
        // In the order of `finish`.
        self.applied.send_replace(head.applied_index());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        // The kept snapshot is good enough: entries after it are never purged, so a follower
        // continues with the log.
        if let Some(latest) = self.snapshots.latest.lock().clone() {
            return Ok(Some(latest));
        }
        let (applied, _) = read_applied(&self.store)?;
        if applied.is_none() {
            return Ok(None);
        }
        self.get_snapshot_builder().await.build_snapshot().await.map(Some)
    }
}

fn read_applied(store: &StateStore) -> Result<(Option<LogId>, StoredMembership), io::Error> {
    decode_applied(store.current().applied_state().map_err(io_error)?)
}

fn read_members(store: &StateStore, members: &AppliedMembers) -> Result<(), io::Error> {
    let record = store.current().applied_state().map_err(io_error)?.and_then(|applied| applied.membership);
    if let Some(record) = record {
        let (stored, highest) = membership::decode_applied(&record).map_err(io::Error::other)?;
        members.raise(highest);
        members.set(stored, highest);
    }
    Ok(())
}

fn decode_applied(applied: Option<AppliedState>) -> Result<(Option<LogId>, StoredMembership), io::Error> {
    let Some(applied) = applied else { return Ok((None, StoredMembership::default())) };
    let stored = match &applied.membership {
        Some(record) => membership::decode_applied(record).map_err(io::Error::other)?.0,
        None => StoredMembership::default(),
    };
    Ok((Some(log_id(applied.term.get(), applied.index.get())), stored))
}

/// Pause before a checkpoint for which there were no file descriptors is tried again.
const DESCRIPTORS_PAUSE: Duration = Duration::from_millis(500);

/// Makes a checkpoint. Waits while the process has too few file descriptors for it: an error would
/// end consensus although the disk has not failed. Blocks.
fn checkpoint(store: &StateStore, dir: &Path) -> Result<StateCopy, StorageError> {
    let mut has_warned = false;
    loop {
        match store.current().checkpoint(dir) {
            Err(error) if error.is_out_of_descriptors() => {
                if !has_warned {
                    tracing::warn!(%error, "a snapshot waits for file descriptors: raise the limit of open files");
                }
                has_warned = true;
                std::thread::sleep(DESCRIPTORS_PAUSE);
            }
            made => return made,
        }
    }
}

/// Makes checkpoints: hard links, no copy, no pause.
pub struct SnapshotBuilder {
    store: Arc<StateStore>,
    dirs: SnapshotDirs,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = SnapshotFiles;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let store = self.store.clone();
        let dir = self.dirs.take();
        let metrics = self.dirs.metrics.clone();
        let built = run_blocking(move || {
            let began = Instant::now();
            let copy = checkpoint(&store, &dir).map_err(io_error)?;
            metrics.checkpointed(began.elapsed());
            let (last_log_id, last_membership) = decode_applied(copy.applied)?;
            let meta = SnapshotMeta { last_log_id, last_membership };
            Ok::<_, io::Error>(Snapshot { meta, snapshot: SnapshotFiles::adopt(dir, copy.needs) })
        });
        let snapshot = built.await.map_err(io::Error::other)??;
        headwater_fail_points::fail_point!(SnapshotBuilt);
        // A slow build may be older than a snapshot installed meanwhile; it is not kept as the
        // latest then.
        let index = snapshot.meta.last_log_id.as_ref().map_or(0, |id| id.index);
        if self.dirs.floor.fetch_max(index, Ordering::AcqRel) <= index {
            *self.dirs.latest.lock() = Some(snapshot.clone());
        }
        Ok(snapshot)
    }
}
