//! The files of one end of a connection, and their contents.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use sha2::{Digest, Sha256};

use super::TlsError;

/// Paths of certificate files, PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, followed by the intermediate ones.
    pub cert: Option<PathBuf>,
    /// The private key of the certificate.
    pub key: Option<PathBuf>,
    /// The authorities that sign certificates of the other end.
    pub trusted_ca: Option<PathBuf>,
    /// Revocation lists of those authorities.
    pub crl: Option<PathBuf>,
}

impl CertificateFiles {
    /// Whether no file is named.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.cert, &self.key, &self.trusted_ca, &self.crl].into_iter().flatten().map(PathBuf::as_path)
    }
}

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Clients are not asked for a certificate.
    #[default]
    Off,
    /// Clients may show a certificate, which must be valid.
    Request,
    /// Each connection needs a valid certificate.
    Require,
}

/// The lowest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    /// TLS 1.2, for old clients.
    V1_2,
    /// TLS 1.3.
    #[default]
    V1_3,
}

impl MinVersion {
    pub(crate) fn versions(self) -> &'static [&'static rustls::SupportedProtocolVersion] {
        static FROM_1_2: [&rustls::SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
        static FROM_1_3: [&rustls::SupportedProtocolVersion; 1] = [&rustls::version::TLS13];
        match self {
            Self::V1_2 => &FROM_1_2,
            Self::V1_3 => &FROM_1_3,
        }
    }
}

/// The provider of all cryptography.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Contents of [`CertificateFiles`].
pub(crate) struct Material {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: Option<PrivateKeyDer<'static>>,
    pub(crate) roots: Option<Arc<RootCertStore>>,
    pub(crate) crls: Vec<CertificateRevocationListDer<'static>>,
}

impl Material {
    fn read(files: &CertificateFiles) -> Result<Self, TlsError> {
        let chain = files.cert.as_deref().map(certificates).transpose()?.unwrap_or_default();
        let key = files.key.as_deref().map(private_key).transpose()?;
        let roots = files.trusted_ca.as_deref().map(authorities).transpose()?.map(Arc::new);
        let crls = files.crl.as_deref().map(revocation_lists).transpose()?.unwrap_or_default();
        Ok(Self { chain, key, roots, crls })
    }
}

fn contents(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError::Read { path: path.to_owned(), error })
}

fn malformed(path: &Path, detail: impl Into<String>) -> TlsError {
    TlsError::Malformed { path: path.to_owned(), detail: detail.into() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&contents(path)?).collect();
    let found = found.map_err(|error| malformed(path, error.to_string()))?;
    if found.is_empty() {
        return Err(malformed(path, "no certificate in PEM form is in it"));
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&contents(path)?).map_err(|_| malformed(path, "no private key in PEM form is in it"))
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| malformed(path, error.to_string()))?;
    }
    Ok(roots)
}

fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&contents(path)?).collect();
    let found = found.map_err(|error| malformed(path, error.to_string()))?;
    if found.is_empty() {
        return Err(malformed(path, "no revocation list in PEM form is in it"));
    }
    Ok(found)
}

/// A value made from certificate files. [`renew`](Self::renew) makes it again if they have changed.
pub(crate) struct Renewed<T> {
    files: CertificateFiles,
    current: RwLock<Arc<T>>,
    /// Digest of the files that were read last, whether they could be used or not.
    seen: Mutex<[u8; 32]>,
}

impl<T> Renewed<T> {
    pub(crate) fn load(
        files: CertificateFiles,
        make: impl FnOnce(Material) -> Result<T, TlsError>,
    ) -> Result<Self, TlsError> {
        let seen = digest(&files)?;
        let made = make(Material::read(&files)?)?;
        Ok(Self { files, current: RwLock::new(Arc::new(made)), seen: Mutex::new(seen) })
    }

    pub(crate) fn current(&self) -> Arc<T> {
        self.current.read().clone()
    }

    /// Reads the files again if they have changed. True if new files are now in use. An error is
    /// returned once for each content.
    pub(crate) fn renew(&self, make: impl FnOnce(Material) -> Result<T, TlsError>) -> Result<bool, TlsError> {
        let mut seen = self.seen.lock();
        let found = match digest(&self.files) {
            Ok(found) if found == *seen => return Ok(false),
            Ok(found) => found,
            Err(error) => {
                // A file that is missing for a moment while it is replaced is read next time.
                let missing = std::mem::take(&mut *seen) != [0; 32];
                return if missing { Err(error) } else { Ok(false) };
            }
        };
        *seen = found;
        let made = make(Material::read(&self.files)?)?;
        *self.current.write() = Arc::new(made);
        Ok(true)
    }
}

/// The hash of all files. Their contents are not kept, because one of them is a key.
fn digest(files: &CertificateFiles) -> Result<[u8; 32], TlsError> {
    let mut hash = Sha256::new();
    for path in files.paths() {
        let bytes = contents(path)?;
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(&bytes);
    }
    Ok(hash.finalize().into())
}
