//! The defaults of settings, their bounds, and the rules between settings.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use super::check_tls::{check_plain_text, tls_of};
use super::check_watch::check_watch;
use super::draft::Draft;
use super::{
    ClusterConfig, Config, ConfigError, ConsulConfig, DnsConfig, HistoryConfig, HttpConfig, InitialMember, JoinConfig,
    LimitsConfig, LogConfig, NodeConfig, Problem, QuotaConfig, RaftConfig, RuntimeConfig, StorageConfig, TlsConfig,
    WatchConfig,
};
use super::{acl, audit, auth, metrics, value};
use headwater_api::{ConsoleMode, domain_problem};
use headwater_types::NodeId;
use headwater_types::limits::{
    DATACENTER_NAME_BYTES_MAX, DNS_UDP_ANSWERS_MAX, HISTORY_RETENTION_SECONDS_DEFAULT, HISTORY_RETENTION_SECONDS_MIN,
    MEMBER_NAME_BYTES_MAX, QUOTA_BYTES_DEFAULT, REMOTE_ENDPOINTS_MAX, REQUEST_BYTES_MAX, REQUEST_BYTES_SET_MAX,
    REQUEST_BYTES_SET_MIN, TXN_OPS_MAX, TXN_OPS_SET_MAX, VOTERS_MAX,
};

/// Defaults of the section `raft`. The first election after the loss of a leader begins after
/// election-max plus a wait between election-min and election-max, so that writes resume well
/// within 2 s (ARCHITECTURE.md §10 has the times). Three heartbeats fit the shortest wait, and nine
/// the time before an election, so that a busy machine does not depose a healthy leader.
const RAFT: RaftConfig = RaftConfig {
    heartbeat: Duration::from_millis(100),
    election_min: Duration::from_millis(300),
    election_max: Duration::from_millis(600),
    snapshot_every: 100_000,
    log_keep: 100_000,
};
const STORAGE: StorageConfig =
    StorageConfig { block_cache_bytes: 64 << 20, state_memtable_bytes: 16 << 20, log_memtable_bytes: 4 << 20 };
/// Defaults of the section `watch`. The window holds one or two seconds of the fastest writes with
/// values of a few hundred bytes. As in etcd, progress is reported every ten minutes, and a stream
/// that requires a leader ends after 3 s without one, three of etcd's election timeouts (spec: etcd
/// §2).
const WATCH: WatchConfig = WatchConfig {
    window_bytes: 64 << 20,
    window_commits: 65_536,
    catch_up_bytes: 512 << 10,
    catch_up_commits: 1000,
    progress_interval: Duration::from_secs(600),
    leader_loss_timeout: Duration::from_secs(3),
};
/// Default of `limits.request-timeout`, as in etcd: 5 s and two elections (spec: etcd §5.1).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(7);
/// Default of `consul.datacenter`, as in Consul.
const DATACENTER: &str = "dc1";
/// Default of `dns.domain`, as in Consul.
const DNS_DOMAIN: &str = "consul";
/// Default of `dns.udp-answers`, as in Consul: three addresses fit the smallest packet with names
/// of any length.
const DNS_UDP_ANSWERS: u64 = 3;
/// Largest `dns.ttl`: the longest time for which resolvers may cache an answer.
const DNS_TTL_MAX: Duration = Duration::from_secs(86_400);
/// Smallest and largest write buffer, bytes.
const MEMTABLE_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=(1 << 30);
const WORKER_THREADS_MAX: u64 = 1024;

/// The problems found so far.
pub(super) struct Findings(Vec<Problem>);

impl Findings {
    pub(super) fn add(&mut self, key: &str, detail: impl Into<String>) {
        self.0.push(Problem { origin: String::new(), key: key.to_owned(), detail: detail.into() });
    }
}

