//! Ranges (spec: etcd §1.2, line by line).

use super::bed::*;
use headwater_types::{RangeQuery, ReadAt, Refusal, Revision, RevisionFilter, SortOrder, SortTarget};

/// Five keys whose orders by key, version, creation, modification and value all differ.
fn bed() -> TestBed {
    TestBed::with([
        put("d", "5"),  // 2
        put("b", "3"),  // 3
        put("a", "4"),  // 4
        put("e", "1"),  // 5
        put("c", "2"),  // 6
        put("b", "3"),  // 7
        put("d", "55"), // 8
        put("d", "5"),  // 9
        put("a", "4"),  // 10
        put("z", "9"),  // 11
        del("z", ""),   // 12
    ])
}

fn keys(bed: &TestBed, query: &RangeQuery) -> (String, bool, u64) {
    let result = bed.range(query).unwrap();
    (result.kvs.iter().map(|kv| String::from_utf8(kv.key.to_vec()).unwrap()).collect(), result.more, result.count)
}

#[test]
fn intervals() {
    let bed = bed();
    let cases = [
        ("one key", "b", "", "b"),
        ("absent key", "q", "", ""),
        ("deleted key", "z", "", ""),
        ("interval", "b", "d", "bc"),
        ("interval that begins between keys", "aa", "cc", "bc"),
        ("from a key on", "c", "\0", "cde"),
        ("everything", "\0", "\0", "abcde"),
        ("end equals key", "b", "b", ""),
        ("end before key", "d", "b", ""),
        ("to the end of a prefix", "a", "b", "a"),
    ];
    for (name, key, end, want) in cases {
        assert_eq!(keys(&bed, &get(key, end)), (want.to_owned(), false, want.len() as u64), "{name}");
    }
}

#[test]
fn keys_with_zero_bytes_and_shared_prefixes_keep_their_places() {
    let all: [&[u8]; 9] = [b"\0", b"\0\0", b"\0\x01", b"\0\xff", b"a", b"a\0", b"a\0\x01", b"a\x01", b"\xff\xff"];
    let mut bed = TestBed::new();
    for key in all.iter().rev() {
        bed.apply(put(key, "v"));
    }
    for (i, from) in all.iter().enumerate() {
        for (j, to) in all.iter().enumerate() {
            let found = bed.range(&get(from, to)).unwrap();
            let want: &[&[u8]] = match *to {
                b"\0" => &all[i..],
                _ if i < j => &all[i..j],
                _ => &[],
            };
            let found: Vec<_> = found.kvs.iter().map(|kv| kv.key.as_ref()).collect();
            assert_eq!(found, want, "[{}, {})", from.escape_ascii(), to.escape_ascii());
        }
        assert_eq!(bed.range(&get(from, "")).unwrap().count, 1);
    }
}

#[test]
fn revisions() {
    let bed = bed();
    let cases: [(i64, Result<&[&str], Refusal>); 9] = [
        (0, Ok(&["d=5@2/9/3"])),
        (1, Ok(&[])),
        (2, Ok(&["d=5@2/2/1"])),
        (7, Ok(&["d=5@2/2/1"])),
        (8, Ok(&["d=55@2/8/2"])),
        (12, Ok(&["d=5@2/9/3"])),
        (13, Err(future(12))),
        (i64::MAX, Err(future(12))),
        (-1, Err(compacted(0))),
    ];
    for (revision, want) in cases {
        for end in ["", "e"] {
            let query = RangeQuery { at: at(revision), ..get("d", end) };
            let got = bed.range(&query).map(|result| show_all(&result.kvs));
            assert_eq!(got, want.map(|pairs| pairs.iter().map(ToString::to_string).collect()), "at {revision}");
        }
    }
}

#[test]
fn limits() {
    let bed = bed();
    let cases = [
        ("none", 0, "abcde", false),
        ("one", 1, "a", true),
        ("one less than all", 4, "abcd", true),
        ("exactly all", 5, "abcde", false),
        ("more than all", 6, "abcde", false),
        ("largest", u64::MAX, "abcde", false),
    ];
    for (name, limit, want, more) in cases {
        for at in [ReadAt::Current, ReadAt::Revision(Revision(12))] {
            // The whole store, which has a stored count, and an interval that must be counted.
            for (key, end) in [("\0", "\0"), ("a", "z")] {
                let query = RangeQuery { limit, at, ..get(key, end) };
                assert_eq!(keys(&bed, &query), (want.to_owned(), more, 5), "{name} {at:?}");
            }
        }
    }
}

