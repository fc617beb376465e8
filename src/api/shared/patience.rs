//! How a stream waits: until there is something to send, the node stops, or its client's time is
//! over.

use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use tonic::Status;

use headwater_node::{Node, Session};

/// Events that a stream waits for.
pub(crate) struct Patience {
    session: Arc<Session>,
    closing: BoxFuture<'static, ()>,
    expired: Option<BoxFuture<'static, ()>>,
}

/// Why a stream ends though nothing is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The node stops.
    Stopping,
    /// The client gave it no more time.
    Expired,
}

impl Patience {
    /// For a stream that is woken by `session` and may last `until`.
    pub(crate) fn new(node: &Node, session: Arc<Session>, until: Option<Instant>) -> Self {
        let expired = |until: Instant| tokio::time::sleep_until(until.into()).boxed();
        Self { session, closing: node.streams_closing().boxed(), expired: until.map(expired) }
    }

    /// Waits until there may be something to read.
    pub(crate) async fn wait(&mut self) -> Result<(), Over> {
        let Self { session, closing, expired } = self;
        std::future::poll_fn(|cx| {
            if session.poll_raised(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            if closing.poll_unpin(cx).is_ready() {
                return Poll::Ready(Err(Over::Stopping));
            }
            if expired.as_mut().is_some_and(|expired| expired.poll_unpin(cx).is_ready()) {
                return Poll::Ready(Err(Over::Expired));
            }
            Poll::Pending
        })
        .await
    }
}

/// Status after the client's own deadline.
pub(crate) fn expired() -> Status {
    Status::deadline_exceeded("the time that the client gave the watch is over")
}
