//! `headwater bench`: a load generator. Most loads speak `etcdserverpb`, to Headwater or etcd.
//! Those of commits, resources, services and followers speak other APIs of Headwater too; `flush`
//! asks no server.
//!
//! It often shares the machine with the measured servers, so it uses little processor time: for
//! most loads one thread by default, and a few HTTP/2 connections used directly. It encodes their
//! requests directly into the frame, and decodes answers only as far as they are counted.
//! Invariant: an operation counts as successful only if the server said OK. Every other result is
//! counted by its reason.

mod clock;
mod cpu;
mod drive;
mod flush;
mod follow;
mod lease;
mod ledger;
mod past;
mod protobuf;
mod report;
mod resource;
mod subscribe;
mod watch;
mod wire;
mod workload;

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use http::HeaderMap;

use drive::{Plan, RunLimit};
use error::CliError;
use flush::FlushArgs;
use follow::FollowArgs;
use headwater_client::{Attempt, Endpoints, Repeat};
use headwater_terminal::{ClientArgs, Freshness, connect, error, notice, output, parse_duration, parse_ttl, progress};
use lease::{LeaseArgs, LeaseExpiryArgs};
use report::{Report, Settings};
use resource::ResourceListArgs;
use subscribe::SubscribeArgs;
use watch::{WatchArgs, WatchLatencyArgs};
use workload::{Keys, Kind, Workload};

/// Generate load and measure
///
/// Every client has one operation under way at a time. Latency is measured from the moment the
/// operation was due, so that with --rate a stall shows in the percentiles of everything that had
/// to wait.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    workload: WorkloadArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum WorkloadArgs {
    /// Write single keys
    Put(LoadArgs),
    /// Read single keys
    Get(LoadArgs),
    /// Read ranges of --limit keys
    Range(RangeArgs),
    /// Read --limit keys as they were at one moment, by headwater.v1.Store or by etcd's API
    Past(past::PastArgs),
    /// Write --txn-ops keys in one transaction
    Txn(TxnArgs),
    /// Write --ops keys in one commit of headwater.v1.Store
    Commit(CommitArgs),
    /// Read and write single keys, --rw-ratio reads for each write
    Mixed(MixedArgs),
    /// Read and write typed resources, --rw-ratio reads for each write; registers the type
    /// bench.v1.Item
    Resource(MixedArgs),
    /// List many resources as one view, and let many connections begin to watch them at once
    ResourceList(ResourceListArgs),
    /// Grant leases and keep leases alive, --keep-alives for each grant
    Lease(LeaseArgs),
    /// Let very many leases run out together: are they gone in time, and how fast are puts
    /// meanwhile?
    LeaseExpiry(LeaseExpiryArgs),
    /// Watch keys and write to them: events a second, and whether every watcher gets every event
    Watch(WatchArgs),
    /// Watch keys and write to them slowly: how long an event takes from the put to the watcher
    WatchLatency(WatchLatencyArgs),
    Follow(FollowArgs),
    /// Subscribe to services and change their health: how long a change takes, what subscriptions
    /// cost, how fast they come back
    Subscribe(SubscribeArgs),
    Flush(FlushArgs),
}

#[derive(Clone, Debug, Args)]
struct RangeArgs {
    /// Keys in a range
    #[arg(long, default_value_t = 1000, value_name = "NUMBER")]
    limit: u64,
    #[command(flatten)]
    load: LoadArgs,
}

#[derive(Clone, Debug, Args)]
struct TxnArgs {
    /// Puts in a transaction
    #[arg(long, default_value_t = 8, value_name = "NUMBER")]
    txn_ops: usize,
    #[command(flatten)]
    load: LoadArgs,
}

#[derive(Clone, Debug, Args)]
struct CommitArgs {
    /// Puts in a commit
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    ops: usize,
    /// Give every commit an idempotency key
    #[arg(long)]
    idempotent: bool,
    #[command(flatten)]
    load: LoadArgs,
}

#[derive(Clone, Debug, Args)]
struct MixedArgs {
    /// Reads for each write
    #[arg(long, default_value_t = 1.0, value_name = "RATIO")]
    rw_ratio: f64,
    #[command(flatten)]
    load: LoadArgs,
}

