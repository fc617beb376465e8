//! Invitations as the faces see them: making, listing and withdrawing them, on any node.
//!
//! Owns the making of tokens. Invariant: a token appears only in the answer to the request that
//! made it.

use std::fmt::Write as _;
use std::time::Duration;

use super::members::token_hash;
use super::{Consistency, Node, NodeError, Read, RequestContext, unix_ms};
use headwater_types::invitation::TOKEN_PREFIX;
use headwater_types::{Access, Command, Invitation, InvitationCommand, InvitationId, NewInvitation, Outcome, Secret};

/// The properties of an invitation that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitationRequest {
    /// Name that operators see; nothing depends on it.
    pub name: String,
    /// Time for which the invitation can be used.
    pub ttl: Duration,
    /// Upper bound of the nodes that may join by the invitation; `None` for any number.
    pub uses_max: Option<u32>,
    /// Whether nodes that join by the invitation stay learners until they are promoted.
    pub learner: bool,
}

/// An invitation that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// The invitation's id.
    pub id: InvitationId,
    /// The token, which is shown this once.
    pub token: Secret,
    /// Time at which the invitation expires, milliseconds since the Unix epoch.
    pub expires_unix_ms: u64,
}

/// Handle to the invitations.
#[derive(Clone, Copy)]
pub struct Invitations<'a> {
    node: &'a Node,
}

impl Node {
    /// Handle to the invitations.
    pub fn invitations(&self) -> Invitations<'_> {
        Invitations { node: self }
    }
}

impl Invitations<'_> {
    /// Makes an invitation.
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] if the request or the number of invitations is out of bounds, the
    /// principal lacks the right, or the cluster's version does not know invitations; those of
    /// [`Node::propose`].
    pub async fn create(self, ctx: &RequestContext, request: InvitationRequest) -> Result<Read<NewToken>, NodeError> {
        let InvitationRequest { name, ttl, uses_max, learner } = request;
        let token = new_token();
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let expires_unix_ms = unix_ms().saturating_add(ttl_ms);
        let new = NewInvitation { name, hash: token_hash(&token), expires_unix_ms, uses_max, learner };
        let applied = self.node.propose(ctx, Command::Invitation(InvitationCommand::Create(new))).await?;
        let Outcome::Invitation(done) = applied.outcome else {
            return Err(NodeError::Storage("the outcome is that of another command".to_owned()));
        };
        let value = NewToken { id: done.id, token, expires_unix_ms };
        Ok(Read { index: applied.index, revision: applied.revision, value })
    }

    /// The invitations that have not expired, used-up ones included, with their ids, after a read
    /// of the requested consistency.
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] without the right to read the cluster; those of the read path.
    pub async fn list(
        self,
        ctx: &RequestContext,
        consistency: Consistency,
    ) -> Result<Read<Vec<(InvitationId, Invitation)>>, NodeError> {
        self.node.ready_to_read(ctx, consistency).await?;
        self.node.authorize_cluster(ctx, Access::READ)?;
        let now = unix_ms();
        let read = self.node.inner.store.read(|view| {
            let found = view.invitations()?.into_iter().filter(|(_, invitation)| !invitation.is_expired(now));
            Ok(Read { index: view.applied(), revision: view.head().revision, value: found.collect() })
        });
        Ok(read?)
    }

    /// Withdraws an invitation. Nodes that have joined by it stay members.
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] if there is none of that id, or the principal lacks the right; those
    /// of [`Node::propose`].
    pub async fn delete(self, ctx: &RequestContext, id: InvitationId) -> Result<Read<()>, NodeError> {
        let applied = self.node.propose(ctx, Command::Invitation(InvitationCommand::Delete(id))).await?;
        Ok(Read { index: applied.index, revision: applied.revision, value: () })
    }
}

/// A token of 256 random bits.
fn new_token() -> Secret {
    let bits: [u8; 32] = rand::random();
    let mut text = TOKEN_PREFIX.to_owned();
    for byte in bits {
        write!(text, "{byte:02x}").expect("invariant: a String takes every text");
    }
    Secret(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_types::invitation::is_token;

    #[test]
    fn tokens_have_their_form_and_differ() {
        let (one, other) = (new_token(), new_token());
        assert!(is_token(&one.0) && is_token(&other.0));
        assert_ne!(one, other);
        assert!(!format!("{one:?}").contains(&one.0));
    }
}
