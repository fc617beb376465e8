//! openraft's types as this project instantiates them, and their conversions to our own records.

use std::fmt;

use bytes::Bytes;

use crate::types::Applied;

#[cfg(not(test))]
type Runtime = openraft::TokioRuntime;
/// The simulation needs elections that come at the same time again.
#[cfg(test)]
pub(crate) type Runtime = crate::sim::TestRuntime;

openraft::declare_raft_types!(
    /// The instantiation of openraft.
    pub(crate) TypeConfig:
        D = Command,
        R = Applied,
        NodeId = u64,
        Node = MemberInfo,
        Term = u64,
        LeaderId = openraft::impls::leader_id_std::LeaderId<Self::Term, Self::NodeId>,
        AsyncRuntime = Runtime,
);

pub(crate) type Raft = openraft::Raft<TypeConfig, super::state_machine::StateMachine>;
pub(crate) type LogId = openraft::alias::LogIdOf<TypeConfig>;
pub(crate) type Vote = openraft::alias::VoteOf<TypeConfig>;
pub(crate) type Entry = openraft::alias::EntryOf<TypeConfig>;
pub(crate) type EntryPayload = openraft::alias::PayloadOf<TypeConfig>;
pub(crate) type Membership = openraft::Membership<u64, MemberInfo>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;
pub(crate) type Snapshot = openraft::alias::SnapshotOf<TypeConfig, super::snapshot::SnapshotFiles>;

/// A proposed command as it goes through the log: encoded once by the proposer, opaque to Raft.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Command(pub(crate) Bytes);

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Command({} bytes)", self.0.len())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Where a member is reached, as its membership entry says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberInfo {
    /// Its configured name; empty as long as it was only announced and has never started.
    pub name: String,
    /// `http://host:port` of its peer port.
    pub peer_url: String,
    /// `http://host:port` of its client port.
    pub client_url: String,
    /// The data directory that took this id; 0 for first members, and until a member that was announced has started.
    pub incarnation: u64,
    /// It is to vote as soon as it has caught up.
    pub awaits_vote: bool,
    /// Where its peer port was before it was to move, for as long as nobody answers at the new address; empty if it never
    /// moved.
    pub former_peer_url: String,
}

impl MemberInfo {
    /// It is to move. `is_there` says whether it has answered where it was to be until now: only then is that what it moves
    /// from, for a move that never happened leaves it where it was before.
    pub fn move_to(&mut self, peer_url: &str, is_there: bool) {
        if self.peer_url == peer_url {
            return;
        }
        let left = std::mem::replace(&mut self.peer_url, peer_url.to_owned());
        if is_there || self.former_peer_url.is_empty() {
            self.former_peer_url = left;
        }
        if self.former_peer_url == peer_url {
            self.former_peer_url.clear();
        }
    }
}

/// A log id from its parts (with one leader a term, the term alone names the leader).
pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(openraft::vote::leader_id_std::CommittedLeaderId { term }, index)
}

/// The term of a log id.
pub(crate) fn term_of(id: &LogId) -> u64 {
    id.leader_id.term
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_that_never_happened_leaves_a_member_where_it_was() {
        let mut info = MemberInfo { peer_url: "a".into(), ..MemberInfo::default() };
        for (to, is_there, peer, former) in [
            ("b", true, "b", "a"),
            ("b", false, "b", "a"),
            ("c", false, "c", "a"),
            ("a", false, "a", ""),
            ("b", true, "b", "a"),
            ("c", true, "c", "b"),
        ] {
            info.move_to(to, is_there);
            assert_eq!((info.peer_url.as_str(), info.former_peer_url.as_str()), (peer, former), "to {to}");
        }
    }
}
