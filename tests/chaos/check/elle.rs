//! Strict serializability of multi-key transactions, by cycles in their dependencies (adya, in the
//! manner of Elle).
//!
//! Translates records for adya: the value of a key is a list of space-separated elements, and a put
//! appends the last one of its value.

use std::time::Duration;

use adya::{Opts, Valid, Workload};
use serde_json::{Value, json};

use super::{Finding, Findings};
use crate::history::{Body, Outcome, Record, Request, Step, StepDone};

/// Name of adya's strictest model. adya accepts an unknown name and then forbids nothing; a test
/// shows that it knows this one.
const MODEL: &str = "strict-serializable";
/// Longest search for a cycle in one strongly connected component; an aborted search is a finding.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// Judges the transactions of the workload `append`.
pub(crate) fn check(records: &[Record]) -> Findings {
    let mut findings = Findings::new("transactions");
    let mut moments: Vec<(u64, u8, Value)> = Vec::new();
    let mut count = 0;
    for record in records.iter().filter(|record| record.workload == "append") {
        let Some((asked, done)) = translate(record) else {
            findings.add(Finding::of(record, "a transaction cannot be told to the judge", format!("{record:?}")));
            continue;
        };
        count += 1;
        // One process per transaction: order within a process follows from real time.
        let line = |kind: &str, value: &Value, at: u64| json!({"type": kind, "process": record.id, "f": "txn", "value": value, "time": at * 1000});
        moments.push((record.call, 0, line("invoke", &asked, record.call)));
        match &record.outcome {
            Outcome::Ok(_) => moments.push((record.done, 1, line("ok", &done, record.done))),
            Outcome::Failed(_) => moments.push((record.done, 1, line("fail", &asked, record.done))),
            Outcome::Unknown(_) => moments.push((record.done, 1, line("info", &asked, record.done))),
        }
    }
    moments.sort_by_key(|(at, kind, _)| (*at, *kind));
    let text: Vec<String> = moments.iter().map(|(_, _, line)| line.to_string()).collect();
    match judge(&text.join("\n")) {
        Ok(anomalies) => {
            for (kind, explanation) in anomalies {
                findings.add(Finding::new(format!("anomaly {kind}"), explanation));
            }
        }
        Err(why) => findings.add(Finding::new("the transactions could not be judged", why)),
    }
    findings.scope(format!("{count} transactions")).judged(count).nothing_if(count == 0)
}

fn judge(lines: &str) -> Result<Vec<(String, String)>, String> {
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    let history = adya::History::from_json(lines).map_err(|error| error.to_string())?;
    let report = adya::check(
        &history,
        Workload::ListAppend,
        &Opts { models: vec![MODEL.into()], timeout: CHECK_TIMEOUT, ..Opts::default() },
    );
    let found: Vec<(String, String)> = report
        .anomalies
        .iter()
        .map(|(kind, list)| (kind.clone(), list.first().map_or_else(String::new, |first| first.explanation.clone())))
        .collect();
    match (report.valid, found.is_empty()) {
        (Valid::True, _) => Ok(Vec::new()),
        (_, true) => Err("no verdict, and no reason why".to_owned()),
        (_, false) => Ok(found),
    }
}

/// The operations of a transaction for adya: as requested, and with their results. Of an answered
/// transaction, those of the taken branch, else those of the first. `None` if request or answer has
/// a form that the workload never has.
fn translate(record: &Record) -> Option<(Value, Value)> {
    let Request::Txn { then, or_else, .. } = &record.request else { return None };
    let (steps, results) = match record.outcome.answer().map(|answer| &answer.body) {
        Some(Body::Txn { succeeded: true, steps }) => (then, Some(steps)),
        Some(Body::Txn { succeeded: false, steps }) => (or_else, Some(steps)),
        Some(_) => return None,
        None => (then, None),
    };
    let (mut asked, mut done) = (Vec::new(), Vec::new());
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Get { key } => {
                asked.push(json!(["r", key, null]));
                if let Some(StepDone::Got(pair)) = results.and_then(|results| results.get(number)) {
                    done.push(json!(["r", key, elements(pair.as_ref().map_or("", |pair| &pair.value))]));
                }
            }
            Step::Put { key, value, .. } => {
                let mut list = elements(value);
                let last = list.pop()?;
                // The value before the append was compared, so it counts as read.
                asked.push(json!(["r", key, null]));
                done.push(json!(["r", key, list]));
                asked.push(json!(["append", key, last]));
                done.push(json!(["append", key, last]));
            }
            Step::Delete { .. } | Step::DeleteRange { .. } => return None,
        }
    }
    Some((json!(asked), json!(done)))
}

/// The numbers in a list that is separated by spaces; other words in it are left out.
pub(crate) fn elements(list: &str) -> Vec<u64> {
    list.split_whitespace().filter_map(|element| element.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A history of transactions, one after the other.
    fn sequence(transactions: &[Value]) -> String {
        let lines = transactions.iter().enumerate().flat_map(|(process, value)| {
            ["invoke", "ok"]
                .map(|kind| json!({"type": kind, "process": process, "f": "txn", "value": value}).to_string())
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_legal_history_passes() {
        let legal = sequence(&[json!([["append", "x", 1]]), json!([["append", "x", 2]]), json!([["r", "x", [1, 2]]])]);
        assert_eq!(judge(&legal).unwrap(), []);
    }

    // These need the strict model: an unknown name, or a weaker model, would let the second one
    // pass.
    #[test]
    fn planted_anomalies_are_found() {
        for (what, transactions) in [
            (
                "dropped append",
                vec![
                    json!([["append", "x", 1]]),
                    json!([["append", "x", 2]]),
                    json!([["r", "x", [2]]]),
                    json!([["append", "x", 3]]),
                    json!([["r", "x", [2, 3]]]),
                ],
            ),
            (
                "stale read",
                vec![
                    json!([["append", "x", 1]]),
                    json!([["r", "x", [1]]]),
                    json!([["append", "x", 2]]),
                    json!([["r", "x", [1]]]),
                    json!([["r", "x", [1, 2]]]),
                ],
            ),
            (
                "reordered append",
                vec![json!([["append", "x", 1]]), json!([["append", "x", 2]]), json!([["r", "x", [2, 1]]])],
            ),
        ] {
            let found = judge(&sequence(&transactions)).unwrap();
            assert!(!found.is_empty(), "{what}");
        }
    }
}

#[cfg(test)]
#[path = "elle_tests.rs"]
mod record_tests;
