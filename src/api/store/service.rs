//! The methods: decode, check, call the node, encode. Routed by hand, because the generated server
//! takes a stream's messages, and could not send its encoded frames.

use std::sync::Arc;

use tonic::server::Grpc;
use tonic::{Request, Response, Status};
use tower::service_fn;

use super::errors::Failure;
use super::read::{ReadAnswer, ReadCodec};
use super::stream::HistoryStream;
use super::{commit, page_token, request};
use headwater_api_shared::ApiOptions;
use headwater_api_shared::context::{self, reply_with_epoch};
use headwater_api_shared::frames::Frames;
use headwater_api_shared::grpc_metrics::too_large_status;
use headwater_api_shared::grpc_request::{GrpcFuture, GrpcRequest};
use headwater_api_shared::stream::Driver;
use headwater_api_shared::stream_metrics::WatchMetrics;
use headwater_api_shared::stream_server::server_streaming;
use headwater_node::{Node, Session};
use headwater_proto::pb::SizedCodec;
use headwater_proto::pb::headwater_v1 as pb;

const HISTORY: &str = "/headwater.v1.Store/History";
const COMMIT: &str = "/headwater.v1.Store/Commit";

/// Serves `headwater.v1.Store`; cheap to clone.
#[derive(Clone)]
pub struct StoreService {
    node: Node,
    options: ApiOptions,
    metrics: WatchMetrics,
    datacenter: Arc<str>,
}

impl StoreService {
    /// The service of `node`. Streams are counted in `metrics`.
    pub fn new(node: Node, options: ApiOptions, metrics: WatchMetrics) -> Self {
        let datacenter = node.datacenter().into();
        Self { node, options, metrics, datacenter }
    }

    /// Answers one call of a method of the service.
    pub fn call(&self, request: GrpcRequest) -> GrpcFuture {
        let service = self.clone();
        if request.uri().path() == HISTORY {
            return server_streaming(self.options, request, move |request| {
                let service = service.clone();
                async move { Ok(service.history(request).await?) }
            });
        }
        Box::pin(async move {
            let bytes_max = service.options.message_bytes_max();
            if request.uri().path() == COMMIT {
                let codec = SizedCodec::<pb::CommitResponse, pb::CommitRequest>::default();
                let mut grpc = Grpc::new(codec).max_decoding_message_size(bytes_max);
                let commit = service_fn(move |request| {
                    let service = service.clone();
                    async move { commit::run(&service.node, service.options, request).await }
                });
                let response = grpc.unary(commit, request).await;
                return Ok(match too_large_status(response.headers()) {
                    Some(_) => commit::too_large().into_http(),
                    None => response,
                });
            }
            let mut grpc = Grpc::new(ReadCodec).max_decoding_message_size(bytes_max);
            let read = service_fn(move |request| {
                let service = service.clone();
                async move { service.read(request).await.map_err(Status::from) }
            });
            Ok(grpc.unary(read, request).await)
        })
    }

    async fn read(self, request: Request<pb::ReadRequest>) -> Result<Response<ReadAnswer>, Failure> {
        let (context, message) = context::open(request, self.options.request_timeout)?;
        let query = request::read(&message)?;
        let targets = query.targets.clone();
        let consistency = request::consistency(message.serializable);
        let read = self.node.store().read(&context, consistency, query).await?;
        let (index, epoch) = (read.index, read.epoch);
        let answer =
            ReadAnswer::new(read, self.datacenter.clone(), |page| page_token::write(request::hash(&targets), page));
        Ok(reply_with_epoch(epoch, index, answer))
    }

    async fn history(self, request: Request<pb::HistoryRequest>) -> Result<Response<Frames>, Failure> {
        let deadline = context::client_deadline(request.metadata().as_ref())?;
        let (context, message) = context::open(request, self.options.request_timeout)?;
        let context = self.node.stream_context(&context)?;
        let query = request::history(&message)?;
        let is_live = query.is_live;
        let reader = self.node.store().history(&context, query).await?;
        let index = *self.node.applied().borrow();
        let stream = HistoryStream { reader, context, datacenter: self.datacenter.clone() };
        let mut driver = Driver::new(&self.node, &self.metrics, Session::new(), stream).until(deadline);
        if is_live {
            driver = driver.requires_leader(self.options.leader_loss_timeout);
        }
        Ok(reply_with_epoch(self.node.epoch(), index, driver.into_frames()))
    }
}
