//! Invitations: by table, and a model of them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::bed::*;
use headwater_storage::state::AppliedState;
use headwater_types::limits::{
    INVITATION_NAME_BYTES_MAX, INVITATION_TTL_MS_MAX, INVITATION_USES_MAX, INVITATIONS_MAX, MEMBER_NAME_BYTES_MAX,
};
use headwater_types::{
    Command, Invitation, InvitationCommand, InvitationDone, InvitationId, InvitationRefusal, InvitationUse, LogIndex,
    NewInvitation, Outcome, Proposal, Refusal, Term, TokenHash, Version, VersionChange,
};

/// Unix time at which most invitations here expire, milliseconds.
const LIFE_MS: u64 = 1000;

fn hash(number: u8) -> TokenHash {
    TokenHash([number; 32])
}

fn new(number: u8, uses_max: Option<u32>) -> NewInvitation {
    NewInvitation { name: "n".into(), hash: hash(number), expires_unix_ms: LIFE_MS, uses_max, learner: false }
}

fn create(number: u8, uses_max: Option<u32>) -> InvitationCommand {
    InvitationCommand::Create(new(number, uses_max))
}

fn used_by(number: u8, incarnation: u64) -> InvitationCommand {
    InvitationCommand::Use { hash: hash(number), incarnation, node: format!("node{incarnation}") }
}

fn delete(id: u64) -> InvitationCommand {
    InvitationCommand::Delete(InvitationId(id))
}

fn done(id: u64) -> Outcome {
    Outcome::Invitation(InvitationDone { id: InvitationId(id), learner: false })
}

fn refused(refusal: InvitationRefusal) -> Outcome {
    Outcome::Refused(Refusal::Invitation(refusal))
}

/// A state of version 0.4; the next command has log index 2.
fn bed() -> TestBed {
    TestBed::with([Command::SetVersion(VersionChange::Raise { to: Version::V0_4, term: Term(1) })])
}

/// Applies a command that was proposed at `unix_ms`.
fn at(bed: &mut TestBed, unix_ms: u64, command: InvitationCommand) -> Outcome {
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    let (term, index) = (Term(1), LogIndex(bed.next));
    let proposal = Proposal::new(unix_ms, Command::Invitation(command));
    let outcome = crate::apply(&mut txn, term, index, &proposal, true).unwrap();
    txn.set_applied(&AppliedState { term, index, membership: None });
    txn.commit().unwrap();
    bed.next += 1;
    outcome
}

fn stored(bed: &TestBed) -> BTreeMap<InvitationId, Invitation> {
    bed.store.current().view().unwrap().invitations().unwrap()
}

fn ids(bed: &TestBed) -> Vec<u64> {
    stored(bed).into_keys().map(|id| id.0).collect()
}

/// Records that the nodes with these incarnations have become members.
fn joined(bed: &TestBed, incarnations: &[u64]) {
    let db = bed.store.current();
    let mut txn = bed.store.begin(&db).unwrap();
    txn.note_joined(|incarnation| incarnations.contains(&incarnation)).unwrap();
    txn.commit().unwrap();
}

#[test]
fn a_use_is_counted_once_for_each_node() {
    use InvitationRefusal::{Expired, NotFound, UsedUp};
    let mut bed = bed();
    for (unix_ms, command, wanted) in [
        (1, create(1, Some(1)), done(2)),
        (1, create(2, Some(2)), done(3)),
        (1, create(3, None), done(4)),
        (2, create(1, Some(1)), done(2)),
        (3, used_by(9, 1), refused(NotFound)),
        (3, used_by(1, 1), done(2)),
        (3, used_by(1, 1), done(2)),
        (3, used_by(1, 2), refused(UsedUp)),
        (3, used_by(2, 1), done(3)),
        (3, used_by(2, 1), done(3)),
        (3, used_by(2, 2), done(3)),
        (3, used_by(2, 3), refused(UsedUp)),
        (3, used_by(3, 1), done(4)),
        (3, used_by(3, 2), done(4)),
        // The last moment, and one past it.
        (LIFE_MS - 1, used_by(3, 3), done(4)),
        (LIFE_MS, used_by(3, 4), refused(Expired)),
        // The node has begun to join in time.
        (LIFE_MS, used_by(3, 3), done(4)),
        // That use was done, so the others have been removed.
        (LIFE_MS, used_by(1, 1), refused(NotFound)),
        (4, delete(4), done(4)),
        (4, used_by(3, 3), refused(NotFound)),
        (4, delete(4), refused(NotFound)),
    ] {
        let what = format!("{command:?} at {unix_ms}");
        assert_eq!(at(&mut bed, unix_ms, command), wanted, "{what}");
    }
    assert_eq!(ids(&bed), [0; 0]);
}

