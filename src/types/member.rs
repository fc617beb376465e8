//! Changes of the membership: the requests, and the reasons for refusals (spec: etcd §4.1).

use thiserror::Error;

use super::{LogIndex, NodeId, Supported};

/// A change of the membership that a client or a node asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// Announces a member that has not started yet.
    Add {
        /// `http://host:port` of its peer port.
        peer_url: String,
        /// Whether it is never to vote unless it is promoted.
        learner: bool,
    },
    /// A node without data becomes a member.
    Join(Joining),
    /// A learner that has caught up is to vote.
    Promote(NodeId),
    /// A member leaves for good.
    Remove(NodeId),
    /// A member has moved.
    Update {
        /// The member.
        id: NodeId,
        /// `http://host:port` of its peer port.
        peer_url: String,
    },
    /// A member says how it is called and where its clients connect.
    Describe {
        /// The member.
        id: NodeId,
        /// Its name.
        name: String,
        /// `http://host:port` of its client port.
        client_url: String,
    },
}

/// A member as subscribers are told of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterMember {
    /// Its id.
    pub id: NodeId,
    /// Its name; empty until it first started.
    pub name: String,
    /// `http://host:port` of its peer port.
    pub peer_url: String,
    /// `http://host:port` of its client port; empty until it first started.
    pub client_url: String,
    /// Whether it does not vote, and was not announced as a voter.
    pub is_learner: bool,
}

/// A node that becomes a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joining {
    /// Names its data directory: a member that asks twice with the same one is given the same id.
    pub incarnation: u64,
    /// Its name; not empty.
    pub name: String,
    /// `http://host:port` of its peer port.
    pub peer_url: String,
    /// `http://host:port` of its client port.
    pub client_url: String,
    /// Whether it is never to vote unless it is promoted.
    pub learner: bool,
    /// The versions of clusters that its program supports.
    pub supported: Supported,
}

/// A change that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberChanged {
    /// The member concerned; for a new member, its assigned id.
    pub id: NodeId,
    /// An index from which on every member's log knows it.
    pub index: LogIndex,
}

/// Why a change of the membership is refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MemberRefusal {
    /// There is no member of that id.
    #[error("member not found")]
    NotFound,
    /// Another member has that peer URL.
    #[error("peer URLs already exist")]
    PeerUrlExists,
    /// Only a learner can be promoted.
    #[error("not a learner")]
    NotLearner,
    /// The learner does not run, or has not caught up.
    #[error("the learner is not in sync with the leader")]
    LearnerNotReady,
    /// Without that member there would be no voter.
    #[error("not enough started members")]
    NotEnoughStarted,
    /// Too many voters do not answer: the change would lose the quorum, or come close to it.
    #[error("unhealthy cluster")]
    Unhealthy,
    /// There are as many learners as there may be.
    #[error("too many learners")]
    TooManyLearners,
    /// There are as many voters as there may be.
    #[error("too many voters")]
    TooManyVoters,
    /// The member that a node without data would replace still answers.
    #[error("the member with that peer URL still runs")]
    StillRuns,
    /// The program of the joining node does not support the cluster's version.
    #[error("the node's program does not support the cluster's version")]
    Version,
}

impl MemberRefusal {
    /// Every refusal.
    pub const ALL: [Self; 10] = [
        Self::NotFound,
        Self::PeerUrlExists,
        Self::NotLearner,
        Self::LearnerNotReady,
        Self::NotEnoughStarted,
        Self::Unhealthy,
        Self::TooManyLearners,
        Self::TooManyVoters,
        Self::StillRuns,
        Self::Version,
    ];
}
