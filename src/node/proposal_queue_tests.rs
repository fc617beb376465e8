//! The order of proposals by counts: a greedy client beside modest ones, at the bounds and past
//! them.

use super::*;

const GREEDY: ClientKey = ClientKey::Named(0);

fn modest(number: u64) -> ClientKey {
    ClientKey::Named(number + 1)
}

type Answered = oneshot::Receiver<Result<Applied, NodeError>>;

fn job_of(client: ClientKey, bytes: usize) -> (Job, Answered) {
    let (answer, answered) = oneshot::channel();
    let pending = PendingGuard::take(&Arc::default(), client, bytes).unwrap();
    (Job { client, pending, command: vec![0; bytes].into(), state: JobState::queued(), answer }, answered)
}

/// A queue after the arrival of `count` jobs of one greedy client, the batches that were sent, and
/// the receivers of the answers.
fn besieged(count: usize) -> (ProposalQueue, Vec<Batch>, Vec<Answered>) {
    let (mut queue, mut sent, mut answers) = (ProposalQueue::default(), Vec::new(), Vec::new());
    let mut batch = Batch::default();
    for _ in 0..count {
        let (job, answer) = job_of(GREEDY, 100);
        answers.push(answer);
        queue.arrive(job, &mut batch);
        if batch.is_full() {
            sent.push(std::mem::take(&mut batch));
        }
    }
    queue.fill(&mut batch);
    sent.push(batch);
    (queue, sent, answers)
}

fn clients(batch: &Batch) -> Vec<ClientKey> {
    batch.jobs.iter().map(|job| job.client).collect()
}

fn is_refused(answer: &mut Answered) -> bool {
    matches!(answer.try_recv(), Ok(Err(NodeError::TooManyRequests)))
}

#[test]
fn jobs_pass_untouched_while_few_are_sent() {
    let (queue, sent, _answers) = besieged(SENT_MAX);
    assert_eq!(sent.iter().map(|batch| batch.jobs.len()).collect::<Vec<_>>(), [BATCH_MAX, BATCH_MAX, 0]);
    assert!(!queue.is_waiting());
    let (queue, ..) = besieged(SENT_MAX + 1);
    assert!(queue.is_waiting(), "one more waits");
}

#[test]
fn fifty_modest_clients_are_in_the_next_batch_beside_a_greedy_one() {
    let (mut queue, mut sent, mut answers) = besieged(PENDING_PROPOSALS_MAX);
    let mut modest_answers = Vec::new();
    let mut none = Batch::default();
    for number in 0..50 {
        let (job, answer) = job_of(modest(number), 100);
        modest_answers.push(answer);
        queue.arrive(job, &mut none);
    }
    assert!(none.jobs.is_empty(), "nothing can be sent now");
    assert!(!modest_answers.iter_mut().any(is_refused));
    let refused = answers.iter_mut().filter_map(|answer| is_refused(answer).then_some(())).count();
    assert_eq!(refused, 50, "the greedy client pays for the fifty");
    assert!(!answers[..PENDING_PROPOSALS_MAX - 50].iter_mut().any(|answer| answer.try_recv().is_ok()), "its newest");

    queue.ended(sent.remove(0).amount);
    let mut next = Batch::default();
    queue.fill(&mut next);
    let order = clients(&next);
    let last = order.iter().rposition(|client| *client != GREEDY).unwrap();
    assert_eq!((order.len(), last), (BATCH_MAX, 15 + 50 - 1), "one turn of the greedy client and fifty others");
}

#[test]
fn at_the_bound_a_client_loses_its_own_newest_job() {
    let (mut queue, _sent, mut answers) = besieged(PENDING_PROPOSALS_MAX);
    assert!(!answers.iter_mut().any(is_refused), "at the bound");
    let (job, mut answer) = job_of(GREEDY, 100);
    queue.arrive(job, &mut Batch::default());
    assert!(is_refused(&mut answer), "one past it");
    let (job, mut own) = job_of(ClientKey::Own, 100);
    queue.arrive(job, &mut Batch::default());
    assert!(!is_refused(&mut own) && is_refused(answers.last_mut().unwrap()), "the node's own jobs are always taken");
}

#[test]
fn bytes_are_bounded_like_jobs() {
    let mut queue = ProposalQueue { pending_bytes_max: SENT_BYTES_MAX + 100, ..ProposalQueue::default() };
    let mut batch = Batch::default();
    let (large, _large) = job_of(GREEDY, SENT_BYTES_MAX);
    queue.arrive(large, &mut batch);
    let (at, mut answer) = job_of(GREEDY, 100);
    queue.arrive(at, &mut batch);
    assert!(batch.jobs.len() == 1 && queue.is_waiting() && !is_refused(&mut answer));
    let (past, mut small) = job_of(modest(0), 1);
    queue.arrive(past, &mut batch);
    assert!(is_refused(&mut answer) && !is_refused(&mut small));
}

#[test]
fn shares_are_by_bytes_and_by_count() {
    let (mut queue, mut sent, _answers) = besieged(SENT_MAX);
    let mut answers = Vec::new();
    for _ in 0..1000 {
        for (client, bytes) in [(GREEDY, 100_000), (modest(0), 10)] {
            let (job, answer) = job_of(client, bytes);
            answers.push(answer);
            queue.arrive(job, &mut Batch::default());
        }
    }
    queue.ended(sent.remove(0).amount);
    let mut next = Batch::default();
    queue.fill(&mut next);
    let large = clients(&next).iter().filter(|client| **client == GREEDY).count();
    let small = next.jobs.len() - large;
    assert!((20..30).contains(&(small / large)), "{large} large ones and {small} small ones cost the same");
}

#[test]
fn withdrawn_jobs_are_not_sent() {
    let (mut queue, mut batch) = (ProposalQueue::default(), Batch::default());
    let (job, _answer) = job_of(GREEDY, 100);
    assert!(job.state.withdraw());
    queue.arrive(job, &mut batch);
    assert!(batch.jobs.is_empty());
    let (job, _answer) = job_of(GREEDY, 100);
    let state = job.state.clone();
    queue.arrive(job, &mut batch);
    assert!(!state.withdraw(), "a sent one may be appended");
    assert!(state.mark_queued() && state.withdraw(), "one that no leader took was not");
}

#[test]
fn so_many_may_come_before_they_are_looked_at() {
    let pending = Arc::default();
    let take = |client| PendingGuard::take(&pending, client, 1);
    let _held: Vec<_> = (0..PENDING_PROPOSALS_MAX + ARRIVING_MAX).map(|_| take(GREEDY).unwrap()).collect();
    assert_eq!(take(modest(0)).err(), Some(NodeError::TooManyRequests));
    assert!(take(ClientKey::Own).is_ok());
    let pending = Arc::default();
    let take = |bytes| PendingGuard::take(&pending, GREEDY, bytes);
    let _held = take(PENDING_PROPOSAL_BYTES_MAX + ARRIVING_BYTES_MAX).unwrap();
    assert!(take(1).is_err() && take(0).is_ok());
}
