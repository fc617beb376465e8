//! Transfer of leadership to another member.
//!
//! Invariant: a leader that has begun a transfer takes no more writes, so the transfer continues
//! until another member leads, even if the chosen one does not answer.

use std::time::{Duration, Instant};

use super::consensus::Consensus;
use super::leadership::Leadership;
use headwater_types::{LogIndex, NodeId, Term};

/// Offers of leadership within the time after which followers give up a silent leader, count.
const OFFERS_IN_SILENCE: u32 = 6;

/// The chosen member did not take over in time. The transfer continues in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leadership was not taken over in time")]
pub struct NotTakenOver;

impl Leadership<'_> {
    /// Transfers leadership to another voter; does nothing if this member does not lead, or knows
    /// no other voter. Returns once another member leads and the writes in the log have their
    /// answers. Waits at most `limit` for both together. A transfer that takes longer continues in
    /// the background.
    pub async fn step_aside(self, limit: Duration) {
        if self.current().leader != Some(self.consensus.node_id()) {
            return;
        }
        let Some(mut target) = self.most_caught_up_voter(None) else { return };
        let give_up = Instant::now() + limit;
        while !self.offer_leadership(target, self.offer_wait(give_up)).await {
            if Instant::now() >= give_up {
                tracing::warn!(to = %target, error = %NotTakenOver, "stepping aside took too long");
                self.complete_in_background(target);
                return;
            }
            // The disk or the connection of `target` may be slow; any other voter may lead.
            target = self.most_caught_up_voter(Some(target)).unwrap_or(target);
        }
        let to = self.current().leader.map(NodeId::get);
        tracing::info!(to, "leadership handed over");
        // Nothing is appended during a transfer, and the next leader commits the rest.
        self.answer_through(self.consensus.progress().points().last, give_up).await;
    }

    /// Longest wait for the effect of one offer, at most until `give_up`. A fraction of the time
    /// after which followers give up a silent leader, so that a lost offer is repeated before an
    /// election ends the transfer. Repeating is harmless: an offer names the leader's vote, so it
    /// cannot disturb an election that has begun.
    fn offer_wait(self, give_up: Instant) -> Duration {
        (self.state().silence_max / OFFERS_IN_SILENCE).min(give_up.saturating_duration_since(Instant::now()))
    }

    fn complete_in_background(self, tried: NodeId) {
        tokio::spawn(complete_transfer(self.consensus.clone(), tried, self.current().term));
    }

    /// Waits until the writes through `last` have their answers, also those forwarded by other
    /// members, at most until `give_up`. If this member stopped earlier, they would be
    /// indeterminate.
    async fn answer_through(self, last: LogIndex, give_up: Instant) {
        let mut applied = self.consensus.progress().applied();
        let reached = applied.wait_for(|applied| *applied >= last);
        if tokio::time::timeout_at(give_up.into(), reached).await.is_err() {
            tracing::warn!(index = %last, "writes through this index may stay without an answer");
        }
    }

    /// Transfers leadership to `target`, which must be a voter. Returns once another member leads,
    /// `target` or not.
    ///
    /// # Errors
    ///
    /// [`NotTakenOver`] after `limit`. The transfer then continues in the background, to any voter.
    pub async fn transfer_to(self, target: NodeId, limit: Duration) -> Result<(), NotTakenOver> {
        let give_up = Instant::now() + limit;
        loop {
            if self.offer_leadership(target, self.offer_wait(give_up)).await {
                return Ok(());
            }
            if Instant::now() >= give_up {
                self.complete_in_background(target);
                return Err(NotTakenOver);
            }
        }
    }

    /// Asks `target` to take over, and waits. True once another member leads; false after
    /// `wait_max`, or if consensus has ended.
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

    /// The best next leader: of the other voters that answer, the one with the longest log; if none
    /// answers, of the silent ones. Never `but_not` or a leaving member. `None` if there is no such
    /// voter, or if this member does not lead.
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

/// Offers leadership until another member leads, the term has changed or consensus has ended. Each
/// offer goes to the most caught-up voter but the one asked last, unless that is the only one.
/// `tried` was asked before the first offer.
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
