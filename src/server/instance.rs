//! One running node with its two listeners, as the program serves it and tests start it in process.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::descriptors::Connections;
use super::dns::{self, DnsSockets};
use super::listener::{CLIENT_PORT, PEER_PORT, PortState, serve};
use super::socket::{Listener, UnixSocket};
use headwater_api::{ApiOptions, DnsOptions, DnsService};
use headwater_node::{Node, NodeOptions};
use headwater_raft::peer_routes;

/// Options of an instance. The listeners are bound by the caller, so that a port in use is reported
/// before anything is touched on disk.
pub struct InstanceOptions {
    /// The node.
    pub node: NodeOptions,
    /// The faces.
    pub api: ApiOptions,
    /// Where clients connect.
    pub client_listener: TcpListener,
    /// Where clients on the same machine connect besides, if they may.
    pub client_socket: Option<UnixSocket>,
    /// Where the other members connect.
    pub peer_listener: TcpListener,
    /// Where DNS is answered, if it is.
    pub dns: Option<DnsPort>,
}

/// The DNS port.
#[derive(Debug)]
pub struct DnsPort {
    /// Its sockets.
    pub sockets: DnsSockets,
    /// How it answers.
    pub options: DnsOptions,
}

/// A running node with its listeners.
pub struct Instance {
    node: Node,
    client_address: SocketAddr,
    dns_address: Option<SocketAddr>,
    clients: Vec<Port>,
    peers: Port,
    dns: Option<Port>,
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

/// Closes ports side by side.
async fn close_all(ports: Vec<Port>, drain: Duration) {
    futures::future::join_all(ports.into_iter().map(|port| port.close(drain))).await;
}

/// How long open connections may take to finish after a stop was asked for.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

impl Instance {
    /// Starts the node, then the peer port, then the ports of clients. Returns before the node has
    /// recovered: requests wait for that, health endpoints tell about it.
    ///
    /// # Errors
    ///
    /// The reason why the node cannot start.
    pub async fn start(options: InstanceOptions) -> anyhow::Result<Self> {
        let registry = Registry::new();
        let connections = Connections::new(&registry).context("registering metrics")?;
        let client_address = options.client_listener.local_addr().context("client listener")?;
        let node = Node::start(options.node, &registry).await?;
        let dns_address = match &options.dns {
            Some(port) => Some(port.sockets.address().context("DNS sockets")?),
            None => None,
        };
        let dns = match options.dns {
            Some(port) => {
                Some((port.sockets, DnsService::new(node.clone(), port.options, &registry).context("serving DNS")?))
            }
            None => None,
        };
        let faces =
            headwater_api::client_service(node.clone(), registry, options.api).context("registering metrics")?;
        let (peer_state, state) = watch::channel(PortState::Open);
        let routes = peer_routes(node.consensus());
        let peers = Port {
            state: peer_state,
            task: tokio::spawn(serve(
                Listener::Tcp(options.peer_listener),
                routes,
                PEER_PORT,
                connections.peers,
                state,
            )),
        };
        let listeners = [Listener::Tcp(options.client_listener)].into_iter();
        let listeners = listeners.chain(options.client_socket.map(Listener::Unix));
        let clients = listeners.map(|listener| {
            let (state, told) = watch::channel(PortState::Open);
            Port {
                state,
                task: tokio::spawn(serve(listener, faces.clone(), CLIENT_PORT, connections.clients.clone(), told)),
            }
        });
        let clients = clients.collect();
        let dns = dns.map(|(sockets, service)| {
            let (state, told) = watch::channel(PortState::Open);
            Port { state, task: tokio::spawn(dns::serve(sockets, service, connections.clients.clone(), told)) }
        });
        node.form_cluster();
        Ok(Self { node, client_address, dns_address, clients, peers, dns })
    }

    /// The node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Where clients connect.
    pub fn client_address(&self) -> SocketAddr {
        self.client_address
    }

    /// Where DNS is answered, if it is.
    pub fn dns_address(&self) -> Option<SocketAddr> {
        self.dns_address
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
    /// finish, end consensus, flush.
    pub async fn stop(self) {
        self.node.consensus().note_stopping();
        self.node.hand_over().await;
        // Their clients go on at another member; open requests may finish.
        self.node.close_streams();
        if let Some(dns) = self.dns {
            dns.close(DRAIN_TIMEOUT).await;
        }
        // Open requests still need consensus, so it ends only after them; peers are answered to the
        // very end.
        close_all(self.clients, DRAIN_TIMEOUT).await;
        self.node.stop().await;
        self.peers.close(Duration::ZERO).await;
    }

    /// Ends at once, flushing nothing, as a crash does, except that the process lives on. For
    /// tests.
    pub async fn crash(self) {
        self.node.close_streams();
        self.node.crash().await;
        if let Some(dns) = self.dns {
            dns.close(Duration::ZERO).await;
        }
        close_all(self.clients, Duration::ZERO).await;
        self.peers.close(Duration::ZERO).await;
        self.node.gone().await;
    }
}
