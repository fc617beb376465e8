//! A backup as the stream that etcd's clients save to a file (spec: etcd §4.2).

use futures::StreamExt;
use futures::stream::BoxStream;
use tonic::Status;

use super::errors::Failure;
use headwater_api_shared::ETCD_CLUSTER_VERSION;
use headwater_node::Backup;
use headwater_proto::pb::etcdserverpb::SnapshotResponse;

/// One response for each chunk of the backup, with the number of bytes that are left after it. That
/// number does not count the checksum, which follows the content. Responses have no header, as in
/// etcd.
pub(super) fn stream(backup: Backup) -> BoxStream<'static, Result<SnapshotResponse, Status>> {
    let mut remaining = backup.total_bytes.saturating_sub(CHECKSUM_BYTES);
    let encode = move |chunk: Result<bytes::Bytes, _>| {
        let blob = chunk.map_err(|error| Status::from(Failure::Node(error)))?;
        remaining = remaining.saturating_sub(blob.len() as u64);
        let version = ETCD_CLUSTER_VERSION.to_owned();
        Ok(SnapshotResponse { header: None, remaining_bytes: remaining, blob, version })
    };
    backup.chunks.map(encode).boxed()
}

/// Length of the checksum at the end of a backup, bytes.
const CHECKSUM_BYTES: u64 = 32;
