//! Watchers: of one key, of a prefix, of everything. They end on purpose and by accident, and
//! resume on any node.
//!
//! Short watches begin close to the newest revision, before or after it, and end soon: there a
//! member has to decide between its window in memory, its history, the compacted part of it, and
//! revisions that do not exist yet.
//!
//! A collector for each node stays with that node and receives all keys from the first revision on.
//! The events of all collectors, merged, are the log of changes that all answers are judged by.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_proto::pb::etcdserverpb as pb;
use headwater_proto::pb::etcdserverpb::watch_request::RequestUnion;
use headwater_proto::pb::mvccpb::event::EventType;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;

use super::{AsyncClientStep, Client, Control, Lab};
use crate::check::replay::Log;
use crate::check::{Finding, Findings};
use crate::client::{Target, pair, prefix_end};
use crate::history::{Clock, Delivery, Event, Micros, Note, Request, Step, WatchLog};
use crate::retry_budget::within;

const WRITERS: u64 = 3;
const PAUSE: Duration = Duration::from_millis(20);
const KEYS: u64 = 6;
/// Interval of progress requests.
const PROGRESS: Duration = Duration::from_millis(700);
const RETRY: Duration = Duration::from_millis(100);
const CONNECT: Duration = Duration::from_secs(2);
/// Number of short watches in parallel.
const SHORT: u64 = 2;
/// Largest distance of a short watch's start revision from the revision that all collectors have
/// reached. That is the newest one, unless a collector lags.
const SHORT_DISTANCE: i64 = 100;
/// Length of a short watch, milliseconds.
const SHORT_STAY: std::ops::Range<u64> = 500..2500;
/// Text in the reason with which a node refuses a watch because it does not know the token.
pub(crate) const UNKNOWN_TOKEN: &str = "invalid auth token";
/// The first revision that can have events.
pub(crate) const FIRST: i64 = 2;

/// The request of one watcher, and its use of nodes and streams.
#[derive(Clone)]
struct WatchSpec {
    name: String,
    key: String,
    prefix: bool,
    wants_before: bool,
    /// The node of all its streams; `None` for a random node for each stream.
    pinned: Option<usize>,
    /// Whether the watcher ends each stream after a random time.
    restless: bool,
    collector: bool,
}

impl WatchSpec {
    fn log(&self) -> WatchLog {
        WatchLog {
            name: self.name.clone(),
            key: self.key.clone(),
            prefix: self.prefix,
            wants_before: self.wants_before,
            deliveries: Vec::new(),
        }
    }
}

/// Every watcher that was started; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Watchers {
    all: Arc<Mutex<Vec<Watcher>>>,
    short: Arc<Mutex<Vec<Arc<Mutex<WatchLog>>>>>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

struct Watcher {
    collector: bool,
    log: Arc<Mutex<WatchLog>>,
    /// The watcher has received all its events below this revision.
    next: watch::Receiver<i64>,
}

impl Watchers {
    /// The highest revision through which every collector has received all events; 0 without
    /// collectors.
    pub(crate) fn collected(&self) -> i64 {
        let all = self.all.lock();
        all.iter().filter(|watcher| watcher.collector).map(|watcher| *watcher.next.borrow() - 1).min().unwrap_or(0)
    }

    /// Waits until every watcher, except short ones, has received all its events through
    /// `revision`. False if that takes longer than `budget`. Does not wait for watchers that have
    /// ended.
    pub(crate) async fn wait_for(&self, revision: i64, budget: Duration) -> bool {
        let nexts: Vec<_> = self.all.lock().iter().map(|watcher| watcher.next.clone()).collect();
        let all = async {
            for mut next in nexts {
                // A watcher that has ended will not reach `revision`; the checker sees it in its
                // log.
                let _gone = next.wait_for(|next| *next > revision).await.is_err();
            }
        };
        within(budget, all).await.is_some()
    }

    /// Ends all watchers.
    pub(crate) fn stop(&self) {
        self.tasks.lock().abort_all();
    }

    /// Everything that each watcher, except short ones, has received.
    pub(crate) fn logs(&self) -> Vec<WatchLog> {
        self.all.lock().iter().map(|watcher| watcher.log.lock().clone()).collect()
    }

