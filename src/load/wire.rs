//! gRPC directly on HTTP/2, without tonic: a framed message is sent, and the bytes of the answers
//! are returned.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Uri, header};
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::protobuf::Fields;
use super::workload::{Encoded, Method};
use headwater_client::socket_path;
use headwater_tls::Dialer;
use tonic::metadata::MetadataMap;
use tower::ServiceExt;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;

/// The dialer of this process for `https://` endpoints, with its certificates.
static DIALER: OnceLock<Dialer> = OnceLock::new();

/// Sets the dialer of this process. Only the first call has an effect, and none after [`dialer`].
pub(super) fn dial_by(dialer: Dialer) {
    DIALER.get_or_init(|| dialer);
}

/// The dialer of this process; a default one if none was set.
pub(super) fn dialer() -> &'static Dialer {
    DIALER.get_or_init(Dialer::default)
}

/// Headers for every request: a token of the user on the command line; none without a user.
static CREDENTIALS: OnceLock<HeaderMap> = OnceLock::new();

/// Sets the credentials of this process. Only the first call has an effect, and none after
/// [`credentials`].
pub(super) fn ask_with(credentials: HeaderMap) {
    CREDENTIALS.get_or_init(|| credentials);
}

/// The credentials of this process; empty without a user.
pub(super) fn credentials() -> &'static HeaderMap {
    CREDENTIALS.get_or_init(HeaderMap::new)
}

/// A request for tonic's clients, with the credentials of this process.
pub(super) fn request<T>(message: T) -> tonic::Request<T> {
    let metadata = MetadataMap::from_headers(credentials().clone());
    tonic::Request::from_parts(metadata, tonic::Extensions::default(), message)
}

/// Flow-control windows of HTTP/2: most bytes of one answer, and of all answers on one connection,
/// that are under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowControlWindows {
    pub(super) stream_bytes: u32,
    pub(super) connection_bytes: u32,
}

impl Default for FlowControlWindows {
    fn default() -> Self {
        Self { stream_bytes: STREAM_WINDOW_BYTES, connection_bytes: CONNECTION_WINDOW_BYTES }
    }
}

/// A connection, shared by several clients of one thread.
#[derive(Clone)]
pub(super) struct Connection {
    requests: SendRequest<Bytes>,
    uris: Rc<[Uri]>,
    headers: HeaderMap,
}

/// The reason for which an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server answered with an error.
    Status(String),
    /// The connection broke, or the answer ended without a status; another connection is needed.
    Transport(String),
}

impl Connection {
    /// Connects to `host:port`, `https://host:port` or `unix:///path`. Must be called on the
    /// thread's `LocalSet`.
    pub(super) async fn open(endpoint: &str) -> Result<Self, String> {
        Self::open_with(endpoint, FlowControlWindows::default()).await
    }

