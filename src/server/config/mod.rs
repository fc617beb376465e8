//! The configuration of a node, and its sources: flags, before environment, before a TOML file,
//! before defaults.
//!
//! Owns every setting's name, meaning and default ([`SETTINGS`]), and the rules between settings.
//! Reads one file and touches nothing else: no sockets, no directories. Invariant: a [`Config`]
//! that exists is valid, and a refused one was refused with *all* its problems, each under the name
//! that the user wrote.
//!
//! ```
//! # use headwater_server::config::{Config, Sources};
//! let config = Config::load(&Sources::default()).expect("the defaults are valid");
//! assert_eq!(config.listen_client.port(), 2379);
//! ```

mod check;
mod error;
mod settings;
mod show;
mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use error::{ConfigError, Problem};
pub use settings::{SETTINGS, Setting};
pub use value::size as parse_size;

use headwater_types::NodeId;
use settings::Draft;

/// How a node is set up. Made by [`Config::load`] only.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Identity of this node.
    pub node: NodeConfig,
    /// Where everything that the node keeps lives; created if missing.
    pub data_dir: PathBuf,
    /// Where clients connect (gRPC and HTTP).
    pub listen_client: SocketAddr,
    /// Where clients on the same machine connect besides: the path of a Unix socket.
    pub listen_client_unix: Option<PathBuf>,
    /// Where the other nodes connect.
    pub listen_peer: SocketAddr,
    /// `http://host:port` under which clients reach this node.
    pub advertise_client: String,
    /// `http://host:port` under which the other nodes reach this node.
    pub advertise_peer: String,
    /// The cluster as it is first formed; without members if this node joins one that exists.
    pub cluster: ClusterConfig,
    /// How this node joins a cluster that exists.
    pub join: Option<JoinConfig>,
    /// Whether a voter is announced only while all voters run (etcd's `--strict-reconfig-check`).
    pub strict_reconfig_check: bool,
    /// Raft's clocks and log retention.
    pub raft: RaftConfig,
    /// Memory that storage may use.
    pub storage: StorageConfig,
    /// Threads.
    pub runtime: RuntimeConfig,
    /// Limits of watchers.
    pub watch: WatchConfig,
    /// How much may be stored.
    pub quota: QuotaConfig,
    /// Retention of history.
    pub history: HistoryConfig,
    /// The service catalog as Consul's clients see it.
    pub consul: ConsulConfig,
    /// How DNS is answered.
    pub dns: DnsConfig,
    /// Limits that an operator may move; all others are constants of `types::limits`.
    pub limits: LimitsConfig,
    /// Level and form of the log.
    pub log: LogConfig,
}

/// Identity of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Unique in the cluster, never used again. Zero for a node that joins, until the cluster has
    /// given it one.
    pub id: NodeId,
    /// For people; unique in the cluster.
    pub name: String,
}

/// The cluster as it is first formed. Token and members together give the cluster its id; a node
/// that has data takes its membership from there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Tells clusters with equal members apart; part of the cluster's id.
    pub token: String,
    /// The first voters, this node among them, by id.
    pub initial: Vec<InitialMember>,
}

/// How a node joins a cluster that exists. Its id is given by the cluster, and kept with its data:
/// a node that has data asks nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinConfig {
    /// `http://host:port` of client ports of members; one that answers is enough.
    pub endpoints: Vec<String>,
    /// Whether the node is never to vote unless it is promoted.
    pub learner: bool,
}

/// One of the first voters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialMember {
    /// Its id.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// `http://host:port` of its peer port.
    pub peer: String,
    /// `http://host:port` of its client port.
    pub client: String,
}

/// Raft's clocks and log retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaftConfig {
    /// How often a leader says that it leads.
    pub heartbeat: Duration,
    /// Shortest wait of a candidate.
    pub election_min: Duration,
    /// Longest wait of a candidate; also how long a follower trusts a silent leader.
    pub election_max: Duration,
    /// Log entries between two snapshots, count; `SNAPSHOT_EVERY_BYTES` of commands may come first.
    pub snapshot_every: u64,
    /// Log entries kept behind a snapshot for followers that lag, count; at most `LOG_KEEP_BYTES`
    /// of commands.
    pub log_keep: u64,
}

