//! Brings a node up: data directory, storage, consensus, and the tasks that belong to a running
//! node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::acl::{self, AclOptions, AclState};
use super::alarms::{self, QuotaOptions};
use super::answers::Answers;
use super::audit::{AuditLog, AuditOptions};
use super::authority::{AuthOptions, Authority};
use super::backup::Backups;
use super::fan_out::CommitFanOut;
use super::follow::{self, FollowState};
use super::history::StateHistory;
use super::lease::{self, LeaseClock, LeasesState};
use super::lifecycle::Lifecycle;
use super::limit_counters::LimitCounters;
use super::maintenance::MaintenanceState;
use super::members::{MembersState, MembershipPolicy, OwnFigures, OwnMember};
use super::metrics::NodeMetrics;
use super::proposer::Proposer;
use super::reads::ReadPath;
use super::request_rate::{RateOptions, RequestRate};
use super::resource;
use super::retention;
use super::tasks;
use super::versions;
use super::{Identity, Inner, Node, Profile, Shares};
use headwater_raft::{Consensus, ConsensusOptions, MemberInfo, Timing};
use headwater_storage::data_dir::{DataDir, Layout, Owner};
use headwater_storage::log::{LogDb, LogOptions, WeakLog};
use headwater_storage::{StateOptions, StateStore};
use headwater_stream::{EventPublisher, FeedOptions, StatePoint};
use headwater_tls::Dialer;
use headwater_types::limits::CONTENDERS_MAX;
use headwater_types::{ClusterId, MemberProgram, NodeId};

/// The settings of a node's start.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Id of this member.
    pub node_id: NodeId,
    /// Id of the cluster.
    pub cluster_id: ClusterId,
    /// The dialer for the peer ports of other members.
    pub dialer: Dialer,
    /// The dialer for client ports of other clusters' members.
    pub client_dialer: Dialer,
    /// The configured first members, with which a cluster that does not exist yet is formed. Once
    /// it exists, they only give the names of members that are not in the applied membership.
    pub initial_members: BTreeMap<NodeId, MemberInfo>,
    /// The configured name of this member, and its addresses.
    pub own: MemberInfo,
    /// The name of the datacenter in the service catalog; equal on all members.
    pub datacenter: String,
    /// Client addresses of other clusters' members, `HOST:PORT` or `https://HOST:PORT`, by the
    /// names of their datacenters.
    pub remote_datacenters: BTreeMap<String, Vec<String>>,
    /// The folder of all files of the node.
    pub data_dir: PathBuf,
    /// Intervals and timeouts of consensus.
    pub timing: Timing,
    /// Longest wait of the answer to a forwarded write until this member has applied the write.
    pub catch_up_max: Duration,
    /// Entries between two snapshots, count.
    pub snapshot_every_entries: u64,
    /// Command bytes between two snapshots.
    pub snapshot_every_bytes: u64,
    /// Log entries that are kept although a snapshot covers them, count. About a thousand more
    /// may stay, and all that may still be sent to a follower that answers slowly.
    pub keep_entries: u64,
    /// Most bytes of commands in the log entries that are kept although a snapshot covers them. If
    /// entries are large, fewer than `keep_entries` are kept.
    pub keep_bytes: u64,
    /// Tuning of the log.
    pub log: LogOptions,
    /// Tuning of the state.
    pub state: StateOptions,
    /// Bounds of the feed of each topic, such as its window.
    pub feed: FeedOptions,
    /// Settings of the quota, the bound on live keys and values.
    pub quota: QuotaOptions,
    /// Age at which history is removed; `None` removes it only on request.
    pub history_retention: Option<Duration>,
    /// The clock that measures leases while this member leads.
    pub lease_clock: LeaseClock,
    /// Longest wait of a leader that stops or is removed, until another member leads and the writes
    /// in the log have their answers.
    pub hand_over_timeout: Duration,
    /// Largest command that a client may propose here, bytes.
    pub max_request_bytes: usize,
    /// Most watchers of clients that may be open here, count.
    pub watchers_max: usize,
    /// The rate of requests of each client; `None` does not bound it.
    pub request_rate: Option<RateOptions>,
    /// Whether this member, while it leads, announces a new voter only if all voters run.
    pub strict_reconfig_check: bool,
    /// Whether a node that was not announced joins by invitation alone, while this member leads.
    pub invited_only: bool,
    /// Settings of the tokens of etcd's Auth.
    pub auth: AuthOptions,
    /// Settings of Consul's access control lists.
    pub acl: AclOptions,
    /// The program, and the versions of clusters that it supports.
    pub program: MemberProgram,
    /// Settings of the audit log; `None` for no log.
    pub audit: Option<AuditOptions>,
}

/// The reason for which a node did not start, as a text for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NodeStartError(String);

