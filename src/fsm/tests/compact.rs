//! Compaction and trimming (spec: etcd §1.7).

use super::bed::*;
use headwater_types::{Command, Compact, Outcome, ReadAt, Refusal, Revision, StoreEpoch};

#[test]
fn which_points_are_accepted() {
    // Five puts: current revision 6.
    type Case = (&'static str, &'static [i64], i64, Result<(), Refusal>);
    let cases: [Case; 12] = [
        ("never compacted: zero succeeds once", &[], 0, Ok(())),
        ("zero again", &[0], 0, Err(compacted(0))),
        ("after zero", &[0], 1, Ok(())),
        ("negative", &[], -1, Err(compacted(-1))),
        ("very negative", &[], i64::MIN, Err(compacted(-1))),
        ("the first revision", &[], 1, Ok(())),
        ("the current revision", &[], 6, Ok(())),
        ("one past it", &[], 7, Err(future(6))),
        ("far past it", &[], i64::MAX, Err(future(6))),
        ("the same again", &[4], 4, Err(compacted(4))),
        ("below", &[4], 3, Err(compacted(4))),
        ("above", &[4], 5, Ok(())),
    ];
    for (name, before, revision, want) in cases {
        let mut bed = TestBed::with((1..=5).map(|i| put("k", i.to_string())));
        for point in before {
            assert_eq!(bed.apply(compact(*point)), Outcome::Compacted, "{name}");
        }
        let want = want.map_or_else(Outcome::Refused, |()| Outcome::Compacted);
        assert_eq!(bed.apply(compact(revision)), want, "{name}");
        assert_eq!(bed.revision(), 6, "{name}: compaction does not move the revision");
    }
}

#[test]
fn a_fresh_store_can_be_compacted_to_zero_and_to_one() {
    let mut bed = TestBed::new();
    assert_eq!(bed.apply(compact(2)), Outcome::Refused(future(1)));
    assert_eq!(bed.apply(compact(0)), Outcome::Compacted);
    assert_eq!(bed.apply(compact(1)), Outcome::Compacted);
    assert_eq!(bed.apply(compact(1)), Outcome::Refused(compacted(1)));
    assert_eq!(bed.pairs_at(1), Ok(vec![]));
    bed.apply(put("a", "1"));
    assert_eq!(bed.pairs_at(1), Ok(vec![]));
    assert_eq!(bed.pairs_at(2).unwrap(), ["a=1@2/2/1"]);
}

#[test]
fn reads_below_the_point_are_refused_at_once_and_the_point_stays_readable() {
    let mut bed = TestBed::with([put("a", "1"), put("a", "2"), del("a", ""), put("b", "3"), put("b", "4")]);
    let history: Vec<_> = (1..=6).map(|revision| bed.pairs_at(revision).unwrap()).collect();
    bed.apply(compact(4));
    for reclaimed in [false, true] {
        for revision in 1..=3 {
            assert_eq!(bed.pairs_at(revision), Err(compacted(4)), "reclaimed {reclaimed}");
        }
        for revision in 4..=6 {
            assert_eq!(bed.pairs_at(revision).as_ref(), Ok(&history[revision as usize - 1]), "reclaimed {reclaimed}");
        }
        assert_eq!(bed.pairs_at(7), Err(future(6)));
        bed.reclaim(1);
    }
}

#[test]
fn the_revision_survives_compaction_of_everything() {
    let bed = TestBed::with([put("a", "1"), del("a", ""), compact(3)]);
    bed.reclaim(1000);
    bed.store.current().flush().unwrap();
    let mut bed = bed.reopened();
    assert_eq!(bed.store.current().head().revision, Revision(3));
    bed.apply(put("a", "2"));
    assert_eq!(bed.pairs(), ["a=2@4/4/1"]);
}

#[test]
fn a_compaction_in_a_batch_counts_for_what_follows_it() {
    let mut bed = TestBed::with([put("a", "1")]);
    let read = |revision: i64| {
        let mut query = get("a", "");
        query.at = ReadAt::Revision(Revision(revision));
        Command::Txn(txn(vec![], vec![headwater_types::TxnOp::Range(query), op_put("log", "x")], vec![]))
    };
    let commands = [
        put("a", "2"),
        read(2),
        Command::Compact(Compact { revision: Revision(3) }),
        read(2),
        read(3),
        Command::Compact(Compact { revision: Revision(3) }),
        Command::Compact(Compact { revision: Revision(5) }),
    ];
    let (outcomes, _) = bed.apply_all(commands, true);
    let refused: Vec<Option<Refusal>> = outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Refused(refusal) => Some(*refusal),
            _ => None,
        })
        .collect();
    assert_eq!(refused, [None, None, None, Some(compacted(3)), None, Some(compacted(3)), None]);
}

