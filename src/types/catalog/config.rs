//! Configuration entries, as far as events depend on them: which services a terminating gateway
//! stands for.

use crate::LogIndex;

/// A configuration entry of kind `terminating-gateway`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminatingGateway {
    /// Name of the gateway's service.
    pub name: String,
    /// The services that it stands for, in the order of the entry. No two have the same name.
    pub services: Vec<LinkedService>,
    /// Notes of its author.
    pub meta: std::collections::BTreeMap<String, String>,
    /// Log index of its creation; zero if it is not stored.
    pub created: LogIndex,
    /// Log index of its last change; zero if it is not stored.
    pub modified: LogIndex,
}

/// A service that a terminating gateway stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkedService {
    /// Its name.
    pub name: String,
    /// File with the certificates of authorities that the gateway trusts.
    pub ca_file: String,
    /// File with the gateway's certificate.
    pub cert_file: String,
    /// File with the gateway's key.
    pub key_file: String,
    /// Name that the gateway asks for.
    pub sni: String,
    /// Whether names are left unverified.
    pub disable_auto_host_rewrite: bool,
}
