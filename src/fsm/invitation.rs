//! Makes, withdraws and uses invitations. Time is the proposers' wall clock.
//!
//! Every change also removes the expired invitations. A used-up invitation stays listed until it
//! expires, so that its nodes can show the token again. If the list is full, a new invitation
//! replaces the oldest that is used up and has only nodes that have joined.

use std::collections::BTreeMap;

use super::error::FsmError;
use headwater_storage::state::WriteTxn;
use headwater_types::limits::{
    INVITATION_NAME_BYTES_MAX, INVITATION_TTL_MS_MAX, INVITATION_USES_MAX, INVITATIONS_MAX, MEMBER_NAME_BYTES_MAX,
};
use headwater_types::{
    Invitation, InvitationCommand, InvitationDone, InvitationId, InvitationRefusal, InvitationUse, LogIndex,
    NewInvitation, Outcome, Refusal, TokenHash,
};

type Invitations = BTreeMap<InvitationId, Invitation>;

pub(super) fn apply(txn: &mut WriteTxn<'_>, index: LogIndex, command: &InvitationCommand) -> Result<Outcome, FsmError> {
    let now = txn.command_unix_ms();
    let stored = txn.invitations()?;
    let (id, changed) = match command {
        InvitationCommand::Create(new) => create(txn, index, now, &stored, new)?,
        InvitationCommand::Delete(id) => {
            let found = stored.get(id).ok_or(refused(InvitationRefusal::NotFound))?;
            txn.set_invitation(*id, None);
            (*id, found.clone())
        }
        InvitationCommand::Use { hash, incarnation, node } => {
            let (id, invitation) = join(now, &stored, *hash, *incarnation, node)?;
            txn.set_invitation(id, Some(invitation.clone()));
            (id, invitation)
        }
    };
    for (other, invitation) in stored {
        if other != id && invitation.is_expired(now) {
            txn.set_invitation(other, None);
        }
    }
    Ok(Outcome::Invitation(InvitationDone { id, learner: changed.learner }))
}

fn refused(refusal: InvitationRefusal) -> FsmError {
    Refusal::from(refusal).into()
}

fn create(
    txn: &mut WriteTxn<'_>,
    index: LogIndex,
    now: u64,
    stored: &Invitations,
    new: &NewInvitation,
) -> Result<(InvitationId, Invitation), FsmError> {
    let NewInvitation { name, hash, expires_unix_ms, uses_max, learner } = new.clone();
    let has_life = now < expires_unix_ms && expires_unix_ms - now <= INVITATION_TTL_MS_MAX;
    let has_uses = uses_max.is_none_or(|max| (1..=INVITATION_USES_MAX).contains(&max));
    if !has_life || !has_uses || name.len() > INVITATION_NAME_BYTES_MAX {
        return Err(refused(InvitationRefusal::Bounds));
    }
    // A repeated request: tokens are random. It has the expiry of the first one, which was checked
    // above, so the invitation that is found has not expired.
    if let Some((id, found)) = find(stored, hash) {
        return Ok((id, found.clone()));
    }
    let live = || stored.iter().filter(|(_, invitation)| !invitation.is_expired(now));
    if live().count() >= INVITATIONS_MAX {
        let is_done =
            |invitation: &Invitation| invitation.is_used_up() && invitation.uses.iter().all(|one| one.has_joined);
        let (oldest, _) =
            live().find(|(_, invitation)| is_done(invitation)).ok_or(refused(InvitationRefusal::TooMany))?;
        txn.set_invitation(*oldest, None);
    }
    let id = InvitationId::from(index);
    let invitation = Invitation { name, hash, expires_unix_ms, uses_max, learner, used: 0, uses: Vec::new() };
    txn.set_invitation(id, Some(invitation.clone()));
    Ok((id, invitation))
}

/// The invitation after its use. A node that has used it and is not a member yet may repeat the
/// use, even after the invitation has expired. The repetition is not counted.
fn join(
    now: u64,
    stored: &Invitations,
    hash: TokenHash,
    incarnation: u64,
    node: &str,
) -> Result<(InvitationId, Invitation), FsmError> {
    if node.len() > MEMBER_NAME_BYTES_MAX {
        return Err(refused(InvitationRefusal::Bounds));
    }
    let (id, found) = find(stored, hash).ok_or(refused(InvitationRefusal::NotFound))?;
    let mut invitation = found.clone();
    if invitation.uses.iter().any(|one| one.incarnation == incarnation && !one.has_joined) {
        return Ok((id, invitation));
    }
    if invitation.is_expired(now) {
        return Err(refused(InvitationRefusal::Expired));
    }
    if invitation.is_used_up() {
        return Err(refused(InvitationRefusal::UsedUp));
    }
    invitation.used += 1;
    invitation.uses.push(InvitationUse { incarnation, node: node.to_owned(), unix_ms: now, has_joined: false });
    if invitation.uses.len() > INVITATION_USES_MAX as usize {
        invitation.uses.remove(0);
    }
    Ok((id, invitation))
}

/// The invitation with this hash. Compares all hashes, so that the duration reveals nothing about
/// them.
fn find(stored: &Invitations, hash: TokenHash) -> Option<(InvitationId, &Invitation)> {
    stored.iter().filter(|(_, invitation)| invitation.hash == hash).fold(None, |_, (id, found)| Some((*id, found)))
}
