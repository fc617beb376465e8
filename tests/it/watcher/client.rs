//! A follower of `google.watcher.v1` for tests, over both transports.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use headwater::pb::google::watcher::v1 as pb;
use headwater::pb::mvccpb::KeyValue;
use http::{Method, Request, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use prost::Message;
use serde_json::Value;
use tonic::body::Body;
use tonic::{Code, Status, Streaming};

use crate::cluster::within;
use crate::gateway::client::Connection;

/// Time without a change after which a stream counts as silent.
pub const SILENCE: Duration = Duration::from_millis(150);

/// The transport of a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    Grpc,
    Http,
}

pub const BOTH: [Via; 2] = [Via::Grpc, Via::Http];

/// One received change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub element: String,
    /// The state, by its name in the proto.
    pub state: String,
    pub marker: Vec<u8>,
    pub continued: bool,
    /// Full name of the message in `data`; `None` without data.
    pub type_: Option<String>,
    /// The value in `data`, if that is a key (`mvccpb.KeyValue`); else `None`.
    pub value: Option<Vec<u8>>,
}

impl Seen {
    fn of_pb(change: pb::Change) -> Self {
        let state = change.state().as_str_name().to_owned();
        let type_ = change.data.as_ref().map(|any| any.type_url.rsplit('/').next().unwrap().to_owned());
        let is_kv = type_.as_deref() == Some("mvccpb.KeyValue");
        let value = change.data.filter(|_| is_kv).map(|any| KeyValue::decode(&any.value[..]).unwrap().value.to_vec());
        Self {
            element: change.element,
            state,
            marker: change.resume_marker.to_vec(),
            continued: change.continued,
            type_,
            value,
        }
    }

    fn of_json(change: &Value) -> Self {
        // Fields with default values are left out.
        for (name, value) in change.as_object().unwrap() {
            let default = match name.as_str() {
                "element" | "resumeMarker" => Value::from(""),
                "state" => Value::from("EXISTS"),
                "continued" => Value::from(false),
                "data" => Value::Null,
                _ => panic!("{name} is no field of a change"),
            };
            assert_ne!(*value, default, "{change}");
        }
        let text = |name: &str| change.get(name).map(|text| text.as_str().unwrap().to_owned());
        let type_ =
            change.get("data").map(|data| data["@type"].as_str().unwrap().rsplit('/').next().unwrap().to_owned());
        let value = |data: &Value| STANDARD.decode(data["value"].as_str().unwrap_or_default()).unwrap();
        let is_kv = type_.as_deref() == Some("mvccpb.KeyValue");
        Self {
            element: text("element").unwrap_or_default(),
            state: text("state").unwrap_or("EXISTS".to_owned()),
            marker: STANDARD.decode(text("resumeMarker").unwrap_or_default()).unwrap(),
            continued: change.get("continued").is_some_and(|it| it.as_bool().unwrap()),
            value: change.get("data").filter(|_| is_kv).map(value),
            type_,
        }
    }

    /// The change in the notation of the spec, such as `C(a,E,7,m)`.
    pub fn show(&self) -> String {
        let state = match self.state.as_str() {
            "EXISTS" => "E",
            "DOES_NOT_EXIST" => "X",
            "INITIAL_STATE_SKIPPED" => "S",
            other => other,
        };
        let data = match (&self.type_, &self.value) {
            (_, Some(value)) => format!(",{}", String::from_utf8_lossy(value)),
            (Some(type_), None) => format!(",{}", type_.rsplit('.').next().unwrap()),
            (None, None) => String::new(),
        };
        // A change either is continued or has a marker, never both.
        let end = match (self.continued, self.marker.is_empty()) {
            (true, true) => ",+",
            (false, false) => ",m",
            _ => ",?",
        };
        format!("C({},{state}{data}{end})", self.element)
    }
}

pub fn show(seen: &[Seen]) -> Vec<String> {
    seen.iter().map(Seen::show).collect()
}

enum Source {
    Grpc(Box<Streaming<pb::ChangeBatch>>),
    Http(Box<(Connection, Incoming, Vec<u8>)>),
}

/// An open stream of a follower.
pub struct Follower {
    source: Source,
    ready: VecDeque<Seen>,
    /// Number of messages (`ChangeBatch`) received so far.
    pub batches: usize,
}