/// Fills in the defaults and checks all rules. `problems` are those of reading the sources: if
/// there are any, they alone are the error.
pub(super) fn finish(draft: Draft, problems: Vec<Problem>) -> Result<Config, ConfigError> {
    // Rules between settings cannot be checked while some values are unreadable: those are reported
    // first.
    if !problems.is_empty() {
        return Err(ConfigError::Invalid { problems });
    }
    let mut found = Findings(Vec::new());
    let (listen_client, listen_peer) = listen_of(&draft, &mut found);
    check_join(&draft, &mut found);
    let own = own_of(&draft, (listen_client, listen_peer), &mut found);
    let initial = first_members(&draft, &own, &mut found);

    let raft = raft_of(&draft, &mut found);
    let storage = storage_of(&draft, &mut found);
    let runtime = runtime_of(&draft, &mut found);
    let watch = watch_of(&draft, &raft, &mut found);
    let history = history_of(&draft, &mut found);
    let limits = limits_of(&draft, &raft, &watch, &mut found);
    let http = http_of(&draft, &mut found);
    let ui = ui_of(&draft, &mut found);
    let audit = audit::read(&draft, &mut found);
    let log = log_of(&draft, &mut found);
    let consul = consul_of(&draft, &mut found);
    let tls = tls_of(&draft, &own, &mut found);
    let insecure = draft.insecure.unwrap_or(false);
    let auth = auth::of(&draft, &mut found);
    let acl = acl::of(&draft, &mut found);
    let dns = dns_of(&draft, [listen_client, listen_peer], &mut found);
    let others = [
        ("listen-client", Some(listen_client)),
        ("listen-peer", Some(listen_peer)),
        ("dns.listen", dns.listen),
        ("dns.tls-listen", dns.tls_listen),
    ];
    let metrics = metrics::of(&draft, others, &mut found);
    check_plain_text(&tls, insecure, (listen_client, listen_peer, metrics.listen), &mut found);
    check_remote_datacenters(&consul, &tls, &mut found);

    if !found.0.is_empty() {
        return Err(ConfigError::Invalid { problems: found.0 });
    }
    Ok(Config {
        node: NodeConfig { id: own.id, name: own.name },
        data_dir: draft.data_dir.unwrap_or_else(|| "headwater-data".into()),
        listen_client,
        listen_client_unix: draft.listen_client_unix.flatten(),
        listen_peer,
        advertise_client: own.client,
        advertise_peer: own.peer,
        join: draft.join.map(|endpoints| JoinConfig {
            endpoints,
            learner: draft.learner.unwrap_or(false),
            token_file: draft.join_token_file.flatten(),
        }),
        cluster: ClusterConfig { token: draft.cluster_token.unwrap_or_else(|| "headwater".to_owned()), initial },
        invited_only: draft.cluster_invited_only.unwrap_or(true),
        strict_reconfig_check: draft.strict_reconfig_check.unwrap_or(true),
        raft,
        storage,
        runtime,
        watch,
        quota: QuotaConfig {
            bytes_max: draft.quota_bytes.unwrap_or(Some(QUOTA_BYTES_DEFAULT)),
            auto_disarm: draft.quota_auto_disarm.unwrap_or(false),
        },
        history,
        consul,
        acl,
        dns,
        metrics,
        http,
        ui,
        limits,
        tls,
        insecure,
        auth,
        audit,
        log,
    })
}

/// The addresses of the client port and of the peer port.
fn listen_of(draft: &Draft, found: &mut Findings) -> (SocketAddr, SocketAddr) {
    let client = draft.listen_client.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 2379)));
    let peer = draft.listen_peer.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 2380)));
    if client == peer && client.port() != 0 {
        found.add("listen-peer", format!("must differ from listen-client, both are {client}"));
    }
    (client, peer)
}