#[test]
fn sorting() {
    use SortOrder::{Ascend, Descend, None};
    use SortTarget::{Create, Key, Mod, Value, Version};
    let bed = bed();
    // By key: abcde. Version: b2 a2 d3 others 1. Create: d b a e c. Mod: e c b d a. Value: e c b a
    // d.
    let cases = [
        (None, Key, 0, "abcde", false),
        (Ascend, Key, 0, "abcde", false),
        (Ascend, Key, 2, "ab", true),
        (Descend, Key, 0, "edcba", false),
        (Descend, Key, 2, "ed", true),
        (Ascend, Create, 0, "dbaec", false),
        (Ascend, Create, 2, "db", true),
        (Descend, Create, 0, "ceabd", false),
        (Descend, Create, 1, "c", true),
        (Ascend, Mod, 0, "ecbda", false),
        (Descend, Mod, 3, "adb", true),
        (Ascend, Value, 0, "ecbad", false),
        (Descend, Value, 2, "da", true),
        (Descend, Version, 1, "d", true),
        // Without an order: sorted ascending, after the limit and one more row were cut in key
        // order.
        (None, Create, 0, "dbaec", false),
        (None, Create, 2, "ba", true),
        (None, Mod, 2, "cb", true),
        (None, Value, 1, "b", true),
        (None, Value, 2, "cb", true),
        (None, Value, 5, "ecbad", false),
    ];
    for (order, target, limit, want, more) in cases {
        let query = RangeQuery { order, target, limit, ..get("a", "\0") };
        assert_eq!(keys(&bed, &query), (want.to_owned(), more, 5), "{order:?} {target:?} {limit}");
        let bare = RangeQuery { keys_only: true, ..query };
        assert_eq!(keys(&bed, &bare), (want.to_owned(), more, 5), "keys only: {order:?} {target:?} {limit}");
        assert!(bed.range(&bare).unwrap().kvs.iter().all(|kv| kv.value.is_empty()));
    }
}

#[test]
fn pairs_that_compare_equal_stay_in_key_order() {
    use SortOrder::{Ascend, Descend, None};
    use SortTarget::{Value, Version};
    let bed = TestBed::with([put("b", "v"), put("a", "v"), put("d", "v"), put("c", "w"), put("d", "v")]);
    let cases = [
        (Descend, Version, 0, "dabc", false),
        (Descend, Version, 3, "dab", true),
        (Ascend, Version, 0, "abcd", false),
        (None, Version, 0, "abcd", false),
        (Descend, Value, 0, "cabd", false),
        (Ascend, Value, 2, "ab", true),
    ];
    for (order, target, limit, want, more) in cases {
        let query = RangeQuery { order, target, limit, ..get("a", "\0") };
        assert_eq!(keys(&bed, &query), (want.to_owned(), more, 4), "{order:?} {target:?} {limit}");
        let bare = RangeQuery { keys_only: true, ..query };
        assert_eq!(keys(&bed, &bare), (want.to_owned(), more, 4), "keys only: {order:?} {target:?} {limit}");
    }
}

