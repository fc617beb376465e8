//! Alarms and the quota (spec: etcd §1.8 and §4.2).

use super::bed::*;
use super::commit::commit;
use headwater_types::limits::{ALARMS_MAX, ALARMS_OF_KIND_MAX, LEARNERS_MAX, VOTERS_MAX};
use headwater_types::{
    Alarm, AlarmKind, Command, InvitationCommand, LeaseAttach, LeaseId, LeaseRevoke, LeaseTxn, NewInvitation, NodeId,
    Outcome, Refusal, Term, TokenHash, Version, VersionChange,
};

const NO_SPACE: Outcome = Outcome::Refused(Refusal::NoSpace);
const CORRUPT: Outcome = Outcome::Refused(Refusal::Corrupt);

fn alarm(member: u64, kind: AlarmKind) -> Alarm {
    Alarm { member: NodeId(member), kind }
}

fn alarms(bed: &TestBed) -> Vec<Alarm> {
    let db = bed.store.current();
    let view = db.view().unwrap();
    let alarms = view.alarms().unwrap();
    assert_eq!(view.head().alarms, alarms.iter().map(|alarm| alarm.kind).collect(), "the head knows the kinds");
    alarms
}

/// A store with ten live bytes, and a quota of member 2.
fn bed(bytes_max: Option<u64>) -> TestBed {
    TestBed::with([put("key", "1234567"), quota(bytes_max)])
}

#[test]
fn alarms_are_raised_and_taken_back_one_by_one() {
    use AlarmKind::{Corrupt, NoSpace};
    let mut bed = bed(None);
    for (name, member, kind, active, was_active, left) in [
        ("one", 2, NoSpace, true, false, &[(2, NoSpace)][..]),
        ("again", 2, NoSpace, true, true, &[(2, NoSpace)]),
        ("of another member", 1, NoSpace, true, false, &[(1, NoSpace), (2, NoSpace)]),
        ("of another kind", 2, Corrupt, true, false, &[(1, NoSpace), (2, NoSpace), (2, Corrupt)]),
        ("one is not active", 1, Corrupt, false, false, &[(1, NoSpace), (2, NoSpace), (2, Corrupt)]),
        ("one goes", 2, NoSpace, false, true, &[(1, NoSpace), (2, Corrupt)]),
        ("the last of its kind", 1, NoSpace, false, true, &[(2, Corrupt)]),
        ("all are gone", 2, Corrupt, false, true, &[]),
    ] {
        assert_eq!(bed.apply(set_alarm(member, kind, active)), Outcome::AlarmSet { was_active }, "{name}");
        let left: Vec<_> = left.iter().map(|(member, kind)| alarm(*member, *kind)).collect();
        assert_eq!(alarms(&bed), left, "{name}");
    }
    assert_eq!(bed.revision(), 2, "alarms are no keys");
}

#[test]
fn a_put_fits_exactly_or_raises_the_alarm() {
    // The overhead of 256 and the pair, on top of the live bytes.
    let needed = 10 + 256 + 2;
    for (name, bytes_max, fits) in [
        ("at the limit", Some(needed), true),
        ("one byte short", Some(needed - 1), false),
        ("no quota", None, true),
        ("nothing fits", Some(0), false),
        ("the largest", Some(u64::MAX), true),
    ] {
        let mut bed = bed(bytes_max);
        let before = bed.pairs();
        let outcome = bed.apply(put("a", "b"));
        if fits {
            assert!(matches!(outcome, Outcome::Put(_)), "{name}: {outcome:?}");
            assert_eq!(alarms(&bed), [], "{name}");
        } else {
            assert_eq!(outcome, NO_SPACE, "{name}");
            assert_eq!(alarms(&bed), [alarm(2, AlarmKind::NoSpace)], "{name}");
            assert_eq!((bed.pairs(), bed.revision()), (before, 2), "{name}: nothing was written");
        }
    }
}

fn newest() -> Command {
    Command::SetVersion(VersionChange::Raise { to: Version::V0_4, term: Term(1) })
}

