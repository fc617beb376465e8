//! Requests and answers of the clients: the evidence that every checker judges.
//!
//! Has the form of a record, and writes records to a file, one JSON object a line. Times are
//! microseconds since the run began, taken before a request was sent and after its answer had
//! arrived. Invariant: a request without a certain answer is `Unknown`, never absent and never
//! failed.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Name of the file with the records, in a run's folder.
pub(crate) const HISTORY: &str = "history.jsonl";

/// Microseconds since the run began.
pub(crate) type Micros = u64;

/// The clock of a run; the whole program shares one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    zero: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { zero: Instant::now() }
    }

    pub(crate) fn now(self) -> Micros {
        self.zero.elapsed().as_micros() as Micros
    }
}

/// A key with all its stored fields. `created` and `modified` are revisions; `lease` is 0 without a
/// lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pair {
    pub key: String,
    pub value: String,
    pub created: i64,
    pub modified: i64,
    pub version: i64,
    pub lease: i64,
}

/// One condition of a transaction: a field of `key` equals `is`. A variant names the field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Condition {
    /// Revision of the latest put, 0 for an absent key.
    Modified { key: String, is: i64 },
    /// Revision of creation, 0 for an absent key.
    Created { key: String, is: i64 },
    /// The value; never true of an absent key.
    Value { key: String, is: String },
    /// Number of puts since the key was created, 0 for an absent key.
    Version { key: String, is: i64 },
    /// The id of the key's lease; 0 for a key without a lease, and for an absent key.
    Lease { key: String, is: i64 },
}

impl Condition {
    /// The key of the compared field.
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Modified { key, .. }
            | Self::Created { key, .. }
            | Self::Value { key, .. }
            | Self::Version { key, .. }
            | Self::Lease { key, .. } => key,
        }
    }
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    Put {
        key: String,
        value: String,
        lease: i64,
    },
    Delete {
        key: String,
    },
    /// Deletes every key with this prefix; the answer has the removed pairs.
    DeleteRange {
        prefix: String,
    },
    Get {
        key: String,
    },
}

/// Required freshness of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Freshness {
    Linearizable,
    /// From the asked node's state. It may be old, and never goes backwards on one node.
    Serializable,
    /// From the asked node's state, at or past this log index.
    AtLeast(u64),
}

/// A request about keys or leases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The pair of a key, or all pairs whose keys begin with `key` if `prefix`.
    Read {
        key: String,
        prefix: bool,
        freshness: Freshness,
    },
    Put {
        key: String,
        value: String,
        lease: i64,
    },
    /// A put that asks for the previous pair.
    Replace {
        key: String,
        value: String,
        lease: i64,
    },
    Delete {
        key: String,
    },
    /// Deletes every key with this prefix; the answer has the removed pairs.
    DeleteRange {
        prefix: String,
    },
    Txn {
        when: Vec<Condition>,
        then: Vec<Step>,
        or_else: Vec<Step>,
    },
    Grant {
        ttl_seconds: i64,
    },
    KeepAlive {
        lease: i64,
    },
    Revoke {
        lease: i64,
    },
}

impl Request {
    /// Key and value of every put in the request, of both branches of a transaction.
    pub(crate) fn values(&self) -> Vec<(&str, &str)> {
        match self {
            Self::Put { key, value, .. } | Self::Replace { key, value, .. } => vec![(key, value)],
            Self::Txn { then, or_else, .. } => then
                .iter()
                .chain(or_else)
                .filter_map(|step| match step {
                    Step::Put { key, value, .. } => Some((key.as_str(), value.as_str())),
                    Step::Delete { .. } | Step::DeleteRange { .. } | Step::Get { .. } => None,
                })
                .collect(),
            Self::Read { .. }
            | Self::Delete { .. }
            | Self::DeleteRange { .. }
            | Self::Grant { .. }
            | Self::KeepAlive { .. }
            | Self::Revoke { .. } => Vec::new(),
        }
    }
}

/// The result of one operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StepDone {
    Put,
    Deleted(i64),
    /// Number of removed keys, and their pairs before that.
    Removed {
        count: i64,
        before: Vec<Pair>,
    },
    Got(Option<Pair>),
}

/// The content of an answer, by the kind of request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Body {
    Pairs(Vec<Pair>),
    Put,
    /// The pair before the put; `None` if the key was absent.
    Replaced(Option<Pair>),
    Deleted(i64),
    /// Number of removed keys, and their pairs before that.
    Removed {
        count: i64,
        before: Vec<Pair>,
    },
    Txn {
        succeeded: bool,
        steps: Vec<StepDone>,
    },
    Granted {
        lease: i64,
        ttl_seconds: i64,
    },
    KeptAlive {
        ttl_seconds: i64,
    },
    /// The lease was revoked.
    Revoked,
}

/// An answer with its coordinates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// The store's revision in the answer's header.
    pub revision: i64,
    /// The log index that the answer names: that of the state it was computed from. 0 if it names
    /// none, as for a keep-alive.
    pub index: u64,
    pub body: Body,
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Ok(Answer),
    /// Certainly not carried out, now or later.
    Failed(String),
    /// May have been carried out, or may still be.
    Unknown(String),
}

impl Outcome {
    pub(crate) fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Ok(answer) => Some(answer),
            Self::Failed(_) | Self::Unknown(_) => None,
        }
    }
}

