//! The process: configuration, listeners, telemetry, start and stop order.
//!
//! Knows no business rules. Invariant: the layers below never read settings from a file, a flag or
//! an environment variable: all settings come through [`Config`].

mod addresses;
mod authority;
pub mod backup;
pub mod config;
mod descriptors;
mod dns;
mod handshake;
pub mod inspect;
mod instance;
mod join;
mod listener;
mod socket;
mod telemetry;
mod tls;
mod watchdog;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

pub use config::Config;
use config::{AuthConfig, SignedTokenConfig, TokenConfig};
pub use dns::DnsSockets;
pub use instance::{DnsPort, Instance, InstanceOptions, MetricsOptions};
pub use join::{JoinError, JoinOptions, join};
pub use socket::UnixSocket;
pub use tls::{InstanceTls, PeerTls};

use headwater_api::{ApiOptions, BrowserPolicy, ConsoleOptions, DnsOptions};
use headwater_node::{AclOptions, AuthOptions, LeaseClock, NodeOptions, QuotaOptions, RateOptions, TokenKeys};
use headwater_raft::{MemberInfo, Timing};
use headwater_storage::StateOptions;
use headwater_storage::data_dir::Owner;
use headwater_storage::log::LogOptions;
use headwater_stream::{FeedOptions, ScanLimits};
use headwater_tls::Dialer;
use headwater_types::limits::{
    BACKUPS_MAX, LOG_KEEP_BYTES, LONG_READS_RUNNING_MAX, RANGE_STREAMS_MAX, SNAPSHOT_EVERY_BYTES, WATCHERS_MAX,
    WATCHERS_PER_STREAM_MAX,
};
use headwater_types::{ClusterId, MemberProgram, NodeId};

/// Longest file with a private key of signed tokens, bytes.
const KEY_FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest wait of a leader that stops or is removed, until another member leads and the writes in
/// the log have their answers.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait of the answer to a forwarded write until this member has applied the write. Far
/// longer than an apply takes, far shorter than a client waits.
const CATCH_UP_MAX: Duration = Duration::from_millis(100);
/// Threads for work that may block: large reads, flushes, snapshot files. More than all long tasks
/// can occupy together.
const BLOCKING_THREADS_MAX: usize = 96;
const _: () = assert!(LONG_READS_RUNNING_MAX + RANGE_STREAMS_MAX + BACKUPS_MAX + 16 <= BLOCKING_THREADS_MAX);

