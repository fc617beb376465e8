//! The two ports. Connections are served by hyper directly: every layer between the socket and a
//! handler costs each request.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::Service;

use super::authority::RepairedStream;
use super::descriptors::ConnectionLimit;
use super::socket::{Listener, Socket};

/// Settings in which the ports differ.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortOptions {
    /// HTTP/2 flow-control window of one stream, bytes.
    pub(super) stream_window_bytes: u32,
    /// HTTP/2 flow-control window of one connection, bytes.
    pub(super) connection_window_bytes: u32,
    /// How often an idle connection is probed.
    pub(super) keepalive_interval: Duration,
    /// How long a probe may stay unanswered.
    pub(super) keepalive_timeout: Duration,
    /// Whether requests may name the server by a URL.
    pub(super) takes_url_authority: bool,
}

/// Clients: a stream of events must not wait for window updates. etcd probes every 2 h; a dead
/// client should not hold its watchers for so long.
pub(super) const CLIENT_PORT: PortOptions = PortOptions {
    stream_window_bytes: 1024 * 1024,
    connection_window_bytes: 4 * 1024 * 1024,
    keepalive_interval: Duration::from_secs(60),
    keepalive_timeout: Duration::from_secs(20),
    takes_url_authority: true,
};

/// Members: a full append batch must not wait for a window update, and a black-holed peer must be
/// noticed soon.
pub(super) const PEER_PORT: PortOptions = PortOptions {
    stream_window_bytes: 8 * 1024 * 1024,
    connection_window_bytes: 8 * 1024 * 1024,
    keepalive_interval: Duration::from_secs(1),
    keepalive_timeout: Duration::from_secs(2),
    takes_url_authority: false,
};

/// How long a failed accept (out of file descriptors) waits before the next one.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Whether a port goes on, and how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortState {
    /// It accepts connections.
    Open,
    /// It accepts none, and lets the open ones finish for at most this long.
    Draining(Duration),
}

/// Small answers go out at once, and a peer that is gone without a word is noticed. HTTP/2 has
/// probes of its own; on HTTP/1 only these end the stream of a client that lost its power.
fn tune(socket: &TcpStream, options: PortOptions) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let probes = TcpKeepalive::new().with_time(options.keepalive_interval).with_interval(options.keepalive_timeout);
    SockRef::from(socket).set_tcp_keepalive(&probes)
}

/// Serves a port until told to stop. When it returns, no connection is left.
pub(super) async fn serve<S, B>(
    listener: Listener,
    service: S,
    options: PortOptions,
    places: ConnectionLimit,
    mut state: watch::Receiver<PortState>,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(options.stream_window_bytes)
        .initial_connection_window_size(options.connection_window_bytes)
        .max_concurrent_streams(None)
        .keep_alive_interval(options.keepalive_interval)
        .keep_alive_timeout(options.keepalive_timeout);
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let drain = loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_ended) = connections.join_next() => continue,
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
        let Some(place) = places.take() else { continue };
        if let Socket::Tcp(tcp) = &socket
            && let Err(error) = tune(tcp, options)
        {
            tracing::debug!(%error, "a connection was gone at once");
            continue;
        }
        let stream = match options.takes_url_authority {
            true => RepairedStream::new(socket),
            false => RepairedStream::as_it_is(socket),
        };
        let connection =
            builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service.clone())).into_owned();
        let connection = graceful.watch(connection);
        connections.spawn(async move {
            let _place = place;
            if let Err(error) = connection.await {
                tracing::debug!(error, "a connection ended");
            }
        });
    };
    drop(listener);
    if !drain.is_zero() && tokio::time::timeout(drain, graceful.shutdown()).await.is_err() {
        tracing::info!("some connections did not end in time");
    }
    connections.shutdown().await;
}
