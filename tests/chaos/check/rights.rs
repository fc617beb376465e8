//! No answer and no event crosses a revocation (spec: security §3).
//!
//! A right is certainly gone from the log index of an acknowledged revocation on, until the next
//! grant. It is certainly there from an acknowledged grant until the next revocation is sent. In
//! between nothing is judged. The judgement is exact. An answer must follow the rights at the log
//! index of its state, however old that state is; an event, those at its revision. A watch may take
//! a time to end, which begins when its node is known to have the revocation.
//!
//! A node may overlook a right that was taken and soon given back. So an event is judged only if it
//! was received before the next grant was sent.

use std::collections::{BTreeMap, BTreeSet};

use super::outage::{seconds, stalled, stalls};
use super::{Finding, Findings};
use crate::history::{Freshness, Micros, Outcome, Record, Request};
use crate::rights::{Changed, Effect, Rights, RightsChange, UserWatch, WatchEnd, user_of};
use crate::work::rights::NAME;

/// Longest time until a watch ends after its node has applied the revocation. The server promises
/// one second, but the machine may be busy.
const END_MAX: Micros = 3_000_000;
/// Text in the reason of a refused request, and of a watch that was cancelled, for lack of the
/// right.
const DENIED: &str = "permission denied";
/// Texts in the reason of a watch that was cancelled because of its token; one of them is enough.
const NOBODY: [&str; 2] = ["invalid auth token", "user name is empty"];
/// Least number of revocations in which something was refused, and of ends of watches. A run with
/// fewer is rejected.
const FEW_MIN: usize = 3;
/// Least number of events, of answers, and of refusals. A run with fewer is rejected.
const MANY_MIN: usize = 10;

/// A period in which a fault was active at `node`, or at the whole cluster (`None`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Broken {
    pub node: Option<usize>,
    pub begin: Micros,
    pub end: Micros,
}

/// A period in which a user certainly lacks its right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Denial {
    /// Time at which the revocation was acknowledged.
    at: Micros,
    /// Log index of the revocation.
    index: u64,
    /// The store's revision at that log index.
    revision: i64,
    /// Time at which the next grant was sent; `Micros::MAX` without one.
    until: Micros,
    /// The first log index at which the right may be there again; `u64::MAX` without a next
    /// grant.
    until_index: u64,
}

/// A period in which a user certainly has its right: `at` and `index` are those of the acknowledged
/// grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grant {
    at: Micros,
    index: u64,
    /// Time at which the next revocation was sent; `Micros::MAX` without one.
    until: Micros,
}

/// The periods of one user in which its right is certain, oldest first.
#[derive(Debug, Default)]
struct Periods {
    denials: Vec<Denial>,
    grants: Vec<Grant>,
}

impl Periods {
    /// Derives the periods from the changes of one user, in their order.
    fn read<'a>(changes: impl Iterator<Item = &'a RightsChange>) -> Self {
        let mut periods = Self::default();
        let (mut denial, mut grant): (Option<Denial>, Option<Grant>) = (None, None);
        // The last index that is known to lie before the next change.
        let mut known = 0;
        for change in changes {
            match (change.effect, &change.outcome) {
                (Effect::Neither, _) | (_, Changed::Failed(_)) => {}
                (Effect::Gives, outcome) => {
                    let index = if let Changed::Done { index, .. } = outcome { *index } else { known + 1 };
                    let ended = denial.take().map(|denial| Denial { until: change.call, until_index: index, ..denial });
                    periods.denials.extend(ended);
                    if let Changed::Done { index, .. } = outcome {
                        grant = Some(Grant { at: change.done, index: *index, until: Micros::MAX });
                    }
                }
                (Effect::Takes, outcome) => {
                    periods.grants.extend(grant.take().map(|grant| Grant { until: change.call, ..grant }));
                    if let (Changed::Done { index, revision }, None) = (outcome, denial) {
                        let (index, revision, until, until_index) = (*index, *revision, Micros::MAX, u64::MAX);
                        denial = Some(Denial { at: change.done, index, revision, until, until_index });
                    }
                }
            }
            if let Changed::Done { index, .. } = change.outcome {
                known = known.max(index);
            }
        }
        periods.denials.extend(denial);
        periods.grants.extend(grant);
        periods
    }

    /// The denial at a log index; `None` if the right is there or uncertain.
    fn denied_at_index(&self, index: u64) -> Option<&Denial> {
        let before = self.denials.partition_point(|denial| denial.index <= index);
        self.denials[..before].last().filter(|denial| index < denial.until_index)
    }

    /// The denial that was acknowledged before `call` and certainly lasted beyond `done`. `None` if
    /// there is none.
    fn denied_during(&self, call: Micros, done: Micros) -> Option<&Denial> {
        let before = self.denials.partition_point(|denial| denial.at < call);
        self.denials[..before].last().filter(|denial| done < denial.until)
    }

    /// The last denial before the event of `revision`, which was received at `at`. `None` without
    /// one, or if the next grant had been sent by then.
    fn denied_event(&self, at: Micros, revision: i64) -> Option<&Denial> {
        let before = self.denials.partition_point(|denial| denial.revision < revision);
        self.denials[..before].last().filter(|denial| at < denial.until)
    }

    /// The grant that was acknowledged before `call` and certainly lasted beyond `done`. `None` if
    /// there is none.
    fn given_during(&self, call: Micros, done: Micros) -> Option<&Grant> {
        let before = self.grants.partition_point(|grant| grant.at < call);
        self.grants[..before].last().filter(|grant| done < grant.until)
    }
}

