//! The last requests of a run: on a cluster that is whole, the newest keys take one more write each
//! and are read once more (spec: reliability §1.12).
//!
//! They are part of the history like all others: the checkers judge the values that they read.

use std::collections::HashSet;

use futures::StreamExt;

use crate::check::Finding;
use crate::fault::{ELSEWHERE, LOAD};
use crate::history::{Freshness, Outcome, Record, Request, Step};
use crate::retry_budget::{ATTEMPT_PAUSE, ATTEMPTS};
use crate::work::probe::PROBE;
use crate::work::{Client, Lab};

/// Workloads with keys that are written and read. Keys of leases and locks are left out: they come
/// and go by themselves.
const ASKED: &[&str] = &["register", "follower", "watch", PROBE, "append", LOAD, ELSEWHERE, "set"];
/// Most keys that are written and read: those of the newest records.
const KEYS_MAX: usize = 500;
/// Number of failed requests after which no further keys are tried: a cluster that hangs delays
/// each request.
const FAILED_MAX: usize = 20;
/// Number of keys that are written and read at the same time.
const AT_ONCE: usize = 8;

/// Result of the last requests.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    /// The highest revision in an answer; 0 if no request was answered.
    pub revision: i64,
    /// One finding for each of the last requests that was not answered with success.
    pub failed: Vec<Finding>,
    /// Number of keys that were chosen. With too many failures, not all of them were tried.
    pub keys: usize,
}

/// Writes each of the newest keys at one node, and then reads it at the next one. Skips the
/// remaining keys once [`FAILED_MAX`] requests have failed in all.
pub(crate) async fn finish(lab: &Lab) -> Finished {
    let keys = lab.recorder.with_records(keys);
    let mut finished = Finished { keys: keys.len(), ..Finished::default() };
    let asked = keys.into_iter().enumerate().map(|(number, key)| write_and_read(lab, number, key));
    let mut answers = futures::stream::iter(asked).buffer_unordered(AT_ONCE);
    while let Some(outcomes) = answers.next().await {
        for (what, outcome) in outcomes {
            finished.revision = finished.revision.max(outcome.answer().map_or(0, |answer| answer.revision));
            finished.failed.extend(failure(&what, &outcome));
        }
        if finished.failed.len() >= FAILED_MAX {
            break;
        }
    }
    finished
}

async fn write_and_read(lab: &Lab, number: usize, key: String) -> [(String, Outcome); 2] {
    let nodes = lab.targets.len();
    let (writer, reader) = (number % nodes, (number + 1) % nodes);
    let mut client = Client::new(lab.clone(), "end", number as u64);
    let write = |value| Request::Put { key: key.clone(), value, lease: 0 };
    let read = |_| Request::Read { key: key.clone(), prefix: false, freshness: Freshness::Linearizable };
    let written = ask(&mut client, writer, write).await;
    let found = ask(&mut client, reader, read).await;
    [
        (format!("a write of {key} on node {}", writer + 1), written),
        (format!("a read of {key} on node {}", reader + 1), found),
    ]
}

/// Sends a request to a node until it is answered, at most [`ATTEMPTS`] times. `request` makes it
/// from a value, another one each time. Returns the last outcome.
async fn ask(client: &mut Client, node: usize, request: impl Fn(String) -> Request) -> Outcome {
    for _ in 1..ATTEMPTS {
        let value = client.value();
        let outcome = client.send_to(node, request(value)).await;
        if outcome.answer().is_some() {
            return outcome;
        }
        tokio::time::sleep(ATTEMPT_PAUSE).await;
    }
    let value = client.value();
    client.send_to(node, request(value)).await
}

/// The finding for a request without success, which must not happen on a cluster that is whole.
/// `None` for an answered request.
fn failure(what: &str, outcome: &Outcome) -> Option<Finding> {
    match outcome {
        Outcome::Ok(_) => None,
        Outcome::Failed(why) | Outcome::Unknown(why) => {
            Some(Finding::new("a request fails on a cluster that is whole", format!("{what}: {why}")))
        }
    }
}

/// The keys to write and read, without repetitions, those of the newest records first.
fn keys(records: &[Record]) -> Vec<String> {
    let mut seen = HashSet::new();
    let asked = records.iter().rev().filter(|record| ASKED.contains(&record.workload.as_str()));
    let keys = asked.flat_map(|record| keys_of(&record.request)).filter(|key| seen.insert(*key));
    keys.take(KEYS_MAX).map(str::to_owned).collect()
}

fn keys_of(request: &Request) -> Vec<&str> {
    match request {
        Request::Read { key, prefix: false, .. }
        | Request::Put { key, .. }
        | Request::Replace { key, .. }
        | Request::Delete { key } => vec![key],
        Request::Txn { then, or_else, .. } => then.iter().chain(or_else).filter_map(key_of).collect(),
        Request::Read { prefix: true, .. }
        | Request::DeleteRange { .. }
        | Request::Grant { .. }
        | Request::KeepAlive { .. }
        | Request::Revoke { .. } => Vec::new(),
    }
}

fn key_of(step: &Step) -> Option<&str> {
    match step {
        Step::Put { key, .. } | Step::Delete { key } | Step::Get { key } => Some(key),
        Step::DeleteRange { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Answer, Body};

    fn record(workload: &str, request: Request) -> Record {
        let outcome = Outcome::Unknown("?".into());
        Record { id: 1, workload: workload.into(), process: 0, node: 0, call: 1, done: 2, request, outcome }
    }

    fn put(workload: &str, key: &str) -> Record {
        record(workload, Request::Put { key: key.into(), value: "v".into(), lease: 0 })
    }

    #[test]
    fn each_key_is_asked_for_once_the_newest_first() {
        let get = |key: &str| Step::Get { key: key.into() };
        let txn = Request::Txn { when: vec![], then: vec![get("a"), get("b")], or_else: vec![get("c")] };
        let whole = Request::Read { key: "set/0/".into(), prefix: true, freshness: Freshness::Linearizable };
        let records = [
            put("register", "r"),
            put("lock", "lock/counter"),
            put("leases", "leases/alone/1"),
            record("append", txn),
            record("set", whole),
            put("probe", "a"),
        ];
        assert_eq!(keys(&records), ["a", "b", "c", "r"]);
        let many: Vec<Record> = (0..=KEYS_MAX).map(|number| put("set", &number.to_string())).collect();
        let keys = keys(&many);
        assert_eq!(
            (keys.len(), keys.first(), keys.contains(&"0".to_owned())),
            (KEYS_MAX, Some(&KEYS_MAX.to_string()), false)
        );
    }

    #[test]
    fn whatever_is_not_answered_is_found() {
        let answered = Outcome::Ok(Answer { revision: 2, index: 2, body: Body::Put });
        assert!(failure("a write", &answered).is_none());
        for outcome in [Outcome::Failed("no leader".into()), Outcome::Unknown("no answer".into())] {
            assert_eq!(failure("a write", &outcome).unwrap().what, "a request fails on a cluster that is whole");
        }
    }
}
