//! The HTTP ports: of clients, of members and of metrics. Connections are served by hyper directly:
//! every layer between the socket and a handler costs each request.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use prometheus::IntCounter;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::Service;

use super::addresses::{AddressLimit, AddressPermit};
use super::authority::RepairedStream;
use super::descriptors::ConnectionLimit;
use super::handshake::{Identified, until_untrusted};
use super::socket::{Listener, Socket};
use super::watchdog::{
    Connection, ConnectionSweeper, SWEEP_INTERVAL, StreamExecutor, Watchdog, WatchedService, WatchedStream,
};
use headwater_node::{ClientKey, Limit, LimitCounters};
use headwater_tls::{Identity, ServerTls};
use headwater_types::limits::{HEADER_LIST_BYTES_MAX, STREAMS_PER_CONNECTION_MAX};

/// Options of a port: its flow-control windows, its probes of silent connections, and whether it
/// accepts a URL or a path as `:authority`.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortOptions {
    /// HTTP/2 flow-control window of one stream for received data, bytes.
    pub(super) stream_window_bytes: u32,
    /// HTTP/2 flow-control window of one connection for received data, bytes.
    pub(super) connection_window_bytes: u32,
    /// Time without received data after which a connection is probed, by HTTP/2 `PING` and by TCP
    /// keepalive.
    pub(super) keepalive_interval: Duration,
    /// HTTP/2: longest wait for the answer to a `PING`. TCP: time between a keepalive probe without
    /// an answer and the next one.
    pub(super) keepalive_timeout: Duration,
    /// Whether the `:authority` of a request may be a URL or a path.
    pub(super) takes_url_authority: bool,
}

impl PortOptions {
    fn stream(self, socket: Socket) -> RepairedStream<Socket> {
        match self.takes_url_authority {
            true => RepairedStream::new(socket),
            false => RepairedStream::as_it_is(socket),
        }
    }
}

/// Options of the client port. The windows bound what a client sends ahead, such as large values;
/// the client's own windows bound events. A silent client is probed much sooner than by etcd (after
/// 2 h), so that a dead one does not hold its watchers for long.
pub(super) const CLIENT_PORT: PortOptions = PortOptions {
    stream_window_bytes: 1024 * 1024,
    connection_window_bytes: 4 * 1024 * 1024,
    keepalive_interval: Duration::from_secs(60),
    keepalive_timeout: Duration::from_secs(20),
    takes_url_authority: true,
};

/// Options of the peer port. A full append batch must not wait for a window update, and a
/// black-holed peer must be noticed soon.
pub(super) const PEER_PORT: PortOptions = PortOptions {
    stream_window_bytes: 8 * 1024 * 1024,
    connection_window_bytes: 8 * 1024 * 1024,
    keepalive_interval: Duration::from_secs(1),
    keepalive_timeout: Duration::from_secs(2),
    takes_url_authority: false,
};

/// Options of the metrics port. Small windows suffice: requests have no content.
pub(super) const METRICS_PORT: PortOptions = PortOptions {
    stream_window_bytes: 64 * 1024,
    connection_window_bytes: 64 * 1024,
    keepalive_interval: Duration::from_secs(60),
    keepalive_timeout: Duration::from_secs(20),
    takes_url_authority: false,
};

/// Most streams of a connection that the client has reset before they were served, count (h2's own
/// figure, for CVE-2023-44487): one more ends the connection.
const PENDING_RESETS_MAX: usize = 20;
/// Most streams of a connection that were reset for an error of the client, count (h2's own figure,
/// for CVE-2025-8671): one more ends the connection.
const ERROR_RESETS_MAX: usize = 1024;

/// Buffer of a connection of HTTP/1, bytes, in which the head of a request must fit; the answer to
/// a longer one is 431. Four times the headers of HTTP/2, because path and query count: a marker to
/// resume after may be long. Bodies pass through it in parts.
const HTTP1_BUFFER_BYTES: usize = 4 * HEADER_LIST_BYTES_MAX as usize;
const _: () = assert!(HTTP1_BUFFER_BYTES >= 8192, "hyper refuses smaller buffers");

/// Pause after a failed accept, for want of file descriptors for example.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Whether a port is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortState {
    /// The port accepts connections.
    Open,
    /// The port accepts no connections. The open ones may finish for at most this long.
    Draining(Duration),
}

/// Turns off the delay of small writes (`TCP_NODELAY`), and turns on keepalive probes: they detect
/// a peer that is gone without closing the connection. HTTP/2 has probes of its own. On HTTP/1 only
/// keepalive probes end a silent stream of a client that lost its power. A stream with unsent data
/// ends by the watchdog or by TCP itself.
fn tune(socket: &TcpStream, options: PortOptions) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let probes = TcpKeepalive::new().with_time(options.keepalive_interval).with_interval(options.keepalive_timeout);
    SockRef::from(socket).set_tcp_keepalive(&probes)
}

