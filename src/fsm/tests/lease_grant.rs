//! Grants of leases (spec: etcd §3.1).

use super::bed::*;
use headwater_types::limits::LEASE_TTL_SECONDS_MAX;
use headwater_types::{Command, Lease, LeaseId, LeaseRevoke, LogIndex, Outcome, Refusal};

#[test]
fn what_may_be_granted() {
    let granted = |ttl_seconds| Ok(Outcome::LeaseGranted { ttl_seconds });
    let cases = [
        ("an ordinary one", 1, 60, granted(60)),
        ("the longest", 2, LEASE_TTL_SECONDS_MAX, granted(LEASE_TTL_SECONDS_MAX)),
        ("one second too long", 3, LEASE_TTL_SECONDS_MAX + 1, Err(Refusal::LeaseTtlTooLarge)),
        ("no time at all is the least there is", 4, 0, granted(1)),
        ("nor less", 5, i64::MIN, granted(1)),
        ("a negative id", -6, 60, granted(60)),
        ("the largest id", i64::MAX, 60, granted(60)),
        ("the smallest id", i64::MIN / 2, 60, granted(60)),
        ("an id of the store's own deadlines", i64::MIN / 2 - 1, 60, Err(Refusal::LeaseExists)),
        ("no id", 0, 60, Err(Refusal::LeaseNotFound)),
        ("an id in use", 9, 60, Err(Refusal::LeaseExists)),
        ("too long goes before in use", 9, i64::MAX, Err(Refusal::LeaseTtlTooLarge)),
    ];
    for (name, id, ttl_seconds, want) in cases {
        let mut bed = TestBed::with([put("a", "1")]);
        bed.grant(9);
        let index = LogIndex(bed.next);
        let outcome = bed.apply(grant(id, ttl_seconds));
        match want {
            Ok(want) => {
                assert_eq!(outcome, want, "{name}");
                let Outcome::LeaseGranted { ttl_seconds } = want else { unreachable!() };
                assert_eq!(bed.lease(id), Some(Lease { granted: index, ttl_seconds, due_ms: None }), "{name}");
            }
            Err(refusal) => {
                assert_eq!(outcome, Outcome::Refused(refusal), "{name}");
                assert_eq!(bed.lease(9).map(|lease| lease.granted), Some(LogIndex(2)), "{name}: the other one stays");
            }
        }
        assert_eq!(bed.revision(), 2, "{name}: a lease is no key");
    }
}

#[test]
fn an_id_may_be_granted_again_after_its_lease_has_ended() {
    let mut bed = TestBed::new();
    let first = bed.grant(1);
    bed.apply(Command::LeaseRevoke(LeaseRevoke { id: LeaseId(1) }));
    let second = bed.grant(1);
    assert!(second > first);
    assert_eq!(bed.lease(1).map(|lease| lease.granted), Some(second));
}