/// Runs a node of `program` until a signal stops it or its cluster has removed it. Blocks.
///
/// # Errors
///
/// The reason why the node cannot start or continue, or that a signal came before it had joined.
pub fn run(config: Config, program: MemberProgram) -> anyhow::Result<()> {
    telemetry::init(&config.log)?;
    // The arguments of an event are evaluated only if its level is on.
    let limit = descriptors::raise_limit();
    tracing::debug!(limit, "open files");
    // The runtime of one thread runs tasks strictly in turn: the answers to a whole batch are ready
    // before a connection writes, and go out in one call.
    let mut builder = match config.runtime.worker_threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        threads => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads);
            builder
        }
    };
    let runtime =
        builder.max_blocking_threads(BLOCKING_THREADS_MAX).enable_all().build().context("starting the runtime")?;
    // As a task: where there are workers it runs on one, and a wake-up across threads costs more
    // than most requests.
    let result =
        runtime.block_on(async { tokio::spawn(serve(config, program)).await.context("the node's main task")? });
    // Threads that still read for a client that is gone must not hold the process back.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn serve(config: Config, program: MemberProgram) -> anyhow::Result<()> {
    let tls = InstanceTls::load(&config).context("tls")?;
    warn_of_plain_text(&config);
    let client_listener = bind(config.listen_client, "listen-client").await?;
    let client_socket = match &config.listen_client_unix {
        Some(path) => Some(UnixSocket::bind(path).context("listen-client-unix")?),
        None => None,
    };
    let peer_listener = bind(config.listen_peer, "listen-peer").await?;
    let dns = match config.dns.listen {
        Some(address) => {
            let sockets = DnsSockets::bind(address).await.map_err(|error| unbound(address, "dns.listen", &error))?;
            let sockets = match config.dns.tls_listen {
                Some(address) => {
                    sockets.with_tls(address).await.map_err(|error| unbound(address, "dns.tls-listen", &error))?
                }
                None => sockets,
            };
            Some(DnsPort { sockets, options: dns_options(&config) })
        }
        None => None,
    };
    let metrics_listener = match config.metrics.listen {
        Some(address) => Some(bind(address, "metrics.listen").await?),
        None => None,
    };
    // Signals are caught before the node starts, so that an early one stops it in order, too.
    let mut terminate = signal(SignalKind::terminate()).context("catching SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("catching SIGINT")?;
    let hangup = signal(SignalKind::hangup()).context("catching SIGHUP")?;
    tokio::spawn(renew_on_hangup(hangup, Arc::clone(&tls.renew_now)));
    let owner = match &config.join {
        None => Owner { cluster_id: cluster_id(&config), node_id: config.node.id },
        Some(joining) => {
            let options = JoinOptions {
                endpoints: joining.endpoints.clone(),
                data_dir: config.data_dir.clone(),
                client_dialer: tls.client_dialer.clone(),
                peer_dialer: tls.peer_dialer(),
                own: own_info(&config),
                learner: joining.learner,
                token_file: joining.token_file.clone(),
                supported: program.supported,
            };
            tokio::select! {
                owner = join(options) => owner.context("joining the cluster")?,
                _ = terminate.recv() => anyhow::bail!("told to stop before the cluster was joined"),
                _ = interrupt.recv() => anyhow::bail!("interrupted before the cluster was joined"),
            }
        }
    };
    let program_text = program.program.clone();
    let node = NodeOptions {
        dialer: tls.peer_dialer(),
        client_dialer: tls.client_dialer.clone(),
        auth: auth_options(&config.auth).context("auth.token")?,
        acl: config.acl.options()?,
        ..node_options(&config, owner, program)
    };
    tracing::info!(
        program = node.program.program, node = %owner.node_id, name = config.node.name, cluster = format!("{:x}", node.cluster_id.get()),
        client = %config.listen_client, peer = %config.listen_peer, data = %config.data_dir.display(), "starting"
    );
    if let Some(path) = &config.listen_client_unix {
        tracing::info!(path = %path.display(), "listening on a Unix socket");
    }
    if let Some(address) = config.dns.listen {
        tracing::info!(%address, domain = config.dns.domain, "answering DNS");
    }
    if let Some(address) = config.dns.tls_listen {
        tracing::info!(%address, "answering DNS by TLS");
    }
    if let Some(address) = config.metrics.listen {
        let is_on_client_port = config.metrics.on_client_port;
        tracing::info!(%address, tls = tls.metrics.is_some(), is_on_client_port, "serving metrics");
    }
    let options = InstanceOptions {
        node,
        api: api_options(&config),
        client_listener,
        client_socket,
        peer_listener,
        dns,
        metrics: MetricsOptions { listener: metrics_listener, on_client_port: config.metrics.on_client_port },
        tls,
        browsers: browser_policy(&config),
        console: console_options(&config, program_text),
        connections_per_address: config.limits.connections_per_address,
    };
    let instance =
        Instance::start(options).await.context("starting the node").map_err(|error| with_advice(error, &config))?;

    tokio::select! {
        _ = terminate.recv() => tracing::info!("told to stop"),
        _ = interrupt.recv() => tracing::info!("interrupted, stopping; once more ends at once"),
        why = instance.ended() => return Err(with_advice(anyhow::anyhow!("{why}"), &config)),
        () = instance.node().removed() => tracing::warn!(
            "stopping: to come back under a new id, remove the data directory {} and start with --join",
            config.data_dir.display()
        ),
    }
    tokio::select! {
        () = instance.stop() => tracing::info!("stopped"),
        _ = interrupt.recv() => tracing::warn!("ended at once"),
        _ = terminate.recv() => tracing::warn!("ended at once"),
    }
    Ok(())
}

/// Adds to the reason of a failure the commands that inspect and back up the data directory, if
/// that exists.
fn with_advice(error: anyhow::Error, config: &Config) -> anyhow::Error {
    let dir = config.data_dir.display();
    if !config.data_dir.exists() {
        return error;
    }
    anyhow::anyhow!(
        "{error:#}\nWhile no node uses the data directory, `headwater log inspect {dir}` shows what is in it, and \
         `headwater snapshot save --from {dir} FILE` makes a backup of it (docs/disasters.md)"
    )
}

