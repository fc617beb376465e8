//! The method: decode, check, call the node, begin a stream. Routed by hand, because the generated
//! server would encode every change for every stream.

use std::sync::Arc;
use std::time::Instant;

use tonic::{Request, Response};

use super::encode::ChangeEncoder;
use super::errors::Failure;
use super::marker;
use super::stream::{ChangeStream, spaces};
use headwater_api_shared::ApiOptions;
use headwater_api_shared::context::{self, reply};
use headwater_api_shared::frames::Frames;
use headwater_api_shared::grpc_request::{GrpcFuture, GrpcRequest};
use headwater_api_shared::stream::Driver;
use headwater_api_shared::stream_metrics::WatchMetrics;
use headwater_api_shared::stream_server::server_streaming;
use headwater_api_shared::target::Target;
use headwater_node::{EntityError, Node, Position, Session, WatchStart};
use headwater_proto::pb::pbwatcher as pb;

/// The marker of a client that wants later changes alone, without the state.
const NOW: &[u8] = b"now";

/// Serves `google.watcher.v1.Watcher`; cheap to clone.
#[derive(Clone)]
pub struct WatcherService {
    node: Node,
    options: ApiOptions,
    metrics: WatchMetrics,
}

impl WatcherService {
    /// The service of `node`. Streams are counted in `metrics`.
    pub fn new(node: Node, options: ApiOptions, metrics: WatchMetrics) -> Self {
        Self { node, options, metrics }
    }

    /// Answers one call of the only method, `Watch`; other paths must not be routed here.
    pub fn call(&self, request: GrpcRequest) -> GrpcFuture {
        let service = self.clone();
        server_streaming(self.options, request, move |request| {
            let service = service.clone();
            async move { Ok(service.watch(request).await?) }
        })
    }

    async fn watch(self, request: Request<pb::Request>) -> Result<Response<Frames>, Failure> {
        let deadline = context::client_deadline(request.metadata().as_ref())?;
        let (context, request) = context::open(request, self.options.request_timeout)?;
        let context = self.node.stream_context(&context).map_err(EntityError::from)?;
        let target = Target::read(&request.target)?;
        let hash = target.hash();
        let start = match &request.resume_marker[..] {
            [] => WatchStart::STATE,
            NOW => WatchStart::Now,
            marker => WatchStart::After(marker::read(hash, marker)?),
        };
        let encoder = Arc::new(ChangeEncoder { target: hash, datacenter: self.node.datacenter().to_owned() });
        let session = Session::new();
        let begun = async {
            let Some(entity) = target.entity.clone() else {
                self.node.check_linearizable(&context).await.map_err(EntityError::from)?;
                return Ok(None);
            };
            self.node.follow().entity(&context, entity, start, encoder.clone(), &session).await.map(Some)
        };
        let watch = begun.await.map_err(|error| match error {
            // A timeout after the client's deadline is the client's, not the server's.
            EntityError::Node(headwater_node::NodeError::Timeout)
                if deadline.is_some_and(|at| at <= Instant::now()) =>
            {
                Failure::Expired
            }
            error => Failure::Entity(error),
        })?;
        // A client past its deadline gets no result.
        if deadline.is_some_and(|at| at <= Instant::now()) {
            return Err(Failure::Expired);
        }
        let index = *self.node.applied().borrow();
        let first = match &watch {
            Some(_) => Vec::new(),
            None => spaces(&*encoder, start, Position { epoch: self.node.epoch(), index }),
        };
        let stream = ChangeStream::new(watch, first, target.batch_bytes, context);
        let driver = Driver::new(&self.node, &self.metrics, session, stream)
            .until(deadline)
            .requires_leader(self.options.leader_loss_timeout);
        Ok(reply(index, driver.into_frames()))
    }
}
