//! `headwater.v1.Members`: the state of every member in one answer, for people and for the console.
//!
//! Owns the shape of the answer. Requests that change the membership belong to etcd's service
//! `Cluster`.

use tonic::{Request, Response, Status};

use headwater_api_shared::ApiOptions;
use headwater_api_shared::context::{open, reply};
use headwater_api_shared::errors;
use headwater_node::{Leadership, MemberStatus, Node, NodeError};
use headwater_proto::pb::headwater_v1 as pb;
use headwater_proto::pb::headwater_v1::members_server::Members;
use headwater_types::NodeId;

/// Serves `headwater.v1.Members`.
pub(crate) struct MembersService {
    node: Node,
    options: ApiOptions,
}

impl MembersService {
    pub(crate) fn new(node: Node, options: ApiOptions) -> Self {
        Self { node, options }
    }
}

#[tonic::async_trait]
impl Members for MembersService {
    async fn get_status(
        &self,
        request: Request<pb::GetMembersStatusRequest>,
    ) -> Result<Response<pb::GetMembersStatusResponse>, Status> {
        let (ctx, pb::GetMembersStatusRequest {}) = open(request, self.options.request_timeout)?;
        let statuses = self.node.members().statuses(&ctx).await.map_err(status)?;
        let own = self.node.status().map_err(status)?;
        let known = statuses.value.iter().filter_map(|member| member.figures.as_ref().ok());
        let committed = known.map(|figures| figures.committed).fold(own.committed, Ord::max);
        let Leadership { leader, term } = own.leadership;
        let answer = pb::GetMembersStatusResponse {
            answering: self.node.identity().node_id.get(),
            leader: leader.map_or(0, NodeId::get),
            term: term.get(),
            committed: committed.get(),
            revision: own.revision.get(),
            keys: own.live_keys,
            live_bytes: own.live_bytes,
            quota_bytes: own.quota_bytes.unwrap_or(0),
            cluster_version: own.version.version.to_string(),
            downgrading: own.version.is_downgrading,
            members: statuses.value.into_iter().map(member_status).collect(),
        };
        Ok(reply(statuses.index, answer))
    }
}

fn member_status(status: MemberStatus) -> pb::MemberStatus {
    let MemberStatus { member, program, figures, round_trip } = status;
    let (figures, problem) = match figures {
        Ok(figures) => (figures, ""),
        Err(problem) => (headwater_node::MemberFigures::default(), problem),
    };
    pb::MemberStatus {
        id: member.id.get(),
        name: member.name,
        client_urls: member.client_urls,
        is_learner: member.is_learner,
        program,
        problem: problem.to_owned(),
        term: figures.term.get(),
        applied: figures.applied.get(),
        stored_bytes: figures.stored_bytes,
        serving: figures.serving,
        round_trip_us: u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX),
    }
}

fn status(error: NodeError) -> Status {
    Status::new(errors::code(error.kind()), error.to_string())
}
