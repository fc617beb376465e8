//! Linearizability of each register by a search (Wing, Gong, Lowe), which knows nothing of
//! revisions.
//!
//! An independent second opinion to `replay`. A write of unknown outcome counts as pending until
//! the end if the store's changes have its value; else it was not made (spec: reliability §2.1).

use std::collections::{BTreeMap, HashSet};
use std::sync::mpsc;
use std::time::Duration;

use todc_utils::{Action, History, Specification, WGLChecker};

use super::replay::Log;
use super::{Finding, Findings};
use crate::history::{Body, Condition, Outcome, Record, Request, Step};

/// Longest search for one register. A search that is not decided in time is a finding.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60);

/// An operation on one register, with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// The value that was read; `None` for an absent key.
    Read(Option<String>),
    Write(String),
    /// Expected value, new value, and whether the comparison held; without an answer it counts as
    /// held.
    Swap(String, String, bool),
}

struct Register;

/// Time of the call, time of the answer (`None` without one), and the operation. Times are
/// microseconds since the run began.
type Timed = (u64, Option<u64>, Operation);

impl Specification for Register {
    type State = Option<String>;
    type Operation = Operation;

    fn init() -> Self::State {
        None
    }

    fn apply(operation: &Operation, state: &Self::State) -> (bool, Self::State) {
        match operation {
            Operation::Read(found) => (found == state, state.clone()),
            Operation::Write(value) => (true, Some(value.clone())),
            Operation::Swap(old, new, true) => (state.as_ref() == Some(old), Some(new.clone())),
            Operation::Swap(old, _, false) => (state.as_ref() != Some(old), state.clone()),
        }
    }
}

/// Judges every register that the workload `register` used.
pub(crate) fn check(records: &[Record], log: &Log) -> Findings {
    let written: HashSet<(&str, &str)> = log
        .values()
        .flatten()
        .filter(|event| !event.deleted)
        .map(|event| (event.pair.key.as_str(), event.pair.value.as_str()))
        .collect();
    let mut findings = Findings::new("linearizable");
    let mut histories: BTreeMap<&str, Vec<Timed>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.workload == "register") {
        match operation(record, &written) {
            Some((key, operation, certain)) => {
                histories.entry(key).or_default().push((record.call, certain.then_some(record.done), operation));
            }
            None if record.outcome.answer().is_some() => {
                findings.add(Finding::of(record, "an operation of no known form", format!("{record:?}")));
            }
            None => {}
        }
    }
    let (keys, mut operations) = (histories.len(), 0);
    for (key, history) in histories {
        operations += history.len();
        match judge(history) {
            Some(true) => {}
            Some(false) => findings.add(Finding::new("a register is not linearizable", key)),
            None => findings.add(Finding::new("the search for an order took too long", key)),
        }
    }
    findings.scope(format!("{keys} registers, {operations} operations")).judged(operations).nothing_if(operations == 0)
}

/// The key, the operation, and whether it was answered. `written` has the puts (key, value) of the
/// store's changes. `None` for a refused request, for an unanswered one without a put in `written`,
/// and for a form that the workload never has.
fn operation<'a>(record: &'a Record, written: &HashSet<(&str, &str)>) -> Option<(&'a str, Operation, bool)> {
    let certain = match &record.outcome {
        Outcome::Ok(_) => true,
        Outcome::Failed(_) => return None,
        Outcome::Unknown(_) => {
            if !record.request.values().iter().any(|value| written.contains(value)) {
                return None;
            }
            false
        }
    };
    let body = record.outcome.answer().map(|answer| &answer.body);
    match (&record.request, body) {
        (Request::Read { key, .. }, Some(Body::Pairs(pairs))) => {
            Some((key, Operation::Read(pairs.first().map(|pair| pair.value.clone())), certain))
        }
        (Request::Put { key, value, .. }, _) => Some((key, Operation::Write(value.clone()), certain)),
        (Request::Txn { when, then, .. }, body) => {
            let [Condition::Value { is, .. }] = when.as_slice() else { return None };
            let [Step::Put { key, value, .. }] = then.as_slice() else { return None };
            let swapped = !matches!(body, Some(Body::Txn { succeeded: false, .. }));
            Some((key, Operation::Swap(is.clone(), value.clone(), swapped), certain))
        }
        _ => None,
    }
}

/// Whether a history is linearizable; `None` if the search took too long. An operation without an
/// answer may take effect at any time after its call.
fn judge(history: Vec<Timed>) -> Option<bool> {
    let mut moments = Vec::new();
    for (process, (call, done, operation)) in history.into_iter().enumerate() {
        moments.push((call, 0, process, Action::Call(operation.clone())));
        moments.push((done.unwrap_or(u64::MAX), 1, process, Action::Response(operation)));
    }
    moments.sort_by_key(|(at, kind, process, _)| (*at, *kind, *process));
    let actions = moments.into_iter().map(|(_, _, process, action)| (process, action)).collect();
    let history = History::from_actions(actions);
    let (sender, verdict) = mpsc::channel();
    // A search cannot be cancelled; one that takes too long ends with the program.
    std::thread::spawn(move || sender.send(WGLChecker::<Register>::is_linearizable(history)));
    verdict.recv_timeout(CHECK_TIMEOUT).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(value: &str) -> Operation {
        Operation::Write(value.into())
    }

    fn read(value: &str) -> Operation {
        Operation::Read(Some(value.into()))
    }

    #[test]
    fn legal_and_illegal_orders() {
        for (history, wanted) in [
            (vec![(0, Some(10), write("a")), (20, Some(30), read("a"))], true),
            // Overlapping writes: either order is correct.
            (vec![(0, Some(30), write("a")), (0, Some(30), write("b")), (40, Some(50), read("a"))], true),
            // A stale read.
            (vec![(0, Some(1), write("a")), (2, Some(3), write("b")), (4, Some(5), read("a"))], false),
            // An unknown write may take effect late, but not before it was sent.
            (vec![(0, None, write("a")), (90, Some(99), read("a"))], true),
            (vec![(0, Some(5), read("a")), (10, None, write("a"))], false),
            // Of two swaps from one value only one may succeed.
            (
                vec![
                    (0, Some(1), write("a")),
                    (2, Some(9), Operation::Swap("a".into(), "b".into(), true)),
                    (2, Some(9), Operation::Swap("a".into(), "c".into(), true)),
                ],
                false,
            ),
        ] {
            assert_eq!(judge(history.clone()), Some(wanted), "{history:?}");
        }
    }
}

#[cfg(test)]
#[path = "linear_tests.rs"]
mod record_tests;
