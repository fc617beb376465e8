//! The order of proposals: once a bound on the commands with the leader is reached, clients take
//! turns.
//!
//! Owns the waiting jobs and the count of the sent ones. One task has the queue, so it needs no
//! lock. While the sent commands are below their bounds ([`SENT_MAX`], and one in bytes), a job is
//! sent without waiting. Beyond that, jobs wait, and are sent in turns of clients. Invariant: at
//! most [`PENDING_PROPOSALS_MAX`] jobs of clients wait or are sent. One more job costs the client
//! with the longest queue its newest job; the node's own jobs are never refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::ClientKey;
use super::error::NodeError;
use super::fair_queue::FairQueue;
use headwater_types::Applied;
use headwater_types::limits::{APPEND_BYTES_MAX, PENDING_PROPOSAL_BYTES_MAX, PENDING_PROPOSALS_MAX};

/// Most commands in one batch, count.
pub(super) const BATCH_MAX: usize = 1024;
/// Most commands that are sent and not answered, count: one full batch at the leader, and another
/// that is gathered at the same time. A new command waits for at most this many sent commands, and
/// for its client's turn.
pub(super) const SENT_MAX: usize = 2 * BATCH_MAX;
/// Most bytes of commands that are sent and not answered: four full batches of the leader. The
/// last command may exceed the bound.
const SENT_BYTES_MAX: usize = 4 * APPEND_BYTES_MAX;
/// Cost of a command in addition to its bytes, bytes: a small command costs the members about as
/// much processor time as this many bytes of a large one.
const COMMAND_COST: usize = 4096;
/// Cost that one turn adds to the credit of a client, bytes: 16 small commands.
pub(super) const TURN_COST: usize = 16 * COMMAND_COST;
/// Proposals that are accepted beyond [`PENDING_PROPOSALS_MAX`], count: they are on their way to
/// the queue. A full queue refuses the newest job of the client with the longest queue, so a job
/// must reach the queue first.
const ARRIVING_MAX: usize = PENDING_PROPOSALS_MAX;
/// As [`ARRIVING_MAX`], in bytes beyond [`PENDING_PROPOSAL_BYTES_MAX`].
const ARRIVING_BYTES_MAX: usize = PENDING_PROPOSAL_BYTES_MAX / 4;

const _: () = assert!(SENT_MAX < PENDING_PROPOSALS_MAX, "a full queue must have jobs that can be refused");
const _: () = assert!(SENT_BYTES_MAX * 2 < PENDING_PROPOSAL_BYTES_MAX, "a full queue must have jobs to refuse");

/// Waits to be sent, for the first time or again: can be withdrawn.
const QUEUED: u8 = 0;
/// Sent to a leader: may be appended.
const SENT: u8 = 1;
/// Withdrawn by its proposer.
const WITHDRAWN: u8 = 2;

/// State of a command: queued, sent or withdrawn. The job and its proposer hold clones, which share
/// it.
#[derive(Clone, Debug)]
pub(super) struct JobState(Arc<AtomicU8>);

impl JobState {
    pub(super) fn queued() -> Self {
        Self(Arc::new(AtomicU8::new(QUEUED)))
    }

    fn transition(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Marks a command as sent; false if it was withdrawn.
    pub(super) fn mark_sent(&self) -> bool {
        self.transition(QUEUED, SENT)
    }

    /// Withdraws a command; false if it was sent, so that its fate is unknown.
    pub(super) fn withdraw(&self) -> bool {
        self.transition(QUEUED, WITHDRAWN)
    }

    /// Marks a sent command as queued again, because no leader took it; false if it is not marked
    /// as sent.
    pub(super) fn mark_queued(&self) -> bool {
        self.transition(SENT, QUEUED)
    }
}

/// Number and bytes of the jobs that have not ended, of all clients.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) count: AtomicUsize,
    pub(super) bytes: AtomicUsize,
}

/// One job's part of [`Pending`]. The job holds the guard, so it counts until it has ended, even if
/// its proposer has given up.
#[derive(Debug)]
pub(super) struct PendingGuard {
    pending: Arc<Pending>,
    bytes: usize,
}

