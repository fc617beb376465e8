//! openraft's types as this project instantiates them, and their conversions to our own records.

use std::fmt;

use bytes::Bytes;

use headwater_types::Applied;

/// The runtime of openraft.
#[cfg(not(feature = "simulation"))]
pub type Runtime = openraft::TokioRuntime;
/// The runtime of openraft with the feature `simulation`: in a simulation, elections come at
/// repeatable times.
#[cfg(feature = "simulation")]
pub type Runtime = crate::simulation::TestRuntime;

openraft::declare_raft_types!(
    /// The types with which this project uses openraft.
    pub TypeConfig:
        D = EncodedCommand,
        R = Applied,
        NodeId = u64,
        Node = MemberInfo,
        Term = u64,
        LeaderId = openraft::impls::leader_id_std::LeaderId<Self::Term, Self::NodeId>,
        AsyncRuntime = Runtime,
);

/// The handle of openraft's consensus, with this project's types and state machine.
pub type Raft = openraft::Raft<TypeConfig, super::state_machine::StateMachine>;
/// Term and index of a log entry.
pub type LogId = openraft::alias::LogIdOf<TypeConfig>;
/// A vote: term, candidate, and whether a majority has granted it.
pub type Vote = openraft::alias::VoteOf<TypeConfig>;
/// A log entry.
pub type LogEntry = openraft::alias::EntryOf<TypeConfig>;
/// The content of a log entry.
pub type EntryPayload = openraft::alias::PayloadOf<TypeConfig>;
/// The voters and learners of a cluster.
pub type Membership = openraft::Membership<u64, MemberInfo>;
/// A membership with the id of the log entry that holds it.
pub type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
/// The description of a snapshot: its last log id and membership.
pub type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;
/// A snapshot: description and files.
pub type Snapshot = openraft::alias::SnapshotOf<TypeConfig, super::snapshot::SnapshotFiles>;

/// A proposed command as it goes through the log: encoded once by the proposer, opaque to Raft.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedCommand(pub Bytes);

impl fmt::Debug for EncodedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Command({} bytes)", self.0.len())
    }
}

impl fmt::Display for EncodedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Name, addresses and state of a member, as its membership entry holds them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberInfo {
    /// Configured name of the member; empty until its first start, if `MemberAdd` added it, as a
    /// voter or as a learner.
    pub name: String,
    /// URL of the member's peer port: `http://host:port`, or `https://` with TLS.
    pub peer_url: String,
    /// URL of the member's client port: `http://host:port`, or `https://` with TLS. Empty while
    /// `name` is.
    pub client_url: String,
    /// Random number of the data directory that took this id; 0 for first members, and while
    /// `name` is empty.
    pub incarnation: u64,
    /// Whether the member, a learner, becomes a voter as soon as it has caught up.
    pub awaits_vote: bool,
    /// A former peer URL, at which the member was reached before it moved; empty if there is none.
    /// Other members still call it until the member answers at `peer_url`.
    pub former_peer_url: String,
}

impl MemberInfo {
    /// Sets a new peer URL. The replaced one becomes the former URL if the member has answered
    /// there (`is_there`) or has no former URL; else the former URL stays. A former URL that equals
    /// the new one is removed.
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

/// The log id of `term` and `index`. A term has one leader, so the term alone names the leader.
pub fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(openraft::vote::leader_id_std::CommittedLeaderId { term }, index)
}

/// The term of a log id.
pub fn term_of(id: &LogId) -> u64 {
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
