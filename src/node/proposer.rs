//! The path of proposals: sends waiting commands to the leader, offers refused ones again, and
//! returns each outcome to its proposer. [`super::proposal_queue`] decides the order.
//!
//! Invariant: a proposer gets "indeterminate" if its command may have been appended on a member.
//! After every other error the command was not appended and never will be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::ClientKey;
use super::error::{NodeError, Unanswered};
use super::proposal_queue::{Batch, Job, JobState, Pending, PendingGuard, ProposalQueue};
use headwater_raft::{Consensus, WriteError};
use headwater_types::Applied;
use headwater_types::limits::PENDING_PROPOSALS_MAX;

/// Pause before a command that no leader has taken is offered again, unless the leader changes
/// first.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Counters for metrics.
#[derive(Debug, Default)]
pub(super) struct ProposerStats {
    /// Number and bytes of the jobs that have not ended.
    pub(super) pending: Arc<Pending>,
    /// Proposals that got an outcome, refusals included.
    pub(super) answered: AtomicU64,
    /// Proposals that were given to the queue and ended without an outcome: failed, unanswered at
    /// their deadline, or refused by a full queue.
    pub(super) failed: AtomicU64,
}

/// A handle for proposing: sends jobs to the task that queues and batches them. Clones share the
/// queue.
#[derive(Clone)]
pub(super) struct Proposer {
    queue: mpsc::Sender<Job>,
    stats: Arc<ProposerStats>,
}

impl Proposer {
    pub(super) fn start(consensus: Consensus) -> Self {
        // Must take every pending command, also those that are offered again.
        let (queue, jobs) = mpsc::channel(4 * PENDING_PROPOSALS_MAX);
        tokio::spawn(gather(consensus, jobs, queue.downgrade()));
        Self { queue, stats: Arc::default() }
    }

    pub(super) fn stats(&self) -> &ProposerStats {
        &self.stats
    }

    /// Proposes an encoded command of a client and waits for its outcome until `deadline`. A
    /// command that is not sent by then is withdrawn, and is never applied.
    pub(super) async fn propose(
        &self,
        client: ClientKey,
        command: Bytes,
        deadline: Instant,
    ) -> Result<Applied, NodeError> {
        let pending = PendingGuard::take(&self.stats.pending, client, command.len())?;
        let state = JobState::queued();
        let (answer, answered) = oneshot::channel();
        let job = Job { client, pending, command, state: state.clone(), answer };
        self.queue.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NodeError::TooManyRequests,
            mpsc::error::TrySendError::Closed(_) => NodeError::Stopped,
        })?;
        let result = match tokio::time::timeout_at(deadline.into(), answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(NodeError::Indeterminate(Unanswered::LeaderFailed)),
            Err(_) => Err(withdraw(&state)),
        };
        match &result {
            Ok(_) => self.stats.answered.fetch_add(1, Ordering::Relaxed),
            Err(_) => self.stats.failed.fetch_add(1, Ordering::Relaxed),
        };
        result
    }
}

/// Withdraws a command at its deadline and returns the error. [`NodeError::Timeout`] if the command
/// was queued: it will never be sent. [`NodeError::Indeterminate`] if it was sent.
fn withdraw(state: &JobState) -> NodeError {
    match state.withdraw() {
        true => NodeError::Timeout,
        false => NodeError::Indeterminate(Unanswered::Timeout),
    }
}

