//! Service instances.

use std::collections::BTreeMap;
use std::fmt;

use super::Locality;
use crate::LogIndex;

/// One instance of a service (spec: consul §4.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Name of its node, as the node was registered.
    pub node: String,
    /// Kind of the service.
    pub kind: ServiceKind,
    /// Id of the instance, unique on its node.
    pub id: String,
    /// Name of the service, as it was registered. Names that differ only in ASCII case are equal.
    pub name: String,
    /// Tags, in the order of the registration. The same tags in another order are a change.
    pub tags: Vec<String>,
    /// Address of the instance; empty if it is that of the node.
    pub address: String,
    /// Other addresses by purpose (`lan`, `wan`).
    pub tagged_addresses: BTreeMap<String, ServiceAddress>,
    /// Key-value pairs of the client that registered the instance.
    pub meta: BTreeMap<String, String>,
    /// Port of the instance; zero if it has none.
    pub port: i32,
    /// Path of a Unix socket, used instead of address and port; may be empty.
    pub socket_path: String,
    /// The instance's share of the load, by the status of its checks.
    pub weights: Weights,
    /// Flag of the registration: whether clients other than its agent may change the tags. It is
    /// kept and returned, not enforced.
    pub enable_tag_override: bool,
    /// Settings of the proxy or gateway; the default if the instance was registered without any.
    pub proxy: Proxy,
    /// Role of the instance in the mesh.
    pub connect: ServiceConnect,
    /// Locality of the instance, if it was registered with one.
    pub locality: Option<Locality>,
    /// Log index of the command that created this row; zero if it is not stored.
    pub created: LogIndex,
    /// Log index of the last change of this row; zero if it is not stored.
    pub modified: LogIndex,
}

/// Kind of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ServiceKind {
    /// An ordinary service.
    #[default]
    Typical = 1,
    /// A sidecar: the proxy of another service.
    ConnectProxy = 2,
    /// A gateway between meshes.
    MeshGateway = 3,
    /// A gateway from the mesh to services outside it.
    TerminatingGateway = 4,
    /// A gateway from outside into the mesh.
    IngressGateway = 5,
    /// A gateway from outside into the mesh, by routes.
    ApiGateway = 6,
}

impl ServiceKind {
    /// Every kind, by number.
    pub const ALL: [Self; 6] = [
        Self::Typical,
        Self::ConnectProxy,
        Self::MeshGateway,
        Self::TerminatingGateway,
        Self::IngressGateway,
        Self::ApiGateway,
    ];

    /// The kind as text in the public APIs; empty for [`Typical`](Self::Typical).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Typical => "",
            Self::ConnectProxy => "connect-proxy",
            Self::MeshGateway => "mesh-gateway",
            Self::TerminatingGateway => "terminating-gateway",
            Self::IngressGateway => "ingress-gateway",
            Self::ApiGateway => "api-gateway",
        }
    }

    /// The inverse of [`as_str`](Self::as_str); `None` for any other text.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl fmt::Display for ServiceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An address with a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceAddress {
    /// An IP address or a host name.
    pub address: String,
    /// The port.
    pub port: i32,
}

/// Weights of an instance: its share of the load in proportion to those of other instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Weight while all its checks pass.
    pub passing: i32,
    /// Weight while the worst of its checks is warning.
    pub warning: i32,
}

impl Default for Weights {
    /// The weights of an instance that was registered without any (spec: consul §2.5).
    fn default() -> Self {
        Self { passing: 1, warning: 1 }
    }
}

/// Settings of a proxy or gateway: its target, and the text of all others (spec: consul §4.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxy {
    /// Name of the service that the proxy represents. Subscribers of that service in the mesh get
    /// the proxy's events.
    pub destination_service_name: String,
    /// Id of the instance that the proxy represents; may be empty.
    pub destination_service_id: String,
    /// Address on which the represented instance listens.
    pub local_service_address: String,
    /// Port on which the represented instance listens.
    pub local_service_port: i32,
    /// Path of the Unix socket on which the represented instance listens.
    pub local_service_socket_path: String,
    /// Mode of the proxy: `transparent`, `direct` or empty.
    pub mode: String,
    /// Every other field of Consul's `Proxy` (`Config`, `Upstreams`, `MeshGateway`, `Expose`,
    /// `TransparentProxy`, `EnvoyExtensions`, `AccessLogs`) as one JSON object with Consul's names,
    /// keys sorted, without white space; empty if there is none.
    pub more_json: String,
}

/// Consul's `Connect` of an instance: whether it is in the mesh without a proxy, and the text of
/// its other fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceConnect {
    /// Whether the instance implements the mesh's protocol without a proxy. If so, subscribers of
    /// its own service in the mesh get its events.
    pub native: bool,
    /// `SidecarService` and `PeerMeta` as one JSON object, in the form of [`Proxy::more_json`].
    pub more_json: String,
}