    /// Everything that each short watch has received, without watches that were never opened.
    pub(crate) fn short(&self) -> Vec<WatchLog> {
        let logs: Vec<WatchLog> = self.short.lock().iter().map(|log| log.lock().clone()).collect();
        let has_begun =
            |log: &WatchLog| log.deliveries.iter().any(|delivery| matches!(delivery.note, Note::Opened { .. }));
        logs.into_iter().filter(has_begun).collect()
    }

    /// The merged events of the collectors: the log of changes, the time at which each revision was
    /// first received, and findings about collectors that received different changes.
    pub(crate) fn ground(&self) -> (Log, BTreeMap<i64, Micros>, Findings) {
        let all = self.all.lock();
        let locked: Vec<_> = all.iter().filter(|watcher| watcher.collector).map(|watcher| watcher.log.lock()).collect();
        merge(&locked.iter().map(|log| &**log).collect::<Vec<_>>())
    }
}

fn merge(logs: &[&WatchLog]) -> (Log, BTreeMap<i64, Micros>, Findings) {
    let mut findings = Findings::new("members agree");
    let (mut merged, mut delivered_at) = (Log::new(), BTreeMap::new());
    for log in logs {
        for delivery in &log.deliveries {
            let mut revisions = Log::new();
            for event in &delivery.events {
                revisions.entry(event.pair.modified).or_default().push(Event { before: None, ..event.clone() });
            }
            for (revision, mut events) in revisions {
                events.sort_by(|a, b| a.pair.key.cmp(&b.pair.key));
                let first = delivered_at.entry(revision).or_insert(delivery.at);
                *first = delivery.at.min(*first);
                match merged.get(&revision) {
                    Some(known) if *known != events => findings.add(Finding::new(
                        "a revision was told in two ways",
                        format!("revision {revision} by {}: {events:?}, before: {known:?}", log.name),
                    )),
                    Some(_) => {}
                    None => drop(merged.insert(revision, events)),
                }
            }
        }
    }
    let scope = format!("{} revisions from {} members", merged.len(), logs.len());
    (merged, delivered_at, findings.scope(scope))
}

/// Starts the collectors: in every run, one for each node.
pub(crate) fn start_collectors(lab: &Lab) {
    for node in 0..lab.targets.len() {
        let wish = WatchSpec {
            name: format!("everything on node {}", node + 1),
            key: String::new(),
            prefix: true,
            wants_before: false,
            pinned: Some(node),
            restless: false,
            collector: true,
        };
        watcher(lab, wish);
    }
}

#[derive(Clone)]
struct Writer;

/// Starts the workload's writers, and watchers of their keys.
pub(crate) fn start(lab: &Lab, tasks: &mut JoinSet<()>) {
    lab.clients(tasks, "watch", WRITERS, PAUSE, |_| (), Writer);
    for node in 0..lab.targets.len() {
        let name = |what: &str| format!("{what}, begun on node {}", node + 1);
        let wish = WatchSpec {
            name: name("a prefix"),
            key: "watch/".into(),
            prefix: true,
            wants_before: true,
            pinned: None,
            restless: true,
            collector: false,
        };
        watcher(lab, WatchSpec { name: name("one key"), key: "watch/0".into(), prefix: false, ..wish.clone() });
        let stays = WatchSpec { name: name("a prefix, stays"), pinned: Some(node), restless: false, ..wish.clone() };
        watcher(lab, stays);
        watcher(lab, wish);
    }
    for number in 0..SHORT {
        lab.watchers.tasks.lock().spawn(short_watches(lab.clone(), number));
    }
}

