//! `etcdserverpb.Watch` (spec: etcd §2): any number of watchers on one stream.
//!
//! [`stream`] is one client's stream, [`watcher`] one watcher on it. What a stream sends is pulled from the feed when the
//! client takes it: a client that stops reading costs a place in a list, and one response that is ready.

mod encode;
mod stream;
mod watcher;

use std::convert::Infallible;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status, Streaming};

use super::super::ApiOptions;
use super::super::context;
use super::super::frames::{Frame, FrameCodec};
use super::super::watch_metrics::WatchMetrics;
use super::errors::Failure;
use crate::node::{Node, NodeError};
use crate::pb::etcdserverpb as pb;
use crate::types::limits::CLIENT_MESSAGE_BYTES_MAX;

/// Serves `etcdserverpb.Watch`. Not the generated server, because that one encodes every event for every stream.
pub(crate) struct WatchService {
    method: Watch,
}

impl WatchService {
    pub(crate) fn new(node: Node, options: ApiOptions, metrics: WatchMetrics) -> Self {
        Self { method: Watch { node, options, metrics } }
    }

    pub(crate) fn call<B>(
        &self,
        request: http::Request<B>,
    ) -> BoxFuture<'static, Result<http::Response<Body>, Infallible>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<StdError> + Send + 'static,
    {
        let method = self.method.clone();
        Box::pin(async move {
            let codec = FrameCodec::<pb::WatchRequest>::default();
            let mut grpc = Grpc::new(codec).max_decoding_message_size(CLIENT_MESSAGE_BYTES_MAX);
            Ok(grpc.streaming(method, request).await)
        })
    }
}

#[derive(Clone)]
struct Watch {
    node: Node,
    options: ApiOptions,
    metrics: WatchMetrics,
}

impl StreamingService<pb::WatchRequest> for Watch {
    type Response = Frame;
    type ResponseStream = BoxStream<'static, Result<Frame, Status>>;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<pb::WatchRequest>>) -> Self::Future {
        std::future::ready(self.open(request).map_err(Status::from))
    }
}

impl Watch {
    fn open(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<BoxStream<'static, Result<Frame, Status>>>, Failure> {
        let (context, requests) = context::open(request, self.options.request_timeout)?;
        if context.require_leader && self.node.live_leader().is_none() {
            return Err(NodeError::NoLeader.into());
        }
        let index = self.node.watch_point().index;
        let stream = stream::WatchStream::new(self.node.clone(), self.options, self.metrics.clone(), context, requests);
        Ok(context::reply(index, stream.into_frames()))
    }
}
