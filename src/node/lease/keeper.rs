//! The leader's side of leases: measures their time, expires them, and logs the data that a later
//! leader needs.
//!
//! Owns the table of the term in which this member leads, and the three loops that serve it. Knows
//! no client and no other member. Invariants: no keep-alive is confirmed, and no expiry is
//! proposed, before a quorum has confirmed that this member leads in the table's term; a command
//! proposed in one term has no effect in another (`LeaseExpire::term`, `LeaseCheckpoint::term`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::calls::may_wait;
use super::clock::LeaseClock;
use super::metrics::LeaseMetrics;
use super::quorum::Quorum;
use super::quota::LeaseCount;
use super::table::{KeptAlive, LeaseTable, QUIET_AFTER};
use crate::NodeError;
use headwater_raft::Leading;
use headwater_types::limits::{
    LEADER_QUESTIONS_MAX, LEASE_CHECKPOINTS_MAX, LEASE_EXPIRIES_MAX, LEASE_EXPIRIES_MIN, WAITING_LEASE_CALLS_MAX,
};
use headwater_types::{
    Command, Lease, LeaseAnswer, LeaseChange, LeaseCheckpoint, LeaseExpire, LeaseId, LeaseQuestion, LeaseRemaining,
    LogIndex, NodeId, Refusal, Term,
};

/// Interval at which the keeper checks whether a checkpoint is needed, while no keep-alive waits
/// for one.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(250);
/// Pause before an expiry that failed, or has no known result, is proposed again.
const END_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Lateness of the next expiry from which on [`LEASE_EXPIRIES_MAX`] expiries may be under way.
const LATE_MAX: Duration = Duration::from_secs(4);
/// Most confirmations for questions under way, count, as rounds of the read barrier: with one at a
/// time, a question waits for the end of one and then for its own.
const CONFIRMATIONS_MAX: usize = 4;
/// Pause of a loop after a confirmation or a proposal failed.
const PAUSE: Duration = Duration::from_millis(50);

type Answer = oneshot::Sender<LeaseAnswer>;

/// Measures the time of the leases while this member leads. Has no table of them otherwise.
pub(crate) struct LeaseKeeper {
    clock: LeaseClock,
    metrics: LeaseMetrics,
    held: LeaseCount,
    /// Time that is added to the remaining time of each lease at the beginning of the term.
    grace: Duration,
    state: Mutex<State>,
    /// Notified when a lease may expire earlier than the known deadlines.
    sooner: Notify,
}

enum State {
    Following,
    /// The table is being loaded. Collects the lease changes of commits until then.
    Loading(BTreeMap<LeaseId, Option<Lease>>),
    Leading(LeadingState),
}

/// The state of the term in which this member leads.
struct LeadingState {
    table: LeaseTable,
    questions: mpsc::Sender<(LeaseQuestion, Answer)>,
    /// Keep-alives of expired leases; they are answered when the lease has ended.
    ending: HashMap<LeaseId, Vec<Answer>>,
}

/// A keep-alive that waits for the checkpoint that removes the lease's due point from the log.
struct LogFirst {
    id: LeaseId,
    granted: LogIndex,
    answer: Answer,
}

impl LeaseKeeper {
    pub(super) fn new(clock: LeaseClock, grace: Duration) -> Arc<Self> {
        let metrics = LeaseMetrics::new();
        let state = Mutex::new(State::Following);
        Arc::new(Self { clock, metrics, held: LeaseCount::default(), grace, state, sooner: Notify::new() })
    }

    /// The metrics of leases.
    pub(crate) fn metrics(&self) -> &LeaseMetrics {
        &self.metrics
    }

    /// The counter of leases, which counts also while this member does not lead.
    pub(super) fn held(&self) -> &LeaseCount {
        &self.held
    }

    /// Applies the lease changes of a commit. It is called between the commit and its answers, so
    /// it never waits.
    pub(crate) fn leases_changed(&self, changes: &[LeaseChange]) {
        self.held.changed(changes, self.metrics.counted());
        self.metrics.count(changes);
        match &mut *self.state.lock() {
            State::Following => {}
            State::Loading(kept) => kept.extend(changes.iter().map(|change| (change.id, change.lease))),
            State::Leading(leading) => {
                let now = self.clock.now();
                let before = leading.table.next_deadline();
                for change in changes {
                    if change.lease.is_none()
                        && let Some(late) = leading.table.lateness(change.id, now)
                    {
                        self.metrics.ended(late);
                    }
                    if leading.table.follow(change, now) {
                        for answer in leading.ending.remove(&change.id).into_iter().flatten() {
                            respond(answer, LeaseAnswer::Unknown);
                        }
                    }
                }
                self.metrics.kept.set(i64::try_from(leading.table.len()).unwrap_or(i64::MAX));
                if leading.table.next_deadline() < before || before.is_none() {
                    self.sooner.notify_one();
                }
            }
        }
    }

