//! The result of a run, for people and as JSON.

use std::collections::BTreeMap;
use std::io::Write;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::cpu::CpuUsage;
use super::drive::Outcome;
use crate::error::CliError;
use crate::output::{self, WriteOut, human_bytes};

/// Settings of the run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Settings {
    pub(super) workload: &'static str,
    pub(super) endpoints: Vec<String>,
    pub(super) clients: usize,
    pub(super) conns: usize,
    pub(super) key_size: usize,
    pub(super) val_size: usize,
    pub(super) keys: u64,
    pub(super) consistency: &'static str,
    pub(super) sequential: bool,
    pub(super) rate: u64,
    pub(super) work_us: f64,
}

/// Summary of a histogram of latencies: their count, and all other numbers in microseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Latency {
    count: u64,
    mean: f64,
    stddev: f64,
    min: u64,
    p10: u64,
    p25: u64,
    p50: u64,
    p75: u64,
    p90: u64,
    p95: u64,
    p99: u64,
    p99_9: u64,
    max: u64,
}

/// Result of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    settings: Settings,
    operations: u64,
    failed: u64,
    failures: BTreeMap<String, u64>,
    seconds: f64,
    operations_per_second: f64,
    pairs_read: u64,
    short_reads: u64,
    longest_pause_ms: f64,
    latency_us: BTreeMap<&'static str, Latency>,
    /// Operations a second in each tenth of the operations, as [`Outcome::parts`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    operations_per_second_by_tenth: Vec<f64>,
    client_cpu_us_per_operation: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_cpu_us_per_operation: Option<f64>,
    #[serde(flatten)]
    spent: CpuUsage,
}

impl Latency {
    /// The longest latency, microseconds; 0 if there is none.
    pub(super) fn max(&self) -> u64 {
        self.max
    }

    pub(super) fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Self {
            count: histogram.len(),
            mean: histogram.mean(),
            stddev: histogram.stdev(),
            min: histogram.min(),
            p10: at(0.10),
            p25: at(0.25),
            p50: at(0.50),
            p75: at(0.75),
            p90: at(0.90),
            p95: at(0.95),
            p99: at(0.99),
            p99_9: at(0.999),
            max: histogram.max(),
        }
    }
}

impl Report {
    pub(super) fn new(settings: Settings, outcome: &Outcome, spent: CpuUsage) -> Self {
        let operations = outcome.succeeded();
        let seconds = outcome.elapsed.as_secs_f64();
        let each = |cpu_seconds: f64| cpu_seconds * 1e6 / (operations.max(1) as f64);
        Self {
            settings,
            operations,
            failed: outcome.failed(),
            failures: outcome.failures.clone(),
            seconds,
            operations_per_second: operations as f64 / seconds.max(1e-9),
            pairs_read: outcome.pairs,
            short_reads: outcome.short,
            longest_pause_ms: outcome.longest_pause.as_secs_f64() * 1e3,
            latency_us: outcome.latencies.iter().map(|(method, h)| (*method, Latency::of(h))).collect(),
            operations_per_second_by_tenth: outcome.parts.clone(),
            client_cpu_us_per_operation: each(spent.client_cpu_seconds),
            server_cpu_us_per_operation: (!spent.servers.is_empty())
                .then(|| each(spent.servers.iter().map(|server| server.cpu_seconds).sum())),
            spent,
        }
    }

    pub(super) fn print(&self, write_out: WriteOut) -> Result<(), CliError> {
        let mut out = std::io::stdout().lock();
        match write_out {
            WriteOut::Json => output::print_json(&mut out, self),
            WriteOut::Simple | WriteOut::Table => self.print_text(&mut out),
        }
    }

    fn print_text(&self, out: &mut impl Write) -> Result<(), CliError> {
        let s = &self.settings;
        writeln!(
            out,
            "{}: {} operations in {:.2} s = {:.0}/s; {} clients on {} connections, {} failed",
            s.workload, self.operations, self.seconds, self.operations_per_second, s.clients, s.conns, self.failed
        )?;
        for (reason, count) in &self.failures {
            writeln!(out, "  failed {count} times: {reason}")?;
        }
        latency_table(out, self.latency_us.iter().map(|(method, latency)| (*method, latency)))?;
        if self.pairs_read > 0 || self.short_reads > 0 {
            writeln!(
                out,
                "{} pairs read ({:.0}/s); {} reads found less than they asked for{}",
                self.pairs_read,
                self.pairs_read as f64 / self.seconds.max(1e-9),
                self.short_reads,
                if self.short_reads > 0 { " (write the keys first: --fill)" } else { "" }
            )?;
        }
        if !self.operations_per_second_by_tenth.is_empty() {
            let parts: Vec<String> =
                self.operations_per_second_by_tenth.iter().map(|rate| format!("{rate:.0}")).collect();
            writeln!(out, "by tenths of the run: {} per second", parts.join(" "))?;
        }
        writeln!(
            out,
            "longest pause between answers {:.1} ms; generator {:.1} us of processor time an operation{}",
            self.longest_pause_ms,
            self.client_cpu_us_per_operation,
            if s.work_us > 0.0 { format!(", {:.1} us of it for --work", s.work_us) } else { String::new() }
        )?;
        if let Some(micros) = self.server_cpu_us_per_operation {
            writeln!(out, "servers {micros:.1} us of processor time an operation")?;
        }
        for server in &self.spent.servers {
            writeln!(
                out,
                "  process {}: {:.1} us an operation, {} resident (at most {})",
                server.pid,
                server.cpu_seconds * 1e6 / (self.operations.max(1) as f64),
                human_bytes(server.rss_bytes),
                human_bytes(server.rss_peak_bytes)
            )?;
        }
        Ok(())
    }
}

/// Prints a table in milliseconds, with one row for each named summary of latencies.
pub(super) fn latency_table<'a>(
    out: &mut impl Write,
    latencies: impl Iterator<Item = (&'a str, &'a Latency)>,
) -> Result<(), CliError> {
    let header = ["", "mean", "min", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p99.9", "max"];
    let rows = latencies.map(|(what, l)| {
        let values = [l.min, l.p10, l.p25, l.p50, l.p75, l.p90, l.p95, l.p99, l.p99_9, l.max];
        let mut row = vec![format!("{what}, ms"), millis(l.mean)];
        row.extend(values.iter().map(|micros| millis(*micros as f64)));
        row
    });
    output::print_table(out, &header, rows)
}

fn millis(micros: f64) -> String {
    format!("{:.2}", micros / 1000.0)
}
