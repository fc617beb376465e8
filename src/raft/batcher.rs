//! Gathers proposals into batches before they are handed on: to openraft where this member leads,
//! to the leader where it does not.
//!
//! A batch of any size costs one log write and one fsync on every member and a few messages: larger
//! batches cost less per command. Clients that wait for their answers return one after the other,
//! so a batch that starts with the first of them stays small. A batch therefore waits for a share
//! of the recent clients, at most [`LINGER_MAX`]. While other batches are under way, a small batch
//! also waits for them, at most [`IN_FLIGHT_WAIT_MAX`]. The [`Pace`] says what is waited for: less
//! where clients are many. Invariant: the results of a job come back in the order of its commands,
//! exactly one each.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::propose::WriteError;
use headwater_types::Applied;
use headwater_types::limits::{APPEND_BYTES_MAX, PEER_MESSAGE_BYTES_MAX, REQUEST_BYTES_SET_MAX};

/// Results of one job, one for each command.
pub(super) type Results = Vec<Result<Applied, WriteError>>;

/// Commands after which a batch is full, count. A job is never split, so a batch may have more.
const BATCH_COMMANDS_MAX: usize = 1024;
/// Most bytes of the commands of several jobs in one batch: a follower sends a batch in one
/// message, and one above [`PEER_MESSAGE_BYTES_MAX`] would be refused as a whole. A job that
/// exceeds it alone is a batch of its own.
const BATCH_BYTES_MAX: usize = APPEND_BYTES_MAX + REQUEST_BYTES_SET_MAX;
/// Most bytes that a message adds to each of its commands: the field's tag and length.
const COMMAND_OVERHEAD_BYTES: usize = 16;

/// What a batch waits for.
#[derive(Debug)]
struct Pace {
    /// Number of recent clients from which on this pace applies.
    clients_min: usize,
    /// Share of the recent clients without a command under way that a batch waits for, percent.
    share_percent: usize,
    /// Fewest commands with which a batch starts while others are under way, count. A batch that is
    /// full of bytes may have fewer.
    commands_min_while_busy: usize,
    /// Number of batches under way at which a further one waits for one of them to end. It waits at
    /// most [`IN_FLIGHT_WAIT_MAX`], so there may be more.
    in_flight_max: usize,
}

/// The pace of few clients. Measured with 64 clients: without a share to wait for, a batch held 20
/// commands and a put cost 97 us of processor time on three members; with it 51 and 58 us, and
/// latency fell, too.
const FEW_CLIENTS: Pace = Pace { clients_min: 0, share_percent: 75, commands_min_while_busy: 128, in_flight_max: 4 };
/// The pace of many clients where this member leads: their batches are large anyway, and the
/// processors must not idle while one is written, replicated and applied.
const MANY_CLIENTS_LEADING: Pace =
    Pace { clients_min: 96, share_percent: 25, commands_min_while_busy: 48, in_flight_max: 6 };
/// The pace of many clients where this member forwards: at once, for the leader gathers what comes.
/// While the most batches are under way, further commands wait here and not at the leader, which
/// may be waiting for them: twelve batches leave few of them.
const MANY_CLIENTS_FORWARDING: Pace =
    Pace { clients_min: 48, share_percent: 0, commands_min_while_busy: 1, in_flight_max: FORWARDED_BATCHES_MAX };
/// Most batches of many clients that are forwarded and not answered, count.
pub(super) const FORWARDED_BATCHES_MAX: usize = 12;
/// Number of recent clients below which a batch does not wait for them, count: latency then matters
/// more than batch size.
const RECENT_CLIENTS_MIN: usize = 16;
/// Longest wait of a batch for the recent clients, from its first command or from the end of the
/// batches under way, whichever comes later.
const LINGER_MAX: Duration = Duration::from_millis(2);
/// Time after the end of the last batch after which recent clients are not expected to write again.
/// Clients that write in a loop do so within 2 ms; a rare writer must not wait for earlier clients.
const CLIENT_AWAY_MIN: Duration = Duration::from_millis(5);
/// Longest wait of a batch for the batches under way. After that the batch starts at any size.
const IN_FLIGHT_WAIT_MAX: Duration = Duration::from_secs(1);
/// Most jobs that wait, count. Further callers of [`Queue::run`] wait for a free slot.
const JOBS_QUEUED: usize = 1024;

const _: () = assert!(
    BATCH_BYTES_MAX + 2 * BATCH_COMMANDS_MAX * COMMAND_OVERHEAD_BYTES < PEER_MESSAGE_BYTES_MAX,
    "a batch must fit one message"
);

