//! Random writes and compactions while members crash and many watchers on all members reconnect,
//! and cancel other watchers of their stream. Each watcher must get exactly its part of the log of
//! changes, except for revisions that were compacted before it reached them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use headwater::pb::etcdserverpb as pb;
use headwater::pb::mvccpb::{Event, event::EventType};
use headwater::stream::FeedOptions;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;

use super::cases::put_op;
use super::client::{Stream, everything};
use crate::cluster::{Cluster, Settings, put, within};

const KEYS: u32 = 10;
const WATCHERS: u64 = 24;
const ROUNDS: u64 = 400;
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Id of the watcher with checked events.
const FOLLOWER: i64 = 1;
/// Id of a watcher that is cancelled repeatedly.
const COMPANION: i64 = 2;

/// Revisions that the test sets and the watchers read.
#[derive(Default)]
struct Marks {
    /// The last revision of all; zero while writes continue.
    end: AtomicI64,
    /// The highest revision of a requested compaction.
    compacted: AtomicI64,
}

/// The events that one watcher has received.
#[derive(Default)]
struct Seen {
    seed: u64,
    events: Vec<Event>,
    /// Revisions that were compacted before the watcher reached them.
    gaps: Vec<Range<i64>>,
}

/// Follows an interval from the revision of the request on, at random members, with a new stream
/// now and then, until it has received everything through `marks.end`.
async fn follow(urls: Vec<String>, mut request: pb::WatchCreateRequest, seed: u64, marks: Arc<Marks>) -> Seen {
    let mut random = StdRng::seed_from_u64(seed);
    let mut seen = Seen { seed, ..Seen::default() };
    request.watch_id = FOLLOWER;
    request.prev_kv = seed.is_multiple_of(2);
    request.fragment = seed.is_multiple_of(3);
    loop {
        // A watcher from after the end would get no progress until a new write.
        let last = marks.end.load(Ordering::Acquire);
        if last > 0 && request.start_revision > last {
            return seen;
        }
        let url = &urls[random.random_range(0..urls.len())];
        let Ok(mut stream) = Stream::open(url).await else {
            // As clients do: without a pause, twenty-four watchers that call a dead member would
            // take the processor from the live ones.
            tokio::time::sleep(RETRY_PAUSE).await;
            continue;
        };
        stream.ask(request.clone()).await;
        let (mut asked, mut has_companion) = (false, false);
        let stay = random.random_range(1..60);
        for _ in 0..stay {
            match random.random_range(0..8) {
                0 if !asked => {
                    stream.ask(pb::WatchCreateRequest { watch_id: COMPANION, ..everything() }).await;
                    asked = true;
                }
                1 if has_companion => stream.cancel(COMPANION).await,
                _ => stream.ask_progress().await,
            }
            let Ok(Ok(Some(response))) = tokio::time::timeout(Duration::from_secs(5), stream.try_next()).await else {
                break;
            };
            let revision_of = |event: &Event| event.kv.as_ref().unwrap().mod_revision;
            if response.watch_id == COMPANION {
                assert!(response.created || has_companion, "after its cancel nothing comes: {response:?}");
                has_companion = !response.canceled;
                asked &= has_companion;
            } else if response.canceled {
                let compacted = response.compact_revision;
                assert!(compacted > request.start_revision, "it is still there: {response:?} after {request:?}");
                assert!(compacted <= marks.compacted.load(Ordering::Acquire), "nobody compacted that: {response:?}");
                seen.gaps.push(request.start_revision..compacted);
                request.start_revision = compacted;
                break;
            } else if let (Some(first), Some(last)) = (response.events.first(), response.events.last()) {
                assert_eq!(response.watch_id, FOLLOWER);
                assert!(!response.fragment, "they are small");
                assert!(revision_of(first) >= request.start_revision, "a revision comes whole and once: {response:?}");
                request.start_revision = revision_of(last) + 1;
                seen.events.extend(response.events);
            } else if response.watch_id == -1 {
                let through = response.header.unwrap().revision;
                assert!(through + 1 >= request.start_revision, "progress goes back");
                let end = marks.end.load(Ordering::Acquire);
                if end > 0 && through >= end {
                    return seen;
                }
            }
        }
    }
}

fn interval(seed: u64) -> pb::WatchCreateRequest {
    let mut random = StdRng::seed_from_u64(seed);
    let key = |number: u32| format!("key{number:02}");
    let from = random.random_range(0..KEYS);
    let request = pb::WatchCreateRequest { key: key(from).into(), start_revision: 2, ..Default::default() };
    match random.random_range(0..3) {
        0 => request,
        1 => pb::WatchCreateRequest { range_end: key(random.random_range(from..KEYS) + 1).into(), ..request },
        _ => pb::WatchCreateRequest { start_revision: 2, ..everything() },
    }
}

fn wants(request: &pb::WatchCreateRequest, key: &[u8]) -> bool {
    match request.range_end.as_ref() {
        [] => request.key == key,
        [0] => key >= &request.key[..],
        end => key >= &request.key[..] && key < end,
    }
}

async fn write(cluster: &Cluster, members: &[usize], random: &mut StdRng) {
    let key = |random: &mut StdRng| format!("key{:02}", random.random_range(0..KEYS));
    let mut kv = cluster.kv(members[random.random_range(0..members.len())]);
    let value = random.random::<u32>().to_string();
    // A write without an answer may have happened: the log shows it.
    let _unknown = match random.random_range(0..10) {
        0..6 => kv.put(put(key(random), value)).await.map(drop),
        6..8 => {
            let request =
                pb::DeleteRangeRequest { key: key(random).into(), range_end: "key09".into(), ..Default::default() };
            kv.delete_range(request).await.map(drop)
        }
        _ => {
            let first = random.random_range(0..KEYS - 1);
            let ops = [put_op(&format!("key{first:02}"), &value), put_op(&format!("key{:02}", first + 1), &value)];
            let success = ops.map(|op| pb::RequestOp { request: Some(op) }).into();
            kv.txn(pb::TxnRequest { success, ..Default::default() }).await.map(drop)
        }
    };
}

