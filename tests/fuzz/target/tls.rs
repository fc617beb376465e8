//! TLS on every port: damaged records, incomplete handshakes, and handshakes with damaged client
//! certificates.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::BufMut;
use futures::future::BoxFuture;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, RootCertStore, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Attack, Outcome};
use crate::dice::Dice;
use crate::mutate;
use crate::rig::{Rig, client_config};

/// Longest time on one connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_millis(400);
/// Longest wait for the answer to a client with a valid certificate.
const GOOD_TIMEOUT: Duration = Duration::from_secs(15);

/// The certificate and configuration of a valid client; attacks damage its handshakes.
pub(super) struct Tls {
    rig: Arc<Rig>,
    roots: RootCertStore,
    good: Arc<ClientConfig>,
    chain: CertificateDer<'static>,
    key: Arc<dyn rustls::sign::SigningKey>,
}

pub(super) async fn prepare(rig: Arc<Rig>) -> anyhow::Result<Tls> {
    let certs = rig.dir.join("certs");
    let mut roots = RootCertStore::empty();
    for name in ["client-ca.crt", "peer-ca.crt"] {
        roots.add(CertificateDer::from_pem_file(certs.join(name))?)?;
    }
    let chain = CertificateDer::from_pem_file(certs.join("ops.crt"))?;
    let key = PrivateKeyDer::from_pem_file(certs.join("ops.key"))?;
    let good = client_config(roots.clone())?.with_client_auth_cert(vec![chain.clone()], key.clone_key())?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key).context("the key")?;
    Ok(Tls { rig, roots, good: Arc::new(good), chain, key })
}

impl Attack for Tls {
    fn input<'a>(&'a self, mut dice: Dice) -> BoxFuture<'a, anyhow::Result<Outcome>> {
        Box::pin(async move {
            let dice = &mut dice;
            let node = self.rig.node(dice.below(3));
            let address = *dice.pick(&[node.client, node.peer, node.dns_tls]);
            match dice.below(10) {
                0 => self.control(node.client).await,
                1..=3 => self.with_damaged_certificate(node.client, dice).await,
                _ => {
                    let bytes = self.records(address, dice)?;
                    Ok(send(address, &bytes).await)
                }
            }
        })
    }
}

impl Tls {
    /// A request of a valid client, which must always be served.
    async fn control(&self, address: SocketAddr) -> anyhow::Result<Outcome> {
        let asking = get(address, Arc::clone(&self.good));
        Ok(match tokio::time::timeout(GOOD_TIMEOUT, asking).await {
            Ok(Ok(answer)) if answer.starts_with("HTTP/1.1 200") => Outcome::of("good client"),
            Ok(Ok(answer)) => Outcome::finding("refused", format!("a good client is answered {answer:?}")),
            Ok(Err(error)) => Outcome::finding("refused", format!("a good client is refused: {error:#}")),
            Err(_) => Outcome::finding("refused", "a good client waits in vain"),
        })
    }

    /// A request of a client with a damaged certificate. It must be refused, unless the damage
    /// changed nothing.
    async fn with_damaged_certificate(&self, address: SocketAddr, dice: &mut Dice) -> anyhow::Result<Outcome> {
        let mut chain = self.chain.to_vec();
        mutate::bytes(&mut chain, dice);
        let is_changed = chain != self.chain.as_ref();
        let mut shown = vec![CertificateDer::from(chain)];
        if dice.once_in(4) {
            let more = dice.below(200);
            shown.extend((0..more).map(|_| self.chain.clone()));
        }
        let shows = Shows(Arc::new(CertifiedKey::new(shown, Arc::clone(&self.key))));
        let config = client_config(self.roots.clone())?.with_client_cert_resolver(Arc::new(shows));
        Ok(match tokio::time::timeout(CONNECTION_TIMEOUT, get(address, Arc::new(config))).await {
            Ok(Ok(answer)) if answer.starts_with("HTTP/") && is_changed => {
                Outcome::finding("let in", "a client with a damaged certificate is let in")
            }
            Ok(Ok(answer)) if answer.starts_with("HTTP/") => Outcome::of("unchanged"),
            Ok(_) => Outcome::of("damaged refused"),
            Err(_) => Outcome::of("open"),
        })
    }

    /// Bytes for a TLS port: the first message of a valid client with damage, or random records.
    fn records(&self, address: SocketAddr, dice: &mut Dice) -> anyhow::Result<Vec<u8>> {
        let mut hello = Vec::new();
        let mut client = ClientConnection::new(Arc::clone(&self.good), ServerName::from(address.ip()))?;
        while client.wants_write() {
            client.write_tls(&mut hello)?;
        }
        match dice.below(6) {
            0 => hello.truncate(dice.below(hello.len())),
            1 => {
                for _ in 0..dice.below(20) {
                    hello.extend(record(dice));
                }
            }
            2 => hello = record(dice),
            3 => hello.extend(hello.clone()),
            _ => mutate::bytes(&mut hello, dice),
        }
        Ok(hello)
    }
}

/// A TLS record with random content: change of cipher, alert, handshake, data, heartbeat, or an
/// unknown type.
fn record(dice: &mut Dice) -> Vec<u8> {
    let length = dice.length().min(20_000);
    let mut record = Vec::new();
    record.put_u8(*dice.pick(&[20, 21, 22, 23, 24, 0, 255]));
    record.put_u16(*dice.pick(&[0x0301, 0x0303, 0x0304, 0x0002, 0xFFFF]));
    record.put_u16(if dice.once_in(6) { dice.number() as u16 } else { length as u16 });
    record.extend(dice.bytes(length));
    record
}

async fn send(address: SocketAddr, bytes: &[u8]) -> Outcome {
    let exchange = async {
        let mut socket = TcpStream::connect(address).await?;
        socket.write_all(bytes).await?;
        let mut answer = [0; 4096];
        let read = socket.read(&mut answer).await?;
        anyhow::Ok(answer[..read].first().copied())
    };
    match tokio::time::timeout(CONNECTION_TIMEOUT, exchange).await {
        Ok(Ok(Some(21))) => Outcome::of("alert"),
        Ok(Ok(Some(22))) => Outcome::of("hello"),
        Ok(Ok(Some(20 | 23))) => Outcome::of("record"),
        Ok(Ok(Some(other))) => Outcome::finding("no TLS", format!("a record of type {other}")),
        Ok(Ok(None)) => Outcome::of("closed"),
        Ok(Err(_)) => Outcome::of("reset"),
        Err(_) => Outcome::of("open"),
    }
}

/// Sends `GET /livez` over TLS; returns the first bytes of the answer.
async fn get(address: SocketAddr, config: Arc<ClientConfig>) -> anyhow::Result<String> {
    let socket = TcpStream::connect(address).await?;
    let mut connection = TlsConnector::from(config).connect(ServerName::from(address.ip()), socket).await?;
    connection.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut answer = vec![0; 4096];
    let read = connection.read(&mut answer).await?;
    answer.truncate(read);
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// A resolver that always returns this certificate, even if it is damaged.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}