#[test]
fn filters() {
    let bed = bed();
    let none = RevisionFilter::default();
    // Created: d2 b3 a4 e5 c6. Modified: e5 c6 b7 d9 a10.
    let cases = [
        ("min mod", RevisionFilter { min_mod: 7, ..none }, 0, "abd", false),
        ("max mod", RevisionFilter { max_mod: 6, ..none }, 0, "ce", false),
        ("min create", RevisionFilter { min_create: 5, ..none }, 0, "ce", false),
        ("max create", RevisionFilter { max_create: 3, ..none }, 0, "bd", false),
        ("all bounds", RevisionFilter { min_mod: 6, max_mod: 9, min_create: 3, max_create: 6 }, 0, "bc", false),
        ("bounds are inclusive", RevisionFilter { min_mod: 7, max_mod: 7, ..none }, 0, "b", false),
        ("nothing passes", RevisionFilter { min_mod: 11, ..none }, 0, "", false),
        ("the limit cuts after the filter", RevisionFilter { min_mod: 7, ..none }, 2, "ab", true),
        ("the limit equals what passes", RevisionFilter { min_mod: 7, ..none }, 3, "abd", false),
        ("negative bounds", RevisionFilter { max_mod: -1, ..none }, 0, "", false),
    ];
    for (name, filter, limit, want, more) in cases {
        let query = RangeQuery { filter, limit, ..get("\0", "\0") };
        assert_eq!(keys(&bed, &query), (want.to_owned(), more, 5), "{name}: the count ignores filters");
    }
    let sorted = RangeQuery {
        filter: RevisionFilter { min_mod: 7, ..none },
        target: SortTarget::Value,
        limit: 2,
        ..get("\0", "\0")
    };
    assert_eq!(keys(&bed, &sorted), ("ba".to_owned(), true, 5), "a filter lifts the early cut");
}

#[test]
fn keys_only_and_count_only() {
    let mut bed = bed();
    bed.grant(7);
    bed.apply(headwater_types::Command::Put(headwater_types::Put {
        lease: headwater_types::LeaseChoice::Set(headwater_types::LeaseId(7)),
        ..put_of("e", "1")
    }));
    let bare = RangeQuery { keys_only: true, ..get("d", "\0") };
    assert_eq!(show_all(&bed.range(&bare).unwrap().kvs), ["d=@2/9/3", "e=@5/13/2/7"], "all but the value is there");
    for limit in [0, 1] {
        for (key, end, count) in [("a", "\0", 5), ("b", "e", 3), ("c", "", 1), ("q", "", 0), ("e", "a", 0)] {
            let query = RangeQuery { count_only: true, limit, ..get(key, end) };
            assert_eq!(keys(&bed, &query), (String::new(), false, count), "[{key}, {end})");
        }
    }
    let old = RangeQuery { count_only: true, at: at(4), ..get("\0", "\0") };
    assert_eq!(bed.range(&old).unwrap().count, 3, "the count is of the state asked for");
}

#[test]
fn many_versions_of_few_keys() {
    let mut bed = TestBed::new();
    for round in 0..40 {
        bed.apply_all(["a", "b", "c"].map(|key| put(key, format!("{round}"))), false);
    }
    for revision in [2, 3, 4, 50, 60, 119, 121] {
        let shown = bed.pairs_at(revision).unwrap();
        let mut want = Vec::new();
        for (number, key) in (0..).zip(["a", "b", "c"]) {
            // The key at `number` is written at revisions number + 2, number + 5, …
            if let Some(round) = (revision - 2 - number).checked_div(3).filter(|_| revision >= 2 + number) {
                want.push(format!("{key}={round}@{}/{}/{}", number + 2, number + 2 + 3 * round, round + 1));
            }
        }
        assert_eq!(shown, want, "at {revision}");
    }
}

#[test]
fn a_view_does_not_change() {
    let mut bed = TestBed::with([put("a", "1"), put("b", "2")]);
    let db = bed.store.current();
    let view = db.view().unwrap();
    bed.apply_all([put("a", "3"), del("b", ""), put("c", "4"), compact(4)], false);
    bed.reclaim(100);
    let read = |query: &RangeQuery| crate::range(&view, query).unwrap();
    for key in ["a", "b", "c"] {
        let one = read(&get(key, "")).unwrap();
        let span = read(&get(key, format!("{key}\0"))).unwrap();
        assert_eq!(one, span);
    }
    assert_eq!(show_all(&read(&get("a", "\0")).unwrap().kvs), ["a=1@2/2/1", "b=2@3/3/1"]);
    assert_eq!(show_all(&read(&RangeQuery { at: at(2), ..get("a", "\0") }).unwrap().kvs), ["a=1@2/2/1"]);
    assert_eq!(read(&RangeQuery { at: at(4), ..get("a", "\0") }), Err(future(3)));
    assert_eq!((view.applied().get(), view.revision().get()), (2, 3));
    assert_eq!(bed.pairs(), ["a=3@2/4/2", "c=4@6/6/1"]);
}