    /// Drops the table: this member no longer leads.
    pub(crate) fn forget(&self) {
        *self.state.lock() = State::Following;
        self.metrics.kept.set(0);
    }

    /// As [`forget`](Self::forget), for a state that was replaced: the number of leases is unknown.
    pub(crate) fn reset(&self) {
        self.forget();
        self.held.forget();
    }

    /// Answers a question. `NotLeader` if this member does not lead, has not loaded the table, or
    /// gets no confirmation that it leads; `Busy` if too many questions wait.
    pub(super) async fn answer(&self, question: LeaseQuestion) -> LeaseAnswer {
        let questions = match &*self.state.lock() {
            State::Leading(leading) => leading.questions.clone(),
            State::Following | State::Loading(_) => return LeaseAnswer::NotLeader,
        };
        if !may_wait(question, questions.capacity()) {
            return LeaseAnswer::Busy;
        }
        let (answer, answered) = oneshot::channel();
        match questions.try_send((question, answer)) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => return LeaseAnswer::Busy,
            Err(mpsc::error::TrySendError::Closed(_)) => return LeaseAnswer::NotLeader,
        }
        drop(questions);
        // The sender is dropped when the term ends.
        answered.await.unwrap_or(LeaseAnswer::NotLeader)
    }

    /// Calls `work` with the state of `term` and the current time of the local clock. `None` if
    /// this member does not lead in `term` any more, or is still loading the table.
    fn with<T>(&self, term: Term, work: impl FnOnce(&mut LeadingState, Duration) -> T) -> Option<T> {
        match &mut *self.state.lock() {
            State::Leading(leading) if leading.table.term() == term => Some(work(leading, self.clock.now())),
            State::Leading(_) | State::Loading(_) | State::Following => None,
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> Option<usize> {
        match &*self.state.lock() {
            State::Leading(leading) => {
                leading.table.check();
                Some(leading.table.len())
            }
            State::Following | State::Loading(_) => None,
        }
    }
}

/// Serves each term in which this member, `me`, leads. Returns when the sender of `leading` is
/// gone.
pub(super) async fn run(
    keeper: Arc<LeaseKeeper>,
    quorum: Arc<impl Quorum>,
    me: NodeId,
    mut leading: watch::Receiver<Leading>,
) {
    loop {
        let now = *leading.borrow_and_update();
        let changed = async { leading.wait_for(|leading| *leading != now).await.is_ok() };
        let goes_on = if now.leader == Some(me) {
            tokio::select! {
                () = serve_term(&keeper, &*quorum, now.term) => unreachable!("a term is ended from outside"),
                goes_on = changed => goes_on,
            }
        } else {
            changed.await
        };
        keeper.forget();
        if !goes_on {
            return;
        }
    }
}

async fn serve_term(keeper: &LeaseKeeper, quorum: &impl Quorum, term: Term) {
    // In this order: changes that are committed after the view was taken must be kept.
    *keeper.state.lock() = State::Loading(BTreeMap::new());
    let Some(loaded) = quorum.load(term).await else {
        // This member no longer leads in the term: `run` cancels this future.
        return std::future::pending().await;
    };
    let now = keeper.clock.now();
    let count = loaded.leases.len();
    let table = LeaseTable::new(term, loaded.clock_ms, loaded.leases, keeper.grace, now);
    let (questions, asked) = mpsc::channel(WAITING_LEASE_CALLS_MAX);
    {
        let mut state = keeper.state.lock();
        let mut leading = LeadingState { table, questions, ending: HashMap::new() };
        if let State::Loading(kept) = std::mem::replace(&mut *state, State::Following) {
            for (id, lease) in kept {
                leading.table.follow(&LeaseChange { id, lease }, now);
            }
        }
        keeper.metrics.kept.set(i64::try_from(leading.table.len()).unwrap_or(i64::MAX));
        *state = State::Leading(leading);
    }
    tracing::info!(%term, leases = count, "keeping the time of leases");
    let (log_first, to_log) = mpsc::channel(WAITING_LEASE_CALLS_MAX);
    let expiring = expire(keeper, quorum, term);
    let answering = answer_questions(keeper, quorum, term, asked, log_first);
    let checkpointing = checkpoint(keeper, quorum, term, to_log);
    tokio::join!(expiring, answering, checkpointing);
    std::future::pending().await
}

fn respond(answer: Answer, what: LeaseAnswer) {
    let _asker_gone = answer.send(what).is_err();
}

fn alive(ttl: Duration, left: Duration) -> LeaseAnswer {
    let granted_seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
    LeaseAnswer::Alive { granted_seconds, remaining_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX) }
}

