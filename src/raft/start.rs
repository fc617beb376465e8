//! Starts consensus on one member, with its background tasks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use openraft::SnapshotPolicy;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::batcher::Queue;
use super::consensus::{Consensus, IncomingSnapshots, Inner, Services};
use super::form::{Formation, Participation};
use super::leader_end::{self, LeaderSessions};
use super::leadership::{self, LeadershipState};
use super::log_keeper::{self, LogLimits};
use super::log_store::LogStore;
use super::majority;
use super::network::{Lineage, PeerService, Peers, wrong_port};
use super::progress::ProgressState;
use super::propose::{ProposeQueues, feed};
use super::propose_streams::ProposeStreams;
use super::removal::Removal;
use super::stalled;
use super::state_machine::{SharedApplyState, StateMachine};
use super::types::{MemberInfo, Raft};
use headwater_proto::pb::peer::peer_server::PeerServer;
use headwater_storage::data_dir::FlagNote;
use headwater_storage::log::LogDb;
use headwater_storage::{StateStore, StorageError};
use headwater_stream::Publisher;
use headwater_tls::Dialer;
use headwater_types::limits::PEER_MESSAGE_BYTES_MAX;
use headwater_types::{ClusterId, LogIndex, NodeId};

/// Fewest entries that openraft purges at once by itself, count.
pub(super) const PURGE_BATCH: u64 = 1024;

/// The intervals and timeouts of consensus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time between two heartbeats of a leader.
    pub heartbeat: Duration,
    /// Shortest wait of a follower before it stands for election. The wait begins `election_max`
    /// after the last message of the leader.
    pub election_min: Duration,
    /// Longest wait of a follower before it stands for election. Also the time for which a follower
    /// trusts a silent leader before that wait begins.
    pub election_max: Duration,
}

/// Shortest and longest result of [`Timing::answer_max`].
const ANSWER_MAX: std::ops::RangeInclusive<Duration> = Duration::from_secs(3)..=Duration::from_secs(10);

impl Timing {
    /// Longest wait for the answer of another member: five times `election_max`, within
    /// [`ANSWER_MAX`].
    pub(super) fn answer_max(self) -> Duration {
        (self.election_max * 5).clamp(*ANSWER_MAX.start(), *ANSWER_MAX.end())
    }

    /// The value of [`LogLimits::gap_max`]: long enough for several replication sessions to fail.
    fn gap_max(self) -> Duration {
        self.answer_max() * 5
    }
}

/// Options of consensus.
#[derive(Clone, Debug)]
pub struct ConsensusOptions {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// Id of this member.
    pub node_id: NodeId,
    /// Connects to other members.
    pub dialer: Dialer,
    /// The configured first members, with which a cluster that does not exist yet is formed. Once
    /// it exists, they only give the names of members that are not in the applied membership.
    pub initial_members: BTreeMap<NodeId, MemberInfo>,
    /// The intervals and timeouts.
    pub timing: Timing,
    /// Longest time that the answer to a forwarded write is held back until this member has applied
    /// the write.
    pub catch_up_max: Duration,
    /// Entries applied since the last snapshot after which the next is made, count.
    pub snapshot_every_entries: u64,
    /// Command bytes after which a snapshot is made, counted from the last snapshot made for this
    /// bound, or from the start of the process.
    pub snapshot_every_bytes: u64,
    /// Entries that stay in the log although a snapshot holds them, count: a member that was away
    /// for a short time then needs no snapshot. Up to `PURGE_BATCH` more may stay, and all that
    /// openraft may still send to a follower that answers slowly.
    pub keep_entries: u64,
    /// Most command bytes that stay in the log although a snapshot holds them, even if these are
    /// fewer than `keep_entries` entries.
    pub keep_bytes: u64,
    /// Folder in which checkpoints are made; emptied at start.
    pub snapshot_dir: PathBuf,
    /// Folder in which snapshots from a leader arrive.
    pub incoming_dir: PathBuf,
    /// A file that exists from the time at which this member noticed the loss of its data, until it
    /// has caught up.
    pub rejoining: FlagNote,
    /// A file that this member makes once it knows that it was removed from its cluster. The node
    /// does not start again while the file exists.
    pub removed: FlagNote,
    /// Hash of the backup and of the options from which this member was restored, equal on members
    /// restored alike; 0 without a restore.
    pub origin: u64,
}

/// The reason why consensus did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Local storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A file operation failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// openraft refused its configuration, or did not start. The text is the reason.
    #[error("{0}")]
    Raft(String),
}

