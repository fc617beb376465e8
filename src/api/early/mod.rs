//! The first draft of the etcd v3 API, the services `etcd` and `watch` without a package (spec:
//! etcd §7).
//!
//! Served from the same store as `etcdserverpb`, with the same limits, validation and error texts:
//! this crate imports `errors` and `validate` of `headwater-api-etcd`, which knows nothing of it.
//! Owns the differences: refusals of the store go into the header (`errors`), puts keep the lease
//! of their key, leases are attached apart from puts, a revision of at most 0 is the current state
//! also inside a transaction, and an undecodable message is an invalid argument.

mod convert;
mod errors;
mod lease;
mod merge;
mod watch;

use futures::stream::{BoxStream, StreamExt};
use tonic::body::Body;
use tonic::{Code, Request, Response, Status, Streaming};
use tower::Service;

use headwater_api_etcd::errors::{Failure, Invalid};
use headwater_api_shared::ApiOptions;
use headwater_api_shared::context::{open, reply};
use headwater_api_shared::grpc_metrics::grpc_code;
use headwater_api_shared::grpc_request::{GrpcFuture, GrpcRequest};
use headwater_api_shared::keep_alive;
use headwater_api_shared::stream_metrics::WatchMetrics;
use headwater_node::{Consistency, Node, RequestContext, validate_txn};
use headwater_proto::pb::early as pb;
use headwater_proto::pb::early::etcd_server::{Etcd, EtcdServer};
use headwater_types::{Applied, Command, Compact, LeaseId, LogIndex, Outcome, Revision};

use errors::undecodable;
use watch::EarlyWatchService;

/// The services of the draft, one method each. The last part of a request's path names the method
/// of the service; an unknown one is `UNIMPLEMENTED`.
pub struct Early {
    etcd: EtcdServer<EarlyService>,
    watch: EarlyWatchService,
}

impl Early {
    /// The services of `node`. Watch streams are counted in `streams`.
    pub fn new(node: &Node, options: ApiOptions, streams: WatchMetrics) -> Self {
        let etcd = EtcdServer::new(EarlyService { node: node.clone(), options });
        Self {
            etcd: etcd.max_decoding_message_size(options.message_bytes_max()),
            watch: EarlyWatchService::new(node.clone(), options, streams),
        }
    }

    /// Answers a call of `etcd`.
    pub fn etcd(&self, request: GrpcRequest) -> GrpcFuture {
        let call = self.etcd.clone().call(request);
        Box::pin(async move { call.await.map(answer_undecodable) })
    }

    /// Answers a call of `watch`.
    pub fn watch(&self, request: GrpcRequest) -> GrpcFuture {
        self.watch.call(request)
    }
}

/// Replaces the status `INTERNAL` for a message that cannot be decoded by `INVALID_ARGUMENT`. The
/// modern API keeps `INTERNAL`, as the Go implementation does.
fn answer_undecodable(response: http::Response<Body>) -> http::Response<Body> {
    if grpc_code(response.headers()) != Some(Code::Internal) {
        return response;
    }
    match Status::from_header_map(response.headers()) {
        Some(status) => undecodable(status).into_http(),
        None => response,
    }
}

/// Serves the early `etcd`.
struct EarlyService {
    node: Node,
    options: ApiOptions,
}

impl EarlyService {
    fn header(&self, revision: Revision) -> pb::ResponseHeader {
        header(&self.node, revision)
    }

    /// The answer to a unary call. A refusal of the store is an answer with `header.error` (see
    /// `errors`); any other failure is a status.
    fn answer<T: errors::HasErrorHeader>(&self, result: Result<(LogIndex, T), Failure>) -> Result<Response<T>, Status> {
        let failure = match result {
            Ok((index, response)) => return Ok(reply(index, response)),
            Err(failure) => failure,
        };
        let Some(error) = errors::in_header(&failure) else { return Err(failure.into()) };
        let status = self.node.status().map_err(Failure::Node)?;
        let header = pb::ResponseHeader { error: error.to_owned(), ..self.header(status.revision) };
        Ok(reply(status.applied, T::refused(header)))
    }

    async fn run_range(
        &self,
        ctx: &RequestContext,
        request: pb::RangeRequest,
    ) -> Result<(LogIndex, pb::RangeResponse), Failure> {
        let query = convert::range(request)?;
        let read = self.node.keys().range(ctx, Consistency::Linearizable, query).await?;
        Ok((read.index, convert::ranged(self.header(read.revision), read.value)))
    }

