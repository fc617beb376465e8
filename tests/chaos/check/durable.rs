//! The simplest check: acknowledged writes are in the history that every member has in the end.
//!
//! The replay judges by everything ever delivered, even if a member has lost it since. This check
//! judges the remaining history.

use std::collections::BTreeMap;

use super::{Finding, Findings};
use crate::history::{Body, Note, Outcome, Record, Request, Step, WatchLog};

/// Judges acknowledged writes by the history of each member (`pasts`), up to and including the
/// revision `until`. Compacted history may be gone; `compacted` is the highest requested
/// compaction. A history that begins after `compacted` is a finding. So is one that ends before
/// `until`; later writes are not looked for in it.
pub(crate) fn check(records: &[Record], pasts: &[WatchLog], until: i64, compacted: i64) -> Findings {
    let mut findings = Findings::new("durable");
    let acknowledged: Vec<(&Record, i64)> = records.iter().filter_map(|record| Some((record, made(record)?))).collect();
    for past in pasts {
        let KeptHistory { from, through, puts } = kept_history(past);
        if from > compacted {
            let detail = format!("{from}, and {compacted} was the most that anybody asked for; {}", past.name);
            findings.add(Finding::new("a member's past begins where nobody compacted to", detail));
        }
        if through < until {
            findings.add(Finding::new("a member's past ends early", format!("at {through} of {until}; {}", past.name)));
        }
        let judged = from.min(compacted)..=until.min(through);
        let mut lost = 0;
        let mut first = None;
        for (record, revision) in acknowledged.iter().filter(|(_, revision)| judged.contains(revision)) {
            let there = puts.get(revision).is_some_and(|pairs| written(record).iter().all(|pair| pairs.contains(pair)));
            if !there {
                lost += 1;
                first.get_or_insert((*record, *revision));
            }
        }
        if let Some((record, revision)) = first {
            let detail = format!("{lost} of {}; the first: revision {revision}, {}", acknowledged.len(), past.name);
            findings.add(Finding::of(record, "acknowledged writes are lost", detail));
        }
    }
    findings.scope(format!("{} acknowledged writes, {} members", acknowledged.len(), pasts.len()))
}

/// The revision of an acknowledged write that has put a value; `None` for every other record.
fn made(record: &Record) -> Option<i64> {
    let Outcome::Ok(answer) = &record.outcome else { return None };
    (!written(record).is_empty()).then_some(answer.revision)
}

/// Key and value of each put of a request. Of a transaction, those of the branch that its answer
/// names; none without an answer. No value is written twice.
fn written(record: &Record) -> Vec<(&str, &str)> {
    let branch = match (&record.request, &record.outcome) {
        (Request::Put { key, value, .. } | Request::Replace { key, value, .. }, _) => return vec![(key, value)],
        (Request::Txn { then, or_else, .. }, Outcome::Ok(answer)) => match answer.body {
            Body::Txn { succeeded: true, .. } => then,
            _ => or_else,
        },
        _ => return Vec::new(),
    };
    let puts = branch.iter().filter_map(|step| match step {
        Step::Put { key, value, .. } => Some((key.as_str(), value.as_str())),
        Step::Delete { .. } | Step::DeleteRange { .. } | Step::Get { .. } => None,
    });
    puts.collect()
}

/// Key and value of each put, by revision.
type Puts<'a> = BTreeMap<i64, Vec<(&'a str, &'a str)>>;

/// The history that a member delivered at the end of the run.
#[derive(Default)]
struct KeptHistory<'a> {
    /// The revision that the member's compaction notice named: history may begin here. 0 without
    /// such a notice.
    from: i64,
    /// The last revision up to which the history was delivered completely: that of an event, of a
    /// progress report, or before a compaction notice.
    through: i64,
    puts: Puts<'a>,
}

