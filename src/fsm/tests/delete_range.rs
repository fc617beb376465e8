//! Deletes (spec: etcd §1.1, §1.2 (intervals), §1.5).

use super::bed::*;
use headwater_types::{Command, DeleteRange};

#[test]
fn what_a_delete_removes() {
    struct Case {
        name: &'static str,
        key: &'static str,
        end: &'static str,
        removed: &'static [&'static str],
        left: &'static [&'static str],
    }
    let all = &["a=1@2/2/1", "ab=2@3/3/1", "b=3@4/4/1", "c=4@5/5/1"];
    let cases = [
        Case {
            name: "one key",
            key: "ab",
            end: "",
            removed: &["ab=2@3/3/1"],
            left: &["a=1@2/2/1", "b=3@4/4/1", "c=4@5/5/1"],
        },
        Case { name: "absent key", key: "x", end: "", removed: &[], left: all },
        Case {
            name: "interval",
            key: "a",
            end: "b",
            removed: &["a=1@2/2/1", "ab=2@3/3/1"],
            left: &["b=3@4/4/1", "c=4@5/5/1"],
        },
        Case {
            name: "interval between keys",
            key: "aa",
            end: "bb",
            removed: &["ab=2@3/3/1", "b=3@4/4/1"],
            left: &["a=1@2/2/1", "c=4@5/5/1"],
        },
        Case {
            name: "from a key on",
            key: "b",
            end: "\0",
            removed: &["b=3@4/4/1", "c=4@5/5/1"],
            left: &["a=1@2/2/1", "ab=2@3/3/1"],
        },
        Case { name: "everything", key: "\0", end: "\0", removed: all, left: &[] },
        Case { name: "end equals key", key: "b", end: "b", removed: &[], left: all },
        Case { name: "end before key", key: "c", end: "a", removed: &[], left: all },
        Case { name: "interval without keys", key: "d", end: "z", removed: &[], left: all },
    ];
    for case in cases {
        for prev_kv in [false, true] {
            let mut bed = TestBed::with([put("a", "1"), put("ab", "2"), put("b", "3"), put("c", "4")]);
            let command = DeleteRange { range: span(case.key, case.end), prev_kv };
            let done = deleted(bed.apply(Command::DeleteRange(command)));
            let revision = if case.removed.is_empty() { 5 } else { 6 };
            assert_eq!(done.deleted, case.removed.len() as u64, "{}", case.name);
            assert_eq!(done.revision.get(), revision, "{}: revision of the answer", case.name);
            assert_eq!(bed.revision(), revision, "{}: revision of the store", case.name);
            let prev: &[&str] = if prev_kv { case.removed } else { &[] };
            assert_eq!(show_all(&done.prev), prev, "{}", case.name);
            assert_eq!(bed.pairs(), case.left, "{}", case.name);
            assert_eq!(bed.pairs_at(5).unwrap(), all, "{}: history stays", case.name);
        }
    }
}

#[test]
fn a_delete_is_seen_by_the_next_command_of_the_same_commit() {
    let mut bed = TestBed::with([put("a", "1"), put("b", "2")]);
    let (outcomes, committed) = bed.apply_all([del("a", "\0"), del("a", "\0"), put("a", "3"), del("a", "b")], true);
    let counts: Vec<u64> = [0, 1, 3].map(|at: usize| deleted(outcomes[at].clone()).deleted).to_vec();
    assert_eq!(counts, [2, 0, 1]);
    assert_eq!(committed.head.revision.get(), 6);
    assert_eq!(committed.head.live_keys, 0);
    assert_eq!(bed.pairs(), Vec::<String>::new());
    assert_eq!(bed.pairs_at(5).unwrap(), ["a=3@5/5/1"]);
}
