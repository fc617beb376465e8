//! Random writes against many watchers that come and go on all members, while members crash: what each of them saw is
//! the filtered log, exactly.

use std::collections::BTreeMap;
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

/// Which watcher it was, and all that it was told.
type Seen = (u64, Vec<Event>);

/// Follows an interval from `start`, on whatever member is there, leaving now and then, until it has seen `end`.
async fn follow(urls: Vec<String>, mut request: pb::WatchCreateRequest, seed: u64, end: Arc<AtomicI64>) -> Seen {
    let mut random = StdRng::seed_from_u64(seed);
    let mut seen = Vec::new();
    request.prev_kv = seed.is_multiple_of(2);
    request.fragment = seed.is_multiple_of(3);
    loop {
        // Who asks for what comes after the end hears of no progress until there is something.
        let last = end.load(Ordering::Acquire);
        if last > 0 && request.start_revision > last {
            return (seed, seen);
        }
        let url = &urls[random.random_range(0..urls.len())];
        let Ok(mut stream) = Stream::open(url).await else {
            // As clients do: twenty-four who call a dead member without pause leave the living no processor.
            tokio::time::sleep(RETRY_PAUSE).await;
            continue;
        };
        stream.ask(request.clone()).await;
        let stay = random.random_range(1..60);
        for _ in 0..stay {
            stream.ask_progress().await;
            let Ok(Ok(Some(response))) = tokio::time::timeout(Duration::from_secs(5), stream.try_next()).await else {
                break;
            };
            assert!(!response.canceled, "{response:?}");
            if let Some(last) = response.events.last() {
                request.start_revision = last.kv.as_ref().unwrap().mod_revision + 1;
                seen.extend(response.events);
            } else if response.watch_id == -1 {
                let through = response.header.unwrap().revision;
                assert!(through + 1 >= request.start_revision, "progress goes back");
                let end = end.load(Ordering::Acquire);
                if end > 0 && through >= end {
                    return (seed, seen);
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
    // A write that stays unanswered may have happened: the log tells.
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

/// Checks the whole log by itself: order, versions, pairs before.
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
    let end = Arc::new(AtomicI64::new(0));
    let mut watchers = JoinSet::new();
    for seed in 0..WATCHERS {
        watchers.spawn(follow(urls.clone(), interval(seed), seed, Arc::clone(&end)));
    }
    let mut random = StdRng::seed_from_u64(7);
    for round in 0..ROUNDS {
        let members: Vec<_> = cluster.running().collect();
        write(&cluster, &members, &mut random).await;
        match round % 100 {
            40 => cluster.crash((round / 100) as usize % 3).await,
            90 => {
                cluster.restart((round / 100) as usize % 3).await;
                cluster.wait_healthy().await;
            }
            _ => {}
        }
    }
    cluster.wait_healthy().await;
    let last = cluster.kv(0).put(put("key00", "end")).await.unwrap().into_inner().header.unwrap().revision;
    end.store(last, Ordering::Release);

    let mut truth = Stream::open(&urls[0]).await.unwrap();
    truth.create(pb::WatchCreateRequest { start_revision: 2, prev_kv: true, ..everything() }).await;
    let (responses, through) = truth.until_progress().await;
    assert!(through >= last, "a member knows what was written through it");
    let log: Vec<_> = responses.into_iter().flat_map(|response| response.events).collect();
    assert_eq!(log.last().unwrap().kv.as_ref().unwrap().mod_revision, last);
    check_replay(&log);
    while let Some(ended) = within("every watcher reaches the end", watchers.join_next()).await {
        let (seed, seen) = ended.unwrap();
        let request = interval(seed);
        let wanted = log.iter().filter(|event| wants(&request, &event.kv.as_ref().unwrap().key)).cloned();
        let with_prev = seed.is_multiple_of(2);
        let wanted = wanted.map(|event| Event { prev_kv: event.prev_kv.clone().filter(|_| with_prev), ..event });
        assert_eq!(seen, wanted.collect::<Vec<_>>(), "watcher {seed}: {request:?}");
    }
}
