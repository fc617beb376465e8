//! Proposals: the write path from a batch of commands to their outcomes.
//!
//! A follower forwards its batches to the leader ([`super::propose_streams`]); the leader merges
//! all that wait into one batch for openraft ([`super::batcher`]). Commands are opaque bytes.
//!
//! Errors: openraft's `ClientWriteError` ─► [`WriteError`] ◄─► `pb::ProposeResult`. Invariant: the
//! error of a write says whether the write can still take effect.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use openraft::errors::ClientWriteError;

use super::batcher::{Batch, Batcher, Queue};
use super::consensus::Consensus;
use super::propose_streams::ProposeStreams;
use super::types::{EncodedCommand, Raft, TypeConfig};
use headwater_proto::codec;
use headwater_proto::pb::peer as pb;
use headwater_types::{Applied, NodeId};

/// The reason why a proposed command has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Not appended, and never will be: the receiver does not lead, or the leader could not be
    /// reached. Safe to propose again. The id is that of the leader, if the receiver knows it.
    #[error("not the leader")]
    NotLeader(Option<NodeId>),
    /// Not appended, and never will be: the leader cannot decode the command. A retry fails again.
    #[error("the leader cannot read the command: {0}")]
    Unreadable(String),
    /// Appended by a leader that was replaced: it may or may not take effect.
    #[error("the leader was replaced while the write was under way")]
    Discarded,
    /// Sent to the leader, and the connection was lost before the answer, or the answer has no
    /// result for it: it may or may not take effect.
    #[error("the connection to the leader broke")]
    ConnectionLost,
    /// Consensus has ended on the receiver, or its answer cannot be read: it may or may not take
    /// effect.
    #[error("consensus has ended: {0}")]
    Stopped(String),
}

impl From<ClientWriteError<TypeConfig>> for WriteError {
    fn from(error: ClientWriteError<TypeConfig>) -> Self {
        match error {
            ClientWriteError::ForwardToLeader(forward) => Self::NotLeader(forward.leader_id.map(NodeId)),
            ClientWriteError::LogEntryDiscarded(_) => Self::Discarded,
            ClientWriteError::ChangeMembershipError(error) => Self::Stopped(error.to_string()),
            ClientWriteError::PreconditionFailed(error) => Self::Stopped(error.to_string()),
        }
    }
}

pub(super) fn result_to_pb(result: Result<Applied, WriteError>) -> pb::ProposeResult {
    use pb::propose_result::Result as R;
    let result = match result {
        Ok(applied) => R::Applied(codec::encode_applied(&applied)),
        Err(WriteError::NotLeader(leader)) => R::NotLeader(leader.map_or(0, |id| id.get())),
        Err(WriteError::Discarded) => R::Discarded(true),
        Err(WriteError::ConnectionLost) => R::Stopped("connection lost".to_owned()),
        Err(WriteError::Stopped(why)) => R::Stopped(why),
        Err(WriteError::Unreadable(why)) => R::Unreadable(why),
    };
    pb::ProposeResult { result: Some(result) }
}

pub(super) fn result_from_pb(result: pb::ProposeResult) -> Result<Applied, WriteError> {
    use pb::propose_result::Result as R;
    match result.result {
        Some(R::Applied(record)) => {
            codec::decode_applied(record).map_err(|error| WriteError::Stopped(error.to_string()))
        }
        Some(R::NotLeader(id)) => Err(WriteError::NotLeader((id != 0).then_some(NodeId(id)))),
        Some(R::Discarded(_)) => Err(WriteError::Discarded),
        Some(R::Stopped(why)) => Err(WriteError::Stopped(why)),
        Some(R::Unreadable(why)) => Err(WriteError::Unreadable(why)),
        None => Err(WriteError::ConnectionLost),
    }
}

/// The queues in which proposals wait.
pub(super) struct ProposeQueues {
    /// Batches for this member as the leader.
    pub(super) local: Queue,
    /// Batches that are forwarded to another member, the leader.
    pub(super) propose_streams: ProposeStreams,
    /// Longest wait for a forwarded write to be applied on this member.
    pub(super) catch_up_max: Duration,
}

impl Consensus {
    /// Proposes a batch to the current leader. Returns one result for each command, in their order.
    /// After forwarding, waits a bounded time until the results are applied here.
    pub async fn propose(&self, commands: Vec<Bytes>) -> Vec<Result<Applied, WriteError>> {
        match self.leadership().current().leader {
            Some(leader) if leader != self.node_id() => {
                let Some(info) = self.member_info(leader) else {
                    return vec![Err(WriteError::NotLeader(None)); commands.len()];
                };
                let inner = self.inner();
                let results = inner.proposals.propose_streams.propose(&inner.peers, leader, &info, commands).await;
                self.catch_up_with(&results).await;
                results
            }
            // This member leads, or no leader is known: then openraft refuses at once, unless its
            // state is newer than our copy.
            _ => self.propose_here(commands).await,
        }
    }

    /// Waits until this member has applied the commands with these results, so that its own clients
    /// read their writes. Waits at most `catch_up_max`: the outcome is certain, and a lagging
    /// member must not delay the answer.
    async fn catch_up_with(&self, results: &[Result<Applied, WriteError>]) {
        let Some(last) = results.iter().flatten().map(|applied| applied.index).max() else { return };
        let mut applied = self.inner().progress.applied.clone();
        let reached = applied.wait_for(|applied| *applied >= last);
        if tokio::time::timeout(self.inner().proposals.catch_up_max, reached).await.is_err() {
            tracing::debug!(index = %last, "answered a forwarded write before it was applied here");
        }
    }

    /// Proposes a batch to this member, merged with other batches that wait here.
    /// [`WriteError::NotLeader`] for each command if this member does not lead.
    pub(crate) async fn propose_here(&self, commands: Vec<Bytes>) -> Vec<Result<Applied, WriteError>> {
        self.inner().proposals.local.run(commands, WriteError::Stopped("consensus has ended".to_owned())).await
    }
}

/// Passes gathered batches to openraft until the last sender of the queue is gone.
pub(super) async fn feed(raft: Raft, mut batcher: Batcher) {
    while let Some(Batch { commands, jobs, in_flight }) = batcher.next().await {
        let count = commands.len();
        // Awaited here, so that batches enter the log in the order in which they were gathered.
        let submitted = raft.client_write_many(commands.into_iter().map(EncodedCommand)).await;
        let mut answers = match submitted {
            Ok(answers) => answers,
            Err(fatal) => {
                jobs.answer(Vec::new(), &WriteError::Stopped(fatal.to_string()));
                continue;
            }
        };
        tokio::spawn(async move {
            let _in_flight = in_flight;
            let mut results = Vec::with_capacity(count);
            while let Some(answer) = answers.next().await {
                results.push(match answer {
                    Ok(Ok(response)) => Ok(response.response),
                    Ok(Err(error)) => Err(WriteError::from(error)),
                    Err(fatal) => Err(WriteError::Stopped(fatal.to_string())),
                });
            }
            // A fatal error ends the answers early; a command without one may have been appended.
            jobs.answer(results, &WriteError::Stopped("consensus has ended".to_owned()));
        });
    }
}