pub fn encode(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// A client of `google.watcher.v1` over gRPC, for the member with this URL.
pub async fn grpc(url: &str) -> pb::watcher_client::WatcherClient<tonic::transport::Channel> {
    let endpoint = tonic::transport::Endpoint::from_shared(url.to_owned()).unwrap();
    let channel = within("a member accepts", endpoint.connect()).await.unwrap();
    pb::watcher_client::WatcherClient::new(channel).max_decoding_message_size(usize::MAX)
}

impl Follower {
    pub async fn open(url: &str, via: Via, target: &str, marker: &[u8]) -> Result<Self, Status> {
        let source = match via {
            Via::Grpc => {
                let request = pb::Request { target: target.to_owned(), resume_marker: marker.to_vec().into() };
                let mut client = grpc(url).await;
                Source::Grpc(Box::new(within("a stream begins", client.watch(request)).await?.into_inner()))
            }
            Via::Http => {
                let mut connection = Connection::open(url, Version::HTTP_11).await;
                let marker = encode(&STANDARD.encode(marker));
                let path = format!("/v1/watch?target={}&resume_marker={marker}", encode(target));
                let request = Request::builder().method(Method::GET).uri(path).body(Body::empty()).unwrap();
                let response = connection.send(request).await;
                if response.status() != 200 {
                    let status = response.status().as_u16();
                    let body = within("an answer ends", response.into_body().collect()).await.unwrap().to_bytes();
                    let body: Value = serde_json::from_slice(&body).unwrap();
                    let code = Code::from(body["code"].as_i64().unwrap() as i32);
                    assert_eq!(status, http_status(code), "{body}");
                    return Err(Status::new(code, body["message"].as_str().unwrap()));
                }
                assert_eq!(response.headers()["content-type"], "application/json");
                Source::Http(Box::new((connection, response.into_body(), Vec::new())))
            }
        };
        Ok(Self { source, ready: VecDeque::new(), batches: 0 })
    }

    /// The changes of the next message; `None` or an error at the end of the stream.
    async fn batch(&mut self) -> Result<Option<Vec<Seen>>, Status> {
        match &mut self.source {
            Source::Grpc(batches) => {
                let batch = batches.message().await?;
                Ok(batch.map(|batch| batch.changes.into_iter().map(Seen::of_pb).collect()))
            }
            Source::Http(parts) => {
                let (_, body, buffer) = &mut **parts;
                loop {
                    if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                        let line: Vec<u8> = buffer.drain(..=end).collect();
                        let line: Value = serde_json::from_slice(&line).unwrap();
                        if let Some(error) = line.get("error") {
                            let code = Code::from(error["grpc_code"].as_i64().unwrap() as i32);
                            return Err(Status::new(code, error["message"].as_str().unwrap()));
                        }
                        let changes = line["result"].get("changes").map(|it| it.as_array().unwrap().clone());
                        return Ok(Some(changes.unwrap_or_default().iter().map(Seen::of_json).collect()));
                    }
                    match body.frame().await {
                        Some(frame) => {
                            let frame = frame.map_err(|error| Status::unavailable(error.to_string()))?;
                            buffer.extend_from_slice(&frame.into_data().unwrap());
                        }
                        None => return Ok(None),
                    }
                }
            }
        }
    }

    /// The next change; `None` or an error at the end of the stream.
    pub async fn try_next(&mut self) -> Result<Option<Seen>, Status> {
        loop {
            if let Some(seen) = self.ready.pop_front() {
                return Ok(Some(seen));
            }
            match within("a change comes", self.batch()).await? {
                Some(changes) => {
                    self.batches += 1;
                    self.ready.extend(changes);
                }
                None => return Ok(None),
            }
        }
    }

    /// The changes of the next atomic group.
    pub async fn group(&mut self) -> Vec<Seen> {
        let mut group = Vec::new();
        loop {
            let seen = self.try_next().await.unwrap().expect("the stream goes on");
            let goes_on = seen.continued;
            group.push(seen);
            if !goes_on {
                return group;
            }
        }
    }

    /// Asserts that the next group has exactly these changes, as [`Seen::show`]; returns its
    /// marker.
    #[track_caller]
    pub fn expect<'a>(&'a mut self, wanted: &'a [&'a str]) -> impl Future<Output = Vec<u8>> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let group = self.group().await;
            assert_eq!(show(&group), wanted, "at {caller}");
            group.last().unwrap().marker.clone()
        }
    }

    /// Asserts that no change comes for [`SILENCE`].
    #[track_caller]
    pub fn silent(&mut self) -> impl Future<Output = ()> + '_ {
        let caller = std::panic::Location::caller();
        async move {
            assert_eq!(show(self.ready.make_contiguous()), [""; 0], "at {caller}");
            let until = tokio::time::Instant::now() + SILENCE;
            // An empty message is a heartbeat, no change.
            while let Ok(batch) = tokio::time::timeout_at(until, self.batch()).await {
                assert!(matches!(&batch, Ok(Some(changes)) if changes.is_empty()), "not silent at {caller}: {batch:?}");
            }
        }
    }
}

fn http_status(code: Code) -> u16 {
    match code {
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => 400,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
        Code::ResourceExhausted => 429,
        other => panic!("no case has {other:?}"),
    }
}

/// The state that a client keeps: it applies whole groups, and asserts the promises of the
/// watcher's specification.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The existing elements; `Some` for those that are keys, with the value.
    pub elements: BTreeMap<String, Option<Vec<u8>>>,
    pub marker: Vec<u8>,
    pending: Vec<Seen>,
}

impl View {
    /// Takes the next change. At the end of a group, applies the group and returns true.
    pub fn take(&mut self, seen: Seen) -> bool {
        assert!(
            seen.continued == seen.marker.is_empty(),
            "a marker stands at the end of a group and nowhere else: {seen:?}"
        );
        let closes = !seen.continued;
        self.pending.push(seen);
        if closes {
            self.marker = self.pending.last().unwrap().marker.clone();
            for seen in std::mem::take(&mut self.pending) {
                self.apply(seen);
            }
        }
        closes
    }

    fn apply(&mut self, seen: Seen) {
        match seen.state.as_str() {
            "EXISTS" => {
                if let Some((parent, _)) = seen.element.rsplit_once('/') {
                    assert!(self.elements.contains_key(parent), "{} came before what it is below", seen.element);
                } else if !seen.element.is_empty() {
                    assert!(self.elements.contains_key(""), "{} came before the entity itself", seen.element);
                }
                self.elements.insert(seen.element, seen.value);
            }
            "DOES_NOT_EXIST" => {
                let below = |name: &String| {
                    seen.element.is_empty()
                        || name.strip_prefix(&seen.element).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                self.elements.retain(|name, _| !below(name));
            }
            other => panic!("{other} in the midst of a stream"),
        }
    }

    /// Drops an incomplete group after the end of a stream.
    pub fn cut_off(&mut self) {
        self.pending.clear();
    }
}
