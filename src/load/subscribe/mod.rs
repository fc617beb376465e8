//! `headwater bench subscribe`: many subscriptions to the service catalog, and changes of health
//! that reach them.
//!
//! Instances are registered by Consul's HTTP API and followed by Subscribe, as clients do it. A
//! change carries the time at which it was due, in the output of its check, so every delivery shows
//! its own latency. The rate of writes is measured with keys that no subscription follows, in
//! alternating phases with and without changes: a machine's speed drifts by more from one minute to
//! the next than a subscription costs. Invariant: every acknowledged change must reach every
//! subscription of its service; a run with fewer deliveries than that fails.

mod catalog;
mod report;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::runtime::Runtime;

use super::clock::Clock;
use super::cpu::{Sample, resident_bytes};
use super::drive::{self, Plan, RunLimit};
use super::report::Latency;
use super::workload::{Keys, Kind, Workload};
use crate::ClientArgs;
use crate::error::CliError;
use catalog::{Catalog, CatalogWriters, RateResult};
use report::{Report, Writing};
use streams::Streams;

/// Measures how fast changes of health reach subscribers, what subscriptions cost, and how fast
/// they come back.
///
/// Registers instances, then measures: a fresh subscription; changes of health at --rate; writes of
/// keys without and with such changes, in turn; then opens all subscriptions at once and measures
/// changes and writes again, with how long changes take to arrive; and all subscriptions at once
/// again, after their connections were cut.
#[derive(Clone, Debug, Args)]
pub(crate) struct SubscribeArgs {
    /// Instances that are registered
    #[arg(long, default_value_t = 10_000, value_name = "NUMBER")]
    instances: usize,
    /// Services of the instances
    #[arg(long, default_value_t = 1_000, value_name = "NUMBER")]
    services: usize,
    /// Streams, each of one service
    #[arg(long, default_value_t = 5_000, value_name = "NUMBER")]
    subscriptions: usize,
    /// Changes of health a second
    #[arg(long, default_value_t = 500, value_name = "NUMBER")]
    rate: u64,
    /// Duration of each of the six measurements
    #[arg(long, default_value = "12s", value_parser = crate::parse_duration, value_name = "DURATION")]
    duration: Duration,
    /// Writes of keys under way at once
    #[arg(long, default_value_t = 64, value_name = "NUMBER")]
    clients: usize,
    /// Connections that carry the streams, spread over the endpoints [default: one for every 100
    /// streams]
    #[arg(long, value_name = "NUMBER")]
    conns: Option<usize>,
    /// Fresh subscriptions that are timed one by one
    #[arg(long, default_value_t = 200, value_name = "NUMBER")]
    probes: usize,
    /// Prefix of the names of nodes, services and instances, and of keys
    #[arg(long, default_value = "bench", value_name = "TEXT")]
    prefix: String,
    /// The instances are there already
    #[arg(long)]
    no_fill: bool,
    /// Servers whose processor time and memory are reported
    #[arg(long, value_delimiter = ',', value_name = "PID,…")]
    pids: Vec<u32>,
}

/// Most streams of one connection, if the user does not choose the number of connections.
const STREAMS_PER_CONN: usize = 100;
/// Pause before memory is read: allocators give back and take memory meanwhile.
const SETTLE: Duration = Duration::from_secs(2);
/// Number of keys that are written.
const KEYS: u64 = 10_000;
/// Smallest length of a key, bytes; a longer prefix makes longer keys.
const KEY_BYTES: usize = 32;
/// Length of a value, bytes.
const VALUE_BYTES: usize = 256;
/// Rounds of the measurement of writes, count. Each has two phases of equal length, both at full
/// speed: one writes keys alone, the other writes keys while health changes.
const WRITE_ROUNDS: u32 = 6;
/// Most connections of the writers.
const WRITER_CONNS_MAX: usize = 8;

