//! openraft under the load that exposes its defects: snapshots installed during changes of leader
//! (spec: reliability §3.7).
//!
//! One real node: openraft with the program's own state machine and the simulated disk. A flush
//! takes up to 50 ms, applying up to 20 ms. Its leaders are simulated (`leaders`): they send
//! entries, heartbeats and snapshots, late, twice, and out of order; the leader changes at every
//! fiftieth step on average. In the end the node must have the state of the leader. If openraft
//! panics, the process counts as ended: the node restarts from its disks, and must reach the same
//! state.
//!
//! `scripts/sim --soak N` runs more lives. The known defects of the pinned version of openraft have
//! tests with their names here.

mod leaders;
mod node;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use openraft::raft::AppendEntriesResponse;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use self::leaders::Leaders;
use self::node::{Host, Install, Node, contents};
use super::world::spawn;
use super::{again, in_simulation, life_ms, ms, replayable, us, variable};
use headwater_raft::parts::StalledApply;
use headwater_types::LogIndex;

/// Default length of a run, simulated milliseconds.
const LIFE_MS: u64 = 10_000;
/// Longest pause between two steps of a run, simulated microseconds.
const STEP_US_MAX: u64 = 8_000;
/// Bound on the delay of a message, simulated microseconds.
const DELAY_US_MAX: u64 = 30_000;
/// Most writes of clients in one step. A message has at most twice as many entries.
const APPEND_ENTRIES_MAX: u64 = 20;
/// Bound on the distance of a repeated message's first entry from the node's next entry, entries.
const AGAIN_ENTRIES: u64 = 60;
/// Most messages that a healed node needs to apply everything, entries or heartbeats. With more
/// the test fails.
const HEARTBEATS_MAX: usize = 400;

/// Totals of one or more runs (lives).
#[derive(Debug, Default)]
struct Report {
    lives: u64,
    /// Lives in which openraft panicked at least once; `panics` has all panics.
    broken: u64,
    panics: u64,
    /// Lives in which applying was stuck in the end, until a new entry came.
    stuck: u64,
    entries: u64,
    leaders: u64,
    snapshots: u64,
}

impl Report {
    fn add(&mut self, other: &Self) {
        self.lives += other.lives;
        self.broken += other.broken;
        self.panics += other.panics;
        self.stuck += other.stuck;
        self.entries += other.entries;
        self.leaders += other.leaders;
        self.snapshots += other.snapshots;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lives, broken, panics, stuck, entries, leaders, snapshots } = self;
        write!(
            f,
            "{lives} lives: {broken} of them with {panics} panics of openraft, {stuck} stuck in the end until there was a new \
             entry; {entries} entries, {leaders} leaders, {snapshots} snapshots sent"
        )
    }
}

/// State that all messages to one process of the node share: whether the process has ended, and the
/// number of received snapshots.
#[derive(Clone, Default)]
struct Sent {
    ended: Arc<AtomicBool>,
    snapshots: Arc<AtomicU64>,
}