/// Memory that storage may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageConfig {
    /// Cache of uncompressed blocks of the state, bytes.
    pub block_cache_bytes: u64,
    /// One write buffer of the state, bytes a column family.
    pub state_memtable_bytes: u64,
    /// One write buffer of the Raft log, bytes.
    pub log_memtable_bytes: u64,
}

/// Threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// Threads that serve requests; the log writer and storage have their own.
    pub worker_threads: usize,
}

/// Limits and times of watchers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchConfig {
    /// Recent changes of each topic kept in memory, bytes: bounds the commits that slow readers of
    /// it pin together.
    pub window_bytes: u64,
    /// Recent changes of each topic kept in memory, count.
    pub window_commits: u64,
    /// One read of history for watchers that are behind, bytes: one that stands still may pin as
    /// much.
    pub catch_up_bytes: u64,
    /// One read of history for watchers that are behind, count.
    pub catch_up_commits: u64,
    /// How often an idle watcher that asked for it hears how far it has come.
    pub progress_interval: Duration,
    /// How long a watch that requires a leader, and every stream of the watcher, goes on without
    /// one.
    pub leader_loss_timeout: Duration,
}

/// How much may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaConfig {
    /// The most that live keys and values may take, bytes; `None` is no bound.
    pub bytes_max: Option<u64>,
    /// Whether the alarm goes by itself once there is room again.
    pub auto_disarm: bool,
}

/// Retention of history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryConfig {
    /// How long changes and old values can be read at least; until somebody compacts them if not
    /// set.
    pub retention: Option<Duration>,
}

/// The service catalog as Consul's clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsulConfig {
    /// The name of this cluster's datacenter: a DNS label in lower case, equal on all members.
    pub datacenter: String,
    /// Client addresses of other clusters' members, by the names of their datacenters.
    pub remote_datacenters: BTreeMap<String, Vec<String>>,
}

/// How DNS is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsConfig {
    /// Where, over UDP and TCP; nowhere if not set.
    pub listen: Option<SocketAddr>,
    /// Below which domain.
    pub domain: String,
    /// How long resolvers may remember an answer; whole seconds.
    pub ttl: Duration,
    /// Most answers over UDP to a client that takes no more than 512 bytes, count.
    pub udp_answers: u64,
    /// Whether instances with a warning are left out, too.
    pub only_passing: bool,
}

/// Limits that an operator may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Longest time that a request without a deadline of its own may take.
    pub request_timeout: Duration,
    /// Largest request, as a command in the log, bytes (etcd's `--max-request-bytes`).
    pub max_request_bytes: u64,
    /// Most compares, or operations, in one list of a transaction (etcd's `--max-txn-ops`).
    pub max_txn_ops: u64,
}

/// Level and form of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// A level, or directives such as `info,headwater_raft=debug`.
    pub level: String,
    /// How a line looks.
    pub format: LogFormat,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Where settings come from, weakest first.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// A TOML file.
    pub file: Option<PathBuf>,
    /// Environment variables; those that are not even nearly named as a setting are left alone, for
    /// others may use the prefix too.
    pub environment: Vec<(String, String)>,
    /// Flags, as (setting's key, text).
    pub flags: Vec<(&'static str, String)>,
}

impl Config {
    /// Reads all sources, strongest last, and checks the whole.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with every problem of every source at once.
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        let mut draft = Draft::default();
        let mut problems = Vec::new();
        if let Some(path) = &sources.file {
            let text = std::fs::read_to_string(path)
                .map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?;
            let table = text.parse::<toml::Table>().map_err(|error| ConfigError::Syntax {
                path: path.clone(),
                detail: error.to_string().trim_end().to_owned(),
            })?;
            draft.read_table(&table, &path.display().to_string(), &mut problems);
        }
        problems.extend(sources.environment.iter().filter_map(|(name, _)| settings::misspelt(name)));
        for setting in SETTINGS {
            let variable = setting.variable();
            if let Some((_, text)) = sources.environment.iter().find(|(name, _)| *name == variable) {
                draft.read_text(setting, text, &variable, &mut problems);
            }
        }
        for (key, text) in &sources.flags {
            let setting = Setting::find(key).expect("flags are made from the table of settings");
            draft.read_text(setting, text, &setting.flag(), &mut problems);
        }
        check::finish(draft, problems)
    }
}
