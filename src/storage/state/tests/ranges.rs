//! The cache of ranges answers as the disk does, for every view and whatever was written since.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use proptest::prelude::*;

use super::bed::*;
use crate::state::{FoundVersion, NEWEST, ReadView, StateOptions, StateReader, StateStore, Table, Version};
use headwater_types::limits::RANGE_VALUE_CACHED_BYTES_MAX;
use headwater_types::{KeyRange, KeyValue};

const KEYS: u8 = 60;

/// The key with a number. Some keys are prefixes of others, with bytes that the order of keys is
/// sensitive to.
fn key(number: u8) -> String {
    let last = ["", "\0", "\0\0", "\u{1}", "a", "b"][usize::from(number % 6)];
    format!("{}{last}", char::from(b'a' + number % KEYS / 6))
}

/// A value that begins with `index`. `seed` selects a length around the limits of the cache, so
/// that a few keys fill a segment.
fn value(seed: u8, index: u64) -> String {
    let len = [0, 5, 3000, 9000, RANGE_VALUE_CACHED_BYTES_MAX, RANGE_VALUE_CACHED_BYTES_MAX + 1][usize::from(seed % 6)];
    format!("{index:<len$}").chars().take(len).collect()
}

fn span(a: u8, b: u8) -> KeyRange {
    let (start, end) = (key(a), key(b));
    match (a, b) {
        (255, _) => KeyRange::all(),
        (_, 255) => KeyRange::Span { start: start.into(), end: None },
        _ => KeyRange::Span { start: start.into(), end: Some(end.into()) },
    }
}

/// The rows of `range`, read from disk.
fn stored(view: &ReadView<'_>, range: &KeyRange) -> Vec<(Bytes, Version)> {
    let mut scan = view.scan(Table::Kv, range, NEWEST).unwrap().with_tombstones();
    let mut rows = Vec::new();
    while let Some((key, version)) = scan.next().unwrap() {
        if !version.deleted {
            rows.push((key.to_bytes(), version));
        }
    }
    rows
}

fn stored_pairs(view: &ReadView<'_>, range: &KeyRange) -> Vec<KeyValue> {
    let versions: Vec<Version> = stored(view, range).into_iter().map(|(_, version)| version).collect();
    view.load(&versions).unwrap().into_iter().map(|record| record.kv).collect()
}

/// Scans `range` with the cache and compares each row with the disk. `between` is called after
/// `steps` rows; the rest is counted if `counts` is true, else read.
fn compare(view: &ReadView<'_>, range: &KeyRange, steps: usize, counts: bool, between: impl FnOnce()) {
    let want = stored(view, range);
    let mut scan = view.scan(Table::Kv, range, NEWEST).unwrap();
    let (mut rows, mut found): (Vec<(Bytes, Version)>, Vec<FoundVersion>) = Default::default();
    let mut between = Some(between);
    loop {
        if rows.len() == steps
            && let Some(between) = between.take()
        {
            between();
            if counts {
                assert_eq!(scan.count_rest().unwrap(), (want.len() - rows.len()) as u64, "{range:?}");
                assert_eq!(rows, want[..rows.len()], "{range:?}");
                break;
            }
        }
        let Some((key, version)) = scan.next().unwrap() else {
            assert_eq!(rows, want, "{range:?}");
            break;
        };
        assert_eq!(key.to_bytes().len(), key.user_len());
        rows.push((key.to_bytes(), version));
        found.push(key.with_version(version));
    }
    let pairs = view.load_found(&found).unwrap();
    assert_eq!(pairs, stored_pairs(view, range)[..pairs.len()], "{range:?}");
    assert_eq!(pairs.len(), rows.len());
}

#[derive(Clone, Debug)]
enum Step {
    /// Writes keys: with a value, or `None` to delete.
    Commit(Vec<(u8, Option<u8>)>),
    /// Compacts and reclaims.
    Compact,
    Flush,
    /// Opens a view, in place of one of the others.
    View(usize),
    /// Scans a range in one of the views; keys are written after some rows.
    Scan {
        view: usize,
        from: u8,
        to: u8,
        steps: usize,
        counts: bool,
        writes: Vec<(u8, Option<u8>)>,
    },
}

fn writes(max: usize) -> impl Strategy<Value = Vec<(u8, Option<u8>)>> {
    proptest::collection::vec((0..KEYS, proptest::option::weighted(0.7, any::<u8>())), 0..max)
}

fn bound() -> impl Strategy<Value = u8> {
    prop_oneof![9 => 0..KEYS, 1 => Just(255)]
}