impl Sent {
    fn note<T, E>(&self, answer: &Result<T, E>) {
        if answer.is_err() {
            self.ended.store(true, Ordering::SeqCst);
        }
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

/// One simulated run of the node with one seed, over all restarts after panics of openraft.
struct Run {
    rng: SmallRng,
    host: Host,
    node: Arc<Node>,
    leaders: Leaders,
    sent: Sent,
    report: Report,
}

impl Run {
    /// Delays of a message, simulated microseconds. Two delays mean that it arrives twice.
    fn arrivals(&mut self) -> Vec<u64> {
        let count = if self.rng.random_range(0..10) == 0 { 2 } else { 1 };
        (0..count).map(|_| self.rng.random_range(0..DELAY_US_MAX)).collect()
    }

    fn send_append(&mut self, first: u64, count: u64) {
        let request = self.leaders.append(first, count);
        for delay_us in self.arrivals() {
            let (node, sent, request) = (Arc::clone(&self.node), self.sent.clone(), request.clone());
            spawn(async move {
                tokio::time::sleep(us(delay_us)).await;
                sent.note(&node.raft.append_entries(request).await);
            });
        }
    }

    async fn send_snapshot(&mut self) {
        let (vote, snapshot) = (self.leaders.vote(), self.leaders.snapshot().await);
        for delay_us in self.arrivals() {
            let (node, sent, snapshot) = (Arc::clone(&self.node), self.sent.clone(), snapshot.clone());
            spawn(async move {
                tokio::time::sleep(us(delay_us)).await;
                sent.snapshots.fetch_add(1, Ordering::Relaxed);
                let received = node.receive(&snapshot);
                sent.note(&node.raft.install_full_snapshot(vote, received).await);
            });
        }
    }

    /// One step: by chance a new leader, writes, and commits; then one message to the node.
    async fn step(&mut self) {
        tokio::time::sleep(us(self.rng.random_range(0..STEP_US_MAX))).await;
        if self.rng.random_range(0..100) < 2 {
            self.leaders.change();
        }
        if self.rng.random_range(0..100) < 60 {
            let count = self.rng.random_range(1..=APPEND_ENTRIES_MAX);
            self.leaders.write(count);
        }
        if self.rng.random_range(0..100) < 50 {
            let upto = self.rng.random_range(self.leaders.committed()..=self.leaders.last());
            self.leaders.commit(upto);
        }
        let (next, committed) = (self.node.next(), self.node.points().local);
        let next = match self.rng.random_range(0..10) {
            0..=6 => next,
            7..=8 => next.saturating_sub(self.rng.random_range(0..AGAIN_ENTRIES)),
            _ => committed + 1,
        };
        match self.rng.random_range(0..100) {
            0..=2 => self.send_snapshot().await,
            3..=25 => self.send_append(next.min(self.leaders.last()), 0),
            _ => self.send_append(next.min(self.leaders.last()), 2 * APPEND_ENTRIES_MAX),
        }
    }

    /// Restarts the node from its disks if its process has ended.
    async fn revive(&mut self) {
        if !self.sent.has_ended() {
            return;
        }
        self.report.panics += 1;
        let next = Arc::new(self.restarted().await);
        self.node = next;
    }

    async fn restarted(&mut self) -> Node {
        // Messages in flight are for the ended process: their errors must not count for the next
        // process.
        self.sent = Sent { ended: Arc::default(), snapshots: Arc::clone(&self.sent.snapshots) };
        self.host.end(Arc::clone(&self.node)).await;
        self.host.start().await
    }

    /// Sends all entries and heartbeats without delay or loss. Returns whether the node has applied
    /// the leader's whole log; false if applying is stuck until a new entry comes.
    async fn heal(&mut self) -> bool {
        let (mut stalled, mut has_all) = (StalledApply::default(), false);
        for heartbeat in 1..=HEARTBEATS_MAX {
            self.revive().await;
            let points = self.node.points();
            if points.applied == self.leaders.last() {
                return true;
            }
            let (first, count) = match has_all {
                // Heartbeats, until one fails.
                true => (self.leaders.last() + 1, 0),
                // Entries after the committed ones, which surely equal the leader's.
                false => (points.local + 1, u64::MAX),
            };
            let answer = self.node.raft.append_entries(self.leaders.append(first, count)).await;
            has_all = matches!(answer, Ok(AppendEntriesResponse::Success));
            self.sent.note(&answer);
            tokio::time::sleep(ms(50)).await;
            let (applied, committed) = (LogIndex(points.applied), LogIndex(points.committed));
            if heartbeat % 10 == 0 && stalled.check(applied, committed, LogIndex(self.node.next() - 1)) {
                return false;
            }
        }
        let (node, leaders) = (self.node.points(), self.leaders.last());
        panic!("after everything has healed the node is at {node:?} of {leaders}");
    }
}

/// A new run: a node without data, and its first leader.
async fn start_run(seed: u64, install: Install, dir: &Path) -> Run {
    let root = dir.join("node");
    std::fs::create_dir_all(&root).unwrap();
    let host = Host::new(seed, root, install);
    let node = Arc::new(host.start().await);
    let report = Report { lives: 1, ..Report::default() };
    let rng = SmallRng::seed_from_u64(seed);
    Run { rng, host, node, leaders: Leaders::new(seed, dir), sent: Sent::default(), report }
}

async fn run_seed(seed: u64, life_ms: u64, install: Install, dir: &Path) -> Report {
    let mut run = start_run(seed, install, dir).await;
    let began = tokio::time::Instant::now();
    while began.elapsed() < ms(life_ms) {
        run.step().await;
        run.revive().await;
    }
    // The last leader stays, and all its entries are committed.
    run.leaders.change();
    run.leaders.commit(run.leaders.last());
    // After this pause all late messages have arrived.
    tokio::time::sleep(us(2 * DELAY_US_MAX)).await;
    if !run.heal().await {
        run.report.stuck = 1;
        run.leaders.write_blank();
        run.leaders.commit(run.leaders.last());
        assert!(run.heal().await, "a new entry does not help a node that is stuck");
    }
    run.leaders.apply(run.leaders.last()).await;
    assert_eq!(contents(&run.node.store), run.leaders.contents(), "the state is not that of a straight replay");
    run.report.broken = u64::from(run.report.panics > 0);
    run.report.entries = run.leaders.last();
    run.report.leaders = run.leaders.changes;
    run.report.snapshots = run.sent.snapshots.load(Ordering::Relaxed);
    run.report
}

/// The command line that replays one run.
fn replay_line(seed: u64) -> String {
    again(&format!("--soak 1 --first {seed}"), life_ms())
}

/// Runs the soak test with `lives` seeds, from `first` on, and snapshots installed by `install`.
/// Returns the totals. These variables replace the arguments and the length of a run:
/// `HEADWATER_SIM_FIRST`, `HEADWATER_SOAK_LIVES`, `HEADWATER_SIM_LIFE_MS` (default [`LIFE_MS`]).
fn soak(install: Install, first: u64, lives: u64) -> Report {
    let first = variable("HEADWATER_SIM_FIRST").unwrap_or(first);
    let lives = variable("HEADWATER_SOAK_LIVES").unwrap_or(lives);
    let each_ms = life_ms().unwrap_or(LIFE_MS);
    let mut total = Report::default();
    for seed in first..first + lives {
        let whole_run = || in_simulation(seed, |dir| async move { run_seed(seed, each_ms, install, &dir).await });
        let report = replayable(&replay_line(seed), whole_run);
        if report.panics + report.stuck > 0 {
            println!("{install:?}, seed {seed} ({}): {report}", replay_line(seed));
        }
        total.add(&report);
    }
    println!("{install:?}: {total}");
    total
}

/// If a snapshot is prepared before openraft receives it, as in the program, openraft does not
/// panic.
#[test]
fn defect_a_does_not_come_while_snapshots_lie_ready() {
    let report = soak(Install::Ready, 1, 2);
    assert!(report.snapshots > report.lives && report.leaders > 10 * report.lives, "too little happened: {report}");
    assert_eq!(report.panics, 0, "openraft panicked, in the lives that are printed above: {report}");
}

/// Seed of a run in which openraft panics twice if installations are slow ([`Install::Slow`]).
const BROKEN_SEED: u64 = 16;

/// During a slow installation of a snapshot openraft may panic, which ends the process. The next
/// process must reach the right state.
#[test]
fn defect_a_a_panic_is_the_end_of_the_process_and_the_next_one_is_whole() {
    let report = soak(Install::Slow, BROKEN_SEED, 1);
    assert!(report.snapshots > report.lives && report.leaders > 10 * report.lives, "too little happened: {report}");
    let choices = ["HEADWATER_SIM_FIRST", "HEADWATER_SOAK_LIVES", "HEADWATER_SIM_LIFE_MS"];
    if choices.iter().all(|name| variable(name).is_none()) {
        assert!(
            report.panics > 0,
            "openraft does not panic in run {BROKEN_SEED}: look for another, or the defect is gone"
        );
    }
}

/// A follower has entries up to 100, and knows that 90 are committed. Then it receives a snapshot
/// up to 95.
#[test]
fn defect_b_what_a_short_snapshot_leaves_unapplied_is_noticed_and_healed_by_a_blank_entry() {
    in_simulation(1, |dir: PathBuf| async move {
        let mut run = start_run(1, Install::Ready, &dir).await;
        run.leaders.write(100 - run.leaders.last());
        run.leaders.commit(90);
        let all = run.leaders.append(0, u64::MAX);
        run.node.raft.append_entries(all).await.unwrap();
        run.node.raft.wait(None).applied_index(Some(90), "what is committed").await.unwrap();
        run.leaders.commit(95);
        let snapshot = run.node.receive(&run.leaders.snapshot().await);
        run.node.raft.install_full_snapshot(run.leaders.vote(), snapshot).await.unwrap();
        run.leaders.commit(100);
        assert_eq!(run.leaders.committed(), 100);
        let healed_alone = run.heal().await;
        println!("{:?}", run.node.points());
        assert!(!healed_alone, "openraft goes on by itself now: `raft::stalled` may go");
        run.leaders.write_blank();
        run.leaders.commit(101);
        assert!(run.heal().await, "a blank entry does not help");
        run.leaders.apply(101).await;
        assert_eq!(contents(&run.node.store), run.leaders.contents());
    });
}

/// Debug assertions of openraft fail in harmless states: they must not be compiled into the
/// program.
#[test]
fn defect_c_no_profile_has_debug_assertions() {
    const { assert!(!cfg!(debug_assertions), "this is built with debug assertions") };
    let manifest = include_str!("../../../Cargo.toml");
    let profiles = manifest.lines().filter(|line| line.starts_with("[profile."));
    assert!(profiles.clone().count() > 0 && manifest.contains("debug-assertions = false"));
    assert!(!manifest.contains("debug-assertions = true"), "a profile turns debug assertions on");
    for profile in profiles {
        assert!(profile.starts_with("[profile.dev"), "{profile} is new here: does it turn debug assertions off?");
    }
}