/// Bound on expiries under way: small while expiries are in time, and growing to the maximum as
/// they get late. An expiry costs about as much as a put. Clients that write notice at once if
/// expiries take capacity from them; clients that wait for an expiry hardly notice a second.
fn under_way_max(late: Duration) -> usize {
    let lateness = late.div_duration_f64(LATE_MAX).min(1.0);
    let more = (LEASE_EXPIRIES_MAX - LEASE_EXPIRIES_MIN) as f64 * lateness * lateness;
    LEASE_EXPIRIES_MIN + more as usize
}

/// Proposes expiries, one command for each lease, many at a time. Returns when this member no
/// longer leads in `term`.
async fn expire(keeper: &LeaseKeeper, quorum: &impl Quorum, term: Term) {
    let mut under_way = FuturesUnordered::new();
    loop {
        // Outcomes come in batches, as the log takes them. A confirmation is worth it only for many
        // free slots.
        tokio::task::yield_now().await;
        while let Some(Some((end, result))) = under_way.next().now_or_never() {
            settle(keeper, term, &end, result);
        }
        let Some((expired, next, has_capacity)) = keeper.with(term, |leading, now| {
            let late = now.saturating_sub(leading.table.next_deadline().unwrap_or(now));
            let most = under_way_max(late);
            let free_slots = most.saturating_sub(under_way.len());
            let has_capacity = free_slots >= most / 2;
            let expired = leading.table.take_expired(now, if has_capacity { free_slots } else { 0 });
            (expired, leading.table.next_deadline(), has_capacity)
        }) else {
            return;
        };
        if !expired.is_empty() {
            // The process may have been stopped for a while since it last confirmed that it leads.
            if quorum.confirm().await != Some(term) {
                keeper.with(term, |leading, now| {
                    expired.iter().for_each(|end| leading.table.end_again(end, now));
                });
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            headwater_fail_points::fail_point!(LeaseExpire);
            let propose = |end: LeaseExpire| async move { (end, quorum.propose(Command::LeaseExpire(end)).await) };
            under_way.extend(expired.into_iter().map(propose));
            continue;
        }
        tokio::select! {
            Some((end, result)) = under_way.next(), if !under_way.is_empty() => settle(keeper, term, &end, result),
            () = keeper.clock.wait_until(next), if has_capacity => {}
            () = keeper.sooner.notified(), if has_capacity => {}
        }
    }
}

fn settle(keeper: &LeaseKeeper, term: Term, end: &LeaseExpire, result: Result<(), NodeError>) {
    let why = match result {
        // The commit itself has removed the lease from the table.
        Ok(()) | Err(NodeError::Refused(Refusal::LeaseNotFound | Refusal::LeaseStale)) => return,
        Err(error) => error,
    };
    tracing::debug!(lease = %end.id, %why, "a lease that has run out is not gone yet");
    keeper.with(term, |leading, now| leading.table.end_again(end, now + END_AGAIN_AFTER));
}

/// Answers questions. One confirmation of leadership serves all questions that wait when it begins;
/// several may be under way.
async fn answer_questions(
    keeper: &LeaseKeeper,
    quorum: &impl Quorum,
    term: Term,
    mut asked: mpsc::Receiver<(LeaseQuestion, Answer)>,
    log_first: mpsc::Sender<LogFirst>,
) {
    let mut waiting = Vec::new();
    let mut confirmations = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(()) = confirmations.next(), if !confirmations.is_empty() => continue,
            count = asked.recv_many(&mut waiting, LEADER_QUESTIONS_MAX), if confirmations.len() < CONFIRMATIONS_MAX => {
                if count == 0 {
                    break;
                }
            }
        }
        let mut ready = Vec::with_capacity(waiting.len());
        keeper.with(term, |leading, now| {
            for (question, answer) in waiting.drain(..) {
                match question {
                    LeaseQuestion::Remaining(id) => {
                        let found = leading.table.remaining(id, now);
                        let found = found.map_or(LeaseAnswer::Unknown, |(ttl, left)| alive(ttl, left));
                        ready.push((answer, found));
                    }
                    LeaseQuestion::KeepAlive(id) => match leading.table.keep_alive(id, now) {
                        KeptAlive::Yes { ttl } => {
                            keeper.metrics.renewed.inc();
                            ready.push((answer, alive(ttl, ttl)));
                        }
                        KeptAlive::Unknown => ready.push((answer, LeaseAnswer::Unknown)),
                        KeptAlive::Ending => leading.ending.entry(id).or_default().push(answer),
                        KeptAlive::LogFirst { granted } => {
                            if let Err(full) = log_first.try_send(LogFirst { id, granted, answer }) {
                                ready.push((full.into_inner().answer, LeaseAnswer::Busy));
                            }
                        }
                    },
                }
            }
        });
        waiting.clear();
        if !ready.is_empty() {
            confirmations.push(async move {
                // A keep-alive counts only if no other leader can have begun in the meantime.
                let confirmed = quorum.confirm().await == Some(term);
                for (answer, found) in ready {
                    respond(answer, if confirmed { found } else { LeaseAnswer::NotLeader });
                }
            });
        }
    }
    while confirmations.next().await.is_some() {}
}

