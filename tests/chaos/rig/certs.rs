//! Certificates of a run. The program under test makes them (`headwater certs`), as it does for an
//! operator.

use std::path::{Path, PathBuf};

use headwater_tls::{CertificateFiles, ClientTls, Dialer, MinVersion};

use super::tool;

/// Name of the harness's own certificate, and of its files.
const CLIENT: &str = "chaos";

/// The folder with the certificates of all nodes and of the harness.
pub(super) struct Certs {
    dir: PathBuf,
}

impl Certs {
    /// Makes certificates in `dir`: for a node at each of `hosts`, named `node1` and so on, and for
    /// the harness.
    pub(super) async fn make(binary: &Path, dir: &Path, hosts: &[String]) -> anyhow::Result<Self> {
        let mut line = vec!["certs".to_owned(), dir.display().to_string(), "--client".to_owned(), CLIENT.to_owned()];
        for (node, host) in hosts.iter().enumerate() {
            line.extend(["--member".to_owned(), format!("node{}={host}", node + 1)]);
        }
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        tool::run(&binary.to_string_lossy(), &line).await?;
        Ok(Self { dir: dir.to_owned() })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The dialer of the harness's clients, with the certificate [`CLIENT`].
    pub(super) fn dialer(&self) -> anyhow::Result<Dialer> {
        let file = |name: &str| Some(self.dir.join(name));
        let (cert, key) = (file("chaos.crt"), file("chaos.key"));
        let files = CertificateFiles { cert, key, trusted_ca: file("client-ca.crt"), crl: file("client.crl") };
        Ok(Dialer::new(Some(ClientTls::load(files, MinVersion::V1_3)?)))
    }

    /// Arguments of the node with the number `node`, from 0: both ports speak TLS, and clients must
    /// show a certificate.
    pub(super) fn arguments(&self, node: usize) -> Vec<String> {
        let of = |name: &str| self.dir.join(name).display().to_string();
        let own = |name: &str| of(&format!("node{}/{name}", node + 1));
        [
            ("--tls-cert", own("client.crt")),
            ("--tls-key", own("client.key")),
            ("--tls-trusted-ca", of("client-ca.crt")),
            ("--tls-crl", of("client.crl")),
            ("--tls-client-certs", "require".to_owned()),
            ("--peer-tls-cert", own("peer.crt")),
            ("--peer-tls-key", own("peer.key")),
            ("--peer-tls-trusted-ca", of("peer-ca.crt")),
            ("--peer-tls-crl", of("peer.crl")),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
    }
}
