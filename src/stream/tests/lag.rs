//! Slow readers: bounded memory, the return to the live list, and the ends of a subscription.

use bytes::Bytes;

use super::super::feed::WindowAnswer;
use super::super::link::Node;
use super::super::*;
use super::bed::{Bed, commit, one, options, prefix};
use headwater_types::{KeyRange, KeyValue, LogIndex, Revision, StoreEpoch};

#[test]
fn a_slow_reader_pins_the_window_and_no_more() {
    let mut bed = Bed::new(options(4, 3));
    let mut slow = bed.subscribe(&prefix("k"), Start::Now);
    let mut fast = bed.subscribe(&prefix("k"), Start::Now);
    for _ in 0..100 {
        bed.put(&["k"]);
        fast.read(usize::MAX).unwrap();
    }
    let stats = bed.feed.stats();
    assert_eq!((stats.window_items, stats.fell_behind, stats.lagging), (4, 0, 0));
    assert_eq!(fast.seen.len(), 100);
    slow.read(1).unwrap();
    let stats = bed.feed.stats();
    assert_eq!((stats.fell_behind, stats.lagging), (1, 1));
    slow.drain(&mut bed).unwrap();
    assert_eq!(slow.seen, fast.seen);
    assert_eq!(bed.feed.stats().lagging, 0);
    // The reader is live again: no more scans.
    let scans = bed.feed.stats().scans;
    bed.put(&["k"]);
    slow.read(usize::MAX).unwrap();
    assert_eq!((slow.seen.len(), bed.feed.stats().scans), (101, scans));
}

#[test]
fn bytes_bound_the_window_too() {
    let mut bed = Bed::new(FeedOptions { window_bytes_max: 1000, ..FeedOptions::default() });
    let _reader = bed.subscribe(&prefix("k"), Start::Now);
    for _ in 0..100 {
        bed.put(&["k"]);
    }
    let stats = bed.feed.stats();
    assert!(stats.window_items > 1 && stats.window_bytes <= 1000, "{stats:?}");
}

#[test]
fn a_commit_counts_once_for_every_subject_that_it_concerns() {
    const WINDOW_BYTES: usize = 1_000_000;
    let held = |keys: &[&str]| {
        let mut bed = Bed::new(FeedOptions { window_bytes_max: WINDOW_BYTES, ..FeedOptions::default() });
        // All subjects differ, and each contains the first key of every commit.
        let subject = |number: u32| KeyRange::Span {
            start: Bytes::from_static(b"a"),
            end: Some(Bytes::from(format!("k{number:04}"))),
        };
        let mut readers: Vec<_> = (0..200).map(|number| bed.subscribe(&subject(number), Start::Now)).collect();
        for _ in 0..1000 {
            bed.put(keys);
        }
        let stats = bed.feed.stats();
        assert!(stats.window_items > 0 && stats.window_bytes <= WINDOW_BYTES as u64, "{stats:?}");
        // Most of a commit's memory is that of its nodes.
        let nodes_bytes = stats.window_items as usize * 200 * size_of::<Node<Kv>>();
        assert!((WINDOW_BYTES / 10..WINDOW_BYTES).contains(&nodes_bytes), "{nodes_bytes}");
        // Readers of evicted nodes find all of it in history.
        readers[7].drain(&mut bed).unwrap();
        assert_eq!(readers[7].seen, bed.wanted(&subject(7), LogIndex(0)));
        bed.feed.reset(StatePoint { index: LogIndex(1000), ..StatePoint::default() });
        assert_eq!(bed.feed.stats().window_bytes, 0);
        for _ in 0..1000 {
            bed.put(keys);
        }
        drop(readers);
        bed.put(keys);
        assert_eq!(bed.feed.stats().window_bytes, 0);
        stats.window_items
    };
    // The list of the matching positions counts, too.
    assert!(held(&["b"]) > held(&["b", "z"]));
}

