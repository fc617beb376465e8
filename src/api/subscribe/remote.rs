//! Streams of other datacenters: opened at a member there, and forwarded event by event (spec:
//! consul §1.12).
//!
//! A forwarded request carries the credentials of its client: this node's own certificate gives no
//! rights. Invariant: a request is forwarded at most once. A member refuses a forwarded request for
//! yet another datacenter, so that clusters with a wrong configuration do not send it in circles.

use std::future::Future;
use std::time::Duration;

use futures::StreamExt;
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status, Streaming};

use super::errors::{Failure, stream_ended};
use super::request::Invalid;
use headwater_api_shared::caller::{CREDENTIALS, FORWARDED};
use headwater_api_shared::context::{HEADWATER_EPOCH, HEADWATER_INDEX, HEADWATER_MIN_INDEX};
use headwater_api_shared::frames::{Frame, Frames};
use headwater_node::{CloseReason, Dialer, Node};
use headwater_proto::pb::subscribe::state_change_subscription_client::StateChangeSubscriptionClient;
use headwater_proto::pb::subscribe::{Event, SubscribeRequest};

/// Longest wait for a connection to one member of the other datacenter.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of keep-alive pings, and the longest wait for an answer to one.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Longest text of one endpoint's error, characters: the texts of all endpoints are sent in one
/// header.
const ERROR_CHARS_MAX: usize = 200;

/// Opens the stream at the first of `endpoints` that answers before `deadline`. Fails if none
/// answers, one refuses the request, or the request was forwarded already.
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
    let datacenter = message.datacenter.clone();
    let ask = |endpoint| ask(node.client_dialer(), endpoint, metadata, message.clone());
    match first(&datacenter, endpoints, deadline.into(), ask).await {
        Ok((endpoint, answer)) => Ok(pass_on(node, answer, origin(&datacenter, endpoint))),
        Err(status) => Err(Failure::Remote(Box::new(status))),
    }
}

/// The datacenter and the endpoint of an error, as the beginning of its text.
fn origin(datacenter: &str, endpoint: &str) -> String {
    format!("datacenter {datacenter:?} at {endpoint}")
}

/// The answer of the first endpoint that has one, with that endpoint. Each endpoint gets an equal
/// share of the time that is left. A refusal of the request is an answer; any other error sends the
/// request to the next endpoint.
async fn first<'a, T, Asking>(
    datacenter: &str,
    endpoints: &'a [String],
    deadline: Instant,
    ask: impl Fn(&'a str) -> Asking,
) -> Result<(&'a str, T), Status>
where
    Asking: Future<Output = Result<T, Status>>,
{
    let mut failed: Vec<(Code, String)> = Vec::new();
    for (number, endpoint) in endpoints.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let left_to_ask = u32::try_from(endpoints.len() - number).unwrap_or(u32::MAX);
        let share = left / left_to_ask;
        match tokio::time::timeout(share, ask(endpoint)).await {
            Ok(Ok(answer)) => return Ok((endpoint.as_str(), answer)),
            Ok(Err(status)) if is_about_the_request(status.code()) => {
                return Err(Status::new(
                    status.code(),
                    format!("{}: {}", origin(datacenter, endpoint), status.message()),
                ));
            }
            Ok(Err(status)) => failed.push((status.code(), format!("{endpoint}: {}", text_of(&status)))),
            Err(_) => {
                let text = format!("{endpoint}: no answer within {} ms", share.as_millis());
                failed.push((Code::DeadlineExceeded, text));
            }
        }
    }
    Err(none_answered(datacenter, &failed))
}

/// Whether a code is about the request, so that another member would answer the same.
fn is_about_the_request(code: Code) -> bool {
    matches!(code, Code::InvalidArgument | Code::Aborted)
}

/// Status after all endpoints have failed. The code is theirs if they agree and clients know it.
fn none_answered(datacenter: &str, failed: &[(Code, String)]) -> Status {
    let common = failed.first().map(|(code, _)| *code).filter(|code| failed.iter().all(|(other, _)| other == code));
    let code = common.filter(|code| is_known_to_clients(*code)).unwrap_or(Code::Unavailable);
    let texts: Vec<&str> = failed.iter().map(|(_, text)| text.as_str()).collect();
    Status::new(code, format!("no member of datacenter {datacenter:?} answered: {}", texts.join("; ")))
}

/// Whether a code of a remote member is passed on to clients. Every other code becomes
/// `UNAVAILABLE`, also `INTERNAL` and those of a transport.
fn is_known_to_clients(code: Code) -> bool {
    is_about_the_request(code) || matches!(code, Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted)
}

