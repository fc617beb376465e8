//! Connections to a cluster's endpoints, and when a request may be sent to the next one.
//!
//! A read goes on to the next endpoint whenever one cannot answer. A write goes on only while it is
//! certain that it was not carried out: no connection, or a status that says so. Otherwise it is
//! reported as indeterminate.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

use super::error::{CliError, Tried};
use headwater_proto::pb::etcdserverpb::cluster_client::ClusterClient;
use headwater_proto::pb::etcdserverpb::kv_client::KvClient;
use headwater_proto::pb::etcdserverpb::lease_client::LeaseClient;
use headwater_proto::pb::etcdserverpb::maintenance_client::MaintenanceClient;
use headwater_proto::pb::etcdserverpb::watch_client::WatchClient;
use headwater_proto::pb::headwater_v1::versions_client::VersionsClient;
use headwater_proto::pb::pbresource::resource_service_client::ResourceServiceClient;
use headwater_proto::pb::pbwatcher::watcher_client::WatcherClient;
use headwater_proto::pb::v3electionpb::election_client::ElectionClient;
use headwater_proto::pb::v3lockpb::lock_client::LockClient;

/// Longest wait for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How often an open call asks whether the other side is there, and how long it waits for the
/// answer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether repeating a request can do harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Reads, and writes that leave the same behind however often they are carried out.
    Harmless,
    /// Writes.
    Harmful,
}

/// The endpoints that the user named.
pub struct Cluster {
    nodes: Vec<Node>,
    timeout: Duration,
    /// Where the last answer came from: the next request starts there.
    preferred: AtomicUsize,
}

struct Node {
    name: String,
    endpoint: Endpoint,
    channel: Mutex<Option<Channel>>,
}

/// One attempt at one endpoint.
#[derive(Clone)]
pub struct Attempt {
    channel: Channel,
    timeout: Duration,
}

impl Attempt {
    /// Client of the service of keys.
    pub fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// Client of the service of watches of keys.
    pub fn watch(&self) -> WatchClient<Channel> {
        WatchClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// Client of the service of leases.
    pub fn lease(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// Client of the service of locks.
    pub fn lock(&self) -> LockClient<Channel> {
        LockClient::new(self.channel.clone())
    }

    /// Client of the service of elections.
    pub fn election(&self) -> ElectionClient<Channel> {
        ElectionClient::new(self.channel.clone())
    }

    /// Client of the service of typed resources.
    pub fn resources(&self) -> ResourceServiceClient<Channel> {
        ResourceServiceClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// Client of the service of watches of any entity.
    pub fn watcher(&self) -> WatcherClient<Channel> {
        WatcherClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    /// Client of the service of versions.
    pub fn versions(&self) -> VersionsClient<Channel> {
        VersionsClient::new(self.channel.clone())
    }

    /// Client of the service of members.
    pub fn cluster(&self) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel.clone())
    }

    /// Client of the service of maintenance.
    pub fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel.clone())
    }

    /// For plain HTTP requests.
    pub fn http(&self) -> Channel {
        self.channel.clone()
    }

    /// A request that carries the deadline, so that the server gives up in time.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        request
    }
}

impl Cluster {
    /// Checks the endpoints' form; connects to none of them yet.
    pub fn new(endpoints: &[String], timeout: Duration) -> Result<Self, CliError> {
        let nodes = endpoints.iter().map(|name| Node::new(name)).collect::<Result<Vec<_>, _>>()?;
        if nodes.is_empty() {
            return Err(CliError::Usage("--endpoints names no endpoint".to_owned()));
        }
        Ok(Self { nodes, timeout, preferred: AtomicUsize::new(0) })
    }

