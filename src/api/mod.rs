//! The client port: finds the requirement, the counters and the face of each request. Also the
//! service of the metrics port.

mod access;
mod admission;
mod gateway;
mod health;
mod http;
mod invitations;
mod members;
mod monitoring;
mod rest;
mod service;
mod versions;

pub use self::http::browsers::BrowserPolicy;
pub use admission::has_reserve;
pub use headwater_api_console::{ConsoleMode, ConsoleOptions};
pub use headwater_api_dns::{DnsOptions, DnsService, DnsTransport, domain_problem};
pub use headwater_api_shared::caller::{Connected, HEADWATER_PEER_URL};
pub use headwater_api_shared::context::{
    HEADWATER_FENCING_TOKEN, HEADWATER_INDETERMINATE, HEADWATER_INDEX, HEADWATER_MIN_INDEX,
};
pub use headwater_api_shared::{ApiOptions, ETCD_CLUSTER_VERSION, ETCD_COMPATIBLE_VERSION};
pub use monitoring::MonitoringService;
pub use service::{ClientService, ResponseFuture, client_service};
