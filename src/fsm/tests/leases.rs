//! Attachment of keys to leases (spec: etcd §1.4, §1.5, §7.5).

use super::bed::*;
use headwater_types::{Command, LeaseChoice, LeaseId, Outcome, Put, Refusal, Term, TxnOp, ValueChoice};

fn attach(key: &str, lease: i64) -> Put {
    Put { lease: LeaseChoice::Set(LeaseId(lease)), ..put_of(key, "v") }
}

#[test]
fn a_key_hangs_on_at_most_one_lease() {
    let mut bed = TestBed::new();
    bed.grant(1);
    bed.grant(2);
    let steps: [(&str, Command, &[&str], &[&str]); 9] = [
        ("attach", Command::Put(attach("a", 1)), &["a"], &[]),
        ("attach another", Command::Put(attach("b", 1)), &["a", "b"], &[]),
        ("attach again", Command::Put(attach("a", 1)), &["a", "b"], &[]),
        ("move", Command::Put(attach("a", 2)), &["b"], &["a"]),
        ("keep", Command::Put(Put { lease: LeaseChoice::Keep, ..put_of("a", "w") }), &["b"], &["a"]),
        (
            "keep if present",
            Command::Put(Put { lease: LeaseChoice::KeepIfPresent, ..put_of("b", "w") }),
            &["b"],
            &["a"],
        ),
        ("detach", put("b", "w"), &[], &["a"]),
        ("back", Command::Put(Put { value: ValueChoice::Keep, ..attach("b", 2) }), &[], &["a", "b"]),
        ("delete detaches", del("a", ""), &[], &["b"]),
    ];
    for (name, command, first, second) in steps {
        bed.apply(command);
        assert_eq!(bed.lease_keys(1), first, "{name}");
        assert_eq!(bed.lease_keys(2), second, "{name}");
    }
}

#[test]
fn a_transaction_sees_its_own_attachments() {
    let mut bed = TestBed::new();
    bed.grant(1);
    bed.apply(Command::Put(attach("old", 1)));
    bed.apply(Command::Put(attach("gone", 1)));
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    let apply = |txn: &mut _, index, command| {
        let proposal = headwater_types::Proposal::new(0, command);
        crate::apply(txn, Term(1), headwater_types::LogIndex(index), &proposal, true).unwrap()
    };
    apply(&mut txn, 10, Command::Put(attach("new", 1)));
    apply(&mut txn, 11, del("gone", ""));
    assert_eq!(txn.lease_keys(LeaseId(1)).unwrap(), ["new", "old"]);
    txn.set_lease(LeaseId(1), None);
    let refused = apply(&mut txn, 12, Command::Put(attach("late", 1)));
    assert_eq!(refused, Outcome::Refused(Refusal::LeaseNotFound));
    drop(txn);
    assert_eq!(bed.lease_keys(1), ["gone", "old"], "a dropped transaction leaves nothing");
}

#[test]
fn an_unknown_lease_refuses_the_whole_transaction() {
    let mut bed = TestBed::with([put("a", "1")]);
    let ops = vec![op_put("a", "2"), TxnOp::Put(attach("b", 9))];
    let outcome = bed.apply(Command::Txn(txn(vec![], ops, vec![])));
    assert_eq!(outcome, Outcome::Refused(Refusal::LeaseNotFound));
    assert_eq!(bed.pairs(), ["a=1@2/2/1"]);
    assert_eq!(bed.revision(), 2);
}