/// The revision of the compaction point, the log index of the command that made that revision, and
/// the log index at which history begins.
fn beginning(bed: &TestBed) -> (Option<i64>, u64, u64) {
    let head = bed.store.current().head();
    (head.compaction.map(|point| point.revision.get()), head.key_floor().get(), head.compacted_index().get())
}

#[test]
fn trimming_compacts_keys_to_the_revision_that_was_current() {
    // Entries 1 to 6: revisions 2 and 3, two grants, revision 4, a grant.
    let commands = || [put("a", "1"), put("a", "2"), grant(1, 60), grant(2, 60), put("b", "3"), grant(3, 60)];
    for (from, wanted) in [
        (0, (None, 0, 0)),
        (1, (Some(2), 1, 1)),
        (2, (Some(3), 2, 2)),
        (3, (Some(3), 2, 3)),
        (4, (Some(3), 2, 4)),
        (5, (Some(4), 5, 5)),
        (6, (Some(4), 5, 6)),
        (7, (Some(4), 5, 7)),
        // Not beyond its own entry.
        (u64::MAX, (Some(4), 5, 7)),
    ] {
        let mut bed = TestBed::with(commands());
        assert_eq!(bed.apply(trim(from)), Outcome::Compacted, "{from}");
        assert_eq!(beginning(&bed), wanted, "{from}");
        assert_eq!(bed.apply(trim(wanted.2)), Outcome::Compacted, "{from}: a leader that did not know");
        assert_eq!(beginning(&bed), wanted, "{from}: what is lower changes nothing");
    }
}

#[test]
fn trimming_goes_on_from_a_compaction_and_the_other_way_round() {
    let mut bed = TestBed::with([put("a", "1"), put("a", "2"), put("a", "3"), put("a", "4")]);
    bed.apply(compact(3));
    bed.apply(trim(1));
    assert_eq!(beginning(&bed), (Some(3), 2, 2), "below the point");
    bed.apply(trim(3));
    assert_eq!(beginning(&bed), (Some(4), 3, 3));
    assert_eq!(bed.apply(compact(4)), Outcome::Refused(compacted(4)));
    assert_eq!(bed.apply(compact(5)), Outcome::Compacted);
    assert_eq!(beginning(&bed), (Some(5), 4, 4));
    bed.apply(trim(8));
    assert_eq!(beginning(&bed), (Some(5), 4, 8), "no key has changed since");
    assert_eq!(bed.pairs_at(5).unwrap(), ["a=4@2/5/4"]);
    assert_eq!(bed.pairs_at(4), Err(compacted(5)));
}

#[test]
fn trimming_a_store_that_was_compacted_to_0_compacts_nothing_before_its_first_key() {
    let mut bed = TestBed::with([grant(1, 60)]);
    bed.apply(compact(0));
    bed.apply(trim(1));
    assert_eq!(beginning(&bed), (Some(0), 0, 1));
    assert_eq!(bed.apply(compact(1)), Outcome::Compacted);
}

#[test]
fn a_store_without_keys_is_trimmed_and_can_still_be_compacted() {
    let mut bed = TestBed::with([grant(1, 60), grant(2, 60)]);
    bed.apply(trim(2));
    assert_eq!(beginning(&bed), (None, 0, 2));
    assert_eq!(bed.pairs_at(1), Ok(vec![]));
    for revision in [0, 1] {
        assert_eq!(bed.apply(compact(revision)), Outcome::Compacted);
        assert_eq!(beginning(&bed), (Some(revision), 0, 2));
    }
}

#[test]
fn the_first_bootstrap_names_the_lineage() {
    let mut bed = TestBed::new();
    assert_eq!(bed.store.current().head().epoch, None);
    for epoch in [5, 6] {
        assert_eq!(bed.apply(Command::Bootstrap(StoreEpoch(epoch))), Outcome::Bootstrapped);
        assert_eq!(bed.store.current().head().epoch, Some(StoreEpoch(5)));
    }
    assert_eq!(bed.revision(), 1);
}
