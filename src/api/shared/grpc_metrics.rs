//! Counters of gRPC calls under the names that etcd's dashboards use (spec: etcd §4.7).
//!
//! A call finds its counters with its method: no labels are hashed on the way. Invariant: every
//! started call is counted as handled exactly once; a call that its client abandoned counts as
//! `Canceled`.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Frame, SizeHint};
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};
use tonic::body::Body;
use tonic::{Code, Status};

use super::grpc_messages::{ClientVersions, MessageCounter};

/// The families of counters of all gRPC methods.
pub struct GrpcMetrics {
    started: IntCounterVec,
    handled: IntCounterVec,
    received: IntCounterVec,
    sent: IntCounterVec,
    stream_failures: IntCounterVec,
    traffic: Arc<Traffic>,
}

/// Bytes of messages, and calls by client version, of all methods together.
struct Traffic {
    received_bytes: IntCounter,
    sent_bytes: IntCounter,
    clients: ClientVersions,
}

impl GrpcMetrics {
    /// Makes the metric families and registers them.
    ///
    /// # Errors
    ///
    /// If `registry` already holds metrics of these names.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let family = |name, help, labels: &[&str]| {
            let family = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(family.clone()))?;
            Ok::<_, prometheus::Error>(family)
        };
        let labels = &["grpc_type", "grpc_service", "grpc_method"];
        let bytes = |name, help| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let traffic = Traffic {
            received_bytes: bytes(
                "etcd_network_client_grpc_received_bytes_total",
                "Bytes of messages from clients of gRPC.",
            )?,
            sent_bytes: bytes("etcd_network_client_grpc_sent_bytes_total", "Bytes of messages to clients of gRPC.")?,
            clients: ClientVersions::new(family(
                "etcd_server_client_requests_total",
                "RPCs by the version that the client says it has.",
                &["type", "client_api_version"],
            )?),
        };
        Ok(Self {
            traffic: Arc::new(traffic),
            received: family("grpc_server_msg_received_total", "Messages received by RPCs.", labels)?,
            sent: family("grpc_server_msg_sent_total", "Messages sent by RPCs.", labels)?,
            stream_failures: family(
                "etcd_network_server_stream_failures_total",
                "Streams of watches and of leases whose requests ended with a failure that is not the client's going away.",
                &["Type", "API"],
            )?,
            started: family(
                "grpc_server_started_total",
                "RPCs that were started.",
                &["grpc_type", "grpc_service", "grpc_method"],
            )?,
            handled: family(
                "grpc_server_handled_total",
                "RPCs that were completed, whatever they came to.",
                &["grpc_type", "grpc_service", "grpc_method", "grpc_code"],
            )?,
        })
    }

    /// The counters of one method. Metrics list them from now on, with 0 before the first call; of
    /// the counters by status code only that of `OK`.
    pub fn method(&self, kind: MethodKind, service: &str, method: &str) -> Arc<MethodMetrics> {
        let metrics = MethodMetrics {
            started: self.started.with_label_values(&[kind.label(), service, method]),
            handled: self.handled.clone(),
            labels: [kind.label().to_owned(), service.to_owned(), method.to_owned()],
            kind,
            received: self.received.with_label_values(&[kind.label(), service, method]),
            sent: self.sent.with_label_values(&[kind.label(), service, method]),
            receive_failures: failing_api(service, method)
                .map(|api| self.stream_failures.with_label_values(&["receive", api])),
            traffic: Arc::clone(&self.traffic),
            by_code: std::array::from_fn(|_| OnceLock::new()),
        };
        // Made now, so that it is shown as 0 and a rate can be taken of the first call.
        metrics.handled(Code::Ok);
        Arc::new(metrics)
    }
}

/// The name of a method in etcd's counter of stream failures. `None` for a method that it does not
/// count.
fn failing_api(service: &str, method: &str) -> Option<&'static str> {
    match (service, method) {
        ("etcdserverpb.Watch", "Watch") => Some("watch"),
        ("etcdserverpb.Lease", "LeaseKeepAlive") => Some("lease-keepalive"),
        _ => None,
    }
}

/// The kind of a method: which sides of its calls are streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodKind {
    /// One request, one answer.
    Unary,
    /// Any number of requests, one answer.
    ClientStream,
    /// One request, any number of answers.
    ServerStream,
    /// Any number of both.
    BidiStream,
}