// Arguments of every load of single operations. Not for help: each command has a text of its own.
#[derive(Clone, Debug, Args)]
struct LoadArgs {
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
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    duration: Option<Duration>,
    /// Bytes of a key, prefix included
    #[arg(long, default_value_t = 24, value_name = "BYTES")]
    key_size: usize,
    /// Bytes of a value
    #[arg(long, default_value_t = 256, value_name = "BYTES")]
    val_size: usize,
    /// Number of different keys
    #[arg(long, default_value_t = 100_000, value_name = "NUMBER")]
    keys: u64,
    /// Prefix of every key
    #[arg(long, default_value = "bench/", value_name = "TEXT")]
    prefix: String,
    /// Go through the keys in order instead of at random
    #[arg(long)]
    sequential: bool,
    /// Write every key once before measuring, so that reads find them
    #[arg(long)]
    fill: bool,
    /// Operations a second, on average, at most; delayed ones are caught up. 0 is no limit
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    rate: u64,
    /// Threads of the generator
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    threads: usize,
    /// Processor time that a client takes for each answer besides what the generator needs: stands
    /// for a heavier client. Latency includes it, and the wait for other clients of the thread
    #[arg(long, value_parser = parse_duration, default_value = "0s", value_name = "DURATION")]
    work: Duration,
    /// Seed of the random keys
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Servers whose processor time and memory are reported
    #[arg(long, value_delimiter = ',', value_name = "PID,…")]
    pids: Vec<u32>,
    /// End successfully although operations failed. A failed --fill remains a failure
    #[arg(long)]
    allow_errors: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// Clients that fill the key space before a measurement.
const FILL_CLIENTS: usize = 128;
const CONNS_MAX: usize = 8;

/// Runs a load and prints its report.
///
/// # Errors
///
/// [`CliError::Usage`] for options that cannot be used, alone or together; [`CliError::Finding`] if
/// the load found a fault, or if operations failed and that is not allowed;
/// [`CliError::Unreachable`], or for some loads another error, if there is no connection;
/// [`CliError::Refused`] if a server refuses the user; [`CliError::Other`] for other failures.
pub fn run(args: BenchArgs, client: &ClientArgs) -> Result<(), CliError> {
    let dialer = client.dialer()?;
    let name = |endpoint: &String| {
        let name = endpoint.trim_start_matches("http://").trim_end_matches('/');
        let asks_for_tls = dialer.has_tls() && !endpoint.contains("://");
        if asks_for_tls { format!("https://{name}") } else { name.to_owned() }
    };
    let endpoints: Arc<[String]> = client.endpoints.iter().map(name).collect();
    wire::dial_by(dialer);
    // The load that asks no server needs no user.
    if !matches!(args.workload, WorkloadArgs::Flush(_)) {
        wire::ask_with(credentials(&endpoints, client)?);
    }
    let (kind, load) = match args.workload {
        WorkloadArgs::Lease(args) => return lease::run(args, endpoints, client),
        WorkloadArgs::LeaseExpiry(args) => return lease::expiry(args, endpoints, client),
        WorkloadArgs::ResourceList(args) => return resource::list(args, endpoints, client),
        WorkloadArgs::Watch(args) => return watch::watch(args, endpoints, client),
        WorkloadArgs::WatchLatency(args) => return watch::latency(args, endpoints, client),
        WorkloadArgs::Follow(args) => return follow::run(args, endpoints, client),
        WorkloadArgs::Flush(args) => return flush::run(&args, client),
        WorkloadArgs::Subscribe(args) => return subscribe::run(args, endpoints, client),
        WorkloadArgs::Put(load) => (Kind::Put, load),
        WorkloadArgs::Get(load) => (Kind::Get, load),
        WorkloadArgs::Range(args) => (Kind::Range { limit: args.limit }, args.load),
        WorkloadArgs::Past(args) => (Kind::Past { limit: args.limit, moment: args.api.no_moment() }, args.load),
        WorkloadArgs::Txn(args) => (Kind::Txn { puts: args.txn_ops }, args.load),
        WorkloadArgs::Commit(args) => {
            let run = args.idempotent.then(rand::random);
            (Kind::Commit { puts: args.ops, run }, args.load)
        }
        WorkloadArgs::Mixed(args) => (Kind::Mixed { reads_per_write: args.rw_ratio }, args.load),
        WorkloadArgs::Resource(args) => (Kind::Resource { reads_per_write: args.rw_ratio }, args.load),
    };
    check(kind, &load)?;
    let is_resource = matches!(kind, Kind::Resource { .. });
    // The names of resources have no slashes.
    let prefix = if is_resource { load.prefix.replace('/', "-") } else { load.prefix.clone() };
    let keys = Keys::new(&prefix, load.key_size, load.keys).map_err(CliError::Usage)?;
    if is_resource {
        resource::register(&endpoints)?;
    }
    let workload = |kind| Workload {
        kind,
        keys: keys.clone(),
        value: bytes::Bytes::from(vec![b'x'; load.val_size]),
        clock: None,
        serializable: client.consistency == Freshness::Serializable,
        sequential: load.sequential,
        leases: Arc::default(),
    };
    let plan = |workload, clients: usize, stop, rate, what| Plan {
        endpoints: Arc::clone(&endpoints),
        workload,
        clients,
        conns: load.conns.unwrap_or_else(|| clients.min(CONNS_MAX)).min(clients),
        threads: load.threads.min(clients),
        stop,
        rate,
        seed: load.seed,
        timeout: client.timeout,
        work: Duration::ZERO,
        progress: (!load.quiet).then_some(what),
        ledger: None,
    };

    if load.fill {
        let filling = if is_resource { Kind::Resource { reads_per_write: 0.0 } } else { Kind::Put };
        let fill = Workload { sequential: true, ..workload(filling) };
        let outcome = drive::run(plan(fill, FILL_CLIENTS, RunLimit::After(load.keys), 0, "filling"))?;
        if outcome.failed() > 0 {
            return Err(CliError::Finding(format!("filling failed: {}", outcome.reasons())));
        }
    }
    let stop = match (load.total, load.duration) {
        (Some(total), _) => RunLimit::After(total),
        (None, duration) => RunLimit::At(duration.unwrap_or(Duration::from_secs(10))),
    };
    let kind = match kind {
        Kind::Past { limit, moment } => Kind::Past { limit, moment: past::choose(moment, &endpoints, &keys)? },
        kind => kind,
    };
    let before = cpu::Sample::take(&load.pids).map_err(CliError::Usage)?;
    let measured = plan(workload(kind), load.clients, stop, load.rate, kind.name());
    let outcome = drive::run(Plan { work: load.work, ..measured })?;
    let spent = before.until_now().map_err(CliError::Finding)?;
    let settings = Settings {
        workload: kind.name(),
        endpoints: endpoints.to_vec(),
        clients: load.clients,
        conns: load.conns.unwrap_or_else(|| load.clients.min(CONNS_MAX)).min(load.clients),
        key_size: load.key_size,
        val_size: load.val_size,
        keys: load.keys,
        consistency: if client.consistency == Freshness::Serializable { "s" } else { "l" },
        sequential: load.sequential,
        rate: load.rate,
        work_us: load.work.as_nanos() as f64 / 1e3,
    };
    let report = Report::new(settings, &outcome, spent);
    report.print(client.write_out)?;
    if outcome.failed() > 0 && !load.allow_errors {
        return Err(CliError::Finding(format!("{} operations failed: {}", outcome.failed(), outcome.reasons())));
    }
    Ok(())
}

/// Headers with a token of the user on the command line; empty without a user. The token is fetched
/// once for all clients: checking a password takes a server tens of milliseconds.
fn credentials(endpoints: &[String], client: &ClientArgs) -> Result<HeaderMap, CliError> {
    let Some(user) = client.credentials()? else { return Ok(HeaderMap::new()) };
    let endpoints = Endpoints::by(endpoints, wire::dialer())?.as_user(Some(user));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::other)?;
    // The connection of an attempt has a token already: nothing else is asked.
    let call = async |attempt: Attempt| {
        let mut request = tonic::Request::new(());
        attempt.authorize(&mut request);
        let (metadata, _, ()) = request.into_parts();
        Ok::<_, tonic::Status>(tonic::Response::new(metadata.into_headers()))
    };
    Ok(runtime.block_on(endpoints.call(Repeat::Harmless, client.timeout, call))?.into_inner())
}