fn kept_history(past: &WatchLog) -> KeptHistory<'_> {
    let mut history = KeptHistory::default();
    for delivery in &past.deliveries {
        match delivery.note {
            Note::Compacted { at } => {
                history.from = at;
                history.through = history.through.max(at - 1);
            }
            Note::Progress => history.through = history.through.max(delivery.revision),
            Note::Events | Note::Opened { .. } => {}
        }
        for event in &delivery.events {
            history.through = history.through.max(event.pair.modified);
            if !event.deleted {
                let pair = (event.pair.key.as_str(), event.pair.value.as_str());
                history.puts.entry(event.pair.modified).or_default().push(pair);
            }
        }
    }
    history
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Answer, Delivery, Event, Pair, StepDone};

    fn write(revision: i64, outcome: fn(Answer) -> Outcome) -> Record {
        let request = Request::Put { key: "k".into(), value: format!("v{revision}"), lease: 0 };
        let outcome = outcome(Answer { revision, index: 1, body: Body::Put });
        Record { id: 1, workload: "w".into(), process: 0, node: 0, call: 1, done: 2, request, outcome }
    }

    /// A history: a compaction notice if `compacted` is there, puts at `revisions`, and progress to
    /// revision 9.
    fn past(revisions: &[i64], compacted: Option<i64>) -> WatchLog {
        let events = revisions.iter().map(|revision| {
            let value = format!("v{revision}");
            let pair = Pair { key: "k".into(), value, modified: *revision, ..Pair::default() };
            Event { deleted: false, pair, before: None }
        });
        let delivery = |note, events| Delivery { at: 0, node: 0, revision: 9, events, note };
        let mut deliveries: Vec<Delivery> =
            compacted.map(|at| delivery(Note::Compacted { at }, vec![])).into_iter().collect();
        deliveries.push(delivery(Note::Events, events.collect()));
        deliveries.push(delivery(Note::Progress, vec![]));
        WatchLog { name: "past".into(), key: String::new(), prefix: true, wants_before: false, deliveries }
    }

    #[test]
    fn what_was_acknowledged_and_is_gone_is_found() {
        let records = [write(2, Outcome::Ok), write(3, Outcome::Ok), write(4, |_| Outcome::Unknown("?".into()))];
        for (past, until, lost) in [
            (past(&[2, 3], None), 3, 0),
            (past(&[2], None), 3, 1),
            (past(&[2], None), 2, 0),
            (past(&[3], Some(3)), 3, 0),
            (past(&[], Some(3)), 3, 1),
        ] {
            assert_eq!(check(&records, &[past], until, 3).whats(), vec!["acknowledged writes are lost"; lost]);
        }
        let mut other = past(&[2, 3], None);
        other.deliveries[0].events[1].pair.value = "of somebody else".into();
        assert_eq!(check(&records, &[other], 3, 3).whats(), ["acknowledged writes are lost"]);
    }

    #[test]
    fn what_was_not_told_yet_is_not_lost() {
        let early = "a member's past ends early";
        let records = [write(2, Outcome::Ok), write(3, Outcome::Ok)];
        let slow = |history: &[i64], compacted| {
            let mut past = past(history, compacted);
            past.deliveries.pop();
            past
        };
        let mut deleting = slow(&[2, 3, 4], None);
        deleting.deliveries[0].events[2].deleted = true;
        for (past, until, found) in [
            (deleting, 4, vec![]),
            (slow(&[2], None), 3, vec![early]),
            (slow(&[], None), 3, vec![early]),
            (slow(&[], Some(3)), 3, vec![early]),
            (slow(&[2, 3], None), 4, vec![early]),
            (slow(&[2, 3], None), 3, vec![]),
            (slow(&[], Some(4)), 3, vec![]),
            // It has delivered later changes.
            (slow(&[3], None), 3, vec!["acknowledged writes are lost"]),
            (slow(&[3], None), 4, vec![early, "acknowledged writes are lost"]),
        ] {
            assert_eq!(check(&records, std::slice::from_ref(&past), until, 4).whats(), found, "{past:?}");
        }
    }

    #[test]
    fn a_compaction_that_nobody_asked_for_excuses_nothing() {
        let records = [write(2, Outcome::Ok), write(3, Outcome::Ok)];
        let (nobody, lost) = ("a member's past begins where nobody compacted to", "acknowledged writes are lost");
        assert_eq!(check(&records, &[past(&[], Some(4))], 3, 4).count, 0);
        assert_eq!(check(&records, &[past(&[], Some(4))], 3, 3).whats(), [nobody, lost]);
        assert_eq!(check(&records, &[past(&[2, 3], Some(4))], 3, 0).whats(), [nobody]);
    }

    #[test]
    fn of_a_transaction_the_branch_counts_that_was_taken() {
        let put = |value: &str| Step::Put { key: "k".into(), value: value.into(), lease: 0 };
        let request = Request::Txn { when: vec![], then: vec![put("v2")], or_else: vec![put("never")] };
        let body = Body::Txn { succeeded: true, steps: vec![StepDone::Put] };
        let outcome = Outcome::Ok(Answer { revision: 2, index: 1, body });
        let record = Record { request, outcome, ..write(2, Outcome::Ok) };
        assert_eq!(check(std::slice::from_ref(&record), &[past(&[2], None)], 2, 0).count, 0);
        assert_eq!(check(&[record], &[past(&[], None)], 2, 0).count, 1);
    }
}