impl PendingGuard {
    /// Counts a job as pending until the guard is dropped. Refuses it with
    /// [`NodeError::TooManyRequests`] if the bounds of pending and arriving jobs are exceeded; the
    /// node's own jobs are never refused.
    pub(super) fn take(pending: &Arc<Pending>, client: ClientKey, bytes: usize) -> Result<Self, NodeError> {
        // Made first: its drop takes the counts back if the bounds are exceeded.
        let guard = Self { pending: Arc::clone(pending), bytes };
        let count = pending.count.fetch_add(1, Ordering::Relaxed);
        let total_bytes = pending.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let is_over = count >= PENDING_PROPOSALS_MAX + ARRIVING_MAX
            || total_bytes > PENDING_PROPOSAL_BYTES_MAX + ARRIVING_BYTES_MAX;
        if is_over && client != ClientKey::Own {
            return Err(NodeError::TooManyRequests);
        }
        Ok(guard)
    }
}

impl Drop for PendingGuard {
    fn drop(&mut self) {
        self.pending.count.fetch_sub(1, Ordering::Relaxed);
        self.pending.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A command, with the channel for its outcome.
pub(super) struct Job {
    pub(super) client: ClientKey,
    pub(super) pending: PendingGuard,
    pub(super) command: Bytes,
    pub(super) state: JobState,
    pub(super) answer: oneshot::Sender<Result<Applied, NodeError>>,
}

impl Job {
    pub(super) fn answer(self, result: Result<Applied, NodeError>) {
        let Self { pending, answer, .. } = self;
        // The proposer may propose again at once.
        drop(pending);
        // The proposer may have gone away; the command's fate does not depend on it.
        drop(answer.send(result));
    }
}

/// A number of commands, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    count: usize,
    bytes: usize,
}

impl Amount {
    fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes;
    }

    fn sub(&mut self, other: Self) {
        self.count -= other.count;
        self.bytes -= other.bytes;
    }
}

/// Commands that are sent together.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) jobs: Vec<Job>,
    /// Number and bytes of the commands in `jobs`.
    pub(super) amount: Amount,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.jobs.len() >= BATCH_MAX || self.amount.bytes >= APPEND_BYTES_MAX
    }
}

/// The waiting jobs, and the count of the sent ones.
pub(super) struct ProposalQueue {
    waiting: FairQueue<Job>,
    waiting_bytes: usize,
    sent: Amount,
    pending_max: usize,
    pending_bytes_max: usize,
}

impl Default for ProposalQueue {
    fn default() -> Self {
        Self {
            waiting: FairQueue::new(TURN_COST),
            waiting_bytes: 0,
            sent: Amount::default(),
            pending_max: PENDING_PROPOSALS_MAX,
            pending_bytes_max: PENDING_PROPOSAL_BYTES_MAX,
        }
    }
}

impl ProposalQueue {
    /// Whether any job waits until sent commands are answered.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Adds a job that is new or offered again: to `batch` if no other job waits and another
    /// command may be sent, otherwise to the queue. While waiting and sent jobs exceed the bounds,
    /// the client with the longest queue loses its newest job, which may be this one.
    pub(super) fn arrive(&mut self, job: Job, batch: &mut Batch) {
        if self.waiting.is_empty() && self.may_send(batch) {
            self.send(job, batch);
            return;
        }
        let (client, bytes) = (job.client, job.command.len());
        self.waiting_bytes += bytes;
        self.waiting.push(client, COMMAND_COST + bytes, job);
        while self.waiting.len() + self.sent.count > self.pending_max
            || self.waiting_bytes + self.sent.bytes > self.pending_bytes_max
        {
            let Some(refused) = self.waiting.pop_newest_of_longest(client) else { break };
            self.waiting_bytes -= refused.command.len();
            refused.answer(Err(NodeError::TooManyRequests));
        }
    }

    /// Moves waiting jobs to `batch`, clients in turn, until none waits, the batch is full, or no
    /// more may be sent. Drops withdrawn jobs.
    pub(super) fn fill(&mut self, batch: &mut Batch) {
        while self.may_send(batch) {
            let Some((_, job)) = self.waiting.pop() else { return };
            self.waiting_bytes -= job.command.len();
            self.send(job, batch);
        }
    }

    /// Subtracts the commands of a batch that has ended from the sent ones. Jobs that no leader has
    /// taken arrive again later.
    pub(super) fn ended(&mut self, amount: Amount) {
        self.sent.sub(amount);
    }

    fn may_send(&self, batch: &Batch) -> bool {
        self.sent.count < SENT_MAX && self.sent.bytes < SENT_BYTES_MAX && !batch.is_full()
    }

    fn send(&mut self, job: Job, batch: &mut Batch) {
        if job.state.mark_sent() {
            self.sent.add(job.command.len());
            batch.amount.add(job.command.len());
            batch.jobs.push(job);
        }
    }
}

#[cfg(test)]
#[path = "proposal_queue_tests.rs"]
mod tests;
