//! The client port: finds the lock, the counters and the face of each request.
//!
//! Owns the list of services (`service`), the requirements (`access`), and the small faces: JSON
//! over HTTP (`gateway`, `rest`), plain HTTP (`http`), health, versions, invitations. A large face
//! is a crate of its own, `headwater-api-NAME` in the folder `NAME`; `headwater-api-shared` has the
//! parts that several faces use. A face decodes, checks the shape, calls `node` and encodes. It
//! imports no other face, except `early`, which imports `etcd` (`tests/tidy`). Must not know
//! storage, or the way of a proposal into the log; except for counters, nothing here outlives its
//! request or stream. Invariant: a gRPC request reaches [`Node`](headwater_node::Node) with a
//! `RequestContext` that was read from its metadata, and its successful answer carries
//! `headwater-index`; only the health and reflection services do without.
//!
//! Adding a service: implement its generated trait in a file of its face's folder, add it to
//! `service::GrpcService`. Methods are served over HTTP too if their protos have an HTTP annotation
//! (see `gateway`). DNS has a port of its own.

mod access;
mod admission;
mod gateway;
mod health;
mod http;
mod invitations;
mod rest;
mod service;
mod versions;

pub use self::http::browsers::BrowserPolicy;
pub use admission::has_reserve;
pub use headwater_api_dns::{DnsOptions, DnsService, DnsTransport, domain_problem};
pub use headwater_api_shared::caller::{Connected, HEADWATER_PEER_URL};
pub use headwater_api_shared::context::{
    HEADWATER_FENCING_TOKEN, HEADWATER_INDETERMINATE, HEADWATER_INDEX, HEADWATER_MIN_INDEX,
};
pub use headwater_api_shared::{ApiOptions, ETCD_CLUSTER_VERSION, ETCD_COMPATIBLE_VERSION};
pub use service::{ClientService, ResponseFuture, client_service};