#[test]
fn what_a_command_costs() {
    let p = |key: &str, value: &str| op_put(key, value);
    let lease_txn = |success| {
        let attach = |key: &str| LeaseAttach { id: LeaseId(9), key: bytes(key) };
        Command::LeaseTxn(LeaseTxn { txn: txn(vec![], success, vec![]), success: vec![attach("key")], failure: vec![] })
    };
    for (name, command, cost) in [
        ("put", put("a", "bc"), 256 + 3),
        ("a put that replaces as much", put("key", "7654321"), 256 + 10),
        ("grant", grant(5, 60), 64),
        ("attach", Command::LeaseAttach(LeaseAttach { id: LeaseId(9), key: bytes("key") }), 256 + 3),
        ("the list that runs", Command::Txn(txn(vec![], vec![p("a", "1"), p("b", "22")], vec![p("c", "")])), 517),
        ("the dearer list, though it does not run", Command::Txn(txn(vec![], vec![], vec![p("a", "1")])), 258),
        (
            "inside",
            Command::Txn(txn(
                vec![],
                vec![headwater_types::TxnOp::Txn(txn(vec![], vec![p("a", "1")], vec![p("b", "22")])), p("c", "")],
                vec![],
            )),
            259 + 257,
        ),
        ("all of a commit", commit(vec![put("a", "1"), grant(5, 60), del("key", "")]), 258 + 64),
        ("a transaction and an attachment", lease_txn(vec![p("a", "1")]), 258 + 259),
    ] {
        for (bytes_max, fits) in [(10 + cost, true), (10 + cost - 1, false)] {
            let mut bed = TestBed::with([newest(), put("key", "1234567"), grant(9, 60), quota(Some(bytes_max))]);
            let outcome = bed.apply(command.clone());
            assert_eq!(outcome != NO_SPACE, fits, "{name}, {bytes_max}: {outcome:?}");
            assert!(fits || alarms(&bed).len() == 1, "{name}");
            assert!(!matches!(outcome, Outcome::Refused(refusal) if fits && refusal != Refusal::NoSpace), "{name}");
        }
    }
}

/// Commands, each with whether it is accepted while the store is full, and while it is corrupt.
fn commands() -> Vec<(&'static str, Command, bool, bool)> {
    let attach = LeaseAttach { id: LeaseId(9), key: bytes("key") };
    let invite = InvitationCommand::Create(NewInvitation {
        name: String::new(),
        hash: TokenHash([1; 32]),
        expires_unix_ms: 2_000_000,
        uses_max: None,
        learner: false,
    });
    let lease_txn = |txn, success| Command::LeaseTxn(LeaseTxn { txn, success, failure: vec![] });
    vec![
        ("put", put("a", "b"), false, false),
        ("delete", del("key", ""), true, false),
        ("delete nothing", del("none", ""), true, false),
        ("txn with a put", Command::Txn(txn(vec![], vec![op_put("a", "b")], vec![])), false, false),
        ("txn with a put that does not run", Command::Txn(txn(vec![], vec![], vec![op_put("a", "b")])), false, false),
        ("txn that deletes", Command::Txn(txn(vec![], vec![op_del("key", "")], vec![])), true, false),
        ("txn that reads", Command::Txn(txn(vec![], vec![op_get("key", "")], vec![])), true, false),
        ("commit with a put", commit(vec![del("key", ""), put("a", "b")]), false, false),
        ("commit that deletes", commit(vec![del("key", "")]), true, false),
        ("compact", compact(2), true, false),
        ("trim", trim(1), true, false),
        ("grant", grant(5, 60), false, false),
        ("revoke", Command::LeaseRevoke(LeaseRevoke { id: LeaseId(9) }), true, false),
        ("attach", Command::LeaseAttach(attach.clone()), false, false),
        ("lease txn that attaches", lease_txn(txn(vec![], vec![], vec![]), vec![attach]), false, false),
        ("lease txn that deletes", lease_txn(txn(vec![], vec![op_del("key", "")], vec![]), vec![]), true, false),
        ("alarm", set_alarm(3, AlarmKind::NoSpace, true), true, true),
        ("quota", quota(None), true, true),
        ("invitation", Command::Invitation(invite), true, true),
    ]
}

