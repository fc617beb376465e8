//! gRPC methods that answer with frames, so that an event is encoded once for all streams; the
//! generated servers would encode it for each.

use std::convert::Infallible;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use prost::Message;
use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tower::service_fn;

use super::context;
use super::frames::{Frame, FrameCodec};
use super::stream::{Driver, Frames, StreamEnd, StreamService};
use super::stream_metrics::WatchMetrics;
use crate::ApiOptions;
use headwater_node::{Node, RequestContext, Session};

/// Answers a call with one request and a stream of frames, which `open` begins.
pub(crate) fn server_streaming<B, M, F, A>(
    options: ApiOptions,
    request: http::Request<B>,
    open: F,
) -> BoxFuture<'static, Result<http::Response<Body>, Infallible>>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
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

/// A stream to which the client adds watches by further requests.
pub(crate) trait WatchStream: StreamService {
    /// A stream without watches. Subscriptions report to `session`.
    fn new(node: Node, options: ApiOptions, context: RequestContext, session: Arc<Session>) -> Self;
}

/// Serves the watch method of a face.
pub(crate) struct WatchServer<S> {
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
    pub(crate) fn new(node: Node, options: ApiOptions, metrics: WatchMetrics) -> Self {
        Self { node, options, metrics, stream: PhantomData }
    }

    /// Answers one call.
    pub(crate) fn call<B>(
        &self,
        request: http::Request<B>,
    ) -> BoxFuture<'static, Result<http::Response<Body>, Infallible>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<StdError> + Send + 'static,
    {
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
        let context = self.node.settle(&context).unwrap_or(context);
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
