//! The cluster as its enemy sees it: addresses, the certificates that the enemy can show, and the
//! members as the cluster lists them to every client.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use headwater_proto::pb::etcdserverpb::cluster_client::ClusterClient;
use headwater_proto::pb::etcdserverpb::maintenance_client::MaintenanceClient;
use headwater_proto::pb::etcdserverpb::{MemberListRequest, StatusRequest};
use headwater_tls::authority::{Authority, Pair, Purpose};
use headwater_tls::{CertificateFiles, ClientStream, ClientTls, MinVersion};
use hyper_util::rt::TokioIo;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpSocket;
use tonic::transport::{Channel, Endpoint};

/// Node name with which the enemy asks to become a member.
pub(super) const ENEMY: &str = "enemy";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const DAY: Duration = Duration::from_secs(86_400);
/// Time between now and the validity of certificates that are expired or not yet valid, days: more
/// than a fault moves the clock of a node.
const FAR_DAYS: u32 = 1000;

/// A port of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Port {
    Client,
    Peer,
}

/// The certificate that the enemy shows. Without TLS it shows none, and all values mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    /// A valid certificate of a client.
    Client,
    /// A certificate by the members' authority, for a node that is no member.
    Stranger,
    /// The stolen certificate of the node with this index.
    Member(usize),
    /// No certificate, at this port.
    Nobody(Port),
    /// A certificate for this port by another authority of the same name.
    Foreign(Port),
    Expired(Port),
    NotYetValid(Port),
    /// A client's certificate, shown at the peer port.
    ClientAtPeers,
}

/// Addresses of both ports of a node, each `HOST:PORT`.
#[derive(Clone, Debug)]
pub(super) struct NodeAddresses {
    pub client: String,
    pub peer: String,
}

/// The cluster under attack, and the enemy's certificates.
pub(super) struct Ground {
    pub addresses: Vec<NodeAddresses>,
    /// Address that the enemy connects from; `None`: the system chooses.
    source: Option<IpAddr>,
    /// The client side of TLS for each identity; `None` if the ports speak no TLS.
    wallet: Option<HashMap<Identity, ClientTls>>,
    /// The folder with the certificates that were made for the enemy; removed with this value.
    _folder: tempfile::TempDir,
}

/// Answers of one node about itself and the members.
pub(super) struct Facts {
    pub cluster_id: u64,
    /// Id of the asked node.
    pub own: u64,
    /// The members without the asked node: id, and index in [`Ground::addresses`]. The index is
    /// `None` unless the member's name is `nodeN` and there is such an address.
    pub others: Vec<(u64, Option<usize>)>,
    /// Whether a member has the name [`ENEMY`].
    pub has_enemy: bool,
}

impl Ground {
    /// The cluster at `addresses`, attacked from the address `source` (`None`: any). `certs` is a
    /// folder of `headwater certs` with the keys of both authorities; without it, both ports speak
    /// no TLS. Raises the process's limit of open files.
    pub(super) fn new(
        addresses: Vec<NodeAddresses>,
        source: Option<IpAddr>,
        certs: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).context("raising the limit of files")?;
        let folder = tempfile::tempdir().context("a folder for the enemy's certificates")?;
        let wallet = certs.map(|certs| fill_wallet(certs, folder.path(), addresses.len())).transpose()?;
        Ok(Self { addresses, source, wallet, _folder: folder })
    }

    pub(super) fn has_tls(&self) -> bool {
        self.wallet.is_some()
    }

    pub(super) fn address(&self, node: usize, port: Port) -> &str {
        match port {
            Port::Client => &self.addresses[node].client,
            Port::Peer => &self.addresses[node].peer,
        }
    }

    /// A TCP connection from the enemy's address.
    pub(super) async fn tcp(&self, node: usize, port: Port) -> io::Result<tokio::net::TcpStream> {
        let address: SocketAddr = self.address(node, port).parse().map_err(io::Error::other)?;
        connect(self.source, address).await
    }

    /// A connection after the TLS handshake as `identity`; a plain one if the ports speak no TLS.
    pub(super) async fn stream(&self, node: usize, port: Port, identity: Identity) -> io::Result<ClientStream> {
        let socket = self.tcp(node, port).await?;
        match &self.wallet {
            None => Ok(ClientStream::Plain(socket)),
            Some(wallet) => {
                let tls = wallet.get(&identity).ok_or_else(|| io::Error::other("no such certificate"))?;
                tls.connect(host(self.address(node, port)), socket).await
            }
        }
    }

    /// A gRPC channel to a port, as `identity`.
    pub(super) async fn grpc(&self, node: usize, port: Port, identity: Identity) -> Result<Channel, String> {
        let scheme = if self.has_tls() { "https" } else { "http" };
        let address: SocketAddr = self.address(node, port).parse().map_err(|_| "a bad address".to_owned())?;
        let origin = format!("{scheme}://{address}").parse().map_err(|_| "a bad address".to_owned())?;
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| error.to_string())?;
        let endpoint = endpoint.origin(origin).connect_timeout(CONNECT_TIMEOUT).timeout(CALL_TIMEOUT);
        let tls = match &self.wallet {
            None => None,
            Some(wallet) => Some(wallet.get(&identity).cloned().ok_or("no such certificate")?),
        };
        let source = self.source;
        let connector = tower::service_fn(move |_: http::Uri| {
            let tls = tls.clone();
            async move {
                let socket = connect(source, address).await?;
                let stream = match tls {
                    None => ClientStream::Plain(socket),
                    Some(tls) => tls.connect(&address.ip().to_string(), socket).await?,
                };
                Ok::<_, io::Error>(TokioIo::new(stream))
            }
        });
        endpoint.connect_with_connector(connector).await.map_err(|error| innermost(&error))
    }

    /// Reads the facts from a node by requests of a client.
    pub(super) async fn facts(&self, node: usize) -> Result<Facts, String> {
        let channel = self.grpc(node, Port::Client, Identity::Client).await?;
        let status = MaintenanceClient::new(channel.clone()).status(StatusRequest {}).await.map_err(describe)?;
        let header = status.into_inner().header.ok_or("an answer without a header")?;
        let mut cluster = ClusterClient::new(channel);
        let list = cluster.member_list(MemberListRequest { linearizable: false }).await.map_err(describe)?;
        let members = list.into_inner().members;
        let has_enemy = members.iter().any(|member| member.name == ENEMY);
        let others = members.into_iter().filter(|member| member.id != header.member_id);
        let others =
            others.map(|member| (member.id, index_of(&member.name).filter(|index| *index < self.addresses.len())));
        Ok(Facts { cluster_id: header.cluster_id, own: header.member_id, others: others.collect(), has_enemy })
    }
}