    /// The endpoints' names as the user wrote them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    /// Asks one endpoint after the other until one answers.
    pub async fn call<T>(
        &self,
        repeat: Repeat,
        call: impl AsyncFn(Attempt) -> Result<Response<T>, Status>,
    ) -> Result<T, CliError> {
        let first = self.preferred.load(Ordering::Relaxed);
        let mut tried = Vec::new();
        for offset in 0..self.nodes.len() {
            let index = (first + offset) % self.nodes.len();
            let node = &self.nodes[index];
            let attempt = match node.connect(self.timeout).await {
                Ok(attempt) => attempt,
                Err(reason) => {
                    tried.push(Tried { endpoint: node.name.clone(), reason });
                    continue;
                }
            };
            let (reason, undone) = match tokio::time::timeout(self.timeout, call(attempt)).await {
                Ok(Ok(response)) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(response.into_inner());
                }
                Ok(Err(status)) => match judge(&status) {
                    Verdict::Final => {
                        return Err(CliError::Refused { endpoint: node.name.clone(), status: Box::new(status) });
                    }
                    Verdict::Undone => (describe(&status), true),
                    Verdict::Unknown => (describe(&status), false),
                },
                Err(_) => (format!("no answer within {}", humantime::format_duration(self.timeout)), false),
            };
            if repeat == Repeat::Harmful && !undone {
                return Err(CliError::Indeterminate { endpoint: node.name.clone(), reason });
            }
            tried.push(Tried { endpoint: node.name.clone(), reason });
        }
        Err(CliError::Unreachable(tried))
    }

    /// Connects to one endpoint, by its place in [`names`](Self::names), for a call that stays
    /// open. Fails with the reason.
    pub async fn attempt(&self, number: usize) -> Result<Attempt, String> {
        self.nodes[number].connect(self.timeout).await
    }

    /// Asks every endpoint at once.
    pub async fn call_each<T>(
        &self,
        call: impl AsyncFn(Attempt) -> Result<Response<T>, Status>,
    ) -> Vec<Result<T, Tried>> {
        let call = &call;
        futures::future::join_all(self.nodes.iter().map(|node| async move {
            let failed = |reason| Tried { endpoint: node.name.clone(), reason };
            let attempt = node.connect(self.timeout).await.map_err(failed)?;
            match tokio::time::timeout(self.timeout, call(attempt)).await {
                Ok(Ok(response)) => Ok(response.into_inner()),
                Ok(Err(status)) => Err(failed(describe(&status))),
                Err(_) => Err(failed(format!("no answer within {}", humantime::format_duration(self.timeout)))),
            }
        }))
        .await
    }
}

/// The path of an endpoint that is a Unix socket, as etcdctl has them: `unix:///PATH`.
pub fn socket_path(name: &str) -> Option<&str> {
    let path = name.strip_prefix("unix://").or_else(|| name.strip_prefix("unix:"))?;
    (path.starts_with('/') && !path.ends_with('/')).then_some(path)
}

/// The URL of an endpoint that is written without `http://`.
pub fn endpoint_url(name: &str) -> String {
    if socket_path(name).is_some() { name.to_owned() } else { format!("http://{name}") }
}

impl Node {
    fn new(name: &str) -> Result<Self, CliError> {
        let refused = |why: &str| {
            CliError::Usage(format!(
                "{name:?} is not an endpoint ({why}); write HOST:PORT, such as 127.0.0.1:2379, or unix:///PATH"
            ))
        };
        if name.starts_with("https://") {
            return Err(refused("TLS is not supported yet"));
        }
        if name.starts_with("unix:") || name.starts_with("unixs:") {
            let path = socket_path(name).ok_or_else(|| refused("a Unix socket is unix:///PATH"))?;
            let endpoint = Endpoint::from_shared(format!("unix://{path}")).map_err(|_| refused("malformed"))?;
            return Ok(Self::to(format!("unix://{path}"), endpoint));
        }
        let authority = name.strip_prefix("http://").unwrap_or(name).trim_end_matches('/');
        let uri: http::Uri = format!("http://{authority}").parse().map_err(|_| refused("malformed"))?;
        if uri.path() != "/" || uri.query().is_some() {
            return Err(refused("a path behind the port"));
        }
        if uri.port_u16().is_none() {
            let is_number = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| is_number(port));
            return Err(refused(if has_port { "no such port, the last one is 65535" } else { "no port" }));
        }
        Ok(Self::to(authority.to_owned(), Endpoint::from(uri)))
    }

    fn to(name: String, endpoint: Endpoint) -> Self {
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            // A watch on a node that has stopped without a word must find out.
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20);
        Self { name, endpoint, channel: Mutex::new(None) }
    }

    async fn connect(&self, timeout: Duration) -> Result<Attempt, String> {
        let known = self.channel.lock().clone();
        let channel = match known {
            Some(channel) => channel,
            None => {
                let channel = self.endpoint.connect().await.map_err(|error| innermost(&error))?;
                *self.channel.lock() = Some(channel.clone());
                channel
            }
        };
        Ok(Attempt { channel, timeout })
    }
}