#[test]
fn what_is_derived_counts_too_while_the_window_keeps_it() {
    let bed = Bed::new(FeedOptions { window_bytes_max: 10_000, ..FeedOptions::default() });
    let mut reader = bed.feed.subscribe(prefix("k"), Start::Now, &Session::new(), 7).unwrap();
    let late = bed.feed.subscribe(prefix("k"), Start::Now, &Session::new(), 8).unwrap();
    let bytes = || bed.feed.stats().window_bytes;
    bed.feed.publish(&[commit(1, &["k"])]);
    let first = reader.try_next().unwrap().unwrap();
    let cost = bytes();
    let nodes = cost - first.commit().bytes() as u64;
    assert!((size_of::<Node<Kv>>() as u64..200).contains(&nodes), "one: {nodes}");
    // One encoding is included, a second one and the pair before are not.
    first.commit().encoded(0, Encoding::Etcd, || vec![0; 100].into());
    assert_eq!(bytes(), cost);
    first.commit().encoded(0, Encoding::Early, || vec![0; 100].into());
    assert_eq!(bytes(), cost + 100);
    first.commit().set_prev(0, Some(KeyValue { value: vec![0; 2000].into(), ..KeyValue::default() }));
    first.commit().set_prev(0, None);
    let with_prev = bytes();
    assert!((cost + 4100..cost + 4500).contains(&with_prev), "{with_prev}");
    // Added memory evicts commits at the next commit. An evicted commit does not count, even if a
    // reader holds it.
    bed.feed.publish(&[commit(2, &["k"])]);
    let second = reader.try_next().unwrap().unwrap();
    second.commit().set_prev(0, Some(KeyValue { value: vec![0; 3000].into(), ..KeyValue::default() }));
    assert!(bytes() > 10_000 && bed.feed.stats().window_items == 2);
    bed.feed.publish(&[commit(3, &["k"])]);
    assert_eq!(bed.feed.stats().window_items, 2);
    let rest = bytes();
    assert!((6000..7000).contains(&rest), "{rest}");
    first.commit().encoded(0, Encoding::EtcdWithPrev, || vec![0; 50_000].into());
    assert_eq!(bytes(), rest);
    // A reader that rejoins evicts, too.
    second.commit().encoded(0, Encoding::Etcd, || vec![0; 10].into());
    second.commit().encoded(0, Encoding::Early, || vec![0; 20_000].into());
    let mut late = late;
    assert!(late.try_next().unwrap().is_none(), "it waits for history");
    assert_eq!((bed.feed.stats().window_items, bytes()), (1, cost));
    bed.feed.reset(StatePoint { index: LogIndex(3), ..StatePoint::default() });
    assert_eq!(bytes(), 0);
}

#[test]
fn what_is_derived_from_history_is_bounded_too() {
    let mut bed = Bed::new(FeedOptions { window_bytes_max: 10_000, ..options(1, 10) });
    for _ in 0..10 {
        bed.put(&["k"]);
    }
    let first = |bed: &mut Bed| {
        let mut late = bed.feed.subscribe(one("k"), Start::After(LogIndex(0)), &Session::new(), 7).unwrap();
        late.try_next().unwrap().or_else(|| {
            bed.run_tasks();
            late.try_next().unwrap()
        })
    };
    let remember = |item: &Item<Kv>, value_len: usize| {
        item.commit().set_prev(0, Some(KeyValue { value: vec![0; value_len].into(), ..KeyValue::default() }));
    };
    for (value_len, scans) in [(6000, 1), (2000, 2), (0, 2)] {
        let item = first(&mut bed).unwrap();
        assert_eq!(bed.feed.stats().scans, scans, "{value_len}");
        remember(&item, value_len);
        bed.feed.evict_excess();
    }
}

#[test]
fn without_subscribers_nothing_is_kept() {
    let mut bed = Bed::new(FeedOptions::default());
    bed.put(&["k"]);
    let reader = bed.subscribe(&one("k"), Start::Now);
    bed.put(&["k"]);
    assert_eq!((bed.feed.stats().window_items, bed.feed.stats().subjects), (1, 1));
    drop(reader);
    bed.put(&["k"]);
    let stats = bed.feed.stats();
    assert_eq!((stats.window_items, stats.subjects, stats.subscriptions), (0, 0, 0));
    assert_eq!(bed.feed.published().index, LogIndex(3));
    // A reader that comes back gets it from history.
    let mut reader = bed.subscribe(&one("k"), Start::After(LogIndex(1)));
    reader.drain(&mut bed).unwrap();
    assert_eq!(reader.seen, bed.wanted(&one("k"), LogIndex(1)));
}

#[test]
fn many_who_are_behind_share_scans() {
    let mut bed = Bed::new(options(1, 10));
    for _ in 0..100 {
        bed.put(&["k"]);
    }
    let mut readers: Vec<_> =
        (0..50).map(|after| bed.subscribe(&one("k"), Start::After(LogIndex(after % 5)))).collect();
    for _ in 0..30 {
        for reader in &mut readers {
            reader.read(usize::MAX).unwrap();
        }
        bed.run_tasks();
    }
    for (after, reader) in readers.iter().enumerate() {
        assert_eq!(reader.seen, bed.wanted(&one("k"), LogIndex(after as u64 % 5)));
    }
    let stats = bed.feed.stats();
    assert!(stats.scans <= 30, "{stats:?}");
}

#[test]
fn a_live_reader_never_waits_for_the_lagging() {
    // The tasks do not run at all: lagging readers wait, live readers read.
    let mut bed = Bed::new(options(1, 1));
    for _ in 0..10 {
        bed.put(&["k"]);
    }
    let mut behind = bed.subscribe(&one("k"), Start::After(LogIndex(0)));
    behind.read(usize::MAX).unwrap();
    let mut live = bed.subscribe(&one("k"), Start::Now);
    for _ in 0..10 {
        bed.put(&["k"]);
        live.read(usize::MAX).unwrap();
    }
    assert_eq!((behind.seen.len(), live.seen.len()), (0, 10));
}

