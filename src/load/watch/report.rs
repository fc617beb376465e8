//! The result of a run with watchers, and its verdict: for people and as JSON.

mod text;

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::super::cpu::CpuUsage;
use super::super::drive::Outcome;
use super::super::ledger::Verdict;
use super::super::report::Latency;
use super::args::{Mode, Spec};
use super::layout::Layout;
use crate::error::CliError;
use crate::output::{self, WriteOut, human_bytes};

/// Resident memory of the servers at several moments, bytes, in the order of `--pids`.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryPoints {
    pub(super) before: Vec<u64>,
    pub(super) created: Vec<u64>,
    pub(super) end: Vec<u64>,
    pub(super) peaks: Vec<u64>,
}

/// Results of a run besides its phases of puts.
pub(super) struct Findings {
    pub(super) expected: u64,
    pub(super) received: u64,
    /// Time from the beginning of the puts to the last event, seconds; 0 without events.
    pub(super) seconds: f64,
    pub(super) verdict: Verdict,
    pub(super) latency: Histogram<u64>,
    pub(super) spent: CpuUsage,
    pub(super) memory: MemoryPoints,
}

/// One phase of writing, with its results.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Phase {
    name: &'static str,
    seconds: f64,
    puts: u64,
    failed: u64,
    failures: BTreeMap<String, u64>,
    puts_per_second: f64,
    put_latency_us: Option<Latency>,
}

/// Result of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    workload: &'static str,
    mode: &'static str,
    endpoints: Vec<String>,
    streams: usize,
    watchers_per_stream: usize,
    watchers: u64,
    watch_keys: u64,
    conns: usize,
    clients: usize,
    rate: u64,
    val_size: usize,
    /// Puts that succeeded in the measured phase. By mode: `load`, the only phase; `idle`, the one
    /// beside idle watchers; `stall`, the one in which no watcher read.
    puts: u64,
    puts_per_second: f64,
    put_latency_us: Option<Latency>,
    puts_failed: u64,
    events_expected: u64,
    events_received: u64,
    /// Whether every watcher saw every event once and in order.
    is_complete: bool,
    events_missing: u64,
    events_extra: u64,
    watchers_disordered: u64,
    watchers_foreign: u64,
    /// Time from the beginning of the puts to the last event, seconds; 0 without events.
    seconds: f64,
    events_per_second: f64,
    event_latency_us: Option<Latency>,
    client_cpu_us_per_event: Option<f64>,
    server_cpu_us_per_event: Option<f64>,
    server_cpu_us_per_put: Option<f64>,
    #[serde(flatten)]
    spent: CpuUsage,
    memory: Vec<ServerMemory>,
    /// Growth of the memory of all servers together while the watchers were created, for each
    /// watcher.
    rss_bytes_per_watcher: Option<f64>,
    /// Mode `idle`: fall of the rate of writes beside idle watchers, compared with the mean of the
    /// phases before and after without watchers, percent. Negative for a rise.
    put_drop_percent: Option<f64>,
    /// Mode `stall`: rate of writes while no watcher read, divided by the rate while all read.
    stalled_to_reading: Option<f64>,
    phases: Vec<Phase>,
    /// Descriptions of the faults that make the run fail; empty if there is none.
    problems: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct ServerMemory {
    pid: u32,
    before_bytes: u64,
    created_bytes: u64,
    end_bytes: u64,
    peak_bytes: u64,
}

impl Phase {
    pub(super) fn new(name: &'static str, outcome: &Outcome) -> Self {
        let (puts, seconds) = (outcome.succeeded(), outcome.elapsed.as_secs_f64());
        Self {
            name,
            seconds,
            puts,
            failed: outcome.failed(),
            failures: outcome.failures.clone(),
            puts_per_second: puts as f64 / seconds.max(1e-9),
            put_latency_us: outcome.latencies.get("put").map(Latency::of),
        }
    }
}

