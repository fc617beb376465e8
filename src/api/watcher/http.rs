//! `GET /v1/watch`: the method over HTTP, by calling it in this process.
//!
//! Owns the reading of requests from URLs, and the writing of batches: lines of JSON, or
//! server-sent events for a browser's `EventSource`, with the marker as `Last-Event-ID`. The method
//! itself refuses invalid requests.
//!
//! ```text
//! GET /v1/watch?target=%2Fkv%2Fapp%3Frecursive%3Dtrue&resume_marker=bm93
//! {"result":{"changes":[{"state":"INITIAL_STATE_SKIPPED","resumeMarker":"…"}]}}
//! ```

use std::convert::Infallible;
use std::time::Duration;

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use prometheus::{IntCounterVec, Opts, Registry};
use serde_json::json;
use tokio::time::{Interval, MissedTickBehavior, interval_at};
use tonic::body::Body;
use tonic::{Code, Status, Streaming};
use tower::Service;

use super::json;
use headwater_api_shared::{http_errors, http_metadata};
use headwater_node::Node;
use headwater_proto::pb::pbwatcher::watcher_client::WatcherClient;
use headwater_proto::pb::pbwatcher::{ChangeBatch, Request as WatchRequest};

/// The path of the HTTP form of the watcher.
const PATH: &str = "/v1/watch";
/// Interval of heartbeats on an idle stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Delay before a browser reconnects, milliseconds.
const RETRY_MS: u64 = 1000;
/// The header with the last marker of a reconnecting `EventSource`.
const LAST_EVENT_ID: &str = "last-event-id";
/// The type of server-sent events.
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// Serves the watcher over HTTP.
pub struct WatchPath {
    node: Node,
    requests: IntCounterVec,
}

/// The form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamFormat {
    Lines,
    Events,
}

impl WatchPath {
    /// Serves the path. `node` supplies the registered types of resources, for their data as JSON.
    ///
    /// # Errors
    ///
    /// If `registry` already holds the counter.
    pub fn new(node: Node, registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = Opts::new("headwater_watch_requests_total", "Requests of /v1/watch by form and status code.");
        let requests = IntCounterVec::new(opts, &["form", "code"])?;
        registry.register(Box::new(requests.clone()))?;
        Ok(Self { node, requests })
    }

    /// Whether the path is `/v1/watch`.
    pub fn owns(path: &str) -> bool {
        path == PATH
    }

    /// Answers a request by calling `service`, which takes gRPC.
    pub fn call<S>(&self, service: S, request: Request<Body>) -> BoxFuture<'static, Response<Body>>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send + 'static,
        S::Future: Send,
    {
        let (node, requests) = (self.node.clone(), self.requests.clone());
        Box::pin(async move {
            let (request, _) = request.into_parts();
            let form = StreamFormat::wanted(&request.headers);
            let response = match &request.method {
                &Method::GET => match begin(service, &request).await {
                    Ok(batches) => answer(node, batches, form),
                    Err(status) => form.refuse(&status),
                },
                method => only_get(method),
            };
            let label = match form {
                StreamFormat::Lines => "json",
                StreamFormat::Events => "events",
            };
            requests.with_label_values(&[label, response.status().as_str()]).inc();
            response
        })
    }
}

async fn begin<S>(service: S, request: &Parts) -> Result<Streaming<ChangeBatch>, Status>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send + 'static,
    S::Future: Send,
{
    let message = read(request.uri.query().unwrap_or_default(), &request.headers)?;
    let mut call = tonic::Request::new(message);
    *call.metadata_mut() = http_metadata::incoming(&request.headers);
    let mut client = WatcherClient::new(service).max_decoding_message_size(usize::MAX);
    Ok(client.watch(call).await?.into_inner())
}

