//! Views against a scripted server, with Tokio's clock paused: it advances only when all tasks
//! wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use tonic::{Code, Status};

use super::{
    EventSource, MaterializedView, Names, Opened, ServiceHealth, ServiceList, Shown, StoreOptions, View, ViewError,
    ViewStore,
};
use headwater_proto::pb::pbservice::{CheckServiceNode, HealthCheck, Node, NodeService};
use headwater_proto::pb::subscribe::event::Payload;
use headwater_proto::pb::subscribe::{
    CatalogOp, Event, EventBatch, ServiceHealthUpdate, ServiceListUpdate, SubscribeRequest,
};

/// Answer of the server to an attempt.
enum Answer {
    Refuse(Code),
    Open(Option<&'static str>, UnboundedReceiver<Result<Event, Status>>),
}

/// One attempt as the server saw it.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    index: u64,
    epoch: Option<String>,
    /// Index of the shown state; 0 without one.
    shown: u64,
    after: Duration,
    endpoint: usize,
}

#[derive(Clone)]
struct Server {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    endpoint: Arc<Mutex<usize>>,
    endpoints: usize,
    began: Instant,
}

impl Server {
    fn new(endpoints: usize) -> Self {
        let (answers, asked, endpoint) = Default::default();
        Self { answers, asked, endpoint, endpoints, began: Instant::now() }
    }

    fn refuses(&self, code: Code) {
        self.answers.lock().push_back(Answer::Refuse(code));
    }

    /// Adds a stream to the script, as the answer to a later attempt. Returns the server's end of
    /// it.
    fn opens(&self, epoch: Option<&'static str>) -> Feed {
        let (sender, receiver) = unbounded_channel();
        self.answers.lock().push_back(Answer::Open(epoch, receiver));
        Feed(sender)
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }

    fn indexes(&self) -> Vec<u64> {
        self.asked().iter().map(|asked| asked.index).collect()
    }
}

impl EventSource for Server {
    fn subscribe(&self, request: SubscribeRequest, shown: Option<Shown>) -> BoxFuture<'static, Result<Opened, Status>> {
        let endpoint = *self.endpoint.lock();
        let (epoch, shown) = shown.map(|shown| (shown.epoch, shown.index)).unzip();
        let after = self.began.elapsed();
        self.asked.lock().push(Asked { index: request.index, epoch, shown: shown.unwrap_or(0), after, endpoint });
        let answer = self.answers.lock().pop_front();
        Box::pin(async move {
            match answer {
                Some(Answer::Open(epoch, mut events)) => {
                    let events = stream::poll_fn(move |cx| events.poll_recv(cx)).boxed();
                    Ok(Opened { epoch: epoch.map(str::to_owned), events })
                }
                Some(Answer::Refuse(code)) => Err(Status::new(code, "refused")),
                // The script has ended.
                None => std::future::pending().await,
            }
        })
    }

    fn fail_over(&self) {
        let mut endpoint = self.endpoint.lock();
        *endpoint = (*endpoint + 1) % self.endpoints;
    }

    fn endpoints(&self) -> usize {
        self.endpoints
    }
}

/// The server's end of a stream. The stream ends when this is dropped.
struct Feed(UnboundedSender<Result<Event, Status>>);

impl Feed {
    fn send(&self, index: u64, payload: Payload) {
        self.0.send(Ok(Event { index, payload: Some(payload) })).unwrap();
    }

    fn snapshot(&self, index: u64, names: &[&str]) {
        names.iter().for_each(|name| self.send(index, named(CatalogOp::Register, name)));
        self.send(index, Payload::EndOfSnapshot(true));
    }

    fn fails(self, code: Code) {
        self.0.send(Err(Status::new(code, "failed"))).unwrap();
    }
}

fn named(op: CatalogOp, name: &str) -> Payload {
    Payload::Service(ServiceListUpdate { op: op.into(), name: name.to_owned(), ..Default::default() })
}

fn batch(index: u64, payloads: Vec<Payload>) -> Payload {
    let event = |payload| Event { index, payload: Some(payload) };
    Payload::EventBatch(EventBatch { events: payloads.into_iter().map(event).collect() })
}