#[test]
fn a_node_that_has_joined_shows_its_token_no_more() {
    let mut bed = bed();
    at(&mut bed, 1, create(1, Some(1)));
    at(&mut bed, 1, create(2, Some(2)));
    for number in [1, 2] {
        at(&mut bed, 2, used_by(number, 7));
    }
    joined(&bed, &[8]);
    assert_eq!(at(&mut bed, 3, used_by(1, 7)), done(2), "another node has joined");
    joined(&bed, &[7]);
    let one = InvitationUse { incarnation: 7, node: "node7".into(), unix_ms: 2, has_joined: true };
    assert_eq!(stored(&bed)[&InvitationId(2)].uses, [one]);
    assert_eq!(at(&mut bed, 3, used_by(1, 7)), refused(InvitationRefusal::UsedUp));
    assert_eq!(at(&mut bed, 3, used_by(2, 7)), done(3), "which is its second use");
    assert_eq!(stored(&bed)[&InvitationId(3)].used, 2);
    let bed = bed.reopened();
    assert!(stored(&bed)[&InvitationId(2)].uses[0].has_joined, "on disk, too");
}

#[test]
fn bounds_hold_and_one_past_them_is_refused() {
    let mut bed = bed();
    let bounds = refused(InvitationRefusal::Bounds);
    let long = |bytes| "x".repeat(bytes);
    let base = || new(1, None);
    for (what, new, is_fine) in [
        ("life", NewInvitation { expires_unix_ms: 5 + INVITATION_TTL_MS_MAX, ..base() }, true),
        ("long life", NewInvitation { expires_unix_ms: 6 + INVITATION_TTL_MS_MAX, ..base() }, false),
        ("no life", NewInvitation { expires_unix_ms: 5, ..base() }, false),
        ("name", NewInvitation { name: long(INVITATION_NAME_BYTES_MAX), hash: hash(2), ..base() }, true),
        ("long name", NewInvitation { name: long(INVITATION_NAME_BYTES_MAX + 1), hash: hash(3), ..base() }, false),
        ("uses", NewInvitation { uses_max: Some(INVITATION_USES_MAX), hash: hash(4), ..base() }, true),
        ("many uses", NewInvitation { uses_max: Some(INVITATION_USES_MAX + 1), hash: hash(5), ..base() }, false),
        ("no uses", NewInvitation { uses_max: Some(0), hash: hash(6), ..base() }, false),
    ] {
        let before = ids(&bed);
        let outcome = at(&mut bed, 5, InvitationCommand::Create(new));
        assert_eq!(outcome == bounds, !is_fine, "{what}: {outcome:?}");
        assert_eq!(ids(&bed) == before, !is_fine, "{what}");
    }
    for (bytes, is_fine) in [(MEMBER_NAME_BYTES_MAX, true), (MEMBER_NAME_BYTES_MAX + 1, false)] {
        let used = InvitationCommand::Use { hash: hash(1), incarnation: bytes as u64, node: long(bytes) };
        assert_eq!(at(&mut bed, 6, used) != bounds, is_fine, "{bytes}");
    }
    for incarnation in 1000..1000 + 2 * u64::from(INVITATION_USES_MAX) {
        at(&mut bed, 6, used_by(1, incarnation));
    }
    let kept = stored(&bed).into_values().find(|invitation| invitation.hash == hash(1)).unwrap();
    assert_eq!((kept.used, kept.uses.len()), (1 + 2 * u64::from(INVITATION_USES_MAX), INVITATION_USES_MAX as usize));
    assert_eq!(kept.uses.last().unwrap().incarnation, 999 + 2 * u64::from(INVITATION_USES_MAX), "the newest");
}

#[test]
fn the_number_of_invitations_is_bounded_by_those_that_live() {
    let mut bed = bed();
    let count = INVITATIONS_MAX as u8;
    for number in 0..count {
        assert_eq!(at(&mut bed, 1, create(number, Some(1))), done(u64::from(number) + 2));
    }
    assert_eq!(at(&mut bed, 1, create(count, Some(1))), refused(InvitationRefusal::TooMany));
    // Used, but its node may ask again: it stays.
    at(&mut bed, 1, used_by(5, 50));
    assert_eq!(at(&mut bed, 1, create(count, Some(1))), refused(InvitationRefusal::TooMany));
    joined(&bed, &[50]);
    assert!(matches!(at(&mut bed, 1, create(count, Some(1))), Outcome::Invitation(_)));
    assert_eq!(stored(&bed).len(), INVITATIONS_MAX);
    assert!(!ids(&bed).contains(&7), "the used one made room");
    assert!(matches!(
        at(
            &mut bed,
            LIFE_MS,
            InvitationCommand::Create(NewInvitation { expires_unix_ms: 2 * LIFE_MS, ..new(99, None) })
        ),
        Outcome::Invitation(_)
    ));
    assert_eq!(stored(&bed).len(), 1, "the others have expired");
}