fn step() -> impl Strategy<Value = Step> {
    let scan = (0..3usize, bound(), bound(), 0..40usize, any::<bool>(), prop_oneof![Just(Vec::new()), writes(4)]);
    prop_oneof![
        3 => writes(12).prop_map(Step::Commit),
        1 => Just(Step::Compact),
        1 => Just(Step::Flush),
        2 => (0..3usize).prop_map(Step::View),
        8 => scan.prop_map(|(view, from, to, steps, counts, writes)| Step::Scan { view, from, to, steps, counts, writes }),
    ]
}

fn commit(bed: &TestBed, index: &mut u64, writes: &[(u8, Option<u8>)]) {
    *index += 1;
    let mut owned: Vec<(String, Option<String>)> = Vec::new();
    for &(number, seed) in writes {
        // A command writes a key once.
        if owned.iter().all(|(other, _)| *other != key(number)) {
            owned.push((key(number), seed.map(|seed| value(seed, *index))));
        }
    }
    let writes: Vec<Write<'_>> = owned.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
    bed.commit(*index, &writes);
}

fn bed_with(range_cache_bytes: usize) -> TestBed {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let options = StateOptions { range_cache_bytes, ..small() };
    TestBed { store: StateStore::open(dir.path(), &options).unwrap(), dir }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_cached_range_equals_the_stored_one(
        steps in proptest::collection::vec(step(), 1..60),
        small in any::<bool>(),
    ) {
        let bed = bed_with(if small { 60_000 } else { 64 << 20 });
        let db = bed.store.current();
        let mut index = 0;
        commit(&bed, &mut index, &(0..KEYS).map(|number| (number, (number % 3 > 0).then_some(number))).collect::<Vec<_>>());
        let mut views = [db.view().unwrap(), db.view().unwrap(), db.view().unwrap()];
        for step in steps {
            match step {
                Step::Commit(writes) => commit(&bed, &mut index, &writes),
                Step::Compact => {
                    index += 1;
                    let revision = db.head().revision.get();
                    bed.compact(index, revision);
                    while !db.reclaim_step(3).unwrap().done {}
                }
                Step::Flush => drop(db.flush().unwrap()),
                Step::View(view) => views[view] = db.view().unwrap(),
                Step::Scan { view, from, to, steps, counts, writes } => {
                    let between = || if !writes.is_empty() { commit(&bed, &mut index, &writes) };
                    compare(&views[view], &span(from, to), steps, counts, between);
                }
            }
        }
        for view in &views {
            compare(view, &KeyRange::all(), usize::MAX, false, || {});
        }
        compare(&db.view().unwrap(), &KeyRange::all(), usize::MAX, false, || {});
    }
}

