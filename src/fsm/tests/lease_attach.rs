//! Attachment without a put (spec: etcd §7.5).

use super::bed::*;
use headwater_types::{Command, LeaseAttach, LeaseChoice, LeaseId, Outcome, Put, Refusal};

fn attach(key: &str, lease: i64) -> Command {
    Command::LeaseAttach(LeaseAttach { id: LeaseId(lease), key: bytes(key) })
}

#[test]
fn an_attachment_is_a_new_version_with_the_same_value() {
    let cases: [(&str, Command, Option<Refusal>, &[&str]); 7] = [
        ("attach", attach("a", 1), None, &["a=1@2/4/2/1", "b=2@3/3/1/1"]),
        ("the same lease again changes nothing", attach("b", 1), None, &["a=1@2/2/1", "b=2@3/3/1/1"]),
        ("another lease moves it", attach("b", 2), None, &["a=1@2/2/1", "b=2@3/4/2/2"]),
        ("an absent key", attach("x", 1), Some(Refusal::KeyNotFound), &["a=1@2/2/1", "b=2@3/3/1/1"]),
        ("an unknown lease", attach("a", 3), Some(Refusal::LeaseNotFound), &["a=1@2/2/1", "b=2@3/3/1/1"]),
        ("both: the lease comes first", attach("x", 3), Some(Refusal::LeaseNotFound), &["a=1@2/2/1", "b=2@3/3/1/1"]),
        ("no lease is no lease", attach("b", 0), Some(Refusal::LeaseNotFound), &["a=1@2/2/1", "b=2@3/3/1/1"]),
    ];
    for (name, command, refusal, pairs) in cases {
        let mut bed = TestBed::with([put("a", "1")]);
        bed.grant(1);
        bed.grant(2);
        bed.apply(Command::Put(Put { lease: LeaseChoice::Set(LeaseId(1)), ..put_of("b", "2") }));
        let before = bed.pairs();
        let (outcomes, committed) = bed.apply_all([command], true);
        assert_eq!(outcomes, [refusal.map_or(Outcome::LeaseAttached, Outcome::Refused)], "{name}");
        assert_eq!(bed.pairs(), pairs, "{name}");
        let changed = bed.pairs() != before;
        assert_eq!((bed.revision(), committed.events.len()), (3 + i64::from(changed), usize::from(changed)), "{name}");
    }
}

#[test]
fn an_early_put_keeps_what_was_attached_and_a_modern_one_does_not() {
    let mut bed = TestBed::with([put("a", "1")]);
    bed.grant(1);
    bed.apply(attach("a", 1));
    bed.apply(Command::Put(Put { lease: LeaseChoice::KeepIfPresent, ..put_of("a", "2") }));
    assert_eq!(bed.lease_keys(1), ["a"]);
    bed.apply(put("a", "3"));
    assert_eq!(bed.lease_keys(1).len(), 0);
}