/// Meaning of a status for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The server decided; another one would say the same.
    Final,
    /// Certainly not carried out, and another endpoint may do better.
    Undone,
    /// It may have been carried out.
    Unknown,
}

fn judge(status: &Status) -> Verdict {
    match status.code() {
        Code::Unavailable | Code::Unknown | Code::ResourceExhausted
            if matches!(
                status.message(),
                "etcdserver: no leader"
                    | "no leader"
                    | "too many requests"
                    | "etcdserver: too many requests"
                    | "headwater: this member was removed from the cluster, ask another"
            ) =>
        {
            Verdict::Undone
        }
        // A refusal of a change of members, although it passes.
        Code::Unavailable if status.message() == "etcdserver: unhealthy cluster" => Verdict::Final,
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Internal => Verdict::Unknown,
        // A broken connection has this code too; then there is a cause, and no server wrote the
        // message.
        Code::Unknown if status.source().is_some() => Verdict::Unknown,
        _ => Verdict::Final,
    }
}

/// Why a call failed, in words for people.
pub fn describe(status: &Status) -> String {
    // Text of the client itself when the deadline that it sent has passed.
    if status.code() == Code::Cancelled && status.message() == "Timeout expired" {
        return "no answer in time".to_owned();
    }
    match status.source() {
        Some(source) => innermost(source),
        None => format!("{} ({})", status.message(), super::error::code_name(status.code())),
    }
}

/// The outer layers say "transport error"; the operating system's words are innermost.
fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_status_means() {
        for (status, wanted) in [
            (Status::unavailable("etcdserver: no leader"), Verdict::Undone),
            (Status::unavailable("no leader"), Verdict::Undone),
            (Status::resource_exhausted("too many requests"), Verdict::Undone),
            (Status::unavailable("write is indeterminate: the leader was lost"), Verdict::Unknown),
            (Status::unknown("etcdserver: too many requests"), Verdict::Undone),
            (Status::resource_exhausted("etcdserver: too many requests"), Verdict::Undone),
            (Status::resource_exhausted("etcdserver: mvcc: database space exceeded"), Verdict::Final),
            (Status::unavailable("headwater: this member was removed from the cluster, ask another"), Verdict::Undone),
            (Status::unavailable("etcdserver: unhealthy cluster"), Verdict::Final),
            (Status::unavailable("etcdserver: request timed out"), Verdict::Unknown),
            (Status::unavailable("etcdserver: leader changed"), Verdict::Unknown),
            (Status::deadline_exceeded("x"), Verdict::Unknown),
            (Status::invalid_argument("etcdserver: key is not provided"), Verdict::Final),
            (Status::unknown("election: no leader"), Verdict::Final),
        ] {
            assert_eq!(judge(&status), wanted, "{status:?}");
        }
    }

    #[test]
    fn endpoints_take_several_forms() {
        for (text, name) in [
            ("127.0.0.1:1", Some("127.0.0.1:1")),
            ("http://h:2/", Some("h:2")),
            ("h", None),
            ("https://h:1", None),
            ("h:99999", None),
            ("h:1/v3", None),
            ("", None),
            ("unix:///run/s.sock", Some("unix:///run/s.sock")),
            ("unix:/run/s.sock", Some("unix:///run/s.sock")),
            ("unix://s.sock", None),
            ("unix:///", None),
            ("unixs:///run/s.sock", None),
        ] {
            assert_eq!(Node::new(text).ok().map(|node| node.name).as_deref(), name, "{text:?}");
        }
        let why = |text: &str| Node::new(text).map(|node| node.name).unwrap_err().to_string();
        assert!(why("h:99999").contains("65535"), "{}", why("h:99999"));
        assert!(why("h:").contains("(no port)"), "{}", why("h:"));
    }

    #[tokio::test]
    async fn every_endpoint_that_was_tried_is_named() {
        // Bound and dropped: nobody listens on these ports now.
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let names = [free(), free()];
        let cluster = Cluster::new(&names, Duration::from_secs(1)).unwrap();
        let error = cluster
            .call(Repeat::Harmful, async |_| -> Result<Response<()>, Status> { unreachable!("nobody listens") })
            .await
            .unwrap_err()
            .to_string();
        for name in &names {
            assert!(error.contains(&format!("{name}: Connection refused")), "{error}");
        }
    }
}
