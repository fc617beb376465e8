//! A cluster in one thread: the same seed gives the same history (spec: reliability §4).
//!
//! Real are openraft, the state machine with its RocksDB, the rules of `fsm`, the event publisher and its history. Simulated
//! are time, the network, the disk of the log, and what goes wrong: members lose power, with whatever the log had not
//! flushed yet, and what the state had not; messages are late, lost, or do not get through; leaders hand over; snapshots are
//! made and sent. Clients write and read all the while, watchers follow and move from member to member.
//!
//! `scripts/sim` runs many seeds and prints the line that replays a failing one.

mod clients;
mod committed;
mod disk;
mod faults;
mod invariants;
mod member;
mod net;
mod runtime;
mod soak;
mod watchers;
mod world;

use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(crate) use runtime::TestRuntime;
pub(crate) use world::{Control, Options, Report, run};

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs a simulation: then work that blocks is done at once, so that its end comes at one place in the
/// history.
pub(crate) fn is_running() -> bool {
    RUNNING.get()
}

/// Runs one simulation with random numbers of this seed, and with a folder of its own.
///
/// The folder stays until everything that was in the simulation is gone, tasks of members that have lost their power among it:
/// a RocksDB that is closed writes once more, and if it cannot it first waits a second.
fn in_simulation<T, F: Future<Output = T>>(seed: u64, doing: impl FnOnce(PathBuf) -> F) -> T {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    RUNNING.set(true);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let done = runtime.block_on(TestRuntime::scope(seed, doing(dir.path().to_owned())));
    drop(runtime);
    RUNNING.set(false);
    done
}

/// Simulated time. The runtime's timers tell milliseconds apart, and what happens at the same one has no order that a seed
/// decides; so a simulated microsecond is one of its milliseconds.
const fn us(micros: u64) -> Duration {
    Duration::from_millis(micros)
}

const fn ms(millis: u64) -> Duration {
    us(millis * 1000)
}

/// How long a cluster lives before everything heals, simulated milliseconds.
const LIFE_MS: u64 = 8_000;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn options(seed: u64) -> Options {
    Options { seed, life_ms: variable("HEADWATER_SIM_LIFE_MS").unwrap_or(LIFE_MS), control: None }
}

/// `HEADWATER_SIM_SEEDS` (10) of them, from `HEADWATER_SIM_FIRST` (1) on.
#[test]
fn every_seed_keeps_every_invariant() {
    let first = variable("HEADWATER_SIM_FIRST").unwrap_or(1);
    let count = variable("HEADWATER_SIM_SEEDS").unwrap_or(10);
    let (began, mut totals) = (Instant::now(), Report::default());
    for seed in first..first + count {
        let report = run(options(seed));
        if !report.findings.is_empty() || std::env::var_os("HEADWATER_SIM_HISTORY").is_some() {
            for line in &report.history {
                println!("{line}");
            }
        }
        if !report.findings.is_empty() {
            println!("\nseed {seed} breaks:");
            for finding in &report.findings {
                println!("  {finding}");
            }
            panic!("replay it with: scripts/sim --seed {seed}");
        }
        totals.add(&report);
    }
    println!("{count} seeds from {first} on in {:.1} s: {totals}", began.elapsed().as_secs_f64());
    assert!(totals.acknowledged > 10 * count && totals.events > 10 * count, "too little happened: {totals}");
}

#[test]
fn a_seed_has_one_history() {
    let seed = variable("HEADWATER_SIM_FIRST").unwrap_or(7);
    let histories = [run(options(seed)), run(options(seed))].map(|report| report.history);
    for (number, (one, other)) in histories[0].iter().zip(&histories[1]).enumerate() {
        assert_eq!(one, other, "line {number} differs");
    }
    assert_eq!(histories[0].len(), histories[1].len());
    assert!(histories[0].len() > 100, "too little happened");
}

/// What must be found out within a hundred seeds, and by which invariant.
#[test]
fn every_control_is_found_out() {
    for control in Control::ALL {
        let found = (1..=100).find_map(|seed| {
            let report = run(Options { control: Some(control), ..options(seed) });
            report.findings.first().map(|finding| (seed, finding.clone()))
        });
        let Some((seed, finding)) = found else { panic!("nothing notices {control:?}") };
        println!("{control:?} is noticed with seed {seed}: {finding}");
        assert!(finding.starts_with(control.noticed_by()), "{control:?} is noticed by something else: {finding}");
    }
}