fn names(view: &View<Names>) -> Vec<&str> {
    view.state.iter().map(String::as_str).collect()
}

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn nothing_is_visible_before_the_snapshot_is_complete() {
    let server = Server::new(1);
    let feed = server.opens(None);
    let view = MaterializedView::start(ServiceList, server.clone());
    feed.send(5, named(CatalogOp::Register, "a"));
    assert!(matches!(view.query(0, SHORT).await, Err(ViewError::NotLoaded)), "no empty answer instead");
    assert!(view.latest().is_none());
    feed.snapshot(5, &["b"]);
    let first = view.query(0, SHORT).await.unwrap();
    assert_eq!((first.index, names(&first), first.is_stale), (5, vec!["a", "b"], false));
    // The same index again: the query waits, and then shows the present state.
    let began = Instant::now();
    let same = view.query(5, SHORT).await.unwrap();
    assert_eq!((same.index, began.elapsed()), (5, SHORT));
    // A commit becomes visible as a whole.
    let waiting = tokio::spawn({
        let view = view.clone();
        async move { view.query(5, LONG).await }
    });
    let changes = vec![named(CatalogOp::Deregister, "a"), named(CatalogOp::Register, "c")];
    feed.send(6, batch(6, changes));
    let second = waiting.await.unwrap().unwrap();
    assert_eq!((second.index, names(&second)), (6, vec!["b", "c"]));
    assert_eq!(names(&first), ["a", "b"], "what was handed out stays as it was");
}