impl MethodKind {
    /// The kind of a method by the two flags of its descriptor.
    pub fn of(client_streaming: bool, server_streaming: bool) -> Self {
        match (client_streaming, server_streaming) {
            (false, false) => Self::Unary,
            (true, false) => Self::ClientStream,
            (false, true) => Self::ServerStream,
            (true, true) => Self::BidiStream,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::ClientStream => "client_stream",
            Self::ServerStream => "server_stream",
            Self::BidiStream => "bidi_stream",
        }
    }
}

/// The counters of one method.
pub struct MethodMetrics {
    started: IntCounter,
    handled: IntCounterVec,
    labels: [String; 3],
    kind: MethodKind,
    received: IntCounter,
    sent: IntCounter,
    receive_failures: Option<IntCounter>,
    traffic: Arc<Traffic>,
    by_code: [OnceLock<IntCounter>; CODES],
}

const CODES: usize = 17;

impl MethodMetrics {
    /// The kind of the method.
    pub fn kind(&self) -> MethodKind {
        self.kind
    }

    /// Counts a call by the version that its client states; `None` if it states none.
    pub fn client(&self, version: Option<&HeaderValue>) {
        self.traffic.clients.count(version, self.kind == MethodKind::Unary);
    }

    /// Counts received messages and their bytes.
    pub(super) fn received(&self, messages: u64, bytes: u64) {
        self.received.inc_by(messages);
        self.traffic.received_bytes.inc_by(bytes);
    }

    /// Counts a failure of a call's requests, if etcd's counter of stream failures has the method.
    pub(super) fn receive_failed(&self) {
        if let Some(failures) = &self.receive_failures {
            failures.inc();
        }
    }

    fn handled(&self, code: Code) -> &IntCounter {
        self.by_code[code as usize].get_or_init(|| {
            let [kind, service, method] = self.labels.each_ref().map(String::as_str);
            self.handled.with_label_values(&[kind, service, method, code_name(code)])
        })
    }
}

/// A code as the Go implementation spells it, because dashboards and clients match it.
pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// The gRPC code in headers or trailers. `None` if they have none.
pub fn grpc_code(headers: &HeaderMap) -> Option<Code> {
    headers.get(Status::GRPC_STATUS).map(|value| Code::from_bytes(value.as_bytes()))
}

/// Replacement for tonic's status about a message over the limit: the code and text of the Go
/// implementation (spec: etcd §1.8, §6.2). `None` for every other status.
pub fn too_large_status(headers: &HeaderMap) -> Option<Status> {
    if grpc_code(headers) != Some(Code::OutOfRange) {
        return None;
    }
    let status = Status::from_header_map(headers)?;
    let found = status.message().strip_prefix("Error, decoded message length too large: found ")?;
    let (bytes, limit) = found.split_once(" bytes, the limit is: ")?;
    let text = format!("grpc: received message larger than max ({bytes} vs. {})", limit.strip_suffix(" bytes")?);
    Some(Status::resource_exhausted(text))
}

/// One counted call, from its start to its code. If it is dropped before its code, it counts as
/// cancelled.
pub struct Call {
    metrics: Arc<MethodMetrics>,
    open: bool,
}

impl Call {
    /// Counts a call as started.
    pub fn start(metrics: &Arc<MethodMetrics>) -> Self {
        metrics.started.inc();
        Self { metrics: Arc::clone(metrics), open: true }
    }