/// Writes a key, then appends to `log` all events after its last one, through that write, as one
/// member delivers them.
async fn read_on(cluster: &Cluster, log: &mut Vec<Event>) {
    let member = cluster.running().next().unwrap();
    let written = cluster.kv(member).put(put("key00", "mark")).await.unwrap().into_inner().header.unwrap().revision;
    let start_revision = log.last().map_or(2, |event| event.kv.as_ref().unwrap().mod_revision + 1);
    let mut truth = Stream::open(&cluster.client_url(member)).await.unwrap();
    truth.create(pb::WatchCreateRequest { start_revision, prev_kv: true, ..everything() }).await;
    loop {
        let (responses, through) = truth.until_progress().await;
        assert!(responses.iter().all(|response| !response.canceled), "it reads before anything is compacted");
        log.extend(responses.into_iter().flat_map(|response| response.events));
        if through >= written {
            return;
        }
    }
}

/// Asserts that the log of changes is consistent in itself: revisions, versions, previous pairs.
fn check_replay(log: &[Event]) {
    let mut state: BTreeMap<Vec<u8>, headwater::pb::mvccpb::KeyValue> = BTreeMap::new();
    let mut revision = 1;
    for event in log {
        let kv = event.kv.clone().unwrap();
        assert!(kv.mod_revision == revision || kv.mod_revision == revision + 1, "a hole after {revision}: {kv:?}");
        revision = kv.mod_revision;
        let before = state.get(&kv.key[..]);
        assert_eq!(event.prev_kv.as_ref(), before, "the pair before {kv:?}");
        match event.r#type() {
            EventType::Put => {
                let (created, version) = before.map_or((revision, 1), |kv| (kv.create_revision, kv.version + 1));
                assert_eq!((kv.create_revision, kv.version), (created, version), "{kv:?}");
                state.insert(kv.key.to_vec(), kv);
            }
            EventType::Delete => {
                assert!(before.is_some(), "nothing to remove: {kv:?}");
                state.remove(&kv.key[..]);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_watcher_sees_the_filtered_log() {
    let feed = FeedOptions { window_items_max: 30, ..FeedOptions::default() };
    let settings = Settings { snapshot_every: 150, keep: 20, feed, ..Settings::default() };
    let mut cluster = Cluster::start(settings).await;
    let urls: Vec<_> = (0..3).map(|index| cluster.client_url(index)).collect();
    let marks = Arc::new(Marks::default());
    let mut watchers = JoinSet::new();
    for seed in 0..WATCHERS {
        watchers.spawn(follow(urls.clone(), interval(seed), seed, Arc::clone(&marks)));
    }
    let mut random = StdRng::seed_from_u64(7);
    let mut log: Vec<Event> = Vec::new();
    for round in 0..ROUNDS {
        let members: Vec<_> = cluster.running().collect();
        write(&cluster, &members, &mut random).await;
        match round % 100 {
            40 => cluster.crash((round / 100) as usize % 3).await,
            90 => {
                cluster.restart((round / 100) as usize % 3).await;
                cluster.wait_healthy().await;
            }
            60 | 99 => {
                read_on(&cluster, &mut log).await;
                // At or below the newest revision, and above those that slow watchers have reached.
                let newest = log.last().unwrap().kv.as_ref().unwrap().mod_revision;
                let revision = newest - random.random_range(0..10);
                marks.compacted.fetch_max(revision, Ordering::AcqRel);
                let member = cluster.running().next().unwrap();
                let request = pb::CompactionRequest { revision, physical: false };
                cluster.kv(member).compact(request).await.unwrap();
            }
            _ => {}
        }
    }
    cluster.wait_healthy().await;
    let last = cluster.kv(0).put(put("key00", "end")).await.unwrap().into_inner().header.unwrap().revision;
    marks.end.store(last, Ordering::Release);

    read_on(&cluster, &mut log).await;
    check_replay(&log);
    log.retain(|event| event.kv.as_ref().unwrap().mod_revision <= last);
    while let Some(ended) = within("every watcher reaches the end", watchers.join_next()).await {
        let Seen { seed, mut events, gaps } = ended.unwrap();
        // A late watcher may have got events after the end, too.
        events.retain(|event| event.kv.as_ref().unwrap().mod_revision <= last);
        let request = interval(seed);
        // The previous pair of a change exactly at the compaction point may be gone.
        let at_point = |event: &Event| gaps.iter().any(|gap| gap.end == event.kv.as_ref().unwrap().mod_revision);
        let with_prev = seed.is_multiple_of(2);
        let plain = |event: Event| {
            let keeps_prev = with_prev && !at_point(&event);
            Event { prev_kv: event.prev_kv.clone().filter(|_| keeps_prev), ..event }
        };
        let wanted = log.iter().filter(|event| {
            let kv = event.kv.as_ref().unwrap();
            wants(&request, &kv.key) && !gaps.iter().any(|gap| gap.contains(&kv.mod_revision))
        });
        let (wanted, seen): (Vec<_>, Vec<_>) =
            (wanted.cloned().map(plain).collect(), events.into_iter().map(plain).collect());
        assert_eq!(seen, wanted, "watcher {seed}: {request:?}, without {gaps:?}");
    }
}
