//! One running node with its listeners: the program runs one, tests start several in process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::addresses::AddressLimit;
use super::descriptors::Connections;
use super::dns::{self, DnsSockets};
use super::handshake::{DNS_HALF_OPEN_MAX, HALF_OPEN_MAX};
use super::listener::{CLIENT_PORT, METRICS_PORT, PEER_PORT, PortState, PortTls, serve};
use super::socket::{Listener, UnixSocket};
use super::tls::{InstanceTls, TlsMetrics};
use super::watchdog::Watchdog;
use headwater_api::{ApiOptions, BrowserPolicy, ConsoleOptions, DnsOptions, DnsService};
use headwater_node::{Node, NodeOptions};
use headwater_raft::peer_routes;
use headwater_tls::ServerTls;

/// Options of an instance. The listeners are bound by the caller, so that a port in use is reported
/// before anything is touched on disk.
pub struct InstanceOptions {
    /// Options of the node.
    pub node: NodeOptions,
    /// Options of the API faces.
    pub api: ApiOptions,
    /// Listener of the client port.
    pub client_listener: TcpListener,
    /// The Unix socket for clients on the same machine, if there is one.
    pub client_socket: Option<UnixSocket>,
    /// Listener for the other members.
    pub peer_listener: TcpListener,
    /// The DNS port, if there is one.
    pub dns: Option<DnsPort>,
    /// Metrics on a port of their own and on the client port.
    pub metrics: MetricsOptions,
    /// Certificates of the ports.
    pub tls: InstanceTls,
    /// Web pages from which browsers may call the client port and the metrics port.
    pub browsers: BrowserPolicy,
    /// The console on the client port.
    pub console: ConsoleOptions,
    /// Most connections of one IPv4 address, or one /64 of IPv6, to one kind of port; `None` for
    /// half of all.
    pub connections_per_address: Option<u64>,
}

/// The DNS port.
#[derive(Debug)]
pub struct DnsPort {
    /// The sockets of the port.
    pub sockets: DnsSockets,
    /// The domain, and for answers the TTL, the bound over UDP and the filter by health.
    pub options: DnsOptions,
}

/// The ports on which metrics are served.
#[derive(Debug)]
pub struct MetricsOptions {
    /// Listener of the metrics port, if there is one.
    pub listener: Option<TcpListener>,
    /// Whether the client port serves `/metrics`, too.
    pub on_client_port: bool,
}

impl Default for MetricsOptions {
    /// Metrics on the client port alone.
    fn default() -> Self {
        Self { listener: None, on_client_port: true }
    }
}

/// A running node with its listeners.
pub struct Instance {
    node: Node,
    client_address: SocketAddr,
    metrics_address: Option<SocketAddr>,
    dns_address: Option<SocketAddr>,
    dns_tls_address: Option<SocketAddr>,
    clients: Vec<Port>,
    metrics: Option<Port>,
    peers: Port,
    dns: Option<Port>,
    renew_now: Arc<Notify>,
    /// The task that reads renewed files of certificates.
    _renewing: JoinSet<()>,
}

struct Port {
    state: watch::Sender<PortState>,
    task: JoinHandle<()>,
}

impl Port {
    async fn close(self, drain: Duration) {
        self.state.send_replace(PortState::Draining(drain));
        if let Err(error) = self.task.await {
            tracing::warn!(%error, "a port did not close in order");
        }
    }
}

/// Closes ports concurrently.
async fn close_all(ports: Vec<Port>, drain: Duration) {
    futures::future::join_all(ports.into_iter().map(|port| port.close(drain))).await;
}

/// Longest time for the open connections of a port to finish once it accepts no more; those of the
/// peer port get none. A stop hands leadership over first, and closes its groups of ports in turn,
/// so that it may take longer.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest wait of a stop for tasks that still use the data directory. They were asked to end
/// before.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