#[test]
fn readers_beside_a_writer_never_see_another_state() {
    let bed = bed_with(256 << 10);
    let mut index = 0;
    commit(&bed, &mut index, &(0..KEYS).map(|number| (number, Some(number))).collect::<Vec<_>>());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3u8 {
            let (bed, is_over) = (&bed, &is_over);
            scope.spawn(move || {
                let db = bed.store.current();
                let mut round = reader;
                while !is_over.load(Ordering::Relaxed) {
                    round = round.wrapping_mul(29).wrapping_add(17);
                    let range = if round % 4 == 0 { KeyRange::all() } else { span(round % KEYS, round / 2 % KEYS) };
                    compare(&db.view().unwrap(), &range, usize::from(round % 32), round % 5 == 0, || {});
                }
            });
        }
        for round in 0..3000u64 {
            let number = (round * 7 % u64::from(KEYS)) as u8;
            let seed = (round % 5 > 0).then_some((round % 4) as u8);
            commit(&bed, &mut index, &[(number, seed), ((number + 31) % KEYS, Some(1))]);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let metrics = bed.store.range_cache_metrics();
    assert!(metrics.hits.get() > 0 && metrics.misses.get() > 0);
}

#[test]
fn a_range_is_read_from_disk_once() {
    let bed = bed_with(1 << 20);
    let mut index = 0;
    commit(&bed, &mut index, &(0..KEYS).map(|number| (number, Some(number % 4))).collect::<Vec<_>>());
    let db = bed.store.current();
    let metrics = bed.store.range_cache_metrics();
    let read = || {
        let (hits, misses) = (metrics.hits.get(), metrics.misses.get());
        compare(&db.view().unwrap(), &KeyRange::all(), usize::MAX, false, || {});
        (metrics.hits.get() - hits, metrics.misses.get() - misses)
    };
    let all = u64::from(KEYS);
    // Empty values are never read from history.
    assert_eq!(read(), (all / 4, all / 4 * 3));
    assert_eq!(read(), (all, 0));
    commit(&bed, &mut index, &[(7, Some(1))]);
    let (hits, misses) = read();
    assert!(misses > 0 && misses < all / 2, "only the segment of the key was given up: {hits} hits, {misses} misses");
    assert_eq!(read(), (all, 0));
    db.ranges.clear();
    assert_eq!(metrics.bytes.get(), 0, "a replaced state needs none");
}

#[test]
fn memory_is_bounded() {
    let max = 100_000;
    let bed = bed_with(max);
    let mut index = 0;
    commit(&bed, &mut index, &(0..KEYS).map(|number| (number, Some(3))).collect::<Vec<_>>());
    let db = bed.store.current();
    for round in 0..50u8 {
        compare(&db.view().unwrap(), &span(round % KEYS, round * 3 % KEYS), usize::MAX, false, || {});
        compare(&db.view().unwrap(), &KeyRange::all(), usize::MAX, false, || {});
        let bytes = bed.store.range_cache_metrics().bytes.get();
        assert!(bytes > 0 && bytes <= max as i64, "{bytes}");
    }
}

fn rows(view: &ReadView<'_>) -> Vec<(Bytes, Version)> {
    let mut scan = view.scan(Table::Kv, &KeyRange::all(), NEWEST).unwrap();
    let mut rows = Vec::new();
    while let Some((key, version)) = scan.next().unwrap() {
        rows.push((key.to_bytes(), version));
    }
    rows
}

#[test]
fn a_scan_that_a_write_overtook_leaves_nothing_of_the_state_before() {
    let bed = bed_with(1 << 20);
    bed.commit(1, &[("a", Some("1")), ("b", Some("1"))]);
    let db = bed.store.current();
    // Before its first row, and between its view and the scan itself.
    let view = db.view().unwrap();
    let mut scan = view.scan(Table::Kv, &KeyRange::all(), NEWEST).unwrap();
    bed.commit(2, &[("a", Some("2")), ("c", Some("2"))]);
    assert_eq!(scan.next().unwrap().map(|(_, version)| version.index.get()), Some(1));
    assert_eq!(scan.count_rest().unwrap(), 1);
    assert_eq!(bed.store.range_cache_metrics().bytes.get(), 0);
    assert_eq!(bed.pairs(NEWEST), ["a=2", "b=1", "c=2"]);
}

#[test]
fn a_view_does_not_use_what_a_newer_one_has_read() {
    let bed = bed_with(1 << 20);
    bed.commit(1, &[("a", Some("1")), ("b", Some("1"))]);
    let db = bed.store.current();
    let old = db.view().unwrap();
    bed.commit(2, &[("a", Some("2")), ("b", None)]);
    let new = db.view().unwrap();
    assert_eq!((rows(&new).len(), rows(&new).len()), (1, 1));
    assert_eq!(rows(&old), stored(&old, &KeyRange::all()));
    assert_eq!(show(&old, NEWEST), ["a=1", "b=1"]);
    assert_eq!(show(&new, NEWEST), ["a=2"]);
    assert_eq!(rows(&old).len(), 2, "nor does it leave its own");
    assert_eq!(rows(&db.view().unwrap()).len(), 1);
}

#[test]
fn intervals_without_keys_are_cached_too() {
    let bed = bed_with(1 << 20);
    bed.commit(1, &[("a", Some("1")), ("z", Some("1"))]);
    let db = bed.store.current();
    let range = KeyRange::prefix("m".into());
    let count = |db: &crate::state::StateDb| {
        let view = db.view().unwrap();
        let mut scan = view.scan(Table::Kv, &range, NEWEST).unwrap();
        scan.count_rest().unwrap()
    };
    assert_eq!((count(&db), count(&db)), (0, 0));
    bed.commit(2, &[("m1", Some("2"))]);
    assert_eq!((count(&db), count(&db)), (1, 1));
    bed.commit(3, &[("m1", None)]);
    assert_eq!((count(&db), count(&db)), (0, 0));
}

#[test]
fn an_installed_snapshot_begins_with_an_empty_cache() {
    let bed = bed_with(1 << 20);
    bed.commit(1, &[("a", Some("old")), ("b", Some("old"))]);
    assert_eq!(bed.pairs(NEWEST), ["a=old", "b=old"]);
    let other = TestBed::new();
    other.commit(1, &[("a", Some("new"))]);
    other.commit(9, &[("c", Some("new"))]);
    let copy = bed.dir.path().join("copy");
    other.store.current().checkpoint(&copy).unwrap();
    bed.store.install(&copy).unwrap();
    assert_eq!(bed.pairs(NEWEST), ["a=new", "c=new"]);
    bed.commit(10, &[("a", None)]);
    assert_eq!(bed.pairs(NEWEST), ["c=new"]);
}
