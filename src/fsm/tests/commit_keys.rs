//! Idempotency keys of commits, by table.

use super::bed::*;
use super::commit::*;
use headwater_storage::state::AppliedState;
use headwater_types::commit::{CommitDone, CommitFault, CommitKey, CommitResult};
use headwater_types::limits::{COMMIT_KEY_KEPT_COMMITS, COMMIT_KEY_KEPT_MS, COMMIT_KEYS_REMOVED_MAX};
use headwater_types::{AlarmKind, Command, LogIndex, Outcome, Proposal, Put, Refusal, Term, Version, VersionChange};

fn keyed(id: u8, body: u8, operations: Vec<Command>) -> Command {
    let key = CommitKey { id: [id; 16], body: [body; 16] };
    Command::Commit(Box::new(commit_of(vec![], operations, Some(key))))
}

/// Applies a command that was proposed at `unix_ms`.
fn apply_at(bed: &mut TestBed, unix_ms: u64, command: Command) -> Outcome {
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    let (term, index) = (Term(1), LogIndex(bed.next));
    let outcome = crate::apply(&mut txn, term, index, &Proposal::new(unix_ms, command), true).unwrap();
    txn.set_applied(&AppliedState { term, index, membership: None });
    txn.commit().unwrap();
    bed.next += 1;
    outcome
}

#[test]
fn a_repeated_key_gets_the_first_answer() {
    let mut bed = bed();
    let operations =
        || vec![Command::Put(Put { prev_kv: true, ..put_of("a", "2") }), write(partition("p")), grant(5, 60)];
    bed.apply(put("a", "1"));
    let first = done(bed.apply(keyed(1, 1, operations())));
    assert!(matches!(&first.results[0], CommitResult::Put { prev: Some(_) }));
    let hash = |bed: &TestBed| bed.store.current().view().unwrap().content_hash().unwrap();
    let before = hash(&bed);
    // The node has chosen other ids for the second attempt.
    for repeated in [operations(), vec![grant(6, 60)]] {
        let again = done(bed.apply(keyed(1, 1, repeated)));
        let brief: Vec<_> = first.results.iter().cloned().map(CommitResult::into_brief).collect();
        assert_eq!(again, CommitDone { is_repeated: true, results: brief, ..first.clone() });
        assert_eq!(hash(&bed), before);
        bed = bed.reopened();
    }
    assert_eq!(fault(bed.apply(keyed(1, 2, operations()))), CommitFault::OtherBody);
    assert_eq!(hash(&bed), before);
    // Another key is another commit, which may fail without taking the key.
    assert_eq!(fault(bed.apply(keyed(2, 1, operations()))), refused(2, Refusal::LeaseExists));
    done(bed.apply(keyed(2, 9, vec![put("b", "1")])));
    // A full store accepts what changes nothing.
    bed.apply(set_alarm(1, AlarmKind::NoSpace, true));
    assert!(done(bed.apply(keyed(1, 1, operations()))).is_repeated);
    assert_eq!(bed.apply(keyed(3, 1, operations())), Outcome::Refused(Refusal::NoSpace));
    bed.apply(set_alarm(1, AlarmKind::Corrupt, true));
    assert!(done(bed.apply(keyed(1, 1, operations()))).is_repeated);
}

/// Keys of the kept commits, as their first bytes, in the order of the log.
fn kept(bed: &TestBed) -> Vec<u8> {
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    let count = txn.kept_commits().unwrap().count;
    let mut found = Vec::new();
    while let Some(entry) = txn.oldest_kept_commit().unwrap() {
        found.push(entry.id[0]);
        txn.forget_commit(&entry).unwrap();
    }
    assert_eq!(count, found.len() as u64);
    found
}

/// Applies [`COMMIT_KEY_KEPT_COMMITS`] commits with keys, all proposed at `unix_ms`. Afterwards
/// only their age keeps the keys of earlier commits.
fn pass(bed: &mut TestBed, unix_ms: u64) {
    for _ in 0..COMMIT_KEY_KEPT_COMMITS {
        let mut id = [200; 16];
        id[1..9].copy_from_slice(&bed.next.to_be_bytes());
        let key = CommitKey { id, body: [1; 16] };
        let step = Command::Commit(Box::new(commit_of(vec![], vec![put("step", "1")], Some(key))));
        done(apply_at(bed, unix_ms, step));
    }
}

/// Keys of the kept commits, as in [`kept`], without those of [`pass`].
fn kept_others(bed: &TestBed) -> Vec<u8> {
    kept(bed).into_iter().filter(|id| *id < 200).collect()
}

fn one(id: u8) -> Command {
    keyed(id, 1, vec![put("a", "1")])
}

