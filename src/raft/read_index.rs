//! The read index: the log index that a linearizable read must wait for.
//!
//! The leader confirms with a quorum that it still leads; a follower asks the leader. Invariant:
//! every call is a new confirmation, begun after the call. Leader leases are never used
//! (ARCHITECTURE.md §6).

use openraft::ReadPolicy;
use openraft::errors::{LinearizableReadError, RaftError};
use openraft::raft::linearizable_read::Linearizer;

use super::consensus::Consensus;
use super::types::TypeConfig;
use headwater_proto::pb::peer as pb;
use headwater_types::{LogIndex, NodeId};

/// The reason for a missing read index. A failed read may always be retried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadIndexError {
    /// The asked member does not lead, or the leader could not be reached or did not answer. The id
    /// is the leader that the asked member named; `None` if it named none, or did not answer.
    #[error("not the leader")]
    NotLeader(Option<NodeId>),
    /// No quorum confirmed the leader, or the leader's answer cannot be read.
    #[error("no quorum")]
    NoQuorum,
    /// Consensus has ended on this member; the text is the reason. If it has ended on the asked
    /// leader, the error is [`NotLeader`](Self::NotLeader).
    #[error("consensus has ended: {0}")]
    Stopped(String),
}

impl From<RaftError<TypeConfig, LinearizableReadError<TypeConfig>>> for ReadIndexError {
    fn from(error: RaftError<TypeConfig, LinearizableReadError<TypeConfig>>) -> Self {
        match error {
            RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)) => {
                Self::NotLeader(forward.leader_id.map(NodeId))
            }
            RaftError::APIError(LinearizableReadError::QuorumNotEnough(_)) => Self::NoQuorum,
            RaftError::Fatal(fatal) => Self::Stopped(fatal.to_string()),
        }
    }
}

impl Consensus {
    /// The index that a linearizable read must wait for: from the current leader, or from this
    /// member if it leads or knows no leader.
    pub async fn read_index(&self) -> Result<LogIndex, ReadIndexError> {
        match self.leadership().current().leader {
            Some(leader) if leader != self.node_id() => self.read_index_from(leader).await,
            _ => self.read_index_here().await,
        }
    }

    async fn read_index_from(&self, leader: NodeId) -> Result<LogIndex, ReadIndexError> {
        use pb::read_index_response::Result as R;
        let info = self.member_info(leader).ok_or(ReadIndexError::NotLeader(None))?;
        let client = self.inner().peers.shared(leader.get(), &info);
        let mut grpc = client.grpc().map_err(|_| ReadIndexError::NotLeader(None))?;
        let request = client.route().request(pb::ReadIndexRequest {});
        // An unreachable leader counts as none: the caller retries until its own deadline.
        let response = client.answer(client.answer_max(), grpc.read_index(request)).await;
        match response.map_err(|_| ReadIndexError::NotLeader(None))?.result {
            Some(R::Index(index)) => Ok(LogIndex(index)),
            Some(R::NotLeader(id)) => Err(ReadIndexError::NotLeader((id != 0).then_some(NodeId(id)))),
            Some(R::NoQuorum(_)) | None => Err(ReadIndexError::NoQuorum),
        }
    }

    /// The read index from this member as the leader; [`ReadIndexError::NotLeader`] if it does not
    /// lead.
    pub(crate) async fn read_index_here(&self) -> Result<LogIndex, ReadIndexError> {
        Ok(LogIndex(self.linearizer().await?.read_log_id().index()))
    }

    pub(super) async fn linearizer(&self) -> Result<Linearizer<TypeConfig>, ReadIndexError> {
        Ok(self.raft().get_read_linearizer(ReadPolicy::ReadIndex).await?)
    }
}