/// Notifies `renew_now` at each SIGHUP, which would otherwise end the process: the certificate
/// files are then read again.
async fn renew_on_hangup(mut hangup: Signal, renew_now: Arc<Notify>) {
    while hangup.recv().await.is_some() {
        tracing::info!("SIGHUP: looking for new certificates");
        renew_now.notify_one();
    }
}

fn warn_of_plain_text(config: &Config) {
    let ports = [
        ("client", Some(config.listen_client), &config.tls.clients),
        ("peer", Some(config.listen_peer), &config.tls.peers),
        ("metrics", config.metrics.listen, &config.tls.metrics),
    ];
    for (port, address, files) in ports {
        let Some(address) = address else { continue };
        if files.is_empty() && !address.ip().to_canonical().is_loopback() {
            tracing::warn!(port, %address, "INSECURE: this port is served in plain text beyond this machine, as --insecure allows");
        }
    }
}

async fn bind(address: SocketAddr, setting: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| unbound(address, setting, &error))
}

fn unbound(address: SocketAddr, setting: &str, error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => anyhow::anyhow!(
            "{setting} {address} is in use; stop what listens there (`ss -lntup` shows it) or configure another address"
        ),
        _ => anyhow::anyhow!("{setting} {address}: {error}"),
    }
}

fn api_options(config: &Config) -> ApiOptions {
    ApiOptions {
        request_timeout: config.limits.request_timeout,
        watch_progress_interval: config.watch.progress_interval,
        leader_loss_timeout: config.watch.leader_loss_timeout,
        max_request_bytes: config.limits.max_request_bytes as usize,
        max_txn_ops: config.limits.max_txn_ops as usize,
        watchers_per_stream_max: WATCHERS_PER_STREAM_MAX,
    }
}

/// The configured policy for browsers. It also allows the host of `advertise-client`.
fn browser_policy(config: &Config) -> BrowserPolicy {
    let mut allowed_hosts = config.http.allowed_hosts.clone();
    let url = config.advertise_client.parse::<http::Uri>().ok();
    allowed_hosts.extend(url.as_ref().and_then(http::Uri::host).map(str::to_owned));
    BrowserPolicy { allowed_origins: config.http.allowed_origins.clone(), allowed_hosts }
}

/// Options of the console. `dns_domain` is empty without a DNS port: the page then shows no DNS
/// names.
fn console_options(config: &Config, program: String) -> ConsoleOptions {
    ConsoleOptions {
        mode: config.ui,
        member: config.node.name.clone(),
        program,
        dns_domain: config.dns.listen.map(|_| config.dns.domain.clone()).unwrap_or_default(),
        max_txn_ops: config.limits.max_txn_ops,
    }
}

fn dns_options(config: &Config) -> DnsOptions {
    DnsOptions {
        domain: config.dns.domain.clone(),
        ttl_seconds: u32::try_from(config.dns.ttl.as_secs()).expect("bounded by the rules of settings"),
        udp_answers_max: usize::try_from(config.dns.udp_answers).expect("bounded by the rules of settings"),
        only_passing: config.dns.only_passing,
    }
}

/// Name and URLs of this node, for the other members.
fn own_info(config: &Config) -> MemberInfo {
    MemberInfo {
        name: config.node.name.clone(),
        peer_url: config.advertise_peer.clone(),
        client_url: config.advertise_client.clone(),
        ..MemberInfo::default()
    }
}

fn rate_of(limits: &config::LimitsConfig) -> Option<RateOptions> {
    let requests_per_second = limits.requests_per_second?;
    Some(RateOptions { requests_per_second, burst: limits.burst.unwrap_or(requests_per_second) })
}

/// Options of users' tokens. Reads the keys of signed tokens from their files.
fn auth_options(config: &AuthConfig) -> anyhow::Result<AuthOptions> {
    let token_keys = match &config.token {
        TokenConfig::Simple => None,
        TokenConfig::Signed(SignedTokenConfig { public_key, private_key, method, ttl }) => {
            let read = |file: &Path| std::fs::read(file).with_context(|| format!("reading {}", file.display()));
            let read_private = |file: &Path| {
                headwater_files::read_secret(file, KEY_FILE_BYTES_MAX)
                    .with_context(|| format!("auth.token: cannot read the private key {}", file.display()))
            };
            let private = private_key.as_deref().map(read_private).transpose()?;
            Some(TokenKeys::new(method, &read(public_key)?, private.as_deref(), *ttl)?)
        }
    };
    Ok(AuthOptions { token_ttl: config.token_ttl, token_keys })
}

