//! A right is withdrawn under many streams at once: each watch by that right ends, and delivers no
//! change that was committed after the withdrawal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::join_all;
use futures::stream;
use headwater::pb::authpb;
use headwater::pb::etcdserverpb as pb;
use headwater::pb::etcdserverpb::auth_client::AuthClient;
use headwater::pb::etcdserverpb::kv_client::KvClient;
use headwater::pb::etcdserverpb::watch_client::WatchClient;
use headwater::pb::etcdserverpb::watch_request::RequestUnion;
use headwater::types::LogIndex;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Response, Streaming};

use crate::auth::{by, channel, cluster, enable_auth};
use crate::cluster::{Cluster, Settings, get, put, within};
use crate::watcher::events::{Events, changes, field};

/// The interval of the withdrawn right: from `f` to before `f0`. It has `f` and every key below
/// `f/`.
const WITHDRAWN: (&str, &str) = ("f", "f0");
/// A key to which the user keeps the right.
const KEPT: &str = "u/kept";
/// A key that nobody watches.
const UNWATCHED: &str = "x/unwatched";
/// The reason with which a watch is cancelled.
const DENIED: &str = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
/// Number of writes before the right is withdrawn, meanwhile, and after it: this many each.
const WRITES: usize = 10;
/// Most streams that share a connection.
const STREAMS_PER_CONNECTION: usize = 1000;
/// Number of streams that are being opened at a time.
const OPENING_MAX: usize = 64;
/// Origin of the web page that follows.
const ORIGIN: &str = "http://console.example";

/// A stream with `count` watches of [`WITHDRAWN`], and one last watch of [`KEPT`].
struct Watches {
    /// Keeps the client's side of the stream open.
    _requests: mpsc::Sender<pb::WatchRequest>,
    responses: Streaming<pb::WatchResponse>,
    /// Number of the watches of [`WITHDRAWN`]. Their ids are 0 to `count` - 1; the last watch has
    /// the id `count`.
    count: usize,
    /// The highest revision of a delivered event.
    latest: i64,
}

impl Watches {
    /// Opens a stream, and waits until all its watches have begun.
    async fn open(channel: Channel, token: &str, count: usize) -> Self {
        let (requests, queued) = mpsc::channel(count + 1);
        for (key, range_end) in std::iter::repeat_n(WITHDRAWN, count).chain([(KEPT, "")]) {
            let create = pb::WatchCreateRequest { key: key.into(), range_end: range_end.into(), ..Default::default() };
            let request = pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
            requests.send(request).await.unwrap();
        }
        let watching = WatchClient::new(channel).watch(by(token, ReceiverStream::new(queued))).await;
        let responses = watching.unwrap().into_inner();
        let mut watches = Self { _requests: requests, responses, count, latest: 0 };
        for id in 0..=count {
            let created = watches.next().await;
            assert!(created.created && !created.canceled && created.watch_id == id as i64, "{created:?}");
        }
        watches
    }

    /// Opens `streams` streams at one member, each as [`Self::open`].
    async fn open_all(cluster: &Cluster, member: usize, token: &str, streams: usize, count: usize) -> Vec<Self> {
        let mut channels = Vec::new();
        for _ in 0..streams.div_ceil(STREAMS_PER_CONNECTION) {
            channels.push(channel(cluster, member).await);
        }
        let open = |number: usize| Self::open(channels[number % channels.len()].clone(), token, count);
        stream::iter(0..streams).map(open).buffer_unordered(OPENING_MAX).collect().await
    }

    async fn next(&mut self) -> pb::WatchResponse {
        within("an answer of a watch", self.responses.message()).await.unwrap().expect("the stream stays open")
    }

    /// Records the revisions in one response; returns the number of its events.
    fn note(&mut self, response: &pb::WatchResponse) -> usize {
        let revisions = response.events.iter().map(|event| event.kv.as_ref().unwrap().mod_revision);
        self.latest = revisions.fold(self.latest, i64::max);
        response.events.len()
    }

    /// Reads until `count` events have come. After one write in [`WITHDRAWN`], that is one event of
    /// each of its watches.
    async fn settle(&mut self) {
        let mut seen = 0;
        while seen < self.count {
            let response = self.next().await;
            assert!(!response.created && !response.canceled, "{response:?}");
            seen += self.note(&response);
        }
    }

    /// Reads until each watch of [`WITHDRAWN`] was cancelled for lack of the right; returns the
    /// time of the last cancellation.
    async fn until_ended(&mut self) -> Instant {
        let mut has_ended = vec![false; self.count];
        while !has_ended.iter().all(|ended| *ended) {
            let response = self.next().await;
            let ended = &mut has_ended[usize::try_from(response.watch_id).unwrap()];
            assert!(!*ended, "an ended watch shows something: {response:?}");
            if response.canceled {
                assert!(response.events.is_empty() && response.cancel_reason == DENIED, "{response:?}");
                *ended = true;
            }
            self.note(&response);
        }
        Instant::now()
    }

