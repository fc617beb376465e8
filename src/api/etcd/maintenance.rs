//! `etcdserverpb.Maintenance` (spec: etcd §4.2).

use futures::stream::BoxStream;
use tonic::{Request, Response, Status};

use super::errors::{Failure, Invalid};
use super::{alarm, convert, header, snapshot};
use headwater_api_shared::context::{open, reply};
use headwater_api_shared::{ApiOptions, ETCD_CLUSTER_VERSION, ETCD_COMPATIBLE_VERSION};
use headwater_node::Node;
use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::maintenance_server::Maintenance;
use headwater_types::{Revision, Version};

/// The compaction point in the answer of a store that was never compacted (spec: etcd §1.7).
const NEVER_COMPACTED: Revision = Revision(-1);

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
    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Result<Response<pb::AlarmResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let (index, response) = alarm::serve(&self.node, &ctx, request).await?;
        Ok(reply(index, response))
    }

    async fn status(&self, request: Request<pb::StatusRequest>) -> Result<Response<pb::StatusResponse>, Status> {
        let (ctx, pb::StatusRequest {}) = open(request, self.options.request_timeout)?;
        // An unhealthy member must be able to report its status: it waits only for the index and
        // the leader that the request names.
        if ctx.require_leader || ctx.min_index.is_some() {
            self.node.wait_ready(&ctx).await.map_err(Failure::Node)?;
        }
        self.node.authorize_somebody(&ctx).map_err(Failure::Node)?;
        let status = self.node.status().map_err(Failure::Node)?;
        let index = status.applied;
        let header = header::full(&self.node, status.revision);
        Ok(reply(index, encode_status(header, status)))
    }

    /// The hash of everything that clients have stored. Restarts, elections and the lease clock do
    /// not change it.
    async fn hash(&self, request: Request<pb::HashRequest>) -> Result<Response<pb::HashResponse>, Status> {
        let (ctx, pb::HashRequest {}) = open(request, self.options.request_timeout)?;
        let read = self.node.maintenance().content_hash(&ctx).await.map_err(Failure::Node)?;
        let header = Some(header::full(&self.node, read.revision));
        Ok(reply(read.index, pb::HashResponse { header, hash: fold(read.value) }))
    }

    /// The hash of the keys at the requested revision; at the current one for revision 0. With a
    /// revision, members can be compared while they apply more.
    async fn hash_kv(&self, request: Request<pb::HashKvRequest>) -> Result<Response<pb::HashKvResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let wanted = (request.revision != 0).then_some(Revision(request.revision));
        let read = self.node.maintenance().kv_hash(&ctx, wanted).await.map_err(Failure::Node)?;
        let response = pb::HashKvResponse {
            header: Some(header::full(&self.node, read.revision)),
            hash: fold(read.value.hash),
            compact_revision: read.value.compacted.unwrap_or(NEVER_COMPACTED).get(),
            hash_revision: read.value.revision.get(),
        };
        Ok(reply(read.index, response))
    }

    /// Rewrites this member's files, so that removed data takes no space on disk. Without this
    /// call, that happens in the background after a compaction. Requests are served meanwhile.
    async fn defragment(
        &self,
        request: Request<pb::DefragmentRequest>,
    ) -> Result<Response<pb::DefragmentResponse>, Status> {
        let (ctx, pb::DefragmentRequest {}) = open(request, self.options.request_timeout)?;
        self.node.maintenance().defragment(&ctx).await.map_err(Failure::Node)?;
        // etcd sends no header here (spec: etcd App. B).
        Ok(reply(self.node.follow().published().index, pb::DefragmentResponse { header: None }))
    }

    type SnapshotStream = BoxStream<'static, Result<pb::SnapshotResponse, Status>>;

    async fn snapshot(&self, request: Request<pb::SnapshotRequest>) -> Result<Response<Self::SnapshotStream>, Status> {
        let (ctx, pb::SnapshotRequest {}) = open(request, self.options.request_timeout)?;
        let backup = self.node.maintenance().backup(&ctx).await.map_err(Failure::Node)?;
        Ok(reply(backup.info.index, snapshot::stream(backup)))
    }

    /// Moves the leadership. Only the leader can, as in etcd; other members refuse the request. The
    /// answer has no header.
    async fn move_leader(
        &self,
        request: Request<pb::MoveLeaderRequest>,
    ) -> Result<Response<pb::MoveLeaderResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        self.node.members().move_leader(&ctx, request.target_id.into()).await.map_err(Failure::Node)?;
        let applied = *self.node.applied().borrow();
        Ok(reply(applied, pb::MoveLeaderResponse { header: None }))
    }

    /// Validates, enables or cancels a downgrade. The versions are those of Headwater (spec: etcd
    /// §4.2): the target is one minor version below that of the cluster. The answer has the version
    /// of the cluster, and no header.
    async fn downgrade(
        &self,
        request: Request<pb::DowngradeRequest>,
    ) -> Result<Response<pb::DowngradeResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let versions = self.node.versions();
        match downgrade_of(&request)? {
            Downgrade::Validate(to) => versions.validate_downgrade(&ctx, to).await,
            Downgrade::Enable(to) => versions.enable_downgrade(&ctx, to).await,
            Downgrade::Cancel => versions.cancel_downgrade(&ctx).await,
        }
        .map_err(Failure::Node)?;
        let version = format!("{}.0", versions.cluster().version);
        Ok(reply(*self.node.applied().borrow(), pb::DowngradeResponse { header: None, version }))
    }
}

