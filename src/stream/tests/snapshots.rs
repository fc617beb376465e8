//! The snapshot cache.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use futures::FutureExt;

use super::super::*;
use super::bed::{Bed, options, prefix};
use crate::types::LogIndex;

type Cache = SnapshotCache<Kv, u32>;

const TTL: Duration = Duration::from_secs(10);

/// Gets the snapshot; a new one has the number `next` as its contents.
fn get(bed: &Bed, cache: &Cache, now: Instant, next: u32) -> Result<Arc<Snapshot<Kv, u32>>, CloseReason> {
    let applied = bed.log.0.lock().applied;
    let subject = prefix("k");
    let built = cache.get(&subject, now, async || Ok::<_, CloseReason>((applied, next)));
    built.now_or_never().expect("nothing to wait for")
}

#[test]
fn it_is_shared_until_it_is_too_old() {
    let mut bed = Bed::new(options(100, 100));
    let cache = Cache::new(Arc::clone(&bed.feed), TTL);
    let begin = Instant::now();
    assert_eq!(get(&bed, &cache, begin, 1).unwrap().contents, 1);
    bed.put(&["k"]);
    let shared = get(&bed, &cache, begin + TTL - Duration::from_millis(1), 2).unwrap();
    assert_eq!((shared.contents, shared.index), (1, LogIndex(0)));
    // Its list goes on although nobody subscribed in between.
    let session = Session::new();
    let mut subscription = shared.subscribe(&session, 1).unwrap();
    assert_eq!(subscription.try_next().unwrap().unwrap().index(), LogIndex(1));
    let fresh = get(&bed, &cache, begin + TTL, 3).unwrap();
    assert_eq!((fresh.contents, fresh.index), (3, LogIndex(1)));
    drop((subscription, shared, fresh));
    cache.sweep(begin + 2 * TTL);
    assert_eq!(bed.feed.stats().subjects, 0, "what is swept holds nothing");
}

#[test]
fn a_reset_makes_it_stale() {
    let mut bed = Bed::new(options(100, 100));
    let cache = Cache::new(Arc::clone(&bed.feed), TTL);
    let now = Instant::now();
    let before = get(&bed, &cache, now, 1).unwrap();
    bed.commit(&["k"]);
    bed.reset();
    assert_eq!(get(&bed, &cache, now, 2).unwrap().contents, 2);
    // Who still has the old one goes on without a gap all the same.
    let session = Session::new();
    let mut subscription = before.subscribe(&session, 1).unwrap();
    let mut found = Vec::new();
    for _ in 0..3 {
        found.extend(subscription.try_next().unwrap().map(|item| item.index()));
        bed.run_tasks();
    }
    assert_eq!(found, [LogIndex(1)]);
}

#[test]
fn a_failure_is_not_kept() {
    let bed = Bed::new(options(100, 100));
    let cache = Cache::new(Arc::clone(&bed.feed), TTL);
    let now = Instant::now();
    let subject = prefix("k");
    let failed = cache.get(&subject, now, async || Err(CloseReason::Failed("disk".to_owned()))).now_or_never();
    assert!(matches!(failed, Some(Err(CloseReason::Failed(_)))));
    assert!(cache.is_empty(), "not even its name");
    assert_eq!(get(&bed, &cache, now, 2).unwrap().contents, 2);
}

#[test]
fn what_everybody_gave_up_leaves_nothing() {
    let bed = Bed::new(options(100, 100));
    let cache = Cache::new(Arc::clone(&bed.feed), TTL);
    let now = Instant::now();
    let subject = prefix("k");
    let mut cx = Context::from_waker(Waker::noop());
    let mut ask = || {
        let mut asked = Box::pin(cache.get(&subject, now, std::future::pending::<Result<_, CloseReason>>));
        assert!(asked.as_mut().poll(&mut cx).is_pending());
        asked
    };
    let (first, second) = (ask(), ask());
    cache.sweep(now + 2 * TTL);
    drop(first);
    assert!(!cache.is_empty(), "somebody still asks");
    drop(second);
    assert!(cache.is_empty());
    assert_eq!(bed.feed.stats().subjects, 0);
}

#[tokio::test]
async fn a_thousand_at_once_cost_one() {
    let bed = Bed::new(options(100, 100));
    let cache = Cache::new(Arc::clone(&bed.feed), TTL);
    let (gate, gated) = tokio::sync::watch::channel(false);
    let built = std::sync::atomic::AtomicU32::new(0);
    let now = Instant::now();
    let subject = prefix("k");
    let asked = (0..1000).map(|_| {
        let mut gated = gated.clone();
        let (cache, subject, built) = (&cache, &subject, &built);
        cache.get(subject, now, async move || {
            gated.wait_for(|open| *open).await.unwrap();
            Ok::<_, CloseReason>((LogIndex(0), built.fetch_add(1, std::sync::atomic::Ordering::Relaxed)))
        })
    });
    let open = async { gate.send_replace(true) };
    let (snapshots, _) = futures::join!(futures::future::join_all(asked), open);
    assert!(snapshots.into_iter().all(|snapshot| snapshot.unwrap().contents == 0));
    assert_eq!(built.into_inner(), 1);
}

#[test]
fn what_is_kept_is_bounded_and_the_oldest_goes_first() {
    let bed = Bed::new(options(100, 100));
    let cache = Cache::new(Arc::clone(&bed.feed), TTL).bounded(100, |contents| *contents as usize);
    let begin = Instant::now();
    let get = |key: &'static str, after_ms: u64, next: u32| {
        let now = begin + Duration::from_millis(after_ms);
        let subject = prefix(key);
        let built = cache.get(&subject, now, async || Ok::<_, CloseReason>((LogIndex(0), next)));
        built.now_or_never().expect("nothing to wait for").unwrap().contents
    };
    assert_eq!((get("a", 0, 50), get("b", 1, 40)), (50, 40));
    assert_eq!((get("a", 2, 7), get("b", 2, 7)), (50, 40), "both fit");
    assert_eq!(get("c", 3, 30), 30);
    assert_eq!((get("b", 4, 7), get("c", 4, 7)), (40, 30), "what is newer was kept");
    assert_eq!(get("a", 5, 20), 20, "the oldest was not");
    // One that is too large by itself serves whoever asked, and is not kept.
    assert_eq!((get("d", 6, 101), get("d", 7, 3)), (101, 3));
}
