//! Makes authorities and certificates for a cluster: `headwater certs`.
//!
//! The command makes one authority for the peer port and one for the client port, so that a
//! client's certificate is not valid on the peer port. Knows no files.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData, RevokedCertParams, SanType, SerialNumber,
};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::{Identity, TlsError};

/// A certificate and its private key, each as PEM text.
#[derive(Clone)]
pub struct Pair {
    /// The certificate.
    pub cert: String,
    /// The private key.
    pub key: String,
}

/// Use of a certificate; determines its extended key usages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A certificate of a member for the peer port. A member is the server of some connections
    /// between members, and the client of others.
    Member,
    /// A certificate of a member for its client port. A joining node also shows its own one as a
    /// client, on the client ports of members.
    Server,
    /// A certificate of a client.
    Client,
}

/// A certificate authority, which signs certificates and revocation lists.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pair: Pair,
}

fn unfit(error: impl std::fmt::Display) -> TlsError {
    TlsError::Unfit(format!("making a certificate: {error}"))
}

fn unreadable(error: impl std::fmt::Display) -> TlsError {
    TlsError::Unfit(format!("reading a certificate: {error}"))
}

/// Time before now at which the validity of new certificates begins, because clocks of machines
/// differ.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

fn params(common_name: &str, from: SystemTime, until: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, "Headwater");
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = from.into();
    params.not_after = until.into();
    params
}

fn authority_params(common_name: &str, now: SystemTime, valid: Duration) -> CertificateParams {
    let mut params = params(common_name, now - CLOCK_SKEW, now + valid);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// The names, serial number and validity in the first certificate of a PEM text. Verifies nothing.
fn certificate(pem: &str) -> Result<Identity, TlsError> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(unreadable)?;
    Identity::of(&[certificate]).ok_or_else(|| unreadable("its content is malformed"))
}

/// The serial number of a certificate, PEM: hexadecimal, two digits a byte. Revocation lists name
/// certificates by it.
///
/// # Errors
///
/// [`TlsError::Unfit`] if the text is no certificate.
pub fn serial_number(cert: &str) -> Result<String, TlsError> {
    Ok(certificate(cert)?.serial_bytes().iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Authority {
    /// Makes a new authority with a new key. It is valid from five minutes ago until `valid` from
    /// now.
    ///
    /// # Errors
    ///
    /// [`TlsError::Unfit`] if the key or the certificate cannot be made.
    pub fn new(common_name: &str, valid: Duration) -> Result<Self, TlsError> {
        let params = authority_params(common_name, SystemTime::now(), valid);
        let key = KeyPair::generate().map_err(unfit)?;
        let cert = params.self_signed(&key).map_err(unfit)?.pem();
        Self::open(Pair { cert, key: key.serialize_pem() })
    }

    /// Opens an authority that [`new`](Self::new) made before. One that another program made may
    /// not work: of its certificate only the common name and the key are used.
    ///
    /// # Errors
    ///
    /// [`TlsError::Unfit`] if one of the texts cannot be read, or the key is not that of the
    /// certificate.
    pub fn open(pair: Pair) -> Result<Self, TlsError> {
        let key = KeyPair::from_pem(&pair.key).map_err(unfit)?;
        let identity = certificate(&pair.cert)?;
        if identity.public_key() != key.der_bytes() {
            return Err(unfit("the authority's key does not belong to its certificate"));
        }
        // Certificates contain only the name of their authority, and are signed with its key.
        let params = authority_params(identity.common_name(), SystemTime::now(), Duration::ZERO);
        Ok(Self { issuer: Issuer::new(params, key), pair })
    }

    /// Certificate and key of the authority.
    pub fn pair(&self) -> &Pair {
        &self.pair
    }

    /// Makes a key, and signs its certificate for a common name and alternative names (DNS names,
    /// IP addresses), valid between two times.
    ///
    /// # Errors
    ///
    /// [`TlsError::Unfit`] if one of `names` is not valid in a certificate, or the certificate
    /// cannot be made.
    pub fn issue(
        &self,
        purpose: Purpose,
        common_name: &str,
        names: &[String],
        (from, until): (SystemTime, SystemTime),
    ) -> Result<Pair, TlsError> {
        let mut params = params(common_name, from, until);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match purpose {
            Purpose::Member | Purpose::Server => {
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]
            }

            Purpose::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        for name in names {
            params.subject_alt_names.push(match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(name.as_str().try_into().map_err(unfit)?),
            });
        }
        let key = KeyPair::generate().map_err(unfit)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(unfit)?;
        Ok(Pair { cert: certificate.pem(), key: key.serialize_pem() })
    }

    /// As [`issue`](Self::issue), valid from five minutes ago until `valid` from now.
    ///
    /// # Errors
    ///
    /// As [`issue`](Self::issue).
    pub fn issue_for(
        &self,
        purpose: Purpose,
        common_name: &str,
        names: &[String],
        valid: Duration,
    ) -> Result<Pair, TlsError> {
        let now = SystemTime::now();
        self.issue(purpose, common_name, names, (now - CLOCK_SKEW, now + valid))
    }

    /// Makes a revocation list, PEM, of the certificates `certs`, PEM. Its next update is due
    /// `valid` from now; servers of Headwater do not check that time.
    ///
    /// # Errors
    ///
    /// [`TlsError::Unfit`] if one of the texts is no certificate, or the list cannot be made. The
    /// issuer of the certificates is not checked.
    pub fn revoke(&self, certs: &[String], valid: Duration) -> Result<String, TlsError> {
        let now = SystemTime::now();
        let revoked: Result<Vec<_>, _> = certs.iter().map(|cert| revoked(cert, now)).collect();
        let list = CertificateRevocationListParams {
            this_update: (now - CLOCK_SKEW).into(),
            next_update: (now + valid).into(),
            crl_number: SerialNumber::from(
                now.duration_since(SystemTime::UNIX_EPOCH).map_or(1, |since| since.as_secs()),
            ),
            issuing_distribution_point: None,
            revoked_certs: revoked?,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).and_then(|list| list.pem()).map_err(unfit)
    }
}

fn revoked(cert: &str, now: SystemTime) -> Result<RevokedCertParams, TlsError> {
    let serial = certificate(cert)?.serial_bytes().to_vec();
    Ok(RevokedCertParams {
        serial_number: SerialNumber::from_slice(&serial),
        revocation_time: now.into(),
        reason_code: None,
        invalidity_date: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_opened_only_with_its_own_key() {
        let [one, other] = ["one", "other"].map(|name| Authority::new(name, Duration::from_secs(60)).unwrap());
        assert!(Authority::open(one.pair().clone()).is_ok());
        let mixed = Pair { cert: one.pair().cert.clone(), key: other.pair().key.clone() };
        let Err(refused) = Authority::open(mixed) else { panic!("its certificates would be signed by another key") };
        assert!(refused.to_string().contains("does not belong"), "{refused}");
    }
}
