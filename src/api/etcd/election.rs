//! `v3electionpb.Election` (spec: etcd §4.4).

use futures::stream::{BoxStream, StreamExt};
use tonic::{Request, Response, Status};

use super::errors::{Contest, Failure};
use super::{header, validate};
use headwater_api_shared::ApiOptions;
use headwater_api_shared::context::{client_deadline, open, reply, reply_with_token};
use headwater_api_shared::key_value::key_value;
use headwater_node::{Claim, Contender, ContestError, Node, RequestContext};
use headwater_proto::pb::v3electionpb as pb;
use headwater_proto::pb::v3electionpb::election_server::Election;
use headwater_types::{LeaseId, LogIndex, Revision};

/// Serves `v3electionpb.Election`.
pub(crate) struct ElectionService {
    node: Node,
    options: ApiOptions,
}

impl ElectionService {
    pub(crate) fn new(node: Node, options: ApiOptions) -> Self {
        Self { node, options }
    }
}

/// The failure of a campaign or a proclamation, in the words of etcd's election.
fn failed(error: ContestError) -> Failure {
    match error {
        ContestError::PositionLost | ContestError::NotOwner => Contest::NotLeader.into(),
        ContestError::OutOfTime => Contest::OutOfTime.into(),
        ContestError::Node(error) => error.into(),
    }
}

fn claim(leader: Option<pb::LeaderKey>) -> Result<Claim, Failure> {
    let leader = leader.ok_or(Contest::LeaderMissing)?;
    validate::key(&leader.key)?;
    Ok(Claim { key: leader.key, token: Revision(leader.rev), lease: LeaseId(leader.lease) })
}

async fn proclaim(
    node: &Node,
    ctx: &RequestContext,
    request: pb::ProclaimRequest,
) -> Result<(LogIndex, pb::ProclaimResponse), Failure> {
    let claim = claim(request.leader)?;
    let (index, revision) = node.locks().proclaim(ctx, &claim, request.value).await.map_err(failed)?;
    Ok((index, pb::ProclaimResponse { header: Some(header::full(node, revision)) }))
}

async fn leader(
    node: &Node,
    ctx: &RequestContext,
    request: pb::LeaderRequest,
) -> Result<(LogIndex, pb::LeaderResponse), Failure> {
    let read = node.locks().owner(ctx, &request.name).await?;
    let kv = read.value.ok_or(Contest::NoLeader)?;
    let header = Some(header::full(node, read.revision));
    Ok((read.index, pb::LeaderResponse { header, kv: Some(key_value(kv)) }))
}

async fn resign(
    node: &Node,
    ctx: &RequestContext,
    request: pb::ResignRequest,
) -> Result<(LogIndex, pb::ResignResponse), Failure> {
    let (index, revision) = node.locks().resign(ctx, &claim(request.leader)?).await?;
    Ok((index, pb::ResignResponse { header: Some(header::full(node, revision)) }))
}

#[tonic::async_trait]
impl Election for ElectionService {
    async fn campaign(&self, request: Request<pb::CampaignRequest>) -> Result<Response<pb::CampaignResponse>, Status> {
        let until = client_deadline(request.metadata().as_ref()).map_err(Failure::from)?;
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let pb::CampaignRequest { name, lease, value } = request;
        let contender = Contender { name: name.clone(), lease: LeaseId(lease), value: Some(value) };
        let owner = self.node.locks().contend(&ctx, contender, until).await.map_err(failed)?;
        let header = Some(header::full(&self.node, owner.revision));
        let leader = pb::LeaderKey { name, key: owner.key, rev: owner.token.get(), lease: owner.lease.get() };
        Ok(reply_with_token(owner.index, owner.token, pb::CampaignResponse { header, leader: Some(leader) }))
    }

    async fn proclaim(&self, request: Request<pb::ProclaimRequest>) -> Result<Response<pb::ProclaimResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let (index, response) = proclaim(&self.node, &ctx, request).await?;
        Ok(reply(index, response))
    }

    async fn leader(&self, request: Request<pb::LeaderRequest>) -> Result<Response<pb::LeaderResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let (index, response) = leader(&self.node, &ctx, request).await?;
        Ok(reply(index, response))
    }

    type ObserveStream = BoxStream<'static, Result<pb::LeaderResponse, Status>>;

    async fn observe(&self, request: Request<pb::LeaderRequest>) -> Result<Response<Self::ObserveStream>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let index = self.node.follow().published().index;
        let observed = self.node.locks().observe(&ctx, &request.name).await.map_err(Failure::Node)?;
        let node = self.node.clone();
        let responses = observed.map(move |observed| {
            let observed = observed.map_err(Failure::Node)?;
            let header = Some(header::full(&node, observed.revision));
            Ok(pb::LeaderResponse { header, kv: Some(key_value(observed.value)) })
        });
        Ok(reply(index, responses.boxed()))
    }

    async fn resign(&self, request: Request<pb::ResignRequest>) -> Result<Response<pb::ResignResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let (index, response) = resign(&self.node, &ctx, request).await?;
        Ok(reply(index, response))
    }
}