#[tokio::test(start_paused = true)]
async fn a_broken_stream_goes_on_where_it_was_at_the_next_endpoint() {
    let server = Server::new(3);
    let feed = server.opens(Some("e1"));
    let view = MaterializedView::start(ServiceList, server.clone());
    feed.snapshot(5, &["a"]);
    feed.send(7, named(CatalogOp::Register, "b"));
    assert_eq!(view.query(5, SHORT).await.unwrap().index, 7);
    server.refuses(Code::Unavailable);
    let next = server.opens(Some("e1"));
    feed.fails(Code::Unavailable);
    // One failure of each endpoint is not reported to callers.
    let waiting = view.query(7, LONG);
    next.send(9, named(CatalogOp::Deregister, "a"));
    let after = waiting.await.unwrap();
    assert_eq!((after.index, names(&after), after.is_stale), (9, vec!["b"], false));
    let asked = server.asked();
    assert_eq!(server.indexes(), [0, 7, 7]);
    assert_eq!(asked.iter().map(|asked| asked.endpoint).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(asked[1].epoch.as_deref(), Some("e1"), "an index is told with its lineage");
    assert_eq!((asked[0].epoch.as_deref(), asked[1].after), (None, Duration::ZERO), "the first retry is at once");
    let pause = asked[2].after - asked[1].after;
    assert!(pause >= Duration::from_millis(200) && pause <= Duration::from_millis(402), "{pause:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lineage_that_is_learned_late_is_told_from_then_on() {
    let server = Server::new(3);
    let feed = server.opens(None);
    let view = MaterializedView::start(ServiceList, server.clone());
    feed.snapshot(5, &["a"]);
    view.query(0, SHORT).await.unwrap();
    let next = server.opens(Some("e1"));
    feed.fails(Code::Unavailable);
    next.send(6, named(CatalogOp::Register, "b"));
    assert_eq!(view.query(5, LONG).await.unwrap().index, 6);
    let last = server.opens(Some("e1"));
    next.fails(Code::Unavailable);
    last.send(7, named(CatalogOp::Register, "c"));
    assert_eq!(view.query(6, LONG).await.unwrap().index, 7);
    let sent: Vec<_> = server.asked().into_iter().map(|asked| (asked.index, asked.epoch)).collect();
    assert_eq!(sent, [(0, None), (5, None), (6, Some("e1".to_owned()))]);
}

#[tokio::test(start_paused = true)]
async fn the_old_view_stays_until_the_new_snapshot_is_complete() {
    let server = Server::new(2);
    let feed = server.opens(Some("e1"));
    let view = MaterializedView::start(ServiceList, server.clone());
    feed.snapshot(50, &["a", "b"]);
    view.query(0, SHORT).await.unwrap();
    let next = server.opens(Some("e2"));
    feed.fails(Code::Unavailable);
    next.send(0, Payload::NewSnapshotToFollow(true));
    next.send(20, named(CatalogOp::Register, "c"));
    let old = view.query(0, SHORT).await.unwrap();
    // The old state is shown, marked as stale once the announcement has been received.
    tokio::time::sleep(SHORT).await;
    let stale = view.latest().unwrap();
    assert_eq!((names(&old), names(&stale), stale.is_stale), (vec!["a", "b"], vec!["a", "b"], true));
    // The new state is of a lower index, that of another store: waiting callers get it at once.
    let waiting = tokio::spawn({
        let view = view.clone();
        async move { view.query(50, LONG).await }
    });
    tokio::time::sleep(SHORT).await;
    next.send(20, Payload::EndOfSnapshot(true));
    let new = waiting.await.unwrap().unwrap();
    assert_eq!((new.index, names(&new), new.is_stale), (20, vec!["c"], false));
    // The next attempt resumes from there, in the new lineage.
    next.fails(Code::Unavailable);
    tokio::time::sleep(SHORT).await;
    let last = server.asked().pop().unwrap();
    assert_eq!((last.index, last.epoch.as_deref()), (20, Some("e2")));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_was_aborted_begins_anew_and_one_such_is_invisible() {
    let server = Server::new(1);
    let feed = server.opens(Some("e1"));
    let view = MaterializedView::start(ServiceList, server.clone());
    feed.snapshot(5, &["a"]);
    view.query(0, SHORT).await.unwrap();
    let next = server.opens(Some("e1"));
    feed.fails(Code::Aborted);
    let waiting = tokio::spawn({
        let view = view.clone();
        async move { view.query(5, LONG).await }
    });
    tokio::time::sleep(SHORT).await;
    let meanwhile = view.latest().unwrap();
    assert_eq!((names(&meanwhile), meanwhile.is_stale), (vec!["a"], true));
    next.snapshot(8, &["b"]);
    let new = waiting.await.unwrap().unwrap();
    assert_eq!((new.index, names(&new)), (8, vec!["b"]));
    let sent: Vec<_> = server.asked().into_iter().map(|asked| (asked.index, asked.epoch, asked.shown)).collect();
    assert_eq!(sent, [(0, None, 0), (0, Some("e1".to_owned()), 5)], "nor is it taken back by a member that lags");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_does_not_go_on_is_asked_for_again_and_a_silent_stream_is_not() {
    let server = Server::new(3);
    let first = server.opens(Some("e1"));
    let view = MaterializedView::start(ServiceList, server.clone());
    for _ in 0..3 {
        first.send(5, named(CatalogOp::Register, "a"));
        tokio::time::sleep(Duration::from_secs(29)).await;
    }
    first.send(5, named(CatalogOp::Register, "a"));
    let second = server.opens(Some("e1"));
    second.snapshot(5, &["b"]);
    assert_eq!(names(&view.query(0, LONG).await.unwrap()), ["b"], "nothing of the first snapshot is left");
    assert_eq!(server.asked()[1].after, Duration::from_secs(3 * 29 + 30));
    // Changes may be as rare as they like.
    tokio::time::sleep(LONG).await;
    assert_eq!((server.indexes(), view.latest().unwrap().is_stale), (vec![0, 0], false));
    // The same for a snapshot that takes the place of changes: the old state stays meanwhile.
    let third = server.opens(Some("e1"));
    second.fails(Code::Unavailable);
    third.send(0, Payload::NewSnapshotToFollow(true));
    let last = server.opens(Some("e1"));
    tokio::time::sleep(SHORT).await;
    assert!(view.latest().unwrap().is_stale);
    last.send(0, Payload::NewSnapshotToFollow(true));
    last.snapshot(9, &["c"]);
    let new = view.query(5, LONG).await.unwrap();
    assert_eq!((names(&new), new.is_stale, server.indexes()), (vec!["c"], false, vec![0, 0, 5, 5]));
}

#[tokio::test(start_paused = true)]
async fn failures_in_a_row_are_told_and_the_view_goes_on_trying() {
    let server = Server::new(1);
    let feed = server.opens(None);
    let view = MaterializedView::start(ServiceList, server.clone());
    feed.snapshot(5, &["a"]);
    view.query(0, SHORT).await.unwrap();
    (0..3).for_each(|_| server.refuses(Code::Unavailable));
    let next = server.opens(None);
    drop(feed);
    let error = view.query(5, LONG).await.unwrap_err();
    assert!(matches!(&error, ViewError::Unavailable(status) if status.code() == Code::Unavailable), "{error}");
    // The present state is still shown to callers that do not wait for more.
    let old = view.query(0, SHORT).await.unwrap();
    assert_eq!((names(&old), old.is_stale), (vec!["a"], true));
    next.send(6, named(CatalogOp::Register, "b"));
    loop {
        match view.query(5, LONG).await {
            Ok(new) => break assert_eq!((new.index, names(&new), new.is_stale), (6, vec!["a", "b"], false)),
            Err(error) => assert!(matches!(error, ViewError::Unavailable(_)), "{error}"),
        }
    }
    assert_eq!(server.indexes(), [0, 5, 5, 5, 5]);
}

#[tokio::test(start_paused = true)]
async fn snapshots_that_stall_late_are_failures_in_a_row() {
    let server = Server::new(1);
    let feeds = [server.opens(None), server.opens(None)];
    let view = MaterializedView::start(ServiceList, server.clone());
    // Both attempts last longer than what would count as a success of a stream of changes.
    for feed in &feeds {
        for _ in 0..3 {
            feed.send(5, named(CatalogOp::Register, "a"));
            tokio::time::sleep(Duration::from_secs(29)).await;
        }
    }
    let error = view.query(0, LONG).await.unwrap_err();
    assert!(matches!(&error, ViewError::Unavailable(status) if status.code() == Code::DeadlineExceeded), "{error}");
    assert!(view.failure().is_some());
    let last = server.opens(None);
    last.snapshot(6, &["b"]);
    view.query(0, LONG).await.unwrap();
    assert!(view.failure().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_final() {
    for code in [Code::InvalidArgument, Code::PermissionDenied, Code::Unauthenticated, Code::Unimplemented] {
        let server = Server::new(3);
        server.refuses(code);
        let view = MaterializedView::start(ServiceList, server.clone());
        let error = view.query(0, LONG).await.unwrap_err();
        assert!(matches!(&error, ViewError::Refused(status) if status.code() == code), "{error}");
        assert!(view.has_ended());
        assert!(matches!(view.query(0, LONG).await, Err(ViewError::Refused(_))));
        assert_eq!(server.indexes(), [0], "it is not asked again");
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_belong_begins_anew_and_changes_nothing() {
    let health = Payload::ServiceHealth(ServiceHealthUpdate::default());
    let nested = batch(6, vec![batch(6, vec![])]);
    for wrong in [
        Payload::EndOfSnapshot(true),
        Payload::NewSnapshotToFollow(true),
        batch(6, vec![named(CatalogOp::Register, "b"), health.clone()]),
        batch(6, vec![named(CatalogOp::Register, "b"), Payload::EndOfSnapshot(true)]),
        nested,
        health,
        Payload::Service(ServiceListUpdate { op: 7, ..Default::default() }),
    ] {
        let server = Server::new(1);
        let feed = server.opens(None);
        let view = MaterializedView::start(ServiceList, server.clone());
        feed.snapshot(5, &["a"]);
        view.query(0, SHORT).await.unwrap();
        let next = server.opens(None);
        feed.send(6, wrong);
        tokio::time::sleep(SHORT).await;
        let old = view.latest().unwrap();
        assert_eq!((old.index, names(&old), old.is_stale), (5, vec!["a"], true));
        next.snapshot(9, &["z"]);
        assert_eq!(names(&view.query(5, LONG).await.unwrap()), ["z"]);
        assert_eq!(server.indexes(), [0, 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_ask_for_the_same_share_a_view_until_nobody_asks() {
    let server = Server::new(1);
    let store = ViewStore::new(server.clone(), StoreOptions { idle: Duration::from_secs(20 * 60) });
    let feed = server.opens(None);
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.query(&ServiceList, 0, LONG).await.unwrap().index })
        })
        .collect();
    tokio::time::sleep(SHORT).await;
    feed.snapshot(5, &["a"]);
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap(), 5);
    }
    assert_eq!((store.len(), server.asked().len()), (1, 1));
    // A request that is under way keeps the view, for any length of time.
    let answer = store.query(&ServiceList, 5, Duration::from_secs(3600)).await.unwrap();
    assert_eq!((answer.index, store.len()), (5, 1));
    tokio::time::sleep(Duration::from_secs(15 * 60)).await;
    assert_eq!(store.len(), 1);
    tokio::time::sleep(Duration::from_secs(10 * 60)).await;
    assert!(store.is_empty());
    assert!(feed.0.is_closed(), "its stream went with it");
    // A view that was refused is not kept for the next request.
    server.refuses(Code::InvalidArgument);
    assert!(matches!(store.query(&ServiceList, 0, LONG).await, Err(ViewError::Refused(_))));
    assert!(store.is_empty());
    server.opens(None).snapshot(6, &[]);
    assert_eq!(store.query(&ServiceList, 0, LONG).await.unwrap().index, 6);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_no_longer_fits_goes() {
    let instance = |node: &str, status: &str, tags: &[&str]| CheckServiceNode {
        node: Some(Node { node: node.to_owned(), ..Default::default() }),
        service: Some(NodeService {
            id: "web-1".to_owned(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..Default::default()
        }),
        checks: vec![HealthCheck { status: status.to_owned(), ..Default::default() }],
    };
    let health = |op: CatalogOp, instance| {
        Payload::ServiceHealth(ServiceHealthUpdate { op: op.into(), check_service_node: Some(instance) })
    };
    let server = Server::new(1);
    let feed = server.opens(None);
    let view = MaterializedView::start(ServiceHealth::of("web").passing_only().tagged("V2"), server.clone());
    feed.send(5, health(CatalogOp::Register, instance("n2", "passing", &["v2"])));
    feed.send(5, health(CatalogOp::Register, instance("n1", "passing", &["v1", "V2"])));
    feed.send(5, health(CatalogOp::Register, instance("n3", "warning", &["v2"])));
    feed.send(5, health(CatalogOp::Register, instance("n4", "passing", &["v1"])));
    feed.send(5, Payload::EndOfSnapshot(true));
    let nodes = async |after| {
        let view = view.query(after, SHORT).await.unwrap();
        view.state.instances().map(|it| it.node.as_ref().unwrap().node.clone()).collect::<Vec<_>>()
    };
    assert_eq!(nodes(0).await, ["n1", "n2"]);
    feed.send(6, health(CatalogOp::Register, instance("n1", "critical", &["v2"])));
    assert_eq!(nodes(5).await, ["n2"]);
    feed.send(7, health(CatalogOp::Register, instance("n3", "passing", &["v2"])));
    assert_eq!(nodes(6).await, ["n2", "n3"]);
    feed.send(8, health(CatalogOp::Deregister, instance("n2", "passing", &["v2"])));
    assert_eq!(nodes(7).await, ["n3"]);
    // An instance that was never registered is removed without an error.
    feed.send(9, health(CatalogOp::Deregister, instance("n9", "passing", &[])));
    assert_eq!(nodes(8).await, ["n3"]);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_needs_the_tags_of_a_service_only_when_it_is_asked_for_itself() {
    let instance = |id: &str, kind: &str, status: &str, tags: &[&str]| {
        let service = NodeService {
            id: id.to_owned(),
            kind: kind.to_owned(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..Default::default()
        };
        let checks = vec![HealthCheck { status: status.to_owned(), ..Default::default() }];
        let instance = CheckServiceNode { node: Some(Node::default()), service: Some(service), checks };
        let op = CatalogOp::Register.into();
        Payload::ServiceHealth(ServiceHealthUpdate { op, check_service_node: Some(instance) })
    };
    for (topic, wanted) in
        [(ServiceHealth::connect("web"), &["gateway", "proxy"][..]), (ServiceHealth::of("web"), &["proxy"][..])]
    {
        let server = Server::new(1);
        let feed = server.opens(None);
        let view = MaterializedView::start(topic.passing_only().tagged("v2"), server.clone());
        feed.send(5, instance("gateway", "terminating-gateway", "passing", &[]));
        feed.send(5, instance("failing", "terminating-gateway", "critical", &["v2"]));
        feed.send(5, instance("mesh", "mesh-gateway", "passing", &[]));
        feed.send(5, instance("proxy", "connect-proxy", "passing", &["V2"]));
        feed.send(5, instance("other", "connect-proxy", "passing", &["v1"]));
        feed.send(5, Payload::EndOfSnapshot(true));
        let view = view.query(0, SHORT).await.unwrap();
        let ids: Vec<&str> = view.state.instances().map(|it| it.service.as_ref().unwrap().id.as_str()).collect();
        assert_eq!(ids, wanted);
    }
}