/// Id, name and URLs of this node, from its own settings and from its entry in the list of first
/// members, which must not disagree.
fn own_of(
    draft: &Draft,
    (listen_client, listen_peer): (SocketAddr, SocketAddr),
    found: &mut Findings,
) -> InitialMember {
    let id = id_of(draft, found);
    let listed = draft.cluster_initial.iter().flatten().find(|member| member.id == id);
    let client = listed.map(|member| &member.client);
    let client =
        advertised("client", draft.advertise_client.as_ref(), client, listen_client, is_set(&draft.tls_cert), found);
    let peer = listed.map(|member| &member.peer);
    let peer =
        advertised("peer", draft.advertise_peer.as_ref(), peer, listen_peer, is_set(&draft.peer_tls_cert), found);
    let name = draft.node_name.as_ref().or(listed.map(|member| &member.name)).cloned();
    // A node that joins has no id yet for its name; its peer address is as unique.
    let name = name.unwrap_or_else(|| match peer.strip_prefix("http://") {
        Some(address) if draft.join.is_some() => address.to_owned(),
        _ => format!("node{id}"),
    });
    if name.len() > MEMBER_NAME_BYTES_MAX {
        found.add("node.name", format!("must be at most {MEMBER_NAME_BYTES_MAX} bytes"));
    }
    InitialMember { id, name, peer, client }
}

/// This node's id, 1 if it is not set. Zero for a node that joins: its id comes from the cluster.
fn id_of(draft: &Draft, found: &mut Findings) -> NodeId {
    if draft.join.is_some() {
        return NodeId(0);
    }
    let id = NodeId(draft.node_id.unwrap_or(1));
    let listed = draft.cluster_initial.as_deref().unwrap_or_default();
    if draft.node_id.is_none() && listed.len() > 1 {
        found.add("node.id", "must be set when cluster.initial names more than one node");
    } else if id.get() == 0 {
        found.add("node.id", "must be above zero");
    } else if draft.cluster_initial.is_some() && !listed.iter().any(|member| member.id == id) {
        let ids: Vec<String> = listed.iter().map(|member| member.id.to_string()).collect();
        found.add(
            "cluster.initial",
            format!("does not name this node: node.id is {id}, the list has {}", ids.join(", ")),
        );
    }
    id
}

fn is_set(file: &Option<Option<PathBuf>>) -> bool {
    file.as_ref().is_some_and(Option::is_some)
}

/// The URL under which `whom`, "client" or "peer", reaches this node: `set`, else `listed`, else
/// from the address of the listener.
fn advertised(
    whom: &str,
    set: Option<&String>,
    listed: Option<&String>,
    listen: SocketAddr,
    is_tls: bool,
    found: &mut Findings,
) -> String {
    let key = format!("advertise-{whom}");
    if let (Some(set), Some(listed)) = (set, listed)
        && set != listed
    {
        found.add(&key, format!("is {set}, but cluster.initial says {listed} for this node"));
    }
    if let Some(url) = set.or(listed) {
        return url.clone();
    }
    if listen.ip().is_unspecified() {
        let why = format!("listen-{whom} is {listen}, which nobody can connect to by that name");
        found.add(&key, format!("must be set, because {why}"));
    }
    let scheme = if is_tls { "https" } else { "http" };
    format!("{scheme}://{listen}")
}

/// The first members of a new cluster, by id; this node alone if none are named. Empty if this node
/// joins a cluster that exists.
fn first_members(draft: &Draft, own: &InitialMember, found: &mut Findings) -> Vec<InitialMember> {
    if draft.join.is_some() {
        return Vec::new();
    }
    let mut initial = draft.cluster_initial.clone().unwrap_or_else(|| vec![own.clone()]);
    initial.sort_by_key(|member| member.id);
    check_members(&initial, own.id, &own.name, found);
    initial
}

fn raft_of(draft: &Draft, found: &mut Findings) -> RaftConfig {
    let raft = RaftConfig {
        heartbeat: draft.raft_heartbeat.unwrap_or(RAFT.heartbeat),
        election_min: draft.raft_election_min.unwrap_or(RAFT.election_min),
        election_max: draft.raft_election_max.unwrap_or(RAFT.election_max),
        snapshot_every: draft.raft_snapshot_every.unwrap_or(RAFT.snapshot_every),
        log_keep: draft.raft_log_keep.unwrap_or(RAFT.log_keep),
    };
    check_raft(&raft, found);
    raft
}

