//! Invitations: the right of a node that shows a secret token to become a member.
//!
//! Only the hash of a token is in the log and in the state. Invariant: if the uses of an invitation
//! are bounded, the requests of one node count as one use until the node has become a member,
//! however often the node asks.

use std::fmt;

use thiserror::Error;

use super::LogIndex;

/// The SHA-256 hash of an invitation's token.
///
/// Two hashes are compared in constant time. `Debug` prints only the first four bytes.
#[derive(Clone, Copy)]
pub struct TokenHash(pub [u8; 32]);

impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }
}

impl Eq for TokenHash {}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "TokenHash({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

/// Beginning of every invitation's token.
pub const TOKEN_PREFIX: &str = "hwj-";
/// Number of hexadecimal digits of a token after the prefix: 256 bits.
pub const TOKEN_DIGITS: usize = 64;

/// Whether `text` has the form of a token: [`TOKEN_PREFIX`], then exactly [`TOKEN_DIGITS`]
/// hexadecimal digits in lower case.
pub fn is_token(text: &str) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.strip_prefix(TOKEN_PREFIX)
        .is_some_and(|digits| digits.len() == TOKEN_DIGITS && digits.as_bytes().iter().all(is_digit))
}

/// The id of an invitation: the log index of the command that made it. No other invitation ever has
/// the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InvitationId(pub u64);

impl From<LogIndex> for InvitationId {
    fn from(index: LogIndex) -> Self {
        Self(index.get())
    }
}

impl fmt::Display for InvitationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An invitation as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// Name for people; may be empty.
    pub name: String,
    /// Hash of the invitation's token.
    pub hash: TokenHash,
    /// Wall clock from which on the invitation has expired, milliseconds since the Unix epoch.
    /// Compared with the times of proposals.
    pub expires_unix_ms: u64,
    /// Number of nodes that may join by it, 1 to
    /// [`INVITATION_USES_MAX`](super::limits::INVITATION_USES_MAX); `None` for any number.
    pub uses_max: Option<u32>,
    /// Whether nodes that join by the invitation stay learners until they are promoted. If false,
    /// they get votes once they have caught up.
    pub learner: bool,
    /// Number of uses so far: nodes that have shown the token and were accepted, also if they have
    /// not become members yet.
    pub used: u64,
    /// The newest uses, oldest first. At most
    /// [`INVITATION_USES_MAX`](super::limits::INVITATION_USES_MAX): a further use removes the
    /// oldest one from the list.
    pub uses: Vec<InvitationUse>,
}

impl Invitation {
    /// Whether the invitation has expired at `unix_ms`, milliseconds since the Unix epoch. True
    /// from `expires_unix_ms` on.
    pub fn is_expired(&self, unix_ms: u64) -> bool {
        self.expires_unix_ms <= unix_ms
    }

    /// Whether all allowed uses are taken: no further node may join by it. Does not look at expiry.
    pub fn is_used_up(&self) -> bool {
        self.uses_max.is_some_and(|max| self.used >= max.into())
    }
}

/// A node's use of an invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitationUse {
    /// The random id of the node's data directory.
    pub incarnation: u64,
    /// The node's name.
    pub node: String,
    /// Time of the first request for this use, milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Whether the node has become a member. Until then a repeated request of the node is accepted
    /// and not counted again, even if the invitation has expired and is still stored.
    pub has_joined: bool,
}

/// A change of invitations. A change that is not refused also removes all other invitations that
/// have expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvitationCommand {
    /// Makes an invitation. If one with the same hash is stored, that one stays as it is, and is
    /// the result. If the list is full, the new one replaces the oldest that is used up and whose
    /// nodes all have joined. Without such a one, the command is refused as `TooMany`.
    Create(NewInvitation),
    /// Withdraws an invitation. Nodes that have joined by it stay members.
    Delete(InvitationId),
    /// Records the use of an invitation by a node that is about to become a member.
    Use {
        /// The hash of the token that the node has shown.
        hash: TokenHash,
        /// The random id of the node's data directory.
        incarnation: u64,
        /// The node's name.
        node: String,
    },
}

/// The properties of a new invitation; see [`Invitation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewInvitation {
    /// Name for people, at most
    /// [`INVITATION_NAME_BYTES_MAX`](super::limits::INVITATION_NAME_BYTES_MAX) bytes.
    pub name: String,
    /// Hash of the invitation's token.
    pub hash: TokenHash,
    /// Wall clock from which on the invitation has expired, milliseconds since the Unix epoch:
    /// later than the time of the proposal, by at most
    /// [`INVITATION_TTL_MS_MAX`](super::limits::INVITATION_TTL_MS_MAX).
    pub expires_unix_ms: u64,
    /// Number of nodes that may join by the invitation, 1 to
    /// [`INVITATION_USES_MAX`](super::limits::INVITATION_USES_MAX); `None` for any number.
    pub uses_max: Option<u32>,
    /// Whether nodes that join by the invitation stay learners until they are promoted. If false,
    /// they get votes once they have caught up.
    pub learner: bool,
}

/// Result of a successful [`InvitationCommand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvitationDone {
    /// The invitation that was made, withdrawn or used.
    pub id: InvitationId,
    /// Whether nodes that join by the invitation stay learners until they are promoted. If false,
    /// they get votes once they have caught up.
    pub learner: bool,
}

/// The reason for which an [`InvitationCommand`] is refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvitationRefusal {
    /// There are [`INVITATIONS_MAX`](super::limits::INVITATIONS_MAX) unexpired invitations already,
    /// and none of them is used up by nodes that all have joined.
    #[error("too many invitations: withdraw some with headwater member uninvite")]
    TooMany,
    /// The name of the invitation or the node, the expiry or the number of uses is out of bounds.
    #[error("an invitation's name, life or number of uses is out of bounds")]
    Bounds,
    /// No invitation has that id or that token. It may have been removed because it expired.
    #[error("no such invitation: it was withdrawn, has expired, or its token is wrong")]
    NotFound,
    /// The token belongs to an invitation that has expired, and the node has no use of it that it
    /// may repeat.
    #[error("the invitation has expired")]
    Expired,
    /// All allowed uses are taken, and the node has none that it may repeat.
    #[error("the invitation is used up")]
    UsedUp,
}

impl InvitationRefusal {
    /// Every refusal, in the order of their numbers in records.
    pub const ALL: [Self; 5] = [Self::TooMany, Self::Bounds, Self::NotFound, Self::Expired, Self::UsedUp];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_a_prefix_and_256_bits() {
        let digits = "0123456789abcdef".repeat(4);
        assert!(is_token(&format!("hwj-{digits}")));
        for wrong in [
            digits.clone(),
            format!("hwj-{}", &digits[1..]),
            format!("hwj-{digits}0"),
            format!("hwj-{}", digits.to_ascii_uppercase()),
        ] {
            assert!(!is_token(&wrong), "{wrong}");
        }
    }

    #[test]
    fn hashes_are_equal_byte_by_byte_and_are_not_printed() {
        let hash = TokenHash([0xab; 32]);
        assert_eq!(hash, TokenHash([0xab; 32]));
        for at in 0..32 {
            let mut other = [0xab; 32];
            other[at] ^= 1;
            assert_ne!(hash, TokenHash(other), "{at}");
        }
        assert_eq!(format!("{hash:?}"), "TokenHash(abababab…)");
    }
}
