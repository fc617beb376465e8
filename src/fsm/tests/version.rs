//! The cluster's version, the programs of members, and entries that are too new.

use super::bed::*;
use headwater_storage::StorageError;
use headwater_storage::state::{StateOptions, StateReader, StateStore};
use headwater_types::{
    ClusterVersion, Command, LogIndex, MemberProgram, NodeId, Outcome, Proposal, Refusal, Supported, Term, Version,
    VersionChange, VersionRefusal,
};

const NEXT: Version = Version::new(0, 5);

/// A state that a program of the next version has open.
fn bed() -> TestBed {
    let supported = Supported { lowest: Version::V0_3, highest: NEXT };
    TestBed::new().reopened_with(StateOptions { supported, ..options() })
}

fn announce(member: u64, highest: Version) -> Command {
    let supported = Supported { lowest: Version::V0_3, highest };
    Command::AnnounceProgram(NodeId(member), MemberProgram { program: format!("{highest}.0"), supported })
}

fn raise(to: Version, term: u64) -> Command {
    Command::SetVersion(VersionChange::Raise { to, term: Term(term) })
}

fn lower(to: Version) -> Command {
    Command::SetVersion(VersionChange::Downgrade { to })
}

const END: Command = Command::SetVersion(VersionChange::EndDowngrade);

fn refused(refusal: VersionRefusal) -> Outcome {
    Outcome::Refused(Refusal::Version(refusal))
}

#[test]
fn the_version_rises_falls_and_rises_again() {
    let mut bed = bed();
    let version = |bed: &TestBed| bed.store.current().head().version;
    let at = |version, is_downgrading| ClusterVersion { version, is_downgrading };
    assert_eq!(version(&bed), ClusterVersion::FIRST);
    for (command, outcome, then) in [
        (announce(1, NEXT), Outcome::ProgramAnnounced, at(Version::V0_3, false)),
        (announce(2, Version::V0_3), Outcome::ProgramAnnounced, at(Version::V0_3, false)),
        (raise(NEXT, 1), refused(VersionRefusal::Stale), at(Version::V0_3, false)),
        (announce(2, NEXT), Outcome::ProgramAnnounced, at(Version::V0_3, false)),
        (raise(NEXT, 2), refused(VersionRefusal::Stale), at(Version::V0_3, false)),
        (END, refused(VersionRefusal::NotDowngrading), at(Version::V0_3, false)),
        (lower(Version::new(0, 2)), refused(VersionRefusal::Target), at(Version::V0_3, false)),
        (raise(NEXT, 1), Outcome::VersionSet, at(NEXT, false)),
        (raise(NEXT, 1), refused(VersionRefusal::Stale), at(NEXT, false)),
        (lower(NEXT), refused(VersionRefusal::Target), at(NEXT, false)),
        (lower(Version::V0_1), refused(VersionRefusal::Target), at(NEXT, false)),
        (lower(Version::V0_3), refused(VersionRefusal::Target), at(NEXT, false)),
        (lower(Version::V0_4), Outcome::VersionSet, at(Version::V0_4, true)),
        (lower(Version::V0_3), refused(VersionRefusal::Downgrading), at(Version::V0_4, true)),
        (raise(NEXT, 1), refused(VersionRefusal::Stale), at(Version::V0_4, true)),
        (END, Outcome::VersionSet, at(Version::V0_4, false)),
        (lower(Version::V0_3), Outcome::VersionSet, at(Version::V0_3, true)),
        (END, Outcome::VersionSet, at(Version::V0_3, false)),
        (raise(NEXT, 1), Outcome::VersionSet, at(NEXT, false)),
    ] {
        let what = format!("{command:?}");
        assert_eq!(bed.apply(command), outcome, "{what}");
        assert_eq!(version(&bed), then, "{what}");
    }
    #[cfg(feature = "next-version")]
    let bed = bed.reopened_with(StateOptions { supported: Supported { lowest: NEXT, highest: NEXT }, ..options() });
    assert_eq!(version(&bed), at(NEXT, false), "on disk, too, where the program knows it");
}

#[test]
fn a_program_that_is_too_old_stops_before_it_applies_a_raise_or_opens_the_state() {
    let mut new = bed();
    new.apply(raise(NEXT, 1));
    let TestBed { dir, store, .. } = new;
    drop(store);
    let options = StateOptions { supported: Supported::RELEASE, ..options() };
    let error = StateStore::open(dir.path(), &options).err().unwrap();
    assert!(matches!(error, StorageError::TooNew(_)), "{error}");

    let old = TestBed::new().reopened_with(options);
    let db = old.store.current();
    let mut txn = old.store.begin(&db).unwrap();
    let proposal = Proposal::new(1, raise(NEXT, 1));
    let error = crate::apply(&mut txn, Term(1), LogIndex(1), &proposal, true).unwrap_err();
    assert!(error.to_string().contains("the cluster needs version 0.5"), "{error}");
}

#[test]
fn an_entry_that_is_too_new_is_refused_alike_by_those_who_cannot_read_it() {
    let (reads, cannot) = (bed(), TestBed::new());
    for bed in [&reads, &cannot] {
        let db = bed.store.current();
        let mut txn = bed.store.begin(&db).unwrap();
        let outcome = crate::refuse_newer(&mut txn, LogIndex(1), NEXT, true);
        assert_eq!(outcome, Outcome::Refused(Refusal::NeedsVersion { needs: NEXT }));
        assert_eq!(*txn.head(), db.head(), "nothing changed");
        txn.commit().unwrap();
    }
    #[cfg(feature = "next-version")]
    {
        let mut knows = bed();
        let note = Command::Note("n".into());
        assert_eq!(knows.apply(note), Outcome::Refused(Refusal::NeedsVersion { needs: NEXT }));
        let hash = |bed: &TestBed| bed.store.current().view().unwrap().content_hash().unwrap();
        assert_eq!(hash(&knows), hash(&cannot));
    }
}

#[test]
fn programs_are_kept_by_member_and_go_with_them() {
    let mut bed = bed();
    bed.apply_all([announce(1, NEXT), announce(2, NEXT)], false);
    bed.apply(announce(1, Version::V0_3));
    let programs = |bed: &TestBed| bed.store.current().view().unwrap().programs().unwrap();
    let highest: Vec<_> =
        programs(&bed).into_iter().map(|(id, program)| (id.get(), program.supported.highest)).collect();
    assert_eq!(highest, [(1, Version::V0_3), (2, NEXT)]);
    {
        let db = bed.store.current();
        let mut txn = bed.store.begin(&db).unwrap();
        txn.retain_programs(&[NodeId(2)].into()).unwrap();
        txn.commit().unwrap();
    }
    assert_eq!(programs(&bed).into_keys().collect::<Vec<_>>(), [NodeId(2)]);
}