fn storage_of(draft: &Draft, found: &mut Findings) -> StorageConfig {
    let storage = StorageConfig {
        block_cache_bytes: draft.storage_block_cache.unwrap_or(STORAGE.block_cache_bytes),
        state_memtable_bytes: draft.storage_state_memtable.unwrap_or(STORAGE.state_memtable_bytes),
        log_memtable_bytes: draft.storage_log_memtable.unwrap_or(STORAGE.log_memtable_bytes),
    };
    for (key, bytes) in
        [("storage.state-memtable", storage.state_memtable_bytes), ("storage.log-memtable", storage.log_memtable_bytes)]
    {
        if !MEMTABLE_BYTES.contains(&bytes) {
            found.add(key, "must lie between 1MiB and 1GiB");
        }
    }
    storage
}

fn runtime_of(draft: &Draft, found: &mut Findings) -> RuntimeConfig {
    let worker_threads = draft.runtime_worker_threads.unwrap_or_else(default_worker_threads);
    if !(1..=WORKER_THREADS_MAX).contains(&worker_threads) {
        found.add("runtime.worker-threads", format!("must lie between 1 and {WORKER_THREADS_MAX}"));
    }
    RuntimeConfig { worker_threads: usize::try_from(worker_threads).unwrap_or(usize::MAX) }
}

fn watch_of(draft: &Draft, raft: &RaftConfig, found: &mut Findings) -> WatchConfig {
    let watch = WatchConfig {
        window_bytes: draft.watch_window_bytes.unwrap_or(WATCH.window_bytes),
        window_commits: draft.watch_window_commits.unwrap_or(WATCH.window_commits),
        catch_up_bytes: draft.watch_catch_up_bytes.unwrap_or(WATCH.catch_up_bytes),
        catch_up_commits: draft.watch_catch_up_commits.unwrap_or(WATCH.catch_up_commits),
        progress_interval: draft.watch_progress_interval.unwrap_or(WATCH.progress_interval),
        leader_loss_timeout: draft.watch_leader_loss_timeout.unwrap_or(WATCH.leader_loss_timeout),
    };
    check_watch(&watch, raft, found);
    watch
}

fn history_of(draft: &Draft, found: &mut Findings) -> HistoryConfig {
    let retention = draft.history_retention.unwrap_or(Some(Duration::from_secs(HISTORY_RETENTION_SECONDS_DEFAULT)));
    if retention.is_some_and(|retention| retention < Duration::from_secs(HISTORY_RETENTION_SECONDS_MIN)) {
        found.add(
            "history.retention",
            format!("must be at least {HISTORY_RETENTION_SECONDS_MIN}s; \"off\" keeps it until it is compacted"),
        );
    }
    HistoryConfig { retention }
}

/// Largest `limits.requests-per-second` and `limits.burst`, requests: a rate above it bounds
/// nothing.
const REQUESTS_PER_SECOND_MAX: u64 = 10_000_000;

fn limits_of(draft: &Draft, raft: &RaftConfig, watch: &WatchConfig, found: &mut Findings) -> LimitsConfig {
    let request_timeout = draft.limits_request_timeout.unwrap_or(REQUEST_TIMEOUT);
    if request_timeout < raft.election_max {
        found.add(
            "limits.request-timeout",
            "must not be shorter than raft.election-max, or no request survives an election",
        );
    }
    let max_request_bytes = draft.max_request_bytes.unwrap_or(REQUEST_BYTES_MAX as u64);
    if !(REQUEST_BYTES_SET_MIN as u64..=REQUEST_BYTES_SET_MAX as u64).contains(&max_request_bytes) {
        found.add("max-request-bytes", "must lie between 64KiB and 10MiB");
    } else if watch.window_bytes < 2 * max_request_bytes {
        found.add("max-request-bytes", "must be at most half of watch.window-size, which holds recent requests");
    }
    let max_txn_ops = draft.max_txn_ops.unwrap_or(TXN_OPS_MAX as u64);
    if !(1..=TXN_OPS_SET_MAX as u64).contains(&max_txn_ops) {
        found.add("max-txn-ops", format!("must lie between 1 and {TXN_OPS_SET_MAX}"));
    }
    let connections_per_address = draft.connections_per_address.filter(|count| *count > 0);
    let [requests_per_second, burst] =
        [("limits.requests-per-second", draft.requests_per_second), ("limits.burst", draft.burst)].map(
            |(key, count)| {
                let count = count.filter(|count| *count > 0)?;
                if count > REQUESTS_PER_SECOND_MAX {
                    found.add(key, format!("must be at most {REQUESTS_PER_SECOND_MAX}"));
                }
                Some(u32::try_from(count).unwrap_or(u32::MAX))
            },
        );
    if burst.is_some() && requests_per_second.is_none() {
        found.add("limits.burst", "needs limits.requests-per-second");
    }
    LimitsConfig {
        request_timeout,
        max_request_bytes,
        max_txn_ops,
        connections_per_address,
        requests_per_second,
        burst,
    }
}

