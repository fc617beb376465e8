//! The leader's judgement of a node that asks to join without having been announced.
//!
//! Invariant: a token is judged by the state of all earlier uses, and its use is in the log before
//! the membership changes. A node whose join was interrupted in between shows its token again, and
//! the use counts once.

use sha2::{Digest, Sha256};

use super::super::unix_ms;
use super::keeper::MemberKeeper;
use super::rules::is_unstarted;
use headwater_proto::codec;
use headwater_raft::{ChangeError, MemberRecord};
use headwater_storage::StorageError;
use headwater_storage::state::StateDb;
use headwater_types::{
    Command, Face, Feature, Invitation, InvitationCommand, InvitationRefusal, Joining, MemberRefusal, Outcome,
    Proposal, Refusal, Secret, TokenHash,
};

/// The stored form of a token: its SHA-256.
pub(crate) fn token_hash(Secret(token): &Secret) -> TokenHash {
    hash_of(token)
}

/// As [`token_hash`], for a token given as text.
pub(super) fn hash_of(token: &str) -> TokenHash {
    TokenHash(Sha256::digest(token.as_bytes()).into())
}

impl MemberKeeper {
    /// Refuses a node that needs an invitation and shows no valid one. Refuses no node while the
    /// cluster's version has no invitations: [`use_invitation`](Self::use_invitation) does. The
    /// caller has confirmed that this member leads and has applied all earlier changes.
    pub(super) fn judge(&self, joining: &Joining) -> Result<(), ChangeError> {
        let roster = self.consensus.members().roster();
        let is_expected = |member: &MemberRecord| {
            member.info.incarnation == joining.incarnation
                || (is_unstarted(member) && member.info.peer_url == joining.peer_url)
        };
        if !self.invited_only || roster.members.iter().any(is_expected) {
            return Ok(());
        }
        let db = self.store.upgrade().ok_or(ChangeError::NotLeader)?.current();
        match Feature::Invitations.is_in(db.head().version.version) {
            true => judge_token(&db, joining.token.as_ref().map(token_hash), joining.incarnation),
            false => Ok(()),
        }
    }

    /// Whether the node shows the token of an invitation as a learner. Neither checks nor uses the
    /// invitation, so that the limits can be checked before a use is spent.
    ///
    /// # Errors
    ///
    /// If the disk failed, or the node stops.
    pub(super) fn is_invited_as_learner(&self, joining: &Joining) -> Result<bool, ChangeError> {
        let token = joining.token.as_ref().filter(|_| self.invited_only);
        let Some(hash) = token.map(token_hash) else { return Ok(false) };
        let db = self.store.upgrade().ok_or(ChangeError::NotLeader)?.current();
        Ok(invitation(&db, hash)?.is_some_and(|found| found.learner))
    }

    /// Uses the invitation of a node that was not announced. Returns whether the invitation makes
    /// the node stay a learner; false also if the node may join without one. The caller has checked
    /// everything else that could refuse the node.
    pub(super) async fn use_invitation(&self, joining: &Joining) -> Result<bool, ChangeError> {
        if !self.invited_only {
            return Ok(false);
        }
        let hash = joining.token.as_ref().map(token_hash);
        {
            let db = self.store.upgrade().ok_or(ChangeError::NotLeader)?.current();
            let version = db.head().version;
            if !Feature::Invitations.is_in(version.version) {
                let knows_none = |error: StorageError| ChangeError::Interrupted(error.to_string());
                if version.is_downgrading || has_older_program(&db).map_err(knows_none)? {
                    tracing::warn!(
                        peer = joining.peer_url,
                        version = %version.version,
                        "a node joins uninvited, because the cluster's version has no invitations yet"
                    );
                    return Ok(false);
                }
                let why = "the cluster has no invitations before all its members have started: ask again then";
                return Err(ChangeError::Interrupted(why.to_owned()));
            }
            // A node without a valid token must not add to the log.
            judge_token(&db, hash, joining.incarnation)?;
        }
        let hash = hash.ok_or(MemberRefusal::Uninvited)?;
        let command = InvitationCommand::Use { hash, incarnation: joining.incarnation, node: joining.name.clone() };
        // Faces came with the same version as invitations.
        let face = Some(Face::Node);
        let proposal = Proposal { face, ..Proposal::new(unix_ms(), Command::Invitation(command)) };
        let encoded = codec::encode_proposal(&proposal).map_err(|error| ChangeError::Interrupted(error.to_string()))?;
        // If this fails the use may be made all the same, but the membership is not changed: the
        // node asks again.
        let mut results = self.consensus.propose(vec![encoded]).await;
        let applied = results.pop().ok_or(ChangeError::NotLeader)?.map_err(|_| ChangeError::NotLeader)?;
        match applied.outcome {
            Outcome::Invitation(done) => {
                tracing::info!(invitation = %done.id, node = joining.name, "a node joins by invitation");
                Ok(done.learner)
            }
            Outcome::Refused(Refusal::Invitation(refusal)) => Err(in_words(refusal).into()),
            _ => Err(ChangeError::NotLeader),
        }
    }
}

