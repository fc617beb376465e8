//! The configuration of a node, and its sources: flags, before environment, before a TOML file,
//! before defaults.
//!
//! Owns every setting's name, meaning and default ([`SETTINGS`]), and the rules between settings.
//! [`Config::load`] reads one file and touches nothing else: no sockets, no directories. Invariant:
//! a [`Config`] that exists is valid. [`ConfigError::Invalid`] has *all* unknown names and
//! unreadable values or, if there are none, all broken rules, each with the key of its setting.
//!
//! ```
//! # use headwater_server::config::{Config, Sources};
//! let config = Config::load(&Sources::default()).expect("the defaults are valid");
//! assert_eq!(config.listen_client.port(), 2379);
//! ```

mod acl;
mod audit;
mod auth;
mod check;
mod check_tls;
mod check_watch;
mod draft;
mod error;
mod fill;
mod metrics;
mod settings;
mod show;
mod value;
mod variables;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use acl::AclConfig;
pub use error::{ConfigError, Problem};
pub use settings::{SETTINGS, Setting};
pub use value::size as parse_size;

use draft::Draft;
use headwater_api::ConsoleMode;
use headwater_node::AuditOptions;
use headwater_tls::{CertificateFiles, ClientCertificates, MinVersion};
use headwater_types::NodeId;

/// The valid configuration of a node. Made by [`Config::load`] only.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Identity of this node.
    pub node: NodeConfig,
    /// The data directory; created if missing.
    pub data_dir: PathBuf,
    /// Address of the client port (gRPC and HTTP).
    pub listen_client: SocketAddr,
    /// Path of the Unix socket for clients on the same machine; `None` for no such socket.
    pub listen_client_unix: Option<PathBuf>,
    /// Address of the peer port, for the other nodes.
    pub listen_peer: SocketAddr,
    /// URL under which clients reach this node: `http://` or `https://`, host and port.
    pub advertise_client: String,
    /// URL under which the other nodes reach this node: `http://` or `https://`, host and port.
    pub advertise_peer: String,
    /// The cluster as it is first formed. It has no members if this node joins a cluster that
    /// exists.
    pub cluster: ClusterConfig,
    /// The request to join a cluster that exists; `None` for a first member.
    pub join: Option<JoinConfig>,
    /// Whether a node that was not announced needs an invitation to join. The value of the leader
    /// applies.
    pub invited_only: bool,
    /// Whether a voter can be announced only while all voters run (etcd's
    /// `--strict-reconfig-check`). The value of the leader applies.
    pub strict_reconfig_check: bool,
    /// Raft's clocks and log retention.
    pub raft: RaftConfig,
    /// Sizes of storage's block cache and write buffers.
    pub storage: StorageConfig,
    /// Threads of the process.
    pub runtime: RuntimeConfig,
    /// Limits and times of watchers.
    pub watch: WatchConfig,
    /// Bounds of the stored data.
    pub quota: QuotaConfig,
    /// Retention of history.
    pub history: HistoryConfig,
    /// The service catalog as Consul's clients see it.
    pub consul: ConsulConfig,
    /// Consul's access control lists.
    pub acl: AclConfig,
    /// The DNS ports, and how questions are answered.
    pub dns: DnsConfig,
    /// The metrics port.
    pub metrics: MetricsConfig,
    /// Web pages from which browsers may call the client port, and names by which they may address
    /// it.
    pub http: HttpConfig,
    /// Whether the console is served on the client port, and whether it offers changes.
    pub ui: ConsoleMode,
    /// Limits of requests and connections.
    pub limits: LimitsConfig,
    /// Certificates of the ports.
    pub tls: TlsConfig,
    /// Whether a port beyond loopback may be served in plain text.
    pub insecure: bool,
    /// Tokens of users.
    pub auth: AuthConfig,
    /// The audit log; `None` for none.
    pub audit: Option<AuditOptions>,
    /// Level and form of the log.
    pub log: LogConfig,
}

/// Tokens of users of etcd's authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthConfig {
    /// Kind of the tokens.
    pub token: TokenConfig,
    /// Time that a simple token lives after its last use.
    pub token_ttl: Duration,
}

/// Kind of the tokens of users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TokenConfig {
    /// Random texts, which every member remembers.
    #[default]
    Simple,
    /// Signed JSON web tokens, which no member remembers.
    Signed(SignedTokenConfig),
}