/// The text of an error with its causes, which the text of a transport error lacks. Cut to
/// [`ERROR_CHARS_MAX`].
fn text_of(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = match error.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => error.to_string(),
    };
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    match text.char_indices().nth(ERROR_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

async fn ask(
    dialer: &Dialer,
    endpoint: &str,
    metadata: &HeaderMap,
    message: SubscribeRequest,
) -> Result<Response<Streaming<Event>>, Status> {
    let url = if endpoint.starts_with("https://") { endpoint.to_owned() } else { format!("http://{endpoint}") };
    let (endpoint, connector) = dialer.endpoint(&url, CONNECT_TIMEOUT).map_err(Status::unavailable)?;
    let endpoint = endpoint.http2_keep_alive_interval(KEEPALIVE).keep_alive_timeout(KEEPALIVE);
    let connecting = tokio::time::timeout(CONNECT_TIMEOUT, endpoint.connect_with_connector(connector));
    let channel = connecting
        .await
        .map_err(|_| Status::unavailable("the connection took too long"))?
        .map_err(|error| Status::unavailable(text_of(&error)))?;
    let mut request = Request::new(message);
    let headers = request.metadata_mut().as_mut();
    headers.insert(FORWARDED, HeaderValue::from_static("true"));
    for name in [HEADWATER_EPOCH, HEADWATER_MIN_INDEX].into_iter().chain(CREDENTIALS) {
        if let Some(value) = metadata.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    let answer =
        StateChangeSubscriptionClient::new(channel).max_decoding_message_size(usize::MAX).subscribe(request).await?;
    // A server without gRPC would otherwise fail only at the first message.
    let content_type = answer.metadata().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    match content_type.starts_with("application/grpc") {
        true => Ok(answer),
        false => {
            Err(Status::unavailable(format!("it is no gRPC server: it answers with content-type {content_type:?}")))
        }
    }
}

/// The remote stream, until it ends or this node stops. `from` is its [`origin`], for the texts of
/// errors.
fn pass_on(node: &Node, answer: Response<Streaming<Event>>, from: String) -> Response<Frames> {
    let (metadata, events, _) = answer.into_parts();
    let stopping = node.streams_closing();
    let stopped = futures::stream::once(async move {
        stopping.await;
        Err(stream_ended(CloseReason::Stopping.into()))
    });
    let ended = ended(&from);
    let frames = events.map(move |event| match event {
        Ok(event) => Ok(Frame::new(&event)),
        Err(status) => {
            let code = if is_known_to_clients(status.code()) { status.code() } else { Code::Unavailable };
            Err(Status::new(code, format!("{from}: {}", text_of(&status))))
        }
    });
    // The first error of either stream is the last item.
    let both = futures::stream::select(frames.chain(ended), stopped);
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

/// The status (`UNAVAILABLE`) of a remote stream that ended without one, as a stream of one item.
fn ended(from: &str) -> impl futures::Stream<Item = Result<Frame, Status>> + use<> {
    let status = Status::unavailable(format!("{from}: the stream ended without a status"));
    futures::stream::once(async { Err(status) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of `first` over members that behave as their names say, and the time that it
    /// took. Any unknown name is a member that answers with its name.
    async fn asked(members: &[&str]) -> (Result<String, Status>, Duration) {
        let endpoints: Vec<String> = members.iter().map(|&member| member.to_owned()).collect();
        let began = Instant::now();
        let ask = async |member: &str| match member {
            "hangs" => std::future::pending().await,
            "down" => Err(Status::unavailable("it is down")),
            "full" => Err(Status::resource_exhausted("it is full")),
            "noise" => Err(Status::unknown("h2 protocol error")),
            "forbids" => Err(Status::permission_denied("a proxy's answer")),
            "absent" => Err(Status::unimplemented("another program's answer")),
            "breaks" => Err(Status::internal("its disk failed")),
            "refuses" => Err(Status::invalid_argument("refused")),
            answer => Ok(answer.to_owned()),
        };
        let answer = first("dc2", &endpoints, began + Duration::from_secs(12), ask).await;
        let answer = answer.map(|(endpoint, answer)| {
            assert_eq!(endpoint, answer);
            answer
        });
        (answer, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_of_one_endpoint_moves_on_to_the_next() {
        for (members, wanted, seconds) in [
            (&["hangs", "b"][..], Ok("b"), 6),
            (&["hangs", "hangs", "hangs", "d"], Ok("d"), 9),
            (&["down", "hangs", "c"], Ok("c"), 6),
            (&["a", "hangs"], Ok("a"), 0),
            (&["down", "full", "noise", "forbids", "absent", "breaks", "g"], Ok("g"), 0),
            (&["hangs", "hangs"], Err(Code::DeadlineExceeded), 12),
            (&["hangs", "down"], Err(Code::Unavailable), 6),
            (&["full", "full"], Err(Code::ResourceExhausted), 0),
            (&["noise"], Err(Code::Unavailable), 0),
            (&["forbids", "forbids"], Err(Code::Unavailable), 0),
            (&["hangs", "refuses", "c"], Err(Code::InvalidArgument), 4),
            (&[], Err(Code::Unavailable), 0),
        ] {
            let (answer, took) = asked(members).await;
            let codes = answer.map_err(|status| status.code());
            assert_eq!(codes, wanted.map(str::to_owned), "{members:?}");
            assert_eq!(took.as_secs(), seconds, "{members:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn errors_name_the_datacenter_and_the_endpoints() {
        let text = async |members: &[&str]| asked(members).await.0.unwrap_err().message().to_owned();
        assert_eq!(text(&["down", "refuses"]).await, "datacenter \"dc2\" at refuses: refused");
        assert_eq!(
            text(&["down", "noise", "hangs"]).await,
            "no member of datacenter \"dc2\" answered: down: it is down; noise: h2 protocol error; hangs: no answer within \
             12000 ms"
        );
    }
}