impl Instance {
    /// Starts the node, then the peer port, then the other ports. Returns before the node has
    /// recovered: requests wait for that, health endpoints report it.
    ///
    /// # Errors
    ///
    /// The reason why the node or a port cannot start.
    pub async fn start(options: InstanceOptions) -> anyhow::Result<Self> {
        let registry = Registry::new();
        let client_address = options.client_listener.local_addr().context("client listener")?;
        let MetricsOptions { listener: metrics_listener, on_client_port: shows_metrics } = options.metrics;
        let metrics_address = metrics_listener.as_ref().map(TcpListener::local_addr).transpose();
        let metrics_address = metrics_address.context("metrics listener")?;
        let node = Node::start(options.node, &registry).await?;
        let limit_counters = node.limit_counters().clone();
        let per_address = options.connections_per_address;
        let connections = Connections::new(&registry, per_address, metrics_address.is_some(), &limit_counters)
            .context("registering metrics")?;
        let watchdog = Watchdog::of_clients(Arc::clone(node.answers()), limit_counters.clone());
        let (dns_address, dns_tls_address) = match &options.dns {
            Some(port) => {
                let plain = port.sockets.address().context("DNS sockets")?;
                (Some(plain), port.sockets.tls_address().context("socket of DNS over TLS")?)
            }
            None => (None, None),
        };
        let dns = match options.dns {
            Some(port) => {
                Some((port.sockets, DnsService::new(node.clone(), port.options, &registry).context("serving DNS")?))
            }
            None => None,
        };
        let tls_metrics = TlsMetrics::register(&registry).context("registering metrics")?;
        let (faces, monitoring) = headwater_api::client_service(
            node.clone(),
            &registry,
            options.api,
            options.browsers,
            options.console,
            shows_metrics,
        )
        .context("registering metrics")?;
        let (peer_state, state) = watch::channel(PortState::Open);
        let port_tls = |port: &str, half_open_max: usize, tls: Option<&ServerTls>| {
            let failures = tls_metrics.failures.with_label_values(&[port]);
            tls.map(|server| PortTls {
                server: server.clone(),
                half_open: AddressLimit::new(half_open_max),
                limit_counters: limit_counters.clone(),
                failures,
            })
        };
        let peer_tls = port_tls("peer", HALF_OPEN_MAX, options.tls.peers.as_ref().map(|peers| &peers.server));
        let client_tls = port_tls("client", HALF_OPEN_MAX, options.tls.clients.as_ref());
        let metrics_tls = port_tls("metrics", HALF_OPEN_MAX, options.tls.metrics.as_ref());
        let dns_tls = port_tls("dns", DNS_HALF_OPEN_MAX, options.tls.dns.as_ref());
        let routes = peer_routes(node.consensus());
        let peers = Port {
            state: peer_state,
            task: tokio::spawn(serve(
                Listener::Tcp(options.peer_listener),
                routes,
                PEER_PORT,
                connections.peers,
                peer_tls,
                Watchdog::of_peers(limit_counters.clone()),
                state,
            )),
        };
        let metrics = metrics_listener.map(|listener| {
            let (state, changes) = watch::channel(PortState::Open);
            // Of its own: the port answers although as many requests of clients are open as may be.
            let watchdog = Watchdog::of_clients(Arc::clone(node.answers()), limit_counters);
            let (listener, limit) = (Listener::Tcp(listener), connections.metrics);
            let serving = serve(listener, monitoring, METRICS_PORT, limit, metrics_tls, watchdog, changes);
            Port { state, task: tokio::spawn(serving) }
        });
        let listeners = [Listener::Tcp(options.client_listener)].into_iter();
        let listeners = listeners.chain(options.client_socket.map(Listener::Unix));
        let clients = listeners.map(|listener| {
            let (state, changes) = watch::channel(PortState::Open);
            let (limit, watchdog) = (connections.clients.clone(), Arc::clone(&watchdog));
            let tls = client_tls.clone();
            let serving = serve(listener, faces.clone(), CLIENT_PORT, limit, tls, watchdog, changes);
            Port { state, task: tokio::spawn(serving) }
        });
        let clients = clients.collect();
        let dns = dns.map(|(sockets, service)| {
            let (state, changes) = watch::channel(PortState::Open);
            let serving = dns::serve(sockets, service, connections.clients.clone(), dns_tls, changes);
            Port { state, task: tokio::spawn(serving) }
        });
        let renew_now = Arc::clone(&options.tls.renew_now);
        let mut renewing = JoinSet::new();
        renewing.spawn(options.tls.keep_renewing(tls_metrics));
        node.form_cluster();
        Ok(Self {
            node,
            client_address,
            metrics_address,
            dns_address,
            dns_tls_address,
            clients,
            metrics,
            peers,
            dns,
            renew_now,
            _renewing: renewing,
        })
    }

    /// The node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Reads the certificate files again now, instead of at the next interval.
    pub fn renew_certificates(&self) {
        self.renew_now.notify_one();
    }

    /// Address of the client port.
    pub fn client_address(&self) -> SocketAddr {
        self.client_address
    }

    /// Address of the metrics port, if there is one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Address of the DNS port, if there is one.
    pub fn dns_address(&self) -> Option<SocketAddr> {
        self.dns_address
    }

    /// Address of the DNS port for TLS, if there is one.
    pub fn dns_tls_address(&self) -> Option<SocketAddr> {
        self.dns_tls_address
    }

    /// Resolves with the reason when consensus ends by itself, or the state cannot be read: the
    /// process must exit then.
    pub async fn ended(&self) -> String {
        tokio::select! {
            why = self.node.consensus().ended() => format!("consensus ended: {why}"),
            why = self.node.storage_failed() => format!("the state cannot be read: {why}"),
        }
    }

    /// Stops in order: hand leadership over, end streams, refuse new connections, let open requests
    /// finish, end consensus, flush. Resolves when nothing uses the data directory any more, or
    /// after a bounded wait for that.
    pub async fn stop(self) {
        self.node.consensus().note_stopping();
        self.node.hand_over().await;
        // Clients of streams continue at another member; open requests may finish.
        self.node.close_streams();
        if let Some(dns) = self.dns {
            dns.close(DRAIN_TIMEOUT).await;
        }
        // Open requests still need consensus, so it ends only after them; peers are answered to the
        // very end.
        close_all(self.clients, DRAIN_TIMEOUT).await;
        if let Some(metrics) = self.metrics {
            metrics.close(DRAIN_TIMEOUT).await;
        }
        self.node.stop().await;
        self.peers.close(Duration::ZERO).await;
        if tokio::time::timeout(RELEASE_TIMEOUT, self.node.gone()).await.is_err() {
            tracing::warn!("the data directory is still in use by this process, which has stopped serving");
        }
    }

    /// Ends at once, without an orderly stop. Resolves when nothing uses the data directory any
    /// more. For tests. The state is still flushed when its database closes; only `tests/crash`
    /// ends whole processes.
    pub async fn crash(self) {
        self.node.close_streams();
        self.node.crash().await;
        if let Some(dns) = self.dns {
            dns.close(Duration::ZERO).await;
        }
        close_all(self.clients.into_iter().chain(self.metrics).collect(), Duration::ZERO).await;
        self.peers.close(Duration::ZERO).await;
        self.node.gone().await;
    }
}
