//! The DNS port: packets over UDP, and over TCP with their length in front, in plain text or by TLS
//! (RFC 7858).
//!
//! Owns the sockets and the limits of questions and connections. Knows nothing of the content of
//! packets. Invariant: a question over the limit is refused at once, a connection over the limit is
//! closed at once; no question waits for a question of another client.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::addresses::AddressPermit;
use super::descriptors::ConnectionLimit;
use super::handshake::until_untrusted;
use super::listener::{ACCEPT_PAUSE, PortState, PortTls};
use headwater_api::{DnsService, DnsTransport};
use headwater_node::{ClientKey, Limit, Shares};
use headwater_types::limits::{DNS_CONNECTIONS_MAX, DNS_QUERIES_MAX, DNS_REQUEST_BYTES_MAX};

/// Longest time for a whole question to arrive, idle time included, and for an answer to be taken
/// by the client (RFC 7766 §6.2.3).
const MESSAGE_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes of the length in front of each packet over TCP.
const LENGTH_BYTES: usize = 2;
/// Attempts to find a port that is free for UDP and TCP.
const FREE_PORT_ATTEMPTS: usize = 16;

/// The sockets of DNS: UDP and TCP on one address and, if DNS over TLS is served, TCP on another
/// one.
#[derive(Debug)]
pub struct DnsSockets {
    udp: UdpSocket,
    tcp: TcpListener,
    tls: Option<TcpListener>,
}