#[test]
fn old_keys_go_with_later_commits() {
    let mut bed = bed();
    for id in 1..=6 {
        done(apply_at(&mut bed, 1000 + u64::from(id), one(id)));
    }
    pass(&mut bed, 1006);
    assert_eq!(kept_others(&bed), [1, 2, 3, 4, 5, 6]);
    // At the limit of the first, and one past it. A repetition, a failure and a commit without a
    // key remove none.
    let limit = 1001 + COMMIT_KEY_KEPT_MS;
    assert!(done(apply_at(&mut bed, limit + 50, one(2))).is_repeated);
    fault(apply_at(&mut bed, limit + 50, keyed(9, 1, vec![revoke(5)])));
    done(apply_at(&mut bed, limit + 50, commit(vec![put("a", "2")])));
    done(apply_at(&mut bed, limit, one(7)));
    assert_eq!(kept_others(&bed), [1, 2, 3, 4, 5, 6, 7]);
    done(apply_at(&mut bed, limit + 1, one(8)));
    assert_eq!(kept_others(&bed), [2, 3, 4, 5, 6, 7, 8]);
    bed = bed.reopened();
    done(apply_at(&mut bed, limit + 50, one(9)));
    assert_eq!(kept_others(&bed), [6, 7, 8, 9], "at most {COMMIT_KEYS_REMOVED_MAX} go with one commit");
    done(apply_at(&mut bed, limit + 50, one(1)));
    assert_eq!(kept_others(&bed), [7, 8, 9, 1], "its key was forgotten: this is another commit");
}

#[test]
fn a_key_is_not_old_by_the_number_of_later_commits_alone() {
    let mut bed = bed();
    done(apply_at(&mut bed, 1000, one(1)));
    // After a day without commits, many within a moment.
    let later = 1000 + 24 * 3_600_000;
    done(apply_at(&mut bed, later, one(2)));
    pass(&mut bed, later + 7000);
    assert!(done(apply_at(&mut bed, later + 7000, one(2))).is_repeated);
    assert_eq!(kept_others(&bed), [2]);
}

#[test]
fn wrong_clocks_do_not_make_keys_old() {
    let mut bed = bed();
    done(apply_at(&mut bed, 1000, one(1)));
    for (id, at) in (2..).zip([u64::MAX, 10 * COMMIT_KEY_KEPT_MS, 0, 1250, 900]) {
        done(apply_at(&mut bed, at, one(id)));
    }
    assert!(done(apply_at(&mut bed, u64::MAX, one(1))).is_repeated);
    assert_eq!(kept(&bed), [1, 2, 3, 4, 5, 6]);
    // A time of the far future is as far from the others as one of the past: it keeps no room.
    pass(&mut bed, 1000 + 2 * COMMIT_KEY_KEPT_MS);
    done(apply_at(&mut bed, 1000 + 2 * COMMIT_KEY_KEPT_MS, one(7)));
    done(apply_at(&mut bed, 1000 + 2 * COMMIT_KEY_KEPT_MS, one(8)));
    assert_eq!(kept_others(&bed), [7, 8]);
}

#[test]
fn a_downgrade_forgets_the_keys() {
    let mut bed = bed();
    let one = || keyed(1, 1, vec![put("a", "1")]);
    done(bed.apply(one()));
    assert_eq!(bed.apply(Command::SetVersion(VersionChange::Downgrade { to: Version::V0_3 })), Outcome::VersionSet);
    assert_eq!(kept(&bed), [0_u8; 0]);
    assert_eq!(bed.apply(one()), Outcome::Refused(Refusal::NeedsVersion { needs: Version::V0_4 }));
    bed.apply(Command::SetVersion(VersionChange::EndDowngrade));
    bed.apply(version(Version::V0_4));
    // Also within one transaction.
    let downgrade = Command::SetVersion(VersionChange::Downgrade { to: Version::V0_3 });
    let rise = [Command::SetVersion(VersionChange::EndDowngrade), version(Version::V0_4)];
    let commands = [one(), downgrade].into_iter().chain(rise).chain([one()]);
    let (outcomes, _) = bed.apply_all(commands, true);
    assert!(!done(outcomes.into_iter().last().unwrap()).is_repeated);
    assert_eq!(kept(&bed), [1]);
}

#[test]
fn what_is_kept_does_not_depend_on_who_asks() {
    let run = |want: bool, together: bool| {
        let mut bed = prepared();
        let operations = || {
            let mut all = of_all_faces();
            all.push(Command::Put(Put { prev_kv: true, ..put_of("leased", "v") }));
            all.retain(|command| !matches!(command, Command::LeaseRevoke(_)));
            all
        };
        let commands = [keyed(1, 1, operations()), put("b", "2"), keyed(1, 1, operations()), keyed(2, 1, operations())];
        match together {
            true => drop(bed.apply_all(commands, want)),
            false => commands.into_iter().for_each(|command| drop(bed.apply_all([command], want))),
        }
        bed.hash()
    };
    let wanted = run(true, true);
    assert_eq!([run(true, false), run(false, true), run(false, false)], [wanted; 3]);
}
