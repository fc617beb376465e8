//! The one real node: openraft with the program's own state machine, slowed down, on the simulated
//! disk of the log.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::Stream;
use openraft::OptionalSend;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::storage::{EntryResponder, RaftStateMachine};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;

use super::super::committed::Committed;
use super::super::disk::Disk;
use super::super::member::{copy_at_rest, copy_files, options, small_state};
use super::super::net::Net;
use super::super::us;
use super::leaders::ME;
use headwater_raft::SnapshotFiles;
use headwater_raft::parts::{
    LogId, SharedApplyState, Snapshot, SnapshotMeta, StateMachine, StoredMembership, TypeConfig, raft_config,
};
use headwater_storage::StateStore;
use headwater_stream::NoSubscribers;
use headwater_types::LogIndex;

/// Log entries between two snapshots of the node. It keeps none behind a snapshot.
const SNAPSHOT_ENTRIES: u64 = 300;
const APPLY_MS_MAX: u64 = 20;
const FLUSH_MS_MAX: u64 = 50;

/// The way in which a snapshot is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Install {
    /// As in the program: a snapshot is prepared before openraft receives it, so that the
    /// installation is fast.
    Ready,
    /// The installation takes up to 200 ms, which exposes openraft's defect A.
    Slow,
}

impl Install {
    fn ms_max(self) -> u64 {
        match self {
            Self::Ready => 2,
            Self::Slow => 200,
        }
    }
}

/// The program's own state machine, with the delays of a slow machine.
pub(super) struct SlowMachine {
    machine: StateMachine,
    install: Install,
    dice: SmallRng,
}

impl SlowMachine {
    async fn pause(&mut self, ms_max: u64) {
        let pause = us(self.dice.random_range(0..=ms_max * 1000));
        tokio::time::sleep(pause).await;
    }
}

impl RaftStateMachine<TypeConfig> for SlowMachine {
    type SnapshotData = SnapshotFiles;
    type SnapshotBuilder = <StateMachine as RaftStateMachine<TypeConfig>>::SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        self.machine.applied_state().await
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        self.pause(APPLY_MS_MAX).await;
        self.machine.apply(entries).await
    }

    async fn try_create_snapshot_builder(&mut self, force: bool) -> Option<Self::SnapshotBuilder> {
        self.machine.try_create_snapshot_builder(force).await
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        self.machine.get_snapshot_builder().await
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: SnapshotFiles) -> Result<(), io::Error> {
        self.pause(self.install.ms_max()).await;
        self.machine.install_snapshot(meta, snapshot).await
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        self.machine.get_current_snapshot().await
    }
}

/// One process of the node.
pub(super) struct Node {
    pub(super) raft: openraft::Raft<TypeConfig, SlowMachine>,
    pub(super) store: Arc<StateStore>,
    install: Install,
    incoming: PathBuf,
    copies: AtomicU64,
}

impl Node {
    /// A copy of a snapshot's files, as if they were received. If the node's `install` is
    /// [`Install::Ready`], the copy is also prepared, so that its installation is fast.
    pub(super) fn receive(&self, snapshot: &Snapshot) -> Snapshot {
        let copy = self.incoming.join(self.copies.fetch_add(1, Ordering::Relaxed).to_string());
        copy_files(snapshot.snapshot.path(), &copy).unwrap();
        let files = match self.install {
            Install::Ready => SnapshotFiles::ready(self.store.prepare(&copy).unwrap()),
            Install::Slow => SnapshotFiles::adopt(copy, snapshot.snapshot.needs()),
        };
        Snapshot { meta: snapshot.meta.clone(), snapshot: files }
    }

    pub(super) fn points(&self) -> Points {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let index = |id: &Option<LogId>| id.as_ref().map_or(0, |id| id.index);
        let local = index(&metrics.local_committed);
        let committed = index(&metrics.cluster_committed).max(local);
        Points { local, committed, applied: index(&metrics.last_applied) }
    }

    /// Index after the last entry of the node's log; 0 for an empty log.
    pub(super) fn next(&self) -> u64 {
        self.raft.metrics().borrow_watched().last_log_index.map_or(0, |last| last + 1)
    }
}

/// Progress of the node, as log indexes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Points {
    /// Highest log index that is committed and in the node's own log.
    pub(super) local: u64,
    /// Highest committed log index that leaders have sent.
    pub(super) committed: u64,
    pub(super) applied: u64,
}

/// The parts of the node that survive its process.
pub(super) struct Host {
    root: PathBuf,
    disk: Arc<Disk>,
    net: Net,
    seed: u64,
    install: Install,
    starts: u64,
}

impl Host {
    pub(super) fn new(seed: u64, root: PathBuf, install: Install) -> Self {
        let disk = Disk::new(ME, seed, false, Arc::new(Committed::default()));
        disk.set_flush_ms_max(FLUSH_MS_MAX);
        let net = Net::new(seed, root.join("unused"));
        Self { root, disk, net, seed, install, starts: 0 }
    }

    fn state_dir(&self) -> PathBuf {
        self.root.join(format!("state-{}", self.starts))
    }

    pub(super) async fn start(&self) -> Node {
        let store = Arc::new(StateStore::open(&self.state_dir(), &small_state()).unwrap());
        let log = self.disk.open();
        let (applied, _) = watch::channel(store.current().head().applied_index());
        let snapshots = self.root.join("snapshots");
        let publisher = Arc::new(NoSubscribers);
        let machine =
            StateMachine::new(store.clone(), log.durable(), applied, publisher, snapshots, SharedApplyState::default())
                .unwrap();
        let dice = SmallRng::seed_from_u64(self.seed * 1000 + self.starts);
        let machine = SlowMachine { machine, install: self.install, dice };
        let mut config = raft_config(&options(ME, &self.root));
        config.snapshot_policy = openraft::SnapshotPolicy::LogsSinceLast(SNAPSHOT_ENTRIES);
        config.max_in_snapshot_log_to_keep = 0;
        let config = Arc::new(config.validate().unwrap());
        let raft = openraft::Raft::new(ME, config, self.net.of(ME), log, machine).await.unwrap();
        // The node itself must never be elected.
        raft.runtime_config().elect(false);
        let incoming = self.root.join(format!("incoming-{}", self.starts));
        Node { raft, store, install: self.install, incoming, copies: AtomicU64::new(0) }
    }

    /// Ends the process like a loss of power: only flushed data is left.
    pub(super) async fn end(&mut self, node: Arc<Node>) {
        self.disk.lose_power();
        let before = self.state_dir();
        self.starts += 1;
        copy_at_rest(&before, &self.state_dir()).unwrap();
        // It may have panicked already.
        drop(node.raft.shutdown().await);
    }
}

/// Applied index and hash of a state. They are equal for equal states.
pub(super) fn contents(store: &StateStore) -> (LogIndex, u64) {
    let db = store.current();
    let view = db.view().unwrap();
    (view.applied(), view.state_hash().unwrap())
}
