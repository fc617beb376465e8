//! The table of settings: one row gives a setting its key in the file, its help and its type. Its
//! variable and its flag are made from the key.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use headwater_tls::{ClientCertificates, MinVersion};

use super::draft::Draft;
use super::{InitialMember, LogFormat, TokenConfig};

/// One setting of a node.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The setting's key in the file, such as `raft.heartbeat`.
    pub key: &'static str,
    /// Form of the value, for help texts.
    pub form: &'static str,
    /// Text of the default, for help texts.
    pub default: &'static str,
    /// Meaning of the setting, in one sentence.
    pub help: &'static str,
    pub(super) put: Put,
}

/// Type of a setting, with the function that puts its value into the draft.
#[derive(Clone, Copy, Debug)]
pub(super) enum Put {
    Text(fn(&mut Draft, String)),
    Path(fn(&mut Draft, PathBuf)),
    PathOrOff(fn(&mut Draft, Option<PathBuf>)),
    ClientCertificates(fn(&mut Draft, ClientCertificates)),
    MinVersion(fn(&mut Draft, MinVersion)),
    Whole(fn(&mut Draft, u64)),
    Duration(fn(&mut Draft, Duration)),
    DurationOrOff(fn(&mut Draft, Option<Duration>)),
    Size(fn(&mut Draft, u64)),
    /// A size: a text with a unit, or a whole number of bytes.
    Bytes(fn(&mut Draft, u64)),
    SocketOrOff(fn(&mut Draft, Option<PathBuf>)),
    Address(fn(&mut Draft, SocketAddr)),
    AddressOrOff(fn(&mut Draft, Option<SocketAddr>)),
    Url(fn(&mut Draft, String)),
    Members(fn(&mut Draft, Vec<InitialMember>)),
    Endpoints(fn(&mut Draft, Vec<String>)),
    Switch(fn(&mut Draft, bool)),
    Format(fn(&mut Draft, LogFormat)),
    Token(fn(&mut Draft, TokenConfig)),
    Quota(fn(&mut Draft, Option<u64>)),
}

