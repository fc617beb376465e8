//! Revocation and expiry (spec: etcd §3.1, §3.2).

use super::bed::*;
use headwater_storage::state::Table;
use headwater_types::{
    ChangeKind, ClusterEvent, Command, LeaseChange, LeaseChoice, LeaseExpire, LeaseId, LeaseRevoke, LogIndex, Outcome,
    Put, Refusal, Term,
};

fn attached(key: &str, lease: i64) -> Command {
    Command::Put(Put { lease: LeaseChoice::Set(LeaseId(lease)), ..put_of(key, "v") })
}

fn revoke(lease: i64) -> Command {
    Command::LeaseRevoke(LeaseRevoke { id: LeaseId(lease) })
}

fn expire(lease: i64, granted: LogIndex, term: u64) -> Command {
    Command::LeaseExpire(LeaseExpire { id: LeaseId(lease), granted, term: Term(term) })
}

#[test]
fn the_keys_go_in_one_revision_in_key_order_and_are_told_to_expire() {
    for is_revoked in [true, false] {
        let mut bed = TestBed::new();
        let granted = bed.grant(1);
        bed.grant(2);
        for command in [attached("c", 1), attached("a", 1), attached("b", 2), attached("b\0", 1), put("d", "v")] {
            bed.apply(command);
        }
        let command = if is_revoked { revoke(1) } else { expire(1, granted, 1) };
        let (outcomes, committed) = bed.apply_all([command], true);
        assert_eq!(outcomes, [Outcome::LeaseEnded { deleted: 3 }], "revoked: {is_revoked}");
        let events = &committed.events[0];
        assert_eq!(
            (committed.events.len(), events.revision.map(|revision| revision.get())),
            (1, Some(7)),
            "revoked: {is_revoked}"
        );
        let delivered: Vec<_> = events.kv.iter().map(|event| (event.kind, event.kv.key.clone())).collect();
        assert_eq!(delivered, ["a", "b\0", "c"].map(|key| (ChangeKind::Expire, bytes(key))), "revoked: {is_revoked}");
        assert_eq!(committed.leases, [LeaseChange { id: LeaseId(1), lease: None }], "revoked: {is_revoked}");
        assert_eq!(bed.pairs(), ["b=v@4/4/1/2", "d=v@6/6/1"], "revoked: {is_revoked}");
        assert_eq!((bed.lease(1), bed.lease_keys(1).len()), (None, 0), "revoked: {is_revoked}");
        assert_eq!(bed.lease_keys(2), ["b"], "revoked: {is_revoked}");
        assert_eq!(bed.revision(), 7, "revoked: {is_revoked}");
        // History records the kind, too.
        let mut kinds = Vec::new();
        let index = committed.head.applied_index();
        let db = bed.store.current();
        let read = |command: headwater_storage::state::CommandHistory| {
            let keys = command.records.iter().filter(|record| record.table == Table::Kv);
            kinds.extend(keys.map(|record| record.kind));
            true
        };
        db.view().unwrap().history(index, read).unwrap();
        assert_eq!(kinds, [ChangeKind::Expire; 3], "revoked: {is_revoked}");
    }
}

#[test]
fn a_lease_without_keys_ends_without_a_revision() {
    for command in [revoke(1), expire(1, LogIndex(1), 1)] {
        let mut bed = TestBed::new();
        bed.grant(1);
        let (outcomes, committed) = bed.apply_all([command], true);
        assert_eq!(outcomes, [Outcome::LeaseEnded { deleted: 0 }]);
        assert_eq!((bed.revision(), committed.events.len(), bed.lease(1)), (1, 1, None));
        let events = &committed.events[0];
        assert_eq!((events.kv.len(), &events.cluster[..]), (0, &[ClusterEvent::LeaseEnded(LeaseId(1))][..]));
    }
}

#[test]
fn what_ends_nothing_changes_nothing() {
    let first = LogIndex(1);
    // The lease was granted at 1, ended at 2, and granted again at 3.
    let cases = [
        ("an unknown lease is not revoked", 1, revoke(2), Refusal::LeaseNotFound),
        ("nor expires", 1, expire(2, first, 1), Refusal::LeaseNotFound),
        ("the decision was about an earlier lease of that id", 1, expire(1, first, 1), Refusal::LeaseStale),
        ("the leader who decided no longer leads", 2, expire(1, LogIndex(3), 1), Refusal::LeaseStale),
        ("the term is from the future", 1, expire(1, LogIndex(3), 2), Refusal::LeaseStale),
    ];
    for (name, term, command, refusal) in cases {
        let mut bed = TestBed::new();
        bed.grant(1);
        bed.apply(revoke(1));
        bed.grant(1);
        bed.apply(attached("a", 1));
        let (outcomes, committed) = bed.apply_in(Term(term), [command], true);
        assert_eq!(outcomes, [Outcome::Refused(refusal)], "{name}");
        assert_eq!((committed.events.len(), committed.leases.len()), (0, 0), "{name}");
        assert_eq!(bed.pairs(), ["a=v@2/2/1/1"], "{name}");
        assert_eq!(bed.lease_keys(1), ["a"], "{name}");
        assert_eq!(bed.revision(), 2, "{name}");
    }
}

#[test]
fn each_lease_of_a_batch_has_a_revision_of_its_own() {
    let mut bed = TestBed::new();
    let granted: Vec<_> = (1..=3).map(|lease| bed.grant(lease)).collect();
    for lease in 1..=3 {
        bed.apply(attached(&format!("k{lease}"), lease));
    }
    let commands = (1..=3).map(|lease| expire(lease, granted[lease as usize - 1], 1));
    let (_, committed) = bed.apply_all(commands, false);
    let revisions: Vec<_> = committed.events.iter().map(|commit| commit.revision.unwrap().get()).collect();
    assert_eq!(revisions, [5, 6, 7]);
    assert_eq!(bed.pairs().len(), 0);
}

#[test]
fn what_a_lease_leaves_behind_is_not_met_by_others() {
    // Many leases end. The keys of a neighbouring one are still found, and no others.
    let mut bed = TestBed::new();
    for lease in 1..=200 {
        let granted = bed.grant(lease);
        bed.apply(attached(&format!("k{lease:03}"), lease));
        if lease % 2 == 0 {
            bed.apply(expire(lease, granted, 1));
        }
    }
    bed.store.current().flush().unwrap();
    for lease in 1..=200 {
        let want = if lease % 2 == 0 { vec![] } else { vec![bytes(format!("k{lease:03}"))] };
        assert_eq!(bed.lease_keys(lease), want, "{lease}");
    }
}
