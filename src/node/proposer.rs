//! The queue of proposals: sends waiting commands to the leader, offers refused ones again, and
//! returns the outcome to every proposer.
//!
//! Invariant: a proposer gets "indeterminate" if its command may have been appended on a member.
//! After every other error the command was not appended and never will be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::error::{NodeError, Unanswered};
use headwater_raft::{Consensus, WriteError};
use headwater_types::Applied;
use headwater_types::limits::{APPEND_BYTES_MAX, PENDING_PROPOSAL_BYTES_MAX, PENDING_PROPOSALS_MAX};

/// Commands in one batch, count.
const BATCH_MAX: usize = 1024;
/// Pause before a command that no leader has taken is offered again, unless the leader changes
/// first.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Not sent yet: can be withdrawn.
const QUEUED: u8 = 0;
/// Sent to a leader: may be appended.
const SENT: u8 = 1;
/// Withdrawn by its proposer.
const WITHDRAWN: u8 = 2;

struct Job {
    /// Counts among the pending ones until the job has ended, even if its proposer has given up.
    _pending: PendingGuard,
    command: Bytes,
    state: Arc<AtomicU8>,
    answer: oneshot::Sender<Result<Applied, NodeError>>,
}

impl Job {
    fn mark(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn answer(self, result: Result<Applied, NodeError>) {
        // The proposer may have gone away; the command's fate does not depend on it.
        drop(self.answer.send(result));
    }
}

/// Counters for metrics.
#[derive(Debug, Default)]
pub(super) struct ProposerStats {
    /// Proposals that wait for an outcome.
    pub(super) pending: AtomicUsize,
    /// Their commands, bytes.
    pub(super) pending_bytes: AtomicUsize,
    /// Proposals that got an outcome.
    pub(super) answered: AtomicU64,
    /// Proposals that failed or stayed unanswered.
    pub(super) failed: AtomicU64,
}

/// A handle to the queue.
#[derive(Clone)]
pub(super) struct Proposer {
    queue: mpsc::Sender<Job>,
    stats: Arc<ProposerStats>,
}

/// One job's share of the pending proposals.
struct PendingGuard {
    stats: Arc<ProposerStats>,
    bytes: usize,
}

impl PendingGuard {
    fn take(stats: &Arc<ProposerStats>, bytes: usize) -> Result<Self, NodeError> {
        // Made first: its drop takes the counts back if the bounds are exceeded.
        let guard = Self { stats: Arc::clone(stats), bytes };
        let count = stats.pending.fetch_add(1, Ordering::Relaxed);
        let total_bytes = stats.pending_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if count >= PENDING_PROPOSALS_MAX || total_bytes > PENDING_PROPOSAL_BYTES_MAX {
            return Err(NodeError::TooManyRequests);
        }
        Ok(guard)
    }
}

impl Drop for PendingGuard {
    fn drop(&mut self) {
        self.stats.pending.fetch_sub(1, Ordering::Relaxed);
        self.stats.pending_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Proposer {
    pub(super) fn start(consensus: Consensus) -> Self {
        // Must take every admitted command and those that are offered again, so it is larger than
        // the number of admitted ones.
        let (queue, jobs) = mpsc::channel(2 * PENDING_PROPOSALS_MAX);
        tokio::spawn(gather(consensus, jobs, queue.downgrade()));
        Self { queue, stats: Arc::default() }
    }

    pub(super) fn stats(&self) -> &ProposerStats {
        &self.stats
    }

    /// Proposes an encoded command and waits for its outcome until `deadline`.
    pub(super) async fn propose(&self, command: Bytes, deadline: Instant) -> Result<Applied, NodeError> {
        let pending = PendingGuard::take(&self.stats, command.len())?;
        let state = Arc::new(AtomicU8::new(QUEUED));
        let (answer, answered) = oneshot::channel();
        let job = Job { _pending: pending, command, state: state.clone(), answer };
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

/// The error after the deadline. A command that was not sent is withdrawn and never will be; the
/// fate of a sent one is unknown.
fn withdraw(state: &AtomicU8) -> NodeError {
    match state.compare_exchange(QUEUED, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => NodeError::Timeout,
        Err(_) => NodeError::Indeterminate(Unanswered::Timeout),
    }
}

async fn gather(consensus: Consensus, mut jobs: mpsc::Receiver<Job>, queue: mpsc::WeakSender<Job>) {
    while let Some(first) = jobs.recv().await {
        let (mut batch, mut batch_bytes) = (Vec::new(), 0);
        add(&mut batch, &mut batch_bytes, first);
        // Tasks that were woken together with the first one get their chance to join.
        tokio::task::yield_now().await;
        drain(&mut jobs, &mut batch, &mut batch_bytes);
        let (consensus, queue) = (consensus.clone(), queue.clone());
        tokio::spawn(async move {
            let refused = submit(&consensus, batch).await;
            offer_again(&consensus, &queue, refused).await;
        });
    }
}

fn add(batch: &mut Vec<Job>, batch_bytes: &mut usize, job: Job) {
    if job.mark(QUEUED, SENT) {
        *batch_bytes += job.command.len();
        batch.push(job);
    }
}

fn drain(jobs: &mut mpsc::Receiver<Job>, batch: &mut Vec<Job>, batch_bytes: &mut usize) {
    while batch.len() < BATCH_MAX && *batch_bytes < APPEND_BYTES_MAX {
        match jobs.try_recv() {
            Ok(job) => add(batch, batch_bytes, job),
            Err(_) => return,
        }
    }
}

/// Proposes a batch and answers its jobs. Returns the jobs that no leader has taken.
async fn submit(consensus: &Consensus, batch: Vec<Job>) -> Vec<Job> {
    if batch.is_empty() {
        return Vec::new();
    }
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

/// Offers refused commands again after a pause or a change of leader. The proposers' deadlines end
/// this.
async fn offer_again(consensus: &Consensus, queue: &mpsc::WeakSender<Job>, refused: Vec<Job>) {
    if refused.is_empty() {
        return;
    }
    let refused: Vec<Job> = refused.into_iter().filter(|job| job.mark(SENT, QUEUED)).collect();
    consensus.leadership().wait_for_change(RETRY_PAUSE).await;
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
    fn a_withdrawn_command_is_never_sent() {
        let state = Arc::new(AtomicU8::new(QUEUED));
        assert_eq!(withdraw(&state), NodeError::Timeout);
        let (answer, _answered) = oneshot::channel();
        let pending = PendingGuard::take(&Arc::default(), 0).unwrap();
        let job = Job { _pending: pending, command: Bytes::new(), state, answer };
        let (mut batch, mut bytes) = (Vec::new(), 0);
        add(&mut batch, &mut bytes, job);
        assert!(batch.is_empty());
    }

    #[test]
    fn a_sent_command_is_indeterminate_when_its_time_is_up() {
        let state = AtomicU8::new(SENT);
        assert_eq!(withdraw(&state), NodeError::Indeterminate(Unanswered::Timeout));
    }
}
