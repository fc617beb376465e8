//! `headwater.v1.Versions`: the cluster's version and the programs of its members, for people and
//! for tools of upgrades.
//!
//! Owns the shape of the answer. Changes nothing: the version rises by itself, and a downgrade is
//! etcd's `Maintenance.Downgrade`. For a member that has not announced its program, `program`,
//! `lowest` and `highest` are empty.

use tonic::{Request, Response, Status};

use headwater_api_shared::ApiOptions;
use headwater_api_shared::context::{open, reply};
use headwater_api_shared::errors;
use headwater_node::{Consistency, Node, NodeError};
use headwater_proto::pb::headwater_v1 as pb;
use headwater_proto::pb::headwater_v1::versions_server::Versions;

/// Serves `headwater.v1.Versions`.
pub(crate) struct VersionsService {
    node: Node,
    options: ApiOptions,
}

impl VersionsService {
    pub(crate) fn new(node: Node, options: ApiOptions) -> Self {
        Self { node, options }
    }
}

#[tonic::async_trait]
impl Versions for VersionsService {
    async fn get_versions(
        &self,
        request: Request<pb::GetVersionsRequest>,
    ) -> Result<Response<pb::GetVersionsResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let consistency = if request.linearizable { Consistency::Linearizable } else { Consistency::Serializable };
        let versions = self.node.versions().read(&ctx, consistency).await.map_err(status)?;
        let members = self.node.members().list(&ctx, Consistency::Serializable).await.map_err(status)?;
        let member = |member: headwater_node::Member| {
            let program = versions.programs.get(&member.id);
            let text = |version: Option<headwater_types::Version>| {
                version.map(|version| version.to_string()).unwrap_or_default()
            };
            pb::MemberVersion {
                id: member.id.get(),
                name: member.name,
                program: program.map(|program| program.program.clone()).unwrap_or_default(),
                lowest: text(program.map(|program| program.supported.lowest)),
                highest: text(program.map(|program| program.supported.highest)),
            }
        };
        let answer = pb::GetVersionsResponse {
            cluster_version: versions.cluster.version.to_string(),
            downgrading: versions.cluster.is_downgrading,
            program: self.node.versions().own().program,
            members: members.value.into_iter().map(member).collect(),
        };
        Ok(reply(members.index, answer))
    }
}

fn status(error: NodeError) -> Status {
    Status::new(errors::code(error.kind()), error.to_string())
}
