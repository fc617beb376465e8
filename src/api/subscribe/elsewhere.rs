//! Streams of other datacenters: asked for there, and passed on as they come (spec: consul §1.12).
//!
//! Invariant: a request is passed on once. Whoever gets one that was passed on and is for somebody else refuses it, so that
//! clusters that name each other wrongly do not send it round.

use std::time::{Duration, Instant};

use futures::StreamExt;
use http::{HeaderMap, HeaderValue};
use tonic::transport::Endpoint;
use tonic::{Code, Request, Response, Status, Streaming};

use super::super::context::{HEADWATER_EPOCH, HEADWATER_INDEX};
use super::super::frames::Frame;
use super::super::watch_service::Frames;
use super::errors::{Failure, closed};
use super::request::Invalid;
use crate::node::{CloseReason, Node};
use crate::pb::subscribe::state_change_subscription_client::StateChangeSubscriptionClient;
use crate::pb::subscribe::{Event, SubscribeRequest};

/// On a request that was passed on.
const FORWARDED: &str = "headwater-forwarded";
/// Longest wait for a connection to one member.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the other side is asked whether it is there, and how long its answer may take.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Asks one member after the other until one answers.
pub(super) async fn open(
    node: &Node,
    endpoints: &[String],
    deadline: Instant,
    metadata: &HeaderMap,
    message: SubscribeRequest,
) -> Result<Response<Frames>, Failure> {
    if metadata.contains_key(FORWARDED) {
        return Err(Invalid::Datacenter { asked: message.datacenter, here: node.datacenter().to_owned() }.into());
    }
    let mut last = Status::unavailable("no endpoint of the datacenter is configured");
    for endpoint in endpoints {
        let asked = tokio::time::timeout_at(deadline.into(), ask(endpoint, metadata, message.clone()));
        match asked.await.unwrap_or_else(|_| Err(Status::deadline_exceeded("the datacenter did not answer in time"))) {
            Ok(answer) => return Ok(pass_on(node, answer)),
            Err(status) if status.code() == Code::Unavailable => last = status,
            Err(status) => return Err(Failure::Elsewhere(Box::new(status))),
        }
    }
    Err(Failure::Elsewhere(Box::new(last)))
}

async fn ask(
    endpoint: &str,
    metadata: &HeaderMap,
    message: SubscribeRequest,
) -> Result<Response<Streaming<Event>>, Status> {
    let endpoint = Endpoint::from_shared(format!("http://{endpoint}"))
        .map_err(|error| Status::internal(format!("the endpoint of a datacenter: {error}")))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE);
    let channel = endpoint.connect().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let mut request = Request::new(message);
    let headers = request.metadata_mut().as_mut();
    headers.insert(FORWARDED, HeaderValue::from_static("true"));
    if let Some(epoch) = metadata.get(HEADWATER_EPOCH) {
        headers.insert(HEADWATER_EPOCH, epoch.clone());
    }
    StateChangeSubscriptionClient::new(channel).max_decoding_message_size(usize::MAX).subscribe(request).await
}

/// The stream as it comes, until this node stops.
fn pass_on(node: &Node, answer: Response<Streaming<Event>>) -> Response<Frames> {
    let (metadata, events, _) = answer.into_parts();
    let stopping = node.streams_closing();
    let stopped = futures::stream::once(async move {
        stopping.await;
        Err(closed(&CloseReason::Stopping))
    });
    let frames = events.map(|event| event.map(|event| Frame::new(&event)));
    // The first error of either is the last thing that is said.
    let both = futures::stream::select(frames.chain(ended()), stopped);
    let mut has_ended = false;
    let both = both.take_while(move |item| {
        let goes_on = !has_ended;
        has_ended = item.is_err();
        std::future::ready(goes_on)
    });
    let mut response = Response::new(both.boxed());
    let headers = response.metadata_mut().as_mut();
    for name in [HEADWATER_EPOCH, HEADWATER_INDEX] {
        if let Some(value) = metadata.as_ref().get(&name) {
            headers.insert(name, value.clone());
        }
    }
    response
}

/// A stream that ends without a word ends with one here.
fn ended() -> impl futures::Stream<Item = Result<Frame, Status>> {
    futures::stream::once(async { Err(Status::unavailable("the stream of the datacenter ended")) })
}