/// A request about a downgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Downgrade {
    Validate(Version),
    Enable(Version),
    Cancel,
}

fn downgrade_of(request: &pb::DowngradeRequest) -> Result<Downgrade, Failure> {
    use pb::downgrade_request::DowngradeAction;
    let target = || match is_version(&request.version) {
        // A version that Headwater cannot have.
        true => request.version.parse().map_err(|_| Failure::from(Invalid::DowngradeTarget)),
        false => Err(Invalid::DowngradeFormat.into()),
    };
    match DowngradeAction::try_from(request.action) {
        Ok(DowngradeAction::Validate) => Ok(Downgrade::Validate(target()?)),
        Ok(DowngradeAction::Enable) => Ok(Downgrade::Enable(target()?)),
        Ok(DowngradeAction::Cancel) => Ok(Downgrade::Cancel),
        Err(_) => Err(Invalid::UnknownAction.into()),
    }
}

/// Whether a text is two or three numbers with dots between them.
fn is_version(text: &str) -> bool {
    let numbers: Vec<_> = text.split('.').map(|part| part.parse::<u32>().is_ok()).collect();
    (2..=3).contains(&numbers.len()) && numbers.iter().all(|is_number| *is_number)
}

fn encode_status(header: pb::ResponseHeader, status: headwater_node::Status) -> pb::StatusResponse {
    let leader = status.leadership.leader;
    let mut errors = Vec::new();
    if leader.is_none() {
        errors.push("etcdserver: no leader".to_owned());
    }
    errors.extend(status.alarms.iter().map(alarm::text));
    if let Some(lasts) = status.stands_still {
        errors.push(format!("headwater: nothing was applied for {} s although more is committed", lasts.as_secs()));
    }
    pb::StatusResponse {
        header: Some(header),
        version: ETCD_COMPATIBLE_VERSION.to_owned(),
        db_size: convert::count(status.stored_bytes),
        leader: leader.map_or(0, |id| id.get()),
        raft_index: status.committed.get(),
        raft_term: status.leadership.term.get(),
        raft_applied_index: status.applied.get(),
        errors,
        db_size_in_use: convert::count(status.live_bytes),
        is_learner: status.is_learner,
        storage_version: ETCD_CLUSTER_VERSION.to_owned(),
        db_size_quota: status.quota_bytes.map_or(0, convert::count),
        downgrade_info: Some(pb::DowngradeInfo {
            enabled: status.version.is_downgrading,
            target_version: match status.version.is_downgrading {
                true => format!("{}.0", status.version.version),
                false => String::new(),
            },
        }),
    }
}

/// The hash folded to 32 bits, the width of the field on the wire.
fn fold(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_node::Leadership;
    use headwater_types::{Alarm, AlarmKind, ClusterVersion};

    fn standing(leader: Option<u64>) -> headwater_node::Status {
        headwater_node::Status {
            leadership: Leadership { leader: leader.map(Into::into), term: 3.into() },
            committed: 10.into(),
            applied: 9.into(),
            revision: 5.into(),
            compact_revision: 2.into(),
            history_from: 2.into(),
            log_from: 1.into(),
            epoch: None,
            stored_bytes: 1000,
            open_views: 0,
            live_bytes: 400,
            live_keys: 7,
            quota_bytes: Some(5000),
            version: ClusterVersion::FIRST,
            alarms: vec![],
            is_learner: true,
            serving: true,
            stands_still: None,
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
            db_size_quota: 5000,
            downgrade_info: Some(pb::DowngradeInfo::default()),
        };
        assert_eq!(encode_status(header, standing(Some(2))), wanted);
        let leaderless = encode_status(header, standing(None));
        assert_eq!((leaderless.leader, leaderless.errors), (0, vec!["etcdserver: no leader".to_owned()]));
        let alarms = vec![Alarm { member: 1234.into(), kind: AlarmKind::NoSpace }];
        let alarmed = encode_status(header, headwater_node::Status { alarms, quota_bytes: None, ..standing(Some(2)) });
        assert_eq!((alarmed.errors, alarmed.db_size_quota), (vec!["memberID:1234 alarm:NOSPACE ".to_owned()], 0));
    }

    #[test]
    fn targets_of_downgrades_are_versions() {
        let parse = |action, version: &str| downgrade_of(&pb::DowngradeRequest { action, version: version.into() });
        let v = |minor| Version::new(0, minor);
        assert!(matches!(parse(0, "0.3"), Ok(Downgrade::Validate(to)) if to == v(3)));
        assert!(matches!(parse(1, "0.3.0"), Ok(Downgrade::Enable(to)) if to == v(3)));
        assert!(matches!(parse(2, ""), Ok(Downgrade::Cancel)));
        for (action, version, code, text) in [
            (0, "9.5.0", 3, "etcdserver: invalid downgrade target version"),
            (1, "3.500", 3, "etcdserver: invalid downgrade target version"),
            (1, "three", 3, "etcdserver: wrong downgrade target version format"),
            (0, "", 3, "etcdserver: wrong downgrade target version format"),
            (0, "3", 3, "etcdserver: wrong downgrade target version format"),
            (0, "3.-5.0", 3, "etcdserver: wrong downgrade target version format"),
            (0, "3.5.0.1", 3, "etcdserver: wrong downgrade target version format"),
        ] {
            let status = Status::from(parse(action, version).unwrap_err());
            assert_eq!((status.code() as i32, status.message()), (code, text), "{action} {version:?}");
        }
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
