//! A member: openraft with the program's own state machine, its store, and the publisher that
//! watchers read from.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::disk::Disk;
use super::ms;
use super::net::Net;
use headwater_node::StateHistory;
use headwater_raft::Timing;
use headwater_raft::parts::{ConsensusOptions, MemberInfo, Raft, SharedApplyState, StateMachine, raft_config};
use headwater_storage::data_dir::Layout;
use headwater_storage::{StateOptions, StateStore};
use headwater_stream::{CloseReason, EventPublisher, FeedOptions, Publisher, ScanLimits, StatePoint};
use headwater_tls::Dialer;
use headwater_types::{ClusterId, CommandEvents, LeaseChange, LogIndex, NodeId, Supported};

/// Log entries between two snapshots: few, so that a member that was away needs a snapshot.
const SNAPSHOT_ENTRIES: u64 = 60;
/// Log entries that are kept behind a snapshot: few, for the same reason.
const KEPT_ENTRIES: u64 = 20;

/// A running member.
pub(super) struct Member {
    pub(super) raft: Raft,
    pub(super) store: Arc<StateStore>,
    pub(super) events: Arc<EventPublisher>,
    pub(super) applied: watch::Receiver<LogIndex>,
    tasks: Vec<JoinHandle<()>>,
}

/// The parts of a member that survive its process.
pub(super) struct Machine {
    pub(super) id: u64,
    pub(super) disk: Arc<Disk>,
    root: PathBuf,
    starts: AtomicU64,
    /// Whether some events never reach the publisher (the control `LostEvents`).
    loses_events: bool,
    /// The versions that the member's program supports, from its next start on.
    supported: Mutex<Supported>,
}

/// Passes commits to the publisher. With the control `LostEvents`, `dice` is set and about one
/// commit in fifty is dropped.
struct CommitSink {
    events: Arc<EventPublisher>,
    dice: Option<Mutex<SmallRng>>,
}

impl Publisher for CommitSink {
    fn publish(&self, mut commits: Vec<CommandEvents>) {
        if let Some(dice) = &self.dice {
            let mut dice = dice.lock();
            commits.retain(|_| dice.random_range(0..50) > 0);
        }
        self.events.publish(commits);
    }

    fn leases_changed(&self, _changes: &[LeaseChange]) {}

    fn reset(&self, point: StatePoint) {
        self.events.reset(point);
    }
}

pub(super) fn first_members(count: u64) -> BTreeMap<u64, MemberInfo> {
    (1..=count).map(|id| (id, MemberInfo { name: format!("m{id}"), ..MemberInfo::default() })).collect()
}

/// Options of a member with its files in `root`.
pub(super) fn options(id: u64, root: &Path) -> ConsensusOptions {
    let layout = Layout::new(root);
    ConsensusOptions {
        cluster_id: ClusterId(1),
        node_id: NodeId(id),
        initial_members: BTreeMap::new(),
        dialer: Dialer::default(),
        timing: Timing { heartbeat: ms(50), election_min: ms(150), election_max: ms(300) },
        catch_up_max: ms(100),
        snapshot_every_entries: SNAPSHOT_ENTRIES,
        snapshot_every_bytes: u64::MAX,
        keep_entries: KEPT_ENTRIES,
        keep_bytes: u64::MAX,
        snapshot_dir: layout.snapshots_dir(),
        incoming_dir: layout.incoming_dir(),
        rejoining: layout.rejoining(),
        removed: layout.removed(),
        origin: 0,
    }
}

/// Options of a state with small caches.
pub(super) fn small_state() -> StateOptions {
    StateOptions {
        block_cache_bytes: 1 << 20,
        memtable_bytes: 1 << 20,
        key_cache_bytes: 1 << 14,
        hot_records_bytes: 1 << 14,
        lease_cache_bytes: 1 << 14,
        open_files_max: 64,
        ..StateOptions::default()
    }
}