/// Reads a request from a query. `Last-Event-ID`, which a browser sends when it reconnects,
/// replaces the marker of the query.
fn read(query: &str, headers: &HeaderMap) -> Result<WatchRequest, Status> {
    let (mut target, mut marker) = (None, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let slot = match &*name {
            "target" => &mut target,
            "resume_marker" | "resumeMarker" => &mut marker,
            "recursive" => {
                let text = "recursive is a part of target: target=/kv/app%3Frecursive=true";
                return Err(Status::invalid_argument(text));
            }
            _ => continue,
        };
        if slot.replace(value.into_owned()).is_some() {
            return Err(Status::invalid_argument(format!("{name} is given twice")));
        }
    }
    if let Some(last) = headers.get(LAST_EVENT_ID).filter(|last| !last.is_empty()) {
        let last = last.to_str().map_err(|_| Status::invalid_argument("Last-Event-ID is not base64"))?;
        marker = Some(last.to_owned());
    }
    let marker = marker.unwrap_or_default();
    let resume_marker = read_base64(&marker)
        .ok_or_else(|| Status::invalid_argument("resume_marker is not base64; \"now\" is written bm93"))?;
    Ok(WatchRequest { target: target.unwrap_or_default(), resume_marker: resume_marker.into() })
}

/// Decodes base64 of either alphabet, with or without padding. `None` if it is neither.
fn read_base64(text: &str) -> Option<Vec<u8>> {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    // A plus sign in a query was decoded as a space, which base64 never has.
    let text = text.replace(' ', "+");
    let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    GeneralPurpose::new(alphabet, config).decode(text).ok()
}

fn only_get(method: &Method) -> Response<Body> {
    let text = format!("{method} is not allowed here; use GET");
    let mut response =
        http_errors::with_status(StatusCode::METHOD_NOT_ALLOWED, &Status::new(Code::Unimplemented, text));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
    response
}

impl StreamFormat {
    fn wanted(headers: &HeaderMap) -> Self {
        let types = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut types = types.flat_map(|value| value.split(','));
        let is_events = |value: &str| value.split(';').next().is_some_and(|it| it.trim() == "text/event-stream");
        if types.any(is_events) { Self::Events } else { Self::Lines }
    }

    /// The first bytes of a stream; `None` for lines.
    fn prelude(self) -> Option<Bytes> {
        match self {
            Self::Lines => None,
            Self::Events => Some(format!("retry: {RETRY_MS}\n\n").into()),
        }
    }

    fn batch(self, batch: &ChangeBatch, text: &serde_json::Value) -> Bytes {
        match self {
            Self::Lines => format!("{}\n", json!({ "result": text })).into(),
            Self::Events => {
                // After a reconnect, changes after the last closed group of the batch are sent
                // again in full.
                let last = batch.changes.iter().rev().find(|change| !change.resume_marker.is_empty());
                let id = last.map(|change| format!("id: {}\n", URL_SAFE_NO_PAD.encode(&change.resume_marker)));
                format!("{}data: {text}\n\n", id.unwrap_or_default()).into()
            }
        }
    }

    fn heartbeat(self) -> Bytes {
        match self {
            Self::Lines => Bytes::from_static(b"{\"result\":{}}\n"),
            Self::Events => Bytes::from_static(b": still here\n\n"),
        }
    }

    /// The last line or event of a stream that ends with an error.
    fn end(self, status: &Status) -> Bytes {
        match self {
            Self::Lines => http_errors::line(status).into(),
            // Not "error": browsers use that name for the end of a connection.
            Self::Events => {
                let end = json!({"code": status.code() as i32, "message": status.message()});
                format!("event: end\ndata: {end}\n\n").into()
            }
        }
    }

    /// The answer to a refused watch. A browser never reconnects after an error of HTTP, so a
    /// transient error is reported by a stream that ends.
    fn refuse(self, status: &Status) -> Response<Body> {
        match (self, status.code()) {
            (Self::Events, Code::Unavailable | Code::ResourceExhausted) => {
                let text = [self.prelude().unwrap_or_default(), self.end(status)].concat();
                self.open(Body::new(Full::new(Bytes::from(text))))
            }
            _ => http_errors::response(status),
        }
    }

    fn open(self, body: Body) -> Response<Body> {
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        match self {
            Self::Lines => headers.insert(header::CONTENT_TYPE, http_errors::JSON),
            Self::Events => headers.insert(header::CONTENT_TYPE, EVENT_STREAM),
        };
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// The state of a stream of answers.
struct StreamWriter {
    node: Node,
    batches: Streaming<ChangeBatch>,
    form: StreamFormat,
    prelude: Option<Bytes>,
    heartbeat: Interval,
}

fn answer(node: Node, batches: Streaming<ChangeBatch>, form: StreamFormat) -> Response<Body> {
    let mut heartbeat = interval_at(tokio::time::Instant::now() + HEARTBEAT, HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let writing = StreamWriter { node, batches, form, prelude: form.prelude(), heartbeat };
    let chunks = stream::unfold(Some(writing), |writing| async move {
        let mut writing = writing?;
        let (chunk, continues) = writing.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(chunk)), continues.then_some(writing)))
    });
    form.open(Body::new(StreamBody::new(chunks)))
}