/// By node: times of answers to reads, and the log index that the node had certainly applied then.
struct Applied(BTreeMap<usize, Vec<(Micros, u64)>>);

impl Applied {
    fn read(records: &[Record]) -> Self {
        let mut nodes: BTreeMap<usize, Vec<(Micros, u64)>> = BTreeMap::new();
        for record in records.iter().filter(|record| matches!(record.request, Request::Read { .. })) {
            if let Some(answer) = record.outcome.answer() {
                nodes.entry(record.node).or_default().push((record.done, answer.index));
            }
        }
        for answers in nodes.values_mut() {
            answers.sort_unstable();
            let mut highest = 0;
            for (_, index) in answers {
                highest = highest.max(*index);
                *index = highest;
            }
        }
        Self(nodes)
    }

    /// Time from which on a node is known to have applied `index`; `None` if it never is.
    fn when(&self, node: usize, index: u64) -> Option<Micros> {
        let answers = self.0.get(&node)?;
        answers.get(answers.partition_point(|(_, known)| *known < index)).map(|(at, _)| *at)
    }
}

/// Amounts of judged evidence.
#[derive(Default)]
struct Counts {
    /// User and log index of each denial in which a request was refused.
    denials: BTreeSet<(usize, u64)>,
    answers: usize,
    refusals: usize,
    events: usize,
    /// Opened watches that the server cancelled for lack of the right.
    ended: usize,
    /// Number of pairs of a watch and a revocation by which it had to end.
    ends: usize,
}

/// Judges rights; no findings if the workload was not chosen (`is_chosen`). `broken` has the
/// periods of faults.
pub(crate) fn check(records: &[Record], rights: &Rights, broken: &[Broken], is_chosen: bool) -> Findings {
    let mut findings = Findings::new("rights");
    if !is_chosen {
        return findings.scope("nobody's rights changed").nothing_if(true);
    }
    let users: BTreeSet<usize> = rights.changes.iter().map(|change| change.user).collect();
    let of = |user: usize| rights.changes.iter().filter(move |change| change.user == user);
    let periods: BTreeMap<usize, Periods> = users.into_iter().map(|user| (user, Periods::read(of(user)))).collect();
    let mut counts = Counts::default();
    let asked: Vec<&Record> = records.iter().filter(|record| record.workload == NAME).collect();
    for record in &asked {
        if let Some((user, periods)) = user(record).and_then(|user| Some((user, periods.get(&user)?))) {
            request(record, user, periods, &mut counts, &mut findings);
        }
    }
    // Nobody listens to watches after the last request.
    let over = asked.iter().map(|record| record.done).max().unwrap_or(0);
    let (applied, stalls) = (Applied::read(records), stalls(records));
    let is_calm = |node: usize, begin: Micros, end: Micros| {
        let meets = |broken: &Broken| {
            broken.node.is_none_or(|broken| broken == node) && broken.begin <= end && broken.end >= begin
        };
        end < over && !broken.iter().any(meets) && stalled(&stalls, begin, end) == 0
    };
    for watch in &rights.watches {
        if let Some(periods) = periods.get(&watch.user) {
            Watched { watch, periods, applied: &applied, findings: &mut findings }.run(&is_calm, &mut counts);
        }
    }
    enough(&counts, &mut findings);
    findings.judged(counts.denials.len()).scope(format!(
        "{} revocations, {} answers, {} refusals, {} events, {} watches ended, {} had a deadline",
        counts.denials.len(),
        counts.answers,
        counts.refusals,
        counts.events,
        counts.ended,
        counts.ends,
    ))
}

/// Adds a finding for each amount of judged evidence that is too small.
fn enough(counts: &Counts, findings: &mut Findings) {
    for (what, count, least) in [
        ("revocations in which something was refused", counts.denials.len(), FEW_MIN),
        ("answers", counts.answers, MANY_MIN),
        ("refusals", counts.refusals, MANY_MIN),
        ("events", counts.events, MANY_MIN),
        ("watches that ended with their right", counts.ended, FEW_MIN),
    ] {
        if count < least {
            let detail = format!("{count}, at least {least} are needed");
            findings.add(Finding::new(format!("rejected: too few {what} were judged"), detail));
        }
    }
}

/// The user whose key a request reads or puts; `None` for other requests and other keys.
fn user(record: &Record) -> Option<usize> {
    match &record.request {
        Request::Read { key, .. } | Request::Put { key, .. } => user_of(key),
        _ => None,
    }
}

