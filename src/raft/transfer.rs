//! Handing leadership to another member.
//!
//! Invariant: a leader that has begun to hand over takes no more writes, so it goes on until somebody leads, even when the
//! one that was chosen does not answer.

use std::time::{Duration, Instant};

use super::consensus::Consensus;
use headwater_types::{LogIndex, NodeId, Term};

/// The member that was to lead did not take over in time. Somebody will.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leadership was not taken over in time")]
pub struct NotTakenOver;

impl Consensus {
    /// Hands leadership to another voter if this member leads; waits until somebody else does or `limit` passed.
    pub async fn step_aside(&self, limit: Duration) {
        if self.leading().leader != Some(self.node_id()) {
            return;
        }
        let Some(target) = self.most_caught_up_voter(None) else { return };
        match self.hand_leadership_to(target, limit).await {
            Ok(()) => {
                tracing::info!(to = %target, "leadership handed over");
                // Nothing is appended while leadership is handed over, and the next leader commits what was.
                self.answer_through(self.log_points().last, limit).await;
            }
            Err(error) => tracing::warn!(to = %target, %error, "stepping aside took too long"),
        }
    }

    /// Waits until the writes through `last`, which other members may have handed to this one, have their answers: before
    /// that, a member that stops would leave them in doubt.
    async fn answer_through(&self, last: LogIndex, limit: Duration) {
        let mut applied = self.applied();
        let reached = applied.wait_for(|applied| *applied >= last);
        if tokio::time::timeout(limit, reached).await.is_err() {
            tracing::warn!(index = %last, "writes through this index may stay without an answer");
        }
    }

    /// Hands leadership to `target`, which must be a voter; returns once somebody else leads.
    ///
    /// # Errors
    ///
    /// [`NotTakenOver`] after `limit`. Handing over goes on then, to whichever voter takes over.
    pub async fn hand_leadership_to(&self, target: NodeId, limit: Duration) -> Result<(), NotTakenOver> {
        let give_up = Instant::now() + limit;
        loop {
            let patience = self.inner().leader_silence_max.min(give_up.saturating_duration_since(Instant::now()));
            if self.offer_leadership(target, patience).await {
                return Ok(());
            }
            if Instant::now() >= give_up {
                let term = self.leading().term;
                tokio::spawn(self.clone().let_somebody_lead(target, term));
                return Err(NotTakenOver);
            }
        }
    }

    /// Asks `target` to take over, and waits for that; tells whether somebody else leads.
    async fn offer_leadership(&self, target: NodeId, patience: Duration) -> bool {
        if self.raft().trigger().transfer_leader(target.get()).await.is_err() {
            return false;
        }
        let me = self.node_id().get();
        let wait = self.raft().wait(Some(patience));
        wait.metrics(|now| now.current_leader.is_some_and(|leader| leader != me), "leadership handed over")
            .await
            .is_ok()
    }

    async fn let_somebody_lead(self, tried: NodeId, term: Term) {
        let mut last = tried;
        while !self.has_ended() && self.leading().term == term {
            let Some(target) = self.most_caught_up_voter(Some(last)).or_else(|| self.most_caught_up_voter(None)) else {
                self.leader_may_have_changed(self.inner().leader_silence_max).await;
                continue;
            };
            tracing::warn!(to = %target, "leadership was not taken over, offering it to another");
            last = target;
            if self.offer_leadership(target, self.inner().leader_silence_max).await {
                return;
            }
        }
    }

    /// The voter that can lead soonest: one that answers, with most of the log, and is to stay.
    fn most_caught_up_voter(&self, but_not: Option<NodeId>) -> Option<NodeId> {
        let me = self.node_id();
        let progress = self.progress();
        let roster = self.roster();
        let candidates =
            roster.voters().filter(|member| !member.leaving && member.id != me && Some(member.id) != but_not);
        candidates
            .filter_map(|member| Some((member.id, progress.get(&member.id)?)))
            .max_by_key(|(_, progress)| (progress.is_live, progress.matched))
            .map(|(id, _)| id)
    }
}
