//! The body of a request that must be complete within the request timeout, so that a client that
//! never finishes it does not hold its request for ever.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;
use tonic::codegen::StdError;
use tonic::{Code, Status};

use headwater_node::{Limit, LimitCounters};

/// A body with an optional time limit for its receipt.
pub struct TimedBody<B> {
    body: B,
    limit: Option<(Duration, LimitCounters)>,
    /// Begins when the body has to be waited for: most bodies arrive together with their headers.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<B> TimedBody<B> {
    /// A body that must be complete within `timeout`, counted from the first poll that has to wait
    /// for data. A late body fails with `DEADLINE_EXCEEDED` and is counted in `limit_counters`.
    pub fn within(timeout: Duration, limit_counters: &LimitCounters, body: B) -> Self {
        Self { body, limit: Some((timeout, limit_counters.clone())), timer: None }
    }

    /// The body of a stream of requests, without a time limit.
    pub fn unlimited(body: B) -> Self {
        Self { body, limit: None, timer: None }
    }
}

/// Whether `error`, with which a body failed, says that the body was late.
pub fn is_late(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<Status>().is_some_and(|status| status.code() == Code::DeadlineExceeded)
}

impl<B> Body for TimedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Some((timeout, limit_counters)) = &this.limit else { return Poll::Pending };
        let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(*timeout)));
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        limit_counters.count(Limit::RequestBody);
        this.limit = None;
        let text =
            "headwater: the request was not sent to its end within limits.request-timeout; send it faster, or split it";
        Poll::Ready(Some(Err(Status::deadline_exceeded(text).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use futures::stream;
    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(7);

    /// A body of one byte that never ends.
    fn endless() -> impl Body<Data = Bytes, Error = Status> + Unpin {
        let first = stream::iter([Ok(Frame::data(Bytes::from_static(b"x")))]);
        StreamBody::new(first.chain(stream::pending()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_fails_after_the_timeout_and_a_stream_does_not() {
        let limit_counters = LimitCounters::default();
        let late = TimedBody::within(TIMEOUT, &limit_counters, endless()).collect().await.unwrap_err();
        assert!(is_late(&*late), "{late}");
        assert_eq!(limit_counters.counter(Limit::RequestBody).get(), 1);
        let stream = TimedBody::unlimited(endless()).collect();
        assert!(tokio::time::timeout(100 * TIMEOUT, stream).await.is_err());
        let whole = TimedBody::within(TIMEOUT, &limit_counters, Full::new(Bytes::from_static(b"all")));
        assert_eq!(whole.collect().await.unwrap().to_bytes(), "all");
        assert_eq!(limit_counters.counter(Limit::RequestBody).get(), 1);
    }
}
