//! The snapshot cache.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;

use super::super::*;
use super::bed::{Bed, options, prefix};
use headwater_types::limits::STATE_ENTRY_BYTES;
use headwater_types::{KvEvent, LogIndex};

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
    // The list of the subject continues, although it has no subscriber.
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
    // The old snapshot is still followed by every later commit.
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
fn what_is_kept_for_nobody_makes_room_and_what_is_held_does_not() {
    let bed = Bed::new(options(100, 100));
    let cache = Arc::new(SnapshotCache::<Kv, StateShare>::new(Arc::clone(&bed.feed), TTL));
    let now = Instant::now();
    let kept = Arc::downgrade(&cache);
    let evict = move || kept.upgrade().unwrap().evict(|_| false);
    let memory = StateMemory::new(100 + 2 * STATE_ENTRY_BYTES, evict);
    let get = |key: &'static str, entry_bytes: usize| {
        let subject = prefix(key);
        let built = cache.get(&subject, now, async || {
            let mut share = memory.share();
            let grown = share.grow(entry_bytes).then_some(share);
            Ok::<_, CloseReason>((LogIndex(0), grown.ok_or(CloseReason::Reset)?))
        });
        built.now_or_never().expect("nothing to wait for").ok()
    };
    let held = get("a", 60);
    assert!(
        held.is_some() && get("b", 40).is_some() && get("c", 40).is_some(),
        "the second one makes room for the third"
    );
    assert!(get("d", 41).is_none(), "the first one is read");
    let shared = get("a", 60).expect("what somebody reads is still there for others");
    assert!(Arc::ptr_eq(&shared, held.as_ref().unwrap()));
    drop(shared);
    drop(held);
    assert!(get("d", 100).is_some());
}

#[test]
fn a_list_takes_memory_for_what_changed_since_it_was_made() {
    let mut bed = Bed::new(options(100, 100));
    let memory = StateMemory::new(2 * (STATE_ENTRY_BYTES + 10), || {});
    let cache = SnapshotCache::<Kv, Entries<Bytes, Bytes>>::new(Arc::clone(&bed.feed), TTL);
    let subject = prefix("k");
    let build = async || {
        let mut share = memory.share();
        assert!(share.grow(10));
        Ok::<_, CloseReason>((LogIndex(0), Entries::new(vec![(Bytes::from("k0"), Bytes::from("old"))], share)))
    };
    let snapshot = cache.get(&subject, Instant::now(), build).now_or_never().unwrap().unwrap();
    // Only the last of several changes of one key takes memory.
    for _ in 0..3 {
        bed.put(&["k1"]);
    }
    let begin = |value_bytes| {
        let (deadline, effect) =
            (Instant::now() + TTL, |event: &KvEvent| (event.kv.key.clone(), Some(vec![0; value_bytes].into())));
        let session = Session::new();
        let begun = Listing::begin(Arc::clone(&snapshot), LogIndex(3), &session, deadline, 100, effect);
        begun.now_or_never().expect("nothing to wait for")
    };
    assert_eq!(begin(11).err(), Some(ListingError::NoCapacity));
    let mut first = begin(10).unwrap();
    assert_eq!(begin(10).err(), Some(ListingError::NoCapacity), "each has what changed for itself");
    while first.is_listing() {
        assert!(first.try_next().unwrap().is_some());
    }
    assert!(begin(10).is_ok(), "it was sent");
}