    async fn run_put(
        &self,
        ctx: &RequestContext,
        request: pb::PutRequest,
    ) -> Result<(LogIndex, pb::PutResponse), Failure> {
        let Applied { index, revision, outcome } = self.node.propose(ctx, Command::Put(convert::put(request)?)).await?;
        let Outcome::Put(_) = outcome else { return Err(Failure::Mismatch) };
        Ok((index, pb::PutResponse { header: Some(self.header(revision)) }))
    }

    async fn run_delete_range(
        &self,
        ctx: &RequestContext,
        request: pb::DeleteRangeRequest,
    ) -> Result<(LogIndex, pb::DeleteRangeResponse), Failure> {
        let Applied { index, revision, outcome } =
            self.node.propose(ctx, Command::DeleteRange(convert::delete_range(request)?)).await?;
        let Outcome::DeleteRange(_) = outcome else { return Err(Failure::Mismatch) };
        Ok((index, pb::DeleteRangeResponse { header: Some(self.header(revision)) }))
    }

    async fn run_txn(
        &self,
        ctx: &RequestContext,
        request: pb::TxnRequest,
    ) -> Result<(LogIndex, pb::TxnResponse), Failure> {
        let txn = convert::txn(request, self.options.max_txn_ops)?;
        validate_txn(&txn, self.options.max_txn_ops).map_err(Invalid::from)?;
        let (index, revision, done) = if txn.is_read_only() {
            let read = self.node.keys().read_txn(ctx, Consistency::Linearizable, txn).await?;
            (read.index, read.revision, read.value)
        } else {
            let applied = self.node.propose(ctx, Command::Txn(txn)).await?;
            let Outcome::Txn(done) = applied.outcome else { return Err(Failure::Mismatch) };
            (applied.index, applied.revision, done)
        };
        Ok((index, convert::txn_done(self.header(revision), done)?))
    }

    async fn run_compact(
        &self,
        ctx: &RequestContext,
        request: pb::CompactionRequest,
    ) -> Result<(LogIndex, pb::CompactionResponse), Failure> {
        let command = Command::Compact(Compact { revision: Revision(request.revision) });
        let Applied { index, revision, outcome } = self.node.propose(ctx, command).await?;
        let Outcome::Compacted = outcome else { return Err(Failure::Mismatch) };
        Ok((index, pb::CompactionResponse { header: Some(self.header(revision)) }))
    }
}

fn header(node: &Node, revision: Revision) -> pb::ResponseHeader {
    let identity = node.identity();
    pb::ResponseHeader {
        error: String::new(),
        cluster_id: identity.cluster_id.get(),
        member_id: identity.node_id.get(),
        revision: revision.get(),
        raft_term: node.leadership().term.get(),
    }
}

#[tonic::async_trait]
impl Etcd for EarlyService {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        self.answer(self.run_range(&ctx, request).await)
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        self.answer(self.run_put(&ctx, request).await)
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        self.answer(self.run_delete_range(&ctx, request).await)
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        self.answer(self.run_txn(&ctx, request).await)
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        self.answer(self.run_compact(&ctx, request).await)
    }

    async fn lease_create(
        &self,
        request: Request<pb::LeaseCreateRequest>,
    ) -> Result<Response<pb::LeaseCreateResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        self.answer(lease::create(self, &ctx, request).await)
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        self.answer(lease::revoke(self, &ctx, request).await)
    }

    async fn lease_attach(
        &self,
        request: Request<pb::LeaseAttachRequest>,
    ) -> Result<Response<pb::LeaseAttachResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        self.answer(lease::attach(self, &ctx, request).await)
    }

    async fn lease_txn(&self, request: Request<pb::LeaseTxnRequest>) -> Result<Response<pb::LeaseTxnResponse>, Status> {
        let (ctx, request) = open(request, self.options.request_timeout)?;
        self.answer(lease::txn(self, &ctx, request).await)
    }

    type LeaseKeepAliveStream = BoxStream<'static, Result<pb::LeaseKeepAliveResponse, Status>>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let (ctx, requests) = open(request, self.options.request_timeout)?;
        let index = self.node.follow().published().index;
        let id = |request: &pb::LeaseKeepAliveRequest| LeaseId(request.lease_id);
        let answers = keep_alive::answers(self.node.clone(), self.options, ctx, requests, id, lease::kept_alive);
        Ok(reply(index, answers.map(|answer| answer.map_err(undecodable)).boxed()))
    }
}
