//! The path of questions about leases from any member to the leader.
//!
//! Waiting questions are sent together, in a few concurrent calls. Invariant: a question that got
//! no answer may be repeated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, join_all};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::keeper::LeaseKeeper;
use headwater_proto::codec;
use headwater_raft::{Consensus, LogThrottle, QueryService};
use headwater_types::limits::{LEADER_QUESTIONS_MAX, WAITING_LEASE_CALLS_MAX};
use headwater_types::{LeaseAnswer, LeaseQuestion, NodeId};

/// Most batches of questions under way at once, count. A batch is one call, or one for each of
/// several leaders.
const CALLS_MAX: usize = 8;
/// Timeout of a call, after which its questions are repeated. Calls to a stalled leader occupy
/// slots that calls to the next leader need.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest delay that one question may cause to the others of its call. A question about an expired
/// lease waits until the lease's end is applied.
const ANSWER_DELAY_MAX: Duration = Duration::from_millis(200);

/// Slots of the queue of questions that only keep-alives may take, count.
const KEEP_ALIVE_RESERVE: usize = WAITING_LEASE_CALLS_MAX / 4;

/// Whether a question may be queued while `free_slots` are left. The last slots are for
/// keep-alives, which must not fail because of many other questions.
pub(super) fn may_wait(question: LeaseQuestion, free_slots: usize) -> bool {
    match question {
        LeaseQuestion::KeepAlive(_) => free_slots > 0,
        LeaseQuestion::Remaining(_) => free_slots > KEEP_ALIVE_RESERVE,
    }
}

struct Call {
    leader: NodeId,
    question: LeaseQuestion,
    answer: oneshot::Sender<LeaseAnswer>,
}

/// A handle to the queue of questions; cheap to clone.
#[derive(Clone)]
pub(super) struct LeaseCalls {
    calls: mpsc::Sender<Call>,
}

impl LeaseCalls {
    pub(super) fn start(consensus: Consensus) -> Self {
        let (calls, waiting) = mpsc::channel(WAITING_LEASE_CALLS_MAX);
        tokio::spawn(serve(consensus, waiting));
        Self { calls }
    }

    /// Asks `leader`, which must be another member. `Busy` if too many questions wait, here or
    /// there; `NotLeader` also if no readable answer came in time.
    pub(super) async fn ask(&self, leader: NodeId, question: LeaseQuestion) -> LeaseAnswer {
        if !may_wait(question, self.calls.capacity()) {
            return LeaseAnswer::Busy;
        }
        let (answer, answered) = oneshot::channel();
        if self.calls.try_send(Call { leader, question, answer }).is_err() {
            return LeaseAnswer::Busy;
        }
        answered.await.unwrap_or(LeaseAnswer::NotLeader)
    }
}

async fn serve(consensus: Consensus, mut waiting: mpsc::Receiver<Call>) {
    let permits = Arc::new(Semaphore::new(CALLS_MAX));
    let mut batch = Vec::new();
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        if waiting.recv_many(&mut batch, LEADER_QUESTIONS_MAX).await == 0 {
            return;
        }
        let mut by_leader: BTreeMap<NodeId, Vec<Call>> = BTreeMap::new();
        for call in batch.drain(..) {
            by_leader.entry(call.leader).or_default().push(call);
        }
        let consensus = consensus.clone();
        tokio::spawn(async move {
            join_all(by_leader.into_iter().map(|(leader, calls)| carry(&consensus, leader, calls))).await;
            drop(permit);
        });
    }
}

async fn carry(consensus: &Consensus, leader: NodeId, calls: Vec<Call>) {
    let questions = calls.iter().map(|call| codec::encode_lease_question(call.question)).collect();
    let answers = match tokio::time::timeout(CALL_TIMEOUT, consensus.queries().send(leader, questions)).await {
        Ok(Ok(answers)) => answers,
        Ok(Err(error)) => return tracing::debug!(%error, "questions about leases stay open"),
        Err(_) => return tracing::debug!(%leader, "questions about leases stay open: no answer in time"),
    };
    for (call, answer) in calls.into_iter().zip(answers) {
        let answer = codec::decode_lease_answer(answer).unwrap_or_else(|error| {
            tracing::warn!(%leader, %error, "an answer about a lease could not be read");
            LeaseAnswer::NotLeader
        });
        let _asker_gone = call.answer.send(answer).is_err();
    }
}

/// Answers the questions of other members.
pub(super) struct LeaseQueryService {
    keeper: Arc<LeaseKeeper>,
    unreadable: Arc<LogThrottle>,
}

impl LeaseQueryService {
    pub(super) fn new(keeper: Arc<LeaseKeeper>) -> Self {
        Self { keeper, unreadable: Arc::default() }
    }
}

impl QueryService for LeaseQueryService {
    fn answer(&self, questions: Vec<Bytes>) -> BoxFuture<'static, Vec<Bytes>> {
        let (keeper, unreadable) = (Arc::clone(&self.keeper), Arc::clone(&self.unreadable));
        async move {
            let answer = |question: Bytes| async {
                let answer = match codec::decode_lease_question(question) {
                    // After a timeout the other member repeats the question.
                    Ok(question) => tokio::time::timeout(ANSWER_DELAY_MAX, keeper.answer(question))
                        .await
                        .unwrap_or(LeaseAnswer::NotLeader),
                    // The other member has a newer version. It repeats the question until a leader
                    // can read it.
                    Err(error) => {
                        if let Some(questions) = unreadable.note() {
                            tracing::warn!(questions, %error, "questions about leases could not be read");
                        }
                        LeaseAnswer::NotLeader
                    }
                };
                codec::encode_lease_answer(answer)
            };
            join_all(questions.into_iter().map(answer)).await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use headwater_types::LeaseId;

    use super::*;

    #[test]
    fn keep_alives_have_a_reserve_among_the_questions() {
        let (keep_alive, other) = (LeaseQuestion::KeepAlive(LeaseId(1)), LeaseQuestion::Remaining(LeaseId(1)));
        assert!(may_wait(other, KEEP_ALIVE_RESERVE + 1) && !may_wait(other, KEEP_ALIVE_RESERVE));
        assert!(may_wait(keep_alive, KEEP_ALIVE_RESERVE) && may_wait(keep_alive, 1) && !may_wait(keep_alive, 0));
    }
}
