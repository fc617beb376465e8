//! `headwater bench lease-expiry`: very many leases expire within a few seconds. Measures whether
//! each is removed in time and none too early, and the rate of puts during that time.
//!
//! Every lease has a key, and a watch sees the removal of the key. All leases are kept alive once
//! more, at an even pace, so that they run out at that pace. Times are of this machine's clock. A
//! removal is early if the time to live had not passed since the keep-alive was sent. Its lateness
//! counts from the time to live after the answer.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use futures::stream::{self, StreamExt};
use serde::Serialize;
use tonic::Streaming;
use tonic::transport::Channel;

use super::super::cpu::{CpuUsage, Sample};
use super::super::drive::{self, Outcome, Plan, RunLimit, new_histogram};
use super::super::report::{Latency, latency_table};
use super::super::workload::{Keys, Kind, Workload};
use super::super::{CONNS_MAX, wire};
use super::setup;
use crate::ClientArgs;
use crate::error::CliError;
use crate::notice;
use crate::output::{self, WriteOut, human_bytes};
use headwater_proto::pb::etcdserverpb::lease_client::LeaseClient;
use headwater_proto::pb::etcdserverpb::watch_client::WatchClient;
use headwater_proto::pb::etcdserverpb::watch_request::RequestUnion;
use headwater_proto::pb::etcdserverpb::{LeaseKeepAliveRequest, WatchCreateRequest, WatchRequest, WatchResponse};
use headwater_proto::pb::mvccpb::event::EventType;
use headwater_types::KeyRange;