/// Judges one request of a user by the periods of its right, and counts it.
fn request(record: &Record, user: usize, periods: &Periods, counts: &mut Counts, findings: &mut Findings) {
    let is_own_state = matches!(record.request, Request::Read { freshness: Freshness::Serializable, .. });
    match &record.outcome {
        Outcome::Ok(answer) => {
            counts.answers += 1;
            let by_time = periods.denied_during(record.call, record.done).filter(|_| !is_own_state);
            if let Some(denial) = periods.denied_at_index(answer.index).or(by_time) {
                let detail = format!(
                    "answered at index {}, user {user}'s right was taken at {}, acknowledged at {:.3} s, and given \
                     back at {} at the earliest",
                    answer.index,
                    denial.index,
                    seconds(denial.at),
                    denial.until_index,
                );
                findings.add(Finding::of(record, "an answer crossed a revocation", detail));
            }
        }
        Outcome::Failed(why) if why.contains(DENIED) => {
            counts.refusals += 1;
            if let Some(denial) = periods.denied_during(record.call, record.done) {
                counts.denials.insert((user, denial.index));
            }
            if let Some(grant) = periods.given_during(record.call, record.done).filter(|_| !is_own_state) {
                let detail = format!("given at index {}, acknowledged at {:.3} s", grant.index, seconds(grant.at));
                findings.add(Finding::of(record, "a right that was given was refused", detail));
            }
        }
        Outcome::Failed(_) | Outcome::Unknown(_) => {}
    }
}

/// One watch and everything that it is judged by.
struct Watched<'a> {
    watch: &'a UserWatch,
    periods: &'a Periods,
    applied: &'a Applied,
    findings: &'a mut Findings,
}

impl Watched<'_> {
    fn run(mut self, is_calm: &impl Fn(usize, Micros, Micros) -> bool, counts: &mut Counts) {
        counts.events += self.watch.events.len();
        for (at, revision) in &self.watch.events {
            if let Some(denial) = self.periods.denied_event(*at, *revision) {
                let detail = format!(
                    "revision {revision} at {:.3} s, the right was taken at revision {}, and given back at {:.3} s",
                    seconds(*at),
                    denial.revision,
                    seconds(denial.until),
                );
                self.found("an event crossed a revocation", detail);
            }
        }
        if let Some((at, WatchEnd::Cancelled(reason))) = &self.watch.end {
            self.cancelled(*at, reason, counts);
        }
        if let Some(opened) = self.watch.opened {
            self.ends(opened, is_calm, counts);
        }
    }

    fn found(&mut self, what: &str, detail: String) {
        let UserWatch { user, node, call, .. } = self.watch;
        let at = format!("a watch of user {user} on node {}, from {:.3} s on: {detail}", node + 1, seconds(*call));
        self.findings.add(Finding::new(what, at));
    }

    /// Judges a cancellation at `at`. Its reason must be the token or the lack of the right. In the
    /// second case the right must not certainly be there, by a grant that the node had applied
    /// before the watch was sent.
    fn cancelled(&mut self, at: Micros, reason: &str, counts: &mut Counts) {
        if NOBODY.iter().any(|nobody| reason.contains(nobody)) {
            return;
        }
        if !reason.contains(DENIED) {
            return self.found("a watch was cancelled without the reason", format!("{reason:?}"));
        }
        counts.ended += usize::from(self.watch.opened.is_some());
        let (node, call) = (self.watch.node, self.watch.call);
        // An older state may lack the grant.
        let is_known = |grant: &&Grant| self.applied.when(node, grant.index).is_some_and(|known| known < call);
        if let Some(grant) = self.periods.given_during(call, at).filter(is_known) {
            let detail = format!("given at index {}, acknowledged at {:.3} s", grant.index, seconds(grant.at));
            self.found("a watch lost a right that was given", detail);
        }
    }

    /// Checks that the watch ended within [`END_MAX`] after its node was known to have a
    /// revocation. Not judged if the next grant, a fault or a stall of the clients comes within
    /// that time, or if the watch was opened later than that.
    fn ends(&mut self, opened: Micros, is_calm: &impl Fn(usize, Micros, Micros) -> bool, counts: &mut Counts) {
        let node = self.watch.node;
        let ended = self.watch.end.as_ref().map_or(Micros::MAX, |(at, _)| *at);
        for denial in self.periods.denials.iter().filter(|denial| denial.until > opened) {
            let Some(known) = self.applied.when(node, denial.index) else { return };
            if known > ended {
                return;
            }
            let latest = known + END_MAX;
            if known <= opened || denial.until <= latest || !is_calm(node, known, latest) {
                continue;
            }
            counts.ends += 1;
            if ended > latest {
                let detail = format!(
                    "open at {:.3} s, and its node had the revocation of index {} at {:.3} s",
                    seconds(latest),
                    denial.index,
                    seconds(known)
                );
                return self.found("a watch outlived its right", detail);
            }
        }
    }
}

#[cfg(test)]
#[path = "rights_tests.rs"]
mod tests;
