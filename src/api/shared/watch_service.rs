//! Shared parts of the watch services of all faces: their requests are decoded as usual, their
//! answers are [`Frame`]s, so that an event is encoded once for all streams. The generated servers
//! would encode it for every stream.

use std::convert::Infallible;
use std::marker::PhantomData;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use prost::Message;
use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status, Streaming};

use super::context;
use super::etcd_texts::node_status;
use super::frames::{Frame, FrameCodec};
use super::stream_metrics::WatchMetrics;
use crate::ApiOptions;
use headwater_node::{Node, NodeError, RequestContext};

/// Messages of a stream.
pub(crate) type Frames = BoxStream<'static, Result<Frame, Status>>;

/// Parts of a stream.
#[derive(Clone)]
pub(crate) struct WatchParts {
    pub(crate) node: Node,
    pub(crate) options: ApiOptions,
    pub(crate) metrics: WatchMetrics,
}

/// The watch method of one face.
pub(crate) trait WatchFace: 'static {
    /// Message of its clients.
    type Request: Message + Default + 'static;

    /// Begins a stream.
    ///
    /// # Errors
    ///
    /// Refusal of the whole stream; the stream itself answers a wrong request.
    fn open(parts: WatchParts, context: RequestContext, requests: Streaming<Self::Request>) -> Result<Frames, Status>;
}

/// Serves the watch method of a face.
pub(crate) struct WatchServer<F> {
    parts: WatchParts,
    face: PhantomData<fn() -> F>,
}

impl<F> Clone for WatchServer<F> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone(), face: PhantomData }
    }
}

impl<F: WatchFace> WatchServer<F> {
    pub(crate) fn new(node: Node, options: ApiOptions, metrics: WatchMetrics) -> Self {
        Self { parts: WatchParts { node, options, metrics }, face: PhantomData }
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
            let codec = FrameCodec::<F::Request>::default();
            let mut grpc = Grpc::new(codec).max_decoding_message_size(server.parts.options.message_bytes_max());
            Ok(grpc.streaming(server, request).await)
        })
    }

    fn open(&self, request: Request<Streaming<F::Request>>) -> Result<Response<Frames>, Status> {
        let (context, requests) = context::open(request, self.parts.options.request_timeout)?;
        if context.require_leader && self.parts.node.live_leader().is_none() {
            return Err(node_status(&NodeError::NoLeader));
        }
        let index = self.parts.node.watch_point().index;
        Ok(context::reply(index, F::open(self.parts.clone(), context, requests)?))
    }
}

impl<F: WatchFace> StreamingService<F::Request> for WatchServer<F> {
    type Response = Frame;
    type ResponseStream = Frames;
    type Future = std::future::Ready<Result<Response<Frames>, Status>>;

    fn call(&mut self, request: Request<Streaming<F::Request>>) -> Self::Future {
        std::future::ready(self.open(request))
    }
}
