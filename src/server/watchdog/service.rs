//! The service of one connection: counts its open requests, refuses those over the bound, and wraps
//! the answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use pin_project_lite::pin_project;
use tonic::Status;
use tower::Service;

use super::{AnswerBody, Connection, OpenRequest};
use headwater_api::has_reserve;

/// The service of one connection. A request is refused if too many are open, or if the connection
/// is one of the reserve and the request may not use it.
#[derive(Clone, Debug)]
pub(crate) struct WatchedService<S> {
    service: S,
    connection: Arc<Connection>,
}

impl<S> WatchedService<S> {
    pub(crate) fn new(service: S, connection: Arc<Connection>) -> Self {
        Self { service, connection }
    }
}

impl<S, Q, B> Service<Request<Q>> for WatchedService<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
{
    type Response = Response<AnswerBody<B>>;
    type Error = S::Error;
    type Future = WatchedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let refused = |why| WatchedFuture { state: State::Refused { is_grpc: is_grpc(request.headers()), why } };
        let has_reserve = || has_reserve(request.uri().path());
        if self.connection.is_reserved && !has_reserve() {
            return refused(RefusalReason::NoConnection);
        }
        let Some(open) = OpenRequest::begin(&self.connection, has_reserve) else {
            return refused(RefusalReason::OpenRequests);
        };
        WatchedFuture { state: State::Open { answer: self.service.call(request), open: Some(open) } }
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Reason why a request is refused.
#[derive(Clone, Copy, Debug)]
enum RefusalReason {
    /// [`OPEN_REQUESTS_MAX`](headwater_types::limits::OPEN_REQUESTS_MAX) requests are open and, if
    /// the request may use the reserve, all of the reserve, too.
    OpenRequests,
    /// The connection is one of the reserve, and the request may not use it.
    NoConnection,
}

impl RefusalReason {
    fn status(self) -> Status {
        match self {
            Self::OpenRequests => Status::resource_exhausted(
                "headwater: too many requests are open on this member: end some, or ask another",
            ),
            // A code with which clients try another member.
            Self::NoConnection => Status::unavailable(
                "headwater: this member has a connection left for keep-alives and health alone: ask another, or close some",
            ),
        }
    }
}

/// The answer to a request that is refused: a gRPC status, or 503 over plain HTTP.
fn refusal<B>(is_grpc: bool, why: RefusalReason) -> Response<AnswerBody<B>> {
    if is_grpc {
        return why.status().into_http::<()>().map(|()| AnswerBody::empty());
    }
    let mut response = Response::new(AnswerBody::empty());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

pin_project! {
    // An answer under way.
    pub(crate) struct WatchedFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F> {
        // `open` is `None` after the answer.
        Open { #[pin] answer: F, open: Option<OpenRequest> },
        Refused { is_grpc: bool, why: RefusalReason },
    }
}

impl<F, B, E> Future for WatchedFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<AnswerBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Refused { is_grpc, why } => Poll::Ready(Ok(refusal(*is_grpc, *why))),
            StateProjection::Open { answer, open } => {
                let response = ready!(answer.poll(cx))?;
                let open = open.take().expect("a future is not polled after it was ready");
                Poll::Ready(Ok(response.map(|body| AnswerBody::new(body, open))))
            }
        }
    }
}
