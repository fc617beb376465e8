//! The strictest check: the store's own log of changes, replayed through the model, must explain
//! every answer, and the order of revisions must be the order of real time (spec: etcd §8.4).
//!
//! The log has the changes of every revision. One request, or the end of one lease, must explain
//! all changes of a revision. The changes and the answer of a request must equal those of the model
//! at that revision. A refused write must not be in the log; an acknowledged one must be. Writes
//! with unknown outcome are looked up by the values that they would have written, which is why
//! every value is written once. Deletions with unknown outcome are tried on each deletion that
//! nothing else explains.

use std::collections::{BTreeMap, HashMap};

use super::model::Model;
use super::{Finding, Findings};
use crate::history::{Answer, Event, Freshness, Micros, Outcome, Record, Request};

/// Changes of the store at each revision, in the order of keys.
pub(crate) type Log = BTreeMap<i64, Vec<Event>>;

const NAME: &str = "replay";

/// A record, and the revision that its request made.
struct ResolvedRecord<'a> {
    record: &'a Record,
    /// The revision that the request made. `None` if it changed nothing, or if nothing shows that
    /// it did.
    made: Option<i64>,
}

/// Judges all records against the log.
pub(crate) fn check(records: &[Record], log: &Log) -> Findings {
    let mut findings = Findings::new(NAME);
    let resolved = resolve(records, log, &mut findings);
    replay(&resolved, log, &mut findings);
    real_time(&resolved, &mut findings);
    per_node_order(records, &mut findings);
    findings
}

/// Finds the revision that each request made. Adds findings for acknowledged writes that the log
/// lacks, refused ones that it has, and values that were written twice.
fn resolve<'a>(records: &'a [Record], log: &Log, findings: &mut Findings) -> Vec<ResolvedRecord<'a>> {
    let mut written: HashMap<(&str, &str), i64> = HashMap::new();
    for (revision, events) in log {
        for event in events.iter().filter(|event| !event.deleted) {
            if let Some(other) = written.insert((&event.pair.key, &event.pair.value), *revision) {
                findings.add(Finding::new(
                    format!("{:?} of {:?} was written twice", event.pair.value, event.pair.key),
                    format!("revisions {other} and {revision}"),
                ));
            }
        }
    }
    let found = |record: &Record| record.request.values().into_iter().find_map(|value| written.get(&value).copied());
    let mut resolved = Vec::with_capacity(records.len());
    for record in records {
        let made = match &record.outcome {
            Outcome::Ok(answer) => {
                let made = record.has_written().then_some(answer.revision);
                if let Some(revision) = made
                    && !log.contains_key(&revision)
                {
                    findings.add(Finding::of(record, "an acknowledged write is lost", format!("revision {revision}")));
                }
                made
            }
            Outcome::Failed(why) => {
                if let Some(revision) = found(record) {
                    let detail = format!("revision {revision}; the client was told: {why}");
                    findings.add(Finding::of(record, "a refused write took effect", detail));
                }
                None
            }
            Outcome::Unknown(_) => found(record),
        };
        resolved.push(ResolvedRecord { record, made });
    }
    resolved
}

