//! The peer network: connections, identity checks, and openraft's network traits over tonic.
//!
//! Every call carries its cluster, sender, receiver and, once known, epoch and origin of the
//! sender's store. The receiver refuses calls for another cluster or member, or from another store:
//! a wrong address in a configuration never diverts votes or entries, and two stores that began
//! under one name never mix.

mod addresses;
pub(crate) mod admission;
mod client;
mod closable;
mod connection;
mod reachable;
mod server;
mod session;
pub(crate) mod snapshot_receiver;
mod snapshot_sender;
pub(crate) mod wrong_port;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tonic::Status;
use tonic::metadata::MetadataMap;
use tonic::transport::Endpoint;

use headwater_tls::{Connector, Dialer};
use headwater_types::{ClusterId, NodeId, StoreEpoch};

pub(crate) use client::{PeerClient, Peers};
pub(crate) use server::PeerService;

/// HTTP/2 windows of peer connections: a full append batch must not wait for a window update.
const PEER_WINDOW_BYTES: u32 = 8 * 1024 * 1024;
/// Time without received data after which a peer connection is probed by HTTP/2 `PING`. A peer that
/// is not reachable any more is noticed after this plus [`KEEPALIVE_TIMEOUT`].
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for the answer to a probe; the connection is dropped then.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time to connect to a peer. Also bounds the opening of a stream, and other calls that
/// need one round trip.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

const CLUSTER_KEY: &str = "headwater-cluster";
const FROM_KEY: &str = "headwater-from";
const TO_KEY: &str = "headwater-to";
const EPOCH_KEY: &str = "headwater-epoch";
const ORIGIN_KEY: &str = "headwater-origin";

/// The endpoint of a peer's URL, with the options of peer connections, and the connector for it.
/// Opens no connection: tonic connects at the first call, and again after a connection broke. The
/// error is a text about the URL or about missing certificates.
fn endpoint(url: &str, dialer: &Dialer) -> Result<(Endpoint, Connector), String> {
    let (endpoint, connector) =
        dialer.endpoint(url, CONNECT_TIMEOUT).map_err(|error| format!("peer url {url:?}: {error}"))?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(PEER_WINDOW_BYTES)
        .initial_connection_window_size(PEER_WINDOW_BYTES);
    Ok((endpoint, connector))
}

/// The lineage of this member's store, as its calls carry it. The cluster's id follows from the
/// configuration, so it cannot distinguish two stores: members that lost all data and started empty
/// have another epoch, and members restored from different backups, or with different options, have
/// different origins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lineage {
    /// Epoch of the store; 0 until it has one.
    epoch: Arc<AtomicU64>,
    /// Hash of the backup and of the options from which the store was restored, equal on members
    /// restored alike; 0 without a restore.
    origin: u64,
}

impl Lineage {
    pub(crate) fn new(origin: u64) -> Self {
        Self { epoch: Arc::default(), origin }
    }

    /// Records the epoch of the local store; `None` changes nothing.
    pub(crate) fn learn(&self, epoch: Option<StoreEpoch>) {
        if let Some(epoch) = epoch {
            self.epoch.store(epoch.get(), Ordering::Release);
        }
    }

    /// Whether the epoch is known.
    pub(crate) fn has_epoch(&self) -> bool {
        self.epoch.load(Ordering::Acquire) != 0
    }

    /// The known fields by metadata key.
    fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let fields = [(EPOCH_KEY, self.epoch.load(Ordering::Acquire)), (ORIGIN_KEY, self.origin)];
        fields.into_iter().filter(|(_, value)| *value != 0)
    }
}

/// Cluster, sender, receiver and lineage, stamped on every call, and the dialer that connects to
/// the receiver.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) cluster: ClusterId,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) lineage: Lineage,
    pub(crate) dialer: Dialer,
}

impl Route {
    fn stamp(&self, metadata: &mut MetadataMap) {
        metadata.insert(CLUSTER_KEY, self.cluster.get().into());
        metadata.insert(FROM_KEY, self.from.get().into());
        metadata.insert(TO_KEY, self.to.get().into());
        for (key, value) in self.lineage.fields() {
            metadata.insert(key, value.into());
        }
    }

    /// A request that carries the stamp.
    pub(crate) fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        self.stamp(request.metadata_mut());
        request
    }
}

/// Refuses a call for another cluster or another member, from a store of another lineage, or
/// without valid metadata. An epoch or origin that only one side has is not compared. Returns the
/// sender as the call names it; whether it is a member is not checked.
pub(crate) fn check_route(
    metadata: &MetadataMap,
    cluster: ClusterId,
    me: NodeId,
    lineage: &Lineage,
) -> Result<NodeId, Status> {
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
    for (key, own) in lineage.fields() {
        if metadata.contains_key(key) && field(key)? != own {
            return Err(Status::failed_precondition(format!(
                "member {me} has another store than the caller, under the same cluster.token: one of them began anew without \
                 its data, or they were restored from different backups or with different options; keep the one that is \
                 right, and start the other one with --join and an empty data directory"
            )));
        }
    }
    field(FROM_KEY).map(NodeId)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lineage(epoch: u64, origin: u64) -> Lineage {
        let lineage = Lineage::new(origin);
        lineage.learn((epoch != 0).then_some(StoreEpoch(epoch)));
        lineage
    }

    #[test]
    fn calls_are_for_this_member_of_this_cluster_with_this_store() {
        let (cluster, me) = (ClusterId(7), NodeId(2));
        for (called_cluster, to, theirs, ours, refusal) in [
            (7, 2, (0, 0), (0, 0), None),
            (7, 2, (5, 0), (5, 0), None),
            (7, 2, (5, 0), (0, 0), None),
            (7, 2, (0, 0), (5, 9), None),
            (7, 2, (0, 9), (5, 9), None),
            (7, 2, (0, 9), (5, 0), None),
            (8, 2, (5, 0), (5, 0), Some("cluster.token")),
            (7, 3, (5, 0), (5, 0), Some("meant for 3")),
            (7, 2, (6, 0), (5, 0), Some("another store")),
            (7, 2, (0, 8), (0, 9), Some("another store")),
            (7, 2, (5, 8), (5, 9), Some("another store")),
        ] {
            let route = Route {
                cluster: ClusterId(called_cluster),
                from: NodeId(1),
                to: NodeId(to),
                lineage: lineage(theirs.0, theirs.1),
                dialer: Dialer::default(),
            };
            let request = route.request(());
            let found = check_route(request.metadata(), cluster, me, &lineage(ours.0, ours.1));
            match refusal {
                None => assert_eq!(found.unwrap(), NodeId(1)),
                Some(words) => assert!(found.unwrap_err().message().contains(words), "{words}"),
            }
        }
    }
}