pub(super) fn run(args: SubscribeArgs, endpoints: Arc<[String]>, client: &ClientArgs) -> Result<(), CliError> {
    let above_zero = [
        ("--instances", args.instances as u64),
        ("--services", args.services as u64),
        ("--subscriptions", args.subscriptions as u64),
        ("--rate", args.rate),
        ("--clients", args.clients as u64),
        ("--conns", args.conns.unwrap_or(1) as u64),
    ];
    if let Some((flag, _)) = above_zero.iter().find(|(_, value)| *value == 0) {
        return Err(CliError::Usage(format!("{flag} must be above zero")));
    }
    if args.services > args.instances {
        return Err(CliError::Usage("--services must be at most --instances, or some have none".to_owned()));
    }
    let keys = Keys::new(&format!("{}/", args.prefix), KEY_BYTES.max(args.prefix.len() + 8), KEYS);
    let keys = keys.map_err(CliError::Usage)?;
    let catalog = Arc::new(Catalog::new(&args.prefix, args.instances, args.services, Clock::start()));
    // Changes are sent from this thread, keys and streams have threads of their own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::other)?;
    let load = runtime.block_on(CatalogWriters::connect(Arc::clone(&catalog), &endpoints, args.clients))?;
    let writes = Writes { endpoints: Arc::clone(&endpoints), keys, clients: args.clients, timeout: client.timeout };
    let report = Run { args, endpoints, catalog, load, writes, runtime }.measure()?;
    report.print(client.write_out)?;
    match report.missing {
        0 => Ok(()),
        missing => Err(CliError::Finding(format!("{missing} deliveries are missing"))),
    }
}

struct Run {
    args: SubscribeArgs,
    endpoints: Arc<[String]>,
    catalog: Arc<Catalog>,
    load: CatalogWriters,
    writes: Writes,
    runtime: Runtime,
}

/// Writes keys that no subscription follows, to measure the speed of writes.
struct Writes {
    endpoints: Arc<[String]>,
    keys: Keys,
    clients: usize,
    timeout: Duration,
}

impl Writes {
    /// Writes as fast as possible; returns the writes a second. An error if a write failed.
    fn run(&self, stop: RunLimit, sequential: bool) -> Result<f64, CliError> {
        let outcome = drive::run(Plan {
            endpoints: Arc::clone(&self.endpoints),
            workload: Workload {
                kind: Kind::Put,
                keys: self.keys.clone(),
                value: vec![b'x'; VALUE_BYTES].into(),
                clock: None,
                serializable: false,
                sequential,
                leases: Arc::default(),
            },
            clients: self.clients,
            conns: self.clients.min(WRITER_CONNS_MAX),
            threads: 1,
            stop,
            rate: 0,
            seed: 1,
            timeout: self.timeout,
            work: Duration::ZERO,
            progress: None,
            ledger: None,
        })?;
        match outcome.failed() {
            0 => Ok(outcome.succeeded() as f64 / outcome.elapsed.as_secs_f64()),
            failed => Err(CliError::Finding(format!("{failed} writes failed: {}", outcome.reasons()))),
        }
    }
}

/// Changes of health, with their cost to the servers.
struct Changes {
    done: RateResult,
    /// Microseconds of processor time a change, all servers together.
    cpu_us: f64,
}