fn node_options(config: &Config, owner: Owner, program: MemberProgram) -> NodeOptions {
    NodeOptions {
        node_id: owner.node_id,
        cluster_id: owner.cluster_id,
        dialer: Dialer::default(),
        client_dialer: Dialer::default(),
        own: own_info(config),
        datacenter: config.consul.datacenter.clone(),
        remote_datacenters: config.consul.remote_datacenters.clone(),
        acl: AclOptions::default(),
        initial_members: initial_members(config),
        data_dir: config.data_dir.clone(),
        timing: Timing {
            heartbeat: config.raft.heartbeat,
            election_min: config.raft.election_min,
            election_max: config.raft.election_max,
        },
        catch_up_max: CATCH_UP_MAX,
        snapshot_every_entries: config.raft.snapshot_every,
        snapshot_every_bytes: SNAPSHOT_EVERY_BYTES,
        keep_entries: config.raft.log_keep,
        keep_bytes: LOG_KEEP_BYTES,
        log: LogOptions { memtable_bytes: config.storage.log_memtable_bytes as usize, ..LogOptions::default() },
        state: StateOptions {
            block_cache_bytes: config.storage.block_cache_bytes as usize,
            memtable_bytes: config.storage.state_memtable_bytes as usize,
            open_files_max: descriptors::store_files_max(),
            ..StateOptions::default()
        },
        feed: FeedOptions {
            window_items_max: config.watch.window_commits as usize,
            window_bytes_max: config.watch.window_bytes as usize,
            scan: ScanLimits {
                commits_max: config.watch.catch_up_commits as usize,
                bytes_max: config.watch.catch_up_bytes as usize,
            },
            ..FeedOptions::default()
        },
        quota: QuotaOptions { bytes_max: config.quota.bytes_max, auto_disarm: config.quota.auto_disarm },
        history_retention: config.history.retention,
        lease_clock: LeaseClock::machine(),
        hand_over_timeout: HAND_OVER_TIMEOUT,
        max_request_bytes: config.limits.max_request_bytes as usize,
        watchers_max: WATCHERS_MAX,
        request_rate: rate_of(&config.limits),
        strict_reconfig_check: config.strict_reconfig_check,
        invited_only: config.invited_only,
        program,
        auth: AuthOptions::default(),
        audit: config.audit.clone(),
    }
}

fn initial_members(config: &Config) -> BTreeMap<NodeId, MemberInfo> {
    let member = |member: &config::InitialMember| {
        let info = MemberInfo {
            name: member.name.clone(),
            peer_url: member.peer.clone(),
            client_url: member.client.clone(),
            ..MemberInfo::default()
        };
        (member.id, info)
    };
    config.cluster.initial.iter().map(member).collect()
}

/// The id of the cluster that this node forms: a hash of its token and of its first members' ids
/// and peer URLs. So every member derives the same id by itself, and two clusters with different
/// tokens or members refuse each other's messages. Without meaning for a node that joins.
fn cluster_id(config: &Config) -> ClusterId {
    let mut text = config.cluster.token.clone();
    for member in &config.cluster.initial {
        text.push_str(&format!("\n{} {}", member.id, member.peer));
    }
    // FNV-1a: stable for ever, and this is an identity, not a secret.
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    ClusterId(hash.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::Supported;

    /// Unix keeps at most one pending signal of a kind, so each is awaited before the next one.
    #[tokio::test]
    async fn a_hangup_renews_and_does_not_end_the_process() {
        let hangup = signal(SignalKind::hangup()).unwrap();
        let renew_now = Arc::new(Notify::new());
        tokio::spawn(renew_on_hangup(hangup, Arc::clone(&renew_now)));
        for _ in 0..3 {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::HUP).unwrap();
            renew_now.notified().await;
        }
    }

    #[test]
    fn defaults_are_those_of_the_options() {
        let config = Config::load(&config::Sources::default()).unwrap();
        assert_eq!(format!("{:?}", api_options(&config)), format!("{:?}", ApiOptions::default()));
        assert_eq!(dns_options(&config), DnsOptions::default());
        let owner = Owner { cluster_id: cluster_id(&config), node_id: config.node.id };
        let program = MemberProgram { program: String::new(), supported: Supported::RELEASE };
        assert_eq!(
            format!("{:?}", node_options(&config, owner, program).feed),
            format!("{:?}", FeedOptions::default())
        );
    }
}