/// One request of one client, with its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Number of the record in the order of the ends, from 1; [`Recorder::keep`] sets it.
    pub id: u64,
    pub workload: String,
    /// The client, which sends one request after the other.
    pub process: u64,
    /// Number of the node that was asked, from 0.
    pub node: usize,
    /// Time right before the request was sent.
    pub call: Micros,
    /// Time right after its outcome was known.
    pub done: Micros,
    pub request: Request,
    pub outcome: Outcome,
}

impl Record {
    /// Whether the request was answered, and the answer proves that keys changed.
    pub(crate) fn has_written(&self) -> bool {
        match (&self.request, self.outcome.answer().map(|answer| &answer.body)) {
            (_, None) => false,
            (Request::Put { .. } | Request::Replace { .. }, Some(_)) => true,
            (Request::Delete { .. }, Some(Body::Deleted(count))) => *count > 0,
            (Request::DeleteRange { .. }, Some(Body::Removed { count, .. })) => *count > 0,
            (Request::Txn { then, or_else, .. }, Some(Body::Txn { succeeded, steps })) => {
                let asked = if *succeeded { then } else { or_else };
                asked.iter().any(|step| matches!(step, Step::Put { .. }))
                    || steps.iter().any(
                        |step| matches!(step, StepDone::Deleted(count) | StepDone::Removed { count, .. } if *count > 0),
                    )
            }
            _ => false,
        }
    }
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event {
    pub deleted: bool,
    /// The pair after the change; a deletion has only key and revision.
    pub pair: Pair,
    /// The pair before, if it was requested and existed.
    pub before: Option<Pair>,
}

/// One message of a watch stream, or the opening of a stream (see [`Note`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Delivery {
    pub at: Micros,
    pub node: usize,
    /// The store's revision in the message's header.
    pub revision: i64,
    pub events: Vec<Event>,
    pub note: Note,
}

/// Kind of a watch message, apart from its events; or the opening of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Note {
    Events,
    /// Everything up to and including the message's revision was delivered.
    Progress,
    /// A stream was opened that begins with this revision.
    Opened {
        from: i64,
    },
    /// The requested history is compacted, and the stream ended. The next one begins at this
    /// revision.
    Compacted {
        at: i64,
    },
}

/// Request of one watcher and everything it received, over all of its streams. It watches `key`, or
/// with `prefix` all keys that begin with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WatchLog {
    pub name: String,
    pub key: String,
    pub prefix: bool,
    /// Whether it asks for the pairs before the changes.
    pub wants_before: bool,
    pub deliveries: Vec<Delivery>,
}

/// Numbers of requests that have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    /// All requests, with and without an answer.
    pub asked: u64,
    /// Answered with success.
    pub answered: u64,
}

/// Collects records, and writes each to a buffered file.
pub(crate) struct Recorder {
    pub clock: Clock,
    next: AtomicU64,
    answered: AtomicU64,
    file: Mutex<BufWriter<File>>,
    records: Mutex<Vec<Record>>,
}

impl Recorder {
    /// Creates the file `path` for the records. An existing file is emptied.
    pub(crate) fn create(clock: Clock, path: &Path) -> anyhow::Result<Self> {
        let file = Mutex::new(BufWriter::new(File::create(path)?));
        Ok(Self { clock, next: AtomicU64::new(1), answered: AtomicU64::new(0), file, records: Mutex::default() })
    }

    /// Stores a record under a new id, and writes it to the file. A failed write only prints an
    /// error.
    pub(crate) fn keep(&self, mut record: Record) {
        record.id = self.next.fetch_add(1, Ordering::Relaxed);
        let line = serde_json::to_string(&record).expect("invariant: records are plain data");
        // A full disk costs evidence, not the verdict: the checkers read from memory.
        if let Err(error) = writeln!(self.file.lock(), "{line}") {
            eprintln!("the history is not written any more: {error}");
        }
        self.answered.fetch_add(u64::from(record.outcome.answer().is_some()), Ordering::Relaxed);
        self.records.lock().push(record);
    }

    /// Counts of requests that have ended so far.
    pub(crate) fn count(&self) -> Count {
        Count { asked: self.records.lock().len() as u64, answered: self.answered.load(Ordering::Relaxed) }
    }

    /// Calls `look` with the records so far, in the order in which their requests ended.
    pub(crate) fn with_records<T>(&self, look: impl FnOnce(&[Record]) -> T) -> T {
        look(&self.records.lock())
    }

    /// Every record so far, in the order in which the requests ended. Flushes the file.
    pub(crate) fn snapshot(&self) -> Vec<Record> {
        if let Err(error) = self.file.lock().flush() {
            eprintln!("the history is incomplete on disk: {error}");
        }
        self.records.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_as_answered_only_if_it_was_carried_out() {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(Clock::start(), &dir.path().join(HISTORY)).unwrap();
        let answer = Answer { revision: 2, index: 2, body: Body::Put };
        for outcome in [Outcome::Ok(answer), Outcome::Failed("no".into()), Outcome::Unknown("?".into())] {
            let request = Request::Put { key: "k".into(), value: "v".into(), lease: 0 };
            let workload = "test".to_owned();
            recorder.keep(Record { id: 0, workload, process: 0, node: 0, call: 0, done: 1, request, outcome });
        }
        assert_eq!(recorder.count(), Count { asked: 3, answered: 1 });
    }
}