impl Machine {
    pub(super) fn new(id: u64, root: PathBuf, disk: Arc<Disk>, loses_events: bool) -> Self {
        Self { id, disk, root, starts: AtomicU64::new(0), loses_events, supported: Mutex::new(Supported::RELEASE) }
    }

    /// The versions that the member's program supports, from its next start on.
    pub(super) fn supported(&self) -> Supported {
        *self.supported.lock()
    }

    /// Lets later starts use the next version's program.
    pub(super) fn upgrade(&self) {
        *self.supported.lock() = Supported::NEXT;
    }

    fn state_dir(&self, start: u64) -> PathBuf {
        self.root.join(format!("state-{start}"))
    }

    /// Starts the member on the files that have survived.
    pub(super) async fn start(&self, net: &Net) -> Member {
        let start = self.starts.load(Ordering::Relaxed);
        let state = StateOptions { supported: self.supported(), ..small_state() };
        let store = Arc::new(StateStore::open(&self.state_dir(start), &state).unwrap());
        let head = store.current().head();
        let point = StatePoint { index: head.applied_index(), revision: head.revision, epoch: head.epoch };
        // Small, so that watchers fall behind.
        let feed = FeedOptions {
            window_items_max: 20,
            scan: ScanLimits { commits_max: 7, ..FeedOptions::default().scan },
            ..FeedOptions::default()
        };
        let events = Arc::new(EventPublisher::new(point, feed));
        let dice = self.loses_events.then(|| Mutex::new(SmallRng::seed_from_u64(start)));
        let sink = Arc::new(CommitSink { events: events.clone(), dice });
        let log = self.disk.open();
        let (applied_tx, applied) = watch::channel(head.applied_index());
        let options = options(self.id, &self.root);
        let snapshots = options.snapshot_dir.clone();
        let machine =
            StateMachine::new(store.clone(), log.durable(), applied_tx, sink, snapshots, SharedApplyState::default())
                .unwrap();
        let config = Arc::new(raft_config(&options).validate().unwrap());
        let raft = Raft::new(self.id, config, net.of(self.id), log, machine).await.unwrap();
        net.join(self.id, raft.clone());
        let tasks = vec![
            tokio::spawn(events.kv().wake_readers()),
            tokio::spawn(events.kv().serve_catch_up(Arc::new(StateHistory::new(store.clone(), events.kv())))),
        ];
        Member { raft, store, events, applied, tasks }
    }

    /// Ends the member by a loss of power. Of the unflushed writes of the log, a random prefix
    /// survives ([`Disk::lose_power`]). Of the state, only what is in its files survives.
    pub(super) async fn lose_power(&self, net: &Net, member: Arc<Member>) {
        self.disk.lose_power();
        net.leave(self.id);
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        // Closing the store would flush it; so the next process gets a copy of the files as they
        // are now.
        copy_at_rest(&self.state_dir(start), &self.state_dir(start + 1)).unwrap();
        member.events.close(CloseReason::Stopping);
        member.tasks.iter().for_each(JoinHandle::abort);
        // Tasks of the ended process may still run, without effect.
        drop(member.raft.shutdown().await);
        drop(member);
    }
}

/// Copies a folder as it is at one moment: repeats the copy until no path and no size of a file
/// below it has changed meanwhile.
pub(super) fn copy_at_rest(from: &Path, to: &Path) -> io::Result<()> {
    loop {
        let before = listing(from);
        let copied = copy_files(from, to);
        if before.is_ok() && before.ok() == listing(from).ok() {
            return copied;
        }
        std::fs::remove_dir_all(to)?;
    }
}

/// Paths and sizes of all files below a folder, sorted.
fn listing(dir: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => files.extend(listing(&entry.path())?),
            false => files.push((entry.path(), entry.metadata()?.len())),
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Copies a folder with all its content.
pub(super) fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_files(&entry.path(), &target)?,
            false => drop(std::fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}
