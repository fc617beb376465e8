//! Parts of a range add up to the whole (spec: etcd §1.3).

use super::bed::*;
use crate::{RangeCursor, RangePart};
use headwater_types::{RangeQuery, RangeResult, RevisionFilter};

fn whole(bed: &TestBed, query: &RangeQuery, keys_max: usize, bytes_max: usize) -> (RangeResult, Vec<usize>) {
    let db = bed.store.current();
    let view = db.view().unwrap();
    let mut cursor = RangeCursor::new(&view, query.clone()).unwrap().unwrap();
    let (mut result, mut sizes) = (RangeResult::default(), Vec::new());
    loop {
        match cursor.next(keys_max, bytes_max).unwrap() {
            Some(RangePart::Kvs(kvs)) => {
                sizes.push(kvs.len());
                result.kvs.extend(kvs);
            }
            Some(RangePart::End { more, count }) => {
                (result.more, result.count) = (more, count);
                assert_eq!(cursor.next(keys_max, bytes_max).unwrap(), None, "nothing comes after the end");
                return (result, sizes);
            }
            None => panic!("it ends with an end"),
        }
    }
}

#[test]
fn pieces_add_up_to_the_range() {
    let mut bed = TestBed::with((0..30).map(|i| put(format!("k{i:02}"), "v".repeat(i % 7))));
    bed.apply(del("k10", "k12"));
    let base = get("k", "l");
    let queries = [
        ("interval", base.clone()),
        ("everything", get("\0", "\0")),
        ("one key", get("k05", "")),
        ("absent key", get("q", "")),
        ("empty interval", get("l", "k")),
        ("limit", RangeQuery { limit: 7, ..base.clone() }),
        ("limit of everything", RangeQuery { limit: 7, ..get("\0", "\0") }),
        ("limit is all there is", RangeQuery { limit: 28, ..base.clone() }),
        ("limit is one less", RangeQuery { limit: 27, ..base.clone() }),
        ("keys only", RangeQuery { keys_only: true, ..base.clone() }),
        ("count only", RangeQuery { count_only: true, ..base.clone() }),
        ("count everything", RangeQuery { count_only: true, limit: 1, ..get("\0", "\0") }),
        ("in the past", RangeQuery { at: at(12), ..base.clone() }),
        (
            "filtered",
            RangeQuery { filter: RevisionFilter { min_mod: 9, ..RevisionFilter::default() }, limit: 3, ..base },
        ),
    ];
    for (name, query) in queries {
        let want = bed.range(&query).unwrap();
        for (keys_max, bytes_max) in [(1, 1), (3, usize::MAX), (1000, 20), (1000, usize::MAX), (0, 0)] {
            let (got, sizes) = whole(&bed, &query, keys_max, bytes_max);
            assert_eq!(got, want, "{name} by {keys_max} keys and {bytes_max} bytes");
            assert!(sizes.iter().all(|size| (1..=keys_max.max(1)).contains(size)), "{name}: {sizes:?}");
        }
    }
}

#[test]
fn pieces_are_cut_by_bytes() {
    let bed = TestBed::with((0..10).map(|i| put(format!("k{i}"), "v".repeat(100))));
    let (_, sizes) = whole(&bed, &get("k", "l"), 1000, 250);
    assert_eq!(sizes, [3, 3, 3, 1]);
    let bare = RangeQuery { keys_only: true, ..get("k", "l") };
    assert_eq!(whole(&bed, &bare, 1000, 250).1, [10], "values that are not sent do not count");
}

#[test]
fn what_cannot_be_read_is_refused_at_the_start() {
    let bed = TestBed::with([put("a", "1"), put("a", "2"), compact(3)]);
    let db = bed.store.current();
    let view = db.view().unwrap();
    for (revision, want) in [(2, compacted(3)), (4, future(3)), (-1, compacted(3))] {
        let query = RangeQuery { at: at(revision), ..get("a", "\0") };
        assert_eq!(RangeCursor::new(&view, query).unwrap().err(), Some(want));
    }
}