/// Opens one short watch after the other. Each stream is to a random node.
async fn short_watches(lab: Lab, number: u64) {
    let mut rng = StdRng::seed_from_u64(lab.seed.wrapping_mul(37).wrapping_add(number));
    let mut count = 0;
    loop {
        count += 1;
        let near = lab.watchers.collected() + rng.random_range(-SHORT_DISTANCE..=SHORT_DISTANCE);
        let wish = WatchSpec {
            name: format!("short watch {count} of {}", number + 1),
            key: "watch/".into(),
            prefix: true,
            wants_before: true,
            pinned: None,
            restless: false,
            collector: false,
        };
        let log = Arc::new(Mutex::new(wish.log()));
        lab.watchers.short.lock().push(log.clone());
        let follower = Follower {
            wish,
            targets: lab.targets.iter().map(Target::apart).collect(),
            clock: lab.recorder.clock,
            log,
            position: watch::channel(near.max(FIRST)).0,
            rng: StdRng::seed_from_u64(rng.random()),
            drops: false,
        };
        let stay = Duration::from_millis(rng.random_range(SHORT_STAY)) * lab.pace;
        // The watch runs until the timeout cancels it.
        let _over = tokio::time::timeout(stay, follower.run()).await.is_err();
    }
}

impl AsyncClientStep<()> for Writer {
    async fn step(&self, client: &mut Client, (): &mut ()) {
        let key = format!("watch/{}", client.below(KEYS));
        let value = client.value();
        let request = match client.below(10) {
            0..6 => Request::Put { key, value, lease: 0 },
            6..8 => Request::Delete { key },
            _ => {
                let other = format!("watch/{}", KEYS + client.below(3));
                let put = Step::Put { key, value: value.clone(), lease: 0 };
                let more = match client.below(2) {
                    0 => Step::Put { key: other, value, lease: 0 },
                    _ => Step::Delete { key: other },
                };
                Request::Txn { when: vec![], then: vec![put, more], or_else: vec![] }
            }
        };
        client.ask(request).await;
    }
}

fn watcher(lab: &Lab, wish: WatchSpec) {
    let log = Arc::new(Mutex::new(wish.log()));
    let (position, next) = watch::channel(FIRST);
    let number = {
        let mut all = lab.watchers.all.lock();
        all.push(Watcher { collector: wish.collector, log: log.clone(), next });
        all.len() as u64
    };
    let rng = StdRng::seed_from_u64(lab.seed.wrapping_mul(31).wrapping_add(number));
    let drops = lab.control == Some(Control::DropWatchEvent) && !wish.collector;
    // The task is not in the set of clients: watchers go on after the clients have stopped.
    let targets = lab.targets.iter().map(Target::apart).collect();
    let follower = Follower { wish, targets, clock: lab.recorder.clock, log, position, rng, drops };
    lab.watchers.tasks.lock().spawn(follower.run());
}

struct Follower {
    wish: WatchSpec,
    targets: Vec<Target>,
    clock: Clock,
    log: Arc<Mutex<WatchLog>>,
    position: watch::Sender<i64>,
    rng: StdRng,
    drops: bool,
}

