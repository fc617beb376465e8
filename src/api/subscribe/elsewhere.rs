//! Streams of other datacenters: asked for there, and passed on as they come (spec: consul §1.12).
//!
//! Invariant: a request is passed on once. Whoever gets one that was passed on and is for somebody else refuses it, so that
//! clusters that name each other wrongly do not send it round.

use std::future::Future;
use std::time::Duration;

use futures::StreamExt;
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Response, Status, Streaming};

use super::super::context::{HEADWATER_EPOCH, HEADWATER_INDEX, HEADWATER_MIN_INDEX};
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
    deadline: std::time::Instant,
    metadata: &HeaderMap,
    message: SubscribeRequest,
) -> Result<Response<Frames>, Failure> {
    if metadata.contains_key(FORWARDED) {
        return Err(Invalid::Datacenter { asked: message.datacenter, here: node.datacenter().to_owned() }.into());
    }
    match first(endpoints, deadline.into(), |endpoint| ask(endpoint, metadata, message.clone())).await {
        Ok(answer) => Ok(pass_on(node, answer)),
        Err(status) => Err(Failure::Elsewhere(Box::new(status))),
    }
}

/// The answer of the first endpoint that has one. Each is waited for no longer than leaves as much for every one after it.
async fn first<'a, T, Asking>(
    endpoints: &'a [String],
    deadline: Instant,
    ask: impl Fn(&'a str) -> Asking,
) -> Result<T, Status>
where
    Asking: Future<Output = Result<T, Status>>,
{
    let mut last =
        Status::unavailable("no endpoint of the datacenter is configured; name its members in the server's settings");
    for (place, endpoint) in endpoints.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let left_to_ask = u32::try_from(endpoints.len() - place).unwrap_or(u32::MAX);
        match tokio::time::timeout(left / left_to_ask, ask(endpoint)).await {
            Ok(Err(status)) if status.code() == Code::Unavailable => last = status,
            Ok(answer) => return answer,
            Err(_) => last = Status::deadline_exceeded("no member of the datacenter answered in time; try again"),
        }
    }
    Err(last)
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
    for name in [HEADWATER_EPOCH, HEADWATER_MIN_INDEX] {
        if let Some(value) = metadata.get(&name) {
            headers.insert(name, value.clone());
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What members do that are asked: `hangs`, `down`, `refuses` or answer.
    async fn asked(members: &[&str]) -> (Result<String, Code>, Duration) {
        let endpoints: Vec<String> = members.iter().map(|&member| member.to_owned()).collect();
        let began = Instant::now();
        let ask = async |member: &str| match member {
            "hangs" => std::future::pending().await,
            "down" => Err(Status::unavailable("down")),
            "refuses" => Err(Status::invalid_argument("refused")),
            answer => Ok(answer.to_owned()),
        };
        let answer = first(&endpoints, began + Duration::from_secs(12), ask).await;
        (answer.map_err(|status| status.code()), began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn members_that_hang_leave_time_for_the_others() {
        for (members, wanted, seconds) in [
            (&["hangs", "b"][..], Ok("b"), 6),
            (&["hangs", "hangs", "hangs", "d"], Ok("d"), 9),
            (&["down", "hangs", "c"], Ok("c"), 6),
            (&["a", "hangs"], Ok("a"), 0),
            (&["hangs", "hangs"], Err(Code::DeadlineExceeded), 12),
            (&["hangs", "down"], Err(Code::Unavailable), 6),
            (&["hangs", "refuses", "c"], Err(Code::InvalidArgument), 4),
            (&[], Err(Code::Unavailable), 0),
        ] {
            let (answer, took) = asked(members).await;
            assert_eq!(answer, wanted.map(str::to_owned), "{members:?}");
            assert_eq!(took.as_secs(), seconds, "{members:?}");
        }
    }
}