/// Starts consensus on this member. A cluster that does not exist yet is formed by
/// [`Consensus::form`].
pub async fn start(
    options: ConsensusOptions,
    log: LogDb,
    store: Arc<StateStore>,
    publisher: Arc<dyn Publisher>,
) -> Result<Consensus, StartError> {
    let ConsensusOptions { cluster_id, node_id, .. } = options;
    let config = Arc::new(config(&options).validate().map_err(|error| StartError::Raft(error.to_string()))?);
    headwater_files::create_dir(&options.incoming_dir).map_err(std::io::Error::from)?;

    let applied_index = store.current().applied_state()?.map_or(LogIndex::ZERO, |applied| applied.index);
    let (applied_tx, applied) = watch::channel(applied_index);
    let last_at_start = log.state()?.last.map(|id| id.index.get());
    let participation = participation(&options, last_at_start.is_none() && log.vote()?.is_none());
    let log_store = LogStore::new(log)?;
    let shared = SharedApplyState { lineage: Lineage::new(options.origin), ..SharedApplyState::default() };
    let state_machine = StateMachine::new(
        store.clone(),
        log_store.durable(),
        applied_tx,
        publisher,
        options.snapshot_dir.clone(),
        shared.clone(),
    )?;
    let SharedApplyState { bytes: applied_bytes, members, lineage, metrics } = shared;
    let peers =
        Peers::new(cluster_id, node_id, lineage, options.dialer.clone(), metrics.clone(), options.timing.answer_max());
    let raft = Raft::new(node_id.get(), config, peers.clone(), log_store, state_machine)
        .await
        .map_err(|error| StartError::Raft(error.to_string()))?;

    if participation == Participation::Rejoining {
        raft.runtime_config().elect(false);
    }
    let (local, batcher) = Queue::leading();
    tokio::spawn(feed(raft.clone(), batcher));
    let consensus = Consensus::from_inner(Arc::new(Inner {
        cluster: cluster_id,
        me: node_id,
        raft,
        metrics,
        peers,
        proposals: ProposeQueues {
            local,
            propose_streams: ProposeStreams::default(),
            catch_up_max: options.catch_up_max,
        },
        leadership: LeadershipState::new(options.timing.election_max * 2),
        leader_sessions: LeaderSessions::default(),
        progress: ProgressState {
            applied,
            last_at_start,
            leader_commit: watch::Sender::new(None),
            stalled_since: Mutex::new(None),
        },
        members,
        formation: Formation::new(
            options.initial_members.clone(),
            participation,
            last_at_start.is_some_and(|last| last > 0),
            options.rejoining,
        ),
        removal: Removal::new(options.removed),
        snapshots: IncomingSnapshots {
            dir: options.incoming_dir.clone(),
            slot: tokio::sync::Mutex::new(()),
            store: Arc::downgrade(&store),
        },
        services: Services::default(),
    }));
    tokio::spawn(leadership::follow(consensus.clone()));
    tokio::spawn(consensus.clone().watch_for_removal());
    tokio::spawn(majority::watch(consensus.clone(), options.timing.heartbeat));
    tokio::spawn(leader_end::watch(consensus.clone(), options.timing.heartbeat));
    let limits = LogLimits {
        snapshot_every_bytes: options.snapshot_every_bytes,
        keep_bytes: options.keep_bytes,
        keep_entries: options.keep_entries,
        gap_max: options.timing.gap_max(),
    };
    tokio::spawn(log_keeper::run(consensus.clone(), applied_bytes, limits));
    tokio::spawn(stalled::watch(consensus.clone(), options.timing.heartbeat));
    Ok(consensus)
}

/// The participation of a member when it starts. `is_empty`: its log has neither entry nor vote. A
/// first member without data is undecided: it must find out why it has none.
fn participation(options: &ConsensusOptions, is_empty: bool) -> Participation {
    if options.rejoining.is_set() {
        Participation::Rejoining
    } else if is_empty && options.initial_members.contains_key(&options.node_id) {
        Participation::Undecided
    } else {
        Participation::Member
    }
}

/// The configuration of openraft for `options`.
pub fn config(options: &ConsensusOptions) -> openraft::Config {
    let millis = |duration: Duration| duration.as_millis() as u64;
    let timing = options.timing;
    openraft::Config {
        cluster_name: options.cluster_id.to_string(),
        heartbeat_interval: millis(timing.heartbeat),
        election_timeout_min: millis(timing.election_min),
        election_timeout_max: millis(timing.election_max),
        max_payload_entries: 1024,
        api_batch_capacity: 4096,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(options.snapshot_every_entries),
        max_in_snapshot_log_to_keep: options.keep_entries,
        purge_batch_size: PURGE_BATCH,
        replication_lag_threshold: options.keep_entries.max(options.snapshot_every_entries),
        install_snapshot_timeout: 30_000,
        enable_pre_vote: Some(true),
        // A member that lost its disk comes back with less than it acknowledged. It is allowed to:
        // it does not vote until it has caught up (see `form`), and a log that is merely damaged
        // refuses to open.
        allow_log_reversion: Some(true),
        // A leader sends entries while its own disk still writes them. After a crash it may lack
        // some that others have; if it continued to lead in the same term, it would give their ids
        // to other entries, and members would differ for ever.
        enable_leader_restore: Some(false),
        // A leader that can send but not receive must notice that (openraft #2080).
        quorum_loss_probe_interval: Some(2 * millis(timing.election_max)),
        ..openraft::Config::default()
    }
}

/// The gRPC routes of the peer port.
pub fn peer_routes(consensus: &Consensus) -> tonic::service::Routes {
    let service = PeerServer::new(PeerService::new(consensus.clone()))
        .max_decoding_message_size(PEER_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(usize::MAX);
    let mut routes = tonic::service::Routes::new(service);
    let router = routes.axum_router_mut();
    *router = std::mem::take(router).fallback(wrong_port::refuse);
    routes
}
