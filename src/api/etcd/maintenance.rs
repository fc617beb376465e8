//! `etcdserverpb.Maintenance` (spec: etcd §4.2).

use futures::stream::BoxStream;
use tonic::{Request, Response, Status};

use super::super::context::{open, reply};
use super::super::{ApiOptions, ETCD_CLUSTER_VERSION, ETCD_COMPATIBLE_VERSION};
use super::errors::Failure;
use super::{convert, header};
use crate::node::{self, Node};
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::maintenance_server::Maintenance;
use crate::types::Revision;

/// Serves `etcdserverpb.Maintenance`.
pub(crate) struct MaintenanceService {
    node: Node,
    options: ApiOptions,
}

impl MaintenanceService {
    pub(crate) fn new(node: Node, options: ApiOptions) -> Self {
        Self { node, options }
    }
}

#[tonic::async_trait]
impl Maintenance for MaintenanceService {
    /// No alarm can be raised yet, so there is none to tell and none to clear.
    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Result<Response<pb::AlarmResponse>, Status> {
        use pb::alarm_request::AlarmAction;
        let request = request.into_inner();
        match AlarmAction::try_from(request.action) {
            Ok(AlarmAction::Get | AlarmAction::Deactivate) => {}
            Ok(AlarmAction::Activate) | Err(_) => {
                return Err(Failure::Unserved("headwater: alarms cannot be raised by hand").into());
            }
        }
        let status = self.node.status().map_err(Failure::Node)?;
        let header = Some(header::full(&self.node, status.revision));
        Ok(reply(status.applied, pb::AlarmResponse { header, alarms: vec![] }))
    }

    async fn status(&self, _: Request<pb::StatusRequest>) -> Result<Response<pb::StatusResponse>, Status> {
        let status = self.node.status().map_err(Failure::Node)?;
        let index = status.applied;
        let header = header::full(&self.node, status.revision);
        Ok(reply(index, encode_status(header, status)))
    }

    async fn hash(&self, request: Request<pb::HashRequest>) -> Result<Response<pb::HashResponse>, Status> {
        let (ctx, pb::HashRequest {}) = open(request, self.options.request_timeout)?;
        let read = self.node.state_hash(&ctx).await.map_err(Failure::Node)?;
        let header = Some(header::full(&self.node, read.revision));
        Ok(reply(read.index, pb::HashResponse { header, hash: fold(read.value) }))
    }

    /// The hash is over the keys up to the revision asked for, so that members can be compared while they move on.
    async fn hash_kv(&self, request: Request<pb::HashKvRequest>) -> Result<Response<pb::HashKvResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let wanted = (request.revision != 0).then_some(Revision(request.revision));
        let read = self.node.kv_hash(&ctx, wanted).await.map_err(Failure::Node)?;
        let response = pb::HashKvResponse {
            header: Some(header::full(&self.node, read.revision)),
            hash: fold(read.value.hash),
            compact_revision: read.value.compacted.get(),
            hash_revision: read.value.revision.get(),
        };
        Ok(reply(read.index, response))
    }

    async fn defragment(&self, _: Request<pb::DefragmentRequest>) -> Result<Response<pb::DefragmentResponse>, Status> {
        let text =
            "headwater: there is nothing to defragment; space is given back in the background after a compaction";
        Err(Failure::Unserved(text).into())
    }

    type SnapshotStream = BoxStream<'static, Result<pb::SnapshotResponse, Status>>;

    async fn snapshot(&self, _: Request<pb::SnapshotRequest>) -> Result<Response<Self::SnapshotStream>, Status> {
        Err(Failure::Unserved("headwater: backups are not served yet").into())
    }

    /// Only the leader takes it, as in etcd; the answer has no header.
    async fn move_leader(
        &self,
        request: Request<pb::MoveLeaderRequest>,
    ) -> Result<Response<pb::MoveLeaderResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        self.node.move_leader(&ctx, request.target_id.into()).await.map_err(Failure::Node)?;
        let applied = *self.node.applied().borrow();
        Ok(reply(applied, pb::MoveLeaderResponse { header: None }))
    }

    async fn downgrade(&self, _: Request<pb::DowngradeRequest>) -> Result<Response<pb::DowngradeResponse>, Status> {
        Err(Failure::Unserved("headwater: there is no version to downgrade to").into())
    }
}

fn encode_status(header: pb::ResponseHeader, status: node::Status) -> pb::StatusResponse {
    let leader = status.leadership.leader;
    let mut errors = Vec::new();
    if leader.is_none() {
        errors.push("etcdserver: no leader".to_owned());
    }
    pb::StatusResponse {
        header: Some(header),
        version: ETCD_COMPATIBLE_VERSION.to_owned(),
        db_size: convert::count(status.disk_bytes),
        leader: leader.map_or(0, |id| id.get()),
        raft_index: status.committed.get(),
        raft_term: status.leadership.term.get(),
        raft_applied_index: status.applied.get(),
        errors,
        db_size_in_use: convert::count(status.live_bytes),
        is_learner: status.is_learner,
        storage_version: ETCD_CLUSTER_VERSION.to_owned(),
        db_size_quota: 0,
        downgrade_info: Some(pb::DowngradeInfo::default()),
    }
}

/// The wire has room for half of the hash.
fn fold(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Leadership;

    fn standing(leader: Option<u64>) -> node::Status {
        node::Status {
            leadership: Leadership { leader: leader.map(Into::into), term: 3.into() },
            committed: 10.into(),
            applied: 9.into(),
            revision: 5.into(),
            compact_revision: 2.into(),
            epoch: None,
            disk_bytes: 1000,
            live_bytes: 400,
            live_keys: 7,
            is_learner: true,
            serving: true,
        }
    }

    #[test]
    fn status_tells_how_the_node_stands() {
        let header = pb::ResponseHeader { revision: 5, ..Default::default() };
        let wanted = pb::StatusResponse {
            header: Some(header),
            version: ETCD_COMPATIBLE_VERSION.into(),
            db_size: 1000,
            leader: 2,
            raft_index: 10,
            raft_term: 3,
            raft_applied_index: 9,
            errors: vec![],
            db_size_in_use: 400,
            is_learner: true,
            storage_version: "3.6.0".into(),
            db_size_quota: 0,
            downgrade_info: Some(pb::DowngradeInfo::default()),
        };
        assert_eq!(encode_status(header, standing(Some(2))), wanted);
        let leaderless = encode_status(header, standing(None));
        assert_eq!((leaderless.leader, leaderless.errors), (0, vec!["etcdserver: no leader".to_owned()]));
    }

    #[test]
    fn version_is_one_that_kubernetes_trusts() {
        let numbers = |version: &str| -> Vec<u64> { version.split('.').map(|part| part.parse().unwrap()).collect() };
        let version = numbers(ETCD_COMPATIBLE_VERSION);
        assert_eq!(version.len(), 3);
        assert!(version >= vec![3, 5, 13]);
        assert_eq!(numbers(ETCD_CLUSTER_VERSION), [version[0], version[1], 0]);
    }

    #[test]
    fn a_hash_is_folded_to_what_the_wire_has_room_for() {
        assert_eq!(fold(0x1234_5678_0000_0001), 0x1234_5679);
    }
}
