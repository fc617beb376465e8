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
mod consul;
mod dns;
mod doors;
mod early;
mod etcd;
mod gateway;
mod grpc_messages;
mod grpc_metrics;
mod health;
mod http;
mod invitations;
mod resource;
mod rest;
mod service;
mod shared;
mod subscribe;
mod versions;
mod watcher;

use std::time::Duration;

use headwater_types::limits::{REQUEST_BYTES_MAX, REQUEST_OVERHEAD_BYTES, TXN_OPS_MAX, WATCHERS_PER_STREAM_MAX};

pub use self::http::browsers::BrowserPolicy;
pub use admission::has_reserve;
pub use dns::{DnsOptions, DnsService, DnsTransport, domain_problem};
pub use service::{ClientService, ResponseFuture, client_service};
pub use shared::caller::{Connected, HEADWATER_PEER_URL};
pub use shared::context::{HEADWATER_FENCING_TOKEN, HEADWATER_INDETERMINATE, HEADWATER_INDEX, HEADWATER_MIN_INDEX};

/// The release of etcd that the KV face is compatible with. Clients choose their requests by it:
/// kube-apiserver wants at least 3.5.13 (spec: etcd §12).
pub const ETCD_COMPATIBLE_VERSION: &str = "3.6.14";

/// The cluster version that goes with [`ETCD_COMPATIBLE_VERSION`].
pub const ETCD_CLUSTER_VERSION: &str = "3.6.0";

/// Options of the faces.
#[derive(Clone, Copy, Debug)]
pub struct ApiOptions {
    /// Longest time that a request may take, and its timeout if the client gives none (etcd: 5 s +
    /// two election timeouts).
    pub request_timeout: Duration,
    /// Interval of progress notifications to an idle watcher that asked for them (etcd's
    /// `--watch-progress-notify-interval`).
    pub watch_progress_interval: Duration,
    /// Time without a leader after which a watch that requires one ends, and every stream of
    /// `watcher` (etcd: three election timeouts).
    pub leader_loss_timeout: Duration,
    /// Largest request, as a command in the log, bytes (etcd's `--max-request-bytes`).
    pub max_request_bytes: usize,
    /// Most compares, or operations, in one list of a transaction (etcd's `--max-txn-ops`).
    pub max_txn_ops: usize,
    /// Most watchers of one stream of etcd's watch API.
    pub watchers_per_stream_max: usize,
}

impl ApiOptions {
    /// Largest message that gRPC takes, bytes.
    fn message_bytes_max(&self) -> usize {
        self.max_request_bytes + REQUEST_OVERHEAD_BYTES
    }

    /// Most JSON of one message, bytes: every message that gRPC takes fits, in base64 too.
    fn json_bytes_max(&self) -> usize {
        2 * self.message_bytes_max()
    }
}

impl Default for ApiOptions {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(7),
            watch_progress_interval: Duration::from_secs(600),
            leader_loss_timeout: Duration::from_secs(3),
            max_request_bytes: REQUEST_BYTES_MAX,
            max_txn_ops: TXN_OPS_MAX,
            watchers_per_stream_max: WATCHERS_PER_STREAM_MAX,
        }
    }
}
