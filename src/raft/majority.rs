//! Detection of a lost majority, on the leader from its heartbeats and on followers from the
//! leader's report, and a poll of the members that answer.
//!
//! Invariants: a majority counts as lost only after no majority has answered the leader for as long
//! as a silent leader is trusted. A member counts as answering only by an answer sent after the
//! question.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use openraft::Instant as _;
use openraft::async_runtime::watch::WatchReceiver;

use super::consensus::Consensus;
use super::leadership::Leadership;
use super::roster::{Members, Roster};
use headwater_types::NodeId;

/// Most hello calls to one member, count: the first may fail on an old, broken connection.
const ASKED_MAX: u32 = 2;
/// Pause before the second hello call.
const ASK_PAUSE: Duration = Duration::from_millis(50);

impl Leadership<'_> {
    /// Whether the majority is known to be lost: this member leads and no majority answers it, or
    /// its leader reported that. False without a leader, because an election may be under way.
    pub fn lacks_majority(self) -> bool {
        match self.current().leader {
            Some(leader) if leader == self.consensus.node_id() => self.is_blocked(),
            Some(_) => self.state().contact.is_blocked(),
            None => false,
        }
    }

    /// Whether this member leads, and no majority has answered it for as long as followers trust a
    /// silent leader. Always false for an only voter.
    fn is_blocked(self) -> bool {
        // `current` shows this member as the leader only after `since` is the time of its election;
        // the metrics show it earlier.
        if self.current().leader != Some(self.consensus.node_id()) {
            return false;
        }
        let metrics = self.consensus.raft().metrics();
        let metrics = metrics.borrow_watched();
        if metrics.current_leader != Some(self.consensus.node_id().get()) {
            return false;
        }
        // A single voter sends no heartbeats, so its time of the last quorum does not advance.
        if metrics.membership_config.membership().voter_ids().all(|id| id == self.consensus.node_id().get()) {
            return false;
        }
        let silence_max = self.state().silence_max;
        match metrics.last_quorum_acked {
            Some(at) => at.elapsed() > silence_max,
            // No answer since its election.
            None => self.state().since.lock().elapsed() > silence_max,
        }
    }
}

/// Checks at every heartbeat whether this member leads without a majority, so that its heartbeats
/// report that to the followers. Runs until consensus ends.
pub(super) async fn watch(consensus: Consensus, heartbeat: Duration) {
    let mut before = false;
    loop {
        tokio::select! {
            // Polled: silence is no event.
            () = tokio::time::sleep(heartbeat) => {}
            _ = consensus.ended() => return,
        }
        let now = consensus.leadership().is_blocked();
        consensus.inner().peers.set_blocked(now);
        if std::mem::replace(&mut before, now) != now {
            if now {
                tracing::warn!("this member leads, and a majority of the members does not answer: it serves nothing");
            } else {
                tracing::info!("a majority of the members answers, or another one leads");
            }
        }
    }
}

impl Members<'_> {
    /// The members of `asked` that answer now and acknowledge this member, which must lead, as the
    /// leader. This member counts as answering if it is in `asked`. Returns early once `enough`
    /// holds for the answers so far. Waits for the others at most as long as a silent leader is
    /// trusted. A member that is stopping does not count, even if it answers.
    pub async fn answering(
        self,
        roster: &Roster,
        asked: &BTreeSet<NodeId>,
        enough: impl Fn(&BTreeSet<NodeId>) -> bool,
    ) -> BTreeSet<NodeId> {
        let began = Instant::now();
        // A heartbeat at once instead of at the next interval. If it fails, no answer will come.
        drop(self.consensus.raft().trigger().heartbeat().await);
        let me = self.consensus.node_id();
        let others = roster.members.iter().filter(|member| member.id != me && asked.contains(&member.id));
        let mut asking: FuturesUnordered<_> = others
            .map(|member| async move {
                let is_there = async {
                    for asked in 0..ASKED_MAX {
                        if asked > 0 {
                            tokio::time::sleep(ASK_PAUSE).await;
                        }
                        if let Some(answer) = self.consensus.hello(member.id, &member.info).await {
                            return !answer.stopping;
                        }
                    }
                    false
                };
                // A member without an answer to the hello is not waited for.
                let answers = async { is_there.await && self.has_acknowledged_since(member.id, began).await };
                let answers = tokio::time::timeout(self.consensus.inner().leadership.silence_max, answers).await;
                (member.id, answers.unwrap_or(false))
            })
            .collect();
        let mut answered: BTreeSet<NodeId> = asked.contains(&me).then_some(me).into_iter().collect();
        while !enough(&answered) {
            match asking.next().await {
                Some((id, true)) => drop(answered.insert(id)),
                Some((_, false)) => {}
                None => break,
            }
        }
        answered
    }

    /// Waits until `member` has acknowledged this member as the leader, by an answer to a message
    /// sent after `began`. False if consensus ends before.
    async fn has_acknowledged_since(self, member: NodeId, began: Instant) -> bool {
        let wait = self.consensus.raft().wait(None);
        let result = wait.metrics(
            |now| {
                let acked = now.heartbeat.as_ref().and_then(|acked| acked.get(&member.get()).copied().flatten());
                acked.is_some_and(|at| at.elapsed() < began.elapsed())
            },
            "an answer to what was sent after the question",
        );
        result.await.is_ok()
    }
}
