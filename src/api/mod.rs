//! The faces of the store on the client port: decode, check shape, call `node`, encode.
//!
//! One folder for each face, one file for each command; `shared` has the parts that several faces
//! use, and no face imports another, except `early`, which imports `etcd` (`tests/tidy`). Owns the
//! tables from our errors to wire codes and texts. Must not know storage, or the way of a proposal
//! into the log; except for counters, nothing here outlives its request or stream. Invariant: a
//! gRPC request reaches [`Node`](headwater_node::Node) with a `RequestContext` that was read from
//! its metadata, and its successful answer carries `headwater-index`; only the health and
//! reflection services do without.
//!
//! Adding a service: implement its generated trait in a file of its face's folder, add it to
//! `service::Face`. A stream of changes implements `shared::stream::StreamService`. Methods are
//! served over HTTP too if their protos have an HTTP annotation (see `gateway`). Resources have
//! paths of their own (see `rest`); so has Consul's HTTP API (see `consul`). DNS has a port of its
//! own (see `dns`).

mod admission;
mod doors;
mod gateway;
mod health;
mod http;
mod invitations;
mod resource;
mod rest;
mod service;
mod subscribe;
mod versions;
mod watcher;

pub use self::http::browsers::BrowserPolicy;
pub use admission::has_reserve;
pub use headwater_api_dns::{DnsOptions, DnsService, DnsTransport, domain_problem};
pub use headwater_api_shared::caller::{Connected, HEADWATER_PEER_URL};
pub use headwater_api_shared::context::{
    HEADWATER_FENCING_TOKEN, HEADWATER_INDETERMINATE, HEADWATER_INDEX, HEADWATER_MIN_INDEX,
};
pub use headwater_api_shared::{ApiOptions, ETCD_CLUSTER_VERSION, ETCD_COMPATIBLE_VERSION};
pub use service::{ClientService, ResponseFuture, client_service};
