//! One life: a simulated run of a cluster, from its first election until all faults are healed, and
//! its report.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use openraft::AsyncRuntime;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::clients::{self, Op, ReadSeen};
use super::committed::Committed;
use super::disk::Disk;
use super::faults;
use super::invariants::{self, Evidence};
use super::member::{Machine, Member, first_members};
use super::ms;
use super::net::Net;
use super::operator;
use super::watchers::{self, Watched};
use headwater_proto::codec;
use headwater_raft::parts::{EncodedCommand, Runtime};
use headwater_types::{Applied, Command, LogIndex, NodeId, Proposal, Put, StoreEpoch, ValueChoice};

const MEMBERS: u64 = 3;
const CLIENTS: u64 = 3;
const WATCHERS: u64 = 3;
/// Longest time of each step after the faults are healed: of a last write, until a member has
/// applied it, and until a watcher has received everything up to it.
const HEALING_MAX: Duration = ms(30_000);

/// The parameters of one life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Seed of all random numbers.
    pub(crate) seed: u64,
    /// Time until all faults are healed, simulated milliseconds.
    pub(crate) life_ms: u64,
    /// Whether faults upgrade members to the next version, one by one.
    pub(crate) mixed: bool,
    /// The defect that is made on purpose; `None` in a normal life.
    pub(crate) control: Option<Control>,
}

/// A defect that is made on purpose, to see that an invariant detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// A disk that reports writes as flushed before they are.
    LyingDisk,
    /// Some commits never reach the publisher.
    LostEvents,
    /// Reads from the local state, without a read index from the leader.
    StaleReads,
    /// The model takes the wrong branch of each transaction.
    BrokenRule,
}

impl Control {
    pub(crate) const ALL: [Self; 4] = [Self::LyingDisk, Self::LostEvents, Self::StaleReads, Self::BrokenRule];

    /// Name of the invariant that must detect the defect.
    pub(crate) fn noticed_by(self) -> &'static str {
        match self {
            Self::LyingDisk => "agreement",
            Self::LostEvents => "watches",
            Self::StaleReads => "reads",
            Self::BrokenRule => "outcomes",
        }
    }
}

/// The result of a life. The sums over several lives have only the counts.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Descriptions of everything that happened, in order.
    pub(crate) history: Vec<String>,
    /// Violations of invariants. Each begins with the name of the invariant.
    pub(crate) findings: Vec<String>,
    /// Number of acknowledged writes.
    pub(crate) acknowledged: u64,
    /// Number of indeterminate writes.
    pub(crate) unknown: u64,
    /// Number of linearizable reads.
    pub(crate) reads: u64,
    /// Number of revisions that were delivered, over all watchers.
    pub(crate) events: u64,
    /// Number of losses of power.
    pub(crate) crashes: u64,
}

impl Report {
    pub(crate) fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.reads += other.reads;
        self.events += other.events;
        self.crashes += other.crashes;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, unknown, reads, events, crashes, .. } = self;
        write!(
            f,
            "{acknowledged} writes acknowledged, {unknown} in doubt, {reads} reads, {events} revisions watched, {crashes} \
             losses of power"
        )
    }
}

/// Stage of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Living,
    /// All faults are healed; clients end.
    Healing,
    /// Watchers end once they have received everything up to this log index.
    Ending(LogIndex),
}

/// State shared by the tasks of one life.
pub(super) struct World {
    pub(super) options: Options,
    pub(super) net: Net,
    pub(super) machines: Vec<Machine>,
    running: Mutex<BTreeMap<u64, Arc<Member>>>,
    pub(super) phase: watch::Sender<Phase>,
    began: Instant,
    /// Descriptions of everything that happened, with times in simulated microseconds.
    history: Mutex<Vec<(u64, String)>>,
    pub(super) ops: Mutex<Vec<Op>>,
    pub(super) reads: Mutex<Vec<ReadSeen>>,
    pub(super) crashes: Mutex<u64>,
    /// Number of proposals so far. It is the time in the next one, so that no two are equal.
    proposals: Mutex<u64>,
}