/// Whether a member runs a program that knows no invitations. A member that has announced no
/// program does not count: it has not started yet.
fn has_older_program(db: &StateDb) -> Result<bool, StorageError> {
    let programs = db.view()?.programs()?;
    Ok(programs.values().any(|program| !Feature::Invitations.is_in(program.supported.highest)))
}

/// Judges a token by this leader's state, which has all earlier changes. `hash` is that of the
/// token; `None` if the node shows none.
fn judge_token(db: &StateDb, hash: Option<TokenHash>, incarnation: u64) -> Result<(), ChangeError> {
    let hash = hash.ok_or(MemberRefusal::Uninvited)?;
    let found = invitation(db, hash)?;
    let refusal = found.map_or(Some(InvitationRefusal::NotFound), |found| refusal(&found, incarnation, unix_ms()));
    refusal.map_or(Ok(()), |refusal| Err(in_words(refusal).into()))
}

/// The invitation whose token has this hash.
fn invitation(db: &StateDb, hash: TokenHash) -> Result<Option<Invitation>, ChangeError> {
    let invitations = db.view().and_then(|view| view.invitations());
    let invitations = invitations.map_err(|error| ChangeError::Interrupted(error.to_string()))?;
    // All are compared, so that the time says nothing about the hashes.
    Ok(invitations.into_values().filter(|one| one.hash == hash).fold(None, |_, one| Some(one)))
}

fn refusal(invitation: &Invitation, incarnation: u64, now: u64) -> Option<InvitationRefusal> {
    if invitation.uses.iter().any(|one| one.incarnation == incarnation && !one.has_joined) {
        return None;
    }
    if invitation.is_expired(now) {
        return Some(InvitationRefusal::Expired);
    }
    invitation.is_used_up().then_some(InvitationRefusal::UsedUp)
}

/// The refusal that is sent to the joining node. It reveals only that an invitation is used up.
fn in_words(refusal: InvitationRefusal) -> MemberRefusal {
    match refusal {
        InvitationRefusal::UsedUp => MemberRefusal::InvitationUsedUp,
        InvitationRefusal::NotFound
        | InvitationRefusal::Expired
        | InvitationRefusal::TooMany
        | InvitationRefusal::Bounds => MemberRefusal::InvitationUnknown,
    }
}

/// The result of a request to join, as a label of metrics; `None` if the node asks again.
pub(super) fn join_label(made: &Result<headwater_types::MemberChanged, ChangeError>) -> Option<&'static str> {
    match made {
        Ok(_) => Some("joined"),
        Err(ChangeError::Refused(refusal)) => Some(match refusal {
            MemberRefusal::Uninvited => "uninvited",
            MemberRefusal::InvitationUnknown => "unknown-token",
            MemberRefusal::InvitationUsedUp => "used-up",
            MemberRefusal::Version => "version",
            MemberRefusal::NotFound
            | MemberRefusal::PeerUrlExists
            | MemberRefusal::NotLearner
            | MemberRefusal::LearnerNotReady
            | MemberRefusal::NotEnoughStarted
            | MemberRefusal::Unhealthy
            | MemberRefusal::TooManyLearners
            | MemberRefusal::TooManyVoters
            | MemberRefusal::StillRuns => "refused",
        }),
        Err(ChangeError::NotLeader | ChangeError::Interrupted(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::InvitationUse;

    #[test]
    fn the_hash_is_sha_256() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let hash = token_hash(&Secret(String::new()));
        assert_eq!(hash.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), empty);
    }

    #[test]
    fn the_leader_judges_as_apply_does() {
        let one = |incarnation, has_joined| InvitationUse { incarnation, node: "n".into(), unix_ms: 1, has_joined };
        let of = |uses: Vec<InvitationUse>| Invitation {
            name: String::new(),
            hash: TokenHash([1; 32]),
            expires_unix_ms: 10,
            uses_max: Some(1),
            learner: false,
            used: uses.len() as u64,
            uses,
        };
        for (what, invitation, now, wanted) in [
            ("new", of(vec![]), 9, None),
            ("expired", of(vec![]), 10, Some(InvitationRefusal::Expired)),
            ("begun", of(vec![one(7, false)]), 10, None),
            ("done", of(vec![one(7, true)]), 9, Some(InvitationRefusal::UsedUp)),
            ("another's", of(vec![one(8, false)]), 9, Some(InvitationRefusal::UsedUp)),
        ] {
            assert_eq!(refusal(&invitation, 7, now), wanted, "{what}");
        }
    }
}
