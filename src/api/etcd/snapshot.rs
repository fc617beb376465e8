//! A backup as the stream that etcd's clients save to a file (spec: etcd §4.2).

use futures::StreamExt;
use futures::stream::BoxStream;
use tonic::Status;

use super::errors::Failure;
use crate::ETCD_CLUSTER_VERSION;
use headwater_node::Backup;
use headwater_proto::pb::etcdserverpb::SnapshotResponse;

/// Every part with the number of bytes left before the checksum, which is the last piece; without
/// headers, as in etcd.
pub(super) fn stream(backup: Backup) -> BoxStream<'static, Result<SnapshotResponse, Status>> {
    let mut remaining = backup.total_bytes.saturating_sub(CHECKSUM_BYTES);
    let encode = move |piece: Result<bytes::Bytes, _>| {
        let blob = piece.map_err(|error| Status::from(Failure::Node(error)))?;
        remaining = remaining.saturating_sub(blob.len() as u64);
        let version = ETCD_CLUSTER_VERSION.to_owned();
        Ok(SnapshotResponse { header: None, remaining_bytes: remaining, blob, version })
    };
    backup.pieces.map(encode).boxed()
}

/// Bytes that do not count as content.
const CHECKSUM_BYTES: u64 = 32;