/// Commands that came together, and the channel for their results.
pub(super) struct Job {
    commands: Vec<Bytes>,
    answer: oneshot::Sender<Results>,
}

/// The jobs of one batch, to hand out its results.
pub(super) struct BatchJobs(Vec<(usize, oneshot::Sender<Results>)>);

impl BatchJobs {
    /// Gives each job its part of `results`, which are in the order of the batch's commands.
    /// Commands without a result get the error `missing`.
    pub(super) fn answer(self, results: Results, missing: &WriteError) {
        let mut results = results.into_iter();
        for (count, answer) in self.0 {
            let mut part: Results = results.by_ref().take(count).collect();
            part.resize(count, Err(missing.clone()));
            // The caller may have gone; the outcome of the commands does not depend on it.
            drop(answer.send(part));
        }
    }
}

/// A handle to a queue of jobs.
#[derive(Clone)]
pub(super) struct Queue {
    jobs: mpsc::Sender<Job>,
}

impl Queue {
    /// A queue whose batches go to openraft.
    pub(super) fn leading() -> (Self, Batcher) {
        Self::new(&MANY_CLIENTS_LEADING)
    }

    /// A queue whose batches go to the leader.
    pub(super) fn forwarding() -> (Self, Batcher) {
        Self::new(&MANY_CLIENTS_FORWARDING)
    }

    fn new(many_clients: &'static Pace) -> (Self, Batcher) {
        let (jobs, waiting) = mpsc::channel(JOBS_QUEUED);
        let (done, ended) = mpsc::unbounded_channel();
        (
            Self { jobs },
            Batcher {
                waiting,
                done,
                ended,
                many_clients,
                held: None,
                in_flight: 0,
                commands_in_flight: 0,
                recent_peak: 0,
                last_end: Instant::now(),
            },
        )
    }

    pub(super) fn is_closed(&self) -> bool {
        self.jobs.is_closed()
    }

    /// Queues `commands` as one job and waits for their results. If the queue is closed, every
    /// command fails with `NotLeader(None)`. If the job is dropped before its results arrive, every
    /// command fails with the error `lost`.
    pub(super) async fn run(&self, commands: Vec<Bytes>, lost: WriteError) -> Results {
        let count = commands.len();
        let (answer, answered) = oneshot::channel();
        if self.jobs.send(Job { commands, answer }).await.is_err() {
            return vec![Err(WriteError::NotLeader(None)); count];
        }
        answered.await.unwrap_or_else(|_| vec![Err(lost); count])
    }
}

/// A batch under way. Dropping it reports the end of the batch to the batcher.
pub(super) struct InFlight {
    done: mpsc::UnboundedSender<BatchEnded>,
    commands: usize,
}

/// The report of a batch that has ended.
struct BatchEnded {
    commands: usize,
    at: Instant,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // The batcher may have ended before.
        let _batcher_gone = self.done.send(BatchEnded { commands: self.commands, at: Instant::now() }).is_err();
    }
}

/// The receiving end of a [`Queue`]: gathers its jobs into batches.
pub(super) struct Batcher {
    waiting: mpsc::Receiver<Job>,
    done: mpsc::UnboundedSender<BatchEnded>,
    ended: mpsc::UnboundedReceiver<BatchEnded>,
    many_clients: &'static Pace,
    /// The job that did not fit the last batch. It begins the next one.
    held: Option<Job>,
    in_flight: usize,
    /// Number of commands in the batches under way.
    commands_in_flight: usize,
    /// The most commands that were recently under way together; each batch lowers it by a sixteenth
    /// of its commands, at least by one. It stands for the number of recent clients; a client with
    /// many commands at once, and leases that run out, count as many.
    recent_peak: usize,
    /// Time at which the last batch ended.
    last_end: Instant,
}

/// A batch that is ready to go.
pub(super) struct Batch {
    pub(super) commands: Vec<Bytes>,
    pub(super) jobs: BatchJobs,
    /// To be dropped when the batch has its results.
    pub(super) in_flight: InFlight,
}

#[derive(Default)]
struct OpenBatch {
    commands: Vec<Bytes>,
    bytes: usize,
    jobs: Vec<(usize, oneshot::Sender<Results>)>,
    /// The job that would exceed [`BATCH_BYTES_MAX`]. No further job is added after it.
    rest: Option<Job>,
}

