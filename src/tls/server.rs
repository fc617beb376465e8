//! The accepting end of TLS connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::material::{CertificateFiles, ClientCertificates, Material, MinVersion, Renewed, provider};
use super::{Identity, TlsError};

/// Longest time of a TLS handshake, at both ends of a connection.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// An accepted TLS connection after its handshake.
pub type ServerStream = Box<tokio_rustls::server::TlsStream<TcpStream>>;

/// Protocols that a port speaks above TLS. A client that offers protocols (ALPN) must offer one of
/// these, else the handshake fails. A client may offer none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// HTTP/2 and HTTP/1.
    Http,
    /// DNS (RFC 7858).
    Dns,
}

impl Protocols {
    /// The names of the protocols in a handshake.
    fn alpn(self) -> Vec<Vec<u8>> {
        match self {
            Self::Http => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Self::Dns => vec![b"dot".to_vec()],
        }
    }
}

/// The accepting end of TLS, with certificates that can be renewed; cheap to clone.
#[derive(Clone)]
pub struct ServerTls {
    inner: Arc<Inner>,
}

struct Inner {
    renewed: Renewed<Current>,
    protocols: Protocols,
    clients: ClientCertificates,
    min_version: MinVersion,
    /// Number of calls of [`ServerTls::renew`] that loaded the files again.
    renewals: watch::Sender<u64>,
}

/// The values that are made from the files, and replaced together when the files change.
struct Current {
    acceptor: TlsAcceptor,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    not_after: i64,
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Inner { protocols, clients, .. } = &*self.inner;
        f.debug_struct("ServerTls").field("protocols", protocols).field("clients", clients).finish_non_exhaustive()
    }
}

impl ServerTls {
    /// Reads the files, for a port that speaks `protocols`. A certificate and its key are required,
    /// and `trusted_ca` if clients are asked for certificates.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file cannot be read or is malformed, if a required one is not named, or if
    /// the files do not fit each other.
    pub fn load(
        files: CertificateFiles,
        protocols: Protocols,
        clients: ClientCertificates,
        min_version: MinVersion,
    ) -> Result<Self, TlsError> {
        let renewed = Renewed::load(files, |material| Current::of(material, protocols, clients, min_version))?;
        let renewals = watch::Sender::new(0);
        Ok(Self { inner: Arc::new(Inner { renewed, protocols, clients, min_version, renewals }) })
    }

    /// Reads the files again, and loads them if they have changed or could not be read last time.
    /// True if they were loaded; new connections use them.
    ///
    /// # Errors
    ///
    /// If the files cannot be read, or changed files cannot be used. An error is returned once for
    /// each content. The last valid files stay in use.
    pub fn renew(&self) -> Result<bool, TlsError> {
        let Inner { renewed, protocols, clients, min_version, renewals } = &*self.inner;
        let is_new = renewed.renew(|material| Current::of(material, *protocols, *clients, *min_version))?;
        if is_new {
            renewals.send_modify(|count| *count += 1);
        }
        Ok(is_new)
    }

    /// Whether each client must show a certificate.
    pub fn requires_clients(&self) -> bool {
        self.inner.clients == ClientCertificates::Require
    }

    /// A receiver of the number of renewals: calls of [`renew`](Self::renew) that returned true.
    pub fn renewals(&self) -> watch::Receiver<u64> {
        self.inner.renewals.subscribe()
    }

    /// The end of the validity of this port's certificate, seconds since the Unix epoch.
    pub fn not_after(&self) -> i64 {
        self.inner.renewed.current().not_after
    }

    /// Does the TLS handshake on a connection. Returns the certificate that the client has shown;
    /// `None` if it has shown none.
    ///
    /// # Errors
    ///
    /// The handshake failed, took longer than [`HANDSHAKE_TIMEOUT`], or the client's certificate
    /// cannot be read.
    pub async fn accept(&self, socket: TcpStream) -> io::Result<(ServerStream, Option<Identity>)> {
        let acceptor = self.inner.renewed.current().acceptor.clone();
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(socket))
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the handshake took too long"))??;
        let shown = stream.get_ref().1.peer_certificates().filter(|chain| !chain.is_empty());
        let identity = shown.map(identity_of).transpose()?;
        Ok((Box::new(stream), identity))
    }

    /// Checks again a client's certificate that was valid at the handshake: it has not expired, is
    /// not revoked, and its authority is trusted. Always `Ok` if this port asks for no
    /// certificates.
    ///
    /// # Errors
    ///
    /// The reason for which the certificate is not valid any more.
    pub fn check(&self, identity: &Identity) -> Result<(), String> {
        let current = self.inner.renewed.current();
        let Some(verifier) = &current.verifier else { return Ok(()) };
        let Some((certificate, intermediates)) = identity.chain().split_first() else { return Ok(()) };
        verifier
            .verify_client_cert(certificate, intermediates, UnixTime::now())
            .map(drop)
            .map_err(|error| error.to_string())
    }
}

fn identity_of(chain: &[CertificateDer<'_>]) -> io::Result<Identity> {
    let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "the client's certificate cannot be read");
    Identity::of(chain).ok_or_else(unreadable)
}

impl Current {
    fn of(
        material: Material,
        protocols: Protocols,
        clients: ClientCertificates,
        min_version: MinVersion,
    ) -> Result<Self, TlsError> {
        let Material { chain, key, roots, crls } = material;
        let key = key.ok_or_else(|| TlsError::Unfit("a key belongs to the certificate".to_owned()))?;
        let own = Identity::of(&chain).ok_or_else(|| TlsError::Unfit("a certificate is needed".to_owned()))?;
        let verifier = match clients {
            ClientCertificates::Off => None,
            ClientCertificates::Request | ClientCertificates::Require => {
                let roots = roots.ok_or_else(|| {
                    TlsError::Unfit("certificates of clients are judged by a trusted-ca, which is missing".to_owned())
                })?;
                let mut builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
                if !crls.is_empty() {
                    // The lists need not cover every authority: without a list, a certificate
                    // counts as not revoked.
                    builder = builder.with_crls(crls).allow_unknown_revocation_status();
                }
                if clients == ClientCertificates::Request {
                    builder = builder.allow_unauthenticated();
                }
                Some(builder.build().map_err(|error| TlsError::Unfit(error.to_string()))?)
            }
        };
        let unfit = |error: rustls::Error| TlsError::Unfit(format!("certificate and key: {error}"));
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(min_version.versions()).map_err(unfit)?;
        let builder = match &verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier.clone()),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(unfit)?;
        config.alpn_protocols = protocols.alpn();
        if verifier.is_some() {
            // In a resumed session the client's certificate would not be verified again, although
            // it may have been revoked.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), verifier, not_after: own.not_after() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_cannot_be_read_is_no_missing_one() {
        let refused = identity_of(&[CertificateDer::from(vec![0x30, 0x00])]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    }
}