/// Every setting, in the order in which help and documentation show them.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "node.id",
        form: "NUMBER",
        default: "1, if the node is alone",
        help: "This node's id: unique in the cluster, above zero",
        put: Put::Whole(|d, v| d.node_id = Some(v)),
    },
    Setting {
        key: "node.name",
        form: "NAME",
        default: "the name in cluster.initial, or node<ID>",
        help: "This node's name, for people",
        put: Put::Text(|d, v| d.node_name = Some(v)),
    },
    Setting {
        key: "data-dir",
        form: "DIR",
        default: "headwater-data",
        help: "Where the node keeps everything; created if missing",
        put: Put::Path(|d, v| d.data_dir = Some(v)),
    },
    Setting {
        key: "listen-client",
        form: "IP:PORT",
        default: "127.0.0.1:2379",
        help: "Where clients connect, gRPC and HTTP",
        put: Put::Address(|d, v| d.listen_client = Some(v)),
    },
    Setting {
        key: "listen-client-unix",
        form: "unix:///PATH|off",
        default: "off",
        help: "A Unix socket where clients on this machine connect as well; its owner and group may",
        put: Put::SocketOrOff(|d, v| d.listen_client_unix = Some(v)),
    },
    Setting {
        key: "listen-peer",
        form: "IP:PORT",
        default: "127.0.0.1:2380",
        help: "Where the other nodes connect",
        put: Put::Address(|d, v| d.listen_peer = Some(v)),
    },
    Setting {
        key: "advertise-client",
        form: "URL",
        default: "as in cluster.initial, or from listen-client",
        help: "How clients reach this node",
        put: Put::Url(|d, v| d.advertise_client = Some(v)),
    },
    Setting {
        key: "advertise-peer",
        form: "URL",
        default: "as in cluster.initial, or from listen-peer",
        help: "How the other nodes reach this node",
        put: Put::Url(|d, v| d.advertise_peer = Some(v)),
    },
    Setting {
        key: "cluster.token",
        form: "TEXT",
        default: "headwater",
        help: "Tells clusters apart; nodes with different tokens do not talk",
        put: Put::Text(|d, v| d.cluster_token = Some(v)),
    },
    Setting {
        key: "cluster.initial",
        form: "LIST",
        default: "this node alone",
        help: "The first voters, a TOML list of { id, name, peer, client }; with the token they name the cluster, so keep it",
        put: Put::Members(|d, v| d.cluster_initial = Some(v)),
    },
    Setting {
        key: "join",
        form: "HOST:PORT,…",
        default: "form a cluster",
        help: "Join the cluster that one of these members' client ports belongs to; ignored once there is data",
        put: Put::Endpoints(|d, v| d.join = Some(v)),
    },
    Setting {
        key: "learner",
        form: "BOOL",
        default: "false",
        help: "With join: follow without a vote until promoted, instead of voting once caught up",
        put: Put::Switch(|d, v| d.learner = Some(v)),
    },
    Setting {
        key: "join-token-file",
        form: "FILE|off",
        default: "off",
        help: "With join: a file with the token of an invitation, which no other user may read; ignored once there is data",
        put: Put::PathOrOff(|d, v| d.join_token_file = Some(v)),
    },
    Setting {
        key: "cluster.invited-only",
        form: "true|false",
        default: "true",
        help: "Whether a node that was not announced joins by invitation alone; the leader's value counts",
        put: Put::Switch(|d, v| d.cluster_invited_only = Some(v)),
    },
    Setting {
        key: "strict-reconfig-check",
        form: "true|false",
        default: "true",
        help: "Whether a voter is announced only while all voters run; what could lose the majority is refused either way",
        put: Put::Switch(|d, v| d.strict_reconfig_check = Some(v)),
    },
    Setting {
        key: "raft.heartbeat",
        form: "DURATION",
        default: "100ms",
        help: "How often a leader says that it leads",
        put: Put::Duration(|d, v| d.raft_heartbeat = Some(v)),
    },
    Setting {
        key: "raft.election-min",
        form: "DURATION",
        default: "300ms",
        help: "Shortest wait of a candidate, on top of raft.election-max",
        put: Put::Duration(|d, v| d.raft_election_min = Some(v)),
    },
    Setting {
        key: "raft.election-max",
        form: "DURATION",
        default: "600ms",
        help: "Longest wait of a candidate, and how long a silent leader is trusted",
        put: Put::Duration(|d, v| d.raft_election_max = Some(v)),
    },
    Setting {
        key: "raft.snapshot-every",
        form: "NUMBER",
        default: "100000",
        help: "Log entries between two snapshots, or 128 MiB of commands, whichever comes first",
        put: Put::Whole(|d, v| d.raft_snapshot_every = Some(v)),
    },
    Setting {
        key: "raft.log-keep",
        form: "NUMBER",
        default: "100000",
        help: "Log entries, but never more than 256 MiB of commands, kept behind a snapshot, so that a short absence needs no snapshot",
        put: Put::Whole(|d, v| d.raft_log_keep = Some(v)),
    },
    Setting {
        key: "storage.block-cache",
        form: "SIZE",
        default: "64MiB",
        help: "Memory for blocks read from the state",
        put: Put::Size(|d, v| d.storage_block_cache = Some(v)),
    },
    Setting {
        key: "storage.state-memtable",
        form: "SIZE",
        default: "16MiB",
        help: "One write buffer of the state, for each column family",
        put: Put::Size(|d, v| d.storage_state_memtable = Some(v)),
    },
    Setting {
        key: "storage.log-memtable",
        form: "SIZE",
        default: "4MiB",
        help: "One write buffer of the Raft log in clusters of version 0.3",
        put: Put::Size(|d, v| d.storage_log_memtable = Some(v)),
    },
    Setting {
        key: "runtime.worker-threads",
        form: "NUMBER",
        default: "half the processors, at least 1",
        help: "Threads that serve requests",
        put: Put::Whole(|d, v| d.runtime_worker_threads = Some(v)),
    },
    Setting {
        key: "watch.window-size",
        form: "SIZE",
        default: "64MiB",
        help: "Memory for recent changes of each topic that slow readers may still read; older ones come from disk",
        put: Put::Size(|d, v| d.watch_window_bytes = Some(v)),
    },
    Setting {
        key: "watch.window-commits",
        form: "NUMBER",
        default: "65536",
        help: "Recent changes of each topic that slow readers may still read from memory",
        put: Put::Whole(|d, v| d.watch_window_commits = Some(v)),
    },
    Setting {
        key: "watch.catch-up-size",
        form: "SIZE",
        default: "512KiB",
        help: "What one read from disk for slow watchers takes; each that stands still may hold one",
        put: Put::Size(|d, v| d.watch_catch_up_bytes = Some(v)),
    },
    Setting {
        key: "watch.catch-up-commits",
        form: "NUMBER",
        default: "1000",
        help: "Changes that one read from disk for slow watchers takes",
        put: Put::Whole(|d, v| d.watch_catch_up_commits = Some(v)),
    },
    Setting {
        key: "watch.progress-interval",
        form: "DURATION",
        default: "10m",
        help: "How often idle watchers that want to know hear how far they have come",
        put: Put::Duration(|d, v| d.watch_progress_interval = Some(v)),
    },
    Setting {
        key: "watch.leader-loss-timeout",
        form: "DURATION",
        default: "3s",
        help: "How long a watch that requires a leader, and every stream of the watcher, goes on without one",
        put: Put::Duration(|d, v| d.watch_leader_loss_timeout = Some(v)),
    },
    Setting {
        key: "quota.backend-bytes",
        form: "SIZE|off",
        default: "2GiB",
        help: "How much live keys and values may take; past it puts are refused until the alarm is disarmed",
        put: Put::Quota(|d, v| d.quota_bytes = Some(v)),
    },
    Setting {
        key: "quota.auto-disarm",
        form: "true|false",
        default: "false",
        help: "Whether that alarm goes by itself once nine tenths of the quota suffice",
        put: Put::Switch(|d, v| d.quota_auto_disarm = Some(v)),
    },
    Setting {
        key: "history.retention",
        form: "DURATION|off",
        default: "1h",
        help: "How long changes and old values can still be read; older ones are given up",
        put: Put::DurationOrOff(|d, v| d.history_retention = Some(v)),
    },
    Setting {
        key: "consul.datacenter",
        form: "NAME",
        default: "dc1",
        help: "The datacenter's name in the service catalog; the same on all members",
        put: Put::Text(|d, v| d.consul_datacenter = Some(v)),
    },
    Setting {
        key: "consul.remote-datacenters",
        form: "NAME=[https://]HOST:PORT+…,…|none",
        default: "none",
        help: "Other clusters, to which subscriptions that name their datacenter are forwarded",
        put: Put::Text(|d, v| d.consul_remote_datacenters = Some(v)),
    },
    Setting {
        key: "acl.enabled",
        form: "true|false",
        default: "false",
        help: "Whether requests are judged by Consul's access control lists; the same on all members",
        put: Put::Switch(|d, v| d.acl_enabled = Some(v)),
    },
    Setting {
        key: "acl.default-policy",
        form: "allow|deny",
        default: "allow",
        help: "Whether a token may do what none of its rules speaks of",
        put: Put::Text(|d, v| d.acl_default_policy = Some(v)),
    },
    Setting {
        key: "acl.key-list-policy",
        form: "true|false",
        default: "false",
        help: "Whether keys below a prefix are listed only with the right list",
        put: Put::Switch(|d, v| d.acl_key_list_policy = Some(v)),
    },
    Setting {
        key: "acl.initial-management-token",
        form: "FILE|off",
        default: "off",
        help: "File, of this user alone, with the secret of a token with all rights, which is made if it does not exist",
        put: Put::PathOrOff(|d, v| d.acl_initial_management = Some(v)),
    },
    Setting {
        key: "acl.dns-token",
        form: "FILE|off",
        default: "off",
        help: "File, of this user alone, with the secret of the token that DNS questions stand for, in place of the anonymous one",
        put: Put::PathOrOff(|d, v| d.acl_dns_token = Some(v)),
    },
    Setting {
        key: "acl.bootstrap-reset",
        form: "NUMBER",
        default: "0",
        help: "Index of the last bootstrap, which then may be repeated: the way back after all tokens were lost",
        put: Put::Whole(|d, v| d.acl_bootstrap_reset = Some(v)),
    },
    Setting {
        key: "dns.listen",
        form: "IP:PORT|off",
        default: "off",
        help: "Where DNS is answered, over UDP and TCP; Consul's port is 8600",
        put: Put::AddressOrOff(|d, v| d.dns_listen = Some(v)),
    },
    Setting {
        key: "dns.tls-listen",
        form: "IP:PORT|off",
        default: "off",
        help: "Where DNS is answered by TLS, with tls.cert and tls.client-certs; the usual port is 853",
        put: Put::AddressOrOff(|d, v| d.dns_tls_listen = Some(v)),
    },
    Setting {
        key: "dns.domain",
        form: "NAME",
        default: "consul",
        help: "The domain below which services and nodes have names",
        put: Put::Text(|d, v| d.dns_domain = Some(v)),
    },
    Setting {
        key: "dns.ttl",
        form: "DURATION",
        default: "0s",
        help: "How long resolvers may remember an answer, in whole seconds",
        put: Put::Duration(|d, v| d.dns_ttl = Some(v)),
    },
    Setting {
        key: "dns.udp-answers",
        form: "NUMBER",
        default: "3",
        help: "Answers that a client gets over UDP which takes no more than 512 bytes",
        put: Put::Whole(|d, v| d.dns_udp_answers = Some(v)),
    },
    Setting {
        key: "dns.only-passing",
        form: "true|false",
        default: "false",
        help: "Whether instances with a warning are left out, as those with a critical check always are",
        put: Put::Switch(|d, v| d.dns_only_passing = Some(v)),
    },
    Setting {
        key: "metrics.listen",
        form: "IP:PORT|off",
        default: "off",
        help: "A port for metrics, health and versions alone, which asks for no rights; 127.0.0.1:2381 is usual with etcd",
        put: Put::AddressOrOff(|d, v| d.metrics_listen = Some(v)),
    },
    Setting {
        key: "metrics.on-client-port",
        form: "true|false",
        default: "true",
        help: "Whether /metrics is also served on the client port",
        put: Put::Switch(|d, v| d.metrics_on_client_port = Some(v)),
    },
    Setting {
        key: "limits.request-timeout",
        form: "DURATION",
        default: "7s",
        help: "Longest time that a request may take; an earlier deadline of the client holds",
        put: Put::Duration(|d, v| d.limits_request_timeout = Some(v)),
    },
    Setting {
        key: "limits.connections-per-address",
        form: "NUMBER",
        default: "0, half of all",
        help: "Connections that one address may have, or one /64 of IPv6; 0 for half of all that the limit of open files allows",
        put: Put::Whole(|d, v| d.connections_per_address = Some(v)),
    },
    Setting {
        key: "limits.requests-per-second",
        form: "NUMBER",
        default: "0, any number",
        help: "Requests of one client a second, by its certificate's name, else its address; 0 for any number",
        put: Put::Whole(|d, v| d.requests_per_second = Some(v)),
    },
    Setting {
        key: "limits.burst",
        form: "NUMBER",
        default: "0, those of one second",
        help: "Requests that one client may make at once after a pause; 0 for those of one second",
        put: Put::Whole(|d, v| d.burst = Some(v)),
    },
    Setting {
        key: "http.allowed-origins",
        form: "ORIGIN,…|none",
        default: "none",
        help: "Origins such as https://console.example.com whose pages may call the client port; * for all",
        put: Put::Text(|d, v| d.http_allowed_origins = Some(v)),
    },
    Setting {
        key: "http.allowed-hosts",
        form: "NAME,…|none",
        default: "none",
        help: "Names by which browsers may call, beside IP addresses, localhost and the name in advertise-client; * for all",
        put: Put::Text(|d, v| d.http_allowed_hosts = Some(v)),
    },
    Setting {
        key: "ui",
        form: "off|read|write",
        default: "read",
        help: "Whether the console is served below /ui/ on the client port, and whether it offers changes",
        put: Put::Text(|d, v| d.ui = Some(v)),
    },
    Setting {
        key: "max-request-bytes",
        form: "SIZE",
        default: "1536KiB",
        help: "Largest request of a client, as a command in the log; the same on all members",
        put: Put::Bytes(|d, v| d.max_request_bytes = Some(v)),
    },
    Setting {
        key: "max-txn-ops",
        form: "NUMBER",
        default: "128",
        help: "Most compares, or operations, in one list of a transaction; the same on all members",
        put: Put::Whole(|d, v| d.max_txn_ops = Some(v)),
    },
    Setting {
        key: "tls.cert",
        form: "FILE|off",
        default: "off",
        help: "The certificate of the client port, PEM, with intermediate ones; new files are taken without a restart",
        put: Put::PathOrOff(|d, v| d.tls_cert = Some(v)),
    },
    Setting {
        key: "tls.key",
        form: "FILE|off",
        default: "off",
        help: "Its private key, PEM",
        put: Put::PathOrOff(|d, v| d.tls_key = Some(v)),
    },
    Setting {
        key: "tls.trusted-ca",
        form: "FILE|off",
        default: "off",
        help: "The authorities of clients' certificates, PEM; they also judge https:// endpoints that this node calls",
        put: Put::PathOrOff(|d, v| d.tls_trusted_ca = Some(v)),
    },
    Setting {
        key: "tls.crl",
        form: "FILE|off",
        default: "off",
        help: "Revocation lists of those authorities, PEM",
        put: Put::PathOrOff(|d, v| d.tls_crl = Some(v)),
    },
    Setting {
        key: "tls.client-certs",
        form: "off|request|require",
        default: "off",
        help: "Whether clients show certificates: never, if they have one, or always",
        put: Put::ClientCertificates(|d, v| d.tls_client_certs = Some(v)),
    },
    Setting {
        key: "tls.min-version",
        form: "1.2|1.3",
        default: "1.3",
        help: "The lowest version of TLS on all ports; 1.2 is for old clients",
        put: Put::MinVersion(|d, v| d.tls_min_version = Some(v)),
    },
    Setting {
        key: "peer-tls.cert",
        form: "FILE|off",
        default: "off",
        help: "This node's certificate for the other nodes, PEM: for node.name and for the host of advertise-peer",
        put: Put::PathOrOff(|d, v| d.peer_tls_cert = Some(v)),
    },
    Setting {
        key: "peer-tls.key",
        form: "FILE|off",
        default: "off",
        help: "Its private key, PEM",
        put: Put::PathOrOff(|d, v| d.peer_tls_key = Some(v)),
    },
    Setting {
        key: "peer-tls.trusted-ca",
        form: "FILE|off",
        default: "off",
        help: "The authorities of all nodes' certificates, PEM; none that makes certificates for clients",
        put: Put::PathOrOff(|d, v| d.peer_tls_trusted_ca = Some(v)),
    },
    Setting {
        key: "peer-tls.crl",
        form: "FILE|off",
        default: "off",
        help: "Revocation lists of those authorities, PEM",
        put: Put::PathOrOff(|d, v| d.peer_tls_crl = Some(v)),
    },
    Setting {
        key: "metrics-tls.cert",
        form: "FILE|off",
        default: "off",
        help: "The certificate of the metrics port, PEM, with intermediate ones; without it the port is plain text",
        put: Put::PathOrOff(|d, v| d.metrics_tls_cert = Some(v)),
    },
    Setting {
        key: "metrics-tls.key",
        form: "FILE|off",
        default: "off",
        help: "Its private key, PEM",
        put: Put::PathOrOff(|d, v| d.metrics_tls_key = Some(v)),
    },
    Setting {
        key: "metrics-tls.trusted-ca",
        form: "FILE|off",
        default: "off",
        help: "The authorities of certificates that are shown to the metrics port, PEM",
        put: Put::PathOrOff(|d, v| d.metrics_tls_trusted_ca = Some(v)),
    },
    Setting {
        key: "metrics-tls.crl",
        form: "FILE|off",
        default: "off",
        help: "Revocation lists of those authorities, PEM",
        put: Put::PathOrOff(|d, v| d.metrics_tls_crl = Some(v)),
    },
    Setting {
        key: "metrics-tls.client-certs",
        form: "off|request|require",
        default: "off",
        help: "Whether clients of the metrics port show certificates: never, if they have one, or always",
        put: Put::ClientCertificates(|d, v| d.metrics_tls_client_certs = Some(v)),
    },
    Setting {
        key: "insecure",
        form: "true|false",
        default: "false",
        help: "Whether a port beyond loopback may be served in plain text",
        put: Put::Switch(|d, v| d.insecure = Some(v)),
    },
    Setting {
        key: "auth.token",
        form: "simple|jwt,pub-key=FILE,priv-key=FILE,sign-method=METHOD,ttl=DURATION",
        default: "simple",
        help: "How tokens of users are made: random ones that members remember, or signed ones; equal on all members",
        put: Put::Token(|d, v| d.auth_token = Some(v)),
    },
    Setting {
        key: "auth.token-ttl",
        form: "DURATION",
        default: "5m",
        help: "How long a simple token lives after its last use",
        put: Put::Duration(|d, v| d.auth_token_ttl = Some(v)),
    },
    Setting {
        key: "audit.file",
        form: "FILE|off",
        default: "off",
        help: "The audit log: a line of JSON for each request that is written down, never with a value or a secret",
        put: Put::PathOrOff(|d, v| d.audit_file = Some(v)),
    },
    Setting {
        key: "audit.rotate-size",
        form: "SIZE",
        default: "64MiB",
        help: "Size at which the audit log goes on in a new file",
        put: Put::Size(|d, v| d.audit_rotate_size = Some(v)),
    },
    Setting {
        key: "audit.keep",
        form: "NUMBER",
        default: "8",
        help: "Earlier files of the audit log that are kept, with .1, .2 and so on after the name; 0 removes a full file",
        put: Put::Whole(|d, v| d.audit_keep = Some(v)),
    },
    Setting {
        key: "audit.level",
        form: "denied|changes|all",
        default: "changes",
        help: "Requests in the audit log: refused ones, also those that may change something, or all",
        put: Put::Text(|d, v| d.audit_level = Some(v)),
    },
    Setting {
        key: "log.level",
        form: "LEVEL",
        default: "info",
        help: "error, warn, info, debug or trace, or directives such as info,headwater_raft=debug",
        put: Put::Text(|d, v| d.log_level = Some(v)),
    },
    Setting {
        key: "log.format",
        form: "text|json",
        default: "text",
        help: "How a log line looks",
        put: Put::Format(|d, v| d.log_format = Some(v)),
    },
];

impl Setting {
    /// The setting with this key; `None` if there is none.
    pub fn find(key: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// The setting's environment variable, such as `HEADWATER_RAFT_HEARTBEAT`.
    pub fn variable(&self) -> String {
        format!("HEADWATER_{}", self.key.to_uppercase().replace(['.', '-'], "_"))
    }

    /// The setting's flag, such as `--raft-heartbeat`.
    pub fn flag(&self) -> String {
        format!("--{}", self.key.replace('.', "-"))
    }

    /// Whether the setting's flag may stand without a value, which means `true`.
    pub fn is_switch(&self) -> bool {
        matches!(self.put, Put::Switch(_))
    }

    pub(super) fn is_text(&self) -> bool {
        !matches!(self.put, Put::Whole(_) | Put::Members(_) | Put::Switch(_))
    }
}