impl Run {
    fn measure(self) -> Result<Report, CliError> {
        let Self { args, endpoints, catalog, .. } = &self;
        let filled = if args.no_fill { None } else { Some(self.runtime.block_on(self.load.fill())?) };
        self.writes.run(RunLimit::After(KEYS), true)?;
        let conns = args.conns.unwrap_or_else(|| args.subscriptions.div_ceil(STREAMS_PER_CONN)).max(endpoints.len());

        let fresh = streams::probe(catalog, endpoints, args.probes)?;
        let changes_alone = self.change()?;
        let (unheard, _) = self.write_in_turns()?;

        std::thread::sleep(SETTLE);
        let before = self.memory()?;
        let (streams, first_storm) = Streams::open(catalog, endpoints, conns, args.subscriptions)?;
        std::thread::sleep(SETTLE);
        let idle = self.memory()?;

        streams.begin_counting();
        let changes = self.change()?;
        let (delivery, missing) = streams.end_counting(expected(&streams, &changes.done))?;
        streams.begin_counting();
        let (with_subscriptions, busy) = self.write_in_turns()?;
        let (delivery_busy, missing_busy) = streams.end_counting(expected(&streams, &busy))?;

        streams.close()?;
        let (streams, second_storm) = Streams::open(catalog, endpoints, conns, args.subscriptions)?;
        streams.close()?;

        let bytes: u64 = before.iter().zip(&idle).map(|(before, idle)| idle.saturating_sub(*before)).sum();
        let measured = !args.pids.is_empty();
        Ok(Report {
            instances: args.instances,
            services: args.services,
            subscriptions: args.subscriptions,
            conns,
            rate: args.rate,
            registrations_per_second: filled,
            fresh: Latency::of(&fresh),
            delivery: Latency::of(&delivery),
            delivery_beside_writes: Latency::of(&delivery_busy),
            delivered: delivery.len() + delivery_busy.len(),
            missing: missing + missing_busy,
            changes_failed: changes_alone.done.failed + changes.done.failed + busy.failed,
            writes: unheard,
            writes_with_subscriptions: with_subscriptions,
            cpu_us_per_change: measured.then_some(changes_alone.cpu_us),
            cpu_us_per_change_with_subscriptions: measured.then_some(changes.cpu_us),
            all_live_ms: first_storm.as_millis() as u64,
            all_live_again_ms: second_storm.as_millis() as u64,
            resident_bytes: idle,
            bytes_per_subscription: measured.then(|| bytes / args.subscriptions as u64),
        })
    }

    /// Changes health at `--rate` for `--duration`, and measures the servers' processor time.
    fn change(&self) -> Result<Changes, CliError> {
        let before = Sample::take(&self.args.pids).map_err(CliError::Usage)?;
        let done = self.runtime.block_on(self.load.at_rate(self.args.rate, self.args.duration))?;
        let spent = before.until_now().map_err(CliError::Finding)?;
        let seconds: f64 = spent.servers.iter().map(|server| server.cpu_seconds).sum();
        let cpu_us = seconds * 1e6 / done.changed.len().max(1) as f64;
        Ok(Changes { done, cpu_us })
    }

    /// Writes keys as fast as possible, in alternating phases without and with changes of health;
    /// returns both speeds and the changes.
    fn write_in_turns(&self) -> Result<(Writing, RateResult), CliError> {
        let duration = self.args.duration / WRITE_ROUNDS;
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        let mut changes = RateResult::default();
        for turn in 0..WRITE_ROUNDS {
            // The order alternates: a turn leaves some work behind for the next one.
            for with_changes in [turn % 2 == 1, turn % 2 == 0] {
                if with_changes {
                    let (writes, done) = self.write_and_change(duration)?;
                    beside.push(writes);
                    changes.extend(done);
                } else {
                    alone.push(self.writes.run(RunLimit::At(duration), false)?);
                }
            }
        }
        Ok((Writing::of(&alone, &beside), changes))
    }

    /// Writes keys as fast as possible while health changes; returns the writes a second and the
    /// changes.
    fn write_and_change(&self, duration: Duration) -> Result<(f64, RateResult), CliError> {
        std::thread::scope(|scope| {
            let (writes, stop) = (&self.writes, RunLimit::At(duration));
            let writes = scope.spawn(move || writes.run(stop, false));
            let changes = self.runtime.block_on(self.load.at_rate(self.args.rate, duration));
            let writes = writes.join().map_err(|_| CliError::Finding("the writers' thread panicked".to_owned()))?;
            Ok((writes?, changes?))
        })
    }

    fn memory(&self) -> Result<Vec<u64>, CliError> {
        self.args.pids.iter().map(|pid| resident_bytes(*pid).map_err(CliError::Finding)).collect()
    }
}

/// Number of deliveries that the acknowledged changes must have: one for each subscription of their
/// services.
fn expected(streams: &Streams, changes: &RateResult) -> u64 {
    changes.changed.iter().map(|service| streams.of_service(*service)).sum()
}
