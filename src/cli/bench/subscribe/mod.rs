//! `headwater bench subscribe`: many subscriptions to the service catalog, and changes of health that reach them.
//!
//! Instances are registered by Consul's HTTP API and followed by Subscribe, as clients do it. A change carries the time at which
//! it was due, in the output of its check, so every delivery tells its own latency. Invariant: every acknowledged change must
//! reach every subscription of its service once; what is missing is a failure.

mod catalog;
mod report;
mod streams;

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use hdrhistogram::Histogram;

use super::cpu::resident_bytes;
use super::report::Latency;
use crate::cli::ClientArgs;
use crate::cli::error::CliError;
use catalog::{Catalog, Load};
use report::Report;
use streams::Streams;

/// Measures how fast changes of health reach subscribers, what subscriptions cost, and how fast they come back.
///
/// Registers instances, then measures in turn: a fresh subscription; writes without subscriptions; all subscriptions at once;
/// changes at --rate and how long they take to arrive; writes with subscriptions; all subscriptions at once again, after their
/// connections were cut.
#[derive(Clone, Debug, Args)]
pub(in crate::cli::bench) struct SubscribeArgs {
    /// Instances that are registered
    #[arg(long, default_value_t = 10_000, value_name = "NUMBER")]
    instances: usize,
    /// Services that they are of
    #[arg(long, default_value_t = 1_000, value_name = "NUMBER")]
    services: usize,
    /// Streams, each of one service
    #[arg(long, default_value_t = 5_000, value_name = "NUMBER")]
    subscriptions: usize,
    /// Changes of health a second
    #[arg(long, default_value_t = 500, value_name = "NUMBER")]
    rate: u64,
    /// How long each of the three measurements with writes takes
    #[arg(long, default_value = "10s", value_parser = crate::cli::parse_duration, value_name = "DURATION")]
    duration: Duration,
    /// Writes under way at once
    #[arg(long, default_value_t = 64, value_name = "NUMBER")]
    clients: usize,
    /// Connections that carry the streams, spread over the endpoints [default: one for every 100 streams]
    #[arg(long, value_name = "NUMBER")]
    conns: Option<usize>,
    /// Fresh subscriptions that are timed one by one
    #[arg(long, default_value_t = 200, value_name = "NUMBER")]
    probes: usize,
    /// What every name begins with
    #[arg(long, default_value = "bench", value_name = "TEXT")]
    prefix: String,
    /// The instances are there already
    #[arg(long)]
    no_fill: bool,
    /// Servers whose memory is reported
    #[arg(long, value_delimiter = ',', value_name = "PID,…")]
    pids: Vec<u32>,
}

/// Streams on one connection, unless the user chooses.
const STREAMS_PER_CONN: usize = 100;
/// Longest wait for what must arrive.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest latency that is told apart from longer ones, microseconds.
const LATENCY_US_MAX: u64 = 600_000_000;
/// Pause before memory is read: allocators give back and take what they like meanwhile.
const SETTLE: Duration = Duration::from_secs(2);

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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::other)?;
    let report = runtime.block_on(measure(args, &endpoints))?;
    report.print(client.write_out)?;
    match report.missing {
        0 => Ok(()),
        missing => Err(CliError::Finding(format!("{missing} deliveries are missing"))),
    }
}

async fn measure(args: SubscribeArgs, endpoints: &[String]) -> Result<Report, CliError> {
    let catalog = Arc::new(Catalog::new(&args.prefix, args.instances, args.services));
    let load = Load::new(Arc::clone(&catalog), endpoints, args.clients)?;
    let filled = if args.no_fill { None } else { Some(load.fill().await?) };
    let conns = args.conns.unwrap_or_else(|| args.subscriptions.div_ceil(STREAMS_PER_CONN)).max(endpoints.len());

    let mut fresh = Histogram::<u64>::new_with_bounds(1, LATENCY_US_MAX, 3).map_err(CliError::other)?;
    let probe = Streams::connect(Arc::clone(&catalog), endpoints, endpoints.len())?;
    for number in 0..args.probes {
        let took = probe.probe(number, PATIENCE).await?;
        fresh.saturating_record(took.as_micros() as u64);
    }
    let alone = load.as_fast_as_possible(args.duration).await?;

    let memory = |pids: &[u32]| -> Result<Vec<u64>, CliError> {
        pids.iter().map(|pid| resident_bytes(*pid).map_err(CliError::Finding)).collect()
    };
    tokio::time::sleep(SETTLE).await;
    let before = memory(&args.pids)?;
    let mut streams = Streams::connect(Arc::clone(&catalog), endpoints, conns)?;
    let began = Instant::now();
    streams.open(args.subscriptions, PATIENCE).await?;
    let first_storm = began.elapsed();
    tokio::time::sleep(SETTLE).await;
    let idle = memory(&args.pids)?;

    streams.begin_counting();
    let steady = load.at_rate(args.rate, args.duration).await?;
    let expected = steady.changed.iter().map(|service| streams.of_service(*service)).sum();
    let missing = streams.wait_delivered(expected, PATIENCE).await;
    let delivery = streams.end_counting();
    let accompanied = load.as_fast_as_possible(args.duration).await?;

    streams.close().await;
    let mut streams = Streams::connect(Arc::clone(&catalog), endpoints, conns)?;
    let began = Instant::now();
    streams.open(args.subscriptions, PATIENCE).await?;
    let second_storm = began.elapsed();

    let subscriptions = args.subscriptions as u64;
    let bytes_per_subscription =
        before.iter().zip(&idle).map(|(before, idle)| idle.saturating_sub(*before)).sum::<u64>();
    Ok(Report {
        instances: args.instances,
        services: args.services,
        subscriptions: args.subscriptions,
        conns,
        rate: args.rate,
        registrations_per_second: filled,
        fresh: Latency::of(&fresh),
        delivery: Latency::of(&delivery),
        delivered: delivery.len(),
        missing,
        changes_failed: steady.failed,
        writes_per_second_alone: alone,
        writes_per_second_with_subscriptions: accompanied,
        all_live_ms: first_storm.as_millis() as u64,
        all_live_again_ms: second_storm.as_millis() as u64,
        resident_bytes: idle,
        bytes_per_subscription: (!args.pids.is_empty()).then(|| bytes_per_subscription / subscriptions),
    })
}
