//! `v3lockpb.Lock` (spec: etcd §4.4).

use std::time::Instant;

use tonic::{Request, Response, Status};

use super::errors::{Contest, Failure};
use super::{header, validate};
use headwater_api_shared::ApiOptions;
use headwater_api_shared::context::{client_deadline, open, reply, reply_with_token};
use headwater_node::{Contender, ContestError, Node, Owner, RequestContext};
use headwater_proto::pb::v3lockpb as pb;
use headwater_proto::pb::v3lockpb::lock_server::Lock;
use headwater_types::{Command, DeleteRange, KeyRange, LeaseId, LogIndex, Outcome};

/// Serves `v3lockpb.Lock`.
pub(crate) struct LockService {
    node: Node,
    options: ApiOptions,
}

impl LockService {
    pub(crate) fn new(node: Node, options: ApiOptions) -> Self {
        Self { node, options }
    }
}

/// The failure of a lock, in the words of etcd's mutex.
fn failed(error: ContestError) -> Failure {
    match error {
        ContestError::PositionLost | ContestError::NotOwner => Contest::SessionExpired.into(),
        ContestError::OutOfTime => Contest::OutOfTime.into(),
        ContestError::Node(error) => error.into(),
    }
}

async fn lock(
    node: &Node,
    ctx: &RequestContext,
    request: pb::LockRequest,
    until: Option<Instant>,
) -> Result<Owner, Failure> {
    let contender = Contender { name: request.name, lease: LeaseId(request.lease), value: None };
    node.locks().contend(ctx, contender, until).await.map_err(failed)
}

async fn unlock(
    node: &Node,
    ctx: &RequestContext,
    request: pb::UnlockRequest,
) -> Result<(LogIndex, pb::UnlockResponse), Failure> {
    validate::key(&request.key)?;
    let remove = DeleteRange { range: KeyRange::One(request.key), prev_kv: false };
    let applied = node.propose(ctx, Command::DeleteRange(remove)).await?;
    let Outcome::DeleteRange(_) = applied.outcome else { return Err(Failure::Mismatch) };
    Ok((applied.index, pb::UnlockResponse { header: Some(header::full(node, applied.revision)) }))
}

#[tonic::async_trait]
impl Lock for LockService {
    async fn lock(&self, request: Request<pb::LockRequest>) -> Result<Response<pb::LockResponse>, Status> {
        let until = client_deadline(request.metadata().as_ref()).map_err(Failure::from)?;
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let owner = lock(&self.node, &ctx, request, until).await?;
        let header = Some(header::full(&self.node, owner.revision));
        Ok(reply_with_token(owner.index, owner.token, pb::LockResponse { header, key: owner.key }))
    }

    async fn unlock(&self, request: Request<pb::UnlockRequest>) -> Result<Response<pb::UnlockResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let (index, response) = unlock(&self.node, &ctx, request).await?;
        Ok(reply(index, response))
    }
}