/// Proposes checkpoints while this member leads in `term`. A checkpoint adds the due points of
/// leases without a recent keep-alive, removes those of the leases in `to_log`, and moves the lease
/// clock. The keep-alives in `to_log` are answered after it.
async fn checkpoint(keeper: &LeaseKeeper, quorum: &impl Quorum, term: Term, mut to_log: mpsc::Receiver<LogFirst>) {
    let mut logged_at = keeper.clock.now();
    let mut revived = Vec::new();
    loop {
        let next = Some(keeper.clock.now() + CHECKPOINT_EVERY);
        tokio::select! {
            count = to_log.recv_many(&mut revived, LEASE_CHECKPOINTS_MAX) => if count == 0 { return },
            () = keeper.clock.wait_until(next) => {}
        }
        loop {
            let work = keeper.with(term, |leading, now| {
                let mut leases: Vec<LeaseRemaining> = revived
                    .iter()
                    .map(|lease: &LogFirst| LeaseRemaining { id: lease.id, granted: lease.granted, remaining_ms: None })
                    .collect();
                let capacity = LEASE_CHECKPOINTS_MAX - leases.len();
                leases.extend(leading.table.take_quiet(now, capacity));
                let is_clock_due = leading.table.needs_clock() && now >= logged_at + QUIET_AFTER;
                let is_needed = !leases.is_empty() || is_clock_due;
                is_needed.then(|| LeaseCheckpoint { term, clock_ms: leading.table.clock_ms(now), leases })
            });
            let checkpoint = match work {
                None => return,
                Some(None) => break,
                Some(Some(checkpoint)) => checkpoint,
            };
            let is_full = checkpoint.leases.len() == LEASE_CHECKPOINTS_MAX;
            logged_at = keeper.clock.now();
            // One checkpoint at a time: the next one waits for the result of this one.
            while let Err(error) = quorum.propose(Command::LeaseCheckpoint(checkpoint.clone())).await {
                tracing::debug!(%error, "the log was not told about leases yet");
                if matches!(error, NodeError::Refused(_)) {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
            keeper.metrics.checkpoints.inc();
            keeper.with(term, |leading, now| {
                for LogFirst { id, answer, .. } in revived.drain(..) {
                    match leading.table.keep_alive(id, now) {
                        KeptAlive::Yes { ttl } => {
                            keeper.metrics.renewed.inc();
                            respond(answer, alive(ttl, ttl));
                        }
                        KeptAlive::Ending => leading.ending.entry(id).or_default().push(answer),
                        KeptAlive::Unknown => respond(answer, LeaseAnswer::Unknown),
                        // The id belongs to another lease by now.
                        KeptAlive::LogFirst { .. } => respond(answer, LeaseAnswer::NotLeader),
                    }
                }
            });
            revived.clear();
            if !is_full {
                break;
            }
        }
    }
}

#[cfg(test)]
mod room {
    use super::*;

    #[test]
    fn the_later_leases_are_the_more_may_end_at_once() {
        let capacity = [0, 1000, 2000, 4000, 60_000].map(|late_ms| under_way_max(Duration::from_millis(late_ms)));
        assert_eq!(capacity, [16, 47, 140, 512, 512]);
    }
}