fn http_of(draft: &Draft, found: &mut Findings) -> HttpConfig {
    let list = |text: &Option<String>| -> Vec<String> {
        let texts = text.as_deref().unwrap_or_default().split(',').map(str::trim);
        texts.filter(|text| !text.is_empty() && *text != "none").map(str::to_owned).collect()
    };
    let http = HttpConfig {
        allowed_origins: list(&draft.http_allowed_origins),
        allowed_hosts: list(&draft.http_allowed_hosts),
    };
    for origin in http.allowed_origins.iter().filter(|origin| *origin != "*") {
        let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        if host.is_none_or(|host| host.is_empty() || host.contains('/')) {
            found.add(
                "http.allowed-origins",
                format!("{origin:?} is no origin: write http:// or https://, a name, and nothing after its port"),
            );
        }
    }
    for host in http.allowed_hosts.iter().filter(|host| host.contains(['/', ':'])) {
        found.add("http.allowed-hosts", format!("{host:?} is no name: write it without a scheme and without a port"));
    }
    http
}

fn ui_of(draft: &Draft, found: &mut Findings) -> ConsoleMode {
    let Some(name) = draft.ui.as_deref() else { return ConsoleMode::default() };
    ConsoleMode::named(name).unwrap_or_else(|| {
        found.add("ui", format!("{name:?} must be off, read or write"));
        ConsoleMode::default()
    })
}

fn log_of(draft: &Draft, found: &mut Findings) -> LogConfig {
    let level = draft.log_level.clone().unwrap_or_else(|| "info".to_owned());
    match (EnvFilter::try_new(&level), unknown_level(&level)) {
        (Err(error), _) => {
            found.add("log.level", format!("{level:?} is neither a level nor a list of directives ({error})"));
        }
        (Ok(_), Some(part)) => found.add(
            "log.level",
            format!("{part:?} is no level; write error, warn, info, debug, trace or off, or TARGET=LEVEL"),
        ),
        (Ok(_), None) => {}
    }
    LogConfig { level, format: draft.log_format.unwrap_or_default() }
}

fn consul_of(draft: &Draft, found: &mut Findings) -> ConsulConfig {
    let datacenter = draft.consul_datacenter.clone().unwrap_or_else(|| DATACENTER.to_owned());
    if !is_dns_label(&datacenter) {
        found.add(
            "consul.datacenter",
            format!(
                "{datacenter:?} is no name of a datacenter: 1 to 63 of a-z, 0-9, - and _, for it is part of DNS names"
            ),
        );
    }
    let remote_datacenters = draft.consul_remote_datacenters.as_deref().unwrap_or_default();
    let remote_datacenters = remote_datacenters_of(remote_datacenters, &datacenter, found);
    ConsulConfig { datacenter, remote_datacenters }
}

fn dns_of(draft: &Draft, others: [SocketAddr; 2], found: &mut Findings) -> DnsConfig {
    let dns = DnsConfig {
        // Off by default: two nodes on one machine would want the same port.
        listen: draft.dns_listen.flatten(),
        tls_listen: draft.dns_tls_listen.flatten(),
        domain: draft.dns_domain.clone().unwrap_or_else(|| DNS_DOMAIN.to_owned()),
        ttl: draft.dns_ttl.unwrap_or(Duration::ZERO),
        udp_answers: draft.dns_udp_answers.unwrap_or(DNS_UDP_ANSWERS),
        only_passing: draft.dns_only_passing.unwrap_or(false),
    };
    check_dns(&dns, others, found);
    check_dns_tls(&dns, others, is_set(&draft.tls_cert), found);
    dns
}

