//! A cluster in one thread: the same seed gives the same history (spec: reliability §4).
//!
//! Real are openraft, the state machine with its RocksDB, the rules of `fsm`, the event publisher
//! and history. Simulated are time, the network, the disk of the log, and faults: members lose
//! power, and with it unflushed writes of log and state; messages are late or lost; links break;
//! leaders transfer leadership; members make and send snapshots. Clients write and read meanwhile;
//! watchers follow keys, and move from member to member.
//!
//! `scripts/sim` runs many seeds, and prints the command line that replays a failing one.

// The whole program is a test; clippy allows `unwrap` only in functions marked as tests.
#![allow(clippy::unwrap_used)]

mod clients;
mod committed;
mod disk;
mod faults;
mod golden;
mod invariants;
mod member;
mod net;
mod operator;
mod soak;
mod watchers;
mod world;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use headwater_raft::simulation::{Running, TestRuntime, is_running};
use world::spawn;
pub(crate) use world::{Control, Options, Report, run};

/// Runs `doing` in a runtime with simulated time and the random numbers of this seed, with a new
/// folder.
///
/// The folder stays until all objects of the simulation are dropped, also those held by tasks of
/// members that have lost power: a RocksDB writes once more when it is closed, and if it cannot, it
/// waits a second first.
fn in_simulation<T, F: Future<Output = T>>(seed: u64, doing: impl FnOnce(PathBuf) -> F) -> T {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let running = Running::begin();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let done = runtime.block_on(TestRuntime::scope(seed, doing(dir.path().to_owned())));
    drop(runtime);
    drop(running);
    done
}

/// Runs a life. If it panics, panics with its message and `line`, the command that replays it.
fn replayable<T>(line: &str, life: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(life)).unwrap_or_else(|panic| panic!("{}; replay it with: {line}", said(&*panic)))
}

/// The message of a panic.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref().map(|text: &&str| text.to_string())).unwrap_or_else(|| "a panic".to_owned())
}

/// The command line that repeats a run of `scripts/sim`: `what` has its arguments, `life_ms` the
/// length of lives if the user has set it.
fn again(what: &str, life_ms: Option<u64>) -> String {
    match life_ms {
        None => format!("scripts/sim {what}"),
        Some(life_ms) if life_ms % 1000 == 0 => format!("scripts/sim {what} --life {}", life_ms / 1000),
        Some(life_ms) => format!("HEADWATER_SIM_LIFE_MS={life_ms} scripts/sim {what}"),
    }
}

/// A duration of `micros` simulated microseconds. Each is a millisecond of the runtime, because
/// timers of tokio have a resolution of milliseconds, and events of one millisecond have an order
/// of their own.
const fn us(micros: u64) -> Duration {
    Duration::from_millis(micros)
}

const fn ms(millis: u64) -> Duration {
    us(millis * 1000)
}

/// Default time of a life until all faults are healed, simulated milliseconds.
const LIFE_MS: u64 = 8_000;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// The length of lives that the user has set, simulated milliseconds; `None` for the default.
fn life_ms() -> Option<u64> {
    variable("HEADWATER_SIM_LIFE_MS")
}

fn options(seed: u64) -> Options {
    Options { seed, life_ms: life_ms().unwrap_or(LIFE_MS), mixed: seed.is_multiple_of(2), control: None }
}

fn one_seed(seed: u64) -> String {
    again(&format!("--seed {seed}"), life_ms())
}

/// Runs `HEADWATER_SIM_SEEDS` seeds (default 10), from `HEADWATER_SIM_FIRST` (default 1) on.
#[test]
fn every_seed_keeps_every_invariant() {
    let first = variable("HEADWATER_SIM_FIRST").unwrap_or(1);
    let count = variable("HEADWATER_SIM_SEEDS").unwrap_or(10);
    let (began, mut totals) = (Instant::now(), Report::default());
    for seed in first..first + count {
        let report = replayable(&one_seed(seed), || run(options(seed)));
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
            panic!("replay it with: {}", one_seed(seed));
        }
        totals.add(&report);
    }
    println!("{count} seeds from {first} on in {:.1} s: {totals}", began.elapsed().as_secs_f64());
    assert!(totals.acknowledged > 10 * count && totals.events > 10 * count, "too little happened: {totals}");
}

#[test]
fn a_seed_has_one_history() {
    let seed = variable("HEADWATER_SIM_FIRST").unwrap_or(7);
    let histories = [(); 2].map(|()| replayable(&one_seed(seed), || run(options(seed))).history);
    for (number, (one, other)) in histories[0].iter().zip(&histories[1]).enumerate() {
        assert_eq!(one, other, "line {number} differs");
    }
    assert_eq!(histories[0].len(), histories[1].len());
    assert!(histories[0].len() > 100, "too little happened");
}

#[test]
fn a_life_that_panics_names_the_line_that_replays_it() {
    for (what, life_ms, line) in [
        ("--seed 7", None, "scripts/sim --seed 7"),
        ("--seed 7", Some(3000), "scripts/sim --seed 7 --life 3"),
        ("--soak 1 --first 7", Some(500), "HEADWATER_SIM_LIFE_MS=500 scripts/sim --soak 1 --first 7"),
    ] {
        assert_eq!(again(what, life_ms), line);
    }
    let life = || in_simulation(7, |_| async { spawn(async { panic!("something is wrong") }).await.unwrap() });
    let panic = catch_unwind(|| replayable("scripts/sim --seed 7", life)).unwrap_err();
    let text = said(&*panic);
    assert!(text.contains("something is wrong") && text.ends_with("; replay it with: scripts/sim --seed 7"), "{text}");
    assert!(!is_running());
}

/// Each control must be detected with one of the first hundred seeds, and the first finding must be
/// that of its own invariant.
#[test]
fn every_control_is_found_out() {
    for control in Control::ALL {
        let found = (1..=100).find_map(|seed| {
            let line = format!("{} ({control:?}, seed {seed})", again("--controls", life_ms()));
            let report = replayable(&line, || run(Options { control: Some(control), ..options(seed) }));
            report.findings.first().map(|finding| (seed, finding.clone()))
        });
        let Some((seed, finding)) = found else { panic!("nothing notices {control:?}") };
        println!("{control:?} is noticed with seed {seed}: {finding}");
        assert!(finding.starts_with(control.noticed_by()), "{control:?} is noticed by something else: {finding}");
    }
}
