//! `headwater bench lease`: grants and keep-alives; `lease-expiry` measures how leases end.
//!
//! `lease` opens a stream for each keep-alive, as etcd's benchmark does: one request, one answer.
//! `lease-expiry` sends many keep-alives on each stream.

mod expiry;
mod setup;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::report::{Report, Settings};
use super::workload::{Keys, Kind, Workload};
use super::{CONNS_MAX, cpu, drive};
use crate::ClientArgs;
use crate::error::CliError;
use drive::{Plan, RunLimit};

pub(super) use expiry::{LeaseExpiryArgs, run as expiry};
pub(super) use setup::connect;

#[derive(Clone, Debug, Args)]
pub(super) struct LeaseArgs {
    /// Operations under way at once
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    clients: usize,
    /// Connections that the clients share, spread over the endpoints [default: one for each client,
    /// at most 8]
    #[arg(long, value_name = "NUMBER")]
    conns: Option<usize>,
    /// Stop after so many operations
    #[arg(long, conflicts_with = "duration", value_name = "NUMBER")]
    total: Option<u64>,
    /// Stop after so long [default: 10s]
    #[arg(long, value_parser = crate::parse_duration, value_name = "DURATION")]
    duration: Option<Duration>,
    /// Keep-alives for each grant; with inf, only keep-alives are sent, no grants
    #[arg(long, default_value_t = 1.0, value_name = "RATIO")]
    keep_alives: f64,
    /// Leases that are granted before measuring, to be kept alive
    #[arg(long, default_value_t = 1000, value_name = "NUMBER")]
    leases: usize,
    /// Time to live of every lease; the leases are left to expire
    #[arg(long, value_parser = crate::parse_ttl, default_value = "10m", value_name = "SECONDS")]
    ttl: i64,
    /// Operations a second at most; 0 is no limit
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    rate: u64,
    /// Threads of the generator
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    threads: usize,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Bytes of a value: accepted so that all loads take the same options, and not used
    #[arg(long, hide = true)]
    val_size: Option<usize>,
    /// Servers whose processor time and memory are reported
    #[arg(long, value_delimiter = ',', value_name = "PID,…")]
    pids: Vec<u32>,
    /// End successfully although operations failed
    #[arg(long)]
    allow_errors: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

pub(super) fn run(args: LeaseArgs, endpoints: Arc<[String]>, client: &ClientArgs) -> Result<(), CliError> {
    for (flag, value) in [("--clients", args.clients), ("--threads", args.threads), ("--leases", args.leases)] {
        if value == 0 {
            return Err(CliError::Usage(format!("{flag} must be above zero")));
        }
    }
    if args.keep_alives.is_nan() || args.keep_alives < 0.0 {
        return Err(CliError::Usage("--keep-alives must not be negative".to_owned()));
    }
    let conns = args.conns.unwrap_or(CONNS_MAX).clamp(1, args.clients);
    let leases = setup::grant_all(&endpoints, args.leases, args.ttl)?;
    let kind = Kind::Lease { keep_alives_per_grant: args.keep_alives, ttl_seconds: args.ttl };
    let workload = Workload {
        kind,
        keys: Keys::new("", 20, 1).map_err(CliError::Usage)?,
        value: bytes::Bytes::new(),
        clock: None,
        serializable: false,
        sequential: false,
        leases: leases.into(),
    };
    let stop = match (args.total, args.duration) {
        (Some(total), _) => RunLimit::After(total),
        (None, duration) => RunLimit::At(duration.unwrap_or(Duration::from_secs(10))),
    };
    let plan = Plan {
        endpoints: Arc::clone(&endpoints),
        workload,
        clients: args.clients,
        conns,
        threads: args.threads.min(args.clients),
        stop,
        rate: args.rate,
        seed: args.seed,
        timeout: client.timeout,
        work: Duration::ZERO,
        progress: (!args.quiet).then_some(kind.name()),
        ledger: None,
    };
    let before = cpu::Sample::take(&args.pids).map_err(CliError::Usage)?;
    let outcome = drive::run(plan)?;
    let spent = before.until_now().map_err(CliError::Finding)?;
    let settings = Settings {
        workload: kind.name(),
        endpoints: endpoints.to_vec(),
        clients: args.clients,
        conns,
        key_size: 0,
        val_size: 0,
        keys: 0,
        consistency: "l",
        sequential: false,
        rate: args.rate,
        work_us: 0.0,
    };
    Report::new(settings, &outcome, spent).print(client.write_out)?;
    if outcome.failed() > 0 && !args.allow_errors {
        return Err(CliError::Finding(format!("{} operations failed: {}", outcome.failed(), outcome.reasons())));
    }
    Ok(())
}
