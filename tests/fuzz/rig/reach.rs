//! Connections to nodes, in plain text or by TLS with a valid certificate.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

/// Longest wait for the answer to a request that is no attack.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// A byte stream to a node, plain or by TLS.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Opens connections to nodes.
#[derive(Clone)]
pub(crate) struct Reach {
    tls: Option<Arc<ClientConfig>>,
}

impl Reach {
    pub(super) fn plain() -> Self {
        Self { tls: None }
    }

    /// Connections by TLS, with the client certificate `ops` in the folder `certs`.
    pub(super) fn by_tls(certs: &Path) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certs.join("client-ca.crt"))?)?;
        let chain = vec![CertificateDer::from_pem_file(certs.join("ops.crt"))?];
        let key = PrivateKeyDer::from_pem_file(certs.join("ops.key"))?;
        let config = client_config(roots)?.with_client_auth_cert(chain, key)?;
        Ok(Self { tls: Some(Arc::new(config)) })
    }

    pub(crate) async fn open(&self, address: SocketAddr) -> anyhow::Result<Box<dyn Connection>> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        match &self.tls {
            None => Ok(Box::new(socket)),
            Some(config) => {
                let name = ServerName::from(address.ip());
                Ok(Box::new(TlsConnector::from(Arc::clone(config)).connect(name, socket).await?))
            }
        }
    }

    /// Sends a GET over HTTP/1; returns status and body of the answer.
    pub(crate) async fn get(&self, address: SocketAddr, path: &str) -> anyhow::Result<(u16, String)> {
        let asking = async {
            let mut connection = self.open(address).await?;
            let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
            connection.write_all(request.as_bytes()).await?;
            let mut answer = Vec::new();
            connection.read_to_end(&mut answer).await?;
            let answer = String::from_utf8_lossy(&answer).into_owned();
            let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
            let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
            Ok((status.context("no status line")?, body))
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, asking).await {
            Ok(answer) => answer,
            Err(_) => bail!("{address}{path}: no answer within {} s", ANSWER_TIMEOUT.as_secs()),
        }
    }

    /// A gRPC channel that connects at its first request.
    pub(crate) fn channel(&self, address: SocketAddr) -> anyhow::Result<Channel> {
        let reach = self.clone();
        let connector = tower::service_fn(move |_: http::Uri| {
            let reach = reach.clone();
            async move {
                let opened = reach.open(address).await.map_err(std::io::Error::other);
                opened.map(hyper_util::rt::TokioIo::new)
            }
        });
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
        let endpoint = endpoint.connect_timeout(ANSWER_TIMEOUT).timeout(ANSWER_TIMEOUT);
        Ok(endpoint.connect_with_connector_lazy(connector))
    }
}

/// A builder of TLS client configurations that trusts `roots`.
pub(crate) fn client_config(
    roots: RootCertStore,
) -> anyhow::Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots))
}