impl StreamWriter {
    /// The next bytes, and whether more may follow; `None` at the end of the stream.
    async fn next(&mut self) -> Option<(Bytes, bool)> {
        if let Some(prelude) = self.prelude.take() {
            return Some((prelude, true));
        }
        tokio::select! {
            biased;
            batch = self.batches.message() => match batch {
                Ok(Some(batch)) => {
                    self.heartbeat.reset();
                    let types = match json::needs_types(&batch) {
                        true => self.node.resources().types().await.ok(),
                        false => None,
                    };
                    let text = json::write(&batch, types.as_deref());
                    Some((self.form.batch(&batch, &text), true))
                }
                Ok(None) => None,
                Err(status) => Some((self.form.end(&status), false)),
            },
            _ = self.heartbeat.tick() => Some((self.form.heartbeat(), true)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_proto::pb::pbwatcher::Change;

    #[test]
    fn w54_markers_are_base64_of_either_alphabet() {
        let marker = |query: &str| read(query, &HeaderMap::new()).map(|request| request.resume_marker.to_vec());
        for text in ["%2B%2F8%3D", "%2B%2F8", "-_8", "-_8%3D", "+/8="] {
            assert_eq!(marker(&format!("target=/kv&resume_marker={text}")).unwrap(), [0xfb, 0xff], "{text}");
        }
        assert_eq!(marker("target=/kv&resume_marker=bm93").unwrap(), b"now");
        assert_eq!(marker("target=/kv").unwrap(), b"");
        // "now" is valid base64 of two bytes, not the marker `now`.
        assert_eq!(marker("target=/kv&resume_marker=now").unwrap().len(), 2);
        for text in ["!", "a", "-/8"] {
            assert_eq!(marker(&format!("resume_marker={text}")).unwrap_err().code(), Code::InvalidArgument, "{text}");
        }
    }

    #[test]
    fn a_browser_that_comes_again_says_where_it_was() {
        let mut headers = HeaderMap::new();
        headers.insert(LAST_EVENT_ID, "-_8".parse().unwrap());
        let request = read("target=%2Fkv%2Fapp%3Frecursive%3Dtrue&resume_marker=bm93&x=y", &headers).unwrap();
        assert_eq!(request.target, "/kv/app?recursive=true");
        assert_eq!(&request.resume_marker[..], [0xfb, 0xff]);
        // The question mark of the target need not be escaped.
        assert_eq!(read("target=/kv/app?recursive=true", &HeaderMap::new()).unwrap().target, "/kv/app?recursive=true");
        for query in ["target=/a&target=/b", "target=/kv/app&recursive=true", "resume_marker=&resume_marker="] {
            assert_eq!(read(query, &headers).unwrap_err().code(), Code::InvalidArgument, "{query}");
        }
    }

    #[test]
    fn the_form_follows_accept() {
        for (accept, wanted) in [
            ("text/event-stream", StreamFormat::Events),
            ("text/html, text/event-stream;q=0.9", StreamFormat::Events),
            ("*/*", StreamFormat::Lines),
            ("application/json", StreamFormat::Lines),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(StreamFormat::wanted(&headers), wanted, "{accept}");
        }
        assert_eq!(StreamFormat::wanted(&HeaderMap::new()), StreamFormat::Lines);
    }

    #[test]
    fn the_id_of_an_event_is_that_of_its_last_closed_group() {
        let closed = |marker: &'static [u8]| Change { resume_marker: marker.into(), ..Change::default() };
        let open = Change { continued: true, ..Change::default() };
        let text = json!({});
        for (changes, wanted) in
            [(vec![closed(b"a"), closed(b"b"), open.clone()], "id: Yg\ndata: {}\n\n"), (vec![open], "data: {}\n\n")]
        {
            assert_eq!(StreamFormat::Events.batch(&ChangeBatch { changes }, &text), wanted);
        }
        assert_eq!(StreamFormat::Lines.batch(&ChangeBatch::default(), &text), "{\"result\":{}}\n");
    }
}