    /// Counts the call as handled with `code`. The first code counts; later ones are ignored.
    pub fn finish(&mut self, code: Code) {
        if std::mem::take(&mut self.open) {
            self.metrics.handled(code).inc();
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.finish(Code::Cancelled);
    }
}

/// The body of a response; counts its messages. Its trailers, its error or its end finish the call.
/// A status about a message over the limit gets the text that clients know.
pub struct CountedBody {
    body: Body,
    call: Call,
    messages: MessageCounter,
}

impl CountedBody {
    /// The body of the answer to `call`.
    pub fn new(body: Body, call: Call) -> Self {
        Self { body, call, messages: MessageCounter::default() }
    }
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &mut frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    let (messages, bytes) = self.messages.count(data);
                    self.call.metrics.sent.inc_by(messages);
                    self.call.metrics.traffic.sent_bytes.inc_by(bytes);
                }
                if let Some(trailers) = frame.trailers_mut() {
                    let mut reworded = HeaderMap::new();
                    if too_large_status(trailers).is_some_and(|status| status.add_header(&mut reworded).is_ok()) {
                        *trailers = reworded;
                    }
                    if let Some(code) = grpc_code(trailers) {
                        self.call.finish(code);
                    }
                }
            }
            Some(Err(status)) => self.call.finish(status.code()),
            None => self.call.finish(Code::Ok),
        }
        Poll::Ready(frame)
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
    use http_body_util::{BodyExt, StreamBody};
    use prometheus::TextEncoder;

    use super::*;

    fn text(registry: &Registry) -> String {
        TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
    }

    #[test]
    fn calls_are_counted_once_by_their_code() {
        let registry = Registry::new();
        let metrics = GrpcMetrics::register(&registry).unwrap();
        let method = metrics.method(MethodKind::Unary, "etcdserverpb.KV", "Put");
        let line = |code, count| {
            format!(
                "grpc_server_handled_total{{grpc_code=\"{code}\",grpc_method=\"Put\",\
                 grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"}} {count}\n"
            )
        };
        assert!(text(&registry).contains(&line("OK", 0)), "{}", text(&registry));
        let mut call = Call::start(&method);
        call.finish(Code::Ok);
        call.finish(Code::Internal);
        drop(call);
        drop(Call::start(&method));
        for code in 0..CODES as i32 {
            Call::start(&method).finish(Code::from(code));
        }
        let text = text(&registry);
        assert!(text.contains(&line("OK", 2)), "{text}");
        assert!(text.contains(&line("Canceled", 2)), "{text}");
        assert!(text.contains(&line("Unauthenticated", 1)), "{text}");
        assert!(text.contains(&format!(
            "grpc_server_started_total{{grpc_method=\"Put\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"}} {}\n",
            CODES + 2
        )));
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_trailers() {
        let registry = Registry::new();
        let metrics = GrpcMetrics::register(&registry).unwrap();
        let method = metrics.method(MethodKind::ServerStream, "s", "M");
        let body = |trailer: Option<&'static str>| {
            let mut frames = vec![Ok::<_, Status>(Frame::data(Bytes::from_static(b"x")))];
            frames.extend(trailer.map(|code| {
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", code.parse().unwrap());
                Ok(Frame::trailers(trailers))
            }));
            CountedBody::new(Body::new(StreamBody::new(futures::stream::iter(frames))), Call::start(&method))
        };
        body(Some("0")).collect().await.unwrap();
        body(Some("11")).collect().await.unwrap();
        drop(body(Some("0")));
        for code in [Code::Ok, Code::OutOfRange, Code::Cancelled] {
            assert_eq!(method.handled(code).get(), 1, "{code:?}");
        }
    }

    #[tokio::test]
    async fn a_message_that_is_too_large_ends_a_stream_in_the_words_that_clients_know() {
        let registry = Registry::new();
        let method = GrpcMetrics::register(&registry).unwrap().method(MethodKind::BidiStream, "s", "M");
        let refused =
            Status::out_of_range("Error, decoded message length too large: found 9 bytes, the limit is: 5 bytes");
        let mut trailers = HeaderMap::new();
        refused.add_header(&mut trailers).unwrap();
        let frames = [Ok::<_, Status>(Frame::<Bytes>::trailers(trailers))];
        let body = CountedBody::new(Body::new(StreamBody::new(futures::stream::iter(frames))), Call::start(&method));
        let status = body.collect().await.unwrap().trailers().and_then(Status::from_header_map).unwrap();
        assert_eq!((status.code(), method.handled(Code::ResourceExhausted).get()), (Code::ResourceExhausted, 1));
        assert!(status.message().starts_with("grpc: received message larger than max (9 vs. "), "{status:?}");
    }

    #[test]
    fn kinds_are_named_as_in_go() {
        let labels =
            [(false, false), (true, false), (false, true), (true, true)].map(|(c, s)| MethodKind::of(c, s).label());
        assert_eq!(labels, ["unary", "client_stream", "server_stream", "bidi_stream"]);
    }
}