macro_rules! from_errors {
    ($($error:ty),*) => {
        $(impl From<$error> for NodeStartError {
            fn from(error: $error) -> Self {
                Self(error.to_string())
            }
        })*
    };
}

from_errors!(headwater_raft::StartError, headwater_storage::StorageError, std::io::Error);

/// The parts from which [`Node::assemble`] makes a node.
struct Parts {
    consensus: Consensus,
    proposer: Proposer,
    leases: LeasesState,
    members: MembersState,
    metrics: Arc<NodeMetrics>,
    store: Arc<StateStore>,
    events: Arc<EventPublisher>,
    authority: Arc<Authority>,
    audit: AuditLog,
    reaper: Arc<resource::ReaperNotify>,
    log: WeakLog,
    backups: Backups,
    data_dir: DataDir,
    limit_counters: LimitCounters,
    answers: Arc<Answers>,
}

impl Node {
    /// Opens the data directory, and starts consensus and the node's own tasks. The node answers
    /// requests once [`Node::serving`] is true, and needs its peer port to be served before that
    /// ([`Node::consensus`]).
    pub async fn start(options: NodeOptions, registry: &prometheus::Registry) -> Result<Self, NodeStartError> {
        let layout = Layout::new(&options.data_dir);
        if layout.removed().is_set() {
            return Err(NodeStartError(format!(
                "node {} was removed from the cluster, and its id is not used again: to come back under a new id, remove \
                 the data directory {} and start with --join",
                options.node_id,
                options.data_dir.display()
            )));
        }
        // Opened first, so that a node that cannot write its audit log changes nothing else.
        let audit = match &options.audit {
            Some(audit) => {
                AuditLog::open(audit.clone(), registry).map_err(|error| NodeStartError(error.to_string()))?
            }
            None => AuditLog::off(),
        };
        let identity = Identity { cluster_id: options.cluster_id, node_id: options.node_id };
        let (data_dir, log, store) = tokio::task::spawn_blocking({
            let options = options.clone();
            move || {
                let owner = Owner { cluster_id: options.cluster_id, node_id: options.node_id };
                let supported = options.program.supported;
                let data_dir = DataDir::open(&options.data_dir, owner, supported)?;
                let log_options =
                    LogOptions { store_id: data_dir.store_id(), create: !data_dir.is_in_use(), ..options.log };
                let log = LogDb::open(&data_dir.log_dir(), log_options)?;
                let state = StateOptions { supported, version_mark: Some(data_dir.version_mark()), ..options.state };
                let store = StateStore::open(&data_dir.state_dir(), &state)?;
                // From now on a missing database is a loss: this member must not begin again under
                // the same id.
                data_dir.mark_in_use()?;
                Ok::<_, headwater_storage::StorageError>((data_dir, log, Arc::new(store)))
            }
        })
        .await
        .map_err(|error| NodeStartError(error.to_string()))??;
        let origin = layout.read_origin()?.unwrap_or(0);
        log.metrics().register(registry).map_err(|error| NodeStartError(error.to_string()))?;
        store.range_cache_metrics().register(registry).map_err(|error| NodeStartError(error.to_string()))?;

        let weak_log = log.downgrade();
        let head = store.current().head();
        let point = StatePoint { index: head.applied_index(), revision: head.revision, epoch: head.epoch };
        let events = Arc::new(EventPublisher::new(point, options.feed));
        let keeper = lease::keeper(options.lease_clock.clone(), &options.timing);
        keeper.metrics().count_after(point.index);
        keeper.metrics().register(registry).map_err(|error| NodeStartError(error.to_string()))?;
        let reaper = Arc::<resource::ReaperNotify>::default();
        let authority = Arc::new(Authority::new(
            options.auth.clone(),
            AclState::new(options.acl.clone(), options.datacenter.clone()),
            (head.rights_changed, head.acl_changed),
        ));
        let fan_out = Arc::new(CommitFanOut {
            events: events.clone(),
            leases: keeper.clone(),
            reaper: reaper.clone(),
            authority: authority.clone(),
        });
        let consensus = headwater_raft::start(
            ConsensusOptions {
                cluster_id: options.cluster_id,
                node_id: options.node_id,
                dialer: options.dialer.clone(),
                initial_members: options.initial_members.clone(),
                timing: options.timing,
                catch_up_max: options.catch_up_max,
                snapshot_every_entries: options.snapshot_every_entries,
                snapshot_every_bytes: options.snapshot_every_bytes,
                keep_entries: options.keep_entries,
                keep_bytes: options.keep_bytes,
                snapshot_dir: layout.snapshots_dir(),
                incoming_dir: layout.incoming_dir(),
                rejoining: layout.rejoining(),
                removed: layout.removed(),
                origin,
            },
            log,
            store.clone(),
            fan_out,
        )
        .await?;
        let metrics = Arc::new(NodeMetrics::new(consensus.metrics().clone()));
        metrics.register(registry).map_err(|error| NodeStartError(error.to_string()))?;
        let limit_counters = LimitCounters::register(registry).map_err(|error| NodeStartError(error.to_string()))?;
        let answers = Arc::new(Answers::new(limit_counters.clone()));
        answers.register(registry).map_err(|error| NodeStartError(error.to_string()))?;
        let backups = Backups::new(layout.backups_dir()).map_err(headwater_raft::StartError::from)?;
        let proposer = Proposer::start(consensus.clone());
        let leases = LeasesState::start(keeper, &options.timing, consensus.clone(), proposer.clone(), store.clone());
        let own = OwnMember { name: options.own.name.clone(), client_url: options.own.client_url.clone() };
        let members = MembersState::start(
            &consensus,
            options.hand_over_timeout,
            MembershipPolicy { strict: options.strict_reconfig_check, invited_only: options.invited_only },
            own,
            Arc::downgrade(&store),
        );
        let log = weak_log;
        let parts = Parts {
            consensus,
            proposer,
            leases,
            members,
            metrics,
            store,
            events,
            authority,
            audit,
            reaper,
            log,
            backups,
            data_dir,
            limit_counters,
            answers,
        };
        Ok(Self::assemble(identity, &options, parts))
    }

