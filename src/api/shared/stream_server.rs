//! gRPC methods that answer with frames, so that an event is encoded once for all streams; the
//! generated servers would encode it for each.

use std::convert::Infallible;
use std::future::{self, Future};
use std::marker::PhantomData;
use std::sync::Arc;

use futures::stream;
use parking_lot::Mutex;
use prost::Message;
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic::server::Grpc;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstDecoder;
use tower::service_fn;

use super::context;
use super::frame_body::FrameBody;
use super::frames::Frames;
use super::grpc_request::{GrpcFuture, GrpcRequest};
use super::stream::{Driver, StreamEnd, StreamService};
use super::stream_metrics::WatchMetrics;
use crate::ApiOptions;
use headwater_node::{Node, RequestContext, Session};
use headwater_proto::pb::small_decoder;

/// Answers a call that has one request: `open` gets the request, and returns the stream of frames.
pub fn server_streaming<M, F, A>(options: ApiOptions, request: GrpcRequest, mut open: F) -> GrpcFuture
where
    M: Message + Default + 'static,
    F: FnMut(Request<M>) -> A + Send + 'static,
    A: Future<Output = Result<Response<Frames>, Status>> + Send + 'static,
{
    Box::pin(async move {
        let kept = KeptFrames::default();
        let open = service_fn(|request| {
            let answer = open(request);
            async { Ok(kept.keep(answer.await?)) }
        });
        let answer = grpc::<M>(&options).server_streaming(open, request).await;
        Ok(kept.into_body_of(answer))
    })
}

fn grpc<M: Message + Default + 'static>(options: &ApiOptions) -> Grpc<RequestCodec<M>> {
    Grpc::new(RequestCodec::default()).max_decoding_message_size(options.message_bytes_max())
}

/// Messages that tonic is given in place of the frames: none.
type NoMessages = stream::Empty<Result<Infallible, Status>>;

/// The frames of an answer, while tonic makes the rest of it.
#[derive(Default)]
struct KeptFrames(Mutex<Option<Frames>>);

impl KeptFrames {
    /// Keeps the frames of `answer`, and returns the rest.
    fn keep(&self, answer: Response<Frames>) -> Response<NoMessages> {
        let (metadata, frames, extensions) = answer.into_parts();
        *self.0.lock() = Some(frames);
        Response::from_parts(metadata, stream::empty(), extensions)
    }

    /// Makes the frames the body of `answer`. A refusal has none, and stays as it is.
    fn into_body_of(self, answer: http::Response<Body>) -> http::Response<Body> {
        match self.0.into_inner() {
            Some(frames) => answer.map(|_no_messages| Body::new(FrameBody::new(frames))),
            None => answer,
        }
    }
}

/// tonic's codec of a method that answers with frames: decodes requests as protobuf.
struct RequestCodec<M>(PhantomData<M>);

impl<M> Default for RequestCodec<M> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<M: Message + Default + Send + 'static> Codec for RequestCodec<M> {
    type Encode = Infallible;
    type Decode = M;
    type Encoder = NoEncoder;
    type Decoder = ProstDecoder<M>;

    fn encoder(&mut self) -> NoEncoder {
        NoEncoder
    }

    fn decoder(&mut self) -> ProstDecoder<M> {
        small_decoder()
    }
}

/// Encodes [`NoMessages`].
struct NoEncoder;

impl Encoder for NoEncoder {
    type Item = Infallible;
    type Error = Status;

    fn encode(&mut self, message: Infallible, _: &mut EncodeBuf<'_>) -> Result<(), Status> {
        match message {}
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(0, 0)
    }
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
            let kept = KeptFrames::default();
            let open = service_fn(|request| future::ready(server.open(request).map(|answer| kept.keep(answer))));
            let answer = grpc::<S::Request>(&server.options).streaming(open, request).await;
            Ok(kept.into_body_of(answer))
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