    /// Asserts that the next response is one event of the watch of [`KEPT`].
    async fn shows_kept(&mut self) {
        let response = self.next().await;
        assert_eq!((response.watch_id, response.events.len()), (self.count as i64, 1), "{response:?}");
    }
}

/// A web page of another origin that follows the subtree of [`WITHDRAWN`].
struct Page {
    events: Events,
    /// The highest `modRevision` that it has received.
    latest: i64,
}

impl Page {
    async fn open(cluster: &Cluster, member: usize, token: &str) -> Self {
        let url = cluster.client_url(member);
        let bearer = format!("Bearer {token}");
        // A browser sends these, and the page the authorization.
        let headers = [
            ("host", url.trim_start_matches("http://")),
            ("origin", ORIGIN),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "cors"),
            ("accept-language", "en"),
            ("user-agent", "Mozilla/5.0"),
            ("authorization", bearer.as_str()),
        ];
        let target = format!("/kv/{}?recursive=true", WITHDRAWN.0);
        let events = Events::open(&url, &target, &headers).await.unwrap();
        assert_eq!(events.headers["access-control-allow-origin"], ORIGIN, "the page may read the answer");
        Self { events, latest: 0 }
    }

    /// The fields of the next block, and the changes in it. Records their revisions.
    async fn next(&mut self) -> (Vec<(String, String)>, Vec<Value>) {
        let block = self.events.block().await.expect("a stream says why it ends");
        let changes = changes(&block);
        let revisions = changes.iter().filter_map(|change| change["data"]["modRevision"].as_str());
        self.latest = revisions.map(|revision| revision.parse::<i64>().unwrap()).fold(self.latest, i64::max);
        (block, changes)
    }

    /// Reads until a change of this element has come.
    async fn settle(&mut self, element: &str) {
        while !self.next().await.1.iter().any(|change| change["element"] == element) {}
    }

    /// Reads to the end of the stream, and asserts that it ends for lack of the right. Returns the
    /// time of the end.
    async fn until_ended(&mut self) -> Instant {
        let end = loop {
            let (block, _) = self.next().await;
            if field(&block, "event") == "end" {
                break block;
            }
        };
        let ended = Instant::now();
        let reason: Value = serde_json::from_str(field(&end, "data")).unwrap();
        assert_eq!(reason["code"], Code::PermissionDenied as i32, "{reason}");
        assert_eq!(self.events.block().await, None, "nothing follows the end");
        ended
    }
}

/// The log index in an answer (`headwater-index`): that of the command that it answers.
fn index_of<T>(answer: &Response<T>) -> LogIndex {
    LogIndex(answer.metadata().get("headwater-index").unwrap().to_str().unwrap().parse().unwrap())
}

/// Enables authentication, gives the user `u` the right to read [`WITHDRAWN`], and waits until
/// `member` has applied that. Returns the tokens of root and of `u`.
async fn grant(cluster: &Cluster, member: usize) -> (String, String) {
    let (root, user) = enable_auth(cluster).await;
    let perm_type = authpb::permission::Type::Read.into();
    let (key, range_end) = WITHDRAWN;
    let perm = authpb::Permission { perm_type, key: key.into(), range_end: range_end.into() };
    let grant = pb::AuthRoleGrantPermissionRequest { name: "u".to_owned(), perm: Some(perm) };
    AuthClient::new(channel(cluster, 0).await).role_grant_permission(by(&root, grant)).await.unwrap();
    cluster.kv(member).range(by(&user, get(WITHDRAWN.0))).await.unwrap();
    (root, user)
}

/// Withdraws the right to read [`WITHDRAWN`]; returns the log index of the command.
async fn withdraw(auth: &mut AuthClient<Channel>, root: &str) -> LogIndex {
    let (key, range_end) = WITHDRAWN;
    let revoke =
        pb::AuthRoleRevokePermissionRequest { role: "u".to_owned(), key: key.into(), range_end: range_end.into() };
    index_of(&auth.role_revoke_permission(by(root, revoke)).await.unwrap())
}

/// Writes `count` keys in [`WITHDRAWN`], one after the other; returns the log index and the
/// revision of each write.
async fn write(kv: &mut KvClient<Channel>, root: &str, count: usize) -> Vec<(LogIndex, i64)> {
    let mut written = Vec::new();
    for number in 0..count {
        let answer = kv.put(by(root, put(format!("{}/{number}", WITHDRAWN.0), "v"))).await.unwrap();
        written.push((index_of(&answer), answer.into_inner().header.unwrap().revision));
    }
    written
}