#[test]
fn who_is_behind_takes_little_of_the_window_at_a_time() {
    // The limits of a history scan do not raise the limit of the window.
    let mut bed = Bed::new(options(10_000, 10_000));
    let mut slow = bed.subscribe(&prefix("k"), Start::After(LogIndex(0)));
    for _ in 0..1000 {
        bed.put(&["k"]);
    }
    let WindowAnswer::More(missed) = bed.feed.rejoin(0, LogIndex(0)) else { panic!("all at once") };
    assert_eq!(missed.len(), 128);
    let mut late = bed.subscribe(&prefix("k"), Start::After(LogIndex(0)));
    for reader in [&mut slow, &mut late] {
        reader.drain(&mut bed).unwrap();
        assert_eq!(reader.seen, bed.wanted(&prefix("k"), LogIndex(0)));
    }
    assert_eq!(bed.feed.stats().scans, 0);
}

#[test]
fn compaction_overtakes_only_who_needs_what_is_gone() {
    let mut bed = Bed::new(options(2, 2));
    let mut idle = bed.subscribe(&one("other"), Start::Now);
    let mut slow = bed.subscribe(&one("k"), Start::Now);
    let mut synced = bed.subscribe(&one("k"), Start::Now);
    for _ in 0..10 {
        bed.put(&["k"]);
        synced.read(usize::MAX).unwrap();
    }
    bed.log.0.lock().compacted = LogIndex(9);
    let wanted = CloseReason::Compacted { revision: Revision(9) };
    assert_eq!(slow.drain(&mut bed), Err(wanted.clone()));
    assert_eq!(slow.subscription.try_next().err(), Some(CloseReason::Compacted { revision: Revision(9) }));
    bed.put(&["k", "other"]);
    for reader in [&mut idle, &mut synced] {
        reader.drain(&mut bed).unwrap();
    }
    assert_eq!((idle.seen.len(), synced.seen.len()), (1, 11));
    // An idle reader that misses its first commit has everything before it, at any compaction
    // point.
    bed.put(&["other"]);
    for _ in 0..10 {
        bed.put(&["k"]);
    }
    idle.drain(&mut bed).unwrap();
    assert_eq!(idle.seen.len(), 2);
}

#[test]
fn a_reset_continues_every_reader_where_it_was() {
    let mut bed = Bed::new(options(100, 2));
    let mut idle = bed.subscribe(&one("other"), Start::Now);
    let mut read = bed.subscribe(&one("k"), Start::Now);
    let mut unread = bed.subscribe(&one("k"), Start::Now);
    for _ in 0..5 {
        bed.put(&["k"]);
    }
    read.read(usize::MAX).unwrap();
    // The installed state has commits that were never published here.
    for _ in 0..5 {
        bed.commit(&["k", "other"]);
    }
    bed.reset();
    bed.put(&["k"]);
    for (reader, key) in [(&mut idle, "other"), (&mut read, "k"), (&mut unread, "k")] {
        reader.drain(&mut bed).unwrap();
        assert_eq!(reader.seen, bed.wanted(&one(key), LogIndex(0)), "{key}");
    }
}

#[test]
fn a_reset_ends_nobody_who_missed_nothing() {
    let mut bed = Bed::new(options(100, 2));
    let mut idle = bed.subscribe(&one("k"), Start::Now);
    // Commits without events of this topic. The feed has seen them before their history is
    // compacted.
    for _ in 0..5 {
        bed.put(&[]);
    }
    bed.log.0.lock().compacted = LogIndex(5);
    bed.commit(&["k"]);
    bed.reset();
    idle.drain(&mut bed).unwrap();
    assert_eq!(idle.seen, [(6, vec!["k".to_owned()])]);
}

#[test]
fn another_lineage_ends_every_reader() {
    let mut bed = Bed::new(options(100, 2));
    let point = |epoch| StatePoint { index: LogIndex(9), revision: Revision(9), epoch: Some(StoreEpoch(epoch)) };
    bed.feed.reset(point(1));
    let mut reader = bed.subscribe(&one("k"), Start::Now);
    bed.feed.reset(point(1));
    assert_eq!(reader.read(1), Ok(()));
    bed.run_tasks();
    bed.feed.reset(point(2));
    assert_eq!(reader.read(1), Err(CloseReason::EpochChanged));
}

#[test]
fn a_feed_that_ends_ends_everybody_with_the_reason() {
    let mut bed = Bed::new(options(100, 2));
    let mut reader = bed.subscribe(&one("k"), Start::Now);
    let mut other = bed.subscribe(&one("l"), Start::Now);
    reader.read(1).unwrap();
    bed.feed.close_where(|subject| *subject == one("l"), CloseReason::Reset);
    assert_eq!((reader.read(1), other.read(1)), (Ok(()), Err(CloseReason::Reset)));
    bed.feed.close(CloseReason::Stopping);
    assert_eq!(reader.read(1), Err(CloseReason::Stopping));
    assert_eq!(other.subscription.try_next().err(), Some(CloseReason::Reset), "the first reason stands");
    let session = Session::new();
    let refused = bed.feed.subscribe(one("k"), Start::Now, &session, 0).err();
    assert_eq!(refused, Some(CloseReason::Stopping));
    bed.put(&["k"]);
}
