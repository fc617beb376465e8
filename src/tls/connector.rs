//! The connecting end of connections, with or without TLS.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::Endpoint;
use tower::Service;

use super::material::{CertificateFiles, Material, MinVersion, Renewed, provider};
use super::server::HANDSHAKE_TIMEOUT;
use super::{Identity, TlsError};

/// The connecting end of TLS, with certificates that can be renewed; cheap to clone.
#[derive(Clone)]
pub struct ClientTls {
    inner: Arc<Inner>,
}

struct Inner {
    renewed: Renewed<TlsConnector>,
    min_version: MinVersion,
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Reads the files. `trusted_ca` is required: servers must have a certificate of one of its
    /// authorities. `cert` and `key` are optional, but only together; the certificate is shown to
    /// servers that ask for one. `crl` is optional: servers whose certificates it revokes are
    /// refused.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file cannot be read or is malformed, if `trusted_ca` is not named, or if
    /// the files do not fit each other.
    pub fn load(files: CertificateFiles, min_version: MinVersion) -> Result<Self, TlsError> {
        let renewed = Renewed::load(files, |material| connector_of(material, min_version))?;
        Ok(Self { inner: Arc::new(Inner { renewed, min_version }) })
    }

    /// Reads the files again, and loads them if they have changed or could not be read last time.
    /// True if they were loaded; new connections use them.
    ///
    /// # Errors
    ///
    /// If the files cannot be read, or changed files cannot be used. An error is returned once for
    /// each content. The last valid files stay in use.
    pub fn renew(&self) -> Result<bool, TlsError> {
        self.inner.renewed.renew(|material| connector_of(material, self.inner.min_version))
    }

    /// Does the TLS handshake on an open connection. The server's certificate must be for `host`, a
    /// DNS name or an IP address.
    ///
    /// # Errors
    ///
    /// `host` is malformed, or the handshake failed or took longer than [`HANDSHAKE_TIMEOUT`]. If
    /// the server refuses this client's certificate, the error comes later, from the first read.
    pub async fn connect(&self, host: &str, socket: TcpStream) -> io::Result<ClientStream> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{host:?} is no name of a host")))?;
        let connector = TlsConnector::clone(&self.inner.renewed.current());
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, connector.connect(name, socket))
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the handshake took too long"))??;
        Ok(ClientStream::Tls(Box::new(stream)))
    }
}

fn connector_of(material: Material, min_version: MinVersion) -> Result<TlsConnector, TlsError> {
    let Material { chain, key, roots, crls } = material;
    let roots = roots
        .ok_or_else(|| TlsError::Unfit("an authority that judges the servers is missing: name its file".to_owned()))?;
    let unfit = |error: rustls::Error| TlsError::Unfit(format!("certificate and key: {error}"));
    let mut verifier = WebPkiServerVerifier::builder_with_provider(roots, provider());
    if !crls.is_empty() {
        verifier = verifier.with_crls(crls).allow_unknown_revocation_status();
    }
    let verifier = verifier.build().map_err(|error| TlsError::Unfit(error.to_string()))?;
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(min_version.versions()).map_err(unfit)?;
    let builder = builder.with_webpki_verifier(verifier);
    let mut config = match (Identity::of(&chain), key) {
        (Some(_), Some(key)) => builder.with_client_auth_cert(chain, key).map_err(unfit)?,
        (None, None) => builder.with_no_client_auth(),
        (Some(_), None) => return Err(TlsError::Unfit("a key belongs to the certificate".to_owned())),
        (None, Some(_)) => return Err(TlsError::Unfit("a certificate belongs to the key".to_owned())),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Makes connectors for URLs: `http://` in plain text, `https://` by TLS. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Dialer {
    tls: Option<ClientTls>,
}

impl Dialer {
    /// A dialler. Without `tls` it refuses `https://` URLs.
    pub fn new(tls: Option<ClientTls>) -> Self {
        Self { tls }
    }

    /// As [`ClientTls::renew`]; false without TLS.
    ///
    /// # Errors
    ///
    /// As [`ClientTls::renew`].
    pub fn renew(&self) -> Result<bool, TlsError> {
        self.tls.as_ref().map_or(Ok(false), ClientTls::renew)
    }

    /// Whether it can connect to `https://` URLs.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The tonic endpoint of a URL, and the connector that connects to it. Opens no connection.
    ///
    /// # Errors
    ///
    /// The URL is malformed, or is an `https://` URL and this dialler has no TLS.
    pub fn endpoint(&self, url: &str, connect_timeout: Duration) -> Result<(Endpoint, Connector), String> {
        let Some(rest) = url.strip_prefix("https://") else {
            let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| error.to_string())?;
            return Ok((endpoint, Connector::new(None, connect_timeout)));
        };
        let Some(tls) = &self.tls else {
            return Err("https:// needs a trusted authority: none is configured".to_owned());
        };
        // tonic accepts https:// only with its own TLS, which cannot renew certificates: the
        // endpoint gets http://. The origin gives requests the scheme https.
        let endpoint = Endpoint::from_shared(format!("http://{rest}")).map_err(|error| error.to_string())?;
        let origin: Uri = url.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
        Ok((endpoint.origin(origin), Connector::new(Some(tls.clone()), connect_timeout)))
    }
}

/// Opens the connections of one endpoint.
#[derive(Clone)]
pub struct Connector {
    http: HttpConnector,
    tls: Option<ClientTls>,
}

impl Connector {
    fn new(tls: Option<ClientTls>, connect_timeout: Duration) -> Self {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(connect_timeout));
        Self { http, tls }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<ClientStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.http.poll_ready(cx).map_err(io::Error::other)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let host = uri.host().unwrap_or_default().to_owned();
        let tls = self.tls.clone();
        let connecting = self.http.call(uri);
        Box::pin(async move {
            let socket = connecting.await.map_err(system_error)?.into_inner();
            let stream = match tls {
                None => ClientStream::Plain(socket),
                Some(tls) => tls.connect(&host, socket).await?,
            };
            Ok(TokioIo::new(stream))
        })
    }
}

/// The first I/O error among `error` and its sources, else `error` itself. A caller can recognise a
/// refused connection by its kind.
fn system_error(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(at) = source {
        if let Some(system) = at.downcast_ref::<io::Error>() {
            return match system.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(system.kind(), system.to_string()),
            };
        }
        source = at.source();
    }
    io::Error::other(error)
}

/// An open connection at its connecting end.
pub enum ClientStream {
    /// A connection in plain text.
    Plain(TcpStream),
    /// A TLS connection after its handshake.
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