impl Report {
    pub(super) fn new(spec: &Spec, layout: &Layout, phases: &[Phase], findings: Findings) -> Self {
        let Findings { expected, received, seconds, verdict, latency, spent, memory } = findings;
        let watchers = layout.watchers_total();
        let rate_of = |name: &str| phases.iter().find(|p| p.name == name).map(|p| p.puts_per_second);
        let (mode, main, measured): (_, _, &[Phase]) = match spec.mode {
            Mode::Load => ("load", &phases[0], phases),
            Mode::Idle { .. } => ("idle", &phases[1], &phases[1..2]),
            Mode::Stall { .. } => ("stall", &phases[1], phases),
        };
        let put_drop_percent = match (spec.mode, rate_of("before"), rate_of("after")) {
            (Mode::Idle { .. }, Some(before), Some(after)) => {
                Some(100.0 * (1.0 - main.puts_per_second / f64::midpoint(before, after).max(1e-9)))
            }
            _ => None,
        };
        let stalled_to_reading = match (spec.mode, rate_of("reading")) {
            (Mode::Stall { .. }, Some(reading)) => Some(main.puts_per_second / reading.max(1e-9)),
            _ => None,
        };
        let servers = spec.common.pids.iter().zip(&memory.before).zip(&memory.created).zip(&memory.end);
        let servers: Vec<ServerMemory> = servers
            .zip(&memory.peaks)
            .map(|((((pid, before), created), end), peak)| ServerMemory {
                pid: *pid,
                before_bytes: *before,
                created_bytes: *created,
                end_bytes: *end,
                peak_bytes: *peak,
            })
            .collect();
        let growth = |server: &ServerMemory| server.created_bytes as f64 - server.before_bytes as f64;
        let rss_bytes_per_watcher =
            (!servers.is_empty()).then(|| servers.iter().map(growth).sum::<f64>() / watchers as f64);
        let server_cpu = (!servers.is_empty()).then(|| spent.servers.iter().map(|s| s.cpu_seconds).sum::<f64>() * 1e6);
        let each = |micros: f64, count: u64| (count > 0).then(|| micros / count as f64);
        let puts_measured = measured.iter().map(|phase| phase.puts).sum();
        let mut report = Self {
            workload: spec.name,
            mode,
            endpoints: layout.endpoints.to_vec(),
            streams: layout.streams,
            watchers_per_stream: layout.watchers,
            watchers,
            watch_keys: layout.key_count,
            conns: layout.conns,
            clients: spec.clients,
            rate: spec.rate,
            val_size: spec.common.val_size,
            puts: main.puts,
            puts_per_second: main.puts_per_second,
            put_latency_us: main.put_latency_us.clone(),
            puts_failed: phases.iter().map(|phase| phase.failed).sum(),
            events_expected: expected,
            events_received: received,
            is_complete: verdict.is_clean(),
            events_missing: verdict.missing,
            events_extra: verdict.extra,
            watchers_disordered: verdict.disordered_watchers,
            watchers_foreign: verdict.foreign_watchers,
            seconds,
            events_per_second: if received > 0 { received as f64 / seconds.max(1e-9) } else { 0.0 },
            event_latency_us: (!latency.is_empty()).then(|| Latency::of(&latency)),
            client_cpu_us_per_event: each(spent.client_cpu_seconds * 1e6, received),
            server_cpu_us_per_event: server_cpu.and_then(|micros| each(micros, received)),
            server_cpu_us_per_put: server_cpu.and_then(|micros| each(micros, puts_measured)),
            spent,
            memory: servers,
            rss_bytes_per_watcher,
            put_drop_percent,
            stalled_to_reading,
            phases: phases.to_vec(),
            problems: Vec::new(),
        };
        report.problems = report.problems(spec, &verdict);
        report
    }

    fn problems(&self, spec: &Spec, verdict: &Verdict) -> Vec<String> {
        let mut problems = Vec::new();
        if !verdict.is_clean() {
            problems.push(format!(
                "not every watcher saw every event once and in order: {} events missing, {} too many, {} watchers out of \
                 order, {} with events that nobody wrote\n  {}",
                verdict.missing,
                verdict.extra,
                verdict.disordered_watchers,
                verdict.foreign_watchers,
                verdict.examples.join("\n  ")
            ));
        }
        if self.puts_failed > 0 && !spec.common.allow_errors {
            let failures = self.phases.iter().flat_map(|phase| &phase.failures);
            let reasons: Vec<String> = failures.map(|(reason, count)| format!("{count} x {reason}")).collect();
            problems.push(format!("{} puts failed: {}", self.puts_failed, reasons.join("; ")));
        }
        if let (Mode::Stall { fall_percent_max, .. }, Some(ratio)) = (spec.mode, self.stalled_to_reading)
            && ratio * 100.0 < 100.0 - fall_percent_max
        {
            problems.push(format!(
                "while the streams did not read, writing ran at {:.0} % of its speed before; --fall-max allows {:.0} %",
                ratio * 100.0,
                100.0 - fall_percent_max
            ));
        }
        if let Some(max) = spec.rss_bytes_max {
            for server in self.memory.iter().filter(|server| server.peak_bytes > max) {
                let (peak, max) = (human_bytes(server.peak_bytes), human_bytes(max));
                problems.push(format!("process {} had {peak} resident; --rss-max is {max}", server.pid));
            }
        }
        problems
    }

    /// Fails with the text of all `problems`, if there are any.
    pub(super) fn check(&self) -> Result<(), CliError> {
        if self.problems.is_empty() { Ok(()) } else { Err(CliError::Finding(self.problems.join("\n"))) }
    }

    pub(super) fn print(&self, write_out: WriteOut) -> Result<(), CliError> {
        let mut out = std::io::stdout().lock();
        match write_out {
            WriteOut::Json => output::print_json(&mut out, self),
            WriteOut::Simple | WriteOut::Table => self.print_text(&mut out),
        }
    }
}