/// The index of a node by its name: `node3` has the index 2. `None` if the name has another form.
fn index_of(name: &str) -> Option<usize> {
    name.strip_prefix("node")?.parse::<usize>().ok()?.checked_sub(1)
}

fn describe(status: tonic::Status) -> String {
    format!("{} ({:?})", status.message(), status.code())
}

pub(super) fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

async fn connect(source: Option<IpAddr>, address: SocketAddr) -> io::Result<tokio::net::TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(source) = source {
        socket.bind(SocketAddr::new(source, 0))?;
    }
    match tokio::time::timeout(CONNECT_TIMEOUT, socket.connect(address)).await {
        Ok(connected) => connected,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no connection in time")),
    }
}

/// The client side of TLS for every [`Identity`], for `nodes` nodes. The certificates of members
/// come from `certs`; all others are made in `folder`.
fn fill_wallet(certs: &Path, folder: &Path, nodes: usize) -> anyhow::Result<HashMap<Identity, ClientTls>> {
    let read = |name: &str| {
        let path = certs.join(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let open = |name: &str| -> anyhow::Result<Authority> {
        Ok(Authority::open(Pair { cert: read(&format!("{name}.crt"))?, key: read(&format!("{name}.key"))? })?)
    };
    let (clients, peers) = (open("client-ca")?, open("peer-ca")?);
    let ca = |port| certs.join(if port == Port::Client { "client-ca.crt" } else { "peer-ca.crt" });
    let mut wallet = HashMap::new();
    let mut add = |identity: Identity, port: Port, pair: Option<(PathBuf, PathBuf)>| -> anyhow::Result<()> {
        let (cert, key) = pair.unzip();
        let files = CertificateFiles { cert, key, trusted_ca: Some(ca(port)), crl: None };
        wallet.insert(identity, ClientTls::load(files, MinVersion::V1_3)?);
        Ok(())
    };
    let keep = |name: &str, pair: Pair| -> anyhow::Result<Option<(PathBuf, PathBuf)>> {
        let (cert, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
        fs::write(&cert, pair.cert)?;
        fs::write(&key, pair.key)?;
        Ok(Some((cert, key)))
    };
    let names = ["enemy".to_owned()];
    let client = keep("client", clients.issue_for(Purpose::Client, "enemy", &[], DAY)?)?;
    add(Identity::Client, Port::Client, client.clone())?;
    add(Identity::ClientAtPeers, Port::Peer, client)?;
    add(Identity::Stranger, Port::Peer, keep("stranger", peers.issue_for(Purpose::Member, "enemy", &names, DAY)?)?)?;
    for node in 0..nodes {
        let of = |end: &str| certs.join(format!("node{}", node + 1)).join(format!("peer.{end}"));
        add(Identity::Member(node), Port::Peer, Some((of("crt"), of("key"))))?;
    }
    let now = SystemTime::now();
    for (port, authority, purpose, ca_name) in [
        (Port::Client, &clients, Purpose::Client, "Headwater clients"),
        (Port::Peer, &peers, Purpose::Member, "Headwater members"),
    ] {
        let foreign = Authority::new(ca_name, DAY)?;
        add(Identity::Nobody(port), port, None)?;
        let of = |kind: &str| format!("{kind}-{port:?}");
        let pair = foreign.issue_for(purpose, "enemy", &names, DAY)?;
        add(Identity::Foreign(port), port, keep(&of("foreign"), pair)?)?;
        let pair = authority.issue(purpose, "enemy", &names, (now - 2 * FAR_DAYS * DAY, now - FAR_DAYS * DAY))?;
        add(Identity::Expired(port), port, keep(&of("expired"), pair)?)?;
        let pair = authority.issue(purpose, "enemy", &names, (now + FAR_DAYS * DAY, now + 2 * FAR_DAYS * DAY))?;
        add(Identity::NotYetValid(port), port, keep(&of("early"), pair)?)?;
    }
    Ok(wallet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_placed_by_their_names() {
        assert_eq!((index_of("node1"), index_of("node3")), (Some(0), Some(2)));
        assert_eq!((index_of("node0"), index_of("other"), index_of("nodex")), (None, None, None));
    }
}
