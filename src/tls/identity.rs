//! The identity in a certificate, such as the one that the other end of a connection has shown.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::asn1::{PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::COMMON_NAME;
use x509_cert::der::{Any, Decode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// The names and the validity of a certificate, with its chain; cheap to clone.
#[derive(Clone, Debug)]
pub struct Identity {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    chain: Vec<CertificateDer<'static>>,
    common_name: String,
    /// DNS names, lower case, and IP addresses.
    names: Vec<String>,
    serial: Vec<u8>,
    not_after: i64,
}

impl Identity {
    /// The identity in the first certificate of `chain`; `None` if there is none or it cannot be
    /// read. Verifies nothing: rustls has verified the chain of a connection.
    pub(crate) fn of(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let certificate = Certificate::from_der(chain.first()?).ok()?.tbs_certificate;
        let attributes = certificate.subject.0.iter().flat_map(|part| part.0.iter());
        let common_name =
            attributes.filter(|attribute| attribute.oid == COMMON_NAME).find_map(|name| text(&name.value));
        let alternative = certificate.get::<SubjectAltName>().ok()?;
        let names = alternative.iter().flat_map(|(_, names)| &names.0).filter_map(name_of).collect();
        let not_after = certificate.validity.not_after.to_unix_duration().as_secs();
        let inner = Inner {
            chain: chain.iter().map(|certificate| certificate.clone().into_owned()).collect(),
            common_name: common_name.unwrap_or_default(),
            names,
            serial: certificate.serial_number.as_bytes().to_vec(),
            not_after: i64::try_from(not_after).unwrap_or(i64::MAX),
        };
        Some(Self { inner: Arc::new(inner) })
    }

    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.inner.chain
    }

    /// The subject's common name; empty if there is none that can be read.
    pub fn common_name(&self) -> &str {
        &self.inner.common_name
    }

    /// Whether `name` is one of [`names`](Self::names), compared without regard to case. A wildcard
    /// in a DNS name matches no other name.
    pub fn is_for(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        self.inner.names.contains(&name)
    }

    /// DNS names, in lower case, and IP addresses of the certificate, from its alternative names.
    pub fn names(&self) -> &[String] {
        &self.inner.names
    }

    /// The serial number: bytes in hexadecimal, joined by colons.
    pub fn serial(&self) -> String {
        let digits: Vec<String> = self.inner.serial.iter().map(|byte| format!("{byte:02x}")).collect();
        digits.join(":")
    }

    pub(crate) fn serial_bytes(&self) -> &[u8] {
        &self.inner.serial
    }

    /// The bytes of the public key, without its algorithm; empty if the certificate cannot be read.
    pub(crate) fn public_key(&self) -> Vec<u8> {
        let certificate = self.chain().first().and_then(|der| Certificate::from_der(der).ok());
        certificate.map_or_else(Vec::new, |certificate| {
            certificate.tbs_certificate.subject_public_key_info.subject_public_key.raw_bytes().to_vec()
        })
    }

    /// The end of the certificate's validity, seconds since the Unix epoch.
    pub fn not_after(&self) -> i64 {
        self.inner.not_after
    }
}

fn text(value: &Any) -> Option<String> {
    let utf8 = value.decode_as::<Utf8StringRef<'_>>().map(|text| text.as_str().to_owned());
    utf8.or_else(|_| value.decode_as::<PrintableStringRef<'_>>().map(|text| text.as_str().to_owned())).ok()
}

fn name_of(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_ascii_lowercase()),
        GeneralName::IpAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(bytes.as_bytes()).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(bytes.as_bytes()).map(IpAddr::from)).ok().map(|ip| ip.to_string())
        }
        _ => None,
    }
}
