//! `headwater bench follow`: many followers of one subtree while it is written to. Some of the
//! followers do not read for a while.
//!
//! [`readers`] follow on a thread of their own; the writers are those of the other workloads. First
//! the writes alone are measured, then the same writes with followers. Invariant: a run succeeds
//! only if every follower received the last write of every key.

mod readers;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::clock::Clock;
use super::drive::{self, Outcome, Plan, RunLimit};
use super::workload::{Keys, Kind, Workload};
use super::{ClientArgs, cpu};
use crate::error::CliError;
use crate::output::{self, WriteOut};
use readers::{FollowTotals, Readers};

/// Prefix of all keys: the subtree that is followed.
const PREFIX: &str = "bench-follow/";
/// Bytes of a key.
const KEY_BYTES: usize = 24;
/// Clients that fill the subtree.
const FILL_CLIENTS: usize = 128;

/// Follow a subtree many times over while it is written to
#[derive(Clone, Debug, Args)]
pub(super) struct FollowArgs {
    /// Followers of the subtree
    #[arg(long, default_value_t = 1000, value_name = "NUMBER")]
    followers: usize,
    /// Number of the followers that stop reading while the writes continue
    #[arg(long, default_value_t = 100, value_name = "NUMBER")]
    slow: usize,
    /// Elements of the subtree
    #[arg(long, default_value_t = 10_000, value_name = "NUMBER")]
    elements: u64,
    /// Writes a second; 0 is as many as there can be
    #[arg(long, default_value_t = 1000, value_name = "NUMBER")]
    rate: u64,
    /// Writers
    #[arg(long, default_value_t = 32, value_name = "NUMBER")]
    clients: usize,
    /// Duration of each measurement: writes without followers, then with them
    #[arg(long, value_parser = crate::parse_duration, default_value = "10s", value_name = "DURATION")]
    duration: Duration,
    /// Bytes of a value, 8 at least
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    val_size: usize,
    /// Connections of the followers that read, spread over the endpoints
    #[arg(long, default_value_t = 16, value_name = "NUMBER")]
    conns: usize,
    /// Servers whose processor time and memory are reported
    #[arg(long, value_delimiter = ',', value_name = "PID,…")]
    pids: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct Report {
    followers: usize,
    slow: usize,
    elements: u64,
    /// Writes a second without followers.
    writes_alone: f64,
    /// Writes a second with followers.
    writes: f64,
    /// 99th percentile of the duration of a write without followers, microseconds.
    write_p99_us_alone: u64,
    /// 99th percentile of the duration of a write with followers, microseconds.
    write_p99_us: u64,
    /// Median time from the moment from which a write's latency counts until a follower that reads
    /// all the time had read it, microseconds. The followers that stop reading do not count.
    delivery_p50_us: u64,
    delivery_p99_us: u64,
    delivery_max_us: u64,
    /// Changes delivered after its first state to a follower that read all the time, on average.
    #[serde(rename = "told_reading")]
    delivered_reading: f64,
    /// Changes delivered after its first state to a slow follower, on average.
    #[serde(rename = "told_slow")]
    delivered_slow: f64,
    /// Resident memory of each server before the followers started, bytes.
    rss_bytes: Vec<u64>,
    /// Resident memory of each server with followers, bytes: the larger of two samples, after the
    /// writes with followers and at the end.
    rss_peak_bytes: Vec<u64>,
    /// Time from the start of the followers until every one had the state, seconds.
    states_seconds: f64,
}

pub(super) fn run(args: FollowArgs, endpoints: Arc<[String]>, client: &ClientArgs) -> Result<(), CliError> {
    if args.followers == 0 || args.slow > args.followers || args.elements == 0 || args.clients == 0 || args.conns == 0 {
        let text = "--followers, --elements, --clients and --conns must be above zero, and --slow at most --followers";
        return Err(CliError::Usage(text.to_owned()));
    }
    if args.val_size < 8 {
        return Err(CliError::Usage("--val-size must be at least 8, which is what a time takes".to_owned()));
    }
    let keys = Keys::new(PREFIX, KEY_BYTES, args.elements).map_err(CliError::Usage)?;
    let clock = Clock::start();
    let write = |clients: usize, stop, rate, sequential, what| {
        let workload = Workload {
            kind: Kind::Put,
            keys: keys.clone(),
            value: bytes::Bytes::from(vec![b'x'; args.val_size]),
            clock: Some(clock),
            serializable: false,
            sequential,
            leases: Arc::default(),
        };
        let conns = clients.min(8);
        let endpoints = Arc::clone(&endpoints);
        let plan = Plan {
            endpoints,
            workload,
            clients,
            conns,
            threads: 1,
            stop,
            rate,
            seed: 1,
            timeout: client.timeout,
            work: Duration::ZERO,
            progress: Some(what),
            ledger: None,
        };
        let outcome = drive::run(plan)?;
        match outcome.failed() {
            0 => Ok(outcome),
            _ => Err(CliError::Finding(format!("{what} failed: {}", outcome.reasons()))),
        }
    };
    write(FILL_CLIENTS, RunLimit::After(args.elements), 0, true, "filling")?;
    let alone = write(args.clients, RunLimit::At(args.duration), args.rate, false, "writing alone")?;
    let memory = |pids: &[u32]| pids.iter().map(|pid| cpu::resident_bytes(*pid)).collect::<Result<Vec<_>, _>>();
    let rss_bytes = memory(&args.pids).map_err(CliError::Usage)?;
    let before = cpu::Sample::take(&args.pids).map_err(CliError::Usage)?;
    let readers = Readers::start(&endpoints, &args, clock)?;
    let states_seconds = readers.wait_for_states()?;
    let with = write(args.clients, RunLimit::At(args.duration), args.rate, false, "writing with followers")?;
    let rss_while = memory(&args.pids).map_err(CliError::Finding)?;
    // One more write of every key, so that a follower can tell when it has everything.
    let found =
        readers.finish(|| write(args.clients, RunLimit::After(args.elements), args.rate, true, "the last writes"))?;
    let spent = before.until_now().map_err(CliError::Finding)?;
    let rss_peak_bytes = spent.servers.iter().zip(rss_while).map(|(server, seen)| server.rss_bytes.max(seen)).collect();
    print(&report(&args, &alone, &with, &found, (rss_bytes, rss_peak_bytes), states_seconds), client.write_out)
}

fn report(
    args: &FollowArgs,
    alone: &Outcome,
    with: &Outcome,
    found: &FollowTotals,
    (rss_bytes, rss_peak_bytes): (Vec<u64>, Vec<u64>),
    states_seconds: f64,
) -> Report {
    let rate = |outcome: &Outcome| outcome.succeeded() as f64 / outcome.elapsed.as_secs_f64();
    let p99 = |outcome: &Outcome| outcome.latencies.values().map(|it| it.value_at_quantile(0.99)).max().unwrap_or(0);
    let mean = |delivered: u64, count: usize| if count == 0 { 0.0 } else { delivered as f64 / count as f64 };
    Report {
        followers: args.followers,
        slow: args.slow,
        elements: args.elements,
        writes_alone: rate(alone),
        writes: rate(with),
        write_p99_us_alone: p99(alone),
        write_p99_us: p99(with),
        delivery_p50_us: found.latency.value_at_quantile(0.5),
        delivery_p99_us: found.latency.value_at_quantile(0.99),
        delivery_max_us: found.latency.max(),
        delivered_reading: mean(found.delivered_reading, args.followers - args.slow),
        delivered_slow: mean(found.delivered_slow, args.slow),
        rss_bytes,
        rss_peak_bytes,
        states_seconds,
    }
}

fn print(report: &Report, format: WriteOut) -> Result<(), CliError> {
    let out = &mut std::io::stdout();
    if format == WriteOut::Json {
        return output::print_json(out, report);
    }
    let millis = |micros: u64| format!("{:.1} ms", micros as f64 / 1000.0);
    let memory = |all: &[u64]| all.iter().map(|bytes| output::human_bytes(*bytes)).collect::<Vec<_>>().join(", ");
    let rows = [
        ("followers", format!("{} of {} elements, {} of them slow", report.followers, report.elements, report.slow)),
        ("states", format!("all sent after {:.1} s", report.states_seconds)),
        ("writes", format!("{:.0}/s (alone {:.0}/s)", report.writes, report.writes_alone)),
        ("a write, p99", format!("{} (alone {})", millis(report.write_p99_us), millis(report.write_p99_us_alone))),
        (
            "delivery",
            format!(
                "p50 {}, p99 {}, longest {}",
                millis(report.delivery_p50_us),
                millis(report.delivery_p99_us),
                millis(report.delivery_max_us)
            ),
        ),
        (
            "changes told",
            format!("{:.0} each, {:.0} each to the slow", report.delivered_reading, report.delivered_slow),
        ),
        ("memory", format!("{} before, {} at most", memory(&report.rss_bytes), memory(&report.rss_peak_bytes))),
    ];
    output::print_table(out, &["FOLLOW", ""], rows.map(|(name, value)| vec![name.to_owned(), value]))
}
