//! The certificate files of one end of a connection, and their contents.

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

/// Paths of PEM files, each optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateFiles {
    /// File with this end's certificate, followed by the intermediate ones.
    pub cert: Option<PathBuf>,
    /// File with the private key of the certificate.
    pub key: Option<PathBuf>,
    /// File with the authorities that the other end's certificate must be signed by.
    pub trusted_ca: Option<PathBuf>,
    /// File with revocation lists of these authorities.
    pub crl: Option<PathBuf>,
}

impl CertificateFiles {
    /// Whether no file is named.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Demand of a port for certificates of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Clients are not asked for a certificate.
    #[default]
    Off,
    /// Clients may show a certificate; the handshake fails if it is not valid.
    Request,
    /// Clients must show a valid certificate; the handshake fails without one.
    Require,
}

/// The lowest version of TLS that is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    /// TLS 1.2 and later, for old clients.
    V1_2,
    /// TLS 1.3 and later.
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

/// The bytes of the files that [`CertificateFiles`] names. Each file is read once, so that the
/// digest and the material are of the same bytes.
struct Contents<'a> {
    cert: Option<Content<'a>>,
    key: Option<Content<'a>>,
    trusted_ca: Option<Content<'a>>,
    crl: Option<Content<'a>>,
}

struct Content<'a> {
    path: &'a Path,
    bytes: Vec<u8>,
}

impl<'a> Contents<'a> {
    fn read(files: &'a CertificateFiles) -> Result<Self, TlsError> {
        let read = |path: &'a Option<PathBuf>| path.as_deref().map(Content::read).transpose();
        Ok(Self {
            cert: read(&files.cert)?,
            key: read(&files.key)?,
            trusted_ca: read(&files.trusted_ca)?,
            crl: read(&files.crl)?,
        })
    }

    /// The hash of all files, kept instead of their contents, because one of them is a key.
    fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for content in [&self.cert, &self.key, &self.trusted_ca, &self.crl].into_iter().flatten() {
            hash.update((content.bytes.len() as u64).to_be_bytes());
            hash.update(&content.bytes);
        }
        hash.finalize().into()
    }
}

impl<'a> Content<'a> {
    fn read(path: &'a Path) -> Result<Self, TlsError> {
        let bytes = fs::read(path).map_err(|error| TlsError::Read { path: path.to_owned(), error })?;
        Ok(Self { path, bytes })
    }

    fn malformed(&self, detail: impl Into<String>) -> TlsError {
        TlsError::Malformed { path: self.path.to_owned(), detail: detail.into() }
    }
}

/// The parsed content of [`CertificateFiles`]. A file that is not named is empty or `None`.
pub(crate) struct Material {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: Option<PrivateKeyDer<'static>>,
    pub(crate) roots: Option<Arc<RootCertStore>>,
    pub(crate) crls: Vec<CertificateRevocationListDer<'static>>,
}

impl Material {
    fn of(contents: &Contents<'_>) -> Result<Self, TlsError> {
        let chain = contents.cert.as_ref().map(certificates).transpose()?.unwrap_or_default();
        let key = contents.key.as_ref().map(private_key).transpose()?;
        let roots = contents.trusted_ca.as_ref().map(authorities).transpose()?.map(Arc::new);
        let crls = contents.crl.as_ref().map(revocation_lists).transpose()?.unwrap_or_default();
        Ok(Self { chain, key, roots, crls })
    }
}

fn certificates(content: &Content<'_>) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content.bytes).collect();
    let found = found.map_err(|error| content.malformed(error.to_string()))?;
    if found.is_empty() {
        return Err(content.malformed("no certificate in PEM form is in it"));
    }
    Ok(found)
}

fn private_key(content: &Content<'_>) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&content.bytes).map_err(|_| content.malformed("no private key in PEM form is in it"))
}

fn authorities(content: &Content<'_>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(content)? {
        roots.add(certificate).map_err(|error| content.malformed(error.to_string()))?;
    }
    Ok(roots)
}

fn revocation_lists(content: &Content<'_>) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&content.bytes).collect();
    let found = found.map_err(|error| content.malformed(error.to_string()))?;
    if found.is_empty() {
        return Err(content.malformed("no revocation list in PEM form is in it"));
    }
    Ok(found)
}

/// A value that is made from certificate files. [`renew`](Self::renew) makes it again from changed
/// files.
pub(crate) struct Renewed<T> {
    files: CertificateFiles,
    current: RwLock<Arc<T>>,
    /// Digest of the files as they were read last, usable or not; zeros if they could not be read.
    seen: Mutex<[u8; 32]>,
}

impl<T> Renewed<T> {
    pub(crate) fn load(
        files: CertificateFiles,
        make: impl FnOnce(Material) -> Result<T, TlsError>,
    ) -> Result<Self, TlsError> {
        let contents = Contents::read(&files)?;
        let seen = contents.digest();
        let made = make(Material::of(&contents)?)?;
        drop(contents);
        Ok(Self { files, current: RwLock::new(Arc::new(made)), seen: Mutex::new(seen) })
    }

    pub(crate) fn current(&self) -> Arc<T> {
        self.current.read().clone()
    }

    /// Reads the files. Makes the value again if they have changed, or could not be read last time.
    /// True if the new value is now in use. An error is returned once for each content; later calls
    /// return false.
    pub(crate) fn renew(&self, make: impl FnOnce(Material) -> Result<T, TlsError>) -> Result<bool, TlsError> {
        let mut seen = self.seen.lock();
        let contents = match Contents::read(&self.files) {
            Ok(contents) => contents,
            Err(error) => {
                // Files that cannot be read, such as while they are replaced, are tried again by
                // the next call.
                let missing = std::mem::take(&mut *seen) != [0; 32];
                return if missing { Err(error) } else { Ok(false) };
            }
        };
        let found = contents.digest();
        if std::mem::replace(&mut *seen, found) == found {
            return Ok(false);
        }
        let made = make(Material::of(&contents)?)?;
        *self.current.write() = Arc::new(made);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::time::Duration;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;
    use crate::authority::Authority;

    fn certificate(name: &str) -> String {
        Authority::new(name, Duration::from_secs(60)).unwrap().pair().cert.clone()
    }

    #[test]
    fn a_change_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("crt");
        fs::write(&path, certificate("old")).unwrap();
        let files = CertificateFiles { cert: Some(path.clone()), ..CertificateFiles::default() };
        let renewed = Renewed::load(files, |material| Ok(material.chain)).unwrap();
        assert!(!renewed.renew(|_| unreachable!("nothing has changed")).unwrap());

        // A pipe shows that it is read once: a second reader would find it empty.
        fs::remove_file(&path).unwrap();
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        let new = certificate("new");
        let content = new.clone();
        std::thread::spawn(move || {
            let mut content = content.as_bytes();
            while let Ok(mut pipe) = OpenOptions::new().write(true).open(&path) {
                pipe.write_all(std::mem::take(&mut content)).unwrap();
            }
        });
        assert!(renewed.renew(|material| Ok(material.chain)).unwrap());
        assert_eq!(*renewed.current(), [CertificateDer::from_pem_slice(new.as_bytes()).unwrap()]);
    }
}