#[test]
fn invitations_begin_with_their_version_and_end_with_it() {
    let lower = Command::SetVersion(VersionChange::Downgrade { to: Version::V0_3 });
    let mut early = TestBed::new();
    let needs = Outcome::Refused(Refusal::NeedsVersion { needs: Version::V0_4 });
    assert_eq!(at(&mut early, 1, create(1, None)), needs);
    let mut bed = bed();
    at(&mut bed, 1, create(1, None));
    at(&mut bed, 1, create(2, None));
    assert_eq!(bed.apply(lower), Outcome::VersionSet);
    assert_eq!(ids(&bed), [0; 0], "an older program could not read them");
}

/// The rules once more, in the simplest way, without bounds and without nodes that have joined.
#[derive(Clone, Default)]
pub(super) struct Model {
    stored: BTreeMap<u64, NewInvitation>,
    /// Incarnations of the nodes that used an invitation, by its id.
    uses: BTreeMap<u64, Vec<u64>>,
}

impl Model {
    pub(super) fn apply(
        &mut self,
        index: u64,
        unix_ms: u64,
        command: &InvitationCommand,
    ) -> Result<Outcome, InvitationRefusal> {
        let id = match command {
            InvitationCommand::Create(new) => {
                let lives = new.expires_unix_ms.checked_sub(unix_ms).is_some_and(|life| life > 0);
                if !lives || new.uses_max == Some(0) {
                    return Err(InvitationRefusal::Bounds);
                }
                let known = self.stored.iter().find(|(_, one)| one.hash == new.hash).map(|(id, _)| *id);
                let id = known.unwrap_or(index);
                self.stored.entry(id).or_insert_with(|| new.clone());
                id
            }
            InvitationCommand::Delete(InvitationId(id)) if self.stored.contains_key(id) => *id,
            InvitationCommand::Delete(_) => return Err(InvitationRefusal::NotFound),
            InvitationCommand::Use { hash, incarnation, .. } => {
                let known = self.stored.iter().find(|(_, one)| one.hash == *hash);
                let (&id, one) = known.ok_or(InvitationRefusal::NotFound)?;
                let uses = self.uses.entry(id).or_default();
                if !uses.contains(incarnation) {
                    if one.expires_unix_ms <= unix_ms {
                        return Err(InvitationRefusal::Expired);
                    }
                    if one.uses_max.is_some_and(|max| uses.len() as u32 >= max) {
                        return Err(InvitationRefusal::UsedUp);
                    }
                    uses.push(*incarnation);
                }
                id
            }
        };
        let learner = self.stored[&id].learner;
        if matches!(command, InvitationCommand::Delete(_)) {
            self.forget(id);
        }
        let old: Vec<u64> =
            self.stored.iter().filter(|(_, one)| one.expires_unix_ms <= unix_ms).map(|(id, _)| *id).collect();
        old.into_iter().filter(|old| *old != id).for_each(|old| self.forget(old));
        Ok(Outcome::Invitation(InvitationDone { id: InvitationId(id), learner }))
    }

    fn forget(&mut self, id: u64) {
        self.stored.remove(&id);
        self.uses.remove(&id);
    }

    /// Removes everything, as a downgrade does.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Changes of a few invitations, and the rise of the version that they need. Lives end while the
/// commands are applied: the test bed proposes the command of index N at 1,000,000 + N.
pub(super) fn command() -> impl Strategy<Value = Command> {
    let number = || 1..4u8;
    let created = (number(), 1_000_000..1_000_060u64, prop::option::of(0..3u32), any::<bool>());
    prop_oneof![
        2 => Just(Command::SetVersion(VersionChange::Raise { to: Version::V0_4, term: Term(1) })),
        3 => created.prop_map(|(number, expires_unix_ms, uses_max, learner)| {
            let new = NewInvitation { expires_unix_ms, learner, ..new(number, uses_max) };
            Command::Invitation(InvitationCommand::Create(new))
        }),
        5 => (number(), 1..4u64).prop_map(|(number, incarnation)| Command::Invitation(used_by(number, incarnation))),
        1 => (0..40u64).prop_map(|id| Command::Invitation(delete(id))),
    ]
}
