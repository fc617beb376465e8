//! DNS over TLS: its answers equal those of plain DNS, and wrong certificates are refused.

use std::io;

use headwater::tls::CertificateFiles;
use headwater::types::catalog::CheckStatus;
use hickory_proto::rr::RecordType;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::client::{Connection, answer_lines, instance, question, register, udp};
use crate::certs::{self, Port};
use crate::cluster::{Cluster, Settings, wait_until};

/// A TLS connection to the first member's DNS port, with the ALPN protocol `alpn` and the
/// certificate in `files`, if there is one.
async fn connect(cluster: &Cluster, alpn: &[u8], files: CertificateFiles) -> io::Result<TlsStream<TcpStream>> {
    certs::connect(cluster.dns_tls_address(0), alpn, files).await
}

#[tokio::test(flavor = "multi_thread")]
async fn dns_over_tls_answers_holders_of_certificates_as_plain_dns_does() {
    let cluster = Cluster::start(Settings { tls: true, ..Settings::alone() }).await;
    let certs = cluster.certs.as_ref().unwrap();
    register(&cluster, 0, instance("web", 1, CheckStatus::Passing)).await;
    let asked = question("web.service.consul.", RecordType::A, None);
    let plain = udp(cluster.dns_address(0), &asked).await;
    assert_eq!(answer_lines(&plain), ["NoError", "10.0.0.1"]);
    let client = || certs.files(Port::Client, "tester");
    let mut secure = Connection::over(connect(&cluster, b"dot", client()).await.unwrap());
    for _ in 0..3 {
        assert_eq!(secure.ask(&asked).await, plain);
    }

    // Without a certificate the client's handshake still succeeds: the first read returns the
    // refusal.
    let anonymous = CertificateFiles { cert: None, key: None, ..client() };
    let mut refused = Connection::over(connect(&cluster, b"dot", anonymous).await.unwrap());
    drop(refused.try_send(&asked.to_vec().unwrap()).await);
    assert!(refused.receive().await.is_none());
    // A client that offers HTTP/2 alone is refused.
    assert!(connect(&cluster, b"h2", client()).await.is_err());
    // Plain DNS is no TLS.
    let mut plain = Connection::open(cluster.dns_tls_address(0)).await;
    drop(plain.try_send(&asked.to_vec().unwrap()).await);
    assert!(plain.receive().await.is_none());

    // A certificate that is revoked ends its connection.
    certs.revoke(Port::Client, &[std::fs::read_to_string(client().cert.unwrap()).unwrap()]);
    cluster.renew_certificates(0);
    wait_until("the revoked client is cut", async || {
        secure.try_send(&asked.to_vec().unwrap()).await.is_err() || secure.receive().await.is_none()
    })
    .await;
}
