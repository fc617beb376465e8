//! The workloads: requests of clients while faults are active. One file for each workload; the
//! checkers that judge it know its keys and requests.
//!
//! Clients never write a value twice, and repeat only commits, with their idempotency keys. Most
//! clients send all requests to one node, others each to a random node, so that every node always
//! gets requests.

pub(crate) mod append;
pub(crate) mod catalog;
pub(crate) mod commit;
mod commit_watchers;
pub(crate) mod follower;
pub(crate) mod leases;
mod lie;
pub(crate) mod lock;
pub(crate) mod probe;
pub(crate) mod register;
pub(crate) mod resource;
pub(crate) mod rights;
pub(crate) mod set;
pub(crate) mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use headwater_proto::pb::etcdserverpb::CompactionRequest;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::client::{Target, is_broken, with_deadline};
use crate::commit::CommitLedger;
use crate::history::{Answer, Freshness, Outcome, Record, Recorder, Request};
use crate::resource::Ledger;
use crate::rights::RightsLedger;

/// Longest wait of a client for an answer: long enough for an election, short enough that a node
/// that hangs costs little.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// A workload that can be chosen.
pub(crate) struct Workload {
    pub name: &'static str,
    pub help: &'static str,
    start: fn(&Lab, &mut JoinSet<()>),
}

/// Every workload.
pub(crate) const WORKLOADS: &[Workload] = &[
    Workload { name: "register", help: "read, write, compare-and-swap of single keys", start: register::start },
    Workload { name: "set", help: "unique elements added, whole sets read", start: set::start },
    Workload { name: "append", help: "transactions that read and append to several lists", start: append::start },
    Workload {
        name: "watch",
        help: "watchers of keys and prefixes that end and resume on any node",
        start: watch::start,
    },
    Workload {
        name: "catalog",
        help: "instances of services that come, change their health and go, and views of them",
        start: catalog::start,
    },
    Workload { name: "lock", help: "a counter under a lock made of a lease, with fencing", start: lock::start },
    Workload {
        name: leases::NAME,
        help: "leases that run out or are revoked, and every kind of write to their keys, under compaction",
        start: leases::start,
    },
    Workload {
        name: "follower",
        help: "reads from any node, serializable or with a least index",
        start: follower::start,
    },
    Workload {
        name: "resource",
        help: "typed resources with owners, which are deleted and made again",
        start: resource::start,
    },
    Workload {
        name: commit::NAME,
        help: "groups of keys, resources and services that commits change all at once",
        start: commit::start,
    },
    Workload {
        name: rights::NAME,
        help: "users whose right to their keys comes and goes, and their reads, writes and watches (--auth)",
        start: rights::start,
    },
];

/// A control: a defect that is put into a run on purpose, to test a checker. The run must fail, by
/// a finding of that checker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Control {
    /// Nodes run with an fsync that does nothing; power losses must then lose acknowledged writes
    NoFsync,
    /// A watcher loses a message with events now and then
    DropWatchEvent,
    /// The holder of the lock does not prove it when writing
    UnfencedLock,
    /// Reads that should be linearizable are answered from the asked node's state
    StaleRead,
    /// A write is recorded as answered, but was not sent
    LostWrite,
    /// A write that took effect is recorded as refused
    RefusedWrite,
    /// A write is sent twice
    RepeatedWrite,
    /// A write is recorded with the revision before its own
    WrongRevision,
    /// The result of a comparison is recorded inverted
    WrongCompare,
    /// A deletion is recorded with one key more than it deleted
    WrongCount,
    /// A pair that was replaced or deleted is left out of the recorded answer
    WrongBefore,
    /// A read is recorded without one of its pairs
    WrongRead,
    /// A revocation is recorded as answered, but was not sent
    LostRevoke,
    /// A lease is revoked without a record
    SecretRevoke,
    /// A key is deleted without a record
    SecretDelete,
    /// The enemy's request from a page of another origin does not name that origin, so it is served
    OpenDoor,
    /// The enemy leaves one attack out
    IdleEnemy,
    /// The watches of users are opened by root
    BorrowedWatch,
    /// The serializable reads of users are sent by root
    BorrowedRead,
    /// A right is recorded as taken, and was not
    KeptRight,
    /// A commit is sent as two
    HalfCommit,
    /// A commit is sent twice, without an idempotency key
    Twice,
}