    fn assemble(identity: Identity, options: &NodeOptions, parts: Parts) -> Self {
        let Parts {
            consensus,
            proposer,
            leases,
            members,
            metrics,
            store,
            events,
            authority,
            audit,
            reaper,
            log,
            backups,
            data_dir,
            limit_counters,
            answers,
        } = parts;
        let (serving_tx, serving) = watch::channel(false);
        let (reclaimed_tx, reclaimed) = watch::channel(headwater_types::LogIndex::ZERO);
        let lifecycle = Lifecycle::new(&store, serving, options.hand_over_timeout, log, data_dir);
        let node = Self {
            inner: Arc::new_cyclic(|inner| Inner {
                profile: Profile {
                    identity,
                    name: options.own.name.clone(),
                    datacenter: options.datacenter.clone(),
                    remote_datacenters: options.remote_datacenters.clone(),
                    client_dialer: options.client_dialer.clone(),
                    program: options.program.clone(),
                },
                reads: ReadPath::start(consensus.clone(), metrics.clone()),
                answers,
                limit_counters,
                follow: FollowState::new(events.clone(), options.watchers_max, inner.clone()),
                consensus: consensus.clone(),
                store: store.clone(),
                metrics: metrics.clone(),
                proposer,
                authority,
                audit,
                max_request_bytes: options.max_request_bytes,
                leases,
                members,
                resource_types: resource::TypeRegistry::default(),
                contenders: Shares::new(CONTENDERS_MAX),
                request_rate: options.request_rate.map(RequestRate::new),
                maintenance: MaintenanceState::new(backups, options.quota, reclaimed),
                lifecycle,
            }),
        };
        consensus.figures().serve(OwnFigures::new(Arc::downgrade(&node.inner)));
        tokio::spawn(events.kv().wake_readers());
        tokio::spawn(events.kv().serve_catch_up(Arc::new(StateHistory::new(store.clone(), events.kv()))));
        tokio::spawn(events.resources().wake_readers());
        tokio::spawn(events.resources().serve_catch_up(Arc::new(StateHistory::new(store.clone(), events.resources()))));
        tokio::spawn(events.catalog().wake_readers());
        tokio::spawn(events.catalog().serve_catch_up(Arc::new(StateHistory::new(store.clone(), events.catalog()))));
        tokio::spawn(events.cluster().wake_readers());
        tokio::spawn(events.cluster().serve_catch_up(Arc::new(StateHistory::new(store.clone(), events.cluster()))));
        tokio::spawn(follow::sweep(Arc::downgrade(&node.inner)));
        tokio::spawn(resource::keep_tenancy(Arc::downgrade(&node.inner)));
        tokio::spawn(resource::reap(consensus.clone(), Arc::downgrade(&node.inner), reaper));
        tokio::spawn(tasks::recover(consensus.clone(), serving_tx));
        tokio::spawn(tasks::name_epoch(Arc::downgrade(&node.inner)));
        tokio::spawn(alarms::keep_quota(Arc::downgrade(&node.inner)));
        tokio::spawn(versions::keep(Arc::downgrade(&node.inner)));
        tokio::spawn(acl::keep_expiry(Arc::downgrade(&node.inner)));
        if let Some(retention) = options.history_retention {
            tokio::spawn(retention::keep_history(Arc::downgrade(&node.inner), retention));
        }
        tokio::spawn(tasks::reclaim(consensus, store, reclaimed_tx, metrics));
        node
    }
}
