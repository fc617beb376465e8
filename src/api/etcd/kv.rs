//! `etcdserverpb.KV`: hands each call to its command.

use futures::stream::BoxStream;
use tonic::{Request, Response, Status};

use super::{compact, delete_range, put, range, range_stream, txn};
use headwater_api_shared::ApiOptions;
use headwater_api_shared::context::{self, open, reply};
use headwater_node::Node;
use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::kv_server::Kv;

/// Serves `etcdserverpb.KV`.
pub(crate) struct KvService {
    node: Node,
    options: ApiOptions,
}

impl KvService {
    pub(crate) fn new(node: Node, options: ApiOptions) -> Self {
        Self { node, options }
    }
}

#[tonic::async_trait]
impl Kv for KvService {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let (index, response) = range::run(&self.node, &ctx, request).await?;
        Ok(reply(index, response))
    }

    type RangeStreamStream = BoxStream<'static, Result<pb::RangeStreamResponse, Status>>;

    async fn range_stream(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let (index, responses) = range_stream::run(&self.node, &ctx, request).await?;
        Ok(reply(index, responses))
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let (index, response) = put::run(&self.node, &ctx, request).await?;
        Ok(reply(index, response))
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let (index, response) = delete_range::run(&self.node, &ctx, request).await?;
        Ok(reply(index, response))
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let (index, response) = txn::run(&self.node, &ctx, request, self.options.max_txn_ops).await?;
        Ok(reply(index, response))
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        let reclaim = context::read(request.metadata().as_ref(), request.extensions(), compact::RECLAIM_WAIT_MAX)?;
        let (ctx, request) = open(request, self.options.request_timeout)?;
        let (index, response) = compact::run(&self.node, &ctx, &reclaim, request).await?;
        Ok(reply(index, response))
    }
}
