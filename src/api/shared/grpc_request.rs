//! The request and the answer of a gRPC call, in one type each for all services.
//!
//! A service that is generic over the body of its requests is compiled once for each body, and in
//! the crate that chooses the body. With one type, a face is compiled once, in its own crate.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tonic::body::Body;
use tonic::codegen::StdError;

use super::grpc_messages::CountedRequest;
use super::timed_body::TimedBody;

/// A request of a gRPC method. The messages of its body are counted; the body must arrive within
/// the request timeout, unless the method takes a stream of requests.
pub type GrpcRequest = http::Request<CountedRequest<TimedBody<ClientBody>>>;

/// The answer to a [`GrpcRequest`]. Errors are statuses in it.
pub type GrpcFuture = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

/// The bytes of a request as they arrive.
pub enum ClientBody {
    /// From a connection of HTTP/1 or HTTP/2.
    Connection(Incoming),
    /// From an API of this process that calls a gRPC method: the gateway, REST, the watcher's path.
    Process(Body),
}

impl http_body::Body for ClientBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        match self.get_mut() {
            Self::Connection(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Process(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Connection(body) => body.is_end_stream(),
            Self::Process(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Connection(body) => body.size_hint(),
            Self::Process(body) => body.size_hint(),
        }
    }
}
