//! Whether a majority is there: what a leader knows of it from its heartbeats, what it tells its followers, and who answers
//! when it asks.
//!
//! Invariants: that there is no majority is said only after a leader has heard of none for as long as a silent leader is
//! trusted; who is said to answer has answered after the question.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use openraft::Instant as _;
use openraft::async_runtime::watch::WatchReceiver;

use super::consensus::Consensus;
use super::roster::Roster;
use headwater_types::NodeId;

/// How often a member is asked whether it is there: the connection to it may be an old one that has broken.
const ASKED_MAX: u32 = 2;
/// How long to wait before asking a second time.
const ASK_PAUSE: Duration = Duration::from_millis(50);

impl Consensus {
    /// Whether it is known that nobody can lead here now: this member leads and hears of no majority, or follows a leader that
    /// says so of itself. While nobody leads, an election may be under way, and nothing is known.
    pub fn lacks_majority(&self) -> bool {
        match self.leading().leader {
            Some(leader) if leader == self.node_id() => self.is_blocked(),
            Some(_) => self.inner().contact.is_blocked(),
            None => false,
        }
    }

    /// This member leads, and no majority has answered it for as long as a silent leader is trusted.
    fn is_blocked(&self) -> bool {
        // Known a moment later than by the metrics, and not before it is noted since when this member leads.
        if self.leading().leader != Some(self.node_id()) {
            return false;
        }
        let metrics = self.raft().metrics();
        let metrics = metrics.borrow_watched();
        if metrics.current_leader != Some(self.node_id().get()) {
            return false;
        }
        // Nobody else is asked where there is nobody else: that time then stands still.
        if metrics.membership_config.membership().voter_ids().all(|id| id == self.node_id().get()) {
            return false;
        }
        let silence_max = self.inner().leader_silence_max;
        match metrics.last_quorum_acked {
            Some(at) => at.elapsed() > silence_max,
            // Nobody has answered it since it was elected.
            None => self.inner().leading_since.lock().elapsed() > silence_max,
        }
    }

    /// Tells the followers whether this member, if it leads, has a majority; runs as long as consensus does.
    pub(super) async fn watch_majority(self, heartbeat: Duration) {
        let mut before = false;
        loop {
            tokio::select! {
                // A clock, not a race: that nobody answers is no event.
                () = tokio::time::sleep(heartbeat) => {}
                _ = self.ended() => return,
            }
            let now = self.is_blocked();
            self.inner().peers.set_blocked(now);
            if std::mem::replace(&mut before, now) != now {
                if now {
                    tracing::warn!(
                        "this member leads, and a majority of the members does not answer: it serves nothing"
                    );
                } else {
                    tracing::info!("a majority of the members answers, or another one leads");
                }
            }
        }
    }

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