/// TLS of a port: its server side, the bound on unfinished handshakes, and counters.
#[derive(Clone, Debug)]
pub(super) struct PortTls {
    pub(super) server: ServerTls,
    /// Bound on the connections of one network (an IPv4 address or a /64 of IPv6) that have not
    /// ended their handshake.
    pub(super) half_open: AddressLimit,
    pub(super) limit_counters: LimitCounters,
    /// Counts failed handshakes.
    pub(super) failures: IntCounter,
}

/// Does the TLS handshake on a connection, then serves it. Ends it when the watchdog cuts it, or
/// when the client's certificate, if it showed one, is no longer valid.
async fn serve_tls<S, B>(
    (tcp, client, half_open): (TcpStream, ClientKey, AddressPermit),
    tls: PortTls,
    builder: auto::Builder<StreamExecutor>,
    service: S,
    options: PortOptions,
    watched: Arc<Connection>,
    watcher: Watcher,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let address = tcp.peer_addr().ok();
    let from = address.map_or_else(|| "unknown".to_owned(), |from| from.to_string());
    let (stream, identity) = match tls.server.accept(tcp).await {
        Ok(accepted) => accepted,
        Err(error) => {
            tls.failures.inc();
            return tracing::debug!(from, %error, "a handshake failed");
        }
    };
    drop(half_open);
    let stream = WatchedStream::new(options.stream(Socket::Tls(stream)), Arc::clone(&watched));
    let service = Identified::new(service, client, address, identity.clone(), &tls.server);
    let service = WatchedService::new(service, Arc::clone(&watched));
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).into_owned();
    tokio::select! {
        ended = watcher.watch(connection) => {
            if let Err(error) = ended {
                tracing::debug!(error, "a connection ended");
            }
        }
        () = watched.cut() => {}
        why = until_untrusted(&tls.server, identity.as_ref()) => {
            let names = identity.as_ref().map(Identity::names);
            tracing::warn!(from, ?names, why, "closed a connection: its certificate is no longer valid");
        }
    }
}

/// Serves a port until `state` is [`PortState::Draining`] or its sender is gone. When it returns,
/// no connection is left.
pub(super) async fn serve<S, B>(
    listener: Listener,
    service: S,
    options: PortOptions,
    limit: ConnectionLimit,
    tls: Option<PortTls>,
    watchdog: Arc<Watchdog>,
    mut state: watch::Receiver<PortState>,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut builder = auto::Builder::new(StreamExecutor::new(&watchdog));
    builder.http1().timer(TokioTimer::new()).max_buf_size(HTTP1_BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(options.stream_window_bytes)
        .initial_connection_window_size(options.connection_window_bytes)
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(ERROR_RESETS_MAX)
        .keep_alive_interval(options.keepalive_interval)
        .keep_alive_timeout(options.keepalive_timeout);
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let mut sweeper = ConnectionSweeper::default();
    let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
    let drain = loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_ended) = connections.join_next() => continue,
            _ = sweeps.tick() => {
                sweeper.run(Instant::now());
                continue;
            }
            changed = state.changed() => match (changed, *state.borrow()) {
                (Ok(()), PortState::Open) => continue,
                (Ok(()), PortState::Draining(limit)) => break limit,
                (Err(_), _) => break Duration::ZERO,
            },
        };
        let socket = match accepted {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(permit) = limit.take(socket.peer_address()) else { continue };
        if let Socket::Tcp(tcp, _) = &socket
            && let Err(error) = tune(tcp, options)
        {
            tracing::debug!(%error, "a connection was gone at once");
            continue;
        }
        let client = socket.client();
        let watched = Connection::new(&watchdog, permit.is_reserved());
        sweeper.add(&watched);
        let socket = match (socket, &tls) {
            (Socket::Tcp(tcp, from), Some(tls)) => {
                let Some(half_open) = tls.half_open.take(from) else {
                    tls.limit_counters.count(Limit::Handshakes);
                    tracing::debug!(%from, "refused a connection: its address shakes hands on too many others");
                    continue;
                };
                let serving = serve_tls(
                    (tcp, client, half_open),
                    tls.clone(),
                    builder.clone(),
                    service.clone(),
                    options,
                    watched,
                    graceful.watcher(),
                );
                connections.spawn(async move {
                    let _permit = permit;
                    serving.await;
                });
                continue;
            }
            (socket, _) => socket,
        };
        let service = Identified::plain(service.clone(), client, socket.peer_socket());
        let stream = WatchedStream::new(options.stream(socket), Arc::clone(&watched));
        let service = WatchedService::new(service, Arc::clone(&watched));
        let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).into_owned();
        let connection = graceful.watch(connection);
        connections.spawn(async move {
            let _permit = permit;
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(error, "a connection ended");
                },
                () = watched.cut() => {}
            }
        });
    };
    drop(listener);
    if !drain.is_zero() && tokio::time::timeout(drain, graceful.shutdown()).await.is_err() {
        tracing::info!("some connections did not end in time");
    }
    connections.shutdown().await;
}