fn check(kind: Kind, load: &LoadArgs) -> Result<(), CliError> {
    let above_zero = [
        ("--clients", load.clients as u64),
        ("--conns", load.conns.unwrap_or(1) as u64),
        ("--keys", load.keys),
        ("--threads", load.threads as u64),
        ("--total", load.total.unwrap_or(1)),
    ];
    if let Some((flag, _)) = above_zero.iter().find(|(_, value)| *value == 0) {
        return Err(CliError::Usage(format!("{flag} must be above zero")));
    }
    match kind {
        Kind::Range { limit } if limit == 0 || limit > load.keys => {
            Err(CliError::Usage(format!("--limit must lie between 1 and --keys ({})", load.keys)))
        }
        Kind::Past { limit, .. } => past::check(limit, load.keys, load.key_size, load.val_size, &load.prefix),
        Kind::Txn { puts } if puts == 0 || puts as u64 > load.keys => {
            Err(CliError::Usage(format!("--txn-ops must lie between 1 and --keys ({})", load.keys)))
        }
        Kind::Commit { puts, .. } if puts == 0 || puts as u64 > load.keys => {
            Err(CliError::Usage(format!("--ops must lie between 1 and --keys ({})", load.keys)))
        }
        Kind::Mixed { reads_per_write } | Kind::Resource { reads_per_write }
            if reads_per_write.is_nan() || reads_per_write < 0.0 =>
        {
            Err(CliError::Usage("--rw-ratio must not be negative".to_owned()))
        }
        Kind::Put
        | Kind::Get
        | Kind::Range { .. }
        | Kind::Txn { .. }
        | Kind::Commit { .. }
        | Kind::Mixed { .. }
        | Kind::Lease { .. }
        | Kind::Resource { .. } => Ok(()),
    }
}
