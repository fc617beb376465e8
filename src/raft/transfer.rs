//! Transfer of leadership to another member.
//!
//! Invariant: a leader that has begun a transfer takes no more writes, so the transfer continues
//! until another member leads, even if the chosen one does not answer.

use std::time::{Duration, Instant};

use super::consensus::Consensus;
use super::leadership::Leadership;
use headwater_types::{LogIndex, NodeId, Term};

/// The chosen member did not take over in time. The transfer continues in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leadership was not taken over in time")]
pub struct NotTakenOver;

impl Leadership<'_> {
    /// Transfers leadership to another voter if this member leads; returns once another member
    /// leads, or after `limit`.
    pub async fn step_aside(self, limit: Duration) {
        if self.current().leader != Some(self.consensus.node_id()) {
            return;
        }
        let Some(target) = self.most_caught_up_voter(None) else { return };
        match self.transfer_to(target, limit).await {
            Ok(()) => {
                tracing::info!(to = %target, "leadership handed over");
                // Nothing is appended during a transfer, and the next leader commits the rest.
                self.answer_through(self.consensus.progress().points().last, limit).await;
            }
            Err(error) => tracing::warn!(to = %target, %error, "stepping aside took too long"),
        }
    }

    /// Waits until the writes through `last`, some forwarded by other members, have their answers:
    /// a member that stops before that leaves them indeterminate.
    async fn answer_through(self, last: LogIndex, limit: Duration) {
        let mut applied = self.consensus.progress().applied();
        let reached = applied.wait_for(|applied| *applied >= last);
        if tokio::time::timeout(limit, reached).await.is_err() {
            tracing::warn!(index = %last, "writes through this index may stay without an answer");
        }
    }

    /// Transfers leadership to `target`, which must be a voter; returns once another member leads.
    ///
    /// # Errors
    ///
    /// [`NotTakenOver`] after `limit`. The transfer continues then, to any voter that takes over.
    pub async fn transfer_to(self, target: NodeId, limit: Duration) -> Result<(), NotTakenOver> {
        let give_up = Instant::now() + limit;
        loop {
            let wait_max = self.state().silence_max.min(give_up.saturating_duration_since(Instant::now()));
            if self.offer_leadership(target, wait_max).await {
                return Ok(());
            }
            if Instant::now() >= give_up {
                let term = self.current().term;
                tokio::spawn(complete_transfer(self.consensus.clone(), target, term));
                return Err(NotTakenOver);
            }
        }
    }

    /// Asks `target` to take over, and waits for that; true once another member leads.
    async fn offer_leadership(self, target: NodeId, wait_max: Duration) -> bool {
        if self.consensus.raft().trigger().transfer_leader(target.get()).await.is_err() {
            return false;
        }
        let me = self.consensus.node_id().get();
        let wait = self.consensus.raft().wait(Some(wait_max));
        wait.metrics(|now| now.current_leader.is_some_and(|leader| leader != me), "leadership handed over")
            .await
            .is_ok()
    }

    /// The best candidate: a voter that is not leaving, live before silent, with the longest log.
    fn most_caught_up_voter(self, but_not: Option<NodeId>) -> Option<NodeId> {
        let me = self.consensus.node_id();
        let progress = self.consensus.members().progress();
        let roster = self.consensus.members().roster();
        let candidates =
            roster.voters().filter(|member| !member.leaving && member.id != me && Some(member.id) != but_not);
        candidates
            .filter_map(|member| Some((member.id, progress.get(&member.id)?)))
            .max_by_key(|(_, progress)| (progress.is_live, progress.matched))
            .map(|(id, _)| id)
    }
}

/// Offers leadership to one voter after the other until another member leads or the term has
/// changed.
async fn complete_transfer(consensus: Consensus, tried: NodeId, term: Term) {
    let leadership = consensus.leadership();
    let mut last = tried;
    while !consensus.has_ended() && leadership.current().term == term {
        let next = leadership.most_caught_up_voter(Some(last)).or_else(|| leadership.most_caught_up_voter(None));
        let Some(target) = next else {
            leadership.wait_for_change(leadership.state().silence_max).await;
            continue;
        };
        tracing::warn!(to = %target, "leadership was not taken over, offering it to another");
        last = target;
        if leadership.offer_leadership(target, leadership.state().silence_max).await {
            return;
        }
    }
}