impl Follower {
    async fn run(mut self) {
        loop {
            let node = self.wish.pinned.unwrap_or_else(|| self.rng.random_range(0..self.targets.len()));
            let stay = match self.wish.restless {
                true => Duration::from_millis(self.rng.random_range(500..6000)),
                false => Duration::from_secs(86_400),
            };
            // After any end, another stream resumes from the position.
            if tokio::time::timeout(stay, self.stream(node)).await.is_ok() {
                self.targets[node].forget();
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    fn push(&self, node: usize, revision: i64, events: Vec<Event>, note: Note) {
        let at = self.clock.now();
        self.log.lock().deliveries.push(Delivery { at, node, revision, events, note });
    }

    /// Follows one stream until it ends; returns `None` then.
    async fn stream(&mut self, node: usize) -> Option<()> {
        let from = *self.position.borrow();
        let mut client = tokio::time::timeout(CONNECT, self.targets[node].watch()).await.ok()?.ok()?;
        let create = pb::WatchCreateRequest {
            key: self.wish.key.clone().into(),
            range_end: if self.wish.prefix { prefix_end(&self.wish.key) } else { Vec::new() }.into(),
            start_revision: from,
            progress_notify: true,
            prev_kv: self.wish.wants_before,
            ..Default::default()
        };
        // The API has no empty key: the key of one zero byte is the first one.
        let key = if create.key.is_empty() { vec![0].into() } else { create.key.clone() };
        let create = pb::WatchCreateRequest { key, ..create };
        let (send, requests) = mpsc::channel(4);
        send.send(request(RequestUnion::CreateRequest(create))).await.ok()?;
        let mut ask = tonic::Request::new(ReceiverStream::new(requests));
        if self.wish.pinned.is_none() {
            // With this the node ends the stream when it has no leader; it resumes at another node.
            ask.metadata_mut().insert("hasleader", "true".parse().ok()?);
        }
        let mut answers = tokio::time::timeout(CONNECT, client.watch(ask)).await.ok()?.ok()?.into_inner();
        let mut progress = tokio::time::interval(PROGRESS);
        progress.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let answer = tokio::select! {
                _ = progress.tick() => {
                    let wanted = RequestUnion::ProgressRequest(pb::WatchProgressRequest {});
                    // A full queue means that a request is under way.
                    drop(send.try_send(request(wanted)));
                    continue;
                }
                answer = answers.message() => answer.ok()??,
            };
            self.take(node, from, answer)?;
        }
    }

    /// Records a message and moves the position behind it. `None` if the message cancels the watch.
    /// `from` is the start revision of the watch.
    fn take(&mut self, node: usize, from: i64, answer: pb::WatchResponse) -> Option<()> {
        let revision = answer.header.as_ref().map_or(0, |header| header.revision);
        if answer.canceled {
            if answer.compact_revision > 0 {
                self.push(node, revision, vec![], Note::Compacted { at: answer.compact_revision });
                self.reach(answer.compact_revision);
            }
            // A restarted node does not know the tokens that it gave before.
            if let Some(login) = self.targets[node].login().filter(|_| answer.cancel_reason.contains(UNKNOWN_TOKEN)) {
                login.renew();
            }
            return None;
        }
        if answer.created {
            self.push(node, revision, vec![], Note::Opened { from });
        } else if answer.events.is_empty() {
            self.push(node, revision, vec![], Note::Progress);
            self.reach(revision + 1);
        } else {
            let events: Vec<Event> = answer.events.into_iter().filter_map(event).collect();
            let last = events.iter().map(|event| event.pair.modified).max().unwrap_or(0);
            // With the control `drop-watch-event`, a message is lost now and then.
            if !(self.drops && self.rng.random_range(0..50) == 0) {
                self.push(node, revision, events, Note::Events);
            }
            self.reach(last + 1);
        }
        Some(())
    }

    fn reach(&self, next: i64) {
        self.position.send_if_modified(|position| {
            let grown = next > *position;
            *position = next.max(*position);
            grown
        });
    }
}

fn request(union: RequestUnion) -> pb::WatchRequest {
    pb::WatchRequest { request_union: Some(union) }
}

fn event(event: headwater_proto::pb::mvccpb::Event) -> Option<Event> {
    let deleted = event.r#type() == EventType::Delete;
    Some(Event { deleted, pair: pair(event.kv?), before: event.prev_kv.map(pair) })
}

/// Everything that a new watcher of all keys receives from a member: its history, from its
/// compaction point to `until`, or as far as it came within `budget`.
pub(crate) async fn history_of(target: &Target, node: usize, clock: Clock, until: i64, budget: Duration) -> WatchLog {
    let wish = WatchSpec {
        name: format!("the whole past, asked of node {} at the end", node + 1),
        key: String::new(),
        prefix: true,
        wants_before: false,
        pinned: Some(0),
        restless: false,
        collector: false,
    };
    let log = Arc::new(Mutex::new(wish.log()));
    let (position, mut next) = watch::channel(FIRST);
    let follower = Follower {
        wish,
        targets: vec![target.apart()],
        clock,
        log: log.clone(),
        position,
        rng: StdRng::seed_from_u64(0),
        drops: false,
    };
    let running = tokio::spawn(follower.run());
    // If the watcher does not reach `until`, the checker reports it.
    let _late = within(budget, next.wait_for(|next| *next > until)).await.is_none();
    running.abort();
    let mut log = log.lock().clone();
    log.deliveries.iter_mut().for_each(|delivery| delivery.node = node);
    log
}
