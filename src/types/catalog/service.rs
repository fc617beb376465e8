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
    /// Name of the service, as it was registered. Names that differ in case alone are equal.
    pub name: String,
    /// Tags in the order of the registration, which is significant.
    pub tags: Vec<String>,
    /// Address of the instance; empty if it is that of the node.
    pub address: String,
    /// Other addresses by purpose.
    pub tagged_addresses: BTreeMap<String, ServiceAddress>,
    /// Notes of the registrant.
    pub meta: BTreeMap<String, String>,
    /// Port of the instance; zero if it has none.
    pub port: i32,
    /// A Unix socket instead of address and port.
    pub socket_path: String,
    /// Shares of the load, by status of the checks.
    pub weights: Weights,
    /// Whether clients other than its agent may change the tags.
    pub enable_tag_override: bool,
    /// Target of the proxy, if the instance is a proxy; else the default.
    pub proxy: Proxy,
    /// Role of the instance in the mesh.
    pub connect: ServiceConnect,
    /// Locality of the instance, if it was registered with one.
    pub locality: Option<Locality>,
    /// Log index of its registration; zero if it is not stored.
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

    /// The word of the public APIs; a typical service has none.
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

    /// Reads [`as_str`](Self::as_str).
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

/// Share of the load of an instance, in relation to other instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Weight while all its checks pass.
    pub passing: i32,
    /// Weight while one of them warns.
    pub warning: i32,
}

impl Default for Weights {
    /// The weights of an instance that was registered without any (spec: consul §2.5).
    fn default() -> Self {
        Self { passing: 1, warning: 1 }
    }
}

/// Target of a proxy (spec: consul §4.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxy {
    /// The service; a sidecar's connect events go to its subscribers.
    pub destination_service_name: String,
    /// Id of the instance of that service.
    pub destination_service_id: String,
    /// Address on which that instance listens.
    pub local_service_address: String,
    /// Port on which that instance listens.
    pub local_service_port: i32,
    /// Unix socket on which that instance listens.
    pub local_service_socket_path: String,
    /// `transparent`, `direct` or empty.
    pub mode: String,
    /// Every other field (`Config`, `Upstreams`, `MeshGateway`, `Expose`, `TransparentProxy`,
    /// `EnvoyExtensions`, `AccessLogs`) as one JSON object with Consul's names, keys sorted,
    /// without white space; empty if there is none.
    pub more_json: String,
}

/// Role of an instance in the mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceConnect {
    /// Whether it implements the mesh's protocol itself: its connect events go to its own
    /// subscribers.
    pub native: bool,
    /// `SidecarService` and `PeerMeta` as one JSON object, as [`Proxy::more_json`].
    pub more_json: String,
}
