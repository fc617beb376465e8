//! The rules of TLS: files that belong together, and ports that may be plain text.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::check::Findings;
use super::draft::Draft;
use super::{InitialMember, TlsConfig};
use headwater_tls::{CertificateFiles, ClientCertificates};

/// TLS settings of all ports. A port with any file needs a certificate and its key, the peer port
/// then also a trusted CA. A port that takes client certificates needs a trusted CA. Adds findings
/// for missing files, and for a peer URL whose scheme disagrees with the files.
pub(super) fn tls_of(draft: &Draft, own: &InitialMember, found: &mut Findings) -> TlsConfig {
    let file = |file: &Option<Option<PathBuf>>| file.clone().flatten();
    let clients = CertificateFiles {
        cert: file(&draft.tls_cert),
        key: file(&draft.tls_key),
        trusted_ca: file(&draft.tls_trusted_ca),
        crl: file(&draft.tls_crl),
    };
    let peers = CertificateFiles {
        cert: file(&draft.peer_tls_cert),
        key: file(&draft.peer_tls_key),
        trusted_ca: file(&draft.peer_tls_trusted_ca),
        crl: file(&draft.peer_tls_crl),
    };
    let metrics = CertificateFiles {
        cert: file(&draft.metrics_tls_cert),
        key: file(&draft.metrics_tls_key),
        trusted_ca: file(&draft.metrics_tls_trusted_ca),
        crl: file(&draft.metrics_tls_crl),
    };
    let client_certificates = draft.tls_client_certs.unwrap_or_default();
    let metrics_client_certificates = draft.metrics_tls_client_certs.unwrap_or_default();
    check_files("tls", "client port", &clients, client_certificates, found);
    check_files("metrics-tls", "metrics port", &metrics, metrics_client_certificates, found);
    check_files("peer-tls", "peer port", &peers, ClientCertificates::Off, found);
    if !peers.is_empty() && peers.trusted_ca.is_none() {
        found.add("peer-tls.trusted-ca", "must be set, because nodes always judge each other");
    }
    check_peer_urls(draft, own, &peers, found);
    TlsConfig {
        clients,
        client_certificates,
        peers,
        metrics,
        metrics_client_certificates,
        min_version: draft.tls_min_version.unwrap_or_default(),
    }
}

/// Adds findings for the missing files of a port, whose settings are in `section`.
fn check_files(
    section: &str,
    port: &str,
    files: &CertificateFiles,
    client_certificates: ClientCertificates,
    found: &mut Findings,
) {
    let mut missing = |file: &Option<PathBuf>, name: &str, why: &str| {
        if file.is_none() {
            found.add(&format!("{section}.{name}"), format!("must be set, because {why}"));
        }
    };
    if !files.is_empty() {
        missing(&files.cert, "cert", &format!("other files of the {port} are"));
        missing(&files.key, "key", &format!("other files of the {port} are"));
    }
    if client_certificates != ClientCertificates::Off {
        if files.is_empty() {
            missing(&files.cert, "cert", "clients show certificates by TLS alone");
        }
        missing(&files.trusted_ca, "trusted-ca", "it judges the certificates of clients");
    }
}

/// Adds a finding for the first peer URL whose scheme disagrees with the files of the peer port.
fn check_peer_urls(draft: &Draft, own: &InitialMember, files: &CertificateFiles, found: &mut Findings) {
    let listed = draft.cluster_initial.iter().flatten();
    let plain = listed.clone().map(|member| &member.peer).chain([&own.peer]).find(|url| url.starts_with("http://"));
    let secure = listed.map(|member| &member.peer).chain([&own.peer]).find(|url| url.starts_with("https://"));
    match (files.is_empty(), plain, secure) {
        (false, Some(url), _) => {
            found.add("peer-tls.cert", format!("is set, but {url} is a plain address of a node: write https://"));
        }
        (true, _, Some(url)) => found.add("peer-tls.cert", format!("must be set, because {url} is reached by TLS")),
        _ => {}
    }
}

/// Adds a finding for each port without certificates that other machines can reach, unless
/// `insecure` is set. `listen` has the addresses of the client port, the peer port and the metrics
/// port.
pub(super) fn check_plain_text(
    tls: &TlsConfig,
    insecure: bool,
    listen: (SocketAddr, SocketAddr, Option<SocketAddr>),
    found: &mut Findings,
) {
    let ports = [
        ("listen-client", Some(listen.0), &tls.clients, "tls"),
        ("listen-peer", Some(listen.1), &tls.peers, "peer-tls"),
        ("metrics.listen", listen.2, &tls.metrics, "metrics-tls"),
    ];
    for (key, address, files, section) in ports {
        let Some(address) = address.filter(|address| !address.ip().to_canonical().is_loopback()) else { continue };
        if !insecure && files.is_empty() {
            found.add(
                key,
                format!(
                    "{address} is reached by other machines, and everything on it would be plain text: set {section}.cert and \
                     {section}.key (`headwater certs` makes them), or --insecure if the network is trusted"
                ),
            );
        }
    }
}
