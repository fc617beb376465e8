//! A client's stream of etcd's watch for tests.

use std::time::Duration;

use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::watch_client::WatchClient;
use headwater::pb::etcdserverpb::watch_request::RequestUnion;
use headwater::pb::mvccpb::{Event, event::EventType};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};

/// Longest wait for a response: longer than it takes on a loaded machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// An open watch stream, with any number of watchers.
pub struct Stream {
    requests: mpsc::Sender<pb::WatchRequest>,
    responses: Streaming<pb::WatchResponse>,
}

/// A request for a watcher of one key.
pub fn key(key: impl Into<String>) -> pb::WatchCreateRequest {
    pb::WatchCreateRequest { key: key.into().into(), ..Default::default() }
}

/// A request for a watcher of all keys with this prefix. It must not end in 0xff.
pub fn prefix(prefix: impl Into<String>) -> pb::WatchCreateRequest {
    let prefix = prefix.into().into_bytes();
    let mut end = prefix.clone();
    *end.last_mut().expect("not empty") += 1;
    pb::WatchCreateRequest { key: prefix.into(), range_end: end.into(), ..Default::default() }
}

/// A request for a watcher of all keys.
pub fn everything() -> pb::WatchCreateRequest {
    pb::WatchCreateRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() }
}

impl Stream {
    /// Opens a stream at the member with this URL.
    pub async fn open(url: &str) -> Result<Self, Status> {
        Self::open_with(url, false).await
    }

    /// As `open`; `requires_leader` sets the metadata `hasleader`.
    pub async fn open_with(url: &str, requires_leader: bool) -> Result<Self, Status> {
        let endpoint = tonic::transport::Endpoint::from_shared(url.to_owned()).unwrap().connect_timeout(TIMEOUT);
        let channel = endpoint.connect().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let (requests, queued) = mpsc::channel(64);
        let mut request = Request::new(ReceiverStream::new(queued));
        if requires_leader {
            request.metadata_mut().insert("hasleader", "true".parse().unwrap());
        }
        let mut client = WatchClient::new(channel).max_decoding_message_size(usize::MAX);
        let opening = tokio::time::timeout(TIMEOUT, client.watch(request));
        let responses = opening.await.expect("a stream opens in time")?.into_inner();
        Ok(Self { requests, responses })
    }

    async fn send(&self, union: RequestUnion) {
        // If the server has ended the stream, the next read returns the status.
        let _gone = self.requests.send(pb::WatchRequest { request_union: Some(union) }).await.is_err();
    }

    /// Closes the client's side: no more requests can be sent.
    pub fn close(&mut self) {
        (self.requests, _) = mpsc::channel(1);
    }

    /// Requests a watcher, and does not wait for the answer.
    pub async fn ask(&self, request: pb::WatchCreateRequest) {
        self.send(RequestUnion::CreateRequest(request)).await;
    }

    /// Creates a watcher, and returns the answer, which must be the next response.
    pub async fn create(&mut self, request: pb::WatchCreateRequest) -> pb::WatchResponse {
        self.ask(request).await;
        let created = self.next().await;
        assert!(created.created && created.events.is_empty(), "{created:?}");
        created
    }

    pub async fn cancel(&self, watch_id: i64) {
        self.send(RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id })).await;
    }

    pub async fn ask_progress(&self) {
        self.send(RequestUnion::ProgressRequest(pb::WatchProgressRequest {})).await;
    }

    /// The next response; `None` or an error at the end of the stream.
    pub async fn try_next(&mut self) -> Result<Option<pb::WatchResponse>, Status> {
        tokio::time::timeout(TIMEOUT, self.responses.message()).await.expect("a response in time")
    }

    /// The next response. Panics at the end of the stream.
    pub async fn next(&mut self) -> pb::WatchResponse {
        self.try_next().await.unwrap().expect("the stream is open")
    }

    /// The next `count` events, over several responses. Panics at any other response, and if the
    /// last one has more events than wanted.
    pub async fn events(&mut self, count: usize) -> Vec<Event> {
        let mut events = Vec::new();
        while events.len() < count {
            let response = self.next().await;
            assert!(!response.created && !response.canceled && !response.events.is_empty(), "{response:?}");
            events.extend(response.events);
        }
        assert_eq!(events.len(), count);
        events
    }

    /// Sends progress requests until one is answered, and reads the answers to all of them. Returns
    /// the other responses before, and the revision of the last answer.
    pub async fn until_progress(&mut self) -> (Vec<pb::WatchResponse>, i64) {
        let (mut before, mut asked, mut answered, mut revision) = (Vec::new(), 0, 0, 0);
        while answered == 0 {
            self.ask_progress().await;
            asked += 1;
            // Until every request is answered, or silence shows that the server dropped the others.
            while answered < asked
                && let Ok(response) = tokio::time::timeout(ASK_AGAIN, self.next()).await
            {
                if response.watch_id == -1 && response.events.is_empty() && !response.created {
                    (answered, revision) = (answered + 1, response.header.unwrap().revision);
                } else {
                    before.push(response);
                }
            }
        }
        (before, revision)
    }
}

/// Time without a response after which a progress request is repeated: while a watcher catches up,
/// the server drops such requests silently.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The events as text: `+KEY=VALUE@REVISION` or `-KEY@REVISION`, and `<VALUE` with the previous
/// value, if the event has it.
pub fn show(events: &[Event]) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let show = |event: &Event| {
        let kv = event.kv.as_ref().expect("every event has a pair");
        let before = event.prev_kv.as_ref().map(|kv| format!("<{}", text(&kv.value))).unwrap_or_default();
        match event.r#type() {
            EventType::Put => format!("+{}={}@{}{before}", text(&kv.key), text(&kv.value), kv.mod_revision),
            EventType::Delete => format!("-{}@{}{before}", text(&kv.key), kv.mod_revision),
        }
    };
    events.iter().map(show).collect()
}
