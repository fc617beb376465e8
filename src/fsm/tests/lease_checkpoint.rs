//! Checkpoints of leases.

use super::bed::*;
use headwater_types::{
    Command, LeaseChange, LeaseCheckpoint, LeaseId, LeaseRemaining, LogIndex, Outcome, Refusal, Term,
};

fn checkpoint(term: u64, clock_ms: u64, leases: &[(i64, u64, Option<u64>)]) -> Command {
    let leases = leases.iter().map(|&(id, granted, remaining_ms)| LeaseRemaining {
        id: LeaseId(id),
        granted: LogIndex(granted),
        remaining_ms,
    });
    Command::LeaseCheckpoint(LeaseCheckpoint { term: Term(term), clock_ms, leases: leases.collect() })
}

fn clock(bed: &TestBed) -> u64 {
    bed.store.current().view().unwrap().lease_clock().unwrap()
}

#[test]
fn the_clock_only_goes_forward_and_leases_run_out_on_it() {
    let mut bed = TestBed::new();
    bed.grant(1);
    bed.grant(2);
    let due = |bed: &TestBed| [1, 2].map(|lease| bed.lease(lease).unwrap().due_ms);
    assert_eq!((clock(&bed), due(&bed)), (0, [None, None]));
    let steps: [(&str, Command, u64, [Option<u64>; 2]); 7] = [
        ("one is let known", checkpoint(1, 5000, &[(1, 1, Some(700))]), 5000, [Some(5700), None]),
        ("the clock alone", checkpoint(1, 9000, &[]), 9000, [Some(5700), None]),
        ("the clock does not go back", checkpoint(1, 100, &[(2, 2, Some(1))]), 9000, [Some(5700), Some(9001)]),
        ("one is kept alive", checkpoint(1, 9000, &[(1, 1, None)]), 9000, [None, Some(9001)]),
        ("another lease of that id is not meant", checkpoint(1, 9000, &[(1, 9, Some(1))]), 9000, [None, Some(9001)]),
        (
            "an unknown one is passed over",
            checkpoint(1, 9100, &[(7, 1, Some(1)), (1, 1, Some(2))]),
            9100,
            [Some(9102), Some(9001)],
        ),
        ("no overflow", checkpoint(1, 9100, &[(1, 1, Some(u64::MAX))]), 9100, [Some(u64::MAX), Some(9001)]),
    ];
    for (name, command, clock_ms, want) in steps {
        assert_eq!(bed.apply(command), Outcome::LeaseCheckpointed, "{name}");
        assert_eq!((clock(&bed), due(&bed)), (clock_ms, want), "{name}");
        assert_eq!(bed.revision(), 1, "{name}");
    }
}

#[test]
fn what_an_earlier_leader_measured_is_refused() {
    let mut bed = TestBed::new();
    bed.grant(1);
    let (outcomes, committed) = bed.apply_in(Term(2), [checkpoint(1, 5000, &[(1, 1, Some(1))])], true);
    assert_eq!(outcomes, [Outcome::Refused(Refusal::LeaseStale)]);
    assert_eq!((clock(&bed), bed.lease(1).unwrap().due_ms, committed.leases.len()), (0, None, 0));
}

#[test]
fn a_commit_tells_what_became_of_each_lease() {
    let mut bed = TestBed::new();
    let commands = [grant(1, 60), grant(2, 60), checkpoint(1, 5, &[(1, 1, Some(1))])];
    let (_, committed) = bed.apply_all(commands, false);
    let changes = [1, 2].map(|lease| LeaseChange { id: LeaseId(lease), lease: bed.lease(lease) });
    assert_eq!(committed.leases, changes);
    let (_, committed) = bed.apply_all([put("a", "1")], false);
    assert_eq!(committed.leases, []);
}