/// Signed tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedTokenConfig {
    /// File of the public key, PEM.
    pub public_key: PathBuf,
    /// File of the private key, PEM; without it this member issues none.
    pub private_key: Option<PathBuf>,
    /// The algorithm, as in a token's header.
    pub method: String,
    /// Time that a token lives after it was made.
    pub ttl: Duration,
}

/// Certificates of the ports; a port without files is served in plain text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// Files of the client port.
    pub clients: CertificateFiles,
    /// Whether the client port takes certificates of clients, or requires them.
    pub client_certificates: ClientCertificates,
    /// Files of the peer port.
    pub peers: CertificateFiles,
    /// Files of the metrics port.
    pub metrics: CertificateFiles,
    /// Whether the metrics port takes certificates of clients, or requires them.
    pub metrics_client_certificates: ClientCertificates,
    /// The lowest version of TLS on all ports.
    pub min_version: MinVersion,
}

/// Identity of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Id of the member, unique in the cluster and never used again. Zero for a node that joins,
    /// until the cluster has given it one.
    pub id: NodeId,
    /// Name for people; unique in the cluster.
    pub name: String,
}

/// The cluster as it is first formed. The token and the members' ids and peer URLs determine the
/// cluster's id. A node that has data takes its membership from the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// A text that distinguishes clusters with equal members; part of the cluster's id.
    pub token: String,
    /// The first voters, this node among them, in the order of their ids. Empty for a node that
    /// joins.
    pub initial: Vec<InitialMember>,
}

/// The request with which a node joins a cluster that exists. The cluster chooses the node's id,
/// which is stored with its data: a node that has data sends no request to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinConfig {
    /// URLs of client ports of members; one that answers is enough.
    pub endpoints: Vec<String>,
    /// Whether the node stays a learner until a client promotes it.
    pub learner: bool,
    /// A file with the token of an invitation; `None` to show none.
    pub token_file: Option<PathBuf>,
}

/// One of the first voters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialMember {
    /// Id of the member.
    pub id: NodeId,
    /// Name of the member.
    pub name: String,
    /// URL of its peer port: `http://` or `https://`, host and port.
    pub peer: String,
    /// URL of its client port: `http://` or `https://`, host and port.
    pub client: String,
}

/// Raft's clocks and log retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaftConfig {
    /// Time between two heartbeats of a leader.
    pub heartbeat: Duration,
    /// Shortest wait of a follower before it stands for election. The wait begins `election_max`
    /// after the last message of the leader.
    pub election_min: Duration,
    /// Longest wait of a follower before it stands for election. Also the time for which a follower
    /// trusts a silent leader before that wait begins.
    pub election_max: Duration,
    /// Most log entries between two snapshots, count. A snapshot is made earlier after
    /// `limits::SNAPSHOT_EVERY_BYTES` of commands.
    pub snapshot_every: u64,
    /// Log entries kept although a snapshot covers them, for followers that lag, count. About a
    /// thousand more may stay. Fewer are kept if their commands exceed `limits::LOG_KEEP_BYTES`.
    pub log_keep: u64,
}

/// Sizes of storage's block cache and write buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageConfig {
    /// Size of the cache of uncompressed blocks of the state, bytes.
    pub block_cache_bytes: u64,
    /// Size of one write buffer of one column family of the state, bytes.
    pub state_memtable_bytes: u64,
    /// Size of one write buffer of one column family of the Raft log, bytes.
    pub log_memtable_bytes: u64,
}

/// Threads of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// Threads that serve requests; the log writer and storage have their own.
    pub worker_threads: usize,
}

/// Limits and times of watchers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchConfig {
    /// Bound on the window of each topic, its recent changes in memory, bytes. All readers share
    /// it. A reader that is behind the window also holds one read of history, bounded by
    /// `catch_up_bytes`.
    pub window_bytes: u64,
    /// Most commits in the window of each topic, count.
    pub window_commits: u64,
    /// Bound on one read of history for readers that are behind, bytes. A read ends with the commit
    /// that reaches the bound, so it may exceed the bound by almost that whole commit. Each stalled
    /// reader may hold one such read in memory.
    pub catch_up_bytes: u64,
    /// Most commits of one read of history for readers that are behind, count.
    pub catch_up_commits: u64,
    /// Time between two progress reports to an idle watcher that asked for them.
    pub progress_interval: Duration,
    /// Time without a leader after which streams end: watches that require a leader, all streams of
    /// the watcher API, and live histories of the store API.
    pub leader_loss_timeout: Duration,
}

