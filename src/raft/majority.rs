//! Whether a majority is there: who answers when the leader asks.
//!
//! Invariant: who is said to answer has answered after the question.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use openraft::Instant as _;

use super::consensus::Consensus;
use super::roster::Roster;
use crate::types::NodeId;

/// How often a member is asked whether it is there: the connection to it may be an old one that has broken.
const ASKED_MAX: u32 = 2;
/// How long to wait before asking a second time.
const ASK_PAUSE: Duration = Duration::from_millis(50);

impl Consensus {
    /// Notes that this member is about to end, so that no change of the membership counts on it.
    pub fn note_stopping(&self) {
        self.inner().stopping.store(true, Ordering::Release);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.inner().stopping.load(Ordering::Acquire)
    }

    /// Which of `asked` answer now, with this one: whoever says that it is there, and takes this member, which must lead, for
    /// the leader. Waits for the silent ones as long as a silent leader is trusted, unless those who have answered are
    /// `enough`.
    pub async fn who_answers(
        &self,
        roster: &Roster,
        asked: &BTreeSet<NodeId>,
        enough: impl Fn(&BTreeSet<NodeId>) -> bool,
    ) -> BTreeSet<NodeId> {
        let began = Instant::now();
        // Sooner than the clock would. If it fails, nobody will be heard of.
        drop(self.raft().trigger().heartbeat().await);
        let me = self.node_id();
        let others = roster.members.iter().filter(|member| member.id != me && asked.contains(&member.id));
        let mut asking: FuturesUnordered<_> = others
            .map(|member| async move {
                let is_there = async {
                    for asked in 0..ASKED_MAX {
                        if asked > 0 {
                            tokio::time::sleep(ASK_PAUSE).await;
                        }
                        if let Some(answer) = self.hello(member.id, &member.info).await {
                            return !answer.stopping;
                        }
                    }
                    false
                };
                // Whoever is not there is not waited for.
                let answers = async { is_there.await && self.has_acknowledged_since(member.id, began).await };
                let answers = tokio::time::timeout(self.inner().leader_silence_max, answers).await;
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

    /// Waits until `member` has acknowledged this member as the leader by an answer to something sent after `began`.
    async fn has_acknowledged_since(&self, member: NodeId, began: Instant) -> bool {
        let wait = self.raft().wait(None);
        let heard = wait.metrics(
            |now| {
                let acked = now.heartbeat.as_ref().and_then(|acked| acked.get(&member.get()).copied().flatten());
                acked.is_some_and(|at| at.elapsed() < began.elapsed())
            },
            "an answer to what was sent after the question",
        );
        heard.await.is_ok()
    }
}
