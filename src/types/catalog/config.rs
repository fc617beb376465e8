//! Configuration entries, as far as events depend on them: the services of a terminating gateway.

use crate::LogIndex;

/// A configuration entry of kind `terminating-gateway`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminatingGateway {
    /// Name of the gateway's service.
    pub name: String,
    /// The services that the gateway represents in the mesh, in the order of the configuration
    /// entry. No two have the same name.
    pub services: Vec<LinkedService>,
    /// Key-value pairs of the client that wrote the entry.
    pub meta: std::collections::BTreeMap<String, String>,
    /// Log index of its creation; zero if it is not stored.
    pub created: LogIndex,
    /// Log index of its last change; zero if it is not stored.
    pub modified: LogIndex,
}

/// A service that a terminating gateway represents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkedService {
    /// Name of the service.
    pub name: String,
    /// Path of the certificates of trusted authorities, on the gateway's machine.
    pub ca_file: String,
    /// Path of the gateway's certificate, on the gateway's machine.
    pub cert_file: String,
    /// Path of the gateway's private key, on the gateway's machine.
    pub key_file: String,
    /// Server name that the gateway sends in TLS (SNI).
    pub sni: String,
    /// Whether the gateway leaves the host header of requests unchanged. Not interpreted here.
    pub disable_auto_host_rewrite: bool,
}