/// Bounds of the stored data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaConfig {
    /// Quota of live keys and values, bytes; `None` for no quota.
    pub bytes_max: Option<u64>,
    /// Whether the leader disarms `NOSPACE` alarms by itself once the live data takes at most nine
    /// tenths of the quota.
    pub auto_disarm: bool,
}

/// Retention of history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryConfig {
    /// Age above which changes and old values are compacted; a client may compact them earlier.
    /// `None`: only clients compact.
    pub retention: Option<Duration>,
}

/// The service catalog as Consul's clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsulConfig {
    /// The name of this cluster's datacenter: a DNS label in lower case, equal on all members.
    pub datacenter: String,
    /// Client addresses of other clusters' members, by the names of their datacenters: `HOST:PORT`,
    /// or `https://HOST:PORT` for those that are reached by TLS.
    pub remote_datacenters: BTreeMap<String, Vec<String>>,
}

/// The DNS ports and their answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsConfig {
    /// Address of plain DNS, over UDP and TCP; `None` if DNS is not served.
    pub listen: Option<SocketAddr>,
    /// Address of DNS over TLS; `None` for no such port. Set only with `listen` and a certificate
    /// of the client port.
    pub tls_listen: Option<SocketAddr>,
    /// The domain below which names are answered, such as `consul`.
    pub domain: String,
    /// Time for which resolvers may cache an answer; whole seconds.
    pub ttl: Duration,
    /// Most records in an answer over UDP to a client that accepts no more than 512 bytes, count.
    pub udp_answers: u64,
    /// Whether instances with a warning are left out. Those with a critical check always are.
    pub only_passing: bool,
}

/// The metrics port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Address of the metrics port; `None` for no such port.
    pub listen: Option<SocketAddr>,
    /// Whether the client port serves `/metrics`, too.
    pub on_client_port: bool,
}

/// Web pages from which browsers may call the client port, and names by which they may address it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpConfig {
    /// Other origins whose pages may call the client port; `*` is all of them. Pages of the
    /// server's own origin, such as the console, need no entry.
    pub allowed_origins: Vec<String>,
    /// Names of this server that browsers may use, beside IP addresses, `localhost` and the host of
    /// `advertise_client`; `*` is all of them.
    pub allowed_hosts: Vec<String>,
}

/// Limits of requests and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Longest time that a request may take; an earlier deadline of the client holds. Streams and
    /// waits (locks, elections, blocking queries) may last longer: the bound is for each of their
    /// reads and writes, unless these have a constant timeout. That is 5 s for a read of a
    /// contender or observer, and 30 s for a part of a history (`Store.History`).
    pub request_timeout: Duration,
    /// Largest request, as a command in the log, bytes (etcd's `--max-request-bytes`).
    pub max_request_bytes: u64,
    /// Most compares, or operations, in one list of a transaction (etcd's `--max-txn-ops`).
    pub max_txn_ops: u64,
    /// Most connections of one IPv4 address, or one /64 of IPv6, to one kind of port (client, peer
    /// or metrics). `None` for half of all connections of that kind, whose number follows from the
    /// limit of open files.
    pub connections_per_address: Option<u64>,
    /// Most requests of one client a second; `None` for any number.
    pub requests_per_second: Option<u32>,
    /// Largest burst: requests that one client may send at once after a pause. `None` for as many
    /// as `requests_per_second`.
    pub burst: Option<u32>,
}

/// Level and form of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// A level, or directives such as `info,headwater_raft=debug`.
    pub level: String,
    /// Form of a log line.
    pub format: LogFormat,
}

/// Form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The sources of settings. A later field overrides an earlier one.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// A TOML file; `None` for none.
    pub file: Option<PathBuf>,
    /// Environment variables, as (name, value). A name that begins with `HEADWATER_` and is one or
    /// two edits from that of a setting is refused. Names of no setting are otherwise ignored,
    /// because other programs may use the prefix, too.
    pub environment: Vec<(String, String)>,
    /// Flags, as (key of a setting, text). A later flag of one setting overrides an earlier one.
    pub flags: Vec<(&'static str, String)>,
}

impl Config {
    /// Reads all sources, fills in defaults, and checks all rules.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Unreadable`] or [`ConfigError::Syntax`] for the file; otherwise
    /// [`ConfigError::Invalid`] with all unknown names and unreadable values of all sources or, if
    /// there are none, with all broken rules.
    ///
    /// # Panics
    ///
    /// If the key of a flag is not that of a setting.
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
        problems.extend(sources.environment.iter().filter_map(|(name, _)| variables::misspelt(name)));
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
