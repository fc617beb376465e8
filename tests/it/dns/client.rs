//! DNS clients: a resolver as programs use it, and functions that send and receive single messages.

use std::net::SocketAddr;
use std::time::Duration;

use headwater::node::RequestContext;
use headwater::types::catalog::{CatalogNode, Check, CheckStatus, Registration, Service};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::cluster::{Cluster, within};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A resolver without a cache that asks only this server.
pub(super) fn resolver(server: SocketAddr) -> TokioResolver {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = server.port();
        connection
    });
    let server = NameServerConfig::new(server.ip(), true, connections.into());
    let config = ResolverConfig::from_parts(None, vec![], vec![server]);
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    let options = builder.options_mut();
    options.cache_size = 0;
    options.timeout = TIMEOUT;
    builder.build().unwrap()
}

/// A question. `payload` is the packet size that the client accepts, by EDNS; `None` without EDNS.
pub(super) fn question(name: &str, wanted: RecordType, payload: Option<u16>) -> Message {
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), wanted));
    if let Some(payload) = payload {
        let mut edns = Edns::new();
        edns.set_max_payload(payload);
        message.set_edns(edns);
    }
    message
}

/// Sends a packet over UDP; returns the answer's packet.
pub(super) async fn udp_packet(server: SocketAddr, packet: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(server).await.unwrap();
    socket.send(packet).await.unwrap();
    let mut answer = vec![0; 65_536];
    let length = within("an answer over UDP", socket.recv(&mut answer)).await.unwrap();
    answer.truncate(length);
    answer
}

/// The answer to a question over UDP.
pub(super) async fn udp(server: SocketAddr, question: &Message) -> Message {
    Message::from_vec(&udp_packet(server, &question.to_vec().unwrap()).await).unwrap()
}

/// A DNS connection over TCP or another byte stream. It carries any number of questions.
pub(super) struct Connection<S = TcpStream>(S);

impl Connection {
    pub(super) async fn open(server: SocketAddr) -> Self {
        Self::over(within("a connection", TcpStream::connect(server)).await.unwrap())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn over(stream: S) -> Self {
        Self(stream)
    }

    pub(super) async fn send(&mut self, packet: &[u8]) {
        self.try_send(packet).await.unwrap();
    }

    /// Sends a packet behind its length. Returns an error if the connection is closed.
    pub(super) async fn try_send(&mut self, packet: &[u8]) -> std::io::Result<()> {
        let length = u16::try_from(packet.len()).unwrap();
        self.0.write_all(&[&length.to_be_bytes()[..], packet].concat()).await
    }

    /// The next answer; `None` once the server has closed the connection.
    pub(super) async fn receive(&mut self) -> Option<Message> {
        let mut length = [0; 2];
        let mut answer = Vec::new();
        let received = async {
            self.0.read_exact(&mut length).await?;
            answer.resize(usize::from(u16::from_be_bytes(length)), 0);
            self.0.read_exact(&mut answer).await
        };
        within("an answer over TCP", received).await.ok()?;
        Some(Message::from_vec(&answer).unwrap())
    }

    pub(super) async fn ask(&mut self, question: &Message) -> Message {
        self.send(&question.to_vec().unwrap()).await;
        self.receive().await.expect("an answer")
    }
}

/// The answer to a question over TCP, on a connection of its own.
pub(super) async fn tcp(server: SocketAddr, question: &Message) -> Message {
    Connection::open(server).await.ask(question).await
}

/// An answer as lines: the response code, then the data of its records, sorted.
pub(super) fn answer_lines(answer: &Message) -> Vec<String> {
    let mut lines: Vec<String> = answer.answers.iter().map(|record| record.data.to_string()).collect();
    lines.sort();
    lines.insert(0, format!("{:?}", answer.metadata.response_code));
    lines
}

/// The answer to a question for SRV records over UDP, as [`answer_lines`].
pub async fn service_lines(server: SocketAddr, name: &str) -> Vec<String> {
    answer_lines(&udp(server, &question(name, RecordType::SRV, None)).await)
}

/// A registration of the instance `NAME-1` on the catalog's node `nNUMBER`, at 10.0.0.NUMBER, with
/// one check of the instance.
pub(super) fn instance(name: &str, number: u8, status: CheckStatus) -> Registration {
    Registration {
        node: CatalogNode { name: format!("n{number}"), address: format!("10.0.0.{number}"), ..CatalogNode::default() },
        service: Some(Service { id: format!("{name}-1"), name: name.into(), port: 8080, ..Service::default() }),
        checks: vec![Check {
            id: format!("{name}-health"),
            service_id: format!("{name}-1"),
            status,
            ..Check::default()
        }],
        ..Registration::default()
    }
}

/// Registers at the member `at`; returns once every running member has applied it.
pub(super) async fn register(cluster: &Cluster, at: usize, registration: Registration) {
    let done = cluster.node(at).catalog().register(&RequestContext::within(TIMEOUT), registration).await.unwrap();
    applied(cluster, done.index).await;
}

/// Waits until every running member has applied `index`.
pub(super) async fn applied(cluster: &Cluster, index: headwater::types::LogIndex) {
    for member in cluster.running() {
        let mut applied = cluster.node(member).applied();
        within("all members have it", applied.wait_for(|applied| *applied >= index)).await.unwrap();
    }
}