impl DnsSockets {
    /// Binds the sockets of plain DNS. Port 0 stands for any port that is free for UDP and TCP.
    ///
    /// # Errors
    ///
    /// If one of them cannot be bound.
    pub async fn bind(address: SocketAddr) -> std::io::Result<Self> {
        let mut attempts = if address.port() == 0 { FREE_PORT_ATTEMPTS } else { 1 };
        loop {
            attempts -= 1;
            let tcp = TcpListener::bind(address).await?;
            match UdpSocket::bind(tcp.local_addr()?).await {
                Ok(udp) => return Ok(Self { udp, tcp, tls: None }),
                Err(error) if error.kind() == ErrorKind::AddrInUse && attempts > 0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Binds the socket of DNS over TLS, too.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub async fn with_tls(self, address: SocketAddr) -> std::io::Result<Self> {
        Ok(Self { tls: Some(TcpListener::bind(address).await?), ..self })
    }

    /// The address of plain DNS.
    ///
    /// # Errors
    ///
    /// Those of the operating system.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    /// The address of DNS over TLS, if it is served.
    ///
    /// # Errors
    ///
    /// Those of the operating system.
    pub fn tls_address(&self) -> std::io::Result<Option<SocketAddr>> {
        self.tls.as_ref().map(TcpListener::local_addr).transpose()
    }
}

/// The client of one connection, and the bound against which its questions in progress count. UDP
/// and all connections share the bound.
struct Queries {
    shares: Shares,
    client: ClientKey,
}

/// Bounds that all DNS connections of the node share; `queries` also bounds questions over UDP, and
/// `limit` is shared with the client port.
#[derive(Clone)]
struct Bounds {
    queries: Shares,
    connections: Arc<Semaphore>,
    limit: ConnectionLimit,
}

/// Serves the port until `state` is [`PortState::Draining`] or its sender is gone. When it returns,
/// no question is under way.
pub(super) async fn serve(
    sockets: DnsSockets,
    service: DnsService,
    limit: ConnectionLimit,
    tls: Option<PortTls>,
    state: watch::Receiver<PortState>,
) {
    let DnsSockets { udp, tcp, tls: secure } = sockets;
    let bounds = Bounds {
        queries: Shares::new(DNS_QUERIES_MAX),
        connections: Arc::new(Semaphore::new(DNS_CONNECTIONS_MAX)),
        limit,
    };
    let by_tls = async {
        if let (Some(listener), Some(tls)) = (secure, tls) {
            serve_tcp(listener, service.clone(), bounds.clone(), Some(tls), state.clone()).await;
        }
    };
    tokio::join!(
        serve_udp(udp, service.clone(), bounds.queries.clone(), state.clone()),
        serve_tcp(tcp, service.clone(), bounds.clone(), None, state.clone()),
        by_tls,
    );
}

async fn serve_udp(socket: UdpSocket, service: DnsService, queries: Shares, mut state: watch::Receiver<PortState>) {
    let socket = Arc::new(socket);
    let mut answering = JoinSet::new();
    // The system cuts a longer packet.
    let mut packet = vec![0; DNS_REQUEST_BYTES_MAX];
    let drain = loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut packet) => received,
            Some(ended) = answering.join_next() => {
                report(ended);
                continue;
            }
            limit = draining(&mut state) => break limit,
        };
        let (question, from) = match received {
            Ok((length, from)) => (&packet[..length], from),
            Err(error) => {
                tracing::debug!(%error, "could not receive a DNS packet");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let client = ClientKey::of_address(from.ip());
        let Some(share) = queries.take(client) else {
            if let Some(answer) = service.busy(question, DnsTransport::Udp) {
                send(&socket, &answer, from).await;
            }
            continue;
        };
        let (question, service, socket) = (question.to_vec(), service.clone(), socket.clone());
        answering.spawn(async move {
            let _share = share;
            if let Some(answer) = service.answer(&question, client, DnsTransport::Udp).await {
                send(&socket, &answer, from).await;
            }
        });
    };
    finish(answering, drain).await;
}

async fn send(socket: &UdpSocket, answer: &[u8], to: SocketAddr) {
    if let Err(error) = socket.send_to(answer, to).await {
        tracing::debug!(%error, %to, "could not send a DNS answer");
    }
}

async fn serve_tcp(
    listener: TcpListener,
    service: DnsService,
    bounds: Bounds,
    tls: Option<PortTls>,
    mut state: watch::Receiver<PortState>,
) {
    let mut connections = JoinSet::new();
    let drain = loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = connections.join_next() => {
                report(ended);
                continue;
            }
            limit = draining(&mut state) => break limit,
        };
        let (socket, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "could not accept a DNS connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let permit = bounds.connections.clone().try_acquire_owned();
        // The reserve of connections is for keep-alives and health.
        let descriptor = bounds.limit.take(Some(address.ip())).filter(|permit| !permit.is_reserved());
        let (Ok(permit), Some(descriptor)) = (permit, descriptor) else {
            service.connection_refused();
            continue;
        };
        let half_open = tls.as_ref().map(|tls| (tls, tls.half_open.take(address.ip())));
        let tls = match half_open {
            None => None,
            Some((tls, Some(half_open))) => Some((tls.clone(), half_open)),
            Some((tls, None)) => {
                tls.limit_counters.count(Limit::Handshakes);
                service.connection_refused();
                tracing::debug!(from = %address, "refused a connection: its address shakes hands on too many others");
                continue;
            }
        };
        let queries = Queries { shares: bounds.queries.clone(), client: ClientKey::of_address(address.ip()) };
        let (service, state) = (service.clone(), state.clone());
        connections.spawn(async move {
            let _permits = (permit, descriptor);
            let _counted = service.connection();
            let served = match tls {
                None => serve_plain(socket, &service, &queries, state).await,
                Some((tls, half_open)) => serve_tls((socket, half_open), tls, &service, &queries, state).await,
            };
            if let Err(error) = served {
                tracing::debug!(from = %address, %error, "a DNS connection ended");
            }
        });
    };
    drop(listener);
    finish(connections, drain).await;
}

async fn serve_plain(
    socket: TcpStream,
    service: &DnsService,
    queries: &Queries,
    state: watch::Receiver<PortState>,
) -> anyhow::Result<()> {
    socket.set_nodelay(true)?;
    serve_connection(socket, service, queries, state).await
}

/// Does the TLS handshake on a connection, then serves it. Ends it when the client's certificate,
/// if it showed one, is no longer valid. The bound on connections includes those in their
/// handshake.
async fn serve_tls(
    (socket, half_open): (TcpStream, AddressPermit),
    tls: PortTls,
    service: &DnsService,
    queries: &Queries,
    state: watch::Receiver<PortState>,
) -> anyhow::Result<()> {
    socket.set_nodelay(true)?;
    let (stream, identity) = tls.server.accept(socket).await.inspect_err(|_| tls.failures.inc())?;
    drop(half_open);
    tokio::select! {
        served = serve_connection(stream, service, queries, state) => served,
        why = until_untrusted(&tls.server, identity.as_ref()) => Err(anyhow::anyhow!(why)),
    }
}

/// Answers one question after the other. Ends when the client closes or stalls, after a packet that
/// is too long or gets no answer, and when the port drains.
async fn serve_connection<S: AsyncRead + AsyncWrite + Unpin>(
    mut socket: S,
    service: &DnsService,
    queries: &Queries,
    mut state: watch::Receiver<PortState>,
) -> anyhow::Result<()> {
    let mut packet = Vec::new();
    loop {
        let whole = tokio::select! {
            whole = tokio::time::timeout(MESSAGE_TIME_MAX, receive(&mut socket, &mut packet)) => whole,
            _ = draining(&mut state) => return Ok(()),
        };
        let Some(is_whole) = whole.context("the client stands still")?? else { return Ok(()) };
        let answer = match (is_whole, queries.shares.take(queries.client)) {
            (false, _) => service.too_long(&packet, DnsTransport::Tcp),
            (true, Some(_share)) => service.answer(&packet, queries.client, DnsTransport::Tcp).await,
            (true, None) => service.busy(&packet, DnsTransport::Tcp),
        };
        // A packet that is no question gets no answer and ends the connection.
        let Some(answer) = answer else { return Ok(()) };
        let length = u16::try_from(answer.len()).context("an answer is longer than a packet can be")?;
        let framed = [&length.to_be_bytes()[..], &answer].concat();
        let sent = async {
            socket.write_all(&framed).await?;
            socket.flush().await
        };
        tokio::time::timeout(MESSAGE_TIME_MAX, sent).await.context("the client does not take its answer")??;
        if !is_whole {
            return Ok(());
        }
    }
}

/// Reads one packet into `packet`. `Some(true)`: the packet is whole. `Some(false)`: it is too
/// long, and `packet` has its beginning. `None`: the client closed before the first byte of a
/// packet. A close within a packet is an error.
async fn receive(socket: &mut (impl AsyncRead + Unpin), packet: &mut Vec<u8>) -> std::io::Result<Option<bool>> {
    let mut length = [0; LENGTH_BYTES];
    if socket.read(&mut length[..1]).await? == 0 {
        return Ok(None);
    }
    socket.read_exact(&mut length[1..]).await?;
    let length = usize::from(u16::from_be_bytes(length));
    packet.resize(length.min(DNS_REQUEST_BYTES_MAX), 0);
    socket.read_exact(packet).await?;
    Ok(Some(length <= DNS_REQUEST_BYTES_MAX))
}

/// Resolves when the port must close, with the time left for questions under way: zero if the
/// sender of the state is gone.
async fn draining(state: &mut watch::Receiver<PortState>) -> Duration {
    let ended = state.wait_for(|state| matches!(state, PortState::Draining(_))).await;
    match ended.as_deref() {
        Ok(PortState::Draining(limit)) => *limit,
        Ok(PortState::Open) | Err(_) => Duration::ZERO,
    }
}

/// Waits for the tasks, at most `limit`, and then aborts the unfinished ones.
async fn finish(mut tasks: JoinSet<()>, limit: Duration) {
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            report(ended);
        }
    };
    if tokio::time::timeout(limit, all).await.is_err() && !limit.is_zero() {
        tracing::info!("some DNS questions were not answered in time");
    }
    tasks.shutdown().await;
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a DNS question could not be answered");
    }
}
