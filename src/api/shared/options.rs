//! Options of the faces, and the release of etcd that they are compatible with.

use std::time::Duration;

use headwater_types::limits::{REQUEST_BYTES_MAX, REQUEST_OVERHEAD_BYTES, TXN_OPS_MAX, WATCHERS_PER_STREAM_MAX};

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
    /// Time without a leader after which a stream that requires one ends (etcd: three election
    /// timeouts). These require one: a watch that asks for it, every stream of the watcher API, and
    /// a live stream of the store's API.
    pub leader_loss_timeout: Duration,
    /// Largest size of a request, bytes (etcd's `--max-request-bytes`). It is the size of the
    /// encoded command in the log. The message from the client may be somewhat larger.
    pub max_request_bytes: usize,
    /// Most compares, or operations, in one list of a transaction (etcd's `--max-txn-ops`).
    pub max_txn_ops: usize,
    /// Most watchers of one stream of etcd's watch API.
    pub watchers_per_stream_max: usize,
}

impl ApiOptions {
    /// Largest message that gRPC accepts, bytes.
    pub fn message_bytes_max(&self) -> usize {
        self.max_request_bytes + REQUEST_OVERHEAD_BYTES
    }

    /// Largest JSON of one message, bytes: twice that of gRPC, because keys and values are in
    /// base64.
    pub fn json_bytes_max(&self) -> usize {
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