async fn gather(consensus: Consensus, mut jobs: mpsc::Receiver<Job>, offers: mpsc::WeakSender<Job>) {
    let (done, mut ended) = mpsc::unbounded_channel();
    let mut queue = ProposalQueue::default();
    loop {
        let mut batch = Batch::default();
        tokio::select! {
            biased;
            // The end of a batch lets waiting jobs be sent. Without waiting jobs, ends are counted
            // when the next job arrives.
            Some(amount) = ended.recv(), if queue.is_waiting() => queue.ended(amount),
            job = jobs.recv() => match job {
                Some(job) => queue.arrive(job, &mut batch),
                None => return,
            },
        }
        // Tasks that were woken together with the first one get their chance to join.
        tokio::task::yield_now().await;
        while let Ok(amount) = ended.try_recv() {
            queue.ended(amount);
        }
        while let Ok(job) = jobs.try_recv() {
            queue.arrive(job, &mut batch);
        }
        queue.fill(&mut batch);
        while !batch.jobs.is_empty() {
            let Batch { jobs, amount } = std::mem::take(&mut batch);
            let (consensus, offers, done) = (consensus.clone(), offers.clone(), done.clone());
            tokio::spawn(async move {
                let refused = submit(&consensus, jobs).await;
                let refused = pause(&consensus, refused).await;
                // Counted before the refused jobs are offered again. An error only means that the
                // queue has ended.
                let _nobody_counts = done.send(amount).is_err();
                offer_again(&offers, refused).await;
            });
            queue.fill(&mut batch);
        }
    }
}

/// Proposes a batch and answers its jobs, except those that no leader has taken: it returns these.
/// If the leader is known to lack a majority, proposes nothing and answers [`NodeError::NoLeader`].
async fn submit(consensus: &Consensus, batch: Vec<Job>) -> Vec<Job> {
    // The leader could not commit the batch. A command that is not sent is certainly not applied.
    if consensus.leadership().lacks_majority() {
        for job in batch {
            job.answer(Err(NodeError::NoLeader));
        }
        return Vec::new();
    }
    let commands = batch.iter().map(|job| job.command.clone()).collect();
    let results = consensus.propose(commands).await;
    let mut refused = Vec::new();
    for (job, result) in batch.into_iter().zip(results) {
        match result {
            Ok(applied) => job.answer(Ok(applied)),
            Err(WriteError::NotLeader(_)) => refused.push(job),
            Err(WriteError::Discarded) => job.answer(Err(NodeError::Indeterminate(Unanswered::LeaderFailed))),
            Err(WriteError::ConnectionLost) => job.answer(Err(NodeError::Indeterminate(Unanswered::ConnectionLost))),
            Err(WriteError::Unreadable(why)) => {
                tracing::error!(why, "the leader cannot read a command of this member: do both run the same version?");
                job.answer(Err(NodeError::Unreadable(why)));
            }
            Err(WriteError::Stopped(why)) => {
                tracing::debug!(why, "a write stayed unanswered");
                job.answer(Err(NodeError::Indeterminate(Unanswered::LeaderFailed)));
            }
        }
    }
    refused
}

/// Marks refused commands as queued, so that their proposers can withdraw them. Then waits for
/// [`RETRY_PAUSE`] or a change of leader, and returns the commands to offer again.
async fn pause(consensus: &Consensus, refused: Vec<Job>) -> Vec<Job> {
    if refused.is_empty() {
        return refused;
    }
    let refused = refused.into_iter().filter(|job| job.state.mark_queued()).collect();
    consensus.leadership().wait_for_change(RETRY_PAUSE).await;
    refused
}

/// Offers refused commands again, except those that no proposer waits for any more.
async fn offer_again(queue: &mpsc::WeakSender<Job>, refused: Vec<Job>) {
    if refused.is_empty() {
        return;
    }
    let Some(queue) = queue.upgrade() else { return };
    for job in refused {
        if job.answer.is_closed() {
            continue;
        }
        if let Err(error) = queue.send(job).await {
            error.0.answer(Err(NodeError::Stopped));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_withdrawn_command_certainly_failed() {
        assert_eq!(withdraw(&JobState::queued()), NodeError::Timeout);
    }

    #[test]
    fn a_sent_command_is_indeterminate_when_its_time_is_up() {
        let state = JobState::queued();
        state.mark_sent();
        assert_eq!(withdraw(&state), NodeError::Indeterminate(Unanswered::Timeout));
    }
}
