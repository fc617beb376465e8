//! Members talking to each other: connections, identity checks, and openraft's network traits over tonic.
//!
//! Every call says which cluster it belongs to, who sends it and for whom it is meant; the receiver refuses what is not
//! for it, so that a wrong address in a configuration can never divert votes or entries.

mod client;
mod reachable;
mod server;
pub(crate) mod snapshot_receiver;
mod snapshot_sender;
pub(crate) mod stranger;

use std::time::Duration;

use tonic::Status;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};

use crate::types::{ClusterId, NodeId};

pub(crate) use client::{PeerClient, Peers};
pub(crate) use server::PeerService;

/// HTTP/2 windows of peer connections: a full append batch must not wait for a window update.
const PEER_WINDOW_BYTES: u32 = 8 * 1024 * 1024;
/// How often an idle or stuck peer connection is probed. A black-holed peer is noticed after this plus the timeout.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// How long a probe may stay unanswered before the connection is dropped.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long connecting may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

const CLUSTER_KEY: &str = "headwater-cluster";
const FROM_KEY: &str = "headwater-from";
const TO_KEY: &str = "headwater-to";

/// A connection that is made when it is first used and made again when it breaks.
pub(crate) fn lazy_channel(url: &str) -> Result<Channel, String> {
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| format!("peer url {url:?}: {error}"))?;
    Ok(endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(PEER_WINDOW_BYTES)
        .initial_connection_window_size(PEER_WINDOW_BYTES)
        .connect_lazy())
}

/// Who speaks and to whom, as it is stamped on every call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) cluster: ClusterId,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
}

impl Route {
    fn stamp(&self, metadata: &mut MetadataMap) {
        metadata.insert(CLUSTER_KEY, self.cluster.get().into());
        metadata.insert(FROM_KEY, self.from.get().into());
        metadata.insert(TO_KEY, self.to.get().into());
    }

    /// A request that carries the stamp.
    pub(crate) fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        self.stamp(request.metadata_mut());
        request
    }
}

/// Refuses a call that is not meant for this member; returns who sent it.
pub(crate) fn check_route(metadata: &MetadataMap, cluster: ClusterId, me: NodeId) -> Result<NodeId, Status> {
    let field = |key: &'static str| -> Result<u64, Status> {
        metadata
            .get(key)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| Status::invalid_argument(format!("peer call without a valid {key}")))
    };
    let from_cluster = field(CLUSTER_KEY)?;
    if from_cluster != cluster.get() {
        return Err(Status::failed_precondition(format!(
            "this member belongs to cluster {cluster}, the caller to {from_cluster}; check cluster.token and cluster.initial"
        )));
    }
    let to = field(TO_KEY)?;
    if to != me.get() {
        return Err(Status::failed_precondition(format!(
            "this is member {me}, the call is meant for {to}; check the addresses in cluster.initial"
        )));
    }
    field(FROM_KEY).map(NodeId)
}