    /// As [`open`](Self::open), with other windows.
    pub(super) async fn open_with(endpoint: &str, windows: FlowControlWindows) -> Result<Self, String> {
        if let Some(path) = socket_path(endpoint) {
            let stream = UnixStream::connect(path).await.map_err(|error| error.to_string())?;
            return Self::begin(stream, "localhost".to_owned(), windows).await;
        }
        if let Some(authority) = endpoint.strip_prefix("https://") {
            let (_, connector) = dialer().endpoint(endpoint, CONNECT_TIMEOUT)?;
            let uri = endpoint.parse::<Uri>().map_err(|error| error.to_string())?;
            let stream = connector.oneshot(uri).await.map_err(|error| error.to_string())?;
            return Self::begin(stream.into_inner(), authority.to_owned(), windows).await;
        }
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(endpoint));
        let stream = connecting.await.map_err(|_| "no connection within 2s".to_owned())?.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let peer: SocketAddr = stream.peer_addr().map_err(|error| error.to_string())?;
        Self::begin(stream, peer.to_string(), windows).await
    }

    async fn begin<S>(stream: S, authority: String, windows: FlowControlWindows) -> Result<Self, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let (requests, connection) = h2::client::Builder::new()
            .initial_window_size(windows.stream_bytes)
            .initial_connection_window_size(windows.connection_bytes)
            .max_frame_size(1 << 20)
            .enable_push(false)
            .handshake::<_, Bytes>(stream)
            .await
            .map_err(|error| error.to_string())?;
        // The end of this task shows as an error of every request.
        tokio::task::spawn_local(connection);
        let uris = Method::ALL
            .iter()
            .map(|method| {
                Uri::builder().scheme("http").authority(authority.as_str()).path_and_query(method.path()).build()
            })
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        let mut headers = credentials().clone();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        Ok(Self { requests, uris, headers })
    }

    /// Sends a request, waits for the end of the answer, and returns its bytes. An error unless the
    /// status is OK.
    pub(super) async fn call(&self, operation: Encoded) -> Result<Answer, Failure> {
        let (_, head, mut body) = self.send(operation.method, operation.frame, true).await?;
        let mut answer = Answer::default();
        while let Some(chunk) = body.data().await {
            let chunk = chunk.map_err(broken)?;
            let length = chunk.len();
            answer.push(chunk);
            body.flow_control().release_capacity(length).map_err(broken)?;
        }
        match body.trailers().await.map_err(broken)? {
            Some(trailers) => check(&trailers)?,
            None if head.contains_key("grpc-status") => {}
            None => return Err(Failure::Transport("the answer ended without a status".to_owned())),
        }
        Ok(answer)
    }

    /// Opens a stream with its first message, and waits for the head of the answer. Dropping the
    /// returned sending side ends the client's part of the stream.
    pub(super) async fn open_stream(
        &self,
        method: Method,
        first: Bytes,
    ) -> Result<(SendStream<Bytes>, RecvStream), Failure> {
        let (sending, _, body) = self.send(method, first, false).await?;
        Ok((sending, body))
    }

    /// Sends one request and opens the stream of its answers.
    pub(super) async fn open_answers(&self, method: Method, request: Bytes) -> Result<RecvStream, Failure> {
        let (_, _, body) = self.send(method, request, true).await?;
        Ok(body)
    }

    async fn send(
        &self,
        method: Method,
        frame: Bytes,
        is_all: bool,
    ) -> Result<(SendStream<Bytes>, HeaderMap, RecvStream), Failure> {
        let mut request = Request::new(());
        *request.method_mut() = http::Method::POST;
        *request.version_mut() = http::Version::HTTP_2;
        *request.uri_mut() = self.uris[method as usize].clone();
        *request.headers_mut() = self.headers.clone();
        if method == Method::ResourceReadConsistent {
            request.headers_mut().insert("x-consul-consistency-mode", HeaderValue::from_static("consistent"));
        }
        let mut requests = self.requests.clone().ready().await.map_err(broken)?;
        let (response, mut sending) = requests.send_request(request, false).map_err(broken)?;
        sending.send_data(frame, is_all).map_err(broken)?;
        let (head, body) = response.await.map_err(broken)?.into_parts();
        if head.status != http::StatusCode::OK {
            return Err(Failure::Status(format!("HTTP {}", head.status)));
        }
        // A refusal may come as headers alone.
        if head.headers.contains_key("grpc-status") {
            check(&head.headers)?;
        }
        Ok((sending, head.headers, body))
    }
}

/// The reason for the end of a stream of answers, from its trailers.
pub(super) async fn ending(body: &mut RecvStream) -> String {
    match body.trailers().await {
        Err(error) => error.to_string(),
        Ok(None) => "the server ended it without a status".to_owned(),
        Ok(Some(trailers)) => match check(&trailers) {
            Ok(()) => "the server ended it".to_owned(),
            Err(Failure::Status(reason) | Failure::Transport(reason)) => reason,
        },
    }
}

fn broken(error: h2::Error) -> Failure {
    Failure::Transport(error.to_string())
}

fn check(headers: &HeaderMap) -> Result<(), Failure> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match text("grpc-status") {
        "0" => Ok(()),
        code => Err(Failure::Status(format!("{} (code {code})", percent_decoded(text("grpc-message"))))),
    }
}

/// Decodes the text of a status: gRPC writes bytes that are not printable ASCII as `%XX`.
fn percent_decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

/// The framed bytes of an answer; copied only if they come in several chunks.
#[derive(Default)]
pub(super) enum Answer {
    #[default]
    Empty,
    Whole(Bytes),
    Gathered(BytesMut),
}

impl Answer {
    fn push(&mut self, chunk: Bytes) {
        *self = match std::mem::take(self) {
            Self::Empty => Self::Whole(chunk),
            Self::Whole(first) => {
                let mut all = BytesMut::with_capacity(first.len() + chunk.len());
                all.extend_from_slice(&first);
                all.extend_from_slice(&chunk);
                Self::Gathered(all)
            }
            Self::Gathered(mut all) => {
                all.extend_from_slice(&chunk);
                Self::Gathered(all)
            }
        };
    }

    /// Whether the time to live in a framed `LeaseKeepAliveResponse` (field 3) is above zero. False
    /// if it is absent.
    pub(super) fn is_alive(&self) -> bool {
        let message = match self {
            Self::Empty => &[],
            Self::Whole(bytes) => bytes.as_ref(),
            Self::Gathered(bytes) => bytes.as_ref(),
        };
        let mut fields = Fields::of(message.get(PREFIX_BYTES..).unwrap_or_default()).flatten();
        fields.any(|(field, content)| field == 3 && content.number().is_some_and(|ttl| ttl.cast_signed() > 0))
    }