impl OpenBatch {
    fn is_full(&self) -> bool {
        self.commands.len() >= BATCH_COMMANDS_MAX || self.bytes >= APPEND_BYTES_MAX || self.rest.is_some()
    }

    /// Adds a job, or keeps it for the next batch if this one would have too many bytes with it.
    /// The batch must not be full.
    fn add(&mut self, job: Job) {
        let bytes = job.commands.iter().map(Bytes::len).sum::<usize>();
        if !self.jobs.is_empty() && self.bytes + bytes > BATCH_BYTES_MAX {
            self.rest = Some(job);
            return;
        }
        self.bytes += bytes;
        self.jobs.push((job.commands.len(), job.answer));
        self.commands.extend(job.commands);
    }
}

impl Batcher {
    /// Waits for the next batch. `None` once every handle to the queue is gone and nothing waits.
    pub(super) async fn next(&mut self) -> Option<Batch> {
        let mut open_batch = OpenBatch::default();
        let first = match self.held.take() {
            Some(held) => held,
            None => self.waiting.recv().await?,
        };
        open_batch.add(first);
        // Tasks woken together with the first one get their chance to join.
        tokio::task::yield_now().await;
        self.drain(&mut open_batch);
        let opened = Instant::now();
        self.forget_absent_clients(opened);
        let deadline = opened + IN_FLIGHT_WAIT_MAX;
        let mut lingers = true;
        loop {
            self.note_all_ended();
            let count = open_batch.commands.len();
            // The clients of the batches under way cannot write again before these have ended.
            let linger_end = self.last_end.max(opened) + LINGER_MAX;
            let has_share = self.has_share(count);
            let pace = self.pace();
            let large = open_batch.is_full() || (has_share && count >= pace.commands_min_while_busy);
            let may_overlap = large && self.in_flight < pace.in_flight_max;
            if may_overlap || (self.in_flight == 0 && (large || has_share || !lingers)) {
                break;
            }
            tokio::select! {
                ended = self.ended.recv() => {
                    self.note_ended(&ended?);
                    // Clients that got an answer may propose again at once.
                    tokio::task::yield_now().await;
                    self.drain(&mut open_batch);
                }
                () = tokio::time::sleep_until(linger_end), if lingers && self.in_flight == 0 => {
                    lingers = false;
                    // Too few recent clients have returned: the next batch expects half as many.
                    self.recent_peak /= 2;
                }
                // Without a quorum, batches under way never end. Waiting longer does not help, and
                // the number of pending jobs is bounded.
                () = tokio::time::sleep_until(deadline) => break,
                more = self.waiting.recv(), if !open_batch.is_full() => match more {
                    Some(job) => {
                        open_batch.add(job);
                        self.drain(&mut open_batch);
                    }
                    None => break,
                },
            }
        }
        self.held = open_batch.rest;
        let count = open_batch.commands.len();
        self.in_flight += 1;
        self.commands_in_flight += count;
        let faded = self.recent_peak.saturating_sub((count / 16).max(1));
        self.recent_peak = self.commands_in_flight.max(faded);
        Some(Batch {
            commands: open_batch.commands,
            jobs: BatchJobs(open_batch.jobs),
            in_flight: InFlight { done: self.done.clone(), commands: count },
        })
    }