fn check_dns_tls(dns: &DnsConfig, others: [SocketAddr; 2], has_certificate: bool, found: &mut Findings) {
    let Some(listen) = dns.tls_listen else { return };
    if !has_certificate {
        found.add("dns.tls-listen", "needs the certificate of the client port: tls.cert and tls.key must be set");
    }
    if dns.listen.is_none() {
        found.add("dns.tls-listen", "needs dns.listen, too: the same names are answered on both");
    }
    if listen.port() != 0 && others.into_iter().chain(dns.listen).any(|other| other == listen) {
        found.add(
            "dns.tls-listen",
            format!("must differ from listen-client, listen-peer and dns.listen, one of which is {listen}, too"),
        );
    }
}

fn check_dns(dns: &DnsConfig, others: [SocketAddr; 2], found: &mut Findings) {
    if let Some(listen) = dns.listen.filter(|listen| listen.port() != 0 && others.contains(listen)) {
        found.add(
            "dns.listen",
            format!("must differ from listen-client and listen-peer, one of which is {listen}, too"),
        );
    }
    if let Some(problem) = domain_problem(&dns.domain) {
        found.add("dns.domain", format!("{:?} {problem}", dns.domain));
    }
    if dns.ttl.subsec_nanos() != 0 || dns.ttl > DNS_TTL_MAX {
        found.add("dns.ttl", "must be whole seconds, at most 24h");
    }
    if !(1..=DNS_UDP_ANSWERS_MAX).contains(&dns.udp_answers) {
        found.add("dns.udp-answers", format!("must lie between 1 and {DNS_UDP_ANSWERS_MAX}"));
    }
}

/// Reads `NAME=HOST:PORT+https://HOST:PORT,NAME=…`: the endpoints of each remote datacenter, with
/// or without `https://`. `none` is an empty map. Adds a finding for each wrong entry and endpoint;
/// the result may still contain it. `here` is the own datacenter, which is no valid NAME.
fn remote_datacenters_of(text: &str, here: &str, found: &mut Findings) -> BTreeMap<String, Vec<String>> {
    let mut datacenters = BTreeMap::new();
    if text == "none" {
        return datacenters;
    }
    let mut add = |problem: String| {
        found.add("consul.remote-datacenters", format!("{problem}; write NAME=HOST:PORT+https://HOST:PORT,NAME=…"));
    };
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let Some((name, endpoints)) = entry.split_once('=') else {
            add(format!("{entry:?} has no ="));
            continue;
        };
        if !is_dns_label(name) || name == here {
            add(format!("{name:?} is no name of another datacenter"));
        }
        let mut members: Vec<String> = Vec::new();
        for endpoint in endpoints.split('+') {
            let host = endpoint.strip_prefix("https://").unwrap_or(endpoint);
            if let Err(problem) = value::host_and_port(host) {
                add(format!("datacenter {name:?}: {problem}"));
            } else if members.iter().any(|member| member.eq_ignore_ascii_case(endpoint)) {
                add(format!("datacenter {name:?}: {endpoint:?} is there twice"));
            }
            members.push(endpoint.to_owned());
        }
        if members.len() > REMOTE_ENDPOINTS_MAX {
            add(format!(
                "datacenter {name:?} has {} endpoints, at most {REMOTE_ENDPOINTS_MAX} are asked",
                members.len()
            ));
        }
        if datacenters.insert(name.to_owned(), members).is_some() {
            add(format!("{name:?} is there twice"));
        }
    }
    datacenters
}

/// Adds a finding if an endpoint is reached by TLS and there is no authority to verify it.
fn check_remote_datacenters(consul: &ConsulConfig, tls: &TlsConfig, found: &mut Findings) {
    let mut endpoints = consul.remote_datacenters.values().flatten();
    if let Some(endpoint) = endpoints.find(|endpoint| endpoint.starts_with("https://"))
        && tls.clients.trusted_ca.is_none()
    {
        found.add(
            "consul.remote-datacenters",
            format!("{endpoint} is reached by TLS: tls.trusted-ca must be set, which judges its certificate"),
        );
    }
}

