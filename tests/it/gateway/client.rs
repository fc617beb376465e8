//! An HTTP client on one connection to a member's client port.

use bytes::{Bytes, BytesMut};
use futures::channel::mpsc;
use futures::stream::{self, StreamExt};
use http::{Method, Request, Response, Version};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::body::Body;

use crate::cluster::within;

/// Values of `Grpc-Timeout` for a stream that must begin before its deadline. Tests try them one
/// after the other until the stream begins.
pub const TIMEOUTS: [&str; 4] = ["500m", "2S", "8S", "30S"];

/// One connection by HTTP/1.1 or HTTP/2. Dropping it ends it, with all requests in flight.
pub struct Connection {
    sender: Sender,
    task: JoinHandle<()>,
}

enum Sender {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>),
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The whole answer to a request.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub json: Value,
}

impl Connection {
    /// Connects to `http://host:port`.
    pub async fn open(url: &str, version: Version) -> Self {
        let address = url.strip_prefix("http://").unwrap();
        let socket = TokioIo::new(within("a member accepts", TcpStream::connect(address)).await.unwrap());
        match version {
            Version::HTTP_11 => {
                let (sender, connection) = http1::handshake(socket).await.unwrap();
                let task = tokio::spawn(async move { drop(connection.await) });
                Self { sender: Sender::One(sender), task }
            }
            Version::HTTP_2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), socket).await.unwrap();
                let task = tokio::spawn(async move { drop(connection.await) });
                Self { sender: Sender::Two(sender), task }
            }
            version => panic!("{version:?}"),
        }
    }

    /// Sends a request and returns the answer as soon as its headers are there.
    pub async fn send(&mut self, request: Request<Body>) -> Response<Incoming> {
        let (mut parts, body) = request.into_parts();
        let answer = async {
            match &mut self.sender {
                Sender::One(sender) => {
                    parts.headers.entry(http::header::HOST).or_insert("member".parse().unwrap());
                    sender.ready().await.unwrap();
                    sender.send_request(Request::from_parts(parts, body)).await
                }
                Sender::Two(sender) => {
                    parts.uri = format!("http://member{}", parts.uri).parse().unwrap();
                    sender.ready().await.unwrap();
                    sender.send_request(Request::from_parts(parts, body)).await
                }
            }
        };
        within("an answer begins", answer).await.unwrap()
    }

    /// Sends one body by POST, with headers, and reads the whole answer, which must be JSON.
    pub async fn post_with(&mut self, path: &str, body: impl Into<Bytes>, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::builder().method(Method::POST).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Body::new(http_body_util::Full::new(body.into()));
        let response = self.send(request.body(body).unwrap()).await;
        let (parts, body) = response.into_parts();
        let text = within("an answer ends", body.collect()).await.unwrap().to_bytes();
        let json = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text:?}"));
        Answer { status: parts.status.as_u16(), headers: parts.headers, json }
    }

    /// Sends a request by GET, with headers; the status and the whole answer as text.
    pub async fn get_with(&mut self, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.send(request.body(Body::empty()).unwrap()).await;
        let (parts, body) = response.into_parts();
        let text = within("an answer ends", body.collect()).await.unwrap().to_bytes();
        (parts.status.as_u16(), String::from_utf8_lossy(&text).into_owned())
    }

    /// As `post_with` without headers.
    pub async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.post_with(path, body, &[]).await
    }

    /// Begins a POST with `first` as the first part of its body. Returns the sender of further
    /// parts, and the answer, which can be read line by line.
    pub async fn stream(&mut self, path: &str, first: &'static str) -> (mpsc::UnboundedSender<Bytes>, Lines) {
        let (requests, queued) = mpsc::unbounded::<Bytes>();
        requests.unbounded_send(first.into()).unwrap();
        let frames = queued.map(|chunk| Ok::<_, Status>(Frame::data(chunk)));
        let request = Request::post(path).body(Body::new(StreamBody::new(frames))).unwrap();
        (requests, Lines::new(self.send(request).await))
    }

    /// Sends a POST with a complete body; the answer can be read line by line.
    pub async fn stream_whole(&mut self, path: &str, body: &'static str, headers: &[(&str, &str)]) -> Lines {
        let frames = stream::iter([Ok::<_, Status>(Frame::data(Bytes::from_static(body.as_bytes())))]);
        let mut request = Request::post(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Lines::new(self.send(request.body(Body::new(StreamBody::new(frames))).unwrap()).await)
    }
}

/// An answer of JSON values, one a line.
pub struct Lines {
    pub status: u16,
    body: Incoming,
    buffer: BytesMut,
}

impl Lines {
    pub fn new(response: Response<Incoming>) -> Self {
        Self { status: response.status().as_u16(), body: response.into_body(), buffer: BytesMut::new() }
    }

    /// The next line; `None` at the end of the answer.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                return Some(serde_json::from_slice(&line).unwrap());
            }
            match within("a line comes", self.body.frame()).await {
                Some(frame) => self.buffer.extend_from_slice(&frame.unwrap().into_data().unwrap()),
                None => {
                    assert!(self.buffer.is_empty(), "the last line has no end: {:?}", self.buffer);
                    return None;
                }
            }
        }
    }

    /// The content of `result` in the next line, which must have it.
    pub async fn result(&mut self) -> Value {
        let line = self.next().await.expect("the stream goes on");
        line.get("result").unwrap_or_else(|| panic!("no result: {line}")).clone()
    }

    /// The content of `error` in the next line, which must be the last one.
    pub async fn error(&mut self) -> Value {
        let line = self.next().await.expect("an error is said");
        assert_eq!(self.next().await, None, "nothing follows an error");
        line.get("error").unwrap_or_else(|| panic!("no error: {line}")).clone()
    }
}

/// The value of a metric of the member at `url`. `name` is as in `/metrics`, with labels if the
/// metric has any (`name{…}`).
pub async fn metric(url: &str, name: &str) -> i64 {
    let mut connection = Connection::open(url, Version::HTTP_11).await;
    let response = connection.send(Request::get("/metrics").body(Body::empty()).unwrap()).await;
    let text = within("metrics", response.into_body().collect()).await.unwrap().to_bytes();
    let text = std::str::from_utf8(&text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' ')));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
}