#[test]
fn what_is_done_while_an_alarm_is_active() {
    for (name, command, when_full, when_corrupt) in commands() {
        for (kind, is_done, refusal) in
            [(AlarmKind::NoSpace, when_full, NO_SPACE), (AlarmKind::Corrupt, when_corrupt, CORRUPT)]
        {
            // The alarm of a removed member counts as well, and space that was freed does not lift
            // it.
            let mut bed = TestBed::with([
                put("key", "1234567"),
                grant(9, 60),
                quota(Some(1 << 20)),
                newest(),
                set_alarm(77, kind, true),
            ]);
            let hash = bed.store.current().head();
            let outcome = bed.apply(command.clone());
            assert_eq!(matches!(outcome, Outcome::Refused(_)), !is_done, "{name}, {kind:?}: {outcome:?}");
            if !is_done {
                assert_eq!(outcome, refusal, "{name}, {kind:?}");
                let head = bed.store.current().head();
                assert_eq!(
                    (head.revision, head.live_bytes, head.alarms),
                    (hash.revision, hash.live_bytes, hash.alarms)
                );
            }
            // After the alarms are taken back, writes are accepted again.
            bed.apply(set_alarm(77, kind, false));
            bed.apply(set_alarm(3, AlarmKind::NoSpace, false));
            assert!(matches!(bed.apply(put("a", "b")), Outcome::Put(_)), "{name}, {kind:?}");
        }
    }
}

#[test]
fn the_alarm_stays_until_it_is_taken_back() {
    let mut bed = bed(Some(400));
    assert_eq!(bed.apply(put("big", "x".repeat(200))), NO_SPACE);
    for (command, wanted) in [
        (put("a", "b"), NO_SPACE),
        (del("key", ""), Outcome::DeleteRange(Default::default())),
        (put("a", "b"), NO_SPACE),
        (quota(None), Outcome::QuotaSet),
        (put("a", "b"), NO_SPACE),
        (set_alarm(2, AlarmKind::NoSpace, false), Outcome::AlarmSet { was_active: true }),
    ] {
        let outcome = bed.apply(command);
        assert_eq!(std::mem::discriminant(&outcome), std::mem::discriminant(&wanted), "{outcome:?}");
    }
    assert!(matches!(bed.apply(put("a", "b")), Outcome::Put(_)));
}

#[test]
fn an_alarm_holds_for_what_follows_in_the_same_commit_and_without_anybody_to_tell() {
    for want in [true, false] {
        let mut bed = bed(Some(400));
        let commands = [put("a", "b"), put("big", "x".repeat(200)), put("a", "c"), del("key", ""), put("a", "d")];
        let (outcomes, committed) = bed.apply_all(commands, want);
        if want {
            assert_eq!([&outcomes[1], &outcomes[2], &outcomes[4]], [&NO_SPACE; 3]);
        }
        assert_eq!(committed.events.len(), 2);
        assert_eq!(bed.pairs(), ["a=b@3/3/1"]);
        assert_eq!(alarms(&bed), [alarm(2, AlarmKind::NoSpace)]);
    }
}

#[test]
fn every_member_may_have_every_alarm() {
    let mut bed = bed(None);
    bed.apply(newest());
    let members = (VOTERS_MAX + LEARNERS_MAX) as u64;
    for kind in AlarmKind::ALL {
        for member in 1..=members {
            assert_eq!(bed.apply(set_alarm(member, kind, true)), Outcome::AlarmSet { was_active: false });
        }
    }
    let of_kind = |bed: &TestBed, kind| alarms(bed).iter().filter(|alarm| alarm.kind == kind).count();
    assert_eq!(AlarmKind::ALL.map(|kind| of_kind(&bed, kind)), [members as usize; 2]);
    // Each kind has its own bound.
    for id in members..=ALARMS_OF_KIND_MAX as u64 + 5 {
        bed.apply(set_alarm(1000 + id, AlarmKind::NoSpace, true));
    }
    assert_eq!(AlarmKind::ALL.map(|kind| of_kind(&bed, kind)), [ALARMS_OF_KIND_MAX, members as usize]);
}

/// The bound of version 0.3, which counts the alarms of all kinds together.
#[test]
fn alarms_are_bounded_and_no_kind_is_lost() {
    let mut bed = bed(Some(0));
    for member in 0..ALARMS_MAX as u64 + 5 {
        bed.apply(set_alarm(1000 + member, AlarmKind::Corrupt, true));
    }
    assert_eq!(alarms(&bed).len(), ALARMS_MAX);
    bed.apply(set_alarm(1, AlarmKind::NoSpace, true));
    bed.apply(set_alarm(2, AlarmKind::NoSpace, true));
    let head = bed.store.current().head();
    assert!(head.alarms.has(AlarmKind::Corrupt) && head.alarms.has(AlarmKind::NoSpace));
    assert_eq!(alarms(&bed).len(), ALARMS_MAX + 1);
}
