//! gRPC methods that answer with frames, so that an event is encoded once for all streams; the
//! generated servers would encode it for each.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use prost::Message;
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tower::service_fn;

use super::context;
use super::frames::{Frame, FrameCodec};
use super::grpc_request::{GrpcFuture, GrpcRequest};
use super::stream::{Driver, Frames, StreamEnd, StreamService};
use super::stream_metrics::WatchMetrics;
use crate::ApiOptions;
use headwater_node::{Node, RequestContext, Session};

/// Answers a call that has one request: `open` gets the request, and returns the stream of frames.
pub fn server_streaming<M, F, A>(options: ApiOptions, request: GrpcRequest, open: F) -> GrpcFuture
where
    M: Message + Default + 'static,
    F: FnMut(Request<M>) -> A + Send + 'static,
    A: Future<Output = Result<Response<Frames>, Status>> + Send + 'static,
{
    Box::pin(async move {
        let mut grpc = grpc::<M>(&options);
        Ok(grpc.server_streaming(service_fn(open), request).await)
    })
}

fn grpc<M: Message + Default + 'static>(options: &ApiOptions) -> Grpc<FrameCodec<M>> {
    Grpc::new(FrameCodec::default()).max_decoding_message_size(options.message_bytes_max())
}

/// A stream on which the client opens watches by its requests.
pub trait WatchStream: StreamService {
    /// A stream without watches. Its subscriptions report to `session`.
    fn new(node: Node, options: ApiOptions, context: RequestContext, session: Arc<Session>) -> Self;
}

/// Serves the watch method of a face; `S` is its stream.
pub struct WatchServer<S> {
    node: Node,
    options: ApiOptions,
    metrics: WatchMetrics,
    stream: PhantomData<fn() -> S>,
}

impl<S> Clone for WatchServer<S> {
    fn clone(&self) -> Self {
        Self { node: self.node.clone(), metrics: self.metrics.clone(), ..*self }
    }
}

impl<S> WatchServer<S>
where
    S: WatchStream,
    S::Request: Message + Default,
{
    /// Serves streams of `node`, counted in `metrics`.
    pub fn new(node: Node, options: ApiOptions, metrics: WatchMetrics) -> Self {
        Self { node, options, metrics, stream: PhantomData }
    }

    /// Answers one call.
    pub fn call(&self, request: GrpcRequest) -> GrpcFuture {
        let server = self.clone();
        Box::pin(async move {
            let mut grpc = grpc::<S::Request>(&server.options);
            Ok(grpc.streaming(server, request).await)
        })
    }

    fn open(&self, request: Request<Streaming<S::Request>>) -> Result<Response<Frames>, Status> {
        let (context, requests) = context::open(request, self.options.request_timeout)?;
        let requires_leader = context.require_leader;
        if requires_leader && self.node.live_leader().is_none() {
            return Err(S::status(StreamEnd::LeaderLost));
        }
        let index = self.node.follow().published().index;
        let session = Session::new();
        // Refused credentials are reported later, by the face, for each watch.
        let context = self.node.stream_context(&context).unwrap_or(context);
        let stream = S::new(self.node.clone(), self.options, context, Arc::clone(&session));
        let mut driver = Driver::new(&self.node, &self.metrics, session, stream).with_requests(requests);
        if requires_leader {
            driver = driver.requires_leader(self.options.leader_loss_timeout);
        }
        Ok(context::reply(index, driver.into_frames()))
    }
}

impl<S> StreamingService<S::Request> for WatchServer<S>
where
    S: WatchStream,
    S::Request: Message + Default,
{
    type Response = Frame;
    type ResponseStream = Frames;
    type Future = std::future::Ready<Result<Response<Frames>, Status>>;

    fn call(&mut self, request: Request<Streaming<S::Request>>) -> Self::Future {
        std::future::ready(self.open(request))
    }
}
