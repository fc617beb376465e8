//! Certificates of a test cluster.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater::server::InstanceTls;
use headwater::server::PeerTls;
use headwater::tls::authority::{Authority, Pair, Purpose};
use headwater::tls::{CertificateFiles, ClientCertificates, ClientTls, Dialer, MinVersion, Protocols, ServerTls};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::cluster::within;

const DAY: Duration = Duration::from_secs(86_400);

/// The certificate authorities of both ports, and a folder with the certificates of all members and
/// of a client.
pub struct Certs {
    pub peer_ca: Authority,
    pub client_ca: Authority,
    dir: TempDir,
}

/// The port that a certificate is made for.
#[derive(Clone, Copy, Debug)]
pub enum Port {
    Peer,
    Client,
}

impl Certs {
    pub fn new() -> Self {
        let peer_ca = Authority::new("peers of a test", DAY).unwrap();
        let client_ca = Authority::new("clients of a test", DAY).unwrap();
        let certs = Self { peer_ca, client_ca, dir: tempfile::tempdir().unwrap() };
        std::fs::write(certs.file("peer-ca.crt"), &certs.peer_ca.pair().cert).unwrap();
        std::fs::write(certs.file("client-ca.crt"), &certs.client_ca.pair().cert).unwrap();
        certs.revoke(Port::Peer, &[]);
        certs.revoke(Port::Client, &[]);
        let client = certs.client_ca.issue_for(Purpose::Client, "tester", &[], DAY).unwrap();
        certs.write("tester", &client);
        certs
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a certificate and its key as `NAME.crt` and `NAME.key`.
    pub fn write(&self, name: &str, pair: &Pair) {
        std::fs::write(self.file(&format!("{name}.crt")), &pair.cert).unwrap();
        std::fs::write(self.file(&format!("{name}.key")), &pair.key).unwrap();
    }

    /// Replaces the revocation list of a port by one with these certificates (PEM).
    pub fn revoke(&self, port: Port, certs: &[String]) {
        let (authority, name) = match port {
            Port::Peer => (&self.peer_ca, "peer.crl"),
            Port::Client => (&self.client_ca, "client.crl"),
        };
        std::fs::write(self.file(name), authority.revoke(certs, DAY).unwrap()).unwrap();
    }

    /// The files of one end of a connection to `port`: `NAME.crt` and `NAME.key`, and the authority
    /// and revocation list that the peer's certificate is checked by.
    pub fn files(&self, port: Port, name: &str) -> CertificateFiles {
        let (ca, crl) = match port {
            Port::Peer => ("peer-ca.crt", "peer.crl"),
            Port::Client => ("client-ca.crt", "client.crl"),
        };
        CertificateFiles {
            cert: Some(self.file(&format!("{name}.crt"))),
            key: Some(self.file(&format!("{name}.key"))),
            trusted_ca: Some(self.file(ca)),
            crl: Some(self.file(crl)),
        }
    }

    /// Makes new certificates of a member for both ports, and replaces their files.
    pub fn make_member(&self, index: usize) {
        let name = format!("node{}", index + 1);
        let names = [name.clone(), "localhost".to_owned(), "127.0.0.1".to_owned()];
        let peer = self.peer_ca.issue_for(Purpose::Member, &name, &names, DAY).unwrap();
        self.write(&format!("{name}-peer"), &peer);
        let client = self.client_ca.issue_for(Purpose::Server, &name, &names[1..], DAY).unwrap();
        self.write(&format!("{name}-client"), &client);
    }

    /// TLS settings of a member's metrics port. Its certificate is of the clients' authority, and
    /// only for this port. Makes it if it is missing.
    pub fn metrics_tls(&self, index: usize, asked: ClientCertificates) -> ServerTls {
        let name = format!("node{}-metrics", index + 1);
        if !self.file(&format!("{name}.crt")).exists() {
            let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
            self.write(&name, &self.client_ca.issue_for(Purpose::Server, &name, &names, DAY).unwrap());
        }
        ServerTls::load(self.files(Port::Client, &name), Protocols::Http, asked, MinVersion::V1_3).unwrap()
    }

    /// TLS settings of a member: its client port, peer port and DNS, and its own connections to
    /// others. Makes its certificates if they are missing.
    pub fn instance_tls(&self, index: usize) -> InstanceTls {
        let name = format!("node{}", index + 1);
        if !self.file(&format!("{name}-peer.crt")).exists() {
            self.make_member(index);
        }
        let clients = self.files(Port::Client, &format!("{name}-client"));
        let peers = self.files(Port::Peer, &format!("{name}-peer"));
        let server = |files, protocols| {
            ServerTls::load(files, protocols, ClientCertificates::Require, MinVersion::V1_3).unwrap()
        };
        InstanceTls {
            client_dialer: Dialer::new(Some(ClientTls::load(clients.clone(), MinVersion::V1_3).unwrap())),
            dns: Some(server(clients.clone(), Protocols::Dns)),
            clients: Some(server(clients, Protocols::Http)),
            peers: Some(PeerTls {
                server: server(peers.clone(), Protocols::Http),
                client: ClientTls::load(peers, MinVersion::V1_3).unwrap(),
            }),
            ..InstanceTls::default()
        }
    }

    /// A dialer of client ports with the certificate of the test's client.
    pub fn client(&self) -> Dialer {
        self.dialer(self.files(Port::Client, "tester"))
    }

    pub fn dialer(&self, files: CertificateFiles) -> Dialer {
        Dialer::new(Some(ClientTls::load(files, MinVersion::V1_3).unwrap()))
    }
}

/// A TLS connection to `address`, an address of 127.0.0.1, with the ALPN protocol `alpn` and the
/// certificate in `files`, if there is one.
pub async fn connect(address: SocketAddr, alpn: &[u8], files: CertificateFiles) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(files.trusted_ca.unwrap()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let mut config = match (files.cert, files.key) {
        (Some(cert), Some(key)) => {
            let chain = CertificateDer::pem_file_iter(cert).unwrap().collect::<Result<_, _>>().unwrap();
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap()
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    let socket = TcpStream::connect(address).await?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    within("a handshake", TlsConnector::from(Arc::new(config)).connect(name, socket)).await
}