/// Waits for [`Watches::until_ended`] of every stream; returns the streams, and the time of the
/// last cancellation.
async fn all_ended(streams: Vec<Watches>) -> (Vec<Watches>, Instant) {
    let readers = streams.into_iter().map(|mut watches| {
        tokio::spawn(async move {
            let ended = watches.until_ended().await;
            (watches, ended)
        })
    });
    let readers: Vec<_> = readers.collect();
    let ended: Vec<_> = join_all(readers).await.into_iter().map(Result::unwrap).collect();
    let last = ended.iter().map(|(_, ended)| *ended).max().expect("there are streams");
    (ended.into_iter().map(|(watches, _)| watches).collect(), last)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_watches_and_a_page_end_with_their_right() {
    let mut cluster = cluster(Settings::calm()).await;
    let member = cluster.follower().await;
    cluster.crash(member).await;
    cluster.browsers.allowed_origins.push(ORIGIN.to_owned());
    cluster.restart(member).await;
    cluster.wait_healthy().await;
    let (root, user) = grant(&cluster, member).await;
    let mut streams = Watches::open_all(&cluster, member, &user, 10, 100).await;
    let mut page = Page::open(&cluster, member, &user).await;
    let mut kv = cluster.kv(cluster.leader().await);
    let settled = write(&mut kv, &root, 1).await[0].1;
    join_all(streams.iter_mut().map(Watches::settle)).await;
    page.settle("0").await;

    let mut auth = AuthClient::new(channel(&cluster, 0).await);
    let reading = tokio::spawn(all_ended(streams));
    let work = async {
        let mut written = write(&mut kv, &root, WRITES).await;
        let began = Instant::now();
        let (withdrawn, meanwhile) = tokio::join!(withdraw(&mut auth, &root), write(&mut kv, &root, WRITES));
        written.extend(meanwhile);
        written.extend(write(&mut kv, &root, WRITES).await);
        (withdrawn, written, began)
    };
    let ((withdrawn, written, began), page_ended) = tokio::join!(work, page.until_ended());
    let (mut streams, watches_ended) = reading.await.unwrap();
    let took = |ended: Instant| ended.saturating_duration_since(began);
    eprintln!("the watches ended after {:?}, the page after {:?}", took(watches_ended), took(page_ended));

    // Events may come up to the last write before the withdrawal, and none after it.
    let is_before = |(index, _): &&(LogIndex, i64)| *index < withdrawn;
    let (_, last_before) = *written.iter().rfind(is_before).expect("some writes came before");
    assert!(written.last().unwrap().0 > withdrawn, "some writes came after");
    let latest = streams.iter().map(|watches| watches.latest).chain([page.latest]);
    for latest in latest {
        assert!((settled..=last_before).contains(&latest), "{latest} is not in {settled}..={last_before}");
    }
    // The streams go on with the right that is left.
    kv.put(by(&root, put(KEPT, "v"))).await.unwrap();
    join_all(streams.iter_mut().map(Watches::shows_kept)).await;
}

/// The longest time of `count` puts, one after the other, of a key that no stream watches.
async fn longest_put(kv: &mut KvClient<Channel>, root: &str, count: usize) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..count {
        let began = Instant::now();
        kv.put(by(root, put(UNWATCHED, "v"))).await.unwrap();
        longest = longest.max(began.elapsed());
    }
    longest
}

/// Measures the time from the answer to the withdrawal of a right to the cancellation of the last
/// of 10,000 watches, each on a stream of its own at one member, and the longest put of another
/// client of that member meanwhile. The three members and all clients are in this process, so the
/// figures are upper bounds. On a machine that does nothing else, with the optimisation of
/// `cargo optimised`:
///
/// ```sh
/// cargo test --locked --workspace --test it \
///     --config profile.dev.opt-level=3 --config profile.dev.incremental=false --config profile.dev.codegen-units=16 \
///     -- --ignored --nocapture ten_thousand_streams
/// ```
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures"]
async fn ten_thousand_streams_end_while_another_client_writes() {
    const STREAMS: usize = 10_000;
    let cluster = cluster(Settings::calm()).await;
    let member = cluster.follower().await;
    let (root, user) = grant(&cluster, member).await;
    let mut streams = Watches::open_all(&cluster, member, &user, STREAMS, 1).await;
    write(&mut cluster.kv(member), &root, 1).await;
    join_all(streams.iter_mut().map(Watches::settle)).await;
    let before = longest_put(&mut cluster.kv(member), &root, 1000).await;

    let is_over = Arc::new(AtomicBool::new(false));
    let (mut kv, other, ends) = (cluster.kv(member), root.clone(), Arc::clone(&is_over));
    let writing = tokio::spawn(async move {
        let mut longest = Duration::ZERO;
        while !ends.load(Ordering::Relaxed) {
            longest = longest.max(longest_put(&mut kv, &other, 1).await);
        }
        longest
    });
    let mut auth = AuthClient::new(channel(&cluster, 0).await);
    let reading = tokio::spawn(all_ended(streams));
    let began = Instant::now();
    withdraw(&mut auth, &root).await;
    let withdrawn = Instant::now();
    let (streams, last) = reading.await.unwrap();
    is_over.store(true, Ordering::Relaxed);
    let meanwhile = within("the other client ends", writing).await.unwrap();
    println!(
        "{} streams: the last one ended {:?} after the withdrawal was answered, which took {:?}",
        streams.len(),
        last.saturating_duration_since(withdrawn),
        withdrawn - began,
    );
    println!("longest put of another client: {meanwhile:?} meanwhile, {before:?} before");
}