/// Number of streams on which leases are kept alive, for each endpoint.
const STREAMS: usize = 4;
/// Longest wait for the last leases, counted from the time at which they should be gone.
const EXPIRY_TIMEOUT: Duration = Duration::from_secs(120);
/// Pause between the keep-alives and the first measurement of puts, which they would disturb.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Args)]
pub(crate) struct LeaseExpiryArgs {
    /// Leases, each with a key
    #[arg(long, default_value_t = 100_000, value_name = "NUMBER")]
    leases: usize,
    /// Time within which they run out; puts are measured for as long before and meanwhile
    #[arg(long, value_parser = crate::parse_duration, default_value = "10s", value_name = "DURATION")]
    within: Duration,
    /// Time to live of each lease; must be longer than granting all leases takes plus two times
    /// --within
    #[arg(long, value_parser = crate::parse_ttl, default_value = "60", value_name = "SECONDS")]
    ttl: i64,
    /// Puts under way at once
    #[arg(long, default_value_t = 64, value_name = "NUMBER")]
    clients: usize,
    /// Bytes of a value
    #[arg(long, default_value_t = 256, value_name = "BYTES")]
    val_size: usize,
    /// Fail if a lease is gone later than this
    #[arg(long, value_parser = crate::parse_duration, value_name = "DURATION")]
    late_max: Option<Duration>,
    /// Fail if the rate of puts meanwhile is less than this part of the rate before
    #[arg(long, value_name = "RATIO")]
    kept_min: Option<f64>,
    /// Servers whose processor time and memory are reported
    #[arg(long, value_delimiter = ',', value_name = "PID,…")]
    pids: Vec<u32>,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// Times of one lease: keep-alive sent, keep-alive answered, key removed.
#[derive(Clone, Copy, Debug, Default)]
struct LeaseTimes {
    sent: Option<Instant>,
    answered: Option<Instant>,
    gone: Option<Instant>,
}

#[derive(Serialize)]
struct Puts {
    per_second: f64,
    failed: u64,
    latency_us: Latency,
}

#[derive(Serialize)]
struct Report {
    leases: usize,
    ttl_seconds: i64,
    within_seconds: f64,
    /// Leases that were gone before the time to live had passed since the keep-alive was sent.
    early: usize,
    /// Leases that were not gone when the measurement gave up.
    left: usize,
    late_us: Latency,
    /// Time from the moment at which the last lease was due until the last removal that was seen,
    /// milliseconds. 0 if that removal came earlier.
    all_gone_after_ms: f64,
    puts_before: Puts,
    puts_during: Puts,
    /// The rate of puts while leases expired, as a part of the rate before.
    puts_kept: f64,
    /// Processor time of this process and of the servers since before the first grant. Memory of
    /// the servers at the end, and their peak.
    #[serde(flatten)]
    spent: CpuUsage,
}

pub(crate) fn run(args: LeaseExpiryArgs, endpoints: Arc<[String]>, client: &ClientArgs) -> Result<(), CliError> {
    if args.leases == 0 || args.clients == 0 || args.within.is_zero() {
        return Err(CliError::Usage("--leases, --clients and --within must be above zero".to_owned()));
    }
    let ttl = Duration::from_secs(u64::try_from(args.ttl).unwrap_or(0));
    if ttl < 2 * args.within + 3 * PAUSE {
        return Err(CliError::Usage("--ttl must be more than two times --within and three seconds".to_owned()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::other)?;
    let report = tokio::task::LocalSet::new().block_on(&runtime, measure(&args, ttl, &endpoints, client))?;
    report.print(client.write_out)?;
    report.judge(&args)
}

async fn measure(
    args: &LeaseExpiryArgs,
    ttl: Duration,
    endpoints: &Arc<[String]>,
    client: &ClientArgs,
) -> Result<Report, CliError> {
    let say = |what: &str| {
        if !args.quiet {
            notice!("{what}");
        }
    };
    let sample = Sample::take(&args.pids).map_err(CliError::Usage)?;
    // A prefix of its own, so that leftovers of an earlier run do not count.
    let prefix = format!("bench-lease/{:x}/", rand::random::<u32>());
    let channels = setup::connect(endpoints).await?;
    say(&format!("granting {} leases, each with a key", args.leases));
    let began = Instant::now();
    let leases = setup::granted(&channels, args.leases, args.ttl, Some(&prefix)).await?;
    say(&format!("granted in {:.1} s; keeping them alive once", began.elapsed().as_secs_f64()));
    let times = Rc::new(RefCell::new(vec![LeaseTimes::default(); leases.len()]));
    let removals = watch(&channels[0], &prefix).await?;
    let watching = tokio::task::spawn_local(see_removals(removals, prefix, Rc::clone(&times)));
    keep_alive_once(&channels, &leases, args.within, &times).await?;

    tokio::time::sleep(PAUSE).await;
    say("measuring puts");
    let before = puts(args, endpoints, client).await?;
    let (first, last) = {
        let times = times.borrow();
        let first = times.iter().filter_map(|life| life.sent).min();
        let last = times.iter().filter_map(|life| life.answered).max();
        first.zip(last).ok_or_else(|| CliError::Finding("no lease was kept alive".to_owned()))?
    };
    if Instant::now() > first + ttl {
        return Err(CliError::Finding("leases ran out while puts were measured; give a larger --ttl".to_owned()));
    }
    say("waiting for the leases to run out");
    tokio::time::sleep_until((first + ttl).into()).await;
    say("measuring puts while they do");
    let during = puts(args, endpoints, client).await?;
    match tokio::time::timeout_at((last + ttl + EXPIRY_TIMEOUT).into(), watching).await {
        Ok(Ok(Err(error))) => return Err(error),
        Ok(Err(error)) => return Err(CliError::other(error)),
        Ok(Ok(Ok(()))) | Err(_) => {}
    }
    let times = times.borrow();
    let spent = sample.until_now().map_err(CliError::Finding)?;
    Ok(Report::new(args, ttl, &times, [&before, &during], spent))
}

async fn watch(channel: &Channel, prefix: &str) -> Result<Streaming<WatchResponse>, CliError> {
    let range = KeyRange::prefix(prefix.to_owned().into_bytes().into());
    let (key, range_end) = match range {
        KeyRange::Span { start, end } => (start, end.unwrap_or_default()),
        KeyRange::One(key) => (key, bytes::Bytes::new()),
    };
    let create = WatchCreateRequest { key, range_end, ..WatchCreateRequest::default() };
    let first = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    let requests = stream::iter([first]).chain(stream::pending());
    let failed = |status: tonic::Status| CliError::Finding(format!("cannot watch: {}", status.message()));
    let mut client = WatchClient::new(channel.clone()).max_decoding_message_size(usize::MAX);
    let mut responses = client.watch(wire::request(requests)).await.map_err(failed)?.into_inner();
    // The first response confirms the watch.
    responses.message().await.map_err(failed)?;
    Ok(responses)
}

/// Notes the time of each removal. Returns when all keys are removed; an error if the watch ends
/// before.
async fn see_removals(
    mut responses: Streaming<WatchResponse>,
    prefix: String,
    times: Rc<RefCell<Vec<LeaseTimes>>>,
) -> Result<(), CliError> {
    let mut left = times.borrow().len();
    while left > 0 {
        let response = responses.message().await.map_err(CliError::other)?;
        let Some(response) = response.filter(|response| !response.canceled) else {
            return Err(CliError::Finding("the watch ended".to_owned()));
        };
        let now = Instant::now();
        let mut times = times.borrow_mut();
        for event in response.events.iter().filter(|event| event.r#type() == EventType::Delete) {
            let key = event.kv.as_ref().and_then(|kv| kv.key.strip_prefix(prefix.as_bytes()));
            let number: Option<usize> = key.and_then(|key| std::str::from_utf8(key).ok()?.parse().ok());
            if let Some(life) = number.and_then(|number| times.get_mut(number))
                && life.gone.replace(now).is_none()
            {
                left -= 1;
            }
        }
    }
    Ok(())
}

/// Keeps every lease alive once, at an even pace within `within`. Notes the times of each request
/// and answer.
async fn keep_alive_once(
    channels: &[Channel],
    leases: &[i64],
    within: Duration,
    times: &Rc<RefCell<Vec<LeaseTimes>>>,
) -> Result<(), CliError> {
    let began = Instant::now();
    let streams = channels.len() * STREAMS;
    let pace = within.div_f64(leases.len() as f64);
    let keep = |stream: usize| async move {
        let mine: Vec<_> = (stream..leases.len()).step_by(streams).map(|number| (number, leases[number])).collect();
        let noted = Rc::clone(times);
        let (sender, requests) = tokio::sync::mpsc::channel(64);
        let numbers: Vec<_> = mine.iter().map(|(number, _)| *number).collect();
        let sending = tokio::task::spawn_local(async move {
            for (number, id) in mine {
                tokio::time::sleep_until((began + pace.mul_f64(number as f64)).into()).await;
                noted.borrow_mut()[number].sent = Some(Instant::now());
                if sender.send(LeaseKeepAliveRequest { id }).await.is_err() {
                    return;
                }
            }
        });
        let mut client = LeaseClient::new(channels[stream % channels.len()].clone());
        let failed = |status: tonic::Status| CliError::Finding(format!("keep-alives fail: {}", status.message()));
        let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
        let mut answers = client.lease_keep_alive(wire::request(requests)).await.map_err(failed)?.into_inner();
        for number in numbers {
            match answers.message().await.map_err(failed)? {
                Some(answer) if answer.ttl > 0 => times.borrow_mut()[number].answered = Some(Instant::now()),
                Some(_) => {
                    let advice = "a lease ran out before it was kept alive: give a larger --ttl or fewer --leases";
                    return Err(CliError::Finding(advice.to_owned()));
                }
                None => return Err(CliError::Finding("the stream of keep-alives ended".to_owned())),
            }
        }
        sending.await.map_err(CliError::other)
    };
    futures::future::try_join_all((0..streams).map(keep)).await.map(drop)
}

/// Measures puts for as long as the leases take to run out, on other threads.
async fn puts(args: &LeaseExpiryArgs, endpoints: &Arc<[String]>, client: &ClientArgs) -> Result<Outcome, CliError> {
    let plan = Plan {
        endpoints: Arc::clone(endpoints),
        workload: Workload {
            kind: Kind::Put,
            keys: Keys::new("bench/", 24, 100_000).map_err(CliError::Usage)?,
            value: bytes::Bytes::from(vec![b'x'; args.val_size]),
            clock: None,
            serializable: false,
            sequential: false,
            leases: Arc::default(),
        },
        clients: args.clients,
        conns: args.clients.min(CONNS_MAX),
        threads: 1,
        stop: RunLimit::At(args.within),
        rate: 0,
        seed: 1,
        timeout: client.timeout,
        work: Duration::ZERO,
        progress: None,
        ledger: None,
    };
    tokio::task::spawn_blocking(move || drive::run(plan)).await.map_err(CliError::other)?
}

impl Puts {
    fn of(outcome: &Outcome, within: Duration) -> Self {
        let mut all = new_histogram();
        outcome.latencies.values().for_each(|histogram| all += histogram);
        Self {
            per_second: outcome.succeeded() as f64 / outcome.elapsed.max(within).as_secs_f64(),
            failed: outcome.failed(),
            latency_us: Latency::of(&all),
        }
    }
}

impl Report {
    fn new(args: &LeaseExpiryArgs, ttl: Duration, times: &[LeaseTimes], puts: [&Outcome; 2], spent: CpuUsage) -> Self {
        let mut late = new_histogram();
        let (mut early, mut left) = (0, 0);
        for life in times {
            let (Some(sent), Some(answered)) = (life.sent, life.answered) else { continue };
            let Some(gone) = life.gone else {
                left += 1;
                continue;
            };
            early += usize::from(gone < sent + ttl);
            let micros = gone.saturating_duration_since(answered + ttl).as_micros();
            late.saturating_record(u64::try_from(micros).unwrap_or(u64::MAX));
        }
        let last_due = times.iter().filter_map(|life| life.answered).max().map(|answered| answered + ttl);
        let last_gone = times.iter().filter_map(|life| life.gone).max();
        let after = last_due.zip(last_gone).map_or(Duration::ZERO, |(due, gone)| gone.saturating_duration_since(due));
        let [before, during] = puts.map(|outcome| Puts::of(outcome, args.within));
        Self {
            leases: args.leases,
            ttl_seconds: args.ttl,
            within_seconds: args.within.as_secs_f64(),
            early,
            left,
            late_us: Latency::of(&late),
            all_gone_after_ms: after.as_secs_f64() * 1e3,
            puts_kept: during.per_second / before.per_second.max(1e-9),
            puts_before: before,
            puts_during: during,
            spent,
        }
    }

    fn print(&self, write_out: WriteOut) -> Result<(), CliError> {
        use std::io::Write;
        let mut out = std::io::stdout().lock();
        if write_out == WriteOut::Json {
            return output::print_json(&mut out, self);
        }
        writeln!(
            out,
            "{} leases ran out within {} s; the last was gone {:.0} ms after its time; {} early, {} left",
            self.leases, self.within_seconds, self.all_gone_after_ms, self.early, self.left
        )?;
        let rows = [
            ("late", &self.late_us),
            ("put before", &self.puts_before.latency_us),
            ("put meanwhile", &self.puts_during.latency_us),
        ];
        latency_table(&mut out, rows.into_iter())?;
        for server in &self.spent.servers {
            let (now, peak) = (human_bytes(server.rss_bytes), human_bytes(server.rss_peak_bytes));
            writeln!(
                out,
                "process {}: {:.1} s of processor time, {now} resident (at most {peak})",
                server.pid, server.cpu_seconds
            )?;
        }
        Ok(writeln!(
            out,
            "puts: {:.0}/s before, {:.0}/s meanwhile = {:.0} %; {} failed",
            self.puts_before.per_second,
            self.puts_during.per_second,
            self.puts_kept * 100.0,
            self.puts_before.failed + self.puts_during.failed
        )?)
    }

    fn judge(&self, args: &LeaseExpiryArgs) -> Result<(), CliError> {
        let found = |what: String| Err(CliError::Finding(what));
        if self.early > 0 || self.left > 0 {
            return found(format!("{} leases ended before their time, {} are still there", self.early, self.left));
        }
        match (args.late_max, args.kept_min) {
            (Some(max), _) if self.late_us.max() > u64::try_from(max.as_micros()).unwrap_or(u64::MAX) => {
                found(format!("a lease was gone later than {} after its time", humantime::format_duration(max)))
            }
            (_, Some(min)) if self.puts_kept < min => found(format!("puts kept {:.2} of their rate", self.puts_kept)),
            _ => Ok(()),
        }
    }
}