    /// The pace for as many clients as there were recently.
    fn pace(&self) -> &'static Pace {
        if self.recent_peak >= self.many_clients.clients_min { self.many_clients } else { &FEW_CLIENTS }
    }

    /// Whether `count` is the pace's share of the recent clients without a command under way, or
    /// more. True below [`RECENT_CLIENTS_MIN`] recent clients.
    fn has_share(&self, count: usize) -> bool {
        let able = self.recent_peak.saturating_sub(self.commands_in_flight);
        self.recent_peak < RECENT_CLIENTS_MIN || count * 100 >= able * self.pace().share_percent
    }

    /// Sets the recent peak to 0 if no batch is under way and the last one ended more than
    /// [`CLIENT_AWAY_MIN`] before `now`.
    fn forget_absent_clients(&mut self, now: Instant) {
        self.note_all_ended();
        if self.in_flight == 0 && now.saturating_duration_since(self.last_end) > CLIENT_AWAY_MIN {
            self.recent_peak = 0;
        }
    }

    fn note_all_ended(&mut self) {
        while let Ok(ended) = self.ended.try_recv() {
            self.note_ended(&ended);
        }
    }

    fn note_ended(&mut self, ended: &BatchEnded) {
        self.in_flight -= 1;
        self.commands_in_flight -= ended.commands;
        self.last_end = self.last_end.max(ended.at);
    }

    fn drain(&mut self, open_batch: &mut OpenBatch) {
        while !open_batch.is_full() {
            match self.waiting.try_recv() {
                Ok(job) => open_batch.add(job),
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;
    use headwater_types::{LogIndex, Outcome, Revision};

    fn applied(index: u64) -> Result<Applied, WriteError> {
        Ok(Applied { index: LogIndex(index), revision: Revision(1), outcome: Outcome::Nothing })
    }

    fn commands(count: usize) -> Vec<Bytes> {
        vec![Bytes::from_static(b"c"); count]
    }

    #[tokio::test]
    async fn what_waits_together_goes_together_and_gets_its_own_results() {
        let (queue, mut batcher) = Queue::new(&FEW_CLIENTS);
        let [a, b] = [2, 3].map(|count| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.run(commands(count), WriteError::Discarded).await })
        });
        tokio::task::yield_now().await;
        let batch = batcher.next().await.unwrap();
        assert_eq!(batch.commands.len(), 5);
        batch.jobs.answer((0..5).map(applied).collect(), &WriteError::Discarded);
        assert_eq!(a.await.unwrap(), (0..2).map(applied).collect::<Vec<_>>());
        assert_eq!(b.await.unwrap(), (2..5).map(applied).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn results_that_never_came_are_said_to_be_missing() {
        let (queue, mut batcher) = Queue::new(&FEW_CLIENTS);
        let job = tokio::spawn(async move { queue.run(commands(3), WriteError::Discarded).await });
        let batch = batcher.next().await.unwrap();
        batch.jobs.answer(vec![applied(1)], &WriteError::ConnectionLost);
        let lost = Err(WriteError::ConnectionLost);
        assert_eq!(job.await.unwrap(), vec![applied(1), lost.clone(), lost]);
    }

    #[tokio::test]
    async fn a_small_batch_waits_while_one_is_under_way_and_goes_when_it_ends() {
        let (queue, mut batcher) = Queue::new(&FEW_CLIENTS);
        let lone = |queue: &Queue| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.run(commands(1), WriteError::Discarded).await })
        };
        let _first = lone(&queue);
        let under_way = batcher.next().await.unwrap();
        let _second = lone(&queue);
        let mut next = Box::pin(batcher.next());
        assert!(futures::poll!(&mut next).is_pending());
        tokio::task::yield_now().await;
        assert!(futures::poll!(&mut next).is_pending(), "one command is not worth a batch of its own now");
        drop(under_way.in_flight);
        assert_eq!(next.await.unwrap().commands.len(), 1);
    }

    #[tokio::test]
    async fn a_large_batch_does_not_wait() {
        let (queue, mut batcher) = Queue::new(&FEW_CLIENTS);
        let spawn = |count| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.run(commands(count), WriteError::Discarded).await })
        };
        let _first = spawn(1);
        let _under_way = batcher.next().await.unwrap();
        let _second = spawn(FEW_CLIENTS.commands_min_while_busy);
        assert_eq!(batcher.next().await.unwrap().commands.len(), FEW_CLIENTS.commands_min_while_busy);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_batch_does_not_wait_for_clients_of_a_batch_under_way() {
        let (queue, mut batcher) = Queue::new(&FEW_CLIENTS);
        let spawn = || {
            let queue = queue.clone();
            tokio::spawn(async move {
                queue.run(commands(FEW_CLIENTS.commands_min_while_busy), WriteError::Discarded).await
            })
        };
        let began = Instant::now();
        let _first = spawn();
        let first = batcher.next().await.unwrap();
        let _second = spawn();
        let _under_way = batcher.next().await.unwrap();
        drop(first);
        // Twice as many commands were under way together, and half of these still are.
        let _third = spawn();
        assert_eq!(batcher.next().await.unwrap().commands.len(), FEW_CLIENTS.commands_min_while_busy);
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_batch_that_is_full_of_bytes_does_not_wait_either() {
        let (queue, mut batcher) = Queue::new(&FEW_CLIENTS);
        let spawn = |command: Bytes| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.run(vec![command], WriteError::Discarded).await })
        };
        let _first = spawn(Bytes::from_static(b"c"));
        let _under_way = batcher.next().await.unwrap();
        let _large = spawn(vec![0; APPEND_BYTES_MAX].into());
        assert_eq!(batcher.next().await.unwrap().commands.len(), 1);
    }

    #[tokio::test]
    async fn jobs_that_exceed_one_message_together_go_one_after_the_other() {
        let (queue, mut batcher) = Queue::new(&FEW_CLIENTS);
        let spawn = |sizes: &[usize]| {
            let queue = queue.clone();
            let commands = sizes.iter().map(|bytes| vec![0; *bytes].into()).collect();
            tokio::spawn(async move { queue.run(commands, WriteError::Discarded).await })
        };
        let next = async |batcher: &mut Batcher, first| {
            let batch = batcher.next().await.unwrap();
            let bytes: usize = batch.commands.iter().map(Bytes::len).sum();
            let count = batch.commands.len();
            assert!(count == 1 || bytes <= BATCH_BYTES_MAX, "{count} commands of {bytes} bytes together");
            batch.jobs.answer((first..).take(count).map(applied).collect(), &WriteError::Discarded);
            count
        };
        // A full job of a member that has the highest request limit, after a small one.
        let small = spawn(&[1]);
        let large = spawn(&[APPEND_BYTES_MAX - 1, REQUEST_BYTES_SET_MAX + 1]);
        let last = spawn(&[BATCH_BYTES_MAX + 1]);
        tokio::task::yield_now().await;
        drop(queue);
        assert_eq!(next(&mut batcher, 1).await, 1);
        assert_eq!(next(&mut batcher, 2).await, 2, "it fits exactly");
        assert_eq!(next(&mut batcher, 4).await, 1, "too large for any batch with others");
        assert_eq!(small.await.unwrap(), [applied(1)]);
        assert_eq!(large.await.unwrap(), [applied(2), applied(3)]);
        assert_eq!(last.await.unwrap(), [applied(4)]);
        assert!(batcher.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_waits_for_most_of_a_crowd_and_not_for_long() {
        let (queue, mut batcher) = Queue::new(&FEW_CLIENTS);
        let spawn = |count| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.run(commands(count), WriteError::Discarded).await })
        };
        let _crowd = spawn(100);
        drop(batcher.next().await.unwrap());
        let _some = spawn(50);
        let mut next = Box::pin(batcher.next());
        assert!(futures::poll!(&mut next).is_pending());
        tokio::task::yield_now().await;
        assert!(futures::poll!(&mut next).is_pending(), "half of them are not most of them");
        let _more = spawn(30);
        let batch = next.await.unwrap();
        assert_eq!(batch.commands.len(), 80);
        drop(batch);

        let _few = spawn(1);
        assert_eq!(batcher.next().await.unwrap().commands.len(), 1, "those who do not come are not waited for");
    }

    #[tokio::test(start_paused = true)]
    async fn clients_of_the_batch_under_way_get_the_time_to_return_after_its_end() {
        let (queue, mut batcher) = Queue::new(&FEW_CLIENTS);
        let spawn = |count| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.run(commands(count), WriteError::Discarded).await })
        };
        let _crowd = spawn(100);
        let under_way = batcher.next().await.unwrap();
        let _others = spawn(20);
        let mut next = Box::pin(batcher.next());
        assert!(futures::poll!(&mut next).is_pending());
        tokio::time::advance(LINGER_MAX * 10).await;
        assert!(futures::poll!(&mut next).is_pending());
        drop(under_way.in_flight);
        assert!(futures::poll!(&mut next).is_pending());
        tokio::task::yield_now().await;
        assert!(futures::poll!(&mut next).is_pending(), "those who had to wait are few of them");
        let _most = spawn(75);
        assert_eq!(next.await.unwrap().commands.len(), 95);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_do_not_return_after_its_end_are_waited_for_only_briefly() {
        let (queue, mut batcher) = Queue::new(&FEW_CLIENTS);
        let spawn = |count| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.run(commands(count), WriteError::Discarded).await })
        };
        let _crowd = spawn(100);
        let under_way = batcher.next().await.unwrap();
        let _others = spawn(20);
        let mut next = Box::pin(batcher.next());
        assert!(futures::poll!(&mut next).is_pending());
        tokio::time::advance(LINGER_MAX * 10).await;
        drop(under_way.in_flight);
        let ended = Instant::now();
        assert_eq!(next.await.unwrap().commands.len(), 20);
        assert_eq!(ended.elapsed(), LINGER_MAX);
    }

    #[tokio::test]
    async fn after_a_pause_nobody_is_waited_for() {
        let (queue, mut batcher) = Queue::new(&FEW_CLIENTS);
        let _crowd = tokio::spawn(async move { queue.run(commands(100), WriteError::Discarded).await });
        drop(batcher.next().await.unwrap());
        batcher.note_all_ended();
        let ended = batcher.last_end;
        batcher.forget_absent_clients(ended + CLIENT_AWAY_MIN);
        assert!(!batcher.has_share(1), "they may still come back");
        batcher.forget_absent_clients(ended + CLIENT_AWAY_MIN + Duration::from_micros(1));
        assert!(batcher.has_share(1));
    }

    #[tokio::test]
    async fn a_crowd_that_does_not_come_is_waited_for_a_few_times_only() {
        let (queue, mut batcher) = Queue::new(&FEW_CLIENTS);
        let spawn = |count| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.run(commands(count), WriteError::Discarded).await })
        };
        let _crowd = spawn(RECENT_CLIENTS_MIN * 8);
        drop(batcher.next().await.unwrap());
        for _ in 0..4 {
            let _lone = spawn(1);
            drop(batcher.next().await.unwrap());
        }
        assert!(batcher.has_share(1), "half as many are expected after each that was waited for in vain");
    }

    #[tokio::test]
    async fn a_crowd_that_went_away_is_forgotten() {
        let (queue, mut batcher) = Queue::new(&FEW_CLIENTS);
        let _crowd = tokio::spawn({
            let queue = queue.clone();
            async move { queue.run(commands(1000), WriteError::Discarded).await }
        });
        drop(batcher.next().await.unwrap());
        for _ in 0..100 {
            let queue = queue.clone();
            let _lone = tokio::spawn(async move { queue.run(commands(1), WriteError::Discarded).await });
            drop(batcher.next().await.unwrap());
        }
        assert!(batcher.has_share(1));
    }

    #[tokio::test]
    async fn the_end_of_the_queue_ends_the_gatherer() {
        let (queue, mut batcher) = Queue::new(&FEW_CLIENTS);
        drop(queue);
        assert!(batcher.next().await.is_none());
    }

    /// The next batch if it does not wait.
    async fn next_at_once(batcher: &mut Batcher) -> Option<Batch> {
        let mut next = Box::pin(batcher.next());
        for _ in 0..4 {
            if let Poll::Ready(batch) = futures::poll!(&mut next) {
                return batch;
            }
            tokio::task::yield_now().await;
        }
        None
    }

    /// The sizes of the batches that went at once, none of which ends, when jobs of `sizes` came
    /// one after the other until one had to wait. `recent` clients had commands under way before.
    async fn went_at_once((queue, mut batcher): (Queue, Batcher), recent: usize, sizes: &[usize]) -> Vec<usize> {
        let spawn = |count| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.run(commands(count), WriteError::Discarded).await })
        };
        let _recent = spawn(recent);
        drop(batcher.next().await.unwrap());
        let mut under_way = Vec::new();
        for size in sizes {
            let _clients = spawn(*size);
            let Some(batch) = next_at_once(&mut batcher).await else { break };
            under_way.push(batch);
        }
        under_way.iter().map(|batch| batch.commands.len()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn commands_of_many_clients_are_forwarded_at_once() {
        assert_eq!(went_at_once(Queue::forwarding(), 100, &[1; 13]).await, [1; 12]);
        assert_eq!(went_at_once(Queue::forwarding(), 48, &[1]).await, [1]);
        assert!(went_at_once(Queue::forwarding(), 47, &[1]).await.is_empty(), "few are waited for");
        assert_eq!(went_at_once(Queue::forwarding(), 47, &[36, 10]).await, [36]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_leaves_lowers_the_number_of_recent_clients() {
        assert_eq!(went_at_once(Queue::forwarding(), 50, &[32, 1]).await, [32, 1]);
        assert_eq!(went_at_once(Queue::forwarding(), 49, &[32, 1]).await, [32], "two fewer than 49 are few");
        assert_eq!(went_at_once(Queue::forwarding(), 49, &[1, 1, 1]).await, [1, 1], "at least one fewer each time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_waits_for_a_smaller_share_of_many_clients() {
        let most = [50, 48, 48, 48, 48, 48];
        assert_eq!(went_at_once(Queue::leading(), 200, &[&most[..], &[48]].concat()).await, most);
        assert_eq!(went_at_once(Queue::leading(), 96, &[24]).await, [24]);
        assert!(went_at_once(Queue::leading(), 96, &[23]).await.is_empty(), "less than the share");
        assert_eq!(went_at_once(Queue::leading(), 200, &[50, 47]).await, [50], "too few while another is under way");
        assert!(went_at_once(Queue::leading(), 95, &[50]).await.is_empty(), "most of few are waited for");
    }
}
