//! Changes of the membership: the requests, and the reasons for refusals (spec: etcd §4.1).

use std::fmt;

use thiserror::Error;

use super::{LogIndex, NodeId, Supported};

/// A requested change of the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// Adds a new member before it starts.
    Add {
        /// URL of its peer port: `http://host:port`, or `https://` with TLS.
        peer_url: String,
        /// Whether it becomes a learner, which votes only after a promotion. If false, it gets its
        /// vote once it has caught up.
        learner: bool,
    },
    /// Makes a node without data a member, at the node's own request. If a member with its peer URL
    /// was added and has not started, the node takes that member's id. Otherwise the node gets
    /// a new id; a started member with that URL is removed first, if it does not answer.
    Join(Joining),
    /// Gives a member without a vote its vote. Refused, for example, until the member has caught
    /// up.
    Promote(NodeId),
    /// Removes a member. Its id is never assigned again.
    Remove(NodeId),
    /// Changes the peer URL of a member.
    Update {
        /// The member.
        id: NodeId,
        /// URL of its peer port: `http://host:port`, or `https://` with TLS.
        peer_url: String,
    },
    /// Sets the name and the client URL of a member, at the member's request.
    Describe {
        /// The member.
        id: NodeId,
        /// New name of the member.
        name: String,
        /// URL of its client port: `http://host:port`, or `https://` with TLS.
        client_url: String,
    },
}

/// A member of the cluster, as events and subscribers carry it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterMember {
    /// Id of the member.
    pub id: NodeId,
    /// Name of the member; empty until its first start, if `MemberAdd` added it, as a voter or as a
    /// learner.
    pub name: String,
    /// URL of its peer port: `http://host:port`, or `https://` with TLS.
    pub peer_url: String,
    /// URL of its client port: `http://host:port`, or `https://` with TLS; empty while `name` is.
    pub client_url: String,
    /// Whether the member does not vote. For an announced voter: false before its first start, as
    /// in etcd, then true until it has caught up and votes.
    pub is_learner: bool,
}

/// A node's request to become a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joining {
    /// Random id of the node's data directory. A repeated request with the same one gets the same
    /// member id.
    pub incarnation: u64,
    /// Name of the member; not empty.
    pub name: String,
    /// URL of its peer port: `http://host:port`, or `https://` with TLS.
    pub peer_url: String,
    /// URL of its client port: `http://host:port`, or `https://` with TLS.
    pub client_url: String,
    /// Whether it becomes a learner, which votes only after a promotion. If false, it gets its vote
    /// once it has caught up.
    pub learner: bool,
    /// The versions of clusters that its program supports.
    pub supported: Supported,
    /// The token of an invitation, if the node has one.
    pub token: Option<Secret>,
}

/// A secret text. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Answer to a [`MemberChange`] that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberChanged {
    /// The member concerned; for a new member, its assigned id.
    pub id: NodeId,
    /// Log index of the membership entry with the change. If the member was as requested already,
    /// that of the newest membership entry.
    pub index: LogIndex,
}

/// The reason for which a [`MemberChange`] is refused. The membership is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MemberRefusal {
    /// There is no member of that id.
    #[error("member not found")]
    NotFound,
    /// Another member has that peer URL.
    #[error("peer URLs already exist")]
    PeerUrlExists,
    /// The member to promote votes already.
    #[error("not a learner")]
    NotLearner,
    /// The member to promote has not started, does not answer, or has not caught up with the log.
    #[error("the learner is not in sync with the leader")]
    LearnerNotReady,
    /// A removal would leave no voter. Or, with `strict-reconfig-check`, at most half of the voters
    /// would have started after the announcement of one more. A single voter may always add a
    /// second one.
    #[error("not enough started members")]
    NotEnoughStarted,
    /// Too many voters do not answer: after a removal or a promotion, less than a majority would.
    /// Or, with `strict-reconfig-check`, a voter was to be announced while another voter does not
    /// answer, or another announced one has not started.
    #[error("unhealthy cluster")]
    Unhealthy,
    /// There are [`LEARNERS_MAX`](super::limits::LEARNERS_MAX) learners already. Announced voters
    /// are not among them.
    #[error("too many learners")]
    TooManyLearners,
    /// There are [`VOTERS_MAX`](super::limits::VOTERS_MAX) voters already. For an addition, the
    /// announced ones count, too.
    #[error("too many voters")]
    TooManyVoters,
    /// The member that the joining node would replace still answers, or the leader leads too
    /// recently to know that it does not.
    #[error("the member with that peer URL still runs")]
    StillRuns,
    /// The program of the joining node does not support the cluster's version.
    #[error("the node's program does not support the cluster's version")]
    Version,
    /// The cluster admits only invited or announced nodes. The joining node has shown no token, and
    /// is no announced member.
    #[error(
        "joining needs an invitation: make one with headwater member invite and give its token to the node with \
         --join-token-file, or announce the node with headwater member add"
    )]
    Uninvited,
    /// The joining node has shown a token of no invitation, or of one that has expired.
    #[error(
        "its token is not that of an invitation: it is wrong, or the invitation has expired or was withdrawn; make a new \
         one with headwater member invite"
    )]
    InvitationUnknown,
    /// The joining node has shown the token of an invitation of which all allowed uses are taken.
    #[error("its invitation was used by another node; make a new one with headwater member invite")]
    InvitationUsedUp,
}

impl MemberRefusal {
    /// Every refusal, in the order of declaration.
    pub const ALL: [Self; 13] = [
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
        Self::Uninvited,
        Self::InvitationUnknown,
        Self::InvitationUsedUp,
    ];
}