impl World {
    /// Time since the start of the life, simulated microseconds.
    pub(super) fn now_us(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    pub(super) fn note(&self, what: impl fmt::Display) {
        self.history.lock().push((self.now_us(), what.to_string()));
    }

    pub(super) fn machine(&self, id: u64) -> &Machine {
        &self.machines[id as usize - 1]
    }

    pub(super) fn member(&self, id: u64) -> Option<Arc<Member>> {
        self.running.lock().get(&id).cloned()
    }

    pub(super) fn running(&self) -> Vec<u64> {
        self.running.lock().keys().copied().collect()
    }

    pub(super) async fn start(&self, id: u64) {
        let member = self.machine(id).start(&self.net).await;
        self.note(format_args!("member {id} starts at entry {}", member.applied.borrow().get()));
        self.running.lock().insert(id, Arc::new(member));
    }

    pub(super) async fn lose_power(&self, id: u64) {
        let Some(member) = self.running.lock().remove(&id) else { return };
        *self.crashes.lock() += 1;
        self.note(format_args!("member {id} loses power"));
        self.machine(id).lose_power(&self.net, member).await;
    }

    /// Number of proposals so far, which is the time in the newest one (`unix_ms`).
    pub(super) fn proposed(&self) -> u64 {
        *self.proposals.lock()
    }

    /// Encodes a command as a proposal that differs from all others.
    pub(super) fn encode(&self, command: Command) -> EncodedCommand {
        let mut proposals = self.proposals.lock();
        *proposals += 1;
        let mut proposal = Proposal::new(*proposals, command);
        // A field of the next version, also if the cluster does not have it yet. Not in the first
        // and the last commands, which must not be refused.
        let is_optional = *self.phase.borrow() == Phase::Living && !matches!(proposal.command, Command::Bootstrap(_));
        if self.options.mixed && is_optional && proposals.is_multiple_of(4) {
            proposal.origin = Some(NodeId(*proposals % MEMBERS + 1));
        }
        EncodedCommand(codec::encode_proposal(&proposal).unwrap())
    }
}

/// Spawns a task with random numbers derived from those of its parent.
pub(super) fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
    <Runtime as AsyncRuntime>::spawn(task)
}

/// Simulates one cluster, from its first election until all faults are healed, and checks it.
pub(crate) fn run(options: Options) -> Report {
    super::in_simulation(options.seed, |dir| live(options, dir))
}

async fn live(options: Options, dir: PathBuf) -> Report {
    let committed = Arc::new(Committed::default());
    let has = |control| options.control == Some(control);
    let machines = (1..=MEMBERS).map(|id| {
        let disk = Disk::new(id, options.seed * 100 + id, has(Control::LyingDisk), Arc::clone(&committed));
        Machine::new(id, dir.join(id.to_string()), disk, has(Control::LostEvents))
    });
    let world = Arc::new(World {
        options,
        net: Net::new(options.seed, dir.join("copies")),
        machines: machines.collect(),
        running: Mutex::default(),
        phase: watch::Sender::new(Phase::Living),
        began: Instant::now(),
        history: Mutex::default(),
        ops: Mutex::default(),
        reads: Mutex::default(),
        crashes: Mutex::default(),
        proposals: Mutex::default(),
    });
    for id in 1..=MEMBERS {
        world.start(id).await;
    }
    world.member(1).unwrap().raft.initialize(first_members(MEMBERS)).await.unwrap();
    let epoch = StoreEpoch(options.seed + 1);
    let mut findings = Vec::new();
    if write_at_last(&world, || Command::Bootstrap(epoch)).await.is_none() {
        findings.push("convergence: no leader at the beginning".to_owned());
    }

    let clients: Vec<_> = (1..=CLIENTS).map(|number| spawn(clients::run(Arc::clone(&world), number))).collect();
    let watchers: Vec<_> = (1..=WATCHERS).map(|number| spawn(watchers::run(Arc::clone(&world), number))).collect();
    let operator = spawn(operator::run(Arc::clone(&world)));
    faults::happen(&world).await;
    world.phase.send_replace(Phase::Healing);
    for client in clients {
        client.await.unwrap();
    }
    operator.await.unwrap();
    let watched = settle(&world, watchers, &mut findings).await;
    let (entries, conflicts) = committed.take();
    let evidence = Evidence {
        control: options.control,
        entries,
        conflicts,
        ops: std::mem::take(&mut world.ops.lock()),
        reads: std::mem::take(&mut world.reads.lock()),
        watched,
        members: world.running.lock().iter().map(|(id, member)| (*id, member.store.clone())).collect(),
    };
    findings.extend(invariants::check(&evidence));
    report(&world, &evidence, findings)
}