fn replay(resolved: &[ResolvedRecord<'_>], log: &Log, findings: &mut Findings) {
    let mut makers: BTreeMap<i64, Vec<&Record>> = BTreeMap::new();
    let mut readers: BTreeMap<i64, Vec<(&Record, &Answer)>> = BTreeMap::new();
    let mut loose: Vec<&Record> = Vec::new();
    for ResolvedRecord { record, made } in resolved {
        match (made, &record.outcome) {
            (Some(revision), _) => makers.entry(*revision).or_default().push(record),
            (None, Outcome::Ok(answer)) => readers.entry(answer.revision).or_default().push((record, answer)),
            (None, Outcome::Unknown(_)) => loose.push(record),
            (None, _) => {}
        }
    }
    let (Some((&first, _)), Some((&last, _))) = (log.first_key_value(), log.last_key_value()) else { return };
    let mut model = Model::default();
    judge_reads(&model, readers.remove(&(first - 1)), findings);
    for revision in first..=last {
        let Some(events) = log.get(&revision) else {
            findings.add(Finding::new("a revision is missing from the log", format!("{revision}")));
            continue;
        };
        match makers.remove(&revision).as_deref() {
            None => {
                if !is_end_of_lease(events, &model) && !is_by_one_of(&mut loose, &model, revision, events) {
                    let detail = format!("revision {revision}: {events:?}");
                    findings.add(Finding::new("nobody asked for a change in the log", detail));
                }
            }
            Some([maker]) => judge_write(&model, maker, revision, events, findings),
            Some(several) => {
                let ids: Vec<u64> = several.iter().map(|record| record.id).collect();
                findings.add(Finding::new(
                    "several acknowledged writes claim one revision",
                    format!("revision {revision}, records {ids:?}"),
                ));
            }
        }
        model.follow(events);
        judge_reads(&model, readers.remove(&revision), findings);
    }
    for (revision, reads) in readers {
        if revision > last || revision < first - 1 {
            for (record, _) in reads.into_iter().filter(|(record, _)| judged(&record.request)) {
                let detail = format!("answered at revision {revision}, the log has {first} to {last}");
                findings.add(Finding::of(record, "an answer is from a state that is not in the log", detail));
            }
        }
    }
}

/// Whether the changes are those of the end of one lease: exactly the keys attached to it in
/// `model` are deleted.
fn is_end_of_lease(events: &[Event], model: &Model) -> bool {
    let lease = |event: &Event| model.pairs.get(&event.pair.key).map_or(0, |pair| pair.lease);
    let first = events.first().map_or(0, lease);
    first != 0
        && events.iter().all(|event| event.deleted && lease(event) == first)
        && model.pairs.values().filter(|pair| pair.lease == first).count() == events.len()
}

/// Whether a request of `loose`, all with unknown outcome, makes exactly these deletions in the
/// state `model`. That request is removed from `loose`, as it cannot explain another revision. If
/// several fit, a transaction comes before a deletion of one key, and that before one of a range.
fn is_by_one_of(loose: &mut Vec<&Record>, model: &Model, revision: i64, events: &[Event]) -> bool {
    let makes = |record: &Record| {
        events.iter().all(|event| event.deleted && may_only_delete(&record.request, &event.pair.key))
            && same(&model.clone_for(&record.request).apply(&record.request, revision).events, events)
    };
    let wide = |record: &Record| match record.request {
        Request::Txn { .. } => 0,
        Request::Delete { .. } => 1,
        _ => 2,
    };
    let makers = loose.iter().enumerate().filter(|(_, record)| makes(record));
    let maker = makers.min_by_key(|(_, record)| wide(record)).map(|(maker, _)| maker);
    maker.map(|maker| loose.swap_remove(maker)).is_some()
}

/// Whether a request can delete `key` and put no value: a deletion, or a transaction with such a
/// branch. Of the requests with unknown outcome, only these may have made a deletion that no value
/// in the log explains.
pub(super) fn may_only_delete(request: &Request, key: &str) -> bool {
    use crate::history::Step;
    match request {
        Request::Delete { key: asked } => asked == key,
        Request::DeleteRange { prefix } => key.starts_with(prefix),
        Request::Txn { then, or_else, .. } => [then, or_else].into_iter().any(|branch| {
            let deletes = |step: &Step| match step {
                Step::Delete { key: asked } => asked == key,
                Step::DeleteRange { prefix } => key.starts_with(prefix),
                Step::Put { .. } | Step::Get { .. } => false,
            };
            branch.iter().any(deletes) && !branch.iter().any(|step| matches!(step, Step::Put { .. }))
        }),
        _ => false,
    }
}

/// Whether the changes are equal, in the same order. Previous pairs are not compared, as the log
/// does not have them.
fn same(these: &[Event], those: &[Event]) -> bool {
    these.len() == those.len() && these.iter().zip(those).all(|(a, b)| a.deleted == b.deleted && a.pair == b.pair)
}

fn judge_write(model: &Model, maker: &Record, revision: i64, events: &[Event], findings: &mut Findings) {
    let done = model.clone_for(&maker.request).apply(&maker.request, revision);
    if !same(&done.events, events) {
        let detail = format!("revision {revision}: expected {:?}, the log has {events:?}", done.events);
        let what = match maker.outcome {
            Outcome::Ok(_) => "an acknowledged write is lost or altered",
            Outcome::Failed(_) | Outcome::Unknown(_) => "a write took effect in part",
        };
        return findings.add(Finding::of(maker, what, detail));
    }
    if let Outcome::Ok(answer) = &maker.outcome
        && answer.body != done.body
    {
        let detail = format!("revision {revision}: expected {:?}, answered {:?}", done.body, answer.body);
        findings.add(Finding::of(maker, "a write was answered wrongly", detail));
    }
}

/// Whether the model tells the answer to a request that made no revision.
fn judged(request: &Request) -> bool {
    matches!(
        request,
        Request::Read { .. }
            | Request::Delete { .. }
            | Request::DeleteRange { .. }
            | Request::Txn { .. }
            | Request::Revoke { .. }
    )
}

fn judge_reads(model: &Model, reads: Option<Vec<(&Record, &Answer)>>, findings: &mut Findings) {
    for (record, answer) in reads.into_iter().flatten().filter(|(record, _)| judged(&record.request)) {
        // Requests that change the model are among the writes, so these must not.
        let done = model.clone_for(&record.request).apply(&record.request, answer.revision + 1);
        if done.body != answer.body || !done.events.is_empty() {
            let detail = format!("revision {}: expected {:?}, answered {:?}", answer.revision, done.body, answer.body);
            findings.add(Finding::of(record, "an answer differs from the state at its revision", detail));
        }
    }
}

impl Model {
    /// A copy of the model with only the keys that a request names, which are few.
    fn clone_for(&self, request: &Request) -> Self {
        use crate::history::{Condition, Step};
        let mut keys: Vec<&str> = Vec::new();
        let mut prefixes: Vec<&str> = Vec::new();
        match request {
            Request::Read { key, prefix: true, .. } | Request::DeleteRange { prefix: key } => prefixes.push(key),
            Request::Read { key, .. }
            | Request::Put { key, .. }
            | Request::Replace { key, .. }
            | Request::Delete { key } => keys.push(key),
            Request::Txn { when, then, or_else } => {
                keys.extend(when.iter().map(Condition::key));
                for step in then.iter().chain(or_else) {
                    match step {
                        Step::Put { key, .. } | Step::Delete { key } | Step::Get { key } => keys.push(key),
                        Step::DeleteRange { prefix } => prefixes.push(prefix),
                    }
                }
            }
            Request::Grant { .. } | Request::KeepAlive { .. } | Request::Revoke { .. } => {}
        }
        let found = keys.into_iter().filter_map(|key| self.pairs.get(key).cloned());
        let found = found.chain(prefixes.into_iter().flat_map(|prefix| self.read(prefix, true)));
        let mut part = Self::default();
        part.pairs.extend(found.map(|pair| (pair.key.clone(), pair)));
        part
    }
}

/// Checks that every request saw the state that any request which had ended before its call saw, or
/// a later one. A write must have made a higher revision. Reads that may be old, grants and
/// keep-alives are left out.
fn real_time(resolved: &[ResolvedRecord<'_>], findings: &mut Findings) {
    enum At<'a> {
        Call(&'a ResolvedRecord<'a>),
        Done(i64),
    }
    let mut moments: Vec<(Micros, u8, At<'_>)> = Vec::new();
    for entry in resolved {
        let record = entry.record;
        let strict = !matches!(
            record.request,
            Request::Read { freshness: Freshness::Serializable | Freshness::AtLeast(_), .. }
                | Request::Grant { .. }
                | Request::KeepAlive { .. }
        );
        if !strict {
            continue;
        }
        if entry.made.is_some() || record.outcome.answer().is_some() {
            moments.push((record.call, 0, At::Call(entry)));
        }
        if let Some(answer) = record.outcome.answer() {
            moments.push((record.done, 1, At::Done(answer.revision)));
        }
    }
    // In the same microsecond a call counts as earlier than an answer: the weaker demand.
    moments.sort_by_key(|(at, kind, _)| (*at, *kind));
    let mut floor = 0;
    for (_, _, moment) in moments {
        match moment {
            At::Done(revision) => floor = floor.max(revision),
            At::Call(ResolvedRecord { record, made }) => {
                let seen = made.or(record.outcome.answer().map(|answer| answer.revision)).unwrap_or(i64::MAX);
                let (old, what) = match made {
                    Some(revision) => (*revision <= floor, "a write was ordered before what had ended before it"),
                    None if matches!(record.request, Request::Revoke { .. }) => {
                        (seen < floor, "a revocation was ordered before what had ended before it")
                    }
                    None => (seen < floor, "a stale read"),
                };
                if old {
                    let detail = format!("revision {seen}, although {floor} had been seen before it was sent");
                    findings.add(Finding::of(record, what, detail));
                }
            }
        }
    }
}

/// Checks that the revisions of reads at one node never go back, across restarts too, and that no
/// read with [`Freshness::AtLeast`] is answered from an earlier log index.
fn per_node_order(records: &[Record], findings: &mut Findings) {
    let mut by_node: BTreeMap<usize, Vec<&Record>> = BTreeMap::new();
    for record in records {
        if let (Request::Read { freshness, .. }, Outcome::Ok(answer)) = (&record.request, &record.outcome) {
            if let Freshness::AtLeast(index) = freshness
                && answer.index < *index
            {
                let detail = format!("answered from index {}, asked for {index}", answer.index);
                findings.add(Finding::of(record, "a read is older than it had to be", detail));
            }
            by_node.entry(record.node).or_default().push(record);
        }
    }
    for reads in by_node.values() {
        let mut ends: Vec<(Micros, i64)> =
            reads.iter().filter_map(|r| Some((r.done, r.outcome.answer()?.revision))).collect();
        ends.sort_unstable();
        let mut begins = reads.clone();
        begins.sort_by_key(|record| record.call);
        let (mut floor, mut next) = (0, 0);
        for record in begins {
            while next < ends.len() && ends[next].0 < record.call {
                floor = floor.max(ends[next].1);
                next += 1;
            }
            let revision = record.outcome.answer().map_or(i64::MAX, |answer| answer.revision);
            if revision < floor {
                let detail = format!("node {} showed {floor} and then {revision}", record.node + 1);
                findings.add(Finding::of(record, "a node went back in time", detail));
            }
        }
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