/// Whether a text is a label of a DNS name: 1 to 63 of a-z, 0-9, - and, as in Consul, _.
fn is_dns_label(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    (1..=DATACENTER_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_good)
}

/// Checks the settings of joining. A node that joins must set neither `node.id`, nor
/// `cluster.token`, nor `cluster.initial`: the cluster decides them. A node that does not join must
/// not set `learner` to true, nor `join-token-file`. Endpoints that are reached by TLS need
/// `tls.trusted-ca`.
fn check_join(draft: &Draft, found: &mut Findings) {
    let secure = draft.join.iter().flatten().find(|endpoint| endpoint.starts_with("https://"));
    if let Some(endpoint) = secure.filter(|_| !is_set(&draft.tls_trusted_ca)) {
        found.add(
            "join",
            format!("{endpoint} is reached by TLS: tls.trusted-ca must be set, which judges its certificate"),
        );
    }
    if draft.join.is_none() {
        if draft.learner == Some(true) {
            found.add("learner", "needs join: the first members of a cluster vote");
        }
        if is_set(&draft.join_token_file) {
            found.add("join-token-file", "needs join: the first members of a cluster need no invitation");
        }
        return;
    }
    let from_cluster = [
        ("node.id", draft.node_id.is_some()),
        ("cluster.initial", draft.cluster_initial.is_some()),
        ("cluster.token", draft.cluster_token.is_some()),
    ];
    for (key, _) in from_cluster.into_iter().filter(|(_, is_set)| *is_set) {
        found.add(key, "must not be set together with join: the cluster that is joined decides it");
    }
}

/// The first directive that does not end with a valid level; `None` if there is none. Filters of
/// spans and fields are not checked. `EnvFilter` itself takes a misspelt level for a target.
fn unknown_level(level: &str) -> Option<&str> {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let is_level = |text: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(text));
    level.split(',').map(str::trim).find(|part| match part.rsplit_once('=') {
        // The filter of a span or of a field: its value may have any form.
        _ if part.contains(['[', ']', '{', '}']) => false,
        Some((_, level)) => !is_level(level),
        None => !is_level(part),
    })
}

fn check_members(initial: &[InitialMember], id: NodeId, name: &str, found: &mut Findings) {
    let key = "cluster.initial";
    if initial.is_empty() {
        found.add(key, "must name at least one node");
    }
    if initial.len() > VOTERS_MAX {
        found.add(key, format!("names {} voters, at most {VOTERS_MAX} make sense", initial.len()));
    }
    let mut seen = BTreeSet::new();
    for member in initial {
        let parts = [("id", member.id.to_string()), ("name", member.name.clone()), ("peer URL", member.peer.clone())];
        for (what, value) in parts {
            if !seen.insert((what, value.clone())) {
                found.add(key, format!("has the {what} {value} twice"));
            }
        }
    }
    if let Some(own) = initial.iter().find(|member| member.id == id)
        && own.name != name
    {
        found.add("node.name", format!("is {name}, but cluster.initial says {} for this node", own.name));
    }
}

fn check_raft(raft: &RaftConfig, found: &mut Findings) {
    if raft.heartbeat < Duration::from_millis(10) {
        found.add("raft.heartbeat", "must be at least 10ms");
    }
    if raft.election_min < raft.heartbeat * 2 {
        found.add("raft.election-min", "must be at least twice raft.heartbeat, or a healthy leader is deposed");
    }
    if raft.election_max <= raft.election_min {
        found.add("raft.election-max", "must be longer than raft.election-min, or elections split");
    }
    if raft.election_max > Duration::from_secs(50) {
        found.add("raft.election-max", "must be at most 50s");
    }
    if raft.snapshot_every == 0 {
        found.add("raft.snapshot-every", "must be above zero");
    }
}

/// Half of the processors, at least 1: the log writer, storage and the kernel need the others. On a
/// small machine one thread is fastest.
fn default_worker_threads() -> u64 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (cores as u64 / 2).max(1)
}