/// After all faults are healed, writes a last entry, and waits until all members have applied it
/// and all watchers have received everything up to it. Returns the watchers' records.
async fn settle(
    world: &Arc<World>,
    watchers: Vec<tokio::task::JoinHandle<Watched>>,
    findings: &mut Vec<String>,
) -> Vec<Watched> {
    let mut ending = LogIndex::ZERO;
    let end = || Command::Put(Put { key: "end".into(), value: ValueChoice::Set("".into()), ..clients::plain_put() });
    match write_at_last(world, end).await {
        Some(applied) => ending = applied.index,
        None => findings.push("convergence: no write succeeds after everything has healed".to_owned()),
    }
    for id in world.running() {
        let Some(member) = world.member(id) else { continue };
        let mut applied = member.applied.clone();
        let reached = applied.wait_for(|applied| *applied >= ending);
        if tokio::time::timeout(HEALING_MAX, reached).await.is_err() {
            let at = member.applied.borrow().get();
            findings.push(format!("convergence: member {id} stays at entry {at} of {ending}"));
        }
    }
    world.note(format_args!("everything is at entry {ending}"));
    world.phase.send_replace(Phase::Ending(ending));
    let mut watched = Vec::new();
    for (number, watcher) in watchers.into_iter().enumerate() {
        match tokio::time::timeout(HEALING_MAX, watcher).await {
            Ok(ended) => watched.push(ended.unwrap()),
            Err(_) => findings.push(format!("watches: watcher {} does not come to the end", number + 1)),
        }
    }
    watched
}

/// Writes at one member after the other until one accepts it; `None` if none does within
/// [`HEALING_MAX`].
async fn write_at_last(world: &World, command: impl Fn() -> Command) -> Option<Applied> {
    let writing = async {
        loop {
            for id in world.running() {
                let Some(member) = world.member(id) else { continue };
                let encoded = world.encode(command());
                let written = tokio::time::timeout(ms(1000), member.raft.client_write(encoded)).await;
                if let Ok(Ok(written)) = written {
                    return written.data;
                }
            }
            tokio::time::sleep(ms(50)).await;
        }
    };
    tokio::time::timeout(HEALING_MAX, writing).await.ok()
}

fn report(world: &World, evidence: &Evidence, findings: Vec<String>) -> Report {
    let mut history = std::mem::take(&mut *world.history.lock());
    // Events of the same time have no order of their own.
    history.sort_unstable();
    let line = |(at, what): (u64, String)| format!("{:>6}.{:03} ms  {what}", at / 1000, at % 1000);
    let acknowledged = evidence.ops.iter().filter(|op| op.acknowledged().is_some()).count() as u64;
    Report {
        history: history.into_iter().map(line).collect(),
        findings,
        acknowledged,
        unknown: evidence.ops.iter().filter(|op| op.is_in_doubt()).count() as u64,
        reads: evidence.reads.len() as u64,
        events: evidence.watched.iter().map(|watched| watched.delivered.len() as u64).sum(),
        crashes: *world.crashes.lock(),
    }
}