impl Control {
    /// Whether the run needs the enemy (`--enemy`).
    pub(crate) fn needs_enemy(self) -> bool {
        matches!(self, Self::OpenDoor | Self::IdleEnemy)
    }

    /// Whether the run needs users and rights (`--auth`).
    pub(crate) fn needs_auth(self) -> bool {
        matches!(self, Self::BorrowedWatch | Self::BorrowedRead | Self::KeptRight)
    }
}

/// State that all clients of a run share; cheap to clone.
#[derive(Clone)]
pub(crate) struct Lab {
    pub targets: Vec<Target>,
    pub recorder: Arc<Recorder>,
    pub stop: CancellationToken,
    pub control: Option<Control>,
    pub seed: u64,
    /// Factor of the clients' pauses: 1 in a short run, more in a long one: all records must fit
    /// into memory.
    pub pace: u32,
    pub watchers: watch::Watchers,
    pub views: catalog::Views,
    /// Number of values made so far. It is part of the next one, so that no value is made twice.
    pub values: Arc<AtomicU64>,
    /// Requests about resources. They have no revision, so they are not in `recorder`.
    pub deeds: Arc<Ledger>,
    /// Commits, and how readers, histories and watchers saw them.
    pub commits: Arc<CommitLedger>,
    /// Changes of users' rights, and the watches of these users.
    pub rights: Arc<RightsLedger>,
    /// The highest revision of a requested compaction. Later history must exist on all members.
    pub compacted: Arc<AtomicI64>,
    /// Compaction requests that were acknowledged, count. One without an answer is not counted.
    pub compactions: Arc<AtomicU64>,
}

impl Lab {
    /// Starts the tasks of the workload with this name in `tasks`. Panics if there is none.
    pub(crate) fn start(&self, name: &str, tasks: &mut JoinSet<()>) {
        let workload = WORKLOADS.iter().find(|workload| workload.name == name);
        (workload.expect("invariant: names were checked").start)(self, tasks);
    }