    /// The framed message; empty if the answer had none.
    pub(super) fn into_bytes(self) -> Bytes {
        match self {
            Self::Empty => Bytes::new(),
            Self::Whole(bytes) => bytes,
            Self::Gathered(bytes) => bytes.freeze(),
        }
    }
}

/// Number of bytes in front of a message: one says whether it is compressed, four are its length.
pub(super) const PREFIX_BYTES: usize = 5;

/// The revision in the header of a framed answer: field 1 of every answer, and there field 3; 0 if
/// there is none.
pub(super) fn revision(message: &Bytes) -> u64 {
    let fields = Fields::of(message.get(PREFIX_BYTES..).unwrap_or_default());
    let header = fields.flatten().find_map(|(field, content)| content.bytes().filter(|_| field == 1));
    let mut fields = Fields::of(header.unwrap_or_default()).flatten();
    fields.find_map(|(field, content)| content.number().filter(|_| field == 3)).unwrap_or_default()
}

/// Counts the pairs of a framed `RangeResponse`, or the entities of a `ReadResponse` of the store,
/// without decoding them.
pub(super) fn count_pairs(method: Method, mut message: Bytes) -> u64 {
    const KVS: u32 = 2;
    const ENTITIES: u32 = 4;
    let wanted = if method == Method::StoreRead { ENTITIES } else { KVS };
    if message.len() < PREFIX_BYTES {
        return 0;
    }
    message.advance(PREFIX_BYTES);
    let mut pairs = 0;
    while message.has_remaining() {
        let Ok((field, wire_type)) = prost::encoding::decode_key(&mut message) else { return pairs };
        pairs += u64::from(field == wanted);
        let context = prost::encoding::DecodeContext::default();
        if prost::encoding::skip_field(wire_type, field, &mut message, context).is_err() {
            return pairs;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_proto::pb::etcdserverpb::{RangeResponse, ResponseHeader};
    use headwater_proto::pb::headwater_v1::{Entity, ReadResponse};
    use headwater_proto::pb::mvccpb::KeyValue;
    use prost::Message as _;

    #[test]
    fn pairs_are_counted_in_whole_and_in_pieces() {
        let header = ResponseHeader { cluster_id: u64::MAX, revision: 9, ..Default::default() };
        let kvs = vec![KeyValue { key: "k".into(), value: "v".into(), ..Default::default() }; 3];
        let response = RangeResponse { header: Some(header), kvs, more: true, count: 9 };
        let framed = Bytes::from([&[0, 0, 0, 0, 0][..], &response.encode_to_vec()].concat());
        for size in [1, 2, 7, framed.len()] {
            let mut answer = Answer::default();
            for chunk in framed.chunks(size) {
                answer.push(Bytes::copy_from_slice(chunk));
            }
            let whole = answer.into_bytes();
            assert_eq!(revision(&whole), 9, "pieces of {size}");
            assert_eq!(count_pairs(Method::Range, whole), 3, "pieces of {size}");
        }
        let entities = vec![Entity { path: "/kv/k".to_owned(), ..Default::default() }; 2];
        let read = ReadResponse { index: 9, entities, ..Default::default() };
        let framed = Bytes::from([&[0, 0, 0, 0, 0][..], &read.encode_to_vec()].concat());
        assert_eq!((count_pairs(Method::StoreRead, framed.clone()), count_pairs(Method::Range, framed)), (2, 0));
        let nothing = Answer::default().into_bytes();
        assert_eq!((revision(&nothing), count_pairs(Method::Range, nothing)), (0, 0));
    }

    #[test]
    fn a_lease_without_time_is_gone() {
        let header = Some(ResponseHeader { revision: 9, ..Default::default() });
        for (ttl, is_alive) in [(60, true), (1, true), (0, false), (-1, false)] {
            let response = headwater_proto::pb::etcdserverpb::LeaseKeepAliveResponse { header, id: 7, ttl };
            let mut answer = Answer::default();
            answer.push(Bytes::from([&[0, 0, 0, 0, 0][..], &response.encode_to_vec()].concat()));
            assert_eq!(answer.is_alive(), is_alive, "{ttl}");
        }
        assert!(!Answer::default().is_alive());
    }

    #[test]
    fn messages_are_decoded() {
        for (text, wanted) in [("a%20b", "a b"), ("100%", "100%"), ("%zz", "%zz"), ("%C3%A4", "ä")] {
            assert_eq!(percent_decoded(text), wanted);
        }
    }
}
