//! `etcdserverpb.Cluster` (spec: etcd §4.1). Membership can be read; changing it is not served.

use tonic::{Request, Response, Status};

use super::super::ApiOptions;
use super::super::context::{open, reply};
use super::errors::Failure;
use super::header;
use crate::node::{Consistency, Member, Node};
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::cluster_server::Cluster;

/// Serves `etcdserverpb.Cluster`.
pub(crate) struct ClusterService {
    node: Node,
    options: ApiOptions,
}

impl ClusterService {
    pub(crate) fn new(node: Node, options: ApiOptions) -> Self {
        Self { node, options }
    }
}

const UNSERVED: Failure =
    Failure::Unserved("headwater: membership cannot be changed yet; the members are those of the configuration");

#[tonic::async_trait]
impl Cluster for ClusterService {
    async fn member_list(
        &self,
        request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let consistency = if request.linearizable { Consistency::Linearizable } else { Consistency::Serializable };
        let read = self.node.members(&ctx, consistency).await.map_err(Failure::Node)?;
        let members = read.value.into_iter().map(member).collect();
        let header = Some(header::without_revision(&self.node));
        Ok(reply(read.index, pb::MemberListResponse { header, members }))
    }

    async fn member_add(&self, _: Request<pb::MemberAddRequest>) -> Result<Response<pb::MemberAddResponse>, Status> {
        Err(UNSERVED.into())
    }

    async fn member_remove(
        &self,
        _: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        Err(UNSERVED.into())
    }

    async fn member_update(
        &self,
        _: Request<pb::MemberUpdateRequest>,
    ) -> Result<Response<pb::MemberUpdateResponse>, Status> {
        Err(UNSERVED.into())
    }

    async fn member_promote(
        &self,
        _: Request<pb::MemberPromoteRequest>,
    ) -> Result<Response<pb::MemberPromoteResponse>, Status> {
        Err(UNSERVED.into())
    }
}

fn member(member: Member) -> pb::Member {
    pb::Member {
        id: member.id.get(),
        name: member.name,
        peer_ur_ls: member.peer_urls,
        client_ur_ls: member.client_urls,
        is_learner: member.is_learner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_a_member_arrives() {
        let node = Member {
            id: 3.into(),
            name: "n3".into(),
            peer_urls: vec!["http://p".into()],
            client_urls: vec!["http://c".into()],
            is_learner: true,
        };
        let wire = member(node);
        assert_eq!((wire.id, wire.name.as_str(), wire.is_learner), (3, "n3", true));
        assert_eq!((wire.peer_ur_ls, wire.client_ur_ls), (vec!["http://p".into()], vec!["http://c".into()]));
    }
}
