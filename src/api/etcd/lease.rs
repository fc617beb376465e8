//! `etcdserverpb.Lease` (spec: etcd §3).

use futures::stream::BoxStream;
use tonic::{Request, Response, Status, Streaming};

use super::errors::{Failure, Invalid};
use super::header;
use headwater_api_shared::ApiOptions;
use headwater_api_shared::context::{open, reply};
use headwater_api_shared::keep_alive;
use headwater_node::{Consistency, LeaseTimeToLive, Node, Read, RequestContext};
use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::lease_server::Lease;
use headwater_types::{Command, LeaseId, LeaseRevoke, LogIndex, Outcome};

/// Serves `etcdserverpb.Lease`.
pub(crate) struct LeaseService {
    node: Node,
    options: ApiOptions,
}

impl LeaseService {
    pub(crate) fn new(node: Node, options: ApiOptions) -> Self {
        Self { node, options }
    }
}

async fn grant(
    node: &Node,
    ctx: &RequestContext,
    request: pb::LeaseGrantRequest,
) -> Result<(LogIndex, pb::LeaseGrantResponse), Failure> {
    if LeaseId(request.id).is_deadline() {
        return Err(Invalid::LeaseReserved.into());
    }
    let granted = node.leases().grant(ctx, LeaseId(request.id), request.ttl).await?;
    let header = Some(header::full(node, granted.revision));
    let response =
        pb::LeaseGrantResponse { header, id: granted.id.get(), ttl: granted.ttl_seconds, error: String::new() };
    Ok((granted.index, response))
}

async fn revoke(
    node: &Node,
    ctx: &RequestContext,
    request: pb::LeaseRevokeRequest,
) -> Result<(LogIndex, pb::LeaseRevokeResponse), Failure> {
    let command = Command::LeaseRevoke(LeaseRevoke { id: LeaseId(request.id) });
    let applied = node.propose(ctx, command).await?;
    let Outcome::LeaseEnded { .. } = applied.outcome else { return Err(Failure::Mismatch) };
    Ok((applied.index, pb::LeaseRevokeResponse { header: Some(header::full(node, applied.revision)) }))
}

fn kept_alive(node: &Node, id: LeaseId, read: Read<Option<i64>>) -> pb::LeaseKeepAliveResponse {
    let header = Some(header::full(node, read.revision));
    // A missing lease is answered with a TTL of 0, not with an error.
    pb::LeaseKeepAliveResponse { header, id: id.get(), ttl: read.value.unwrap_or(0) }
}

fn time_to_live_response(
    header: pb::ResponseHeader,
    id: i64,
    lease: Option<LeaseTimeToLive>,
) -> pb::LeaseTimeToLiveResponse {
    let header = Some(header);
    match lease {
        None => pb::LeaseTimeToLiveResponse { header, id, ttl: -1, granted_ttl: 0, keys: vec![] },
        Some(lease) => pb::LeaseTimeToLiveResponse {
            header,
            id,
            ttl: i64::try_from(lease.remaining.as_secs()).unwrap_or(i64::MAX),
            granted_ttl: lease.granted_seconds,
            keys: lease.keys,
        },
    }
}

#[tonic::async_trait]
impl Lease for LeaseService {
    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let (index, response) = grant(&self.node, &ctx, request).await?;
        Ok(reply(index, response))
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let (index, response) = revoke(&self.node, &ctx, request).await?;
        Ok(reply(index, response))
    }

    type LeaseKeepAliveStream = BoxStream<'static, Result<pb::LeaseKeepAliveResponse, Status>>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let (ctx, requests) = open(request, self.options.request_timeout)?;
        let index = self.node.follow().published().index;
        let id = |request: &pb::LeaseKeepAliveRequest| LeaseId(request.id);
        Ok(reply(index, keep_alive::answers(self.node.clone(), self.options, ctx, requests, id, kept_alive)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let read =
            self.node.leases().time_to_live(&ctx, LeaseId(request.id), request.keys).await.map_err(Failure::Node)?;
        Ok(reply(read.index, time_to_live_response(header::full(&self.node, read.revision), request.id, read.value)))
    }

    async fn lease_leases(
        &self,
        request: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        let (ctx, pb::LeaseLeasesRequest {}) = open(request, self.options.request_timeout)?;
        let read = self.node.leases().list(&ctx, Consistency::Linearizable).await.map_err(Failure::Node)?;
        let leases = read.value.into_iter().map(|id| pb::LeaseStatus { id: id.get() }).collect();
        let header = Some(header::full(&self.node, read.revision));
        Ok(reply(read.index, pb::LeaseLeasesResponse { header, leases }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_remains_is_told_in_whole_seconds() {
        let ask = |remaining_ms| {
            let lease = LeaseTimeToLive {
                granted_seconds: 60,
                remaining: Duration::from_millis(remaining_ms),
                keys: vec!["k".into()],
            };
            let response = time_to_live_response(pb::ResponseHeader::default(), 7, Some(lease));
            assert_eq!((response.id, response.granted_ttl, response.keys), (7, 60, vec!["k".into()]));
            response.ttl
        };
        assert_eq!([ask(59_999), ask(60_000), ask(999), ask(0)], [59, 60, 0, 0]);
    }

    #[test]
    fn an_unknown_lease_is_no_error() {
        let response = time_to_live_response(pb::ResponseHeader::default(), 7, None);
        assert_eq!((response.id, response.ttl, response.granted_ttl, response.keys.len()), (7, -1, 0, 0));
    }
}
