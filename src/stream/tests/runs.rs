//! Runs of commits that several readers share.

use super::super::*;
use super::bed::{Bed, RUNS, one, options, prefix};
use headwater_types::{LogIndex, Revision};
use std::sync::Arc;

#[test]
fn the_second_reader_makes_a_run_and_the_others_take_it() {
    let mut bed = Bed::new(options(100, 10));
    let mut readers: Vec<_> = (0..4).map(|_| bed.subscribe(&prefix("k"), Start::Now)).collect();
    bed.put(&["k1"]);
    assert!(readers.iter_mut().all(|reader| reader.read_runs(9).is_empty()), "one commit is no run");
    for _ in 0..6 {
        bed.put(&["k1", "k2"]);
        bed.put(&["other"]);
    }
    assert!(readers[0].read_runs(9).is_empty(), "nobody else may read it");
    let made = readers[1].read_runs(9);
    assert_eq!(made.iter().map(|run| run.events()).collect::<Vec<_>>(), [7], "as many commits as a run has at most");
    // The second reader at the next commit makes a run of the rest.
    let taken = readers[2].read_runs(9);
    assert!(Arc::ptr_eq(&made[0], &taken[0]));
    assert_eq!(taken.iter().map(|run| run.events()).collect::<Vec<_>>(), [7, 6]);
    assert_eq!(readers[3].read_runs(9).len(), 2);
    assert!(!readers[3].subscription.is_at_run(), "at the end");
    assert_eq!(readers[3].seen, bed.wanted(&prefix("k"), LogIndex(0)));
    for mut reader in readers {
        reader.drain(&mut bed).unwrap();
        assert_eq!(reader.seen, bed.wanted(&prefix("k"), LogIndex(0)));
    }
}

#[test]
fn who_reads_one_by_one_meets_the_run() {
    let mut bed = Bed::new(options(100, 10));
    let mut readers: Vec<_> = (0..3).map(|_| bed.subscribe(&one("k"), Start::Now)).collect();
    bed.put(&["k"]);
    readers[0].read(1).unwrap();
    readers[1].read(1).unwrap();
    for _ in 0..3 {
        bed.put(&["k"]);
    }
    assert!(readers[0].read_runs(1).is_empty());
    assert_eq!(readers[1].read_runs(1).len(), 1);
    assert!(!readers[2].subscription.is_at_run());
    readers[2].read(1).unwrap();
    assert!(readers[2].subscription.is_at_run());
    assert_eq!(readers[2].read_runs(1).len(), 1);
    assert_eq!(readers[2].seen, bed.wanted(&one("k"), LogIndex(0)));
}

#[test]
fn a_run_is_for_one_purpose_and_begins_at_a_wanted_revision() {
    let mut bed = Bed::new(options(100, 10));
    let mut readers: Vec<_> = (0..3).map(|_| bed.subscribe(&one("k"), Start::Now)).collect();
    for _ in 0..3 {
        bed.put(&["k"]);
    }
    readers[0].read_runs(1);
    readers[1].read_runs(1);
    let subscription = &mut readers[2].subscription;
    assert!(subscription.is_at_run());
    assert!(subscription.try_next_run(1, Revision(0), &RUNS, |_, _| panic!("it is made")).is_none());
    assert!(subscription.try_next_run(0, Revision(2), &RUNS, |_, _| panic!("it is made")).is_none());
    assert!(subscription.try_next_run(0, Revision(1), &RUNS, |_, _| panic!("it is made")).is_some());
}

#[test]
fn runs_count_against_the_window_and_go_with_it() {
    let mut bed = Bed::new(options(3, 10));
    let mut readers: Vec<_> = (0..4).map(|_| bed.subscribe(&one("k"), Start::Now)).collect();
    for _ in 0..3 {
        bed.put(&["k"]);
    }
    let before = bed.feed.stats().window_bytes;
    readers[0].read_runs(1);
    let run = Arc::downgrade(&readers[1].read_runs(1)[0]);
    let after = bed.feed.stats().window_bytes;
    assert_eq!(after - before, (run.upgrade().unwrap().bytes().len() + size_of::<Run<Kv>>()) as u64);
    readers[2].read_runs(1);
    for _ in 0..3 {
        bed.put(&["k"]);
    }
    assert_eq!(bed.feed.stats().window_bytes, before);
    assert!(run.upgrade().is_none(), "a reader that has not come yet pins nothing");
    assert!(readers[3].read_runs(1).is_empty());
    readers[3].drain(&mut bed).unwrap();
    assert_eq!(readers[3].seen, bed.wanted(&one("k"), LogIndex(0)));
}

#[test]
fn runs_stay_within_the_bound_though_nothing_is_written_any_more() {
    let bytes_max = 60_000;
    let mut bed = Bed::new(FeedOptions { window_bytes_max: bytes_max, ..options(100, 10) });
    let key: &'static str = "k".repeat(500).leak();
    let ranges: Vec<_> = (1..=20).map(|length| prefix(&key[..length])).collect();
    let mut readers: Vec<_> = ranges.iter().chain(&ranges).map(|range| bed.subscribe(range, Start::Now)).collect();
    for _ in 0..8 {
        bed.put(&[key]);
    }
    assert!(bed.feed.stats().window_bytes < bytes_max as u64 / 2, "{:?}", bed.feed.stats());
    let made: usize = readers.iter_mut().map(|reader| reader.read_runs(9).len()).sum();
    assert!(made > 1 && bed.feed.stats().window_bytes <= bytes_max as u64, "{made} {:?}", bed.feed.stats());
    for mut reader in readers {
        reader.drain(&mut bed).unwrap();
        assert_eq!(reader.seen, bed.wanted(&ranges[0], LogIndex(0)));
    }
}