    /// Requests a compaction at `revision` from a node. Once it is sent, the revision counts in
    /// [`Self::compacted`], even if the request fails.
    ///
    /// # Errors
    ///
    /// No connection, a refusal, or an unknown outcome.
    pub(crate) async fn compact(&self, node: usize, revision: i64) -> Result<(), String> {
        let mut kv = self.targets[node].kv().await?;
        // First, because a lost answer does not undo the compaction.
        self.compacted.fetch_max(revision, Ordering::Relaxed);
        let asked = with_deadline(CompactionRequest { revision, physical: false }, REQUEST_TIMEOUT);
        match tokio::time::timeout(REQUEST_TIMEOUT, kv.compact(asked)).await {
            Ok(Ok(_)) => {
                self.compactions.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Ok(Err(status)) => {
                if is_broken(&status) {
                    self.targets[node].forget();
                }
                Err(status.to_string())
            }
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    /// Starts `count` clients. Each repeats `step` on a state of its own, from `make`, with `pause`
    /// times [`Self::pace`] in between, until the run stops.
    fn clients<S, F>(
        &self,
        tasks: &mut JoinSet<()>,
        workload: &'static str,
        count: u64,
        pause: Duration,
        make: impl Fn(&Client) -> S,
        step: F,
    ) where
        S: Send + 'static,
        F: AsyncClientStep<S> + Clone,
    {
        for number in 0..count {
            let mut client = Client::new(self.clone(), workload, number);
            let mut state = make(&client);
            let step = step.clone();
            let stop = self.stop.clone();
            let pause = pause * self.pace;
            tasks.spawn(async move {
                while !stop.is_cancelled() {
                    step.step(&mut client, &mut state).await;
                    // The think time of a client, not a wait for a condition.
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = stop.cancelled() => {}
                    }
                }
            });
        }
    }
}

/// One step of a client. This is a trait, because the bound that the future of an async closure is
/// `Send` cannot be written.
trait AsyncClientStep<S>: Send + Sync + 'static {
    fn step(&self, client: &mut Client, state: &mut S) -> impl Future<Output = ()> + Send;
}

/// One client of a workload, which sends one request after the other.
pub(crate) struct Client {
    pub lab: Lab,
    pub process: u64,
    pub rng: StdRng,
    workload: &'static str,
    /// The node that gets all requests of this client; `None` for a random node for each.
    pinned: Option<usize>,
    /// Requests sent, count.
    sent: u64,
}

impl Client {
    pub(crate) fn new(lab: Lab, workload: &'static str, number: u64) -> Self {
        let index = WORKLOADS.iter().position(|known| known.name == workload).unwrap_or(WORKLOADS.len()) as u64;
        let process = index * 1000 + number;
        let rng = StdRng::seed_from_u64(lab.seed ^ (process + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Three of four clients are pinned to a node.
        let pinned = (number % 4 != 3).then_some(number as usize % lab.targets.len());
        Self { lab, process, rng, workload, pinned, sent: 0 }
    }

    /// A value that no other request writes.
    pub(crate) fn value(&mut self) -> String {
        format!("{}-{}", self.process, self.lab.values.fetch_add(1, Ordering::Relaxed))
    }

    /// A random number below `end`, which must not be 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.rng.random_range(0..end)
    }

    /// True once in `count` times on average.
    pub(crate) fn rng_is_one_of(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// The node for the next request: the pinned one, or a random one.
    pub(crate) fn node(&mut self) -> usize {
        let any = self.rng.random_range(0..self.lab.targets.len());
        self.pinned.unwrap_or(any)
    }

    /// Sends a request to this client's node and records its outcome.
    pub(crate) async fn send(&mut self, request: Request) -> Outcome {
        let node = self.node();
        self.send_to(node, request).await
    }

    /// Sends a request to a node and records its outcome. A control may change the request that is
    /// sent, or falsify the outcome.
    pub(crate) async fn send_to(&mut self, node: usize, request: Request) -> Outcome {
        let clock = self.lab.recorder.clock;
        let sent = match (&request, self.lab.control) {
            (Request::Read { key, prefix, freshness: Freshness::Linearizable }, Some(Control::StaleRead)) => {
                Request::Read { key: key.clone(), prefix: *prefix, freshness: Freshness::Serializable }
            }
            _ => request.clone(),
        };
        let call = clock.now();
        let target = &self.lab.targets[node];
        self.sent += 1;
        let outcome = match lie::due(self.lab.control, &request, self.sent).filter(|_| self.workload == leases::NAME) {
            Some(lie) => lie::execute(lie, target, &request).await,
            None => target.send(&sent, REQUEST_TIMEOUT).await,
        };
        let done = clock.now();
        let (workload, process) = (self.workload.to_owned(), self.process);
        self.lab.recorder.keep(Record {
            id: 0,
            workload,
            process,
            node,
            call,
            done,
            request,
            outcome: outcome.clone(),
        });
        if outcome.answer().is_none() {
            // As clients do: pauses after a node that does not answer.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        outcome
    }

    /// Sends and records a request as [`Self::send`] does; `None` if it was not answered with
    /// success.
    pub(crate) async fn ask(&mut self, request: Request) -> Option<Answer> {
        match self.send(request).await {
            Outcome::Ok(answer) => Some(answer),
            Outcome::Failed(_) | Outcome::Unknown(_) => None,
        }
    }
}
