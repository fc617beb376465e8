//! The faces of the store on the client port: decode, check shape, call `node`, encode.
//!
//! One folder a face, one file a command. Owns the tables from our errors to wire codes and texts.
//! Knows nothing of storage, or of how a proposal gets into the log; but for counters, nothing here
//! outlives its request or stream, which may wait for what `node` tells it. Invariant: every
//! request reaches [`Node`](headwater_node::Node) with a `RequestContext` that was read from its
//! metadata, and every successful gRPC answer carries `headwater-index`.
//!
//! Adding a service: implement its generated trait in a file of its face's folder, add it to
//! `service::Face`. Its methods are served over HTTP too where their protos have an HTTP annotation
//! (see `gateway`). Resources have paths of their own (see `rest`); so has Consul's HTTP API (see
//! `consul`). DNS has a port of its own (see `dns`).

mod consul;
mod dns;
mod early;
mod etcd;
mod gateway;
mod grpc_messages;
mod grpc_metrics;
mod health;
mod http;
mod resource;
mod rest;
mod service;
mod shared;
mod subscribe;
mod watcher;

use std::time::Duration;

use headwater_types::limits::{REQUEST_BYTES_MAX, REQUEST_OVERHEAD_BYTES, TXN_OPS_MAX};

pub use dns::{DnsOptions, DnsService, DnsTransport, domain_problem};
pub use service::{ClientService, ResponseFuture, client_service};
pub use shared::context::{HEADWATER_FENCING_TOKEN, HEADWATER_INDETERMINATE, HEADWATER_INDEX, HEADWATER_MIN_INDEX};

/// The release of etcd that the KV face is compatible with. Clients choose their requests by it:
/// kube-apiserver wants at least 3.5.13 (spec: etcd §12).
pub const ETCD_COMPATIBLE_VERSION: &str = "3.6.14";

/// The cluster version that goes with [`ETCD_COMPATIBLE_VERSION`].
pub const ETCD_CLUSTER_VERSION: &str = "3.6.0";

/// Options of the faces.
#[derive(Clone, Copy, Debug)]
pub struct ApiOptions {
    /// How long a request may take if its client gives no deadline, and at most (etcd: 5 s + two
    /// election timeouts).
    pub request_timeout: Duration,
    /// How often an idle watcher that wants to know hears how far it has come (etcd's
    /// `--watch-progress-notify-interval`).
    pub watch_progress_interval: Duration,
    /// How long a watch that requires a leader, and every stream of the watcher, does without one
    /// (etcd: three election timeouts).
    pub leader_loss_timeout: Duration,
    /// Largest request, as a command in the log, bytes (etcd's `--max-request-bytes`).
    pub max_request_bytes: usize,
    /// Most compares, or operations, in one list of a transaction (etcd's `--max-txn-ops`).
    pub max_txn_ops: usize,
}

impl ApiOptions {
    /// Largest message that gRPC takes, bytes.
    fn message_bytes_max(&self) -> usize {
        self.max_request_bytes + REQUEST_OVERHEAD_BYTES
    }

    /// Most JSON that stands for one message, bytes: every message that gRPC takes fits, base64 and
    /// all.
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
        }
    }
}
